"""Latent classes of clusters: EM on labels and on log densities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.circuits.composed.tied_clusters import (
    LatentClasses,
    choose_num_classes,
    class_candidates,
    distinct,
    fit_latent_classes,
)
from flwr_causal.errors import ConfigError, DataError


def histogram(model):
    """The joint probabilities of the clusters of two groups."""
    return np.einsum("r,ra,rb->ab", model.weights, *model.tables)


def certain(labels, size):
    """Log densities of rows whose cluster is certain: 0 there, minus infinity elsewhere."""
    with np.errstate(divide="ignore"):
        return np.log(np.eye(size))[labels]


def labels_of(table):
    """Rows of labels with the counts of a table (A, B), as evidence."""
    a, b = np.indices(table.shape)
    labels = np.repeat(np.stack([a.ravel(), b.ravel()], axis=1), table.ravel(), axis=0)
    return [certain(labels[:, g], table.shape[g]) for g in range(2)]


@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([0.0, 0.5, 4.0]))
def test_em_never_lowers_what_it_raises(seed, num_classes, smoothing):
    rng = np.random.default_rng(seed)
    evidence = [rng.normal(scale=3.0, size=(40, size)) for size in (2, 4, 3)]
    model = fit_latent_classes(
        evidence, num_classes, smoothing=smoothing, restarts=1, max_steps=40, seed=seed
    )
    assert (np.diff(model.history) > -1e-9 * np.abs(model.history[0])).all()
    assert len(model.history) > 1
    if smoothing == 0:
        np.testing.assert_allclose(model.history[-1], model.log_likelihood(evidence).sum())


def test_a_joint_histogram_of_low_rank_is_recovered():
    weights, left, right = [0.5, 0.3, 0.2], np.eye(3) * 0.7 + 0.1, np.eye(3)[[1, 2, 0]] * 0.4 + 0.2
    truth = np.einsum("r,ra,rb->ab", weights, left, right)
    counts = np.round(1000 * truth).astype(int)
    evidence, cells = distinct(labels_of(counts))
    model = fit_latent_classes(evidence, 3, counts=cells, smoothing=0.0, max_steps=2000)
    np.testing.assert_allclose(histogram(model), counts / counts.sum(), atol=1e-3)


def test_equal_labels_of_two_parties_make_one_class_each():
    table = np.diag([160, 290])
    model = fit_latent_classes(labels_of(table), 2, smoothing=0.0)
    np.testing.assert_allclose(histogram(model), table / 450, atol=1e-6)


def test_cells_with_counts_are_the_rows_themselves():
    evidence = labels_of(np.array([[5, 1], [2, 7]]))
    cells, counts = distinct(evidence)
    assert counts.sum() == 15
    assert len(counts) == 4
    both = [
        fit_latent_classes(evidence, 2, seed=3),
        fit_latent_classes(cells, 2, counts=counts, seed=3),
    ]
    np.testing.assert_allclose(histogram(both[0]), histogram(both[1]), atol=1e-9)


def test_densities_that_are_certain_are_labels():
    labels = np.random.default_rng(0).integers(0, 2, 200)
    labels = np.stack([labels, labels], axis=1)
    sharp = [np.where(np.eye(2)[labels[:, g]] > 0, -3.0, -300.0) for g in range(2)]
    known = [certain(labels[:, g], 2) for g in range(2)]
    np.testing.assert_allclose(
        histogram(fit_latent_classes(sharp, 2)),
        histogram(fit_latent_classes(known, 2)),
        atol=1e-9,
    )


def test_the_log_likelihood_is_that_of_the_mixture():
    model = LatentClasses(np.array([0.3, 0.7]), (np.array([[0.2, 0.8], [0.5, 0.5]]), np.eye(2)))
    a, b = np.array([[-1.0, -2.0]]), np.array([[0.5, -4.0]])
    expected = 0.3 * (0.2 * np.exp(-1) + 0.8 * np.exp(-2)) * np.exp(0.5)
    expected += 0.7 * (0.5 * np.exp(-1) + 0.5 * np.exp(-2)) * np.exp(-4)
    np.testing.assert_allclose(model.log_likelihood([a, b]), np.log([expected]))


def test_smoothing_leaves_no_combination_impossible():
    model = fit_latent_classes(labels_of(np.diag([30, 20])), 2)
    assert histogram(model).min() > 0


def test_held_out_rows_ask_for_one_class_where_groups_are_independent_and_more_where_not():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, (600, 2))
    independent = [certain(labels[:, g], 3) for g in range(2)]
    assert choose_num_classes(independent, (1, 3)) == 1
    labels[:, 1] = labels[:, 0]
    same = [certain(labels[:, g], 3) for g in range(2)]
    assert choose_num_classes(same, (1, 3)) == 3


def test_candidates_end_with_twice_the_largest_size():
    assert class_candidates((2, 3)) == (1, 2, 4, 6)
    assert class_candidates((4,)) == (1, 2, 4, 8)


def test_problems_name_the_row_and_the_remedy():
    possible = np.zeros((3, 2))
    impossible = np.array([[0.0, 0.0], [-np.inf, -np.inf], [0.0, 0.0]])
    with pytest.raises(DataError, match="row 1 is impossible in all clusters of group 1"):
        fit_latent_classes([possible, impossible], 2)
    with pytest.raises(DataError, match=r"no aligned rows.*by counts"):
        fit_latent_classes([np.zeros((0, 2))], 2)
    with pytest.raises(DataError, match="group 1 has 2 rows, the first one 3"):
        fit_latent_classes([possible, possible[:2]], 2)
    with pytest.raises(ConfigError, match="at least 1 class"):
        fit_latent_classes([possible], 0)
