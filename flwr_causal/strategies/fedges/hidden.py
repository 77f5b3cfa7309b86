"""Hidden common causes of categories: ``hidden_causes=True`` of FedGES.

After the search the server asks for the tables of tests of independence, of all pairs of variables
(:mod:`flwr_causal.core.ges.counted_pag`): those given one variable at most in one exchange, those
given more, of pairs that are still open, in another one. Where tables have very many cells an
exchange is for a part of them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.contingency_tables import num_cells, sets_of, tables_of
from flwr_causal.core.ges.counted_pag import SeparationTests
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.searches_on_sums import asked_tables, summed_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.results import Found
    from flwr_causal.strategies.fedges.searches_on_sums import Problem

#: Largest number of cells of the tables of one exchange, where each table has fewer.
MOST_CELLS = 2**22


def separation_tests(problem: Problem, found: Found, replicate: int) -> SeparationTests:
    """Return the tests of a graph that was found without hidden causes, none of them made."""
    return SeparationTests(
        problem.names,
        found.dag,
        problem.cardinalities,
        problem.num_rows,
        problem.options.known,
        drawn=replicate > 0,
    )


def separations(
    problem: Problem,
    found: Found,
    most: int,
    standing: Callable[[SeparationTests], Result],
    replicate: int,
) -> Generator[Step, Any, tuple[SeparationTests, bool]]:
    """Ask for the tables of the tests, and make them.

    Parameters
    ----------
    problem : Problem
    found : Found
        The graph of the score.
    most : int
        Largest number of exchanges.
    standing : callable
        Returns what stands if the run ends with the tests so far.
    replicate : int
        0, or the number of a replicate, whose rows are drawn from the parties' rows.

    Returns
    -------
    tests : SeparationTests
    ended : bool
        Whether all tests were made before the exchanges were used up.
    """
    tests, taken = separation_tests(problem, found, replicate), 0
    while wanted := tests.next_level():
        for part in _parts(problem, wanted):
            if taken == most:
                return tests, False
            sets = sets_of(part)
            exchange, values = asked_tables(problem, sets)
            replies = yield Ask(exchange, values, so_far=lambda: standing(tests))
            counts = summed_counts(replies, sets, problem.cardinalities)
            tables = tables_of(sets, counts, problem.cardinalities)
            for members, table in zip(part, tables, strict=True):
                tests.learn(members, table)
            taken += 1
            yield Note({"tables": len(part)})
    return tests, True


def _parts(problem: Problem, wanted: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
    """Split tables so that those of an exchange have MOST_CELLS together, or are one."""
    cells = num_cells(sets_of(wanted), problem.cardinalities)
    numbers = ((np.cumsum(cells) - 1) // MOST_CELLS).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(wanted)]
    return [wanted[i:j] for i, j in pairwise(edges)]
