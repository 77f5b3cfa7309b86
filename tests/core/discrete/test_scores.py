"""Scores against textbook formulas, and gains however they are counted."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_search import (
    SlowScore,
    members_of,
    random_dag,
    random_table,
    sampled_table,
    table_of,
)
from scipy.special import gammaln
from small_graphs import dags, matrix
from sweeps import sweep

from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.scores import MOST_ROWS, TableGains, regret, score_graph
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.errors import ConfigError, DataError

SCORES = [("bdeu", 1.0), ("bdeu", 0.01), ("bdeu", 25.0), ("bic", 1.0), ("qnml", 1.0)]


def gains_of(source, d, y, given):
    """The gains of all others as further parents of y, NaN for y and the given."""
    families, row = row_of(empty_families(d), y, given)
    wanted = ~np.isin(np.arange(d), [y, *given])
    source.fill(families, np.array([row]), wanted[None])
    np.testing.assert_array_equal(np.isnan(families.gains[row]), ~wanted)
    return families.gains[row]


def some_families(d, seed, count=12, largest=4):
    rng = np.random.default_rng(seed)
    for number in range(count):
        size = number % (largest + 1)
        y, *given = rng.permutation(d)[: size + 1].tolist()
        yield y, sorted(given)


# Few states: counted by bits; many: by rows, with most cells empty; above 2048 rows in one cell the
# terms are computed, below they are looked up. 64 rows make a word.
SHAPES = {
    "one word": (64, (2, 3)),
    "one row": (1, (2, 3)),
    "words not filled": (777, (2, 3)),
    "single states": (130, (1, 2)),
    "many states": (400, (15, 40)),
    "mixed": (500, (2, 25)),
    "large counts": (9000, (2, 3)),
    "all states of a byte": (600, (256, 256)),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", sweep(SHAPES, ["many states", "mixed"]))
@pytest.mark.parametrize(("score", "ess"), SCORES)
def test_gains_are_differences_of_the_textbook_scores(score, ess, shape):
    num_rows, states = SHAPES[shape]
    rng = np.random.default_rng(len(shape))
    cards = rng.integers(*states, 7, endpoint=True)
    hidden = rng.random(num_rows)
    noise = rng.random((7, num_rows))
    codes = np.floor((0.6 * hidden + 0.4 * noise) * cards[:, None]).astype(np.uint8)
    table = table_of(codes, cards)
    source, slow = TableGains(table, score, ess), SlowScore(table, score, ess)
    scale = num_rows * 8
    for y, members in some_families(7, seed=0):
        gains = gains_of(source, 7, y, members)
        for x in np.flatnonzero(~np.isnan(gains)).tolist():
            expected = slow.local(y, [*members, x]) - slow.local(y, members)
            tolerance = 1e-13 * scale + slow_error(score, cards[[y, x, *members]])
            assert gains[x] == pytest.approx(expected, rel=1e-9, abs=tolerance)
    dag = random_dag(7, rng, 0.3)
    assert source.graph_score(dag) == pytest.approx(slow.total(dag), rel=1e-9)


def slow_error(score, cards):
    """What rounding makes of the regret as it is printed, with very many cells."""
    return 1e-15 * np.prod(cards.astype(float)) if score == "qnml" else 0.0


@pytest.mark.parametrize(("score", "ess"), SCORES)
def test_a_score_is_that_of_its_families(score, ess):
    table = sampled_table(5, 300, seed=3)
    slow = SlowScore(table, score, ess)
    rng = np.random.default_rng(1)
    for _ in range(10):
        dag = random_dag(5, rng)
        graph = CausalGraph.from_array(dag, table.names)
        assert score_graph(graph, table, score, ess) == pytest.approx(slow.total(dag), abs=1e-8)


def test_bdeu_of_one_coin_by_hand():
    # Gamma(1) / Gamma(1 + 3) x [Gamma(1/2 + 2) / Gamma(1/2)] x [Gamma(1/2 + 1) / Gamma(1/2)].
    coin = CausalGraph.from_array(matrix(1), ["coin"])
    table = DiscreteTable(("coin",), (("h", "t"),), np.array([[0, 0, 1]]))
    assert score_graph(coin, table) == pytest.approx(np.log(1 / 6 * (0.5 * 1.5) * 0.5))
    fit = 2 * np.log(2 / 3) + np.log(1 / 3)
    assert score_graph(coin, table, "bic") == pytest.approx(fit - 0.5 * np.log(3))
    assert score_graph(coin, table, "qnml") == pytest.approx(fit - np.log(26 / 9), abs=0.1)


@given(dags(5), st.sampled_from(SCORES), st.integers(0, 3))
def test_equivalent_graphs_score_the_same(dag, score, seed):
    source = TableGains(random_table(5, 90, seed, states=(2, 5)), *score)
    totals = [source.graph_score(member) for member in members_of(equivalence.cpdag(dag))]
    np.testing.assert_allclose(totals, totals[0], atol=1e-8)


@pytest.mark.parametrize(("score", "ess"), SCORES)
def test_the_gain_is_symmetric(score, ess):
    source = TableGains(sampled_table(6, 500, 2, num_states=(2, 9)), score, ess)
    for y, members in some_families(6, seed=4, largest=3):
        gains = gains_of(source, 6, y, members)
        for x in np.flatnonzero(~np.isnan(gains)).tolist():
            assert gains_of(source, 6, x, members)[y] == pytest.approx(gains[x], abs=1e-8)


def test_the_symmetric_gains_of_the_empty_set_are_written_for_both():
    source = TableGains(sampled_table(4, 200, 0))
    families = empty_families(4)
    for y in range(4):
        families, _ = row_of(families, y, [])
    source.fill(families, np.arange(4), ~np.eye(4, dtype=bool))
    np.testing.assert_array_equal(families.gains[:4], families.gains[:4].T)
    for y in range(4):
        np.testing.assert_allclose(families.gains[y], gains_of(source, 4, y, []), rtol=1e-12)


@pytest.mark.parametrize(("score", "ess"), SCORES)
@pytest.mark.parametrize("states", [(2, 3), (2, 30)])
def test_weighed_rows_count_as_repeated_ones(score, ess, states):
    rng = np.random.default_rng(0)
    table = random_table(6, 300, 1, states)
    weights = rng.integers(0, 5, 300)
    weighed = table_of(table.codes, table.cardinalities, weights)
    repeated = table_of(np.repeat(table.codes, weights, axis=1), table.cardinalities)
    assert weighed.num_rows == repeated.num_rows == weights.sum()
    one, two = TableGains(weighed, score, ess), TableGains(repeated, score, ess)
    for y, members in some_families(6, seed=2):
        np.testing.assert_allclose(
            gains_of(one, 6, y, members), gains_of(two, 6, y, members), atol=1e-8
        )
    dag = random_dag(6, rng)
    assert one.graph_score(dag) == pytest.approx(two.graph_score(dag))


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 3001])
def test_bits_and_rows_count_the_same(num_rows):
    """With weights of one the rows are counted one by one; without, by bits."""
    table = random_table(6, num_rows, 5, (2, 3))
    ones = table_of(table.codes, table.cardinalities, np.ones(num_rows, dtype=int))
    for y, members in some_families(6, seed=9):
        np.testing.assert_allclose(
            gains_of(TableGains(table), 6, y, members),
            gains_of(TableGains(ones), 6, y, members),
            atol=1e-8,
        )


def test_counts_far_beyond_the_looked_up_terms():
    weights = np.array([700_000_000, 50, 3_000_000, 900_000_000])
    table = table_of(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]), [2, 2], weights)
    for score, ess in SCORES:
        gain = gains_of(TableGains(table, score, ess), 2, 0, [])[1]
        slow = SlowScore(table, score, ess)
        assert gain == pytest.approx(slow.local(0, [1]) - slow.local(0, []), rel=1e-12)


def test_more_rows_than_can_be_counted_are_refused():
    table = table_of(np.array([[0, 1]]), [2], np.array([MOST_ROWS, 1]))
    with pytest.raises(DataError, match="2147483648 rows"):
        TableGains(table)


def test_a_column_of_one_state_gains_and_costs_nothing():
    codes = np.vstack([random_table(3, 100, 0).codes, np.zeros((1, 100))])
    table = table_of(codes, [4, 4, 4, 1])
    for score, ess in SCORES:
        source = TableGains(table, score, ess)
        assert gains_of(source, 4, 3, [0])[1] == 0.0
        assert gains_of(source, 4, 0, [1])[3] == 0.0
        with_it, without = gains_of(source, 4, 0, [1, 3]), gains_of(source, 4, 0, [1])
        assert with_it[2] == pytest.approx(without[2], abs=1e-9)
        beside, joined = matrix(4, (0, 1)), matrix(4, (0, 1), (3, 1), (2, 3))
        assert source.graph_score(beside) == pytest.approx(source.graph_score(joined))


def test_memory_is_that_of_codes_and_bits():
    source = TableGains(random_table(5, 640, 0, (3, 3)))
    assert source.nbytes >= 5 * 640 + 5 * 3 * 80


# --- the regret of qNML ---------------------------------------------------------------------------


def exact_log_regret(n, cells):
    """By the recursion of Kontkanen & Myllymaki (2007)."""
    k = np.arange(n + 1.0)
    logs = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    logs[1:] += k[1:] * np.log(k[1:] / n)
    logs[:-1] += (n - k[:-1]) * np.log((n - k[:-1]) / n)
    before, value = 1.0, np.exp(logs).sum()
    for number in range(3, cells + 1):
        before, value = value, value + n / (number - 2) * before
    return np.log(value)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 30, 200, 5000])
def test_the_regret_is_within_a_tenth_of_a_nat(num_rows):
    for cells in (2, 3, 4, 8, 20, 100):
        exact = exact_log_regret(num_rows, cells)
        assert regret(float(num_rows), float(cells)) == pytest.approx(exact, abs=0.1)
    assert regret(float(num_rows), 1.0) == 0.0


@pytest.mark.parametrize("cells", [10**3, 10**7, 10**12, 10**15])
def test_the_regret_of_very_many_cells_keeps_its_digits(cells):
    getcontext().prec = 60
    n, a = Decimal(1000), Decimal(cells) / 1000
    c = (1 + (1 + 4 / a).sqrt()) / 2
    expected = n * (a.ln() + (a + 2) * c.ln() - 1 / c) - (c + 2 / a).ln() / 2
    assert regret(1000.0, float(cells)) == pytest.approx(float(expected), abs=1e-8)


# --- moments --------------------------------------------------------------------------------------


def random_moments(d, n, seed, units=None):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return SampleMoments.from_rows(rows if units is None else rows * units)


def test_gains_from_moments_are_differences_of_the_gaussian_bic():
    moments = random_moments(6, 80, 0)
    source = MomentGains(moments)
    for y, members in some_families(6, seed=0):
        gains = gains_of(source, 6, y, members)
        before = matrix(6, *((k, y) for k in members))
        for x in np.flatnonzero(~np.isnan(gains)).tolist():
            after = matrix(6, *((k, y) for k in [*members, x]))
            change = gaussian_bic(moments, before) - gaussian_bic(moments, after)
            assert gains[x] == pytest.approx(change, abs=1e-7)


def test_gains_from_moments_do_not_depend_on_units():
    units = np.array([1e-9, 1.0, 1e7, 3.0, 1e-4, 1e10])
    plain, scaled = random_moments(6, 80, 1), random_moments(6, 80, 1, units)
    for y, members in some_families(6, seed=1):
        np.testing.assert_allclose(
            gains_of(MomentGains(scaled), 6, y, members),
            gains_of(MomentGains(plain), 6, y, members),
            atol=1e-6,
        )


def test_what_is_known_already_costs_an_edge_and_gains_nothing():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    source = MomentGains(
        SampleMoments.from_rows(np.stack([a, b, a + b, np.full(50, 3.0), 2 * a], 1))
    )
    price = -0.5 * np.log(50)
    assert gains_of(source, 5, 1, [0])[4] == pytest.approx(price)  # a again
    assert gains_of(source, 5, 0, [])[3] == pytest.approx(price)  # a constant
    assert gains_of(source, 5, 3, [])[0] == pytest.approx(price)
    # Parents that depend on each other, and a sum that they determine.
    assert gains_of(source, 5, 1, [0, 4])[3] == pytest.approx(price)
    assert gains_of(source, 5, 2, [0, 1, 4])[3] == pytest.approx(price)
    certain = gains_of(source, 5, 2, [0])[1]
    assert 100 < certain < 1000


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "aic"}, "'aic': choose one of bdeu, bic, qnml"),
        ({"equivalent_sample_size": 0.0}, "number above 0"),
        ({"equivalent_sample_size": -1.0}, "number above 0"),
        ({"equivalent_sample_size": np.inf}, "number above 0"),
        ({"equivalent_sample_size": np.nan}, "number above 0"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ConfigError, match=message):
        TableGains(random_table(2, 20, 0), **options)


def test_graphs_that_have_no_score_on_a_table():
    table = as_discrete(np.array([[0, 1], [1, 0]]), ["x0", "x1"])
    with pytest.raises(DataError, match="no column 'z'"):
        score_graph(CausalGraph.from_array(matrix(2), ["x0", "z"]), table)
    with pytest.raises(DataError, match="cycle"):
        score_graph(CausalGraph.from_array(matrix(2, (0, 1), (1, 0)), ["x0", "x1"]), table)


def test_columns_are_found_by_name_and_a_class_scores_as_its_members():
    table = sampled_table(4, 200, 1)
    dag = matrix(4, (0, 1), (1, 2), (3, 2))
    graph = CausalGraph.from_array(dag, table.names)
    expected = score_graph(graph, table)
    assert score_graph(graph.to_cpdag(), table) == pytest.approx(expected)
    assert score_graph(graph, table.reordered([2, 0, 3, 1])) == pytest.approx(expected)
    part = CausalGraph.from_array(matrix(2, (0, 1)), ["x3", "x1"])
    slow = SlowScore(table)
    assert score_graph(part, table) == pytest.approx(slow.local(3, []) + slow.local(1, [3]))
