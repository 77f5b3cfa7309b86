"""The command of the benchmarks writes result files that pages can show."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import results

ROOT = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks", "measure", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.nightly
def test_a_benchmark_writes_its_result(tmp_path):
    listed = run("--list").stdout.splitlines()
    assert len(listed) == len({line.split()[0] for line in listed}) > 10
    done = run("speed-traffic", "--quick", "--seeds", "3", "--output-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    result = results.read(tmp_path / "speed-traffic.csv")
    assert result.markdown() in done.stdout
    assert result.head["seeds"] == "seeds 3"
    assert result.head["command"].endswith("speed-traffic --seeds 3 --quick")
    # A d x d array is sent up and down, with at most a row and a column more; of `moments` two:
    # products within the parties, and of their means.
    for row in (dict(zip(result.columns, row, strict=True)) for row in result.rows):
        for up in row["up"].split(" or "):
            arrays = 2 if row["method"] == "moments" else 1
            assert 0 < int(up) - arrays * int(row["array"]) < 2000
    refused = run("no-such-name")
    assert refused.returncode == 2
    assert "no benchmark fits no-such-name" in refused.stderr
