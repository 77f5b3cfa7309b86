"""The choice between a head and the circuit, from sums over held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from circuit_cases import domain_of
from trainings_by_sums import walked

from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.core.circuits.learners.head import (
    PENALTY,
    ChoiceExchange,
    HeadChoice,
    head_sums,
    init_head,
)
from flwr_causal.core.circuits.learners.head import head_step as next_head
from flwr_causal.core.circuits.learners.training_by_sums import add
from flwr_causal.core.circuits.learners.trees.learner import ChowLiuMixture
from flwr_causal.core.circuits.model import HeadPosterior


def repeated(rng, n):
    """Numbers that say the same several times, of tails that no leaf has: a head pays."""
    kind = (rng.random(n) < 0.4).astype(float)
    own = 1.2 * kind + rng.standard_t(2.5, size=n)
    noisy = [own + 0.5 * rng.standard_t(2.5, size=n) for _ in range(5)]
    return np.column_stack([*noisy, kind]), (0,) * 5 + (2,)


def normal(rng, n):
    """Normal numbers whose spread is the class: no head over single columns can be better."""
    kind = (rng.random(n) < 0.5).astype(float)
    signs = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    numbers = rng.normal(size=(n, 4)) * np.where(kind[:, None] > 0, 0.3, 1.0) + 0.1 * signs
    return np.column_stack([numbers, kind]), (0,) * 4 + (2,)


def states(rng, n):
    """Categories that follow the class."""
    kind = rng.integers(2, size=n)
    columns = [np.where(rng.random(n) < 0.7, kind, rng.integers(2, size=n)) for _ in range(4)]
    return np.column_stack([*columns, kind]).astype(float), (2,) * 5


CASES = {
    "repeated": (repeated, ClassConditional, 300),
    "normal": (normal, ClassConditional, 60),
    "states": (states, ChowLiuMixture, 300),
}


def choosing(case, parts=1, **options):
    """Return the request of the choice, its sums over the parties, and what is trained."""
    make, kind, n = CASES[case]
    values, shape = make(np.random.default_rng(0), n)
    domain = domain_of(shape)
    learner = kind(target=domain.names[-1], **options)
    plan = learner.plan(domain)
    trained, seen = walked(learner.training(plan), plan, np.array_split(values, parts))
    chosen = [one for one in seen if issubclass(one[0].exchange, ChoiceExchange)]
    ((asked, replies),) = chosen
    return asked, add(replies), values, plan, trained


def units_of(features, classes, plan):
    """Units of the features, as the first exchange of a head makes them."""
    counts = np.bincount(classes, minlength=plan.num_classes).astype(float)
    start = init_head(counts, features.shape[2])
    return next_head(start, head_sums(features, classes, start.head)).units


@pytest.mark.parametrize("case", CASES)
def test_the_choice_is_that_of_heads_trained_without_each_fold(case):
    (exchange, asked), sums, values, plan, _ = choosing(case)
    kind = exchange.kind
    features, classes, folds = kind.of_rows(values, plan, asked)
    units = units_of(features, classes, plan)
    penalty = getattr(plan.learner, "head_penalty", PENALTY)
    counts = np.bincount(classes, minlength=plan.num_classes).astype(float)
    log_posterior = np.empty(features.shape[:2])
    for fold in range(kind.num_folds):
        others = folds != fold
        training = init_head(counts, features.shape[2], penalty, tolerance=1e-10, most_exchanges=99)
        training = replace(training, units=units)
        while not training.done:
            sums_of = head_sums(features[others], classes[others], training.head)
            training = next_head(training, sums_of)
        log_posterior[~others] = training.head.log_posterior(features[~others])
    index = np.arange(len(classes))
    circuit = exchange.circuit_log_posterior(values, plan, asked, features)
    losses = [-one[index, classes].sum() for one in (circuit, log_posterior)]
    np.testing.assert_allclose(sums["losses"], losses, rtol=0.05)
    wrong = [one.argmax(axis=1) != classes for one in (circuit, log_posterior)]
    errors = [[(~wrong[0] & ~wrong[1]).sum(), (~wrong[0] & wrong[1]).sum()]]
    errors.append([(wrong[0] & ~wrong[1]).sum(), (wrong[0] & wrong[1]).sum()])
    assert np.abs(sums["errors"] - errors).sum() <= 0.02 * len(values)
    brute = HeadChoice.of(np.array(errors, dtype=float), np.array(losses))
    assert HeadChoice.of(sums["errors"], sums["losses"]).pays == brute.pays
    assert brute.pays == (case == "repeated")


@pytest.mark.parametrize("case", ["repeated", "normal"])
def test_sums_of_parties_are_those_of_the_pooled_rows(case):
    """The folds of trees are drawn at each party."""
    pooled, shared = choosing(case)[1], choosing(case, parts=4)[1]
    np.testing.assert_array_equal(shared["errors"], pooled["errors"])
    np.testing.assert_allclose(shared["losses"], pooled["losses"], rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_density_is_that_without_a_head_and_posteriors_sum_to_one(case):
    _, _, values, _, trained = choosing(case)
    domain = domain_of(CASES[case][0](np.random.default_rng(0), 2)[1])
    model = trained.model(domain)
    assert isinstance(model.posterior, HeadPosterior) == (case == "repeated")
    _, kind, _ = CASES[case]
    plain = kind(target=domain.names[-1], head=False).learn_model(domain, values)
    np.testing.assert_array_equal(model.log_likelihood(values), plain.log_likelihood(values))
    np.testing.assert_allclose(model.predict_proba(values).sum(axis=1), 1.0)
    forced = kind(target=domain.names[-1], head=True).learn_model(domain, values)
    same = forced if case == "repeated" else plain
    np.testing.assert_array_equal(model.predict_proba(values), same.predict_proba(values))


@pytest.mark.parametrize(
    ("errors", "losses", "pays"),
    [
        ([[90, 2], [8, 0]], [30.0, 40.0], False),  # 8 and 2 errors: not clear, the loss decides
        ([[90, 0], [10, 0]], [30.0, 40.0], True),  # 10 and 0 errors: clear
        ([[90, 10], [0, 0]], [40.0, 30.0], False),
        ([[100, 0], [0, 0]], [2.0, 1.0], True),
        ([[0, 0], [0, 0]], [0.0, 0.0], False),
    ],
)
def test_errors_decide_where_they_are_clear_else_the_log_loss(errors, losses, pays):
    choice = HeadChoice.of(np.array(errors, dtype=float), np.array(losses))
    assert choice.pays == pays
    assert choice.circuit_errors == sum(errors[1])
    assert choice.head_errors == errors[0][1] + errors[1][1]


def test_losses_that_the_errors_contradict_are_refused():
    (exchange, asked), sums, values, plan, _ = choosing("repeated")
    rows = len(values)
    assert exchange.contradiction(sums, plan, asked, rows) == ""
    few = sums | {"losses": np.array([sums["losses"][0], 0.1])}
    assert "smaller than its errors" in exchange.contradiction(few, plan, asked, rows)
    more = sums | {"errors": sums["errors"] + 1}
    assert "reported" in exchange.contradiction(more, plan, asked, rows)


def test_derivatives_by_fold_add_up_to_those_of_all_rows():
    (exchange, asked), _, values, plan, trained = choosing("repeated")
    kind, head = exchange.kind, trained.head
    features, classes, folds = kind.of_rows(values, plan, asked)
    whole = head_sums(features, classes, head)
    parts = head_sums(features, classes, head, folds, kind.num_folds)
    for name in ("loss", "gradient", "hessian"):
        np.testing.assert_allclose(parts[name].sum(axis=0), whole[name][0], atol=1e-8)
        own = head_sums(features[folds == 2], classes[folds == 2], head)
        np.testing.assert_allclose(parts[name][2], own[name][0], atol=1e-8)


def test_a_party_without_rows_sends_zeros():
    (exchange, asked), _, values, plan, _ = choosing("states")
    sums = exchange.sums(values[:0], plan, asked)
    assert not any(array.any() for array in sums.values())
