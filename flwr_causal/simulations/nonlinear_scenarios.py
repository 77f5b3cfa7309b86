"""The simulations of Yang et al. (AAAI 2024), "Experimental Evaluation" and supplements C and D.

Settings and data: one graph, and parties with the same or with different functions. A
setting is simulated once for each seed (ten in the paper):

>>> from flwr_causal.simulations import simulate
>>> for setting in different_mechanisms():  # doctest: +SKIP
...     parties, truth = setting.data(seed=0)
...     run = simulate("fedcausal", parties, truth=truth)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flwr_causal.data.synthetic.nonlinear import PAPER_MECHANISMS, federated_nonlinear

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph

#: Numbers of variables in the paper's figures 2 and 3.
DIMENSIONS = (10, 20, 40, 80)
#: Numbers of parties in supplement D.
PARTIES = (2, 4, 8, 16, 32)


class NonlinearSetting(NamedTuple):
    """One setting of a suite; the arguments of :func:`federated_nonlinear`.

    Attributes
    ----------
    num_variables : int
        d.
    num_rows : int
        n, of all parties together.
    num_parties : int
        K.
    mechanisms : tuple of str
        The mechanisms from which each party (or with ``iid`` all parties together) draws one.
    iid : bool
        Whether all parties have the same functions.
    sizes : {"even", "uneven"}
        Numbers of rows of the parties.
    graph : {"er", "sf"}
        Erdos-Renyi or scale-free.
    """

    num_variables: int
    num_rows: int = 2000
    num_parties: int = 10
    mechanisms: tuple[str, ...] = PAPER_MECHANISMS
    iid: bool = False
    sizes: str = "even"
    graph: str = "er"

    def data(self, seed: int) -> tuple[list[pd.DataFrame], CausalGraph]:
        """Simulate the parties' tables and the true graph.

        The graph depends only on d, the kind of graph and the seed.
        """
        return federated_nonlinear(**self._asdict(), seed=seed)


def same_functions(
    mechanism: str = "lg", dimensions: Sequence[int] = DIMENSIONS, graph: str = "er"
) -> tuple[NonlinearSetting, ...]:
    """Return the settings of figure 2, iid rows: ten parties with 200 rows each.

    The paper has the mechanisms "lg" and "anm-mlp", and both kinds of graphs.
    """
    return tuple(
        NonlinearSetting(d, mechanisms=(mechanism,), iid=True, graph=graph) for d in dimensions
    )


def different_mechanisms(
    dimensions: Sequence[int] = DIMENSIONS, graph: str = "er"
) -> tuple[NonlinearSetting, ...]:
    """Return the settings of figure 3: each of ten parties draws its mechanism and its functions.

    At d = 40 the paper has SHD 13.3 (TPR 0.849, FDR 0.009).
    """
    return tuple(NonlinearSetting(d, graph=graph) for d in dimensions)


def uneven_parties(
    dimensions: Sequence[int] = (40,), graph: str = "er"
) -> tuple[NonlinearSetting, ...]:
    """Return the settings of supplement C: figure 3 with uneven parties (see `deal_packages`).

    At d = 40 the paper has SHD 13.6 (TPR 0.860, FDR 0.025).
    """
    return tuple(NonlinearSetting(d, sizes="uneven", graph=graph) for d in dimensions)


def growing_parties(
    mechanism: str = "anm-mlp",
    parties: Sequence[int] = PARTIES,
    num_variables: int = 40,
    num_rows: int = 2048,
) -> tuple[NonlinearSetting, ...]:
    """Return the settings of supplement D: 2048 iid rows of 40 variables over 2 to 32 parties.

    The paper does not name the mechanism.
    """
    return tuple(
        NonlinearSetting(num_variables, num_rows, K, mechanisms=(mechanism,), iid=True)
        for K in parties
    )
