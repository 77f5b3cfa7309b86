"""Queries of discrete networks beside the enumeration of all worlds; interventions; coverage."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import dags, members

from flwr_causal.core.discrete import inference
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork, fit
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.errors import ConfigError, DataError

NAMES = tuple("abcde")


def network_of(dag, seed, concentration=1.0):
    """Random tables over 2 or 3 states."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, len(dag))
    parents = [tuple(np.flatnonzero(dag[:, j]).tolist()) for j in range(len(dag))]
    tables = [
        rng.dirichlet([concentration] * sizes[j], size=[sizes[k] for k in parents[j]])
        for j in range(len(dag))
    ]
    states = tuple(tuple(f"s{k}" for k in range(size)) for size in sizes)
    return BayesianNetwork(NAMES[: len(dag)], states, tuple(parents), tuple(tables))


def joint(network):
    """The probabilities of all worlds, with an axis for each variable."""
    shape = [len(own) for own in network.states]
    rows = np.indices(shape).reshape(len(shape), -1).astype(np.uint8)
    table = DiscreteTable(network.names, network.states, rows)
    return np.exp(network.log_likelihood(table)).reshape(shape)


@st.composite
def networks(draw, size=5):
    return network_of(draw(dags(size)), draw(st.integers(0, 10**6)))


@given(networks(), st.integers(0, 4), st.integers(0, 10**6))
def test_probabilities_given_any_part_of_a_row(network, target, seed):
    """Rows with missing values, all patterns at once, in two blocks of rows."""
    rng = np.random.default_rng(seed)
    worlds = joint(network)
    frame = network.sample(12, seed=seed).mask(rng.random((12, 5)) < 0.5)
    found = network.predict_proba(frame, NAMES[target])
    for row, values in enumerate(frame.itertuples(index=False)):
        seen = tuple(
            slice(None) if k == target or not isinstance(value, str) else own.index(value)
            for k, (value, own) in enumerate(zip(values, network.states, strict=True))
        )
        part = worlds[seen]
        axis = sum(isinstance(one, slice) for one in seen[:target])
        expected = part.sum(axis=tuple(k for k in range(part.ndim) if k != axis))
        np.testing.assert_allclose(found[row], expected / expected.sum(), atol=1e-12)


@given(networks(), st.sets(st.integers(0, 4), max_size=4), st.integers(0, 10**6))
def test_the_conditional_network_is_the_conditional_distribution(network, known, seed):
    row = network.sample(1, seed=seed).iloc[0]
    evidence = {NAMES[k]: row.iloc[k] for k in sorted(known)}
    found = network.conditional(evidence)
    assert found.names == tuple(name for name in NAMES if name not in evidence)
    part = joint(network)[
        tuple(network.states[k].index(row.iloc[k]) if k in known else slice(None) for k in range(5))
    ]
    np.testing.assert_allclose(joint(found), part / part.sum(), atol=1e-12)
    # Variables that are no ancestors of the evidence keep their parents.
    above = set().union(*(_ancestors(network, name) for name in evidence))
    for k, name in enumerate(found.names):
        if name not in above:
            own = {NAMES[p] for p in network.parents[NAMES.index(name)]} - set(evidence)
            assert {found.names[p] for p in found.parents[k]} == own


def _ancestors(network, name):
    own = {network.names[k] for k in network.parents[network.names.index(name)]}
    return own.union(*(_ancestors(network, parent) for parent in own))


@given(networks(), st.permutations(range(5)))
def test_effects_are_those_of_the_truncated_product_and_of_adjustment(network, order):
    i, j = order[:2]
    found = network.total_effect(NAMES[i], NAMES[j])
    assert (found.index.name, found.columns.name) == (NAMES[i], NAMES[j])
    worlds = joint(network)
    chosen = network.graph.adjustment_set(NAMES[i], NAMES[j])
    for code, state in enumerate(network.states[i]):
        # The product of all tables but the cause's, where it has this state.
        family = worlds.sum(axis=tuple({*range(5)} - {i, *network.parents[i]}), keepdims=True)
        table = family / family.sum(axis=i, keepdims=True)
        cut = np.take(worlds / table, [code], axis=i)
        expected = cut.sum(axis=tuple(k for k in range(5) if k != j))
        np.testing.assert_allclose(found.loc[state], expected, atol=1e-10)
        if chosen is not None:
            z = [NAMES.index(name) for name in chosen]
            axes = tuple(k for k in range(5) if k not in (i, j, *z))
            small = worlds.sum(axis=axes, keepdims=True)
            weight = small.sum(axis=(i, j), keepdims=True)
            at = np.take(small, [code], axis=i)
            share = at / at.sum(axis=j, keepdims=True) * weight
            expected = share.sum(axis=tuple(k for k in range(5) if k != j))
            np.testing.assert_allclose(found.loc[state], expected, atol=1e-10)


