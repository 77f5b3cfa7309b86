"""Answers of runs mean what they say: types of the table, classes, knowledge, intervals."""

from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest
from method_modes import LEADING, MODES, NETWORKS
from sweeps import sweep

from flwr_causal import Knowledge, simulate
from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.reports.run import Run


def cut(table, parties=3):
    edges = np.linspace(0, len(table), parties + 1).astype(int)
    return [table.iloc[i:j].reset_index(drop=True) for i, j in pairwise(edges)]


# The table's types.

RNG = np.random.default_rng(1)
LEVEL = RNG.integers(0, 3, 900)
#: What a column of categories may hold, and the type in which its values come back.
COLUMNS = {
    "bool": (np.array([False, True, True])[LEVEL], bool),
    "int": (np.array([-2, 7, 10])[LEVEL], int),
    "float": (np.array([0.5, 1.0, 2.5])[LEVEL], float),
    "whole float": (np.array([1.0, 2.0, 4.0])[LEVEL], float),
    "text": (np.array(["low", "1", "True"], dtype=object)[LEVEL], str),
    "int8": (np.array([1, 2, 3], dtype=np.int8)[LEVEL], int),
    "nullable int": (pd.array([1, 2, 3], dtype="Int64")[LEVEL], int),
    "nullable bool": (pd.array([True, False, True], dtype="boolean")[LEVEL], bool),
    "category of texts": (pd.Categorical.from_codes(LEVEL, ["a", "b", "c"]), str),
    "category of ints": (pd.Categorical.from_codes(LEVEL, [3, 1, 2]), int),
    "category of bools": (pd.Categorical.from_codes(LEVEL % 2, [True, False]), bool),
    "category of floats": (pd.Categorical.from_codes(LEVEL, [0.5, 1.0, 7.25]), float),
}
MODELS = {
    "fedges": ("fedges", {}),
    "fedges exact": ("fedges", {"mode": "exact"}),
    "fedpc": ("fedpc", {"target": "x"}),
}


def with_column(values):
    """A table of the column, one that copies it in nine of ten rows, and one of another type."""
    noise = np.random.default_rng(2)
    own = pd.Series(values, name="x")
    kept = noise.random(900) < 0.9
    shuffled = own.sample(frac=1, random_state=0).reset_index(drop=True)
    other = own.where(kept, shuffled)
    if isinstance(own.dtype, pd.CategoricalDtype):
        other = other.astype(own.dtype)
    ill = (LEVEL > 0) ^ (noise.random(900) < 0.1)
    return pd.DataFrame({"x": own, "y": other, "ill": ill})


def check_types(values, kind, known):
    assert {type(value) for value in values} == {kind}, values
    assert set(values) <= known


@pytest.mark.few(15)
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("column", COLUMNS)
def test_values_come_back_in_the_types_of_the_table(model, column, tmp_path):
    values, kind = COLUMNS[column]
    table = with_column(values)
    known = set(table["x"].tolist())
    method, options = MODELS[model]
    if model == "fedpc" and column == "float":
        pytest.skip("a number that is not whole has a density there, and is no target")
    run = simulate(method, cut(table), seed=0, **options)
    run.save(tmp_path)
    for own in (run.model, Run.load(tmp_path).model):
        found = own.predict(table[["y", "ill"]], "x")
        check_types(found.tolist(), kind, known)
        assert np.mean([a == b for a, b in zip(found, table["x"], strict=True)]) > 0.8
        sample = own.sample(200, seed=0)
        check_types(sample["x"].tolist(), kind, known)
        check_types(sample["ill"].tolist(), bool, {True, False})
        assert np.isfinite(own.log_likelihood(table)).all()
        if method == "fedpc":
            continue
        check_types(own.states[0], kind, known)
        one, text = own.states[0][-1], own.state_names[0][-1]
        for evidence in (one, text):  # a value, or the name of its state
            np.testing.assert_array_equal(
                own.conditional({"x": evidence}).sample(50, seed=1)["y"],
                own.conditional({"x": one}).sample(50, seed=1)["y"],
            )
        effects = own.possible_effects("x", "ill")
        for effect in effects:
            check_types(effect.index.tolist(), kind, known)
            assert effect.columns.tolist() == [False, True]
            assert effect.loc[one].sum() == pytest.approx(1.0)


