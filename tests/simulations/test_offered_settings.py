"""The settings that an error offers are settings that the mode accepts."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import DataError, simulate


def tables(categories):
    """One of three parties lacks a column, and cells are missing."""
    rng = np.random.default_rng(0)
    made = []
    for party in range(3):
        rows = rng.normal(size=(300, 4))
        rows[:, 1] += rows[:, 0]
        table = pd.DataFrame(rows, columns=[*"abcd"])
        if categories:
            table = table.apply(lambda column: np.where(column > 0, "u", "v"))
        table.loc[::7, "a"] = None
        made.append(table.drop(columns="d") if party == 1 else table)
    return made


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {"hidden_causes": True}),
        ("moments", {"unknown_targets": True}),
        ("fedges", {"hidden_causes": True}),
        ("fedges", {"hidden_causes": True, "mode": "exact"}),
    ],
    ids=str,
)
def test_settings_that_are_offered_are_accepted(method, options):
    found = tables(method == "fedges")
    with pytest.raises(DataError) as error:
        simulate(method, found, **options, strict=True)
    assert error.value.settings
    simulate(method, found, **options, **error.value.settings)
