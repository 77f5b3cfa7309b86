"""Flower's own way in: ``strategy.start(grid=...)`` and the ``Result`` that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result

from flwr_causal.protocol import records
from flwr_causal.runtime.loop import Outcome, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.serverapp import Grid

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.runtime.method import Method

SETTLE_SECONDS = 1.0


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

    outcome: Outcome[Any] = field(default_factory=Outcome)


def start(
    method: Method[Any],
    grid: Grid,
    *,
    train_config: ConfigRecord | None = None,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
) -> CausalResult:
    """Run the method and dress the outcome as Flower's ``Result``; see ``CausalStrategy.start``."""
    result = CausalResult()

    def on_round(record: dict[str, Any]) -> None:
        numbers: dict[str, records.Number] = {
            name: value for name, value in record.items() if isinstance(value, int | float)
        }
        result.train_metrics_clientapp[record["round"]] = MetricRecord(numbers)
        if evaluate_fn is None:
            return
        metrics = evaluate_fn(record["round"], _weights(method.graph(method.state)))
        if metrics is not None:
            result.evaluate_metrics_serverapp[record["round"]] = metrics

    result.outcome = run(
        method,
        grid,
        config=dict(train_config or {}),
        settle=SETTLE_SECONDS,
        on_round=on_round,
    )
    result.arrays = _weights(result.outcome.graph)
    return result


def _weights(graph: CausalGraph | None) -> ArrayRecord:
    return records.pack_arrays({} if graph is None else {"weights": graph.weights})
