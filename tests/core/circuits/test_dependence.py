"""Dependence between columns of different parties, from random projections."""

import numpy as np
import pytest

from flwr_causal.core.circuits.composed.dependence import (
    DRAWS,
    Projections,
    measured,
    polynomials,
    projected,
    score_columns,
    scores_of,
    with_dependence,
)
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.errors import DataError

NUMBERS = Domain(tuple(Variable(name) for name in "abcd"))
TWO = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)


def projections(domain, presence, values, classes=None, num_classes=1, seed=0, **options):
    """Each party's projections of the columns that it holds."""
    draws = np.random.default_rng(seed).standard_normal((len(values), DRAWS))
    classes = np.zeros(len(values), dtype=np.int64) if classes is None else classes
    result = []
    for held in presence:
        own = Domain(tuple(v for v, there in zip(domain.variables, held, strict=True) if there))
        scores = scores_of(own, values[:, held], classes, None)
        chunks = [draws[:100], draws[100:]]
        result.append(projected(scores, classes, num_classes, chunks, **options))
    return result


def found(values, domain=NUMBERS, presence=TWO, classes=None, num_classes=1):
    given = projections(domain, presence, values, classes, num_classes)
    return measured(domain, presence, None, given)


def linear(n=1000, correlation=0.9, seed=0):
    """Columns of which a and c alone depend on each other."""
    rows = np.random.default_rng(seed).standard_normal((n, 4))
    rows[:, 2] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 2]
    return rows


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("correlation", [0.5, 0.9, -0.98])
def test_the_mutual_information_of_normal_columns(correlation):
    shown = found(linear(4000, correlation))
    np.testing.assert_allclose(shown.nats, -0.5 * np.log(1 - correlation**2), rtol=0.15)
    assert shown.strongest[:2] == (0, 2)
    assert abs(shown.strongest.correlation - correlation) < 0.05
    assert shown.notable
    assert not shown.nonlinear


def test_of_independent_columns_nothing_is_left():
    for seed in range(5):
        shown = found(np.random.default_rng(seed).standard_normal((300, 4)))
        np.testing.assert_allclose(shown.coherence[0], np.eye(4), atol=1e-8)
        assert not shown.notable
        assert not shown.nonlinear


def test_units_and_monotone_changes_of_a_column_do_not_matter():
    rows = linear()
    changed = rows.copy()
    changed[:, 0] = 1e6 + 1e3 * np.exp(rows[:, 0])
    np.testing.assert_allclose(found(rows).coherence, found(changed).coherence, atol=1e-12)


def test_a_parabola_is_nonlinear():
    rows = np.random.default_rng(1).standard_normal((800, 4))
    rows[:, 3] = rows[:, 1] ** 2 + 0.3 * rows[:, 3]
    shown = found(rows)
    assert shown.nonlinear
    assert shown.mostly_nonlinear
    assert shown.strongest_nonlinear[:2] == (1, 3)
    assert shown.nats < 0.05


def test_columns_of_two_values_are_never_nonlinear():
    rng = np.random.default_rng(2)
    first = (rng.random(600) < 0.1).astype(float)
    same = np.where(rng.random(600) < 0.95, first, 1 - first)
    values = np.column_stack([first, rng.standard_normal(600), same, same + 1])
    assert (
        np.abs(polynomials(scores_of(NUMBERS, values, np.zeros(600, int), None))[:, :, 0]).max()
        == 0
    )
    shown = found(values)
    assert shown.notable
    assert not shown.nonlinear


def test_categories_have_an_indicator_for_each_state_but_one():
    domain = Domain((Variable("g", ("u", "v", "w")), Variable("x")))
    rng = np.random.default_rng(3)
    group = rng.integers(3, size=900)
    values = np.column_stack([group, (group == 1) + 0.3 * rng.standard_normal(900)])
    assert score_columns(domain, None).tolist() == [0, 0, 1]
    assert score_columns(domain, "g").tolist() == [1]
    presence = np.array([[1, 0], [0, 1]], dtype=bool)
    shown = found(values, domain, presence)
    assert shown.strongest[:2] == (0, 1)
    assert shown.strongest.correlation > 0.7


