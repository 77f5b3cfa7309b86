"""``start(initial_arrays=...)``: the weights that a run starts from."""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation, spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from lagged_systems import simulate_series

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.strategies import (
    FedCausal,
    FedGES,
    FedPC,
    Lingam,
    Moments,
    NotearsADMM,
    TwoDBN,
    run,
)

FED = make_federation(d=5, n=240, parties=3)
TABLES = FED.tables
NAMES = tuple(TABLES[0].columns)
START = np.triu(np.random.default_rng(0).normal(size=(5, 5)), 1) + np.eye(5)


def given(**arrays):
    return records.pack_arrays(arrays)


def admm(**options):
    return NotearsADMM(**{"max_rounds": 12, "refit": False, **options})


def first_sent(grid):
    return records.arrays_of(grid.training_messages[0].content)["weights"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "method",
    [admm, lambda: admm(standardize=True), lambda: FedCausal(model="linear", max_rounds=6)],
)
def test_the_weights_are_what_the_parties_are_sent_first(method):
    grid = spy(TABLES)
    method().start(grid, given(weights=START))
    # Where no edge can be, on the diagonal, there is none.
    np.testing.assert_array_equal(np.squeeze(first_sent(grid)), np.triu(START, 1))
    plain = spy(TABLES)
    method().start(plain)
    assert not first_sent(plain).any()


def test_background_knowledge_stands_above_them():
    grid = spy(TABLES)
    admm(knowledge=Knowledge(forbidden=[("x0", "x1")])).start(grid, given(weights=START))
    assert first_sent(grid)[0][0, 1] == 0 != first_sent(grid)[0][0, 2]


def test_weights_of_lags_have_their_own_array():
    now = np.array([[0, 0.5], [0, 0]])
    tables = [
        pd.DataFrame(simulate_series(seed, 80, now, np.eye(2) * 0.4), columns=["a", "b"])
        for seed in range(2)
    ]
    lagged = np.arange(8.0).reshape(2, 2, 2)
    grid = spy(tables)
    method = TwoDBN(order=2, max_rounds=8)
    found = method.start(grid, given(weights=now, lagged=lagged)).outcome.graph
    sent = first_sent(grid)[0]
    np.testing.assert_array_equal(sent, np.concatenate([now, *lagged]))
    again = spy(tables)
    method.start(again, given(weights=found.weights, lagged=found.lagged))
    np.testing.assert_array_equal(
        first_sent(again)[0], np.concatenate([found.weights, *found.lagged])
    )
    alone = spy(tables)
    method.start(alone, given(weights=now))
    assert not first_sent(alone)[0][2:].any()


@pytest.mark.slow
def test_where_the_order_is_known_the_problem_is_convex_and_the_start_does_not_matter():
    effects, causes = np.nonzero(np.tril(np.ones((5, 5)), -1))
    backwards = [(NAMES[i], NAMES[j]) for i, j in zip(effects, causes, strict=True)]
    known = Knowledge(forbidden=backwards)
    method = admm(max_rounds=120, knowledge=known, early_stop=False, threshold=0.0, sparsity=0.02)
    cold = run(method, spy(TABLES)).scores
    far = run(method, spy(TABLES), initial_arrays={"weights": 3 * START}).scores
    np.testing.assert_allclose(far, cold, atol=1e-4)


def test_a_run_from_its_own_solution_stays_there():
    cold = run(admm(max_rounds=30), spy(TABLES))
    warm = run(admm(max_rounds=30), spy(TABLES), initial_arrays={"weights": cold.graph.weights})
    np.testing.assert_array_equal(warm.graph.adjacency, cold.graph.adjacency)
    assert warm.rounds <= cold.rounds


def test_a_wrappers_start_takes_them_too():
    method, grid = admm(), spy(TABLES)
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 0.0, 1.0, 3)
    wrapper.start(grid, given(weights=START), num_rounds=12)
    np.testing.assert_array_equal(first_sent(grid)[0], np.triu(START, 1))
    same = run(method, spy(TABLES), strategy=wrapper, initial_arrays={"weights": START})
    np.testing.assert_array_equal(method._initial, {})
    assert same.graph.adjacency.shape == (5, 5)


@pytest.mark.parametrize(
    "method",
    [
        lambda: Moments(),
        lambda: Lingam(),
        lambda: FedGES(),
        lambda: FedPC(target="x0"),
        lambda: FedCausal(),
        lambda: admm(model="mlp", refit=None),
    ],
)
def test_methods_without_weights_refuse_them(method):
    made, grid = method(), spy(TABLES)
    with pytest.raises(ConfigError, match=f"no meaning for {type(made).__name__}"):
        made.start(grid, given(weights=START))
    assert not grid.sent


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"w": START}, r"takes 'weights', not \['w'\]"),
        ({"weights": START, "lagged": START[None]}, "takes 'weights', not"),
        ({"weights": START[:4]}, r"has the shape \(4, 5\), not \(5, 5\) .* columns x0"),
        ({"weights": np.full((5, 5), np.inf)}, "finite numbers"),
    ],
)
def test_other_arrays_are_refused(arrays, why):
    method, grid = admm(), spy(TABLES)
    with pytest.raises(ConfigError, match=why):
        method.start(grid, given(**arrays))
    assert not grid.training_messages
    assert not method._initial


def test_a_run_is_resumed_from_the_same_arrays_only(tmp_path):
    whole = run(admm(), spy(TABLES), initial_arrays={"weights": START})
    options = {"output_dir": str(tmp_path)}

    def interrupted(record):
        if record["round"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            admm(**options),
            spy(TABLES),
            initial_arrays={"weights": START},
            on_round=interrupted,
        )
    assert len(Run.load(tmp_path).config["initial_arrays"]) == 64
    again = admm(**options, resume=True)
    for other in (None, given(weights=2 * START)):
        with pytest.raises(CausalError, match="had initial_arrays="):
            again.start(spy(TABLES), other)
    grid = spy(TABLES)
    found = again.start(grid, given(weights=START)).outcome
    assert found.graph.equals(whole.graph)
    assert found.rounds == whole.rounds
