"""Counts and moments of numbers and categories together, and the conditional Gaussian likelihood.

In each configuration of its categories a set of variables has Gaussian numbers with a mean and a
covariance of their own (Andrews, Ramsey & Cooper 2018). Counts, sums and sums of products by
configuration are enough for the likelihood, and sums over parties are those of all rows.

With only numbers the score is the Gaussian BIC, with only categories the BIC of a multinomial. In a
configuration of few rows a covariance may be singular: the covariance of all rows counts there as
much as ``WEIGHT`` rows, so that the score does not depend on units.

References
----------
Andrews, B., Ramsey, J. & Cooper, G. F. (2018). Scoring Bayesian networks of mixed variables.
International Journal of Data Science and Analytics 6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete.discrete import as_discrete, named_columns
from flwr_causal.core.discrete.small_counts import is_total, withheld
from flwr_causal.core.limits import require_room
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.discrete.discrete import Codes

#: Rows by which the covariance of all rows counts in that of a configuration.
WEIGHT = 1.0
#: Share of each variance that is added to it, so that collinear columns have a likelihood.
RIDGE = 1e-10
#: Sets whose categories have more configurations have no tables.
MOST_CONFIGURATIONS = 4096
#: A column of at most so many different whole numbers holds categories.
FEW_NUMBERS = 10


class MixedTable(NamedTuple):
    """Rows of categories and numbers.

    Attributes
    ----------
    cards : ndarray of int64, shape (d,)
        Number of states of each category; 0: a number.
    codes : ndarray of uint8, shape (d, n)
        States; 0 for a number.
    values : ndarray of float64, shape (d, n)
        Numbers; 0 for a category.
    """

    cards: IntArray
    codes: Codes
    values: FloatArray

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.codes.shape[1])

    def reordered(self, order: Sequence[int]) -> MixedTable:
        """Return the table with its variables in another order."""
        rows = list(order)
        return MixedTable(self.cards[rows], self.codes[rows], self.values[rows])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.codes.nbytes + self.values.nbytes


def as_mixed(table: Any) -> tuple[tuple[str, ...], MixedTable]:
    """Return the names and the rows of a table; its numbers are standardised.

    Parameters
    ----------
    table : array of shape (n, d), or object with ``.columns``
        A column holds numbers if it has more than ``FEW_NUMBERS`` different whole numbers, or
        numbers that are not whole; else categories. The variables of an array are named ``x0, x1,
        ...``.

    Raises
    ------
    DataError
        If there are no rows, or a column cannot be used.
    """
    names, columns = named_columns(table)
    if not columns or not len(columns[0]):
        raise DataError("the table has no rows")
    cards = np.zeros(len(columns), dtype=np.int64)
    codes = np.zeros((len(columns), len(columns[0])), dtype=np.uint8)
    values = np.zeros(codes.shape)
    for j, (name, column) in enumerate(zip(names, columns, strict=True)):
        if _holds_numbers(column):
            numbers = column.astype(np.float64)
            if not np.isfinite(numbers).all():
                raise DataError(f"column {name!r} has missing or infinite values: drop or fill")
            values[j] = (numbers - numbers.mean()) / numbers.std()
        else:
            coded = as_discrete(table, [name])
            cards[j], codes[j] = len(coded.states[0]), coded.codes[0]
    return names, MixedTable(cards, codes, values)


def _holds_numbers(column: NDArray[Any]) -> bool:
    if column.dtype.kind not in "iuf":
        return False
    different = np.unique(column)
    if len(different) < 2:
        return False
    return len(different) > FEW_NUMBERS or bool((different != np.floor(different)).any())


class MixedSums(NamedTuple):
    """Counts and moments of a set of variables by the configuration of its categories.

    Attributes
    ----------
    categories, numbers : tuple of int
        The members, ascending.
    counts : ndarray, shape (states of the categories...)
    sums : ndarray of float64, shape (states of the categories..., m)
        Of the m numbers.
    products : ndarray of float64, shape (states of the categories..., m, m)
    """

    categories: tuple[int, ...]
    numbers: tuple[int, ...]
    counts: NDArray[np.int64]
    sums: FloatArray
    products: FloatArray

    @property
    def members(self) -> tuple[int, ...]:
        """All members, ascending."""
        return tuple(sorted((*self.categories, *self.numbers)))

    def without(self, left_out: Sequence[int]) -> MixedSums:
        """Return the sums of the set without some members."""
        axes = tuple(k for k, member in enumerate(self.categories) if member in left_out)
        kept = [k for k, member in enumerate(self.numbers) if member not in left_out]
        return MixedSums(
            tuple(member for member in self.categories if member not in left_out),
            tuple(self.numbers[k] for k in kept),
            self.counts.sum(axis=axes),
            self.sums.sum(axis=axes)[..., kept],
            self.products.sum(axis=axes)[..., kept, :][..., kept],
        )

    def gaussians(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the means and the covariances of the configurations, and the shrunk covariances.

        Returns
        -------
        means : ndarray, shape (q, m)
        covariances, shrunk : ndarray, shape (q, m, m)
            A configuration without rows has zeros and, shrunk, the covariance of all rows.
        """
        q, m = self.counts.size, len(self.numbers)
        n = self.counts.reshape(q).astype(np.float64)
        sums, products = self.sums.reshape(q, m), self.products.reshape(q, m, m)
        total = max(n.sum(), 1.0)
        overall = _covariances(total, sums.sum(axis=0), products.sum(axis=0))
        overall = overall + RIDGE * np.diag(np.diagonal(overall))
        rows = np.maximum(n, 1.0)
        means = sums / rows[:, None]
        own = _covariances(rows[:, None], sums, products)
        shrunk = n[:, None, None] * own + WEIGHT * overall
        return means, own, shrunk / (n + WEIGHT)[:, None, None]

    def log_likelihood(self) -> float:
        """Return the log-likelihood of the rows in nats; categories by their frequencies."""
        n = self.counts.reshape(-1).astype(np.float64)
        filled = n > 0
        n = n[filled]
        result = float((n * np.log(n / n.sum())).sum())
        if self.numbers:
            _, own, shrunk = (part[filled] for part in self.gaussians())
            sign, logs = np.linalg.slogdet(shrunk)
            logs = np.where(sign > 0, logs, -np.inf)
            traces = np.trace(np.linalg.solve(shrunk, own), axis1=1, axis2=2)
            constant = len(self.numbers) * math.log(2.0 * math.pi)
            result -= 0.5 * float((n * (constant + logs + traces)).sum())
        return result

    def num_parameters(self) -> float:
        """Return the number of free parameters."""
        q, m = float(self.counts.size), len(self.numbers)
        return q - 1.0 + q * m * (m + 3) / 2.0

    def score(self) -> float:
        """Return the log-likelihood less the penalty of the BIC, in nats.

        The score of a family is the difference of the scores of two sets, ``s(y | S) = F(S + y) -
        F(S)``.
        """
        n = float(self.counts.sum())
        return self.log_likelihood() - 0.5 * math.log(max(n, 1.0)) * self.num_parameters()


