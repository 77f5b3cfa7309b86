"""What every method's client shares: its party's rows, the agreement, a memory between messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.client import NumPyClient

from flwr_causal.contract.answers import Asked
from flwr_causal.core.arguments import (
    TEXT,
    Form,
    check_argument,
    check_fields,
    instance,
    or_none,
)
from flwr_causal.data.check.party_table import complete_rows, describe, prepare, prepare_states
from flwr_causal.data.check.row_ids import name_of_ids
from flwr_causal.data.read.by_cell import read_by_cell
from flwr_causal.data.read.pieces import LargeFile, joined, pieces, selected, whole
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading, as_read
from flwr_causal.data.resampling import resampled
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party.cache import cached
from flwr_causal.party.identifiers import identifiers
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.party.noise import public_report
from flwr_causal.protocol import records
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import PartyOptions
from flwr_causal.protocol.setup import DIGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from flwr.app import Context
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.data.resampling import Draw
    from flwr_causal.protocol.records import Number
    from flwr_causal.protocol.setup import Setup


T = TypeVar("T")

SETUP = "setup"
MEMORY = "memory"
#: The names of the records in a node's state that hold a client's memory.
MEMORIES = (MEMORY, f"{MEMORY}-numbers")


_READS = Form("a function that returns the table", callable)
_SOURCE = {
    **dict.fromkeys(("name", "table"), TEXT),
    "read": _READS,
    **dict.fromkeys(("read_by_cell", "read_as"), or_none(_READS)),
}


@dataclass(frozen=True)
class Source:
    """Where a party's rows come from.

    Parameters
    ----------
    name : str
        The party's name in messages and errors.
    read : callable
        Returns the party's table, a DataFrame or a large file. Called anew for each message: it
        should cache.
    table : str, default ""
        The table's name, where the party has several; for its record.
    read_by_cell : callable, optional
        Returns the table of a run with epsilon: the same columns, as ``open_table(...,
        by_cell=True, reading=reading)`` reads them given a reading, so that no row changes how
        another one is read. Default: the cells of what ``read`` returns, of which the types may
        depend on all rows.
    read_as : callable, optional
        Returns the table as ``open_table(..., reading=reading)`` reads it, given a
        :class:`~flwr_causal.data.read.reading.Reading`. Default: what ``read`` returns, of which
        numbers have lost the spelling that they had in a file.
    own_map : Path, optional
        The file of a simulated party's names, codes and units, for runs with a dictionary; of a
        node its configuration names it.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.clients import Source
    >>> table = pd.DataFrame({"x": [1.0, 2.0]})
    >>> Source("north", lambda: table).read().shape
    (2, 1)
    """

    name: str
    read: Callable[[], Table]
    table: str = ""
    read_by_cell: Callable[[Reading], Table] | None = None
    read_as: Callable[[Reading], Table] | None = None
    own_map: Path | None = None

    def __post_init__(self) -> None:
        check_fields(self, _SOURCE)

    @classmethod
    def opening(
        cls, name: str, opens: Callable[..., Table], table: str = "", own_map: Path | None = None
    ) -> Source:
        """Return the source of a table that ``opens(by_cell=..., reading=...)`` returns.

        Both arguments may be absent, as those of ``open_table``.
        """

        def by_cell(reading: Reading) -> Table:
            return opens(by_cell=True, reading=reading)

        return cls(name, opens, table, by_cell, lambda reading: opens(reading=reading), own_map)

    def opened(self, reading: Reading = AS_THEY_ARE, *, private: bool) -> Table:
        """Return the table for a run without or with epsilon.

        Raises
        ------
        ConfigError
            If what the source's functions return is no table.
        """
        if private:
            if self.read_by_cell is not None:
                return self._table(self.read_by_cell(reading))
            table = self._table(self.read())
            if isinstance(table, LargeFile):
                return replace(table, by_cell=True, reading=reading)
            return read_by_cell(table, reading)
        if self.read_as is not None:
            return self._table(self.read_as(reading))
        table = self._table(self.read())
        if isinstance(table, LargeFile):
            return replace(table, reading=reading)
        return as_read(table, reading)

    def _table(self, found: Any) -> Table:
        if not isinstance(found, pd.DataFrame | LargeFile):
            raise ConfigError(
                f"The source of '{self.name}' returns {_kind(found)} as the party's table; it must "
                "be a pandas DataFrame, or what open_table returns: read_table of "
                "flwr_causal.data.read.tables makes one of an array or a path."
            )
        return found


def _kind(value: Any) -> str:
    """Return the type of a value, which may hold rows, in words."""
    return f"a value of type {type(value).__name__}"


@dataclass(frozen=True)
class Memory:
    """What a client keeps between two messages of one run; it never leaves the party.

    Parameters
    ----------
    arrays : dict of str to ndarray
    numbers : dict of str to int, float or str

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.clients.base import Memory
    >>> memory = Memory(arrays={"weights": np.zeros(3)}, numbers={"step": 2})
    >>> memory.numbers["step"]
    2
    """

    arrays: Arrays
    numbers: dict[str, Any]


class CausalClient(NumPyClient):
    """Base of all clients: one object for each message.

    A subclass sets :attr:`contract`, the strategy's own, and has for each of its exchanges a method
    marked with :func:`answers`. It reads its rows by :meth:`rows`, finds what the parties agreed on
    in :attr:`setup`, and may keep arrays between messages by :meth:`remember` and :meth:`recall`.
    That memory is a cache: it is empty in the first exchange and after a restart of the SuperNode,
    and the method must be correct without it.

    Parameters
    ----------
    source : Source
        The party's data.
    context : Context
        Flower's context of this node and run.
    setup : Setup or None
        What the parties agreed on; None during the schema exchange.
    options : PartyOptions, optional
        Those of the question for the schema, during the schema exchange.
    columns : collection of str, optional
        The columns that the run will use, during the schema exchange; default: all.

    Attributes
    ----------
    contract : Contract
        Everything that may leave the party.
    node_keys : collection of str
        Keys of its own that a node's configuration may have, written ``METHOD.KEY`` there and in
        ``self.context.node_config``; the client checks their values.
    draw : Draw or None
        In a replicate, the random draw of the party's rows; else None.
    asked : Asked
        What is answered now.

    Raises
    ------
    ConfigError
        When a subclass is defined that has no method for an exchange of its contract, or marks one
        that has the name of something else of this base.

    Examples
    --------
    >>> from flwr_causal.clients import CausalClient, MomentsClient
    >>> issubclass(MomentsClient, CausalClient), MomentsClient.contract.method
    (True, 'moments')
    """

    contract: ClassVar[Contract]
    node_keys: ClassVar[Collection[str]] = ()
    draw: Draw | None = None
    asked: Asked
    _handlers: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._handlers = {
            exchange: name
            for base in reversed(cls.__mro__)
            for name, method in vars(base).items()
            for exchange in getattr(method, "answers", ())
        }
        for name in cls._handlers.values():
            if hasattr(CausalClient, name):
                raise ConfigError(
                    f"{cls.__name__}.{name} is marked with @answers(...), but all clients have "
                    f"something else of the name '{name}': give it another one."
                )
        if "contract" not in vars(cls) or cls.fit is not CausalClient.fit:
            return
        check_argument(cls.__name__, "contract", cls.contract, instance(Contract, "a Contract"))
        missing = [one.name for one in cls.contract.exchanges if one.name not in cls._handlers]
        if missing:
            raise ConfigError(
                f"{cls.__name__} has no method for the exchange '{missing[0]}' of its contract: "
                "mark one with @answers(...)."
            )

    def __init__(
        self,
        source: Source,
        context: Context,
        setup: Setup | None = None,
        options: PartyOptions | None = None,
        columns: Collection[str] | None = None,
    ) -> None:
        self._columns = columns
        self.source = source
        self.context = context
        self._setup = setup
        self._schema_options = options or PartyOptions()
        self._next_memory: Memory | None = None
        self._names: tuple[str, ...] | None = None
        # The table that was read last, and the part of it that the run sees.
        self._shown: tuple[Table | None, Table | None] = None, None

    @property
    def node(self) -> NodeConfig:
        """The configuration of the party's node."""
        return NodeConfig.of(self.context.node_config)

    @property
    def setup(self) -> Setup:
        """What the parties agreed on."""
        if self._setup is None:
            raise FederationError("The parties agree on the columns after the schema exchange.")
        return self._setup

    @property
    def options(self) -> Any:
        """The options of the run: an object of the contract's class ``options``.

        During the schema exchange of its class ``question``. A subclass states the type:
        ``options: MomentsPartyOptions``.
        """
        return self._schema_options if self._setup is None else self._setup.options

    @property
    def private(self) -> bool:
        """Whether the run has differential privacy: then all follows from the party's release."""
        return self.options.guarantee is not None

    @property
    def sharing(self) -> int:
        """Among how many parties the noise of a private release is shared."""
        return 1

    @property
    def num_rows(self) -> int:
        """The party's number of rows, as it reported it: its weight in means."""
        if self.private:
            return self.released_rows()
        return self.once("number of rows", self.count_rows)

    def released_rows(self) -> int:
        """Return the number of rows by the party's release, in a private run; default: none."""
        return 0

    def count_rows(self) -> int:
        """Count the rows that the party trains on."""
        table, handling = self.table(), self.setup.handling
        if handling.missing_values != "drop":
            return len(table)
        return sum(int(complete_rows(piece, handling).sum()) for piece in pieces(table))

    def table(self) -> Table:
        """Return the party's table without ids: a DataFrame, or a file that is not in memory.

        Where rows with missing values are left out, it has no column that is not used: its gaps
        are no reason to leave a row out.

        Raises
        ------
        DataError
            If the party has several time series and the method no time, or lacks the column of ids
            that the option ``row_id`` names.
        """
        table = self.source.read()
        of, found = self._shown
        if of is table and found is not None:
            return found
        if SERIES in table.columns and not self.has_time:
            raise DataError(
                f"{self.source.name} is a list of tables, that is, of time series, and this method "
                "has no time: join them to one table, or use a method for time series"
            )
        ids = name_of_ids(table.columns, self.options.row_id)
        used = self._used_columns()
        kept = [
            name
            for name in table.columns
            if (used is None or name in used or name in self.other_columns)
            and (name != ids or name in self.role_columns)
        ]
        found = selected(table, kept)
        self._shown = table, found
        return found

    def _used_columns(self) -> Collection[str] | None:
        """Return the columns that the run uses, where all others are left out; None: all."""
        if self._setup is None:
            return self._columns
        chooses = self.options.chooses_columns(self._setup.handling) and not self.private
        return self._setup.names if chooses else None

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns that the client needs and that are no variables."""
        return (SERIES, *self.role_columns)

    @property
    def has_time(self) -> bool:
        """Whether rows are steps of time series."""
        return False

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns of time series that are no variables; ids may be among them."""
        return ()

    def identifiers(self) -> list[str]:
        """Return the agreed columns that look like identifiers."""
        table, added = self.source.read(), self.setup.handling.added
        names = [one for one in self.setup.names if one in table.columns and one not in added]
        return identifiers(table, names)

    def frame(self) -> pd.DataFrame:
        """Return the party's table, all of it in memory."""
        return whole(self.table())

    def kept_rows(self, handling: Handling) -> IntArray:
        """Return the positions in the party's table of the rows that are used, shape (n_k, 1 + p).

        A row of a design with p lags is made of 1 + p rows of the table, the latest first.
        """
        return np.flatnonzero(complete_rows(self.frame(), handling))[:, None]

    def resampled(self, draw: Draw) -> Source:
        """Return the source of a replicate's rows: as many as the party has, drawn from them.

        Called on the client of the party's own rows, by the bridge. A subclass whose rows may not
        be drawn one by one returns ``self.source`` and draws from what it makes of them, by
        :attr:`draw`.

        Raises
        ------
        ConfigError
            If the method has no replicates.
        """

        @cache
        def read() -> pd.DataFrame:
            frame = self.frame()
            # Incomplete rows stay: the training leaves them out as it does without replicates.
            complete = complete_rows(frame, self.setup.handling)
            kept = np.flatnonzero(complete)
            drawn = kept[draw.rows(len(kept), self.strata())]
            return resampled(self.source.read(), np.append(drawn, np.flatnonzero(~complete)))

        return Source(self.source.name, read)

    #: Whether a replicate has half of the rows, each once, in place of as many rows as there are.
    distinct_rows: ClassVar[bool] = False

    def strata(self) -> IntArray | None:
        """Return the groups within which rows are drawn, shape (n_k,); None for one group."""
        return None

    def describe(self, handling: Handling) -> TableReport:
        """Report the columns, row count and problems of this party's table."""
        parts = self.contract.reports
        return describe(
            self.table(),
            handling=handling,
            sums="sums" in parts,
            states=handling.names_states,
            relations="relations" in parts,
        )

    def released_report(self, handling: Handling) -> TableReport:
        """Report the table in a private run; default: its columns by name and dictionary alone."""
        return public_report(self.context, self.table(), handling)

    def rows(self) -> NDArray[np.float64]:
        """Return the party's rows, shape (n_k, d), in the agreed columns and their order."""
        return joined(self.row_pieces(), len(self.table()))

    def codes(self) -> NDArray[np.uint8]:
        """Return the party's rows as numbers of the agreed states, shape (n_k, d).

        ``setup.states`` has the states of each column: code k stands for state k. For methods on
        categories, whose contract has ``reports=("states",)``.

        Raises
        ------
        ConfigError
            If the contract has no states.
        """
        setup = self.setup
        if not setup.handling.names_states:
            raise ConfigError(
                f"The parties of '{self.contract.method}' have agreed on no states: declare them "
                "in its Contract(..., reports=('states',))."
            )
        return prepare_states(self.frame(), setup.names, setup.states, setup.handling).codes.T

    @property
    def held_names(self) -> tuple[str, ...]:
        """The agreed columns that the party holds: all of them but where columns differ."""
        return self.setup.names

    def row_pieces(self) -> Iterator[NDArray[np.float64]]:
        """Yield the same rows in pieces: for sums over rows, which need not all be in memory.

        A party with a large file reads it once more in each pass. The pieces are the same for a
        table in memory.

        Raises
        ------
        FederationError
            In a private run.
        """
        if self.private:
            raise FederationError("The run has an epsilon: nothing is computed from the rows.")
        for piece in pieces(self.table()):
            yield prepare(piece, self.held_names, self.setup.handling)

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Answer one message: call the method that answers its exchange.

        A subclass may override it in Flower's own style instead of marking methods.

        Parameters
        ----------
        parameters : list of ndarray
            The arrays that the server sent.
        config : dict
            Their names (``arrays``), the name of the exchange (``exchange``), its number
            (``round``), and the plain values that the server sent.

        Returns
        -------
        arrays : list of ndarray
            By the names that the exchange declares, in their order.
        weight : int
            The weight of this reply in the mean over parties: 1, or the number of rows.
        numbers : dict
            Empty.
        """
        exchange = self.contract.find(config["exchange"])
        values = {**config, **dict(zip(config["arrays"], parameters, strict=True))}
        self.asked = Asked(exchange, int(config["round"]), values)
        reply = getattr(self, self._handlers[exchange.name])(self.asked)
        self._names = tuple(reply)
        weight = 1 if exchange.weight == "one" else self.num_rows
        return list(reply.values()), weight, {}

    def names_of(self, exchange: Exchange) -> tuple[str, ...]:
        """Return the names of the arrays that :meth:`fit` has returned."""
        return tuple(one.name for one in exchange.returns) if self._names is None else self._names

    def to_client(self) -> Any:
        """Refuse to be a client of ``ClientApp(client_fn=...)``.

        Flower's strategies of ``flwr.serverapp`` cannot ask such clients, its own included, and the
        message says nothing there of contract and agreement.

        Raises
        ------
        ConfigError
            Naming what to use.
        """
        name = type(self).__name__
        raise ConfigError(
            f"{name} does not run under ClientApp(client_fn=...): Flower's strategies of today "
            f"cannot ask such clients. Write app = client_app({name}, source) in place of "
            "app = ClientApp(client_fn=...), from flwr_causal.clients; source(context) returns the "
            "node's Source(name, read)."
        )

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return a value that is computed once a process from the party's rows as agreed."""
        return cached(self.context, f"{name} {self.setup.digest}", compute)

    def recall(self) -> Memory | None:
        """Return a value that an earlier message of this run has stored, or None."""
        state = self.context.state
        arrays, numbers = state.get(MEMORY), state.get(MEMORY + "-numbers")
        if not (isinstance(arrays, ArrayRecord) and isinstance(numbers, ConfigRecord)):
            return None
        return Memory(records.unpack_arrays(arrays), dict(numbers))

    def memory_at(self, number: int) -> Memory | None:
        """Return the memory of the party's last exchange, None if there is none.

        It can be the memory of this exchange: if a reply was lost, the server sends the message
        again. The party must then send the same reply, and not update its state a second time.

        Parameters
        ----------
        number : int
            The number of this exchange, ``asked.number``. A memory must contain the number of its
            exchange, as ``number``.

        Raises
        ------
        FederationError
            If a message of a later exchange was answered before.
        """
        memory = self.recall()
        if memory is not None and memory.numbers["number"] > number:
            raise FederationError(
                f"The message of exchange {number} came after that of exchange "
                f"{memory.numbers['number']}; it was ignored."
            )
        return memory

    def remember(self, arrays: Arrays, **numbers: Number | str) -> None:
        """Keep arrays and numbers for the next message; stored once the reply has been built.

        A client that fails halfway through a message thus keeps the memory that it had before.
        """
        self._next_memory = Memory(arrays, numbers)

    def forget(self) -> None:
        """Empty the memory."""
        for name in MEMORIES:
            self.context.state.pop(name, None)

    def commit(self, sent: Sequence[tuple[NDArray[Any], Array]] = ()) -> None:
        """Store the setup and what :meth:`remember` collected. Called by the bridge, last.

        Parameters
        ----------
        sent : sequence of (ndarray, Array)
            Pairs of an array that :meth:`fit` returned and its packed form. An array that is both
            sent and remembered is packed once.
        """
        state = self.context.state
        if self._setup is not None:
            record = state.get(SETUP)
            if not isinstance(record, ConfigRecord) or record[DIGEST] != self._setup.digest:
                state[SETUP] = self._setup.record.copy()
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
