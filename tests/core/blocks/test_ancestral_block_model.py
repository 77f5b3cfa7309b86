"""Effects of numbers and categories in PAGs: against least squares, interventions and the truth."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import CausalGraph, ConfigError, DataError
from flwr_causal.core.answers import NO_EFFECT
from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.systems.ancestral import AncestralModel
from flwr_causal.core.systems.blocks import BlockModel

EDGES = (("w", "c"), ("z", "c"), ("z", "y"), ("c", "y"), ("z", "b"), ("c", "b"))
HIDDEN = (("h", "z"), ("h", "t"), ("u", "w"), ("u", "v"))
STATES, MEANS = ("low", "mid", "top"), np.array([0.0, 1.0, -0.5])


def drawn(n, seed, do=None):
    """Rows of the edges; z, c and b are categories, and `do` sets c."""
    rng = np.random.default_rng(seed)
    h, u = rng.normal(size=(2, n))
    w, t = u + rng.normal(size=n), h + rng.normal(size=n)
    z = (h + rng.normal(size=n) > 0).astype(int)
    odds = np.column_stack([np.zeros(n), w + z, -w + 0.5 * z])
    c = np.argmax(odds + rng.gumbel(size=(n, 3)), axis=1)
    if do is not None:
        c[:] = do
    y = MEANS[c] + 2 * z + rng.normal(size=n)
    b = rng.random(n) < 0.2 + 0.3 * (c == 1) + 0.2 * z
    rows = {"w": w, "v": u + rng.normal(size=n), "t": t, "y": y}
    rows |= {"z": np.where(z, "yes", "no"), "c": np.array(STATES)[c], "b": np.where(b, "ill", "ok")}
    return pd.DataFrame(rows)


def graph_of(edges, names):
    every = list(dict.fromkeys([*names, *[name for edge in edges for name in edge]]))
    weights = np.zeros((len(every), len(every)))
    for cause, effect in edges:
        weights[every.index(cause), every.index(effect)] = 1
    return CausalGraph.from_array(weights, every).to_pag(names)


def model_of(rows, edges=(*EDGES, *HIDDEN), functions=1):
    variables, columns = design(rows, functions)
    moments = SampleMoments.from_rows(columns, column_names(variables))
    return AncestralModel(graph_of(edges, list(rows.columns)), moments, variables)


def test_of_numbers_effects_are_those_of_the_model_of_numbers():
    rng = np.random.default_rng(0)
    h, w = rng.normal(size=(2, 400))
    z = h + rng.normal(size=400)
    x = w + z + rng.normal(size=400)
    rows = pd.DataFrame({"w": w, "z": z, "x": x, "t": h, "y": 10 * x - z + rng.normal(size=400)})
    edges = [("w", "x"), ("z", "x"), ("x", "y"), ("z", "y"), ("h", "z"), ("h", "t")]
    model = model_of(rows, edges)
    other = AncestralModel(
        model.graph, SampleMoments.from_rows(rows.to_numpy(), list(rows.columns))
    )
    found, expected = model.total_effect("x", "y"), other.total_effect("x", "y")
    assert found.adjustment_set == expected.adjustment_set == ("z",)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-9)
    assert found.interval == pytest.approx(expected.interval, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize(("state", "reference"), [("mid", "low"), ("top", "mid")])
def test_effects_are_those_of_interventions(state, reference):
    model = model_of(drawn(20000, 1))
    set_to, other = (drawn(200000, 2, do=STATES.index(one)) for one in (state, reference))
    found = model.total_effect("c", "y", state=state, reference=reference)
    assert found.adjustment_set == ("z",)
    assert found.value == pytest.approx(set_to["y"].mean() - other["y"].mean(), abs=0.06)
    share = (set_to["b"] == "ill").mean() - (other["b"] == "ill").mean()
    outcome = {"state": state, "reference": reference, "outcome": "ill"}
    assert model.total_effect("c", "b", **outcome).value == pytest.approx(share, abs=0.02)
    against = model.total_effect("c", "b", **{**outcome, "outcome": "ok"})
    assert against.value == pytest.approx(-model.total_effect("c", "b", **outcome).value)


@pytest.mark.slow
def test_errors_are_those_of_least_squares_and_intervals_hold_the_truth_as_often_as_they_say():
    rows = drawn(500, 3)
    asked = {"state": "mid", "reference": "low"}
    effect = model_of(rows).total_effect("c", "y", **asked)
    own = [rows["c"] == "mid", rows["c"] == "top", rows["z"] == "yes", np.ones(500)]
    design_matrix = np.column_stack(own).astype(float)
    solved, residual, *_ = np.linalg.lstsq(design_matrix, rows["y"], rcond=None)
    variance = residual[0] / (500 - 4) * np.linalg.inv(design_matrix.T @ design_matrix)[0, 0]
    assert effect.value == pytest.approx(solved[0])
    assert effect.standard_error == pytest.approx(np.sqrt(variance))
    held = 0
    for seed in range(100):
        low, high = model_of(drawn(500, 100 + seed)).total_effect("c", "y", **asked).interval
        held += low <= 1.0 <= high
    assert held >= 89  # of 100 at .95: fewer with probability .004


def test_effects_that_are_excluded_are_zero_and_those_that_are_open_name_the_edge():
    model = model_of(drawn(500, 4))
    assert model.total_effect("y", "w") == NO_EFFECT
    with pytest.raises(DataError, match=r"w o-> c"):
        model.total_effect("w", "y")
    with pytest.raises(ConfigError, match="'c' is a category: give state and reference"):
        model.total_effect("c", "y")
    with pytest.raises(ConfigError, match="'b' is a category: give an outcome"):
        model.total_effect("c", "b", state="mid", reference="low")


def test_contrasts_have_a_row_for_each_state_and_outcome():
    model = model_of(drawn(800, 5))
    table = model.contrasts("c", "b")
    assert table[["state", "reference", "outcome"]].to_numpy().tolist() == [
        [state, "low", outcome] for state in ("mid", "top") for outcome in ("ill", "ok")
    ]
    one = model.total_effect("c", "b", state="top", reference="low", outcome="ill")
    assert table["value"].iloc[2] == one.value
    assert table["adjustment_set"].tolist() == [("z",)] * 4


def test_curved_effects_of_a_number_are_those_of_the_model_without_hidden_causes():
    rng = np.random.default_rng(6)
    w, v, noise = rng.normal(size=(3, 3000))
    rows = pd.DataFrame({"w": w, "v": v, "x": w + v, "y": (w + v) ** 2 + noise})
    edges = [("w", "x"), ("v", "x"), ("x", "y")]
    model = model_of(rows, edges, functions=3)
    dag = np.zeros((4, 4), dtype=bool)
    for cause, effect in edges:
        dag[model.names.index(cause), model.names.index(effect)] = True
    other = BlockModel(model.variables, model.sample_moments, dag)
    asked = {"state": 1.5, "reference": 0.0}
    assert model.total_effect("x", "y", **asked) == other.total_effect("x", "y", **asked)
    with pytest.raises(ConfigError, match="may be curved: give state and reference"):
        model.total_effect("x", "y")


def test_the_model_comes_back_from_its_file(tmp_path):
    model = model_of(drawn(400, 7))
    path = tmp_path / "model.json"
    model.save(path)
    again = AncestralModel.load(path)
    asked = {"state": "mid", "reference": "low"}
    assert again.total_effect("c", "y", **asked) == model.total_effect("c", "y", **asked)
    assert again.graph.equals(model.graph)
    assert repr(again) == f"<AncestralModel: 7 variables, {model.graph.num_edges} edges>"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"variables"', '"others"'), encoding="utf-8")
    with pytest.raises(DataError, match="a damaged model"):
        AncestralModel.load(path)


def test_what_does_not_belong_together_is_refused():
    model = model_of(drawn(300, 8))
    dag = CausalGraph(model.names, np.zeros((7, 7)))
    with pytest.raises(DataError, match="needs a PAG, not a dag"):
        AncestralModel(dag, model.sample_moments, model.variables)
    with pytest.raises(DataError, match="the variables are"):
        AncestralModel(model.graph, model.sample_moments, model.variables[::-1])
    with pytest.raises(DataError, match="the moments are not those"):
        AncestralModel(model.graph, model.sample_moments.subset(range(3)), model.variables)


def test_an_effect_that_no_adjustment_gives_is_an_error_of_both_models():
    # x <-> v2 -> y must be blocked by v2, which opens x <-> v2 <-> v1 -> y; v1 is on the way.
    edges = [("s", "x"), ("x", "v1"), ("v1", "y"), ("v2", "y")]
    hidden = [("h", "x"), ("h", "v2"), ("g", "v1"), ("g", "v2")]
    names = ["s", "x", "v1", "v2", "y"]
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 5)), columns=names)
    model = model_of(rows, [*edges, *hidden])
    assert model.graph.may_cause("x", "y")
    other = AncestralModel(model.graph, SampleMoments.from_rows(rows.to_numpy(), names))
    for one in (model, other):
        with pytest.raises(DataError, match="x on y is not identified: no variables block all"):
            one.total_effect("x", "y")
