"""The exchanges of a differentially private release of moments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flwr_causal.core.privacy.release import NUM_OCTAVES
from flwr_causal.core.privacy.scales import scales_by_column
from flwr_causal.protocol.exchange import Disclosure, Exchange, Sent

if TYPE_CHECKING:
    from flwr_causal.protocol.setup import Setup

#: The directory of a party's releases, and the key of the node config that gives it another path.
RELEASES = "releases"
#: The names of the files in it.
RELEASE_NAME = re.compile(r"[0-9a-f]{32}\.json")

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
    """
    return setup.least_parties[0] if setup.masked else 1
