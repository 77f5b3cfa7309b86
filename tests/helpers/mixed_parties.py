"""Parties that share a graph and nothing else, for the tests of the methods made for them."""

import numpy as np
import pandas as pd

from flwr_causal.core.fedcausal import group
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.nonlinear.basis import basis_moments

MECHANISMS = (
    lambda x: 1.5 * x,
    lambda x: -1.5 * x,
    lambda x: 2.0 * np.tanh(2.0 * x),
    lambda x: 2.0 * np.sin(2.0 * x),
    lambda x: x**2 - 1.0,
    lambda x: 2.0 * np.exp(-(x**2)),
)


def random_dag(rng, d, edges):
    order = rng.permutation(d)
    rows, columns = np.triu_indices(d, 1)
    chosen = rng.choice(len(rows), edges, replace=False)
    graph = np.zeros((d, d), dtype=bool)
    graph[order[rows[chosen]], order[columns[chosen]]] = True
    return graph, order


def mixed_parties(seed, d=8, edges=8, sizes=(150,) * 6):
    """A graph, and for every party rows by mechanisms of its own for every edge."""
    rng = np.random.default_rng(seed)
    graph, order = random_dag(rng, d, edges)
    parties = []
    for n in sizes:
        rows = np.zeros((n, d))
        for j in order:
            rows[:, j] = rng.standard_normal(n)
            for i in np.flatnonzero(graph[:, j]):
                effect = MECHANISMS[rng.integers(len(MECHANISMS))](rows[:, i])
                rows[:, j] += effect - effect.mean()
        parties.append(rows)
    return graph, parties


def no_knowledge(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


def group_lasso(parties, schedule=None, masks=None, lost=()):
    """Run the joint group lasso; ``lost`` names (round, party) pairs that lose their state."""
    d = parties[0].shape[1]
    problem = group.ServerProblem(schedule or group.group_schedule(), masks or no_knowledge(d))
    local = [group.local_problem(basis_moments(rows)) for rows in parties]
    shares = np.array([len(rows) for rows in parties]) / sum(map(len, parties))
    state, clients = group.init(d), [None] * len(parties)
    while group.finished(state, problem) is None:
        penalty = problem.schedule.at(state.iteration).consensus_penalty
        for k, client in enumerate(clients):
            kept = None if (state.iteration, k) in lost else client
            clients[k] = group.client_step(
                [local[k]], kept, state.factors, penalty, state.iteration
            )
        mean = sum(w * client.squared_norms for w, client in zip(shares, clients, strict=True))
        state, info = group.server_step(state, mean, problem)
    return state, problem, clients, info


CHAIN = [("x0", "x1"), ("x1", "x2"), ("x3", "x2"), ("x3", "x4")]


def differing_parties(seed=0, missing=None, extra=None, size=0.5, num_parties=5, num_rows=150):
    """Tables of `CHAIN` with strong nonlinear effects, each of a kind and sign of its party.

    The party ``missing`` lacks x3 -> x2, and the party ``extra`` has x0 -> x4 too, of this size.
    """
    functions = (
        lambda x: 2.0 * np.tanh(2.0 * x),
        lambda x: 2.0 * np.sin(1.5 * x),
        lambda x: x**2 - 1.0,
    )
    tables = []
    for k in range(num_parties):
        rng = np.random.default_rng((seed, k))
        rows, signs = rng.standard_normal((num_rows, 5)), rng.choice([-1.0, 1.0], 5)
        effects = [
            lambda x, sign=sign, i=i, k=k: sign * functions[(k + i) % 3](x)
            for i, sign in enumerate(signs)
        ]
        rows[:, 1] += effects[0](rows[:, 0])
        rows[:, 2] += effects[1](rows[:, 1]) + (k != missing) * effects[2](rows[:, 3])
        rows[:, 4] += effects[3](rows[:, 3]) + (k == extra) * size * effects[4](rows[:, 0])
        tables.append(pd.DataFrame(rows, columns=[f"x{i}" for i in range(5)]))
    return tables
