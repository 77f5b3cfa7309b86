"""How epsilon and delta are spent: on the scales of columns, and on the release of moments."""

from __future__ import annotations

from typing import NamedTuple

from flwr_causal.core.privacy.calibration import noise_multiplier, shared

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
