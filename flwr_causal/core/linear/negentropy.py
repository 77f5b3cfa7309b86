"""How far a standardised variable is from Gaussian: from means over rows, or from all rows.

Of all densities of mean 0 and variance 1 with the same means of ``log cosh u`` and
``u exp(-u^2 / 2)``, the one of largest entropy is ``exp(a + b u + c u^2 + e log cosh u +
f u exp(-u^2 / 2))``. Its negentropy, the entropy that it lacks to the Gaussian, is the gain in mean
log-likelihood over a Gaussian fit. The first function responds to heavy and light tails, the second
to skewness; Hyvarinen (1998) approximates the same negentropy by a quadratic function of the two
means, which DirectLiNGAM uses. Both functions are bounded or grow like ``|u|``, so that single
extreme rows change their means little, unlike third and fourth moments. They are means over
rows: those of all parties follow from those of each.

Such densities are smooth: the noise 0 <= u, density exp(-u), has a negentropy of 0.42, theirs is
0.26. Where the rows are at hand, :func:`of_rows` computes the entropy from spacings of sorted
values (Vasicek 1976), which needs no form of density and follows jumps and peaks.

References
----------
Hyvarinen: New approximations of differential entropy for independent component analysis and
projection pursuit, NIPS 1998.
Vasicek: A test for normality based on sample entropy, J. R. Stat. Soc. B 38 (1976). The spacings at
both ends are weighted as by Ebrahimi, Pflughoeft & Soofi, Stat. Probab. Lett. 20 (1994).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray


#: The number of functions.
NUM_FUNCTIONS = 2
# Rows and combinations whose functions are computed at a time: they fit into a processor's cache.
_ROWS, _COMBINATIONS = 4096, 32
# Spacings reach over this many ranks to either side, in units of sqrt(n).
_SPACING = 0.65
# Density is computed on this grid, in standard deviations.
_GRID = np.linspace(-8.0, 8.0, 321)
# Weight of the squared parameters of the density, which keeps them finite for samples of two
# values. Errors in the graph are the same for 1e-4 to 1e-6 and larger above (13 kinds of noise).
_RIDGE = 1e-5
_MOST_STEPS, _MOST_HALVINGS = 60, 40
# Newton's method ends at this expected gain in log-likelihood of a row.
_GAIN = 1e-12
# Many densities are fitted at a time, but not more: each needs an array over the grid.
_BATCH = 2048


def mean_functions(rows: FloatArray, directions: FloatArray) -> FloatArray:
    """Return the means over rows of ``log cosh u`` and ``u exp(-u^2 / 2)``, u = row . direction.

    Parameters
    ----------
    rows : ndarray of shape (n, m)
        At least one row.
    directions : ndarray of shape (q, m)
        Linear combinations of the columns.

    Returns
    -------
    ndarray of shape (q, 2)
    """
    sums = np.zeros((len(directions), NUM_FUNCTIONS))
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        for first in range(0, len(directions), _COMBINATIONS):
            chosen = slice(first, first + _COMBINATIONS)
            # One function after the other over contiguous rows, which is twice as fast as columns.
            for k, values in enumerate(_functions(directions[chosen] @ part.T)):
                sums[chosen, k] += values.sum(axis=1)
    return sums / len(rows)


def negentropies(means: FloatArray) -> FloatArray:
    """Return the largest-entropy negentropies of standardised variables, in nats.

    Parameters
    ----------
    means : ndarray of shape (q, 2)
        Of :func:`mean_functions`, of variables of mean 0 and variance 1.

    Returns
    -------
    ndarray of shape (q,)
        At least 0. Of n Gaussian rows, 2 n times it has about a chi-squared distribution with two
        degrees of freedom.
    """
    parts = [_fit(means[start : start + _BATCH]) for start in range(0, len(means), _BATCH)]
    return np.concatenate([np.zeros(0), *parts])


def of_rows(values: FloatArray) -> float:
    """Return the negentropy of the rows of one variable, in nats, from their spacings.

    Parameters
    ----------
    values : ndarray of shape (n,)
        At least one row, in any units.

    Returns
    -------
    float
        Negative where chance makes it so. For 10 to 2000 Gaussian rows n times it is less than
        log n in the mean (measured). 0 for a constant.
    """
    n, deviation = len(values), float(values.std())
    if deviation == 0:
        return 0.0
    ordered = _spread(np.sort(np.round((values - values.mean()) / deviation, 9)))
    m = max(1, round(_SPACING * np.sqrt(n)))
    place = np.arange(n)
    spacing = ordered[np.minimum(place + m, n - 1)] - ordered[np.maximum(place - m, 0)]
    # 2 m ranks lie between both values, at the ends fewer.
    ranks = m + np.minimum(np.minimum(place, n - 1 - place), m)
    entropy = float(np.log(n * np.maximum(spacing, 1e-9) / ranks).mean())
    return 0.5 * float(np.log(2.0 * np.pi * np.e)) - entropy


def _spread(ordered: FloatArray) -> FloatArray:
    """Distribute equal values evenly over the cell that rounding made one value of."""
    values, counts = np.unique(ordered, return_counts=True)
    if len(values) == len(ordered) or len(values) == 1:
        return ordered
    gaps = np.diff(values)
    cells = 0.5 * (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1]))
    inside = np.arange(len(ordered)) - np.repeat(np.cumsum(counts) - counts, counts)
    counts_here = np.repeat(counts, counts)
    shift = (inside + 0.5) / counts_here - 0.5
    return np.asarray(np.repeat(values, counts) + shift * np.repeat(cells, counts))


def _functions(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    size = np.abs(values)
    log_cosh = size + np.log1p(np.exp(-2.0 * size)) - np.log(2.0)
    return log_cosh, values * np.exp(-0.5 * values * values)


# Sufficient statistics on the grid, and all products of two of them.
_STATISTICS = np.stack([_GRID, _GRID**2, *_functions(_GRID)])
_PRODUCTS = (_STATISTICS[:, None] * _STATISTICS).reshape(len(_STATISTICS) ** 2, -1)
_GAUSSIAN = -0.5 * _GRID**2 + np.log(_GRID[1] - _GRID[0])


def _objective(parameters: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the negative log-likelihoods of the densities, and their values on the grid."""
    exponents = parameters @ _STATISTICS + _GAUSSIAN
    largest = exponents.max(axis=1, keepdims=True)
    density = np.exp(exponents - largest)
    total = density.sum(axis=1, keepdims=True)
    fit = (largest + np.log(total))[:, 0] - (parameters * targets).sum(axis=1)
    return fit + 0.5 * _RIDGE * (parameters**2).sum(axis=1), density / total


