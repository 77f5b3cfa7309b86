"""Moments of numbers and categories in time series."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import mixed_series

from flwr_causal import Knowledge, simulate
from flwr_causal.core.blocks.design import column_names, design, with_lags
from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import LEAST_EFFECT
from flwr_causal.core.series.design import knowledge_masks, lagged_rows
from flwr_causal.errors import ConfigError, DataError


def cut(table, parts):
    """Return as many series of equal lengths, one after the other."""
    steps = len(table) // parts
    return [table.iloc[k * steps : (k + 1) * steps].reset_index(drop=True) for k in range(parts)]


TABLE, NOW, PAST = mixed_series(6, 1200, seed=1)
CATEGORY = next(one for one in TABLE if TABLE[one].dtype.kind not in "iuf")
SERIES = cut(TABLE, 4)
PARTIES = [SERIES[:1], SERIES[1:3], SERIES[3:]]


def found(parties=PARTIES, **options):
    return simulate("moments", parties, **({"text_columns": "keep", "order": 1} | options))


def central(series, order=1, functions=1):
    """The class of the rows in one place: the columns of all steps, then their lags."""
    training = pd.concat([one.iloc[order:] for one in series])
    variables = design(training, functions)[0]
    pieces = [
        np.column_stack([own.columns(values(one[own.name], own)) for own in variables])
        for one in series
    ]
    lagged = with_lags(variables, order)
    rows = lagged_rows(pieces, order)
    return (
        BlockProblem.of(
            SampleMoments.from_rows(rows, column_names(lagged)),
            [one.width for one in lagged],
            tuple(training),
            knowledge_masks(None, tuple(training), order),
            least_effect=LEAST_EFFECT,
        )
        .best()
        .graph
    )


def values(column, variable):
    if not hasattr(variable, "states"):
        return column.to_numpy()
    return np.array([variable.states.index(str(value)) for value in column])


def same(one, two):
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-9)
    np.testing.assert_allclose(one.lagged, two.lagged, atol=1e-9)
    assert one.kind == two.kind == "cpdag"


@pytest.mark.parametrize(("order", "model", "functions"), [(1, "linear", 1), (2, "curved", 3)])
def test_the_class_is_that_of_the_rows_in_one_place(order, model, functions):
    run = found(order=order, model=model)
    same(run.graph, central(SERIES, order, functions))
    assert run.rounds == 1
    assert run.graph.lagged.shape == (order, 6, 6)


def test_errors_are_few_and_time_gives_directions():
    graph = found().graph
    past = graph.lagged[0] != 0
    assert (past != (PAST > 0)).sum() <= 2
    np.testing.assert_array_equal(graph.adjacency, NOW > 0)


@pytest.mark.parametrize("order", [1, 2])
def test_numbers_alone_have_the_class_of_the_solver_class(order):
    table, _, _ = mixed_series(6, 900, seed=4, kinds=(0,))
    parties = cut(table, 3)
    blocks = found(parties, order=order)
    columns = found(parties, order=order, text_columns="fail", solver="class")
    np.testing.assert_array_equal(blocks.graph.adjacency, columns.graph.adjacency)
    np.testing.assert_array_equal(blocks.graph.lagged != 0, columns.graph.lagged != 0)


def test_interventions_in_series_of_numbers_are_those_of_the_solver_class():
    table, _, _ = mixed_series(5, 900, seed=5, kinds=(0,))
    rng = np.random.default_rng(0)
    on = np.arange(900) % 300 >= 150
    table.loc[on, "v2"] = rng.normal(1, 1, on.sum())
    table["on"] = np.where(on, "v2", "")
    parties = cut(table, 3)
    options = {"intervention_column": "on"}
    blocks = found(parties, **options)
    columns = found(parties, text_columns="fail", solver="class", **options)
    np.testing.assert_array_equal(blocks.graph.adjacency, columns.graph.adjacency)
    np.testing.assert_array_equal(blocks.graph.lagged != 0, columns.graph.lagged != 0)
    assert blocks.history[0]["target sets"] == 2


def test_interventions_on_categories_in_series():
    table = TABLE.copy()
    rng = np.random.default_rng(0)
    on = np.arange(len(table)) % 300 >= 200
    table.loc[on, CATEGORY] = rng.choice(table[CATEGORY].unique(), on.sum())
    table["on"] = np.where(on, CATEGORY, "")
    series = cut(table, 4)
    graph = found([series[:2], series[2:]], intervention_column="on").graph
    same(found([series], intervention_column="on").graph, graph)
    j = list(TABLE).index(CATEGORY)
    assert not (graph.adjacency[j] & graph.adjacency[:, j]).any()


def test_knowledge_is_kept():
    graph = found().graph
    i, j = np.argwhere(graph.lagged[0])[0]
    names = list(TABLE)
    known = Knowledge(forbidden_lagged=[(names[i], names[j])])
    assert found(knowledge=known).graph.lagged[0][i, j] == 0


def test_states_of_the_first_steps_are_states():
    """They are lags of other steps, and no steps of the design themselves."""
    series = [one.copy() for one in SERIES]
    series[0].loc[0, CATEGORY] = "first"
    run = found([series[:2], series[2:]])
    assert np.isfinite(run.graph.weights).all()
    assert run.graph.lagged.shape == (1, 6, 6)


def test_steps_with_missing_categories():
    holes = [one.copy() for one in SERIES]
    holes[1].loc[7, CATEGORY] = None
    with pytest.raises(DataError, match=rf"'{CATEGORY}': missing in series 2 of 4, step 8"):
        found([holes], strict=True)
    split = [*holes[:1], holes[1].iloc[:7], holes[1].iloc[8:], *holes[2:]]
    expected = found([[one.reset_index(drop=True) for one in split]]).graph
    same(found([holes], missing_values="drop").graph, expected)
    same(found([holes], gaps="split").graph, expected)


def asked(run, cause, effect, **options):
    """The effects of all states, as a table of numbers."""
    table = run.model.contrasts(cause, effect, **options)
    return table[["value", "standard_error"]].to_numpy()


@pytest.mark.parametrize("options", [{}, {"model": "curved"}], ids=str)
def test_effects_and_predictions_are_those_of_the_rows_in_one_place(options, tmp_path):
    run, pooled = found(**options), found([SERIES], model=options.get("model", "linear"))
    i, j = np.argwhere((run.graph.lagged[0] != 0) & ~np.eye(6, dtype=bool))[0]
    cause, effect = run.graph.names[i], run.graph.names[j]
    for lag in (0, 1, 3):
        one, other = (asked(each, cause, effect, lag=lag) for each in (run, pooled))
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert (asked(run, cause, effect, lag=1)[:, 1] > 0).all()
    by_run = run.total_effect(cause, effect, lag=1, **_first(run, i, j))
    assert by_run.value == pytest.approx(asked(run, cause, effect, lag=1)[0, 0])
    predictions = [each.model.predict(SERIES[0]) for each in (run, pooled)]
    pd.testing.assert_frame_equal(*predictions)
    fit = run.fit_check()
    assert len(fit.independencies) > 10
    run.save(tmp_path)
    again = type(run).load(tmp_path)
    np.testing.assert_array_equal(
        asked(again, cause, effect, lag=1), asked(run, cause, effect, lag=1)
    )
    run.report(tmp_path / "page.html")
    assert f"{cause}[t-1]" in (tmp_path / "page.html").read_text()


def _first(run, i, j):
    """The first question of contrasts."""
    table = run.model.contrasts(run.graph.names[i], run.graph.names[j], lag=1)
    row = table.iloc[0]
    return {name: row[name] for name in ("state", "reference", "outcome") if row[name] is not None}


def test_series_with_missing_cells_have_effects_with_wider_intervals():
    holes = [
        one.mask(np.random.default_rng(k).random(one.shape) < 0.1) for k, one in enumerate(SERIES)
    ]
    run, whole = found([holes[:2], holes[2:]], missing_values="em"), found()
    i, j = np.argwhere((whole.graph.lagged[0] != 0) & (run.graph.lagged[0] != 0))[0]
    names = whole.graph.names
    one, other = (asked(each, names[i], names[j], lag=1) for each in (run, whole))
    np.testing.assert_allclose(one[:, 0], other[:, 0], atol=0.4)
    assert (one[:, 1] > other[:, 1]).all()


def test_under_interventions_there_are_no_effects_of_series():
    table = TABLE.assign(on=np.where(np.arange(len(TABLE)) % 300 >= 200, CATEGORY, ""))
    run = found([cut(table, 4)], intervention_column="on")
    assert run.model is None
    with pytest.raises(ConfigError, match="nor with both an order and interventions"):
        run.total_effect("v0", "v1", lag=1)
