"""Every rule of the checks finds its case, and nothing in tables without it."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.check import checks
from flwr_causal.data.check.agreement import leave_out
from flwr_causal.data.check.checks import RULES, examine
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.errors import DataError

ROWS = 8
KEEP = {"text_columns": "keep"}
SEX, ILL = ["f", "m"] * 4, ["no", "no", "yes", "no"] * 2
DATES = pd.date_range("2020-01-01", periods=ROWS)
ALL_DIFFER = [*"stuvwxyz"]
SINGLE, OTHER = ["yes"] * ROWS, ["no"] * ROWS


def numbers(**columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}).assign(**columns)


def looked(*tables, also=None, **options):
    """Return what applies the rules to these tables, with other facts in each report."""
    handling = Handling(**options)

    def look():
        reports = {f"p{k}": describe(one, handling, sums=True) for k, one in enumerate(tables)}
        return examine({p: replace(one, **also or {}) for p, one in reports.items()}, handling)

    return look


def of_states(*columns, **options):
    """The same of tables of two categories, the second one with these values at each party."""
    handling = Handling(**{**KEEP, "names_states": True, **options})
    tables = [pd.DataFrame({"sex": SEX, "ill": ill}) for ill in columns]

    def look():
        return examine(
            {f"p{k}": describe(one, handling, states=True) for k, one in enumerate(tables)},
            handling,
        )

    return look


def left_out(*names):
    return lambda: leave_out(names, Handling())


GOOD, GOOD_STATES = looked(numbers(), numbers()), of_states(ILL, ILL)
#: In the order of the rules: tables in which a rule finds something, and others.
CASES = [
    # Rows.
    (looked(numbers(a=[np.nan, *range(7)]), missing_values="drop"), GOOD),
    (looked(numbers(a=[np.nan, *range(7)]), missing_values="drop", min_rows=8), GOOD),
    (looked(numbers().head(1)), looked(numbers().head(1), min_rows=1)),
    # Tables, and columns that some parties lack.
    (looked(numbers(), also={"notes": ("2 of 9 series are too short",)}), GOOD),
    (looked(numbers(), also={"leaves_out": True}), GOOD),
    (looked(numbers(), also={"level_rows": 0}), looked(numbers(), also={"level_rows": 3})),
    (looked(pd.concat([numbers(), numbers()[["a"]]], axis=1)), GOOD),
    (
        looked(numbers(), numbers(), numbers()[["a"]]),
        looked(numbers(c=range(ROWS)), numbers(), numbers()),
    ),
    (
        looked(numbers(c=range(ROWS)), numbers(), numbers()),
        looked(numbers(), numbers(), numbers()[["a"]]),
    ),
    # Kinds.
    (looked(numbers(b=SEX), numbers()), looked(numbers(b=SEX), numbers(b=SEX), **KEEP)),
    (looked(numbers(b=SEX)), looked(numbers(b=SEX), **KEEP)),
    (looked(numbers(b=SEX), numbers="b", **KEEP), looked(numbers(), numbers="b", **KEEP)),
    (
        looked(numbers(b=SEX), numbers(b=DATES), **KEEP),
        looked(numbers(b=SEX), numbers(b=SEX), **KEEP),
    ),
    # Values.
    (
        looked(numbers(a=[np.nan, *range(7)])),
        looked(numbers(a=[np.nan, *range(7)]), missing_values="em"),
    ),
    (
        looked(numbers(a=[np.inf, *range(7)])),
        looked(numbers(a=[np.inf, *range(7)]), missing_values="drop"),
    ),
    (looked(numbers() * 1e30), looked(numbers() * 1e10)),
    (looked(numbers() * 1e-60), looked(numbers() * 1e-10)),
    # States.
    (of_states(SINGLE, party_column="ill"), of_states(SINGLE, OTHER, party_column="ill")),
    (of_states(ALL_DIFFER), GOOD_STATES),
    (of_states(DATES), GOOD_STATES),
    (of_states([True, False] * 4, [0, 1] * 4), of_states([0, 1] * 4, [0, 1] * 4)),
    (
        of_states([None] * ROWS, missing_values="keep"),
        of_states([None, *ILL[1:]], missing_values="keep"),
    ),
    (of_states(range(ROWS), max_states=4), of_states([0, 1, 2, 3] * 2, max_states=4)),
    (
        of_states([*"abcd"] * 2, [*"efgh"] * 2, max_states=4),
        of_states([*"abcd"] * 2, [*"dcba"] * 2, max_states=4),
    ),
    (of_states(SINGLE, SINGLE), of_states(SINGLE, OTHER)),
    # Constants.
    (
        looked(numbers(b=np.nan), missing_values="keep"),
        looked(numbers(), numbers(b=np.nan), missing_values="keep"),
    ),
    (looked(numbers(b=1.0), numbers()), GOOD),
    (
        looked(numbers(b=SINGLE), numbers(b=SINGLE), **KEEP),
        looked(numbers(b=1.0), numbers(b=1.0), **KEEP),
    ),
    (looked(numbers(b=1.0), numbers(b=2.0)), looked(numbers(b=1.0), numbers(b=1.0))),
    (looked(numbers(b=1.0), numbers(b=1.0)), looked(numbers(b=1.0), numbers(b=2.0))),
    # Copies.
    (
        looked(*[numbers(c=numbers()["a"])] * 2),
        looked(numbers(c=numbers()["a"]), numbers(c=range(ROWS))),
    ),
    # The states of all columns.
    (
        of_states(SINGLE, SINGLE, constant_columns="keep"),
        of_states(SINGLE, OTHER, constant_columns="keep"),
    ),
    (of_states(SINGLE, OTHER), of_states(SINGLE, ILL)),
    (of_states(SINGLE, ILL), of_states(SINGLE, OTHER)),
    # No column, and columns that name rows.
    (
        looked(numbers()[["a"]].assign(a=SEX), text_columns="drop"),
        looked(numbers(a=SEX), text_columns="drop"),
    ),
    (left_out("id"), left_out()),
]


@pytest.mark.parametrize(
    ("rule", "case"),
    zip(RULES, CASES, strict=True),
    ids=[f"{k} {rule.listed_as}" for k, rule in enumerate(RULES)],
)
def test_each_rule_finds_its_case_and_no_other(rule, case, monkeypatch):
    honest, applied = checks.found_by, []

    def recorded(rules, facts):
        for one, fields in honest(rules, facts):
            applied.append(one)
            yield one, fields

    monkeypatch.setattr(checks, "found_by", recorded)
    found, plain = case
    with suppress(DataError):
        found()
    assert any(one is rule for one in applied)
    applied.clear()
    plain()
    assert not any(one is rule for one in applied)
