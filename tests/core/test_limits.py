"""Deadlines and the size of numbers: iterative solvers check both, and stop where they must."""

import basis_moments
import numpy as np
import pytest
import scipy.optimize
from category_federations import random_rows
from lagged_systems import moments_of, simulate_series

from flwr_causal.core.circuits.composed.composition import cluster_products
from flwr_causal.core.circuits.composed.tied_clusters import fit_latent_classes
from flwr_causal.core.circuits.learners.class_conditional.joint_moments import (
    PartMoments,
    joint_moments,
)
from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.projection import project
from flwr_causal.core.consensus.schedules import Schedule
from flwr_causal.core.discrete.contingency_tables import sets_of, tabulate
from flwr_causal.core.discrete.scores import KINDS, terms_of
from flwr_causal.core.fedcausal import evidence_search
from flwr_causal.core.fedcausal import linear as fedcausal
from flwr_causal.core.fedcausal import perceptrons as fedcausal_perceptrons
from flwr_causal.core.fedcausal.evidence import EvidenceTables
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.speculative_search import CountedGains
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.equivalence import meek
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.limits import (
    LARGEST,
    check_deadline,
    deadline,
    noting,
    require_computable,
    steps,
)
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.polish import polish
from flwr_causal.core.linear.solution import refit_support
from flwr_causal.core.nonlinear import notears_mlp
from flwr_causal.core.nonlinear.additive import additive
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.series.partial_correlation import select_ridge
from flwr_causal.core.series.regression import dynotears, lasso, ridge
from flwr_causal.core.series.solution import select
from flwr_causal.errors import DataError


class TimeIsUpError(Exception):
    pass


class Clock:
    """A check that counts its calls and ends the work at one of them."""

    def __init__(self, last=None):
        self.calls, self.last = 0, last

    def __call__(self):
        self.calls += 1
        if self.calls == self.last:
            raise TimeIsUpError


