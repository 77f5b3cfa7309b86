"""What is wrong with tables of categories or with FedGES's options is said before any training."""

import numpy as np
import pandas as pd
import pytest
from category_federations import make_tables

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.simulations import simulate

TABLES, _ = make_tables(d=4, n=90, parties=3, seed=0)
NUMBERS, _ = federated_linear(4, 300, 3, seed=0)
MODES = ["scores", "exact", "fusion"]


def with_second(change):
    """The parties with a change in the second one's table."""
    tables = [table.copy() for table in TABLES]
    changed = change(tables[1])
    return [tables[0], tables[1] if changed is None else changed, tables[2]]


def set_at(row, column, value):
    def change(table):
        table.loc[row, column] = value

    return change


def with_column(*columns):
    """A further column, one part for each party."""
    return [t.assign(more=part) for t, part in zip(TABLES, columns, strict=True)]


SECOND = "party 1"
SAME = [t.assign(same="always") for t in TABLES]
DATA = {
    "other column": (
        with_second(lambda t: t.rename(columns={"x2": "age"})),
        {},
        [SECOND, "x2", "age", "unshared_columns"],
    ),
    "missing column": (with_second(lambda t: t.drop(columns="x2")), {}, [SECOND, "x2", "missing"]),
    "numbers among texts": (
        with_second(lambda t: t.assign(x3=np.arange(30) % 3)),
        {},
        [SECOND, "x3", "text", "numbers"],
    ),
    "booleans among numbers": (
        with_column([0, 1] * 15, [True, False] * 15, [0, 1] * 15),
        {},
        [SECOND, "more", "booleans", "True and 1"],
    ),
    "dates": (
        with_second(lambda t: t.assign(x3=pd.Timestamp("2020-01-01"))),
        {},
        [SECOND, "x3", "dates"],
    ),
    "no rows": (with_second(lambda t: t.iloc[:0]), {}, [SECOND, "0 rows"]),
    "no rows anywhere": ([t.iloc[:0] for t in TABLES], {}, ["0 rows"]),
    "missing values": (
        with_second(set_at(3, "x1", None)),
        {},
        [SECOND, "x1", "1 missing", "missing_values"],
    ),
    "all values missing": (
        with_second(lambda t: t.assign(x1=None)),
        {"missing_values": "drop"},
        [SECOND, "x1"],
    ),
    "no value twice": (
        [
            t.iloc[:3].assign(more=[f"id {n + k}" for k in range(3)])
            for n, t in zip((0, 3, 6), TABLES, strict=True)
        ],
        {},
        ["more", "9 states for 9 rows", "drop it"],
    ),
    "more states than rows": (
        [t.iloc[:2].assign(more=["a", "b"]) for t in TABLES[:1]]
        + [t.iloc[:1].assign(more=c) for c, t in zip("cd", TABLES[1:], strict=True)],
        {},
        ["more", "4 states for 4 rows"],
    ),
    "too many states": (
        with_second(lambda t: t.assign(x0=[f"id {k}" for k in range(30)])),
        {"max_states": 20},
        [SECOND, "x0", "30 different values", "max_states=20", "join values"],
    ),
    "too many states together": (
        with_column(*([f"{n} {k % 25}" for k in range(30)] for n in "abc")),
        {},
        ["more", "75 different values in all", "max_states=64"],
    ),
    "numbers with many values": (
        NUMBERS,
        {},
        ["x0", "discretize=5", "100 different values", "'moments'", "'fedpc'"],
    ),
    "whole numbers with many values": (
        with_column(*(np.arange(30) + 30 * k for k in range(3))),
        {},
        ["more", "90 different values in all", "discretize=5"],
    ),
    "infinite numbers": (
        [NUMBERS[0], NUMBERS[1].replace(NUMBERS[1].iloc[0, 0], np.inf), NUMBERS[2]],
        {"discretize": 3},
        [SECOND, "x0", "infinite"],
    ),
    "constant": (SAME, {"constant_columns": "fail"}, ["same", "constant", "keep"]),
    "constant columns": (SAME, {"constant_columns": "fail"}, ["same", "constant_columns='drop'"]),
    "nothing left": ([t[["x0"]] for t in TABLES[:0]], {}, ["parties"]),
    "text dropped": (TABLES, {"text_columns": "drop"}, ["no column is left"]),
    "text refused": (TABLES, {"text_columns": "fail"}, ["x0", "text_columns"]),
    "copied column": (
        [t.assign(again=t["x3"]) for t in TABLES],
        {"duplicate_columns": "fail"},
        ["again", "x3"],
    ),
    "doubled name": (
        with_second(lambda t: t.set_axis(["x0", "x1", "x1", "x3"], axis=1)),
        {},
        [SECOND, "x1", "rename"],
    ),
}


