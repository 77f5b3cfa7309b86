"""Searches end: their steps are better by more than rounding, and a limit ends those that are not.

A loop whose step is made to change something for ever ends at its limit, with a warning that names
both. The limits of the searches are made small, so that the tests count steps and no time.
"""

import re

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.core.blocks import lacking, near_ties
from flwr_causal.core.blocks.missing import first_estimate, own_sums, seen_sums
from flwr_causal.core.blocks.pag import NumberSource, pag_search
from flwr_causal.core.circuits.learners.class_conditional import joint_moments
from flwr_causal.core.fedcausal import evidence_search
from flwr_causal.core.ges import ancestral_search, greedy_search, linear_class
from flwr_causal.core.ges.ancestral_search import AncestralScore
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.interventions import kept, targets
from flwr_causal.core.limits import deadline
from flwr_causal.core.linear import lingam, notears, order_search, polish
from flwr_causal.core.linear.moments import SampleMoments

GRAPH = np.triu(np.ones((3, 3), dtype=bool), 1)


def rows_of(seed=0, d=3, n=200):
    rng = np.random.default_rng(seed)
    rows = rng.laplace(size=(n, d))
    for j in range(1, d):
        rows[:, j] += 0.9 * rows[:, j - 1]
    return rows


ROWS = rows_of()
MOMENTS = SampleMoments.from_rows(ROWS)


def products(parties=4):
    return np.stack(
        [(z := np.column_stack([np.ones(200), rows_of(k)])).T @ z for k in range(parties)]
    )


def other_graphs():
    """Return a search that never finds the same graph in two calls one after the other."""
    found = [GRAPH, np.zeros_like(GRAPH)]
    return lambda *_: found.reverse() or found[0]


def other_choices():
    """Return a choice of kept mechanisms that differs in each call."""
    calls = iter(range(1, 10**6))

    def choice(*_):
        bits = next(calls)
        marks = np.array([bits >> k & 1 for k in range(12)], dtype=bool).reshape(4, 3)
        return kept._Choice(kept.KeptMechanisms(marks, marks), 0.0)

    return choice


def falling():
    """Return a score that falls with each call."""
    calls = iter(range(10**6))
    return lambda *_, **__: -1e6 * next(calls)


def swept(*arguments):
    """Say that something has changed, and change nothing."""
    return True


def swapped(order, *_):
    """Return another order each time."""
    return [order[1], order[0], *order[2:]]


def gained(_, columns, marks, acted):
    """Find another gain wherever a party might act, so that each step adds a target."""
    return 1.0 + np.arange(acted.size).reshape(acted.shape), acted, acted


def other_marks():
    """Return a phase of a search after which its class is another one each time."""
    calls = iter(range(1, 10**6))

    def changed(self, *_):
        bits = next(calls)
        marks = np.array([bits >> k & 1 for k in range(9)], dtype=bool).reshape(3, 3)
        self.graph = self.graph._replace(marks=marks)
        return self.graph, 1.0

    return changed


def incomplete():
    """Fit moments where one party lacks the third column and the other one the first."""
    tables = [ROWS[:100].copy(), ROWS[100:].copy()]
    tables[0][:, 2] = tables[1][:, 0] = np.nan
    seen = seen_sums(np.concatenate(tables))
    start = first_estimate(seen)
    sets = lacking.column_sets(
        [own_sums(table, start) for table in tables], seen, np.zeros(len(seen.counts), dtype=bool)
    )
    return lacking.estimate_of_sets(sets, start, seen)


def overlapping():
    parts = [
        joint_moments.PartMoments(own, 100.0, x.mean(axis=0), np.cov(x.T, bias=True))
        for own, x in ((np.array([0, 1]), ROWS[:100, :2]), (np.array([1, 2]), ROWS[100:, 1:]))
    ]
    return joint_moments.joint_moments(parts, "abc")


def ascended():
    """Ascend where each solution has a fifth of the h of the one before."""
    return notears.ascend(lambda x, *_: x / 5, lambda x: float(x[0]), np.ones(1), 1e-20)


