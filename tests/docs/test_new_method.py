"""The guide's blocks run as they stand, find what they should, and a wrong step is noticed."""

import ast
import re
import sys
import types
from functools import cache
from itertools import count
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from flwr.app import Error, Message
from scipy.stats import chi2, chi2_contingency, norm

from flwr_causal.compat import CLIENT_RAISED
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.simulations import simulate
from flwr_causal.strategies import FedPC, Moments, NotearsADMM
from flwr_causal.testing import check_method

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("new_method.md", "change_method.md")
TEXT = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", TEXT, re.S)
AVERAGE, ENTRY, PART, OPTIONS, TWO, STATE, CHECK, PC, STEPS, FEDGES, LEAVES = (
    block for block, _ in BLOCKS
)


NUMBERS = count()


def execute(text, **names):
    """Run a block in a module of its own, and return the module."""
    guide = types.ModuleType(f"guide{next(NUMBERS)}")
    vars(guide).update(names)
    # Dataclasses and options look their module up by name.
    sys.modules[guide.__name__] = guide
    exec(compile(text, guide.__name__, "exec"), vars(guide))
    return guide


module_of = cache(execute)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "after"),
    [
        (AVERAGE, ()),
        (OPTIONS, (AVERAGE,)),
        (TWO, ()),
        (STATE, (TWO,)),
        (PC, ()),
        (FEDGES, (STEPS,)),
    ],
    ids=["average", "options", "two", "state", "pc", "fedges"],
)
def test_the_pages_show_what_is_printed(block, after, capsys):
    names = {name: one for before in after for name, one in vars(module_of(before)).items()}
    capsys.readouterr()
    execute(block, **names)
    assert capsys.readouterr().out == dict(BLOCKS)[block]


def test_every_block_that_prints_shows_it():
    silent = {ENTRY, PART, CHECK, STEPS, LEAVES}
    assert {block for block, shown in BLOCKS if not shown} == silent


# One exchange of averages.


def finds_the_edge(guide):
    run = guide.run
    ((cause, effect, weight),) = run.graph.edges()
    assert (cause, effect) == ("x0", "x1")
    assert weight == pytest.approx(2.0, abs=0.4)
    assert run.rounds == 1
    assert run.stop_reason == "one round is enough"
    # d x d and d numbers from each of two parties, and little else.
    assert run.bytes_received >= 2 * 8 * (4 + 2)
    assert np.isfinite(run.graph.weights).all()


def test_the_first_page_runs_as_it_stands():
    finds_the_edge(module_of(AVERAGE))


def test_the_parties_have_the_option():
    first = module_of(AVERAGE)
    guide = execute(OPTIONS, **vars(first))
    weights = [
        simulate(
            guide.Ridge(ridge=ridge), [first.rows[:100], first.rows[100:]], client=guide.RidgeClient
        ).graph.weights
        for ridge in (0.0, 0.5)
    ]
    assert np.allclose(weights[0], first.run.graph.weights, atol=1e-3)
    # The cause has variance 1: its effect of 2 is that over 1.5.
    assert weights[1][0, 1] == pytest.approx(weights[0][0, 1] / 1.5, rel=0.1)
    assert np.array_equal(guide.run.graph.weights, weights[1])
    with pytest.raises(CausalError, match="'ridge' is 'much'"):
        guide.Ridge(ridge="much")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""),
        ({"robust": True, "robust_share": 0.2}, ""),
        ({"robust_share": 0.2}, "'robust_share' is 0.2, which is for robust=True: leave it out"),
        ({"robust": True, "replicates": 2}, "'replicates' is 2; it must be 0 with robust=True"),
        (
            {"robust": True, "secure_aggregation": True},
            "'robust' is True; it must be False with secure_aggregation=True",
        ),
    ],
)
def test_what_belongs_to_a_part_is_for_it_alone(options, words):
    kind = execute(PART, **vars(module_of(AVERAGE))).RobustRegression
    if not words:
        assert kind(**options).options.robust is bool(options)
        return
    with pytest.raises(CausalError, match=words):
        kind(**options)


def test_the_first_page_is_a_page():
    assert len([line for line in AVERAGE.splitlines() if line.strip()]) < 60


# Two exchanges.


