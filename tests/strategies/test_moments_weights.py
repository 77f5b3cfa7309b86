"""Weights of rows, of a survey or inverse probabilities: ``weight_column`` of Moments."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from flwr_causal import ConfigError, DataError, simulate
from flwr_causal.core.blocks.design import Design
from flwr_causal.core.linear.moments import row_products
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.read import pieces as reading
from flwr_causal.protocol.second_moments import impossible_products
from flwr_causal.sources import completed
from flwr_causal.strategies import Moments
from flwr_causal.testing import method_checks
from flwr_causal.testing.report import report_of

W = {"weight_column": "w"}
EM = {"missing_values": "em"}
ORDER = {"order": 1}
BLOCKS = {"text_columns": "keep"}


def table(n, seed=0, *, whole=False):
    """Return rows of x -> y, x -> z <- y, a category of y, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = 1.5 * x + rng.normal(size=n) + 3
    z = 0.7 * x - y + 1.5 * rng.normal(size=n)
    sort = np.where(y + rng.normal(size=n) > 3, "high", "low")
    weights = rng.integers(1, 4, size=n) if whole else rng.exponential(size=n) + 0.05
    return pd.DataFrame({"x": x, "y": y, "z": z, "sort": sort, "w": weights})


def series(n, seed=0, *, whole=False):
    """Return steps of a system with lags, and weights."""
    rng = np.random.default_rng(seed)
    noise, values = rng.normal(size=(n, 2)), np.zeros((n, 2))
    for t in range(1, n):
        values[t, 0] = 0.6 * values[t - 1, 0] + noise[t, 0]
        values[t, 1] = 0.8 * values[t, 0] + 0.5 * values[t - 1, 1] + noise[t, 1]
    weights = rng.integers(1, 4, size=n) if whole else rng.exponential(size=n) + 0.05
    return pd.DataFrame({"x": values[:, 0], "y": values[:, 1], "w": weights})


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


def parties(rows, cuts=(150, 400)):
    return [rows.iloc[i:j].reset_index(drop=True) for i, j in pairwise((0, *cuts, len(rows)))]


def numbers(rows):
    return rows.drop(columns="sort")


def repeated(rows):
    """Return each row as often as its whole weight says, without the weights."""
    return rows.loc[rows.index.repeat(rows["w"])].drop(columns="w")


def kish(weights):
    return weights.sum() ** 2 / (weights**2).sum()


def least_squares(rows, effect, causes):
    """Return the weighted regression of pooled rows, with standard errors of Kish's rows."""
    design = sm.add_constant(rows[causes].to_numpy())
    found = sm.WLS(rows[effect].to_numpy(), design, weights=rows["w"].to_numpy()).fit()
    free = len(causes) + 1
    as_likely = np.sqrt((len(rows) - free) / (kish(rows["w"]) - free))
    return found, as_likely * found.bse


ROWS = numbers(table(600))
RUN = simulate("moments", parties(ROWS), **W)


def same_outcome(one, other, atol=1e-9):
    assert one.graph.names == other.graph.names
    np.testing.assert_array_equal(one.graph.adjacency, other.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, other.graph.weights, atol=atol)
    if one.graph.lagged is not None:
        np.testing.assert_allclose(one.graph.lagged, other.graph.lagged, atol=atol)


def test_the_system_is_the_weighted_regression_of_pooled_rows():
    assert sorted(edge[:2] for edge in RUN.graph.edges()) == [("x", "y"), ("x", "z"), ("y", "z")]
    found, _ = least_squares(ROWS, "z", ["x", "y"])
    unweighted, _ = least_squares(ROWS.assign(w=1.0), "z", ["x", "y"])
    place = RUN.graph.names.index("z")
    np.testing.assert_allclose(RUN.graph.weights[:2, place], found.params[1:], rtol=1e-9)
    assert abs(found.params - unweighted.params).max() > 0.01
    assert RUN.model.intercepts[place] == pytest.approx(found.params[0], abs=1e-9)
    assert RUN.model.sample_moments.n == round(kish(ROWS["w"])) == RUN.history[-1]["effective_rows"]


def test_standard_errors_are_those_of_as_many_effective_rows():
    found, errors = least_squares(ROWS, "z", ["x", "y"])
    effect = RUN.model.total_effect("y", "z")
    assert effect.value == pytest.approx(found.params[2], rel=1e-9)
    # Kish's number is rounded to whole rows.
    assert effect.standard_error == pytest.approx(errors[2], rel=5e-3)
    assert effect.standard_error > 1.2 * found.bse[2]


