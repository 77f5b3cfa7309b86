"""NOTEARS-ADMM with perceptrons: against its core in one loop, and what its options promise."""

import numpy as np
import pandas as pd
import pytest
from federations import app_of, spy
from neural_rows import nonlinear_rows
from server_states import states_of

from flwr_causal.app.config import read_config
from flwr_causal.clients import NotearsADMMClient
from flwr_causal.core.consensus import perceptrons as neural_admm
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.solution import edges_above
from flwr_causal.core.nonlinear.notears_mlp import free_parameters
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import NotearsADMM, run

NAMES = ("a", "b", "c", "d")
SIZES = (150, 60, 90)


def tables_of(sizes=SIZES, seed=1, **options):
    rows = nonlinear_rows(sum(sizes), seed, **options)
    return [
        pd.DataFrame(part, columns=NAMES) for part in np.split(rows, np.cumsum(sizes)[:-1], axis=0)
    ]


TABLES = tables_of()


def index_models(seed):
    return federated_nonlinear(6, 600, 3, seed=seed, mechanisms="mim", iid=True)


def method_of(**options):
    return NotearsADMM(**{"model": "mlp", "hidden": 6, "max_rounds": 12, **options})


def found(tables=None, **options):
    pytest.importorskip("torch", reason="perceptrons need torch")
    return run(method_of(**options), spy(TABLES if tables is None else tables))


def test_the_rounds_are_the_cores_iteration():
    options = {"early_stop": False, "max_rounds": 6, "center": "party", "hidden": 5}
    with states_of(neural_admm) as states:
        outcome = found(quorum=1.0, inner_steps=15, seed=3, **options)
    parties = [table.to_numpy() - table.to_numpy().mean(axis=0) for table in TABLES]
    network, masks = Network(4, (5,)), Knowledge().masks(NAMES)
    schedule = method_of(**options).options._full_schedule(outcome.agreement, 5)
    problem = neural_admm.ServerProblem(network, masks, schedule, neural_admm.NEURAL_DECAY)
    losses = [SquaredLoss(rows, network, num_rows=sum(SIZES)) for rows in parties]
    state, own = neural_admm.init(problem, 3), [None] * len(losses)
    for k in range(5):
        penalty = problem.schedule.at(k).consensus_penalty
        own = [
            neural_admm.client_step(
                loss, free_parameters(network, masks), before, state.weights, penalty, k, 15
            )
            for loss, before in zip(losses, own, strict=True)
        ]
        mean = np.mean([one.sent for one in own], axis=0)
        state, _ = neural_admm.server_step(state, mean, problem, len(losses))
    np.testing.assert_allclose(states[-1].weights, state.weights, atol=1e-8)
    slopes = np.average([loss.squared_slopes(state.weights) for loss in losses], 0, weights=SIZES)
    np.testing.assert_allclose(outcome.scores, np.sqrt(slopes), atol=1e-8)
    strong = edges_above(np.sqrt(slopes), 0.3, np.zeros((4, 4)))
    assert np.array_equal(outcome.graph.adjacency, strong)
    assert [record["exchange"] for record in outcome.history] == ["perceptrons"] * 5 + ["slopes"]


@pytest.mark.nightly
def test_index_models_that_the_parties_share():
    """SHD 1 in all when measured, 3 by the linear model."""
    total, linear = 0, 0
    for seed in range(3):
        parties, truth = index_models(seed)
        outcome = found(parties, hidden=10, max_rounds=30)
        assert outcome.rounds <= 30
        assert outcome.model is None
        total += compare(truth, outcome.graph)["shd"]
        linear += compare(truth, run(NotearsADMM(), spy(parties)).graph)["shd"]
    assert total <= 2
    assert total < linear


@pytest.mark.slow
def test_one_party_is_the_centralised_method_and_order_does_not_matter():
    """Consensus is reached with errors of the inner solver: strengths within 0.07 when measured."""
    parties, _ = index_models(2)
    whole = [pd.concat(parties, ignore_index=True)]
    options = {"max_rounds": 30, "min_available_nodes": 1}
    parts, other, one = (found(tables, **options) for tables in (parties, parties[::-1], whole))
    assert np.array_equal(one.graph.adjacency, parts.graph.adjacency)
    np.testing.assert_allclose(one.scores, parts.scores, atol=0.15)
    np.testing.assert_allclose(parts.scores, other.scores, atol=1e-3)


