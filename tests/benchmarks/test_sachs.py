"""The reader of the cells of Sachs et al.: a small folder made up here, and the real one."""

import numpy as np
import pandas as pd
import pytest
from shared_data import DATA, needs_shared_data

from benchmarks.readers.sachs import condition_parties, read_sachs
from flwr_causal.errors import ConfigError, DataError

ROWS = """raf,mek,pka,condition
1,2,3,4
2,4,5,4
3,7,8,0
5,9,10,4
8,20,30,0
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sachs_all_7466.csv").write_text(ROWS)
    (tmp_path / "conditions.csv").write_text("condition,reagents,rows\n0,base,2\n4,base+drug,3\n")
    (tmp_path / "edges_dag_17.csv").write_text("source,target\nraf,mek\n")
    (tmp_path / "edges_consensus_20.csv").write_text("source,target\nmek,raf\npka,mek\n")
    return tmp_path


def test_rows_conditions_and_the_two_networks(folder):
    data = read_sachs(folder)
    assert list(data.rows.columns) == ["raf", "mek", "pka"] == list(data.truth.names)
    assert (data.rows.dtypes == np.float64).all()
    assert list(data.rows["mek"]) == [2, 4, 7, 9, 20]
    assert list(data.conditions) == ["base+drug", "base+drug", "base", "base+drug", "base"]
    np.testing.assert_array_equal(np.argwhere(data.truth.adjacency), [[1, 0], [2, 1]])
    np.testing.assert_array_equal(
        np.argwhere(read_sachs(folder, edges=17).truth.adjacency), [[0, 1]]
    )


def test_each_condition_is_a_party(folder):
    parties = condition_parties(read_sachs(folder))
    assert list(parties) == ["base+drug", "base"]
    assert list(parties["base"]["raf"]) == [3, 8]
    assert list(parties["base"].index) == [0, 1]
    assert list(parties["base+drug"]["pka"]) == [3, 5, 10]
    assert "condition" not in parties["base"].columns


def test_logarithm_and_standardised_units(folder):
    raw = read_sachs(folder).rows
    np.testing.assert_allclose(read_sachs(folder, log=True).rows, np.log(raw + 10))
    for log in (False, True):
        units = read_sachs(folder, log=log, standardize=True).rows
        np.testing.assert_allclose(units.mean(), 0, atol=1e-12)
        np.testing.assert_allclose(units.std(ddof=0), 1)
        plain = read_sachs(folder, log=log).rows
        np.testing.assert_allclose(np.corrcoef(units.T), np.corrcoef(plain.T))
    # The logarithm comes first.
    expected = np.log(raw + 10)
    expected = (expected - expected.mean()) / expected.std(ddof=0)
    pd.testing.assert_frame_equal(read_sachs(folder, log=True, standardize=True).rows, expected)


def test_bad_folders_are_refused(folder):
    with pytest.raises(ConfigError, match="18 edges: choose 17 or 20"):
        read_sachs(folder, edges=18)
    (folder / "edges_dag_17.csv").write_text("source,target\nraf,erk\n")
    with pytest.raises(DataError, match="edges of erk"):
        read_sachs(folder, edges=17)
    (folder / "edges_dag_17.csv").write_text("from,to\nraf,mek\n")
    with pytest.raises(DataError, match=r"lacks the columns \['source', 'target'\]"):
        read_sachs(folder, edges=17)
    (folder / "conditions.csv").write_text("condition,reagents\n0,base\n")
    with pytest.raises(DataError, match=r"does not list the conditions \[4\]"):
        read_sachs(folder)
    (folder / "sachs_all_7466.csv").write_text(ROWS.replace("3,7", "3,"))
    with pytest.raises(DataError, match="missing values"):
        read_sachs(folder)
    (folder / "sachs_all_7466.csv").unlink()
    with pytest.raises(DataError, match=r"no file .*sachs_all_7466.csv: give the directory"):
        read_sachs(folder)


@needs_shared_data
def test_the_cells_of_sachs():
    data = read_sachs(DATA / "sachs")
    assert data.rows.shape == (7466, 11)
    sizes = [len(rows) for rows in condition_parties(data).values()]
    assert sizes == [853, 902, 911, 723, 810, 799, 848, 913, 707]
    assert next(iter(condition_parties(data))) == "cd3_cd28"
    assert data.truth.num_edges == 20
    assert data.truth.is_acyclic
    other = read_sachs(DATA / "sachs", edges=17).truth
    assert other.num_edges == 17
    assert (other.adjacency & ~data.truth.adjacency).sum() == 1
