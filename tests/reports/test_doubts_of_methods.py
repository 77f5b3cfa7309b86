"""Doubts are of the evidence that a method has, in words that say what would decide."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from flwr_causal import Knowledge, Run, simulate
from flwr_causal.core.graphs.doubt import EdgeTest, doubtful_edges
from flwr_causal.core.graphs.graph import CausalGraph


def chain(draw, seed=0, n=900, parties=3, effect_of=lambda x: x):
    rng = np.random.default_rng(seed)
    rows = np.column_stack([draw(rng, n * parties) for _ in range(3)])
    for cause, effect in pairwise(range(3)):
        rows[:, effect] += effect_of(rows[:, cause])
    table = pd.DataFrame(rows, columns=["age", "dose", "risk"])
    return [table.iloc[k * n : (k + 1) * n] for k in range(parties)]


def exponential(rng, n):
    return rng.exponential(size=n) - 1


def normal(rng, n):
    return rng.normal(size=n)


def curve(x):
    return 2 * np.tanh(2 * x) + 0.5 * x**2


# What is said of a chain, whose directions the independencies leave open.
SAID = {
    "lingam": ("lingam", exponential, {}, None),
    "lingam, Gaussian": ("lingam", normal, {}, "so does their noise"),
    "moments": ("moments", normal, {}, "one noise variance"),
    "notears-admm": ("notears-admm", normal, {}, "one noise variance"),
    "class": ("moments", normal, {"solver": "class"}, "both directions"),
    "additive": ("moments", normal, {"model": "additive"}, "no curve"),
    "evidence": ("fedcausal", normal, {}, "no curve"),
    "perceptrons": ("notears-admm", normal, {"model": "mlp", "max_rounds": 6}, "been tested"),
    "group": ("fedcausal", normal, {"refine": "none"}, "been tested"),
}
#: Methods that read directions from curved effects.
OF_CURVES = {"additive": ("moments", {"model": "additive"}), "evidence": ("fedcausal", {})}


SLOW = ("perceptrons",)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in SAID]
)
def test_doubts_are_of_the_evidence_that_the_method_has(case, tmp_path):
    method, draw, options, said = SAID[case]
    run = simulate(method, chain(draw), **options)
    run.save(tmp_path)
    for own in (run, Run.load(tmp_path)):
        doubtful = [one for one in own.doubtful_edges(9) if one.about == "direction"]
        assert {one.doubt for one in doubtful} == (set() if said is None else {0.5})
        assert all(said in one.reason for one in doubtful if said)
        assert ("variance" in str(doubtful)) == (said == "one noise variance")
        assert ("in doubt: " in str(own)) == (said is not None)


@pytest.mark.few(1)
@pytest.mark.parametrize("case", OF_CURVES)
def test_directions_that_curves_decide_are_in_no_doubt(case, tmp_path):
    method, options = OF_CURVES[case]
    run = simulate(method, chain(normal, effect_of=curve), **options)
    run.save(tmp_path)
    assert [edge[:2] for edge in run.graph.edges()] == [("age", "dose"), ("dose", "risk")]
    for own in (run, Run.load(tmp_path)):
        assert all(one.doubt < 1e-6 for one in own.doubtful_edges(9))
        assert "less likely by" in str(own.doubtful_edges(9)[0])
        assert "in doubt: " not in str(own)


def test_a_direction_that_the_rows_speak_against_is_in_doubt():
    loss = np.array([[0.0, -3.0], [0.0, 0.0]])
    graph = CausalGraph(("a", "b"), np.array([[0.0, 1.0], [0.0, 0.0]]), turning_loss=loss)
    one = doubtful_edges(graph, evidence="curves")[0]
    assert one.doubt == pytest.approx(1 / (1 + np.exp(-3)))
    assert "more likely by 3 nats" in str(one)


def test_the_loss_of_a_turned_edge_is_that_of_the_likelihood():
    """Of two variables the other order is the other graph: residuals by hand."""
    run = simulate("lingam", [one[["age", "dose"]] for one in chain(exponential)])
    loss = run.graph.turning_loss
    assert run.graph.edges()[0][:2] == ("age", "dose")
    reverse = simulate(
        "lingam",
        [one[["age", "dose"]] for one in chain(exponential)],
        knowledge=Knowledge(required=[("dose", "age")]),
    )
    assert reverse.graph.turning_loss[1, 0] == 0  # knowledge allows no other order
    assert loss[0, 1] > 100
    assert np.count_nonzero(loss) == 1


def test_a_sure_edge_needs_no_more_rows():
    loss = np.array([[0.0, 500.0], [0.0, 0.0]])
    graph = CausalGraph(("a", "b"), np.array([[0.0, 1.0], [0.0, 0.0]]), turning_loss=loss)
    sure, unsure = (EdgeTest("a", "b", statistic, 1, 4000) for statistic in (900.0, 8.6))
    of_curves = [doubtful_edges(graph, [one], evidence="curves")[0] for one in (sure, unsure)]
    assert "more rows" not in str(of_curves[0])
    assert "more rows than 4,000" in str(of_curves[1]) or "rows would decide" in str(of_curves[1])
