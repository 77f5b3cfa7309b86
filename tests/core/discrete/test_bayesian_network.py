"""Discrete networks against enumeration of all worlds, counting by hand and their own samples."""

import json
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import members

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork, fit
from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.probabilities import family_counts, parent_matrix
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.errors import ConfigError, DataError

NAMES = ("wet", "rain", "wind")
STATES = (("no", "yes"), ("none", "some", "much"), ("calm", "storm"))
RAIN = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])  # given the wind
WET = np.array([[0.99, 0.01], [0.5, 0.5], [0.0, 1.0]])  # given the rain
WIND = np.array([0.8, 0.2])


def weather():
    return BayesianNetwork(NAMES, STATES, ((1,), (2,), ()), (WET, RAIN, WIND))


def collider(seed=0):
    """Three parents of different sizes in the order 0, 2, 3, and a child in between."""
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 4, 3)
    tables = [rng.dirichlet(np.ones(size)) for size in sizes]
    tables[1] = rng.dirichlet(np.ones(3), size=(2, 4, 3))
    return BayesianNetwork(
        ("a", "b", "c", "d"),
        tuple(tuple(f"{k}" for k in range(size)) for size in sizes),
        ((), (0, 2, 3), (), ()),
        tuple(tables),
    )


def worlds(network):
    """All rows, and the probability of each as the product of the tables."""
    rows, probabilities = [], []
    for codes in product(*(range(len(own)) for own in network.states)):
        rows.append([own[code] for own, code in zip(network.states, codes, strict=True)])
        value = 1.0
        for j, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
            for i in parents:
                table = table[codes[i]]
            value *= table[codes[j]]
        probabilities.append(value)
    return pd.DataFrame(rows, columns=list(network.names)), np.array(probabilities)


# The distribution


def test_the_likelihood_is_the_product_of_the_tables():
    network = weather()
    frame = pd.DataFrame(
        {"rain": ["some", "none"], "other": [1, 2], "wind": ["storm", "calm"], "wet": ["yes", "no"]}
    )
    expected = np.log([0.2 * 0.3 * 0.5, 0.8 * 0.7 * 0.99])
    np.testing.assert_allclose(network.log_likelihood(frame), expected, rtol=1e-14)


@pytest.mark.parametrize("network", [weather(), collider()], ids=["chain", "collider"])
def test_all_worlds_together_are_certain(network):
    frame, probabilities = worlds(network)
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities)
    found = network.log_likelihood(frame)
    np.testing.assert_allclose(found, logs, rtol=1e-12)
    assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)
    # By name, by position, and as codes whose states stand in another order.
    np.testing.assert_array_equal(network.log_likelihood(frame[frame.columns[::-1]]), found)
    np.testing.assert_array_equal(network.log_likelihood(frame.to_numpy()), found)
    table = as_discrete(frame).reordered(range(len(network.names))[::-1])
    np.testing.assert_array_equal(network.log_likelihood(table), found)


def test_an_impossible_row_is_minus_infinity_without_a_warning():
    frame = pd.DataFrame({"wet": ["no"], "rain": ["much"], "wind": ["calm"]})
    assert weather().log_likelihood(frame).tolist() == [-np.inf]


def test_numbers_name_their_states():
    network = collider()
    rows = np.array([[1, 2, 3, 0], [0, 0, 0, 2]])
    expected = network.log_likelihood(rows.astype(str))
    np.testing.assert_array_equal(network.log_likelihood(rows), expected)
    np.testing.assert_array_equal(
        network.log_likelihood(pd.DataFrame(rows.astype(float), columns=list("abcd"))), expected
    )


