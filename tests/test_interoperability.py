"""Graphs and networks in other libraries' forms: what each form holds comes back."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from flwr_causal import CausalGraph, DataError
from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.core.systems.linear import fit
from flwr_causal.data.synthetic.random_graphs import erdos_renyi
from flwr_causal.interoperability import (
    from_bnlearn,
    from_causal_learn,
    from_dagitty,
    from_gml,
    from_pgmpy,
    from_tigramite,
    to_bnlearn,
    to_causal_learn,
    to_dagitty,
    to_gml,
    to_pgmpy,
    to_spflow,
    to_tigramite,
)
from flwr_causal.reports.graph_files import read_edges, write_all

NAMES = ("dose", "age in years", "é-2", "x.1", "y", "z")


def graph_of(seed, kind="dag"):
    rng = np.random.default_rng(seed)
    weights = erdos_renyi(6, 7, rng) * rng.uniform(-2, 2, (6, 6))
    graph = CausalGraph(NAMES, weights)
    return graph.to_cpdag() if kind == "cpdag" else graph


def same(one, other, weights=True):
    assert one.names == other.names
    assert one.kind == other.kind
    np.testing.assert_array_equal(one.adjacency, other.adjacency)
    if weights:
        np.testing.assert_array_equal(one.weights, other.weights)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["dag", "cpdag"])
def test_text_comes_back(seed, kind):
    graph = graph_of(seed, kind)
    same(from_dagitty(to_dagitty(graph)), graph)
    same(from_gml(to_gml(graph)), graph)
    if kind == "dag":
        same(from_bnlearn(to_bnlearn(graph)), graph, weights=False)


def test_a_text_of_dagitty():
    found = from_dagitty(
        """dag mine { bb="-1,0,1,1"
        "a b" [exposure, pos="0,1"] ; y [outcome]
        "a b" -> m -> y [beta=0.5] , w
        y <- {"a b" w}
        }"""
    )
    assert found.names == ("a b", "y", "m", "w")
    assert found.edges() == [("a b", "y", 1.0), ("a b", "m", 0.5), ("m", "y", 0.5), ("w", "y", 1.0)]
    assert to_dagitty(found).splitlines()[:2] == ["dag {", '"a b"']
    summary = CausalGraph(("a", "b"), [[0.5, 2.0], [1.0, 0]], kind="summary")
    same(from_dagitty(to_dagitty(summary)), summary)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a -> b", "no dagitty graph"),
        ("dag { a <-> b }", "a <-> b cannot be kept"),
        ("dag { u [latent] u -> a }", "u is latent"),
        ("dag { a -> }", "ends too early"),
        ("dag { a -> -> b }", "where the name of a variable belongs"),
    ],
)
def test_texts_that_dagitty_would_not_write(text, says):
    with pytest.raises(DataError, match=says):
        from_dagitty(text)


def test_model_strings():
    assert to_bnlearn(from_bnlearn("[b|a][a][c|a:b]")) == "[b|a][a][c|b:a]"
    for text, says in (("[a][b|z]", "'z', which is no variable"), ("a->b", "no model string")):
        with pytest.raises(DataError, match=says):
            from_bnlearn(text)
    with pytest.raises(DataError, match=r"to_dag\(\)"):
        to_bnlearn(graph_of(1, "cpdag"))
    with pytest.raises(DataError, match="'a:b' has one of the characters"):
        to_bnlearn(CausalGraph(("a:b", "c"), np.zeros((2, 2))))


def lagged_graph():
    rng = np.random.default_rng(3)
    lagged = np.where(rng.random((2, 6, 6)) < 0.2, rng.normal(size=(2, 6, 6)), 0.0)
    return CausalGraph(NAMES, graph_of(2).weights, lagged=lagged)


def test_lags():
    graph = lagged_graph()
    for back in (from_gml(to_gml(graph)), from_tigramite(to_tigramite(graph), NAMES)):
        same(back, graph)
        np.testing.assert_array_equal(back.lagged, graph.lagged)
    for convert in (to_dagitty, to_bnlearn, to_causal_learn):
        if convert is to_causal_learn:
            pytest.importorskip("causallearn")
        with pytest.raises(DataError, match="lags"):
            convert(graph)
    same(from_tigramite(to_tigramite(graph_of(1, "cpdag")), NAMES), graph_of(1, "cpdag"))
    assert from_tigramite({"graph": to_tigramite(graph)["graph"]}, NAMES).weights.max() == 1


def test_tigramite_takes_its_arrays():
    # "-->" at [i, j, tau] means i at t - tau to j at t; contemporaneous edges stand at both places.
    graph = CausalGraph(("a", "b"), [[0, 0.5], [0, 0]], lagged=[[[0, 0], [2.0, 0]]])
    arrays = to_tigramite(graph)
    assert arrays["graph"].tolist() == [[["", ""], ["-->", ""]], [["<--", "-->"], ["", ""]]]
    assert arrays["val_matrix"][0, 1].tolist() == [0.5, 0]
    with pytest.raises(DataError, match="'x-x' between a and b at lag 0"):
        from_tigramite({"graph": np.array([[[""], ["x-x"]], [["x-x"], [""]]])}, ("a", "b"))
    plotting = pytest.importorskip("tigramite.plotting", reason="pip install tigramite")
    pytest.importorskip("matplotlib")
    plotting.plot_graph(**arrays, var_names=["a", "b"])


@pytest.mark.parametrize("kind", ["dag", "cpdag"])
def test_causal_learn(kind):
    general_graph = pytest.importorskip(
        "causallearn.graph.GeneralGraph", reason="pip install causal-learn"
    )
    graph = graph_of(4, kind)
    found = to_causal_learn(graph)
    assert isinstance(found, general_graph.GeneralGraph)
    same(from_causal_learn(found), graph, weights=False)
    cause, mark, effect, _ = graph.marked_edges()[0]
    edge = found.get_edge(found.get_node(cause), found.get_node(effect))
    assert str(edge) == f"{cause} {'-->' if mark == '->' else '---'} {effect}"


def test_dowhy_reads_gml():
    dowhy = pytest.importorskip("dowhy", reason="pip install dowhy")
    pandas = pytest.importorskip("pandas")
    names = ("dose", "sex", "outcome")
    graph = CausalGraph(names, [[0, 0, 2.0], [1.0, 0, 1.0], [0, 0, 0]])
    rows = pandas.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=list(names))
    model = dowhy.CausalModel(rows, "dose", "outcome", graph=to_gml(graph))
    assert model.get_common_causes() == ["sex"]


def network():
    rng = np.random.default_rng(5)
    shapes = ((2,), (3,), (2, 3, 4), (4, 2))
    tables = [rng.dirichlet(np.ones(shape[-1]), shape[:-1]) for shape in shapes]
    return BayesianNetwork(
        ("b", "a", "c", "d"),
        (("n", "y"), ("0", "1", "2"), ("p", "q", "r", "s"), ("u", "v")),
        ((), (), (0, 1), (2,)),
        tuple(tables),
    )


def test_pgmpy():
    models = pytest.importorskip("pgmpy.models", reason="pip install pgmpy")
    inference = pytest.importorskip("pgmpy.inference")
    ours = network()
    theirs = to_pgmpy(ours)
    assert isinstance(theirs, models.DiscreteBayesianNetwork)
    assert theirs.check_model()
    back = from_pgmpy(theirs)
    assert (back.names, back.states, back.parents) == (ours.names, ours.states, ours.parents)
    for one, other in zip(back.tables, ours.tables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    # The tables mean the same there: p(d = u | b = y, a = 2), by summing over c.
    answer = inference.VariableElimination(theirs).query(
        ["d"], {"b": "y", "a": "2"}, show_progress=False
    )
    expected = ours.tables[2][1, 2] @ ours.tables[3]
    np.testing.assert_allclose(answer.get_value(d="u"), expected[0], rtol=1e-12)
    theirs.remove_cpds("d")
    with pytest.raises(DataError, match="no table of d"):
        from_pgmpy(theirs)


def blocks(frame, dag):
    variables, columns = design(frame)
    return BlockModel(variables, SampleMoments.from_rows(columns, column_names(variables)), dag)


CHAIN = np.triu(np.ones((3, 3), dtype=bool), 1)


def block_rows(n=2000):
    rng = np.random.default_rng(0)
    age = rng.normal(50, 10, n)
    dose = 2 + 0.1 * age + rng.normal(size=n)
    return pd.DataFrame({"age": age, "dose": dose, "risk": dose - 0.05 * age + rng.normal(size=n)})


def test_pgmpy_of_blocks_of_numbers():
    models = pytest.importorskip("pgmpy.models", reason="pip install pgmpy")
    frame = block_rows()
    model = blocks(frame, CHAIN)
    theirs = to_pgmpy(model)
    assert isinstance(theirs, models.LinearGaussianBayesianNetwork)
    system = model.as_one_kind()
    usual = fit(SampleMoments.from_rows(frame.to_numpy(), frame.columns), CHAIN)
    np.testing.assert_allclose(system.weights, usual.weights, atol=1e-9)
    np.testing.assert_allclose(system.covariance(), np.cov(frame.T, bias=True), rtol=1e-9)
    mean, covariance = theirs.to_joint_gaussian()
    order = [list(nx.topological_sort(theirs)).index(name) for name in frame.columns]
    np.testing.assert_allclose(np.asarray(mean)[order], frame.mean(), rtol=1e-2)
    np.testing.assert_allclose(
        np.asarray(covariance)[np.ix_(order, order)], system.covariance(), rtol=1e-2
    )
    np.testing.assert_allclose(
        [cpd.std for cpd in to_pgmpy(usual).get_cpds()], np.sqrt(usual.noise_variances), rtol=1e-9
    )
    set_to = model.do({"dose": 9.0}).as_one_kind()
    np.testing.assert_allclose(set_to.mean()[1], 9.0)
    assert set_to.noise_variances[1] == 0


def test_pgmpy_of_blocks_of_categories():
    models = pytest.importorskip("pgmpy.models", reason="pip install pgmpy")
    frame = block_rows().apply(lambda own: np.digitize(own, own.quantile([0.3, 0.7])).astype(str))
    model = blocks(frame, CHAIN)
    theirs = to_pgmpy(model)
    assert isinstance(theirs, models.DiscreteBayesianNetwork)
    assert theirs.check_model()
    back = from_pgmpy(theirs)
    rows = frame.head(100)
    np.testing.assert_allclose(back.log_likelihood(rows), model.log_likelihood(rows), atol=1e-9)
    set_to = model.do({"dose": "2"}).as_one_kind()
    np.testing.assert_array_equal(set_to.tables[1], [0, 0, 1])


def test_blocks_that_pgmpy_cannot_hold():
    frame = block_rows()
    mixed = blocks(frame.assign(dose=np.where(frame["dose"] > 7, "high", "low")), CHAIN)
    with pytest.raises(DataError, match=r"either categories alone.*coefficients"):
        to_pgmpy(mixed)
    with pytest.raises(DataError, match="without 'conditional'"):
        to_pgmpy(blocks(frame, CHAIN).conditional({"dose": 7.0}))


def test_a_table_of_pgmpy_with_its_own_order_of_states():
    factors = pytest.importorskip("pgmpy.factors.discrete", reason="pip install pgmpy")
    models = pytest.importorskip("pgmpy.models")
    model = models.DiscreteBayesianNetwork([("a", "b")])
    model.add_cpds(
        factors.TabularCPD("a", 2, [[0.3], [0.7]], state_names={"a": ["lo", "hi"]}),
        factors.TabularCPD(
            "b",
            2,
            [[0.9, 0.2], [0.1, 0.8]],
            evidence=["a"],
            evidence_card=[2],
            state_names={"b": ["n", "y"], "a": ["hi", "lo"]},
        ),
    )
    found = from_pgmpy(model)
    np.testing.assert_allclose(found.tables[1], [[0.2, 0.8], [0.9, 0.1]])  # rows: lo, hi


def test_gml_that_is_none():
    with pytest.raises(DataError, match="not GML"):
        from_gml("graph [")
    graph = nx.DiGraph([("a", "b")])
    same(from_gml("\n".join(nx.generate_gml(graph))), CausalGraph(("a", "b"), [[0, 1.0], [0, 0]]))


def test_spflow():
    pytest.importorskip("spflow", reason="pip install spflow")
    import torch

    from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
    from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
    from flwr_causal.core.circuits.nodes import Product, Sum

    names = [("x", None), *((name, ("u", "v", "w")) for name in "abc")]
    domain = Domain(tuple(Variable(name, states) for name, states in names))
    rng = np.random.default_rng(0)

    def tables(*rows):
        return [rng.dirichlet(np.ones(3), size=k) for k in rows]

    # A chain, a fork with a hidden variable, and a mixture; the normal distributions are shared.
    chain = ChowLiuTree((1, 2, 3), (-1, 0, 1), tables(1, 3, 3))
    fork = ChowLiuTree((1, 2, 3), (3, 3, -1, -1), tables(3, 3, 1, 1), hidden=1)
    loose = Product([Categorical(k, rng.dirichlet(np.ones(3))) for k in (3, 1, 2)])
    x = [Gaussian(0, 1.5, 0.5), Gaussian(0, -2.0, 3.0)]
    parts = [Product([one, x[k % 2]]) for k, one in enumerate((chain, fork, loose))]
    ours = Circuit(domain, Sum([*parts, Product([chain, x[1]])], [0.5, 0.2, 0.3, 0.0]))
    frame = pd.DataFrame(
        {"x": rng.normal(size=40)} | {n: rng.choice(["u", "w"], 40) for n in "abc"}
    )
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    theirs = to_spflow(ours).log_likelihood(torch.tensor(domain.encode(frame)))
    np.testing.assert_allclose(
        theirs.detach().numpy().ravel(), ours.log_likelihood(frame), rtol=1e-9, atol=1e-12
    )
    number = Domain((Variable("x"),))
    with pytest.raises(DataError, match="'histogram', which SPFlow has not"):
        to_spflow(Circuit(number, Histogram(0, [0.0, 1.0], [0.1, 0.8, 0.1], 1.0)))


def hidden_pag():
    marks = np.zeros((6, 6), dtype=int)
    for i, j, at_j, at_i in ((0, 1, 2, 3), (1, 2, 2, 2), (3, 2, 2, 1), (4, 5, 3, 3)):
        marks[i, j], marks[j, i] = at_j, at_i
    return CausalGraph.from_marks(marks, NAMES)


ARROWS = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


def of_arrows(kind):
    """Arrows alone, from which no reader can tell the kind."""
    if kind != "pag":
        return CausalGraph(("a", "b", "c"), ARROWS, kind=kind)
    return CausalGraph.from_marks((2 * ARROWS + ARROWS.T).astype(int), ("a", "b", "c"))


def through_files(name):
    def convert(graph, directory):
        write_all(graph, directory)
        if name.endswith("graphml"):
            return CausalGraph.from_networkx(nx.read_graphml(directory / name))
        return read_edges(directory / name, graph.names)

    return convert


def through_causal_learn(graph, _):
    pytest.importorskip("causallearn", reason="pip install causal-learn")
    return from_causal_learn(to_causal_learn(graph))


ROUNDS = {
    "dagitty": lambda graph, _: from_dagitty(to_dagitty(graph)),
    "gml": lambda graph, _: from_gml(to_gml(graph)),
    "networkx": lambda graph, _: CausalGraph.from_networkx(graph.to_networkx()),
    "bnlearn": lambda graph, _: from_bnlearn(to_bnlearn(graph)),
    "causal-learn": through_causal_learn,
    "tigramite": lambda graph, _: from_tigramite(to_tigramite(graph), graph.names, graph.kind),
    **{name: through_files(name) for name in ("graph.json", "graph.graphml", "edges.csv")},
}
#: What a form cannot hold is refused.
REFUSED = {"bnlearn": {"cpdag", "pag", "summary"}, "tigramite": {"pag", "summary"}}
REFUSED["causal-learn"] = {"summary"}


@pytest.mark.parametrize("kind", ["dag", "cpdag", "pag", "summary"])
@pytest.mark.parametrize("form", ROUNDS)
def test_the_kind_travels(form, kind, tmp_path):
    graph = of_arrows(kind)
    if form in REFUSED and kind in REFUSED[form]:
        with pytest.raises(DataError):
            ROUNDS[form](graph, tmp_path)
        return
    same(ROUNDS[form](graph, tmp_path), graph)


def test_a_pag_in_gml_keeps_its_marks():
    assert from_gml(to_gml(hidden_pag())).equals(hidden_pag())


def test_a_pag_in_causal_learn_keeps_its_marks():
    pytest.importorskip("causallearn")
    back = from_causal_learn(to_causal_learn(hidden_pag()))
    np.testing.assert_array_equal(back.marks, hidden_pag().marks)


def test_a_pag_in_dagitty_keeps_its_marks():
    text = to_dagitty(hidden_pag())
    assert text.startswith("pag {")
    a, b, c, d, e, f = (f'"{name}"' for name in NAMES)
    assert {f"{a} @-> {b}", f"{b} <-> {c}", f"{d} -> {c}", f"{e} @-@ {f}"} <= {*text.splitlines()}
    back = from_dagitty(text)
    assert back.kind == "pag"
    assert back.equals(hidden_pag())


def test_a_mag_of_dagitty_and_edges_that_a_pag_has_not():
    found = from_dagitty("mag { a <- b <-> {c d} ; c <-@ e }")
    edges = {edge[:3] for edge in found.marked_edges()}
    assert edges == {
        ("b", "->", "a"),
        ("b", "<->", "c"),
        ("b", "<->", "d"),
        ("e", "o->", "c"),
    }
    for edge in ("--", "@--"):
        with pytest.raises(DataError, match="cannot be kept"):
            from_dagitty(f"pag {{ a {edge} b }}")
    with pytest.raises(DataError, match="cannot be kept"):
        from_dagitty("dag { a <-> b }")


@pytest.mark.parametrize("convert", [to_bnlearn, to_tigramite])
def test_other_forms_refuse_a_pag(convert):
    with pytest.raises(DataError):
        convert(hidden_pag())