@pytest.mark.few(23)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", DATA)
def test_bad_data(case, mode, grids):
    parties, options, words = DATA[case]
    with pytest.raises(DataError) as caught:
        simulate("fedges", parties, mode=mode, strict=True, **options)
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)
    assert type(caught.value) is DataError


@pytest.mark.few(12)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("missing values", {"missing_values": "drop"}),
        ("missing column", {"unshared_columns": "drop"}),
        ("other column", {"unshared_columns": "drop"}),
        ("too many states", {"max_states": 64}),
        ("too many states together", {"max_states": 100}),
        ("numbers with many values", {"discretize": 5}),
        ("whole numbers with many values", {"discretize": 5}),
        ("constant", {"constant_columns": "drop"}),
        ("constant columns", {"constant_columns": "keep"}),
        ("copied column", {"duplicate_columns": "drop"}),
        ("copied column", {}),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_the_remedy_that_is_offered_works(case, options, mode):
    run = simulate("fedges", DATA[case][0], mode=mode, **options)
    assert run.graph.is_acyclic()
    assert set(run.graph.names) <= {*TABLES[0].columns, "more", "same", "again"}


def knows(**parts):
    return {"knowledge": parts}


OPTIONS = {
    "no edges": ({"max_edges": 0}, ConfigError, ["max_edges", "0", "1 or more"]),
    "share of none": ({"fusion": 0.0}, ConfigError, ["0.0", "(0, 1]"]),
    "share of more than all": ({"fusion": 1.5}, ConfigError, ["1.5", "(0, 1]"]),
    "no fusion": ({"fusion": "c99"}, ConfigError, ["c99", "union, c25, c50"]),
    "a list of fusions": ({"fusion": ["union"]}, ConfigError, ["fusion", "a text"]),
    "unknown mode": ({"mode": "magic"}, ConfigError, ["mode", "'exact'", "'scores'"]),
    "unknown score": ({"score": "aic"}, ConfigError, ["score", "'qnml'"]),
    "unknown start": ({"start": "empty"}, ConfigError, ["'start'", "'overwrite'"]),
    "unknown keep": ({"keep": "first"}, ConfigError, ["keep", "'best'", "'last'"]),
    "sampled parties in scores": (
        {"fraction_train": 0.5},
        ConfigError,
        ["fraction_train", "0.5", "sums are over all parties"],
    ),
    "sampled parties in exact": (
        {"mode": "exact", "fraction_train": 0.9},
        ConfigError,
        ["fraction_train", "0.9"],
    ),
    "a start for scores": (
        {"mode": "scores", "start": "fuse"},
        ConfigError,
        ["start", "'fuse'", "mode='fusion'"],
    ),
    "a share for exact": (
        {"mode": "exact", "fusion": "c25"},
        ConfigError,
        ["'fusion'", "mode='fusion'"],
    ),
    "a limit for exact": ({"mode": "exact", "max_edges": 3}, ConfigError, ["max_edges"]),
    "keep for scores": ({"mode": "scores", "keep": "best"}, ConfigError, ["keep"]),
    "the start of the code": (
        {"start_from": "fuse"},
        ConfigError,
        ["FedGES has no option 'start_from'"],
    ),
    "constant columns": (
        {"constant": "keep"},
        ConfigError,
        ["Did you mean 'constant_columns'"],
    ),
    "cyclic knowledge": (
        knows(required=(("x0", "x1"), ("x1", "x0"))),
        ConfigError,
        ["cycle", "x0", "x1"],
    ),
    "knowledge of strangers": (
        knows(forbidden=(("x0", "age"),)),
        ConfigError,
        ["age", "x0"],
    ),
    "knowledge of strangers in a tier": (knows(tiers=(("x0",), ("sex",))), ConfigError, ["sex"]),
    "no such knowledge": ({"knowledge": "/no.toml"}, ConfigError, ["/no.toml"]),
    "no rounds": ({"max_rounds": 0}, ConfigError, ["max_rounds", "0"]),
    "driven by no scores": (
        {"start": "driven", "keep": "last"},
        ConfigError,
        ["keep", "'last'", "'best' for start='driven'"],
    ),
    "driven by scores without a choice": (
        {"mode": "scores", "start": "driven", "parameters": False},
        ConfigError,
        ["parameters", "must be True", "start='driven' in mode 'scores'"],
    ),
    "the last graph of driven scores": (
        {"mode": "scores", "start": "driven", "keep": "last"},
        ConfigError,
        ["keep", "'best' for start='driven'"],
    ),
    "a share for scores that are not driven": (
        {"mode": "scores", "fusion": 0.5},
        ConfigError,
        ["fusion", "start='driven'"],
    ),
    "no sample size": (
        {"equivalent_sample_size": 0},
        ConfigError,
        ["equivalent_sample_size", "from 1e-09"],
    ),
    "infinite sample size": (
        {"equivalent_sample_size": float("inf")},
        ConfigError,
        ["equivalent_sample_size", "finite"],
    ),
    "no parents": ({"max_parents": 0}, ConfigError, ["max_parents", "1 or more"]),
    "no patience": ({"mode": "fusion", "patience": 0}, ConfigError, ["patience", "1 or more"]),
    "negative minimum": ({"minimum_count": -1}, ConfigError, ["minimum_count", "from 0 to"]),
    "one interval": ({"discretize": 1}, ConfigError, ["discretize", "1"]),
    "more intervals than states": (
        {"discretize": 9, "max_states": 5},
        ConfigError,
        ["discretize", "9", "max_states"],
    ),
    "one state": ({"max_states": 1}, ConfigError, ["max_states", "256"]),
    "too many states": ({"max_states": 300}, ConfigError, ["max_states", "256"]),
    "half a parent": ({"max_parents": 1.5}, ConfigError, ["max_parents", "whole number"]),
    "truth for a number": ({"turn": 1}, ConfigError, ["turn", "true or false"]),
    "unknown option": ({"ess": 1.0}, ConfigError, ["ess", "flwr-causal options fedges"]),
    "nearly an option": ({"max_edge": 5}, ConfigError, ["Did you mean 'max_edges'"]),
    "option of another method": ({"sparsity": 0.1}, ConfigError, ["FedGES has no option"]),
    "quorum of two": ({"quorum": 2.0}, ConfigError, ["quorum"]),
    "truth of another shape": ({"truth": np.zeros((3, 3))}, DataError, ["(3, 3)", "4 columns"]),
}