def test_standard_errors_by_party_are_clustered():
    tables = parties(numbers(table(4000)), tuple(range(400, 4000, 400)))
    run = simulate("moments", tables, **W)
    rows, of = pd.concat(tables), np.repeat(np.arange(len(tables)), [len(one) for one in tables])
    design = sm.add_constant(rows[["x", "y"]].to_numpy())
    found = sm.WLS(rows["z"].to_numpy(), design, weights=rows["w"].to_numpy()).fit(
        cov_type="cluster", cov_kwds={"groups": of}
    )
    effect = run.model.total_effect("y", "z", by_party=True)
    # A party's effective rows are rounded to whole rows.
    assert effect.standard_error == pytest.approx(found.bse[2], rel=2e-3)


@pytest.mark.parametrize(
    ("tables", "options"),
    [
        (parties(ROWS.assign(w=4096.3 * ROWS["w"])), {}),
        (parties(ROWS.assign(w=1e-7 * ROWS["w"])), {"secure_aggregation": True}),
        ([*parties(ROWS), ROWS.iloc[:9].assign(w=np.eye(9)[0] * 1e-12)], {}),
    ],
    ids=[
        "other unit",
        "secure sums of small weights",
        "rows of weight 0",
    ],
)
def test_only_rows_and_ratios_of_weights_matter(tables, options):
    found = simulate("moments", tables, **W, **options)
    one, other = found.graph, RUN.graph
    order = [one.names.index(name) for name in other.names]
    np.testing.assert_allclose(one.weights[np.ix_(order, order)], other.weights, atol=1e-9)
    assert found.model.sample_moments.n == RUN.model.sample_moments.n


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        slow(ROWS, {"solver": "dagma", "sparsity": "held-out"}),
        (ROWS, {"unknown_targets": True}),
        slow(ROWS, {"local_graphs": True}),
        slow(series(400), {"order": 2, "select_order": True}),
    ],
    ids=str,
)
def test_equal_weights_change_nothing(rows, options):
    tables = parties(rows.assign(w=2.5), (150, 290))
    weighted = simulate("moments", tables, **W, **options)
    plain = simulate("moments", [one.drop(columns="w") for one in tables], **options)
    same_outcome(weighted, plain)
    assert [w for w in weighted.warnings if w not in plain.warnings] == []


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (numbers(table(400, whole=True)), {}),
        (numbers(table(400, whole=True)), {"interventions": {0: ["x"]}}),
        slow(table(400, whole=True), BLOCKS),
        slow(table(400, whole=True), {**BLOCKS, "interventions": {0: ["x"]}}),
    ],
    ids=["numbers", "interventions", "categories", "interventions on blocks"],
)
def test_moments_are_those_of_repeated_rows(rows, options):
    tables = parties(rows, (100, 250))
    weighted = simulate("moments", tables, **W, **options)
    copies = simulate("moments", [repeated(one) for one in tables], **options)
    np.testing.assert_array_equal(weighted.graph.adjacency, copies.graph.adjacency)
    if options:
        return
    np.testing.assert_allclose(weighted.graph.weights, copies.graph.weights, atol=1e-9)
    one, other = weighted.model.sample_moments, copies.model.sample_moments
    assert one.n < len(rows) < other.n
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.second, other.second, atol=1e-9)


def test_conditionals_of_categories_are_those_of_repeated_rows():
    tables = parties(table(400, whole=True), (100, 250))
    one, other = (
        simulate("moments", part, **BLOCKS, **options).model.moments
        for part, options in ((tables, W), ([repeated(own) for own in tables], {}))
    )
    # The units of blocks are those of the rows without weights: correlations have none.
    np.testing.assert_allclose(one.correlations, other.correlations, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [slow({}), {"unshared_columns": "keep"}, slow({"interventions": {0: ["x"]}})],
    ids=["same columns", "other columns", "interventions"],
)
def test_expected_moments_are_those_of_repeated_rows(options):
    rng = np.random.default_rng(2)
    rows = numbers(table(500, whole=True))
    gaps = rows.mask(rng.random(rows.shape) < 0.15).assign(w=rows["w"])
    tables = parties(gaps, (150, 350))
    if "unshared_columns" in options:
        tables[1] = tables[1].drop(columns="z")
    weighted = simulate("moments", tables, **W, **EM, **options)
    copies = simulate("moments", [repeated(one) for one in tables], **EM, **options)
    unweighted = simulate("moments", [one.drop(columns="w") for one in tables], **EM, **options)
    assert weighted.num_rows == pytest.approx(500, abs=15)
    assert weighted.history[-1]["effective_rows"] < unweighted.history[-1]["effective_rows"]
    np.testing.assert_array_equal(weighted.graph.adjacency, copies.graph.adjacency)
    np.testing.assert_allclose(weighted.graph.weights, copies.graph.weights, atol=5e-3)
    assert abs(weighted.graph.weights - unweighted.graph.weights).max() > 0.015


