"""A run in words."""

from dataclasses import replace

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.reports.edges import MOST_EDGES, describe_graph
from flwr_causal.reports.summary import describe_run


def test_the_main_facts_are_said(admm_run):
    run = replace(
        admm_run,
        failures=[{"round": 3, "party": "oslo", "reason": "disk full"}],
        answered={"bern": 8, "oslo": 7, "rome": 8},
        warnings=["Few rows"],
        metrics={
            **admm_run.metrics,
            "pooled": {"shd": 1, "tpr": 0.9, "fdr": 0.1},
            "alone": {"shd": 7.5, "tpr": 0.4, "fdr": 0.3},
        },
    )
    text = "\n".join(describe_run(run))
    assert f"notears-admm, completed: {run.stop_reason}" in text
    assert f"{run.graph.num_edges} edges over 5 variables" in text
    assert "3 parties, 240 rows" in text
    assert f"{run.bytes_sent // 3:,}" in text
    assert f"{run.bytes_received // 3:,}" in text
    assert "Left out in exchange 3: oslo (disk full)" in text
    assert "oslo took part in 7 of 8 exchanges" in text
    assert "rome took part" not in text
    assert "Note: Few rows" in text
    rows = [line.split() for line in describe_run(run) if "party alone" in line]
    assert rows[0][-3:] == ["7.5", "0.40", "0.30"]


def test_without_truth_and_without_graph(moments_run):
    text = "\n".join(describe_run(replace(moments_run, metrics={}, graph=None)))
    assert "truth" not in text
    assert "edges" not in text
    assert "Exchanges 1" in text


def test_edges_are_listed_strongest_first():
    weights = np.array([[0, 0.5, -2.0], [0, 0, 1.0], [0, 0, 0]])
    lines = describe_graph(CausalGraph(("a", "b", "long"), weights))
    assert lines[0] == "3 edges over 3 variables"
    assert [line.split() for line in lines[1:]] == [
        ["a", "->", "long", "-2.000"],
        ["b", "->", "long", "+1.000"],
        ["a", "->", "b", "+0.500"],
    ]


def test_long_lists_are_cut():
    d = 15
    graph = CausalGraph.from_array(np.triu(np.ones((d, d)), 1))
    lines = describe_graph(graph)
    assert len(lines) == MOST_EDGES + 2
    assert f"and {d * (d - 1) // 2 - MOST_EDGES} more" in lines[-1]


def test_lagged_edges_come_after_those_within_a_step():
    lagged = np.zeros((2, 2, 2))
    lagged[0, 0, 0], lagged[1, 1, 0] = 0.3, -0.7
    graph = CausalGraph(("rain", "flood"), np.array([[0, 0.5], [0, 0]]), lagged=lagged)
    head, *lines = describe_graph(graph)
    assert head == "1 edges within a step and 2 lagged over 2 variables"
    assert [line.split() for line in lines] == [
        ["rain", "->", "flood", "+0.500"],
        ["flood[t-2]", "->", "rain", "-0.700"],
        ["rain[t-1]", "->", "rain", "+0.300"],
    ]
