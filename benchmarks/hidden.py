"""Systems some of whose variables are in no table; the truth is the PAG of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.files import network_of
from benchmarks.world import World
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.discrete import random_network
from flwr_causal.data.synthetic.linear import SyntheticSystem
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flwr_causal.core.arrays import BoolArray

#: Edges for each variable, and bounds of coefficients and of the noise's standard deviations.
EDGES, WEIGHTS, NOISE = 2.0, (0.4, 1.2), (0.7, 1.4)
#: How probable it is that a hub acts on a variable.
REACH = 0.5
#: "some": variables with two effects or more are hidden, whatever causes them. "hubs": the hidden
#: variables have no causes, and each acts on half of the others. "busiest": those of the most edges
#: are hidden.
KINDS = ("some", "hubs", "busiest")
#: The variables of a random network that are seen.
SEEN = 20


def hidden_causes(
    seed: int, num_variables: int, num_hidden: int, num_rows: int, kind: str = "some"
) -> World:
    """Rows of ``num_variables`` variables in one table, and the PAG of the true system."""
    if kind not in KINDS:
        raise ConfigError(f"the data 'hidden-causes' have no kind '{kind}': choose of {KINDS}")
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    size = num_variables + num_hidden
    order = rng.permutation(size)
    dag = np.zeros((size, size), dtype=np.bool_)
    dag[np.ix_(order, order)] = np.triu(rng.random((size, size)) < 2 * EDGES / (size - 1), 1)
    hidden = _chosen(dag, num_hidden, rng)
    if kind == "busiest":
        edges = dag.sum(axis=0) + dag.sum(axis=1)
        hidden = sorted(np.argsort(-edges, kind="stable")[:num_hidden].tolist())
    if kind == "hubs":
        dag[:, hidden] = False
        dag[hidden] = rng.random((num_hidden, size)) < REACH
        dag[np.ix_(hidden, hidden)] = False
    signs = rng.choice([-1.0, 1.0], dag.shape)
    weights = np.where(dag, signs * rng.uniform(*WEIGHTS, dag.shape), 0.0)
    frame = SyntheticSystem(weights, rng.uniform(*NOISE, size)).sample(num_rows, rng)
    names = [name for k, name in enumerate(frame.columns) if k not in hidden]
    truth = CausalGraph.from_array(weights, list(frame.columns)).to_pag(names)
    return World([pd.DataFrame(frame[names])], truth)


def hidden_categories(
    seed: int, data_dir: Path | None, network: str, num_hidden: int, num_rows: int
) -> World:
    """Rows of a discrete network without ``num_hidden`` variables, and the PAG of the true one.

    The network is "random", of twenty variables beside the hidden ones, or one of the data
    "network". Hidden are variables with two effects or more. Columns of one state are left out, and
    the others are in random order.
    """
    rng = np.random.default_rng([seed, len(network)])
    found = (
        random_network(num_hidden + SEEN, seed=rng)
        if network == "random"
        else network_of(network, data_dir)
    )
    hidden = _chosen(found.graph.adjacency, num_hidden, rng)
    frame = found.sample(num_rows, int(rng.integers(2**31)))
    kept = [found.names[k] for k in rng.permutation(len(found.names)).tolist() if k not in hidden]
    kept = [name for name in kept if frame[name].nunique() > 1]
    return World([pd.DataFrame(frame[kept])], found.graph.to_pag(kept))


def _chosen(dag: BoolArray, num_hidden: int, rng: np.random.Generator) -> list[int]:
    """Draw the hidden variables of those with two effects or more, then of the others."""
    drawn = rng.permutation(len(dag))
    able = dag[drawn].sum(axis=1) > 1
    return sorted(int(k) for k in [*drawn[able], *drawn[~able]][:num_hidden])


HIDDEN: dict[str, Callable[..., World]] = {
    "hidden-causes": hidden_causes,
    "hidden-categories": hidden_categories,
}
