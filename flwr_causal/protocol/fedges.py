"""The exchanges of FedGES (Torrijos, Gamez & Puerta 2024), in its three modes.

Variables are numbered in the order of their names, the same at every party.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import DIFFERENT, POOLED, When
from flwr_causal.core.discrete import contingency_tables
from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.cuts import CUTS, sizes_of_cuts
from flwr_causal.protocol.options import KnowledgePartyOptions
from flwr_causal.protocol.products.plan import PlanColumns
from flwr_causal.protocol.products.row_ids import ALIGN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray, IntArray
    from flwr_causal.core.discrete.joint_states import Parts
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup


#: The options of mode "fusion", which is the mode of ``mode="auto"`` if one of them is given.
OF_FUSION = ("fusion", "start", "max_edges", "max_fused_edges", "keep")

# Which runs have which mode, ...
_CHOOSES = When(mode="auto")
_GIVES_NONE = When(**dict.fromkeys(OF_FUSION))
FUSES = (When(mode="fusion") | _CHOOSES & ~_GIVES_NONE).called("mode='fusion'")
EXACT = When(mode="exact")
SCORES_EDGES = (When(mode="scores") | _CHOOSES & _GIVES_NONE).called("mode='scores'")
# ... choose among graphs round by round, ...
CONTINUES = When(mode="scores", start="driven")
_FIXED = (When(start=("fuse", "overwrite")) | When(start=None, keep="last")).called("a fixed start")
DRIVES = CONTINUES | (FUSES & ~_FIXED).called("mode='fusion' with start='driven'")
# ... and ask for contingency tables.
HAS_TABLES = (When(parameters=True) | When(parameters=None) & ~FUSES).called("parameters=True")
REFINES = SCORES_EDGES & HAS_TABLES & ~When(score="bdeu")
_HIDDEN = When(hidden_causes=True)
_COUNTS = ~DIFFERENT & (EXACT | REFINES | SCORES_EDGES & _HIDDEN)
FITS = HAS_TABLES & (~_HIDDEN | When(missing_values="em") | REFINES & When(score="auto"))


def columns_of_marks(
    parts: Parts, names: Sequence[str], cardinalities: IntArray, cuts: Mapping[str, FloatArray]
) -> PlanColumns:
    """Return the columns of marks; masks are bound to variables, states and cut points.

    Parameters
    ----------
    parts : Parts
    names : sequence of str
        The variables, sorted.
    cardinalities : ndarray of int64, shape (d,)
    cuts : mapping of str to ndarray
        The cut points of the columns that are discretised.
    """
    members = [own.tolist() for own in parts.sets.lists()]
    points = {name: own.tolist() for name, own in sorted(cuts.items())}
    meaning = json.dumps([list(names), cardinalities.tolist(), members, points])
    return PlanColumns(meaning, parts.wanted(cardinalities))


def _other_rows(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if contingency tables do not count the party's rows, else ""."""
    sizes, sent = _sizes(known), known.sent
    cardinalities = np.array([sizes[name] for name in sorted(sizes)], dtype=np.int64)
    sets = contingency_tables.Sets(sent["sizes"], sent["members"])
    counts = contingency_tables.ContingencyCounts(
        *(arrays[name] for name in contingency_tables.ContingencyCounts._fields)
    )
    fewest = max(known.setup.small.withheld, _lacks_rows(known))
    return contingency_tables.contradiction(counts, sets, cardinalities, known.sizes["n"], fewest)


