"""PC of examples/field: exact with a perfect test, and that of the pooled rows with real ones."""

from itertools import combinations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from flwr_causal_field import chi_square_pc, fisher_z_pc
from flwr_causal_field.pc import Skeleton
from scipy import stats

from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.simulations import simulate
from flwr_causal.testing import check_method

TRUTH = np.zeros((5, 5), bool)
TRUTH[[0, 1, 2, 3], [2, 2, 3, 4]] = True


def random_dag(rng, d, share):
    order = rng.permutation(d)
    dag = np.zeros((d, d), bool)
    dag[np.ix_(order, order)] = np.triu(rng.random((d, d)) < share, k=1)
    return dag


def learned(d, p_of):
    skeleton = Skeleton(d)
    for size in range(d - 1):
        tests = skeleton.tests(size)
        skeleton.learn(tests, [p_of(test) for test in tests], 0.05)
    return skeleton


def test_a_perfect_test_gives_the_class():
    rng = np.random.default_rng(0)
    for _ in range(60):
        dag = random_dag(rng, 6, rng.choice([0.2, 0.4, 0.6]))
        graph = nx.from_numpy_array(dag, create_using=nx.DiGraph)

        def p_of(test, graph=graph):
            return float(nx.is_d_separator(graph, {test[0]}, {test[1]}, set(test[2:])))

        np.testing.assert_array_equal(learned(6, p_of).directed(), cpdag(dag))


def test_the_largest_p_value_chooses_and_order_does_not_matter():
    rng = np.random.default_rng(1)
    for _ in range(30):
        table = {}
        for i, j in combinations(range(5), 2):
            others = [k for k in range(5) if k not in (i, j)]
            for size in range(4):
                for fixed in combinations(others, size):
                    table[frozenset((i, j)), frozenset(fixed)] = rng.random() ** 6
        turn = rng.permutation(5)

        def p_of(test, names=range(5), table=table):
            i, j, *fixed = (names[k] for k in test)
            return table[frozenset((i, j)), frozenset(fixed)]

        one = learned(5, p_of)
        two = learned(5, lambda test, turn=turn, p_of=p_of: p_of(test, turn))
        marks = one.directed()
        np.testing.assert_array_equal(two.directed(), marks[np.ix_(turn, turn)])
        for pair, (p, fixed) in one.separated.items():
            assert p == p_of((*pair, *fixed)) > 0.05


@pytest.mark.parametrize(("first", "second"), [(0.9, 0.4), (0.4, 0.9)])
def test_of_colliders_that_contradict_each_other_the_surer_one_holds(first, second):
    skeleton = Skeleton(4)  # 0 - 1 - 2 - 3
    for pair, p in (((0, 2), first), ((0, 3), 0.1), ((1, 3), second)):
        skeleton.joined[pair] = skeleton.joined[pair[::-1]] = False
        skeleton.separated[pair] = (p, [])
    marks = skeleton.directed()
    assert marks[2, 1] == (first > second)
    assert marks[1, 2] == (first < second)


# Numbers.


def numbers(n=900, seed=0):
    rng = np.random.default_rng(seed)
    weights = np.where(TRUTH, rng.choice([-1, 1], (5, 5)) * rng.uniform(0.6, 1.2, (5, 5)), 0.0)
    return rng.normal(size=(n, 5)) @ np.linalg.inv(np.eye(5) - weights) + rng.normal(size=5) * 10


def of_residuals(rows, i, j, fixed):
    """The p-value from the residuals of two regressions."""
    design = np.column_stack([np.ones(len(rows)), rows[:, fixed]])
    rest = rows - design @ np.linalg.lstsq(design, rows, rcond=None)[0]
    z = np.arctanh(np.corrcoef(rest[:, i], rest[:, j])[0, 1]) * np.sqrt(len(rows) - len(fixed) - 3)
    return 2 * stats.norm.sf(abs(z))


@pytest.fixture(scope="module")
def fisher():
    rows = numbers()
    parts = [rows[:200], rows[200:350], rows[350:]]
    run = simulate(fisher_z_pc.FisherZPC(), parts, client=fisher_z_pc.FisherZPCClient)
    return rows, parts, run


def test_fisher_z_is_that_of_the_residuals():
    rows = numbers()
    for test in [(0, 1), (0, 4, 2), (1, 3, 0, 2), (0, 4, 1, 2, 3)]:
        i, j, *fixed = test
        ours = fisher_z_pc.p_value(np.corrcoef(rows.T), len(rows), test)
        assert ours == pytest.approx(of_residuals(rows, i, j, fixed), rel=1e-8, abs=1e-300)


