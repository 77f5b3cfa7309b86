"""Every Python block of the README and of docs/ runs as it stands, on small tables.

The blocks of a page run in order, in one namespace and in an empty directory. ``GIVEN`` has the
names that a page uses for the reader's own tables; a file that only a reader can have is made.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from federations import app_of

from flwr_causal.simulations import LocalGrid

ROOT = Path(__file__).parents[2]
BLOCKS = {
    path.relative_to(ROOT).as_posix(): re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M
    )
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
}
# Pages whose blocks do not run here, and why.
NOT_HERE = {"docs/new_method.md": "test_new_method.py runs them and looks at what they find"}
PAGES = [page for page, blocks in BLOCKS.items() if blocks and page not in NOT_HERE]


def numbers(rows=40, columns=3, seed=0):
    """Rows of a linear chain."""
    noise = np.random.default_rng(seed).normal(size=(rows, columns))
    for j in range(1, columns):
        noise[:, j] += noise[:, j - 1]
    return noise


def categories(rows=1000):
    """A frame of two categories that depend on each other, and a boolean that does not."""
    rng = np.random.default_rng(1)
    smokes = rng.random(rows) < 0.4
    ill = rng.random(rows) < np.where(smokes, 0.6, 0.1)
    return pd.DataFrame(
        {
            "smoker": np.where(smokes, "yes", "no"),
            "disease": np.where(ill, "yes", "no"),
            "tall": rng.random(rows) < 0.5,
        }
    )


def grid():
    """A grid of two nodes with a table each, for the block that belongs into a ServerApp."""
    columns = ["x", "y", "z"]
    return LocalGrid(app_of([pd.DataFrame(numbers(seed=k), columns=columns) for k in range(2)]), 2)


def dream4(directory):
    """Write a file in the form of the challenge's networks."""
    rng = np.random.default_rng(2)
    np.savez(
        directory / "size100_1.npz",
        series=rng.normal(size=(5, 21, 3)),
        time=np.arange(21) * 50.0,
        adjacency=np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.int8),
        names=np.array(["G1", "G2", "G3"]),
    )


GIVEN = {
    "README.md": lambda: {"frame": categories(), "grid": grid()},
    "docs/methods.md": lambda: {
        "parties": [numbers(), numbers(seed=1)],
        **{f"series_{name}": numbers(60, 3, k) for k, name in enumerate("abc")},
    },
    "docs/fedcausal.md": lambda: {"parties": [numbers(seed=seed) for seed in range(4)]},
    "docs/security.md": lambda: {"parties": [numbers(seed=seed) for seed in range(3)]},
    "docs/2dbn.md": lambda: {f"series_{name}": numbers(60, 3, k) for k, name in enumerate("abc")},
}


def test_every_page_with_blocks_is_known():
    assert set(NOT_HERE) <= {page for page, blocks in BLOCKS.items() if blocks}
    assert set(GIVEN) <= set(PAGES)
    assert {"README.md", "docs/fedpc.md", "docs/fedcausal.md", "docs/2dbn.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    if any('"mlp"' in block for block in BLOCKS[page]):
        pytest.importorskip("torch", reason="perceptrons need torch")
    monkeypatch.chdir(tmp_path)
    dream4(tmp_path)
    names = GIVEN[page]() if page in GIVEN else {}
    for block in BLOCKS[page]:
        text = block.replace('"/abs/dream4"', repr(str(tmp_path)))
        exec(compile(text, page, "exec"), names)
