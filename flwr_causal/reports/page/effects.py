"""Effects on the page of a run: total effects of a linear model's edges, and impulse responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.answers import Effect, answers
from flwr_causal.core.graphs.pag.marks import directed_edges
from flwr_causal.errors import CausalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph

Block = dict[str, Any]

CAPTION = (
    "Total effects, in units of the effect per unit of the cause, of categories between two states "
    "and of the probability of a state, if the graph is right; with 95 % intervals"
)
OF_SCORES = "; the units of numbers are standard deviations of their normal scores"
#: Effects of so many edges are shown, of the strongest ones; each takes a regression.
MOST_EFFECTS = 200
#: Impulse responses of so many pairs are listed, the largest ones drawn, over so many steps.
MOST_RESPONSES, DRAWN, STEPS = 200, 12, 10


def effect_blocks(model: Any, graph: CausalGraph | None) -> list[Block]:
    """Return the total effects of the edges' causes, and of series the impulse responses.

    Nothing where the model knows no moments. Where the equivalence class leaves parents open there
    are several possible effects, of which the smallest and the largest are shown; effects with a
    lag are unknown then.
    """
    rows = effect_rows(model, graph)
    blocks: list[Block] = []
    if rows:
        columns = ["cause", "effect", "value", "standard error", "from", "to", "adjusted for"]
        caption = CAPTION + OF_SCORES * bool(getattr(model, "of_scores", False))
        blocks.append({"kind": "table", "caption": caption, "columns": columns, "rows": rows})
        if answers(model, "response") and any("[t-" in row[0] for row in rows):
            blocks += _responses(model)
    return blocks


def effect_rows(model: Any, graph: CausalGraph | None) -> list[list[Any]]:
    """Return cause, effect, value, error, interval and adjustment set of the strongest edges."""
    if graph is None or not answers(model, "total_effect"):
        return []
    edges: list[tuple[float, str, str, int]] = []
    for lag, strengths in enumerate(graph.strengths()):
        present = strengths > 0 if lag else graph.adjacency
        if graph.marks is not None:
            present = directed_edges(graph.marks)
        edges += [
            (float(strengths[i, j]), graph.names[i], graph.names[j], lag)
            for i, j in np.argwhere(present)
        ]
    edges = sorted(edges, key=lambda edge: -edge[0])[:MOST_EFFECTS]
    return [row for _, cause, effect, lag in edges for row in _effects(model, cause, effect, lag)]


def _effects(model: Any, cause: str, effect: str, lag: int) -> list[list[Any]]:
    """Return the rows of one edge: none where its effect is unknown."""
    after = {"lag": lag} if lag else {}
    when = f"{cause}[t-{lag}]" if lag else cause
    try:
        if answers(model, "contrasts"):
            return _contrasts(model.contrasts(cause, effect, **after), when, effect)
        found = model.total_effect(cause, effect, **after)
    except CausalError:
        return []
    several = found if isinstance(found, list) else [found]
    if not all(isinstance(one, Effect) for one in several):
        return []  # of categories the effect is a table by state
    return _ends(several, when, effect)


def _ends(several: Sequence[Effect], cause: str, effect: str) -> list[list[Any]]:
    """Return the rows of the smallest and the largest of possible effects."""
    ends = {min(several, key=lambda one: one.value), max(several, key=lambda one: one.value)}
    return [
        [
            cause,
            effect,
            one.value,
            one.standard_error,
            *one.interval,
            ", ".join(one.adjustment_set or ()) or "nothing",
        ]
        for one in sorted(ends, key=lambda one: one.value)
    ]


def _contrasts(table: pd.DataFrame, cause: str, effect: str) -> list[list[Any]]:
    """Return the rows of one edge of numbers and categories.

    Of two outcomes one is enough: the probability of the other changes by as much.
    """
    rows = table.to_dict("records")
    outcomes = list(dict.fromkeys(row["outcome"] for row in rows))
    found: dict[tuple[str, str], list[Effect]] = {}
    for row in rows:
        state, outcome = row["state"], row["outcome"]
        if len(outcomes) == 2 and outcome == outcomes[0]:
            continue
        changed = (
            cause if state is None else f"{cause}: {_text(state)} for {_text(row['reference'])}"
        )
        counted = effect if outcome is None else f"{effect}: {outcome}"
        interval = row["lower"], row["upper"]
        one = Effect(row["value"], row["standard_error"], interval, row["adjustment_set"])
        found.setdefault((changed, counted), []).append(one)
    return [row for names, several in found.items() for row in _ends(several, *names)]


def _text(state: Any) -> str:
    """Return a state, or a value of a number to four digits."""
    return f"{state:.4g}" if isinstance(state, float) else str(state)


def _responses(model: Any) -> list[Block]:
    """Return how a variable that is raised by 1 in one step changes others from then on."""
    curves = [
        (cause, effect, course)
        for cause in model.names
        for effect, course in model.response({cause: 1.0}, STEPS).to_dict("list").items()
        if cause != effect and np.any(course)
    ]
    curves.sort(key=lambda curve: -float(np.max(np.abs(curve[2]))))
    panels = [
        {"name": f"{cause} on {effect}", "points": list(enumerate(course)), "log": False}
        for cause, effect, course in curves[:DRAWN]
    ]
    if not curves:
        return []
    title = "Impulse responses: how a variable that is raised by 1 in step 0 changes another one"
    if len(curves) > DRAWN:
        title += f" (the {DRAWN} largest of {len(curves)})"
    return [
        {"kind": "lines", "title": title, "x": "step", "panels": panels},
        {
            "kind": "table",
            "caption": "Impulse responses by step, largest first",
            "columns": ["raised by 1", "changed", *(f"step {step}" for step in range(STEPS + 1))],
            "rows": [[cause, effect, *course] for cause, effect, course in curves[:MOST_RESPONSES]],
        },
    ]
