"""Tests of independence: what a check of a graph and a search for one ask, and what is answered.

Numbers are tested by partial correlations and blocks of columns by likelihood ratios of regressions
(:mod:`core.linear.independence`), categories by G (:mod:`core.discrete.independence`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    Variables: TypeAlias = Sequence[int] | IntArray


class Independence(NamedTuple):
    """The test of whether two variables are independent given others.

    Attributes
    ----------
    estimate
        The correlation that is 0 if they are; of blocks without a sign, of categories Cramér's V.
    statistic
        Student's t; of blocks and categories the likelihood ratio.
    p_value
        Of the statistic.
    ratio, degrees
        The likelihood ratio, and its degrees of freedom.
    rows
        Number of rows.
    """

    estimate: float
    statistic: float
    p_value: float
    ratio: float
    degrees: int
    rows: float

    @classmethod
    def by_ratio(cls, ratio: float, degrees: int, rows: float, estimate: float) -> Independence:
        """Return the test by a likelihood ratio."""
        return cls(estimate, ratio, p_value(ratio, degrees), ratio, degrees, rows)

    @property
    def strength(self) -> float:
        """The strength of the dependence, from 0 to 1: ``sqrt(1 - exp(-ratio / rows))``."""
        return float(np.sqrt(-np.expm1(-self.ratio / self.rows)))


class PairTest(NamedTuple):
    """The test of one pair of variables.

    Attributes
    ----------
    first, second
        The variables, ``second`` not before ``first`` in the causal order.
    given
        The variables of the condition.
    estimate, statistic, p_value
        See :class:`Independence`.
    """

    first: str
    second: str
    given: tuple[str, ...]
    estimate: float
    statistic: float
    p_value: float


class IndependenceTests(ABC):
    """Tests of the independence of variables, by their indices.

    Attributes
    ----------
    names
        Of the m variables.
    """

    names: Sequence[str]

    @abstractmethod
    def test(self, i: int, j: int, given: Variables) -> Independence | None:
        """Test whether i and j are independent given others; None where that cannot be tested."""

    def each(self, others: IntArray, j: int, given: IntArray) -> Iterable[Independence | None]:
        """Test whether each of some variables is independent of j, given the same others."""
        return [self.test(i, j, given) for i in others.tolist()]

    def z(self, i: int, j: int, sets: IntArray) -> FloatArray:
        """Return how clearly i and j depend given each of some sets of one size, as normal z.

        Parameters
        ----------
        i, j : int
        sets : ndarray of int, shape (sets, size)
            Where no test is possible, the two are taken as dependent.
        """
        from scipy.special import ndtri

        tests = [self.test(i, j, given) for given in sets]
        p_values = np.array([0.0 if test is None else test.p_value for test in tests])
        return np.asarray(-ndtri(np.maximum(p_values, np.finfo(np.float64).tiny) / 2))

    def strength(self, i: int, j: int, given: Variables) -> float:
        """Return how strong the dependence of i and j given others is; 0 without a test."""
        test = self.test(i, j, given)
        return 0.0 if test is None else test.strength

    def residual_tests(self, edges: BoolArray, before: BoolArray) -> Iterable[PairTest]:
        """Test whether residuals of variables without an edge are correlated, where rows tell.

        Parameters
        ----------
        edges, before : ndarray of bool, shape (m, d)
            The parents of each variable, and what comes before it.
        """
        return ()

    def whole_test(
        self, edges: BoolArray, before: BoolArray
    ) -> tuple[float, int, float] | tuple[None, None, None]:
        """Test a graph against the same causal order with all edges: ratio, degrees, p-value."""
        return None, None, None


def p_value(ratio: float, degrees: int) -> float:
    """Return the probability of a larger likelihood ratio under independence."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees, ratio))


def holm(p_values: FloatArray) -> FloatArray:
    """Return p-values corrected for their number by Holm's method, in the same order."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return corrected


def largest_rejected(p_values: Sequence[float], share: float) -> float:
    """Return the largest p-value that is rejected if a share of the rejected may be false.

    The step-up procedure of Benjamini & Hochberg (1995).

    Returns
    -------
    float
        -1 if none is.
    """
    ordered = np.sort(np.asarray(p_values, dtype=np.float64))
    below = np.flatnonzero(ordered <= share * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return float(ordered[below[-1]]) if len(below) else -1.0
