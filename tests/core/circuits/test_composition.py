"""Composed circuits: parties' outputs alone, and one circuit with the parties' circuits in it."""

import json

import numpy as np
import pandas as pd
import pytest
from circuit_cases import domain_of, presences, random_leaf
from federated_circuits import composed_densities, composed_layers, federated
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.composition import (
    Composition,
    Output,
    cluster_products,
    factors_of,
    from_plain,
    tasks_of,
    to_plain,
    trained_rows,
)
from flwr_causal.core.circuits.composed.party_answers import log_densities
from flwr_causal.core.circuits.composed.tied_clusters import by_aligned_rows, by_known_classes
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import Product, Sum, ascending
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies.fedpc.paper import composed as by_counts


def random_circuit(rng, domain, columns):
    """Two independent components over some columns."""
    states = domain.num_states
    parts = [Product([random_leaf(rng, j, states[j]) for j in columns]) for _ in range(2)]
    return Circuit(domain, Sum(parts, rng.dirichlet([2, 2])))


class Parties:
    """Random circuits for a pattern of columns, numbers and categories in turn."""

    def __init__(self, presence, seed, *, tied=False):
        self.presence = np.asarray(presence, dtype=bool)
        self.rng = np.random.default_rng(seed)
        self.domain = domain_of([3 * (j % 2) for j in range(self.presence.shape[1])])
        tasks = tasks_of(self.presence, tied=tied)
        self.rows = [
            [self.rng.integers(1, 40, self.rng.integers(1, 4) if t.clustered else 1) for t in own]
            for own in tasks
        ]
        self.circuits = [
            [
                random_circuit(self.rng, self.domain, task.columns)
                for task, rows in zip(own, own_rows, strict=True)
                for _ in rows
            ]
            for own, own_rows in zip(tasks, self.rows, strict=True)
        ]
        self.factors = factors_of(self.presence, self.rows, tied=tied)

    def values(self, n, missing=0.3):
        states = self.domain.num_states
        values = np.where(states > 0, self.rng.integers(0, 3, (n, len(states))), 0.0)
        values += np.where(states == 0, self.rng.normal(size=values.shape), 0.0)
        values[self.rng.random(values.shape) < missing] = np.nan
        return values

    def own(self, values, party):
        """What a party sees of rows: columns that it does not hold are missing."""
        return np.where(self.presence[party], values, np.nan)

    def answers(self, values):
        return [log_densities(own, self.own(values, p)) for p, own in enumerate(self.circuits)]

    def federated(self, composition):
        """The composition whose circuits stay with the parties."""
        return federated(composition, self.presence, self.circuits)


def composed(parties, how, seed=0):
    if how == "counts":
        return by_counts(parties.domain, parties.presence, parties.rows, seed=seed)
    if how == "rows":
        evidence = parties.answers(parties.values(50))
        return by_aligned_rows(parties.domain, parties.factors, evidence, 3, seed)
    counts = [parties.rng.integers(0, 9, (2, size)) + 1 for size in parties.factors.num_outputs]
    return by_known_classes(parties.domain, parties.factors, counts)


HOW = st.sampled_from(["counts", "rows", "classes"])


@given(presences(), HOW, st.integers(0, 1000))
def test_answers_of_parties_and_the_circuit_of_all_agree(presence, how, seed):
    parties = Parties(presence, seed, tied=how != "counts")
    composition = composed(parties, how)
    central = composition.circuit(parties.circuits)
    federation = parties.federated(composition)
    values = parties.values(20)
    np.testing.assert_allclose(
        federation.log_likelihood(values), central.log_likelihood(values), atol=1e-10
    )
    for column, states in enumerate(parties.domain.num_states):
        name = parties.domain.names[column]
        if states:
            np.testing.assert_allclose(
                federation.predict_proba(values, name),
                central.predict_proba(values, name),
                atol=1e-10,
            )
        else:
            found, expected = federation.moments(name, values), central.moments(name, values)
            np.testing.assert_allclose(found[0], expected[0], atol=1e-10)
            np.testing.assert_allclose(found[1], expected[1], atol=1e-9)


