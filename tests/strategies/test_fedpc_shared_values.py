"""FedPC on columns in which many rows share a value: the value itself, in every training."""

import numpy as np
import pandas as pd
import pytest
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.core.circuits.model import CircuitModel

NUM_ROWS = 900


def table(seed=4):
    """Columns v of 5.0, of noise or of -3.0 by group; k of sevens; and an amount of many zeros."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, NUM_ROWS)
    v = np.where(group == 0, 5.0, np.where(group == 1, rng.normal(0, 1, NUM_ROWS), -3.0))
    paid = rng.random(NUM_ROWS) < np.where(group == 0, 0.2, 0.5)
    return pd.DataFrame(
        {
            "g": np.array(list("abc"))[group],
            "v": v,
            "amount": np.where(paid, rng.exponential(100.0, NUM_ROWS), 0.0),
        }
    )


def of_rows(frame):
    return [frame.iloc[k::3].reset_index(drop=True) for k in range(3)]


def of_columns(frame):
    ids = frame.assign(row_id=np.arange(NUM_ROWS))
    return [ids[["row_id", "g", "amount"]], ids[["row_id", "v"]]]


RUNS = {
    "sums": (of_rows, {}),
    "secure sums": (of_rows, {"secure_aggregation": True}),
    "one pass": (of_rows, {"training": "one-pass", "learner": "trees", "queries": "central"}),
    "triples": (of_columns, {"training": "triples"}),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", RUNS)
def test_an_interval_of_one_value_is_that_value(kind, tmp_path):
    frame = table()
    divided, options = RUNS[kind]
    model = simulate("fedpc", divided(frame), **options).model
    groups = pd.DataFrame({"g": list("abc")})
    mean, _ = model.moments("v", groups)
    np.testing.assert_allclose(mean, frame.groupby("g").v.mean(), atol=0.3)
    for name in ("v", "amount"):
        mean, variance = model.moments(name, pd.DataFrame({"g": [None]}))
        assert mean[0] == pytest.approx(frame[name].mean(), abs=0.05 * frame[name].std())
        assert variance[0] == pytest.approx(frame[name].var(), rel=0.1)
    drawn = model.sample(4000, seed=0)
    for name, value in (("amount", 0.0), ("v", 5.0), ("v", -3.0)):
        assert (drawn[name] == value).mean() == pytest.approx(
            (frame[name] == value).mean(), abs=0.05
        )
    filled = model.mpe(pd.DataFrame({"g": ["a"], "v": [None]}))
    assert filled["v"][0] == 5.0
    assert np.isfinite(model.log_likelihood(frame)).all()
    if kind in ("sums", "one pass", "triples"):
        model.save(tmp_path / "model.json")
        loaded = CircuitModel.load(tmp_path / "model.json")
        for one, other in zip(loaded.moments("v", groups), model.moments("v", groups), strict=True):
            np.testing.assert_array_equal(one, other)
        pd.testing.assert_frame_equal(loaded.sample(50, seed=1), model.sample(50, seed=1))


def test_questions_about_a_shared_value_agree_with_each_other():
    """The probability of the value, by density, posterior, conditional and samples."""
    frame = table()
    model = simulate("fedpc", of_rows(frame)).model
    at = pd.DataFrame({"v": [5.0]})
    probability = np.exp(model.marginal(["v"]).log_likelihood(at))[0]
    assert probability == pytest.approx((frame.v == 5.0).mean(), abs=0.02)
    joint = np.exp(model.marginal(["g", "v"]).log_likelihood(at.assign(g="a")))[0]
    assert model.predict_proba(at, "g")[0, 0] == pytest.approx(joint / probability)
    assert model.predict(at, "g").tolist() == ["a"]
    given = model.conditional({"v": 5.0})
    assert given.sample(200, seed=0)["g"].eq("a").mean() > 0.9
    # A value that is given is its own mean.
    np.testing.assert_array_equal(model.moments("v", pd.DataFrame({"v": [4.2]})), [[4.2], [0.0]])


NUMBERS = table().drop(columns="g").assign(x=np.random.default_rng(0).normal(size=NUM_ROWS))


@pytest.mark.slow
def test_numbers_of_which_most_rows_share_a_value_are_learned_by_trees():
    rng = np.random.default_rng(1)
    frame = NUMBERS.assign(amount=np.where(rng.random(NUM_ROWS) < 0.6, 0.0, NUMBERS.amount + 1.0))
    run = simulate("fedpc", of_rows(frame))
    assert "trees circuits" in run.stop_reason
    assert (run.model.sample(2000, seed=0)["amount"] == 0.0).mean() == pytest.approx(0.6, abs=0.05)
    # Another learner spreads the value, and says so; its mean and variance are near all the same.
    other = simulate("fedpc", of_rows(frame), learner="class-conditional")
    assert any("'amount'" in text and "learner='trees'" in text for text in other.warnings)
    mean, variance = other.model.moments("amount", pd.DataFrame({"amount": [np.nan]}))
    assert mean[0] == pytest.approx(frame.amount.mean(), abs=0.15 * frame.amount.std())
    assert variance[0] == pytest.approx(frame.amount.var(), rel=1.0)
    continuous = simulate("fedpc", of_rows(frame[["v", "x"]].assign(v=frame.x + frame.v)))
    assert "class-conditional circuits" in continuous.stop_reason


@pytest.mark.slow
@pytest.mark.parametrize("column", sweep(["g", "target"], kept=["target"]))
def test_equal_rows_do_not_change_the_shares_of_classes(column):
    """Equal rows are in one batch of an Einsum network, and count as much as others."""
    frame = table().drop(columns="amount")
    frame["k"] = np.where(frame.g == "c", 7, 1)
    run = simulate("fedpc", of_rows(frame.rename(columns={"g": column})), learner="einsum")
    shares = run.model.predict_proba(pd.DataFrame({column: [None]}), column)[0]
    np.testing.assert_allclose(shares, frame.g.value_counts(normalize=True).sort_index(), atol=0.03)
    assert not any("other probabilities" in text for text in run.warnings)


@pytest.mark.slow
def test_shares_that_a_short_training_misses_are_named():
    frame = table().drop(columns="amount")
    run = simulate("fedpc", of_rows(frame), learner="einsum", epochs=1, batches=60, max_rounds=99)
    shares = run.model.predict_proba(pd.DataFrame({"g": [None]}), "g")[0]
    missed = np.abs(shares - frame.g.value_counts(normalize=True).sort_index()).max()
    assert any("'g'" in text for text in run.warnings) == (missed > 0.05)


@pytest.mark.parametrize(
    "learner", sweep(["trees", "spn", "class-conditional", "einsum"], kept=["trees"])
)
def test_a_class_that_is_a_group_of_its_own_has_its_shares(learner):
    """With weights by counts a class that all parties hold is in no group with other columns."""
    rng = np.random.default_rng(0)
    target = np.where(rng.random(300) < 0.6, "yes", "no")
    words = np.where(rng.random(300) < 0.8, target, "none")
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": words, "target": target})
    parties = [frame[["a", "target"]], frame[["b", "target"]]]
    run = simulate("fedpc", parties, training="one-pass", weights="counts", learner=learner)
    assert any("the most frequent one" in text for text in run.warnings)
    shares = run.model.predict_proba(frame[:1])[0]
    np.testing.assert_allclose(
        shares, [np.mean(target == "no"), np.mean(target == "yes")], atol=0.05
    )


@pytest.mark.slow
def test_weights_by_counts_say_what_they_lose():
    rng = np.random.default_rng(0)
    target = np.where(rng.random(300) < 0.6, "yes", "no")
    near = (target == "yes") + 0.3 * rng.normal(size=300)
    frame = pd.DataFrame({"a": near, "b": rng.normal(size=300), "target": target})
    parties = [frame[["a", "target"]], frame[["b", "target"]]]
    run = simulate("fedpc", parties, training="one-pass", weights="counts")
    text = " ".join(run.warnings)
    assert "'target'" in text
    assert "the most frequent one" in text
    assert "weights='classes'" in text
    assert set(run.model.predict(frame)) == {"yes"}
    better = simulate("fedpc", parties, training="one-pass")
    assert (better.model.predict(frame) == target).mean() > 0.9
    assert "most frequent" not in " ".join(better.warnings)
    same = simulate("fedpc", of_rows(pd.concat([frame] * 3)), training="one-pass", weights="counts")
    assert "most frequent" not in " ".join(same.warnings)