def test_rows_that_do_not_fit_name_the_column():
    network = weather()
    frame = network.sample(5, 0)
    with pytest.raises(DataError, match="no column 'rain'"):
        network.log_likelihood(frame.drop(columns="rain"))
    with pytest.raises(DataError, match="no column 'rain'"):
        network.log_likelihood(as_discrete(frame.drop(columns="rain")))
    hail = frame.assign(rain="hail")
    for table in (hail, as_discrete(hail)):
        with pytest.raises(DataError, match=r"'rain'.*its 3 states"):
            network.log_likelihood(table)
    with pytest.raises(DataError, match="missing values"):
        network.log_likelihood(frame.assign(wind=None))
    with pytest.raises(DataError, match=r"array of 3 columns, got shape \(5, 2\)"):
        network.log_likelihood(frame.to_numpy()[:, :2])
    # States that are listed but do not occur are no reason to refuse a table.
    table = as_discrete(frame, ["wind"], [["storm", "fog", "calm"]])
    rest = as_discrete(frame[["wet", "rain"]])
    joined = DiscreteTable(
        table.names + rest.names, table.states + rest.states, np.vstack([table.codes, rest.codes])
    )
    np.testing.assert_array_equal(network.log_likelihood(joined), network.log_likelihood(frame))


# Sampling


@pytest.mark.parametrize("network", [weather(), collider(1)], ids=["chain", "collider"])
def test_samples_have_the_joint_distribution(network):
    frame, probabilities = worlds(network)
    num_rows = 200_000
    sample = network.sample(num_rows, seed=3)
    assert list(sample.columns) == list(network.names)
    counts = sample.value_counts()
    found = np.array([counts.get(tuple(row), 0) for row in frame.to_numpy()]) / num_rows
    error = np.sqrt(probabilities * (1 - probabilities) / num_rows)
    assert (np.abs(found - probabilities) <= 5 * error).all()  # exactly 0 where impossible


def test_samples_follow_the_seed():
    network = weather()
    assert network.sample(50, 7).equals(network.sample(50, 7))
    assert not network.sample(50, 7).equals(network.sample(50, 8))
    assert network.sample(0, 1).shape == (0, 3)
    assert network.log_likelihood(network.sample(0, 1)).shape == (0,)
    rng = np.random.default_rng(7)
    assert network.sample(50, rng).equals(network.sample(50, 7))
    assert not network.sample(50, rng).equals(network.sample(50, 7))
    table = network.sample_table(50, 7)
    assert table.states == STATES
    assert [table.states[0][code] for code in table.codes[0]] == network.sample(50, 7)[
        "wet"
    ].tolist()
    with pytest.raises(ConfigError, match="-1"):
        network.sample(-1)


# Counting and fitting


def test_counts_by_hand():
    table = as_discrete(np.array([["a", "p", "0"], ["b", "p", "1"], ["b", "q", "1"]]))
    assert family_counts(table, 2, []).tolist() == [1, 2]
    assert family_counts(table, 2, [0]).tolist() == [[1, 0], [0, 2]]
    assert family_counts(table, 0, [2, 1]).tolist() == [[[1, 0], [0, 0]], [[0, 1], [0, 1]]]
    assert family_counts(table, 0, []).dtype == np.int64
    weighted = DiscreteTable(table.names, table.states, table.codes, np.array([5, 0, 2**40]))
    assert family_counts(weighted, 0, [1]).tolist() == [[5, 0], [0, 2**40]]
    with pytest.raises(DataError, match="different other"):
        family_counts(table, 0, [1, 0])
    with pytest.raises(DataError, match="different other"):
        family_counts(table, 0, [1, 1])


