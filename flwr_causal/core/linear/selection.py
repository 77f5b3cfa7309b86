"""Choice of the sparsity penalty: a default, and choices by BIC or by held-out error.

The scores read only the moments among each variable and its parents in the candidate graph. All
other moments may be NaN, as in federations that do not reveal them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import RESIDUAL_FLOOR, regress
from flwr_causal.core.ties import first_smallest
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.graphs.graph import CausalGraph

Solver = Callable[["SampleMoments | Sequence[SampleMoments]", float], "CausalGraph"]

# Measured for DAGMA with threshold 0.3 on the simulations of the NOTEARS-ADMM paper, with (d, n) =
# (10, 30), (20, 60), (50, 150), (100, 300), (10, 256), (20, 256), (50, 256) and eight seeds each:
# the summed mean SHD is 6.0 at 0.10, 5.6 at 0.13, 5.9 at 0.16, 7.8 at 0.20, 9.9 at 0.25. In a
# comparison of units for the sparsity (with a coarser central path, and the best factor for each
# unit), the summed SHD was 10.0 for the geometric mean of the variances, 11.1 for the median, 11.4
# without a unit, and 12.5 for the mean, which a few large variances dominate.
SPARSITY_FACTOR = 0.16
# For more variables than this the default grows with sqrt(d / 100). Fewer small weights remain to
# be optimised, which saves about a third of the time, and the graphs are as good (n = 3d; SHD with
# and without the growth: 6 and 6 for d = 200, two seeds; 3 and 2 for d = 500, one seed).
SPARSITY_GROWS_FROM = 100
# Multiples of the default among which the data choose.
GRID_MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


def typical_variance(moments: SampleMoments) -> float:
    """Return the geometric mean of the variances, the unit of the sparsity.

    Constant variables are ignored; the result is 0 if all variables are constant.
    """
    varying = np.delete(moments.variances, moments.constant_columns())
    return float(np.exp(np.log(varying).mean())) if len(varying) else 0.0


def automatic_sparsity(moments: SampleMoments | Sequence[SampleMoments]) -> float:
    """Return :func:`default_sparsity` of moments, in the unit of :func:`typical_variance`.

    Of moments by variable each counts by its own variable's variance, and n is their mean.
    """
    if isinstance(moments, SampleMoments):
        return default_sparsity(moments.n, moments.d, typical_variance(moments))
    variances = np.array([own.second[j, j] for j, own in enumerate(moments)])
    n = float(np.mean([own.n for own in moments]))
    return default_sparsity(n, len(moments), float(np.exp(np.log(variances).mean())))


def default_sparsity(n: float, d: int, scale: float = 1.0) -> float:
    """Return the default sparsity ``0.16 sqrt(log d / n) scale``.

    It decreases with n as the sampling error of the covariances does. For more than 100 variables
    it is multiplied by ``sqrt(d / 100)``, see ``SPARSITY_GROWS_FROM``.

    Parameters
    ----------
    n, d
        Numbers of rows and variables.
    scale
        Unit of the variances. With :func:`typical_variance` the graph does not depend on the units
        of the data. Default: 1, for standardised data.
    """
    factor = SPARSITY_FACTOR * max(1.0, float(np.sqrt(d / SPARSITY_GROWS_FROM)))
    return factor * float(np.sqrt(np.log(max(d, 2)) / n)) * scale


def default_grid(moments: SampleMoments | Sequence[SampleMoments]) -> tuple[float, ...]:
    """Return the sparsities to choose from: multiples of the default, ascending."""
    base = automatic_sparsity(moments)
    return tuple(multiple * base for multiple in GRID_MULTIPLES)


def held_out_error(train: SampleMoments, validation: SampleMoments, adjacency: ArrayLike) -> float:
    """Return the held-out negative log-likelihood per row of a graph's linear Gaussian model.

    Weights, intercepts and noise variances are fitted to ``train`` by least squares; the result is
    ``sum_j 1/2 (log(2 pi v_j) + e_j / v_j)`` with the noise variance ``v_j`` and the mean squared
    error ``e_j`` on ``validation``. Lower is better. Other units add the same constant for all
    graphs.

    Parameters
    ----------
    train, validation
        Moments of the training rows and of the held-out rows.
    adjacency
        ``(d, d)``: nonzero at ``[i, j]`` where i causes j.

    Raises
    ------
    DataError
        If the two moments have different variables, or a variable is constant.
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


def select_by_bic(
    moments: SampleMoments | Sequence[SampleMoments], sparsities: Sequence[float], solver: Solver
) -> float:
    """Return the sparsity whose graph has the lowest Gaussian BIC.

    Parameters
    ----------
    moments
        Moments of all rows, or one for each variable.
    sparsities
        Values to try, such as :func:`default_grid`. Of several with the same score the largest is
        chosen.
    solver
        Function ``(moments, sparsity) -> CausalGraph``.
    """
    return _select(sparsities, lambda s: gaussian_bic(moments, solver(moments, s).adjacency))


def select_by_held_out(
    train: SampleMoments, validation: SampleMoments, sparsities: Sequence[float], solver: Solver
) -> float:
    """Return the sparsity whose graph on ``train`` has the lowest :func:`held_out_error`.

    The other parameters are those of :func:`select_by_bic`.
    """
    return _select(
        sparsities, lambda s: held_out_error(train, validation, solver(train, s).adjacency)
    )


def _select(sparsities: Sequence[float], score: Callable[[float], float]) -> float:
    # Graphs with equal scores are equal or equivalent; the larger sparsity is the safer choice.
    largest_first = sorted(sparsities, reverse=True)
    return largest_first[int(first_smallest([score(one) for one in largest_first]))]
