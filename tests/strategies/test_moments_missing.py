"""Moments of rows with missing cells: ``missing_values="em"``."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from agreed import agreed
from sweeps import sweep

from flwr_causal import ConfigError, DataError, Knowledge, simulate
from flwr_causal.core.blocks.design import Category, Number
from flwr_causal.core.blocks.missing import change, stepped
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.protocol.second_moments import other_sums
from flwr_causal.sources import completed
from flwr_causal.sources.completed import _never_together
from flwr_causal.strategies import Moments

NAMES = list("abcdef")
WEIGHTS = np.zeros((6, 6))
for cause, effect, weight in ((0, 1, 1.0), (0, 2, -0.8), (1, 3, 1.2), (2, 3, 0.7), (3, 4, -1.0)):
    WEIGHTS[cause, effect] = weight
EM = {"missing_values": "em"}


def complete(n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 6)) @ np.linalg.inv(np.eye(6) - WEIGHTS)
    return pd.DataFrame(3 * rows + 10, columns=NAMES)


def gaps_at_random(table, share, seed=0):
    return table.mask(np.random.default_rng(seed).random(table.shape) < share)


def parties(table, cuts=(200, 500)):
    ends = (0, *cuts, len(table))
    return [table.iloc[i:j].reset_index(drop=True) for i, j in pairwise(ends)]


TABLE = gaps_at_random(complete(900), 0.2)
RUN = simulate("moments", parties(TABLE), **EM)


def edges(run):
    return sorted((edge[0], edge[1]) for edge in run.graph.edges())


def test_the_graph_is_that_of_the_complete_rows():
    assert edges(RUN) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
    assert RUN.num_rows == TABLE.notna().any(axis=1).sum()
    assert len(RUN.history) <= 8
    effect = RUN.model.total_effect("a", "d")
    of_complete = simulate("moments", parties(complete(900)))
    assert effect.value == pytest.approx(1.0 * 1.2 - 0.8 * 0.7, abs=3 * effect.standard_error)
    assert effect.standard_error > 1.1 * of_complete.model.total_effect("a", "d").standard_error


def test_units_do_not_matter():
    scale = 10.0 ** np.arange(-3, 3)
    found = simulate("moments", parties(TABLE * scale), **EM, standardize=True)
    same = simulate("moments", parties(TABLE), **EM, standardize=True)
    np.testing.assert_allclose(found.graph.weights, same.graph.weights, atol=1e-6)
    d, e = found.model.total_effect("d", "e"), same.model.total_effect("d", "e")
    assert d.value == pytest.approx(e.value * scale[4] / scale[3], rel=1e-6)


def test_what_depends_on_seen_columns_is_allowed_for_and_said():
    # b is missing where a is large: of the rows that have it all, the means are others.
    table = complete(4000, seed=2)
    lacking = np.random.default_rng(2).random(4000) < 1 / (1 + np.exp(10 - table["a"]))
    table.loc[lacking, "b"] = np.nan
    found = simulate("moments", parties(table), **EM)
    dropped = simulate("moments", parties(table), missing_values="drop")
    assert any("'b' on 'a'" in warning for warning in found.warnings)
    complete_mean = complete(4000, seed=2)["b"].mean()
    of_em, of_dropped = (run.model.sample_moments.mean[1] for run in (found, dropped))
    assert abs(of_em - complete_mean) < 0.15
    assert abs(of_dropped - complete_mean) > 0.5


def test_parties_may_lack_columns():
    tables = parties(gaps_at_random(complete(900, seed=3), 0.05))
    tables[0] = tables[0].drop(columns="f")
    tables[1] = tables[1].drop(columns=["a", "e"])
    found = simulate("moments", tables, **EM, unshared_columns="keep")
    assert edges(found) == edges(RUN)
    with pytest.raises(DataError, match="unshared_columns"):
        simulate("moments", tables, **EM, unshared_columns="fail")
    with pytest.raises(ConfigError, match="missing_values='em'"):
        Moments(unshared_columns="keep")


def test_parties_that_lack_columns_need_few_exchanges_however_their_rows_are_split():
    tables = parties(gaps_at_random(complete(3000, seed=6), 0.1), (600, 1200, 1800, 2400))
    lacking = ("ab", "f", "c", "de", "af")
    tables = [table.drop(columns=list(own)) for table, own in zip(tables, lacking, strict=True)]
    kept = {**EM, "unshared_columns": "keep"}
    found = simulate("moments", tables, **kept)
    assert edges(found) == edges(RUN)
    assert [record["exchange"] for record in found.history[:2]] == ["seen", "own"]
    assert len(found.history) <= 6
    halves = [half for table in tables for half in (table[:250], table[250:])]
    split = simulate("moments", halves[::-1], **kept)
    assert edges(split) == edges(RUN)
    one, other = (run.model.total_effect("a", "d") for run in (found, split))
    assert one.standard_error == pytest.approx(other.standard_error, rel=0.01)
    # Up to the tolerance of the steps.
    assert one.value == pytest.approx(other.value, abs=0.1 * one.standard_error)
    secure = simulate("moments", tables, **kept, secure_aggregation=True)
    assert "own" not in {record["exchange"] for record in secure.history}
    assert edges(secure) == edges(RUN)


def series(n, seed=0):
    rows = complete(n, seed)[["b", "d", "e"]].to_numpy(copy=True)
    for t in range(1, n):
        rows[t] += 0.5 * (rows[t - 1] - 10)
    return pd.DataFrame(rows, columns=["b", "d", "e"])


FORMS = {
    "numbers": (complete, {}, {}),
    "kept": (complete, {"unshared_columns": "keep"}, {1: ["c"]}),
    "categories": (lambda n: mixed(n), {"text_columns": "keep"}, {}),
    "kept category": (
        lambda n: mixed(n),
        {"text_columns": "keep", "unshared_columns": "keep"},
        {2: ["group"]},
    ),
    "series": (series, {"order": 1}, {}),
}


@pytest.mark.parametrize("form", sweep(FORMS, kept=["kept category", "series"]))
def test_every_form_ends_within_a_thousandth_of_the_pooled_estimate(form, monkeypatch):
    made, options, lacking = FORMS[form]
    tables = parties(gaps_at_random(made(1200), 0.25, seed=4), (300, 700))
    for party, columns in lacking.items():
        tables[party] = tables[party].drop(columns=columns)
    if "order" in options:
        tables = [[table] for table in tables]
    ended = []

    def kept(*given, **named):
        found = yield from of_steps(*given, **named)
        moved = stepped(found.products[0])
        ended.append(moved)
        return found

    of_steps = completed._iterated
    monkeypatch.setattr(completed, "_iterated", kept)
    for secure in (False, True):
        simulate("moments", tables, **EM, **options, secure_aggregation=secure)
    monkeypatch.setattr(completed, "TOLERANCE", 1e-10)
    simulate("moments", tables, **EM, **options)
    opened, secured, exact = ended
    for found in (opened, secured):
        assert change(exact, found) < 1e-3


def four_rows(rng):
    return pd.DataFrame(rng.normal(size=(4, 4)), columns=[*"abcd"]), {}


def shares(rng):
    table = pd.DataFrame(100 * rng.dirichlet([2, 3, 4], 120), columns=["clay", "silt", "sand"])
    return table.assign(crop=table.clay + rng.normal(size=120)), {}


def total(rng):
    table = pd.DataFrame(rng.normal(50, 10, (120, 2)), columns=["a", "b"])
    return table.assign(total=table.a + table.b), {}


def coarser(rng):
    fine = rng.choice([*"pqrs"], 120)
    table = pd.DataFrame({"fine": fine, "coarse": np.where(np.isin(fine, ["p", "q"]), "l", "h")})
    return table.assign(c=rng.normal(size=120) + (fine == "p")), {"text_columns": "keep"}


def copied(rng):
    table, options = coarser(rng)
    return table.assign(copy="of " + table.coarse), options


@pytest.mark.parametrize("made", [four_rows, shares, total, coarser, copied])
@pytest.mark.parametrize("secure", sweep([False, True], kept=[False]))
def test_columns_that_determine_each_other_give_an_outcome_or_an_error_that_names_them(
    made, secure
):
    said = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        tables, options = [], {}
        for _ in range(3):
            table, options = made(rng)
            gaps = rng.random(len(table)) < 0.2
            gaps[0] = True
            tables.append(table.assign(**{table.columns[-1]: table.iloc[:, -1].mask(gaps)}))
        try:
            simulate("moments", tables, **EM, **options, secure_aggregation=secure)
        except DataError as error:
            said.append(str(error))
    assert all(any(repr(name) in text for name in tables[0].columns) for text in said)


@pytest.mark.slow
@pytest.mark.parametrize("sign", sweep([1, -1], kept=[-1]))
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_an_edge_between_columns_that_no_row_has_together_is_found(sign, share):
    # x causes y, which no party has beside it, and y causes the three others: without y they depend
    # on x, and a graph in which they are joined to both fits as well with two edges more.
    rng = np.random.default_rng(7)
    x = rng.normal(size=3000)
    y = sign * x + rng.normal(size=3000)
    others = np.outer(y, [0.9, -0.8, 0.7]) + rng.normal(size=(3000, 3))
    table = gaps_at_random(pd.DataFrame(np.column_stack([x, y, others]), columns=[*"xyuvw"]), share)
    tables = [own.drop(columns="xy"[k % 2]) for k, own in enumerate(parties(table, (700, 1600)))]
    found = simulate("moments", tables, **EM, unshared_columns="keep", solver="class")
    joined = {frozenset(edge[:2]) for edge in found.graph.edges()}
    assert joined == {frozenset(pair) for pair in ("xy", "yu", "yv", "yw")}
    (said,) = [warning for warning in found.warnings if "No row has both" in warning]
    assert "'x'" in said
    assert "'y'" in said


def test_an_edge_between_columns_that_no_row_has_together_is_warned_of():
    blocks = [Number("x", 0.0, 1.0), Number("y", 0.0, 1.0), Category("k", ("a", "b", "c"))]
    found = np.zeros((3, 3), dtype=bool)
    assert _never_together(found, blocks) == []
    found[0, 2] = found[2, 0] = True
    (said,) = _never_together(found, blocks)
    assert "No row has both columns of 1 pairs" in said
    assert "'x' and 'k'" in said


def test_pairs_that_few_rows_have_together_get_no_edge():
    table = complete(600, seed=4)
    table["b"] = table["b"].where(np.arange(600) % 60 == 0)  # in 10 rows
    tables = [table[:300].drop(columns="a"), table[300:].drop(columns="f")]
    found = simulate("moments", tables, **EM, unshared_columns="keep")
    assert "under a graph" in found.stop_reason
    (said,) = [warning for warning in found.warnings if "Too few rows" in warning]
    assert "of 6 pairs" in said  # b with all others, and a with f
    assert not {"b"} & {name for edge in edges(found) for name in edge}
    required = simulate(
        "moments",
        tables,
        **EM,
        unshared_columns="keep",
        knowledge=Knowledge(required=[("a", "b")]),
    )
    assert ("a", "b") in edges(required)


def test_what_cannot_be_estimated_is_an_error():
    table = TABLE.copy()
    table["f"] = np.nan
    with pytest.raises(DataError, match="'f': no value at all"):
        simulate("moments", parties(table), **EM)
    found = simulate("moments", parties(table), **EM, constant_columns="drop")
    assert found.graph.names == tuple("abcde")
    table = TABLE.copy()
    table.loc[3, "b"] = np.inf
    with pytest.raises(DataError, match=r"'b'.*infinite"):
        simulate("moments", parties(table), **EM)


def test_no_row_with_nothing_counts():
    table = pd.concat([TABLE, pd.DataFrame(np.nan, index=range(100), columns=NAMES)])
    found = simulate("moments", [table[:600], table[600:]], **EM)
    assert found.num_rows == RUN.num_rows
    assert edges(found) == edges(RUN)
    np.testing.assert_allclose(found.graph.weights, RUN.graph.weights, atol=1e-8)


def test_classes_and_penalised_solvers_use_the_same_moments():
    found = simulate("moments", parties(TABLE), **EM, solver="class")
    assert found.graph.kind == "cpdag"
    of_rows = simulate("moments", parties(complete(900)), solver="class")
    np.testing.assert_array_equal(found.graph.adjacency, of_rows.graph.adjacency)
    assert edges(simulate("moments", parties(TABLE), **EM, solver="dagma")) == edges(RUN)


def mixed(n, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["old", "young", "middle"], n)
    level = np.select([group == "old", group == "young"], [2.0, -2.0])
    dose = level + rng.normal(size=n)
    risk = 0.8 * dose + rng.normal(size=n)
    died = np.where(risk + rng.normal(size=n) > 1, "yes", "no")
    return pd.DataFrame({"group": group, "dose": dose, "risk": risk, "died": died})


@pytest.mark.parametrize("options", [{}, {"model": "curved"}], ids=["linear", "curved"])
def test_numbers_and_categories_may_have_gaps(options):
    table = mixed(1500)
    kept = {"text_columns": "keep", **options}
    of_complete = simulate("moments", parties(table), **kept)
    found = simulate("moments", parties(gaps_at_random(table, 0.15)), **kept, **EM)
    np.testing.assert_array_equal(found.graph.adjacency, of_complete.graph.adjacency)
    asked = {"state": "old", "reference": "young"}
    one, other = (
        run.model.possible_effects("group", "dose", **asked) for run in (found, of_complete)
    )
    assert one[0].value == pytest.approx(4.0, abs=4 * one[0].standard_error)
    assert one[0].standard_error > 1.02 * other[0].standard_error
    secure = simulate(
        "moments", parties(gaps_at_random(table, 0.15)), **kept, **EM, secure_aggregation=True
    )
    np.testing.assert_allclose(secure.graph.weights, found.graph.weights, atol=1e-9)


def test_a_party_may_lack_a_category():
    tables = parties(gaps_at_random(mixed(1500, seed=1), 0.05))
    tables[2] = tables[2].drop(columns="group")
    found = simulate(
        "moments", tables, text_columns="keep", unshared_columns="keep", missing_values="em"
    )
    of_complete = simulate("moments", parties(mixed(1500, seed=1)), text_columns="keep")
    order = [found.graph.names.index(name) for name in of_complete.graph.names]
    np.testing.assert_array_equal(
        found.graph.adjacency[np.ix_(order, order)], of_complete.graph.adjacency
    )


def compared(count=0.75, product=None, rows=4):
    """What the door says of the sums of a party with one missing cell of four, or of changed ones.

    The column has the mean 2 and the variance 4 at all parties.
    """
    seen = np.array([1.0, 5.0, 9.0])
    z = (seen - 2) / 2
    products = (z**2).sum() / 4 if product is None else product
    squares = ((seen - seen.mean()) ** 2).sum()
    column = ColumnReport("x", "numeric", missing=1, mean=seen.mean(), squares=squares)
    report = TableReport(4, 0, (column,), has_sums=True)
    mean, variance = np.array([2.0, 0.0]), np.array([4.0, 1.0])
    setup = agreed(("x", "y"), (), mean, variance, missing_values="em")
    known = SimpleNamespace(setup=setup, report=report, sizes={"n": rows}, resampled=False)
    # The party lacks the column y.
    arrays = {
        "counts": np.diag([count, 0.0])[None],
        "products": np.diag([products, 0.0])[None],
        "weights": np.ones(2),
    }
    return other_sums(arrays, known)


def test_sums_that_are_not_those_of_the_report_are_refused():
    assert compared() == ""
    assert "'x' has values in other rows" in compared(count=0.5)
    assert "mean square of the column 'x'" in compared(product=1.0)
    # Of a sum that lacks parties less is possible, and no more.
    assert compared(count=1.0, rows=3, product=1.0) == ""
    assert "'x'" in compared(count=1.2, rows=3)


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_intervals_cover_the_effects(share):
    # Other worlds and seeds: see core.blocks.core.blocks.missing.informing_rows.
    covered = []
    truth = np.linalg.inv(np.eye(6) - WEIGHTS)
    for seed in range(100, 180):
        table = gaps_at_random(complete(1500, seed), share, seed)
        run = simulate("moments", parties(table), **EM)
        if edges(run) != edges(RUN):
            continue
        for i, j in ((0, 1), (0, 3), (1, 3), (0, 4), (3, 4), (2, 4)):
            low, high = run.model.total_effect(NAMES[i], NAMES[j]).interval
            covered.append(low <= truth[i, j] <= high)
    assert len(covered) > 300
    assert 0.925 <= np.mean(covered) <= 0.975
