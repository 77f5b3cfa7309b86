"""The state of a consensus ADMM run, and the settings that it tries side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flwr_causal.core.consensus import admm
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement

    FloatArray = NDArray[np.float64]


class Candidate(NamedTuple):
    """One of the settings that a run tries side by side.

    Parameters
    ----------
    factor : float
        On the automatic sparsity.
    lags : int
        The number of lags.
    """

    factor: float
    lags: int


@dataclass(frozen=True, eq=False)
class AdmmRun:
    """The state of a NOTEARS-ADMM run.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the m columns of the design.
    problem : ServerProblem
        Schedule, threshold and masks of the iteration.
    inner : State
        The iteration's own state.
    stopped : str or None
        Why the iteration is over.
    moments : ndarray of shape (folds, d, d) or None
        What the last exchange returned: second moments among each variable and its parents.
    """

    agreement: Agreement
    masks: EdgeMasks
    problem: admm.ServerProblem
    inner: admm.State
    stopped: str | None = None
    moments: FloatArray | None = None
