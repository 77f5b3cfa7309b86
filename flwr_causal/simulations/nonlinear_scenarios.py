"""The simulations of Yang et al. (AAAI 2024), "Experimental Evaluation" and supplements C and D.

Settings, data and baselines: one graph, parties with the same functions or with functions of their
own. Each setting of a suite takes one seed for each repetition (ten in the paper):

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
#: Most L-BFGS-B iterations of one inner problem of NOTEARS-MLP in the baselines. With SciPy's
#: 15,000 both took 229 CPU s instead of 100 on ten variables, for the same errors.
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
        From which each party, or all together, draw theirs.
    iid : bool
        All parties have the same functions.
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

        The graph depends on d, its kind and the seed only: all suites have the same truths.
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
    """Return the settings of supplement C: figure 3's, 40 packages of 50 rows dealt at random.

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
    """Return the graphs of the paper's baselines, by their names there.

    ``NO-ALL`` is NOTEARS on the rows of all parties, each centred by its party's means; ``NO-Avg``
    is the mean of the weights that it finds at each party alone, weighted by rows, cut after that
    (it may have cycles, and keeps them).

    Parameters
    ----------
    parties : sequence of DataFrame
    truth : CausalGraph
        Over the same variables.
    solver : {"dagma", "notears", "notears-mlp"}, default "dagma"
        Linear models by the log-determinant's central path with an automatic sparsity, or by the
        augmented Lagrangian with that of its authors (0.1); or perceptrons, the paper's choice for
        rows that are not linear, with the defaults of `notears_mlp` but for `INNER_STEPS`; that
        needs torch, and minutes at 20 variables. All cut at 0.3: linear weights, or of perceptrons
        the root mean square of ``df_j/dx_i``, which has a unit, where the authors of NOTEARS-MLP
        cut the norm of the first layer's block.

    Raises
    ------
    ConfigError
        Unknown solver, or torch is missing.
    DataError
        No parties.
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
    """Return the rows about the party's own means."""
    rows = party[list(names)].astype(np.float64)
    return rows - rows.mean()
