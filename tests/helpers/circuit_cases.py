"""Small circuits, and plain slow answers to compare with."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
from flwr_causal.core.circuits.nodes import Product, Sum, mixed

#: States of the variables of a mixed circuit, 0 for a number.
MIXED = (2, 0, 3, 0, 0)


def domain_of(num_states):
    """Variables a, b, c, ... with so many states, 0 for a number."""
    return Domain(
        tuple(
            Variable(chr(97 + j), tuple(range(count)) if count else None)
            for j, count in enumerate(num_states)
        )
    )


def random_tree(rng, scope, num_states):
    """A tree over shuffled positions, so that parents also stand behind their children."""
    order = rng.permutation(len(scope))
    parents = [-1] * len(scope)
    for position in range(1, len(scope)):
        if rng.random() < 0.85:
            parents[order[position]] = int(order[rng.integers(position)])
    tables = [
        rng.dirichlet(
            np.full(num_states[column], 0.7),
            size=1 if parent < 0 else num_states[scope[parent]],
        )
        for column, parent in zip(scope, parents, strict=True)
    ]
    return ChowLiuTree(scope, parents, tables)


def random_leaf(rng, column, num_states):
    if num_states:
        return Categorical(column, rng.dirichlet(np.full(num_states, 0.7)))
    if rng.random() < 0.5:
        return Gaussian(column, rng.normal(), rng.uniform(0.4, 1.5))
    return Histogram(column, [-1.0, 0.0, 0.3, 2.0], rng.dirichlet(np.ones(5)), 0.7)


def random_elliptical(rng, scope, dof=np.inf, transformed=True):
    k = len(scope)
    factor = rng.normal(size=(k, k))
    covariance = factor @ factor.T / k + 0.3 * np.eye(k)
    if not transformed:
        return Elliptical(scope, rng.normal(size=k), covariance, dof)
    powers = rng.uniform(0.2, 1.8, k)
    return Elliptical(scope, rng.normal(size=k), covariance, dof, powers, rng.uniform(0.5, 2, k))


def random_node(rng, scope, num_states, depth):
    """A random circuit in which some nodes have several parents."""
    scope = tuple(sorted(scope))
    if len(scope) == 1 and (depth <= 0 or rng.random() < 0.5):
        return random_leaf(rng, scope[0], num_states[scope[0]])
    kinds = {bool(num_states[column]) for column in scope}
    if depth <= 0 and len(kinds) == 1 and rng.random() < 0.7:
        if kinds == {True}:
            return random_tree(rng, scope, num_states)
        return random_elliptical(rng, scope, dof=rng.choice([np.inf, 5.0]))
    if depth <= 0:
        return Product([random_leaf(rng, column, num_states[column]) for column in scope])
    if len(scope) == 1 or rng.random() < 0.5:
        children = [random_node(rng, scope, num_states, depth - 1) for _ in range(3)]
        if len(scope) > 1 and rng.random() < 0.5:
            children.append(shared_product(rng, scope, num_states, depth))
        return Sum(children, rng.dirichlet(np.ones(len(children))))
    if rng.random() < 0.4:
        return shared_product(rng, scope, num_states, depth)
    cut = int(rng.integers(1, len(scope)))
    order = rng.permutation(scope).tolist()
    return Product(
        [random_node(rng, part, num_states, depth - 1) for part in (order[:cut], order[cut:])]
    )


def shared_product(rng, scope, num_states, depth):
    """A sum of two products that have a child in common."""
    cut = int(rng.integers(1, len(scope)))
    left = random_node(rng, scope[:cut], num_states, depth - 1)
    rights = [random_node(rng, scope[cut:], num_states, depth - 1) for _ in range(2)]
    return Sum([Product([left, right]) for right in rights], rng.dirichlet(np.ones(2)))


def random_circuit(seed, num_states, depth=3):
    rng = np.random.default_rng(seed)
    domain = domain_of(num_states)
    return Circuit(domain, random_node(rng, range(len(num_states)), num_states, depth))


def mixture(circuits, weights):
    """The mixture of circuits over the same variables, in the domain of the first."""
    domain = circuits[0].domain
    return Circuit(domain, mixed([circuit.root_in(domain) for circuit in circuits], weights))


def worlds(num_states):
    """Every row of categories, shape (number, d)."""
    return np.array(list(product(*map(range, num_states))), dtype=np.float64)


def plain_density(node, row):
    """Density of a complete row, by the definitions and with no logarithms but the leaves'."""
    if isinstance(node, Sum):
        return sum(
            weight * plain_density(child, row)
            for weight, child in zip(node.weights, node.children, strict=True)
        )
    if isinstance(node, Product):
        return np.prod([plain_density(child, row) for child in node.children])
    if isinstance(node, Categorical):
        return node.probabilities[int(row[node.column])]
    if isinstance(node, ChowLiuTree):
        states = row[list(node.scope)].astype(int)
        return np.prod(
            [
                table[states[parent] if parent >= 0 else 0, states[j]]
                for j, (parent, table) in enumerate(zip(node.parents, node.tables, strict=True))
            ]
        )
    return np.exp(node.log_density(row[None, list(node.scope)])[0])


def mixed_rows(rng, num_rows, num_states, missing=0.3):
    columns = [rng.integers(0, k, num_rows) if k else rng.normal(size=num_rows) for k in num_states]
    rows = np.column_stack(columns).astype(np.float64)
    rows[rng.random(rows.shape) < missing] = np.nan
    return rows


def forest(rng, scope, depth):
    """A tree of sums and products as LearnSPN makes them, over numbers and categories by turns."""
    if len(scope) == 1 or depth == 0:
        leaves = [
            Gaussian(j, rng.normal(), 1.0) if j % 2 else Categorical(j, rng.dirichlet(np.ones(4)))
            for j in scope
        ]
        return leaves[0] if len(leaves) == 1 else Product(leaves)
    if depth % 2 == 0:
        return Sum([forest(rng, scope, depth - 1) for _ in range(3)], rng.dirichlet(np.ones(3)))
    order = rng.permutation(scope).tolist()
    cut = len(order) // 2
    return Product([forest(rng, sorted(part), depth - 1) for part in (order[:cut], order[cut:])])


@st.composite
def presences(draw, most_parties=4, most_columns=6):
    """Matrices in which every party holds a column, and every column has a holder."""
    parties, columns = draw(st.integers(1, most_parties)), draw(st.integers(1, most_columns))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    presence = rng.random((parties, columns)) < draw(st.sampled_from([0.2, 0.5, 0.9]))
    for column in np.flatnonzero(~presence.any(axis=0)):
        presence[rng.integers(parties), column] = True
    for party in np.flatnonzero(~presence.any(axis=1)):
        presence[party, rng.integers(columns)] = True
    return presence
