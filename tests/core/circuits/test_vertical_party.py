"""One party's part of joint EM, where it holds the class."""

import numpy as np
from circuit_cases import domain_of

from flwr_causal.core.circuits.composed.joint_trees import PartyRows, PartyTrees, anchor_rows

STATES = [3, 2, 3]  # the class is the last


def rows_of(n=200, rare=3):
    """Rows of two classes and a rare one, which the first column tells."""
    rng = np.random.default_rng(0)
    classes = rng.integers(2, size=n)
    classes[:rare] = 2
    values = np.stack([classes, rng.integers(2, size=n), classes], axis=1).astype(float)
    domain = domain_of(STATES)
    return PartyRows.of(domain, values, domain.names[2])


def test_every_class_has_a_component_in_every_mixture():
    rows = rows_of()
    part = PartyTrees.started(rows, anchor_rows(200, 4, seed=1))
    own = part.shares.reshape(3, 4, 3)
    assert set(np.unique(own)) == {0.0, 1.0}
    assert (own.sum(axis=1) >= 1).all()
    assert np.isfinite(part.log_densities().reshape(200, 3, 4).max(axis=2)).all()


def test_a_component_keeps_the_class_of_its_rows():
    rows = rows_of()
    shared = np.zeros((200, 4))
    shared[rows.classes == 0, 0] = 1.0
    shared[rows.classes == 1, 1] = 0.25
    shared[rows.classes == 1, 2] = 0.75
    shared[rows.classes == 2, 3] = 1.0
    for trees in (False, True):
        part = PartyTrees.made(rows, shared, trees=trees)
        np.testing.assert_array_equal(part.shares.argmax(axis=1), [0, 1, 1, 2])
        circuits = part.circuits()
        values = np.stack([rows.classes, np.zeros(200), rows.classes], axis=1).astype(float)
        values[:40, 2] = np.nan
        for k, circuit in enumerate(circuits):
            density = np.exp(circuit.log_likelihood(values))
            assert (density[40:] > 0).tolist() == (
                rows.classes[40:] == part.shares[k].argmax()
            ).tolist()
            assert (density[:40] > 0).all()


def test_densities_are_those_of_the_circuits():
    rows = rows_of()
    part = PartyTrees.made(rows, np.random.default_rng(1).dirichlet(np.ones(3), 200), trees=True)
    codes = rows.table.codes
    values = np.column_stack([codes.T, rows.classes]).astype(float)
    expected = np.stack([circuit.log_likelihood(values) for circuit in part.circuits()], axis=1)
    np.testing.assert_allclose(part.log_densities(), expected, atol=1e-12)


def test_a_class_without_component_is_equally_frequent_in_all():
    """The rare class is left out by the minimum count: no row is impossible then."""
    rows = rows_of()
    shared = np.eye(3)[rows.classes]
    part = PartyTrees.made(rows, shared, trees=True, minimum_count=5)
    np.testing.assert_allclose(part.shares[:, 2], 3.1 / 200.3)
    np.testing.assert_allclose(part.shares.sum(axis=1), 1.0)
    # That component is what all rows are, not what its three rows are.
    few = PartyTrees.made(rows, shared, trees=False, minimum_count=1)
    assert few.own.table(2, 0)[0, 2] > 0.5 > 0.1 > part.own.table(2, 0).min()
    assert part.own.table(2, 0).shape[1] == 3
    assert (
        abs(
            np.exp(
                part.circuits()[2]
                .marginal([rows.domain.names[0]])
                .log_likelihood(np.array([[2.0, np.nan, np.nan]]))
            )[0]
            - 3 / 200
        )
        < 0.05
    )


def test_a_missing_class_is_summed_over():
    rows = rows_of()
    classes = rows.classes.copy()
    values = np.stack([classes, np.zeros(200), classes], axis=1).astype(float)
    values[:50, 2] = np.nan
    known = PartyRows.of(rows.domain, values, rows.domain.names[2])
    part = PartyTrees.started(known, anchor_rows(200, 4, seed=1))
    without = PartyRows.of(domain_of(STATES[:2]), values[:, :2], None)
    np.testing.assert_array_equal(
        part.log_densities()[:50],
        PartyTrees.started(without, anchor_rows(200, 4, seed=1)).log_densities()[:50],
    )
