"""What differs between runs apart from their edges: options, parties, rows, warnings, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.data.dictionary.entries import DIGEST
from flwr_causal.reports.edges import compared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.reports.result import RunResult

# Settings that say where a run is kept, not what it is.
_PLACES = frozenset(("output_dir", "resume", "signing_key"))
# Of a dictionary the digest says what it is; the path may be another one for the same.
_DICTIONARY = ("dictionary", DIGEST)
_ABSENT = "-"


class RunChange(NamedTuple):
    """Something that is not the same in all runs.

    Parameters
    ----------
    subject : str
        What it is, such as "option sparsity" or "rows of north".
    values : tuple of str
        By run; "-" where the run lacks it.
    """

    subject: str
    values: tuple[str, ...]


def changes(runs: Sequence[RunResult], graphs: Sequence[CausalGraph]) -> list[RunChange]:
    """Return the differences between runs, without those of their edges.

    Parameters
    ----------
    runs : sequence of Run
    graphs : sequence of CausalGraph
        Theirs, over the same variables.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    others = _PLACES.union(_DICTIONARY)
    config = [{k: v for k, v in run.decided_config.items() if k not in others} for run in runs]
    digests = [run.config.get(DIGEST) or _ABSENT for run in runs]
    rows = [run.parties for run in runs]
    found = [
        *_differing("dictionaries differ, by digest", [{"": one[:12]} for one in digests]),
        *_differing("option ", config),
        *_differing("rows of ", rows),
        *_differing("rows of all", [{"": run.total_rows} for run in runs]),
        *_differing("replies missing of ", [dict.fromkeys(run.lost, "yes") for run in runs]),
        *_differing("warning: ", [dict.fromkeys(run.warnings, "yes") for run in runs]),
    ]
    moved = _most_moved(graphs)
    return [*found, moved] if moved is not None else found


def _differing(subject: str, facts: Sequence[dict[str, Any]]) -> list[RunChange]:
    names = dict.fromkeys(name for own in facts for name in own)
    found = [RunChange(subject + name, tuple(_text(own, name) for own in facts)) for name in names]
    return [one for one in found if len(set(one.values)) > 1]


def _text(facts: dict[str, Any], name: str) -> str:
    value = facts.get(name)
    return _ABSENT if value is None else str(value)


def _most_moved(graphs: Sequence[CausalGraph]) -> RunChange | None:
    """Return the common edge whose weight differs most; None if no weight does."""
    found = [
        (max(weights) - min(weights), pair.edges[0], weights)
        for pair in compared(graphs)
        if not pair.differs and len(weights := [w for w in pair.weights if w is not None]) > 1
    ]
    distance, edge, weights = max(found, default=(0.0, "", []))
    if distance == 0:
        return None
    subject = f"largest change of the weight of a common edge: {edge}"
    return RunChange(subject, tuple(f"{weight:+.3f}" for weight in weights))