def test_a_table_beyond_memory_is_refused_before_it_is_made():
    names = tuple(f"v{k}" for k in range(20))
    table = DiscreteTable(names, (tuple("abcdefgh"),) * 20, np.zeros((20, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"'v0' with its 19 parents.*limit the number"):
        family_counts(table, 0, range(1, 20))


def test_probabilities_are_the_posterior_mean():
    counts = [np.array([6, 2]), np.array([[3, 1, 0], [0, 0, 0]])]
    states = [("0", "1"), ("x", "y", "z")]
    network = BayesianNetwork.from_counts(
        ("a", "b"), states, [(), (0,)], counts, equivalent_sample_size=6
    )
    np.testing.assert_allclose(network.tables[0], [9 / 14, 5 / 14])
    np.testing.assert_allclose(network.tables[1], [[4 / 7, 2 / 7, 1 / 7], [1 / 3, 1 / 3, 1 / 3]])
    plain = BayesianNetwork.from_counts(
        ("a", "b"), states, [(), (0,)], counts, equivalent_sample_size=0
    )
    np.testing.assert_allclose(plain.tables[0], [0.75, 0.25])
    np.testing.assert_allclose(plain.tables[1], [[0.75, 0.25, 0], [1 / 3, 1 / 3, 1 / 3]])


def test_counts_that_do_not_fit():
    states = [("0", "1")]
    for bad in ([-1, 2], [np.nan, 1], [], [np.inf, 1]):
        with pytest.raises(DataError, match="counts of 'a'"):
            BayesianNetwork.from_counts(["a"], states, [()], [bad], equivalent_sample_size=1)
    with pytest.raises(DataError, match=r"'a' has shape \(3,\)"):
        BayesianNetwork.from_counts(["a"], states, [()], [[1, 2, 3]], equivalent_sample_size=1)
    with pytest.raises(DataError, match="2 counts for 1 variables"):
        BayesianNetwork.from_counts(["a"], states, [()], [[1, 2]] * 2, equivalent_sample_size=1)
    for size in (-1, np.nan):
        with pytest.raises(ConfigError, match="equivalent_sample_size"):
            BayesianNetwork.from_counts(["a"], states, [()], [[1, 2]], equivalent_sample_size=size)


def test_fitting_counts_every_family_and_honours_weights():
    network = collider()
    table = network.sample_table(500, 0)
    fitted = fit(table, network.graph.adjacency, equivalent_sample_size=0)
    assert fitted.parents == network.parents
    frame = network.sample(500, 0)
    part = frame[(frame["a"] == "1") & (frame["c"] == "2") & (frame["d"] == "0")]
    expected = [(part["b"] == state).mean() for state in "012"]
    np.testing.assert_allclose(fitted.tables[1][1, 2, 0], expected)
    doubled = DiscreteTable(table.names, table.states, table.codes, np.full(500, 2))
    same = fit(doubled, network.graph.adjacency, equivalent_sample_size=2)
    once = fit(table, network.graph.adjacency)
    for one, two in zip(same.tables, once.tables, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
    with pytest.raises(DataError, match="cycle"):
        fit(table, np.ones((4, 4)) - np.eye(4))
    with pytest.raises(DataError, match=r"shape \(3, 3\)"):
        fit(table, np.zeros((3, 3)))


def test_the_fit_maximizes_the_likelihood():
    network = weather()
    table = network.sample_table(300, 2)
    fitted = fit(table, network.graph.adjacency, equivalent_sample_size=0)
    best = fitted.log_likelihood(table).sum()
    assert best > network.log_likelihood(table).sum()
    rng = np.random.default_rng(0)
    for _ in range(10):
        near = [
            0.95 * t + 0.05 * rng.dirichlet(np.ones(t.shape[-1]), t.shape[:-1])
            for t in fitted.tables
        ]
        other = BayesianNetwork(NAMES, STATES, fitted.parents, tuple(near))
        assert other.log_likelihood(table).sum() < best


# The object


def test_graph_and_size():
    network = weather()
    assert network.graph.edges() == [("rain", "wet", 1.0), ("wind", "rain", 1.0)]
    assert network.graph.kind == "dag"
    assert network.num_parameters == 3 + 4 + 1
    assert collider().num_parameters == 1 + 24 * 2 + 3 + 2
    assert repr(network) == "<BayesianNetwork: 3 variables, 2 edges, 8 parameters>"
    given = WIND.copy()
    network = BayesianNetwork(("w",), (STATES[2],), ((),), (given,))
    given[0] = 5
    assert network.tables[0][0] == 0.8
    with pytest.raises(ValueError, match="read-only"):
        network.tables[0][0] = 0.5


@given(st.integers(0, 10**6))
def test_json_keeps_every_bit(tmp_path_factory, seed):
    path = tmp_path_factory.mktemp("n") / "network.json"
    network = collider(seed)
    network.save(path)
    same(BayesianNetwork.load(path), network)


def same(one, two):
    assert (one.names, one.states, one.parents) == (two.names, two.states, two.parents)
    for first, second in zip(one.tables, two.tables, strict=True):
        np.testing.assert_array_equal(first, second)


def test_odd_names_and_no_variables_survive_json(tmp_path):
    odd = BayesianNetwork(('é "b"',), (("", "a b"),), ((),), (WIND,))
    none = BayesianNetwork((), (), (), ())
    for network in (odd, none):
        network.save(tmp_path / "n.json")
        same(BayesianNetwork.load(tmp_path / "n.json"), network)
    assert none.num_parameters == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: "{", "not JSON"),
        (lambda c: json.dumps({**c, "format": "other"}), "does not hold a Bayesian network"),
        (lambda c: json.dumps([]), "does not hold a Bayesian network"),
        (lambda c: json.dumps({k: v for k, v in c.items() if k != "states"}), "damaged.*states"),
        (lambda c: json.dumps({**c, "tables": [[0.5]] * 3}), "damaged.*reshape"),
        (lambda c: json.dumps({**c, "parents": [[7], [], []]}), "damaged"),
        (lambda c: json.dumps({**c, "parents": [[1], [0], []]}), "damaged|cycle|shape"),
    ],
)
def test_files_that_hold_no_network(tmp_path, change, words):
    path = tmp_path / "n.json"
    weather().save(path)
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(DataError, match=words):
        BayesianNetwork.load(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"names": ("a", "a", "b")}, "names repeat: a"),
        ({"states": STATES[:2]}, "2 states for 3 variables"),
        ({"tables": (WET, RAIN)}, "2 tables for 3 variables"),
        ({"states": (("no", "no"), *STATES[1:])}, "'wet' has 2 states: expected .* all different"),
        ({"states": ((), *STATES[1:])}, "'wet' has 0 states"),
        ({"states": (tuple(map(str, range(257))), *STATES[1:])}, "'wet' has 257 states"),
        ({"parents": ((1, 1), (2,), ())}, r"parents of 'wet' are \[1, 1\]"),
        ({"parents": ((2, 1), (2,), ())}, "ascending"),
        ({"parents": ((3,), (2,), ())}, "indices below 3"),
        ({"parents": ((-1,), (2,), ())}, "indices below 3"),
        ({"parents": ((1,), (2,), (0,))}, "directed cycle"),
        ({"parents": ((0,), (2,), ())}, "directed cycle"),
        ({"tables": (WET.T, RAIN, WIND)}, r"'wet' has shape \(2, 3\).*give \(3, 2\)"),
        ({"tables": (WET, RAIN * 1.0001, WIND)}, "'rain' must hold probabilities that sum to 1"),
        ({"tables": (WET, RAIN, np.array([1.5, -0.5]))}, "'wind' must hold probabilities"),
        ({"tables": (WET, RAIN, np.array([np.nan, 1]))}, "'wind' must hold probabilities"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields, words):
    good = {
        "names": NAMES,
        "states": STATES,
        "parents": ((1,), (2,), ()),
        "tables": (WET, RAIN, WIND),
    }
    with pytest.raises(DataError, match=words):
        BayesianNetwork(**{**good, **fields})


