"""Products of the rows of all parties: what a source gives, and a solver takes.

A source is a file of this package: the exchanges by which sums over rows reach the server, the
server's side as a generator, and the party's answers. All sources give the same: products of the
rows [1, z] of a :class:`~flwr_causal.core.blocks.design.Design`, of shape (sets, 1 + s, 1 + s).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flwr_causal.core.blocks.design import Design, functions_of
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.linear.determined import RESIDUAL_SHARE
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.core.ties import whole
from flwr_causal.data.interventions import acted_on
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
    from flwr_causal.data.check.agreement import Agreement

#: Fewest effective rows, as of rows that each count once.
LEAST_ROWS = 2
#: A column whose weighted variance is at most this share of its mean square is constant: it is
#: centred by the mean of all rows, those of weight 0 too.
CONSTANT = 1e-10


@dataclass(frozen=True, eq=False)
class Products:
    """Products of the rows of all parties, with their design, warnings and privacy.

    Where a source gives those of a weighted design, they become those of its effective rows, see
    :meth:`~flwr_causal.core.blocks.design.Design.effective`: no solver knows of weights.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances of these rows.
    design : Design
        What the rows z are.
    values : ndarray of shape (sets, 1 + s, 1 + s)
        Sums of products of the rows [1, z] of each fold, under interventions of each set of
        targets, divided by the number of all rows. Before ``sources.levels.about_levels`` the two
        arrays of products within units and of their means.
    of_fewer_lags : ndarray of shape (p - 1, 1 + s, 1 + s), optional
        Those of the rows with 1, 2, ... lags, where the number of lags is chosen.
    info : mapping
        For the history.
    warnings : tuple of str
    num_rows : int, optional
        How many rows the parties have together, if it is not the sum of their numbers.
    privacy : mapping
        The guarantee of differential privacy.
    adapted : callable, optional
        Returns a fitted system with the facts about these rows.
    reason : str
        Why the training is over.
    heterogeneity : Heterogeneity, optional
        How parties differ.
    parts : mapping of str to ndarray of shape (1 + s, 1 + s)
        By party (or group), its sums of products of the rows [1, z], where they are compared.
    units : int, default 1
        How many parties, or series, have had their means taken out, see ``core.linear.levels``.
    seldom : ndarray of bool, shape (m, m), optional
        Pairs of variables that too few rows have together for an edge.
    determined_share : float
        A column is determined by others that leave no more of its variance.
    """

    agreement: Agreement
    design: Design
    values: FloatArray
    of_fewer_lags: FloatArray | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    num_rows: int | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    adapted: Callable[[Any], Any] | None = None
    reason: str = "the one exchange of sums is done"
    heterogeneity: Heterogeneity | None = None
    parts: Mapping[str, FloatArray] = field(default_factory=dict)
    units: int = 1
    seldom: BoolArray | None = None
    determined_share: float = RESIDUAL_SHARE

    def __post_init__(self) -> None:
        if self.design.weighted:
            for name, value in self._counted().items():
                object.__setattr__(self, name, value)

    def _counted(self) -> dict[str, Any]:
        """Return what weighted rows are as effective ones, by field."""
        design, pooled = self.design, self.values.sum(axis=0)
        values = design.effective(self.values, pooled)
        total = values.sum(axis=0)
        share = float(total[0, 0])
        rows = whole(self.agreement.n * share)
        require_informing(rows, design.columns, *mean_and_second(total))
        lags = self.of_fewer_lags
        return {
            "agreement": replace(self.agreement, total=rows),
            "design": replace(design, weighted=False),
            "values": values / share,
            "of_fewer_lags": None if lags is None else design.effective(lags, pooled) / share,
            "info": {**self.info, "effective_rows": rows},
            "parts": {name: design.effective(own, pooled) for name, own in self.parts.items()},
        }

    @cached_property
    def moments(self) -> SampleMoments | list[SampleMoments]:
        """Moments of all rows; under interventions one for each variable.

        Those are of the rows in which the variable is no target.

        Raises
        ------
        DataError
            If a variable is a target in all rows.
        """
        agreement, columns = self.agreement, self.design.columns
        if not agreement.targets:
            own = self.design.moments(self.values.sum(axis=0), agreement.n)
            return own if self.units == 1 else replace(own, units=self.units)
        acted, shifted = _acted(agreement)
        names, n = agreement.names, agreement.n
        return moments_by_variable(self.values, acted, n, columns, names, shifted)


def require_informing(
    num_rows: float, columns: Sequence[str], mean: FloatArray, second: FloatArray
) -> None:
    """Check that the rows that count by their weights are several, and that columns vary in them.

    Parameters
    ----------
    num_rows : float
        The number of effective rows.
    columns : sequence of str
        The name of each column.
    mean, second : ndarray of shape (s,), (s, s)
        Of these rows; NaN where none has a column.

    Raises
    ------
    DataError
        Naming what to do.
    """
    if num_rows < LEAST_ROWS:
        raise DataError(
            f"by their weights (weight_column) all rows together count as {num_rows:.0f} effective "
            "row: trim the largest weights"
        )
    variances = np.diagonal(second)
    constant = ~(variances > CONSTANT * (variances + mean**2))
    if constant.any():
        raise DataError(
            f"column {columns[int(np.argmax(constant))]!r} has one value, or none, in the rows "
            "that count by their weights (weight_column): leave it out, or correct the weights"
        )


def changed_mechanisms(agreement: Agreement) -> BoolArray:
    """Return the variables that were acted on in the rows of each set of targets, (sets, d)."""
    acted, shifted = _acted(agreement)
    return np.asarray(acted | shifted)


def target_info(agreement: Agreement) -> dict[str, Any]:
    """Return what the history says of known interventions."""
    return {"target sets": len(agreement.targets)} if agreement.targets else {}


def _acted(agreement: Agreement) -> tuple[BoolArray, BoolArray]:
    """Return whose mechanisms were replaced, and which have another level, (sets, d) each."""
    acted = acted_on(agreement.targets, agreement.names)
    if not agreement.shifted:
        return acted, np.zeros_like(acted)
    return acted, acted_on(agreement.shifted, agreement.names)


def products_with_ones(mean: FloatArray, second: FloatArray) -> FloatArray:
    """Return the mean products of rows [1, z], given means and central second moments of z.

    Parameters
    ----------
    mean : ndarray of shape (s,)
    second : ndarray of shape (s, s)
    """
    row = np.concatenate([np.ones(1), mean])
    return np.asarray(np.outer(row, row) + np.pad(second, (1, 0)))


def in_new_units(products: FloatArray, units: FloatArray) -> FloatArray:
    """Return the products of rows [1, z * units] from those of [1, z], for units of shape (s,)."""
    own = np.append(1.0, units)
    return np.asarray(products * np.outer(own, own))


class DesignOptions(Protocol):
    """The options of a method that say what a row becomes."""

    @property
    def model(self) -> str:
        """How effects are modelled: "linear", "curved" or "additive"."""

    @property
    def takes_blocks(self) -> bool:
        """Whether variables are blocks of columns in units of their own."""

    @property
    def standardize(self) -> bool:
        """Whether numbers are divided by their standard deviations."""

    @property
    def order(self) -> int:
        """The number of lags."""

    @property
    def center(self) -> str:
        """Whose means are subtracted."""

    @property
    def weight_column(self) -> str:
        """The column of the rows' weights; empty without."""


def solved_design(agreement: Agreement, options: DesignOptions) -> Design:
    """Return the design in whose units the solver works.

    Numbers are in the units of the data where the graph has weights of them.
    """
    return Design.of(
        agreement.names,
        agreement.mean,
        agreement.variance,
        agreement.states,
        agreement.values,
        functions=functions_of(options.model),
        standardized=options.standardize or options.takes_blocks or options.model == "additive",
        order=options.order,
        marked=options.center == "phase",
        weighted=bool(options.weight_column),
    )
