"""Probabilistic circuits: distributions that answer marginals and conditionals exactly."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.core.circuits.circuit import Circuit, mixture
    from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
    from flwr_causal.core.circuits.distribution import Distribution
    from flwr_causal.core.circuits.domain import Domain, Variable
    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
    from flwr_causal.core.circuits.learners.decision_tree import DecisionTree
    from flwr_causal.core.circuits.learners.einsum.network import EinsumNetwork
    from flwr_causal.core.circuits.learners.spn.learn_spn import LearnSPN, learn_spn
    from flwr_causal.core.circuits.learners.trees.learner import ChowLiuMixture
    from flwr_causal.core.circuits.leaves.categorical import Categorical, bernoulli
    from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
    from flwr_causal.core.circuits.leaves.elliptical import Elliptical
    from flwr_causal.core.circuits.leaves.gaussian import Gaussian
    from flwr_causal.core.circuits.leaves.histogram import Histogram
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.core.circuits.nodes import Leaf, Node, Product, Sum

__all__ = [
    "Categorical",
    "ChowLiuMixture",
    "ChowLiuTree",
    "Circuit",
    "CircuitModel",
    "ClassConditional",
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
    "Variable",
    "bernoulli",
    "learn_spn",
    "mixture",
]

_HOMES = {
    "Categorical": "flwr_causal.core.circuits.leaves",
    "ChowLiuMixture": "flwr_causal.core.circuits.learners.trees.learner",
    "ChowLiuTree": "flwr_causal.core.circuits.leaves",
    "Circuit": "flwr_causal.core.circuits.circuit",
    "CircuitModel": "flwr_causal.core.circuits.model",
    "ClassConditional": "flwr_causal.core.circuits.learners.class_conditional.learner",
    "DecisionTree": "flwr_causal.core.circuits.learners.decision_tree",
    "Distribution": "flwr_causal.core.circuits.distribution",
    "Domain": "flwr_causal.core.circuits.domain",
    "EinsumNetwork": "flwr_causal.core.circuits.learners.einsum.network",
    "Elliptical": "flwr_causal.core.circuits.leaves",
    "FederatedCircuit": "flwr_causal.core.circuits.composed.federated_circuit",
    "Gaussian": "flwr_causal.core.circuits.leaves",
    "Histogram": "flwr_causal.core.circuits.leaves",
    "Layers": "flwr_causal.core.circuits.layers",
    "Leaf": "flwr_causal.core.circuits.nodes",
    "LearnSPN": "flwr_causal.core.circuits.learners.spn.learn_spn",
    "Node": "flwr_causal.core.circuits.nodes",
    "Product": "flwr_causal.core.circuits.nodes",
    "Sum": "flwr_causal.core.circuits.nodes",
    "Variable": "flwr_causal.core.circuits.domain",
    "bernoulli": "flwr_causal.core.circuits.leaves",
    "learn_spn": "flwr_causal.core.circuits.learners.spn.learn_spn",
    "mixture": "flwr_causal.core.circuits.circuit",
}

__getattr__ = lazily(__name__, _HOMES)
