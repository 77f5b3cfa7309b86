"""Metrics of scenarios by name; docs/reproduce.md has their table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.declared import with_declared
from benchmarks.intervention_distance import sid, sid_bounds
from flwr_causal.app.comparison import circuit_scores
from flwr_causal.app.entry_points import check_own
from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.graphs.metrics import (
    auprc,
    auroc,
    binary_auroc,
    compare,
    effect_error,
    structural_hamming_distance,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from benchmarks.world import AskedEffect, LineResult, World
    from flwr_causal.core.graphs.graph import CausalGraph

#: What `compare` of graphs returns, by the names that it has there.
COMPARED = (
    "shd", "reversed", "missing", "extra", "tpr", "fdr", "fpr", "f1", "smhd", "cpdag_shd",
    "adjacency_precision", "adjacency_recall", "adjacency_f1",
    "arrowhead_precision", "arrowhead_recall", "arrowhead_f1",
    "lagged_shd", "lagged_tpr", "lagged_fdr", "num_edges",
    "mark_agreement", "num_causes", "wrong_causes",
)  # fmt: skip
RANKED = ("auroc", "auprc", "binary_auroc")
OTHER = ("h", "shd_reversed_twice", "sid", "sid_lower", "sid_upper", "effect_error")
#: Of models with densities and classes, on the rows set aside.
OF_MODELS = ("log_likelihood", "accuracy", "macro_f1", "class_auroc")
#: "refused": whether the first line of a run says not to rely on it.
COUNTED = ("exchanges", "kilobytes", "refused")
#: Of the effect that a world is about: the value that the model gives, and whether its interval has
#: the true one. Of a class they are means over the values that it allows.
OF_EFFECT = ("asked_effect", "asked_covered")
#: Of the parties' own graphs, where a run has them: means over the parties.
LOCAL = ("local_tpr", "local_fdr")
#: Of each party's graph (its own, or the common one) beside its own truth: means over the parties.
BY_PARTY = ("own_shd", "own_lagged_shd")
#: Of the data, not of a line: how well variances, and explained shares, order causes before
#: effects. They are in every table of graphs over numbers.
OF_WORLD = ("varsortability", "r2_sortability")
TIMES = ("cpu_seconds",)
OWN = (
    *(*COMPARED, *LOCAL, *BY_PARTY, *RANKED, *OTHER, *OF_MODELS, *COUNTED, *OF_EFFECT, *OF_WORLD),
    *TIMES,
)
#: Functions of other packages: they are given the data and a line's result with one of its graphs,
#: or with none if it has none, and return a number, or None where they say nothing.
DECLARED: Mapping[str, Callable[[World, LineResult], float | None]] = with_declared({}, "metric")


def check_metrics(names: Sequence[str]) -> None:
    """Check that all metrics exist.

    Raises
    ------
    ConfigError
        If one does not.
    """
    for name in names:
        check_own(name, "metric", OWN)
        if name not in OWN and name not in DECLARED:
            known = ", ".join((*OWN, *DECLARED))
            raise ConfigError(f"'metrics' has '{name}': choose of {known}")


def measured(world: World, outcome: LineResult, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics that can be computed of an outcome; of several graphs their means."""
    found = {name: value for name, value in outcome.counts.items() if name in (*names, *OF_WORLD)}
    if world.truth is not None and outcome.graphs:
        each = [_of_graph(world.truth, graph, outcome, names) for graph in outcome.graphs]
        for name in each[0]:
            if all(name in one for one in each):
                found[name] = float(np.mean([one[name] for one in each]))
    if world.truth is not None and outcome.local:
        rates = [compare(world.truth, graph) for graph in outcome.local]
        own = {name: name.removeprefix("local_") for name in LOCAL if name in names}
        found |= {name: float(np.mean([one[key] for one in rates])) for name, key in own.items()}
    if world.own and outcome.graphs:
        found |= _by_party(world.own, outcome, names)
    if outcome.model is not None and world.test is not None:
        found |= _of_model(world, outcome.model, names)
    if world.asked is not None and outcome.model is not None and set(names) & set(OF_EFFECT):
        values = _of_effect(world.asked, outcome.model)
        found |= {name: value for name, value in values.items() if name in names}
    for name in names:
        if name in DECLARED:
            found |= _by_declared(world, outcome, name)
    return {name: float(value) for name, value in found.items()}


