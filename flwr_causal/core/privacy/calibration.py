"""How much Gaussian noise a guarantee of (epsilon, delta) needs (Balle & Wang 2018, theorem 8).

The numbers are exact, as those of the privacy loss distribution are, for one Gaussian mechanism and
for several: mechanisms with noise ``s_1, s_2, ...`` (in units of their sensitivities) lose together
as much as one with ``1 / sqrt(sum 1 / s_i^2)`` (Dong, Roth & Su 2022, corollary 3.3).

References
----------
Balle, Wang: Improving the Gaussian mechanism for differential privacy: analytical calibration and
optimal denoising, ICML 2018.
Dong, Roth, Su: Gaussian differential privacy, Journal of the Royal Statistical Society B 2022.
"""

from __future__ import annotations

from math import erfc, exp, sqrt

# Noise, in units of the sensitivity, between which the answer is looked for.
_LEAST, _MOST = 1e-3, 1e9
# Halvings of an interval, down to the rounding of float64.
_HALVINGS = 100
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
    return _normal(half - shift) - exp(epsilon) * _normal(-half - shift)


def _normal(x: float) -> float:
    """Return the probability that a standard normal variable is below x."""
    return erfc(-x / sqrt(2)) / 2


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the standard deviation of the noise, in units of the sensitivity.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        In (0, 1).
    """
    low, high = _LEAST, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle, epsilon) <= delta else (middle, high)
    return MARGIN * high


def shared(multiplier: float, share: float) -> tuple[float, float]:
    """Return the noise of two mechanisms that lose together what one of ``multiplier`` does.

    Parameters
    ----------
    multiplier : float
    share : float
        Of ``1 / multiplier^2`` that the first one has, in (0, 1).
    """
    return multiplier / sqrt(share), multiplier / sqrt(1 - share)
