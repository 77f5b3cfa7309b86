"""Hidden common causes of categories: ``hidden_causes=True`` of FedGES.

After the search the server asks for the tables of tests of independence, of all pairs of variables
(:mod:`flwr_causal.core.ges.counted_pag`): those given one variable at most in one exchange, those
given more, of pairs that are still open, in another one. Where tables have very many cells an
exchange is for a part of them.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.contingency_tables import num_cells, sets_of, tables_of
from flwr_causal.runtime.algorithm import Note
from flwr_causal.strategies.fedges.problem import USED_UP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.strategies.fedges.problem import Problem
    from flwr_causal.strategies.fedges.results import Found

#: Largest number of cells of the tables of one exchange, where each table has fewer.
MOST_CELLS = 2**22


def separations(problem: Problem, found: Found, most: int, replicate: int) -> Steps:
    """Ask for the tables of the tests, and return the graph of their results.

    Parameters
    ----------
    problem : Problem
    found : Found
        The graph of the score.
    most : int
        Largest number of exchanges.
    replicate : int
        0, or the number of a replicate, whose rows are drawn from the parties' rows.
    """
    tests, taken = problem.tests(found, replicate), 0
    while wanted := tests.next_level():
        for part in _parts(problem, wanted):
            if taken == most:
                return problem.pag(tests, USED_UP)
            sets = sets_of(part)
            counts, _ = yield from problem.counts.ask(sets, partial(problem.pag, tests))
            tables = tables_of(sets, counts, problem.cardinalities)
            for members, table in zip(part, tables, strict=True):
                tests.learn(members, table)
            taken += 1
            yield Note({"tables": len(part)})
    return problem.pag(tests, found.reason)


def _parts(problem: Problem, wanted: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
    """Split tables so that those of an exchange have MOST_CELLS together, or are one."""
    cells = num_cells(sets_of(wanted), problem.cardinalities)
    numbers = ((np.cumsum(cells) - 1) // MOST_CELLS).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(wanted)]
    return [wanted[i:j] for i, j in pairwise(edges)]
