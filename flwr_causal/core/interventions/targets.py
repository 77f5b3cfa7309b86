"""Which party acts on which variable, where nobody has told: interventions with unknown targets.

A party acts on a variable if the variable's regression on its causes differs between the party's
rows and those of the other parties: in its effects, its intercept or its noise variance. All other
mechanisms are the same in all parties, so that few differences explain all (sparse mechanism
shifts). Which mechanisms differ depends on the graph, and the graph on whose rows inform about each
mechanism (:mod:`core.interventions.moments`): the search for targets and the search for the graph
take turns.

A party joins the targets of a variable if the likelihood of its own regression gains more than the
BIC's cost of its coefficients, and than the logarithm of the odds against it: one party of twenty
is taken to act, on one of the d variables. The gain is that of Chow's test of the coefficients and
Bartlett's test of the variances, each divided by the factor by which its median over all parties
and variables exceeds that of sampling alone ("genomic control"): heavy tails, and small differences
between all parties, are not taken for interventions.

Of categories the regressions are linear in the columns of states. That of a category on a number is
not the same where the number has other values: a party that acts on the number may be found to act
on the category.

Parties with equal mechanisms cannot be told from each other: a party "acts" where it differs from
the other parties that do not act. Of two parties either may.

Where the search returns a class, targets are those in the member in which the fewest mechanisms
differ (sparse mechanism shifts): in any other one a change of one mechanism is one of several.
Which member of the class is at hand does not matter. Changed noise also tells directions
(:func:`told_directions`), as every change of a mechanism does.

References
----------
Baldo, F. & Assaad, C. K. (2025). Regret-based federated causal discovery with unknown
interventions. arXiv:2512.23626.
Mooij, J. M., Magliacane, S. & Claassen, T. (2020). Joint causal inference from multiple contexts.
JMLR 21.
Squires, C., Wang, Y. & Uhler, C. (2020). Permutation-based causal structure learning with unknown
intervention targets. UAI.
Perry, R., von Kügelgen, J. & Schölkopf, B. (2022). Causal discovery in heterogeneous environments
under the sparse mechanism shift hypothesis. NeurIPS 35.
Devlin, B. & Roeder, K. (1999). Genomic control for association studies. Biometrics 55.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.adjustment import local_parents
from flwr_causal.core.graphs.equivalence import meek
from flwr_causal.core.limits import MOST_STEPS, check_deadline, steps
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.ties import as_ranked, equal_to_largest, first_largest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Eigenvalues of residual covariances in units of about 1 are at least this: less is rounding.
LEAST_EIGENVALUE = 1e-12
# Pairs of a party and a variable join the targets together with the one of the largest gain if they
# gain at least this share of it. Fewer searches for the graph are needed then.
WITH_BEST = 0.5
# Rows of a party beyond the coefficients of a regression at least.
LEAST_FREE = 2
# Share of the parties that are taken to act before anything is seen. In 40 worlds without
# interventions, 20 variables and 5 parties of 200 rows with exponential noise, 1 % of the parties
# are said to act; with all of the parties taken to act it is 5 % (Gaussian noise: none).
ACTING = 0.05
# Nats by which a direction is better than its opposite: 20 times as probable.
TOLD = math.log(20)
# Sets of causes of a variable that are tried at most; there are more in very dense classes only.
MOST_SETS = 200


class TargetEntry(TypedDict, total=False):
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
    leveled
        ``(K, d)``: whether the party's rows have a level of their own, given the causes. Of the
        others that are shifted the noise differs, which the likelihood of moments that are pooled
        over parties does not tell.
    gains
        ``(K, d)``: by how many nats the party's own regression of the variable on its causes is
        better than that of the parties that do not act, above its cost. Not positive where it does
        not act; minus infinity where its rows are too few.
    """

    replaced: BoolArray
    shifted: BoolArray
    leveled: BoolArray
    gains: FloatArray

    @property
    def acted(self) -> BoolArray:
        """Whether a party acts on a variable, ``(K, d)``."""
        return np.asarray(self.replaced | self.shifted)

    def entries(self, parties: Sequence[str], names: Sequence[str]) -> tuple[TargetEntry, ...]:
        """Return what parties act on, the largest gains first."""
        pairs = np.argwhere(self.acted).tolist()
        return tuple(
            TargetEntry(
                party=parties[k],
                variable=names[j],
                gain=float(self.gains[k, j]),
                causes="unlike" if self.replaced[k, j] else "alike",
            )
            for k, j in sorted(pairs, key=lambda pair: -as_ranked(self.gains[pair[0], pair[1]]))
        )


