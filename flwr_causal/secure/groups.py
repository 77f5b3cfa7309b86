"""Which parties add up together where there are several secure sums, one for each group."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A group's name lists so many of its parties.
MOST_NAMES = 8


def dealt(
    parties: Sequence[str], groups: int | Literal["auto"], least: int, fewest: int, seed: int
) -> dict[str, int]:
    """Deal parties into groups whose sizes differ by one at most.

    The deal follows from the seed and the parties' names. Neither their order nor anything of their
    tables matters.

    Parameters
    ----------
    parties : sequence of str
        Different names.
    groups : int or "auto"
        How many; "auto" makes as many as possible.
    least : int
        Fewest parties of a group.
    fewest : int
        Fewest groups.
    seed : int

    Returns
    -------
    dict of str to int
        By party, the number of its group, from 1 on.

    Raises
    ------
    ConfigError
        If there are too few parties.
    """
    number = max(len(parties) // least, fewest) if groups == "auto" else groups
    if number < fewest:
        raise ConfigError(
            f"The option 'groups' is {groups!r}, and the other options need {fewest} groups at "
            "least: raise it."
        )
    if number * least > len(parties):
        raise ConfigError(
            f"The option 'groups' is {groups!r}: {number} groups of {least} parties or more "
            f"('min_parties') need {number * least} parties, and there are {len(parties)}. "
            "Connect more parties, or leave the option out."
        )
    drawn = sorted(parties, key=lambda name: random.Random(f"groups-{seed}-{name}").random())
    return {name: 1 + place % number for place, name in enumerate(drawn)}


def name_of(number: int, parties: Sequence[str]) -> str:
    """Return the name of a group, which says whose it is."""
    more = [f"{len(parties) - MOST_NAMES} more"] if len(parties) > MOST_NAMES else []
    return f"group {number} ({', '.join([*parties[:MOST_NAMES], *more])})"
