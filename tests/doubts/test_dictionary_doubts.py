"""What a dictionary says of a column is not doubted."""

import numpy as np
import pandas as pd

from flwr_causal.app.comparison import query_table
from flwr_causal.simulations import simulate
from flwr_causal.strategies import FedPC

COLUMNS = """
[columns.x]
kind = "number"
least = 0
most = 10000
[columns.state]
kind = "category"
states = ["NA", "yes", "no", "ja", "nein"]
[columns.y]
kind = "number"
"""


def parties():
    """A value far outside and a mark of missing values that are meant, states of one party each."""
    rng = np.random.default_rng(0)
    for words in (("yes", "no"), ("ja", "nein")):
        x = rng.uniform(1, 5, 200)
        state = np.array(["NA", *words])[rng.integers(0, 3, 200)]
        table = pd.DataFrame({"x": x, "state": state, "y": x + rng.uniform(-2, 2, 200)})
        table.loc[3, "x"] = 9999
        yield table


def test_ranges_and_states_are_no_guesses(tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(COLUMNS)
    options = {"text_columns": "keep"}
    guessed = " ".join(simulate("moments", list(parties()), **options).warnings)
    for words in ("far outside", "marks of missing values", "be misspelt"):
        assert words in guessed
        found = simulate("moments", list(parties()), dictionary=str(file), **options)
        assert not any(words in one for one in found.warnings)
    # Without the range the value is doubted again.
    file.write_text(COLUMNS.replace("most = 10000", ""))
    found = simulate("moments", list(parties()), dictionary=str(file), **options)
    assert any("far outside" in one for one in found.warnings)


def test_rows_of_a_query_may_lack_columns(tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(COLUMNS)
    next(parties()).drop(columns="y").to_csv(tmp_path / "query.csv", index=False)
    rows = query_table(str(tmp_path / "query.csv"), reading=FedPC(dictionary=str(file))._reading)
    assert [*rows.columns] == ["x", "state"]
