"""NOTEARS-ADMM by the core alone: no Flower, no messages, all parties in one loop.

What the mathematics costs; the engine's price is what ``simulate`` takes on top.
"""

import numpy as np

from flwr_causal.core import admm
from flwr_causal.core.graph import CausalGraph
from flwr_causal.core.moments import Moments, merge
from flwr_causal.core.schedules import data_scale, fast_schedule
from flwr_causal.core.solution import refit_support

THRESHOLD = 0.3


def notears_admm(parties, max_rounds=40):
    """The strategy's default: global centring, fast schedule, early stop, refit.

    Returns the graph and the number of exchanges.
    """
    n, d = sum(map(len, parties)), parties[0].shape[1]
    mean = sum(rows.sum(axis=0) for rows in parties) / n
    parties = [rows - mean for rows in parties]
    variances = sum((rows**2).sum(axis=0) for rows in parties) / n
    schedule = fast_schedule(max_rounds - 1, len(parties), n, d, data_scale(variances))
    problem = admm.ServerProblem(schedule, d)
    locals_ = [admm.local_problem(rows, n) for rows in parties]
    state = admm.init(problem)
    memories = [None] * len(parties)
    reason = None
    while reason is None:
        penalty, _, _, relaxation = schedule.at(state.round)
        total = np.zeros_like(state.weights)
        for k, local in enumerate(locals_):
            memories[k] = admm.client_step(
                local, memories[k], state.weights, penalty, state.round, relaxation
            )
            total += memories[k].sent
        state, info = admm.server_step(state, total / len(parties), problem, len(parties))
        reason = admm.finished(state, info, problem)
    names = tuple(f"x{j}" for j in range(d))
    raw = state.weights[0]
    graph = CausalGraph(names, raw, raw_weights=raw).threshold(THRESHOLD)
    pooled = merge(Moments.from_rows(rows, names, center=False) for rows in parties)
    no_edge = np.zeros((d, d), dtype=bool)
    weights = refit_support(pooled, graph.adjacency, THRESHOLD, required=no_edge)
    return CausalGraph(names, weights, raw_weights=raw), state.round + 1
