"""Networks of numbers and categories against densities by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.mixed_moments import MixedTable, mixed_sums
from flwr_causal.errors import DataError

STATES = (("no", "yes"), (), (), ("a", "b", "c"))
PARENTS = ((), (0,), (0, 1), (1,))
LOCATION, SCALE = np.array([0, 5.0, -3.0, 0]), np.array([1, 2.0, 0.25, 1])


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    n = 4000
    codes = np.zeros((4, n), dtype=np.uint8)
    values = np.zeros((4, n))
    codes[0] = rng.random(n) < 0.3
    values[1] = np.where(codes[0], 2.0, -1.0) + rng.normal(size=n)
    values[2] = np.where(codes[0], 0.5, -1.5) * values[1] + 0.4 * rng.normal(size=n)
    codes[3] = np.digitize(values[1] + 0.5 * rng.normal(size=n), (-1.0, 1.0))
    table = MixedTable(np.array([2, 0, 0, 3]), codes, values)
    sums = [mixed_sums(table, (*own, j)) for j, own in enumerate(PARENTS)]
    network = BayesianNetwork.from_sums(
        tuple("wxyz"), STATES, PARENTS, sums, location=LOCATION, scale=SCALE
    )
    return network, table


def frame_of(table, rows):
    columns = {}
    for j, name in enumerate("wxyz"):
        texts = np.array(STATES[j], dtype=object)
        numbers = LOCATION[j] + SCALE[j] * table.values[j, rows]
        columns[name] = texts[table.codes[j, rows]] if STATES[j] else numbers
    return pd.DataFrame(columns)


def test_the_likelihood_is_the_product_of_the_families(fitted):
    network, table = fitted
    rows = slice(0, 50)
    w, z = table.codes[0, rows], table.codes[3, rows]
    x, y = table.values[1, rows], table.values[2, rows]
    whole_w, whole_z = table.codes[0], table.codes[3]
    expected = np.log(np.where(w, whole_w.mean(), 1 - whole_w.mean()))
    for k in range(50):
        same = whole_w == w[k]
        one, two = table.values[1, same], table.values[2, same]
        expected[k] += norm.logpdf(x[k], one.mean(), one.std()) - np.log(SCALE[1])
        slope, level = np.polyfit(one, two, 1)
        deviation = (two - slope * one - level).std()
        expected[k] += norm.logpdf(y[k], slope * x[k] + level, deviation) - np.log(SCALE[2])
        joint = [
            (whole_z == state).mean()
            * norm.pdf(x[k], *(f(table.values[1, whole_z == state]) for f in (np.mean, np.std)))
            for state in range(3)
        ]
        expected[k] += np.log(joint[z[k]] / sum(joint))
    # One row of prior weight in 4000.
    np.testing.assert_allclose(network.log_likelihood(frame_of(table, rows)), expected, atol=0.06)


def test_probabilities_sum_to_one_over_states_and_numbers(fitted):
    network, _ = fitted
    grid = np.linspace(-8, 8, 241)
    x, y = (LOCATION[j] + SCALE[j] * grid for j in (1, 2))
    total = 0.0
    for w in STATES[0]:
        for z in STATES[3]:
            both = np.array([(a, b) for a in x for b in y])
            frame = pd.DataFrame({"z": z, "x": both[:, 0], "y": both[:, 1], "w": w})
            step = (x[1] - x[0]) * (y[1] - y[0])
            total += np.exp(network.log_likelihood(frame)).sum() * step
    assert total == pytest.approx(1.0, abs=1e-3)


def test_samples_have_the_moments_of_the_rows(fitted):
    network, table = fitted
    drawn = network.sample(20_000, 1)
    pd.testing.assert_frame_equal(drawn, network.sample(20_000, 1))
    seen = frame_of(table, slice(None))
    for state in STATES[0]:
        one, two = (part[part["w"] == state] for part in (drawn, seen))
        np.testing.assert_allclose(one[["x", "y"]].mean(), two[["x", "y"]].mean(), atol=0.15)
        np.testing.assert_allclose(one[["x", "y"]].std(), two[["x", "y"]].std(), rtol=0.06)
    shares = [part["z"].value_counts(normalize=True).sort_index() for part in (drawn, seen)]
    np.testing.assert_allclose(*shares, atol=0.03)
    assert (drawn.groupby("z")["x"].mean() - seen.groupby("z")["x"].mean()).abs().max() < 0.3


def test_saved_and_loaded_it_is_the_same(fitted, tmp_path):
    network, table = fitted
    network.save(tmp_path / "model.json")
    again = BayesianNetwork.load(tmp_path / "model.json")
    rows = frame_of(table, slice(0, 20))
    np.testing.assert_array_equal(again.log_likelihood(rows), network.log_likelihood(rows))
    assert again.graph.equals(network.graph)
    for content, message in (
        ("no json", "is not JSON"),
        ('{"format": "other"}', "does not hold a Bayesian network"),
        ('{"format": "flwr-causal bayesian network 1"}', "damaged network"),
    ):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(DataError, match=message):
            BayesianNetwork.load(tmp_path / "other.json")
    with pytest.raises(DataError, match="no Bayesian network at"):
        BayesianNetwork.load(tmp_path / "absent.json")


def test_bad_rows_are_named(fitted):
    network, table = fitted
    rows = frame_of(table, slice(0, 5))
    with pytest.raises(DataError, match="'y'"):
        network.log_likelihood(rows.drop(columns="y"))
    with pytest.raises(DataError, match="'x'"):
        network.log_likelihood(rows.assign(x=np.nan))
    with pytest.raises(DataError, match="'w'"):
        network.log_likelihood(rows.assign(w="maybe"))


def test_the_prior_counts_as_rows_and_children_may_come_before_their_parents():
    rng = np.random.default_rng(1)
    codes = (rng.random(400) < 0.1).astype(np.uint8)
    values = 3.0 * codes + rng.normal(size=400)
    rows = MixedTable(
        np.array([0, 2]), np.array([0 * codes, codes]), np.array([values, 0.0 * values])
    )
    sums = [mixed_sums(rows, (0, 1)), mixed_sums(rows, (1,))]
    network = BayesianNetwork.from_sums(
        "xw",
        ((), ("no", "yes")),
        ((1,), ()),
        sums,
        location=np.zeros(2),
        scale=np.ones(2),
        equivalent_sample_size=400.0,
    )
    drawn = network.sample(20_000, 0)
    share = (codes.sum() + 200) / 800
    assert (drawn["w"] == "yes").mean() == pytest.approx(share, abs=0.01)
    means = drawn.groupby("w")["x"].mean()
    for state, code in (("no", 0), ("yes", 1)):
        assert means[state] == pytest.approx(values[codes == code].mean(), abs=0.1)
