"""The base of all strategies: the options that they share, and Flower's side of a method."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from flwr_causal.contract.answers import check_steps
from flwr_causal.core.arguments import shown
from flwr_causal.core.documented import with_parameters
from flwr_causal.core.options import require
from flwr_causal.core.parts import check_parts
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.data.kinds import DataKind
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.asked import OUTCOME, TREATMENT
from flwr_causal.reports.described import described
from flwr_causal.reports.run import Run
from flwr_causal.runtime import loop
from flwr_causal.runtime.method import UNSTATED, CausalMethod
from flwr_causal.runtime.options import (
    Baselines,
    CausalOptions,
)
from flwr_causal.runtime.outcome import CausalResult, numbers_of, weights_of
from flwr_causal.runtime.stepwise import Stepwise
from flwr_causal.secure.ring import not_a_sum
from flwr_causal.strategies.dictionary import check_private, with_dictionary
from flwr_causal.strategies.options import (
    check_names,
    check_options_type,
    refuse_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.read.reading import Reading
    from flwr_causal.runtime.outcome import Outcome

#: Runs the strategy on one table as a federation of one party, with some options changed; returns
#: the graph, or the model of a method without one; None if the table cannot be used.
RunAlone = Callable[..., Any]


class CausalStrategy(FedAvg, CausalMethod):
    """Base of all methods.

    A subclass sets ``contract``, and ``options_type`` to a frozen dataclass of its options; it
    implements :meth:`train`, a generator that reads as the paper's algorithm. Everything else, from
    the schema exchange to the entry of each exchange in the history, is done by
    :func:`flwr_causal.strategies.run`. Where the contract averages, ``aggregate_train`` is FedAvg's
    own, so that Flower's differential-privacy wrappers add their noise to the mean before the
    method's step.

    Parameters
    ----------
    **options
        The options, by name.

    Attributes
    ----------
    options_type : type of CausalOptions
    options : CausalOptions
        With the values that were left to the method filled in. As of Flower's strategies, each is
        also read as an attribute, unless a method has its name.

    Raises
    ------
    ConfigError
        If there is no option of a name, or it has the wrong type or an impossible value.

    Examples
    --------
    >>> from flwr_causal.strategies import CausalStrategy, Moments
    >>> strategy = Moments(solver="class")
    >>> isinstance(strategy, CausalStrategy), strategy.method, strategy.options.solver
    (True, 'moments', 'class')
    """

    _stepwise: Stepwise | None = None

    def __new__(cls, *positional: Any, **options: Any) -> Self:
        """Refuse a class whose options are its own fields."""
        refuse_fields(cls)
        return super().__new__(cls)

    def __init__(self, *positional: Any, **options: Any) -> None:
        if positional:
            raise ConfigError(
                f"{type(self).__name__} is given {shown(positional[0])} without a name; it takes "
                "options, by name. A client class goes to simulate(client=...) or client_app(...)."
            )
        check_names(type(self), options)
        self._given = self._stated = options
        self._decided, self._assumed = {}, ()
        self._settle(options)
        super().__init__(
            fraction_train=self.options.fraction_train,
            min_train_nodes=1,
            min_available_nodes=self.options.min_available_nodes,
            weighted_by_key=records.WEIGHT,
            arrayrecord_key=records.ARRAYS,
            configrecord_key=records.CONFIG,
            train_metrics_aggr_fn=self._averaged,
        )
        self._names = frozenset(self.options.by_name())

    if not TYPE_CHECKING:  # code that is checked by types reads ``options``

        def __getattr__(self, name: str) -> Any:
            """Return an option, as Flower's strategies have theirs as attributes."""
            if name in vars(self).get("_names", ()):
                return getattr(self.options, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to set an option as an attribute, which would have no effect."""
        if name in vars(self).get("_names", ()):
            raise ConfigError(
                f"'{name}' is an option: with_options({name}=...) of the strategy returns one with "
                "another value."
            )
        super().__setattr__(name, value)

    def _settle(self, given: Mapping[str, Any]) -> None:
        """Set the options that were given, fill in the others and check them all."""
        self.options = self.options_type(**given)
        path = self.options.dictionary
        self._entries = Dictionary.read(path) if path else None
        if self._entries is not None:
            self.options = with_dictionary(self, self._entries)
        self.options = self.options.settled()
        self.validate()

    def __repr__(self) -> str:
        """Return the strategy with the options that were given."""
        given = ", ".join(f"{name}={shown(value)}" for name, value in self._given.items())
        return f"{type(self).__name__}({given})"

    def __init_subclass__(cls, **further: Any) -> None:
        super().__init_subclass__(**further)
        bases = [one for one in cls.__bases__ if issubclass(one, CausalStrategy)]
        check_options_type(cls, [one.options_type for one in bases])
        _document(cls)

    def with_options(self, **changes: Any) -> Self:
        """Return a strategy with some options changed; what was left out is settled anew."""
        other = copy.copy(self)
        del vars(other)["_names"]
        CausalStrategy.__init__(other, **{**self._given, **changes})
        return other

    def _decide(self, decided: Mapping[str, Any], assumed: tuple[str, ...]) -> None:
        """Let the options be those that were given, with other values of some that are left open.

        The strategy is then as if these values had been given with the others. The next run begins
        with the options as they were given.
        """
        if decided != self._decided:
            self._given = {**self._stated, **decided}
            self._settle(self._given)
        self._decided, self._assumed = dict(decided), assumed

    def validate(self) -> None:
        """Check that the options fit each other; subclasses extend it.

        Raises
        ------
        ConfigError
            With the option's name and what is allowed.
        """
        require(
            not self.options.resume or bool(self.options.output_dir),
            "resume",
            self.options.resume,
            "given with output_dir",
        )
        fits = self.options.resample != "parties" or self.options.replicates > 0
        require(fits, "resample", self.options.resample, "'auto' or 'rows' without replicates")
        fits = self.options.resample != "parties" or self.options.fraction_train == 1
        require(fits, "resample", self.options.resample, "'auto' or 'rows' with fraction_train")
        check_parts(self.options, self._parts)
        check_steps(type(self), self.run)
        if self.options.secure_aggregation:
            self._check_sums()
        if self.options.private and self._entries is not None:
            check_private(self._entries, self.options.text_columns)

    def _check_sums(self) -> None:
        """Check that everything that leaves a party is a sum."""
        reasons = [not_a_sum(exchange) for exchange in self._exchanges]
        reason = next(filter(None, reasons), "")
        if reason:
            raise ConfigError(
                f"The option 'secure_aggregation' is True, but not all that {type(self).__name__} "
                "sends with "
                f"these options is a sum: {reason}. docs/security.md lists the methods and options "
                "that have it."
            )

    @property
    def _exchanges_at_most(self) -> int | None:
        """How many exchanges the training has at most; None if the method does not say."""
        beyond = self.exchanges_beyond
        return None if beyond == UNSTATED else self.options.max_rounds + beyond

    @property
    def data(self) -> DataKind:
        """Which tables the method is for; a subclass may state it as a class attribute."""
        return DataKind.LINEAR

    @property
    def _reading(self) -> Reading:
        """How the parties' tables are read."""
        return self.handling.reading.for_options(self.options)

    def _accepts(self, changes: Mapping[str, Any]) -> bool:
        """Return whether the method has these options beside the others that were given."""
        try:
            self.with_options(**changes)
        except ConfigError:
            return False
        return True

    def _initial_weights(self, agreement: Agreement, lags: int = 0) -> FloatArray | None:
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
        if not self._initial:
            return None
        d = len(agreement.names)
        shapes = {"weights": (d, d), "lagged": (lags, d, d)}
        for name, array in self._initial.items():
            if array.shape != shapes[name]:
                raise ConfigError(
                    f"start(initial_arrays=...): '{name}' has the shape {array.shape}, not "
                    f"{shapes[name]} for the columns {', '.join(agreement.names)}: give a row and "
                    "a column for each of them, in this order."
                )
        lagged = self._initial.get("lagged", np.zeros(shapes["lagged"]))
        return np.concatenate([self._initial["weights"], *lagged])

    def _as_run(self, outcome: Outcome) -> Run:
        """Return an outcome as a :class:`~flwr_causal.reports.run.Run`."""
        run = Run.of(outcome, about=described(self))
        if self._entries is not None:
            roles = {role: self._entries.of_role(role) for role in (TREATMENT, OUTCOME)}
            run.config |= {role: name for role, name in roles.items() if name}
        return run

    def _write(self, outcome: Outcome, *, resumable: bool) -> None:
        """Write the results of a run into its ``output_dir``."""
        assert self.options.output_dir
        outcome.run.save(self.options.output_dir, influence=False, resumable=resumable)

    def _metric_warnings(self, metrics: Mapping[str, Any]) -> list[str]:
        """Return what the user should know of the metrics, of test rows and of a query."""
        return []

    # Comparisons that need all rows in one place: for simulations.

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the results without a federation; None where there is nothing to compare with.

        By default these are the graphs that the options find faster, or runs of this method on the
        pooled rows, and on each party's rows.

        None for time series, whose baselines are in ``benchmarks/baselines.py``, and
        with differential privacy, which the rows of all in one place ignore.

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

        if self.options.private or self.data is DataKind.SERIES:
            return None
        found = self.options.baselines(tables, names, self.handling)
        if found is not None:
            return found
        pooled = pd.concat(tables, ignore_index=True)
        return Baselines(run_alone(pooled), [run_alone(table) for table in tables])

    def _pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return metrics of a graph on the pooled rows, by name."""
        return {}

    # Flower's side.

    def _not_started(self) -> FederationError:
        return FederationError(
            f"{type(self).__name__} has not been started. Call its start(grid=...), or that of a "
            "privacy wrapper around it."
        )

    @property
    def outcome(self) -> Outcome:
        """The outcome of the latest run that the ``start`` of a privacy wrapper has gone through.

        Raises
        ------
        FederationError
            If there was none, or it ended before the method had finished; ``error.outcome`` then
            holds what was done.
        """
        name = type(self).__name__
        if self._stepwise is None:
            raise FederationError(
                f"No start of a strategy around {name} has run. After {name}'s own start the "
                "outcome is that of its result."
            )
        outcome: Outcome = self._stepwise.outcome
        if outcome.status != "completed":
            error = FederationError(
                f"{name} has not finished after {outcome.rounds} exchanges "
                f"({outcome.error or 'the start has ended'}). It may need num_rounds="
                f"{self.options.max_rounds + self.exchanges_beyond}; Flower's default is 3."
            )
            error.outcome = outcome
            raise error
        return outcome

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Build the messages of an exchange.

        In the ``start`` of a privacy wrapper the first round begins with the schema exchange, and
        ``arrays`` is filled with the sent arrays.
        """
        if self._federation is not None and self._stepwise is None:  # in loop.run
            return [] if self._round is None else self._round.messages(arrays, dict(config))
        if server_round == 1:
            if self._stepwise is not None:
                self._stepwise.end()
                self._stepwise = None
            self._stepwise = Stepwise(self, config, grid, arrays)
        if self._stepwise is None:
            raise self._not_started()
        return self._stepwise.configure(arrays, config)

    def _averaged(self, contents: list[RecordDict], weighted_by: str) -> MetricRecord:
        """Return FedAvg's means of the replies' metrics, for the history."""
        return MetricRecord({}) if self._stepwise is None else self._stepwise.averaged(contents)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: a graph is judged by its metrics, not by a loss of the parties.

        In the ``start`` of a privacy wrapper ``arrays`` is the mean with its noise, on which the
        method takes its step, and is then filled with the weights of the graph so far.
        """
        if self._stepwise is not None:
            self._stepwise.evaluated(arrays)
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

        With the option ``output_dir`` the directory holds in the end what ``Run.save`` writes, for
        ``Run.load``, and ``exchanges/``, from which the run can be resumed. ``result.outcome.run``
        is the run in memory, with ``save`` and ``report``.

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
            As in Flower: called before the first exchange with 0 and the initial arrays (without
            these an empty record), and after each exchange with its number and the weights of the
            graph so far, ``weights`` (d, d), or an empty record where there is none yet. What it
            returns, a MetricRecord or None, is kept in ``result.evaluate_metrics_serverapp``. An
            error in it ends the run.

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
        given: dict[str, Any] = {"max_rounds": num_rounds, "round_timeout": timeout}
        given = {name: value for name, value in given.items() if value is not None}
        try:
            self._settle({**self._given, **given})
        except ConfigError as error:
            raise ConfigError(_of_start(str(error), given)) from error
        result = CausalResult()

        def on_round(entry: dict[str, Any]) -> None:
            number: int = entry["round"]
            result.train_metrics_clientapp[number] = MetricRecord(numbers_of(entry))
            evaluate(number, weights_of(self.state.result.graph if self.state else None))

        def evaluate(number: int, arrays: ArrayRecord) -> None:
            metrics = None if evaluate_fn is None else evaluate_fn(number, arrays)
            if metrics is not None:
                result.evaluate_metrics_serverapp[number] = metrics

        evaluate(0, initial_arrays or ArrayRecord())
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


def _of_start(message: str, given: Mapping[str, Any]) -> str:
    """Return a message about options with the names that ``start`` has for those given there."""
    for option, argument in (("max_rounds", "num_rounds"), ("round_timeout", "timeout")):
        if option in given:
            message = message.replace(
                f"The option '{option}' is", f"start({argument}=...), the option '{option}', is"
            )
    return message


def _document(strategy: Any) -> None:
    """Give a class of strategies the signature and the parameters that help() and editors show."""
    strategy.__signature__ = inspect.signature(strategy.options_type)
    doc = inspect.getdoc(strategy) or ""
    strategy.__doc__ = with_parameters(doc, strategy.options_type, CausalOptions)


_document(CausalStrategy)