def finds_the_order(guide):
    """Assert everything that the second page promises, against the pooled rows."""
    run, rows = guide.run, np.concatenate(guide.parties)
    rows = rows - rows.mean(axis=0)
    wanted = np.zeros((3, 3))
    for j in (1, 2):
        wanted[:j, j] = np.linalg.lstsq(rows[:, :j], rows[:, j], rcond=None)[0]
    wanted[np.abs(wanted) <= 0.2] = 0.0
    assert np.count_nonzero(wanted) == 2
    np.testing.assert_allclose(run.graph.weights, wanted, atol=1e-10)
    assert [record["exchange"] for record in run.history] == ["sums", "fit"]
    noise = ((rows - rows @ wanted) ** 2).mean(axis=0)
    assert run.history[1]["noise"] == pytest.approx(noise.mean(), rel=1e-10)
    assert run.warnings == ["party 4: x2 follows another rule there"]
    assert run.stop_reason == "two exchanges are enough"


def test_the_second_page_runs_as_it_stands():
    finds_the_order(module_of(TWO))


def test_the_second_page_is_right_without_memory():
    guide = module_of(TWO)

    class Forgetful(guide.OrderedClient):
        def recall(self):
            return None

    run = simulate(guide.Ordered(), guide.parties, client=Forgetful)
    assert np.array_equal(run.graph.weights, guide.run.graph.weights)
    assert run.warnings == guide.run.warnings


def test_the_second_page_remembers():
    guide, reads = module_of(TWO), []

    class Counting(guide.OrderedClient):
        def moments(self):
            reads.append(self.recall() is not None)
            return super().moments()

    simulate(guide.Ordered(), guide.parties, client=Counting)
    assert reads == [False] * 5 + [True] * 5


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('("d", "d"), combine="sum"', '("d", "d"), combine="each"'),
        ('"non-negative", "sum"', '"non-negative"'),
        ("rest.T @ moments @ rest", "rest @ moments @ rest.T"),
        ('Ask(FIT, {"weights": weights}', 'Ask(FIT, {"weights": -weights}'),
        ("moments[:j, :j], moments[:j, j]", "moments[:j, :j], moments[j, j:]"),
        ("shares < 0.5", "shares > 0.5"),
        ('return {"moments": moments}', 'return {"moments": moments, "rows": self.rows()}'),
        ('self.remember({"moments": moments})', 'self.remember({"moments": 2 * moments})'),
        ('"errors"] / rows', '"errors"]'),
    ],
)
def test_a_wrong_step_of_the_second_page_is_noticed(right, wrong):
    assert right in TWO
    with pytest.raises((AssertionError, CausalError, ValueError, KeyError, IndexError)):
        finds_the_order(execute(TWO.replace(right, wrong)))


# State that a party updates.


class Losing:
    """Loses the reply of the second party in the third exchange: it is asked again."""

    def __init__(self, grid):
        self.grid, self.sent = grid, []

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.sent.append(len(messages))
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        if len(self.sent) == 4:  # the schema exchange is the first
            replies[1] = Message(Error(CLIENT_RAISED, "lost"), reply_to=messages[1])
        return replies


def averages_the_parties(text):
    guide = execute(text, **vars(module_of(TWO)))
    run = guide.averaged
    rows = np.vstack(guide.parties[:4])
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    wanted = np.zeros((3, 3))
    for j in (1, 2):
        wanted[:j, j] = np.linalg.lstsq(rows[:, :j], rows[:, j], rcond=None)[0]
    wanted[np.abs(wanted) <= 0.2] = 0.0
    np.testing.assert_allclose(run.graph.weights, wanted, atol=5e-3)
    assert run.rounds < 60
    grids = []

    def losing(grid):
        grids.append(Losing(grid))
        return grids[0]

    again = simulate(
        guide.Averaged(), guide.parties[:4], client=guide.AveragedClient, wrap_grid=losing
    )
    assert grids[0].sent[3:6] == [4, 1, 4]
    assert again.graph.equals(run.graph)
    assert [one["change"] for one in again.history] == [one["change"] for one in run.history]


def test_state_is_updated_once_for_each_number():
    averages_the_parties(STATE)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('memory.numbers["number"] == asked.number', "False"),
        ("- 0.05 * gradient", "+ 0.05 * gradient"),
        ("k=1", "k=0"),
        ('return {"weights": memory.arrays["weights"]}', 'return {"weights": asked["weights"]}'),
    ],
)
def test_a_wrong_step_of_the_state_is_noticed(right, wrong):
    assert right in STATE
    with pytest.raises((AssertionError, CausalError, ValueError)):
        averages_the_parties(STATE.replace(right, wrong))


# A method on categories.