@given(presences(), HOW, st.integers(0, 1000))
def test_the_best_explanation_is_that_of_the_circuit_of_all(presence, how, seed):
    parties = Parties(presence, seed, tied=how != "counts")
    composition = composed(parties, how)
    values = parties.values(12)
    result = parties.domain.encode(parties.federated(composition).mpe(values))
    central = composition.circuit(parties.circuits).mpe(values)
    np.testing.assert_allclose(result, parties.domain.encode(central), atol=1e-9)


@given(presences(), st.integers(0, 1000))
def test_every_product_covers_all_columns_and_every_cluster_is_in_one(presence, seed):
    parties = Parties(presence, seed)
    composition = by_counts(parties.domain, presence, parties.rows, seed=seed)
    everything = tuple(range(parties.presence.shape[1]))
    assert composition.root.scope == everything
    if isinstance(composition.root, Sum) and len(parties.factors.clusters):
        assert all(child.scope == everything for child in composition.root.children)
    found = {
        (node.party, node.index) for node in ascending(composition.root) if isinstance(node, Output)
    }
    assert found == {(p, k) for p, n in enumerate(parties.factors.num_outputs) for k in range(n)}


def test_weights_and_density_of_a_hybrid_by_hand():
    presence = [[1, 1, 0], [1, 0, 1]]
    # Column 0 is a sum over both; party 0 has 2 clusters of column 1, party 1 has 3 of column 2.
    rows = [[[40], [30, 10]], [[60], [30, 20, 10]]]
    composition = by_counts(domain_of([0, 0, 0]), presence, rows, seed=1)
    products = cluster_products([2, 3], seed=1)
    assert len(products) == 3
    assert set(products[:, 0]) == {0, 1}
    assert set(products[:, 1]) == {0, 1, 2}
    rho = [40 + 60 + rows[0][1][a] + rows[1][1][b] for a, b in products]
    assert [trained_rows(child) for child in composition.root.children] == rho
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    shared = logsumexp([first[:, 0] + np.log(0.4), second[:, 0] + np.log(0.6)], axis=0)
    terms = [
        np.log(weight / sum(rho)) + shared + first[:, 1 + a] + second[:, 1 + b]
        for weight, (a, b) in zip(rho, products, strict=True)
    ]
    np.testing.assert_allclose(
        composed_densities(composition, [first, second]), logsumexp(terms, axis=0), atol=1e-12
    )


def test_horizontal_weights_are_shares_of_rows():
    composition = by_counts(domain_of([0, 0]), np.ones((3, 2)), [[[10]], [[30]], [[60]]])
    np.testing.assert_allclose(composition.root.weights, [0.1, 0.3, 0.6])


def test_known_classes_of_parties_with_all_columns_are_the_mixture_by_rows():
    counts = [np.array([[20, 0], [0, 5]]), np.array([[3, 0], [0, 12]])]
    factors = factors_of(np.ones((2, 2)), [[[20, 5]], [[3, 12]]], tied=True)
    composition = by_known_classes(domain_of([0, 2]), factors, counts)
    answers = list(np.random.default_rng(0).normal(size=(2, 7, 2)))
    expected = logsumexp(
        np.concatenate(answers, axis=1) + np.log(np.array([20, 5, 3, 12]) / 40), axis=1
    )
    np.testing.assert_allclose(composed_densities(composition, answers), expected, atol=1e-12)


def test_a_class_that_no_holder_has_seen_takes_the_clusters_of_the_others():
    presence = [[1, 1, 0], [1, 0, 1]]
    factors = factors_of(presence, [[[8, 2], [10]], [[5, 5], [4, 6]]], tied=True)
    # Party 1 has no row of the class 1.
    counts = [np.array([[6, 0, 6], [2, 2, 4]]), np.array([[5, 5, 4, 6], [0, 0, 0, 0]])]
    composition = by_known_classes(domain_of([0, 0, 0]), factors, counts)
    last = composition.root.children[1].children[-1]
    np.testing.assert_allclose(last.weights, [0.4, 0.6])