def chain(d=6, n=400, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    for j in range(1, d):
        rows[:, j] += 0.9 * rows[:, j - 1]
    return rows


def series_folds():
    now = np.zeros((3, 3))
    now[0, 1] = 0.6
    lag = 0.5 * np.eye(3)
    return [moments_of(lagged_rows([simulate_series(k, 120, now, lag)], 2), 3) for k in range(3)]


def masks_of(d):
    return Knowledge().masks([f"x{k}" for k in range(d)])


ROWS = chain()
MOMENTS = SampleMoments.from_rows(ROWS)
FOLDS = series_folds()
DENSE = np.random.default_rng(1).standard_normal((6, 6))
GRAPH = np.triu(np.ones((6, 6), dtype=bool), 1)
NO_EDGES = np.zeros((6, 6), dtype=bool)


def valley(theta):
    return scipy.optimize.rosen(theta), scipy.optimize.rosen_der(theta)


def searched():
    problem = evidence_search.SearchProblem(masks_of(6), candidates=6)
    state = evidence_search.init(NO_EDGES, DENSE, problem)
    changes = np.where(state.wanted, np.abs(DENSE), 0.0)
    tables = EvidenceTables(changes, np.ones(6), DENSE)
    return evidence_search.server_step(state, tables, problem)[0].graph


def counted():
    table = random_rows((2, 3, 2, 2), 200, seed=2)
    source = CountedGains(table.cardinalities, terms_of(KINDS["bic"], 1.0, table.num_rows), 1.0)
    sets = sets_of([[0, 1, 2], [1, 2, 3]])
    source.learn_counts(sets, tabulate(table, sets))
    return source.sums.gains[: source.sums.used[0]]


def classes():
    evidence = [np.log(np.random.default_rng(k).dirichlet(np.ones(3), 40)) for k in range(2)]
    return fit_latent_classes(evidence, 2).weights


def overlapping():
    rows = [ROWS[:200, :3], ROWS[200:, 1:4]]
    columns = [np.array([0, 1, 2]), np.array([1, 2, 3])]
    parts = [
        PartMoments(own, float(len(x)), x.mean(axis=0), np.cov(x.T, bias=True))
        for own, x in zip(columns, rows, strict=True)
    ]
    return joint_moments(parts, "abcd")[1]


def undirected_path():
    marks = np.zeros((6, 6), dtype=bool)
    marks[0, 1] = True
    for j in range(1, 5):
        marks[j, j + 1] = marks[j + 1, j] = True
    return meek(marks)


#: Each solver with the fewest checks that a run of it makes.
SOLVERS = {
    "projection": (lambda: project(DENSE, sparsity=0.1, curvature=1.0, penalty=3.0).weights, 5),
    "notears": (
        lambda: notears(MOMENTS.subset(range(3)), sparsity=0.05, tolerance=1e-3).weights,
        20,
    ),
    "dagma": (lambda: dagma(MOMENTS, sparsity=0.05).weights, 20),
    "active set": (lambda: dagma(MOMENTS, sparsity=0.05, all_edges=False).weights, 20),
    "polish": (lambda: polish(MOMENTS, NO_EDGES), 5),
    "refit": (lambda: refit_support(MOMENTS, GRAPH, 0.3, NO_EDGES), 2),
    "additive": (
        lambda: additive(basis_moments.summed([ROWS[:, :3]], "abc"), 3, names="abc").weights,
        20,
    ),
    "perceptrons": (
        lambda: notears_mlp.minimise(valley, np.zeros(4), np.ones(4, dtype=bool)).theta,
        10,
    ),
    "ridge": (lambda: ridge(FOLDS[0], 3, 0.1), 1),
    "lasso": (lambda: lasso(FOLDS[0], 3, 0.05), 3),
    "dynotears": (lambda: dynotears(FOLDS[0], 3, 0.05), 20),
    "choice of order": (lambda: select(FOLDS, 3).best().recipe.penalty, 3 * 2 * 2),
    "choice of ridge": (lambda: select_ridge(FOLDS), 3),
    "evidence search": (searched, 3),
    "GES": (lambda: ges(random_rows((2, 2, 3, 2), 300, seed=3)).weights, 3),
    "GES with turns": (lambda: ges(random_rows((2, 2, 3, 2), 300, seed=3), turn=True).weights, 5),
    "summed tables": (counted, 1),
    "fusion": (lambda: fuse([GRAPH, GRAPH[::-1, ::-1].T], 6).edges, 1),
    "cycles": (lambda: break_cycles(DENSE), 10),
    "Meek's rules": (undirected_path, 4),
    "latent classes": (classes, 5),
    "moments of overlapping parts": (overlapping, 5),
    "combinations of clusters": (lambda: cluster_products((4, 4), 12), 5),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_stop_at_the_check_that_says_so(name):
    solve, fewest = SOLVERS[name]
    expected = solve()
    counting = Clock()
    with deadline(counting):
        result = solve()
    np.testing.assert_array_equal(result, expected)
    assert counting.calls >= fewest
    for last in {1, counting.calls // 2 or 1, counting.calls}:
        clock = Clock(last)
        with deadline(clock), pytest.raises(TimeIsUpError):
            solve()
        assert clock.calls == last


def test_a_deadline_holds_in_its_block_alone():
    outer, inner = Clock(), Clock(1)
    with deadline(outer):
        check_deadline()
        with pytest.raises(TimeIsUpError), deadline(inner):
            check_deadline()
        check_deadline()
    check_deadline()
    assert (outer.calls, inner.calls) == (2, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.01 * LARGEST, -1e308])
def test_values_that_are_too_large_are_named(value):
    values = np.array([1.0, value])
    with pytest.raises(DataError, match=r"the sums reach .* too large .* check the units"):
        require_computable("the sums", values)


def test_values_up_to_the_limit_are_computed_with():
    require_computable("the sums", np.array([LARGEST, -LARGEST, 0.0]))
    require_computable("the sums", np.zeros((0, 3)))
    require_computable("the sum", LARGEST)


@pytest.mark.parametrize("size", [1e3, 1e12, 1e30, LARGEST])
def test_the_projection_of_huge_means_is_finite(size):
    found = project(size * np.sign(DENSE), sparsity=0.1, curvature=1.0, penalty=3.0)
    assert np.isfinite(found.weights).all()
    assert np.isfinite(found.h)


@pytest.mark.parametrize("value", [1e100, 1e308, np.nan])
def test_a_mean_that_overflows_ends_the_projection(value):
    mean = DENSE.copy()
    mean[1, 2] = value
    with pytest.raises(DataError, match="too large to be computed with"):
        project(mean, sparsity=0.1, curvature=1.0, penalty=3.0)


@pytest.mark.parametrize("numbers", [{"multiplier": np.inf}, {"penalty": np.inf, "multiplier": 1}])
def test_multipliers_that_overflow_end_the_projection(numbers):
    with pytest.raises(DataError, match="the server's problem overflows"):
        project(DENSE, sparsity=0.1, curvature=1.0, **numbers)


def growing(step, state, reply):
    """Go on with replies that grow a million times in every round; return the rounds."""
    for rounds in range(40):
        try:
            state, _ = step(state, reply(1e6**rounds))
        except DataError as error:
            return rounds, str(error)
    raise AssertionError("all 40 rounds were done")


def test_replies_that_grow_in_every_round_end_consensus():
    schedule = Schedule((1.0,) * 40, (1.0,) * 40, (0.1,) * 40, max_iterations=30)
    problem = admm.ServerProblem(schedule, 6)

    def step(state, mean):
        after, info = admm.server_step(state, mean, problem, num_clients=2)
        assert np.isfinite(after.weights).all()
        return after, info

    rounds, message = growing(step, admm.init(problem), lambda size: size * DENSE[None])
    assert 5 <= rounds <= 8
    assert "too large to be computed with" in message


def test_weights_whose_acyclicity_overflows_end_fedcausal():
    problem = fedcausal.ServerProblem(6)
    with pytest.raises(DataError, match="the multipliers of the acyclicity"):
        fedcausal.server_step(fedcausal.init(problem), 1e6 * DENSE, problem)
    party = fedcausal.party_problem(ROWS, masks_of(6))
    received = DENSE * ~np.eye(6, dtype=bool)
    with pytest.raises(DataError, match="overflows from the received weights"):
        fedcausal.party_step(party, received, np.inf, 1.0)


def test_norms_whose_acyclicity_overflows_end_fedcausal():
    problem = fedcausal_perceptrons.PerceptronProblem(Network(6, (2,)), masks_of(6))

    def step(state, size):
        upload = fedcausal_perceptrons.Upload(np.full((6, 6), size), np.ones((6, 6)))
        return fedcausal_perceptrons.server_step(state, upload, problem)

    rounds, message = growing(step, fedcausal_perceptrons.init(problem), lambda size: size)
    assert rounds <= 8
    assert "the multipliers of the acyclicity" in message


def test_steps_end_in_silence_where_their_loop_ends_and_with_a_warning_at_the_limit():
    clock = Clock()
    with deadline(clock):
        for step in steps("This work", 3):
            if step == 2:
                break
    assert (step, clock.calls) == (2, 3)
    with pytest.warns(RuntimeWarning, match=r"^This work was ended after 1,000 steps, its limit"):
        assert sum(1 for _ in steps("This work", 1000)) == 1000


def test_warnings_go_to_who_asked_last_for_them():
    outer, inner = [], []
    with noting(outer.append):
        with noting(inner.append):
            list(steps("This work", 1))
        list(steps("That work", 2))
    assert [one[:9] for one in (*inner, *outer)] == ["This work", "That work"]
