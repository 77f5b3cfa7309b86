"""Every block of the README and of docs/ runs as it stands.

The blocks of a page run in order, in one namespace and in a directory that holds what only a reader
can have: tables of three parties. Of ``flwr run`` the keys and values are checked.
"""

import re
import tomllib
from pathlib import Path

import blocks
import numpy as np
import pandas as pd
import pytest
from flwr.common.config import validate_config
from sweeps import sweep

from flwr_causal.app.config import pairs_of, read_config

ROOT = Path(__file__).parents[2]
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
}
# Pages whose blocks do not run here, and why.
NOT_HERE = dict.fromkeys(
    ("docs/new_method.md", "docs/change_method.md"),
    "test_new_method.py runs them and looks at what they find",
)
NOT_HERE["docs/field_methods.md"] = "tests/examples runs them with the package of these methods"
PAGES = [page for page, text in TEXTS.items() if blocks.blocks_of(text) and page not in NOT_HERE]
APP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
KEYS = {
    f"{key}.{name}" if isinstance(value, dict) else key
    for key, value in APP["config"].items()
    for name in (value if isinstance(value, dict) else [""])
}
#: The pages that a newcomer reads first.
LED = ("README.md", "docs/start.md", "docs/moments.md", "docs/new_method.md")
# A method of somebody's own, on the page about it.
OTHERS = {"mine"}


def readers_files(directory):
    """Write tables of three parties, and a file in the form of the DREAM4 challenge."""
    rng = np.random.default_rng(0)
    for name in ("north", "south", "west"):
        dose, age = rng.normal(size=(2, 80))
        table = pd.DataFrame(
            {"age": age, "dose": dose, "pressure": dose - age + rng.normal(size=80)}
        )
        table.to_csv(directory / f"{name}.csv", index=False)
    np.savez(
        directory / "size100_1.npz",
        series=rng.normal(size=(5, 21, 3)),
        time=np.arange(21) * 50.0,
        adjacency=np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.int8),
        names=np.array(["G1", "G2", "G3"]),
    )


def test_every_page_with_blocks_is_known():
    assert set(NOT_HERE) <= set(TEXTS)
    assert {"README.md", "docs/start.md", "docs/fedpc.md", "docs/tutorials/hospital.md"} <= set(
        PAGES
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", sweep(PAGES, LED))
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    if '"mlp"' in TEXTS[page]:
        pytest.importorskip("torch", reason="perceptrons need torch")
    pytest.importorskip("matplotlib").use("Agg")
    readers_files(tmp_path)
    text = TEXTS[page].replace('"/abs/dream4"', repr(str(tmp_path)))
    assert list(blocks.run(text, page, tmp_path))


def test_a_wrong_block_is_noticed(tmp_path):
    for text in ("```python\nundefined\n```\n", "```bash\nflwr-causal run moments no.csv\n```\n"):
        with pytest.raises((NameError, RuntimeError)):
            list(blocks.run(text, "page", tmp_path))


def runs():
    """The configurations of all commands ``flwr run`` on the pages."""
    for page, text in TEXTS.items():
        for block in blocks.blocks_of(text):
            for line in blocks.commands_of(block.text) if block.language == "bash" else ():
                if line[:2] == ["flwr", "run"] and "-c" in line:
                    yield page, line[line.index("-c") + 1]


@pytest.mark.parametrize(("page", "config"), runs())
def test_the_keys_of_a_run_exist(page, config, tmp_path):
    given = pairs_of(config)
    assert set(given) <= KEYS
    if given.get("method") not in OTHERS:
        paths = {key for key, value in given.items() if re.match(r"/|\$", str(value))}
        # Files are the reader's.
        some = {key: value for key, value in given.items() if key not in paths}
        read_config(some | {key: str(tmp_path) for key in paths & {"output-dir"}})


def apps():
    """The files pyproject.toml of whole apps on the pages."""
    for page, text in TEXTS.items():
        for app in re.findall(r"^```toml\n(.*?)^```\n", text, re.S | re.M):
            if "[tool.flwr.app.components]" in app:
                yield page, app


@pytest.mark.parametrize(("page", "app"), apps())
def test_flower_accepts_the_apps_of_the_pages(page, app):
    valid, errors, _ = validate_config(tomllib.loads(app), check_module=False)
    assert valid, errors


def test_the_pages_have_apps():
    assert {page for page, _ in apps()} >= {"docs/tutorials/flower.md", "docs/new_method.md"}
