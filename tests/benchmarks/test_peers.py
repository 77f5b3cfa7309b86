"""Programs of others give the right answer through our calls: directions, states, lags.

Those that are not installed are skipped; ``pip install "flwr-causal[peers]"`` installs them.
"""

import random
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from benchmarks.peers import PEERS
from benchmarks.world import World
from flwr_causal.core.graphs.graph import CausalGraph

# Their dependencies warn of their own future.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LINEAR = (
    *("causal-learn-pc", "causal-learn-ges", "causal-learn-boss", "causal-learn-grasp"),
    *("dagma", "gcastle-notears", "direct-lingam"),
)
DISCRETE = ("causal-learn-pc", "causal-learn-ges", "pgmpy-hc", "pyagrum-hc")
NAMES = ("c", "a", "b")
# a -> c <- b is alone in its equivalence class: every method can find all directions.
COLLIDER = CausalGraph.from_array([[0, 0, 0], [1, 0, 0], [1, 0, 0]], NAMES)


def found(name, world):
    if find_spec(PEERS[name].module) is None:
        pytest.skip(f"{PEERS[name].distribution} is not installed")
    return PEERS[name].run(world)


@pytest.mark.parametrize("name", LINEAR)
def test_directions_of_numbers(name):
    rng = np.random.default_rng(0)
    a, b, noise = rng.uniform(-1.7, 1.7, (3, 2000))
    table = pd.DataFrame({"c": a - b + noise, "a": a, "b": b})
    (graph,) = found(name, World([table[:1200], table[1200:]], COLLIDER)).graphs
    assert graph.names == NAMES
    assert (graph.adjacency == COLLIDER.adjacency).all()


def test_fci_finds_a_hidden_common_cause():
    rng = np.random.default_rng(0)
    hidden, a, e = rng.normal(size=(3, 4000))
    b, c = a + hidden + rng.normal(size=4000), e + hidden + rng.normal(size=4000)
    table = pd.DataFrame({"a": a, "b": b, "c": c, "e": e})
    (graph,) = found("causal-learn-fci", World([table[:1500], table[1500:]])).graphs
    edges = {edge[:3] for edge in graph.marked_edges()}
    assert edges == {("a", "o->", "b"), ("b", "<->", "c"), ("e", "o->", "c")}


def test_fci_tests_categories_by_g():
    rng = np.random.default_rng(0)
    hidden, a, e = rng.integers(0, 3, (3, 6000))
    table = pd.DataFrame({"a": a, "b": a + hidden, "c": e + hidden, "e": e}).map("s{}".format)
    (graph,) = found("causal-learn-fci", World([table[:2500], table[2500:]])).graphs
    edges = {edge[:3] for edge in graph.marked_edges()}
    assert edges == {("a", "o->", "b"), ("b", "<->", "c"), ("e", "o->", "c")}


@pytest.mark.parametrize("name", ["causal-learn-boss", "causal-learn-grasp"])
def test_random_orders_follow_the_seed_and_leave_the_generator(name):
    rows = np.random.default_rng(0).normal(size=(200, 3))
    world = World([pd.DataFrame(rows, columns=list(NAMES))], COLLIDER)
    random.seed(5)
    before = random.getstate()
    (first,) = found(name, world).graphs
    assert random.getstate() == before
    random.seed(6)
    (second,) = found(name, world).graphs
    assert first.equals(second)


@pytest.mark.parametrize("name", ["causal-learn-pc", "causal-learn-boss"])
def test_parties_vote_on_what_a_search_of_each_finds(name):
    rng = np.random.default_rng(0)
    a, b, noise = rng.uniform(-1.7, 1.7, (3, 3000))
    table = pd.DataFrame({"c": a - b + noise, "a": a, "b": b})
    alone = table.iloc[:1000].apply(lambda column: rng.permutation(column))
    if find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed")
    world = World([table[:1000], alone, table[1000:2000]], COLLIDER)
    (graph,) = PEERS[name].run(world, voting=True).graphs
    assert (graph.adjacency == COLLIDER.adjacency).all()
    most_alone = World([table[:1000], alone, alone], COLLIDER)
    (alone_most,) = PEERS[name].run(most_alone, voting=True).graphs
    assert alone_most.num_edges == 0


