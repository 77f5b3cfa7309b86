"""Moments (Ng & Zhang 2022, section 4): one exchange of sums, then a centralised solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core import moments as core
from flwr_causal.core.folds import num_held_out
from flwr_causal.core.notears import dagma, notears
from flwr_causal.core.polish import polish_graph
from flwr_causal.core.selection import (
    default_sparsity,
    select_by_bic,
    select_by_held_out,
    typical_variance,
)
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.options import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graph import CausalGraph
    from flwr_causal.core.knowledge import EdgeMasks
    from flwr_causal.core.linear import LinearModel
    from flwr_causal.data.checks import Agreement
    from flwr_causal.wire import Arrays, Scalar

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MomentsRun:
    """The state of a moments run.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
    moments : Moments or None
        Of all parties together, centred and scaled; None before the exchange.
    solution : CausalGraph or None
        What the solver made of them.
    """

    agreement: Agreement
    masks: EdgeMasks
    moments: core.Moments | None = None
    solution: CausalGraph | None = None


@dataclass(kw_only=True, eq=False)
class Moments(LinearStrategy[MomentsRun]):
    """Federated linear structure learning from summed second moments, in one exchange.

    Means and second moments are all that a linear Gaussian system needs from the rows
    (Ng & Zhang 2022, section 4), and sums over parties are exactly those of the pooled rows. The
    answer is therefore that of the centralised solver on the pooled data.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; then one d x d array of second moments of the
    centred and scaled rows. With secure summation the server learns the pooled second moments and
    nothing else. Without it it learns each party's, that is, each party's correlations.

    Parameters
    ----------
    solver : {"dagma", "notears"}, default "dagma"
        "dagma" is the log-determinant central path (Bello et al. 2022), also for hundreds of
        variables; "notears" the trace exponential and augmented Lagrangian (Zheng et al. 2018).
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight of the L1 norm. "auto" is c sqrt(log d / n) times the geometric mean of the variances
        (``flwr_causal.core.selection.default_sparsity``); "bic" chooses among multiples of it by
        the Gaussian BIC; "held-out" by the error on a quarter of the rows of every party, whose
        sums then travel apart.
    polish : bool, default False
        Go on from the solver's graph by adding, dropping and reversing single edges as long as
        ``score`` improves, on the same moments.
    score : {"bic", "equal-variance"}, default "bic"
        What the polish improves. "equal-variance" assumes that all noise terms have one variance:
        true of the papers' simulators, seldom of the world.
    refit : bool, default True
        Give the edges of the final graph their least-squares weights, free of the L1 norm's
        shrinkage. ``graph.raw_weights`` holds the solver's own.
    """

    method: ClassVar[str] = "moments"

    solver: Literal["dagma", "notears"] = "dagma"
    sparsity: float | Literal["auto", "bic", "held-out"] = "auto"
    polish: bool = False
    score: Literal["bic", "equal-variance"] = "bic"
    refit: bool = True

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        if self.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.max_rounds!r}; the moments method has exactly "
                "one exchange. Leave the option out."
            )
        if isinstance(self.sparsity, float):
            require(self.sparsity >= 0, "sparsity", self.sparsity, "0 or more")

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties prepare their rows."""
        held_out = self.sparsity == "held-out"
        return {**super().client_options, "held-out": held_out, "seed": self.seed}

    def init(self, agreement: Agreement) -> MomentsRun:
        """Start without moments."""
        return MomentsRun(agreement, self.masks(agreement))

    def broadcast(self, state: MomentsRun) -> Arrays:
        """Return nothing: the parties need only the agreement."""
        return {}

    def server_step(
        self, state: MomentsRun, mean: Arrays, replies: int
    ) -> tuple[MomentsRun, dict[str, Any]]:
        """Solve on the moments of all parties."""
        agreement, folds = state.agreement, mean["moments"]
        pooled = self._moments(agreement, agreement.n, folds.sum(axis=0))
        sparsity = self._choose_sparsity(pooled, folds, agreement, state.masks)
        solution = self._solve(pooled, sparsity, state.masks)
        if self.polish:
            solution = polish_graph(pooled, solution, score=self.score, knowledge=state.masks)
        return replace(state, moments=pooled, solution=solution), {"sparsity": sparsity}

    def _moments(self, agreement: Agreement, n: int, sums: FloatArray) -> core.Moments:
        """Return the moments of n rows whose products were summed and divided by all rows."""
        zeros = np.zeros(len(agreement.names))
        return core.Moments(n, zeros, sums * (agreement.n / n), agreement.names)

    def _solve(self, pooled: core.Moments, sparsity: float, masks: EdgeMasks) -> CausalGraph:
        solve = notears if self.solver == "notears" else dagma
        return solve(
            pooled,
            sparsity=sparsity,
            threshold=self.threshold,
            knowledge=masks,
            refit=self.refit,
        )

    def _choose_sparsity(
        self, pooled: core.Moments, folds: FloatArray, agreement: Agreement, masks: EdgeMasks
    ) -> float:
        """Return the weight of the L1 norm that the option asks for."""
        if isinstance(self.sparsity, float):
            return self.sparsity
        if self.sparsity == "auto":
            return default_sparsity(pooled.n, pooled.d, typical_variance(pooled))

        def solve(moments: core.Moments, sparsity: float) -> CausalGraph:
            return self._solve(moments, sparsity, masks)

        if self.sparsity == "bic":
            return select_by_bic(pooled, None, solve).chosen
        held_out = int(num_held_out(np.array(list(agreement.rows.values()))).sum())
        train = self._moments(agreement, agreement.n - held_out, folds[0])
        validation = self._moments(agreement, held_out, folds[1])
        return select_by_held_out(train, validation, None, solve).chosen

    def finished(self, state: MomentsRun) -> str | None:
        """Return why the run is over: one exchange is all."""
        return None if state.moments is None else "the one exchange of sums is done"

    def graph(self, state: MomentsRun) -> CausalGraph | None:
        """Return the solver's graph."""
        return state.solution

    def model(self, state: MomentsRun) -> LinearModel | None:
        """Return the fitted linear system in the units of the data."""
        if state.moments is None or state.solution is None:
            return None
        return self.fitted_system(state.agreement, state.moments, state.solution.adjacency)

    def scores(self, state: MomentsRun) -> FloatArray | None:
        """Return the absolute weights before the threshold."""
        if state.solution is None or state.solution.raw_weights is None:
            return None
        return np.abs(state.solution.raw_weights)

    def warnings(self, state: MomentsRun) -> list[str]:
        """Warn where the order of the variances may have decided the directions."""
        if state.solution is None:
            return []
        return self.order_warning(state.agreement, state.solution.adjacency)
