"""Federated causal discovery for Flower: several parties, one graph, no pooled data."""

from typing import TYPE_CHECKING, Any

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
    from flwr_causal.reports.run import Run
    from flwr_causal.simulations import LocalGrid, simulate

__all__ = [
    "CausalError",
    "CausalGraph",
    "ConfigError",
    "DataError",
    "FederationError",
    "Knowledge",
    "LocalGrid",
    "Run",
    "simulate",
]

_HOMES = {
    "CausalGraph": "flwr_causal.core.graphs.graph",
    "Knowledge": "flwr_causal.core.graphs.knowledge",
    "CausalError": "flwr_causal.errors",
    "ConfigError": "flwr_causal.errors",
    "DataError": "flwr_causal.errors",
    "FederationError": "flwr_causal.errors",
    "Run": "flwr_causal.reports.run",
    "LocalGrid": "flwr_causal.simulations",
    "simulate": "flwr_causal.simulations",
}

_find, __dir__ = lazily(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":  # that of the installed package, whose pyproject.toml states it
        from flwr_causal.protocol.schema import own_version

        return own_version()
    return _find(name)
