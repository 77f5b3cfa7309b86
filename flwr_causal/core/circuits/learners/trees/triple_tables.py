"""Trees in which a variable has up to two parents, from counts of triples of states.

A party marks the state of each of its variables in each row (`StateMarks`). Products of the marks
of two parties, added up over their common rows, count the pairs of states. Where all parties know
the class, marks are those of a state within a class, and there are trees for each class. A party
also marks pairs of states of two of its own variables. Products of these marks with those of single
states count triples: of three variables of which a party holds two. The variables are
joined as in Chow and Liu's tree, one after the other; each depends on a variable that is there,
and may depend on one of that variable's parents as well. So the graph is a partial 2-tree, and
inference is that of a tree whose nodes are pairs of variables (`ChowLiuTree` with hidden ones).

Three variables of which no party holds two are not counted together. Their table is the one of
largest entropy among those with the counts of pairs, without interaction of the three (`fitted`).

A table is the Dirichlet mean of its counts, and parents are chosen by the marginal likelihood of
the counts (Heckerman, Geiger & Chickering 1995), which needs no held-out rows. A tree from each of
several roots is grown; their mean is the density.

To predict a target that not all parties know, every variable depends on the target, and possibly on
another one (Friedman, Geiger & Goldszmidt 1997): in the trees of the
density the target depends on its neighbours alone, however many columns tell of it.

References
----------
Deming & Stephan: On a least squares adjustment of a sampled frequency table when the expected
marginal totals are known, Annals of Mathematical Statistics 1940.

Friedman, Geiger & Goldszmidt: Bayesian network classifiers, Machine Learning 1997.

Heckerman, Geiger & Chickering: Learning Bayesian networks: the combination of knowledge and
statistical data, Machine Learning 1995.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, ndtri

from flwr_causal.core.circuits.learners.trees.learner import class_mixture
from flwr_causal.core.circuits.learners.trees.pair_sums import StateLayout, encode
from flwr_causal.core.circuits.learners.trees.trees import PRIOR_STRENGTHS
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.nodes import mixed
from flwr_causal.core.ties import TIE, first_largest
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes
    from flwr_causal.core.circuits.nodes import Node

#: Into how many groups the intervals of a number are merged in pairs of states: the largest number
#: with which all pairs have no more marks than there may be.
GROUPS = (8, 6, 5, 4, 3, 2)
#: Marks of pairs, at most.
MOST_MARKS = 768
#: Trees whose mean is the density of a class.
MOST_TREES = 8
#: Share of a prior from other tables that is replaced by the variable's distribution.
SOFT = 0.05
#: The same of tables of jointly normal scores, which have no cells of probability 0.
SOFT_NORMAL = 0.01
#: Rounds in which a table is fitted to the counts of pairs.
FITTING_ROUNDS = 20
#: Correlations of normal scores from which the most likely is chosen.
CORRELATIONS = np.tanh(np.linspace(-3.0, 3.0, 61))


@dataclass(frozen=True, eq=False)
class Joints:
    """Which pairs of variables are marked jointly, and in what groups of states.

    Parameters
    ----------
    sizes : tuple of int, length d
        Number of states of each variable.
    groups : tuple of ndarray of int64
        By variable, the group of each state; groups are numbered from 0.
    pairs : tuple of (int, int)
        Positions of the variables, ascending.
    """

    sizes: tuple[int, ...]
    groups: tuple[IntArray, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        domain: Domain,
        plan: TrainingPlan,
        holders: Sequence[int],
        most_marks: int = MOST_MARKS,
    ) -> Joints:
        """Return the pairs of variables with the same holders, as far as marks are to be had.

        Parameters
        ----------
        domain : Domain
            Intervals of a number are merged; states of a category are not.
        plan : TrainingPlan
        holders : sequence of int
            By column of the domain; equal numbers are equal sets of parties.
        most_marks : int
            Marks of pairs, at most.
        """
        columns = plan.columns
        alike = [
            (i, j)
            for j, second in enumerate(columns)
            for i, first in enumerate(columns[:j])
            if holders[first] == holders[second]
        ]
        for most in GROUPS:
            groups = tuple(_groups_of_states(domain, column, most) for column in columns)
            counts = [int(merged[-1]) + 1 for merged in groups]
            marks = np.array([counts[i] * counts[j] for i, j in alike]) * plan.num_classes
            if marks.sum() <= most_marks:
                return cls(plan.sizes, groups, tuple(alike))
        # All pairs have too many marks even so: those of few states first.
        order = np.argsort(marks, kind="stable")
        kept = order[np.cumsum(marks[order]) <= most_marks]
        return cls(plan.sizes, groups, tuple(alike[k] for k in np.sort(kept)))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of groups of each variable."""
        return tuple(int(merged[-1]) + 1 for merged in self.groups)

    @cached_property
    def layout(self) -> StateLayout:
        """The order of the marks of pairs, those of a pair of variables side by side."""
        return StateLayout(
            tuple(self.counts[i] * self.counts[j] for i, j in self.pairs), complete=False
        )

    @cached_property
    def starts(self) -> dict[tuple[int, int], int]:
        """First mark of each pair of variables, after those of single states."""
        first = (self.layout.first + sum(self.sizes)).tolist()
        return dict(zip(self.pairs, first[: len(self.pairs)], strict=True))

    @cached_property
    def first_of_pairs(self) -> IntArray:
        """The first variable of each mark of a pair."""
        pairs = np.array([i for i, _ in self.pairs], dtype=np.int64)
        return np.repeat(pairs, self.layout.states if self.pairs else 0)

    def codes(self, codes: Codes) -> Codes:
        """Return the marks of pairs, as states of one variable for each pair, shape (m, n).

        Parameters
        ----------
        codes : ndarray of int32, shape (d, n)
            -1 is missing, as is then each pair with this variable.
        """
        grouped = np.full(codes.shape, -1, dtype=np.int32)
        for k, groups in enumerate(self.groups):
            known = codes[k] >= 0
            grouped[k, known] = groups[codes[k, known]]
        result = np.full((len(self.pairs), codes.shape[1]), -1, dtype=np.int32)
        for place, (i, j) in enumerate(self.pairs):
            known = (grouped[i] >= 0) & (grouped[j] >= 0)
            result[place, known] = grouped[i, known] * self.counts[j] + grouped[j, known]
        return result


