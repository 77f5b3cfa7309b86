"""The replies of one exchange, combined as the exchange declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import WHOLE
from flwr_causal.core.linear.medians import median_shares, second_moment_shares
from flwr_causal.errors import ConfigError, FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays


class Summed(NamedTuple):
    """What is in one secure sum.

    Parameters
    ----------
    rows : int
        Of the parties in it together.
    parties : tuple of str
        Their names.
    """

    rows: int
    parties: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Replies:
    """What the parties returned in one exchange.

    Parameters
    ----------
    parties : tuple of str
        The names of the parties that replied, in their fixed order; where parties add up in
        groups, the names of the groups.
    combined : dict of str to ndarray
        Sums and means.
    by_party : mapping of str to dict of str to ndarray
        Party to what is kept by party.
    sums : mapping of str to Summed
        What is in the secure sums: by group, or under "" in that of all parties. Empty elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.protocol import Replies
    >>> replies = Replies(parties=("north", "south"), combined={"mean": np.zeros(2)})
    >>> replies["mean"].tolist(), len(replies.parties)
    ([0.0, 0.0], 2)
    """

    parties: tuple[str, ...] = ()
    combined: Arrays = field(default_factory=dict)
    by_party: Mapping[str, Arrays] = field(default_factory=dict)
    sums: Mapping[str, Summed] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """Of secure sums, the rows of the parties in them together; None elsewhere."""
        return sum(one.rows for one in self.sums.values()) if self.sums else None

    @property
    def answered(self) -> tuple[str, ...]:
        """The names of the single parties whose reply is used, also where groups replied."""
        summed = (name for one in self.sums.values() for name in one.parties)
        return tuple(summed) if self.sums else self.parties

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a sum or a mean.

        Raises
        ------
        ConfigError
            If it is kept by party, or if there is nothing of that name.
        """
        if name in self.combined:
            return self.combined[name]
        if any(name in arrays for arrays in self.by_party.values()):
            raise ConfigError(
                f"'{name}' is kept by party, as the exchange declares it: write "
                f"replies.of('{name}'), or declare it with combine='sum' or 'mean'."
            )
        raise ConfigError(f"the replies have no '{name}'; they have {', '.join(self.combined)}.")

    def __contains__(self, name: str) -> bool:
        """Return whether there is a sum or a mean of that name."""
        return name in self.combined

    def of(self, name: str) -> dict[str, NDArray[Any]]:
        """Return by party the array of a name, where replies are kept by party."""
        return {party: arrays[name] for party, arrays in self.by_party.items() if name in arrays}

    def list(self, name: str) -> list[NDArray[Any]]:
        """Return the arrays of a name that are kept by party, in the parties' order."""
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
        self._whole = {item.name for item in exchange.returns if item.values in WHOLE}
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
                # Whole numbers may arrive as floats.
                whole = name in self._whole and array.dtype.kind == "f"
                self._by_party[party][name] = array.astype(np.int64) if whole else array
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


def mean_of(replies: Sequence[Arrays], weights: NDArray[np.float64]) -> Arrays:
    """Return the weighted means of the replies' arrays, by name, added as Flower adds them."""
    shares = weights / weights.sum()
    return {
        name: sum(arrays[name] * share for arrays, share in zip(replies, shares, strict=True))
        for name in replies[0]
    }


def median_of(exchange: Exchange, replies: Sequence[Arrays], rows: NDArray[np.float64]) -> Arrays:
    """Return the geometric medians of the replies' arrays, by name.

    Parameters
    ----------
    exchange : Exchange
        Its declarations say which arrays are second moments; these are compared independently of
        the units, see :mod:`flwr_causal.core.linear.medians`.
    replies : sequence of dict
        Arrays by name, a dict for each party.
    rows : ndarray of shape (K,)
        The parties' rows.
    """
    values = {item.name: item.values for item in exchange.returns}
    medians = {}
    for name in replies[0]:
        arrays = _stacked(replies, name)
        if values[name] == "second-moments":
            shares, _ = second_moment_shares(arrays, rows)
        else:
            shares = median_shares(arrays, rows)
        medians[name] = np.tensordot(shares, arrays, axes=1)
    return medians


def distances_of(
    exchange: Exchange, replies: Sequence[Arrays], rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far each party's second moments are from the others', shape (K,).

    About 1 for parties that differ by sampling alone, and 1 where an exchange has no second
    moments; see :func:`flwr_causal.core.linear.medians.second_moment_shares`.
    """
    distances = np.ones(len(replies))
    for item in exchange.returns:
        if item.values == "second-moments":
            _, own = second_moment_shares(_stacked(replies, item.name), rows)
            distances = np.maximum(distances, own)
    return distances


def _stacked(replies: Sequence[Arrays], name: str) -> NDArray[np.float64]:
    return np.stack([np.asarray(arrays[name], dtype=np.float64) for arrays in replies])
