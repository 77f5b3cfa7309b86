"""The tests that the pages name for their promises are there."""

import ast
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


@cache
def functions_in(file):
    tree = ast.parse((REPOSITORY / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_that_a_page_names_exists():
    named = 0
    for page in (REPOSITORY / "docs").rglob("*.md"):
        file = ""
        for path, test in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", page.read_text("utf-8")):
            file = path or file
            assert test in functions_in(file), f"{page.name}: {file}::{test}"
            named += 1
    assert named > 10
