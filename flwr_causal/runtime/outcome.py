"""What a run returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from flwr.serverapp.strategy import Result

from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.runtime.influence import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pandas as pd
    from flwr.app import ArrayRecord
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.federation import Failure, Federation, Party
    from flwr_causal.runtime.training import Training

    Entry = dict[str, Any]


@dataclass
class Outcome:
    """The result of a run; after an error, the result up to the last exchange.

    Parameters
    ----------
    history : list of dict
        One entry an exchange: ``round`` (its number), ``exchange`` (its name), ``seconds``,
        ``parties``, ``bytes_sent``, ``bytes_received`` and the method's own diagnostics. By
        party's name there are ``party_bytes_sent``, ``party_bytes_received`` (a number if it is the
        same for all that were asked, or that replied) and ``party_seconds`` until the reply.
    stop_reason : str
        Why the run ended, in words.
    num_rows : int or None
        Rows of all parties together, where that is not the sum of their numbers of rows.
    groups : dict of str to list of str
        By name, the parties of each group that adds up securely by itself; empty without groups.
    answered : dict of str to int
        By party, in how many exchanges its reply was used since the training last started.
    tables : dict of str to str
        By party, the digest of its report on its table, by which a completed run that is asked for
        again with ``resume`` is of the same tables.
    lost : dict of str to int
        By party of which a reply is missing in the result, its number of rows; 0 where these are
        withheld.
    schema_bytes : int
        Bytes of the schema exchange, both ways, of the agreement that is sent with a party's first
        message, and of the earlier requests that parties are sent when a run is resumed.
    config : dict
        The method's id and its options, as plain values; of a run with one of Flower's wrappers
        around the method also ``wrapper``, its name.
    status : {"running", "completed", "failed", "stopped"}
        "failed" after an error, "stopped" where the process was interrupted.
    disagreement : DataFrame or None
        What differs at single parties, see :mod:`core.blocks.disagreement`; None where the sums of
        each party are not known.
    influence : dict of str to Change
        The change of the graph when one party's reply is left out, by party; computed when it is
        first read. See :class:`flwr_causal.runtime.influence.Change`. Empty where it is not known:
        in runs of more than one exchange, or under a privacy wrapper.
    as_run : callable
        Returns the run of an outcome, see :attr:`run`.
    """

    history: list[Entry] = field(default_factory=list)
    stop_reason: str = ""
    schema_bytes: int = 0
    seconds: float = 0.0
    graph: CausalGraph | None = None
    model: Any = None
    scores: NDArray[np.float64] | None = None
    heterogeneity: Heterogeneity | None = None
    state: Training | None = None
    agreement: Agreement | None = None
    parties: tuple[Party, ...] = ()
    num_rows: int | None = None
    groups: dict[str, list[str]] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    warnings: list[str] = field(default_factory=list)
    privacy: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    status: Literal["running", "completed", "failed", "stopped"] = "running"
    as_run: Callable[[Outcome], Any] | None = field(default=None, repr=False)
    disagreement: pd.DataFrame | None = None
    influence: Deferred = Deferred()  # noqa: RUF009 - a descriptor, as dataclasses know them

    @property
    def run(self) -> Any:
        """The run that ``simulate`` returns: to be printed, saved, loaded and shown as a page.

        Raises
        ------
        FederationError
            If no run has begun.
        """
        if self.as_run is None:
            raise FederationError("This outcome is of no run: take that of a strategy's start.")
        return self.as_run(self)

    @property
    def rounds(self) -> int:
        """Exchanges after the schema exchange."""
        return len(self.history)

    @property
    def restarts(self) -> int:
        """How often the training has started again."""
        return sum("started_again" in entry for entry in self.history)

    @property
    def bytes_sent(self) -> int:
        """Bytes from the server to the parties, all together, schema exchange excluded."""
        return sum(entry["bytes_sent"] for entry in self.history)

    @property
    def bytes_received(self) -> int:
        """Bytes from the parties to the server, all together, schema exchange excluded."""
        return sum(entry["bytes_received"] for entry in self.history)

    def note_failures(self, federation: Federation) -> None:
        """Set `failures`, and which parties the result lacks.

        Failures before the training last started count only of parties without which it started,
        and a failure after which the reply could still be used does not count.
        """
        self.failures = tuple(federation.failures)
        started = [one["round"] for one in self.history if "started_again" in one]
        last = max(started, default=0)
        times = sum(one["round"] > last for one in self.history)
        names = [
            failure.party
            for failure in self.failures
            if failure.party not in self.answered
            or (failure.server_round > last and self.answered[failure.party] < times)
        ]
        for entry in self.history:
            for group in entry.get("without_groups", ()):
                names += self.groups.get(group, ()) if entry["round"] > last else ()
        # The reports of parties without which the training started again are gone.
        rows = self.lost | {name: report.rows for name, report in federation.reports.items()}
        self.lost = {name: rows.get(name, 0) for name in names}

    def summary(self) -> dict[str, Any]:
        """Return status, traffic, parties, failures and warnings, as plain values."""
        traffic = ("rounds", "bytes_sent", "bytes_received", "schema_bytes", "seconds")
        return {
            **{
                name: getattr(self, name)
                for name in (
                    "status",
                    *traffic,
                    "stop_reason",
                    "num_rows",
                    "privacy",
                    "warnings",
                    "error",
                )
            },
            "parties": {party.name: party.num_rows for party in self.parties},
            "groups": self.groups,
            "answered": self.answered,
            "lost": self.lost,
            "tables": self.tables,
            "failures": [
                {"round": one.server_round, "party": one.party, "reason": one.reason}
                for one in self.failures
            ],
        }


@dataclass(repr=False)
class CausalResult(Result):
    """Flower's ``Result`` with the outcome of the run beside it.

    Parameters
    ----------
    arrays : ArrayRecord
        The weights of the graph; empty where the method has none.
    train_metrics_clientapp : dict of int to MetricRecord
        The numbers of the history, by round.
    evaluate_metrics_serverapp : dict of int to MetricRecord
        What ``evaluate_fn`` returned, by round.
    outcome : Outcome
        Graph, history, stop reason and the rest.
    """

    outcome: Outcome = field(default_factory=Outcome)


def numbers_of(entry: Entry) -> dict[str, records.Number]:
    """Return the numbers of an exchange's entry, as Flower keeps metrics."""
    return {name: value for name, value in entry.items() if isinstance(value, int | float)}


def weights_of(graph: CausalGraph | None) -> ArrayRecord:
    """Return the weights of a graph as Flower's strategies return arrays; empty without a graph."""
    return records.pack_arrays({} if graph is None else {"weights": graph.weights})
