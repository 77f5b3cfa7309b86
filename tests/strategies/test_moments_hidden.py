"""Moments with hidden common causes: the graph of the pooled rows, refusals, replicates."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_hidden_causes import one_hidden_cause, two_hidden_causes

from flwr_causal import ConfigError, DataError, Knowledge, Run, simulate
from flwr_causal.reports.page.effects import effect_rows
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.solvers import pag_search


def rows(n=3000, seed=0):
    """a -> b <- h -> c <- e, b -> g; h is hidden."""
    rng = np.random.default_rng(seed)
    hidden, a, e = rng.normal(size=(3, n))
    b, c = a + hidden + rng.normal(size=n), e + hidden + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "c": c, "e": e, "g": b + rng.normal(size=n)})


TABLE = rows()
PARTIES = [TABLE[:900], TABLE[900:1600], TABLE[1600:]]
EDGES = [("a", "o->", "b"), ("b", "<->", "c"), ("b", "->", "g"), ("e", "o->", "c")]


def edges_of(run):
    return [edge[:3] for edge in run.graph.marked_edges()]


@pytest.mark.slow
def test_effects_from_rows_with_missing_cells_have_wider_intervals():
    gaps = [
        part.mask(np.random.default_rng(k).random(part.shape) < 0.1)
        for k, part in enumerate(PARTIES)
    ]
    whole, run = (
        simulate("moments", parties, hidden_causes=True, missing_values="em")
        for parties in (PARTIES, gaps)
    )
    assert edges_of(run) == EDGES
    full, own = whole.total_effect("b", "g"), run.total_effect("b", "g")
    assert own.value == pytest.approx(full.value, abs=0.1)
    assert 1.02 * full.standard_error < own.standard_error < 1.3 * full.standard_error


def test_the_graph_is_that_of_the_pooled_rows_however_they_are_split():
    run = simulate("moments", PARTIES, hidden_causes=True)
    assert run.graph.kind == "pag"
    assert edges_of(run) == EDGES
    assert run.rounds == 1
    pooled = pag_search(TABLE)
    np.testing.assert_array_equal(run.graph.marks, pooled.marks)
    np.testing.assert_allclose(run.graph.weights, pooled.weights, atol=1e-8)
    other = simulate("moments", [TABLE], hidden_causes=True)
    np.testing.assert_array_equal(other.graph.marks, run.graph.marks)


def test_without_the_option_the_same_rows_give_edges_that_nothing_stands_for():
    assert simulate("moments", PARTIES).graph.num_edges > len(EDGES)


def two_hidden(n=4000):
    """Three parties with rows of two hidden causes."""
    table = two_hidden_causes(n)
    return [table[:1000], table[1000:2500], table[2500:]]


@pytest.mark.parametrize("options", [{"secure_aggregation": True}, {"solver": "class"}])
def test_a_run_without_the_option_tells_of_likely_hidden_causes(options, tmp_path):
    run = simulate("moments", two_hidden(), **options)
    assert run.warnings[0].startswith("Hidden common causes are likely")
    assert "b <-> c, g <-> m" in run.warnings[0]
    assert "hidden common causes are likely (b <-> c, g <-> m)" in run.headline
    assert run.headline in str(run)
    assert payload_of(run)["verdict"] == run.headline
    run.save(tmp_path)
    assert Run.load(tmp_path).headline == run.headline


def with_gaps(parties):
    rng = np.random.default_rng(3)
    return [part.mask(rng.random(part.shape) < 0.03) for part in parties]


def with_states(parties):
    states = {"a": "low", "b": "high"}
    return [part.assign(e=np.where(part["e"] > 0, *states.values())) for part in parties]


def as_series(parties):
    """The same rows as what acts on a step beside the step before."""
    out = []
    for part in parties:
        steps = part.to_numpy().copy()
        for t in range(1, len(steps)):
            steps[t] += 0.4 * steps[t - 1]
        out.append(pd.DataFrame(steps, columns=part.columns))
    return out


def acted_on_last(parties):
    """Parties beside one in whose rows b and g were set."""
    rng = np.random.default_rng(5)
    last = parties[0].assign(b=rng.normal(3, 1, len(parties[0])), g=rng.normal(3, 1, 1000))
    return [*parties, last]


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (with_gaps, {"missing_values": "em"}),
        (with_states, {"text_columns": "keep"}),
        (as_series, {"order": 1}),
        (acted_on_last, {"interventions": {"party 3": ["b", "g"]}}),
    ],
)
def test_they_are_told_of_with_gaps_categories_lags_and_interventions(changed, options):
    run = simulate("moments", changed(two_hidden(8000)), **options)
    assert "hidden common causes are likely (b <-> c, g <-> m)" in run.headline
    assert any(one.startswith("Hidden common causes are likely") for one in run.warnings)


def test_without_a_row_on_which_nothing_acted_nothing_is_told():
    parties = acted_on_last(two_hidden(8000))
    rng = np.random.default_rng(6)
    acted = {"party 0": ["c"], "party 1": ["m"], "party 2": ["c"], "party 3": ["b", "g"]}
    for k in range(3):
        (name,) = acted[f"party {k}"]
        parties[k] = parties[k].assign(**{name: rng.normal(3, 1, len(parties[k]))})
    run = simulate("moments", parties, interventions=acted)
    assert "hidden" not in run.headline


def with_hubs():
    """Rows of twelve effects of the same three hidden variables."""
    rng = np.random.default_rng(3)
    hubs = rng.normal(size=(4000, 3))
    loads = rng.uniform(0.5, 1.2, (3, 12))
    rows = hubs @ loads + rng.normal(size=(4000, 12))
    return pd.DataFrame(rows, columns=[f"v{k}" for k in range(12)])


@pytest.mark.slow
def test_edges_that_redrawn_moments_do_not_give_are_left_out_and_named(tmp_path):
    table = with_hubs()
    parties = [table[:1000], table[1000:2500], table[2500:]]
    run, kept = (simulate("moments", parties, stability=share) for share in (0.4, 0.0))
    left_out = kept.graph.adjacency & ~run.graph.adjacency
    assert left_out.any()
    assert not (run.graph.adjacency & ~kept.graph.adjacency).any()
    said = f"the rows do not settle the graph ({left_out.sum()} of {kept.graph.num_edges} edges"
    assert said in run.headline
    assert "do not settle" not in kept.headline
    (warning,) = [one for one in run.warnings if one.startswith("The rows do not settle")]
    cause, effect = np.argwhere(left_out)[0]
    assert f"v{cause} -> v{effect}" in warning
    run.save(tmp_path)
    assert Run.load(tmp_path).headline == run.headline
    whole = simulate("moments", [table])
    np.testing.assert_array_equal(whole.graph.adjacency, run.graph.adjacency)


def test_replicates_are_draws_themselves():
    table = with_hubs()
    run, kept = (
        simulate("moments", [table[:2000], table[2000:]], stability=share, replicates=3)
        for share in (0.4, 0.0)
    )
    edges = run.graph.adjacency
    np.testing.assert_array_equal(run.graph.confidence[edges], kept.graph.confidence[edges])


@pytest.mark.parametrize("options", [{"solver": "class"}, {"epsilon": 1.0}, {"local_graphs": True}])
def test_where_no_moments_are_redrawn_the_share_is_refused(options):
    with pytest.raises(ConfigError, match="stability"):
        simulate("moments", PARTIES, stability=0.5, **options)


@pytest.mark.parametrize("options", [{"hidden_causes": True}, {"solver": "dagma"}])
def test_a_run_that_allows_for_them_or_has_another_solver_does_not(options):
    run = simulate("moments", two_hidden(), **options)
    assert "idden" not in run.headline
    assert not any("Hidden common causes" in one for one in run.warnings)


def test_replicates_give_the_confidence_of_edges_and_marks():
    run = simulate("moments", PARTIES, hidden_causes=True, replicates=5)
    np.testing.assert_array_equal(run.graph.confidence > 0.5, run.graph.marks != 0)
    assert run.graph.marked_confidences() == [1.0] * 4


def test_knowledge_is_kept():
    known = Knowledge(tiers=[("g", "a"), ("b",)], required=[("a", "b")])
    run = simulate("moments", PARTIES, hidden_causes=True, knowledge=known)
    assert ("a", "->", "b") in edges_of(run)
    assert ("b", "<->", "g") in edges_of(run) or ("g", "o->", "b") in edges_of(run)


def test_a_run_is_saved_and_measured_against_a_truth_with_the_hidden_variable(tmp_path):
    run = simulate("moments", PARTIES, hidden_causes=True, truth=one_hidden_cause(TABLE.columns))
    assert run.metrics["mark_agreement"] == run.metrics["adjacency_f1"] == 1
    run.save(tmp_path)
    assert Run.load(tmp_path).graph.equals(run.graph)
    run.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<->" in page or "\\u003c->" in page
    assert "<->" in str(run)
    # Rows of a matrix would be read as causes.
    shown = [section["id"] for section in payload_of(run)["sections"] if section["blocks"]]
    assert "edges" in shown
    assert "matrices" not in shown


def test_effects_are_given_where_they_are_identified_and_else_the_edge_that_leaves_them_open():
    run = simulate("moments", PARTIES, hidden_causes=True)
    effect = run.total_effect("b", "g")
    slope, error = np.polyfit(TABLE["b"], TABLE["g"], 1, cov="unscaled")
    assert effect.value == pytest.approx(slope[0])
    assert effect.adjustment_set == run.graph.adjustment_set("b", "g") == ()
    residual = TABLE["g"] - np.polyval(slope, TABLE["b"])
    spread = np.sqrt((residual**2).sum() / (len(TABLE) - 2) * error[0, 0])
    assert effect.standard_error == pytest.approx(spread)
    assert run.total_effect("b", "g", by_party=True).value == effect.value
    assert run.total_effect("g", "b").value == run.total_effect("b", "c").value == 0
    for cause in ("a", "e"):
        with pytest.raises(DataError, match=f"not identified.*{cause} o-> "):
            run.total_effect(cause, "g" if cause == "a" else "c")
    with pytest.raises(DataError, match="not identified"):
        run.graph.adjustment_set("a", "b")
    with pytest.raises(ConfigError, match="smallest"):
        run.graph.adjustment_set("b", "g", kind="optimal")
    with pytest.raises(ConfigError, match="hidden_causes"):
        run.fit_check()


def test_a_model_is_saved_with_its_effects(tmp_path):
    run = simulate("moments", PARTIES, hidden_causes=True)
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.total_effect("b", "g") == run.total_effect("b", "g")
    with pytest.raises(ConfigError, match="parties"):
        loaded.total_effect("b", "g", by_party=True)


def with_categories(n=6000):
    """a -> b <- h -> c <- e, b -> g; h is hidden, c has three states and e two."""
    rng = np.random.default_rng(4)
    hidden, a, e = rng.normal(size=(3, n))
    b, yes = a + hidden + rng.normal(size=n), e > 0
    c = 2.0 * yes + 1.5 * hidden + rng.normal(size=n)
    states = np.where(c > 2, "high", np.where(c > 0, "mid", "low"))
    return pd.DataFrame({"a": a, "b": b, "c": states, "e": np.where(yes, "yes", "no"), "g": b})


@pytest.mark.parametrize(
    "options",
    [{}, {"missing_values": "em"}, {"model": "curved"}],
)
def test_categories_and_curved_effects_take_part(options, tmp_path):
    table = with_categories()
    table["g"] += np.random.default_rng(5).normal(size=len(table))
    parties = [table[:2000], table[2000:3500], table[3500:]]
    run = simulate("moments", parties, hidden_causes=True, text_columns="keep", **options)
    assert set(edges_of(run)) == set(EDGES)
    assert run.graph.weights.min() >= 0
    asked = {"state": 1.0, "reference": 0.0} if "model" in options else {}
    assert run.total_effect("b", "g", **asked).value == pytest.approx(1, abs=0.1)
    assert run.total_effect("g", "b", **asked).value == 0
    with pytest.raises(DataError, match=r"not identified.*e o-> c"):
        run.total_effect("e", "c", state="yes", reference="no", outcome="high")
    with pytest.raises(ConfigError, match="hidden_causes"):
        run.fit_check()
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.total_effect("b", "g", **asked) == run.total_effect("b", "g", **asked)
    assert [row[1] for row in effect_rows(run.model, run.graph)] == ["g"]


def test_rows_with_missing_cells_take_part():
    gaps = TABLE.copy()
    gaps.loc[::25, "c"] = np.nan
    run = simulate("moments", [gaps[:1500], gaps[1500:]], hidden_causes=True, missing_values="em")
    assert edges_of(run) == EDGES
