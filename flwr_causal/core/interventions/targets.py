"""Which party acts on which variable, where nobody has told: interventions with unknown targets.

A party acts on a variable if the variable's regression on its causes differs between the party's
rows and those of the other parties: in its effects, its intercept or its noise variance. All other
mechanisms are the same in all parties, so that few differences explain all (sparse mechanism
shifts). Which mechanisms differ depends on the graph, and the graph on whose rows inform about each
mechanism (:mod:`core.interventions.moments`): the search for targets and the search for the graph
take turns.

A party joins the targets of a variable if the likelihood of its own regression gains more than the
BIC's cost of its coefficients, with a further log d for the choice of the variable. The gain is
that of Chow's test of the coefficients and Bartlett's test of the variances, each divided by the
factor by which its median over all parties and variables exceeds that of sampling alone ("genomic
control"): heavy tails, and small differences between all parties, are not taken for interventions.

Parties with equal mechanisms cannot be told from each other: a party "acts" where it differs from
the other parties that do not act. Of two parties either may.

References
----------
Baldo, F. & Assaad, C. K. (2026). Regret-based federated causal discovery with unknown
interventions. arXiv:2512.23626.
Mooij, J. M., Magliacane, S. & Claassen, T. (2020). Joint causal inference from multiple contexts.
JMLR 21.
Squires, C., Wang, Y. & Uhler, C. (2020). Permutation-based causal structure learning with unknown
intervention targets. UAI.
Devlin, B. & Roeder, K. (1999). Genomic control for association studies. Biometrics 55.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.moments import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Variances below this share of that of all rows are rounding.
VARIES = 1e-12
# Pairs of a party and a variable join the targets together with the one of the largest gain if they
# gain at least this share of it. Fewer searches for the graph are needed then.
WITH_BEST = 0.5
# Rows of a party beyond the coefficients of a regression at least.
LEAST_FREE = 2


class TargetRecord(TypedDict, total=False):
    """A variable that a party acts on.

    Attributes
    ----------
    party : str
        Or group of parties that adds up securely.
    variable : str
    gain : float
        By how many nats the party's own mechanism is better than the other parties', above its
        cost.
    causes : {"alike", "unlike"}
        "alike" where the other parties' effects on the variable describe the party's rows: these
        count with a level of their own. "unlike" where the rows are left out, as of a variable that
        is set.
    confidence : float
        Share of the replicates in which the party acts on the variable; with ``replicates``.
    """

    party: str
    variable: str
    gain: float
    causes: str
    confidence: float


class FoundTargets(NamedTuple):
    """Where parties act.

    Attributes
    ----------
    replaced
        ``(K, d)``: whether a party acts on a variable so that its other rows say more of the
        mechanism without those of the party (:mod:`core.interventions.moments`).
    shifted
        ``(K, d)``: whether a party acts on a variable, whose causes have effects there still.
    gains
        ``(K, d)``: by how many nats the party's own regression of the variable on its causes is
        better than that of the parties that do not act, above its cost. Not positive where it does
        not act; minus infinity where its rows are too few.
    """

    replaced: BoolArray
    shifted: BoolArray
    gains: FloatArray

    @property
    def acted(self) -> BoolArray:
        """Whether a party acts on a variable, ``(K, d)``."""
        return np.asarray(self.replaced | self.shifted)

    def records(self, parties: Sequence[str], names: Sequence[str]) -> tuple[TargetRecord, ...]:
        """Return what parties act on, the largest gains first."""
        pairs = np.argwhere(self.acted).tolist()
        return tuple(
            TargetRecord(
                party=parties[k],
                variable=names[j],
                gain=float(self.gains[k, j]),
                causes="unlike" if self.replaced[k, j] else "alike",
            )
            for k, j in sorted(pairs, key=lambda pair: -float(self.gains[pair[0], pair[1]]))
        )


def with_shares(
    targets: Sequence[TargetRecord], replicates: Sequence[Sequence[TargetRecord]]
) -> tuple[TargetRecord, ...]:
    """Return the records with the share of the replicates that have each of them."""
    found = [{(one["party"], one["variable"]) for one in own} for own in replicates]
    shares = [
        float(np.mean([(one["party"], one["variable"]) in own for own in found])) for one in targets
    ]
    return tuple(
        TargetRecord(**one, confidence=share) for one, share in zip(targets, shares, strict=True)
    )


class _Tests(NamedTuple):
    """The parties' own regressions of one variable, compared with that of parties that do not act.

    Attributes
    ----------
    coefficients, variances
        ``(K,)`` log-likelihood ratios in nats: of coefficients for the party alone, and of noise
        variances (of several columns covariances) beyond that. Minus infinity where there are too
        few rows.
    sizes
        The number of coefficients, and of variances.
    replaces
        ``(K,)``: whether more is lost by taking the others' coefficients than by leaving the
        party's rows out.
    """

    coefficients: FloatArray
    variances: FloatArray
    sizes: tuple[int, int]
    replaces: BoolArray


def find_targets(
    products: FloatArray,
    widths: Sequence[int],
    num_variables: int,
    search: Callable[[BoolArray, BoolArray], BoolArray],
) -> FoundTargets:
    """Find which party acts on which variable.

    Pairs of a party and a variable join the targets, those of the largest gains first, and leave
    them where they gain nothing any more, until the targets of the graph are those that it was
    found with.

    Parameters
    ----------
    products
        ``(K, 1 + M, 1 + M)``: sums of products of the rows [1, z] of each party, where z has the M
        columns of m blocks.
    widths
        Number of columns of each of the m blocks: of the d variables, then of their lags.
    num_variables
        d.
    search
        Returns the graph, ``(m, d)``, given what is replaced and what is shifted, ``(K, d)`` each,
        see :func:`~flwr_causal.core.interventions.moments.moments_by_variable`. There is a party
        that does not act on a variable.
    """
    parties = _comparable(products)
    columns = [1 + own for own in columns_of(widths)]
    none = np.zeros((len(products), num_variables), dtype=np.bool_)
    found = FoundTargets(none, none, np.zeros(none.shape))
    seen: set[bytes] = set()
    while True:
        check_deadline()
        acted = found.acted
        seen.add(np.stack(found[:2]).tobytes())
        tests = _tests(parties, columns, search(found.replaced, found.shifted), acted)
        gains = _gains(tests, acted, parties[:, 0, 0])
        joined = acted & (gains > 0)
        if np.array_equal(joined, acted):
            joined = acted | _largest(np.where(acted, 0.0, gains))
        replaces = np.stack([test.replaces for test in tests], axis=1)
        after = FoundTargets(joined & replaces, joined & ~replaces, gains)
        # What was tried before led here.
        if np.stack(after[:2]).tobytes() in seen:
            kept = acted & (gains > 0)
            return FoundTargets(found.replaced & kept, found.shifted & kept, gains)
        found = after


def _comparable(products: FloatArray) -> FloatArray:
    """Return the products about all rows' means, in units of their standard deviations."""
    total = products.sum(axis=0)
    shift = np.eye(len(total))
    shift[1:, 0] = -total[0, 1:] / total[0, 0]
    centred = shift @ products @ shift.T
    squares = np.diagonal(centred.sum(axis=0)) / total[0, 0]
    scale = np.sqrt(np.where(squares > 0, squares, 1.0))
    return np.asarray(centred / np.outer(scale, scale))