def test_effective_rows_of_gaps_are_in_proportion_to_weights():
    gaps = ROWS.mask(np.random.default_rng(0).random(ROWS.shape) < 0.1).assign(w=ROWS["w"])
    run = simulate("moments", parties(gaps), **W, **EM)
    seen = gaps.drop(columns="w").notna().to_numpy(float)
    together = (seen * ROWS[["w"]].to_numpy()).T @ seen * ROWS["w"].sum() / (ROWS["w"] ** 2).sum()
    pairs = together[~np.eye(3, dtype=bool)]
    assert run.history[-1]["effective_rows"] == pytest.approx(pairs.mean(), abs=1)


@pytest.mark.parametrize("secure", [False, True])
def test_steps_of_series_count_as_the_weight_of_their_last_step(secure):
    rows = series(700)
    tables = parties(rows, (200, 450))
    run = simulate("moments", tables, **W, **ORDER, secure_aggregation=secure)
    lagged = [
        one.assign(**{f"{name}'": one[name].shift() for name in "xy"}).iloc[1:] for one in tables
    ]
    pooled = pd.concat(lagged)
    graph = run.graph
    for effect in "xy":
        place = graph.names.index(effect)
        causes = [
            (name, graph.weights[i, place], name)
            for i, name in enumerate(graph.names)
            if graph.weights[i, place]
        ] + [
            (name, graph.lagged[0][i, place], f"{name}'")
            for i, name in enumerate(graph.names)
            if graph.lagged[0][i, place]
        ]
        assert causes
        found, _ = least_squares(pooled, effect, [column for *_, column in causes])
        np.testing.assert_allclose([one for _, one, _ in causes], found.params[1:], atol=1e-9)
    assert run.model.sample_moments.n == round(kish(pooled["w"]))


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (numbers(table(300)), {}),
        slow(table(300), BLOCKS),
        (series(300), {"order": 2, "select_order": True}),
        slow(series(300).assign(c=np.where(np.arange(300) % 3, "u", "v")), {"order": 1, **BLOCKS}),
        slow(numbers(table(300)).mask(np.random.default_rng(0).random((300, 4)) < 0.1), EM),
    ],
    ids=["rows", "categories", "chosen order", "lagged categories", "gaps"],
)
def test_replicates_draw_rows_with_their_weights(rows, options, monkeypatch):
    told = rows["x"].fillna(rows["x"].mean())
    tables = parties(rows.assign(w=np.exp(told)), (100, 200))
    seen = []

    def pairs(about, rows):
        # x is the first column after the weight, in the units of the design.
        units = about.scale if isinstance(about, Design) else np.sqrt(about.setup.variance)
        seen.append(np.column_stack([np.log(rows[:, 0]), rows[:, 1] * units[0]]))
        return kept(about, rows)

    holder, name = (completed, "_parted") if options == EM else (Design, "of_weighted")
    kept = getattr(holder, name)
    monkeypatch.setattr(holder, name, pairs)
    simulate("moments", tables, **W, **options, replicates=2)
    of_rows = np.unique([len(one) for one in seen])
    assert len(seen) >= 9
    assert of_rows.min() >= 95
    for one in seen:
        x = one[~np.isnan(one).any(axis=1)]
        np.testing.assert_allclose(x[:, 0] - x[:, 1], x[0, 0] - x[0, 1], atol=1e-9)
    drawn = [len(np.unique(one[:, 0])) / len(one) for one in seen]
    assert min(drawn) < 0.8


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1.0, np.nan, np.inf], "has missing or infinite weights in 2 of 3 rows"),
        ([1.0, -1.0, 2.0], "has negative weights in 1 of 3 rows"),
        ([0.0, 0.0, 0.0], "is 0 in all rows"),
        (["1", "many", "2"], "does not hold numbers alone"),
        ([True, False, True], "does not hold numbers alone"),
        (None, "the table has no column 'w', which weight_column names: add it, with 1 in rows"),
    ],
)
@pytest.mark.parametrize("options", [{}, slow(EM), slow(ORDER)])
def test_weights_that_are_none_are_refused_before_any_training(weights, text, options):
    own = pd.DataFrame({"x": [1.0, 2, 4], "y": [3.0, 1, 1], "z": [0.0, 1, 3]})
    own = own if weights is None else own.assign(w=weights)
    with pytest.raises(DataError, match=f"party 3.*{text}"):
        simulate("moments", [*parties(ROWS), own], **W, **options)