def _covariances(n: FloatArray | float, sums: FloatArray, products: FloatArray) -> FloatArray:
    means = sums / n
    divisor = np.asarray(n)[..., None] if np.ndim(n) else n
    result: FloatArray = products / divisor - means[..., :, None] * means[..., None, :]
    return result


def num_configurations(cards: IntArray, members: Sequence[int]) -> float:
    """Return how many configurations the categories of a set have."""
    return float(np.prod([max(int(cards[member]), 1) for member in members], dtype=np.float64))


def mixed_sums(table: MixedTable, members: Sequence[int]) -> MixedSums:
    """Count the rows of a table, and add up their numbers, by the set's categories."""
    ordered = sorted(members)
    categories = tuple(k for k in ordered if table.cards[k] > 0)
    numbers = tuple(k for k in ordered if table.cards[k] == 0)
    shape = tuple(int(table.cards[k]) for k in categories)
    q, m = math.prod(shape), len(numbers)
    cell = np.zeros(table.num_rows, dtype=np.int64)
    for k, size in zip(categories, shape, strict=True):
        cell = cell * size + table.codes[k]
    values = table.values[list(numbers)]
    sums, products = np.zeros((q, m)), np.zeros((q, m, m))
    for i in range(m):
        sums[:, i] = np.bincount(cell, values[i], minlength=q)
        for j in range(i + 1):
            products[:, i, j] = np.bincount(cell, values[i] * values[j], minlength=q)
            products[:, j, i] = products[:, i, j]
    return MixedSums(
        categories,
        numbers,
        np.bincount(cell, minlength=q).reshape(shape),
        sums.reshape(*shape, m),
        products.reshape(*shape, m, m),
    )


def sums_of_sets(table: MixedTable, lists: Sequence[Sequence[int]]) -> list[MixedSums]:
    """Return the sums of several sets.

    Raises
    ------
    DataError
        If they have too many entries together.
    """
    numbers = [sum(table.cards[k] == 0 for k in members) for members in lists]
    require_room(
        "the counts and sums",
        sum(
            num_configurations(table.cards, members) * (1 + m + m * m)
            for members, m in zip(lists, numbers, strict=True)
        ),
    )
    return [mixed_sums(table, members) for members in lists]


