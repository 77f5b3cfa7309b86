"""Simulated time series of a linear system with lags and a known graph.

The model of Chen, Ma & Yue (2024), eq. 1, and of DYNOTEARS (Pamfil et al., 2020): a structural
vector autoregression ``x_t = x_t W + x_(t-1) A_1 + ... + x_(t-p) A_p + e_t`` in row vectors, W
acyclic, every ``A_l`` free. Row causes column: ``lagged[l, i, j]`` is the effect of x_i at time
t - l - 1 on x_j at time t.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.series.design import companion_radius
from flwr_causal.data.partition import even_sizes
from flwr_causal.data.synthetic.random_graphs import Seed, random_graph
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray


#: Largest number of systems that are sampled to find a stationary one.
MOST_DRAWS = 1000
#: Largest share of the initial values that remains after the default burn-in.
START_REMAINS = 1e-6
#: Smallest number of usable rows of a series: a variance needs two.
LEAST_ROWS = 2


def dynamic_system(
    num_variables: int,
    order: int = 1,
    *,
    instantaneous_degree: float = 4.0,
    lagged_degree: float = 1.0,
    decay: float = 1.5,
    weight_range: tuple[float, float] = (0.3, 0.5),
    graph: str = "er",
    seed: Seed = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return a random stationary system; defaults from Chen, Ma & Yue (2024), section 4 and 7.2.

    Systems are sampled until one is stationary, that is, until all eigenvalues of the companion
    matrix of ``A_l (I - W)^-1`` are inside the unit circle. With arguments for strong lags, the
    accepted systems have sparser and weaker lags than the sampled ones.

    Parameters
    ----------
    num_variables : int
        d.
    order : int, default 1
        p, the number of lags.
    instantaneous_degree : float, default 4
        Mean number of neighbours within a time slice: each of the pairs is joined with the
        probability ``instantaneous_degree / d`` (1 at most), as in section 7.2. For "sf" half of
        it, rounded, is the number of edges per joining variable.
    lagged_degree : float, default 1
        Mean number of effects of a variable at each lag, itself among them: each of the d^2 edges
        exists with the probability ``lagged_degree / d``.
    decay : float, default 1.5
        eta: weights of lag l are ``decay ** (l - 1)`` times smaller.
    weight_range : pair of float, default (0.3, 0.5)
        Absolute weights are uniform between these, of either sign.
    graph : {"er", "sf"}, default "er"
        Instantaneous graph: Erdos-Renyi, or scale-free. Lagged edges are always Erdos-Renyi.
    seed : int, sequence of int, or Generator

    Returns
    -------
    W : float64 array of shape (d, d)
        Acyclic; exactly 0 where there is no edge.
    A : float64 array of shape (p, d, d)

    Raises
    ------
    ConfigError
        An argument out of range, or no stationary system among 1000 draws.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.series import dynamic_system
    >>> weights, lagged = dynamic_system(4, order=2, seed=0)
    >>> weights.shape, lagged.shape
    ((4, 4), (2, 4, 4))
    """
    if order < 1:
        raise ConfigError(f"order is {order}: a dynamic system has at least one lag")
    low, high = weight_range
    if not 0 < low <= high or not decay >= 1:
        raise ConfigError(
            f"weight_range is {weight_range}, decay {decay}: give 0 < low <= high, and at least 1"
        )
    if instantaneous_degree < 0 or not 0 <= lagged_degree <= num_variables:
        raise ConfigError(
            f"degrees are {instantaneous_degree} and {lagged_degree}: neither may be negative, and "
            f"a variable has at most {num_variables} lagged effects"
        )
    rng = np.random.default_rng(seed)
    num_pairs = num_variables * (num_variables - 1) // 2
    joined = min(instantaneous_degree / num_variables, 1.0)
    fading = decay ** -np.arange(order, dtype=np.float64)
    for _ in range(MOST_DRAWS):
        # A binomial number of edges on random pairs is one trial for each pair.
        num_edges = int(rng.binomial(num_pairs, joined)) if graph == "er" else 0
        edges = random_graph(graph, num_variables, num_edges, round(instantaneous_degree / 2), rng)
        weights = edges * _signed(weight_range, edges.shape, rng)
        shape = (order, num_variables, num_variables)
        stands = rng.random(shape) < lagged_degree / num_variables
        lagged = stands * _signed(weight_range, shape, rng) * fading[:, None, None]
        # Adding 0 turns the negative zeros of absent edges into positive ones.
        weights, lagged = weights + 0.0, lagged + 0.0
        if companion_radius(weights, lagged) < 1:
            return weights, lagged
    raise ConfigError(
        f"none of {MOST_DRAWS} systems with weights up to {high}, {lagged_degree} lagged edges per "
        f"variable and order {order} was stationary: lower weight_range or lagged_degree, or raise "
        "decay"
    )


