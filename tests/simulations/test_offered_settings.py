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


@pytest.mark.few(2)
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


@pytest.mark.parametrize("method", ["moments", "lingam"])
def test_ids_that_are_text_here_and_digits_there_are_left_out_if_told(method):
    rng = np.random.default_rng(0)
    parties = [
        pd.DataFrame(rng.normal(size=(40, 2)), columns=["x", "y"]).assign(patient=ids)
        for ids in ([f"P{k:03d}" for k in range(40)], range(501, 541))
    ]
    with pytest.raises(DataError, match="Set exclude='patient'") as caught:
        simulate(method, parties)
    run = simulate(method, parties, **caught.value.settings)
    assert run.graph.names == ("x", "y")
