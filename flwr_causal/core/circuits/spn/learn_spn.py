"""LearnSPN: the structure of a circuit over a mixed table from its rows, from the top down.

Columns that fall into independent groups make a product; else similar rows make a sum; a few rows,
or a single column, make leaves. This is LearnSPN (Gens & Domingos 2013) for mixed tables (MSPN,
Molina et al. 2018), with one test for all pairs of columns, leaves that are smoothed by the whole
table, and, where numbers are strongly correlated and held-out rows agree, a block of them in one
leaf (see `block_fit`).

References
----------
Gens & Domingos: Learning the structure of sum-product networks, ICML 2013.
Molina et al.: Mixed sum-product networks, AAAI 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.class_first.rows import row_folds
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.spn.block_fit import best_root
from flwr_causal.core.circuits.spn.em import checked_weights, expectation_maximisation
from flwr_causal.core.circuits.spn.growth import Growth
from flwr_causal.core.circuits.spn.leaf_fit import NumericLeaf
from flwr_causal.core.circuits.spn.row_clusters import one_thread
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.circuits.nodes import FloatArray

#: Folds of so many are hashes: no two different rows share one.
HASHES = 2**62


@dataclass(frozen=True)
class LearnSPN:
    """Learner of circuits from mixed tables.

    Parameters
    ----------
    min_rows : float, default 60
        Fewer rows than these make leaves. The paper of FedPC takes 50 to 300.
    clusters : int, default 2
        Children of a sum.
    significance : float, default 1e-4
        Probability that independent columns are taken for dependent; see `independence`.
    correlation : float, optional
        Columns are dependent whose largest correlation is above it, instead of by the test: the
        paper's threshold on RDC, 0.3 to 0.5.
    bins : int, default 6
        Of a number, for the test and for the clusters.
    smoothing : float, default 2
        Pseudo rows of each leaf; see `leaf_priors`.
    leaves : {"auto", "gaussian", "histogram"}, default "auto"
        Of numbers; ``"auto"``: what foretells left-out rows better.
    blocks : bool, default True
        Try multivariate leaves; see `block_fit`.
    target : str, optional
        A category: the root is a sum over its states, which tells classes better apart. Rows in
        which it is missing are passed over.
    em_steps : int, default 0
        Steps of EM on the finished circuit; see `em`.
    """

    min_rows: float = 60.0
    clusters: int = 2
    significance: float = 1e-4
    correlation: float | None = None
    bins: int = 6
    smoothing: float = 2.0
    leaves: NumericLeaf = "auto"
    blocks: bool = True
    target: str | None = None
    em_steps: int = 0

    def __post_init__(self) -> None:
        kinds = get_args(NumericLeaf)
        if self.leaves not in kinds:
            raise ConfigError(f"leaves must be one of {', '.join(kinds)}, got {self.leaves!r}")
        for name, least in (("clusters", 2), ("bins", 2), ("em_steps", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.smoothing > 0 or not self.min_rows > 0:
            raise ConfigError(
                f"smoothing and min_rows must be above 0, got {self.smoothing} and {self.min_rows}"
            )
        if not 0 < self.significance < 1:
            raise ConfigError(f"significance must lie between 0 and 1, got {self.significance}")
        if self.correlation is not None and not 0 <= self.correlation < 1:
            raise ConfigError(f"correlation must be from 0 to below 1, got {self.correlation}")

    def learn(
        self,
        domain: Domain,
        values: FloatArray,
        seed: int = 0,
        row_weights: ArrayLike | None = None,
    ) -> Circuit:
        """Return a circuit of rows.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is NaN.
        seed : int, default 0
            Of the clusters. The order of the rows does not matter.
        row_weights : array_like, shape (n,), optional
            How many rows each stands for: the circuit is that of the repeated rows. Default 1.

        Raises
        ------
        DataError
            If there are no rows, or a number is missing in all of them.
        ConfigError
            If the target is no category.
        """
        weights = checked_weights(row_weights, len(values))
        values, weights = distinct_rows(values, weights, seed)
        target = None if self.target is None else domain.index(self.target)
        if target is not None:
            if domain.num_states[target] == 0:
                raise ConfigError(f"the target {self.target!r} is a number: make it a category")
            known = ~np.isnan(values[:, target])
            if not known.any():
                raise DataError(f"the target {self.target!r} is missing in every row")
            values, weights = values[known], weights[known]
        with one_thread():
            growth = Growth(self, domain, values, weights, seed)
            root = best_root(growth, target) if self.blocks else growth.root(target)
        circuit = Circuit(domain, root)
        if not self.em_steps:
            return circuit
        return expectation_maximisation(
            circuit,
            values,
            steps=self.em_steps,
            row_weights=weights,
            smoothing=self.smoothing,
        ).circuit


def distinct_rows(
    values: FloatArray, row_weights: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return each row that counts once, in an order that depends on values alone, and weights."""
    counted = row_weights > 0
    values, row_weights = values[counted], row_weights[counted]
    hashes = row_folds(np.where(np.isnan(values), np.nan, values), HASHES, seed)
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return values[first], np.bincount(inverse, row_weights).astype(np.float64)


def learn_spn(
    frame: Any,
    *,
    categorical: Sequence[str] = (),
    domain: Domain | None = None,
    seed: int = 0,
    row_weights: ArrayLike | None = None,
    **options: Any,
) -> Circuit:
    """Learn a circuit from a table.

    Parameters
    ----------
    frame : DataFrame, or array of shape (n, d)
        Texts, booleans and pandas categories are categories, other columns are numbers; a missing
        value is integrated out. The columns of an array are numbers named x0, x1, ...
    categorical : sequence of str, optional
        Further columns that are categories.
    domain : Domain, optional
        What the columns are, instead of what this frame shows of them; an array then holds values
        as ``domain.encode`` makes them.
    seed : int, default 0
        The same seed gives the same circuit.
    row_weights : array_like, shape (n,), optional
        How many rows each stands for. Default 1.
    **options
        Of `LearnSPN`, e.g. ``target="income"`` or ``em_steps=10``.

    Returns
    -------
    Circuit

    Raises
    ------
    DataError
        If there are no rows, a column is missing altogether, or a value cannot be read.
    ConfigError
        If an option is unknown or out of range.
    """
    names = [field.name for field in fields(LearnSPN)]
    unknown = [name for name in options if name not in names]
    if unknown:
        raise ConfigError(f"learn_spn has no option {unknown[0]!r}: expected {', '.join(names)}")
    learner = LearnSPN(**options)
    if domain is None:
        frame = _frame_of(frame)
        domain = Domain.from_frame(frame, categorical)
    elif categorical:
        raise ConfigError("give either a domain or categorical columns: a domain says which are")
    return learner.learn(domain, domain.encode(frame), seed, row_weights)


def _frame_of(data: Any) -> Any:
    """Return a frame; the columns of an array are called x0, x1, ..."""
    if hasattr(data, "columns"):
        return data
    import pandas as pd

    array = np.asarray(data)
    if array.ndim != 2:
        raise DataError(f"a table has the shape (rows, columns), got {array.shape}")
    return pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])
