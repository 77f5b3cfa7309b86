"""Products of the rows of all parties: what a source gives, and a solver takes.

A source is a file of this package: the exchanges by which sums over rows reach the server, the
server's side as a generator, and the party's answers. All sources give the same: products of the
rows [1, z] of a :class:`~flwr_causal.core.blocks.design.Design`, of shape (sets, 1 + s, 1 + s).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flwr_causal.core.blocks.design import Design, functions_of
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.linear.determined import RESIDUAL_SHARE
from flwr_causal.data.interventions import acted_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.data.check.agreement import Agreement


@dataclass(frozen=True, eq=False)
class Products:
    """Products of the rows of all parties, and what to know of them.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances of these rows.
    design : Design
        What the rows z are.
    values : ndarray of shape (sets, 1 + s, 1 + s)
        Sums of products of the rows [1, z] of each fold, under interventions of each set of
        targets, divided by the number of all rows.
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
        Returns a fitted system with what is known of these rows.
    reason : str
        Why the training is over.
    heterogeneity : Heterogeneity, optional
        How parties differ.
    parts : mapping of str to ndarray of shape (1 + s, 1 + s)
        By party (or group), its sums of products of the rows [1, z], where they are compared.
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
    seldom: BoolArray | None = None
    determined_share: float = RESIDUAL_SHARE

    @cached_property
    def moments(self) -> Moments | list[Moments]:
        """Moments of all rows; under interventions one for each variable.

        Those are of the rows in which the variable is no target.

        Raises
        ------
        DataError
            If a variable is a target in all rows.
        """
        agreement, columns = self.agreement, self.design.columns
        if not agreement.targets:
            return self.design.moments(self.values.sum(axis=0), agreement.n)
        acted, shifted = _acted(agreement)
        names, n = agreement.names, agreement.n
        return moments_by_variable(self.values, acted, n, columns, names, shifted)


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
    )