def test_normal_scores_show_boss_what_raw_values_hide():
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 3000))
    table = np.exp(2 * pd.DataFrame({"c": a - b + noise, "a": a, "b": b}))
    if find_spec("causallearn") is None:
        pytest.skip("causal-learn is not installed")
    world = World([table[:1000], table[1000:]], COLLIDER)
    (graph,) = PEERS["causal-learn-boss"].run(world, normal_scores=True).graphs
    assert (graph.adjacency == COLLIDER.adjacency).all()
    (raw,) = PEERS["causal-learn-boss"].run(world).graphs
    assert not (raw.adjacency == COLLIDER.adjacency).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_directions_of_categories(name):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 3000))
    c = np.where(rng.random(3000) < 0.1, rng.integers(0, 2, 3000), a | b)
    table = pd.DataFrame({"c": c, "a": a, "b": b}).astype(str)
    (graph,) = found(name, World([table[:1200], table[1200:]], COLLIDER)).graphs
    assert graph.names == NAMES
    if name == "pgmpy-hc":  # breaks ties at random, and may end in a -> b with c -> a and c -> b
        assert (graph.adjacency | graph.adjacency.T)[COLLIDER.adjacency].all()
        assert graph.is_acyclic()
    else:
        # Hill climbing returns one member of the class, which is the class here.
        assert (graph.adjacency == COLLIDER.adjacency).all()


def test_lags_and_effects_within_a_step():
    rng = np.random.default_rng(0)
    series = []
    for _ in range(2):
        rows = np.zeros((600, 3))
        for t in range(1, 600):
            rows[t, 1:] = rng.normal(size=2)
            rows[t, 2] += 0.7 * rows[t - 1, 1]
            rows[t, 0] = rows[t, 1] - rows[t, 2] + rng.normal()
        series.append(pd.DataFrame(rows, columns=list(NAMES)))
    truth = CausalGraph(NAMES, COLLIDER.weights, lagged=np.zeros((1, 3, 3)))
    (graph,) = found("pcmci-plus", World(series, truth, options={"order": 1})).graphs
    assert (graph.adjacency == COLLIDER.adjacency).all()
    assert np.argwhere(graph.lagged[0]).tolist() == [[1, 2]]


def test_density_of_zeros_and_ones():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, (2500, 1))
    rows = np.where(rng.random((2500, 8)) < 0.05, 1 - first, first)
    table = pd.DataFrame(rows, columns=[f"v{j}" for j in range(8)])
    world = World([table[:1000], table[1000:2000]], test=table[2000:].reset_index(drop=True))
    each = 0.05 * np.log(0.05) + 0.95 * np.log(0.95)
    true, independent = np.log(0.5) + 8 * each, 8 * np.log(0.5)
    value = found("spflow-einet", world).counts["log_likelihood"]
    assert true - 0.5 < value < true + 0.2
    assert independent < value - 2


def test_var_lingam_finds_effects_within_a_step_and_of_the_past():
    rng = np.random.default_rng(0)
    noise, series = rng.exponential(size=(2000, 3)) - 1, np.zeros((2000, 3))
    for step in range(1, 2000):
        series[step] = 0.5 * series[step - 1] + noise[step]
        series[step, 1] += 0.8 * series[step, 0]
    names = tuple("xyz")
    world = World(
        [pd.DataFrame(series, columns=list(names))],
        CausalGraph.from_array(np.zeros((3, 3)), names),
        options={"order": 1},
    )
    (graph,) = found("var-lingam", world).graphs
    assert graph.weights[0, 1] == pytest.approx(0.8, abs=0.05)
    assert np.count_nonzero(graph.weights) == 1
    np.testing.assert_allclose(graph.lagged[0], 0.5 * np.eye(3), atol=0.06)