@given(networks(4), st.permutations(range(4)))
def test_possible_effects_are_those_of_the_equivalent_networks(network, order):
    """Every equivalent DAG with the same distribution gives one of the tables, and no other."""
    i, j = order[:2]
    worlds, size = joint(network), len(network.names)
    expected = []
    for dag in members(cpdag(network.graph.adjacency)):
        parents = [tuple(np.flatnonzero(dag[:, k]).tolist()) for k in range(size)]
        tables = []
        for k in range(size):
            own = worlds.sum(axis=tuple({*range(size)} - {k, *parents[k]}), keepdims=True)
            share = np.moveaxis(own / own.sum(axis=k, keepdims=True), k, -1)
            tables.append(share.reshape([len(network.states[p]) for p in (*parents[k], k)]))
        other = BayesianNetwork(network.names, network.states, tuple(parents), tuple(tables))
        expected.append(other.total_effect(NAMES[i], NAMES[j]).to_numpy())
    found = [own.to_numpy() for own in network.possible_effects(NAMES[i], NAMES[j])]
    assert all(any(np.allclose(one, two) for two in expected) for one in found)
    assert all(any(np.allclose(one, two) for two in found) for one in expected)


def smoking():
    """Age -> smoking, age -> cancer, smoking -> tar -> cancer."""
    names = ("age", "smoking", "tar", "cancer")
    states = (("young", "old"), ("no", "yes"), ("low", "high"), ("no", "yes"))
    age, smoking = [0.4, 0.6], [[0.5, 0.5], [0.8, 0.2]]
    tar = [[0.9, 0.1], [0.2, 0.8]]
    cancer = [[[0.99, 0.01], [0.9, 0.1]], [[0.9, 0.1], [0.6, 0.4]]]
    tables = tuple(np.array(own) for own in (age, smoking, tar, cancer))
    return BayesianNetwork(names, states, ((), (0,), (1,), (0, 2)), tables)


def test_a_contrast_by_hand():
    network = smoking()
    table = network.total_effect("smoking", "cancer")
    assert table.loc["yes", "yes"] == pytest.approx(
        0.4 * (0.2 * 0.01 + 0.8 * 0.1) + 0.6 * (0.2 * 0.1 + 0.8 * 0.4)
    )
    assert (
        network.total_effect("cancer", "tar")
        .loc["no"]
        .equals(network.total_effect("cancer", "tar").loc["yes"].rename("no"))
    )
    under = network.do({"smoking": "yes"})
    assert (under.sample(20, seed=0)["smoking"] == "yes").all()
    assert under.parents[1] == ()
    assert under.total_effect("age", "smoking").loc["old", "yes"] == 1.0
    # To see is not to do: smokers are younger.
    seen = network.conditional({"smoking": "yes"}).predict_proba(pd.DataFrame(index=[0]), "age")
    assert seen[0, 0] > 0.5
    assert network.predict(pd.DataFrame({"smoking": ["yes", "no"]}), "age").tolist() == [
        "young",
        "old",
    ]


def counted(network, n, seed):
    return fit(network.sample_table(n, seed=seed), network.graph.adjacency)


@pytest.mark.nightly
def test_the_standard_error_is_that_of_draws_from_the_tables_posterior():
    model = counted(smoking(), 300, seed=2)
    found = model.contrast("smoking", "cancer", "yes", state="yes", reference="no")
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(600):
        tables = tuple(
            np.apply_along_axis(rng.dirichlet, -1, table * sizes[..., None])
            for table, sizes in zip(model.tables, model.sample_sizes, strict=True)
        )
        other = BayesianNetwork(model.names, model.states, model.parents, tables)
        effect = other.total_effect("smoking", "cancer")
        draws.append(effect.loc["yes", "yes"] - effect.loc["no", "yes"])
    table = model.total_effect("smoking", "cancer")
    assert found.value == pytest.approx(table.loc["yes", "yes"] - table.loc["no", "yes"])
    assert found.standard_error == pytest.approx(np.std(draws), rel=0.1)
    assert found.adjustment_set is None
    assert found.interval[0] < found.value < found.interval[1]


