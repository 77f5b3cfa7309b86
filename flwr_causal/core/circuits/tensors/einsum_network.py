"""EiNets: tensorised circuits learned from rows by EM (Peharz et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.tensors import sums as tensor_sums
from flwr_causal.core.circuits.tensors.em import (
    SMOOTHING,
    VARIANCES,
    cooled,
    counted,
    stepped,
)
from flwr_causal.core.circuits.tensors.leaf import TensorLeaf
from flwr_causal.core.circuits.tensors.storage import parameters_from
from flwr_causal.core.nonlinear.perceptrons import PRECISIONS
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.circuits.domain import Domain

FloatArray = NDArray[np.float64]

#: Batches of a pass over few rows, as long as each has so many rows: too few M-steps would leave
#: the circuit near its random start.
LEAST_BATCHES = 10
LEAST_ROWS = 20


@dataclass(frozen=True)
class EinsumNetwork:
    """Learner of tensorised circuits; needs torch.

    Parameters
    ----------
    target : str, optional
        A category that has a root for each of its states. None: one root.
    depth : int, default 4
        Splits from the root to the leaf regions, as far as there are columns.
    replicas : int, default 5
        Random region graphs.
    sums : int, default 10
        Sums of each region, and units of each column; in the paper 10 to 40.
    epochs : int, default 10
        Passes over the rows.
    batch_size : int, optional, default 100
        Rows between two M-steps; less where there are few, see `LEAST_BATCHES`. None: all, with the
        step 1, which is EM itself.
    step : float
        Share of the first batch in the running mean of EM; it falls to a hundredth of that, see
        :func:`flwr_causal.core.circuits.tensors.em.cooled`.
    smoothing : float
        Rows that each sum and category is given beforehand, all choices alike.
    variances : tuple of float
        Bounds of the units' variances, as shares of the column's.
    image : tuple of int, optional
        Height and width, where the columns but the target are the pixels, row after row: regions
        are then rectangles, and all pixels are divided by the same number.
    device : str, default "cpu"
        Or ``"cuda"``, ``"cuda:<index>"``.
    precision : {"float32", "float64"}

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    target: str | None = None
    depth: int = 4
    replicas: int = 5
    sums: int = 10
    epochs: int = 10
    batch_size: int | None = 100
    step: float = 0.5
    smoothing: float = SMOOTHING
    variances: tuple[float, float] = VARIANCES
    image: tuple[int, int] | None = None
    device: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("depth", "replicas", "sums", "epochs", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if not 0.0 < self.step <= 1.0:
            raise ConfigError(f"step must be above 0 and at most 1, got {self.step}")
        if not self.smoothing > 0.0:
            raise ConfigError(f"smoothing must be above 0, got {self.smoothing}")
        if not 0.0 < self.variances[0] <= self.variances[1]:
            raise ConfigError(f"variances must be above 0 and ascend, got {self.variances}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {PRECISIONS}, got {self.precision!r}")

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows: one leaf, which can be composed with others.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is integrated out.
        seed : int, default 0
            Of the regions, the first parameters and the order of rows.

        Raises
        ------
        DataError
            If there is no row, or a number is missing in all of them.
        ConfigError
            If torch is not installed, or the options do not fit the domain.
        """
        plan = tensor_sums.plan_for(domain, self, seed)
        if self.batch_size is None:
            return tensor_sums.fitted(tensor_sums.train([values], plan), domain)
        state = tensor_sums.scaled(values, plan)
        layout = tensor_sums.layout_of(state)
        assert state.parameters is not None  # known once scaled
        parameters = parameters_from(layout, state.parameters)
        rng = np.random.default_rng(seed)
        rows = layout.rows(values)
        few = min(LEAST_BATCHES, len(values) // LEAST_ROWS)
        num_batches = max(1, few, round(len(values) / self.batch_size))
        for epoch in range(self.epochs):
            shuffled = rows[:, layout.indices(rng.permutation(len(values)))]
            for number, batch in enumerate(shuffled.tensor_split(num_batches, dim=1)):
                done = (epoch + number / num_batches) / self.epochs
                counts, _ = counted(layout, parameters, batch)
                parameters = stepped(
                    layout,
                    parameters,
                    counts,
                    batch.shape[1],
                    cooled(self.step, done),
                    self.smoothing / len(values),
                    self.variances,
                )
        return Circuit(domain, TensorLeaf.of(layout, parameters))
