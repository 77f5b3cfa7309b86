"""Moments of time series with lags, over parties that hold different columns of the same steps."""

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array
from lagged_systems import simulate_series
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.series.design import knowledge_masks, lagged_names, lagged_rows
from flwr_causal.core.series.solution import select
from flwr_causal.data.check.row_ids import hashed_ids, hashes_of_rows
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.products.plan import ProductPlan
from flwr_causal.strategies.moments.solvers.series import LAGGED_THRESHOLD

NAMES = ("price", "demand", "stock", "orders", "heat", "staff")
STEPS, SERIES = 150, 3


@pytest.fixture(scope="module")
def table():
    """Several series of a system of order 2, whose steps have ids and times."""
    now, first, second = np.zeros((3, 6, 6))
    now[0, 1], now[1, 2], now[4, 0] = 0.8, -0.7, 0.6
    first[np.diag_indices(6)] = 0.4
    first[2, 3], first[3, 5], first[0, 5] = 0.5, -0.5, 0.4
    second[5, 0], second[4, 1] = 0.3, 0.3
    frames = []
    for k in range(SERIES):
        values = simulate_series(k, STEPS, now, first, second, offset=3.0) * np.arange(1, 7)
        frame = pd.DataFrame(values, columns=NAMES)
        frame.insert(0, "plant", f"plant {k}")
        frame.insert(1, "day", np.arange(STEPS) * 0.5)
        frame.insert(2, "shift", [f"{k}/{t}" for t in range(STEPS)])
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


ROLES = ["plant", "day", "shift"]
LAYOUT = {"series_column": "plant", "time_column": "day"}


def vertical(table, parties):
    """Each party has some of the columns of all steps, its series in an order of its own."""
    tables = []
    for k, own in enumerate(np.array_split(np.array(NAMES), parties)):
        series = [part for _, part in table[[*ROLES, *own]].groupby("plant")]
        tables.append(pd.concat(series[:: (-1) ** k]))
    return tables


def joined(table, **options):
    return simulate("moments", [table.drop(columns="shift")], **LAYOUT, **options)


def alike(found, pooled):
    """Whether two runs have the same graph."""
    assert found.graph.names == pooled.graph.names
    assert (found.graph.adjacency == pooled.graph.adjacency).all()
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    assert found.graph.lagged == pytest.approx(pooled.graph.lagged, abs=1e-6)


def test_parties_with_different_columns_find_the_graph_of_the_joined_series(table):
    order = 3
    options = {"order": order}
    found = simulate("moments", vertical(table, 2), row_id="shift", **LAYOUT, **options)
    pooled = joined(table, **options)
    alike(found, pooled)
    assert found.scores == pytest.approx(pooled.scores, abs=1e-6)
    assert found.rounds == 3
    assert found.num_rows == SERIES * (STEPS - order)
    assert found.warnings == pooled.warnings
    one, other = (run.model.total_effect("heat", "demand") for run in (found, pooled))
    assert one.value == pytest.approx(other.value, abs=1e-6)
    assert one.interval == pytest.approx(other.interval, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "notears", "standardize": True},
        {"solver": "ges"},
        {"instantaneous": False, "regression": "ridge", "ridge": 0.2},
        {"center": "series", "standardize": True, "secure_aggregation": True},
        {"knowledge": "required and forbidden"},
    ],
    ids=str,
)
def test_every_solver_of_series_has_the_joined_moments(table, options, tmp_path):
    if "knowledge" in options:
        file = tmp_path / "knowledge.toml"
        file.write_text(
            'forbidden = [["price", "demand"]]\nrequired_lagged = [["staff", "stock", 2]]\n'
        )
        options = {"knowledge": str(file)}
    found = simulate("moments", vertical(table, 3), row_id="shift", order=2, **LAYOUT, **options)
    options.pop("secure_aggregation", None)
    pooled = joined(table, order=2, **options)
    alike(found, pooled)
    if "knowledge" in options:
        assert not found.graph.adjacency[0, 1]
        assert found.graph.lagged[1, 5, 2] != 0