def simulate_series(
    weights: ArrayLike,
    lagged: ArrayLike,
    lengths: Sequence[int],
    *,
    noise_std: float | ArrayLike = 1.0,
    burn_in: int | None = None,
    seed: Seed = 0,
) -> list[FloatArray]:
    """Simulate independent series of one system, with Gaussian noise.

    Parameters
    ----------
    weights : array of shape (d, d)
        W; ``I - W`` must be invertible.
    lagged : array of shape (p, d, d)
        A_1, ..., A_p.
    lengths : sequence of int
        Number T of time steps of each series.
    noise_std : float or array of shape (d,), default 1
        Standard deviation of the noise (1 in the paper), of all variables or of each.
    burn_in : int, optional
        Number of initial steps, from a start at zero, that are dropped. Default: the number after
        which less than a millionth of the start remains; a system that is not stationary needs a
        given number.
    seed : int, sequence of int, or Generator

    Returns
    -------
    list of float64 arrays of shape (T, d)

    Raises
    ------
    ConfigError
        Arrays that do not fit, a length below 1, negative noise or burn-in, or a system that is not
        stationary while ``burn_in`` is not given.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.series import dynamic_system, simulate_series
    >>> weights, lagged = dynamic_system(3, seed=0)
    >>> [series.shape for series in simulate_series(weights, lagged, [50, 20])]
    [(50, 3), (20, 3)]
    """
    W, A = np.asarray(weights, dtype=np.float64), np.asarray(lagged, dtype=np.float64)
    if W.ndim != 2 or A.ndim != 3 or not len(W) == W.shape[1] == A.shape[1] == A.shape[2]:
        raise ConfigError(
            f"weights of shape {W.shape} and lagged of shape {A.shape}: give (d, d) and (p, d, d)"
        )
    d, order = len(W), len(A)
    scale = np.asarray(noise_std, dtype=np.float64)
    if scale.shape not in ((), (d,)) or not (scale >= 0).all():
        raise ConfigError(f"noise_std is {noise_std!r}: give one number from 0 up, or {d} of them")
    if not len(lengths) or min(lengths) < 1 or (burn_in is not None and burn_in < 0):
        raise ConfigError(
            f"lengths are {list(lengths)}, burn_in {burn_in}: give at least one length, lengths "
            "from 1 up, and burn_in from 0 up"
        )
    if burn_in is None:
        burn_in = _burn_in(W, A)
    total = np.linalg.inv(np.eye(d) - W)
    steps = burn_in + max(lengths)
    noise = np.random.default_rng(seed).standard_normal((steps, len(lengths), d)) * scale
    x = np.zeros((order + steps, len(lengths), d))
    x[order:] = noise @ total
    reduced = A @ total
    for t in range(order, order + steps):
        for lag, effects in enumerate(reduced, start=1):
            x[t] += x[t - lag] @ effects
    start = order + burn_in
    return [x[start : start + length, m].copy() for m, length in enumerate(lengths)]