# Equivalence classes


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(5))
def test_contrasts_of_a_class_contain_that_of_the_member(seed):
    """With its parents adjusted for, value and error equal those of the truncated product."""
    rng = np.random.default_rng(seed)
    parents = ((), (0,), (0, 1), (1, 2))
    sizes = (2, 3, 2, 3)
    counts = [
        rng.integers(1, 80, size=[sizes[k] for k in (*own, j)]) for j, own in enumerate(parents)
    ]
    states = [tuple(range(size)) for size in sizes]
    network = BayesianNetwork.from_counts(
        tuple("zxwy"), states, parents, counts, equivalent_sample_size=1.0
    )
    known = replace(network, marks=cpdag(parent_matrix(parents)))
    assert known.marks.sum() > parent_matrix(parents).sum()
    compared = 0
    for cause, effect in permutations("zxwy", 2):
        i, j = "zxwy".index(cause), "zxwy".index(effect)
        asked = (cause, effect, sizes[j] - 1)
        one = network.contrast(*asked, state=sizes[i] - 1, reference=0)
        several = known.contrast(*asked, state=sizes[i] - 1, reference=0)
        if not isinstance(several, list):
            assert several == one
            continue
        tables = known.total_effect(cause, effect)
        for table, found in zip(tables, several, strict=True):
            change = table.loc[sizes[i] - 1, asked[2]] - table.loc[0, asked[2]]
            assert found.value == pytest.approx(change, abs=1e-12)
        own = tuple(network.names[k] for k in parents[i])
        if i < j:
            (same,) = (found for found in several if found.adjustment_set == own)
            assert same.value == pytest.approx(one.value, abs=1e-12)
            assert same.standard_error == pytest.approx(one.standard_error, rel=1e-9)
            compared += 1
    assert compared > 2


