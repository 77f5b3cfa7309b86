"""The parties' own graphs on disk and in words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.nonlinear.heterogeneity import COLUMNS, OwnGraph, edge_table
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import MOST_PARTIES, describe_run

ODD = ("", "NA", 'a,b "c"', "line\nbreak\r\nand\r", " blank ", "Zürich/\\..", "1")
FILES = {"local_graphs.json", "heterogeneity.csv"}


@pytest.fixture
def odd_run(admm_run):
    """A run with parties and variables of any name, and numbers of any size."""
    rng = np.random.default_rng(0)
    names = ("x", "NaN", "y,\nz")
    common = np.triu(np.ones((3, 3), dtype=bool), 1)
    own, graphs = {}, {}
    for party in ODD:
        graph = np.triu(rng.random((3, 3)) < 0.5, 1)
        numbers = rng.normal(size=(2, 3, 3)) * 10.0 ** rng.integers(-300, 300, (2, 3, 3))
        own[party] = OwnGraph(graph, numbers[0], rng.uniform(size=(3, 3)))
        graphs[party] = CausalGraph(names, np.where(graph, numbers[1], 0.0))
    table = edge_table(common, own, names)
    return replace(admm_run, local_graphs=graphs, heterogeneity=table)


def test_round_trip(odd_run, tmp_path):
    loaded = Run.load(odd_run.save(tmp_path))
    pd.testing.assert_frame_equal(loaded.heterogeneity, odd_run.heterogeneity, check_exact=True)
    assert list(loaded.local_graphs) == list(ODD)
    for party, graph in odd_run.local_graphs.items():
        assert loaded.local_graphs[party].equals(graph)


def test_a_table_without_rows(admm_run, tmp_path):
    nothing = edge_table(np.zeros((3, 3), dtype=bool), {}, ("x", "y", "z"))
    run = replace(admm_run, heterogeneity=nothing)
    pd.testing.assert_frame_equal(Run.load(run.save(tmp_path)).heterogeneity, nothing)
    assert describe_run(run) == describe_run(admm_run)


def test_a_later_run_without_them_leaves_no_files(odd_run, admm_run, tmp_path):
    odd_run.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= FILES
    loaded = Run.load(admm_run.save(tmp_path))
    assert not {path.name for path in tmp_path.iterdir()} & FILES
    assert loaded.local_graphs == {}
    assert loaded.heterogeneity is None


def table_of(*rows):
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def test_in_words(admm_run):
    table = table_of(
        ("oslo", "a", "b", True, "absent", -40.2, 40.2, 0.0),
        ("oslo", "c", "a", False, "additional", 12.0, 12.0, 0.3),
        ("oslo", "b", "c", True, "reversed", 9.0, 5.5, 0.3),
        ("oslo", "d", "c", True, "same", -3.5, 3.5, 0.1),
        ("oslo", "d", "b", True, "same", 7.0, -7.0, 0.1),
        ("bergen", "a", "b", True, "same", 30.0, -30.0, 0.8),
        ("bergen", "b", "c", True, "reversed", 20.0, 0.2, 0.8),
    )
    lines = describe_run(replace(admm_run, heterogeneity=table))
    (oslo,) = [line for line in lines if "oslo" in line]
    assert "supports 2 of 4 common edges" in oslo
    shown = oslo.split("more probable ")[1]
    assert shown == "without a -> b (+40), with c -> a (+12), turned b -> c (+6), 1 more"
    (bergen,) = [line for line in lines if "bergen" in line]
    assert bergen.strip() == "bergen supports 2 of 2 common edges"


def test_many_parties_are_cut(admm_run):
    rows = [(f"p{k}", "a", "b", True, "same", 1.0, -1.0, 0.5) for k in range(MOST_PARTIES + 7)]
    lines = describe_run(replace(admm_run, heterogeneity=table_of(*rows)))
    assert sum("common edges" in line for line in lines) == MOST_PARTIES
    assert any("and 7 more" in line for line in lines)
