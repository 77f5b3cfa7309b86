"""What every method's client shares: its party's rows, the agreement, a memory between rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.client import NumPyClient

from flwr_causal.clients.cache import cached
from flwr_causal.data.check.party_table import describe, prepare
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import DataError, FederationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from flwr.app import Context
    from numpy.typing import NDArray

    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.setup_message import Setup
    from flwr_causal.protocol.wire import Arrays, Disclosure, Number, Scalar

T = TypeVar("T")

SETUP = "setup"
MEMORY = "memory"


@dataclass(frozen=True)
class Source:
    """Where a party's rows come from.

    Parameters
    ----------
    name : str
        The party's name in messages and errors.
    read : callable
        Returns the party's table. Called anew for each message: it should cache.
    """

    name: str
    read: Callable[[], pd.DataFrame]


@dataclass(frozen=True)
class Memory:
    """What a client keeps between two messages of one run; it never leaves the party.

    Parameters
    ----------
    arrays : dict of str to ndarray
    numbers : dict of str to int, float or str
    """

    arrays: Arrays
    numbers: dict[str, Any]


class CausalClient(NumPyClient):
    """Base of all clients: one object for each message.

    A subclass sets :attr:`discloses` and implements :meth:`fit`, Flower's own signature.
    It reads its rows by :meth:`rows`, finds what the parties agreed on in :attr:`setup`, and may
    keep arrays between rounds by :meth:`remember` and :meth:`recall`. That memory is a cache: it is
    empty in the first round and after a restart of the SuperNode, and the method must be correct
    without it.

    Parameters
    ----------
    source : Source
        The party's data.
    context : Context
        Flower's context of this node and run.
    setup : Setup or None
        What the parties agreed on; None during the schema exchange.
    options : mapping, optional
        The strategy's ``schema_options``, during the schema exchange.

    Attributes
    ----------
    discloses : tuple of Disclosure
        Everything that may leave the party after the schema exchange. The arrays that :meth:`fit`
        returns are named by the disclosures of the current phase, in their order.
    sums : bool
        Whether the schema exchange sends, for each numeric column, its sum and its sum of squared
        deviations from the party's own mean (needed for centring and scaling).
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = ()
    sums: ClassVar[bool] = True

    def __init__(
        self,
        source: Source,
        context: Context,
        setup: Setup | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.context = context
        self._setup = setup
        self._schema_options = options or {}
        self._next_memory: Memory | None = None
        self._names: tuple[str, ...] | None = None

    @property
    def setup(self) -> Setup:
        """What the parties agreed on."""
        if self._setup is None:
            raise FederationError(
                "This party has no agreement with the others (it was restarted, or missed the "
                "schema exchange). The server sends it again with the next attempt."
            )
        return self._setup

    @property
    def options(self) -> Mapping[str, Any]:
        """The strategy's options for its clients: of the schema exchange, then all of them."""
        return self._schema_options if self._setup is None else self._setup.options

    @property
    def dimensions(self) -> dict[str, int]:
        """What the symbols in the shapes of :attr:`discloses` stand for."""
        return {"d": len(self.setup.names)}

    def table(self) -> pd.DataFrame:
        """Return the party's table.

        Raises
        ------
        DataError
            If the party has several time series and the method no time.
        """
        table = self.source.read()
        if SERIES in table.columns:
            raise DataError(
                f"{self.source.name} is a list of tables, that is, of time series, and this method "
                "has no time: join them to one table, or use a method for time series"
            )
        return table

    def describe(self, policy: Policy) -> TableReport:
        """Report the columns, row count and problems of this party's table."""
        return describe(self.table(), policy=policy, sums=self.sums)

    def rows(self) -> NDArray[np.float64]:
        """Return the party's rows, shape (n_k, d), in the agreed columns and their order."""
        return prepare(self.table(), self.setup.names, self.setup.policy)

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Do the method's local step.

        Parameters
        ----------
        parameters : list of ndarray
            What the strategy broadcasts, in its order.
        config : dict
            Plain values of this round, among them ``round`` and ``phase``.

        Returns
        -------
        arrays : list of ndarray
            Named by the array disclosures of the phase, in their order; where not all of them are
            due, what :meth:`named` returns.
        weight : int
            The weight of this reply in the mean over parties: 1, or the number of rows.
        numbers : dict
            Plain numbers, each declared as a disclosure.
        """
        raise NotImplementedError(f"{type(self).__name__} has to implement fit().")

    def answer(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Answer a query after training; arguments and result as of :meth:`fit`."""
        raise NotImplementedError(f"{type(self).__name__} answers no queries.")

    def named(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return arrays for :meth:`fit` to return, and note that these are their names."""
        self._names = tuple(arrays)
        return list(arrays.values())

    def names_of_reply(self, phase: str) -> tuple[str, ...]:
        """Return the names of the arrays that leave now, in their order."""
        return reply_names(self.discloses, phase) if self._names is None else self._names

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return what is computed once a process from the party's rows as agreed."""
        return cached(self.context, f"{name} {self.setup.exchange}", compute)

    def recall(self) -> Memory | None:
        """Return what was remembered in an earlier message of this run, None if nothing was."""
        state = self.context.state
        arrays, numbers = state.get(MEMORY), state.get(MEMORY + "-numbers")
        if not (isinstance(arrays, ArrayRecord) and isinstance(numbers, ConfigRecord)):
            return None
        return Memory({name: array.numpy() for name, array in arrays.items()}, dict(numbers))

    def remember(self, arrays: Arrays, **numbers: Number | str) -> None:
        """Keep arrays and numbers for the next message; stored once the reply has been built.

        A client that fails halfway through a message thus keeps the memory that it had before.
        """
        self._next_memory = Memory(arrays, numbers)

    def commit(self, sent: Sequence[tuple[NDArray[Any], Array]] = ()) -> None:
        """Store the setup and what :meth:`remember` collected. Called by the bridge, last.

        Parameters
        ----------
        sent : sequence of (ndarray, Array)
            What :meth:`fit` returned, as it was and as it leaves. An array that is remembered as it
            was sent is kept in the form that it left in, not packed a second time.
        """
        state = self.context.state
        if self._setup is not None and SETUP not in state:
            state[SETUP] = ConfigRecord(self._setup.to_config())
        if self._next_memory is not None:
            memory = self._next_memory
            state[MEMORY + "-numbers"] = ConfigRecord(memory.numbers)
            state[MEMORY] = ArrayRecord(
                {name: _packed(np.asarray(value), sent) for name, value in memory.arrays.items()}
            )


def _packed(values: NDArray[Any], sent: Sequence[tuple[NDArray[Any], Array]]) -> Array:
    for array, packed in sent:
        if array is values and packed.dtype == str(values.dtype):
            return packed
    return Array(values)


def reply_names(disclosures: tuple[Disclosure, ...], phase: str) -> tuple[str, ...]:
    """Return the names of the arrays that leave in a phase, in the order of their declaration."""
    return tuple(item.name for item in disclosures if item.phase == phase and item.shape)