def _groups_of_states(domain: Domain, column: int, most: int) -> IntArray:
    """Return the group of each state; of intervals that follow each other, about as many each."""
    variable = domain.variables[column]
    size = variable.num_states
    if variable.edges is None:
        return np.arange(size)
    intervals = size - variable.missing_state
    groups = np.arange(intervals) * min(most, intervals) // intervals
    missing = [groups[-1] + 1] if variable.missing_state else []
    return np.append(groups, missing).astype(np.int64)


class Estimate(NamedTuple):
    """Conditional probabilities, and how probable the counts are.

    Parameters
    ----------
    evidence : float
        Log marginal likelihood of the counts.
    table : ndarray of float, shape (..., states)
    """

    evidence: float
    table: FloatArray


def shrunk(counts: FloatArray, priors: Sequence[FloatArray]) -> Estimate:
    """Return the Dirichlet mean under the prior and the strength of the largest evidence.

    Parameters
    ----------
    counts : ndarray, shape (..., states)
    priors : sequence of ndarray, broadcastable to ``counts``
        Each with rows that sum to 1, and positive.
    """
    rows, seen = counts.sum(axis=-1), counts > 0
    strengths = np.array(PRIOR_STRENGTHS)
    most = -np.inf, 0.0, priors[0]
    totals = (gammaln(rows[..., None] + strengths) - gammaln(strengths)).reshape(-1, len(strengths))
    for prior in priors:
        given = np.broadcast_to(prior, counts.shape)[seen][:, None] * strengths
        evidence = (gammaln(counts[seen][:, None] + given) - gammaln(given)).sum(axis=0)
        evidence -= totals.sum(axis=0)
        best = int(first_largest(evidence))
        if evidence[best] > most[0] + TIE * max(abs(evidence[best]), 1.0):
            most = float(evidence[best]), float(strengths[best]), prior
    evidence_of, strength, prior = most
    cells = counts + strength * prior
    return Estimate(evidence_of, cells / cells.sum(axis=-1, keepdims=True))


