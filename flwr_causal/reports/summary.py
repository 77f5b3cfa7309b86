"""The summary of a run as lines of text, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import printable
from flwr_causal.reports.asked import answer, asked_of
from flwr_causal.reports.edges import describe_graph
from flwr_causal.reports.result import privacy_line, status_in_words
from flwr_causal.reports.run import TABLE_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.interventions.targets import TargetEntry
    from flwr_causal.reports.run import Run

# The metrics that are shown for DAGs and for CPDAGs, by the names that they have in
# `run.metrics` and in the JSON line, and their conventions.
DAGS = ("shd", "tpr", "fdr")
CLASSES = ("cpdag_shd", "smhd", "adjacency_recall", "adjacency_precision")
CONVENTIONS = {
    "shd": "shd: pairs of variables whose edge is wrong; a reversed edge counts once",
    "cpdag_shd": "cpdag_shd: shd between the CPDAGs, smhd: between the moral graphs",
}
# For circuits, on held-out rows.
CIRCUITS = {
    "log_likelihood": "nats a row",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
}
# Number formats of the metrics of graphs; metrics of circuits have three digits.
DIGITS = dict.fromkeys(("shd", "cpdag_shd", "smhd"), ".1f") | dict.fromkeys(
    ("tpr", "fdr", "adjacency_recall", "adjacency_precision"), ".2f"
)

# Disagreements below this many nats (a factor of 20 in probability) are not shown.
CLEAR = 3.0
MOST_SHOWN = 3
MOST_PARTIES = 30
CHANGES = {"same": "without", "absent": "without", "reversed": "turned", "additional": "with"}


def describe_run(run: Run) -> list[str]:
    """Return the lines that describe a finished run."""
    method = run.config.get("method", "run")
    lines = [run.headline, f"{method}, {status_in_words(run)}: {run.stop_reason}"]
    if run.graph is not None:
        lines += describe_graph(run.graph, signed=not run.unsigned)
    if (asked := asked_of(run)) is not None:
        lines += answer(run, *asked)
    lines += describe_targets(run.targets)
    if run.heterogeneity is not None:
        lines += describe_heterogeneity(run.heterogeneity)
    lines += _comparison(run.metrics)
    lines += [
        f"Exchanges {run.rounds}, {run.seconds:.1f} s, {len(run.parties)} parties, "
        f"{run.total_rows} rows",
        f"Bytes to each party {run.bytes_sent // max(len(run.parties), 1):,}, "
        f"from each party {run.bytes_received // max(len(run.parties), 1):,} "
        f"(schema exchange, all together: {run.schema_bytes:,})",
    ]
    lines += [
        f"Left out in exchange {one['round']}: {one['party']} ({one['reason']})"
        for one in run.failures
    ]
    failed = {failure["party"] for failure in run.failures}
    lines += [
        f"{party} took part in {number} of {max(run.answered.values())} exchanges"
        for party, number in run.answered.items()
        if party in failed
    ]
    lines += [privacy_line(run.privacy)] if run.privacy else []
    lines += [f"Note: {warning}" for warning in run.warnings]
    return [printable(line) for line in lines]


def describe_targets(targets: Sequence[TargetEntry] | None) -> list[str]:
    """Return a line for each party: the variables that it acts on, and how clearly in nats."""
    if targets is None:
        return []
    parties: dict[str, list[str]] = {}
    for one in targets:
        share = f", {one['confidence']:.0%} of replicates" if "confidence" in one else ""
        said = f"{one['variable']} ({one['gain']:+.0f}{share})"
        parties.setdefault(one["party"], []).append(said)
    lines = [f"  {party} acts on {', '.join(own)}" for party, own in parties.items()]
    if len(lines) > MOST_PARTIES:
        more = f"  ... and {len(lines) - MOST_PARTIES} more; see run.targets"
        lines = [*lines[:MOST_PARTIES], more]
    head = "What parties act on (gain of a mechanism of their own, nats)"
    return [head, *lines] if lines else ["No party acts on a variable"]


def describe_heterogeneity(table: pd.DataFrame) -> list[str]:
    """Return a line for each party: how many common edges it supports, and where it disagrees."""
    if table.empty:
        return []
    lines = ["Own graphs of the parties (evidence in nats; 3 is a factor of 20)"]
    parties = list(table.groupby("party", sort=False))
    for party, edges in parties[:MOST_PARTIES]:
        common = edges[edges["common"]]
        clear = edges[edges["disagreement"] > CLEAR]
        strongest = clear.head(MOST_SHOWN).to_dict("records")
        shown = [
            f"{CHANGES[row['own']]} {row['cause']} -> {row['effect']} ({row['disagreement']:+.0f})"
            for row in strongest
        ]
        if len(clear) > MOST_SHOWN:
            shown.append(f"{len(clear) - MOST_SHOWN} more")
        supported = int((common["support"] > 0).sum())
        lines.append(
            f"  {party} supports {supported} of {len(common)} common edges"
            + ("; more probable " if shown else "")
            + ", ".join(shown)
        )
    if len(parties) > MOST_PARTIES:
        lines.append(f"  ... and {len(parties) - MOST_PARTIES} more; see {TABLE_FILE}")
    return lines


def _comparison(metrics: dict[str, Any]) -> list[str]:
    """Return a table of metrics of the run, of the pooled rows, and of each party alone."""
    solver = f" ({metrics['solver']})" if metrics.get("solver") else ""
    rows = {
        "together, federated": metrics,
        f"all rows pooled{solver}": metrics.get("pooled"),
        "each party alone (mean)": metrics.get("alone"),
    }
    if "shd" in metrics:
        present = [row for row in rows.values() if row]
        columns = DAGS if all("tpr" in row for row in present) else CLASSES
        titles = dict(zip(columns, columns, strict=True))
        table = _table("Against the truth", rows, titles, (28, 6))
        return [*table, f"  ({CONVENTIONS[columns[0]]})"]
    if "log_likelihood" not in metrics:
        rows = {}
    rows |= {"the rows of the query": metrics.get("query")}
    return _table("How well the circuit fits", rows, CIRCUITS, (23, 10))


def _table(
    title: str,
    rows: dict[str, dict[str, Any] | None],
    columns: dict[str, str],
    widths: tuple[int, int],
) -> list[str]:
    """Return the lines of a table; rows that are None or empty are left out, as is their table."""
    shown = {name: row for name, row in rows.items() if row}
    first, width = widths
    wide = {key: max(width, len(name)) for key, name in columns.items()}
    heads = [f"{name:>{wide[key]}}" for key, name in columns.items()]
    lines = [f"{title:<{first + 2}} " + " ".join(heads)]
    for name, row in shown.items():
        values = [
            f"{row[key]:{w}{DIGITS.get(key, '.3f')}}" if key in row else f"{'-':>{w}}"
            for key, w in wide.items()
        ]
        lines.append(f"  {name:<{first}} " + " ".join(values))
    return lines if shown else []
