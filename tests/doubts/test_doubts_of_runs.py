"""Warnings whose words are elsewhere in the code are there as the page has them."""

import re
from pathlib import Path

import pytest

import flwr_causal
from flwr_causal.data.check.rules import FactRule
from flwr_causal.doubts import graphs, runs, tables

ROOT = Path(flwr_causal.__file__).parent
#: Texts that are written in several parts are one.
JOINED = re.compile(r'"\s*\n\s*f?"')
CODE = JOINED.sub(
    "",
    "\n".join(
        path.read_text(encoding="utf-8")
        for path in ROOT.rglob("*.py")
        if path != ROOT / "doubts" / "runs.py"
    ),
)
NOTICES = [*tables.RULES, *graphs.RULES, *runs.BEFORE, *runs.AFTER]


@pytest.mark.parametrize(
    "words", [one.words for one in NOTICES if not isinstance(one, FactRule)], ids=str
)
def test_the_words_of_the_page_are_in_the_code(words):
    for part in words.split("..."):
        assert part.strip(" ,()") in CODE