def _other_total(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if sums of contingency tables do not count all rows, else ""."""
    sizes, sent = _sizes(known), known.sent
    cardinalities = np.array([sizes[name] for name in sorted(sizes)], dtype=np.int64)
    sets = contingency_tables.Sets(sent["sizes"], sent["members"])
    counts = contingency_tables.ContingencyCounts.of_whole(arrays["counts"], sets, cardinalities)
    rows, fewest = known.sizes["n"], _lacks_rows(known)
    return contingency_tables.contradiction(counts, sets, cardinalities, rows, fewest)


def _lacks_rows(known: ReplyContext) -> bool:
    """Return whether tables may lack rows: those in which a column is missing."""
    return known.setup.handling.missing_values == "em" and "probabilities" not in known.sent


def _impossible_gains(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if gains in log-likelihood exceed what the rows can hold, else ""."""
    # A gain is n times a mutual information, which is at most the logarithm of a number of states.
    most = known.sizes["n"] * np.log(max(_sizes(known).values(), default=1))
    for name in ("gains", "means"):
        largest = float(arrays[name].max(initial=0.0))
        if largest > most * 1.001 + 0.01:
            return (
                f"'{name}' has the value {largest:.6g}, but {known.sizes['n']} rows of these "
                f"columns cannot gain more than {most:.6g}"
            )
    return ""


def _sizes(known: ReplyContext) -> dict[str, int]:
    """Return the number of states of each column."""
    setup, sent = known.setup, known.sent
    sizes = {name: len(states) for name, states in zip(setup.names, setup.states, strict=True)}
    if "num-cuts" in sent:
        sizes |= dict(zip(setup.continuous, sent["num-cuts"].astype(int) + 1, strict=True))
    return sizes


def _most_gain(setup: Setup) -> float:
    """Return the upper bound of a gain in log-likelihood: a mutual information for each row."""
    states = max(setup.handling.discretize, 2, *map(len, setup.states))
    return setup.num_rows * float(np.log(states))


def _most_score(setup: Setup) -> float:
    """Return the upper bound of a difference of two BDeu scores.

    The score of a family is the logarithm of a product over rows, of a + count over the sum of
    these. A share of the prior is 1e-9 of 2^62 at least, and a count 2^53 at most.
    """
    return setup.num_rows * float(np.log(1e9 * 2.0**115))


_EDGES = ("*", 2)


def _graphs(meaning: str, shape: tuple[str, int] = _EDGES) -> tuple[Sent, Sent]:
    """Return the declarations by which several graphs are sent, one after the other."""
    return (
        Sent("edges", meaning, shape, values="dag", below="d", parts="lengths"),
        Sent("lengths", "number of edges of each graph", ("graphs",), values="index"),
    )


def _lists(
    lengths: str,
    of_each: str,
    many: str,
    entries: str,
    meaning: str,
    size: str = "*",
    most: str = "set sizes",
) -> tuple[Sent, Sent]:
    """Return the declarations by which lists of variables are sent: their lengths, and entries."""
    return (
        Sent(lengths, of_each, (many,), values="index", below=most),
        Sent(entries, meaning, (size,), values="index", below="d", parts=lengths),
    )


_CUT_POINTS = (
    Sent(
        "cuts",
        "agreed cut points, column after column",
        ("*",),
        optional=True,
        exact=True,
        parts="num-cuts",
        most=1,
    ),
    Sent(
        "num-cuts",
        "number of cut points of each column",
        ("cut",),
        optional=True,
        values="index",
        below="intervals",
        most=1,
    ),
)
_NETWORK = (
    Sent(
        "network",
        "edges of the Bayesian network by which the party completes its rows with missing cells. "
        "Before there is one, the rows count in which all columns of a set are seen",
        _EDGES,
        optional=True,
        values="dag",
        below="d",
    ),
    Sent(
        "probabilities",
        "the tables of this network, variable after variable",
        ("*",),
        optional=True,
        exact=True,
        values="probability",
    ),
)
_STARTS = (
    Sent("received", "edges of the fused graph", _EDGES, values="dag", below="d"),
    Sent("own", "edges of the party's last graph", _EDGES, values="dag", below="d"),
)
_SETS = _lists(
    *("sizes", "number of variables of each set", "sets"),
    *("members", "the variables of the sets, set after set"),
)
_TABLES = (
    Disclosure(
        "dense", "counts of all cells of the small contingency tables", ("*",), "count", "sum"
    ),
    Disclosure("cells", "numbers of the filled cells of the large tables", ("filled",), "index"),
    Disclosure("values", "counts of these cells", ("filled",), "count"),
    Disclosure("lengths", "number of filled cells of each large table", ("*",), "index"),
    Disclosure(
        "small",
        "number of cells with fewer than minimum_count rows; where counts are withheld, of these",
        (),
        "index",
    ),
)
_VOTES = Disclosure(
    "votes", "whether the party's own score agrees with each edge", ("edges",), "mark", "sum"
)
_NUM_CELLS = Sent("num_cells", "number of cells of all tables together")
_CELLS = Disclosure(
    "counts", "counts of all cells of the contingency tables", ("num_cells",), "count", "sum"
)
GRAPH = Exchange(
    "graph",
    "one round of Algorithm 1: each party searches from a graph, the server fuses the results",
    sends=(
        *_STARTS,
        Sent(
            "start",
            "'overwrite': the search starts from the fused graph; 'fuse': from the fused graph "
            "fused with the party's last one",
        ),
        *_CUT_POINTS,
    ),
    returns=(
        Disclosure("edges", "edges of the DAG that the party found", _EDGES, "dag", below="d"),
    ),
    timing="in each round",
    when=FUSES & _FIXED & When(keep="last"),
)

JUDGED_GRAPH = Exchange(
    "judged graph",
    "one round of Algorithm 1, with the parties' scores of the graph that they receive",
    sends=GRAPH.sends,
    returns=(
        *GRAPH.returns,
        Disclosure("score", "the party's score of the received graph", ()),
    ),
    timing="in each round",
    when=FUSES & _FIXED & ~When(keep="last"),
)

GRAPHS = Exchange(
    "graphs",
    "each party searches from the fused graph, and from the fused graph fused with its last one",
    sends=(*_STARTS, *_CUT_POINTS),
    returns=(
        Disclosure(
            "overwritten",
            "edges of the DAG found from the fused graph",
            _EDGES,
            "dag",
            below="d",
        ),
        Disclosure(
            "fused",
            "edges of the DAG found from the fused graph fused with the party's last one",
            _EDGES,
            "dag",
            below="d",
        ),
    ),
    timing="in each round",
    when=DRIVES,
)

JUDGE = Exchange(
    "judge",
    "the parties' scores of proposed graphs, by which the best is chosen",
    sends=(
        *_graphs("edges of the proposed graphs, graph after graph"),
        *_CUT_POINTS,
    ),
    returns=(Disclosure("scores", "the party's score of each graph", ("graphs",)),),
    timing="after each round, or in the end",
    when=DRIVES | JUDGED_GRAPH.when,
)

_QUESTIONS = (
    Sent("owners", "y of each family (y, S)", ("families",), values="index", below="d"),
    *_lists(
        *("sizes", "size of S", "families"),
        *("members", "the variables of S, family after family"),
        most="parents",
    ),
    *_lists(
        *("num_others", "number of requested gains of each family", "families"),
        *("others", "x of each requested gain", "gains"),
        most="",
    ),
    *_CUT_POINTS,
    *_NETWORK,
)

SCORES = Exchange(
    "scores",
    "gains of the parties' own scores, on whose sums the server searches",
    sends=_QUESTIONS,
    returns=(
        Disclosure(
            "gains",
            "s(y | S + x) - s(y | S), by the party's own score. The gains of the first exchange "
            "are the mutual information of all pairs of columns, up to a known constant",
            ("gains",),
            combine="sum",
            bound=_most_score,
        ),
    ),
    timing="in each exchange",
    when=SCORES_EDGES & When(score="bdeu"),
    same_parties=True,
)

LIKELIHOODS = Exchange(
    "likelihoods",
    "gains of the log-likelihood, from whose sums the server subtracts one penalty",
    sends=_QUESTIONS,
    returns=(
        Disclosure(
            "gains",
            "by how much x as a further parent raises the log-likelihood of y: the party's number "
            "of rows times the mutual information of x and y given S",
            ("gains",),
            "non-negative",
            "sum",
            bound=_most_gain,
        ),
        Disclosure(
            "means",
            "the mean of that gain over all tables with the same counts of (S, x) and of (S, y), "
            "if x and y are independent given S",
            ("gains",),
            "non-negative",
            "sum",
            bound=_most_gain,
        ),
    ),
    timing="in each exchange",
    when=SCORES_EDGES & ~When(score="bdeu"),
    same_parties=True,
    contradiction=_impossible_gains,
)

COUNTS = Exchange(
    "counts",
    "contingency tables, on whose sums the server searches as on the pooled rows. In mode='scores' "
    "only tables of variables that the graph found so far joins; with hidden_causes=True tables "
    "of all pairs of variables, too, alone and with a few others, by which independence is tested",
    sends=(*_SETS, *_CUT_POINTS, *_NETWORK),
    returns=_TABLES,
    timing="in each exchange; in mode='scores' after the gains; for hidden causes after the search",
    when=_COUNTS & ~POOLED,
    same_parties=True,
    contradiction=_other_rows,
)

POOLED_COUNTS = Exchange(
    "pooled counts",
    "the exchange 'counts' with secure_aggregation: all cells of the tables, empty ones too",
    sends=(*_SETS, _NUM_CELLS, *_CUT_POINTS, *_NETWORK),
    returns=(_CELLS,),
    timing="in place of 'counts'",
    when=_COUNTS & POOLED,
    same_parties=True,
    contradiction=_other_total,
)

FIT = Exchange(
    "fit",
    "the tables of probabilities of the graphs that were found, by which the server chooses one, "
    "and which parties agree with their edges",
    sends=(
        *_SETS,
        *_graphs("edges of the graphs, graph after graph", ("edges", 2)),
        *_CUT_POINTS,
        *_NETWORK,
    ),
    returns=(
        *_TABLES,
        _VOTES,
    ),
    timing="in the last exchange; also before the rounds of start='driven' in mode='scores', and "
    "after the first search of missing_values='em'",
    most=3,
    when=FITS & ~DIFFERENT & ~POOLED,
    contradiction=_other_rows,
)

POOLED_FIT = replace(
    FIT,
    name="pooled fit",
    meaning="the exchange 'fit' with secure_aggregation: all cells of the tables, and votes",
    sends=(*FIT.sends, _NUM_CELLS),
    returns=(_CELLS, _VOTES),
    timing="in place of 'fit'",
    when=FITS & ~DIFFERENT & POOLED,
    contradiction=_other_total,
)


@dataclass(frozen=True, kw_only=True)
class FedGESPartyOptions(KnowledgePartyOptions):
    """How the parties search and score, see the strategy's options of the same names."""

    score: str
    equivalent_sample_size: float
    max_edges: int
    max_parents: int | None
    turn: bool


def dimensions(setup: Setup) -> dict[str, int]:
    """Return the numbers that sizes of sets of variables are below, and those of cut points.

    A table of a family has a variable and its parents; one of a test of hidden causes two variables
    and the parents of one of them, or two others.
    """
    d, most = len(setup.names), setup.options.max_parents
    parents = d - 1 if most is None else min(most, d - 1)
    tested = max(parents + 2, 4) if setup.run.get("hidden_causes") else 0
    return {
        "set sizes": 1 + min(d, max(parents + 1, tested)),
        "parents": max(parents, 1),
        **sizes_of_cuts(setup),
    }


def _completed(_: Any, handling: Handling) -> Handling:
    """Return the handling, by which numbers of few values are states."""
    return replace(handling, number_states=0)


CONTRACT = Contract(
    "fedges",
    (
        replace(CUTS, most=MAX_EXCHANGES, when=~When(discretize=0)),
        GRAPH,
        JUDGED_GRAPH,
        GRAPHS,
        JUDGE,
        SCORES,
        LIKELIHOODS,
        COUNTS,
        POOLED_COUNTS,
        FIT,
        POOLED_FIT,
        ALIGN,
        MASKED_TABLES,
        PRODUCTS,
    ),
    dimensions,
    reports=("sums", "relations", "states", "ids"),
    options=FedGESPartyOptions,
    completes=_completed,
)
