"""A party's rows as the sources of sums take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flwr.app import Context

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.options import DesignPartyOptions
    from flwr_causal.protocol.setup import Setup


class DesignRows(Protocol):
    """What a client offers whose rows are those of a design, see ``clients.design``."""

    context: Context

    @property
    def setup(self) -> Setup:
        """What all parties have agreed on."""

    @property
    def options(self) -> DesignPartyOptions:
        """How the parties make their rows."""

    @property
    def num_rows(self) -> int:
        """The party's number of rows, n_k."""

    @property
    def sharing(self) -> int:
        """Among how many parties the noise of a release is shared."""

    def table(self) -> Table:
        """Return the party's table."""

    def series_of_rows(self) -> IntArray:
        """Return the number of each row's series, shape (n_k,)."""

    def number_pieces(self) -> Iterator[FloatArray]:
        """Yield the values of numbers at t in pieces, (rows, d), in the units of the data.

        Missing cells are NaN, and so are categories and columns that the party lacks.
        """

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z in pieces, with ``order`` lags (default: the agreed number).

        Where rows have weights, these are the first column.
        """

    def rows_by_targets(self) -> Iterator[list[FloatArray]]:
        """Yield the rows of each set of targets, in pieces; without interventions all rows."""

    def products(self) -> FloatArray:
        """Return the sums of products of the rows [1, z] by fold, or by set of targets."""

    def products_by_set(
        self, designs: Iterable[FloatArray], places: IntArray | None = None, count: int = 1
    ) -> FloatArray:
        """Return the sums of products of the rows [1, z] of each set, (sets, 1 + s, 1 + s)."""

    def mean_products(self, designs: Iterable[FloatArray]) -> FloatArray:
        """Return the mean products of the rows [1, z], shape (1 + s, 1 + s)."""
