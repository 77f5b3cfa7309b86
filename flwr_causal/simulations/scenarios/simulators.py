"""The simulators of the papers, as data of scenarios."""

from __future__ import annotations

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import PAPER_MECHANISMS, federated_nonlinear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.simulations.scenarios.world import World


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