def test_cut_points_must_fit_the_states():
    for cuts in ({"wet": [1.0, 2.0]}, {"rain": [2.0, 1.0]}, {"rain": [0.0, np.inf]}, {"x": [1.0]}):
        with pytest.raises(DataError, match=f"cut points of '{next(iter(cuts))}'"):
            replace(weather(), cuts=cuts)
    with pytest.raises(DataError, match="marks"):
        replace(weather(), marks=np.ones((2, 2)))


def test_tables_are_coded_by_labels_as_by_their_names():
    frame = pd.DataFrame({"a": [2, 1, 2], "b": [True, False, False]})
    states = ((1, 2), (False, True))
    names = (("1", "2"), ("False", "True"))
    coded = as_discrete(frame, ("a", "b"), states)
    assert coded.states == names
    np.testing.assert_array_equal(coded.codes, as_discrete(frame, ("a", "b"), names).codes)
    assert as_discrete(coded, ("b",), (states[1],)).states == names[1:]
    assert DiscreteTable(("a", "b"), states, coded.codes).states == names


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(3))
def test_contrasts_are_the_same_for_all_dags_of_a_class(seed):
    """Values and errors, from the same rows: which member stands for the class does not matter."""
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 2, 3)
    whole = rng.integers(1, 60, size=sizes)
    marks = cpdag(parent_matrix(((), (0,), (0, 1), (1, 2))))
    found = []
    for dag in members(marks):
        parents = tuple(tuple(np.flatnonzero(dag[:, j]).tolist()) for j in range(4))
        counts = [np.einsum(whole, range(4), [*own, j]) for j, own in enumerate(parents)]
        network = BayesianNetwork.from_counts(
            tuple("zxwy"),
            [tuple(range(size)) for size in sizes],
            parents,
            counts,
            equivalent_sample_size=1.0,
            marks=marks,
        )
        effects = [
            network.contrast(a, b, 1, state=1, reference=0) for a, b in permutations("zxwy", 2)
        ]
        flat = [one for each in effects for one in (each if isinstance(each, list) else [each])]
        found.append([(one.value, one.standard_error) for one in flat])
    assert len(found) > 1
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-12)


def test_effects_given_what_other_variables_cause_are_refused(tmp_path):
    network = fitted_chain()
    given_root, given_end = network.conditional({"a": 1}), network.conditional({"c": 1})
    assert not given_root.conditioned
    given_root.total_effect("b", "c")
    given_end.save(tmp_path / "model.json")
    for one in (given_end, BayesianNetwork.load(tmp_path / "model.json")):
        asked = (
            (one.do, ({"a": 1},), {}),
            (one.total_effect, ("a", "b"), {}),
            (one.possible_effects, ("a", "b"), {}),
            (one.contrast, ("a", "b", 1), {"state": 1, "reference": 0}),
        )
        for ask, words, named in asked:
            with pytest.raises(ConfigError, match="condition it after do"):
                ask(*words, **named)
    after = network.do({"a": 1}).conditional({"c": 1})
    assert after.conditioned
    assert after.conditional({"a": 1}).conditioned


def fitted_chain():
    """The network a -> b -> c, fitted to counts."""
    rng = np.random.default_rng(0)
    counts = [rng.integers(5, 50, size=size) for size in ((2,), (2, 2), (2, 2))]
    parents = ((), (0,), (1,))
    return BayesianNetwork.from_counts(
        tuple("abc"), [(0, 1)] * 3, parents, counts, equivalent_sample_size=1.0
    )
