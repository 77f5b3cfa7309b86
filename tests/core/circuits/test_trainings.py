"""Every training by sums: what parties send, what comes out, and whoever holds which rows."""

import numpy as np
import pytest
from circuit_cases import domain_of

from flwr_causal.core.circuits import trainings
from flwr_causal.core.circuits.exchanges import add
from flwr_causal.core.circuits.head_posterior import HeadPosterior
from flwr_causal.core.circuits.learners import learner_of
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.settings import Settings, image_shape
from flwr_causal.errors import ConfigError

SMALL = {"depth": 2, "replicas": 2, "sums": 3, "epochs": 8, "batches": 2}
NUMBERS, STATES, MIXED = (0, 0, 0, 2), (2, 3, 2, 3, 2), (0, 2, 0, 0, 2)
TOLD = {"head": True, "threshold": True}
CASES = {
    "class-first": ("class-first", MIXED, Settings(**TOLD)),
    "class-first without a class": ("class-first", NUMBERS, Settings()),
    "class-first, columns differ": ("class-first-pattern", MIXED, Settings()),
    "trees": ("trees", STATES, Settings(components=2)),
    "trees with a threshold": ("trees", STATES, Settings(components=2, threshold=True)),
    "trees with a head": ("trees", STATES, Settings(components=2, **TOLD)),
    "trees without a class": ("trees", STATES, Settings(components=2, **TOLD)),
    "einsum": ("einsum", MIXED, Settings(**SMALL)),
    "einsum of states": ("einsum", STATES, Settings(**SMALL)),
    "einsum of numbers": ("einsum", (0, 0, 0, 0), Settings(**SMALL)),
}


def rows_of(rng, states, n, follows=0.6):
    """Rows in which each column follows the class, the last one."""
    kind = (rng.random(n) < 0.4).astype(float)
    columns = [
        np.where(rng.random(n) < follows, kind, rng.integers(count, size=n))
        if count
        else kind + rng.normal(size=n) ** 2
        for count in states[:-1]
    ]
    return np.column_stack([*columns, kind if states[-1] else kind + rng.normal(size=n)])


def exchanged(name, parties, states, settings, target, min_rows=1):
    """Train, checking that what parties send is declared and finite; return phases too."""
    kind, domain = trainings.find(name), domain_of(states)
    plan = kind.plan_for(domain, target, 0, min_rows, settings)
    state = kind.init(plan, np.stack([~np.isnan(one).all(axis=0) for one in parties]), settings)
    phases = []
    while (asked := kind.request(state)) is not None:
        replies = [kind.sums(values, plan, asked) for values in parties]
        declared = kind.discloses[asked.phase]
        for arrays in (asked.arrays, *replies):
            for array in arrays.values():
                assert array.dtype == np.float64
                assert np.isfinite(array).all()
        for reply in replies:
            assert {key for key in declared if not key.startswith("layer.")} <= set(reply)
            for key, array in reply.items():
                assert array.ndim == declared[key][1], key
        phases.append(asked.phase)
        state = kind.step(state, add(replies))
    return kind.fitted(state, domain), phases


@pytest.mark.parametrize("case", CASES)
def test_what_is_sent_is_declared_and_finite_and_the_model_survives_saving(case, tmp_path):
    name, states, settings = CASES[case]
    pytest.importorskip("torch" if name == "einsum" else "numpy")
    target = None if "without" in case or not states[-1] else domain_of(states).names[-1]
    values = rows_of(np.random.default_rng(0), states, 240)
    parties = [values[:100], values[100:]]
    if name == "class-first-pattern":
        parties = [np.where(np.arange(len(states)) == 0, np.nan, parties[0]), parties[1]]
    model, phases = exchanged(name, parties, states, settings, target)
    own = trainings.find(name).discloses
    assert set(phases) <= set(own)
    if case == "trees with a head":
        assert set(phases) == set(own) - {"odds"}
    if case == "trees with a threshold":
        assert phases[-1] == "odds"
    assert (model.threshold is not None) == (settings.threshold and target is not None)
    assert isinstance(model.posterior, HeadPosterior) == (settings.head and target is not None)
    model.save(tmp_path / "circuit.json")
    again = CircuitModel.load(tmp_path / "circuit.json")
    np.testing.assert_allclose(again.log_likelihood(values), model.log_likelihood(values))
    assert np.isfinite(model.log_likelihood(values)).all()
    if target is not None:
        np.testing.assert_allclose(again.predict_proba(values), model.predict_proba(values))
        np.testing.assert_array_equal(again.predict(values), model.predict(values))
        assert (model.predict(values) == values[:, -1]).mean() > 0.7