def _largest(gains: FloatArray) -> BoolArray:
    """Return the pairs that join the targets: the largest gains of their party and variable."""
    least = max(WITH_BEST * gains.max(initial=0.0), np.finfo(np.float64).tiny)
    of_both = (gains == gains.max(axis=1, keepdims=True)) & (gains == gains.max(axis=0))
    return np.asarray(of_both & (gains >= least))


def _tests(
    parties: FloatArray, columns: Sequence[IntArray], dag: BoolArray, acted: BoolArray
) -> list[_Tests]:
    """Compare each party's regression of each variable on its causes with the others'."""
    first = np.zeros(1, dtype=columns[0].dtype)
    found = []
    for j in range(acted.shape[1]):
        causes = [own for own, one in zip(columns, dag[:, j], strict=True) if one]
        found.append(_test(parties, np.concatenate([first, *causes]), columns[j], acted[:, j]))
    return found


def _gains(tests: Sequence[_Tests], acted: BoolArray, rows: FloatArray) -> FloatArray:
    """Return what each party's own regression of each variable gains above its cost, (K, d)."""
    gains = np.full(acted.shape, -math.log(acted.shape[1]))
    both = zip(*[(test.coefficients, test.variances) for test in tests], strict=True)
    for ratios, sizes in zip(both, zip(*[test.sizes for test in tests], strict=True), strict=True):
        values, degrees = np.stack(ratios, axis=1), np.array(sizes, dtype=np.float64)
        others = np.isfinite(values) & ~acted
        # Twice a ratio has a chi-squared distribution if parties differ by sampling alone.
        shares = (2 * values / _median_of_chi2(degrees))[others]
        typical = max(float(np.median(shares)), 1.0) if len(shares) else 1.0
        gains += values / typical - 0.5 * degrees * np.log(np.maximum(rows, 1.0))[:, None]
    return gains