def test_the_papers_way_cuts_at_the_norms_of_the_first_layers():
    with states_of(neural_admm) as states:
        outcome = found(variant="paper", max_rounds=6)
    assert outcome.rounds == 6
    assert {record["exchange"] for record in outcome.history} == {"perceptrons"}
    norms = np.sqrt(Network(4, (6,)).squared_norms(states[-1].weights))
    assert np.array_equal(outcome.scores, norms)
    assert np.array_equal(
        outcome.graph.adjacency, edges_above(norms, 0.3, np.zeros((4, 4), dtype=bool))
    )


def test_knowledge():
    knowledge = Knowledge(required=[("d", "a")], forbidden=[("b", "c")])
    for options in ({"max_rounds": 30}, {"refit": False, "max_rounds": 6}):
        graph = found(knowledge=knowledge, **options).graph
        assert graph.adjacency[3, 0]
        assert not graph.adjacency[1, 2]
        assert graph.is_acyclic()


@pytest.mark.slow
def test_standardising_makes_units_immaterial():
    scaled = [table * [1.0, 50.0, 0.02, 1.0] + 3.0 for table in TABLES]
    plain, other = (found(tables, standardize=True) for tables in (TABLES, scaled))
    np.testing.assert_allclose(plain.scores, other.scores, atol=1e-6)


@pytest.mark.slow
def test_options_reach_the_parties():
    for hidden in (8, 2):
        with states_of(neural_admm) as states:
            found(hidden=hidden, max_rounds=6)
        assert len(states[-1].weights) == Network(4, (hidden,)).size
    exact, rough = found(max_rounds=6), found(max_rounds=6, arithmetic="float32")
    difference = np.abs(exact.scores - rough.scores).max()
    assert 0 < difference < 0.05
    hasty = found(max_rounds=6, inner_steps=1)
    assert np.abs(exact.scores - hasty.scores).max() > 0.1
    assert np.array_equal(found(max_rounds=6, sparsity=100.0).graph.adjacency, np.zeros((4, 4)))
    assert not np.array_equal(found(max_rounds=6, seed=5).scores, exact.scores)
    assert np.array_equal(found(max_rounds=6).scores, exact.scores)


def test_a_device_that_is_not_there_is_said():
    with pytest.raises(CausalError, match="'cuda:99' does not exist"):
        found(device="cuda:99")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden": 3}, "'hidden' is 3, which is for model='mlp'"),
        ({"inner_steps": 5}, "'inner_steps' is 5, which is for model='mlp'"),
        ({"device": "cuda"}, "which is for model='mlp'"),
        ({"arithmetic": "float32"}, "which is for model='mlp'"),
        ({"model": "mlp", "sparsity": "bic"}, "'auto' or a number with model='mlp'"),
        ({"model": "mlp", "hidden": 0}, "'hidden' is 0"),
        ({"model": "mlp", "inner_steps": 0}, "'inner_steps' is 0"),
        ({"model": "mlp", "max_rounds": 5}, "'max_rounds' is 5"),
        ({"model": "trees"}, "'linear' or 'mlp'"),
    ],
    ids=str,
)
def test_impossible_options(options, words):
    with pytest.raises(ConfigError, match=words):
        NotearsADMM(**options)


def test_the_run_config():
    config = {"notears-admm.model": "mlp", "notears-admm.hidden": 4, "max-rounds": 9}
    method = read_config(config)[2]
    assert (method.options.model, method.options.hidden, method.options.max_rounds) == ("mlp", 4, 9)


class TestFailures:
    """A lost reply is given again; a party without its memory goes on."""

    def test_a_message_that_is_asked_twice(self):
        plain = found(max_rounds=8, quorum=1.0)
        app, lost = app_of(TABLES), set()

        def losing(message, context):
            reply = app(message, context)
            key = context.node_id, records.config_of(message.content).get("round")
            if key[1] == 3 and key not in lost:
                lost.add(key)
                raise RuntimeError("the reply got lost")
            return reply

        again = run(method_of(max_rounds=8, quorum=1.0), LocalGrid(losing, len(TABLES)))
        assert len(lost) == len(TABLES)
        np.testing.assert_array_equal(again.scores, plain.scores)

    def test_a_party_that_forgot(self):
        pytest.importorskip("torch", reason="perceptrons need torch")

        class Forgetful(NotearsADMMClient):
            def recall(self):
                return None

        tables, clients = app_of(TABLES), {"notears-admm": Forgetful}
        forgetful = app_of(TABLES, clients)

        def app(message, context):
            forgets = records.config_of(message.content).get("round") == 4
            return (forgetful if forgets else tables)(message, context)

        outcome = run(method_of(max_rounds=8, quorum=1.0), LocalGrid(app, len(TABLES)))
        assert outcome.rounds == 8
        assert np.isfinite(outcome.scores).all()
        plain = found(max_rounds=8, quorum=1.0)
        assert np.abs(outcome.scores - plain.scores).max() > 0
