"""NOTEARS-ADMM and 2Dbn by the core alone: no Flower, no messages, all parties in one loop.

What the mathematics costs; the engine's price is what ``simulate`` takes on top.
"""

import numpy as np

from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.schedules import TUNED_LAGGED, fast_schedule
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.moments import Moments, data_scale, merge
from flwr_causal.core.linear.solution import refit_support
from flwr_causal.core.series.design import lagged_rows, split_blocks, to_square
from flwr_causal.strategies.linear import LAGGED_FACTOR, by_block
from flwr_causal.strategies.two_dbn import DEFAULT_ROUNDS, TwoDBN

THRESHOLD = 0.3


def notears_admm(parties, max_rounds=40):
    """The strategy's default: global centring, fast schedule, early stop, refit.

    Returns the graph and the number of exchanges.
    """
    rows, scale = centred(parties, order=0)
    n, d = sum(map(len, rows)), parties[0].shape[1]
    schedule = fast_schedule(max_rounds - 1, len(parties), n, d, scale)
    raw, rounds = iterate(rows, admm.ServerProblem(schedule, d, threshold=THRESHOLD))
    weights = refitted(raw, rows, THRESHOLD)
    return CausalGraph(names(d), weights, raw_weights=raw), rounds + 1


def two_dbn(parties, order=1, max_rounds=DEFAULT_ROUNDS):
    """The same for series, one a party: its rows with their lags, the strategy's default options.

    ``max_rounds`` counts the refit.
    """
    rows, scale = centred(parties, order)
    n, d = sum(map(len, rows)), parties[0].shape[1]
    schedule = fast_schedule(max_rounds - 1, len(parties), n, d, scale, TUNED_LAGGED)
    problem = admm.ServerProblem(
        schedule,
        d,
        lags=order,
        relative_sparsity=by_block(1.0, LAGGED_FACTOR, d, order),
        threshold=TwoDBN.threshold,
    )
    raw, rounds = iterate(rows, problem)
    weights, lagged = split_blocks(refitted(raw, rows, TwoDBN.threshold))
    return CausalGraph(names(d), weights, lagged=lagged), rounds + 1


def names(num_variables):
    return tuple(f"x{j}" for j in range(num_variables))


def centred(parties, order):
    """Rows with their lags, centred by the mean of all parties, and the scale of the data."""
    used = [values[order:] for values in parties]
    n = sum(map(len, used))
    mean = sum(values.sum(axis=0) for values in used) / n
    scale = data_scale(sum(((values - mean) ** 2).sum(axis=0) for values in used) / n)
    return [lagged_rows([values - mean], order) for values in parties], scale


def iterate(rows, problem):
    """Run the iteration on centred rows until it ends: stacked weights, number of rounds."""
    n, d = sum(map(len, rows)), problem.num_variables
    locals_ = [admm.local_problem(part.T @ part, n, d) for part in rows]
    state = admm.init(problem)
    memories = [None] * len(rows)
    reason = None
    while reason is None:
        penalty, _, _, relaxation = problem.schedule.at(state.round)
        total = np.zeros_like(state.weights)
        for k, local in enumerate(locals_):
            memories[k] = admm.client_step(
                local, memories[k], state.weights, penalty, state.round, relaxation
            )
            total += memories[k].sent
        state, info = admm.server_step(state, total / len(rows), problem, len(rows))
        reason = admm.finished(state, info, problem)
    return state.weights[0], state.round


def refitted(raw, rows, threshold):
    """Threshold, no cycles, least squares on what is left; weights as stacked as they came."""
    m, d = raw.shape
    kept = break_cycles(to_square(np.where(np.abs(raw) > threshold, raw, 0.0))) != 0
    pooled = merge(Moments.from_rows(part, names(m), center=False) for part in rows)
    return refit_support(pooled, kept, threshold, required=np.zeros((m, m), dtype=bool))[:, :d]
