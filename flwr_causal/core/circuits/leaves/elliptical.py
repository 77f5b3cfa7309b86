"""Normal and t distributions of several numbers, or of their Yeo-Johnson transforms.

`Law` is the distribution of the transformed numbers. A t distribution is parametrised by its
covariance C, which exists for more than 2 degrees of freedom (dof); its scale matrix is
C (dof - 2) / dof. With dof = inf it is the normal distribution.

The density of a number is that of its transform times the slope of the transform. Therefore its
mode is not the inverse transform of the law's mode (`densest` computes it), and its moments are
integrals (`transformed_moments`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, stdtr

from flwr_causal.core.circuits.leaves import yeo_johnson
from flwr_causal.core.circuits.nodes import Leaf, LeafBatch, numbers, positive, scope_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray


class Law(NamedTuple):
    """A distribution of m numbers.

    Parameters
    ----------
    mean : ndarray of float64, shape (m,)
    covariance : ndarray of float64, shape (m, m)
    dof : float
        Degrees of freedom, above 2; inf for the normal distribution.
    """

    mean: FloatArray
    covariance: FloatArray
    dof: float

    def part(self, kept: BoolArray) -> Law:
        """Return the marginal of some of the numbers."""
        return Law(self.mean[kept], self.covariance[np.ix_(kept, kept)], self.dof)

    def log_density(self, rows: FloatArray) -> FloatArray:
        """Log density of each row of shape (n, m), shape (n,)."""
        whitening, log_det = whitened(self.covariance)
        return standard_log_density(
            squared_norms((rows - self.mean) @ whitening.T), log_det, len(self.mean), self.dof
        )


class Conditional(NamedTuple):
    """The law of the missing numbers of n rows; row i has the covariance ``spreads[i] matrix``.

    Parameters
    ----------
    means : ndarray of float64, shape (n, m)
    matrix : ndarray of float64, shape (m, m)
    spreads : ndarray of float64, shape (n,)
        1 for a normal distribution. A t distribution is wider if the evidence is far from its mean.
    dof : float
        That of the law plus the number of known numbers.
    log_density : ndarray of float64, shape (n,)
        Of the known numbers.
    """

    means: FloatArray
    matrix: FloatArray
    spreads: FloatArray
    dof: float
    log_density: FloatArray


def conditional(law: Law, known: BoolArray, rows: FloatArray) -> Conditional:
    """Return the distribution of the other numbers given some.

    Parameters
    ----------
    law : Law
        Of k numbers.
    known : ndarray of bool, shape (k,)
    rows : ndarray of float64, shape (n, number known)
    """
    n, m = len(rows), int((~known).sum())
    if m == len(known):
        means = np.broadcast_to(law.mean, (n, m))
        return Conditional(means, law.covariance, np.ones(n), law.dof, np.zeros(n))
    whitening, log_det = whitened(law.covariance[np.ix_(known, known)])
    standard = (rows - law.mean[known]) @ whitening.T
    squares = squared_norms(standard)
    density = standard_log_density(squares, log_det, len(known) - m, law.dof)
    across = whitening @ law.covariance[np.ix_(known, ~known)]
    means = law.mean[~known] + standard @ across
    matrix = law.covariance[np.ix_(~known, ~known)] - across.T @ across
    if math.isinf(law.dof):
        return Conditional(means, matrix, np.ones(n), law.dof, density)
    dof = law.dof + len(known) - m
    spreads = (law.dof - 2 + squares) / (dof - 2)
    return Conditional(means, matrix, spreads, dof, density)


def draws(given: Conditional, rng: np.random.Generator) -> FloatArray:
    """Draw one row from each row's conditional, shape (n, m)."""
    n, m = given.means.shape
    factor = np.linalg.cholesky(given.matrix)
    widths = np.sqrt(given.spreads)
    if not math.isinf(given.dof):
        widths = widths * np.sqrt((given.dof - 2) / rng.chisquare(given.dof, n))
    return np.asarray(given.means + widths[:, None] * (rng.standard_normal((n, m)) @ factor.T))


