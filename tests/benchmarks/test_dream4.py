"""DREAM4: what the loader makes of a file, what it says of a bad one, and the challenge's files."""

import numpy as np
import pytest
from shared_data import DATA, needs_shared_data

from benchmarks.readers.dream4 import TIME, dream4_parties, read_dream4
from flwr_causal.core.graphs.metrics import auprc, auroc
from flwr_causal.errors import ConfigError, DataError

CONTENT = {
    "series": np.arange(3 * 4 * 2.0).reshape(3, 4, 2),
    "time": np.array([0.0, 50.0, 100.0, 150.0]),
    "adjacency": np.array([[0, 1], [1, 0]], dtype=np.int8),
    "names": np.array(["G2", "G1"]),
}


@pytest.fixture
def directory(tmp_path):
    np.savez(tmp_path / "size10_2.npz", **CONTENT)
    return tmp_path


def test_series_become_frames_with_times_and_the_gold_standard_a_cyclic_graph(directory):
    data = read_dream4(directory, network=2, size=10)
    assert data.names == ("G2", "G1")
    assert [list(frame.columns) for frame in data.series] == [[TIME, "G2", "G1"]] * 3
    for frame, values in zip(data.series, CONTENT["series"], strict=True):
        np.testing.assert_array_equal(frame[["G2", "G1"]], values)
        np.testing.assert_array_equal(frame[TIME], CONTENT["time"])
    assert data.gold.dtype == bool
    np.testing.assert_array_equal(data.gold, [[False, True], [True, False]])
    assert data.truth.kind == "summary"
    assert not data.truth.is_acyclic()
    assert data.truth.edges() == [("G2", "G1", 1.0), ("G1", "G2", 1.0)]


@pytest.mark.parametrize(("num", "sizes"), [(1, [3]), (2, [2, 1]), (3, [1, 1, 1])])
def test_parties_hold_all_series_once_and_in_order(directory, num, sizes):
    data = read_dream4(directory, network=2, size=10)
    parties = dream4_parties(data, num)
    assert [len(party) for party in parties] == sizes
    dealt = [frame for party in parties for frame in party]
    assert all(one is other for one, other in zip(dealt, data.series, strict=True))


@pytest.mark.parametrize("num", [0, 4])
def test_more_parties_than_series_are_refused(directory, num):
    with pytest.raises(DataError, match=f"{num} parties for 3 series"):
        dream4_parties(read_dream4(directory, 2, 10), num)


@pytest.mark.parametrize(("network", "size"), [(0, 100), (6, 100), (1, 50)])
def test_networks_that_do_not_exist_are_refused(directory, network, size):
    with pytest.raises(ConfigError, match=f"network {network} of size {size}"):
        read_dream4(directory, network, size)


def test_a_missing_file_is_named(directory):
    with pytest.raises(DataError, match=r"size100_1\.npz.*not part of this package"):
        read_dream4(directory)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"time": np.arange(3.0)}, "do not fit"),
        ({"names": np.array(["G1", "G2", "G3"])}, "do not fit"),
        ({"adjacency": np.eye(3)}, "do not fit"),
        ({"series": np.zeros((4, 2))}, "do not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changed, message):
    np.savez(tmp_path / "size10_1.npz", **{**CONTENT, **changed})
    with pytest.raises(DataError, match=message):
        read_dream4(tmp_path, 1, 10)


def test_archives_without_the_arrays_and_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "size10_1.npz", series=CONTENT["series"])
    (tmp_path / "size10_2.npz").write_text("no archive")
    for network in (1, 2):
        with pytest.raises(
            DataError, match=f"size10_{network}.*not an NPZ archive of series, time"
        ):
            read_dream4(tmp_path, network, 10)


@needs_shared_data
@pytest.mark.parametrize(
    ("size", "edges", "num_series"),
    [(100, [176, 249, 195, 211, 193], 10), (10, [15, 16, 15, 13, 12], 5)],
)
def test_the_networks_of_the_challenge(size, edges, num_series):
    networks = [read_dream4(DATA / "dream4", k, size) for k in range(1, 6)]
    assert [int(network.gold.sum()) for network in networks] == edges
    for network in networks:
        assert len(network.series) == num_series
        assert network.names == tuple(f"G{k}" for k in range(1, size + 1))
        assert not network.gold.diagonal().any()
        assert not network.truth.is_acyclic()
        for frame in network.series:
            np.testing.assert_array_equal(frame[TIME], np.arange(0, 1001, 50))
            assert frame.shape == (21, size + 1)


@needs_shared_data
def test_what_knows_nothing_scores_as_chance_does():
    gold = read_dream4(DATA / "dream4", 1).gold
    assert auroc(np.ones((100, 100)), gold) == 0.5
    assert auprc(np.ones((100, 100)), gold) == pytest.approx(176 / 9900)
    assert auroc(gold.astype(float), gold) == auprc(gold.astype(float), gold) == 1
