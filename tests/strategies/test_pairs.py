"""Pairs and triples of options of every method: each is accepted, or refused with a remedy."""

import ast
import re
from pathlib import Path

import pytest
from option_values import combined, other_values, refused_pairs, said, sampled

from flwr_causal.app.methods import METHODS, find
from flwr_causal.core.parts import WORDS, Part, _about

#: All pairs of values that are accepted alone and refused together, see `refused_pairs`.
RECORD = Path(__file__).with_name("refused_pairs.txt")
#: How a refusal names an option and its value, and what it may be.
REFUSED = re.compile(
    r"The option '(\w+)' is (.+?)"
    r"(?:; it must be |, which is for .*: |, but with variant=.*: )(.+)\.$"
)
#: Values of options that others ask for: "given with phase_column".
GIVEN = {"phase_column": "c", "time_column": "b", "perturbed_from": 0.0, "perturbed_to": 3.0}
#: The most options that must be changed until a combination is accepted.
MOST_STEPS = 8


def mended(options, text):
    """Return the options as the text of a refusal advises."""
    found = REFUSED.match(text)
    assert found, text
    name, value, remedy = found.groups()
    asked = re.match(r"given with (\w+)", remedy)
    if asked:
        lacking = name if asked[1] in options else asked[1]
        return options | {lacking: GIVEN[lacking]}
    if name not in options:  # the variant has set it
        assert "variant" in options, f"the refusal names none of {options}: {text}"
        name, remedy = "variant", "left out"
    elif name not in ("interventions", "scales"):  # their text is another one
        assert value == repr(options[name]), text
    others = {key: one for key, one in options.items() if key != name}
    if remedy.startswith(("leave ", "left out")):
        return others
    word = re.match(r"'[^']*'|True|False|[0-9.]+|a number", remedy)
    assert word, text
    return others | {name: 0.5 if word[0] == "a number" else ast.literal_eval(word[0])}


def check(method, options):
    """Check that a refusal has a remedy, and that following the remedies ends with acceptance."""
    for _ in range(MOST_STEPS):
        text = said(method, options)
        if not text:
            return
        changed = mended(options, text)
        assert changed != options, text
        options = changed
    raise AssertionError(f"after {MOST_STEPS} remedies: {text}")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_pairs_that_are_refused_are_the_recorded_ones(method):
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    assert list(refused_pairs(method)) == [
        line for line in recorded if line.startswith(f"{method} ")
    ]


def test_every_pair_of_a_small_method():
    for options in combined(other_values("lingam"), 2):
        check("lingam", options)


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_refused_combination_has_a_remedy(method):
    values = other_values(method)
    for options in [*combined(values, 1), *combined(values, 2), *sampled(values, 3, 1000)]:
        check(method, options)


def parts_below(kind):
    """All parts."""
    for one in kind.__subclasses__():
        yield one
        yield from parts_below(one)


def test_every_word_is_needed_and_lacking_somewhere():
    needed = set()
    for method in METHODS:
        for needs in _about(find(method).strategy.options_type).needs.values():
            needed |= set().union(*needs.values()) if isinstance(needs, dict) else needs
    parts = set(parts_below(Part))
    needed |= set().union(*(part.needs for part in parts))
    lacking = set().union(*(set(WORDS) - part.gives for part in parts))
    assert needed == lacking == set(WORDS)