@pytest.mark.parametrize(
    "case", [one for one in CASES if "differ" not in one and one != "trees with a head"]
)
def test_it_makes_no_difference_how_rows_are_split(case):
    """But to the head of trees, whose folds are drawn at each party: see test_tree_head."""
    name, states, settings = CASES[case]
    pytest.importorskip("torch" if name == "einsum" else "numpy")
    target = None if "without" in case or not states[-1] else domain_of(states).names[-1]
    values = rows_of(np.random.default_rng(1), states, 200)
    ordered = values[np.argsort(values[:, -1], kind="stable")]
    pooled = trainings.trained(name, domain_of(states), values, target, settings=settings)
    parties = [ordered[:1], ordered[1:90], ordered[90:]]
    model, _ = exchanged(name, parties, states, settings, target)
    tolerance = 2e-3 if name == "einsum" else 1e-9  # float32
    found, expected = (one.log_likelihood(values) for one in (model, pooled))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if target is not None:
        found, expected = (one.predict_proba(values) for one in (model, pooled))
        np.testing.assert_allclose(found, expected, atol=max(tolerance, 1e-6))
    assert model.threshold == pytest.approx(pooled.threshold)


def test_the_density_of_trees_is_that_of_the_pooled_rows_with_a_head_too():
    values = rows_of(np.random.default_rng(2), STATES, 200)
    _, _, settings = CASES["trees with a head"]
    plain = trainings.trained(
        "trees", domain_of(STATES), values, "e", settings=settings._replace(head=False)
    )
    model, _ = exchanged("trees", [values[:30], values[30:]], STATES, settings, "e")
    np.testing.assert_array_equal(model.log_likelihood(values), plain.log_likelihood(values))
    apart = np.abs(model.predict_proba(values) - plain.predict_proba(values))
    assert apart.max() > 0.01  # the head tells the class, not the density


def test_the_threshold_of_trees_has_the_best_macro_f1_on_the_rows():
    rng = np.random.default_rng(3)
    values = rows_of(rng, STATES, 2000, follows=0.3)
    rare = values[(values[:, -1] == 0) | (rng.random(2000) < 0.2)]
    settings = Settings(components=1, threshold=True)
    model = trainings.trained("trees", domain_of(STATES), rare, "e", settings=settings)

    def macro_f1(threshold):
        found, label = model.predict(rare, threshold=threshold), rare[:, -1]
        scores = []
        for kind in (0, 1):
            both = ((found == kind) & (label == kind)).sum()
            scores.append(2.0 * both / max((found == kind).sum() + (label == kind).sum(), 1))
        return np.mean(scores)

    assert model.threshold < 0.45
    best = max(macro_f1(cut) for cut in np.linspace(0.01, 0.99, 99))
    assert macro_f1(None) == pytest.approx(best, abs=1e-3)
    assert macro_f1(None) > macro_f1(0.5) + 0.05


def test_few_rows_of_a_class_are_left_out_of_einsum_sums():
    pytest.importorskip("torch")
    values = rows_of(np.random.default_rng(4), MIXED, 60)
    few = np.vstack([values[values[:, -1] == 0][:20], values[values[:, -1] == 1][:2]])
    kind, domain = trainings.find("einsum"), domain_of(MIXED)
    settings = Settings(**SMALL)._replace(batches=1)
    plan = kind.plan_for(domain, "e", 0, 3, settings)
    state = kind.init(plan, np.ones((1, 5), dtype=bool), settings)
    scale = kind.sums(few, plan, kind.request(state))
    assert scale["rows"] == [20.0]
    state = kind.step(state, kind.sums(values, plan, kind.request(state)))
    reply = kind.sums(few, plan, kind.request(state))
    assert reply["rows"] == [20.0]
    assert not reply["root"][1].any()
    alone = kind.sums(few[-1:], plan, kind.request(state))
    assert all(not array.any() for array in alone.values())
    assert {key: array.shape for key, array in alone.items()} == {
        key: array.shape for key, array in reply.items()
    }


def test_learners_take_their_settings():
    settings = Settings(components=4, depth=3, replicas=2, sums=5, epochs=7, image="2x3")
    assert learner_of("trees", "e", settings).components == 4
    network = learner_of("einsum", None, settings)
    assert (network.depth, network.replicas, network.sums, network.epochs) == (3, 2, 5, 7)
    assert network.image == (2, 3)
    assert learner_of("einsum", None).image is None
    assert learner_of("trees", None).components is None


def test_errors_name_the_option():
    with pytest.raises(ConfigError, match="'spn' does not train by sums"):
        trainings.find("spn")
    with pytest.raises(ConfigError, match="no learner 'neural'"):
        learner_of("neural", None)
    values = rows_of(np.random.default_rng(5), STATES, 20)
    for settings, said in (
        (Settings(head=True), "head"),
        (Settings(threshold=True), "decision"),
        (Settings(depth=17), "at most 16"),
        (Settings(image="28 x 28"), "image"),
        (Settings(image="2x9"), "image"),
    ):
        with pytest.raises(ConfigError, match=said):
            trainings.trained("einsum", domain_of(STATES), values, "e", settings=settings)
    assert image_shape("28x14") == (28, 14)
    for text in ("28", "0x3", "x", "3x-1"):
        with pytest.raises(ConfigError, match="28x28"):
            image_shape(text)
