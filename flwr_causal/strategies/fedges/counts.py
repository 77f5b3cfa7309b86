"""The sums of contingency tables that FedGES asks for: the server's side of the source of counts.

The party's side is :meth:`flwr_causal.clients.fedges.FedGESClient.counts`. Parties count all rows,
or before there is a network to complete them by, the rows in which the columns of a set are seen.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, num_cells
from flwr_causal.errors import FederationError
from flwr_causal.protocol.fedges import COUNTS, FIT, POOLED_COUNTS, POOLED_FIT
from flwr_causal.runtime.algorithm import Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.discrete.contingency_tables import Sets
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step

#: Largest number of cells that parties send in one secure sum.
MOST_POOLED = 2**24
#: The exchanges in place of others with secure sums.
POOLED = {COUNTS: POOLED_COUNTS, FIT: POOLED_FIT}


class CountedTables:
    """Contingency tables of the parties' rows, added up.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    secure : bool
        Whether parties send all cells, which are added in secure sums.

    Attributes
    ----------
    small : Counter
        By party, how many cells with few rows it has sent or withheld so far.
    """

    def __init__(self, cardinalities: IntArray, *, secure: bool) -> None:
        self.cardinalities, self.secure = cardinalities, secure
        self.small: Counter[str] = Counter()

    def ask(
        self, sets: Sets, so_far: Callable[[], Result], further: dict[str, Any] | None = None
    ) -> Generator[Step, Any, tuple[ContingencyCounts, Replies]]:
        """Ask for the tables of sets of variables.

        Parameters
        ----------
        sets : Sets
        so_far : callable
            As of :class:`~flwr_causal.runtime.algorithm.Ask`.
        further : dict, optional
            The graphs of the exchange ``FIT``. Default: the exchange is ``COUNTS``.

        Returns
        -------
        counts : ContingencyCounts
            Of all parties together.
        replies : Replies

        Raises
        ------
        FederationError
            If secure sums would have too many cells.
        """
        exchange = COUNTS if further is None else FIT
        values = {**sets._asdict(), **(further or {})}
        if self.secure:
            exchange, values["num_cells"] = POOLED[exchange], self._all_cells(sets)
        replies: Replies = yield Ask(exchange, values, so_far=so_far)
        self.small.update({party: int(count) for party, count in replies.of("small").items()})
        return summed_counts(replies, sets, self.cardinalities), replies

    def _all_cells(self, sets: Sets) -> int:
        """Return the number of all cells of some tables, which a secure sum sends."""
        number = num_cells(sets, self.cardinalities).sum()
        if number > MOST_POOLED:
            raise FederationError(
                f"Contingency tables have {number:.3g} cells, and with secure_aggregation parties "
                f"send all of them, empty ones too, at most {MOST_POOLED}: limit the families with "
                "the option 'max_parents', or join rare states."
            )
        return int(number)


def summed_counts(replies: Replies, sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
    """Return the contingency tables of all parties together."""
    if "counts" in replies:
        return ContingencyCounts.of_whole(replies["counts"], sets, cardinalities)
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return ContingencyCounts.summed(replies["dense"], parties)
