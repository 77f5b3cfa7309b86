"""Choosing the sparsity penalty: a default for it, and choices by scores of sums alone.

The scores need the moments among each variable and its parents in the candidate graph and nothing
else, so they also work where a federation reveals no other moments (the others may be NaN).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.gaussian_scores import RESIDUAL_FLOOR, gaussian_bic
from flwr_causal.core.linear.model import regress
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.moments import Moments

Solver = Callable[["Moments", float], "CausalGraph"]

# Measured for the log-determinant solver with threshold 0.3 on the simulations of the NOTEARS-ADMM
# paper, (d, n) = (10, 30), (20, 60), (50, 150), (100, 300), (10, 256), (20, 256), (50, 256), eight
# seeds each: the summed mean SHD is 6.0 at 0.10, 5.6 at 0.13, 5.9 at 0.16, 7.8 at 0.20, 9.9 at
# 0.25. Where the units of the sparsity were compared (a coarser central path, best constant of
# each), the geometric mean of the variances had 10.0, the median 11.1, no unit at all 11.4 and the
# mean 12.5: a few large variances do not drag the geometric mean along.
SPARSITY_FACTOR = 0.16
# Beyond this many variables the default grows with sqrt(d / 100) on top: fewer small weights are
# left to optimise, and the graphs are as good (n = 3d, SHD with and without the growth: d = 200,
# two seeds, 6 and 6; d = 500, one seed, 3 and 2, in about two thirds of the time).
SPARSITY_GROWS_FROM = 100
# Multiples of the default that are tried when the data choose.
GRID_MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


def typical_variance(moments: Moments) -> float:
    """Geometric mean of the variances (constant variables aside), the unit of the sparsity."""
    varying = np.delete(moments.variances, moments.constant_columns())
    return float(np.exp(np.log(varying).mean())) if len(varying) else 0.0


def default_sparsity(n: int, d: int, scale: float = 1.0) -> float:
    """Sparsity ``0.16 sqrt(log d / n) scale``, the rate at which noise in S falls.

    Beyond 100 variables it is ``sqrt(d / 100)`` times that, see ``SPARSITY_GROWS_FROM``.

    Parameters
    ----------
    n, d
        Numbers of rows and variables.
    scale
        Unit of the variables' variance, best :func:`typical_variance`: then the chosen graph does
        not change with the units.
    """
    factor = SPARSITY_FACTOR * max(1.0, float(np.sqrt(d / SPARSITY_GROWS_FROM)))
    return factor * float(np.sqrt(np.log(max(d, 2)) / n)) * scale


def default_grid(moments: Moments) -> tuple[float, ...]:
    """Sparsities to choose from: multiples of the default, ascending."""
    base = default_sparsity(moments.n, moments.d, typical_variance(moments))
    return tuple(multiple * base for multiple in GRID_MULTIPLES)


def held_out_error(train: Moments, validation: Moments, adjacency: ArrayLike) -> float:
    """Held-out negative log-likelihood per row of the graph's linear Gaussian model.

    Weights, intercepts and noise variances are fitted to ``train`` by least squares; the result is
    ``sum_j 1/2 (log(2 pi v_j) + e_j / v_j)`` with the noise variance ``v_j`` and the mean squared
    error ``e_j`` on ``validation``. Lower is better; units shift all graphs' values alike.

    Raises
    ------
    DataError
        If the two sets of moments are of different variables, or a variable does not vary.
    """
    if train.names != validation.names:
        raise DataError(
            f"training and validation moments differ in their variables: {train.names} and "
            f"{validation.names}"
        )
    train.require_varying()
    parent_mask = np.asarray(adjacency) != 0
    shift = validation.mean - train.mean
    total = 0.0
    for j in range(train.d):
        parents = np.flatnonzero(parent_mask[:, j])
        coefficients, noise = regress(train.second, parents, j)
        noise = max(noise, RESIDUAL_FLOOR * float(train.second[j, j]))
        second = validation.second
        spread = (
            second[j, j]
            - 2.0 * coefficients @ second[parents, j]
            + coefficients @ second[np.ix_(parents, parents)] @ coefficients
        )
        bias = shift[j] - coefficients @ shift[parents]
        total += 0.5 * float(np.log(2.0 * np.pi * noise) + (spread + bias**2) / noise)
    return total


def select_by_bic(moments: Moments, sparsities: Sequence[float], solver: Solver) -> float:
    """Return the sparsity whose graph has the least Gaussian BIC.

    Parameters
    ----------
    moments
        Moments of all rows.
    sparsities
        Values to try, as those of :func:`default_grid`. Of equal scores the larger one is chosen.
    solver
        ``(moments, sparsity) -> CausalGraph``.
    """
    return _select(sparsities, lambda s: gaussian_bic(moments, solver(moments, s).adjacency))


def select_by_held_out(
    train: Moments, validation: Moments, sparsities: Sequence[float], solver: Solver
) -> float:
    """Return the sparsity whose graph on ``train`` has the least :func:`held_out_error`.

    The other parameters are those of :func:`select_by_bic`.
    """
    return _select(
        sparsities, lambda s: held_out_error(train, validation, solver(train, s).adjacency)
    )


def _select(sparsities: Sequence[float], score: Callable[[float], float]) -> float:
    # equal scores mean equal or equivalent graphs: the stronger penalty is the safer choice
    return min(sparsities, key=lambda sparsity: (score(sparsity), -sparsity))
