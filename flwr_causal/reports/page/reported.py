"""The properties of a run that its page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph


class Reported(Protocol):
    """What `payload_of` reads; `flwr_causal.reports.run.Run` has it."""

    graph: CausalGraph | None
    truth: CausalGraph | None
    history: list[dict[str, Any]]
    rounds: int
    bytes_sent: int
    bytes_received: int
    schema_bytes: int
    seconds: float
    stop_reason: str
    metrics: dict[str, Any]
    config: dict[str, Any]
    model: Any
    parties: dict[str, int]
    heterogeneity: pd.DataFrame | None
    answers: pd.DataFrame | None
    answered: dict[str, int]
    failures: list[dict[str, Any]]
    warnings: list[str]
    error: str
    status: str
    columns: dict[str, dict[str, Any]]
    about: dict[str, Any]
    versions: dict[str, str]

    @property
    def total_rows(self) -> int:
        """Rows of all parties together."""
