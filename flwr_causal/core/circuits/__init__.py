"""Probabilistic circuits: distributions that answer marginals and conditionals exactly."""

from flwr_causal.core.circuits.chow_liu_model import ChowLiuMixture
from flwr_causal.core.circuits.circuit import Circuit, mixture
from flwr_causal.core.circuits.class_first_learner import ClassFirstLearner
from flwr_causal.core.circuits.decision_tree import DecisionTree
from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.einsum_network import EinsumNetwork
from flwr_causal.core.circuits.federated_circuit import FederatedCircuit
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
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.nodes import Leaf, Node, Product, Sum
from flwr_causal.core.circuits.tensor_circuit import TensorCircuit

__all__ = [
    "Categorical",
    "ChowLiuMixture",
    "ChowLiuTree",
    "Circuit",
    "CircuitModel",
    "ClassFirstLearner",
    "DecisionTree",
    "Distribution",
    "Domain",
    "EinsumNetwork",
    "Elliptical",
    "FederatedCircuit",
    "Gaussian",
    "Histogram",
    "Layers",
    "Leaf",
    "LearnSPN",
    "Node",
    "Product",
    "Sum",
    "TensorCircuit",
    "Variable",
    "bernoulli",
    "learn_spn",
    "mixture",
]
