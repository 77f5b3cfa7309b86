"""PERI of examples/field: its neighbours are all classes one edge away, one party is GES."""

import numpy as np
import pytest
from flwr_causal_field import peri

from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.simulations import simulate
from flwr_causal.solvers import ges
from flwr_causal.testing import check_method


def random_dag(rng, d, share):
    order = rng.permutation(d)
    dag = np.zeros((d, d), bool)
    dag[np.ix_(order, order)] = np.triu(rng.random((d, d)) < share, k=1)
    return dag


def all_dags(d):
    pairs = np.argwhere(~np.eye(d, dtype=bool))
    for code in range(1 << len(pairs)):
        dag = np.zeros((d, d), bool)
        chosen = pairs[[bool(code >> k & 1) for k in range(len(pairs))]]
        dag[chosen[:, 0], chosen[:, 1]] = True
        if not (dag & dag.T).any() and not np.linalg.matrix_power(dag * 1, d).any():
            yield dag


@pytest.mark.slow
def test_neighbours_are_the_classes_of_members_with_one_edge_more_or_fewer():
    members = {}
    for dag in all_dags(4):
        members.setdefault(cpdag(dag).tobytes(), []).append(dag)
    for key, dags in members.items():
        marks = np.frombuffer(key, bool).reshape(4, 4)
        more, fewer = set(), set()
        for dag in dags:
            for i, j in np.argwhere(~np.eye(4, dtype=bool)):
                if dag[j, i]:
                    continue
                changed = dag.copy()
                changed[i, j] ^= True
                if not np.linalg.matrix_power(changed * 1, 4).any():
                    (fewer if dag[i, j] else more).add(cpdag(changed).tobytes())
        assert {cpdag(dag).tobytes() for dag in peri.inserted(marks)} == more
        assert {cpdag(dag).tobytes() for dag in peri.deleted(marks)} == fewer


def rows_of(seed, n, d=6, noise=1.0):
    rng = np.random.default_rng(seed)
    dag = random_dag(np.random.default_rng(100), d, 0.4)
    weights = np.where(dag, rng.choice([-1, 1], (d, d)) * rng.uniform(0.5, 1.5, (d, d)), 0.0)
    return noise * rng.normal(size=(n, d)) @ np.linalg.inv(np.eye(d) - weights), dag


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_one_party_is_ges(seed):
    rows, _ = rows_of(seed, 150)
    run = simulate(peri.PERI(), [rows], client=peri.PERIClient)
    wanted = ges(rows, "gaussian-bic")
    assert np.array_equal(run.graph.adjacency, wanted.adjacency)
    assert run.history[-1]["regret"] >= -1e-6


def test_the_largest_regret_decides():
    parties = [rows_of(seed, n)[0] for seed, n in ((0, 400), (1, 60), (2, 150))]
    run = simulate(peri.PERI(), parties, client=peri.PERIClient)
    dag = run.graph.to_dag().adjacency
    moments = [SampleMoments.from_rows(rows) for rows in parties]
    regrets = [
        gaussian_bic(own, dag) - gaussian_bic(own, ges(own, "gaussian-bic").to_dag().adjacency)
        for own in moments
    ]
    assert run.stop_reason == f"no neighbour has a smaller regret than {max(regrets):.3f}"
    for neighbour in [*peri.inserted(run.graph.adjacency), *peri.deleted(run.graph.adjacency)]:
        own = [
            gaussian_bic(own, neighbour) - gaussian_bic(own, dag) + regret
            for own, regret in zip(moments, regrets, strict=True)
        ]
        if neighbour.sum() < dag.sum():
            assert max(own) > max(regrets) - 1e-6


def test_many_rows_of_different_parties_give_the_common_class():
    parties = [rows_of(seed, 4000, noise=seed + 1.0)[0] for seed in range(3)]
    run = simulate(peri.PERI(), parties, client=peri.PERIClient)
    assert np.array_equal(run.graph.adjacency, cpdag(rows_of(0, 9)[1]))


@pytest.mark.nightly
def test_the_checks_of_every_method():
    parties = [rows_of(seed, 60, d=3)[0] for seed in range(3)]
    report = check_method(peri.PERI(), parties, client=peri.PERIClient)
    assert report.passed, report.table()
