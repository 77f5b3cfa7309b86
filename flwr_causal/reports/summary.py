"""A run in words, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr_causal.core.graph import CausalGraph
    from flwr_causal.reports.run import Run

# A graph with more edges than this is not printed edge by edge.
MOST_EDGES = 60


def describe_run(run: Run) -> list[str]:
    """Return the lines that tell a user what came out."""
    lines = [f"{run.config.get('method', 'run')}: {run.stop_reason}"]
    if run.graph is not None:
        lines += describe_graph(run.graph)
    lines += _comparison(run.metrics)
    lines += [
        f"Rounds {run.rounds}, {run.seconds:.1f} s, {len(run.parties)} parties, "
        f"{sum(run.parties.values())} rows",
        f"Bytes to each party {run.bytes_sent // max(len(run.parties), 1):,}, "
        f"from each party {run.bytes_received // max(len(run.parties), 1):,} "
        f"(schema exchange, all together: {run.schema_bytes:,})",
    ]
    lines += [f"Left out in round {f['round']}: {f['party']} ({f['reason']})" for f in run.failures]
    lines += [f"Note: {warning}" for warning in run.warnings]
    return lines


def describe_graph(graph: CausalGraph) -> list[str]:
    """Return one line an edge, strongest first."""
    edges = sorted(graph.edges(), key=lambda edge: -abs(edge[2]))
    width = max((len(edge[0]) for edge in edges), default=0)
    lines = [f"{graph.num_edges} edges over {len(graph.names)} variables"]
    lines += [
        f"  {cause:>{width}} -> {effect}  {weight:+.3f}"
        for cause, effect, weight in edges[:MOST_EDGES]
    ]
    if len(edges) > MOST_EDGES:
        lines.append(f"  ... and {len(edges) - MOST_EDGES} more; see edges.csv in output-dir")
    return lines


def _comparison(metrics: dict[str, Any]) -> list[str]:
    if "shd" not in metrics:
        return []
    rows = {"together, federated": metrics}
    if "pooled" in metrics:
        rows["all rows pooled (DAGMA)"] = metrics["pooled"]
    if "alone" in metrics:
        rows["each party alone (mean)"] = metrics["alone"]
    lines = ["Against the truth                SHD    TPR    FDR"]
    lines += [
        f"  {name:<28} {row['shd']:6.1f} {row['tpr']:6.2f} {row['fdr']:6.2f}"
        for name, row in rows.items()
    ]
    return lines