def fitted(first: FloatArray, second: FloatArray, third: FloatArray) -> FloatArray:
    """Return the table of three variables of largest entropy that has the counts of their pairs.

    By iterative proportional fitting (Deming & Stephan 1940). The logarithm of such a table is a
    sum of functions of pairs. So the mean log probability of rows under it follows from the counts
    of their pairs, and is that of the fitted counts: evidence needs no counts of the triples.

    Parameters
    ----------
    first : ndarray, shape (a, b)
        Each pair may be counted in other rows; the result has the fewest.
    second : ndarray, shape (a, c)
    third : ndarray, shape (b, c)

    Returns
    -------
    ndarray, shape (a, b, c)
    """
    table = np.ones((*first.shape, second.shape[1]))
    rows = min(float(one.sum()) for one in (first, second, third))
    if rows == 0:
        return 0.0 * table
    wanted = [
        (axis, one * (rows / one.sum())) for axis, one in ((2, first), (1, second), (0, third))
    ]
    for _ in range(FITTING_ROUNDS):
        for axis, counts in wanted:
            there = table.sum(axis=axis)
            ratio = np.divide(counts, there, out=np.zeros_like(there), where=there > 0)
            table *= np.expand_dims(ratio, axis)
    return table


def normal_table(seen: FloatArray, above: FloatArray, alone: FloatArray) -> FloatArray:
    """Return the table of two numbers in intervals whose normal scores are jointly normal.

    The correlation is the most likely of `CORRELATIONS`. Given an interval of the parent, the score
    of the variable is taken to be normal.

    Parameters
    ----------
    seen : ndarray, shape (intervals of the parent, intervals)
    above, alone : ndarray
        Probabilities of the parent's and of the variable's intervals, positive.

    Returns
    -------
    ndarray, shape (intervals of the parent, intervals)
    """
    given, spread = _normal_moments(above)[:2]
    ends = _normal_moments(alone)[2]
    left = np.sqrt(1.0 - CORRELATIONS**2 * (1.0 - spread[:, None]))[:, :, None]
    middles = (given[:, None] * CORRELATIONS)[:, :, None]
    tables = np.diff(ndtr((ends - middles) / left), axis=2).transpose(1, 0, 2)
    logs = np.log((1.0 - SOFT_NORMAL) * tables + SOFT_NORMAL * alone)
    table = tables[int(first_largest((seen * logs).sum(axis=(1, 2))))]
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _normal_moments(probabilities: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and variance of the standard normal in intervals, and the intervals' ends."""
    ends = ndtri(np.clip(np.concatenate(([0.0], np.cumsum(probabilities)[:-1], [1.0])), 0.0, 1.0))
    inner = np.isfinite(ends)
    density = np.where(inner, np.exp(-0.5 * ends**2) / np.sqrt(2.0 * np.pi), 0.0)
    slopes = np.where(inner, ends, 0.0) * density
    means = -np.diff(density) / probabilities
    return means, 1.0 - np.diff(slopes) / probabilities - means**2, ends


class TripleTables:
    """Estimates from the counts of one class.

    Parameters
    ----------
    joints : Joints
    counts : ndarray, shape (L, L)
        Of single states and pairs; those of pairs with pairs are not read.
    ordered : ndarray of bool, shape (d,)
        Whether a variable's states are intervals that follow each other.
    others : TripleTables, optional
        Those of the other classes, towards which tables are shrunk.
    """

    def __init__(
        self,
        joints: Joints,
        counts: FloatArray,
        ordered: BoolArray,
        others: TripleTables | None = None,
    ) -> None:
        self.joints, self.counts, self.ordered, self.others = joints, counts, ordered, others
        self._layout = StateLayout(joints.sizes, complete=False)
        self._known: dict[tuple[int, ...], Estimate] = {}

    @property
    def num_variables(self) -> int:
        """Number of variables, d."""
        return len(self.joints.sizes)

    def estimate(self, variable: int, parents: tuple[int, ...] = ()) -> Estimate:
        """Return the distribution of a variable given none, one or two others.

        The table given one variable has its states as rows; given two it has their groups, shape
        (groups of the first, groups of the second, states).
        """
        key = (variable, *parents)
        if key not in self._known:
            if len(parents) == 2:
                self._known[key] = self._given_two(variable, *parents)
            else:
                self._known[key] = self._given_at_most_one(variable, *parents)
        return self._known[key]

    def gain(self, variable: int, parents: tuple[int, ...]) -> float:
        """Return how much the parents raise the evidence."""
        return self.estimate(variable, parents).evidence - self.estimate(variable).evidence

    def _table(self, variable: int, *parents: int) -> FloatArray:
        return self.estimate(variable, parents).table

    def _given_at_most_one(self, variable: int, parent: int | None = None) -> Estimate:
        states = self._span(variable)
        if parent is None:
            given: tuple[int, ...] = ()
            seen = np.diagonal(self.counts)[states]
            priors = [np.full(seen.shape, 1.0 / len(seen))]
        else:
            seen, given = self.counts[self._span(parent), states], (parent,)
            priors = [self._table(variable)[None], *self._pair_priors(variable, parent, seen)]
        if self.others is not None:
            priors.append(self.others._table(variable, *given))
        return shrunk(seen, priors)

    def _pair_priors(self, variable: int, parent: int, seen: FloatArray) -> Iterator[FloatArray]:
        """Yield priors of the table given a parent: of merged states, and of normal scores."""
        groups, own = self.joints.groups[parent], self.joints.groups[variable]
        alone = self._table(variable)
        for wide in (1, 2):
            above = groups // (wide if self.ordered[parent] else 1)
            below = own // (wide if self.ordered[variable] else 1)
            grouped = _summed(_summed(seen, above, 0), below, 1)
            if grouped.shape == seen.shape:
                continue
            share = _summed(alone, below, 0)
            table = shrunk(grouped, [share]).table[above][:, below] * (alone / share[below])
            yield (1.0 - SOFT) * table + SOFT * alone
        if self.ordered[parent] and self.ordered[variable]:
            normal = normal_table(seen, self._table(parent), alone)
            yield (1.0 - SOFT_NORMAL) * normal + SOFT_NORMAL * alone

    def _given_two(self, variable: int, first: int, second: int) -> Estimate:
        if first > second:
            turned = self.estimate(variable, (second, first))
            return Estimate(turned.evidence, turned.table.swapaxes(0, 1))
        seen = self._triples(first, second, variable)
        groups = self.joints.groups[variable]
        alone = _summed(self._table(variable), groups, 0)
        priors = list(self._triple_priors(seen, alone, first, second))
        if self.others is not None:
            priors.append(_summed(self.others._table(variable, first, second), groups, 2))
        coarse = shrunk(seen, priors)
        if groups[-1] + 1 == len(groups):
            return coarse
        within, share = max(
            (
                (self._within_groups(variable), np.s_[None, None]),
                (self._within_groups(variable, first), np.s_[:, None]),
                (self._within_groups(variable, second), np.s_[None]),
            ),
            key=lambda one: one[0].evidence,
        )
        table = coarse.table[:, :, groups] * within.table[share]
        return Estimate(coarse.evidence + within.evidence, table)

    def _triple_priors(
        self, seen: FloatArray, alone: FloatArray, first: int, second: int
    ) -> Iterator[FloatArray]:
        """Yield priors of the table of groups given two variables, (first, second, groups).

        Parameters
        ----------
        seen : ndarray, shape (groups of the first, of the second, of the variable)
        alone : ndarray
            Probability of the variable's groups.
        first, second : int
        """
        left = shrunk(seen.sum(axis=1), [alone]).table[:, None]
        right = shrunk(seen.sum(axis=0), [alone]).table[None]
        both = left * right / alone
        yield (1.0 - SOFT) * both / both.sum(axis=-1, keepdims=True) + SOFT * alone
        yield left
        yield right
        for wide in (2, 4):
            axes = [
                np.arange(size) // (wide if self.ordered[one] else 1)
                for one, size in zip((first, second), seen.shape[:2], strict=True)
            ]
            merged = _summed(_summed(seen, axes[0], 0), axes[1], 1)
            if merged.shape != seen.shape:
                table = shrunk(merged, [alone]).table[axes[0]][:, axes[1]]
                yield (1.0 - SOFT) * table + SOFT * alone

    def _within_groups(self, variable: int, *parents: int) -> Estimate:
        """Return the distribution of states within their group, given a parent's group."""
        key = (variable, -1, *parents)
        if key not in self._known:
            groups, alone = self.joints.groups[variable], self._table(variable)
            seen = np.diagonal(self.counts)[self._span(variable)]
            for parent in parents:
                given = self.counts[self._span(parent), self._span(variable)]
                seen = _summed(given, self.joints.groups[parent], 0)
            evidence, table = 0.0, np.empty_like(seen)
            for group in range(int(groups[-1]) + 1):
                inside = groups == group
                found = shrunk(seen[..., inside], [alone[inside] / alone[inside].sum()])
                evidence, table[..., inside] = evidence + found.evidence, found.table
            self._known[key] = Estimate(evidence, table)
        return self._known[key]

    def _triples(self, first: int, second: int, third: int) -> FloatArray:
        """Return how many rows have each triple of groups; fitted, where nobody counts them."""
        names = (first, second, third)
        for place in range(3):
            pair = tuple(sorted(names[:place] + names[place + 1 :]))
            start = self.joints.starts.get((pair[0], pair[1]))
            if start is None:
                continue
            single, shape = names[place], tuple(self.joints.counts[one] for one in pair)
            marks = slice(start, start + shape[0] * shape[1])
            counts = self.counts[marks, self._span(single)].reshape(*shape, -1)
            counts = _summed(counts, self.joints.groups[single], 2)
            order = (*pair, single)
            return np.asarray(counts.transpose([order.index(one) for one in names]))
        return fitted(
            self._pairs(first, second), self._pairs(first, third), self._pairs(second, third)
        )

    def _pairs(self, first: int, second: int) -> FloatArray:
        """Return how many rows have each pair of groups."""
        groups, counts = self.joints.groups, self.counts[self._span(first), self._span(second)]
        return _summed(_summed(counts, groups[first], 0), groups[second], 1)

    def _span(self, variable: int) -> slice:
        first = int(self._layout.first[variable])
        return slice(first, first + self.joints.sizes[variable])


class Member(NamedTuple):
    """A variable of a tree.

    Parameters
    ----------
    variable : int
    parents : tuple of int
        None, one, or two: the second is one of the parents of the first.
    """

    variable: int
    parents: tuple[int, ...]


def class_nodes(
    joints: Joints,
    counts: FloatArray,
    ordered: BoolArray,
    columns: Sequence[int],
    target: int | None = None,
) -> list[Node]:
    """Return the distribution of each class, the mean of trees from several roots.

    Parameters
    ----------
    joints : Joints
    counts : ndarray, shape (C, L, L)
        Of marks, by class.
    ordered : ndarray of bool, shape (d,)
        Which variables are numbers in intervals, without one of missing values.
    columns : sequence of int, length d
        Of the variables in the domain, ascending.
    target : int, optional
        Position of the variable that the trees are to predict. Default: they are a density.
    """
    nodes, everything = [], counts.sum(axis=0)
    for of_class in counts:
        others = TripleTables(joints, everything - of_class, ordered) if len(counts) > 1 else None
        tables = TripleTables(joints, of_class, ordered, others)
        trees = [grown(tables, root, target) for root in roots(len(columns))]
        leaves = [tree_leaf(tables, members, columns) for members in trees]
        nodes.append(mixed(leaves, np.ones(len(leaves))))
    return nodes


def grown(tables: TripleTables, root: int, target: int | None = None) -> list[Member]:
    """Return a partial 2-tree, parents before their children.

    The variable is next whose parents raise its evidence most. Below a variable with a second
    parent this one is carried on: all its children have the same second parent, or none.

    Parameters
    ----------
    tables : TripleTables
    root : int
        The first variable; with a target the second.
    target : int, optional
        The first variable, a parent of all others. Evidence is then compared with that given the
        target alone.
    """
    found = [Member(root, ())]
    if target is not None:
        found = [Member(target, ()), *([] if root == target else [Member(root, (target,))])]
    carried = {one.variable: one.parents for one in found}
    waiting = set(range(tables.num_variables)) - carried.keys()
    heap = [choice for one in found for choice in _choices(tables, one, waiting, target)]
    heapq.heapify(heap)
    while waiting:
        while True:
            _, other, given = heapq.heappop(heap)
            if other in waiting and all(one in carried[given[0]] for one in given[1:]):
                break
        if len(given) == 2:
            carried[given[0]] = given[1:]
        newest = Member(other, given)
        found.append(newest)
        carried[other] = given
        waiting.remove(other)
        for choice in _choices(tables, newest, waiting, target):
            heapq.heappush(heap, choice)
    return found


def _choices(
    tables: TripleTables, newest: Member, waiting: set[int], target: int | None
) -> Iterator[tuple[float, int, tuple[int, ...]]]:
    """Yield candidates for the next variable of a tree: minus the gain, the variable, parents."""
    variable, parents = newest
    alone = [(variable,)] if target in (None, variable) else []
    second = parents if target is None else set(parents) & {target}
    for other in waiting:
        least = 0.0 if target is None else tables.gain(other, (target,))
        for given in (*alone, *((variable, one) for one in second)):
            yield least - tables.gain(other, given), other, given


def tree_leaf(
    tables: TripleTables, members: Sequence[Member], columns: Sequence[int]
) -> ChowLiuTree:
    """Return a partial 2-tree as a tree with hidden variables, over ascending columns.

    A variable with children that have two parents has a hidden one, which determines it: its state
    and the group of the second parent.
    """
    d, groups = tables.num_variables, tables.joints.groups
    second = {one.parents[0]: one.parents[1] for one in members if len(one.parents) == 2}
    hidden = {variable: d + place for place, variable in enumerate(second)}
    parents = [-1] * (d + len(hidden))
    rows: list[FloatArray] = [np.zeros((0, 0))] * len(parents)
    for variable, given in members:
        table, above = np.atleast_2d(tables.estimate(variable, given).table), -1
        if given:
            above = given[0]
        if len(given) == 2:
            above = hidden[given[0]]
            table = table[groups[given[0]]].reshape(-1, table.shape[-1])
        if variable not in hidden:
            parents[variable], rows[variable] = above, table
            continue
        # Of the row of each parent's state: the group of the carried variable.
        width = tables.joints.counts[second[variable]]
        states = tables.joints.sizes[given[0]]
        carried_group = groups[given[0]]
        if len(given) == 2:
            carried = tables.joints.counts[given[1]]
            carried_group = np.repeat(carried_group, carried)
            if second[variable] == given[1]:
                carried_group = np.tile(np.arange(carried), states)
        size = table.shape[-1]
        both = table[:, :, None] * np.eye(width)[carried_group][:, None]
        place = hidden[variable]
        parents[place], rows[place] = above, both.reshape(len(table), -1)
        parents[variable], rows[variable] = place, np.repeat(np.eye(size), width, axis=0)
    return ChowLiuTree(tuple(columns), tuple(parents), tuple(rows), len(hidden))


def roots(num_variables: int) -> list[int]:
    """Return the variables from which trees are grown, spread over all."""
    few = min(num_variables, MOST_TREES)
    return [int(one) for one in np.arange(few) * num_variables // few]


def _summed(array: FloatArray, groups: IntArray, axis: int) -> FloatArray:
    """Return sums over the entries of each group along an axis; groups ascend from 0."""
    first = np.searchsorted(groups, np.arange(int(groups[-1]) + 1))
    return np.asarray(np.add.reduceat(array, first, axis=axis))


# -- the columns that parties multiply -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StateMarks:
    """The C L columns that are multiplied: for each of C classes L marks of states and of pairs.

    Parameters
    ----------
    plan : TrainingPlan
    joints : Joints
        Of the pairs.
    """

    plan: TrainingPlan
    joints: Joints

    @property
    def owners(self) -> IntArray:
        """The variable of each mark, shape (C L,): all of a class, then those of the next.

        A mark of a pair has the holders of its first variable, which are those of its second.
        """
        columns = np.array(self.plan.columns, dtype=np.int64)
        firsts = columns[self.joints.first_of_pairs]
        variables = np.append(np.repeat(columns, self.plan.sizes), firsts)
        return np.tile(variables, self.plan.num_classes)

    @property
    def wanted(self) -> BoolArray:
        """Which products are needed, (C L, C L): of a class, not pairs with pairs."""
        classes = self.plan.num_classes
        pairs = np.arange(len(self.owners) // classes) >= sum(self.plan.sizes)
        return np.kron(np.eye(classes, dtype=np.bool_), ~(pairs[:, None] & pairs))

    def values(self, rows: FloatArray, patterns: IntArray | None = None) -> FloatArray:
        """Return 1 for the state of each variable within the class of each row, else 0.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, number of variables)
            As ``Domain.encode`` makes them; a missing value has no mark.
        patterns : ndarray of int64, shape (n,), optional
            The pattern of each row, see `TrainingPlan.indicators`.

        Returns
        -------
        ndarray of float64, shape (n, C L)
            Of L marks of a class the first are those of single states, the others those of pairs.
        """
        plan, joints = self.plan, self.joints
        codes = encode(rows[:, plan.columns], plan.sizes)
        states = StateLayout(plan.sizes, complete=False).design(codes)
        marks = np.hstack([states[:, 1:], joints.layout.design(joints.codes(codes))[:, 1:]])
        within = plan.indicators(plan.classes_of(rows), patterns)
        return np.asarray((within[:, :, None] * marks[:, None]).reshape(len(rows), -1))

    def num_left_out(self, products: FloatArray, known: IntArray) -> int:
        """Return how many rows have no marks, of the variable for which these are most.

        Parameters
        ----------
        products : ndarray of float, shape (C L, C L)
            Of the marks.
        known : ndarray of int64, shape (C L,)
            How many rows the holders of each mark's variable have.
        """
        plan = self.plan
        counted = np.diagonal(products).reshape(plan.num_classes, -1)[:, : sum(plan.sizes)]
        first = StateLayout(plan.sizes, complete=False).first
        return int((known[first] - np.add.reduceat(counted.sum(axis=0), first)).max())

    def trained(self, domain: Domain, products: FloatArray, target: int | None = None) -> Circuit:
        """Return the circuit of counts of pairs and triples.

        Parameters
        ----------
        domain : Domain
        products : ndarray of float, shape (C L, C L)
            Of the marks. Each pair of variables may be counted in other rows.
        target : int, optional
            The variable that the circuit is to predict; not that of the plan. Default: the circuit
            is a density.

        Raises
        ------
        DataError
            If no class has rows.
        """
        plan = self.plan
        layout = StateLayout(plan.sizes, complete=False)
        length = len(products) // plan.num_classes
        counts = np.einsum("cicj->cij", products.reshape((plan.num_classes, length) * 2))
        states = np.diagonal(counts, axis1=1, axis2=2)[:, : layout.total]
        rows = np.add.reduceat(states, layout.first, axis=1).max(axis=1)
        if not rows.any():
            raise DataError(f"no class has {plan.min_rows} rows: nothing to learn")
        variables = [domain.variables[j] for j in plan.columns]
        ordered = np.array([one.edges is not None and not one.missing_state for one in variables])
        place = None if target is None else plan.columns.index(target)
        nodes = class_nodes(self.joints, counts, ordered, plan.columns, place)
        return class_mixture(domain, plan, rows, nodes)
