"""The check of a graph for hidden common causes: known answers, false alarms, what is left out."""

import sys

import numpy as np
import pandas as pd
import pytest
from worlds_of_hidden_causes import two_hidden_causes

from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.blocks.pag import BlockSource, NumberSource
from flwr_causal.core.blocks.search import block_search
from flwr_causal.core.ges.ancestral_search import HiddenCauses, hidden_causes
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.stability import order_search


def doubts(rows, **options):
    moments = SampleMoments.from_rows(rows.to_numpy(), list(rows.columns))
    return of_moments(moments, order_search(moments).adjacency, **options)


def of_moments(moments, dag, **options):
    return hidden_causes(NumberSource(moments), moments.names, dag, **options)


def test_what_speaks_for_hidden_causes_of_a_graph_without_them():
    found = doubts(two_hidden_causes(5000))
    assert found.likely
    assert {frozenset(pair) for pair in found.common} == {frozenset("bc"), frozenset("gm")}
    # Two edges are saved, and their cost; the likelihood is no better.
    assert 1 < found.gain <= 2
    names = list(two_hidden_causes(5000).columns)
    turned = two_hidden_causes(5000)[names[::-1]]
    assert {frozenset(pair) for pair in doubts(turned).common} == {frozenset("bc"), frozenset("gm")}


def test_more_than_thirty_variables_are_searched_from_the_given_graph(monkeypatch):
    rows, rng = two_hidden_causes(5000), np.random.default_rng(0)
    others = pd.DataFrame(rng.normal(size=(5000, 23)), columns=[f"z{k}" for k in range(23)])
    near, class_without = [], NumberSource.class_without

    def noted(source, masks, given=None):
        near.append(given)
        return class_without(source, masks, given)

    monkeypatch.setattr(NumberSource, "class_without", noted)
    found = doubts(rows.join(others))
    assert found.likely
    assert {frozenset(pair) for pair in found.common} == {frozenset("bc"), frozenset("gm")}
    assert near[0].shape == (31, 31)
    assert near[0].any()
    doubts(rows)
    assert near[1] is None


def test_little_gain_and_what_knowledge_explains_are_not_told():
    known = Knowledge(required=[("b", "c"), ("g", "m")])
    assert not doubts(two_hidden_causes(5000), knowledge=known).likely
    assert not HiddenCauses(0.6, (("b", "c"),)).likely
    assert not HiddenCauses(5.0, ()).likely


@pytest.mark.slow
def test_no_hidden_causes_are_told_of_where_there_are_none():
    told = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        dag = np.triu(rng.random((10, 10)) < 0.35, 1)
        effects = dag * rng.uniform(0.5, 1.2, dag.shape) * rng.choice([-1, 1], dag.shape)
        rows = rng.normal(size=(3000, 10)) @ np.linalg.inv(np.eye(10) - effects)
        told += doubts(pd.DataFrame(rows, columns=[f"x{k}" for k in range(10)])).likely
    assert told <= 1


def test_graphs_of_many_variables_are_not_checked():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(300, 61)), columns=[f"x{k}" for k in range(61)])
    moments = SampleMoments.from_rows(rows.to_numpy(), list(rows.columns))
    assert of_moments(moments, np.zeros((61, 61), dtype=bool)) == HiddenCauses(0.0, ())


def test_dense_graphs_of_more_than_thirty_variables_are_not_checked(monkeypatch):
    checked = []
    monkeypatch.setattr(
        sys.modules[hidden_causes.__module__],
        "AncestralSearch",
        lambda *given, **own: checked.append(given),
    )
    rng, dense = np.random.default_rng(0), np.triu(np.ones((31, 31), dtype=bool), k=1)
    moments = SampleMoments.from_rows(rng.normal(size=(300, 31)), [f"x{k}" for k in range(31)])
    assert of_moments(moments, dense) == HiddenCauses(0.0, ())
    assert not checked
    for own, dag in ((moments, dense & ~np.triu(dense, k=3)), (moments.subset(range(30)), dense)):
        with pytest.raises(AttributeError):  # of the search that is none
            of_moments(own, dag[: own.d, : own.d])
    assert len(checked) == 2


def of_blocks(rows):
    variables, columns = design(rows)
    moments = SampleMoments.from_rows(columns, column_names(variables))
    source = BlockSource(moments, [one.width for one in variables], list(rows.columns))
    return hidden_causes(source, list(rows.columns), block_search(rows).to_dag().adjacency)


def test_of_blocks_of_one_column_it_is_the_check_of_numbers():
    rows = two_hidden_causes(5000)
    found, expected = of_blocks(rows), doubts(rows)
    assert found.common == expected.common
    assert found.gain == pytest.approx(expected.gain, abs=1e-3)


def test_categories_between_numbers_are_checked_by_the_cost_of_the_edge_that_is_saved():
    rows = two_hidden_causes(12000)
    rows["c"] = pd.cut(rows["c"], [-np.inf, -1, 1, np.inf], labels=["low", "mid", "top"]).astype(
        str
    )
    rows["e"] = np.where(rows["e"] > 0, "yes", "no")
    found = of_blocks(rows)
    assert found.likely
    assert {frozenset(pair) for pair in found.common} == {frozenset("bc"), frozenset("gm")}
    # The edge of c costs about twice as much as that of m, so that two edges are less than two.
    assert 1 < found.gain < 2
    assert of_blocks(rows[["a", "e", "f", "p"]]) == HiddenCauses(0.0, ())