def _of_effect(asked: AskedEffect, model: Any) -> dict[str, float]:
    """Return the effect by a model, and whether its interval has the true one."""
    effects = model.total_effect(asked.cause, asked.effect, **asked.options)
    each = effects if isinstance(effects, list) else [effects]
    covered = [one.interval[0] <= asked.value <= one.interval[1] for one in each]
    means = float(np.mean([one.value for one in each])), float(np.mean(covered))
    return dict(zip(OF_EFFECT, means, strict=True))


def _by_party(
    truths: Sequence[CausalGraph], outcome: LineResult, names: Sequence[str]
) -> dict[str, float]:
    """Return the errors of each party's graph: its own, one of each, or the common one."""
    graphs = outcome.local or outcome.graphs
    if len(graphs) == 1:
        graphs *= len(truths)
    each = [compare(truth, graph) for truth, graph in zip(truths, graphs, strict=True)]
    asked = {name: name.removeprefix("own_") for name in BY_PARTY if name in names}
    return {
        name: float(np.mean([one[key] for one in each]))
        for name, key in asked.items()
        if all(key in one for one in each)  # of a graph without lags there is none of lags
    }


def _of_graph(
    truth: CausalGraph, graph: CausalGraph, outcome: LineResult, names: Sequence[str]
) -> dict[str, float]:
    found: dict[str, Any] = {}
    if set(names) & set(COMPARED):
        found = {name: value for name, value in compare(truth, graph).items() if name in names}
    ranked = graph if outcome.scores is None else outcome.scores
    if "h" in names:
        found["h"] = h_exponential(_raw(graph))[0]
    if "auroc" in names:
        found["auroc"] = auroc(ranked, truth)
    if "auprc" in names:
        found["auprc"] = auprc(ranked, truth)
    if "binary_auroc" in names:
        found["binary_auroc"] = binary_auroc(_raw(graph), truth.adjacency)
    if "shd_reversed_twice" in names:
        found["shd_reversed_twice"] = structural_hamming_distance(truth, graph, reversed_counts=2)
    if "sid" in names and graph.kind != "cpdag" and graph.is_acyclic():
        found["sid"] = sid(truth, graph)
    if {"sid_lower", "sid_upper"} & set(names) and (graph.kind == "cpdag" or graph.is_acyclic()):
        bounds = dict(zip(("sid_lower", "sid_upper"), sid_bounds(truth, graph), strict=True))
        found |= {name: value for name, value in bounds.items() if name in names}
    if "effect_error" in names and graph.kind == "dag" and graph.is_acyclic():
        found["effect_error"] = effect_error(truth, graph)
    return found


def _by_declared(world: World, outcome: LineResult, name: str) -> dict[str, float]:
    each = [replace(outcome, graphs=(graph,)) for graph in outcome.graphs] or [outcome]
    values = [value for one in each if (value := DECLARED[name](world, one)) is not None]
    return {name: float(np.mean(values))} if len(values) == len(each) else {}


def _raw(graph: CausalGraph) -> Any:
    """Return W + A before the thresholds; opposite effects cancel, as in the paper's notebook."""
    weights = graph.weights if graph.raw_weights is None else graph.raw_weights
    lagged = graph.lagged if graph.raw_lagged is None else graph.raw_lagged
    return weights if lagged is None else weights + lagged.sum(axis=0)


def _of_model(world: World, model: Any, names: Sequence[str]) -> dict[str, float]:
    if world.test is None or not set(names) & set(OF_MODELS):
        return {}
    if not hasattr(model, "domain"):
        return {"log_likelihood": float(np.mean(model.log_likelihood(world.test)))}
    known = _known(world.test, model.domain)
    scores = circuit_scores(model, known)
    # Of numbers by their interval, as the figures say, whatever its width.
    of_intervals = model.density.log_densities(model.density.encode(known))
    scores["log_likelihood"] = float(np.mean(of_intervals))
    renamed = {"auroc": "class_auroc"}
    return {renamed.get(k, k): v for k, v in scores.items() if renamed.get(k, k) in names}


def _known(test: pd.DataFrame, domain: Any) -> pd.DataFrame:
    """Return the rows; a state that no party has, one in a few thousand, is missing there."""
    states = {one.name: test[one.name].isin(one.states) for one in domain.variables if one.states}
    return test.assign(**{name: test[name].where(rows) for name, rows in states.items()})
