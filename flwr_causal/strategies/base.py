"""The base of all strategies: what a method has to say of itself, and Flower's side of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, MessageType
from flwr.serverapp.strategy import FedAvg

from flwr_causal.data.check.agreement import Agreement, agree
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.kinds import DataKind
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import wire
from flwr_causal.strategies.baselines import Baselines, RunAlone
from flwr_causal.strategies.options import check_options, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    import pandas as pd
    from flwr.app import Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result
    from numpy.typing import NDArray

    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.wire import Arrays, Scalar
    from flwr_causal.runtime.federation import Federation, Party
    from flwr_causal.strategies.exchange import Request

StateT = TypeVar("StateT")
OnProblem = Literal["fail", "drop"]


@dataclass(kw_only=True, eq=False)
class CausalStrategy(FedAvg, Generic[StateT]):
    """Base of the methods in which the parties send arrays that are averaged.

    A subclass is a dataclass whose fields are its options. It implements :meth:`init`,
    :meth:`broadcast`, :meth:`server_step`, :meth:`finished` and :meth:`graph`; everything else,
    from the schema exchange to the record of each round, is done by
    :func:`flwr_causal.strategies.run`. ``aggregate_train`` stays FedAvg's own, so that Flower's
    differential-privacy wrappers add their noise to the mean before the method's server step.

    Parameters
    ----------
    seed : int, default 0
        Fixes the sampling of parties and every random choice of the method.
    max_rounds : int
        The number of exchanges after the schema exchange that the method may use. Methods choose a
        schedule made for this number; they do not cut a longer one short.
    fraction_train : float, default 1.0
        The share of the parties that is sampled for each round.
    min_available_nodes : int, default 2
        How many nodes must be connected before the schema exchange begins.
    quorum : float, default 0.5
        The share of the parties (of those sampled for a round) that must reply; with fewer the run
        ends with an error, and what was done so far is kept.
    round_timeout : float, default 3600.0
        Seconds to wait for the replies of a round.
    precision : {"float64", "float32"}, default "float64"
        How arrays travel. float32 halves the traffic and costs about 1e-7 of accuracy a round.
    missing_values, constant_columns, text_columns, unshared_columns, duplicate_columns : \
{"fail", "drop"}, default "fail"
        What to do about rows with missing or infinite values, columns that are constant over all
        parties, columns that are not numbers, columns that only some parties have, and columns
        that are exact copies of another one.

    Raises
    ------
    ConfigError
        If an option has the wrong type or an impossible value.
    """

    method: ClassVar[str] = ""

    seed: int = 0
    max_rounds: int = 1
    fraction_train: float = 1.0
    min_available_nodes: int = 2
    quorum: float = 0.5
    round_timeout: float = 3600.0
    precision: Literal["float64", "float32"] = "float64"
    missing_values: OnProblem = "fail"
    constant_columns: OnProblem = "fail"
    text_columns: OnProblem = "fail"
    unshared_columns: OnProblem = "fail"
    duplicate_columns: OnProblem = "fail"
    federation: Federation | None = field(default=None, init=False, repr=False)
    grid: Grid | None = field(default=None, init=False, repr=False)
    state: StateT | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_options(self)
        self.validate()
        super().__init__(
            fraction_train=self.fraction_train,
            min_train_nodes=1,
            min_available_nodes=self.min_available_nodes,
            weighted_by_key=wire.WEIGHT,
            arrayrecord_key=wire.ARRAYS,
            configrecord_key=wire.CONFIG,
        )

    def validate(self) -> None:
        """Check the options' values; subclasses extend it.

        Raises
        ------
        ConfigError
            With the option's name and what is allowed.
        """
        require(self.max_rounds >= 1, "max_rounds", self.max_rounds, "at least 1")
        require(0 < self.fraction_train <= 1, "fraction_train", self.fraction_train, "in (0, 1]")
        require(0 < self.quorum <= 1, "quorum", self.quorum, "in (0, 1]")
        require(self.round_timeout > 0, "round_timeout", self.round_timeout, "above 0")
        require(
            self.min_available_nodes >= 1, "min_available_nodes", self.min_available_nodes, ">= 1"
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    # What a method says of itself.

    @property
    def data(self) -> DataKind:
        """Which tables the method is for; a subclass may state it as a class attribute."""
        return DataKind.LINEAR

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled."""
        names = {f.name for f in fields(Policy)}
        return Policy(**{k: v for k, v in self.options.items() if k in names})

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns of the parties' tables that are no variables."""
        return ()

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """The options that the clients need to describe their tables."""
        return {}

    @property
    def client_options(self) -> dict[str, Scalar]:
        """The options that the clients need; sent to each party once."""
        return {}

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Turn the parties' reports into the columns that all use, or raise what is wrong.

        Parameters
        ----------
        reports : mapping of str to TableReport
            By the parties' names, in their order.

        Raises
        ------
        DataError
            Naming each party, column and remedy.
        """
        return agree(reports, self.policy)

    @abstractmethod
    def init(self, agreement: Agreement) -> StateT:
        """Return the state before the first round, or raise what the options get wrong."""

    @abstractmethod
    def broadcast(self, state: StateT) -> Arrays:
        """Return the arrays that every party receives in the next round."""

    def instructions(self, state: StateT) -> dict[str, wire.Value]:
        """Return the plain values with them; ``phase`` says which disclosures are due."""
        return {}

    def message_type(self, state: StateT) -> str:
        """Return which message a round sends: "train" (calls fit) or "query" (calls answer)."""
        return MessageType.TRAIN

    @abstractmethod
    def server_step(
        self, state: StateT, mean: Arrays, replies: int
    ) -> tuple[StateT, dict[str, Any]]:
        """Apply the method's server step.

        Parameters
        ----------
        state : StateT
            Before the round; not changed.
        mean : dict of str to ndarray
            The weighted mean of what the parties sent, after any noise of a privacy wrapper.
        replies : int
            How many parties are in it.

        Returns
        -------
        state : StateT
        info : dict
            Diagnostics for the history: plain numbers and strings.
        """

    @abstractmethod
    def finished(self, state: StateT) -> str | None:
        """Return why the run is over, in words for the user, or None to go on."""

    @abstractmethod
    def graph(self, state: StateT) -> CausalGraph | None:
        """Return the graph of a state; called after every failure as well as at the end."""

    def model(self, state: StateT) -> Any:
        """Return what the method fits beside the graph, None if nothing."""
        return None

    def scores(self, state: StateT) -> NDArray[np.float64] | None:
        """Return the strength of every edge before the threshold, shape (d, d), for ranking."""
        return None

    def heterogeneity(self, state: StateT) -> Heterogeneity | None:
        """Return the parties' own graphs and how they differ from the common one, if known."""
        return None

    def warnings(self, state: StateT) -> list[str]:
        """Return what the user should know about the finished run."""
        return []

    # What a simulation tells beside the result, where all rows are in one place.

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return what is found without a federation; None where there is nothing to compare with.

        By default this method's own run on the pooled rows, and on those of each party.

        Parameters
        ----------
        tables : sequence of DataFrame
            The parties' tables.
        names : tuple of str
            The columns that the parties agreed on; empty for a method without a graph.
        run_alone : callable
            See :data:`~flwr_causal.strategies.baselines.RunAlone`.
        """
        import pandas as pd

        if self.data is DataKind.SERIES:  # rows of different series do not follow each other
            return None
        pooled = pd.concat(tables, ignore_index=True)
        return Baselines(run_alone(pooled), [run_alone(table) for table in tables])

    def pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return how good a graph is on the rows of all parties in one place, by name."""
        return {}

    # The round, as the loop drives it.

    def absorb(
        self, strategy: Any, server_round: int, messages: Sequence[Message]
    ) -> tuple[StateT, dict[str, Any]]:
        """Turn the replies of a round into the next state.

        Parameters
        ----------
        strategy : Strategy
            This strategy, or the privacy wrapper around it.
        messages : sequence of Message
            Replies without an error, in the parties' order.
        """
        arrays, _ = strategy.aggregate_train(server_round, messages)
        if arrays is None:
            raise FederationError(
                f"Round {server_round}: the replies of {len(messages)} parties could not be "
                "averaged. See the log for Flower's reason."
            )
        return self.server_step(self._running, wire.unpack_arrays(arrays), len(messages))

    def requests(self, state: StateT, parties: Sequence[Party]) -> list[Request] | None:
        """Return what each of the parties is sent, or None if all are sent the broadcast."""
        return None

    # Flower's side.

    @property
    def _running(self) -> StateT:
        if self.state is None:
            raise FederationError(
                f"{type(self).__name__} has not been started. Call its start(grid=...), or "
                "flwr_causal.strategies.run(method, grid, strategy=wrapper) where a privacy "
                "wrapper stands around it."
            )
        return self.state

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Build the messages of a round; none once the method has finished."""
        state = self._running
        federation = self.federation
        if federation is None or self.finished(state) is not None:
            return []
        parties = federation.sample(server_round, self.fraction_train, self.seed)
        plain: dict[str, wire.Value] = {
            **dict(config),
            "phase": "train",
            "method": self.method,
            "round": server_round,
            **self.instructions(state),
        }
        own = self.requests(state, parties)
        if own is None:
            # One content for all: building it anew for each would cost more than the round.
            contents = [wire.instruction(arrays, plain)] * len(parties)
        else:
            contents = [
                wire.instruction(
                    wire.pack_arrays(request.arrays, self.precision), {**plain, **request.config}
                )
                for request in own
            ]
        sent_as = self.message_type(state), server_round, self.round_timeout
        return [
            federation.message(party.node_id, content, *sent_as)
            for party, content in zip(parties, contents, strict=True)
        ]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: a graph is judged by its metrics, not by a loss of the parties."""
        return []

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the whole method as Flower's ``Strategy.start`` does.

        Parameters
        ----------
        grid : Grid
            Flower's grid.
        initial_arrays, evaluate_config : optional
            Refused: these methods start from their own initial state and evaluate on no party.
        num_rounds, timeout : int and float, optional
            Replace ``max_rounds`` and ``round_timeout``.
        train_config : ConfigRecord, optional
            Further plain values for the clients.
        evaluate_fn : callable, optional
            Called with the round and the server's arrays after each, as in Flower.

        Returns
        -------
        Result
            Flower's, with the graph and the rest in its attribute ``outcome``.

        Raises
        ------
        CausalError
            As :func:`flwr_causal.strategies.run`.
        """
        from flwr_causal.runtime.result import start

        refused = {"initial_arrays": initial_arrays, "evaluate_config": evaluate_config}
        for name, value in refused.items():
            if value is not None:
                raise ConfigError(
                    f"start({name}=...) has no meaning for {type(self).__name__}; leave it out."
                )
        self.max_rounds = self.max_rounds if num_rounds is None else num_rounds
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.validate()
        return start(self, grid, train_config=train_config, evaluate_fn=evaluate_fn)