def test_types_are_those_of_all_parties():
    """Whole numbers that one party reads as floats stay whole; texts and numbers become texts."""
    base = pd.DataFrame({"x": np.arange(60) % 3, "y": np.arange(60) % 2})
    floats = base.assign(x=base["x"].astype(float))
    assert simulate("fedges", [base, floats]).model.states == ((0, 1, 2), (0, 1))
    assert {type(one) for one in simulate("fedges", [base, floats]).model.states[0]} == {int}
    halves = base.assign(x=base["x"] / 2)
    states = simulate("fedges", [base, halves]).model.states[0]
    assert states == (0.0, 0.5, 1.0, 2.0)
    assert {type(one) for one in states} == {float}
    categories = [base.assign(x=pd.Categorical(base["x"])), base.assign(x=base["x"].astype(str))]
    assert simulate("fedges", categories).model.states[0] == ("0", "1", "2")


# Intervals of numbers.


def measured():
    rng = np.random.default_rng(5)
    age = rng.normal(50, 10, 1200)
    pressure = 100 + 0.6 * age + rng.normal(0, 5, 1200)
    sick = np.where(rng.random(1200) < 1 / (1 + np.exp(-(pressure - 130) / 5)), "yes", "no")
    return pd.DataFrame({"age": age, "pressure": pressure, "sick": sick})


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_rows_as_they_were_measured_are_put_into_the_intervals(mode, tmp_path):
    table = measured()
    run = simulate("fedges", cut(table), mode=mode, discretize=4)
    run.save(tmp_path)
    names = dict(zip(run.model.names, run.model.states, strict=True))
    place = np.searchsorted(run.model.cuts["age"], table["age"], side="left")
    labels = table.assign(
        age=np.array(names["age"], dtype=object)[place],
        pressure=np.array(names["pressure"], dtype=object)[
            np.searchsorted(run.model.cuts["pressure"], table["pressure"], side="left")
        ],
    )
    mixed = table.assign(age=labels["age"].where(np.arange(1200) % 2 == 0, table["age"]))
    for own in (run.model, Run.load(tmp_path).model):
        expected = own.log_likelihood(labels)
        assert np.isfinite(expected).all()
        for rows in (table, mixed, table.astype({"age": "Float64"})):
            np.testing.assert_array_equal(own.log_likelihood(rows), expected)
            np.testing.assert_array_equal(
                own.predict_proba(rows[["age", "pressure"]], "sick"),
                own.predict_proba(labels[["age", "pressure"]], "sick"),
            )
            assert own.fit_check(rows).held_out_log_likelihood == expected.mean()
        assert set(own.predict(table, "age")) <= set(names["age"])
        for number, label in ((61.0, names["age"][3]), (-1e9, names["age"][0])):
            by_number, by_label = (own.conditional({"age": one}) for one in (number, label))
            assert by_number.sample(99, seed=0).equals(by_label.sample(99, seed=0))
        after = own.conditional({"age": 61.0})
        assert set(after.cuts) == {"pressure"}
        assert len(after.predict(table.head()[["pressure"]], "sick")) == 5
        with pytest.raises(DataError, match=r"'61.0' is no state of 'age'"):
            own.conditional({"age": "61.0"})
        with pytest.raises(DataError, match="missing"):
            own.log_likelihood(table.assign(age=np.where(np.arange(1200) == 3, np.nan, 50.0)))


# Classes.


def caused(names, seed=0):
    """Three columns of a chain, in an order and with names; nothing in the rows directs it."""
    rng = np.random.default_rng(seed)
    drug = rng.random(2100) < 0.5
    cured = rng.random(2100) < np.where(drug, 0.8, 0.3)
    happy = rng.random(2100) < np.where(cured, 0.9, 0.4)
    return pd.DataFrame(dict(zip(names, (drug, cured, happy), strict=True)))


