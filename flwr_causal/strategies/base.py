"""The base of all strategies: the options that they share, and Flower's side of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import FedAvg

from flwr_causal.core.options import MOST, bounded, check_bounds, check_types, public_names, require
from flwr_causal.data.check.agreement import Agreement, agree
from flwr_causal.data.check.plausibility import (
    Expected,
    doubts,
    doubts_of_groups,
    doubts_of_total,
)
from flwr_causal.data.check.policy import FailDrop, Policy
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import MOST_REPLICATES
from flwr_causal.protocol.secure.keys import LEAST_PARTIES
from flwr_causal.protocol.secure.ring import not_a_sum
from flwr_causal.runtime import loop
from flwr_causal.runtime.algorithm import Algorithm, Progress
from flwr_causal.runtime.outcome import CausalResult, numbers_of, weights_of
from flwr_causal.runtime.stepwise import Stepwise
from flwr_causal.strategies.options import Mode, check_modes, only, require_fitting
from flwr_causal.strategies.plausibility import tier_warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.reading import Reading
    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.outcome import Outcome


#: The most exchanges of a method that states no number of them.
UNSTATED = 1000

#: Runs the strategy on one table as a federation of one party, with some options changed; returns
#: the graph, or the model of a method without one; None if the table cannot be used.
RunAlone = Callable[..., Any]


def sends_counts(method: Any) -> bool:
    """Whether counts of rows leave a party, of which it can withhold small ones."""
    return "interventions" in method.contract.reports or any(
        item.values == "count" for exchange in method.exchanges for item in exchange.returns
    )


SECURE = Mode("secure_aggregation=True", lambda method: method.secure_aggregation)
OF_COUNTS = Mode("methods and options that send counts of rows", sends_counts)
OF_FEW_ROWS = Mode(
    "methods and options that send counts of rows, or join different columns by ids",
    lambda method: sends_counts(method) or method.joins_columns,
)
OF_GRAPHS = Mode("methods that return a graph", lambda method: False)


class Baselines(NamedTuple):
    """The graphs or models that are found without a federation.

    Parameters
    ----------
    pooled : CausalGraph or model, or None
        The result on the pooled rows; None if rows cannot be pooled.
    alone : list of CausalGraph or model
        The result on each party's own rows.
    solver : str, default ""
        The name of the solver; empty: the method itself.
    """

    pooled: Any
    alone: list[Any]
    solver: str = ""


@dataclass(kw_only=True, eq=False)
class CausalStrategy(FedAvg, Algorithm):
    """Base of all methods.

    A subclass is a dataclass whose fields are its options. It sets ``contract`` and implements
    :meth:`train`, a generator that reads as the paper's algorithm. Everything else, from the schema
    exchange to the record of each exchange, is done by :func:`flwr_causal.strategies.run`. Where
    the contract averages, ``aggregate_train`` is FedAvg's own, so that Flower's
    differential-privacy wrappers add their noise to the mean before the method's step.

    Parameters
    ----------
    seed : int, default 0
        Determines the sampling of parties and every random choice of the method.
    max_rounds : int
        The number of exchanges after the schema exchange that the method may use. Methods choose a
        schedule made for this number; they do not cut a longer one short. A training that has not
        finished then, and after what the method declares as ``exchanges_beyond``, ends with an
        error.
    fraction_train : float, default 1.0
        The share of the parties that is sampled for each exchange.
    min_available_nodes : int, default 2
        How many nodes must be connected before the schema exchange begins.
    expected_parties : str, default ""
        The names of the parties that must take part, such as "north,south,west". The run waits for
        them by name, for ``round_timeout`` seconds, and says who is missing; other nodes take no
        part, and two nodes of one name are refused. Default: all nodes that are connected once
        there are ``min_available_nodes``.
    quorum : float, default 0.5
        The share of the parties (or of the sampled parties) that must reply in an exchange. If
        fewer reply, the run ends with an error, and the results so far are kept. With
        ``secure_aggregation`` more than half must reply in any case; with 1 a sum takes one
        exchange instead of two.
    round_timeout : float, default 3600.0
        Seconds to wait for the replies of an exchange.
    server_timeout : float, default 3600.0
        Limit, in seconds, of the server's own computations before an exchange, after it, and for
        the final graph. Solvers check the time once an iteration. After this time the run ends with
        an error, and the results so far are kept.
    changed_tables : {"fail", "restart"}, default "fail"
        What follows where a party's table changes during the run: the party fails until the table
        is restored, or the training starts again with a new schema exchange, at most three times.
    precision : {"float64", "float32"}, default "float64"
        The type in which arrays are sent. float32 halves the traffic and costs about 1e-7 of
        accuracy an exchange.
    replicates : int, default 0
        Number of bootstrap replicates: trainings on rows that each party draws from its own with
        replacement, in the same exchanges as the main training. ``graph.confidence`` is then the
        share of the replicates that have the edge; see docs/confidence.md. Each party sends
        everything ``replicates + 1`` times.
    leave_one_out : bool, default False
        Train without each of the parties as well (with ``groups``, without each of these), in the
        same exchanges: ``run.influence`` is then the change of the graph without each. Each party
        sends everything as many times as there are parties. It shows the server what each party
        adds; see docs/privacy.md.
    secure_aggregation : bool, default False
        Let the server learn sums over all parties only: parties add masks that cancel in the sum.
        Numbers of rows, means and influence by party are then unknown. docs/security.md lists the
        methods and options that have it, what it protects against, and what follows where a party
        does not reply.
    min_parties : int, default 3
        Fewest parties with which such a run starts, at least 3, and fewest of a group.
    groups : int or "auto", default 1
        With ``secure_aggregation``: add up in so many groups of parties instead of all together;
        "auto" makes as many groups as ``min_parties`` allows. The server learns each group's sums.
        Medians, influence and ``leave_one_out`` are then by group. The groups follow from ``seed``
        and the parties' names and stay the same; see docs/security.md.
    signing_key : str or None, default None
        Path, on the server's machine, of an Ed25519 private key (``ssh-keygen -t ed25519 -N ""``)
        that signs what the run asks. Parties whose policy lists its public key refuse other runs.
    minimum_count : int, default 5
        The fewest rows behind a count of rows, or behind a sum over some of the rows, that leaves a
        party; ``small_counts`` says what is done with smaller ones.
    small_counts : {"report", "suppress", "refuse"}, default "report"
        What parties do with counts of fewer rows: send them; send 0 instead, so that tables count
        fewer rows than there are; or refuse to reply. For methods that send counts, without
        ``secure_aggregation``, which hides them. docs/privacy/schema.md says what still follows
        from sums.
    output_dir : str or None, default None
        Directory for the results (under ``flwr run`` its absolute path). It is made at the start
        and updated during the run: status, history, failures, and what is needed to resume the run.
        None writes nothing.
    resume : bool, default False
        Continue the interrupted run that ``output_dir`` holds, after its last exchange. If the
        directory holds no run, a new one starts; a completed run is returned. Method, options
        and tables must be the same; a party that is missing is left out of the exchanges until it
        is back. Without ``resume`` an earlier run in the directory is replaced, and other files of
        the results' names are an error.
    row_id : str, default ""
        Column of ids: rows of different parties with the same id describe the same subject. It is
        no variable. Empty: the column ``row_id``, if there is one. Parties with ids may hold
        different columns with "moments", "fedpc" and "fedges" in mode "exact"; with others that
        is an error.
    missing_values : {"fail", "drop"}, default "fail"
        What to do about missing or infinite values: fail with an error, or leave their rows out.
    missing_texts : str, default ""
        Texts that are missing values, separated by commas, such as "NA,?,-999": in every column,
        beside empty fields. In columns of numbers NA, NaN, null, None and the like always are; in
        columns of text they are states unless they are named here.
    constant_columns : {"fail", "drop"}, default "fail"
        What to do about columns with one value in the rows of all parties.
    text_columns : {"fail", "drop"}, default "fail"
        What to do about columns that hold no numbers.
    unshared_columns : {"fail", "drop"}, default "fail"
        What to do about columns that only some parties have.
    duplicate_columns : {"fail", "drop"}, default "fail"
        What to do about columns that equal another one in every row.

    Raises
    ------
    ConfigError
        If an option has the wrong type or an impossible value.
    """

    seed: int = bounded(0, least=0)
    max_rounds: int = bounded(1, least=1, most=MOST)
    fraction_train: float = bounded(1.0, above=0, most=1)
    min_available_nodes: int = bounded(2, least=1)
    expected_parties: str = ""
    quorum: float = bounded(0.5, above=0, most=1)
    round_timeout: float = bounded(3600.0, above=0)
    server_timeout: float = bounded(3600.0, above=0)
    changed_tables: Literal["fail", "restart"] = "fail"
    precision: Literal["float64", "float32"] = "float64"
    replicates: int = bounded(0, least=0, most=MOST_REPLICATES)
    leave_one_out: bool = False
    secure_aggregation: bool = False
    min_parties: int = only(SECURE, LEAST_PARTIES, least=LEAST_PARTIES)
    groups: int | Literal["auto"] = only(SECURE, 1, least=1, most=MOST)
    minimum_count: int = only(OF_FEW_ROWS, 5, least=0, most=MOST)
    small_counts: Literal["report", "suppress", "refuse"] = only(OF_COUNTS, "report")
    signing_key: str | None = None
    output_dir: str | None = None
    resume: bool = False
    row_id: str = ""
    missing_values: FailDrop = "fail"
    missing_texts: str = ""
    constant_columns: FailDrop = "fail"
    text_columns: FailDrop = "fail"
    unshared_columns: FailDrop = "fail"
    duplicate_columns: FailDrop = "fail"
    federation: Federation | None = field(default=None, init=False, repr=False)
    grid: Grid | None = field(default=None, init=False, repr=False)
    state: Progress | None = field(default=None, init=False, repr=False)
    stepwise: Stepwise | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_types(self)
        self.validate()
        super().__init__(
            fraction_train=self.fraction_train,
            min_train_nodes=1,
            min_available_nodes=self.min_available_nodes,
            weighted_by_key=records.WEIGHT,
            arrayrecord_key=records.ARRAYS,
            configrecord_key=records.CONFIG,
            train_metrics_aggr_fn=self._averaged,
        )

    def validate(self) -> None:
        """Check the options' values; subclasses extend it.

        Raises
        ------
        ConfigError
            With the option's name and what is allowed.
        """
        check_bounds(self)
        require(
            not self.resume or bool(self.output_dir), "resume", self.resume, "given with output_dir"
        )
        check_modes(self)
        if self.secure_aggregation:
            self._check_sums()
        require(
            self.small_counts != "suppress" or not self.replicates,
            "replicates",
            self.replicates,
            "0 with small_counts='suppress', as counts of rows that are drawn again disclose them",
        )

    def _check_sums(self) -> None:
        """Check that everything that leaves a party is a sum."""
        require_fitting(self, self.with_secure_aggregation, "secure_aggregation=True")
        reasons = [not_a_sum(exchange) for exchange in self.exchanges]
        reason = next(filter(None, reasons), "")
        if reason:
            raise ConfigError(
                f"The option 'secure_aggregation' is True, but not all that {type(self).__name__} "
                "sends with "
                f"these options is a sum: {reason}. docs/security.md lists the methods and options "
                "that have it."
            )

    @property
    def with_secure_aggregation(self) -> dict[str, tuple[bool, str]]:
        """Which options fit secure sums, by name, and what they must be."""
        return {
            "fraction_train": (self.fraction_train == 1, "1"),
            "changed_tables": (self.changed_tables == "fail", "'fail'"),
            "leave_one_out": (
                not self.leave_one_out or self.groups != 1,
                "False, or groups given,",
            ),
            "small_counts": (self.small_counts == "report", "'report'"),
        }

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges the training may need beyond ``max_rounds``.

        A class that leaves ``max_rounds`` at 1 does not say how many exchanges it needs.
        """
        return UNSTATED if self.max_rounds == type(self).max_rounds == 1 else 0

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain values, by the names that users give."""
        called = public_names(type(self))
        return {called.get(f.name, f.name): getattr(self, f.name) for f in fields(self) if f.init}

    @property
    def data(self) -> DataKind:
        """Which tables the method is for; a subclass may state it as a class attribute."""
        return DataKind.LINEAR

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled."""
        own = {f.name for f in fields(self)} & {f.name for f in fields(Policy)}
        options = {name: getattr(self, name) for name in own}
        return self.contract.completed(self, Policy(**options))

    @property
    def reading(self) -> Reading:
        """How the parties' tables are read."""
        return self.policy.reading

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables: that of ids; subclasses add to it."""
        return (self.row_id or ROW_ID,)

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
        agreement = agree(reports, self.policy)
        found = doubts(reports, agreement, self.expected, self.policy)
        return replace(agreement, warnings=(*agreement.warnings, *found))

    def complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement with the numbers of all rows, and what is implausible about them."""
        agreement = super().complete(agreement, total, groups)
        found = doubts_of_total(replace(agreement, total=agreement.n), self.expected)
        found += doubts_of_groups(groups or {}, agreement.names, self.expected)
        return replace(agreement, warnings=(*agreement.warnings, *found))

    @property
    def expected(self) -> Expected:
        """What the method takes for granted of the parties' tables; else it warns."""
        return Expected()

    @property
    def knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge, None for methods without."""
        return None

    def initial_weights(self, agreement: Agreement, lags: int = 0) -> FloatArray | None:
        """Return the weights that the run was given to start from, stacked, (d (1 + p), d).

        Parameters
        ----------
        agreement : Agreement
        lags : int, default 0
            p.

        Returns
        -------
        ndarray or None
            None for the method's own start.

        Raises
        ------
        ConfigError
            If they have other shapes than the agreement and the lags.
        """
        if not self.initial:
            return None
        d = len(agreement.names)
        shapes = {"weights": (d, d), "lagged": (lags, d, d)}
        for name, array in self.initial.items():
            if array.shape != shapes[name]:
                raise ConfigError(
                    f"start(initial_arrays=...): '{name}' has the shape {array.shape}, not "
                    f"{shapes[name]} for the columns {', '.join(agreement.names)}: give a row and "
                    "a column for each of them, in this order."
                )
        lagged = self.initial.get("lagged", np.zeros(shapes["lagged"]))
        return np.concatenate([self.initial["weights"], *lagged])

    def annotated(self, state: Progress, graph: CausalGraph) -> CausalGraph:
        """Return the graph with the background knowledge about its edges."""
        knowledge = self.knowledge_or_none
        return graph.with_knowledge(knowledge) if knowledge else graph

    def warnings(self, state: Progress) -> list[str]:
        """Return what the user should know about the finished run; subclasses add to it."""
        return [*tier_warning(self.graph(state)), *super().warnings(state)]

    def metric_warnings(self, metrics: Mapping[str, Any]) -> list[str]:
        """Return what the user should know of the metrics, of test rows and of a query."""
        return []

    # Comparisons that need all rows in one place: for simulations.

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return what is found without a federation; None where there is nothing to compare with.

        By default these are runs of this method on the pooled rows, and on each party's rows.

        Parameters
        ----------
        tables : sequence of DataFrame
            The parties' tables.
        names : tuple of str
            The columns that the parties agreed on; empty for a method without a graph.
        run_alone : callable
            See :data:`~flwr_causal.strategies.base.RunAlone`.
        """
        import pandas as pd

        if self.data is DataKind.SERIES:  # rows of different series do not follow each other
            return None
        pooled = pd.concat(tables, ignore_index=True)
        return Baselines(run_alone(pooled), [run_alone(table) for table in tables])

    def pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return how good a graph is on the rows of all parties in one place, by name."""
        return {}

    # Flower's side.

    @property
    def _running(self) -> Progress:
        if self.state is None:
            raise self._not_started()
        return self.state

    def _not_started(self) -> FederationError:
        return FederationError(
            f"{type(self).__name__} has not been started. Call its start(grid=...), or that of a "
            "privacy wrapper around it."
        )

    @property
    def outcome(self) -> Outcome[Progress]:
        """The outcome of the latest run that the ``start`` of a privacy wrapper has gone through.

        Raises
        ------
        FederationError
            If there was none, or it ended before the method had finished; ``error.outcome`` then
            holds what was done.
        """
        name = type(self).__name__
        if self.stepwise is None:
            raise FederationError(
                f"No start of a strategy around {name} has run. After {name}'s own start the "
                "outcome is that of its result."
            )
        outcome: Outcome[Progress] = self.stepwise.outcome
        if outcome.status != "completed":
            error = FederationError(
                f"{name} has not finished after {outcome.rounds} exchanges "
                f"({outcome.error or 'the start has ended'}). It may need num_rounds="
                f"{self.max_rounds + self.exchanges_beyond}; Flower's default is 3."
            )
            error.outcome = outcome
            raise error
        return outcome

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Build the messages of an exchange.

        In the ``start`` of a privacy wrapper the first round begins with the schema exchange, and
        ``arrays`` is filled with what is sent.
        """
        if self.federation is not None and self.stepwise is None:  # in loop.run
            state = self._running
            if self.finished(state) is not None:
                return []
            request = self.asked or self.request(state)
            return self.messages(request, server_round, arrays, dict(config))
        if server_round == 1:
            if self.stepwise is not None:
                self.stepwise.end()
                self.stepwise = None
            self.stepwise = Stepwise(self, config, grid, arrays)
        if self.stepwise is None:
            raise self._not_started()
        return self.stepwise.configure(arrays, config)

    def _averaged(self, contents: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Return the metrics of the replies that FedAvg has averaged: those of the history."""
        return MetricRecord({}) if self.stepwise is None else self.stepwise.averaged(contents)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: a graph is judged by its metrics, not by a loss of the parties.

        In the ``start`` of a privacy wrapper ``arrays`` is the mean with its noise, on which the
        method takes its step, and is then filled with the weights of the graph so far.
        """
        if self.stepwise is not None:
            self.stepwise.evaluated(arrays)
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

        With the option ``output_dir`` the directory holds ``run.json`` (status, traffic, failures,
        warnings), ``history.jsonl`` and ``exchanges/``, from which the run can be resumed. Graph
        and model are in the result only, to be saved from there; ``simulate`` and ``flwr run``
        write their files too, also for a run of ``start`` that they resume.

        Parameters
        ----------
        grid : Grid
            Flower's grid.
        initial_arrays : ArrayRecord, optional
            A warm start of methods that send the parties weights (linear ``notears-admm``,
            ``2dbn``, and ``fedcausal`` with ``model="linear"``): ``weights`` (d, d), row causes
            column, and with lags ``lagged`` (p, d, d), in the units of the weights that the method
            returns with the same options. Others refuse it. To resume a run it is given again.
        evaluate_config : optional
            Refused: these methods evaluate on no party.
        num_rounds, timeout : int and float, optional
            Replace ``max_rounds`` and ``round_timeout``.
        train_config : ConfigRecord, optional
            Further plain values for the clients.
        evaluate_fn : callable, optional
            Called after each exchange with its number and the weights of the graph, as in Flower.

        Returns
        -------
        Result
            Flower's, with the graph and the rest in its attribute ``outcome``.

        Raises
        ------
        CausalError
            As :func:`flwr_causal.strategies.run`.
        """
        if evaluate_config is not None:
            raise ConfigError(
                f"start(evaluate_config=...) has no meaning for {type(self).__name__}; leave it "
                "out."
            )
        self.max_rounds = self.max_rounds if num_rounds is None else num_rounds
        self.round_timeout = self.round_timeout if timeout is None else timeout
        self.validate()
        result = CausalResult()

        def on_round(record: dict[str, Any]) -> None:
            number: int = record["round"]
            result.train_metrics_clientapp[number] = MetricRecord(numbers_of(record))
            if evaluate_fn is None:
                return
            metrics = evaluate_fn(number, weights_of(self.graph(self._running)))
            if metrics is not None:
                result.evaluate_metrics_serverapp[number] = metrics

        result.outcome = loop.run(
            self,
            grid,
            config=dict(train_config or {}),
            settle=loop.SETTLE_SECONDS,
            on_round=on_round,
            initial_arrays=records.unpack_arrays(initial_arrays) if initial_arrays else None,
        )
        result.arrays = weights_of(result.outcome.graph)
        return result