def test_one_exchange_gives_pc_of_the_pooled_rows(fisher):
    rows, _, run = fisher
    assert run.rounds == 1
    assert run.graph.kind == "cpdag"
    wanted = learned(5, lambda test: of_residuals(rows, *test[:2], list(test[2:])) * 5)
    np.testing.assert_array_equal(run.graph.adjacency, wanted.directed())
    np.testing.assert_array_equal(run.graph.adjacency, cpdag(TRUTH))


def test_secure_sums_give_the_same(fisher):
    _, parts, run = fisher
    secure = fisher_z_pc.FisherZPC(secure_aggregation=True)
    again = simulate(secure, parts, client=fisher_z_pc.FisherZPCClient)
    assert again.graph.equals(run.graph)


def test_alpha_is_the_level(fisher):
    _, parts, _ = fisher
    strict = fisher_z_pc.FisherZPC(alpha=1e-12)
    lax = fisher_z_pc.FisherZPC(alpha=0.9)
    counts = [
        simulate(method, parts, client=fisher_z_pc.FisherZPCClient).graph.num_edges
        for method in (strict, lax)
    ]
    assert counts[0] <= 4 < counts[1]


# Categories.


def categories(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    values = np.zeros((n, 5), int)
    for j in range(5):
        causes = np.flatnonzero(TRUTH[:, j])
        share = 0.2 + 0.6 * (values[:, causes].sum(axis=1) > 0) if len(causes) else 0.4
        values[:, j] = rng.random(n) < share
    values[:, 4] += (rng.random(n) < 0.1) & (values[:, 4] == 1)
    return pd.DataFrame(values, columns=list("abcde")).astype(str).add_suffix("_")


def test_chi_square_is_that_of_each_stratum():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, size=(3, 4, 2, 3))
    table[1, :, 0, 0] = 0  # a state that does not occur in one stratum
    table[:, :, 1, 2] = 0  # a stratum without rows
    statistic, freedom = 0.0, 0
    for k, m in np.ndindex(2, 3):
        own = table[:, :, k, m]
        own = own[own.any(axis=1)][:, own.any(axis=0)]
        if own.size:
            found = stats.chi2_contingency(own, correction=False)
            statistic, freedom = statistic + found.statistic, freedom + found.dof
    wanted = stats.chi2.sf(statistic, freedom)
    assert chi_square_pc.p_value(table) == pytest.approx(wanted, rel=1e-10)
    assert chi_square_pc.p_value(np.zeros((2, 2))) == 1.0


def of_frames(frame, test):
    cells = frame.iloc[:, list(test)]
    statistic, freedom = 0.0, 0
    groups = cells.groupby(list(cells.columns[2:])) if len(test) > 2 else [((), cells)]
    for _, own in groups:
        counts = pd.crosstab(own.iloc[:, 0], own.iloc[:, 1])
        found = stats.chi2_contingency(counts, correction=False)
        statistic, freedom = statistic + found.statistic, freedom + found.dof
    return stats.chi2.sf(statistic, freedom) if freedom else 1.0


@pytest.fixture(scope="module")
def chi_square():
    frame = categories()
    parts = [frame[:500], frame[500:1400], frame[1400:]]
    run = simulate(chi_square_pc.ChiSquarePC(), parts, client=chi_square_pc.ChiSquarePCClient)
    return frame, parts, run


def test_all_tests_of_a_level_in_one_exchange_give_pc_of_the_pooled_rows(chi_square):
    frame, _, run = chi_square
    wanted = learned(5, lambda test: of_frames(frame, test) * 5)
    np.testing.assert_array_equal(run.graph.adjacency, wanted.directed())
    np.testing.assert_array_equal(run.graph.adjacency, cpdag(TRUTH))
    assert [one["exchange"] for one in run.history] == ["tables"] * run.rounds
    assert run.rounds <= 4
    whole = simulate(chi_square_pc.ChiSquarePC(), [frame], client=chi_square_pc.ChiSquarePCClient)
    assert whole.graph.equals(run.graph)


def test_a_column_of_one_state_has_no_edges():
    parts = [categories(300, seed).assign(f="same") for seed in range(2)]
    run = simulate(chi_square_pc.ChiSquarePC(), parts, client=chi_square_pc.ChiSquarePCClient)
    assert run.graph.num_edges > 0
    assert not run.graph.adjacency[5].any()
    assert not run.graph.adjacency[:, 5].any()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("method", "parties", "client"),
    [
        (fisher_z_pc.FisherZPC, [numbers(90, seed)[:, :3] for seed in range(3)], "FisherZPCClient"),
        (
            chi_square_pc.ChiSquarePC,
            [categories(90, seed).iloc[:, :3] for seed in range(3)],
            "ChiSquarePCClient",
        ),
    ],
    ids=["fisher-z", "chi-square"],
)
def test_the_checks_of_every_method(method, parties, client):
    module = fisher_z_pc if "Fisher" in client else chi_square_pc
    report = check_method(method(), parties, client=getattr(module, client))
    assert report.passed, report.table()