def federated_dynamic(
    num_variables: int,
    num_rows: int,
    num_parties: int,
    *,
    order: int = 1,
    series_per_party: int = 1,
    instantaneous_degree: float = 4.0,
    lagged_degree: float = 1.0,
    decay: float = 1.5,
    weight_range: tuple[float, float] = (0.3, 0.5),
    noise_std: float | ArrayLike = 1.0,
    graph: str = "er",
    seed: int = 0,
) -> tuple[list[pd.DataFrame] | list[list[pd.DataFrame]], CausalGraph]:
    """Simulate a federation of independent series of one system, with the truth.

    Parameters
    ----------
    num_variables : int
        d.
    num_rows : int
        n as the paper counts it: usable rows, ``sum (T - order)`` over all series, dealt out
        evenly (numbers differ by one at most).
    num_parties : int
        K.
    order : int, default 1
        p.
    series_per_party : int, default 1
        M, independent realisations that each party holds.
    instantaneous_degree, lagged_degree, decay, weight_range, graph
        As in :func:`dynamic_system`.
    noise_std
        As in :func:`simulate_series`.
    seed : int
        Everything follows from it; the system does not depend on the numbers of rows, parties and
        series.

    Returns
    -------
    parties : list of DataFrame, or list of list of DataFrame
        One a party, variables ``x0``, ``x1``, ..., rows in the order of time; a list of series for
        each party where ``series_per_party`` is more than 1.
    truth : CausalGraph
        With the weights and the lagged weights.

    Raises
    ------
    ConfigError
        As :func:`dynamic_system` and :func:`simulate_series`, or fewer than one party or series.
    DataError
        Fewer than two usable rows for each series.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.series import federated_dynamic
    >>> parties, truth = federated_dynamic(3, 100, 2)
    >>> [len(series) for series in parties], truth.lagged.shape  # one step more than usable rows
    ([51, 51], (1, 3, 3))
    """
    if num_parties < 1 or series_per_party < 1:
        raise ConfigError(
            f"{num_parties} parties with {series_per_party} series each: give at least one of both"
        )
    num_series = num_parties * series_per_party
    if num_rows < LEAST_ROWS * num_series:
        raise DataError(
            f"{num_rows} usable rows for {num_series} series: each needs {LEAST_ROWS}, so give at "
            f"least {LEAST_ROWS * num_series} rows, or fewer parties"
        )
    for_system, for_series = np.random.default_rng(seed).spawn(2)
    weights, lagged = dynamic_system(
        num_variables,
        order,
        instantaneous_degree=instantaneous_degree,
        lagged_degree=lagged_degree,
        decay=decay,
        weight_range=weight_range,
        graph=graph,
        seed=for_system,
    )
    lengths = [rows + order for rows in even_sizes(num_rows, num_series)]
    series = simulate_series(weights, lagged, lengths, noise_std=noise_std, seed=for_series)
    truth = CausalGraph.from_array(weights, lagged=lagged)
    frames = [pd.DataFrame(rows, columns=pd.Index(truth.names)) for rows in series]
    if series_per_party == 1:
        return frames, truth
    starts = range(0, num_series, series_per_party)
    return [frames[start : start + series_per_party] for start in starts], truth


def _signed(
    weight_range: tuple[float, float], shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """Draw numbers whose absolute values are uniform, of either sign."""
    signs = rng.choice([-1.0, 1.0], shape)
    return np.asarray(rng.uniform(*weight_range, shape) * signs, dtype=np.float64)


def _burn_in(weights: FloatArray, lagged: FloatArray) -> int:
    """Return the number of steps after which at most `START_REMAINS` of the start remains."""
    radius = companion_radius(weights, lagged)
    if radius >= 1:
        raise ConfigError(
            f"the system is not stationary (spectral radius {radius:.3g}): give weaker lags, or "
            "give burn_in to simulate it nevertheless"
        )
    # The powers of a nilpotent matrix are zero from its number of rows on.
    nilpotent = len(lagged) * len(weights)
    return nilpotent + int(np.ceil(np.log(START_REMAINS) / np.log(max(radius, START_REMAINS))))
