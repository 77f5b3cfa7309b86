"""What a differentially private run states, and the exchanges of its release of moments."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from flwr_causal.core.privacy.calibration import (
    LEAST_DELTA,
    MOST_EPSILON,
    USUAL_DELTA,
    rho_of,
)
from flwr_causal.core.privacy.release import NUM_OCTAVES
from flwr_causal.core.privacy.scales import scales_by_column
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.bundle import MAIN
from flwr_causal.protocol.exchange import Disclosure, Exchange, Sent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.protocol.bundle import BundlePart
    from flwr_causal.protocol.exchange import Contract
    from flwr_causal.protocol.setup import Setup

#: The directory of a party's releases, and the key of the node config that gives it another path.
RELEASES = "releases"
#: The names of the files in it.
RELEASE_NAME = re.compile(r"[0-9a-f]{32}\.json")


class Guarantee(NamedTuple):
    """The differential privacy of a run, as the parties are asked for it.

    Parameters
    ----------
    epsilon, delta : float
    scales : str
        The option ``scales``.
    """

    epsilon: float
    delta: float
    scales: str

    @property
    def rho(self) -> float:
        """What the release loses, see :func:`~flwr_causal.core.privacy.calibration.rho_of`."""
        return rho_of(self.epsilon, self.delta)

    @classmethod
    def sent(cls, options: Mapping[str, Any]) -> Guarantee | None:
        """Return the guarantee of the options of a message; None where they have no ``epsilon``.

        Raises
        ------
        ConfigError
            If one of its options is there and cannot be used, or is there without the others.
        """
        own = {name: options[name] for name in cls._fields if name in options}
        if not own:
            return None
        epsilon, delta, scales = (own.get(name) for name in cls._fields)
        if not (_is_number(epsilon) and 0 < epsilon <= MOST_EPSILON):
            raise ConfigError(f"epsilon is {epsilon!r}: give a number above 0, at most 100")
        if not (_is_number(delta) and LEAST_DELTA <= delta < 1):
            raise ConfigError(f"delta is {delta!r}: give a number from 1e-15 to below 1")
        if not isinstance(scales, str):
            raise ConfigError(f"scales is {scales!r}: give a text")
        scales_by_column(scales)
        return cls(float(epsilon), float(delta), scales)

    @classmethod
    def stated(cls, options: Mapping[str, Any]) -> Guarantee | None:
        """Return the guarantee of a run's options as its user gives them, with their defaults.

        Raises
        ------
        ConfigError
            As :meth:`sent`.
        """
        given = {name: options[name] for name in cls._fields if options.get(name) is not None}
        return cls.sent({"delta": USUAL_DELTA, "scales": "", **given}) if given else None


def guarantee_of(contract: Contract, options: Mapping[str, Any]) -> Guarantee | None:
    """Return the guarantee that a message asks of a method's party; None without ``epsilon``.

    Raises
    ------
    ConfigError
        If its options cannot be used, or the method has no differential privacy.
    """
    if not contract.private:
        if "epsilon" in options:
            raise ConfigError(
                f"The run has an epsilon, and '{contract.method}' has no differential privacy: "
                "leave it out. Exchanges that follow from a private release are those of "
                "Contract(private=...)."
            )
        return None
    return Guarantee.sent(options)


def check_released(contract: Contract, part: BundlePart) -> None:
    """Check that what one training answers in a run with ``epsilon`` follows from its release.

    Raises
    ------
    FederationError
        If the contract does not declare it, or the training has rows of its own.
    """
    names = [exchange.name for exchange in contract.private]
    if part.exchange.name not in names or part.training != MAIN:
        named = part.training.named(part.exchange.name)
        raise FederationError(
            f"The run has an epsilon, and '{named}' does not follow from the private release: "
            "exact sums do not leave the party. Leave epsilon out, or use the exchanges "
            f"{', '.join(names)}."
        )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


OCTAVES = Exchange(
    "octaves",
    "the histograms from which the scales of columns are estimated",
    returns=(
        Disclosure(
            "counts",
            "of each column without a public scale, how many absolute values are in each octave, "
            "with noise",
            ("unscaled", "octaves"),
            "whole",
            "sum",
        ),
    ),
    weight="one",
    when="with epsilon, if the option scales lacks a column",
)

RELEASE = Exchange(
    "release",
    "the moments of the parties' rows, with the noise of differential privacy",
    sends=(
        Sent("centers", "the columns' centres", ("d",), exact=True),
        Sent("scales", "the columns' scales", ("d",), exact=True),
    ),
    returns=(
        Disclosure(
            "products",
            "the sum over rows of a a^T in steps, with noise; a has the constant c0 and the "
            "centred, scaled and clipped row z",
            ("augmented", "augmented"),
            "whole",
            "sum",
        ),
    ),
    weight="one",
    when="with epsilon",
)


def private_dimensions(setup: Setup) -> dict[str, int]:
    """Return the sizes of what is released."""
    return {
        "augmented": 1 + len(setup.names),
        "unscaled": len(unscaled(setup)),
        "octaves": NUM_OCTAVES,
    }


def unscaled(setup: Setup) -> tuple[str, ...]:
    """Return the columns whose scale is estimated."""
    stated = scales_by_column(str(setup.options["scales"]))
    return tuple(name for name in setup.names if name not in stated)


def sharing(setup: Setup) -> int:
    """Return among how many parties the noise of a sum is shared: the fewest that may be in it.

    The server learns each reply without secure sums: each then has all of the noise.

    Raises
    ------
    ConfigError
        If the parties add up in groups, or in a sum of no party.
    """
    if not setup.masked:
        return 1
    (least, *others) = setup.least_parties
    if others or setup.groups or isinstance(least, bool) or not 1 <= least <= len(setup.keys):
        raise ConfigError("A private release is for one secure sum of all parties: groups=1.")
    return least
