"""The blocks of the first pages run in exactly the environment that the pages make.

Other tests of the pages run in the environment of developers, which has all extras.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import blocks
import pytest
from processes import flower_programs

ROOT = Path(__file__).parents[2]
# Who makes the environment, and the pages that are read in it.
ENVIRONMENTS = {
    "README.md": ["README.md"],
    "docs/start.md": [
        "docs/start.md",
        *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/tutorials/*.md"))),
    ],
}


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def command_of(page):
    """The first commands of a page that install the package."""
    return next(
        one.text
        for one in blocks.blocks_of(text_of(page))
        if one.language == "bash" and "pip install" in one.text
    )


@pytest.mark.parametrize(
    "page", sorted({page for found in ENVIRONMENTS.values() for page in found})
)
def test_a_page_makes_its_environment_or_names_the_page_that_does(page):
    assert page in ENVIRONMENTS or "start.md#install" in text_of(page)
    if page in ENVIRONMENTS:
        assert "python3 -m venv .venv" in command_of(page)


@pytest.mark.nightly
@pytest.mark.parametrize("maker", ENVIRONMENTS)
def test_the_pages_run_in_the_environment_that_they_make(maker, tmp_path):
    """Nightly: it installs the package and what it needs, and needs a network for that."""
    copy = tmp_path / "repository"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.splitlines()):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    kept = ("PYTHONPATH", "VIRTUAL_ENV")
    # The interpreter of this test goes by the name that the pages give it.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3"))
    with flower_programs(tmp_path) as flower:
        environment = {
            **{name: value for name, value in flower.environment.items() if name not in kept},
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "MPLBACKEND": "Agg",
        }
        run_all(maker, copy, tmp_path, environment)


def run_all(maker, copy, directory, environment):
    def run(command, where):
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    run(["bash", "-e", "-c", command_of(maker)], copy)
    for page in ENVIRONMENTS[maker]:
        place = directory / page.replace("/", " ")
        place.mkdir()
        run([copy / ".venv/bin/python", copy / "tools/blocks.py", copy / page, place], copy)