@pytest.mark.parametrize("options", [{}, EM, slow(ORDER)])
def test_rows_that_count_must_tell_of_all_columns(options):
    some = ROWS["x"] > 0
    own = ROWS.assign(w=1.0 * some, x=np.where(some, 2.0, ROWS["x"]))
    with pytest.raises(DataError, match=r"column 'x'.* has one value, or none, in the rows that"):
        simulate("moments", parties(own), **W, **options)
    one = ROWS.assign(w=np.where(ROWS.index == 99, 1e9, 1e-9))
    with pytest.raises(DataError, match="count as 1 effective row: trim the largest weights"):
        simulate("moments", parties(one), **W, **options)


def test_a_column_has_one_role():
    with pytest.raises(ConfigError, match="'weight_column' is 'w'; it must be a column without"):
        simulate("moments", parties(ROWS), **W, row_id="w")


def test_the_comparison_with_pooled_rows_has_their_weights():
    def run_alone(table):
        return simulate("moments", [table], **W).graph

    found = Moments(**W).baselines(parties(ROWS), ("x", "y", "z"), run_alone)
    np.testing.assert_allclose(found.pooled.weights, RUN.graph.weights, atol=1e-9)


def test_rows_that_are_left_out_leave_their_weights():
    gaps = ROWS.mask(np.random.default_rng(0).random(ROWS.shape) < 0.1).assign(w=ROWS["w"])
    complete = gaps.dropna().reset_index(drop=True)
    found = simulate("moments", parties(gaps), **W, missing_values="drop")
    same_outcome(found, simulate("moments", [complete], **W))


def test_tables_may_be_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 1)
    monkeypatch.setattr(reading, "PIECE", 200)
    paths = []
    for k, own in enumerate(parties(ROWS)):
        paths.append(tmp_path / f"{k}.csv")
        own.to_csv(paths[-1], index=False)
    same_outcome(simulate("moments", paths, **W), RUN)


def test_joined_columns_know_no_weights():
    rows = ROWS.assign(row_id=[f"r{k}" for k in range(len(ROWS))])
    tables = [rows[["row_id", "x", "w"]], rows[["row_id", "y", "z", "w"]]]
    with pytest.raises(ConfigError, match="set weight_column=left out"):
        simulate("moments", tables, **W)


@pytest.mark.parametrize("method", ["lingam", "2dbn"])
def test_other_methods_have_no_weights(method):
    with pytest.raises(ConfigError, match="no option 'weight_column'"):
        simulate(method, parties(ROWS), **W)


def test_the_weights_are_no_variable():
    assert RUN.graph.names == ("x", "y", "z")
    judged = simulate("moments", parties(ROWS), **W, truth=RUN.graph)
    assert judged.metrics["shd"] == 0
    some = simulate("moments", parties(ROWS), **W, columns="x, y")
    assert some.graph.names == ("x", "y")
    assert some.graph.weights[0, 1] == pytest.approx(RUN.graph.weights[0, 1], abs=1e-9)


def test_a_false_reply_is_told():
    design = Design.of(("x",), np.zeros(1), np.ones(1), weighted=True)
    rows = row_products(design.of_weighted(np.array([[2.0, 1.0], [1.0, -2.0]]))) / 2
    known = SimpleNamespace(
        report=None,
        resampled=True,
        sizes={"n": 2},
        setup=SimpleNamespace(
            names=("x",),
            mean=np.zeros(1),
            variance=np.ones(1),
            states=(),
            targets=(),
            handling=Handling(),
            options=SimpleNamespace(
                functions=1,
                standardize=False,
                lags=0,
                center="global",
                weighted=True,
                folds=1,
                levels=False,
                scores=False,
            ),
        ),
    )
    assert impossible_products({"moments": rows[None]}, known) == ""
    for place in ((1, 1), (2, 2)):
        false = rows.copy()
        false[place] = 0
        assert "weights" in impossible_products({"moments": false[None]}, known)


#: Of the checks of a method those without faults.
CHECKS = ("runs", "order_of_parties", "split_of_rows", "nothing_undeclared_travels", "secure_sums")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options"),
    [(numbers(table(120)), {}), (table(120), BLOCKS), (series(150), ORDER)],
    ids=["numbers", "categories", "series"],
)
def test_the_checks_of_a_method_pass_with_weights(rows, options):
    every = method_checks("moments", parties(rows, (40, 80)), **W, **options)
    checks = [one for one in every if one[0] in (*CHECKS, "resume")]
    found = report_of("moments", checks, {})
    assert found.passed, found.table()
    assert len(found.results) == len(CHECKS) + 1