def answers_of(method, options, names, order):
    """What a run says of the chain, by the places of the columns, or the error's type."""
    table = caused(names)[[names[k] for k in order]]
    if method == "moments":
        table = table.astype(float) + 0.01 * np.random.default_rng(1).normal(size=(2100, 1))
    run = simulate(method, cut(table), **options)
    found = {}
    for i, j in permutations(range(3), 2):
        effect = run.total_effect(names[i], names[j])
        assert isinstance(effect, list)
        assert len(effect) == len(run.model.possible_effects(names[i], names[j])) > 1
        ask = getattr(run.model, "contrast", None)
        if ask is not None:
            several = ask(names[i], names[j], True, state=True, reference=False)
            for table_, one in zip(effect, several, strict=True):
                change = table_.loc[True, True] - table_.loc[False, True]
                assert one.value == pytest.approx(change, abs=1e-12)
            effect = several
        found[i, j] = [(one.value, one.standard_error) for one in effect]
    for k, name in enumerate(names):
        with pytest.raises(ConfigError, match="possible_effects"):
            run.model.do({name: True if method == "fedges" else 1.0})
        found[k] = np.asarray(run.model.predict(table, name), dtype=float)
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [("fedges", {}), ("fedges", {"mode": "exact"}), ("moments", {"solver": "ges"})],
)
def test_answers_of_an_open_class_hang_on_no_name_and_no_order(method, options):
    first = answers_of(method, options, ("drug", "cured", "happy"), (0, 1, 2))
    for names, order in (
        (("z", "m", "a"), (0, 1, 2)),
        (("a", "z", "m"), (2, 0, 1)),
        (("drug", "cured", "happy"), (1, 2, 0)),
    ):
        other = answers_of(method, options, names, order)
        assert first.keys() == other.keys()
        for key, value in first.items():
            np.testing.assert_allclose(other[key], value, atol=2e-4)


def test_contrasts_of_a_class_have_the_errors_of_its_members():
    """With the direction required the class has one member, and its contrast is in the list."""
    table = caused(("drug", "cured", "happy"))
    several = simulate("fedges", cut(table)).model.contrast(
        "cured", "happy", True, state=True, reference=False
    )
    known = Knowledge(required=[("cured", "happy")], forbidden=[("cured", "drug")])
    one = simulate("fedges", cut(table), knowledge=known).model.contrast(
        "cured", "happy", True, state=True, reference=False
    )
    errors = [other.standard_error for other in several if abs(other.value - one.value) < 1e-9]
    assert errors
    np.testing.assert_allclose(errors, one.standard_error, rtol=0.02)


def test_series_of_an_open_class_name_possible_effects():
    rng = np.random.default_rng(0)
    series = rng.normal(size=(3, 400, 2))
    series[..., 1] += 0.8 * series[..., 0]
    run = simulate("moments", list(series), order=1, solver="ges")
    assert len(run.total_effect("x0", "x1")) == 2
    for ask in (run.model.do, run.model.response):
        with pytest.raises(ConfigError, match="possible_effects"):
            ask({"x0": 1.0})
    with pytest.raises(ConfigError, match="possible_effects"):
        run.total_effect("x0", "x1", lag=1)


# Knowledge.