def test_one_edge_has_the_errors_of_two_proportions():
    network = BayesianNetwork(
        ("x", "y"),
        (("0", "1"), ("0", "1")),
        ((), (0,)),
        (np.array([0.5, 0.5]), np.array([[0.8, 0.2], [0.3, 0.7]])),
        (np.array(400.0), np.array([199.0, 201.0])),
    )
    found = network.contrast("x", "y", 1, state=1, reference=0)
    assert found.value == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(np.sqrt(0.16 / 199 + 0.21 / 201))
    assert network.contrast("y", "x", 1, state=1, reference=0) == (0, 0, (0, 0), None)


def test_numbers_of_rows_are_saved_and_old_files_still_load(tmp_path):
    model = counted(smoking(), 200, seed=0)
    model.save(tmp_path / "model.json")
    found = BayesianNetwork.load(tmp_path / "model.json")
    for one, two in zip(found.sample_sizes, model.sample_sizes, strict=True):
        np.testing.assert_array_equal(one, two)
    assert model.sample_sizes[0] == 201  # and the prior's row
    content = json.loads((tmp_path / "model.json").read_text())
    del content["sample_sizes"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = BayesianNetwork.load(tmp_path / "old.json")
    assert old.sample_sizes is None
    with pytest.raises(ConfigError, match="no numbers of rows"):
        old.contrast("smoking", "cancer", "yes", state="yes", reference="no")
    content["sample_sizes"] = [[1.0]] * 4
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="damaged"):
        BayesianNetwork.load(tmp_path / "bad.json")


@pytest.mark.slow
def test_many_factors_do_not_underflow():
    """A class with 600 features, each of small probability in every class."""
    rng = np.random.default_rng(0)
    states = (("u", "v"), *[tuple(f"{k}" for k in range(50))] * 600)
    tables = (np.array([0.5, 0.5]), *rng.dirichlet(np.ones(50), size=(600, 2)))
    names = ("class", *(f"x{k}" for k in range(600)))
    network = BayesianNetwork(names, states, ((), *[(0,)] * 600), tables)
    frame = network.sample(5, seed=0)
    found = network.predict_proba(frame, "class")
    logs = np.column_stack(
        [network.log_likelihood(frame.assign(**{"class": own})) for own in ("u", "v")]
    )
    expected = np.exp(logs - logs.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)
    assert (network.predict(frame, "class") == frame["class"]).all()


def test_impossible_rows_are_an_error_that_names_the_row():
    certain = smoking().do({"tar": "low"})
    frame = pd.DataFrame({"tar": ["low", None, "high"]})
    np.testing.assert_allclose(certain.predict_proba(frame[:2], "age"), [[0.4, 0.6]] * 2)
    with pytest.raises(DataError, match="row 2: its values are impossible"):
        certain.predict_proba(frame, "age")
    with pytest.raises(DataError, match="probability 0"):
        certain.conditional({"tar": "high"})
    assert certain.predict(frame.iloc[:0], "age").shape == (0,)


def test_errors_name_variables_and_states():
    network = smoking()
    with pytest.raises(DataError, match="unknown variable 'sex'"):
        network.predict(pd.DataFrame(), "sex")
    with pytest.raises(DataError, match="'maybe' is no state of 'smoking': no, yes"):
        network.do({"smoking": "maybe"})
    with pytest.raises(DataError, match="unknown variable 'sex'"):
        network.conditional({"sex": "f"})
    with pytest.raises(ConfigError, match="both 'age'"):
        network.total_effect("age", "age")
    with pytest.raises(DataError, match="nothing is left"):
        network.conditional({"age": "old", "smoking": "no", "tar": "low", "cancer": "no"})
    with pytest.raises(DataError, match="among its 2 states"):
        network.predict(pd.DataFrame({"tar": ["medium"]}), "age")
    with pytest.raises(DataError, match="numbers from 0 up of shape"):
        BayesianNetwork(
            network.names, network.states, network.parents, network.tables, (np.ones(3),) * 4
        )


def test_tables_that_are_too_large_are_refused():
    factors = [inference.Factor((0, k), np.ones((2, 2))) for k in range(1, 40)]
    with pytest.raises(DataError, match="exact inference needs a table"):
        inference.eliminate(factors, [0], dict.fromkeys(range(40), 2))


@pytest.mark.nightly
def test_intervals_cover_the_true_contrast():
    """Half of the 600 fits are of 400 rows, the others of 1500."""
    network = smoking()
    table = network.total_effect("smoking", "cancer")
    true = table.loc["yes", "yes"] - table.loc["no", "yes"]
    hits = []
    for seed in range(600):
        model = counted(network, 400 if seed % 2 else 1500, seed=seed)
        found = model.contrast("smoking", "cancer", "yes", state="yes", reference="no")
        hits.append(found.interval[0] <= true <= found.interval[1])
    assert 0.93 <= np.mean(hits) <= 0.97
