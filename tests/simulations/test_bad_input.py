"""Whatever is wrong with data or options is said at once: who, what, and what to do.

No message of training may have been sent by then.
"""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.simulations import simulate

FED = make_federation(d=4, n=60, parties=3)
METHODS = ["notears-admm", "moments"]
# What no method can use; see test_fedges_bad_input.py for what is wrong with categories alone.
ANYONES = [
    "nan",
    "inf",
    "duplicate names",
    "missing column",
    "extra column",
    "another case",
    "disagreeing types",
    "dates",
    "no rows",
    "no such path",
    "another file",
    "a list",
    "one dimension",
    "no parties",
]


def with_second(change):
    """The parties with a change in the second one's table."""
    tables = [table.copy() for table in FED.tables]
    changed = change(tables[1])
    return [tables[0], tables[1] if changed is None else changed, tables[2]]


def set_at(row, column, value):
    def change(table):
        table.loc[row, column] = value

    return change


def constant(tables):
    return [table.assign(x2=7.0) for table in tables]


SECOND = "party 1"
DATA = {
    "nan": (with_second(set_at(3, "x1", np.nan)), [SECOND, "x1", "1 missing", "missing_values"]),
    "inf": (with_second(set_at(3, "x1", np.inf)), [SECOND, "x1", "1 infinite", "missing_values"]),
    "constant": (constant(FED.tables), ["x2", "constant", "constant_columns"]),
    "duplicate names": (
        with_second(lambda t: t.set_axis(["x0", "x1", "x1", "x3"], axis=1)),
        [SECOND, "x1", "2 columns have this name", "rename"],
    ),
    "copied column": (
        [table.assign(again=table["x3"]) for table in FED.tables],
        ["again", "x3", "duplicate_columns"],
    ),
    "missing column": (
        with_second(lambda t: t.drop(columns="x2")),
        [SECOND, "x2", "missing", "unshared_columns"],
    ),
    "extra column": (
        with_second(lambda t: t.assign(age=np.arange(20.0))),
        [SECOND, "age", "not in the table", "unshared_columns"],
    ),
    "another case": (
        with_second(lambda t: t.rename(columns={"x2": "X2"})),
        [SECOND, "X2", "x2", "rename"],
    ),
    "text": (
        [table.assign(sex="m") for table in FED.tables],
        [SECOND, "sex", "not numeric", "text_columns"],
    ),
    "disagreeing types": (
        with_second(lambda t: t.assign(x3="12")),
        [SECOND, "x3", "text", "numbers at"],
    ),
    "dates": (
        with_second(lambda t: t.assign(x3=pd.Timestamp("2020-01-01"))),
        [SECOND, "x3", "neither numbers nor text"],
    ),
    "one row": (with_second(lambda t: t.iloc[:1]), [SECOND, "1 row", "at least 2"]),
    "no rows": (with_second(lambda t: t.iloc[:0]), [SECOND, "0 rows", "add rows"]),
    "overflow": (with_second(lambda t: t * 1e200), [SECOND, "overflow", "unit"]),
    "no such path": (
        [FED.tables[0], "/nowhere/b.csv", FED.tables[2]],
        [SECOND, "/nowhere/b.csv", "does not exist", "check the path"],
    ),
    "another file": (
        [FED.tables[0], "/etc/hostname.xlsx", FED.tables[2]],
        [SECOND, "hostname.xlsx"],
    ),
    "a list": ([FED.tables[0], [1, 2, 3], FED.tables[2]], [SECOND, "list", "DataFrame"]),
    "one dimension": (
        [FED.tables[0].to_numpy(), np.zeros(9), FED.tables[2].to_numpy()],
        [SECOND, "(9,)"],
    ),
    "no parties": ([], ["parties", "at least one"]),
}


@pytest.mark.few(13)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", DATA)
def test_bad_data(case, method, grids):
    parties, words = DATA[case]
    with pytest.raises(DataError) as caught:
        simulate(method, parties, strict=True)
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)


