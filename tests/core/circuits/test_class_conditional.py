"""Class-conditional circuits: the pooled rows' whoever holds them, and what the edge cases do."""

from dataclasses import replace

import numpy as np
import pytest
from class_conditional_cases import PLAIN, QUICK, domain_of, exchanged, values_of
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import f1_score
from trainings_by_sums import reached

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.exchanges import LeafMoments
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.core.circuits.learners.class_conditional.rows import SMOOTHING
from flwr_causal.core.circuits.learners.training_by_sums import row_folds
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import ConfigError, DataError

ALL = replace(QUICK, head=True, decision="macro-f1")


@pytest.fixture(autouse=True)
def _arrays_hold_values(monkeypatch):
    """Arrays hold values here, as circuits take them, not rows as users give them to a model."""
    monkeypatch.setattr(CircuitModel, "_frame", lambda self, data, unread="": data)


def trained(parties, domain, learner=QUICK, **settings):
    plan = learner.plan(domain, **settings)
    state, steps = exchanged(learner, parties, plan)
    return state.model(domain), steps


def train(parties, domain, learner=QUICK):
    return learner.train(parties, learner.plan(domain))


def assert_same(one, other, data, atol=1e-9):
    np.testing.assert_allclose(one.log_likelihood(data), other.log_likelihood(data), atol=atol)
    np.testing.assert_allclose(one.predict_proba(data), other.predict_proba(data), atol=atol)
    assert one.threshold == other.threshold


def splits(values):
    order = np.random.default_rng(1).permutation(len(values))
    return {
        "seven": np.array_split(values, 7),
        "shuffled": np.array_split(values[order], 3),
        "by class": [values[values[:, -1] == c] for c in (0, 1)],
        "lonely": [values[:1], values[1:2], values[2:]],
        "empty": [values[:0], values],
    }


@pytest.mark.few(4)
@pytest.mark.parametrize("way", ["seven", "shuffled", "by class", "lonely", "empty"])
@pytest.mark.parametrize("options", [QUICK, ALL], ids=["blocks", "head"])
def test_who_holds_which_rows_does_not_matter(way, options):
    domain, values, test = domain_of(), values_of(), values_of(seed=9)
    parties = splits(values)[way]
    one, phases = trained([values], domain, options)
    assert_same(one, trained(parties, domain, options)[0], test)
    assert_same(one, trained(parties[::-1], domain, options)[0], test)
    assert phases[:4] == ["scale", "powers", "moments", "held-out"]
    assert set(phases[4:]) == ({"head", "threshold"} if options is ALL else set())


def test_the_learner_is_the_training_of_one_party():
    domain, values = domain_of(), values_of()
    model = ALL.learn_model(domain, values, seed=3)
    assert_same(model, trained([values], domain, ALL, seed=3)[0], values)
    np.testing.assert_array_equal(
        ALL.learn(domain, values, seed=3).log_likelihood(values), model.log_likelihood(values)
    )


def test_plain_options_are_the_closed_form():
    """A Gaussian for each class, with one row's share of the pooled covariance."""
    domain, values = domain_of(with_category=False), values_of(with_category=False)
    model, phases = trained([values], domain, PLAIN)
    assert phases == ["scale", "moments"]
    numbers, classes = values[:, :3], values[:, 3].astype(int)
    groups = [numbers[classes == c] for c in (0, 1)]
    scatters = [np.cov(x.T, bias=True) * len(x) for x in groups]
    pooled = sum(scatters) / len(values)
    expected = np.zeros(len(values))
    for c, (own, scatter) in enumerate(zip(groups, scatters, strict=True)):
        covariance = (scatter + pooled) / (len(own) + 1) + 1e-6 * np.diag(numbers.var(axis=0))
        density = multivariate_normal.logpdf(numbers, own.mean(axis=0), covariance)
        expected[classes == c] = (density + np.log(len(own) / len(values)))[classes == c]
    np.testing.assert_allclose(model.log_likelihood(values), expected, atol=1e-9)


def test_categories_are_counts_given_the_class():
    domain, values = domain_of(), values_of()
    model = trained([values], domain)[0]
    everyone = np.bincount(values[:, 3].astype(int), minlength=3) + SMOOTHING / 3
    for c, label in enumerate("AB"):
        own = values[values[:, -1] == c]
        counts = np.bincount(own[:, 3].astype(int), minlength=3)
        counts = counts + SMOOTHING * everyone / everyone.sum()
        given = model.density.conditional({"kind": label, "p": 21.0, "r": 0.1})
        found = given.predict_proba(values[:1], "site")[0]
        np.testing.assert_allclose(found, counts / counts.sum(), atol=1e-12)


@pytest.mark.parametrize("options", [QUICK, ALL], ids=["blocks", "head"])
def test_a_category_tells_the_class(options):
    domain, values = domain_of(), values_of()
    values[:, 3] = values[:, -1]
    values[:, :3] = np.random.default_rng(0).normal(size=(len(values), 3))
    model = trained([values], domain, options)[0]
    assert (model.predict(values) == np.array(["A", "B"])[values[:, -1].astype(int)]).all()


