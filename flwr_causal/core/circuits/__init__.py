"""Probabilistic circuits: distributions that answer marginals and conditionals exactly."""

from flwr_causal.core.circuits.circuit import Circuit, mixture
from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.layers import Layers
from flwr_causal.core.circuits.learn_spn import LearnSPN, learn_spn
from flwr_causal.core.circuits.leaves import (
    Categorical,
    ChowLiuTree,
    Elliptical,
    Gaussian,
    Histogram,
    bernoulli,
)
from flwr_causal.core.circuits.nodes import Leaf, Node, Product, Sum

__all__ = [
    "Categorical",
    "ChowLiuTree",
    "Circuit",
    "Distribution",
    "Domain",
    "Elliptical",
    "Gaussian",
    "Histogram",
    "Layers",
    "Leaf",
    "LearnSPN",
    "Node",
    "Product",
    "Sum",
    "Variable",
    "bernoulli",
    "learn_spn",
    "mixture",
]
