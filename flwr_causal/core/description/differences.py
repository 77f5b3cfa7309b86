"""By how much parties differ, as sizes of effects: what is small or may be chance is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.description.description import PartyDifference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray, IntArray

#: The smallest effects that are told: standard deviations (Cohen's "small"), logarithms of a ratio
#: of standard deviations, and shares of rows.
LEAST_SHIFT, LEAST_RATIO, LEAST_SHARE = 0.2, 0.2, 0.05
#: And how many standard errors they must be.
CLEAR = 4.0


@dataclass(frozen=True, kw_only=True)
class NumberSums:
    """Rows, mean and sum of squared deviations from it, of one column at one party."""

    rows: int
    mean: float
    squares: float


def of_numbers(name: str, parties: Mapping[str, NumberSums]) -> list[PartyDifference]:
    """Return the parties at which mean or spread of a column of numbers is unlike the others'.

    Parameters
    ----------
    name : str
        The column.
    parties : mapping of str to NumberSums
    """
    known = {party: own for party, own in parties.items() if own.rows > 1}
    if len(known) < 2:
        return []
    rows, means, squares = (
        np.array([getattr(own, key) for own in known.values()], dtype=np.float64)
        for key in ("rows", "mean", "squares")
    )
    level = means.mean()
    left = rows.sum() - rows
    own = means - level
    others = ((rows * own).sum() - rows * own) / left
    about = squares + rows * own**2
    within = np.maximum(about.sum() - about - left * others**2, 0.0)
    spread = np.sqrt((squares + within) / np.maximum(rows + left - 2, 1))
    deviations = np.sqrt(squares / (rows - 1)), np.sqrt(within / np.maximum(left - 1, 1))
    error = np.sqrt(1 / rows + 1 / left)
    found = []
    for k, party in enumerate(known):
        if spread[k] > 0:
            shift = float((own[k] - others[k]) / spread[k])
            if abs(shift) >= max(LEAST_SHIFT, CLEAR * error[k]):
                found.append(
                    PartyDifference(
                        party=party,
                        column=name,
                        what="mean",
                        value=float(means[k]),
                        others=float(level + others[k]),
                        effect=shift,
                    )
                )
        here, there = float(deviations[0][k]), float(deviations[1][k])
        if here > 0 and there > 0:
            ratio = float(np.log(here / there))
            # Of Gaussian rows; heavier tails vary more.
            if abs(ratio) >= max(LEAST_RATIO, CLEAR * error[k] / np.sqrt(2)):
                found.append(
                    PartyDifference(
                        party=party,
                        column=name,
                        what="deviation",
                        value=here,
                        others=there,
                        effect=ratio,
                    )
                )
    return found


def of_states(
    name: str, counts: Mapping[str, IntArray], what: str = "states"
) -> list[PartyDifference]:
    """Return the parties at which the shares of a column's states are unlike the others'.

    Parameters
    ----------
    name : str
        The column.
    counts : mapping of str to ndarray of int, shape (s,)
        Of rows by state.
    what : {"states", "missing"}, default "states"
        Of missing cells the second of two states is that the cell is missing.
    """
    total = np.sum(list(counts.values()), axis=0)
    found = []
    for party, own in counts.items():
        others = total - own
        here, there = int(own.sum()), int(others.sum())
        if min(here, there) < 1:
            continue
        shares: tuple[FloatArray, FloatArray] = (own / here, others / there)
        apart = float(np.abs(shares[0] - shares[1]).sum() / 2)
        together = total / total.sum()
        # The standard deviation of each share, of rows that are dealt out at random.
        chance = np.sqrt(together * (1 - together) * (1 / here + 1 / there)).sum() / 2
        if apart >= max(LEAST_SHARE, CLEAR * chance):
            missing = what == "missing"
            found.append(
                PartyDifference(
                    party=party,
                    column=name,
                    what=what,
                    value=float(shares[0][1]) if missing else None,
                    others=float(shares[1][1]) if missing else None,
                    effect=apart,
                )
            )
    return found


def largest_first(found: list[PartyDifference]) -> tuple[PartyDifference, ...]:
    """Return differences in the order of their absolute effects."""
    return tuple(sorted(found, key=lambda one: -abs(one.effect)))