def finds_the_collider(text):
    guide = execute(text)
    edges = {edge[:2] for edge in guide.run.graph.edges()}
    assert edges == {("smoker", "ill"), ("dust", "ill"), ("ill", "cough")}
    assert [one["tests"] for one in guide.run.history] == [6, 10, 3]
    whole = [pd.concat(guide.parties, ignore_index=True)]
    one = simulate(guide.ChiSquarePC(), whole, client=guide.ChiSquarePCClient)
    assert one.graph.equals(guide.run.graph)
    secure = guide.ChiSquarePC(secure_aggregation=True)
    run = simulate(secure, guide.parties, client=guide.ChiSquarePCClient)
    assert run.graph.equals(guide.run.graph)
    table = whole[0].groupby(["dust", "cough", "ill"]).size().unstack(fill_value=0).to_numpy()
    table = table.reshape(2, 2, 2)
    parts = [chi2_contingency(table[:, :, k], correction=False) for k in (0, 1)]
    expected = chi2.sf(sum(part.statistic for part in parts), 2)
    assert guide.p_value(table) == pytest.approx(expected, rel=1e-10)


def test_the_page_on_categories_runs_as_it_stands():
    finds_the_collider(PC)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('reports=("states",)', 'reports=("sums",)'),
        ('"count", "sum"', '"count"'),
        ("if k not in fixed", "if k in fixed"),
        ("if p > alpha", "if p < alpha"),
        ("/ table.sum((0, 1))", "/ table.sum()"),
        ("self.codes()", "self.rows()"),
        ('values="index", below="d"', 'values="mark"'),
        ("minlength=int(np.prod(shape))", "minlength=1 + int(np.prod(shape))"),
        ('] = "keep"', '] = "drop"'),
        ("if j not in fixed", "if j in fixed"),
    ],
)
def test_a_wrong_step_on_categories_is_noticed(right, wrong):
    assert right in PC
    with pytest.raises((AssertionError, CausalError, ValueError)):
        finds_the_collider(PC.replace(right, wrong, 1))


def test_the_page_is_a_module_of_the_package_of_the_fields_methods():
    def definitions(text):
        parts = ast.parse(text).body
        found = [part for part in parts if isinstance(part, ast.ClassDef | ast.FunctionDef)]
        return {part.name: ast.dump(part) for part in found}

    package = DOCS.parent / "examples" / "field" / "flwr_causal_field"
    modules = [(package / name).read_text("utf-8") for name in ("pc.py", "chi_square_pc.py")]
    assert definitions(PC) == definitions("\n".join(modules))


def test_codes_without_states_say_what_to_declare():
    text = PC.replace('reports=("states",)', 'reports=("sums",)')
    text = text.replace(
        'Literal["fail", "drop", "keep"] = "keep"', 'Literal["fail", "drop"] = "drop"'
    )
    with pytest.raises(CausalError, match=r"reports=\('states',\)"):
        execute(text)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "names", "parties"),
    [
        (PC, ("ChiSquarePC", "ChiSquarePCClient"), 3),
        (STATE, ("Averaged", "AveragedClient"), 3),
    ],
    ids=["categories", "state"],
)
def test_the_further_methods_pass_the_checks(text, names, parties):
    guide = execute(text, **vars(module_of(TWO)))
    method, client = (getattr(guide, name) for name in names)
    report = check_method(method(), guide.parties[:parties], client=client)
    assert report.passed, report.table()


# One step of an existing method.


