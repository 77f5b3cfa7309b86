"""The likelihood of systems with hidden common causes: closed forms, equivalence, a general fit."""

import numpy as np
import pytest
from scipy.optimize import minimize

from flwr_causal.core.ges.ancestral_kernels import FIT_TIE
from flwr_causal.core.ges.ancestral_search import AncestralScore
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, TAIL, directed_edges, mag, marks_of_dag
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.ties import LEAST_SHARE

N = 1000


def random_moments(rng, d):
    rows = rng.normal(size=(N, d)) @ rng.normal(size=(d, d))
    return SampleMoments.from_rows(rows, [f"x{k}" for k in range(d)])


def hidden_pair():
    """a -> b <-> c <- e: the one constraint that no DAG over the four has."""
    marks = np.zeros((4, 4), dtype=np.int64)
    for i, j, at_j, at_i in ((0, 1, ARROW, TAIL), (1, 2, ARROW, ARROW), (3, 2, ARROW, TAIL)):
        marks[i, j], marks[j, i] = at_j, at_i
    return marks


def test_of_dags_the_score_is_the_gaussian_bic():
    rng = np.random.default_rng(0)
    moments = random_moments(rng, 5)
    score, differences = AncestralScore(moments.correlations, N, np.log(N) / 2), []
    for _ in range(10):
        order = rng.permutation(5)
        dag = np.triu(rng.random((5, 5)) < 0.5, 1)[np.ix_(order, order)]
        differences.append(score(marks_of_dag(dag)) - gaussian_bic(moments, dag))
    np.testing.assert_allclose(differences, differences[0], rtol=0, atol=1e-6)


def test_graphs_of_the_same_independences_have_the_same_score():
    score = AncestralScore(random_moments(np.random.default_rng(1), 3).correlations, N, 1.0)
    found = []
    for at_j, at_i in ((ARROW, TAIL), (TAIL, ARROW), (ARROW, ARROW)):
        marks = np.zeros((3, 3), dtype=np.int64)
        marks[0, 1], marks[1, 0], marks[1, 2], marks[2, 1] = ARROW, TAIL, ARROW, TAIL
        marks[0, 1], marks[1, 0] = at_j, at_i
        found.append(score(marks))
    np.testing.assert_allclose(found, found[0], atol=1e-3)


def test_the_fit_of_a_district_is_the_maximum_of_the_likelihood():
    correlations = random_moments(np.random.default_rng(2), 4).correlations
    marks = hidden_pair()
    directed = np.argwhere(directed_edges(marks))

    def deviance(values):
        effects, noise = np.zeros((4, 4)), np.diag(np.exp(values[:4]))
        for (i, j), value in zip(directed, values[4:], strict=False):
            effects[i, j] = value
        noise[1, 2] = noise[2, 1] = values[-1]
        sign, logarithm = np.linalg.slogdet(noise)
        if sign <= 0 or np.linalg.eigvalsh(noise)[0] <= 0:
            return 1e9
        left = np.eye(4) - effects
        return logarithm + np.trace(np.linalg.solve(noise, left.T @ correlations @ left))

    best = minimize(
        deviance, np.zeros(7), method="Nelder-Mead", options={"maxiter": 20000, "xatol": 1e-9}
    )
    best = minimize(deviance, best.x, method="Nelder-Mead", options={"maxiter": 20000})
    found = AncestralScore(correlations, N, 0.0)(marks)
    assert found == pytest.approx(N / 2 * best.fun, abs=0.05)


def test_the_true_graph_explains_its_own_covariance():
    """The deviance of the graph that is true is the entropy of the variables seen."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        dag = np.triu(rng.random((7, 7)) < 0.4, 1)
        effects = dag * rng.uniform(0.3, 1.0, (7, 7))
        mixing = np.linalg.inv(np.eye(7) - effects)
        seen = rng.choice(7, 5, replace=False).tolist()
        covariance = (mixing.T @ mixing)[np.ix_(seen, seen)]
        deviations = np.sqrt(np.diagonal(covariance))
        correlations = covariance / np.outer(deviations, deviations)
        true = mag(dag, seen)
        found = AncestralScore(correlations, 2, 0.0)(true)
        assert found == pytest.approx(np.linalg.slogdet(correlations)[1] + 5, abs=1e-3)


def test_scores_are_remembered_by_graph_alone():
    correlations = random_moments(np.random.default_rng(4), 4).correlations
    kept = AncestralScore(correlations, N, 2.0)
    for marks in (hidden_pair(), np.zeros((4, 4), dtype=np.int64), hidden_pair()[::-1, ::-1]):
        fresh = AncestralScore(correlations, N, 2.0)(marks)
        assert kept(marks) == fresh
        assert kept(np.where(marks == NONE, NONE, marks)) == fresh
    empty = kept(np.zeros((4, 4), dtype=np.int64))
    assert empty == pytest.approx(N / 2 * 4)  # no edges: four variances of 1


def test_graphs_of_columns_that_determine_others_have_scores():
    """Where a determinant is 0, an eigenvalue counts as the least one that is no rounding error."""
    marks = np.array([[NONE, ARROW], [ARROW, NONE]])
    found = AncestralScore(np.ones((2, 2)), 2, 0.0)(marks)
    assert found == pytest.approx(np.log(2 * LEAST_SHARE) + 2, abs=1e-6)
    rows = np.random.default_rng(5).normal(size=(N, 4))
    correlations = np.corrcoef(np.column_stack([rows[:, :3], rows[:, :3].sum(axis=1)]).T)
    rounded = correlations + np.random.default_rng(6).uniform(-1e-15, 1e-15, (4, 4))
    one = AncestralScore(correlations, N, 1.0)
    two = AncestralScore((rounded + rounded.T) / 2, N, 1.0)
    rng = np.random.default_rng(7)
    for _ in range(30):
        dag = np.triu(rng.random((7, 7)) < 0.5, 1)
        marks = mag(dag, rng.permutation(7)[:4].tolist())
        assert one(marks) == pytest.approx(two(marks), abs=FIT_TIE * N)
