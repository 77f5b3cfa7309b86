"""The simulations of Yang et al. (AAAI 2024), "Experimental Evaluation" and supplements C and D.

Settings, data and baselines: one graph, and parties with the same or with different functions. A
setting is simulated once for each seed (ten in the paper):

>>> from flwr_causal.simulations import simulate
>>> for setting in different_mechanisms():  # doctest: +SKIP
...     parties, truth = setting.data(seed=0)
...     run = simulate("fedcausal", parties, truth=truth)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from flwr_causal.core.linear.baselines import all_data, alone, average, paper_solver, quick_solver
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.nonlinear.notears_mlp import notears_mlp
from flwr_causal.data.synthetic.nonlinear import PAPER_MECHANISMS, federated_nonlinear
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph

SolverName = Literal["dagma", "notears", "notears-mlp"]

#: Numbers of variables in the paper's figures 2 and 3.
DIMENSIONS = (10, 20, 40, 80)
#: Numbers of parties in supplement D.
PARTIES = (2, 4, 8, 16, 32)
#: Largest number of L-BFGS-B iterations of an inner problem of NOTEARS-MLP in the baselines. With
#: SciPy's default of 15,000 both baselines took 229 CPU s instead of 100 on ten variables, with the
#: same errors.
INNER_STEPS = 300


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


def baselines(
    parties: Sequence[pd.DataFrame], truth: CausalGraph, *, solver: SolverName = "dagma"
) -> dict[str, CausalGraph]:
    """Return the graphs of the paper's baselines, by the paper's names.

    ``NO-ALL`` is NOTEARS on the rows of all parties, centred by the means of each party. ``NO-Avg``
    is the mean of the weights of NOTEARS on each party's rows, weighted by the numbers of rows and
    then thresholded; it may have cycles.

    Parameters
    ----------
    parties : sequence of DataFrame
        The table of each party.
    truth : CausalGraph
        The true graph, whose variables are used.
    solver : {"dagma", "notears", "notears-mlp"}, default "dagma"
        "dagma": linear models by DAGMA with the default sparsity. "notears": linear models by
        NOTEARS with the sparsity of its authors (0.1). "notears-mlp": perceptrons, the paper's
        choice for nonlinear data, with the defaults of `notears_mlp` except `INNER_STEPS`; this
        needs torch and takes minutes for 20 variables. The threshold is 0.3, for linear weights,
        and for perceptrons for the root mean square of ``df_j/dx_i`` (the authors of NOTEARS-MLP
        threshold the norm of the first layer's block, which has no unit).

    Raises
    ------
    ConfigError
        If the solver is unknown, or torch is missing.
    DataError
        If there are no parties.
    """
    if solver not in get_args(SolverName):
        raise ConfigError(f"solver is {solver!r}: choose one of {', '.join(get_args(SolverName))}")
    if not parties:
        raise DataError("there are no parties to compare: give at least one table")
    tables = [_within_party(party, truth.names) for party in parties]
    if solver == "notears-mlp":
        solve_rows = partial(notears_mlp, max_iterations=INNER_STEPS)
        together, own = solve_rows(pd.concat(tables)), list(map(solve_rows, tables))
    else:
        solve = quick_solver if solver == "dagma" else paper_solver
        moments = [Moments.from_rows(rows, truth.names, center=False) for rows in tables]
        together, own = all_data(moments, solve), alone(moments, solve)
    return {"NO-ALL": together, "NO-Avg": average(own, [len(rows) for rows in tables])}


def _within_party(party: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows of a party, centred by its means."""
    rows = party[list(names)].astype(np.float64)
    return rows - rows.mean()
