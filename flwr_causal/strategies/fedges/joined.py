"""The search of FedGES over parties that hold different columns of the same rows.

Rows are matched by ids. Parties mark the states of single columns and of pairs of columns that they
hold, and compute the sums of products of marks together, in three exchanges: the contingency tables
of all pairs of columns, or of all triples, of the joined rows. All families with one parent, or
with two, follow from them, and the search needs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete.contingency_tables import sets_of
from flwr_causal.core.discrete.joint_states import Parts, counts_of, split
from flwr_causal.core.discrete.small_counts import are_small
from flwr_causal.core.parts import words
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.protocol.fedges import columns_of_marks
from flwr_causal.protocol.products.plan import ProductPlan
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Choice, Note
from flwr_causal.sources.joined import MatchedRows, matched_rows, summed_products
from flwr_causal.strategies.columns import JoinedColumns
from flwr_causal.strategies.fedges.problem import Fitted
from flwr_causal.strategies.fedges.searches import GainsFromTables, family_sets, search_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.discrete.joint_states import Members
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.sources.joined import Holders, JoinedMoments
    from flwr_causal.strategies.fedges.problem import Found, Problem

#: The most columns of marks: parties send the square of their number in words.
MOST_MARKS = 4096


class Marked(NamedTuple):
    """What is marked and multiplied, of the rows that have all columns.

    Parameters
    ----------
    problem : Problem
        Its number of rows is that of these rows.
    parts : Parts
        Sets of columns whose states are marked, and the pairs of them that are multiplied.
    holders : Holders
        Which party holds which marks.
    matched : MatchedRows
        The rows.
    total : int
        Different rows of all parties, those too that lack columns.
    """

    problem: Problem
    parts: Parts
    holders: Holders
    matched: MatchedRows
    total: int


def check_required(problem: Problem) -> None:
    """Raise a ConfigError if required edges ask for tables of more columns than are counted."""
    if problem.edge_limits is None:
        return
    names, most, required = problem.names, _most_parents(problem), problem.edge_limits.required
    for name, causes in zip(names, required.T, strict=True):
        if causes.sum() > most:
            listed = ", ".join(repr(names[k]) for k in np.flatnonzero(causes).tolist())
            raise ConfigError(
                f"the background knowledge requires {causes.sum()} causes of {name!r} "
                f"({listed}), and over different columns there are at most max_parents={most}: "
                "require fewer edges"
            )


@dataclass(frozen=True, kw_only=True)
class JoinedCounts(JoinedColumns):
    """Counts of states of columns at different parties.

    Parameters
    ----------
    score : str
        Of the search.
    fits : bool
        Whether probabilities are computed.
    """

    gives = JoinedColumns.gives - words("iterations", "pairs", "small counts")

    score: str
    fits: bool

    def run(self, problem: Problem, holders: Holders, replicate: int) -> Steps:
        """Search on the tables of the joined rows.

        Parameters
        ----------
        problem : Problem
        holders : Holders
            Which party holds which variable, by name.
        replicate : int
            0, or the number of a replicate, whose rows are drawn from the joined rows.
        """
        joined = yield from joined_counts(problem, holders)
        joined = replace(joined, number=replicate)
        found = joined.search(self.score)
        fitted = joined.fitted(found) if self.fits and not replicate else None
        yield Note({"num_edges": int(found.dag.sum()), **joined.info})
        result = problem.result(found, fitted)
        network = result.model
        if network is not None:
            network = replace(network, further_counts=joined.further_counts(network.names))
        return replace(
            result,
            model=network,
            num_rows=joined.total,
            warnings=tuple(joined.warnings),
            reason=found.reason,
        )


def joined_counts(problem: Problem, holders: Holders) -> Generator[Step, Any, Joined]:
    """Return the tables of the joined rows, in three exchanges that replicates share.

    Parameters
    ----------
    problem : Problem
    holders : Holders
        Which party holds which variable, by name.

    Raises
    ------
    DataError
        If few rows have all columns, or a table cannot be had from two parties.
    FederationError
        If a party has not replied, or masks do not cancel.
    """
    replies = yield Ask(ALIGN, shared=True)
    marked: Marked = yield Choice(partial(_with_marks, problem, holders, replies))
    further = {**marked.parts.sets._asdict(), "pairs": marked.parts.pairs}
    sums = yield from summed_products(marked.holders, marked.matched, further)
    return Joined(marked.problem, marked.parts, sums, marked.total)


def _with_marks(problem: Problem, holders: Holders, replies: Replies) -> Marked:
    """Match the rows, and choose the states to mark in rows that have all columns."""
    matched = matched_rows(holders, replies)
    plan, names, variables = matched.plan, problem.names, holders.presence
    complete = np.flatnonzero(plan.known.all(axis=(1, 2))).tolist()
    joined, least = plan.numbers(complete), max(holders.least, 1)
    if len(joined) < least:
        raise DataError(
            f"all columns are known of {len(joined)} rows, and {least} are the fewest "
            "(minimum_count): leave out a party that has few of the rows, or columns"
        )
    rows = {
        party: own[np.isin(plan.numbers(plan.patterns_of(place)), joined)]
        for place, (party, own) in enumerate(matched.rows.items())
    }
    patterns, cards = plan.patterns[complete], problem.cardinalities
    parts = _parts(problem, _Held(patterns, variables, _most_parents(problem)))
    members, sizes = parts.sets.lists(), [len(own) for own in parts.columns(cards)]
    held = np.array([variables[:, own].all(axis=1) for own in members]).T
    presence = np.repeat(held, sizes, axis=1)
    columns = columns_of_marks(parts, names, cards, problem.cuts)
    labels = [" and ".join(names[k] for k in own) for own in members]
    return Marked(
        problem=replace(problem, num_rows=len(joined)),
        parts=parts,
        holders=replace(
            holders,
            names=tuple(np.repeat(labels, sizes).tolist()),
            presence=presence,
            columns=columns,
        ),
        matched=MatchedRows(ProductPlan(presence, patterns, plan.counts[complete], columns), rows),
        total=plan.num_rows,
    )


@dataclass(frozen=True, eq=False)
class Joined:
    """The tables of the joined rows, and what follows from them.

    Parameters
    ----------
    problem : Problem
    parts : Parts
        What was multiplied.
    sums : JoinedMoments
        The sums of products, of all joined rows and of each replicate.
    total : int
        Different rows of all parties, those too that lack columns.
    number : int, default 0
        Of a replicate; 0: all rows.
    """

    problem: Problem
    parts: Parts
    sums: JoinedMoments
    total: int
    number: int = 0

    @cached_property
    def tables(self) -> dict[Members, IntArray]:
        """By ascending members, the contingency tables of all pairs or triples of variables."""
        members = [tuple(own.tolist()) for own in self.parts.members()]
        products = self.sums.products[self.number]
        return dict(
            zip(members, self.parts.tables(products, self.problem.cardinalities), strict=True)
        )

    def search(self, score: str) -> Found:
        """Return the graph of the tables, by a score."""
        problem, d = self.problem, len(self.problem.names)
        # Gains of a first parent need tables of pairs, which those of triples contain.
        lists = [own for size in range(2, 1 + self._width) for own in combinations(range(d), size)]
        sets = sets_of(lists)
        gains = GainsFromTables(problem, (score,)).by_score[score]
        tables = [self.table(own) for own in lists]
        gains.learn_counts(sets, counts_of(tables, sets, problem.cardinalities))
        return search_of(problem, gains, score)

    def fitted(self, found: Found) -> Fitted:
        """Return the tables of a graph's families."""
        families = {own: self.table(own) for own in family_sets(found.dag)}
        return Fitted(found, families, None)

    def further_counts(self, names: Sequence[str]) -> dict[Members, IntArray]:
        """Return the tables, whose variables need not be in the order of their names."""
        place = [names.index(name) for name in self.problem.names]
        found = {}
        for members, table in self.tables.items():
            axes = np.argsort([place[k] for k in members])
            found[tuple(place[members[k]] for k in axes)] = table.transpose(axes)
        return found

    def table(self, members: Members) -> IntArray:
        """Return the contingency table of a few variables, ascending."""
        others = [k for k in range(1 + self._width) if k not in members]
        over = sorted((*members, *others[: self._width - len(members)]))
        summed = tuple(axis for axis, one in enumerate(over) if one not in members)
        return np.asarray(self.tables[tuple(over)].sum(axis=summed))

    @property
    def _width(self) -> int:
        return max(map(len, self.tables))

    @property
    def info(self) -> dict[str, int]:
        """How many different rows there are, and how many of them have all columns."""
        return {"rows": self.total, "complete_rows": self.problem.num_rows}

    @property
    def small(self) -> int:
        """How many cells count some rows, but fewer than ``minimum_count``."""
        least = self.sums.holders.least
        return sum(int(are_small(table, least).sum()) for table in self.tables.values())

    @property
    def warnings(self) -> list[str]:
        """What follows from rows that lack columns, and from counts of few rows."""
        found = list(self.sums.differing)
        if self.problem.num_rows < self.total:
            found.append(
                f"Only {self.problem.num_rows} of {self.total} rows have all columns; the others "
                "are not used"
            )
        if self.small:
            found.append(
                f"The server has learned {self.small} counts of fewer joined rows than "
                "minimum_count. Counts of few rows disclose values of single rows: join rare "
                "states" + (", or take max_parents=1" if self._width > 2 else "")
            )
        return found


