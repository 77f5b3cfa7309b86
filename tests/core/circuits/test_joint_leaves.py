"""Elliptical leaves that parties train together."""

import numpy as np
import pytest

from flwr_causal.core.circuits.composed.joint_leaves import NumberTable, automatic_components
from flwr_causal.core.circuits.composed.joint_trees import (
    PRODUCT_STEPS,
    PartyRows,
    PartyTrees,
    anchor_rows,
    composed,
    equal_weights,
    responsibilities,
)
from flwr_causal.core.circuits.domain import Domain, Variable


def trained_together(domain, columns, values, components, target=None):
    """Each party's circuits, the composition, and the log densities of the last exchange."""
    rows = []
    for own in columns:
        part = Domain(tuple(domain.variables[j] for j in own))
        rows.append(PartyRows.of(part, values[:, list(own)], target))
    anchors = anchor_rows(len(values), components, seed=0)
    parts = [PartyTrees.started(one, anchors) for one in rows]
    log_weights = equal_weights(components)
    for _ in range(PRODUCT_STEPS + 1):
        shared = responsibilities([part.log_densities() for part in parts], log_weights)
        log_weights = shared.log_weights
        parts = [PartyTrees.made(one, shared.responsibilities, trees=True) for one in rows]
    circuit = composed(domain, columns, shared).circuit([part.circuits() for part in parts])
    return circuit, responsibilities([part.log_densities() for part in parts], log_weights)


def test_circuits_have_the_densities_that_parties_add_up():
    rng = np.random.default_rng(0)
    domain = Domain((Variable("x"), Variable("g", ("u", "v")), Variable("y"), Variable("z")))
    values = np.column_stack(
        [rng.lognormal(size=300), rng.integers(2, size=300), rng.normal(size=(300, 2)) * [1e3, 1]]
    )
    circuit, last = trained_together(domain, [(0, 1), (2, 3)], values, 4)
    np.testing.assert_allclose(circuit.log_likelihood(values), last.log_likelihood, atol=1e-9)


@pytest.mark.slow
def test_a_circle_of_two_parties():
    """No covariance tells that x and y of one row lie on a circle."""
    rng = np.random.default_rng(1)

    def rows(n):
        angle = rng.uniform(0, 2 * np.pi, n)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(n, 2))

    domain, train, test = Domain((Variable("x"), Variable("y"))), rows(1500), rows(1500)
    circuit, _ = trained_together(domain, [(0,), (1,)], train, 16)
    alone = [
        trained_together(Domain((v,)), [(0,)], train[:, [j]], 16)[0]
        for j, v in enumerate(domain.variables)
    ]
    apart = sum(one.log_likelihood(test[:, [j]]).mean() for j, one in enumerate(alone))
    assert circuit.log_likelihood(test).mean() > apart + 0.5


def test_certain_rows_make_the_moments_of_their_component():
    rng = np.random.default_rng(2)
    kind = rng.integers(2, size=400)
    values = rng.normal(size=(400, 2)) + 5 * kind[:, None]
    table = NumberTable.of(Domain((Variable("x"), Variable("y"))), values)
    leaves = table.products(np.eye(2)[kind])
    for k in range(2):
        np.testing.assert_allclose(leaves.moments.means[k], table.z[kind == k].mean(axis=0))
    assert leaves.counts.tolist() == np.bincount(kind).tolist()
    own = table.log_densities(leaves)
    assert (own.argmax(axis=1) == kind).mean() > 0.99


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"), [(400, (2, 2), 10), (10, (2, 2), 1), (10**6, (2, 2), 32)]
)
def test_components_by_rows_and_numbers(rows, sizes, expected):
    presence = np.zeros((len(sizes), sum(sizes)), dtype=bool)
    presence[0, : sizes[0]] = presence[1, sizes[0] :] = True
    assert automatic_components(rows, presence) == expected
