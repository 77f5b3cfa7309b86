"""A circuit on the page of a run: marginals, moments of circuit and data, answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.words import counted
from flwr_causal.errors import CausalError

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.domain import Variable
    from flwr_causal.reports.result import RunResult

Block = dict[str, Any]

#: Marginals are drawn of so many variables; numbers by so many points, four deviations wide.
MOST_DRAWN, POINTS, WIDTH = 60, 81, 4.0
MOST_STATES = 40
MOST_ANSWERS = 300
SAMPLED = 10


def circuit_blocks(run: RunResult) -> list[Block]:
    """Return the blocks on a fitted circuit; none for other models.

    A circuit whose parts are out of reach, at the parties, has no marginals here.
    """
    blocks: list[Block] = []
    model = run.model
    if isinstance(model, CircuitModel):
        facts = [
            ["variables", len(model.names)],
            ["parameters", model.density.num_parameters],
            *([["class to predict", model.target]] if model.target is not None else []),
        ]
        blocks.append({"kind": "facts", "rows": facts})
        try:
            # On real nodes an answer of the parties takes seconds, and they may have gone.
            blocks += _distribution(model.out_of_reach(), run.columns)
        except CausalError as error:
            blocks.append({"kind": "text", "text": f"The marginals are not known here: {error}"})
    if run.answers is not None and len(run.answers):
        blocks += _answer_blocks(run.answers)
    return blocks


def _distribution(model: CircuitModel, columns: dict[str, dict[str, Any]]) -> list[Block]:
    """Return the circuit's moments beside the rows' moments, and drawings of the marginals."""
    rows: list[list[Any]] = []
    panels: list[dict[str, Any]] = []
    for name in model.names:
        variable = model.domain.variables[model.domain.index(name)]
        if variable.states is None:
            mean, variance = (float(value[0]) for value in model.moments(name, {name: [np.nan]}))
            deviation = float(np.sqrt(max(variance, 0.0)))
            known = columns.get(name, {})
            rows.append([name, known.get("mean"), mean, known.get("deviation"), deviation])
        if len(panels) < MOST_DRAWN:
            panels.append(
                _shares(model, variable)
                if variable.num_states
                else _density(model, name, mean, deviation)
            )
    blocks: list[Block] = []
    if rows:
        beside = any(row[1] is not None for row in rows)
        names = ["column", "mean of the rows", "mean", "deviation of the rows", "deviation"]
        kept = range(len(names)) if beside else (0, 2, 4)
        blocks.append(
            {
                "kind": "table",
                "caption": "Means and standard deviations of the circuit"
                + (", beside those of all rows together" if beside else ""),
                "columns": [names[k] for k in kept],
                "rows": [[row[k] for k in kept] for row in rows],
            }
        )
    sampled = model.sample(SAMPLED, seed=0)
    blocks.append(
        {
            "kind": "table",
            "caption": f"{SAMPLED} rows sampled from the circuit",
            "columns": [str(name) for name in sampled.columns],
            "rows": plain_rows(sampled),
        }
    )
    title = "Marginals"
    if len(model.names) > MOST_DRAWN:
        title += f" of the first {MOST_DRAWN} of {counted(len(model.names), 'variable')}"
    return [{"kind": "shapes", "title": title, "panels": panels}, *blocks]


def _density(model: CircuitModel, name: str, mean: float, deviation: float) -> dict[str, Any]:
    """Return the density of a number."""
    reach = WIDTH * (deviation or 1.0)
    grid = np.linspace(mean - reach, mean + reach, POINTS)
    density = np.exp(model.log_likelihood({name: grid}))
    points = np.column_stack([grid, density])
    return {"name": name, "points": points[np.isfinite(density)].tolist()}


def _shares(model: CircuitModel, variable: Variable) -> dict[str, Any]:
    """Return the density over the intervals, or the probability of the most probable states."""
    column = model.domain.index(variable.name)
    empty = np.full((1, len(model.domain.variables)), np.nan)
    shares = model.density.state_probabilities(empty, column)[0]
    if variable.states is None:
        return _steps(variable.name, np.asarray(variable.edges, dtype=np.float64), shares)
    labels = [*map(str, variable.states), *["missing"] * variable.missing_state]
    bars = sorted(zip(labels, shares.tolist(), strict=True), key=lambda bar: -bar[1])
    return {"name": variable.name, "unit": "probability", "bars": bars[:MOST_STATES]}


def _steps(name: str, edges: FloatArray, shares: FloatArray) -> dict[str, Any]:
    """Return the density of a number that is known by intervals, of which the outer ones are open.

    Intervals of equal probability, as quantiles give them, say something by their widths only.
    """
    inner = shares[1 : len(edges)]
    if len(inner) == 0:
        bars = [[f"up to {edges[0]:.4g}", shares[0]], [f"above {edges[0]:.4g}", shares[1]]]
        return {"name": name, "unit": "probability", "bars": bars}
    density = inner / np.diff(edges)
    points = np.column_stack([edges, [*density, density[-1]]]).tolist()
    outside = 1.0 - inner.sum()
    return {"name": f"{name} ({outside:.0%} lie outside)", "points": points, "steps": True}


def _answer_blocks(answers: pd.DataFrame) -> list[Block]:
    """Return the log-likelihoods of the rows of the query, and the first answers."""
    blocks: list[Block] = []
    if "log_likelihood" in answers:
        values = answers["log_likelihood"].to_numpy(dtype=np.float64)
        values = values[np.isfinite(values)]
        if len(values) > 1:
            counts, edges = np.histogram(values, bins="auto")
            middles = (edges[:-1] + edges[1:]) / 2
            bars = [[f"{x:.1f}", int(c)] for x, c in zip(middles, counts, strict=True)]
            panel = {"name": "rows by log-likelihood, nats", "unit": "rows", "bars": bars}
            blocks.append({"kind": "shapes", "title": "The rows of the query", "panels": [panel]})
    caption = f"Answers for the {counted(len(answers), 'row')} of the query"
    if len(answers) > MOST_ANSWERS:
        caption += f", the first {MOST_ANSWERS}"
    rows = plain_rows(answers.head(MOST_ANSWERS))
    names = [str(name) for name in answers.columns]
    blocks.append({"kind": "table", "caption": caption, "columns": names, "rows": rows})
    return blocks


def plain_rows(frame: pd.DataFrame) -> list[list[Any]]:
    """Return the rows of a table as numbers and texts."""
    rows = frame.to_numpy(dtype=object).tolist()
    return [[v if isinstance(v, int | float) else str(v) for v in row] for row in rows]