def hybrid(table):
    """Return overlapping parties who know all cells: the third series is divided in another way."""
    most, last = table[table["plant"] != "plant 2"], table[table["plant"] == "plant 2"]
    return [
        most[[*ROLES, *NAMES[:3]]],
        most[[*ROLES, *NAMES[2:]]],
        last[[*ROLES, "stock", "price", "heat"]],
        last[[*ROLES, "staff", "orders", "demand"]],
        table[table["plant"] != "plant 0"][[*ROLES, "price", "staff"]],
    ]


def test_values_that_two_parties_hold_differently_are_named_without_their_lags(table):
    *others, last = hybrid(table)
    last = last.copy()
    last.loc[last["shift"] == "1/40", "price"] += 1e-3
    found = simulate("moments", [*others, last], row_id="shift", order=2, **LAYOUT)
    (warning,) = [one for one in found.warnings if one.startswith("Values differ")]
    assert warning.startswith(
        "Values differ between party 0 and party 4 in rows that both have: 'price'. "
    )


def known_rows(tables, order):
    """The rows with lags that all parties have, by hand: windows of steps with the same ids."""
    windows = []
    for own in tables:
        found = {}
        for _, series in own.groupby("plant"):
            ids = list(series["shift"])
            for t in range(order, len(ids)):
                found[tuple(ids[t - order : t + 1])] = series.index[t - order : t + 1]
        windows.append(found)
    return set.intersection(*map(set, windows)), windows


def second_moments(tables, order):
    """Central moments of each pair of columns with lags, of the rows that know both, by hand."""
    _, windows = known_rows(tables, order)
    columns = {}
    for lag in range(order + 1):
        for own, rows in zip(tables, windows, strict=True):
            for name in own.columns.difference(ROLES, sort=False):
                values = own[name]
                columns[f"{name}[t-{lag}]" if lag else name] = {
                    ids: values[index[order - lag]] for ids, index in rows.items()
                }
    joined = pd.DataFrame(columns)
    known = joined.notna().to_numpy(dtype=float)
    count = known.T @ known
    # pandas divides by one less where values are missing.
    return joined.cov() * (count - 1) / count


def test_steps_that_a_party_lacks_are_no_lags_of_those_after_them(table):
    """Without times the rows of a table are successive steps: of the ids, not of the places."""
    one, other = vertical(table, 2)
    other = other.drop(other.index[other["shift"].isin(["0/40", "1/70", "1/71"])])
    options = {"series_column": "plant", "order": 2, "solver": "ges"}
    parties = [part.drop(columns="day") for part in (one, other)]
    found = simulate("moments", parties, row_id="shift", **options)
    # Of the other party 3 steps lack, and those of the gaps' ends have other lags in its table.
    assert found.history[-1]["complete_rows"] == SERIES * (STEPS - 2) - (3 + 4)
    expected = second_moments([one, other], 2)
    moments = found.model.sample_moments
    names = list(moments.names)
    assert moments.second == pytest.approx(expected.loc[names, names].to_numpy(), abs=1e-6)


def test_gaps_begin_new_series_at_each_party(table):
    one, other = vertical(table, 2)
    other = other.drop(other.index[other["shift"] == "0/40"])
    with pytest.raises(DataError, match="gaps='split'"):
        simulate("moments", [one, other], row_id="shift", order=1, **LAYOUT)
    options = {"order": 1, "gaps": "split", "solver": "ges"}
    found = simulate("moments", [one, other], row_id="shift", **LAYOUT, **options)
    assert found.history[-1]["complete_rows"] == SERIES * (STEPS - 1) - 2
    assert found.num_rows == SERIES * (STEPS - 1)
    assert any("rows have all columns" in warning for warning in found.warnings)