def _fit(means: FloatArray) -> FloatArray:
    """Fit the densities of one batch by Newton's method, and return their negentropies."""
    count, size = len(means), len(_STATISTICS)
    targets = np.column_stack([np.zeros(count), np.ones(count), means])
    parameters = np.zeros((count, size))  # the Gaussian
    values, density = _objective(parameters, targets)
    moving = np.arange(count)
    for _ in range(_MOST_STEPS):
        check_deadline()
        if not len(moving):
            break
        own = density[moving] @ _STATISTICS.T
        gradient = own - targets[moving] + _RIDGE * parameters[moving]
        second = (density[moving] @ _PRODUCTS.T).reshape(-1, size, size)
        second += _RIDGE * np.eye(size) - own[:, :, None] * own[:, None]
        step = -np.linalg.solve(second, gradient[..., None])[..., 0]
        gain = -(gradient * step).sum(axis=1)
        length = np.ones(len(moving))
        searching = np.flatnonzero(gain > _GAIN)
        for _ in range(_MOST_HALVINGS):
            if not len(searching):
                break
            chosen = moving[searching]
            tried = parameters[chosen] + length[searching, None] * step[searching]
            new_values, new_density = _objective(tried, targets[chosen])
            enough = new_values <= values[chosen] - 1e-4 * length[searching] * gain[searching]
            taken = chosen[enough]
            parameters[taken], values[taken] = tried[enough], new_values[enough]
            density[taken] = new_density[enough]
            searching = searching[~enough]
            length[searching] *= 0.5
        # Where no step lowers the objective any more, rounding is reached.
        stuck = np.zeros(len(moving), dtype=bool)
        stuck[searching] = True
        moving = moving[(gain > _GAIN) & ~stuck]
    gaussian = 0.5 * float(np.log(2.0 * np.pi))
    return np.maximum(gaussian - values, 0.0, dtype=np.float64)