class FlatSums(NamedTuple):
    """The sums of several sets, one after the other, as they travel.

    Attributes
    ----------
    counts : ndarray of int64
    sums : ndarray of float64
    products : ndarray of float64
        Of each pair i >= j of numbers.
    """

    counts: IntArray
    sums: FloatArray
    products: FloatArray


def flattened(parts: Sequence[MixedSums]) -> FlatSums:
    """Return the sums of several sets as they travel."""
    none = np.zeros(0)
    lower = [np.tril_indices(len(part.numbers)) for part in parts]
    products = [
        part.products[..., rows, columns].ravel()
        for part, (rows, columns) in zip(parts, lower, strict=True)
    ]
    return FlatSums(
        np.concatenate([none.astype(np.int64), *(part.counts.ravel() for part in parts)]),
        np.concatenate([none, *(part.sums.ravel() for part in parts)]),
        np.concatenate([none, *products]),
    )


def sizes_of(cards: IntArray, lists: Sequence[Sequence[int]]) -> IntArray:
    """Return how many counts, sums and products each set has, shape (sets, 3)."""
    sizes = np.zeros((len(lists), 3), dtype=np.int64)
    for k, members in enumerate(lists):
        q = int(num_configurations(cards, members))
        m = int(sum(cards[member] == 0 for member in members))
        sizes[k] = q, q * m, q * m * (m + 1) // 2
    return sizes


def restored(flat: FlatSums, cards: IntArray, lists: Sequence[Sequence[int]]) -> list[MixedSums]:
    """Return the sums of each set from those that travelled."""
    ends = np.cumsum(sizes_of(cards, lists), axis=0)
    begins = np.vstack([np.zeros((1, 3), dtype=np.int64), ends[:-1]])
    result = []
    for members, begin, end in zip(lists, begins, ends, strict=True):
        ordered = sorted(int(member) for member in members)
        categories = tuple(k for k in ordered if cards[k] > 0)
        numbers = tuple(k for k in ordered if cards[k] == 0)
        shape, m = tuple(int(cards[k]) for k in categories), len(numbers)
        counts, sums = flat.counts[begin[0] : end[0]], flat.sums[begin[1] : end[1]]
        lower = flat.products[begin[2] : end[2]]
        products = np.zeros((*shape, m, m))
        i, j = np.tril_indices(m)
        products[..., i, j] = lower.reshape(*shape, len(i))
        products[..., j, i] = products[..., i, j]
        sums = sums.reshape(*shape, m)
        result.append(MixedSums(categories, numbers, counts.reshape(shape), sums, products))
    return result


def without_small(part: MixedSums, minimum: int) -> MixedSums:
    """Return sums without the configurations that :func:`small_counts.withheld` withholds."""
    left_out = withheld(part.counts.ravel(), minimum).reshape(part.counts.shape)
    return part._replace(
        counts=np.where(left_out, 0, part.counts),
        sums=np.where(left_out[..., None], 0.0, part.sums),
        products=np.where(left_out[..., None, None], 0.0, part.products),
    )


def impossible(
    flat: FlatSums,
    cards: IntArray,
    lists: Sequence[Sequence[int]],
    rows: int,
    minimum: int = 0,
) -> str:
    """Return why a party's sums are impossible, in words; "" if they are possible.

    Parameters
    ----------
    flat, cards, lists
        As of :func:`restored`.
    rows : int
        The party's number of rows.
    minimum : int, default 0
        The fewest rows that a party withholds from a set; 0: it withholds none.
    """
    expected = sizes_of(cards, lists).sum(axis=0)
    if [len(part) for part in flat] != expected.tolist():
        return "the sums have other sizes than those of the requested sets"
    for part in restored(flat, cards, lists):
        if not is_total(float(part.counts.sum()), rows, minimum):
            return (
                f"a set of variables has {part.counts.sum():g} rows, but the party reported "
                f"{rows}; its table may have changed since"
            )
        squares = np.diagonal(part.products, axis1=-2, axis2=-1)
        slack = 1e-6 * np.abs(squares) + 1e-9
        # By Cauchy and Schwarz; without rows both are 0.
        if (part.sums**2 > part.counts[..., None] * (squares + slack)).any():
            return "the sums of numbers are larger than their sums of squares allow"
        if (np.abs(squares)[part.counts == 0] > 0).any():
            return "a configuration without rows has sums of squares"
    return ""
