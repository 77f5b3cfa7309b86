"""What the tests of FedGES share: federations of categories, and plain searches to compare with."""

from itertools import pairwise

import numpy as np
import pandas as pd
from reference_search import log_regret

from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.discrete import federated_discrete


def random_rows(cards, n, seed=0, *, weighted=False) -> DiscreteTable:
    """Rows of columns with the given numbers of states, drawn at random."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, card, n) for card in cards]
    return DiscreteTable(
        tuple(f"v{k}" for k in range(len(cards))),
        tuple(tuple(str(state) for state in range(card)) for card in cards),
        np.array(codes, dtype=np.uint8).reshape(len(cards), n),
        rng.integers(0, 4, n) if weighted else None,
    )


def make_tables(d=7, n=600, parties=3, seed=0, **options):
    """Tables of a random network, and the network."""
    return federated_discrete(d, n, parties, seed=seed, **options)


def pooled(tables) -> pd.DataFrame:
    """All rows in one table, its columns in the first party's order."""
    first = list(tables[0].columns)
    return pd.concat([table[first] for table in tables], ignore_index=True)


def uneven(table, seed):
    """The rows of one table dealt out: some parties have one row, columns go their own ways."""
    rng = np.random.default_rng(seed)
    shuffled = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    ends = [0, 1, 2, 2 + len(table) // 10, len(table) - len(table) // 4, len(table)]
    parts = [shuffled.iloc[a:b] for a, b in pairwise(ends)]
    # The first party keeps the order, since everyone's results have it.
    return [parts[2], *(part[rng.permutation(part.columns)] for part in (*parts[:2], *parts[3:]))]


def coded(tables):
    """Each party's table in the states of all, its variables by name, as the client has them."""
    together = as_discrete(pooled(tables))
    order = sorted(range(len(together.names)), key=together.names.__getitem__)
    names = [together.names[k] for k in order]
    states = [together.states[k] for k in order]
    return [as_discrete(table, names, states) for table in tables]


class SummedGains:
    """The sum of the parties' own gains, at once and without any protocol.

    Counts the exchanges that a server needs which asks for what is unknown only, and stops where
    the answer to one more would be needed. Keeps every class on the way.
    """

    def __init__(self, sources, exchanges=np.inf):
        self.sources = sources
        self.exchanges = exchanges
        self.asked = set()
        self.needed = 0
        self.path = []
        self.search = None

    def must_stop(self):
        self.path.append(self.search.marks.copy())
        return self.needed > self.exchanges

    def fill(self, families, rows, wanted):
        unknown = set()
        for row, mask in zip(rows, wanted, strict=True):
            members = frozenset(families.members[row, : families.sizes[row]].tolist())
            owner = int(families.owners[row])
            for x in np.flatnonzero(mask & np.isnan(families.gains[row])):
                unknown.add((members, frozenset((owner, int(x)))))
        self.needed += bool(unknown - self.asked)
        self.asked |= unknown
        total = self.total(families, rows, wanted)
        for k, row in enumerate(rows):
            families.gains[row, wanted[k]] = total[k, wanted[k]]

    def total(self, families, rows, wanted):
        return sum_over(self.sources, families, rows, wanted)


def sum_over(sources, families, rows, wanted):
    """The sum of what several sources fill in, by row."""
    total = 0.0
    for source in sources:
        own = families._replace(gains=np.full_like(families.gains, np.nan))
        source.fill(own, rows, wanted)
        total = total + own.gains[rows]
    return total


class PenalisedGains(SummedGains):
    """Sums of the parties' likelihoods with one penalty, that of all rows."""

    def __init__(self, parts, score, exchanges=np.inf, noise=6.0):
        super().__init__([TableGains(part) for part in parts], exchanges)
        self.noise = noise
        self.cards = parts[0].cardinalities.astype(float)
        self.score = score
        self.n = sum(part.num_rows for part in parts)

    def total(self, families, rows, wanted):
        likelihood = sum_over(
            [source.likelihoods() for source in self.sources], families, rows, wanted
        )
        means = sum_over([source.means() for source in self.sources], families, rows, wanted)
        excess = means - means / len(self.sources)
        gains = np.full_like(likelihood, np.nan)
        for k, row in enumerate(rows):
            q = self.cards[families.members[row, : families.sizes[row]]].prod()
            y = self.cards[families.owners[row]]
            for x in np.flatnonzero(wanted[k]):
                penalty = self.penalty(q, self.cards[x], y)
                noise = self.noise * np.sqrt(excess[k, x])
                gains[k, x] = likelihood[k, x] - excess[k, x] - max(penalty, noise)
        return gains

    def penalty(self, q, x, y):
        if self.score == "bic":
            return 0.5 * np.log(self.n) * q * (x - 1) * (y - 1)
        more, less = log_regret(self.n, q * x * y), log_regret(self.n, q * x)
        return more - less - log_regret(self.n, q * y) + log_regret(self.n, q)


def plain_search(
    tables,
    score="bdeu",
    size=1.0,
    *,
    sources=None,
    exchanges=np.inf,
    knowledge=None,
    max_parents=None,
    turn=False,
    noise=6.0,
):
    """The search of mode "scores", or on the sum of some sources; return its gains and itself."""
    parts = coded(tables)
    if score == "bdeu" or sources:
        sources = sources or [TableGains(part, score, size) for part in parts]
        gains = SummedGains(sources, exchanges)
    else:
        gains = PenalisedGains(parts, score, exchanges, noise)
    names = parts[0].names
    start = np.zeros((len(names),) * 2, dtype=bool)
    search = prepared_search(
        gains, names, start=start, knowledge=knowledge, max_parents=max_parents
    )
    gains.search = search
    search.run(turn=turn)
    return gains, search


class CostlyGains(TableGains):
    """Gains of one table, less the cost of an edge: half the logarithm of the number of columns."""

    def fill(self, families, rows, wanted):
        fresh = families._replace(gains=np.full_like(families.gains, np.nan))
        super().fill(fresh, rows, wanted)
        cost = 0.5 * np.log(families.gains.shape[1])
        for k, row in enumerate(rows):
            families.gains[row, wanted[k]] = fresh.gains[row, wanted[k]] - cost


def refined_search(tables, score, by) -> CausalGraph:
    """The class that mode "scores" finds by one score after the search on sums by ``score``."""
    parts = coded(tables)
    names = parts[0].names
    _, first = plain_search(tables, score, noise=5.0)
    together = np.concatenate([part.codes for part in parts], axis=1)
    whole = DiscreteTable(names, parts[0].states, together)
    pairs = first.dag | first.dag.T
    search = prepared_search(CostlyGains(whole, by), names, start=first.dag, pairs=pairs)
    search.run()
    order = tuple(tables[0].columns)
    return CausalGraph.from_array(in_order(search.marks, order), order, kind="cpdag")


def in_order(matrix, names):
    """A matrix over sorted names in the order of the given ones."""
    order = np.argsort(sorted(range(len(names)), key=names.__getitem__))
    return matrix[np.ix_(order, order)]


def scored_search(tables, score="bdeu", size=1.0, **options) -> CausalGraph:
    """The class that mode "scores" must find."""
    _, search = plain_search(tables, score, size, **options)
    names = tuple(tables[0].columns)
    return CausalGraph.from_array(in_order(search.marks, names), names, kind="cpdag")


def pooled_search(tables, score="bic", size=1.0, **options) -> CausalGraph:
    """The class that a search on the pooled rows must find."""
    return ges(pooled(tables), score=score, equivalent_sample_size=size, **options)


def alike(one, other) -> bool:
    """Whether two graphs have the same names in the same order, and the same marks."""
    return (
        one.names == other.names
        and one.kind == other.kind
        and np.array_equal(one.adjacency, other.adjacency)
    )


def same_class(one, other) -> bool:
    """Whether two graphs have the same marks, whatever the order of their names."""
    order = [other.names.index(name) for name in one.names]
    return np.array_equal(one.adjacency, other.adjacency[np.ix_(order, order)])
