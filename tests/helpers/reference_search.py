"""Greedy equivalence search from the plain definitions, slowly, and all small graphs, for tests."""

from collections import defaultdict
from itertools import combinations, product

import networkx as nx
import numpy as np
from scipy.special import gammaln
from small_graphs import matrix

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.families import empty_families
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.cpdag import graph_of
from flwr_causal.core.ges.greedy_search import Search
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.ties import GAIN_TIE
from flwr_causal.data.synthetic.discrete import random_network

# --- all small graphs -----------------------------------------------------------------------------


def all_dags(size):
    pairs = list(combinations(range(size), 2))
    for choice in product([0, 1, 2], repeat=len(pairs)):
        edges = [(i, j) if c == 1 else (j, i) for (i, j), c in zip(pairs, choice, strict=True) if c]
        dag = matrix(size, *edges)
        if is_acyclic(dag):
            yield dag


def all_classes(size, distinguished=False):
    """The CPDAG and the members of every class.

    Members also agree on the directions of the edges between the distinguished pairs, (d, d).
    """
    groups = defaultdict(list)
    for dag in all_dags(size):
        groups[equivalence.cpdag(dag).tobytes(), (dag & distinguished).tobytes()].append(dag)
    for members in groups.values():
        yield np.logical_or.reduce(members), members


def told_apart(size, target_sets):
    """The pairs of which some target set holds exactly one, (d, d)."""
    inside = np.zeros((len(target_sets), size), dtype=bool)
    for row, targets in zip(inside, target_sets, strict=True):
        row[list(targets)] = True
    return (inside[:, :, None] != inside[:, None, :]).any(axis=0)


def random_dag(size, rng, density=0.5):
    order = rng.permutation(size)
    dag = np.zeros((size, size), dtype=bool)
    dag[np.ix_(order, order)] = np.triu(rng.random((size, size)) < density, 1)
    return dag


def members_of(marks):
    """All DAGs of a class, by trying every direction of its undirected edges."""
    free = np.argwhere(np.triu(marks & marks.T))
    for choice in product([False, True], repeat=len(free)):
        dag = equivalence.directed_part(marks)
        for (i, j), forward in zip(free, choice, strict=True):
            dag[(i, j) if forward else (j, i)] = True
        if is_acyclic(dag) and np.array_equal(equivalence.cpdag(dag), marks):
            yield dag


def random_classes(size, count, seed):
    """Random CPDAGs with their members; those with many undirected edges are left out."""
    rng = np.random.default_rng(seed)
    while count:
        marks = equivalence.cpdag(random_dag(size, rng, rng.choice([0.3, 0.5, 0.8])))
        if (marks & marks.T).sum() <= 2 * 9:
            yield marks, list(members_of(marks))
            count -= 1


def changed(dag, *, add=(), drop=()):
    result = dag.copy()
    for edge in add:
        result[edge] = True
    for edge in drop:
        result[edge] = False
    return result


# --- scores ---------------------------------------------------------------------------------------


def random_table(size, num_rows, seed, states=(2, 4), weights=None):
    """Rows whose columns depend on each other a little, so that no two gains are equal."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(states[0], states[1], size, endpoint=True)
    hidden = rng.normal(size=num_rows)
    values = rng.random(size)[:, None] * hidden + 0.7 * rng.normal(size=(size, num_rows))
    codes = np.stack(
        [
            np.searchsorted(np.quantile(row, np.linspace(0, 1, card + 1)[1:-1]), row)
            for row, card in zip(values, cards, strict=True)
        ]
    )
    return table_of(codes, cards, weights)


def table_of(codes, cards, weights=None):
    names = tuple(f"x{k}" for k in range(len(codes)))
    return DiscreteTable(
        names, tuple(tuple(str(k) for k in range(c)) for c in cards), codes, weights
    )


def sampled_table(size, num_rows, seed, **options):
    """Rows of a random network, states that do not occur included."""
    return random_network(size, seed=seed, **options).sample_table(num_rows, seed)


class SlowScore:
    """The textbook formulas of the local scores, from a table of counts."""

    def __init__(self, table, kind="bdeu", ess=1.0):
        self.codes, self.cards = table.codes.astype(int), table.cardinalities
        n = table.codes.shape[1]
        self.weights = np.ones(n, dtype=int) if table.weights is None else table.weights
        self.kind, self.ess = kind, ess
        self.known = {}

    def counts(self, y, parents):
        """Counts n_sv of parents' configurations s (those that occur) and states v of y."""
        rows = self.codes[sorted(parents)]
        _, group = np.unique(rows, axis=1, return_inverse=True)
        group = group.ravel() if len(rows) else np.zeros(self.codes.shape[1], dtype=int)
        counts = np.zeros((group.max() + 1, self.cards[y]))
        np.add.at(counts, (group, self.codes[y]), self.weights)
        return counts

    def local(self, y, parents):
        key = y, frozenset(parents)
        if key not in self.known:
            self.known[key] = self._local(y, key[1])
        return self.known[key]

    def _local(self, y, parents):
        counts = self.counts(y, parents)
        totals = counts.sum(axis=1)
        r, q = float(self.cards[y]), float(np.prod(self.cards[list(parents)], dtype=float))
        if self.kind == "bdeu":
            a, b = self.ess / q, self.ess / (q * r)
            return (gammaln(a) - gammaln(a + totals)).sum() + (
                gammaln(b + counts) - gammaln(b)
            ).sum()
        shares = counts / np.where(totals > 0, totals, 1)[:, None]
        fit = (counts * np.log(np.where(counts > 0, shares, 1))).sum()
        n = self.weights.sum()
        if self.kind == "bic":
            return fit - 0.5 * np.log(n) * q * (r - 1)
        return fit - (log_regret(n, q * r) - log_regret(n, q))

    def total(self, dag):
        return sum(self.local(y, np.flatnonzero(dag[:, y]).tolist()) for y in range(len(dag)))