@pytest.mark.parametrize("case", ANYONES)
def test_bad_data_of_a_method_on_categories(case, grids):
    parties, words = DATA[case]
    with pytest.raises(DataError) as caught:
        simulate("fedges", parties, discretize=3, strict=True)
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("case", "option"),
    [
        ("nan", {"missing_values": "drop"}),
        ("inf", {"missing_values": "drop"}),
        ("constant", {"constant_columns": "drop"}),
        ("copied column", {"duplicate_columns": "drop"}),
        ("missing column", {"unshared_columns": "drop"}),
        ("extra column", {"unshared_columns": "drop"}),
        ("text", {"text_columns": "drop"}),
    ],
)
def test_the_remedy_that_is_offered_works(case, option):
    run = simulate("moments", DATA[case][0], **option)
    assert run.graph.is_acyclic()
    assert run.warnings


OPTIONS = {
    "unknown method": (
        ("fedgez", {}),
        ConfigError,
        ["fedgez", "fedges", "moments", "notears-admm"],
    ),
    "method of a wrong type": ((7, {}), ConfigError, ["7", "moments"]),
    "unknown option": (
        ("moments", {"sparcity": 0.1}),
        ConfigError,
        ["sparcity", "Did you mean 'sparsity' or 'lagged_sparsity'?"],
    ),
    "wrong type": (
        ("moments", {"threshold": "0.3"}),
        ConfigError,
        ["threshold", "a finite number"],
    ),
    "negative threshold": (
        ("moments", {"threshold": -1.0}),
        ConfigError,
        ["threshold", "0 or more"],
    ),
    "no rounds": (("notears-admm", {"max_rounds": 0}), ConfigError, ["max_rounds", "0"]),
    "quorum of two": (("moments", {"quorum": 2.0}), ConfigError, ["quorum", "at most 1"]),
    "engine": (("moments", {"engine": "spark"}), ConfigError, ["spark", "'local'", "'ray'"]),
    "required cycle": (
        ("moments", {"knowledge": {"required": (("x0", "x1"), ("x1", "x0"))}}),
        ConfigError,
        ["cycle", "x0", "x1"],
    ),
    "required and forbidden": (
        (
            "notears-admm",
            {"knowledge": {"required": (("x0", "x1"),), "forbidden": (("x0", "x1"),)}},
        ),
        ConfigError,
        ["required", "forbidden", "x0", "x1"],
    ),
    "against the tiers": (
        ("moments", {"knowledge": {"required": (("x0", "x1"),), "tiers": (("x1",), ("x0",))}}),
        ConfigError,
        ["tier", "x0", "x1"],
    ),
    "unknown names": (
        ("notears-admm", {"knowledge": {"forbidden": (("x0", "age"),)}}),
        ConfigError,
        ["age", "x0"],
    ),
    "no such knowledge": (("moments", {"knowledge": "/no.toml"}), ConfigError, ["/no.toml"]),
    "truth of another shape": (
        ("moments", {"truth": np.zeros((3, 3))}),
        DataError,
        ["truth", "(3, 3)", "4 columns"],
    ),
    "truth of one dimension": (("moments", {"truth": np.zeros(4)}), DataError, ["truth", "(4,)"]),
}


def built(options):
    """Knowledge checks itself when it is made."""
    knowledge = options.get("knowledge")
    return {"knowledge": Knowledge(**knowledge)} if isinstance(knowledge, dict) else options


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, grids):
    (method, options), error, words = OPTIONS[case]
    with pytest.raises(error) as caught:
        simulate(method, FED.tables, **built(options))
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)


@pytest.mark.parametrize("options", [{"strict": True}, {"missing_values": "drop"}])
def test_all_rows_may_be_missing(options):
    parties = with_second(lambda table: table.assign(x1=np.nan))
    with pytest.raises(DataError, match=r"party 1.*x1"):
        simulate("moments", parties, **options)


def test_nodes_that_cannot_come_are_not_waited_for_long():
    with pytest.raises((ConfigError, FederationError), match="min_available_nodes"):
        simulate("moments", FED.tables, min_available_nodes=9, round_timeout=0.01)


def test_errors_are_not_chained_to_strangers():
    """The user sees the error itself, not Flower's wrapping."""
    with pytest.raises(DataError) as caught:
        simulate("moments", DATA["nan"][0], strict=True)
    assert type(caught.value) is DataError
    assert caught.value.__cause__ is None