def test_the_order_of_parties_changes_nothing():
    parties = Parties([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], 4, tied=True)
    rng = np.random.default_rng(1)
    counts = [rng.integers(1, 9, (2, size)) for size in parties.factors.num_outputs]
    answers = parties.answers(parties.values(9))
    expected = composed_densities(
        by_known_classes(parties.domain, parties.factors, counts), answers
    )
    order = [2, 0, 1]
    factors = factors_of(parties.presence[order], [parties.rows[p] for p in order], tied=True)
    turned = by_known_classes(parties.domain, factors, [counts[p] for p in order])
    np.testing.assert_allclose(
        composed_densities(turned, [answers[p] for p in order]), expected, atol=1e-12
    )


def test_draws_have_the_distribution_of_the_circuit_given_what_is_known():
    parties = Parties([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], 2)
    composition = composed(parties, "counts")
    values = np.full((20_000, 4), np.nan)
    values[:, 1] = 2.0
    federation = parties.federated(composition)
    drawn = parties.domain.encode(federation.sample(len(values), seed=0, given=values))
    assert not np.isnan(drawn).any()
    assert (drawn[:, 1] == 2.0).all()
    central = composition.circuit(parties.circuits)
    for column in (0, 2):
        mean, variance = central.moments(parties.domain.names[column], values[:1])
        # Five standard errors.
        np.testing.assert_allclose(
            drawn[:, column].mean(), mean[0], atol=5 * np.sqrt(variance[0] / len(drawn))
        )
    shares = np.bincount(drawn[:, 3].astype(int), minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, central.predict_proba(values[:1], "d")[0], atol=0.02)


def test_a_row_without_evidence_has_the_log_density_0():
    parties = Parties([[1, 1, 0], [0, 0, 1]], 0)
    nothing = np.full((2, 3), np.nan)
    answers = parties.answers(nothing)
    np.testing.assert_allclose(
        composed_densities(composed(parties, "counts"), answers), 0, atol=1e-12
    )


def test_impossible_rows_are_told():
    parties = Parties([[1, 0], [0, 1]], 0)
    composition = composed(parties, "counts")
    answers = [np.zeros((2, size)) for size in composition.num_outputs]
    answers[0][1] = -np.inf
    layers = composed_layers(composition, answers)
    assert np.isneginf(layers.log_densities(np.zeros((2, 1)))[1])
    assert layers.flows(layers.upward(layers.leaf_values(np.zeros((2, 1)))))[0][:, 1].sum() == 0
    with pytest.raises(DataError, match="row 1: its values are impossible"):
        layers.sample(np.full((2, 1), np.nan), np.random.default_rng(0))


def test_impossible_rows_are_answered_as_rows_without_evidence():
    domain = domain_of([2, 3, 0])
    presence = np.array([[1, 0, 0], [0, 1, 1]])
    first = Circuit(domain, Categorical(0, [1.0, 0.0]))
    second = Circuit(domain, Product([Categorical(1, [0.2, 0.3, 0.5]), Gaussian(2, 1.5, 2.0)]))
    composition = by_counts(domain, presence, [[[5]], [[5]]])
    federation = federated(composition, presence, [[first], [second]])
    central = composition.circuit([[first], [second]])
    impossible = np.array([[1.0, np.nan, np.nan]])
    for circuit in (federation, central):
        for name, ask in (("b", circuit.predict_proba), ("c", circuit.predict)):
            with pytest.raises(DataError, match="row 0: its values are impossible"):
                ask(impossible, name)


