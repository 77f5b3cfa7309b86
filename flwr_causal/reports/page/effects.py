"""Total effects on the page of a run: of the causes of the edges that a linear model has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.graphs.effect import Effect
from flwr_causal.errors import CausalError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.graph import CausalGraph

Block = dict[str, Any]

#: Effects of so many edges are shown, those of the largest weights; each takes a regression.
MOST_EFFECTS = 200


def effect_blocks(model: Any, graph: CausalGraph | None) -> list[Block]:
    """Return the total effect of each edge's cause; nothing where the model knows no moments.

    Where the equivalence class leaves parents open there are several possible effects, of which
    the smallest and the largest are shown. Of time series the effects are those within a step.
    """
    if graph is None or not hasattr(model, "total_effect"):
        return []
    edges = sorted(graph.edges(), key=lambda edge: -abs(edge[2]))[:MOST_EFFECTS]
    rows = []
    try:
        for cause, effect, _ in edges:
            found = model.total_effect(cause, effect)
            several = found if isinstance(found, list) else [found]
            if not all(isinstance(one, Effect) for one in several):
                return []  # of categories the effect is a table by state
            ends = {
                min(several, key=lambda one: one.value),
                max(several, key=lambda one: one.value),
            }
            rows += [
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
    except CausalError:
        return []
    if not rows:
        return []
    return [
        {
            "kind": "table",
            "caption": "Total effects, in units of the effect per unit of the cause, if the graph "
            "is right; with 95 % intervals",
            "columns": ["cause", "effect", "value", "standard error", "from", "to", "adjusted for"],
            "rows": rows,
        }
    ]
