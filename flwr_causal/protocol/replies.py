"""The replies of one exchange, combined as the exchange declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import FederationError
from flwr_causal.protocol.exchange import WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.exchange import Exchange


@dataclass(frozen=True, eq=False)
class Replies:
    """What the parties returned in one exchange.

    Parameters
    ----------
    parties : tuple of str
        The names of the parties that replied, in their fixed order.
    combined : dict of str to ndarray
        Sums and means.
    by_party : mapping of str to dict of str to ndarray
        Party to what is kept by party.
    """

    parties: tuple[str, ...] = ()
    combined: Arrays = field(default_factory=dict)
    by_party: Mapping[str, Arrays] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a sum or a mean."""
        return self.combined[name]

    def __contains__(self, name: str) -> bool:
        """Return whether there is a sum or a mean of that name."""
        return name in self.combined

    def of(self, name: str) -> dict[str, NDArray[Any]]:
        """Return by party what is kept by party under a name."""
        return {party: arrays[name] for party, arrays in self.by_party.items() if name in arrays}

    def list(self, name: str) -> list[NDArray[Any]]:
        """Return what is kept by party under a name, in the parties' order."""
        return list(self.of(name).values())


class Fold:
    """Takes replies in one by one: adds what is declared a sum, keeps the rest by party.

    Floating-point sums depend on their order: replies are to come in the parties' order.

    Parameters
    ----------
    exchange : Exchange
        One without means; these are Flower's.
    """

    def __init__(self, exchange: Exchange) -> None:
        # Counts may travel in small types; their sums need room.
        self._sums = {
            item.name: np.int64 if item.values in WHOLE else np.float64
            for item in exchange.returns
            if item.combine == "sum"
        }
        self._parties: list[str] = []
        self._combined: Arrays = {}
        self._by_party: dict[str, Arrays] = {}

    def add(self, party: str, arrays: Arrays) -> None:
        """Take in the reply of one party.

        Raises
        ------
        FederationError
            If what is added has another shape than that of the parties before.
        """
        self._parties.append(party)
        self._by_party[party] = {}
        for name, array in arrays.items():
            if name not in self._sums:
                self._by_party[party][name] = array
                continue
            part = array.astype(self._sums[name])
            total = self._combined.setdefault(name, np.zeros_like(part))
            if total.shape != part.shape:
                raise FederationError(
                    f"{party} sent '{name}' of the shape {part.shape}, the parties before it of "
                    f"the shape {total.shape}: they cannot be added"
                )
            total += part

    def close(self) -> Replies:
        """Return the replies combined."""
        return Replies(tuple(self._parties), self._combined, self._by_party)