def log_regret(n, cells):
    """Szpankowski & Weinberger's approximation as it is printed."""
    if cells == 1:
        return 0.0
    a = cells / n
    c = 0.5 + 0.5 * np.sqrt(1 + 4 / a)
    return n * (np.log(a) + (a + 2) * np.log(c) - 1 / c) - 0.5 * np.log(c + 2 / a)


# --- operators and search by the plain definitions ------------------------------------------------


def neighbourhood(marks, y):
    parents = set(np.flatnonzero(marks[:, y] & ~marks[y]).tolist())
    return parents, set(np.flatnonzero(marks[:, y] & marks[y]).tolist())


def adjacent_to(marks, x):
    return set(np.flatnonzero(marks[x] | marks[:, x]).tolist())


def is_clique(marks, nodes):
    return all(marks[i, j] or marks[j, i] for i, j in combinations(nodes, 2))


def subsets(nodes):
    """Smaller ones first, then in the order of their nodes."""
    nodes = sorted(nodes)
    return [set(c) for size in range(len(nodes) + 1) for c in combinations(nodes, size)]


def insert_is_open(marks, x, y, closed):
    graph = nx.DiGraph(list(zip(*np.nonzero(marks), strict=True)))
    graph.add_nodes_from([x, y])
    graph.remove_nodes_from(closed)
    return nx.has_path(graph, y, x)


def plain_inserts(marks):
    """Yield (y, K, x, T) of Theorem 15 in the order of the search's ties."""
    for y in range(len(marks)):
        _, neighbours = neighbourhood(marks, y)
        for clique in subsets(neighbours):
            for x in range(len(marks)):
                adjacent = adjacent_to(marks, x)
                if x == y or y in adjacent or not (neighbours & adjacent) <= clique:
                    continue
                if is_clique(marks, clique) and not insert_is_open(marks, x, y, clique):
                    yield y, clique, x, clique - adjacent


def plain_deletes(marks):
    """Yield (y, C, x, H) of Theorem 17 in the order of the search's ties."""
    for y in range(len(marks)):
        _, neighbours = neighbourhood(marks, y)
        for x in np.flatnonzero(marks[:, y]).tolist():
            common = (neighbours & adjacent_to(marks, x)) - {x}
            for kept in subsets(common):
                if is_clique(marks, kept):
                    yield y, kept, x, common - kept


def completed(marks):
    return equivalence.cpdag(equivalence.consistent_extension(marks))


def inserted(marks, y, x, turned):
    result = changed(marks, add=[(x, y)], drop=[(y, t) for t in turned])
    return completed(result)


def deleted(marks, y, x, freed):
    result = changed(marks, drop=[(x, y), (y, x)] + [(h, y) for h in freed])
    for h in freed:
        if marks[x, h] and marks[h, x]:
            result[h, x] = False
    return completed(result)


def plain_search(marks, local, max_edges=None, max_parents=None):
    """Both phases; returns the class and the gain."""
    gain, count = 0.0, 0
    limit = len(marks) if max_parents is None else max_parents
    while max_edges is None or count < max_edges:
        found = []
        for y, clique, x, turned in plain_inserts(marks):
            given = neighbourhood(marks, y)[0] | clique
            if len(given) < limit:
                found.append((local(y, given | {x}) - local(y, given), y, x, turned))
        best = best_of(found)
        if best is None:
            break
        marks, gain, count = inserted(marks, *best[1:]), gain + best[0], count + 1
    while True:
        found = []
        for y, kept, x, freed in plain_deletes(marks):
            given = (neighbourhood(marks, y)[0] | kept) - {x}
            found.append((local(y, given) - local(y, given | {x}), y, x, freed))
        best = best_of(found)
        if best is None:
            return marks, gain
        marks, gain = deleted(marks, *best[1:]), gain + best[0]


def best_of(found):
    """First the best of each y, then the best of these: the first of those that are equal."""
    by_node = {}
    for entry in found:
        if entry[0] > by_node.get(entry[1], (0.0,))[0] + GAIN_TIE:
            by_node[entry[1]] = entry
    best = None
    for y in sorted(by_node):
        if best is None or by_node[y][0] > best[0] + GAIN_TIE:
            best = by_node[y]
    return best


# --- the package's search -------------------------------------------------------------------------


def search_on(table, score="bdeu", ess=1.0, start=None, **options):
    d = len(table.names)
    start = np.zeros((d, d), dtype=bool) if start is None else start
    return Search(
        graph_of(start), TableGains(table, score, ess), empty_families(d, 4, 2), **options
    )


class Enough(TableGains):
    """Rows that end the search after some operators."""

    def __init__(self, table, most):
        super().__init__(table)
        self.most = most
        self.search = None

    def must_stop(self):
        return self.search.num_operators >= self.most
