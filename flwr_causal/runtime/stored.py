"""The entries of ``run.json`` and ``history.jsonl``, as they are written and checked when read."""

from __future__ import annotations

from typing import Any, Never, TypedDict

from flwr_causal.core.interventions.targets import TargetEntry
from flwr_causal.runtime.influence import Change


class FailureEntry(TypedDict):
    """A reply that is missing in an exchange.

    Attributes
    ----------
    round : int
        The number of the exchange.
    party, reason : str
    """

    round: int
    party: str
    reason: str


class NumberedEntry(TypedDict):
    """What has the number of an exchange."""

    round: int


class ExchangeEntry(NumberedEntry, total=False):
    """The entry of an exchange in the history; a method adds keys of its own.

    Attributes
    ----------
    round : int
        Its number.
    exchange : str
        Its name.
    parties : int
        How many replies were used.
    seconds : float
    bytes_sent, bytes_received : int
        Of all parties together.
    party_bytes_sent, party_bytes_received : int or dict of str to int
        Of each party: one number where all are equal.
    party_seconds : dict of str to float
        By party, until its reply.
    started_again : object
        There where the training started again after the exchange.
    without_groups : list of str
        Groups of parties that are missing.
    common_causes : list of [str, str]
        Pairs of variables that are likely to have a hidden common cause, where any are.
    unstable_edges, edges : int
        How many edges were left out as unstable, and of how many, where it is worth telling.
    """

    exchange: str
    parties: int
    seconds: float
    bytes_sent: int
    bytes_received: int
    party_bytes_sent: int | dict[str, int]
    party_bytes_received: int | dict[str, int]
    party_seconds: dict[str, float]
    started_again: Any
    without_groups: list[str]
    common_causes: list[list[str]]
    unstable_edges: int
    edges: int


class GuaranteeEntry(TypedDict):
    """A guarantee of differential privacy; a mechanism adds keys of its own.

    Attributes
    ----------
    epsilon, delta : float
    unit, against, mechanism : str
        What is protected, against whom, and by what.
    noise_multiplier : float
        Standard deviation of the noise in units of the sensitivity.
    effective_rows : int
        Rows without noise that the noisy moments are worth.
    scales : dict of str to tuple of two float
        Column to centre and scale.
    estimated_scales : list of str
        Columns whose scale was estimated.
    """

    epsilon: float
    delta: float
    unit: str
    against: str
    mechanism: str
    noise_multiplier: float
    effective_rows: int
    scales: dict[str, tuple[float, float]]
    estimated_scales: list[str]


class StoredColumn(TypedDict, total=False):
    """What is known of a column: its kind; and mean and standard deviation over all rows."""

    kind: str
    mean: float | None
    deviation: float | None


class CalibrationEntry(TypedDict):
    """How often predictions of about one probability are right, in how many rows."""

    probability: float
    right: float
    rows: float


class ScoreEntry(TypedDict, total=False):
    """Metrics that reports show; beside these keys are others."""

    shd: float
    cpdag_shd: float
    smhd: float
    tpr: float
    fdr: float
    lagged_shd: float
    adjacency_recall: float
    adjacency_precision: float
    log_likelihood: float
    accuracy: float
    majority: float
    macro_f1: float
    auroc: float
    solver: str
    calibration: list[CalibrationEntry]


class MetricsEntry(ScoreEntry, total=False):
    """Metrics of a run, of the pooled rows, of each party alone (means), and of a query."""

    pooled: ScoreEntry | None
    alone: ScoreEntry | None
    query: ScoreEntry | None


class LeafEntry(TypedDict):
    """What leaves a party in an exchange."""

    name: str
    meaning: str
    shape: list[Any]
    combine: str
    rows: str


class ContractEntry(TypedDict):
    """An exchange of the method's contract."""

    name: str
    leaves: list[LeafEntry]


class AboutEntry(TypedDict, total=False):
    """What the docstring and the contract of the method say."""

    summary: str
    description: str
    references: list[str]
    exchanges: list[ContractEntry]


#: The forms of the entries of ``run.json`` that reports look into, and of the history.
FORMS: dict[str, Any] = {
    "about": AboutEntry,
    "columns": dict[str, StoredColumn],
    "failures": list[FailureEntry],
    "history": list[ExchangeEntry],
    "influence": dict[str, Change],
    "metrics": MetricsEntry,
    "targets": list[TargetEntry] | None,
    "privacy": GuaranteeEntry | dict[str, Never],
}