@cache
def chain():
    """Two parties' rows of x0 -> x1 -> x3 <- x2."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4))
    rows[:, 1] += 0.8 * rows[:, 0]
    rows[:, 3] += 0.8 * rows[:, 1] - 0.8 * rows[:, 2]
    return rows


EDGES = [("x0", "x1"), ("x1", "x3"), ("x2", "x3")]


def parts(rows):
    return [rows[:200], rows[200:]]


def bias(run):
    """How far the weights before the refit are from those of least squares."""
    rows, graph = chain(), run.graph
    fitted = np.zeros((4, 4))
    for j in range(4):
        causes = graph.adjacency[:, j]
        centred = rows - rows.mean(axis=0)
        fitted[causes, j] = np.linalg.lstsq(centred[:, causes], centred[:, j], rcond=None)[0]
    return np.abs(graph.raw_weights - fitted)[graph.adjacency].max()


def adaptive(guide):
    usual = simulate(Moments(sparsity=0.1), parts(chain()))
    run = simulate(guide.AdaptiveMoments(sparsity=0.1), parts(chain()))
    assert [edge[:2] for edge in run.graph.edges()] == EDGES
    assert bias(run) < 0.6 * bias(usual)
    np.testing.assert_allclose(run.scores, np.abs(run.graph.raw_weights))


def reweighted(guide):
    usual = simulate(NotearsADMM(sparsity=0.1, refit=False), parts(chain()))
    run = simulate(guide.ReweightedADMM(sparsity=0.1, refit=False), parts(chain()))
    assert [edge[:2] for edge in run.graph.edges()] == EDGES
    assert bias(run) < 0.4 * bias(usual)


def clipped(guide):
    rng = np.random.default_rng(1)
    wild = chain().copy()
    wild[::50] = rng.normal(scale=20.0, size=(12, 4))
    usual = simulate(Moments(), parts(wild))
    run = simulate(Moments(), parts(wild), client=guide.ClippedMomentsClient)
    assert [edge[:2] for edge in usual.graph.edges()] != EDGES
    assert [edge[:2] for edge in run.graph.edges()] == EDGES


CHAIN = np.eye(4, k=1) + np.eye(4, k=-1)


def finds_the_chain(text):
    guide = execute(text, **vars(module_of(STEPS)))
    for run in (guide.voted, guide.added):
        assert run.graph.kind == "cpdag"
        np.testing.assert_array_equal(run.graph.adjacency, CHAIN)
    return guide


@pytest.mark.slow
def test_fusion_and_search_of_fedges_are_steps():
    guide = finds_the_chain(FEDGES)
    graphs = {"a": [[0, 1]], "b": [[1, 0], [1, 2]], "c": [[0, 1]]}
    own = {party: np.array(edges) for party, edges in graphs.items()}
    fusion = guide.VotingFedGES(mode="fusion").fuse(own, ("x", "y", "z"))
    assert fusion.edges.tolist() == [[0, 1], [1, 2]]  # none closes a cycle
    assert fusion.support.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("list(nx.topological_sort(dag))", "list(dag)"),
        ("- before", ""),
        ("gain > best", "gain < best"),
        ("return dag\n\n\nrng", "return start\n\n\nrng"),
        ("*causes, *nx.descendants(graph, effect)", "*causes"),
    ],
)
def test_a_wrong_step_of_fedges_is_noticed(right, wrong):
    assert right in FEDGES
    with pytest.raises((AssertionError, CausalError, ValueError, nx.NetworkXUnfeasible)):
        finds_the_chain(FEDGES.replace(right, wrong))


@pytest.mark.few(2)
@pytest.mark.parametrize("promise", [adaptive, reweighted, clipped])
def test_a_changed_step_does_what_the_page_says(promise):
    promise(module_of(STEPS))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("right", "wrong", "promise"),
    [
        ("self.threshold / np.maximum", "1.0 * np.maximum", adaptive),
        ("graph=graph, scores=np.abs(graph.raw_weights)", "graph=graph", adaptive),
        ('info["sparsity"] * factors', 'info["sparsity"]', adaptive),
        ("1.0 / (1.0 + np.abs", "1.0 * (1.0 + np.abs", reweighted),
        ("return replace(problem, relative_sparsity=factors)", "return problem", reweighted),
        ("table.clip(middle - most, middle + most, axis=1)", "table", clipped),
    ],
)
def test_a_wrong_change_is_noticed(right, wrong, promise):
    assert right in STEPS
    with pytest.raises((AssertionError, CausalError, ValueError)):
        promise(execute(STEPS.replace(right, wrong)))


@cache
def leaves():
    """The steps of FedCausal and FedPC."""
    return execute(LEAVES, **vars(module_of(STEPS)))


def halves():
    """A chain's columns of the same rows at two parties."""
    frame = pd.DataFrame(chain(), columns=list("abcd"))
    return frame, [frame[["a", "b"]], frame[["c", "d"]]]


def objective(guide):
    options = {"model": "linear", "sparsity": 0.1}
    usual = simulate("fedcausal", parts(chain()), **options)
    run = simulate("fedcausal", parts(chain()), client=guide.AdaptiveCausalClient, **options)
    assert [edge[:2] for edge in run.graph.edges()] == EDGES
    assert bias(run) < 0.6 * bias(usual)