def with_shares(
    targets: Sequence[TargetEntry], replicates: Sequence[Sequence[TargetEntry]]
) -> tuple[TargetEntry, ...]:
    """Return the entries with the share of the replicates that have each of them."""
    found = [{(one["party"], one["variable"]) for one in own} for own in replicates]
    shares = [
        float(np.mean([(one["party"], one["variable"]) in own for own in found])) for one in targets
    ]
    return tuple(
        TargetEntry(**one, confidence=share) for one, share in zip(targets, shares, strict=True)
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
    compared
        ``(K,)``: whether the party is one of those that do not act, and has rows enough.
    replaces
        ``(K,)``: whether more is lost by taking the others' coefficients, with noise and a level of
        its own, than by leaving the party's rows out.
    leveled
        ``(K,)``: whether a level of the party's own gains more than it costs.
    """

    coefficients: FloatArray
    variances: FloatArray
    sizes: tuple[int, int]
    compared: BoolArray
    replaces: BoolArray
    leveled: BoolArray

    def ratios(self, typical: tuple[float, float]) -> FloatArray:
        """Return the log-likelihood ratios of all, each divided by its factor, ``(K,)``."""
        return self.coefficients / typical[0] + self.variances / typical[1]


class _Compared(NamedTuple):
    """The parties' own regressions of all variables on their causes in one member of a class.

    ``(K, d)`` each; see :class:`FoundTargets` and :class:`_Tests`.
    """

    gains: FloatArray
    replaces: BoolArray
    leveled: BoolArray


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
        Returns the graph, ``(m, d)``, given the replaced and the shifted targets, ``(K, d)`` each,
        see :func:`~flwr_causal.core.interventions.moments.moments_by_variable`. There is a party
        that does not act on a variable. An edge that is True both ways has an open direction.
    """
    parties = comparable(products)
    columns = [1 + own for own in columns_of(widths)]
    none = np.zeros((len(products), num_variables), dtype=np.bool_)
    found = FoundTargets(none, none, none, np.zeros(none.shape))
    seen: set[bytes] = set()
    for _ in steps("The search for the targets of interventions", MOST_STEPS + 2 * none.size):
        acted = found.acted
        seen.add(np.stack(found[:3]).tobytes())
        marks = search(found.replaced, found.shifted & found.leveled)
        gains, replaces, leveled = _compared(parties, columns, marks, acted)
        joined = acted & (gains > 0)
        if np.array_equal(joined, acted):
            joined = acted | _largest(np.where(acted, 0.0, gains))
        after = FoundTargets(joined & replaces, joined & ~replaces, joined & leveled, gains)
        # What was tried before led here.
        if np.stack(after[:3]).tobytes() in seen:
            kept = acted & (gains > 0)
            replaced, shifted, leveled = (one & kept for one in found[:3])
            return FoundTargets(replaced, shifted, leveled, gains)
        found = after
    return found


def own_mechanisms(
    products: FloatArray, marks: BoolArray, widths: Sequence[int] | None = None
) -> BoolArray:
    """Return in which parties the mechanisms of a graph differ, ``(K, d)``.

    Of a class these are those of the member in which the fewest differ.

    Parameters
    ----------
    products, widths
        As of :func:`find_targets`. Default: blocks of one column.
    marks
        ``(m, d)``: the graph, as ``search`` of :func:`find_targets` returns it.
    """
    parties, columns = comparable(products), _columns(marks, widths)
    none = np.zeros((len(products), marks.shape[1]), dtype=np.bool_)
    return np.asarray(_compared(parties, columns, marks, none).gains > 0)


def told_directions(
    products: FloatArray,
    marks: BoolArray,
    acted: BoolArray,
    widths: Sequence[int] | None = None,
    least: float = TOLD,
) -> BoolArray:
    """Direct open edges between variables of which a party acts on one and not on the other.

    The direction is that of the member of the class in which the fewest mechanisms differ.

    Parameters
    ----------
    products, marks, widths
        As of :func:`own_mechanisms`.
    acted
        ``(K, d)``: who acts on what.
    least
        By how many nats that member must be better than the best one of the opposite direction.
        Default: it is 20 times as probable.

    Returns
    -------
    ndarray of bool
        The marks, ``(m, d)``.
    """
    d = acted.shape[1]
    if not acted.any() or not (marks[:d] & marks[:d].T).any():
        return marks
    members = _Members(comparable(products), _columns(marks, widths), marks, acted)
    now = to_square(marks)
    best, total = members.fewest(now)
    apart = (acted[:, :, None] != acted[:, None, :]).any(axis=0)
    for i, j in np.argwhere(best[:d, :d] & now[:d, :d].T & apart).tolist():
        opposite = now.copy()
        opposite[i, j] = False
        if now[j, i] and total - members.fewest(meek(opposite))[1] > least:
            now[j, i] = False
            now = meek(now)
    return now[:, :d]


def comparable(products: FloatArray) -> FloatArray:
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
    of_both = equal_to_largest(gains, axis=1) & equal_to_largest(gains, axis=0)
    return np.asarray(of_both & (gains >= least))


class _Members:
    """DAGs of a class, compared by how many parties' mechanisms differ.

    Attributes
    ----------
    tests
        Of each of the d variables its possible sets of causes, masks of shape (m,), and their
        tests.
    gains
        ``(sets, K)`` of each variable, see :func:`_gains`.
    """

    def __init__(
        self, parties: FloatArray, columns: Sequence[IntArray], marks: BoolArray, acted: BoolArray
    ) -> None:
        self.tests = [
            [(one, _tests(parties, columns, one, j, acted)) for one in _possible_causes(marks, j)]
            for j in range(acted.shape[1])
        ]
        rows, typical = parties[:, 0, 0], _typical([one for own in self.tests for _, one in own])
        self.gains, self._differing = [], []
        for own in self.tests:
            each = [test for _, test in own]
            # Which of its sets of causes a variable has is chosen by the gains.
            gains = _gains(each, rows, acted.shape[1], typical).T - math.log(len(own))
            self.gains.append(gains)
            # Members are equivalent as to the ratios themselves, before they are divided.
            ratios = _gains(each, rows, acted.shape[1]).T
            self._differing.append(np.where(gains > 0, ratios, 0.0).sum(axis=1))

    def fewest(self, marks: BoolArray) -> tuple[BoolArray, float]:
        """Return the member with the fewest differences, (m, m), and its gains in nats.

        The likelihood of all parties' own mechanisms is the same in all members. The fewest explain
        it where their gains, each above its cost, add up to most. One variable after the other is
        made a cause of all its neighbours by open edges: the one after which this sum is largest,
        counted of the remaining sets of causes with the least gain.
        """
        while (open_edges := marks & marks.T).any():
            check_deadline()
            members = []
            for j in np.flatnonzero(open_edges.any(axis=0)).tolist():
                directed = marks.copy()
                directed[marks[j], j] = False
                members.append(meek(directed))
                if not self.any_differs:
                    break
            marks = members[int(first_largest([self._explained(one) for one in members]))]
        return marks, self._explained(marks)

    @property
    def any_differs(self) -> bool:
        """Whether there is a member in which a mechanism differs."""
        return any(own.any() for own in self._differing)

    def sets_in(self, marks: BoolArray, j: int) -> list[int]:
        """Return which possible sets of causes a variable has in a class of shape (m, m)."""
        sure, some = marks[:, j] & ~marks[j], marks[:, j]
        sets = enumerate(own for own, _ in self.tests[j])
        return [k for k, own in sets if (own >= sure).all() and (own <= some).all()] or [0]

    def _explained(self, marks: BoolArray) -> float:
        own = enumerate(self._differing)
        return sum(float(gains[self.sets_in(marks, j)].min()) for j, gains in own)


def _compared(
    parties: FloatArray, columns: Sequence[IntArray], marks: BoolArray, acted: BoolArray
) -> _Compared:
    """Compare each party's regression of each variable on its causes with the others'."""
    members = _Members(parties, columns, marks, acted)
    best, _ = members.fewest(to_square(marks))
    chosen = [members.sets_in(best, j)[0] for j in range(acted.shape[1])]
    tests = [own[k][1] for own, k in zip(members.tests, chosen, strict=True)]
    return _Compared(
        np.stack([own[k] for own, k in zip(members.gains, chosen, strict=True)], axis=1),
        np.stack([test.replaces for test in tests], axis=1),
        np.stack([test.leveled for test in tests], axis=1),
    )


def _possible_causes(marks: BoolArray, j: int) -> list[BoolArray]:
    """Return the sets of causes of a variable in the members of a class, masks of shape (m,)."""
    if not (marks[: marks.shape[1], j] & marks[j]).any():
        return [marks[:, j]]
    sets = islice(local_parents(to_square(marks), j), MOST_SETS)
    return [np.isin(np.arange(len(marks)), parents) for parents, _ in sets]


def _columns(marks: BoolArray, widths: Sequence[int] | None) -> list[IntArray]:
    """Return the columns of each block in the products of rows [1, z]."""
    return [1 + own for own in columns_of([1] * len(marks) if widths is None else widths)]


def _tests(
    parties: FloatArray,
    columns: Sequence[IntArray],
    causes: BoolArray,
    j: int,
    acted: BoolArray,
) -> _Tests:
    """Compare each party's regression of a variable on its causes with the others'."""
    first, num_variables = np.zeros(1, dtype=columns[0].dtype), acted.shape[1]
    given = np.concatenate([first, *[own for own, one in zip(columns, causes, strict=True) if one]])
    apart = acted[:, j].copy()
    test = _test(parties, given, columns[j], apart)
    # A party that acts would make all others differ from the rest: it is compared with less than
    # half of the parties left out.
    while apart.sum() < (len(apart) - 1) // 2:
        gains = np.where(apart, -np.inf, _gains([test], parties[:, 0, 0], num_variables)[:, 0])
        if not gains.max() > 0:
            break
        apart[first_largest(gains)] = True
        test = _test(parties, given, columns[j], apart)
    return test


def _gains(
    tests: Sequence[_Tests],
    rows: FloatArray,
    num_variables: int,
    typical: tuple[float, float] = (1.0, 1.0),
) -> FloatArray:
    """Return what a party's own regression gains above its cost, (K, number of tests)."""
    gains = []
    for test in tests:
        cost = 0.5 * sum(test.sizes) * np.log(np.maximum(rows, 1.0)) + math.log(
            num_variables / ACTING
        )
        gains.append(test.ratios(typical) - cost)
    return np.stack(gains, axis=1)


def _typical(tests: Sequence[_Tests]) -> tuple[float, float]:
    """Return by which factors the ratios are larger than by sampling alone, at least 1.

    Of the coefficients', and of the variances'.
    """
    factors = []
    for part in (0, 1):
        shares = []
        for test in tests:
            # Twice a ratio has a chi-squared distribution if parties differ by sampling alone.
            ratios = (test.coefficients, test.variances)[part][test.compared]
            shares.append(2 * ratios / _median_of_chi2(test.sizes[part]))
        every = np.concatenate(shares)
        factors.append(max(float(np.median(every)), 1.0) if len(every) else 1.0)
    return factors[0], factors[1]


def _median_of_chi2(degrees: int) -> float:
    """Return the median of a chi-squared distribution (Wilson & Hilferty)."""
    return float(degrees * (1 - 2 / (9 * degrees)) ** 3)


def _test(parties: FloatArray, given: IntArray, own: IntArray, apart: BoolArray) -> _Tests:
    """Compare each party's regression of the columns ``own`` on those given with the others'.

    The first of the columns given is of ones; the parties ``apart`` are none of the others.
    """
    which = np.concatenate([given, own])
    parts = parties[:, which[:, None], which]
    rest = parts[~apart].sum(axis=0) - np.where(apart[:, None, None], 0.0, parts)
    # One row more, of all rows' mean products: a party may lack states of categories.
    total = parts.sum(axis=0)
    alone = parts + total / total[0, 0]
    q, w = len(given), len(own)
    free = np.stack([alone[:, 0, 0], rest[:, 0, 0]]) - q
    usable = (free.min(axis=0) > LEAST_FREE + w) & (parts[:, 0, 0] > 0)
    free = np.where(usable, free, 1.0)
    alone, rest = (np.where(usable[:, None, None], one, np.eye(q + w)) for one in (alone, rest))
    scatter, others = residual_products(alone, q), residual_products(rest, q)
    both = free.sum(axis=0)
    coefficients = (
        0.5 * both * (_log_det(residual_products(alone + rest, q)) - _log_det(scatter + others))
    )
    own_fit = 0.5 * free[0] * log_covariance(scatter, free[0])
    others_fit = 0.5 * free[1] * log_covariance(others, free[1])
    within = 0.5 * both * log_covariance(scatter + others, both)
    # With a level of its own and the others' coefficients, and noise that is common or of its own;
    # without the causes.
    moved = np.stack([_centred(alone), _centred(rest)])
    level = 0.5 * both * log_covariance(residual_products(moved.sum(axis=0), q), both)
    with_causes = np.minimum(level, _own_noise(moved, q))
    no_causes = np.array([0, *range(q, q + w)])
    plain = residual_products(alone[:, no_causes[:, None], no_causes], 1)
    without = 0.5 * free[0] * log_covariance(plain, free[0])
    common = 0.5 * both * log_covariance(residual_products(alone + rest, q), both)
    return _Tests(
        np.where(usable, np.maximum(coefficients, 0.0), -np.inf),
        np.where(usable, np.maximum(within - own_fit - others_fit, 0.0), -np.inf),
        (q * w, w * (w + 1) // 2),
        usable & ~apart,
        (q > 1) & (without - own_fit < with_causes - own_fit - others_fit),
        common - level > 0.5 * w * np.log(np.maximum(parts[:, 0, 0], 1.0)),
    )


def _own_noise(parts: FloatArray, q: int) -> FloatArray:
    """Return minus the log-likelihood with common coefficients, and noise of each part's own.

    ``parts`` are the products of two parts of the rows for each party, (2, K, q + w, q + w).
    """
    both = parts.sum(axis=0)
    weights = np.linalg.pinv(both[:, :q, :q], rcond=1e-12, hermitian=True) @ both[:, :q, q:]
    own = np.broadcast_to(np.eye(both.shape[1] - q), (len(both), *[both.shape[1] - q] * 2))
    to_noise, loss = np.concatenate([-weights, own], axis=1), np.zeros(len(both))
    for part in parts:
        free = np.maximum(part[:, 0, 0] - q, 1.0)
        loss += 0.5 * free * log_covariance(np.swapaxes(to_noise, 1, 2) @ part @ to_noise, free)
    return loss


def _centred(products: FloatArray) -> FloatArray:
    """Return products of [1, z] about the means of z."""
    mean = products[:, 0] / products[:, :1, 0]
    centred = products - products[:, :1, :1] * mean[:, :, None] * mean[:, None, :]
    centred[:, 0, 0] = products[:, 0, 0]
    return np.asarray(centred)


def residual_products(products: FloatArray, q: int) -> FloatArray:
    """Return the residual sums of products of the columns from q on, given those before."""
    among, with_own = products[:, :q, :q], products[:, :q, q:]
    weights = np.linalg.pinv(among, rcond=1e-12, hermitian=True) @ with_own
    return np.asarray(products[:, q:, q:] - np.swapaxes(with_own, 1, 2) @ weights)


def log_covariance(scatter: FloatArray, free: FloatArray) -> FloatArray:
    """Return log determinants of covariances, from sums of products and degrees of freedom."""
    return _log_det(scatter / free[:, None, None])


def _log_det(scatter: FloatArray) -> FloatArray:
    """Return log determinants of matrices in units of about 1, (K,)."""
    values = np.maximum(np.linalg.eigvalsh(scatter), LEAST_EIGENVALUE)
    return np.asarray(np.log(values).sum(axis=1))
