import numpy as np
import pytest
from circuit_cases import domain_of
from joint_trees import trained_together

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.joint_trees import (
    Table,
    anchor_rows,
    composed,
    responsibilities,
)
from flwr_causal.core.circuits.learners.trees.learner import tree_leaves
from flwr_causal.errors import DataError

STATES = (2, 3, 2, 3, 2)
COLUMNS = ((0, 3), (1, 2, 4))


def rows_of_kinds(rng, n):
    """Rows of three kinds that no party can see, in each of which all columns are independent."""
    law = np.random.default_rng(100)
    tables = [law.dirichlet(np.full(k, 0.3), size=3) for k in STATES]
    kind = rng.integers(3, size=n)
    values = np.stack(
        [(rng.random(n)[:, None] > table[kind].cumsum(axis=1)).sum(axis=1) for table in tables],
        axis=1,
    )
    density = np.mean(
        [
            np.prod([table[k, values[:, j]] for j, table in enumerate(tables)], axis=0)
            for k in range(3)
        ],
        axis=0,
    )
    return np.minimum(values, np.array(STATES) - 1).astype(float), np.log(density)


def tables_of(values):
    return [Table.of(values[:, own], [STATES[j] for j in own]) for own in COLUMNS]


def test_parties_that_exchange_responsibilities_learn_how_their_columns_depend():
    rng = np.random.default_rng(0)
    rows = rows_of_kinds(rng, 3000)[0]
    held_out, truth = rows_of_kinds(rng, 3000)
    parts, shared = trained_together(tables_of(rows), 6, seed=1)
    given = [
        part.log_densities(table.codes)
        for part, table in zip(parts, tables_of(held_out), strict=True)
    ]
    joint = responsibilities(given, shared.log_weights).log_likelihood
    alone = [trained_together([table], 6, seed=1) for table in tables_of(rows)]
    apart = sum(
        responsibilities([own[0].log_densities(table.codes)], known.log_weights).log_likelihood
        for (own, known), table in zip(alone, tables_of(held_out), strict=True)
    )
    assert truth.mean() - joint.mean() < 0.03
    assert joint.mean() - apart.mean() > 0.1


def test_the_circuit_of_the_trees_has_the_densities_that_parties_add_up():
    values = rows_of_kinds(np.random.default_rng(1), 200)[0]
    parts, shared = trained_together(tables_of(values), 4)
    domain = domain_of(STATES)
    circuits = [
        [Circuit(domain, leaf) for leaf in tree_leaves(part, own)]
        for part, own in zip(parts, COLUMNS, strict=True)
    ]
    circuit = composed(domain, COLUMNS, shared).circuit(circuits)
    asked = values[:20].copy()
    asked[np.random.default_rng(2).random(asked.shape) < 0.3] = np.nan
    given = [
        part.log_densities(table.codes) for part, table in zip(parts, tables_of(asked), strict=True)
    ]
    expected = responsibilities(given, shared.log_weights).log_likelihood
    np.testing.assert_allclose(circuit.log_likelihood(asked), expected, atol=1e-12)


def test_responsibilities_are_the_posterior_of_the_components():
    first = np.log([[0.2, 0.4], [0.5, 0.1]])
    second = np.log([[0.5, 0.25], [0.1, 0.1]])
    shared = responsibilities([first, second], np.log([[0.25, 0.75]]))
    joint = np.array([[0.025, 0.075], [0.0125, 0.0075]])
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shared.responsibilities, expected, atol=1 / 4096)
    np.testing.assert_allclose(shared.log_likelihood, np.log(joint.sum(axis=1)))
    weights = (expected.sum(axis=0) + 0.1) / 2.2
    np.testing.assert_allclose(np.exp(shared.log_weights[0]), weights, atol=1e-3)


def test_a_component_starts_from_its_row():
    values = rows_of_kinds(np.random.default_rng(3), 50)[0]
    anchors = anchor_rows(50, 5, seed=0)
    assert [len(set(own)) for own in anchors.tolist()] == [5, 5, 5]
    for table in tables_of(values):
        densities = table.start(anchors).log_densities(table.codes)
        own = densities[anchors.ravel(), np.arange(15)]
        assert (own >= densities.max(axis=0) - 1e-12).all()


def test_more_components_than_rows_are_refused():
    with pytest.raises(DataError, match="components"):
        anchor_rows(3, 4, seed=0)