def whitened(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return W with W C W' = 1, and log det C, for covariances C of shape (..., k, k).

    Raises
    ------
    LinAlgError
        If a covariance is not positive definite.
    """
    factor = np.linalg.cholesky(covariance)
    log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.linalg.inv(factor), log_det


def squared_norms(rows: FloatArray) -> FloatArray:
    """Sum of squares of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def standard_log_density(
    squares: FloatArray, log_det: FloatArray, m: int, dof: float
) -> FloatArray:
    """Return log densities from squared Mahalanobis distances to the mean, in m dimensions."""
    if math.isinf(dof):
        return np.asarray(-0.5 * (squares + log_det + m * math.log(2 * math.pi)))
    constant = (
        gammaln((dof + m) / 2)
        - gammaln(dof / 2)
        - 0.5 * m * math.log((dof - 2) * math.pi)
        - 0.5 * log_det
    )
    return np.asarray(constant - 0.5 * (dof + m) * np.log1p(squares / (dof - 2)))


def by_pattern(missing: BoolArray) -> Iterator[tuple[NDArray[np.int64] | slice, BoolArray]]:
    """Yield the rows of each pattern of missing values.

    Parameters
    ----------
    missing : ndarray of bool, shape (n, k)

    Yields
    ------
    rows : ndarray of int64 or slice
        The rows of one pattern; a slice if all rows have the same.
    known : ndarray of bool, shape (k,)
        The columns in which they have a value.
    """
    if len(missing) == 0:
        return
    if (missing == missing[0]).all():
        yield slice(None), ~missing[0]
        return
    packed = np.packbits(missing, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(inverse.ravel()))
    for start, end, row in zip(np.concatenate(([0], ends[:-1])), ends, first, strict=True):
        yield order[start:end], ~missing[row]


#: Numbers that a batch computes at once, which fit the cache.
CACHED = 2**14
#: Largest number of steps of the ascent to a mode, and the step (in standard deviations) at which
#: it ends.
MAX_STEPS = 200
TOLERANCE = 1e-9
#: Points of a piece of the integral of a moment.
NUM_POINTS = 96
#: A normal density beyond this many standard deviations is below rounding.
FAR = 12.0


class EllipticalBatch(LeafBatch):
    """Elliptical leaves; those of equal scope, transform and dof share the transformed rows."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for position, leaf in enumerate(leaves):
            arrays = leaf.arrays()
            same = tuple(arrays[name].tobytes() for name in ("dof", "powers", "scales", "reach"))
            groups.setdefault((leaf.scope, same), []).append(position)
        self._groups = [
            _SharedTransform([leaves[k] for k in positions], positions)
            for positions in groups.values()
        ]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        result = np.empty((len(self.leaves), len(values)))
        for group in self._groups:
            result[group.positions] = group.log_density(values)
        return result


@dataclass(frozen=True, eq=False)
class Elliptical(Leaf):
    """A normal or t distribution of k numbers, or of their Yeo-Johnson transforms.

    With ``powers`` the transform of x_j / scales[j] by powers[j] (see `leaves.yeo_johnson`) has the
    normal or t distribution. Marginals and conditionals are of the same kind.

    Parameters
    ----------
    scope : sequence of int
    mean : array_like, shape (k,)
        Of the transformed numbers.
    covariance : array_like, shape (k, k)
        Of the transformed numbers, positive definite. The scale matrix of a t distribution is
        covariance (dof - 2) / dof.
    dof : float, default inf
        Degrees of freedom, above 2; inf for the normal distribution.
    powers : array_like, shape (k,), optional
        Default: no transform, like powers of 1.
    scales : array_like, shape (k,), optional
        Above 0; default 1. They need powers.
    reach : array_like, shape (k,), or float, optional
        |x_j / scales[j]| beyond which the transform continues as a straight line, so that it takes
        all values and the density integrates to 1; needs powers. Default 100. For powers far below
        0 or above 2 give the largest plausible value, as draws beyond it are far apart.

    Raises
    ------
    ConfigError
        If shapes differ, a parameter is out of range, or the covariance is not positive definite.
    """

    scope: tuple[int, ...]
    mean: FloatArray
    covariance: FloatArray
    dof: float = math.inf
    powers: FloatArray | None = None
    scales: FloatArray | None = None
    reach: FloatArray | None = None

    kind: ClassVar[str] = "elliptical"
    batch: ClassVar[type[LeafBatch]] = EllipticalBatch

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
        """Return the transformed numbers and the log slope of the transform at each, (n, k)."""
        if self.powers is None or self.scales is None or self.reach is None:
            return values, np.zeros(values.shape)
        result, slopes = yeo_johnson.transform(values / self.scales, self.powers, self.reach)
        return result, slopes - np.log(self.scales)

    def _restored(self, transformed: FloatArray, columns: BoolArray) -> FloatArray:
        """Return the numbers from their transforms, for some of the columns."""
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
                of_known = self.law.part(known).log_density(transformed[rows][:, known])
                result[rows] = of_known + slopes[rows][:, known].sum(axis=1)
        return result

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""
        filled, transformed = values.copy(), self.transformed(values)[0]
        for rows, known in by_pattern(np.isnan(values)):
            if not known.all():
                given = conditional(self.law, known, transformed[rows][:, known])
                drawn = self._restored(draws(given, rng), ~known)
                filled[rows] = _with_columns(filled[rows], drawn, ~known)
        return filled

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by the most probable ones given the others, shape (n, k).

        Without a transform that is the conditional mean. With one it is a local maximum of the
        density of the numbers, to which `densest` ascends from the conditional mean.
        """
        filled, transformed = values.copy(), self.transformed(values)[0]
        for rows, known in by_pattern(np.isnan(values)):
            if known.all():
                continue
            given = conditional(self.law, known, transformed[rows][:, known])
            peak = given.means
            if self.powers is not None and self.reach is not None:
                peak = densest(given, self.powers[~known], self.reach[~known])
            filled[rows] = _with_columns(filled[rows], self._restored(peak, ~known), ~known)
        return filled

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each column given the row, both (n, k).

        With a transform they are integrated numerically, with an error of about 1e-8 standard
        deviations. They exist because the transform is a straight line beyond its reach.
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
            first[rows] = _with_columns(first[rows], means, ~known)
            second[rows] = _with_columns(second[rows], squares, ~known)
        return first, second

    def restrict(self, scope: Sequence[int]) -> Elliptical:
        """Return the marginal over some of the columns, of the same dof."""
        return self._part(np.isin(self.scope, list(scope)), *self.law[:2], self.dof)

    def condition(self, values: FloatArray) -> tuple[Elliptical | None, float]:
        """Return the leaf over the columns without evidence, and the log density of the evidence.

        For a t distribution every given value adds a degree of freedom, and the covariance grows
        with the distance of the evidence from its mean.
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

    def arrays(self) -> Arrays:
        """Return mean, lower triangle of the covariance, dof, and the parameters of the transform.

        All are finite; the dof of a normal distribution are written as 0.
        """
        optional = {"powers": self.powers, "scales": self.scales, "reach": self.reach}
        return {
            "mean": self.mean,
            "covariance": self.covariance[np.tril_indices(len(self.scope))],
            "dof": np.array(0.0 if math.isinf(self.dof) else self.dof),
            **{name: np.zeros(0) if one is None else one for name, one in optional.items()},
        }

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> Elliptical:
        """Return the leaf of given parameters; an empty array is a parameter that is not given."""
        k, given = len(scope), arrays["covariance"]
        if given.shape != (k * (k + 1) // 2,):
            raise DataError(f"{given.shape} entries are no covariance of {k} columns")
        covariance = np.empty((k, k))
        lower, upper = np.tril_indices(k)
        covariance[lower, upper] = covariance[upper, lower] = given
        return cls(
            tuple(scope),
            arrays["mean"],
            covariance,
            float(arrays["dof"]) or math.inf,
            *(arrays[name] if arrays[name].size else None for name in TRANSFORM),
        )


TRANSFORM = ("powers", "scales", "reach")


def _with_columns(rows: FloatArray, filled: FloatArray, where: BoolArray) -> FloatArray:
    """Return rows with some columns replaced."""
    rows = rows.copy()
    rows[:, where] = filled
    return rows


def _symmetric(covariance: FloatArray) -> FloatArray:
    """Return a read-only copy that is exactly symmetric; a ConfigError unless nearly so given."""
    if covariance.shape[0] != covariance.shape[1]:
        raise ConfigError(f"a covariance is square, got the shape {covariance.shape}")
    if np.array_equal(covariance, covariance.T):
        return covariance
    # A covariance is compared with the deviations of its two columns: it may be far smaller.
    deviations = np.sqrt(np.abs(np.diagonal(covariance)))
    allowed = 1e-8 * np.outer(deviations, deviations)
    if (np.abs(covariance - covariance.T) > allowed).any():
        raise ConfigError("a covariance is symmetric: this one is not")
    result = 0.5 * (covariance + covariance.T)
    result.setflags(write=False)
    return np.asarray(result)


class _SharedTransform:
    """Leaves of one scope, one transform and one number of degrees of freedom."""

    def __init__(self, leaves: Sequence[Any], positions: list[int]) -> None:
        self.positions = positions
        self._first = leaves[0]
        self._columns = list(leaves[0].scope)
        self._means = np.stack([leaf.mean for leaf in leaves])
        self._covariances = np.stack([leaf.covariance for leaf in leaves])
        self._whitened = whitened(self._covariances)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        transformed, slopes = self._first.transformed(values[:, self._columns])
        result = np.zeros((len(self._means), len(values)))
        for rows, known in by_pattern(np.isnan(transformed)):
            if known.any():
                density = self._of_pattern(transformed[rows][:, known], known)
                result[:, rows] = density + slopes[rows][:, known].sum(axis=1)
        return result

    def _of_pattern(self, rows: FloatArray, known: BoolArray) -> FloatArray:
        """Log density of the known transformed numbers of rows with the same pattern."""
        whitening, log_det = self._whitened
        if not known.all():
            whitening, log_det = whitened(self._covariances[:, known][:, :, known])
        means = self._means[:, None, known]
        squares = np.empty((len(means), len(rows)))
        size = max(1, CACHED // means.size)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            standard = (rows[part] - means) @ whitening.transpose(0, 2, 1)
            np.einsum("lij,lij->li", standard, standard, out=squares[:, part])
        return standard_log_density(squares, log_det[:, None], rows.shape[1], self._first.dof)


def densest(given: Conditional, powers: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the transforms of the numbers at a local maximum of the density of the numbers.

    Parameters
    ----------
    given : Conditional
        Law of the m transformed numbers in n rows.
    powers, reach : ndarray of float64, shape (m,)

    Returns
    -------
    ndarray of float64, shape (n, m)
        Reached from the conditional means by steps that increase the density.
    """
    m = len(powers)
    precision = np.linalg.inv(given.matrix)
    spreads = given.spreads
    sds = np.sqrt(np.diag(given.matrix))

    def height(point: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log density up to a constant, squared distance, and gradient of the log slope."""
        away = point - given.means[rows]
        squares = np.einsum("ij,jk,ik->i", away, precision, away) / spreads[rows]
        original = yeo_johnson.inverse(point, powers, reach)
        log_slopes = yeo_johnson.transform(original, powers, reach)[1]
        logs = yeo_johnson.signed_log(original)
        side = np.where(logs < 0, 2.0 - powers, powers)
        gradient = (powers - 1.0) * np.exp(-side * np.abs(logs))
        gradient[np.abs(original) >= reach] = 0.0  # the slope of a line is constant
        if math.isinf(given.dof):
            return log_slopes.sum(axis=1) - 0.5 * squares, squares, gradient
        fall = 0.5 * (given.dof + m) * np.log1p(squares / (given.dof - 2))
        return log_slopes.sum(axis=1) - fall, squares, gradient

    point = np.array(given.means)
    rows: IntArray = np.arange(len(point), dtype=np.int64)
    sizes = np.ones(len(point))
    for _ in range(MAX_STEPS):
        if len(rows) == 0:
            break
        here, squares, gradient = height(point[rows], rows)
        # The gradient in the metric of the covariance. For a normal distribution with a constant
        # slope a full step ends at the mode.
        factor = np.ones(len(rows))
        if not math.isinf(given.dof):
            factor = (given.dof - 2 + squares) / (given.dof + m)
        pull = (factor * spreads[rows])[:, None] * (gradient @ given.matrix)
        step = sizes[rows, None] * (given.means[rows] - point[rows] + pull)
        there = height(point[rows] + step, rows)[0]
        better = there > here
        point[rows[better]] += step[better]
        sizes[rows] *= np.where(better, 1.5, 0.4)
        np.minimum(sizes, 1.0, out=sizes)
        moving = (np.abs(step) > TOLERANCE * sds * np.sqrt(spreads[rows])[:, None]).any(axis=1)
        rows = rows[moving]
    return point


def transformed_moments(
    means: FloatArray, sds: FloatArray, dof: float, powers: FloatArray, reach: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[u] and E[u^2] of numbers with transforms of given means and standard deviations.

    Beyond its reach the transform is a straight line, and the partial moments have closed forms.
    Within its reach the integral is over the signed logarithm of the number, of which the transform
    is an exponential, in two pieces that meet at 0, where the second derivative of the transform
    jumps. The Gauss-Legendre points are spread around the peak by a hyperbolic sine, so that enough
    of them lie in narrow and in heavy-tailed densities.

    Parameters
    ----------
    means, sds : ndarray of float64, shape (n, m)
        Of the transforms.
    dof : float
        Degrees of freedom, above 2; inf for normal transforms.
    powers, reach : ndarray of float64, shape (m,)

    Returns
    -------
    first, second : ndarray of float64, shape (n, m)
    """
    scale = sds if math.isinf(dof) else sds * math.sqrt((dof - 2) / dof)
    limit = np.log1p(reach)
    first, second = np.zeros(means.shape), np.zeros(means.shape)
    for side in (-1.0, 1.0):
        # Mirrored, the lower line is an upper one, and the transform's power p becomes 2 - p.
        side_powers = powers if side > 0 else 2.0 - powers
        bound = yeo_johnson.of_signed_log(limit, side_powers)
        stretch = scale * np.exp(-(side_powers - 1.0) * limit)
        cut = (bound - side * means) / scale
        mass, once, twice = _upper_tail(cut, dof)
        start = reach - stretch * cut  # the number is start + stretch z on the line
        first += side * (start * mass + stretch * once)
        second += start**2 * mass + 2 * start * stretch * once + stretch**2 * twice
        piece = _inner_moments(side * means, scale, dof, side_powers, limit)
        first += side * piece[0]
        second += piece[1]
    return first, second


def _inner_moments(
    means: FloatArray, scale: FloatArray, dof: float, powers: FloatArray, limit: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the parts of E[u] and E[u^2] from the numbers between 0 and the reach."""
    reach = np.expm1(limit)
    centre = yeo_johnson.signed_log(yeo_johnson.inverse(means, powers, reach))
    centre = np.clip(centre, 0.0, limit)
    width = np.clip(scale * np.exp(-powers * centre), 1e-12, 1.0)
    low, high = np.zeros(means.shape), np.broadcast_to(limit, means.shape)
    if math.isinf(dof):
        far = [yeo_johnson.inverse(means + k * FAR * scale, powers, reach) for k in (-1, 1)]
        low, high = (np.clip(yeo_johnson.signed_log(one), 0.0, limit) for one in far)
    start, end = np.arcsinh((low - centre) / width), np.arcsinh((high - centre) / width)
    points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
    first, second = np.zeros(means.shape), np.zeros(means.shape)
    for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
        place = 0.5 * (start + end) + 0.5 * (end - start) * point
        logs = np.maximum(centre + width * np.sinh(place), 0.0)
        standard = (yeo_johnson.of_signed_log(logs, powers) - means) / scale
        slope = np.exp(powers * logs) / scale
        step = weight * 0.5 * (end - start) * width * np.cosh(place)
        mass = _density(standard, dof) * slope * step
        number = np.expm1(logs)
        first += number * mass
        second += number**2 * mass
    return first, second


def _density(standard: FloatArray, dof: float) -> FloatArray:
    """Density of the standard normal or t distribution."""
    if math.isinf(dof):
        return np.asarray(np.exp(-0.5 * standard**2) / math.sqrt(2 * math.pi))
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * math.log(dof * math.pi)
    return np.asarray(np.exp(constant - 0.5 * (dof + 1) * np.log1p(standard**2 / dof)))


def _upper_tail(cut: FloatArray, dof: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the integrals of 1, z and z^2 times the standard density from a cut to infinity."""
    density = _density(cut, dof)
    if math.isinf(dof):
        mass = np.asarray(ndtr(-cut), dtype=np.float64)
        return mass, density, mass + cut * density
    mass = np.asarray(stdtr(dof, -cut), dtype=np.float64)
    # z^2 f(z) is the density of a t distribution with two degrees of freedom less, less f itself.
    fewer = np.asarray(stdtr(dof - 2, -cut * math.sqrt((dof - 2) / dof)), dtype=np.float64)
    twice = dof * ((dof - 1) / (dof - 2) * fewer - mass)
    return mass, density * (dof + cut**2) / (dof - 1), twice
