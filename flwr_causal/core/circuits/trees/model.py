"""The circuit that a training of trees ends in, and the learner for one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.circuits.trees.rows import plan_for
from flwr_causal.core.circuits.trees.training import Options, State, train
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.nodes import Node
    from flwr_causal.core.circuits.trees.tables import Trees

FloatArray = NDArray[np.float64]


def fitted(state: State, domain: Domain) -> Circuit:
    """Return the circuit of a training that is complete.

    Classes of which no party has a row are not in it: their likelihood is 0.

    Raises
    ------
    ConfigError
        If an exchange is missing.
    """
    if not state.complete or state.rows is None:
        raise ConfigError("the training is not complete: there is a request to answer yet")
    plan = state.plan
    children: list[Node] = []
    present = np.flatnonzero(state.rows > 0)
    for c in map(int, present):
        mixtures = state.mixtures[c]
        weights = np.exp(mixtures.log_weights) / len(mixtures.log_weights)
        node = mixture_node(tree_leaves(mixtures.trees, plan.columns), weights.ravel())
        if plan.target is not None:
            node = Product([node, Categorical(plan.target, np.eye(plan.num_classes)[c])])
        children.append(node)
    return Circuit(domain, mixture_node(children, state.rows[present]))


def mixture_node(children: Sequence[Node], weights: FloatArray) -> Node:
    """Return the sum of nodes; a node alone is itself."""
    return children[0] if len(children) == 1 else Sum(children, weights / weights.sum())


def tree_leaves(trees: Trees, columns: Sequence[int]) -> list[ChowLiuTree]:
    """Return the leaves of trees over ascending columns of a domain."""
    return [
        ChowLiuTree(
            tuple(columns),
            tuple(trees.parents[tree].tolist()),
            tuple(trees.table(tree, variable) for variable in range(len(columns))),
        )
        for tree in range(trees.num_trees)
    ]


@dataclass(frozen=True)
class ChowLiuMixture:
    """Learner of mixtures of Chow-Liu trees for tables of categories.

    Parameters
    ----------
    components, ensembles, product_steps, tree_steps
        See :class:`~flwr_causal.core.circuits.trees.training.Options`.
    target : str, optional
        A class whose states have trees of their own. None: it is a column as the others.
    """

    components: int | tuple[int, ...] | None = None
    ensembles: int = 3
    product_steps: int = 5
    tree_steps: int = 1
    target: str | None = None

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows.

        Parameters
        ----------
        domain : Domain
            Of variables with states.
        values : ndarray of float64, shape (n, number of variables)
            NaN is a missing value.
        seed : int
            Of the start.

        Raises
        ------
        ConfigError
            If a variable is a number.
        DataError
            If there are no rows, or the target is missing in some.
        """
        options = Options(self.components, self.ensembles, self.product_steps, self.tree_steps)
        return fitted(train([values], plan_for(domain, self.target, seed=seed), options), domain)
