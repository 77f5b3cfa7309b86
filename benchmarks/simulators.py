"""The simulators of the papers, as data of scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.world import World
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.series.design import companion_radius, join_blocks, split_blocks
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import PAPER_MECHANISMS, federated_nonlinear
from flwr_causal.data.synthetic.series import dynamic_system, federated_dynamic, simulate_series
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray

#: Bounds of weights, and the largest spectral radius, of systems that differ between parties.
WEIGHTS, STATIONARY = (0.3, 0.6), 0.95
#: How systems differ between parties: not at all; in some edges of every third party; in some edges
#: of each; they are drawn anew for each.
DIFFERENCES = ("none", "some", "each", "all")


def linear(
    seed: int,
    num_variables: int,
    num_rows: int | None = None,
    rows_per_variable: float | None = None,
    graph: str = "er",
    edges_per_node: int = 1,
    noise: str = "gaussian",
    noise_scale: float | list[float] = 1.0,
) -> World:
    """Linear systems of Ng & Zhang (2022), section 6.1."""
    n = num_rows or round((rows_per_variable or 3) * num_variables)
    scale = tuple(noise_scale) if isinstance(noise_scale, list) else noise_scale
    parties, weights = federated_linear(
        num_variables,
        n,
        1,
        graph,
        seed,
        edges_per_node=edges_per_node,
        noise=noise,  # type: ignore[arg-type]
        noise_scale=scale,  # type: ignore[arg-type]
    )
    return World(parties, CausalGraph.from_array(weights, list(parties[0].columns)))


def nonlinear(
    seed: int,
    num_variables: int,
    num_parties: int = 10,
    num_rows: int = 2000,
    mechanisms: list[str] | str = list(PAPER_MECHANISMS),  # noqa: B006 - not changed
    iid: bool = False,
    graph: str = "er",
    sizes: str = "even",
    degree: float = 2.0,
) -> World:
    """One graph, parties with functions of their own: Yang et al. (2024)."""
    parties, truth = federated_nonlinear(
        num_variables,
        num_rows,
        num_parties,
        mechanisms=mechanisms,
        iid=iid,
        graph=graph,
        sizes=sizes,
        degree=degree,
        seed=seed,
    )
    return World(parties, truth)


def series(seed: int, num_variables: int, num_rows: int, num_parties: int, order: int = 1) -> World:
    """Stationary linear systems with lags, a series for each party: Chen, Ma & Yue (2024)."""
    parties, truth = federated_dynamic(num_variables, num_rows, num_parties, order=order, seed=seed)
    return World(list(parties), truth, options={"order": order})


def differing_series(
    seed: int, num_variables: int, num_rows: int, num_parties: int, differences: str
) -> World:
    """Stationary systems with one lag that differ between parties, ``num_rows`` of each party.

    Where some edges differ, a fifth as many as there are variables are left out of the common
    system, and as many others are added. The truth is the common system; of systems that are drawn
    anew it is the first party's.
    """
    if differences not in DIFFERENCES:
        raise ConfigError(
            f"the data 'differing-series' have no differences '{differences}': choose of "
            f"{', '.join(DIFFERENCES)}"
        )
    rng = np.random.default_rng([seed, DIFFERENCES.index(differences)])
    common, parties, own = _stationary(num_variables, rng), [], []
    for k in range(num_parties):
        weights = common
        if differences == "all" and k:
            weights = _stationary(num_variables, rng)
        elif differences == "each" or (differences == "some" and k % 3 == 0):
            weights = _changed(common, max(1, num_variables // 5), rng)
        now, lagged = split_blocks(weights)
        own.append(CausalGraph.from_array(now, lagged=lagged))
        (steps,) = simulate_series(now, lagged, [num_rows + 1], seed=rng)
        parties.append(pd.DataFrame(steps, columns=pd.Index(own[0].names)))
    now, lagged = split_blocks(common)
    truth = CausalGraph.from_array(now, lagged=lagged)
    return World(parties, truth, options={"order": 1}, own=tuple(own))


def _stationary(num_variables: int, rng: np.random.Generator) -> FloatArray:
    """Return the stacked weights of a system that is far enough from a random walk."""
    while True:
        now, lagged = dynamic_system(
            num_variables, instantaneous_degree=2.0, weight_range=WEIGHTS, seed=rng
        )
        if companion_radius(now, lagged) < STATIONARY:
            return join_blocks(now, lagged)


def _changed(common: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Return the weights with some edges left out, and others added in the causal order."""
    m, d = common.shape
    place = np.argsort(topological_order(common[:d] != 0))
    possible = np.ones((m, d), dtype=np.bool_)
    possible[:d] = place[:, None] < place
    while True:
        weights = common.copy()
        for cells in (np.argwhere(common), np.argwhere(possible & (common == 0))):
            drawn = rng.choice(cells, min(count, len(cells)), replace=False)
            sizes = rng.uniform(*WEIGHTS, len(drawn)) * rng.choice([-1.0, 1.0], len(drawn))
            old = weights[tuple(drawn.T)] != 0
            weights[tuple(drawn.T)] = np.where(old, 0.0, sizes)
        if companion_radius(*split_blocks(weights)) < STATIONARY:
            return weights