def test_both_gaps_give_the_series_of_the_joined_table(table):
    """A step that no party has, and values that lack at one: the joined rows have the gaps."""
    shorter = table[~table["shift"].isin(["0/40", "2/99"])]
    options = {"order": 2, "gaps": "split"}
    found = simulate("moments", vertical(shorter, 3), row_id="shift", **LAYOUT, **options)
    alike(found, joined(shorter, **options))
    assert found.num_rows == SERIES * (STEPS - 2) - 6


def test_parties_whose_steps_have_another_length_have_no_common_rows(table):
    """Every second step at one party: its lag 1 is the other one's lag 2."""
    one, other = vertical(table, 2)
    with pytest.raises(DataError, match=r"are both known of 0 rows.*same steps"):
        simulate("moments", [one, other[::2]], row_id="shift", order=1, **LAYOUT)


@pytest.mark.parametrize("times", ["numbers", "dates", "texts"])
def test_times_of_a_single_series_can_be_its_ids(table, times):
    one = table[:STEPS].drop(columns=["plant", "shift"])
    if times != "numbers":
        one["day"] = pd.date_range("2024-01-31", periods=STEPS, freq="12h")
    texts = one.assign(day=one["day"].map(str)) if times == "texts" else one
    parties = [one[["day", *NAMES[:3]]], texts[["day", *NAMES[3:]]]]
    options = {"order": 2, "time_column": "day"}
    found = simulate("moments", parties, row_id="day", **options)
    alike(found, simulate("moments", [one], **options))
    assert found.num_rows == STEPS - 2


def test_ids_that_repeat_over_the_series_of_a_party_are_an_error(table):
    """A step's number alone, without its series."""
    again = table.assign(shift=table["shift"].str.split("/").str[1])
    with pytest.raises(DataError, match=r"'shift' of ids has 300 that repeat"):
        simulate("moments", vertical(again, 2), row_id="shift", order=1, **LAYOUT)


def test_replicates_draw_rows_with_their_lags(table):
    """The same draws of rows, by hand: the replicates' shares of edges."""
    parties = vertical(table, 2)
    found = simulate(
        "moments", parties, row_id="shift", order=1, replicates=5, seed=3, solver="order", **LAYOUT
    )
    hashes = hashed_ids(table["shift"], b"3")
    steps = np.concatenate(
        [
            np.column_stack([series.index[1:], series.index[:-1]])
            for _, series in table.groupby("plant")
        ]
    )
    keys = [row.tobytes() for row in hashes_of_rows(hashes[steps], b"3")]
    plan, (order,) = ProductPlan.of(np.ones((1, 12), dtype=bool), [keys])
    values = table[list(NAMES)].to_numpy()
    rows = np.hstack([values[steps[order, 0]], values[steps[order, 1]]])
    masks, names = knowledge_masks(None, NAMES, 1), lagged_names(NAMES, 1)
    shares = np.zeros((12, 6))
    for weights in plan.weights(5, 3)[1:]:
        drawn = SampleMoments.from_rows(np.repeat(rows, weights, axis=0), names)
        best = search_orders(drawn, masks, num_targets=6).best.adjacency
        shares += (np.abs(least_squares(drawn, best)[0][:, :6]) > LAGGED_THRESHOLD) / 5
    assert len(np.unique(shares)) > 2
    assert found.graph.confidence == pytest.approx(shares[:6])
    assert found.graph.lagged_confidence[0] == pytest.approx(shares[6:])


HELD_OUT = [
    {"select_order": True, "order": 3},
    {"instantaneous": "auto"},
    {"sparsity": "held-out"},
    {"regression": "held-out"},
    {"regression": "ridge", "instantaneous": False},
    {"ranking": "partial-correlation+weights"},
]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("options", sweep(HELD_OUT, kept=HELD_OUT[:2]), ids=str)
def test_choices_by_held_out_steps_of_a_single_series_are_those_of_the_joined_one(table, options):
    """The folds are then the same stretches of time, whoever holds the columns."""
    one = table[:STEPS].drop(columns="plant")
    parties = [one[["day", "shift", *own]] for own in (NAMES[:2], NAMES[2:5], NAMES[5:])]
    options = {"order": 1, "time_column": "day", **options}
    found = simulate("moments", parties, row_id="shift", **options)
    pooled = simulate("moments", [one.drop(columns="shift")], **options)
    chosen = {"order", "instantaneous", "sparsity", "ridge"} & set(pooled.history[-1])
    assert chosen
    for name in chosen:
        assert found.history[-1][name] == pytest.approx(pooled.history[-1][name], rel=1e-6)
    if "select_order" in options:
        # The joined series is fitted with one step more for each lag that was not chosen.
        order = found.history[-1]["order"]
        assert order < options["order"]
        later = one[options["order"] - order :].drop(columns="shift")
        pooled = simulate("moments", [later], order=order, time_column="day")
    alike(found, pooled)
    assert found.scores == pytest.approx(pooled.scores, abs=0.02)


