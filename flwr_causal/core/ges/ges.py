"""Greedy equivalence search (Chickering 2002) on the rows of one table.

>>> from flwr_causal.core.ges.ges import ges
>>> graph = ges(frame, score="bic")  # doctest: +SKIP
>>> graph.to_dag().edges()  # doctest: +SKIP

When not to use it: GES assumes that no common cause is missing from the table, and looks for the
best *equivalence class*: edges that the data cannot direct stay undirected. With few rows for many
states BDeu with a large equivalent sample size adds edges that are not there; BIC and qNML do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.cpdag import member_of
from flwr_causal.core.ges.greedy_search import GainSource, check_limit, prepared_search
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.determined import regular
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.words import by_name
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.knowledge import Knowledge

Score = Literal["bdeu", "bic", "qnml", "gaussian-bic"]


def ges(
    table: Any,
    score: Score = "bdeu",
    equivalent_sample_size: float = 1.0,
    start: CausalGraph | ArrayLike | None = None,
    max_edges: int | None = None,
    *,
    max_parents: int | None = None,
    knowledge: Knowledge | None = None,
    turn: bool = False,
) -> CausalGraph:
    """Find the equivalence class that a greedy search reaches.

    Parameters
    ----------
    table : DiscreteTable, SampleMoments, array of shape (n, d), or anything with ``.columns``
        Categories (texts, whole numbers, booleans) for the discrete scores; numbers, or their
        moments, for "gaussian-bic". Rows may repeat; a ``DiscreteTable`` may weigh them.
    score : {"bdeu", "bic", "qnml", "gaussian-bic"}, default "bdeu"
        BDeu is the paper's (Torrijos et al. 2024). See :mod:`flwr_causal.core.discrete.scores`, and
        :mod:`flwr_causal.core.ges.moment_gains` for "gaussian-bic".
    equivalent_sample_size : float, default 1.0
        Weight of the BDeu prior in rows; 1 in the authors' program.
    start : CausalGraph or array of shape (d, d), optional
        A DAG or a CPDAG to start from. Default: no edges but required ones.
    max_edges : int, optional
        Largest number of edges that the forward phase inserts. Default: no limit.
    max_parents : int, optional
        Largest number of parents of a variable. Default: no limit.
    knowledge : Knowledge, optional
        Required and forbidden edges, tiers. The result then is the class with the edges directed
        that knowledge directs.
    turn : bool, default False
        Also turn edges (Hauser & Buhlmann 2012), and repeat all phases until none improves the
        score; the paper's search has one forward and one backward phase.

    Returns
    -------
    CausalGraph
        Of kind "cpdag". It does not depend on the order of the columns: ties between equal gains
        are broken by the variables' names.

    Raises
    ------
    DataError
        If the table cannot be used, or ``start`` has a cycle or contradicts the knowledge.
    ConfigError
        For an impossible option.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import ges
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.normal(size=500)])
    >>> ges(rows, score="gaussian-bic").kind
    'cpdag'
    """
    if score == "gaussian-bic":
        moments = as_moments(table)
        moments.require_complete()
        names = moments.names
        moments = regular(moments, edge_masks(knowledge, names).required)
        column_of = by_name(names)
        source: GainSource = MomentGains(moments.subset(column_of))
    else:
        discrete = as_discrete(table)
        check_rows(discrete)
        names = discrete.names
        column_of = by_name(names)
        source = TableGains(discrete.reordered(column_of), score, equivalent_sample_size)
    search = prepared_search(
        source,
        [names[k] for k in column_of],
        start=start_marks(start, names)[np.ix_(column_of, column_of)],
        knowledge=knowledge,
        max_parents=max_parents,
    )
    check_limit("max_edges", max_edges)
    search.run(max_edges, turn=turn)
    place_of = np.argsort(column_of)
    return CausalGraph.from_array(search.marks[np.ix_(place_of, place_of)], names, kind="cpdag")


def start_marks(start: CausalGraph | ArrayLike | None, names: Sequence[str]) -> BoolArray:
    """Return the marks of a start graph in the order of the names, shape (d, d).

    Raises
    ------
    DataError
        If it has other variables, or cycles.
    """
    d = len(names)
    if start is None:
        return np.zeros((d, d), dtype=np.bool_)
    if not isinstance(start, CausalGraph):
        matrix = np.asarray(start) != 0
        if matrix.shape != (d, d):
            raise DataError(f"start has the shape {matrix.shape}; the table has {d} variables")
        start = CausalGraph.from_array(matrix, names)
        if (matrix & matrix.T).any():
            start = CausalGraph.from_array(matrix, names, kind="cpdag")
    if set(start.names) != set(names):
        raise DataError("start has other variables than the table: give a graph over the same ones")
    if not start.is_acyclic():
        raise DataError("the start graph has a cycle: give a DAG or a CPDAG")
    places = [start.names.index(name) for name in names]
    marks: BoolArray = start.adjacency[np.ix_(places, places)]
    if member_of(marks) is None:
        raise DataError("the start graph has no DAG: give a DAG or a CPDAG")
    return marks


def check_rows(table: DiscreteTable) -> None:
    """Raise a DataError for a table without rows, or a column of more states than rows."""
    if table.num_rows == 0:
        raise DataError("the table has no rows")
    for name, states in zip(table.names, table.states, strict=True):
        if len(states) > table.num_rows:
            raise DataError(
                f"column {name!r} has {len(states)} states but there are {table.num_rows} rows: "
                "join states, or leave the column out"
            )
