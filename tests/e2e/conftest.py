"""Fixtures of the end-to-end tests: the example's own tables, and processes that go away again."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import EXAMPLE, flower_programs

PARTIES = ("centre", "north", "south")


@pytest.fixture
def flower(tmp_path):
    """Flower's programs in an empty home, all killed at the end."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("the processes' environments are read from /proc")
    with flower_programs(tmp_path) as programs:
        yield programs


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """The example's tables, by party in the order that a run gives them."""
    directory = tmp_path_factory.mktemp("tables")
    subprocess.run(
        [sys.executable, str(EXAMPLE / "make_data.py"), str(directory)],
        check=True,
        capture_output=True,
    )
    return {name: directory / f"{name}.csv" for name in PARTIES}
