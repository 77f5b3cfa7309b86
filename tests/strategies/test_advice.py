"""The options that messages propose are accepted together with those of the run that proposes them.

Tables are made to be doubtful in many ways; what warnings and errors then propose, as name=value,
is set beside the options of the run.
"""

import ast
import re

import numpy as np
import pandas as pd
import pytest

from flwr_causal.app.methods import METHODS, build
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of

VALUE = r"'[^']*'|True|False|[\d.]+"
#: Options that are proposed together, and the method that they are for if it is another one.
GROUP = re.compile(
    rf"(?:'?(?P<method>{'|'.join(map(re.escape, METHODS))})'? (?:with|and) )?"
    rf"(?<!than )(?P<pairs>\b[a-z_]+=(?:{VALUE})(?:(?: and |, )[a-z_]+=(?:{VALUE}))*)"
)
PAIR = re.compile(rf"([a-z_]+)=({VALUE})")


def advised(text):
    """Return what a message proposes: methods (None: the same one) and options."""
    return [
        (found["method"], {name: ast.literal_eval(value) for name, value in pairs})
        for found in GROUP.finditer(text)
        if (pairs := PAIR.findall(found["pairs"]))
    ]


def test_proposals_are_read_from_messages():
    text = "Set a_b=True, c=2, or x='y' and z=0.5; 'moments' with solver='class' does not."
    assert advised(text) == [
        (None, {"a_b": True, "c": 2}),
        (None, {"x": "y", "z": 0.5}),
        ("moments", {"solver": "class"}),
    ]


def refused(method, options, text):
    """Return the errors of the options that a message proposes."""
    errors = []
    # What was assumed is no advice.
    text = "\n".join(line for line in text.splitlines() if not line.startswith("Assumed"))
    for other, pairs in advised(text):
        try:
            build(other or method, pairs if other else {**options, **pairs})
        except ConfigError as error:
            errors.append(f"{other or method} {options} {pairs}: {error}")
    return errors


def said(method, parties, options):
    """Return the warnings of a run, or the error in their place."""
    try:
        return list(simulate(method, parties, **options).warnings)
    except (DataError, ConfigError) as error:
        return [str(error)]


def categories(seed=0, rows=60):
    """Rare states, states of equal spelling, and marks of missing values."""
    rng = np.random.default_rng(seed)
    a = rng.choice(["x", "y", "z", "Z "], rows, p=[0.5, 0.4, 0.05, 0.05])
    b = np.where(rng.random(rows) < 0.8, a, "x")
    c = np.where(rng.random(rows) < 0.1, "?", b)
    return pd.DataFrame({"a": a, "b": b, "c": c})


def numbers(seed=0, rows=80):
    """Two units, a multiple, a copy of most rows, codes of missing values, and Gaussian noise."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    b = 1000 * a + 100 * rng.normal(size=rows)
    frame = pd.DataFrame({"age": a, "b": b, "c": 2 * a, "d": b / 500 + rng.normal(size=rows)})
    frame["e"] = np.where(rng.random(rows) < 0.7, 0.0, rng.normal(size=rows))
    frame.loc[3, "d"] = 999
    return frame


FEDGES = [
    {},
    {"mode": "scores"},
    {"mode": "scores", "start": "driven"},
    {"mode": "exact"},
    {"mode": "exact", "small_counts": "suppress"},
    {"mode": "fusion"},
    {"mode": "fusion", "parameters": True},
]


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("options", FEDGES, ids=str)
@pytest.mark.parametrize("parties", [2, 3])
def test_fedges(options, parties):
    tables = [categories(seed) for seed in range(parties)]
    mixed = [numbers(seed).join(categories(seed, 80), rsuffix="_state") for seed in range(parties)]
    texts = said("fedges", tables, options)
    texts += said("fedges", mixed, options)
    assert texts
    assert [error for text in texts for error in refused("fedges", options, text)] == []


OF_NUMBERS = [
    ("moments", {}),
    ("moments", {"standardize": True}),
    ("moments", {"solver": "class"}),
    ("moments", {"solver": "ges"}),
    ("moments", {"solver": "dagma"}),
    ("moments", {"model": "additive"}),
    ("moments", {"order": 1}),
    ("moments", {"order": 1, "solver": "class"}),
    ("lingam", {}),
    ("lingam", {"standardize": True}),
    ("notears-admm", {"max_rounds": 5}),
    ("notears-admm", {"max_rounds": 5, "standardize": True}),
    ("notears-admm", {"max_rounds": 3, "model": "mlp", "inner_steps": 2}),
    ("fedcausal", {"max_rounds": 4}),
    ("fedcausal", {"max_rounds": 4, "model": "linear"}),
    ("2dbn", {"max_rounds": 4}),
]


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), OF_NUMBERS, ids=str)
def test_methods_on_numbers(method, options):
    tables = [numbers(seed) for seed in range(3)]
    shifted = [table + 1e4 * k for k, table in enumerate(tables)]
    texts = [*said(method, tables, options), *said(method, shifted, options)]
    texts += said(method, [tables[0].assign(f="text")], options)
    assert texts
    assert [error for text in texts for error in refused(method, options, text)] == []


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"model": "curved"}], ids=str)
def test_numbers_and_categories(options):
    options = {"text_columns": "keep", **options}
    tables = [numbers(seed, 200).join(categories(seed, 200), rsuffix="_state") for seed in range(3)]
    other = tables[0].assign(b=tables[0]["b"].to_numpy()[::-1], d=-tables[0]["d"])
    other["age"] += np.random.default_rng(1).normal(size=200) * 20
    texts = said("moments", tables, options) + said("moments", [other, *tables[1:]], options)
    assert any("Single parties decide" in text for text in texts)
    assert [error for text in texts for error in refused("moments", options, text)] == []


@pytest.mark.few(3)
@pytest.mark.parametrize("method", METHODS)
def test_errors_of_tables(method):
    """What each method says of tables that it cannot use."""
    rng = np.random.default_rng(0)
    tables = {
        "missing": numbers().mask(rng.random((80, 5)) < 0.05),
        "text": numbers().assign(f=[f"row {k}" for k in range(80)]),
        "constant": numbers().assign(f=1.0),
        "copy": numbers().assign(f=numbers()["age"]),
        "many states": pd.DataFrame({"a": range(400), "b": [0.5, 1.5] * 200}),
    }
    errors = []
    for table in tables.values():
        try:
            agreement_of(method, [table, table.drop(columns=table.columns[-1])])
        except CausalError as error:
            errors += refused(method, {}, str(error))
        try:
            agreement_of(method, [table, table[::-1]])
        except CausalError as error:
            errors += refused(method, {}, str(error))
    assert errors == []
