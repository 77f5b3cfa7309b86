"""PAGs of blocks of columns: numbers alone, categories, invariance, knowledge, errors."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.blocks.pag import BlockSource, pag_search
from flwr_causal.core.ges.ancestral_search import AncestralScore, AncestralSearch
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.pag.marks import directed_edges, marks_of_dag
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import DataError


def table(seed, n=6000):
    """a -> b <- h -> c <- e, b -> g; h is hidden, c has three states and e two."""
    rng = np.random.default_rng(seed)
    hidden, a, e = rng.normal(size=(3, n))
    b = a + hidden + rng.normal(size=n)
    yes = e > 0
    c = 2.0 * yes + 1.5 * hidden + rng.normal(size=n)
    states = np.where(c > 2, "high", np.where(c > 0, "mid", "low"))
    answers = np.where(yes, "yes", "no")
    g = b + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "c": states, "e": answers, "g": g})


def searched(rows, functions=1, knowledge=None):
    variables, columns = design(rows, functions)
    moments = SampleMoments.from_rows(columns, column_names(variables))
    names = tuple(one.name for one in variables)
    source = BlockSource(moments, [one.width for one in variables], names)
    return AncestralSearch(source, knowledge).graph(names)


def edges_of(graph):
    return {edge[:3] for edge in graph.marked_edges()}


TRUE = {("a", "o->", "b"), ("b", "<->", "c"), ("b", "->", "g"), ("e", "o->", "c")}


@pytest.mark.slow
def test_the_hidden_cause_of_a_number_and_a_category_is_found():
    found = [edges_of(searched(table(seed))) for seed in range(6)]
    assert sum(one == TRUE for one in found) >= 5


def test_of_numbers_alone_it_is_the_search_for_numbers():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        dag = np.triu(rng.random((9, 9)) < 0.35, 1)
        rows = rng.normal(size=(3000, 9)) @ np.linalg.inv(np.eye(9) - dag * 0.7)
        seen = pd.DataFrame(rows[:, 2:], columns=[f"x{k}" for k in range(7)])
        np.testing.assert_array_equal(searched(seen).marks, pag_search(seen, draws=0).marks)


def test_neither_the_order_of_the_columns_nor_the_names_of_states_matter():
    rows = table(1, 2000)
    first = searched(rows)
    other = rows[["g", "c", "a", "e", "b"]].replace({"high": "1", "mid": "3", "low": "2"})
    again = searched(other)
    np.testing.assert_array_equal(again.reordered(rows.columns).marks, first.marks)
    np.testing.assert_allclose(again.reordered(rows.columns).weights, first.weights, atol=1e-6)
    assert first.weights.min() >= 0
    assert first.weights.max() <= 1


def test_knowledge_is_kept():
    graph = searched(table(2), knowledge=Knowledge(required=[("e", "c")], tiers=[("g",), ("b",)]))
    assert ("e", "->", "c") in edges_of(graph)
    assert not directed_edges(graph.marks)[1, 4]


def test_curved_effects_are_seen_with_functions_of_numbers():
    rng = np.random.default_rng(3)
    hidden, a, e = rng.normal(size=(3, 5000))
    b = a**2 + hidden + rng.normal(size=5000)
    rows = pd.DataFrame({"a": a, "b": b, "c": e + hidden + rng.normal(size=5000), "e": e})
    assert not any("a" in edge for edge in edges_of(searched(rows)))
    assert ("a", "o->", "b") in edges_of(searched(rows, functions=3))


def test_a_variable_of_one_value_is_an_error():
    with pytest.raises(DataError, match="'e' has one value"):
        searched(table(0, 500).assign(e="yes"))


def test_of_dags_the_score_of_blocks_is_that_of_regressions():
    rng = np.random.default_rng(0)
    widths, owner = [2, 1, 3], np.repeat(range(3), [2, 1, 3])
    moments = SampleMoments.from_rows(rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)))
    costs = np.arange(9.0).reshape(3, 3)
    score = AncestralScore(moments.correlations, 400, costs + costs.T, widths)
    differences = []
    for _ in range(8):
        order = rng.permutation(3)
        dag = np.triu(rng.random((3, 3)) < 0.6, 1)[np.ix_(order, order)]
        # Column after column: each on the parents' columns and those before it in the block.
        total = (dag * (costs + costs.T)).sum()
        for j in topological_order(dag):
            before = np.flatnonzero(dag[:, j][owner])
            for k in np.flatnonzero(owner == j):
                total += 200 * np.log(regress(moments.correlations, before, k)[1])
                before = np.append(before, k)
        differences.append(score(marks_of_dag(dag)) - total)
    np.testing.assert_allclose(differences, differences[0], atol=1e-6)
