"""``python -m benchmarks``."""

from benchmarks.commands import app

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
