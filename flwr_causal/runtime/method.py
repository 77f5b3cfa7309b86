"""The protocol of every method: what the loop calls between the exchanges of a contract.

Before each exchange :meth:`Method._request` returns what the parties are sent. Their replies are
combined as the contract declares. :meth:`Method._close` turns the combined replies into the next
state, and :meth:`Method._finished` says when the run is over. All methods implement these through
:class:`flwr_causal.runtime.algorithm.Algorithm`, whose generator reads as the algorithm.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from flwr_causal.contract.exchange import Exchange
from flwr_causal.contract.when import COLUMNS_DIFFER
from flwr_causal.core.arguments import FLAG, Form, check_fields, instance
from flwr_causal.core.options import check_types
from flwr_causal.data.check.agreement import with_total
from flwr_causal.doubts.parties import disagreement_of
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.options import KnowledgePartyOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pandas as pd
    from flwr.app import ArrayRecord, Message, RecordDict
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PartyOptions
    from flwr_causal.protocol.records import Value
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.options import CausalOptions

StateT = TypeVar("StateT")
OptionsT = TypeVar("OptionsT", bound="PartyOptions")


_REQUEST = {
    "exchange": instance(Exchange, "an Exchange of the method's contract"),
    **dict.fromkeys(("values", "own"), instance(Mapping, "a dict by names")),
    "parties": Form(
        "a collection of names, or None",
        lambda value: isinstance(value, Collection | None) and not isinstance(value, str),
    ),
    "graph_stands": FLAG,
}


@dataclass(frozen=True, eq=False)
class Request:
    """What the parties are sent in one exchange.

    Parameters
    ----------
    exchange : Exchange
        One of the method's contract.
    values : mapping of str to ndarray, number or text
        What every party is sent, by the names of ``exchange.sends``.
    own : mapping of str to mapping, optional
        By party, or by group where parties add up in groups, what only this one is sent; it is
        added to ``values``, or replaces them. A party is not sent what is None here.
    parties : collection of str, optional
        The names of the parties or groups that are asked. Default: all of them.
    graph_stands : bool, default False
        Whether the replies do not change the graph any more. Replicates and trainings without a
        party end here: their graphs alone count.

    Raises
    ------
    ConfigError
        If the exchange does not declare a name.

    Examples
    --------
    >>> from flwr_causal.protocol import Exchange, Sent
    >>> from flwr_causal.strategies import Request
    >>> exchange = Exchange("step", "a step", sends=(Sent("size", "of the step"),))
    >>> dict(Request(exchange, {"size": 0.5}).values)
    {'size': 0.5}
    """

    exchange: Exchange
    values: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parties: Collection[str] | None = None
    graph_stands: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _REQUEST)
        declared = {item.name for item in self.exchange.sends}
        for values in (self.values, *self.own.values()):
            for name in values:
                if name not in declared:
                    raise ConfigError(
                        f"The exchange '{self.exchange.name}' does not declare '{name}' among what "
                        f"a party is sent: {sorted(declared) or 'nothing'}. Declare it as Sent."
                    )

    def asks(self, party: str) -> bool:
        """Return whether a party is asked."""
        return self.parties is None or party in self.parties

    def values_for(self, party: str) -> dict[str, Any]:
        """Return everything that a party is sent."""
        values = {**self.values, **self.own.get(party, {})}
        return {name: value for name, value in values.items() if value is not None}


class Method(Generic[StateT]):
    """Base of all methods, free of Flower.

    A subclass sets :attr:`contract` and implements :meth:`_init`, :meth:`_request`, :meth:`_close`,
    :meth:`_finished` and :meth:`_graph`.

    Attributes
    ----------
    contract : Contract
        All messages between server and parties. The client has the same contract.
    method : str
        The method's id, that of the contract.
    """

    contract: ClassVar[Contract]
    method: ClassVar[str] = ""

    options: CausalOptions
    #: The name of an exchange of sums whose replies are kept by party, to compare these.
    _compared_in: str = ""
    #: Other ways to run where a party differs, in words.
    _for_odd_parties: tuple[str, ...] = ()
    #: The random name of a private run, also where it is resumed: the parties keep by it what they
    #: have drawn.
    release: str | None = None
    #: Whether parties hold different columns of the same rows, and products of columns of two of
    #: them need keys of pairs.
    _columns_differ: bool = False
    #: The norm to which mods of the parties clip their replies, by Flower's client-side wrappers; 0
    #: without one.
    _clipping_norm: float = 0.0
    #: The mod of Flower's that such a wrapper needs at the parties.
    _clipping_mod: str = ""
    _federation: Federation | None
    _grid: Grid | None
    state: StateT | None
    #: What the parties are sent in the exchange in progress, if it is known.
    _asked: Request | None = None
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

    def _decide(self, decided: Mapping[str, Any], assumed: tuple[str, ...]) -> None:
        """Let the options be those that were given, with other values of some that are left open.

        Parameters
        ----------
        decided : mapping
            By option its value; empty: the options as they were given.
        assumed : tuple of str
            A line for each decision.
        """
        self._decided, self._assumed = dict(decided), assumed

    def _with_total(self, agreement: Agreement, total: TableReport) -> Agreement:
        """Complete an agreement without numbers by the totals of all rows."""
        return with_total(agreement, total, self.policy)

    def _mended(self, incomplete: Iterable[str]) -> DataError:
        """Return the error of parties that find missing values themselves, with what is assumed."""
        return DataError("; ".join(incomplete))

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """How problems of the data are handled."""

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
            one for one in self.contract.exchanges if not one.query and one.only.holds(run)
        )

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges the training may need beyond ``max_rounds``; more end the run."""
        return 0

    @abstractmethod
    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Return the columns that all parties use, or raise a DataError that says what is wrong."""

    def _complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement of parties that withhold their numbers, with the totals of all rows.

        Parameters
        ----------
        agreement : Agreement
            Of reports without numbers.
        total : TableReport
            On the rows of all parties together, from a secure sum.
        groups : mapping of str to TableReport, optional
            By name, on the rows of each group of parties that adds up by itself.
        """
        agreement = self._with_total(agreement, total)
        if not groups:
            return agreement
        rows = {name: report.rows for name, report in groups.items()}
        return replace(agreement, rows=rows, total=None)

    @abstractmethod
    def _init(self, agreement: Agreement) -> StateT:
        """Return the state before the first exchange; options that do not fit are ConfigErrors."""

    @abstractmethod
    def _request(self, state: StateT) -> Request:
        """Return what the parties are sent next; called while :meth:`_finished` returns None."""

    @abstractmethod
    def _close(self, state: StateT, replies: Replies) -> tuple[StateT, dict[str, Any]]:
        """Return the state after an exchange.

        Parameters
        ----------
        state : StateT
            Before the exchange; not changed.
        replies : Replies
            Combined as the exchange declares; means after any noise of a privacy wrapper.

        Returns
        -------
        state : StateT
        info : dict
            Diagnostics for the history: plain numbers and strings.
        """

    @abstractmethod
    def _finished(self, state: StateT) -> str | None:
        """Return why the run is over, in words for the user, or None to go on."""

    @abstractmethod
    def _graph(self, state: StateT) -> CausalGraph | None:
        """Return the graph of a state; called after every failure as well as at the end."""

    def _annotated(self, state: StateT, graph: CausalGraph) -> CausalGraph:
        """Return the graph of a state with what the method knows beside its edges."""
        return graph

    def _fitted(self, state: StateT) -> Any:
        """Return the fitted model, None if the method fits a graph only."""
        return None

    def _with_parties(
        self,
        state: StateT,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return the model with what is known of each party's rows.

        Parameters
        ----------
        state : StateT
        model : object
            Of this state.
        replies : mapping of str to dict
            By party, the arrays that it sent in the last exchange of second moments; empty where
            single replies are not known.
        reports : mapping of str to TableReport
            By party.
        """
        return model

    def _disagreement(
        self, state: StateT, model: Any, replies: Mapping[str, Arrays], asked: Mapping[str, Any]
    ) -> pd.DataFrame | None:
        """Return how the parties differ from each other; None where it is not known.

        Parameters
        ----------
        state, model, replies
            As of :meth:`_with_parties`; the replies are those to the exchange ``_compared_in``
            where there is one.
        asked : mapping of str to object
            What the parties were sent in this exchange.
        """
        return disagreement_of(model)

    def _scores(self, state: StateT) -> NDArray[np.float64] | None:
        """Return the strength of every edge before the threshold, shape (d, d), for ranking."""
        return None

    def _heterogeneity(self, state: StateT) -> Heterogeneity | None:
        """Return the parties' own graphs and how they differ from the common one, if known."""
        return None

    def _replicated(self, state: StateT, agreement: Agreement, number: int) -> StateT | None:
        """Return the state in which a replicate begins, given the main training's state.

        Parameters
        ----------
        state : StateT
            Of the main training.
        agreement : Agreement
        number : int
            Of the replicate, from 1 on.

        Returns
        -------
        StateT or None
            None while the main training prepares what all trainings share, such as cut points: the
            replicates begin after that exchange. Default: the first state.
        """
        return self._init(agreement)

    def _num_rows(self, state: StateT) -> int | None:
        """Return how many rows the parties have together; None for the sum of their numbers.

        Parties may hold different columns of the same rows.
        """
        return None

    def _privacy(self, state: StateT) -> dict[str, Any]:
        """Return the guarantee of differential privacy in plain values; empty if there is none."""
        return {}

    def _as_run(self, outcome: Any) -> Any:
        """Return an outcome as the run that users save and read."""
        return outcome

    def _write(self, outcome: Any, *, resumable: bool) -> None:
        """Write the results of a run into its ``output_dir``.

        Parameters
        ----------
        outcome : Outcome
        resumable : bool
            Whether what the run can be resumed from stays there.
        """

    def _warnings(self, state: StateT) -> list[str]:
        """Return what the user should know about the finished run."""
        return []

    def _messages(
        self,
        request: Request,
        server_round: int,
        arrays: ArrayRecord,
        further: Mapping[str, Value],
    ) -> list[Message]:
        """Return the messages of an exchange, one for each party that is asked.

        Parameters
        ----------
        request : Request
        server_round : int
            The number of the exchange.
        arrays : ArrayRecord
            The arrays among ``request.values``; a privacy wrapper may have changed them.
        further : mapping
            Further plain values for the parties.
        """
        exchange, federation = request.exchange, self._federation
        assert federation is not None
        parties = federation.asked(
            exchange, server_round, self.options.fraction_train, self.options.seed
        )
        labels = federation.labels

        def content(values: Mapping[str, Any]) -> RecordDict:
            return records.request(
                exchange.name,
                self.method,
                server_round,
                values,
                precision=self.options.precision,
                exact=exchange.exact,
                config=further,
            )

        # One content for all that are sent the same: a content for each would cost more than the
        # exchange.
        common = content(records.split(request.values)[1])
        common[records.ARRAYS] = arrays
        contents = {
            party: content(request.values_for(own)) if own in request.own else common
            for party in parties
            if request.asks(own := labels[party.name])
        }
        self._check_sent(exchange, contents.values())
        return [
            federation.message(
                party.node_id, sent, exchange, server_round, self.options.round_timeout
            )
            for party, sent in contents.items()
        ]

    def _check_sent(self, exchange: Exchange, contents: Iterable[RecordDict]) -> None:
        """Check that what parties are sent has the declared shapes, as each of them does.

        Raises
        ------
        ConfigError
            Naming the exchange and the value.
        """
        assert self._federation is not None
        agreed = self.contract.sizes(self._federation.setup, 0)
        agreed.pop("n")
        for sent in {id(one): one for one in contents}.values():
            try:
                door.sizes_of(exchange.asked(records.config_of(sent)), sent, agreed)
            except door.RefusedError as error:
                raise ConfigError(
                    f"{type(self).__name__} cannot ask for the exchange '{exchange.name}': "
                    f"{error}. Send what it declares as Sent, or declare what is sent."
                ) from error