@pytest.mark.parametrize("evidence", [{"b": 2}, {"a": 0.3, "b": 1}])
def test_given_evidence_the_parties_say_what_the_circuit_of_all_says(evidence):
    parties = Parties([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], 5)
    composition = composed(parties, "counts")
    asked = parties.federated(composition).conditional(evidence)
    central = composition.circuit(parties.circuits).conditional(evidence)
    assert asked.names == central.names
    values = parties.values(15)
    values[:, [parties.domain.index(name) for name in evidence]] = np.nan
    np.testing.assert_allclose(
        asked.log_likelihood(values), central.log_likelihood(values), atol=1e-10
    )
    np.testing.assert_allclose(
        asked.predict_proba(values, "d"), central.predict_proba(values, "d"), atol=1e-10
    )
    np.testing.assert_allclose(asked.moments("c", values), central.moments("c", values), atol=1e-9)
    pd.testing.assert_frame_equal(asked.mpe(values), central.mpe(values))
    assert list(asked.sample(3, seed=0).columns) == list(asked.names)


def test_wrong_answers_and_circuits_are_refused():
    parties = Parties([[1, 1, 0], [0, 0, 1]], 0)
    composition = composed(parties, "counts")
    answers = parties.answers(parties.values(4))
    with pytest.raises(DataError, match="expected"):
        composed_densities(composition, [answers[0][:, :-1], answers[1]])
    with pytest.raises(DataError, match="expected"):
        composed_densities(composition, [answers[0][:2], answers[1]])
    with pytest.raises(ConfigError, match="its place is over"):
        composition.circuit([parties.circuits[0], [parties.circuits[0][0]] * 3][:2])
    with pytest.raises(ConfigError, match="each output of the parties once"):
        Composition(parties.domain, Output((0, 1, 2), 0, 0, 5), (2,))
    with pytest.raises(DataError, match="align rows by ids"):
        by_aligned_rows(parties.domain, parties.factors, [answers[0], answers[1][:3]], 2)


def test_wrong_numbers_of_outputs_are_refused():
    presence = [[1, 1, 0], [1, 0, 1]]
    with pytest.raises(ConfigError, match="expected one: other parties hold them too"):
        factors_of(presence, [[[3, 3], [1]], [[3], [1]]])
    with pytest.raises(ConfigError, match="expected at least one"):
        factors_of(presence, [[[3], []], [[3], [1]]])
    with pytest.raises(ConfigError, match="was trained on 0 rows: take fewer clusters"):
        factors_of(presence, [[[3], [0]], [[3], [1]]])
    with pytest.raises(ConfigError, match="2 products cannot hold 3 clusters"):
        cluster_products([3, 2], 2)


def test_all_products_where_as_many_are_asked_for():
    products = cluster_products([3, 2], 10)
    assert sorted(map(tuple, products)) == [(a, b) for a in range(3) for b in range(2)]
    some = cluster_products([4, 2], 6, seed=3)
    assert len(set(map(tuple, some))) == 6


@pytest.mark.parametrize("how", ["counts", "rows"])
def test_a_composition_survives_json_exactly(how):
    parties = Parties([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], 3, tied=how == "rows")
    composition = composed(parties, how)
    answers = parties.answers(parties.values(9))
    read = from_plain(json.loads(json.dumps(to_plain(composition))))
    np.testing.assert_array_equal(
        composed_densities(read, answers), composed_densities(composition, answers)
    )
    assert read.domain == composition.domain
    shared = len({id(node) for node in ascending(composition.root)})
    assert len(ascending(read.root)) == shared
    free = sum(len(node.weights) - 1 for node in ascending(read.root) if isinstance(node, Sum))
    assert parties.federated(read).num_parameters == free > 0


def test_damaged_compositions_are_refused():
    plain = to_plain(composed(Parties([[1, 0], [0, 1]], 0), "counts"))
    with pytest.raises(DataError, match="this is no composition"):
        from_plain({**plain, "nodes": []})
    with pytest.raises(DataError, match="this is no composition"):
        from_plain({"nodes": plain["nodes"]})
    weights = [
        node | {"weights": [2.0] * 9} if "weights" in node else node for node in plain["nodes"]
    ]
    with pytest.raises(DataError, match="this is no composition"):
        from_plain({**plain, "nodes": weights})
