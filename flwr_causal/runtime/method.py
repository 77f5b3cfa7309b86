"""What the runtime calls of a method: its exchanges, its ``train``, what it makes of the tables.

All methods are :class:`~flwr_causal.strategies.base.CausalStrategy`, which implements the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flwr_causal.contract.when import COLUMNS_DIFFER
from flwr_causal.core.options import check_types
from flwr_causal.data.check.agreement import Agreement, agree, leave_out, of_gaps, with_total
from flwr_causal.data.check.handling import Handling
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.doubts.parties import disagreement_of
from flwr_causal.doubts.tables import doubts, doubts_of_groups, doubts_of_total, naming_columns
from flwr_causal.protocol.options import KnowledgePartyOptions
from flwr_causal.runtime.options import CausalOptions, CountedRows, FewRows, sends_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.dictionary.entries import Dictionary
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.errors import DataError
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PartyOptions
    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.runtime.federation import Federation

OptionsT = TypeVar("OptionsT", bound="PartyOptions")

#: The most exchanges of a method that states no number of them.
UNSTATED = 1000


class CausalMethod:
    """Base of all methods, free of Flower.

    A subclass sets :attr:`contract` and implements :meth:`train`.

    Attributes
    ----------
    contract : Contract
        All messages between server and parties. The client has the same contract.
    method : str
        The method's id, that of the contract.
    """

    contract: ClassVar[Contract]
    method: ClassVar[str] = ""

    options_type: ClassVar[type[CausalOptions]] = CausalOptions
    options: CausalOptions
    #: The dictionary of the parties' columns that the option ``dictionary`` names.
    _entries: Dictionary | None = None
    #: The options of which the handling was made last, and this handling.
    _last_handling: tuple[CausalOptions | None, Handling | None] = (None, None)
    #: The name of an exchange of sums whose replies are kept by party, to compare these.
    _compared_in: str = ""
    #: Other ways to run where a party differs, in words.
    _for_odd_parties: tuple[str, ...] = ()
    #: The random name of a private run, also where it is resumed: the parties keep by it what they
    #: have drawn.
    release: str | None = None
    #: Of the last agreement, which the runtime sets.
    _columns_differ: bool = False
    #: The norm to which mods of the parties clip their replies, by Flower's client-side wrappers; 0
    #: without one.
    _clipping_norm: float = 0.0
    #: The mod of Flower's that such a wrapper needs at the parties.
    _clipping_mod: str = ""
    _federation: Federation | None = None
    _grid: Grid | None = None
    #: The :class:`~flwr_causal.runtime.training.Training` of the run in progress.
    state: Any = None
    #: The :class:`~flwr_causal.runtime.round.Round` in progress.
    _round: Any = None
    #: The arrays that a run starts from, by the names of `_initial_names`; empty: the method's own.
    _initial: Mapping[str, NDArray[Any]] = MappingProxyType({})
    #: What was assumed of options that the run leaves open, by the parties' reports: by option the
    #: value, and a line each.
    _decided: Mapping[str, Any] = MappingProxyType({})
    _assumed: tuple[str, ...] = ()
    #: The run that the ``start`` of a strategy around the method goes through.
    _stepwise: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "contract" in vars(cls):
            cls.method = cls.contract.method

    @abstractmethod
    def _decide(self, decided: Mapping[str, Any], assumed: tuple[str, ...]) -> None:
        """Let the options be those that were given, with other values of some that are left open.

        Parameters
        ----------
        decided : mapping
            By option its value; empty: the options as they were given.
        assumed : tuple of str
            A line for each decision.
        """

    @abstractmethod
    def _accepts(self, changes: Mapping[str, Any]) -> bool:
        """Return whether the method has these options beside the others that were given."""

    def _mended(self, incomplete: Iterable[str]) -> DataError:
        """Return the error of parties that find missing values, with the assumptions."""
        return of_gaps(incomplete, self.handling, self._accepts, self._left_open)

    @property
    def handling(self) -> Handling:
        """How problems of the data are handled."""
        options, handling = self._last_handling
        if handling is None or options is not self.options:
            known = {one.name for one in fields(Handling)}
            own = {name: value for name, value in self.options.asked().items() if name in known}
            own["dictionary"] = "" if self._entries is None else self._entries.text
            handling = self.contract.completed(self.options, Handling(**own))
            self._last_handling = self.options, handling
        return handling

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """The arrays that a run may be given to start from; the first one is needed."""
        return ()

    @property
    def pools_rows(self) -> bool:
        """Whether the result equals the one of the pooled rows, however rows are divided.

        :func:`flwr_causal.testing.check_method` checks it.
        """
        return False

    @property
    def _schema_options(self) -> PartyOptions:
        """The options that the clients need to describe their tables."""
        question = self.contract.question
        return self.client_options if question is None else self.sent(question)

    @property
    def client_options(self) -> PartyOptions:
        """The options that the clients are sent, of the contract's class ``options``."""
        return self.sent(self.contract.options)

    def _agreed_options(self, agreement: Agreement) -> PartyOptions:
        """Return the options that the clients are sent once the columns are agreed.

        Background knowledge is then about the agreed columns.
        """
        options = self.client_options
        if not (agreement.determined and isinstance(options, KnowledgePartyOptions)):
            return options
        return replace(options, knowledge=self.options.known_for(agreement))

    def sent(self, kind: type[OptionsT], **values: Any) -> OptionsT:
        """Return options for the parties: the options, or else attributes, of the same names.

        Parameters
        ----------
        kind : type
            A subclass of :class:`~flwr_causal.protocol.options.PartyOptions`.
        **values
            Those that have other values at the parties.

        Raises
        ------
        ConfigError
            If a value is not of the option's type.
        """
        own = {one.name for one in fields(kind)} - values.keys()
        given = {
            name: getattr(self.options if hasattr(self.options, name) else self, name)
            for name in own
        }
        options = kind(**values, **given)
        check_types(options)
        return options

    @property
    def run(self) -> Mapping[str, Any]:
        """The run by its options, as the conditions of exchanges see it."""
        return self.options.asked() | {COLUMNS_DIFFER: self._columns_differ}

    @property
    def _exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of the contract that the training may need with these options."""
        run = self.run
        return tuple(
            one for one in self.contract.exchanges if not one.query and one.when.holds(run)
        )

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges the training may need beyond ``max_rounds``.

        A class that leaves ``max_rounds`` at 1 does not say how many exchanges it needs.
        """
        return UNSTATED if self.options.max_rounds == self.options_type.max_rounds == 1 else 0

    @property
    def _leaves_out(self) -> bool:
        """Whether a column that cannot be used is left out, in place of an error."""
        return False

    @property
    def _left_open(self) -> frozenset[str]:
        """The options that the reports decide; a private release is drawn with the first ones."""
        return frozenset() if self.options.private else self.options.left_open

    @property
    def _expected(self) -> Expected:
        """What the method takes for granted of the parties' tables; else it warns."""
        return self.options.expected

    @property
    def _parts(self) -> tuple[type[Part], ...]:
        """The parts that the options and what leaves a party choose; subclasses add to it."""
        chosen = self.options.parts
        if sends_counts(self):
            return (*chosen, CountedRows)
        return (*chosen, FewRows) if self.options.joins_columns else chosen

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Turn the parties' reports into the columns that all use, or raise what is wrong.

        Parameters
        ----------
        reports : mapping of str to TableReport
            By the parties' names, in their order.

        Raises
        ------
        ConfigError
            If options do not fit the parties.
        DataError
            Naming each party, column and remedy.
        """
        self.options.check_parties(reports)
        agreement = agree(
            reports, self.handling, self._accepts, self._left_open, leaves_out=self._leaves_out
        )
        if "exclude" in self._left_open:
            leave_out(
                naming_columns(reports, agreement, self.handling), self.handling, self._accepts
            )
        found = doubts(reports, agreement, self._expected, self.handling)
        agreement = replace(agreement, warnings=(*agreement.warnings, *found))
        return self.options.agreed(agreement, reports, self._parts)

    def _complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement with the numbers of all rows, and what is implausible about them.

        Raises
        ------
        DataError
            As :meth:`agree`.
        """
        self.options.check_total(agreement, total)
        agreement = with_total(agreement, total, self.handling, self._accepts, self._left_open)
        if groups:
            rows = {name: report.rows for name, report in groups.items()}
            agreement = replace(agreement, rows=rows, total=None)
        found = doubts_of_total(replace(agreement, total=agreement.n), total, self._expected)
        found += doubts_of_groups(groups or {}, agreement.names, self._expected)
        return replace(agreement, warnings=(*agreement.warnings, *found))

    @abstractmethod
    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Train over the parties: the paper's algorithm.

        It holds no file and no clock, and asks the same for the same replies: an interrupted run is
        resumed by running it again over the replies that were kept.

        Parameters
        ----------
        agreement : Agreement
            The columns that all parties use, and what is known of them.
        replicate : int, default 0
            The number of the replicate; 0 for the main training.

        Yields
        ------
        Ask
            For each exchange; the generator is given the combined
            :class:`~flwr_causal.protocol.replies.Replies`.
        Note
            What the history says of the exchange before.
        Choice
            What replicates take over from the main training.

        Returns
        -------
        Result

        Examples
        --------
        >>> from flwr_causal.strategies import Ask, CausalStrategy, Result
        >>> class Mean(CausalStrategy):
        ...     def train(self, agreement, replicate=0):
        ...         replies = yield Ask(self.contract.exchanges[0])
        ...         return Result(model=replies["mean"])
        """

    def _with_parties(
        self,
        agreement: Agreement,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return the model with what is known of each party's rows.

        Parameters
        ----------
        agreement : Agreement
        model : object
            That the training has fitted.
        replies : mapping of str to dict
            By party, the arrays that it sent in the last exchange of second moments; empty where
            single replies are not known.
        reports : mapping of str to TableReport
            By party.
        """
        return model

    def _disagreement(
        self, model: Any, replies: Mapping[str, Arrays], asked: Mapping[str, Any]
    ) -> pd.DataFrame | None:
        """Return how the parties differ from each other; None where it is not known.

        Parameters
        ----------
        model, replies
            As of :meth:`_with_parties`; the replies are those to the exchange ``_compared_in``
            where there is one.
        asked : mapping of str to object
            What the parties were sent in this exchange.
        """
        return disagreement_of(model)

    @abstractmethod
    def _as_run(self, outcome: Any) -> Any:
        """Return an outcome as the run that users save and read."""

    def _annotated(self, graph: CausalGraph, agreement: Agreement) -> CausalGraph:
        """Return the graph with the background knowledge about its edges."""
        options = self.options
        graph = graph.with_knowledge(options.known) if options.known else graph
        return options.annotated(graph, agreement)

    def _warnings(self, graph: CausalGraph | None) -> list[str]:
        """Return what the user should know of a graph beside what the training says."""
        return [*doubts_of(final=graph)]

    @abstractmethod
    def _write(self, outcome: Any, *, resumable: bool) -> None:
        """Write the results of a run into its ``output_dir``.

        Parameters
        ----------
        outcome : Outcome
        resumable : bool
            Whether what the run can be resumed from stays there.
        """
