"""The result of a run once it has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import printable
from flwr_causal.runtime.influence import Deferred

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.interventions.targets import TargetEntry

VERSIONED = ("flwr-causal", "flwr", "numpy", "scipy", "networkx", "pandas")


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages on which a result depends."""
    return {name: _version(name) for name in VERSIONED}


@cache  # reading a package's metadata takes longer than a small exchange
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def privacy_line(privacy: dict[str, Any]) -> str:
    """Return the guarantee of differential privacy in one line."""
    return (
        f"Differential privacy: epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g}, for "
        f"{privacy['unit']}; against {privacy['against']}"
    )


@dataclass(repr=False)
class RunResult:
    """The result of a run.

    Parameters
    ----------
    graph : CausalGraph or None
        None for methods that learn no graph.
    history : list of dict
        One entry for each exchange.
    rounds : int
        Exchanges after the schema exchange.
    bytes_sent, bytes_received : int
        Server to parties and back, all parties together, schema exchange excluded.
    schema_bytes : int
        Bytes of the schema exchange, both ways.
    seconds : float
        From the schema exchange to the graph.
    stop_reason : str
        Why the run ended.
    metrics : dict
        Comparison with the truth, where it is known: SHD, TPR, FDR and more. Under ``pooled`` are
        the metrics of the pooled rows' graph, under ``alone`` the mean of each party's own.
    scores : ndarray of shape (d, d) or None
        Strength of every edge before the threshold, for ranking.
    config : dict
        Method and options as they were given; under "assumed" the values of those that were left
        open.
    model : object or None
        The fitted model: a linear system (with lags for time series), a Bayesian network or a
        circuit. It is saved with the run if its class has ``save(path)`` and a class method
        ``load(path)``.
    parties : dict of str to int
        Name and number of rows of each party, 0 where it withholds them (``secure_aggregation``).
    sources : dict of str to str
        By party of a simulation, the file that it read; empty where there are none, and on real
        nodes, whose files the server does not know.
    num_rows : int or None
        Rows of all parties together, if this is not the sum of ``parties``: for parties that hold
        different columns of the same rows it is the number of different ids.
    local_graphs : dict of str to CausalGraph
        By party, with the option ``local_graphs``: the graph of highest evidence on its own rows
        (``fedcausal``), or the common graph with the differences beyond chance (``moments``).
    heterogeneity : DataFrame or None
        One row for each party and edge, with ``local_graphs``; see
        :func:`flwr_causal.core.nonlinear.heterogeneity.edge_table`.
    targets : list of dict or None
        With the option ``unknown_targets``, one entry for each party (or group) and variable that
        it acts on, the clearest first; see
        :class:`flwr_causal.core.interventions.targets.TargetEntry`. None without the option.
    answers : DataFrame or None
        The answers of a fitted circuit on the rows that the run config's ``query`` names.
    groups : dict of str to list of str
        By name, the parties of each group that adds up by itself (option ``groups``); else empty.
        What is by party elsewhere (``influence``, ``disagreement``) is then by group.
    answered : dict of str to int
        By party, in how many exchanges its reply was used since the training last started.
    lost : dict of str to int
        By party of which a reply is missing in the result, its number of rows (0 where it withholds
        them): it was left out of an exchange, or the training started again without it. Empty if
        the result is that of all parties.
    tables : dict of str to str
        By party, the digest of its report on its table; empty in runs of earlier versions.
    failures : list of dict
        Parties whose reply is missing in an exchange: ``round`` (its number), ``party``,
        ``reason``.
    warnings : list of str
        What the user should know.
    error : str
        Why the run failed; empty if it did not.
    status : str
        "completed"; "failed" after an error; "stopped" if the process was interrupted; "running"
        during the run, and after the process was killed.
    influence : dict of str to dict
        By party, the change of the graph when it is left out: ``changed_edges`` (edges that appear,
        vanish or turn), ``changes`` (the same in words), ``largest_change`` (of a weight),
        ``distance`` (how far its second moments are from the others': about 1 for parties that
        differ by sampling alone; None where unknown). Known with the option ``leave_one_out``, and
        where the graph follows from one exchange of averages (``moments``), for at most
        ``max(3, 1000 // d)`` parties, those of the largest distances; else empty. In the latter
        case it is computed when it is first read, by solving once more for each party.
    disagreement : DataFrame or None
        How the effects along the edges, the means and the standard deviations of each party differ
        from those of all others, the largest differences first; see
        :func:`flwr_causal.core.linear.parties.disagreement`. Known where each party's second
        moments are (``moments``, ``lingam``); they are not under secure aggregation.
    privacy : dict
        The guarantee of differential privacy, where there is one: ``epsilon``, ``delta``, ``unit``
        (what is protected), ``against`` (whom), ``mechanism``, ``noise_multiplier`` (the standard
        deviation of the noise in units of the ``sensitivity``), ``clipping_norm``, ``scales``
        (column to centre and scale) and more; see docs/differential_privacy.md. Else empty.
    truth : CausalGraph or None
        The true graph, where it is known.
    columns : dict of str to dict
        By agreed column, its ``kind`` and, where the parties reported sums, ``mean`` and
        ``deviation`` (the standard deviation) over all rows.
    about : dict
        What the docstring and the contract of the method say, see
        :func:`flwr_causal.reports.described.described`; empty in runs saved before it was kept.
    versions : dict of str to str
        Versions of the packages that matter, of the process that made the run.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> run = simulate("moments", federated_linear(3, 200, 2)[0])
    >>> run.parties, run.rounds
    ({'party 0': 100, 'party 1': 100}, 1)
    """

    graph: CausalGraph | None
    history: list[dict[str, Any]]
    rounds: int
    bytes_sent: int
    bytes_received: int
    schema_bytes: int
    seconds: float
    stop_reason: str
    metrics: dict[str, Any] = field(default_factory=dict)
    scores: FloatArray | None = None
    config: dict[str, Any] = field(default_factory=dict)
    model: Any = None
    parties: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    num_rows: int | None = None
    local_graphs: dict[str, CausalGraph] = field(default_factory=dict)
    heterogeneity: pd.DataFrame | None = None
    disagreement: pd.DataFrame | None = None
    targets: list[TargetEntry] | None = None
    answers: pd.DataFrame | None = None
    groups: dict[str, list[str]] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    status: str = "completed"
    privacy: dict[str, Any] = field(default_factory=dict)
    truth: CausalGraph | None = None
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=installed_versions)
    tables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.error and self.status == "completed":
            self.status = "failed"

    influence: Deferred = Deferred()  # noqa: RUF009 - a descriptor, as dataclasses know them

    @property
    def unsigned(self) -> bool:
        """Whether the graph's weights are strengths without a sign, as of nonlinear models.

        Weights among categories have no sign either. A PAG of categories alone has no model.
        """
        if self.graph is not None and self.graph.kind == "pag" and self.model is None:
            return True
        linear = self.config.get("model", "linear") == "linear"
        return not linear or self.decided_config.get("text_columns") == "keep"

    @property
    def decided_config(self) -> dict[str, Any]:
        """Method and options, with the values that were assumed for options left open."""
        given = {name: value for name, value in self.config.items() if name != "assumed"}
        assumed: dict[str, Any] = self.config.get("assumed", {})
        return given | assumed

    @property
    def total_rows(self) -> int:
        """Rows of all parties together, or different ids where parties hold different columns."""
        return sum(self.parties.values()) if self.num_rows is None else self.num_rows


def status_in_words(run: RunResult) -> str:
    """Return the status of a run, and which parties its result lacks."""
    return printable(f"{run.status} {lost_in_words(run)}".strip())


def lost_in_words(run: RunResult) -> str:
    """Return which parties the result of a run lacks, and how many rows; "" for none."""
    if not run.lost:
        return ""
    rows_of = {**run.parties, **run.lost}
    known = run.num_rows is None and all(rows_of.values())
    total = f" of {sum(rows_of.values()):,}" if known else ""
    started = [one["round"] for one in run.history if "started_again" in one]
    exchanges = run.rounds - max(started, default=0)
    none, some = [], []
    for name, rows in run.lost.items():
        times = run.answered.get(name, 0)
        about = [run.sources.get(name, ""), f"{rows:,}{total} rows" if rows else ""]
        own = ", ".join(filter(None, about))
        said = f"{name} ({own})" if own else name
        if times:
            some.append(f"{said}, which took part in {times} of {exchanges} exchanges")
        else:
            none.append(said)
    parts = [f"without {', '.join(none)}"] if none else []
    parts += [f"without some replies of {'; '.join(some)}"] if some else []
    return " and ".join(parts)
