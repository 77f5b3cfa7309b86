"""The one exchange with additive effects: from sums alone, what the pooled rows would give."""

import numpy as np
import pytest
from basis_moments import summed
from federations import spy

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.nonlinear.additive import additive
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.strategies import run
from flwr_causal.strategies.moments import Moments

PARTIES, TRUTH = federated_nonlinear(8, 1200, 3, seed=1, mechanisms="add-gp", iid=True)
NAMES = TRUTH.names
POOLED = np.concatenate([frame.to_numpy() for frame in PARTIES])
EDGE = tuple(NAMES[k] for k in np.argwhere(TRUTH.adjacency)[0])


def found(parties=PARTIES, **options):
    method = Moments(min_available_nodes=len(parties), model="additive", **options)
    return run(method, spy(parties))


@pytest.mark.parametrize("options", [{}, {"sparsity": 0.05}, {"refit": False}], ids=str)
def test_it_is_the_solution_on_the_pooled_rows(options):
    outcome = found(**options)
    centred = POOLED - POOLED.mean(axis=0)
    moments = summed([centred], NAMES)
    expected = additive(moments, 8, names=NAMES, **options)
    assert outcome.rounds == 1
    np.testing.assert_allclose(outcome.graph.weights, expected.weights, atol=1e-7)
    np.testing.assert_allclose(outcome.scores, expected.raw_weights, atol=1e-7)


def test_nonlinear_effects_are_found():
    total, linear = 0, 0
    for seed in range(3):
        parties, truth = federated_nonlinear(10, 2000, 4, seed=seed, mechanisms="add-gp", iid=True)
        total += compare(truth, found(parties).graph)["shd"]
        straight = run(Moments(min_available_nodes=4), spy(parties)).graph
        linear += compare(truth, straight)["shd"]
    assert total <= 1
    assert linear >= 6


def test_units_and_levels_do_not_matter():
    units = np.array([1.0, 10.0, 0.1, 1e3, 1.0, 5.0, 1e-2, 2.0])
    scaled = [frame * units + 40.0 for frame in PARTIES]
    one, other = (found(parties, standardize=True).graph for parties in (PARTIES, scaled))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    shifted = [frame + 50.0 * k for k, frame in enumerate(PARTIES)]
    one, other = (found(parties, center="party").graph for parties in (PARTIES, shifted))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_knowledge_and_threshold():
    at = {name: k for k, name in enumerate(NAMES)}
    graph = found(knowledge=Knowledge(required=[EDGE[::-1]])).graph
    assert graph.adjacency[at[EDGE[1]], at[EDGE[0]]]
    assert graph.is_acyclic()
    forbidden = found(knowledge=Knowledge(forbidden=[EDGE])).graph
    assert not forbidden.adjacency[at[EDGE[0]], at[EDGE[1]]]
    limit = float(np.median(found().graph.weights[found().graph.adjacency]))
    high = found(threshold=limit).graph
    assert 0 < high.num_edges < found().graph.num_edges
    assert high.weights[high.adjacency].min() > limit
