"""What a user reads of a strategy: ``help``, completion, and what a type checker says."""

import pydoc
import re
import subprocess
import sys
from dataclasses import dataclass, fields

import pytest

from flwr_causal.app.methods import METHODS
from flwr_causal.core.documented import with_parameters
from flwr_causal.strategies import CausalOptions, CausalStrategy

ALL = [CausalStrategy, *(METHODS[one].strategy for one in sorted(METHODS))]


@pytest.mark.parametrize("strategy", ALL, ids=lambda one: one.__name__)
def test_help_says_of_each_option_what_it_does(strategy):
    shown = pydoc.plain(pydoc.render_doc(strategy))
    entries = re.findall(r"^ \|  (\w+) : (.+), default (.+)\n \|      (\S.*)", shown, re.M)
    told = {name: default for name, _, default, _ in entries}
    assert told == {one.name: repr(one.default) for one in fields(strategy.options_type)}
    # What the methods have themselves comes first.
    own = [one for one in told if one not in CausalOptions.__dataclass_fields__]
    assert list(told)[: len(own)] == own


def public(strategy):
    return {name for name in dir(strategy) if not name.startswith("_")}


@pytest.mark.parametrize("strategy", ALL, ids=lambda one: one.__name__)
def test_completion_shows_few_names(strategy):
    """What is internal has an underscore: a new public name is a decision."""
    assert len(public(CausalStrategy)) <= 24
    assert len(public(strategy)) <= 26
    # Of these a method of one's own is made, and a run started.
    needed = {"train", "options_type", "validate", "start", "outcome", "with_options"}
    assert needed <= public(strategy)


def test_the_parameters_take_the_place_of_those_of_a_base():
    @dataclass(frozen=True, kw_only=True)
    class Base:
        """Options.

        Parameters
        ----------
        first : int
            The first one.
        """

        first: int = 1

    @dataclass(frozen=True, kw_only=True)
    class Own(Base):
        """Options.

        Parameters
        ----------
        second : str
            The second one.
        """

        second: str = "a"

    doc = "Do it.\n\nParameters\n----------\n**options\n    All.\n\nReferences\n----------\nA book."
    assert with_parameters(doc, Own, Base) == (
        "Do it.\n\nParameters\n----------\n"
        "second : str, default 'a'\n    The second one.\n"
        "first : int, default 1\n    The first one.\n\n"
        "References\n----------\nA book.\n"
    )


@pytest.mark.nightly
def test_a_type_checker_knows_the_options(tmp_path):
    """Nightly: it reads the whole package."""
    file = tmp_path / "own.py"
    wrong = {
        "NotearsADMM(treshold=0.2)": 'Unexpected keyword argument "treshold"',
        'Moments(solver="ordr")': 'Argument "solver" to "Moments" has incompatible type',
        'FedGES(replicates="many")': 'Argument "replicates" to "FedGES" has incompatible type',
        "FedPC(1)": "Too many positional arguments",
        "FedCausal(hiden=3)": 'Unexpected keyword argument "hiden"',
        "TwoDBN(lag=3)": 'Unexpected keyword argument "lag"',
        "Lingam(prune=2)": 'Unexpected keyword argument "prune"',
        "Describe(bin=2)": 'Unexpected keyword argument "bin"',
    }
    names = [line.partition("(")[0] for line in wrong]
    right = [f"{name}(replicates=2, seed=1)" for name in names]
    lines = [f"from flwr_causal.strategies import {', '.join(names)}", *right, *wrong]
    file.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if f"{file.name}:" in line]
    errors = {int(line.split(":")[1]): line for line in found if ": error:" in line}
    for number, (line, message) in enumerate(wrong.items(), 2 + len(right)):
        assert message in errors.pop(number, ""), (line, done.stdout)
    assert not errors