def test_without_a_target():
    domain, values = domain_of(with_category=False), values_of(with_category=False)
    only = Domain(domain.variables[:3])
    model, _ = trained(np.array_split(values[:, :3], 2), only, replace(ALL, target=None))
    assert np.isfinite(model.log_likelihood(values[:, :3])).all()
    with pytest.raises(ConfigError, match="without a target"):
        model.predict(values[:, :3])


def test_missing_values_in_queries_are_marginalised():
    domain, values = domain_of(), values_of()
    for options in (QUICK, ALL):
        model = trained([values], domain, options)[0]
        frame = domain.decode(values)
        holes = values.copy()
        holes[:, [1, 3]] = np.nan
        shorter = frame[["p", "r"]]
        np.testing.assert_allclose(model.predict_proba(holes), model.predict_proba(shorter))
        assert set(model.predict(shorter)) <= {"A", "B"}
        nothing = model.predict_proba(frame[["kind"]].iloc[:1])[0]
        assert nothing.sum() == pytest.approx(1.0)
    blocks = trained([values], domain)[0].predict_proba(frame[["kind"]].iloc[:1])[0]
    np.testing.assert_allclose(blocks, np.bincount(values[:, -1].astype(int)) / len(values))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [(0, np.nan, "columns p"), (2, np.inf, "columns r"), (3, np.nan, "category is missing"),
     (4, np.nan, "target is missing"), (4, 7.0, "none of its states")],
)  # fmt: skip
def test_rows_have_to_be_complete(column, value, words):
    values = values_of()
    values[3, column] = value
    with pytest.raises(DataError, match=words):
        train([values], domain_of())


def test_a_class_of_which_nobody_has_a_row():
    domain, values = domain_of(num_classes=3), values_of()
    for options in (QUICK, replace(QUICK, head=True)):
        model = trained([values[:40], values[40:]], domain, options)[0]
        assert (model.predict_proba(values)[:, 2] == 0).all()
        other = values.copy()
        other[:, -1] = 2
        assert np.isneginf(model.log_likelihood(other)).all()


def test_a_class_of_one_row():
    domain, values = domain_of(num_classes=3), values_of()
    lonely = np.concatenate((values, [[20.0, 9.0, 0.5, 2, 2]]))
    model = trained([lonely[:-1], lonely[-1:]], domain)[0]
    assert np.isfinite(model.log_likelihood(lonely)).all()
    assert model.predict(lonely)[-1] == "C"
    assert (model.predict(values) != "C").mean() > 0.95


@pytest.mark.parametrize("rows", [[], [0], [0, 1]])
def test_too_few_rows(rows):
    domain = domain_of()
    values = np.array([[1.0, 2.0, 0.3, 0, 0], [2.0, 2.5, 0.1, 1, 1]])[rows]
    with pytest.raises(DataError, match=r"rows that count|no class has two rows"):
        train([values.reshape(-1, 5)], domain)


@pytest.mark.parametrize("level", [0.0, 0.1, -1e7])
def test_constant_columns(level):
    values = values_of()
    values[:, 1] = level
    with pytest.raises(DataError, match=r"constant.* beside their mean: q;"):
        train(np.array_split(values, 3), domain_of())


def test_a_column_that_is_constant_within_a_class():
    domain, values = domain_of(), values_of()
    values[values[:, -1] == 1, 1] = 2.5
    model = trained([values], domain)[0]
    assert np.isfinite(model.log_likelihood(values)).all()
    assert (model.predict(values) == np.array(["A", "B"])[values[:, -1].astype(int)]).mean() > 0.95


def test_columns_far_from_zero_keep_their_digits():
    domain, values = domain_of(), values_of()
    plain = replace(QUICK, powers=(1.0,))
    far = values + np.array([1e7, -1e6, 0, 0, 0])
    here = trained([values], domain, plain)[0]
    there, phases = trained(np.array_split(far, 3), domain, plain)
    assert phases == ["scale", "scale", "moments", "held-out"]
    np.testing.assert_allclose(here.log_likelihood(values), there.log_likelihood(far), atol=1e-5)


def test_units_matter_by_their_jacobian_only():
    domain, values = domain_of(), values_of()
    units = np.array([1e-6, 1e4, 3.0, 1, 1])
    options = replace(PLAIN, powers=QUICK.powers)  # what folds choose depends on the values' bits
    one, other = (trained([x], domain, options)[0] for x in (values, values * units))
    np.testing.assert_allclose(
        one.log_likelihood(values),
        other.log_likelihood(values * units) + np.log(units).sum(),
        atol=1e-6,
    )
    np.testing.assert_allclose(one.predict_proba(values), other.predict_proba(values * units))