def test_dependence_is_that_within_classes():
    rng = np.random.default_rng(4)
    classes = rng.integers(2, size=1000)
    shifted = rng.standard_normal((1000, 4)) + 4 * classes[:, None]
    assert found(shifted).notable
    within = found(shifted, classes=classes, num_classes=2)
    assert not within.notable
    # Opposite in the classes: each has coherence of its own.
    rows = np.where(classes[:, None] == 0, linear(1000, 0.9), linear(1000, -0.9))
    coherence = found(rows, classes=classes, num_classes=2).coherence
    assert coherence[0][0, 2] > 0.7
    assert coherence[1][0, 2] < -0.7


def test_what_follows_from_a_shared_column_is_no_coherence():
    """a and b depend on each other through s, which both parties hold, or beyond it."""
    domain = Domain((Variable("a"), Variable("s"), Variable("b")))
    presence = np.array([[1, 1, 0], [0, 1, 1]], dtype=bool)
    rng = np.random.default_rng(5)
    s, noise = rng.standard_normal(2000), rng.standard_normal((2000, 3))
    a = s + 0.5 * noise[:, 0]
    through = np.column_stack([a, s, s + 0.5 * noise[:, 1]])
    assert not found(through, domain, presence).notable
    beyond = np.column_stack([a, s, s + 0.5 * noise[:, 0] + 0.2 * noise[:, 2]])
    assert found(beyond, domain, presence).nats > 0.5


SHARED = np.array([[1, 1, 0, 1], [0, 0, 1, 1]], dtype=bool)


@pytest.mark.parametrize("presence", [TWO, SHARED], ids=["vertical", "a column at both"])
def test_the_coherence_joins_the_covariances_of_the_parties(presence):
    rng = np.random.default_rng(6)
    mixing = rng.standard_normal((4, 4))
    rows = rng.standard_normal((4000, 4)) @ mixing
    learner = ClassConditional(powers=(1.0,), diagonals=(0.0,), dof=(np.inf,))
    plan = learner.plan(NUMBERS)
    parties = [np.where(held, rows, np.nan) for held in presence]
    apart = learner.train(parties, plan, presence)
    joined = with_dependence(apart, found(rows, presence=presence))
    before, after = (one.moments.covariances[0] for one in (apart, joined))
    for held in presence:
        block = np.ix_(held, held)
        np.testing.assert_allclose(after[block], before[block], atol=1e-7)
    expected = np.corrcoef(rows.T)
    np.testing.assert_allclose(after, expected, atol=0.05)
    assert np.abs(before - expected).max() > 0.1
    assert np.linalg.eigvalsh(after).min() > 0


def test_copies_of_a_column_leave_a_covariance_positive_definite():
    rows = linear()
    rows[:, 2] = rows[:, 0]
    shown = found(rows)
    assert np.linalg.eigvalsh(shown.coherence[0]).min() > 1e-6
    assert np.isfinite(shown.nats)


def test_few_common_rows_tell_nothing():
    for n in (1, 2, 5):
        shown = found(linear(n))
        assert not shown.enough
        assert not shown.notable
        assert not shown.nonlinear
    assert found(linear(50)).enough


def test_small_classes_are_left_out():
    classes = np.array([0] * 299 + [1])
    one, _ = projections(NUMBERS, TWO, linear(300), classes, 2, min_rows=2)
    assert one.counts.tolist() == [299, 0]
    assert not one.linear[1].any()
    assert one.linear[0].any()


@pytest.mark.parametrize("change", ["scores", "rows"])
def test_projections_of_other_columns_or_rows_are_refused(change):
    one, other = projections(NUMBERS, TWO, linear(200))
    if change == "scores":
        other = Projections(other.counts, other.linear[..., :1], other.nonlinear)
    else:
        other = other._replace(counts=other.counts + 1)
    with pytest.raises(DataError, match="party 1 has projected"):
        measured(NUMBERS, TWO, None, [one, other])
