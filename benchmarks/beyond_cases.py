"""Linear rows outside the papers' simulators: dense graphs, unequal noise, units, weak effects.

The simulator of Ng & Zhang (2022) with one thing changed at a time: weights of either sign with
absolute values uniform on [0.5, 2], noise of standard deviation 1, and random graphs with an exact
number of edges.
"""

from dataclasses import dataclass, replace

import numpy as np

from flwr_causal.data.synthetic.linear import LinearSystem
from flwr_causal.data.synthetic.random_graphs import erdos_renyi, scale_free, signed_weights


@dataclass(frozen=True)
class Kind:
    """One kind of data; the bounds of noise and units are those of log-uniform draws."""

    name: str
    graph: str = "ER"  # "BA": hubs are effects; "BA, mixed": hubs have causes and effects
    edges_per_variable: int = 2
    weights: tuple[float, float] = (0.5, 2.0)
    noise_sd: tuple[float, float] = (1.0, 1.0)
    units: tuple[float, float] = (1.0, 1.0)
    standardised: bool = False
    noise: str = "gaussian"

    @property
    def rescaled(self):
        """Whether the variances say nothing about the order: the equivalence class matters."""
        return self.standardised or self.units != (1.0, 1.0)


KINDS = (
    Kind("ER2"),
    Kind("ER4", edges_per_variable=4),
    Kind("scale-free 2", graph="BA"),
    Kind("noise sd .5-2", noise_sd=(0.5, 2.0)),
    Kind("noise sd .2-5", noise_sd=(0.2, 5.0)),
    Kind("units x .1-10", units=(0.1, 10.0)),
    Kind("weak .2-.5", weights=(0.2, 0.5)),
    Kind("standardised", standardised=True),
    Kind("gumbel", noise="gumbel"),
)
# Sparser graphs, as many cases elsewhere have, and hubs that have causes.
MORE_KINDS = (
    Kind("scale-free 2, hubs both", graph="BA, mixed"),
    Kind("ER1", edges_per_variable=1),
    *(replace(kind, name=f"ER1 {kind.name}", edges_per_variable=1) for kind in KINDS[3:]),
)


def beyond_case(kind, d, n, seed):
    """Rows ``(n, d)`` and true weights ``(d, d)``; ``weights[i, j]`` is the effect of i on j.

    Standardised rows and units leave the truth's edges, but not its weights, as they are.
    """
    rng = np.random.default_rng([3, d, n, seed, (*KINDS, *MORE_KINDS).index(kind)])
    edges = _graph(kind, d, rng)
    weights = edges * signed_weights(rng, *kind.weights, (d, d)) + 0.0
    system = LinearSystem(weights, _log_uniform(rng, kind.noise_sd, d))
    rows = system.sample(n, rng, kind.noise).to_numpy() * _log_uniform(rng, kind.units, d)
    if kind.standardised:
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return rows, weights


def _graph(kind, d, rng):
    if kind.graph == "ER":
        num_edges = min(kind.edges_per_variable * d, d * (d - 1) // 2)
        return erdos_renyi(d, num_edges, rng)
    if kind.graph == "BA, mixed":
        return scale_free(d, kind.edges_per_variable, rng)
    return _new_causes_old(d, kind.edges_per_variable, rng)


def _new_causes_old(d, edges_per_node, rng):
    """Barabasi-Albert as in Zheng et al. (2018): each variable causes some that joined earlier."""
    edges = np.zeros((d, d), dtype=bool)
    ends = list(range(edges_per_node))  # each variable once for each of its edges
    for newcomer in range(edges_per_node, d):
        drawn = set()
        while len(drawn) < edges_per_node:
            drawn.add(ends[rng.integers(len(ends))])
        old = sorted(drawn)
        edges[newcomer, old] = True
        ends += [*old, *[newcomer] * edges_per_node]
    order = rng.permutation(d)
    return edges[np.ix_(order, order)]


def _log_uniform(rng, bounds, d):
    return np.exp(rng.uniform(*np.log(bounds), d))
