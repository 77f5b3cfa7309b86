"""Normal scores in place of the values of numbers: every source, and what is said of them."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from federations import once
from worlds_of_amounts import amounts, errors, mistyped_cells

from flwr_causal.contract.answers import Asked
from flwr_causal.core.blocks.normal_scores import CELLS
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.sources.normal_scores import RANKS, received_scores

SCORES = {"scale": "normal-scores"}


def tables(rows=(150, 250, 400), seed=0):
    """A chain a, b, c, and d on c, in one column each."""
    rng = np.random.default_rng(seed)
    n = sum(rows)
    a, d = rng.normal(size=(2, n))
    b = a + 0.7 * rng.normal(size=n)
    c = 0.8 * b + 0.6 * d + rng.normal(size=n)
    return cut(pd.DataFrame({"a": a, "b": b, "c": c, "d": d}), rows)


def cut(table, rows):
    ends = [0, *np.cumsum(rows)]
    return [table.iloc[start:end].reset_index(drop=True) for start, end in pairwise(ends)]


def transformed(parts):
    """Each column by another increasing function."""
    return [
        pd.DataFrame({"a": np.exp(t.a), "b": t.b**3, "c": 50 + np.exp(t.c / 2), "d": np.sinh(t.d)})
        for t in parts
    ]


PLAIN = tables()
CURVED = transformed(PLAIN)


@once
def of_plain():
    return simulate("moments", PLAIN, **SCORES)


@once
def of_curved():
    return simulate("moments", CURVED, **SCORES)


def moments(run):
    return run.model.sample_moments


def test_increasing_functions_of_columns_change_nothing():
    one, other = of_plain(), of_curved()
    assert (one.graph.adjacency == other.graph.adjacency).all()
    assert one.graph.kind == "cpdag"
    # Up to the cells of the grid.
    np.testing.assert_allclose(moments(other).second, moments(one).second, atol=0.02)
    np.testing.assert_allclose(np.diagonal(moments(one).second), 1, atol=0.02)
    np.testing.assert_allclose(moments(one).mean, 0, atol=0.02)


def test_scores_take_one_exchange_more():
    assert [one["exchange"] for one in of_curved().history] == ["ranks", "sums"]


def test_levels_are_taken_out_of_scores():
    rng = np.random.default_rng(3)
    shifted = [np.exp(t + 0.7 * rng.normal(size=4) * [1, 1, 0, 0]) for t in PLAIN]
    run = simulate("moments", shifted, **SCORES)
    assert any("levels of the parties differ" in one.lower() for one in run.warnings)
    found, wanted = (one.graph.adjacency for one in (run, of_plain()))
    assert ((found | found.T) == (wanted | wanted.T)).all()


MODES = {
    "missing cells": ({"missing_values": "em"}, "gaps"),
    "hidden causes": ({"hidden_causes": True}, ""),
    "categories": ({"text_columns": "keep"}, "category"),
    "all of them": (
        {"text_columns": "keep", "missing_values": "em", "hidden_causes": True},
        "category gaps",
    ),
    "parties compared": ({"local_graphs": True}, ""),
    "likelihood": ({"text_columns": "keep", "parameters": "likelihood"}, "category"),
    "a median": ({"aggregation": "median", "solver": "order"}, ""),
}


@pytest.mark.parametrize("mode", MODES)
def test_other_sources_and_solvers_take_scores(mode):
    options, what = MODES[mode]
    found = []
    for parts in (PLAIN, CURVED):
        own = [one.copy() for one in parts]
        for one, plain in zip(own, PLAIN, strict=True):
            noise = np.random.default_rng(len(one)).normal(size=len(one))
            if "category" in what:
                one["k"] = np.where(plain.a + noise > 0, "high", "low")
        if "gaps" in what:
            gaps = np.random.default_rng(2)
            own = [one.mask(gaps.random(one.shape) < 0.1) for one in own]
        found.append(simulate("moments", own, **SCORES, **options))
    one, other = found
    assert (one.graph.adjacency == other.graph.adjacency).all()
    assert one.model.of_scores


def test_series_of_scores():
    rng = np.random.default_rng(4)
    x = np.zeros((700, 3))
    for t in range(1, 700):
        x[t] = 0.6 * x[t - 1] + rng.normal(size=3)
        x[t, 1] += 0.8 * x[t, 0]
        x[t, 2] += 0.5 * x[t - 1, 1]
    frames = cut(pd.DataFrame(x, columns=list("xyz")), (200, 500))
    options = {"order": 1, **SCORES}
    one = simulate("moments", frames, **options)
    other = simulate("moments", [np.exp(frame / 2) for frame in frames], **options)
    assert (one.graph.adjacency == other.graph.adjacency).all()
    assert ((one.graph.lagged != 0) == (other.graph.lagged != 0)).all()
    assert one.graph.lagged[0, 1, 2] > 0.1
    few = simulate("moments", frames, order=2, select_order=True, solver="order", **SCORES)
    assert few.graph.lagged[0, 1, 2] > 0.1


def test_rows_of_a_model_are_in_the_units_of_the_data(tmp_path):
    run = of_curved()
    model, rows = run.model, pd.concat(CURVED)
    effect = model.total_effect("d", "c")[0]
    assert 0.2 < effect.value < 0.6
    predicted = model.predict(rows, "c")
    assert np.corrcoef(np.argsort(np.argsort(predicted)), rows.c.rank())[0, 1] > 0.6
    assert ((predicted > 50) & (predicted < rows.c.max())).all()
    drawn = pd.DataFrame(model.sample(4000, seed=0), columns=list(model.names))
    quantiles = [0.1, 0.5, 0.9]
    expected = rows.quantile(quantiles).to_numpy()
    np.testing.assert_allclose(drawn.quantile(quantiles).to_numpy(), expected, rtol=0.25, atol=0.05)
    high = simulate("moments", CURVED, solver="order", **SCORES).model.do({"d": 5.0})
    assert np.median(high.sample(2000, seed=0)[:, 2]) > rows.c.median() + 0.5
    model.save(tmp_path / "model.json")
    again = LinearModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(rows, "c"), predicted)
    assert again.of_scores


REFUSED = [
    ({"epsilon": 1.0}, "'scale' is 'normal-scores'; it must be 'data' with epsilon"),
    ({"center": "series", "order": 1}, "'center' is 'series'; it must be .* with scale"),
    ({"center": "party", "sparsity": "held-out"}, "'center' is 'party'; it must be .* with scale"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_what_scores_do_not_go_with_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        simulate("moments", PLAIN, **SCORES, **options)


def test_different_columns_are_refused():
    rows = pd.concat(PLAIN).reset_index(drop=True).assign(id=range(800))
    with pytest.raises(ConfigError, match="set scale='data'"):
        simulate("moments", [rows[["id", "a", "b"]], rows[["id", "c", "d"]]], row_id="id", **SCORES)


def test_a_party_takes_scores_that_ascend_only():
    class Agreed:
        mean, variance = np.zeros(2), np.ones(2)

    asked = Asked(RANKS, 1, {"scores": np.zeros((2, CELLS))})
    assert len(received_scores(asked, Agreed())) == 2
    asked.values["scores"][1, 3] = 1.0
    with pytest.raises(FederationError, match="descend"):
        received_scores(asked, Agreed())
    with pytest.raises(FederationError, match="sent no normal scores"):
        received_scores(Asked(RANKS, 1, {}), Agreed())


# What is said of columns whose values do not fit.


@pytest.mark.parametrize("secure", [False, True])
def test_cells_that_lie_apart_are_told_with_their_column(secure):
    parts = [one.copy() for one in PLAIN]
    parts[1]["b"] = mistyped_cells(parts[1]["b"], np.random.default_rng(0))
    run = simulate("moments", parts, secure_aggregation=secure)
    (said,) = [one for one in run.warnings if "lie apart" in one]
    assert ("'b' (at one party or more)" if secure else "'b' (at party 'party 1')") in said
    assert "normal scores (scale='normal-scores') lessen what they do" in said
    assert not any("lie apart" in one for one in simulate("moments", parts, **SCORES).warnings)


@pytest.mark.parametrize("secure", [False, True])
def test_amounts_that_the_graph_does_not_fit_are_told(secure):
    _, parts = amounts(9106)
    run = simulate("moments", parts, secure_aggregation=secure)
    (said,) = [one for one in run.warnings if "does not fit the rows" in one]
    assert "'x0'" in said
    assert "set scale='normal-scores'" in said


def test_columns_as_they_should_be_are_not_told():
    for run in (simulate("moments", PLAIN), of_plain(), of_curved()):
        assert not any("normal-scores" in one for one in run.warnings)
    assert isinstance(run, Run)


@pytest.mark.slow
def test_systems_of_logarithms_are_found_from_scores():
    found = {"data": [], "normal-scores": []}
    for seed in range(9100, 9106):
        edges, parts = amounts(seed)
        for scale, own in found.items():
            own.append(errors(edges, simulate("moments", parts, scale=scale).graph))
    # 18.0 and 1.1 of 8 seeds, 12 variables each.
    assert np.mean(found["normal-scores"]) < 4
    assert np.mean(found["data"]) > 10
