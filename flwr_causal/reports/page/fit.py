"""Whether the graph fits the rows, on the page of a run: failed independencies, doubtful edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import counted
from flwr_causal.reports.trust import doubts_of, fit_of

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.reports.result import RunResult

Block = dict[str, Any]

#: The columns of a table of doubtful edges.
DOUBTS = ["edge", "doubt", "about its", "why", "what would decide it"]
#: So many pairs are listed of each test.
MOST_PAIRS = 50


def fit_blocks(run: RunResult) -> list[Block]:
    """Return the tests that reject, and the most doubtful edges; nothing where nothing is known."""
    fit, doubtful = fit_of(run), doubt_rows(run)
    blocks = [] if fit is None else _tests(fit)
    if doubtful:
        caption = "The most doubtful edges"
        blocks.append(
            {"kind": "table", "caption": caption, "columns": DOUBTS, "rows": doubtful},
        )
    return blocks


def doubt_rows(run: RunResult) -> list[list[Any]]:
    """Return the most doubtful edges of a run, by the columns :data:`DOUBTS`."""
    return [
        [f"{one.cause} {one.mark} {one.effect}", one.doubt, one.about, one.reason, one.decided_by]
        for one in doubts_of(run)
    ]


def _tests(fit: FitCheck) -> list[Block]:
    said = []
    if len(fit.independencies):
        said.append(
            f"Of {len(fit.independencies):,} implied independencies that could be tested, "
            f"{len(fit.rejected)} fail (corrected p-value below 0.05)."
        )
    if fit.untested:
        said.append(f"{counted(fit.untested, 'pair')} could not be tested.")
    if fit.p_value is not None:
        said.append(
            f"The graph as a whole against the same order with all edges: p = {fit.p_value:.2g}."
        )
    if fit.held_out_log_likelihood is not None:
        said.append(
            f"Held-out log-likelihood: {fit.held_out_log_likelihood:.4g} nats a row "
            f"({fit.held_out_by})."
        )
    said.append("A search removes what its own rows speak against: such p-values are too large.")
    blocks: list[Block] = [{"kind": "text", "text": " ".join(said)}]
    blocks += _pairs(
        "Dependent, although the graph says they are not",
        fit.rejected,
        ["first", "second", "given", "estimate", "corrected"],
    )
    blocks += _pairs(
        "Correlated residuals: a hidden common cause, or a missing edge",
        fit.dependent_residuals,
        ["first", "second", "estimate", "corrected"],
    )
    return blocks


def _pairs(caption: str, table: pd.DataFrame, columns: list[str]) -> list[Block]:
    if table.empty:
        return []
    words = {"estimate": "correlation", "corrected": "corrected p-value"}
    rows = [
        [", ".join(value) if isinstance(value, tuple) else value for value in row.values()]
        for row in table[columns].head(MOST_PAIRS).to_dict("records")
    ]
    return [
        {
            "kind": "table",
            "caption": caption,
            "columns": [words.get(name, name) for name in columns],
            "rows": rows,
        }
    ]
