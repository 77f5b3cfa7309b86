"""Schedules: the penalties and the sparsity of each round of consensus ADMM.

``fast_schedule(20, ...)`` is a schedule for twenty rounds, not the first twenty rounds of a longer
schedule. The penalties of ``growing_schedule`` grow by a factor, for as many rounds as they need.

Two conventions make the fast schedule independent of the data. Both penalties and the sparsity are
proportional to ``scale``, the variance of the data, as the loss is; data in other units therefore
give the same weights. The consensus penalty is divided by the number of clients K; the curvature
K rho_2 of the server's problem therefore does not depend on how the rows are distributed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


# The value at which the penalties of growing_schedule stop growing.
PENALTY_CAP = 1e16
# For an early end, h is at most H_TOLERANCE times d, and the consensus residual is at most
# CONSENSUS_TOLERANCE times the norm of the solution.
H_TOLERANCE = 1e-5
CONSENSUS_TOLERANCE = 3e-2


class RoundSettings(NamedTuple):
    """The settings of one round: ``rho_2``, ``rho_1``, ``lambda_1``, and the relaxation."""

    consensus_penalty: float
    acyclicity_penalty: float
    sparsity: float
    relaxation: float


@dataclass(frozen=True)
class Schedule:
    """The settings of every round, and the accuracy of the server's solution.

    Attributes
    ----------
    consensus_penalty, acyclicity_penalty, sparsity
        ``rho_2``, ``rho_1`` and ``lambda_1`` of each round. Penalties are positive, the sparsity is
        at least 0.
    relaxation
        Over-relaxation of the clients' solutions, in (0, 2); 1 is the paper's iteration.
    max_iterations, tolerance, resolution
        Options of the server's solver, see :func:`core.consensus.projection.project`.
    patience
        Number of rounds without a change of the thresholded graph before the run may end early; 0:
        the run never ends early.

    Raises
    ------
    ConfigError
        If the numbers of rounds differ, or a value is out of range.
    """

    consensus_penalty: tuple[float, ...]
    acyclicity_penalty: tuple[float, ...]
    sparsity: tuple[float, ...]
    relaxation: float = 1.0
    max_iterations: int = 1000
    tolerance: float = 1e-8
    resolution: float = 0.0
    patience: int = 0

    def __post_init__(self) -> None:
        lengths = {len(self.consensus_penalty), len(self.acyclicity_penalty), len(self.sparsity)}
        if len(lengths) != 1 or lengths == {0}:
            raise ConfigError(
                "a schedule needs one consensus penalty, one acyclicity penalty and one sparsity "
                f"for each round; got {len(self.consensus_penalty)}, "
                f"{len(self.acyclicity_penalty)} and {len(self.sparsity)}"
            )
        if min(self.consensus_penalty) <= 0 or min(self.acyclicity_penalty) <= 0:
            raise ConfigError("the penalties of a schedule must be positive in every round")
        if min(self.sparsity) < 0:
            raise ConfigError("the sparsity of a schedule must not be negative")
        if not 0 < self.relaxation < 2:
            raise ConfigError(f"the relaxation must lie between 0 and 2, not {self.relaxation}")

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.consensus_penalty)

    def at(self, index: int) -> RoundSettings:
        """Return the settings of round ``index``, counted from 0."""
        return RoundSettings(
            self.consensus_penalty[index],
            self.acyclicity_penalty[index],
            self.sparsity[index],
            self.relaxation,
        )


def growing_schedule(
    max_rounds: int,
    *,
    consensus_penalty: float,
    acyclicity_penalty: float,
    consensus_growth: float,
    acyclicity_growth: float,
    sparsity: float,
) -> Schedule:
    """Return the schedule of Ng & Zhang (2022), eqs. (8) and (9), and Chen et al. (2024), eq. (5).

    The penalties grow geometrically up to ``PENALTY_CAP``. The run ends when both have reached it,
    whatever h and the consensus residual are, as in the program of Ng & Zhang.

    Parameters
    ----------
    max_rounds
        Largest number of rounds; the schedule is cut there.
    consensus_penalty, acyclicity_penalty
        ``rho_2`` and ``rho_1`` of the first round.
    consensus_growth, acyclicity_growth
        The factors by which they grow in each round.
    sparsity
        ``lambda_1``.

    Raises
    ------
    ConfigError
        If an argument is out of its range.
    """
    _check_rounds(max_rounds, 1)
    rho_1, rho_2 = acyclicity_penalty, consensus_penalty
    rhos_1: list[float] = []
    rhos_2: list[float] = []
    while len(rhos_1) < max_rounds and (not rhos_1 or min(rho_1, rho_2) < PENALTY_CAP):
        rhos_1.append(rho_1)
        rhos_2.append(rho_2)
        rho_1 *= acyclicity_growth if rho_1 < PENALTY_CAP else 1.0
        rho_2 *= consensus_growth if rho_2 < PENALTY_CAP else 1.0
    return Schedule(tuple(rhos_2), tuple(rhos_1), (sparsity,) * len(rhos_1))


class Tuning(NamedTuple):
    """The values of a schedule in its first and its last round, for data of unit scale.

    Attributes
    ----------
    consensus
        ``K rho_2``.
    acyclicity
        ``rho_1``.
    sparsity
        ``lambda_1`` in units of ``sqrt(log d / n)``.
    bend
        ``log rho_1`` grows with this power of the share of the rounds; 1 is geometric growth.
    relaxation
        See `Schedule`.
    """

    consensus: tuple[float, float]
    acyclicity: tuple[float, float]
    sparsity: tuple[float, float]
    bend: float
    relaxation: float


# Found by benchmarks/measure/tune_schedules.py; keys are numbers of rounds, without the exchange of
# the refit.
TUNED = {
    5: Tuning((0.36, 0.36), (8.3, 310.0), (0.035, 0.185), 0.73, 1.68),
    9: Tuning((0.434, 0.416), (6.8, 964.0), (0.059, 0.192), 0.74, 1.73),
    19: Tuning((0.656, 0.471), (0.15, 8.5e4), (0.061, 0.184), 0.84, 1.47),
    39: Tuning((1.03, 0.49), (1.75e-3, 4.99e8), (0.085, 0.276), 1.43, 1.36),
}


# The values for designs with lags (2Dbn), found by a search on the paper's simulations with noise
# of variance 1. The variance of a stationary series is larger than that of its noise. In units of
# the variances of the series, which the parties know, the values are multiplied by NOISE_SHARE.
NOISE_SHARE = 0.52
TUNED_LAGGED = {
    rounds: Tuning(
        (NOISE_SHARE * consensus[0], NOISE_SHARE * consensus[1]),
        (NOISE_SHARE * acyclicity[0], NOISE_SHARE * acyclicity[1]),
        (NOISE_SHARE * sparsity, NOISE_SHARE * sparsity),
        1.0,
        1.0,
    )
    for rounds, consensus, acyclicity, sparsity in (
        (20, (0.92, 2.56), (0.0137, 5.6e6), 0.56),
        (25, (0.557, 3.54), (0.1075, 8.8e5), 0.55),
        (40, (1.5, 4.55), (0.061, 2.9e6), 0.69),
    )
}


def fast_schedule(
    max_rounds: int,
    num_clients: int,
    num_rows: int,
    num_variables: int,
    scale: float = 1.0,
    tunings: Mapping[int, Tuning] = TUNED,
) -> Schedule:
    """Return the default schedule, for a given number of rounds.

    Parameters
    ----------
    max_rounds
        Number of rounds, at least 5.
    num_clients
        K, the number of clients.
    num_rows
        n, the number of rows of all clients.
    num_variables
        d, the number of variables.
    scale
        Variance of the centred data, see :func:`core.linear.moments.data_scale`. Default: 1, for
        standardised data.
    tunings
        Values by number of rounds; other numbers of rounds are interpolated. Default: `TUNED`, for
        designs without lags; use `TUNED_LAGGED` for designs with lags.

    Raises
    ------
    ConfigError
        If an argument is out of its range.
    """
    _check_rounds(max_rounds, 5)
    if num_clients < 1 or num_rows < 1 or num_variables < 1:
        raise ConfigError("num_clients, num_rows and num_variables must be at least 1")
    if not (np.isfinite(scale) and scale > 0):
        raise ConfigError(f"scale must be the positive variance of the data, not {scale}")
    tuned = _interpolated(max_rounds, tunings)
    noise = np.sqrt(np.log(max(num_variables, 2)) / num_rows)
    return Schedule(
        consensus_penalty=_path(tuned.consensus, max_rounds, scale / num_clients),
        acyclicity_penalty=_path(tuned.acyclicity, max_rounds, scale, tuned.bend),
        sparsity=_path(tuned.sparsity, max_rounds, scale * noise),
        relaxation=tuned.relaxation,
        max_iterations=16,
        tolerance=1e-5,
        resolution=2.0**-24,
        # A graph can stay the same for some rounds before it changes again, for longer in longer
        # schedules.
        patience=max(8, max_rounds // 5),
    )


def _path(
    ends: tuple[float, float], rounds: int, factor: float, bend: float = 1.0
) -> tuple[float, ...]:
    """Interpolate geometrically from the first to the last round."""
    progress = np.linspace(0.0, 1.0, rounds) ** bend
    values = factor * ends[0] * (ends[1] / ends[0]) ** progress
    return tuple(values.tolist())


def _interpolated(rounds: int, tuned: Mapping[int, Tuning]) -> Tuning:
    """Interpolate the logarithms of the tuned numbers linearly in the logarithm of the rounds."""
    known = sorted(tuned)
    table = np.log([np.hstack(tuned[r]) for r in known])
    values = [float(np.exp(np.interp(np.log(rounds), np.log(known), c))) for c in table.T]
    c_first, c_last, a_first, a_last, s_first, s_last, *rest = values
    return Tuning((c_first, c_last), (a_first, a_last), (s_first, s_last), *rest)


def _check_rounds(max_rounds: int, at_least: int) -> None:
    if max_rounds < at_least:
        raise ConfigError(
            f"max_rounds is {max_rounds}, but this schedule needs at least {at_least} rounds"
        )


def reason_to_end(
    schedule: Schedule,
    rounds_done: int,
    stable_rounds: int,
    *,
    h: float,
    num_variables: int,
    residual: float,
    norm: float = 1.0,
) -> str | None:
    """Return the reason why a consensus run ends, or None if it continues.

    A run ends when its schedule is completed, or early when it has converged: the thresholded graph
    has not changed for ``schedule.patience`` rounds, ``h`` is at most ``H_TOLERANCE`` times d, and
    the residual is at most ``CONSENSUS_TOLERANCE`` times the norm.

    Parameters
    ----------
    schedule
        The run's schedule.
    rounds_done, stable_rounds
        Number of completed rounds, and of the last rounds without a change of the graph.
    h, residual
        Acyclicity and consensus residual of the last round.
    num_variables
        d, the number of variables.
    norm
        Norm of the solution. Default: 1, for a residual that is relative to the norm already.

    Returns
    -------
    str or None
        The reason in words.
    """
    rounds, patience = schedule.rounds, schedule.patience
    if rounds_done >= rounds:
        return f"the schedule's {rounds} rounds are done"
    settled = h <= H_TOLERANCE * num_variables and residual <= CONSENSUS_TOLERANCE * norm
    if patience and stable_rounds >= patience and settled:
        return (
            f"converged after {rounds_done} of {rounds} rounds: the graph has not changed for "
            f"{stable_rounds} rounds, h = {h:.1e}, consensus residual {residual:.1e}"
        )
    return None