def test_folds_of_several_series_are_stretches_of_the_first_partys_rows(table):
    parties = vertical(table, 2)
    options = {"order": 1, "instantaneous": False, "sparsity": "held-out", "solver": "dagma"}
    found = simulate("moments", parties, row_id="shift", **LAYOUT, **options)
    rows = np.concatenate(
        [lagged_rows([series[list(NAMES)].to_numpy()], 1) for _, series in table.groupby("plant")]
    )
    centred = rows - rows.mean(axis=0)
    folds = [
        SampleMoments(len(part), np.zeros(12), part.T @ part / len(part), lagged_names(NAMES, 1))
        for part in np.array_split(centred, 5)
    ]
    trials = select(folds, 6, methods=("lasso",), orders=(1,))
    assert found.history[-1]["sparsity"] == pytest.approx(trials.best().recipe.penalty, rel=1e-6)


def test_every_fold_needs_the_fewest_rows_of_each_pair_of_columns(table):
    one, other = vertical(table, 2)
    parties = [one, other[other["shift"].isin([f"0/{t}" for t in range(60)])]]
    simulate("moments", parties, row_id="shift", order=1, **LAYOUT)
    with pytest.raises(DataError, match="are both known of 0 rows of a fold, and 5 are the fewest"):
        simulate("moments", parties, row_id="shift", order=1, select_order=True, **LAYOUT)


class Shifted:
    """A grid that sends other folds with one exchange."""

    def __init__(self, grid, exchange, fold):
        self.grid, self.exchange, self.fold = grid, exchange, fold

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            content = message.content
            if dict(content.get("config", {})).get("exchange") == self.exchange:
                folds = content["arrays"]["folds"].numpy().copy()
                content["arrays"]["folds"] = Array(self.fold(folds))
        return self.grid.send_and_receive(messages, timeout=timeout)


@pytest.mark.parametrize(
    ("exchange", "fold", "refusal"),
    [
        ("products", np.sort, "not that of the masked table"),
        ("masked tables", lambda folds: folds[1:], "not that of this party's rows"),
        ("masked tables", lambda folds: np.arange(len(folds)) // 4, "3 rows of a fold, and 5 are"),
    ],
)
def test_a_party_refuses_folds_that_would_single_out_rows(table, exchange, fold, refusal):
    """Others than those of its masked table, of other rows, or of few rows."""
    one = table[:60].drop(columns="plant")
    parties = [one[["day", "shift", *own]] for own in (NAMES[:3], NAMES[3:])]
    options = {"order": 1, "time_column": "day", "sparsity": "held-out"}
    with pytest.raises(FederationError, match=refusal):
        simulate(
            "moments",
            parties,
            row_id="shift",
            wrap_grid=lambda grid: Shifted(grid, exchange, fold),
            **options,
        )


def test_replicates_hold_what_was_chosen_by_held_out_steps(table):
    options = {
        "order": 2,
        "select_order": True,
        "ranking": "partial-correlation+weights",
        "replicates": 3,
    }
    found = simulate("moments", vertical(table, 3), row_id="shift", **LAYOUT, **options)
    assert not any("could not be fitted" in warning for warning in found.warnings)
    assert found.graph.confidence.max() == 1
    assert found.rounds == 3
