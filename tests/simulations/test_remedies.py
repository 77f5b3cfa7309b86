"""Options that an error proposes are enough, for every method and kind of column."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from flwr_causal.app.methods import OWN_METHODS
from flwr_causal.data.read.statistics_files import SharedLabel
from flwr_causal.errors import DataError
from flwr_causal.simulations.engines import agreement_of

ROWS = 80


def column(kind, x, rng, party):
    """A column as tables have them."""
    day = pd.Timestamp("2020-01-01")
    made = {
        "cut": lambda: pd.cut(x, [-99, -1, 0, 1, 99]),
        "qcut": lambda: pd.qcut(x, 4),
        "dates": lambda: day + pd.to_timedelta(np.arange(ROWS) % 7, "D"),
        "days": lambda: [dt.date(2020, 1, 1 + k % 9) for k in range(ROWS)],
        "categories of dates": lambda: pd.Categorical([day + pd.Timedelta(days=1)] * ROWS),
        "ids": lambda: [f"{party}-{k}" for k in range(ROWS)],
        "shared labels": lambda: np.where(x > 0, "a", None),
        "constant": lambda: ["a"] * ROWS,
        "gaps": lambda: np.where(x > 1, np.nan, x),
        "text": lambda: rng.choice(["u", "v"], ROWS),
    }[kind]()
    found = pd.Series(made, dtype=None if not isinstance(made, list) else object)
    if kind == "shared labels":
        found = found.astype(object)
        found[found.isna()] = pd.Series([SharedLabel("8", "b")] * ROWS)[found.isna()]
    return found


KINDS = (
    *("cut", "qcut", "dates", "days", "categories of dates", "ids", "shared labels"),
    *("constant", "gaps", "text"),
)


def tables(*kinds):
    found = []
    for party in range(3):
        rng = np.random.default_rng(party)
        x = rng.normal(size=ROWS)
        frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=ROWS)})
        for kind in kinds:
            frame[kind] = column(kind, x, rng, party)
        found.append(frame)
    return found


def accepted(method, parties):
    """Return the columns that a method takes, by the options of its error if it has one."""
    try:
        return agreement_of(method, parties).names
    except DataError as caught:
        error = caught
    assert error.settings, error
    assert all(f"{name}=" in str(error) for name in error.settings)
    return agreement_of(method, parties, **error.settings).names


@pytest.mark.few(3)
@pytest.mark.parametrize("method", [one for one in OWN_METHODS if one != "2dbn"])
def test_one_refusal_names_all_that_a_method_needs(method):
    assert {"x", "y"} <= set(accepted(method, tables(*KINDS)))


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["moments", "fedges", "fedpc"])
def test_the_remedy_of_each_kind_of_column_is_accepted(method, kind):
    names = accepted(method, tables(kind))
    assert {"x", "y"} <= set(names)
    if kind in ("cut", "text"):
        assert kind in names


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["dates", "days", "categories of dates", "shared labels"])
@pytest.mark.parametrize("method", ["moments", "fedges", "fedpc"])
def test_what_holds_neither_numbers_nor_text_is_not_called_a_category(method, kind):
    options = {"moments": {"text_columns": "fail"}, "fedges": {"discretize": 3}, "fedpc": {}}[
        method
    ]
    try:
        names = agreement_of(method, tables(kind), **options).names
    except DataError as caught:
        error = caught
    else:  # such a column may be left out, where nothing asks for an error
        assert kind not in names
        return
    assert "neither numbers nor text" in str(error)
    assert "take them as categories" not in str(error)
    assert error.settings == {"exclude": kind}
