"""Draw the README's picture, docs/pictures/graph.svg, by the README's own example."""

import os
import tempfile
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"

import blocks
import matplotlib as mpl

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the example and keep what it draws."""
    # Text stays text, which makes the file small; without dates it does not change.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "flwr-causal", "figure.dpi": 72}
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as directory:
        example = next(blocks.run(page, "README.md", Path(directory)))[1]
    print(example.text)
    target = ROOT / "docs" / "pictures" / "graph.svg"
    target.write_text(example.pictures[0], encoding="utf-8")


if __name__ == "__main__":
    main()