def built(options):
    """Knowledge checks itself when it is made."""
    known = options.get("knowledge")
    return {"knowledge": Knowledge(**known)} if isinstance(known, dict) else options


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, grids):
    options, error, words = OPTIONS[case]
    with pytest.raises(error) as caught:
        simulate("fedges", TABLES, **built(options))
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)


@pytest.mark.parametrize("mode", MODES)
def test_sampling_parties_is_for_fusion(mode):
    if mode == "fusion":
        assert simulate("fedges", TABLES, mode=mode, fraction_train=0.7).graph is not None
        return
    with pytest.raises(ConfigError, match="sums are over all parties"):
        simulate("fedges", TABLES, mode=mode, fraction_train=0.7)


@pytest.mark.parametrize("method", ["notears-admm", "moments"])
def test_the_other_methods_refuse_categories(method):
    with pytest.raises(DataError, match=r"x0.*not numeric"):
        simulate(method, TABLES, strict=True)


def test_nodes_that_cannot_come_are_not_waited_for_long():
    with pytest.raises((ConfigError, FederationError), match="min_available_nodes"):
        simulate("fedges", TABLES, min_available_nodes=9, round_timeout=0.01)


def test_all_problems_are_said_at_once():
    tables = with_second(lambda t: t.assign(x1=None, extra="a").drop(columns="x3"))
    tables[2] = tables[2].assign(x0=pd.Timestamp("2020-01-01"))
    with pytest.raises(DataError) as caught:
        simulate("fedges", tables, strict=True)
    for word in ("party 1", "party 2", "x1", "extra", "x3", "x0", "dates"):
        assert word in str(caught.value)
