"""The distributions that circuits are built from."""

from flwr_causal.core.circuits.leaves.categorical import Categorical, bernoulli
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.gaussian import Gaussian
from flwr_causal.core.circuits.leaves.histogram import Histogram

__all__ = ["Categorical", "ChowLiuTree", "Elliptical", "Gaussian", "Histogram", "bernoulli"]