@pytest.mark.parametrize("min_rows", [2, 4, 9])
def test_no_sum_of_few_rows_leaves_a_party(min_rows):
    domain, values = domain_of(), values_of()
    parties = np.split(values, [12, 20, 24, 25])
    plan = QUICK.plan(domain, min_rows=min_rows)
    asked = reached(QUICK.training(plan), plan, [values], LeafMoments)
    for own in parties:
        counts = LeafMoments.sums(own, plan, asked.arrays)["counts"][0]
        assert ((counts == 0) | (counts >= min_rows)).all()
        classes = np.bincount(own[:, -1].astype(int), minlength=2)
        np.testing.assert_array_equal(counts.sum(axis=0), np.where(classes >= min_rows, classes, 0))


def test_classes_of_few_rows_are_left_out():
    """The circuit is that of the rows that count."""
    domain, values = domain_of(), values_of()
    lonely = [values[:2], values[2:]]
    model, _ = trained(lonely, domain, min_rows=3)
    assert_same(model, trained([values[2:]], domain)[0], values)


def test_folds_are_a_hash_of_the_row():
    values = values_of(n=2000)
    folds = row_folds(values, 5, 0)
    order = np.random.default_rng(0).permutation(2000)
    np.testing.assert_array_equal(row_folds(values[order], 5, 0), folds[order])
    assert np.bincount(folds, minlength=5).min() > 330
    assert (row_folds(values, 5, 1) != folds).mean() > 0.7
    zero = values * [1, 1, 1, 0, 1]
    minus = np.where(zero == 0, -zero, zero)
    assert np.signbit(minus[:, 3]).all()
    np.testing.assert_array_equal(row_folds(zero, 5, 0), row_folds(minus, 5, 0))


def test_a_rare_class_is_found_by_a_threshold():
    """Macro F1 of new rows: .719 at .5, .747 at the threshold of .314 when measured."""
    domain = domain_of()
    everything = values_of(n=12000, seed=4)
    rare = (everything[:, -1] == 0) | (np.arange(12000) % 8 == 0)
    rows, test = np.array_split(everything[rare], 2)
    model = trained(np.array_split(rows, 3), domain, ALL)[0]
    assert model.threshold is not None
    assert model.threshold < 0.5
    truth = np.array(["A", "B"])[test[:, -1].astype(int)]
    without, with_it = (
        f1_score(truth, model.predict(test, threshold=limit), average="macro")
        for limit in (0.5, None)
    )
    assert with_it > without + 0.01


def test_a_model_with_a_head_survives_a_file(tmp_path):
    domain, values = domain_of(), values_of()
    model = trained([values], domain, ALL)[0]
    model.save(tmp_path / "model.json")
    again = CircuitModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict_proba(values), model.predict_proba(values))
    assert again.threshold == model.threshold
    (tmp_path / "model" / "posterior" / "head.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="does not hold a head"):
        CircuitModel.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"powers": ()}, "powers needs"),
        ({"dof": (2.0,)}, "above 2"),
        ({"pooled": (1.5,)}, "from 0 to 1"),
        ({"cuts": (np.nan,)}, "cuts needs"),
    ],
)
def test_impossible_options(settings, words):
    with pytest.raises(ConfigError, match=words):
        ClassConditional(**settings)


def test_plans_that_do_not_fit():
    domain = domain_of(num_classes=3)
    with pytest.raises(ConfigError, match="holds numbers"):
        ClassConditional(target="p").plan(domain)
    with pytest.raises(ConfigError, match="needs a number"):
        ClassConditional(target="a").plan(Domain((Variable("a", (0, 1)), Variable("b", (0, 1)))))
    with pytest.raises(ConfigError, match="min_rows = 0"):
        QUICK.plan(domain, min_rows=0)
    model = trained([values_of()], domain_of(), ALL)[0]
    with pytest.raises(ConfigError, match="the head predicts 'kind', not 'site'"):
        model.posterior.predict_proba(values_of(), "site")


@pytest.mark.slow
def test_breast_cancer():
    """Seeds 0-2, all 30 columns: 6.53 nats, blocks .966, head .972 when measured."""
    frame = load_breast_cancer(as_frame=True).frame
    domain = Domain.from_frame(frame, categorical=["target"])
    values = domain.encode(frame)
    learner = ClassConditional(target="target", head=True)
    found = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(values))
        rows, test = values[order[:450]], values[order[450:]]
        state = train(np.array_split(rows, 5), domain, learner)
        model = state.model(domain)
        blocks = replace(state, head=None).model(domain)
        nats = model.log_likelihood(test).mean() + np.log(rows[:, :30].std(axis=0)).sum()
        truth = test[:, 30]
        hits = [(one.predict(test) == truth).mean() for one in (blocks, model)]
        found.append([nats, *hits])
    nats, blocks, head = np.mean(found, axis=0)
    assert nats > 5.5
    assert blocks >= 0.955
    assert head >= 0.96
