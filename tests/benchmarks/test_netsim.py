"""NetSim: both kinds of file, subjects by number, the cut over parties, the networks themselves."""

import numpy as np
import pytest
from scipy.io import savemat
from shared_data import DATA, needs_shared_data

from benchmarks.readers.netsim import PAPER_SUBJECTS, cut_series, read_netsim
from flwr_causal.core.graphs.metrics import binary_auroc
from flwr_causal.errors import ConfigError, DataError

SERIES = np.random.default_rng(0).normal(size=(3, 4, 2))
NET = np.array([[[-1, 0.2 * k], [0, -1]] for k in (1, 2, 6)])


@pytest.fixture(params=["sim.npz", "sim.mat"])
def path(tmp_path, request):
    path = tmp_path / request.param
    if path.suffix == ".npz":
        np.savez(path, series=SERIES, net=NET)
    else:
        savemat(path, {"ts": SERIES.reshape(12, 2), "net": NET, "Nsubjects": 3})
    return path


def test_subjects_and_the_edges_that_they_share(path):
    simulation = read_netsim(path)
    np.testing.assert_array_equal(simulation.subjects, SERIES)
    assert simulation.truth.names == ("x0", "x1")
    assert simulation.truth.edges() == [("x0", "x1", pytest.approx(0.6))]


def test_subjects_are_counted_from_one_and_keep_the_order_asked_for(path):
    simulation = read_netsim(path, subjects=[3, 1])
    np.testing.assert_array_equal(simulation.subjects, SERIES[[2, 0]])
    assert simulation.truth.weights[0, 1] == pytest.approx(0.7)
    for wrong in ([0], [4], []):
        with pytest.raises(ConfigError, match="give numbers from 1 to 3"):
            read_netsim(path, subjects=wrong)


@pytest.mark.parametrize("name", ["absent.npz", "absent.mat"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(DataError, match=name):
        read_netsim(tmp_path / name)


@pytest.mark.parametrize("name", ["sim.npz", "sim.mat"])
def test_files_of_another_form_are_refused(tmp_path, name):
    (tmp_path / name).write_text("neither of them")
    with pytest.raises(DataError, match=name):
        read_netsim(tmp_path / name)
    if name.endswith("npz"):
        np.savez(tmp_path / name, series=SERIES)
    else:
        savemat(tmp_path / name, {"ts": SERIES.reshape(12, 2)})
    with pytest.raises(DataError, match="net"):
        read_netsim(tmp_path / name)


def test_networks_that_do_not_fit_the_series_are_refused(tmp_path):
    np.savez(tmp_path / "sim.npz", series=SERIES, net=NET[:2])
    with pytest.raises(DataError, match=r"\(3, 4, 2\) and networks of shape \(2, 2, 2\)"):
        read_netsim(tmp_path / "sim.npz")


@pytest.mark.parametrize(("num", "sizes"), [(1, [11]), (4, [3, 3, 3, 2]), (11, [1] * 11)])
def test_a_cut_series_is_all_there_in_order(num, sizes):
    series = np.random.default_rng(1).normal(size=(11, 3))
    stretches = cut_series(series, num)
    assert [len(stretch) for stretch in stretches] == sizes
    np.testing.assert_array_equal(np.concatenate(stretches), series)


@pytest.mark.parametrize("num", [0, 12])
def test_a_cut_into_too_many_is_refused(num):
    with pytest.raises(DataError, match=f"{num} parties for a series of 11 steps"):
        cut_series(np.zeros((11, 3)), num)


@needs_shared_data
@pytest.mark.parametrize(("number", "d", "num_edges"), [(1, 5, 5), (2, 10, 11), (3, 15, 18)])
def test_the_simulations_of_the_paper(number, d, num_edges):
    simulation = read_netsim(DATA / "netsim" / f"sim{number}.npz")
    truth = simulation.truth
    assert len(simulation.subjects) == 50
    assert {series.shape for series in simulation.subjects} == {(200, d)}
    assert truth.num_edges == num_edges
    assert truth.is_acyclic()
    with np.load(DATA / "netsim" / f"sim{number}.npz") as archive:
        np.testing.assert_array_equal(truth.adjacency, archive["adjacency"] != 0)
    chosen = read_netsim(DATA / "netsim" / f"sim{number}.npz", PAPER_SUBJECTS[d])
    np.testing.assert_array_equal(chosen.truth.adjacency, truth.adjacency)
    np.testing.assert_array_equal(chosen.subjects[1], simulation.subjects[PAPER_SUBJECTS[d][1] - 1])


@needs_shared_data
@pytest.mark.parametrize(("number", "paper"), [(1, 0.738), (2, 0.738), (3, 0.736)])
def test_the_papers_scoring_is_met_by_a_graph_without_a_single_edge(number, paper):
    truth = read_netsim(DATA / "netsim" / f"sim{number}.npz").truth
    nothing = np.eye(len(truth.names))
    assert binary_auroc(nothing, truth) == pytest.approx(paper, abs=0.015)
    assert binary_auroc(nothing, truth, count_diagonal=False) == 0.5
