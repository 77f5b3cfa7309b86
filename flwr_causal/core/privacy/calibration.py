"""How much Gaussian noise a guarantee of (epsilon, delta) needs (Balle & Wang 2018, theorem 8).

The numbers are exact, as those of the privacy loss distribution are, for one Gaussian mechanism and
for several: mechanisms with noise ``s_1, s_2, ...`` (in units of their sensitivities) lose together
as much as one with ``1 / sqrt(sum 1 / s_i^2)`` (Dong, Roth & Su 2022, corollary 3.3).

Epsilon and delta are spent on the scales of columns and on the release of moments.

References
----------
Balle, Wang: Improving the Gaussian mechanism for differential privacy: analytical calibration and
optimal denoising, ICML 2018.
Bun, Steinke: Concentrated differential privacy: simplifications, extensions, and lower bounds, TCC
2016.
Dong, Roth, Su: Gaussian differential privacy, Journal of the Royal Statistical Society B 2022.
"""

from __future__ import annotations

from functools import cache
from math import erfc, exp, inf, log, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: A larger epsilon guarantees nothing, a smaller delta is below the rounding of float64.
MOST_EPSILON, LEAST_DELTA = 100.0, 1e-15
#: The delta of a run whose options give epsilon alone.
USUAL_DELTA = 1e-5
# Noise, in units of the sensitivity, between which the answer is looked for.
_LEAST, _MOST = 1e-3, 1e9
# Halvings of an interval, down to the rounding of float64.
_HALVINGS = 100
# From here on the tail of a normal distribution is computed by its series.
_FAR = 20.0
# More noise than the exact amount: what the rounding of the calibration and of the discrete
# Gaussian may cost (docs/differential_privacy.md).
MARGIN = 1.001


def delta_of(multiplier: float, epsilon: float) -> float:
    """Return delta of one Gaussian mechanism.

    Parameters
    ----------
    multiplier : float
        Standard deviation of the noise in units of the sensitivity, above 0.
    epsilon : float
        0 or more.
    """
    half, shift = 1 / (2 * multiplier), epsilon * multiplier
    # exp(epsilon) times the probability below -half - shift, of which each alone may be too large
    # or too small for float64.
    return _normal(half - shift) - exp(-((half - shift) ** 2) / 2) * _scaled_tail(half + shift)


def _normal(x: float) -> float:
    """Return the probability that a standard normal variable is below x."""
    return erfc(-x / sqrt(2)) / 2


def _scaled_tail(x: float) -> float:
    """Return exp(x^2 / 2) times the probability that a standard normal variable is above x >= 0."""
    if x < _FAR:
        return exp(x * x / 2) * _normal(-x)
    # Abramowitz & Stegun 26.2.12; the next term is below 1e-7 of the sum.
    y = 1 / (x * x)
    return (1 - y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y)))) / (x * sqrt(2 * pi))


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the standard deviation of the noise, in units of the sensitivity.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
    """
    return MARGIN * _exact_multiplier(epsilon, delta)


@cache  # server and parties of a simulation ask for the same one
def _exact_multiplier(epsilon: float, delta: float) -> float:
    return _least(_LEAST, _MOST, lambda noise: delta_of(noise, epsilon) <= delta)


def rho_of(epsilon: float, delta: float) -> float:
    """Return rho = 1 / (2 s^2) of a guarantee, where s is the exact noise multiplier.

    The rho of several releases add up to that of all of them together.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
    """
    return 1 / (2 * _exact_multiplier(epsilon, delta) ** 2)


def epsilon_of(rho: float, delta: float) -> float:
    """Return the least epsilon that holds for delta: the inverse of :func:`rho_of`.

    Parameters
    ----------
    rho : float
        0 or more; infinite: nothing is guaranteed.
    delta : float
        In (0, 1).
    """
    if rho <= 0:
        return 0.0
    if rho == inf:
        return inf
    multiplier = 1 / sqrt(2 * rho)
    if delta_of(multiplier, 0.0) <= delta:
        return 0.0
    # Bun & Steinke 2016, proposition 1.3: epsilon is at most this.
    most = rho + 2 * sqrt(rho * log(1 / delta))
    return _least(0.0, most, lambda epsilon: delta_of(multiplier, epsilon) <= delta)


def _least(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Return the least number between two for which something holds, as it does from there on."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def shared(multiplier: float, share: float) -> tuple[float, float]:
    """Split the budget of one Gaussian mechanism: return the noise multipliers of two.

    Parameters
    ----------
    multiplier : float
    share : float
        Of ``1 / multiplier^2`` that the first one has, in (0, 1).
    """
    return multiplier / sqrt(share), multiplier / sqrt(1 - share)


#: What the scales have of the whole, in terms of 1 / noise^2, where some are estimated.
SCALES_SHARE = 0.1


class Budget(NamedTuple):
    """The noise of the two mechanisms, in units of their sensitivities.

    Attributes
    ----------
    scales
        Of the histograms from which scales are estimated; None if none are.
    release
        Of the release of moments.
    """

    scales: float | None
    release: float


def budget_of(epsilon: float, delta: float, *, estimates: bool) -> Budget:
    """Return the noise of a guarantee.

    Parameters
    ----------
    epsilon, delta : float
        Of everything together.
    estimates : bool
        Whether scales are estimated.
    """
    multiplier = noise_multiplier(epsilon, delta)
    if not estimates:
        return Budget(None, multiplier)
    return Budget(*shared(multiplier, SCALES_SHARE))
