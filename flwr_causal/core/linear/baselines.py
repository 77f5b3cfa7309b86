"""Baselines of Ng & Zhang (2022), section 6: NOTEARS on the pooled rows and on each party's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.linear.notears import notears

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Solver = Callable[[SampleMoments], CausalGraph]

# The values of Zheng et al. (2018) and of the paper's public code.
SPARSITY = 0.1
THRESHOLD = 0.3


def paper_solver(moments: SampleMoments) -> CausalGraph:
    """Return the graph of NOTEARS with the paper's settings."""
    return notears(moments, sparsity=SPARSITY, threshold=THRESHOLD)


def all_data(parties: Sequence[SampleMoments], solve: Solver = paper_solver) -> CausalGraph:
    """Return the graph of the rows of all parties together (NOTEARS-AllData)."""
    return solve(merge(parties))


def alone(parties: Sequence[SampleMoments], solve: Solver = paper_solver) -> list[CausalGraph]:
    """Return the graph of each party's rows; columns that are constant at a party have no edges."""
    return [_on_own_rows(moments, solve) for moments in parties]


def _on_own_rows(moments: SampleMoments, solve: Solver) -> CausalGraph:
    constant = set(moments.constant_columns())
    varying = [index for index in range(moments.d) if index not in constant]
    weights, raw = np.zeros((moments.d, moments.d)), np.zeros((moments.d, moments.d))
    if len(varying) > 1 and moments.n > 1:
        found = solve(moments.subset(varying))
        grid = np.ix_(varying, varying)
        weights[grid] = found.weights
        raw[grid] = found.weights if found.raw_weights is None else found.raw_weights
    return CausalGraph(moments.names, weights, raw_weights=raw)