#: The modes that find a graph.
GRAPHS = [name for name, (method, *_) in MODES.items() if method != "fedpc"]
TAKE_NO_KNOWLEDGE = ("2dbn personalised",)
KNOWN = {
    "required": Knowledge(required=[("a", "b"), ("b", "c")]),
    "forbidden": Knowledge(forbidden=[("b", "a"), ("c", "a"), ("c", "b")]),
    "tiers": Knowledge(tiers=[["a"], ["b"], ["c"]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize(
    "name",
    sweep(
        [name for name in GRAPHS if name not in NETWORKS and name not in TAKE_NO_KNOWLEDGE],
        LEADING,
    ),
)
def test_what_knowledge_decides_is_in_no_doubt(name, known, tmp_path):
    method, parties, options = MODES[name]
    knowledge = KNOWN[known]
    if isinstance(parties[0], np.ndarray):
        renamed = {"a": "x0", "b": "x1", "c": "x2"}
        knowledge = Knowledge(
            required=[tuple(map(renamed.get, pair)) for pair in knowledge.required],
            forbidden=[tuple(map(renamed.get, pair)) for pair in knowledge.forbidden],
            tiers=[tuple(map(renamed.get, tier)) for tier in knowledge.tiers],
        )
    run = simulate(method, parties, seed=0, knowledge=knowledge, **options)
    run.save(tmp_path)
    decided = {*knowledge.required, *((j, i) for i, j in knowledge.forbidden)}
    decided |= set(permutations([name for tier in knowledge.tiers for name in tier], 2))
    assert {(i, j) for i, j, _ in run.graph.edges()} >= set(knowledge.required)
    for own in (run, Run.load(tmp_path)):
        assert own.graph.equals(run.graph)
        for edge in own.doubtful_edges(99):
            pair = {(edge.cause, edge.effect), (edge.effect, edge.cause)}
            assert edge.about != "direction" or not pair & decided, edge
            assert (edge.cause, edge.effect) not in knowledge.required


@pytest.mark.parametrize("known", [*KNOWN.values(), Knowledge(required=[("a", "b")])])
def test_the_class_of_a_graph_respects_what_is_known_of_it(known):
    """Of a chain a required edge directs the next one, too."""
    chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    graph = CausalGraph.from_array(chain, ("a", "b", "c"))
    assert graph.to_cpdag().num_edges == 2
    np.testing.assert_array_equal(graph.to_cpdag().adjacency, chain | chain.T)
    informed = graph.with_knowledge(known)
    np.testing.assert_array_equal(informed.to_cpdag().adjacency, chain)
    assert doubtful_edges(informed) == doubtful_edges(informed.to_cpdag()) == []
    assert len(doubtful_edges(graph)) == len(doubtful_edges(graph.to_cpdag())) == 2
    one = graph.with_knowledge(Knowledge(required=[("b", "c")])).to_cpdag().adjacency
    np.testing.assert_array_equal(one, chain | np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0]]))


def test_a_required_lagged_edge_is_in_no_doubt():
    rng = np.random.default_rng(0)
    series = list(rng.normal(size=(3, 60, 2)))
    known = Knowledge(required_lagged=[("x0", "x1", 1)])
    run = simulate("moments", series, order=1, knowledge=known)
    assert run.graph.required_lagged[0, 0, 1]
    again = CausalGraph.from_dict(run.graph.to_dict())
    for graph in (run.graph, again):
        run.graph = graph
        assert "x0[t-1]" not in {edge.cause for edge in run.doubtful_edges(99)}
    run.graph = CausalGraph(run.graph.names, run.graph.weights, lagged=run.graph.lagged)
    assert "x0[t-1]" in {edge.cause for edge in run.doubtful_edges(99)}


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ["fedges", "moments"])
def test_possible_effects_are_those_that_knowledge_leaves(method, tmp_path):
    """A collider-free class of three: each direction that is known leaves fewer parents."""
    table = caused(("drug", "cured", "happy"))
    options = {} if method == "fedges" else {"solver": "ges"}
    if method == "moments":
        table = table.astype(float)
    expected = {
        Knowledge(): 3,
        Knowledge(forbidden=[("happy", "cured")]): 2,
        Knowledge(required=[("cured", "drug")]): 2,
        Knowledge(tiers=[["drug"], ["cured", "happy"]]): 1,
    }
    for knowledge, number in expected.items():
        run = simulate(method, cut(table), knowledge=knowledge, **options)
        run.save(tmp_path)
        for model in (run.model, Run.load(tmp_path).model):
            assert len(model.possible_effects("cured", "happy")) == number
