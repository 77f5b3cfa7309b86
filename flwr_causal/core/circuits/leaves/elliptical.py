"""Normal and t distributions of several numbers together, perhaps of transformed numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.leaves import yeo_johnson
from flwr_causal.core.circuits.leaves.elliptical_batch import EllipticalBatch
from flwr_causal.core.circuits.leaves.elliptical_law import (
    Law,
    by_pattern,
    conditional,
    draws,
    squared_norms,
    standard_log_density,
    whitened,
)
from flwr_causal.core.circuits.leaves.elliptical_mode import densest
from flwr_causal.core.circuits.leaves.transformed_moments import transformed_moments
from flwr_causal.core.circuits.nodes import Array, FloatArray, Leaf, LeafBatch
from flwr_causal.core.circuits.parameters import numbers, positive, scope_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Elliptical(Leaf):
    """A normal or t distribution of k numbers, or of their Yeo-Johnson transforms.

    With ``powers`` the number x_j enters as the transform of x_j / scales[j] by powers[j] (see
    `leaves.yeo_johnson`), and the density has the transform's slope as a factor. Marginals and
    conditionals are of the same kind.

    Parameters
    ----------
    scope : sequence of int
    mean : array_like, shape (k,)
        Of the transformed numbers.
    covariance : array_like, shape (k, k)
        Of the transformed numbers, positive definite. It is the covariance of the t distribution
        itself: the scale matrix is covariance (dof - 2) / dof.
    dof : float, default inf
        Degrees of freedom, above 2; inf is the normal distribution.
    powers : array_like, shape (k,), optional
        None: no transform; 1 is none either.
    scales : array_like, shape (k,), optional
        Above 0; 1 by default. Without powers there are none.
    reach : array_like, shape (k,), or float, optional
        |x_j / scales[j]| beyond which the transform goes on as a straight line, so that it takes
        all values and the density has the integral 1. Default 100; where a power is far below 0 or
        above 2, the largest value that is likely: the draws beyond it are far apart.
    """

    scope: tuple[int, ...]
    mean: FloatArray
    covariance: FloatArray
    dof: float = math.inf
    powers: FloatArray | None = None
    scales: FloatArray | None = None
    reach: FloatArray | None = None

    kind: ClassVar[str] = "elliptical"

    def __post_init__(self) -> None:
        scope = scope_of(self.scope)
        k = len(scope)
        checked = {
            "scope": scope,
            "mean": numbers("the mean", self.mean, 1),
            "covariance": _symmetric(numbers("the covariance", self.covariance, 2)),
            "dof": float(self.dof),
        }
        if not self.dof > 2:
            raise ConfigError(f"a t distribution has a covariance above 2 dof, got {self.dof}")
        if self.powers is not None:
            reach = yeo_johnson.DEFAULT_REACH if self.reach is None else self.reach
            checked["powers"] = numbers("the powers", self.powers, 1)
            checked["scales"] = positive(
                "scales", np.ones(k) if self.scales is None else self.scales
            )
            checked["reach"] = positive("the reach", np.broadcast_to(reach, k))
        elif self.scales is not None or self.reach is not None:
            raise ConfigError("scales and reach belong to a transform: give powers (1: none)")
        for name, value in checked.items():
            expected = (k, k) if name == "covariance" else (k,)
            if isinstance(value, np.ndarray) and value.shape != expected:
                raise ConfigError(f"{name} has the shape {value.shape}, expected {expected}")
            object.__setattr__(self, name, value)
        try:
            object.__setattr__(self, "_whitened", whitened(self.covariance))
        except np.linalg.LinAlgError as error:
            raise ConfigError(
                f"the covariance of columns {scope} is not positive definite: add to its diagonal"
            ) from error

    _whitened: ClassVar[tuple[FloatArray, FloatArray]]

    @cached_property
    def law(self) -> Law:
        """The distribution of the transformed numbers."""
        return Law(self.mean, self.covariance, self.dof)

    def transformed(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the transformed numbers and the log slope of the transform at each (n, k)."""
        if self.powers is None or self.scales is None or self.reach is None:
            return values, np.zeros(values.shape)
        result, slopes = yeo_johnson.transform(values / self.scales, self.powers, self.reach)
        return result, slopes - np.log(self.scales)

    def _restored(self, transformed: FloatArray, columns: BoolArray) -> FloatArray:
        """Return numbers of transformed ones, of some of the columns."""
        if self.powers is None or self.scales is None or self.reach is None:
            return transformed
        original = yeo_johnson.inverse(transformed, self.powers[columns], self.reach[columns])
        return original * self.scales[columns]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, missing values integrated out, shape (n,)."""
        transformed, slopes = self.transformed(values)
        missing = np.isnan(transformed)
        if not missing.any():
            whitening, log_det = self._whitened
            squares = squared_norms((transformed - self.mean) @ whitening.T)
            density = standard_log_density(squares, log_det, len(self.scope), self.dof)
            return np.asarray(density + slopes.sum(axis=1))
        result = np.zeros(len(transformed))
        for rows, known in by_pattern(missing):
            if known.any():
                own = self.law.part(known).log_density(transformed[rows][:, known])
                result[rows] = own + slopes[rows][:, known].sum(axis=1)
        return result

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""
        filled, transformed = values.copy(), self.transformed(values)[0]
        for rows, known in by_pattern(np.isnan(values)):
            if not known.all():
                given = conditional(self.law, known, transformed[rows][:, known])
                drawn = self._restored(draws(given, rng), ~known)
                filled[rows] = _merged(filled[rows], drawn, ~known)
        return filled

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by the most probable ones given the others, shape (n, k).

        Without a transform that is their conditional mean. With one it is a local maximum of the
        density of the numbers themselves, which `elliptical_mode` ascends to from there.
        """
        filled, transformed = values.copy(), self.transformed(values)[0]
        for rows, known in by_pattern(np.isnan(values)):
            if known.all():
                continue
            given = conditional(self.law, known, transformed[rows][:, known])
            peak = given.means
            if self.powers is not None and self.reach is not None:
                peak = densest(given, self.powers[~known], self.reach[~known])
            filled[rows] = _merged(filled[rows], self._restored(peak, ~known), ~known)
        return filled

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each column given the row, both (n, k).

        Of transformed numbers by quadrature, exact to about 1e-8 of the standard deviation; they
        exist because the transform is a straight line beyond its reach.
        """
        first, second = values.copy(), values**2
        transformed = self.transformed(values)[0]
        for rows, known in by_pattern(np.isnan(values)):
            if known.all():
                continue
            given = conditional(self.law, known, transformed[rows][:, known])
            sds = np.sqrt(given.spreads[:, None] * np.diag(given.matrix))
            means, squares = given.means, sds**2 + given.means**2
            if self.powers is not None and self.scales is not None and self.reach is not None:
                scales = self.scales[~known]
                means, squares = transformed_moments(
                    given.means, sds, given.dof, self.powers[~known], self.reach[~known]
                )
                means, squares = means * scales, squares * scales**2
            first[rows] = _merged(first[rows], means, ~known)
            second[rows] = _merged(second[rows], squares, ~known)
        return first, second

    def restrict(self, scope: Sequence[int]) -> Elliptical:
        """Return the marginal over some of the columns, of the same dof."""
        return self._part(np.isin(self.scope, list(scope)), *self.law[:2], self.dof)

    def condition(self, values: FloatArray) -> tuple[Elliptical | None, float]:
        """Return the leaf over the rest, and the log density of the evidence.

        Of a t distribution every value that is given adds a degree of freedom, and the covariance
        grows with the distance of the evidence from its mean.
        """
        known = ~np.isnan(values)
        if not known.any():
            return self, 0.0
        transformed, slopes = self.transformed(values[None, :])
        given = conditional(self.law, known, transformed[:, known])
        density = float(given.log_density[0] + slopes[0, known].sum())
        if known.all():
            return None, density
        mean = np.array(self.mean)
        covariance = np.array(self.covariance)
        mean[~known] = given.means[0]
        covariance[np.ix_(~known, ~known)] = given.matrix * given.spreads[0]
        return self._part(~known, mean, covariance, given.dof), density

    def _part(
        self, kept: BoolArray, mean: FloatArray, covariance: FloatArray, dof: float
    ) -> Elliptical:
        return Elliptical(
            tuple(np.array(self.scope)[kept].tolist()),
            mean[kept],
            covariance[np.ix_(kept, kept)],
            dof,
            *(None if one is None else one[kept] for one in (self.powers, self.scales, self.reach)),
        )

    def moved(self, columns: Sequence[int]) -> Elliptical:
        """Return the same distribution over other columns."""
        order = np.argsort(columns)
        return Elliptical(
            tuple(np.asarray(columns)[order].tolist()),
            self.mean[order],
            self.covariance[np.ix_(order, order)],
            self.dof,
            *(
                None if one is None else one[order]
                for one in (self.powers, self.scales, self.reach)
            ),
        )

    @property
    def num_parameters(self) -> int:
        """Means, covariances, powers, and the degrees of freedom of a t distribution."""
        k = len(self.scope)
        powers = 0 if self.powers is None else k
        return k + k * (k + 1) // 2 + powers + (not math.isinf(self.dof))

    def arrays(self) -> dict[str, Array]:
        """Return mean, lower triangle of the covariance, dof, and what the transform has.

        All are finite, as the wire demands: a normal distribution has the dof 0 here.
        """
        optional = {"powers": self.powers, "scales": self.scales, "reach": self.reach}
        return {
            "mean": self.mean,
            "covariance": self.covariance[np.tril_indices(len(self.scope))],
            "dof": np.array(0.0 if math.isinf(self.dof) else self.dof),
            **{name: np.zeros(0) if one is None else one for name, one in optional.items()},
        }

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Mapping[str, Array]) -> Elliptical:
        """Return the leaf of given parameters; an empty array stands for none."""
        covariance = np.empty((len(scope), len(scope)))
        lower, upper = np.tril_indices(len(scope))
        covariance[lower, upper] = covariance[upper, lower] = arrays["covariance"]
        return cls(
            tuple(scope),
            arrays["mean"],
            covariance,
            float(arrays["dof"]) or math.inf,
            *(arrays[name] if arrays[name].size else None for name in TRANSFORM),
        )

    @classmethod
    def batch(cls, leaves: Sequence[Leaf]) -> LeafBatch:
        """Return leaves that share the transforms of their rows."""
        return EllipticalBatch(leaves)


TRANSFORM = ("powers", "scales", "reach")


def _merged(rows: FloatArray, filled: FloatArray, where: BoolArray) -> FloatArray:
    """Return rows with some columns replaced."""
    rows = rows.copy()
    rows[:, where] = filled
    return rows


def _symmetric(covariance: FloatArray) -> FloatArray:
    """Return a read-only symmetric copy; a ConfigError if it is not symmetric but for rounding."""
    if covariance.shape[0] != covariance.shape[1]:
        raise ConfigError(f"a covariance is square, got the shape {covariance.shape}")
    if np.array_equal(covariance, covariance.T):
        return covariance
    if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=1e-12 * np.abs(covariance).max()):
        raise ConfigError("a covariance is symmetric: this one is not")
    result = 0.5 * (covariance + covariance.T)
    result.setflags(write=False)
    return np.asarray(result)
