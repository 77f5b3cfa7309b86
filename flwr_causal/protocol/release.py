"""The exchanges of the release of moments of a differentially private run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import When
from flwr_causal.core.privacy.release import NUM_OCTAVES
from flwr_causal.core.privacy.scales import lacking_scales, scales_by_column, widths_of_release
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.bundle import MAIN

if TYPE_CHECKING:
    from flwr_causal.protocol.bundle import BundlePart
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PrivatePartyOptions
    from flwr_causal.protocol.setup import Setup

#: The directory of a party's releases, and the key of the node config that gives it another path.
RELEASES = "releases"
#: The names of the files in it.
RELEASE_NAME = re.compile(r"[0-9a-f]{32}\.json")


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


#: Runs with differential privacy.
PRIVATE = (~When(epsilon=None)).called("epsilon")

OCTAVES = Exchange(
    "octaves",
    "the histograms from which the scales of columns are estimated",
    returns=(
        Disclosure(
            "counts",
            "of each column without a public scale, how many absolute values, less the public "
            "centre, are in each octave, with noise",
            ("unscaled", "octaves"),
            "whole",
            "sum",
        ),
    ),
    weight="one",
    timing="once, if the option scales lacks a column",
    when=PRIVATE,
)

RELEASE = Exchange(
    "release",
    "the moments of the parties' rows, with the noise of differential privacy",
    sends=(
        Sent("centers", "the columns' centres", ("w",), exact=True),
        Sent("scales", "the columns' scales", ("w",), exact=True),
    ),
    returns=(
        Disclosure(
            "products",
            "the sum over rows of a a^T in steps, with noise; a has the constant c0 and the "
            "centred, scaled and clipped row z of w columns: a number has one, a category one for "
            "each state that the dictionary lists but the last",
            ("augmented", "augmented"),
            "whole",
            "sum",
        ),
    ),
    weight="one",
    timing="once",
    when=PRIVATE,
)


def private_dimensions(setup: Setup) -> dict[str, int]:
    """Return the sizes of the released arrays."""
    w = sum(widths_of_release(num_states(setup)))
    return {
        "w": w,
        "augmented": 1 + w,
        "unscaled": len(unscaled(setup)),
        "octaves": NUM_OCTAVES,
    }


def unscaled(setup: Setup) -> tuple[str, ...]:
    """Return the columns whose scale is estimated."""
    options: PrivatePartyOptions = setup.options
    stated = scales_by_column(options.scales)
    return tuple(lacking_scales(setup.names, stated, num_states(setup)))


def num_states(setup: Setup) -> tuple[int, ...]:
    """Return the number of states of each column, 0 of a number."""
    return tuple(map(len, setup.states)) or (0,) * len(setup.names)


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