def greedy():
    none = np.zeros((3, 3), dtype=bool)
    return greedy_search.prepared_search(MomentGains(MOMENTS), MOMENTS.names, start=none)


def stated():
    acted = np.zeros((4, 3), dtype=bool)
    acted[1, 1] = acted[2, 2] = True
    return acted


#: What is replaced by what, in a module or a class, and the module with the limit; a run; and how
#: the warning begins.
LOOPS = {
    "ancestral graphs, changes": (
        (ancestral_search, "other_edge", swept),
        (ancestral_search, "MOST_STEPS", 1),
        lambda: pag_search(ROWS, draws=0),
        "The search for an ancestral graph",
    ),
    "ancestral graphs, rounds": (
        (ancestral_search, "is_lower", swept),
        (ancestral_search, "MOST_STEPS", 3),
        lambda: pag_search(ROWS, draws=0),
        "The search for an ancestral graph",
    ),
    "classes": (
        (linear_class, "order_score", falling()),
        (linear_class, "MOST_STEPS", 3),
        lambda: linear_class.linear_class(
            [MOMENTS] * 3, Knowledge().masks(MOMENTS.names), distinguished=np.zeros_like(GRAPH)
        ),
        "The search for an equivalence class",
    ),
    "orders": (
        (order_search.MomentOrders, "_sweep", swept),
        (order_search, "MOST_SWEEPS", 3),
        lambda: order_search.search_orders(
            [MOMENTS] * 3,
            Knowledge().masks(MOMENTS.names),
            least_effect=0.0,
            starts={"names": [0, 1, 2]},
        ),
        "The search over causal orders",
    ),
    "orders of families": (
        (near_ties, "_sweep", swept),
        (near_ties, "MOST_STEPS", 3),
        lambda: near_ties.best_dag([[()], [(0,)], [(1,)]], [np.zeros(1)] * 3, GRAPH),
        "The search over causal orders",
    ),
    "orders without Gaussian noise": (
        (lingam, "_moved", swept),
        (lingam, "MOST_STEPS", 3),
        lambda: lingam.lingam(ROWS),
        "The search over causal orders",
    ),
    "moves": (
        (polish, "is_lower", swept),
        (polish, "MOST_STEPS", 1),
        lambda: polish.polish(MOMENTS, GRAPH),
        "The search from a graph",
    ),
    "kept mechanisms": (
        (kept, "_choice", other_choices()),
        (kept, "MOST_STEPS", 3),
        lambda: kept.kept_mechanisms(products(), stated(), [1] * 3, other_graphs()),
        "The search for mechanisms that interventions keep",
    ),
    "targets": (
        (targets, "_compared", gained),
        (targets, "MOST_STEPS", 3 - 24),
        lambda: targets.find_targets(products(), [1] * 3, 3, lambda *_: GRAPH),
        "The search for the targets of interventions",
    ),
    "orders of evidence": (
        (evidence_search, "_moved", swapped),
        (evidence_search, "_MOST_PASSES", 3),
        lambda: evidence_search.recombined(
            {}, GRAPH, evidence_search.SearchProblem(Knowledge().masks(MOMENTS.names))
        ),
        "The search over causal orders",
    ),
    "moments with missing values": (
        (lacking, "TOLERANCE_OF_SETS", -1.0),
        (lacking, "MOST_OF_SETS", 3),
        incomplete,
        "The fit of moments with missing values",
    ),
    "moments of columns apart": (
        (joint_moments, "TOLERANCE", -1.0),
        (joint_moments, "MAX_STEPS", 3),
        overlapping,
        "The fit of moments of columns that no party has together",
    ),
    "dual ascent": (
        (notears, "PROGRESS", 0.5),
        (notears, "MAX_DUAL_STEPS", 3),
        ascended,
        "The dual ascent",
    ),
    "turns": (
        (greedy_search.Search, "_best_turn", other_marks()),
        (greedy_search, "MOST_STEPS", 1),
        lambda: greedy().turning(),
        "The greedy search",
    ),
    "phases": (
        (greedy_search.Search, "turning", other_marks()),
        (greedy_search, "MOST_STEPS", 3),
        lambda: greedy()._run(None, turn=True),
        "The greedy search",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_does_not_settle_ends_at_its_limit_with_a_warning(name, monkeypatch):
    replaced, limit, run, work = LOOPS[name]
    with monkeypatch.context() as patch:
        patch.setattr(*replaced)
        patch.setattr(*limit)
        with pytest.warns(RuntimeWarning, match=f"{re.escape(work)} was ended after 3 steps"):
            run()
    run()  # without a warning, which would be an error


def unsettled(*arguments):
    """Say that an edge was changed."""
    return 1.0


def test_the_warning_of_a_run_s_search_is_a_warning_of_the_run_once(monkeypatch):
    monkeypatch.setattr(ancestral_search, "other_edge", unsettled)
    monkeypatch.setattr(ancestral_search, "MOST_STEPS", 1)
    names = ["a", "b", "c"]
    parties = [pd.DataFrame(ROWS[k::2], columns=names) for k in range(2)]
    run = simulate("moments", parties, hidden_causes=True)
    found = [one for one in run.warnings if one.startswith("The search for an ancestral graph")]
    assert len(found) == 1
    assert "3 steps, its limit" in found[0]


@pytest.mark.parametrize("score", [np.inf, -np.inf, np.nan])
def test_a_graph_without_a_finite_score_stays(score):
    class NoScore(AncestralScore):
        def __call__(self, marks):
            return score

    source = NumberSource(MOMENTS)
    source.score = NoScore(MOMENTS.correlations, MOMENTS.n, 3.0)
    search = ancestral_search.AncestralSearch(source, None)
    start = search.without_hidden_causes()
    assert (search.run() == start).all()


def test_a_class_without_a_finite_score_stays(monkeypatch):
    monkeypatch.setattr(linear_class, "order_score", lambda *_, **__: np.nan)
    masks = Knowledge().masks(MOMENTS.names)
    linear_class.linear_class([MOMENTS] * 3, masks, distinguished=np.zeros_like(GRAPH))


class Steps:
    """A check of the deadline that ends the work after so many steps."""

    def __init__(self, most):
        self.left = most

    def __call__(self):
        self.left -= 1
        assert self.left, "the search goes on and on"


#: A column that three others determine, and the seed of these.
DETERMINED = {
    "sum of two": (lambda a, b, c: a + b, 0),
    "sum of all": (lambda a, b, c: a + b + c, 3),
    "copy": (lambda a, b, c: -3 * a + 5, 0),
    "share": (lambda a, b, c: 100 - a - b - c, 4),
}


@pytest.mark.parametrize("kind", DETERMINED)
def test_the_search_for_hidden_causes_ends_where_columns_determine_another(kind):
    determined, seed = DETERMINED[kind]
    rows = rows_of(seed, n=1500)
    rows = np.column_stack([rows, determined(*rows.T)])
    with deadline(Steps(10_000)):
        assert np.isfinite(pag_search(rows, draws=2).weights).all()


def test_changes_of_scores_that_rounding_makes_move_no_variable():
    """Families of equal scores, up to rounding, leave the graph at which the search begins."""
    rng, start = np.random.default_rng(0), GRAPH
    families = [[(), *[(k,) for k in range(3) if k != j]] for j in range(3)]
    families = [[*own, tuple(k for k in range(3) if k != j)] for j, own in enumerate(families)]
    plain = [np.array([0.0, 5.0, 6.0, 6.0]) for _ in families]
    expected = near_ties.best_dag(families, plain, start)
    for _ in range(20):
        # Each is a sum of many terms, known to 14 digits.
        scores = [1e8 + own + rng.uniform(-1e-6, 1e-6, len(own)) for own in plain]
        assert (near_ties.best_dag(families, scores, start) == expected).all()
