"""What all rows in one place would have found, and each party alone: simulations only."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.app import methods
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear import baselines
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.agreement import agree
from flwr_causal.data.check.party_table import describe, prepare, prepare_states
from flwr_causal.data.check.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.discrete.discrete import DiscreteTable
    from flwr_causal.core.graphs.graph import CausalGraph

Metrics = dict[str, Any]
LINEAR_METRICS = ("shd", "tpr", "fdr")
CLASS_METRICS = ("cpdag_shd", "smhd", "adjacency_precision", "adjacency_recall")
POLICIES = {field.name for field in fields(Policy)}


def linear_baselines(
    frames: Sequence[pd.DataFrame],
    names: tuple[str, ...],
    truth: CausalGraph,
    config: Mapping[str, Any],
) -> Metrics:
    """Return SHD, TPR and FDR of the pooled rows and of the mean party alone.

    Both by the moments method's solver, which takes a second where NOTEARS takes a minute.
    """
    policy = _policy(config)
    tables = [prepare(frame, names, policy) for frame in frames]
    if config.get("standardize"):
        scale = np.concatenate(tables).std(axis=0)
        tables = [table / scale for table in tables]
    parties = [Moments.from_rows(table, names) for table in tables if len(table)]
    with single_threaded():
        pooled = baselines.all_data(parties, baselines.quick_solver)
        alone = baselines.alone(parties, baselines.quick_solver)
    return _against(truth, pooled, alone, LINEAR_METRICS)


def category_baselines(
    frames: Sequence[pd.DataFrame],
    names: tuple[str, ...],
    truth: CausalGraph,
    config: Mapping[str, Any],
) -> Metrics:
    """Return the distances of what GES with BIC finds on the pooled rows and at the mean party.

    Nothing where columns are discretised: the cut points are the federation's.
    """
    from flwr_causal.core.ges.ges import ges

    tables = _categories(frames, names, config)
    if tables is None:
        return {}
    alone = [_as_alone(table) for table in tables]
    pooled, *own = (ges(table, score="bic") for table in (joined(tables), *alone))
    return _against(truth, pooled, own, CLASS_METRICS)


def pooled_score(
    frames: Sequence[pd.DataFrame], graph: CausalGraph, config: Mapping[str, Any]
) -> Metrics:
    """Return BDeu of a graph on the pooled rows, in nats, as ``bdeu``; nothing if discretised."""
    from flwr_causal.core.discrete.scores import score_graph

    tables = _categories(frames, graph.names, config)
    if tables is None:
        return {}
    size = float(config["equivalent_sample_size"])
    return {"bdeu": score_graph(graph, joined(tables), "bdeu", size)}


def joined(tables: Sequence[DiscreteTable]) -> DiscreteTable:
    """Return the rows of several tables with the same states in one."""
    from flwr_causal.core.discrete.discrete import DiscreteTable

    first = tables[0]
    codes = np.concatenate([table.codes for table in tables], axis=1)
    return DiscreteTable(first.names, first.states, codes)


def _as_alone(table: DiscreteTable) -> DiscreteTable:
    """Return a party's table with the states that it has: alone it would know of no others."""
    from flwr_causal.core.discrete.discrete import DiscreteTable

    states, codes = [], np.empty_like(table.codes)
    for j, own in enumerate(table.states):
        seen, codes[j] = np.unique(table.codes[j], return_inverse=True)
        states.append(tuple(own[code] for code in seen))
    return DiscreteTable(table.names, tuple(states), codes)


def _categories(
    frames: Sequence[pd.DataFrame], names: tuple[str, ...], config: Mapping[str, Any]
) -> list[DiscreteTable] | None:
    if config.get("discretize"):
        return None
    policy = _policy(config)
    reports = {
        str(k): describe(frame, policy, states=True) for k, frame in enumerate(frames) if len(frame)
    }
    agreement = agree(reports, policy)
    states = [agreement.states[agreement.names.index(name)] for name in names]
    return [prepare_states(frame, names, states, policy) for frame in frames if len(frame)]


def _policy(config: Mapping[str, Any]) -> Policy:
    options = {name: value for name, value in config.items() if name in POLICIES}
    return methods.build(config["method"], options).policy


def _against(
    truth: CausalGraph,
    pooled: CausalGraph,
    alone: Sequence[CausalGraph],
    names: Sequence[str],
) -> Metrics:
    by_all = compare(truth, pooled)
    by_each = [compare(truth, graph) for graph in alone]
    return {
        "pooled": {name: by_all[name] for name in names},
        "alone": {name: float(np.mean([entry[name] for entry in by_each])) for name in names},
    }