def normal_leaves(guide):
    """Of one cluster at each party the density is that of independent normal columns."""
    frame, tables = halves()
    options = {"training": "one-pass", "clusters": 1, "queries": "central"}
    run = simulate("fedpc", tables, client=guide.NormalClient, **options)
    expected = norm.logpdf(frame, frame.mean(), frame.std(ddof=0)).sum(axis=1)
    np.testing.assert_allclose(run.model.log_likelihood(frame), expected, atol=1e-4)


def product(guide):
    """The columns of different parties are independent; those of one party are as they were."""
    frame, tables = halves()
    options = {"training": "one-pass", "weights": "counts", "queries": "central"}
    usual = simulate(FedPC(**options), tables).model
    model = simulate(guide.ProductFedPC(**options), tables).model
    own = [model.marginal([*one]).log_likelihood(one) for one in tables]
    np.testing.assert_allclose(model.log_likelihood(frame), sum(own), rtol=1e-9)
    assert np.abs(usual.log_likelihood(frame) - sum(own)).max() > 0.01


@pytest.mark.parametrize("promise", [objective, normal_leaves, product])
def test_steps_of_fedcausal_and_fedpc(promise):
    promise(leaves())


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::FutureWarning:ray", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_steps_of_fedcausal_and_fedpc_on_ray():
    from ray import cloudpickle

    guide = leaves()
    cloudpickle.register_pickle_by_value(guide)  # no file has it
    frame, tables = halves()
    composed = guide.ProductFedPC(training="one-pass", weights="counts", queries="central")

    def found(engine):
        causal = simulate(
            "fedcausal",
            parts(chain()),
            client=guide.AdaptiveCausalClient,
            model="linear",
            engine=engine,
        )
        circuit = simulate(composed, tables, client=guide.NormalClient, engine=engine)
        return causal.graph.raw_weights, circuit.model.log_likelihood(frame)

    for here, there in zip(found("local"), found("ray"), strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    ("right", "wrong", "promise"),
    [
        ("* 0.1 / np.maximum(effects, 0.1)", "", objective),
        ("np.nanstd(values, axis=0)", "np.nanvar(values, axis=0)", normal_leaves),
        ("return NormalColumns()", "return None", normal_leaves),
        ("[one.rows for one in group]", "[1 / one.rows for one in group[:1]]", product),
    ],
)
def test_a_wrong_step_of_fedcausal_and_fedpc_is_noticed(right, wrong, promise):
    assert right in LEAVES
    with pytest.raises((AssertionError, CausalError, ValueError)):
        promise(execute(LEAVES.replace(right, wrong), **vars(module_of(STEPS))))


def test_steps_that_a_run_does_not_call_are_refused():
    guide, frame = leaves(), halves()[0]
    with pytest.raises(ConfigError, match="'compose' of FedPC, which this run does not call"):
        guide.ProductFedPC(weights="em")
    with pytest.raises(CausalError, match="'compose' of FedPC, which this run does not call"):
        simulate(guide.ProductFedPC(), [frame])
    with pytest.raises(CausalError, match="'cluster_learner' of FedPCClient"):
        simulate("fedpc", [frame], client=guide.NormalClient, training="sums")
    with pytest.raises(CausalError, match="'objective' of FedCausalClient"):
        simulate("fedcausal", [frame], client=guide.AdaptiveCausalClient)


# Names and checks.


def test_a_subclass_may_have_an_id_of_its_own():
    named = STEPS.replace(
        "    options: AdaptiveOptions",
        "    options: AdaptiveOptions\n"
        '    contract = replace(Moments.contract, method="adaptive-moments")',
        1,
    ).replace(
        "    def table(self",
        "    contract = AdaptiveMoments.contract\n\n    def table(self",
    )
    guide = execute(named)
    strategy = guide.AdaptiveMoments(sparsity=0.1)
    assert strategy.method == "adaptive-moments"
    run = simulate(strategy, parts(chain()), client=guide.ClippedMomentsClient)
    assert [edge[:2] for edge in run.graph.edges()] == EDGES


def test_the_entry_is_a_method():
    guide = module_of(AVERAGE)
    entry = execute(ENTRY, Regression=guide.Regression, RegressionClient=guide.RegressionClient)
    assert entry.METHOD.strategy.method == "regression"


@pytest.mark.nightly
def test_the_second_page_passes_the_checks():
    guide = module_of(TWO)
    names = {name: getattr(guide, name) for name in ("Ordered", "OrderedClient", "parties")}
    report = execute(CHECK, **names).report
    passed = {result.name for result in report.results if result.status == "passed"}
    assert {"split_of_rows", "order_of_parties", "nothing_undeclared_travels"} <= passed