def _most_parents(problem: Problem) -> int:
    most = problem.max_parents
    assert most is not None  # parties with different columns must say it
    return most


@dataclass(frozen=True, eq=False)
class _Held:
    """Whether parts of a set are small enough, and each held by one party in every joined row."""

    patterns: BoolArray
    presence: BoolArray
    most: int

    def __call__(self, *parts: Members) -> bool:
        if max(map(len, parts)) > self.most:
            return False
        holders = [self.patterns & self.presence[:, list(part)].all(axis=1) for part in parts]
        return all(bool(own.any(axis=1).all()) for own in holders)


def _parts(problem: Problem, held: _Held) -> Parts:
    """Return the parts of all sets of a variable and as many parents as there may be.

    Raises
    ------
    DataError
        If there are no two parts, or too many marks.
    """
    names, cards = problem.names, problem.cardinalities
    splits = []
    for members in combinations(range(len(names)), min(1 + held.most, len(names))):
        found = split(members, cards, held)
        if found is None:
            raise DataError(
                f"of the columns {', '.join(repr(names[k]) for k in members)} no party holds two "
                "in every row, and products of three columns are not computed: set max_parents=1, "
                "leave one of them out, or use 'moments' on numbers"
            )
        splits.append(found)
    parts = Parts.of(splits)
    marks = sum(len(own) for own in parts.columns(cards))
    if marks > MOST_MARKS:
        remedy = "join rare states or leave columns out"
        if held.most > 1:
            remedy = f"set max_parents=1, {remedy}"
        raise DataError(
            f"the columns have {marks} states and pairs of states, more than {MOST_MARKS}: {remedy}"
        )
    return parts
