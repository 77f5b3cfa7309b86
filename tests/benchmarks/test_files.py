"""Reading the data of the papers."""

import pandas as pd
import pytest

from benchmarks.files import draw_rows
from flwr_causal.errors import DataError


def test_rows_are_drawn_without_replacement():
    rows = pd.DataFrame({"id": range(5)})
    drawn = draw_rows(rows, 4, seed=0)
    assert len(set(drawn["id"])) == 4
    samples = [draw_rows(rows, 5, seed)["id"].tolist() for seed in (0, 1, 0)]
    assert samples[0] == samples[2] != samples[1]
    assert sorted(samples[0]) == sorted(samples[1]) == rows["id"].tolist()
    for num_rows in (6, 0):
        with pytest.raises(DataError, match=f"cannot draw {num_rows} rows from a table of 5"):
            draw_rows(rows, num_rows, 0)