def _median_of_chi2(degrees: FloatArray) -> FloatArray:
    """Return the medians of chi-squared distributions (Wilson & Hilferty)."""
    return np.asarray(degrees * (1 - 2 / (9 * degrees)) ** 3)


def _test(parties: FloatArray, given: IntArray, own: IntArray, acted: BoolArray) -> _Tests:
    """Compare the parties' regressions of the columns ``own`` on those given, the first of ones."""
    which = np.concatenate([given, own])
    parts = parties[:, which[:, None], which]
    rest = parts[~acted].sum(axis=0) - np.where(acted[:, None, None], 0.0, parts)
    # One row more, of all rows' mean products: a party may lack states of categories.
    total = parts.sum(axis=0)
    alone = parts + total / total[0, 0]
    q, w = len(given), len(own)
    free = np.stack([alone[:, 0, 0], rest[:, 0, 0]]) - q
    usable = (free.min(axis=0) > LEAST_FREE + w) & (parts[:, 0, 0] > 0)
    free = np.where(usable, free, 1.0)
    alone, rest = (np.where(usable[:, None, None], one, np.eye(q + w)) for one in (alone, rest))
    scatter, others = _scatter(alone, q), _scatter(rest, q)
    both = free.sum(axis=0)
    coefficients = 0.5 * both * (_log_det(_scatter(alone + rest, q)) - _log_det(scatter + others))
    apart = 0.5 * free[0] * _covariance(scatter, free[0])
    apart_others = 0.5 * free[1] * _covariance(others, free[1])
    within = 0.5 * both * _covariance(scatter + others, both)
    # With a level of its own and the others' coefficients; without the causes.
    level = 0.5 * both * _covariance(_scatter(_centred(alone) + _centred(rest), q), both)
    no_causes = np.array([0, *range(q, q + w)])
    plain = _scatter(alone[:, no_causes[:, None], no_causes], 1)
    without = 0.5 * free[0] * _covariance(plain, free[0])
    return _Tests(
        np.where(usable, np.maximum(coefficients, 0.0), -np.inf),
        np.where(usable, np.maximum(within - apart - apart_others, 0.0), -np.inf),
        (q * w, w * (w + 1) // 2),
        (q > 1) & (without - apart < level - apart - apart_others),
    )


def _centred(products: FloatArray) -> FloatArray:
    """Return products of [1, z] about the means of z."""
    mean = products[:, 0] / products[:, :1, 0]
    centred = products - products[:, :1, :1] * mean[:, :, None] * mean[:, None, :]
    centred[:, 0, 0] = products[:, 0, 0]
    return np.asarray(centred)


def _scatter(products: FloatArray, q: int) -> FloatArray:
    """Return the residual sums of products of the columns from q on, given those before."""
    among, with_own = products[:, :q, :q], products[:, :q, q:]
    weights = np.linalg.pinv(among, rcond=1e-12, hermitian=True) @ with_own
    return np.asarray(products[:, q:, q:] - np.swapaxes(with_own, 1, 2) @ weights)


def _covariance(scatter: FloatArray, free: FloatArray) -> FloatArray:
    """Return log determinants of covariances, from sums of products and degrees of freedom."""
    return _log_det(scatter / free[:, None, None])


def _log_det(scatter: FloatArray) -> FloatArray:
    """Return log determinants of matrices in units of about 1, (K,)."""
    values = np.maximum(np.linalg.eigvalsh(scatter), VARIES)
    return np.asarray(np.log(values).sum(axis=1))
