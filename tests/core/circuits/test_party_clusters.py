"""Clusters of a party's rows and their circuits; compositions of breast cancer by columns."""

import numpy as np
import pytest
from circuit_cases import domain_of
from federated_circuits import federated
from sklearn.datasets import load_breast_cancer

from flwr_causal.core.circuits.composed.composition import (
    TrainingTask,
    factors_of,
    tasks_of,
)
from flwr_causal.core.circuits.composed.party_answers import log_densities
from flwr_causal.core.circuits.composed.party_clusters import cluster_labels, train_party
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
)
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.spn.learn_spn import LearnSPN
from flwr_causal.core.circuits.leaves.univariate import Gaussian
from flwr_causal.core.circuits.nodes import Product
from flwr_causal.errors import DataError
from flwr_causal.strategies.fedpc.paper import composed


def two_groups(n=60):
    """Two groups of rows far apart, and a class that has nothing to do with them."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % 2
    classes = (np.arange(n) // 2 % 3 == 0).astype(int)
    return 10.0 * group[:, None] + rng.normal(size=(n, 8)), group, classes


def test_clusters_find_groups_of_rows():
    values, group, _ = two_groups()
    labels = cluster_labels(domain_of([0] * 8), values, 2)
    assert len(set(zip(labels, group, strict=True))) == 2


def test_clusters_are_split_by_class():
    values, group, classes = two_groups()
    labels = cluster_labels(domain_of([0] * 8), values, 2, classes=classes)
    assert set(labels) == {0, 1, 2, 3}
    assert len(set(zip(labels, group, classes, strict=True))) == 4


def test_a_number_that_is_constant_at_the_party_varies_little():
    """No covariance with it exists; the other columns keep theirs."""
    values, _, _ = two_groups()
    domain, tasks = domain_of([0] * 8), [TrainingTask(tuple(range(8)), True)]
    values[:, 3], values[:, 5] = 1.5, 1e20
    own = train_party(domain, values, tasks, num_clusters=2)
    assert own.sizes == (2,)
    asked = values[:9].copy()
    first = np.logaddexp.reduce(log_densities(own.circuits, asked), axis=1)
    asked[:, 3] = 3.0
    assert np.isfinite(first).all()
    assert (np.logaddexp.reduce(log_densities(own.circuits, asked), axis=1) < first - 100).all()
    asked[:, [3, 5]] = np.nan
    assert np.isfinite(log_densities(own.circuits, asked)).all()
    constant = train_party(domain, np.tile(values[:1], (30, 1)), tasks, num_clusters=2)
    assert np.isfinite(log_densities(constant.circuits, values[:1])).all()


def test_small_clusters_join_the_largest_of_their_class():
    values, _, _ = two_groups()
    classes = np.zeros(60, dtype=int)
    classes[[0, 2, 4, 1]] = 1  # 3 rows of the class in one group, 1 in the other
    labels = cluster_labels(domain_of([0] * 8), values, 2, classes=classes, minimum_count=2)
    assert len({int(labels[row]) for row in (0, 2, 4, 1)}) == 1
    assert len(set(labels[classes == 0])) == 2
    assert np.bincount(labels).min() == 4
    # With 5 the class has too few rows to stand alone.
    labels = cluster_labels(domain_of([0] * 8), values, 2, classes=classes, minimum_count=5)
    assert set(labels) == {0, 1}


def test_as_many_rows_as_asked_or_an_error():
    with pytest.raises(DataError, match="3 rows cannot be put into 4 clusters: take from 1 to 3"):
        cluster_labels(domain_of([0]), np.zeros((3, 1)), 4)
    domain = domain_of([0, 2])
    tasks = [TrainingTask((0, 1), True)]
    with pytest.raises(DataError, match="3 rows are fewer than the minimum count of 5"):
        train_party(domain, np.zeros((3, 2)), tasks)
    with pytest.raises(DataError, match="column 'b' is missing in all rows"):
        train_party(domain, np.column_stack([np.arange(9.0), np.full(9, np.nan)]), tasks)
    values = np.column_stack([np.arange(9.0), np.zeros(9)])
    values[4, 1] = np.nan
    with pytest.raises(DataError, match="the class 'b' is missing in some rows"):
        train_party(domain, values, tasks, target=1)


class OneGaussian:
    """A learner whose circuits can be checked by hand."""

    def learn(self, domain, values, seed=0):
        from flwr_causal.core.circuits.circuit import Circuit

        leaves = [Gaussian(j, values[:, j].mean(), 1.0) for j in range(values.shape[1])]
        return Circuit(domain, leaves[0] if len(leaves) == 1 else Product(leaves))


def test_each_cluster_has_the_circuit_of_its_own_rows():
    values, group, _ = two_groups()
    values = np.column_stack([values[:, 0], np.full(60, np.nan), values])
    tasks = [TrainingTask((0,), False), TrainingTask(tuple(range(2, 10)), True)]
    trained = train_party(domain_of([0] * 10), values, tasks, num_clusters=2, learner=OneGaussian())
    assert trained.sizes == (1, 2)
    assert trained.rows == [[60], [30, 30]]
    assert [one.root.scope for one in trained.circuits] == [
        (0,),
        tuple(range(2, 10)),
        tuple(range(2, 10)),
    ]
    np.testing.assert_allclose(trained.circuits[0].root.mean, values[:, 0].mean())
    for k in range(2):
        own = values[trained.labels[:, 1] == k, 2]
        np.testing.assert_allclose(trained.circuits[1 + k].root.children[0].mean, own.mean())
    table = trained.class_rows(group, 2)
    assert table.shape == (2, 3)
    np.testing.assert_array_equal(table[:, 0], [30, 30])
    assert sorted(table[:, 1:].ravel()) == [0, 0, 30, 30]


def test_a_task_of_several_holders_is_a_mixture_over_classes():
    values, group, _ = two_groups()
    domain = domain_of([0, 0, 2])
    rows = np.column_stack([values[:, :2], group])
    trained = train_party(domain, rows, [TrainingTask((0, 1, 2), False)], target=2)
    (circuit,) = trained.circuits
    assert trained.rows == [[60]]
    np.testing.assert_array_equal(circuit.predict(rows, "c"), group)


def test_categories_and_missing_values_take_learn_spn():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.integers(0, 3, 200), rng.normal(size=200)]).astype(float)
    values[::7, 1] = np.nan
    domain = domain_of([3, 0])
    tasks = [TrainingTask((0, 1), True)]
    trained = train_party(domain, values, tasks, num_clusters=2)
    same = train_party(domain, values, tasks, num_clusters=2, learner=LearnSPN())
    np.testing.assert_allclose(
        log_densities(trained.circuits, values), log_densities(same.circuits, values)
    )


def cancer(seed=0):
    """Training and test rows over the scales of the former, the class last; its joint domain."""
    table = load_breast_cancer()
    order = np.random.default_rng(seed).permutation(569)
    data = table.data / table.data[order[:450]].std(axis=0)
    values = np.column_stack([data, table.target])[order]
    names = [Variable(f"x{j}") for j in range(30)]
    return values[:450], values[450:], Domain((*names, Variable("y", (0, 1))))


def federation(presence, train, test, domain, *, tied, target=True, learner=None):
    """What parties train, and what judges a composition of it on test rows."""
    trained = []
    for party, own in enumerate(tasks_of(presence, tied=tied)):
        values = np.where(presence[party], train, np.nan)
        holds = presence[party, 30]
        trained.append(
            train_party(
                domain, values, own, target=30 if holds and target else None, learner=learner
            )
        )

    def judged(composition):
        """Mean test log-likelihood with the class, and accuracy."""
        circuit = federated(composition, presence, [one.circuits for one in trained])
        accuracy = (circuit.predict(test, "y") == test[:, 30]).mean()
        return circuit.log_likelihood(test).mean(), accuracy

    return trained, judged


@pytest.mark.slow
def test_aligned_rows_tie_two_parties_with_different_columns():
    train, test, domain = cancer()
    presence = np.zeros((2, 31), dtype=bool)
    presence[0, ::2], presence[1, 1::2] = True, True
    trained, judged = federation(presence, train, test, domain, tied=True)
    factors = factors_of(presence, [one.rows for one in trained], tied=True)
    densities = [
        log_densities(one.circuits, np.where(presence[p], train, np.nan))
        for p, one in enumerate(trained)
    ]
    likelihood, accuracy = judged(by_aligned_rows(domain, factors, densities))
    untied = composed(domain, presence, [one.rows for one in trained])
    assert likelihood > judged(untied)[0] + 1.0
    assert accuracy > 0.92


def test_known_classes_tie_a_hybrid_without_aligned_rows():
    train, test, domain = cancer()
    presence = np.ones((2, 31), dtype=bool)
    presence[0, 9:20], presence[1, 20:30] = False, False
    trained, judged = federation(presence, train, test, domain, tied=True)
    factors = factors_of(presence, [one.rows for one in trained], tied=True)
    counts = [one.class_rows(train[:, 30].astype(int), 2) for one in trained]
    _, accuracy = judged(by_known_classes(domain, factors, counts))
    assert accuracy > 0.93


def test_a_number_without_a_value_in_a_cluster_is_there_as_in_all_rows():
    """Whoever has missing values in one column only may be a cluster of their own."""
    rng = np.random.default_rng(3)
    group = np.repeat([0.0, 9.0], 100)
    values = np.column_stack([group + rng.normal(size=200), group + 0.5 * rng.normal(size=200)])
    values = np.column_stack([values, np.where(group > 0, np.nan, rng.normal(size=200))])
    domain, tasks = domain_of([0, 0, 0]), [TrainingTask((0, 1, 2), True)]
    trained = train_party(domain, values, tasks, num_clusters=2, learner=LearnSPN())
    assert trained.rows == [[100, 100]]
    lacking = trained.circuits[trained.labels[-1, 0]]
    alone = LearnSPN().learn(domain_of([0]), values[:, 2:], 0)
    rows = np.column_stack([np.full((50, 2), np.nan), np.linspace(-3, 3, 50)])
    np.testing.assert_allclose(lacking.log_densities(rows), alone.log_densities(rows[:, 2:]))
    # The other columns are those of the cluster's own rows.
    rest = LearnSPN().learn(domain_of([0, 0]), values[100:, :2], 0)
    rows = np.column_stack([values[100:, :2], np.full(100, np.nan)])
    np.testing.assert_allclose(lacking.log_densities(rows), rest.log_densities(rows[:, :2]))
