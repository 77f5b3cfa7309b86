"""alpha and rho of FedCausal: the two loops of Algorithm 1 (Yang et al., AAAI 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_causal.core.linear.solution import check_at_least_zero
from flwr_causal.errors import ConfigError


@dataclass(frozen=True)
class Penalties:
    """How alpha and rho follow from h, and when the loops end.

    In the inner loop rho is multiplied by ``growth`` until ``h(W)`` is at most ``progress`` times
    H; then, in the outer one, ``H`` becomes ``h(W)`` and alpha grows by ``rho h(M)``, where M is
    the parties' mean (supplement A: "to make the update step of alpha large enough"). H is h(W)
    and not h(M): the differences between parties keep h(M) large, so that with it the inner test
    always passes, rho never grows, and after a hundred exchanges h(W) is still about 1e-3
    (measured, d = 10 to 40). alpha begins at 0.

    Attributes
    ----------
    penalty
        rho of the first exchange.
    growth
        beta, the factor of rho.
    progress
        gamma.
    h_tolerance, penalty_limit
        h and rho at which the outer loop ends; the inner one ends at the latter too.
    """

    penalty: float = 1.0
    growth: float = 10.0
    progress: float = 0.25
    h_tolerance: float = 1e-11
    penalty_limit: float = 1e16

    def __post_init__(self) -> None:
        check_at_least_zero(h_tolerance=self.h_tolerance)
        if not 0 < self.penalty < self.penalty_limit:
            raise ConfigError(
                f"the penalty must lie between 0 and its limit {self.penalty_limit}, "
                f"got {self.penalty}"
            )
        if not self.growth > 1:
            raise ConfigError(f"growth must be above 1, got {self.growth}")
        if not 0 < self.progress < 1:
            raise ConfigError(f"progress must lie between 0 and 1, got {self.progress}")

    def after(
        self, multiplier: float, penalty: float, last_h: float, *, h: float, mean_h: float
    ) -> tuple[bool, float, float, float]:
        """Return whether the inner loop ended, alpha, rho and H: lines 8 to 14 of Algorithm 1.

        Parameters
        ----------
        multiplier, penalty, last_h
            alpha, rho and H of the exchange.
        h, mean_h
            Acyclicity of the server's solution and of the parties' mean.
        """
        if h > self.progress * last_h:
            penalty *= self.growth
            if penalty < self.penalty_limit:
                return False, multiplier, penalty, last_h
        return True, multiplier + penalty * mean_h, penalty, h

    def reason_to_end(self, exchanges: int, penalty: float, h: float) -> str | None:
        """Return why the outer loop ends after an exchange that ended the inner one, or None."""
        if h <= self.h_tolerance:
            return f"acyclic after {exchanges} exchanges: h = {h:.1e}"
        if penalty >= self.penalty_limit:
            return (
                f"the penalty reached its limit {self.penalty_limit:.0e} after {exchanges} "
                f"exchanges: h = {h:.1e}"
            )
        return None
