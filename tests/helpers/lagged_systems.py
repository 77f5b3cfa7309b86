"""Small stationary series of known weights, and their stacked rows."""

import numpy as np

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_names, lagged_rows


def simulate_series(seed, steps, now, *lagged, offset=0.0, burn_in=50):
    """``x_t = W^T x_t + sum_l A_l^T x_{t-l} + u_t`` with unit noise, ``(steps, d)``."""
    d, p = len(now), len(lagged)
    noise = np.random.default_rng(seed).standard_normal((burn_in + steps, d))
    mixing = np.linalg.inv(np.eye(d) - now)
    series = np.zeros_like(noise)
    for t in range(p, len(series)):
        past = sum(series[t - lag - 1] @ lagged[lag] for lag in range(p))
        series[t] = (past + noise[t]) @ mixing
    return series[burn_in:] + offset


def random_rows(seed, n, d, order):
    """Stacked rows of a random system of ``order`` lags."""
    rng = np.random.default_rng(seed)
    now = np.triu(rng.uniform(-0.5, 0.5, (d, d)), 1)
    lagged = [rng.uniform(-0.3, 0.3, (d, d)) / (lag + 1) / order for lag in range(order)]
    return lagged_rows([simulate_series(seed, n + order, now, *lagged, offset=2.0)], order)


def moments_of(rows, d):
    """Moments of stacked rows under the names of their columns."""
    names = lagged_names([f"x{j}" for j in range(d)], rows.shape[1] // d - 1)
    return SampleMoments.from_rows(rows, names)
