"""Variables that others determine, against what the rows say."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.blocks.determined import determined
from flwr_causal.core.linear.moments import Moments


def found(table, functions=1):
    variables, columns = design(table, functions)
    moments = Moments.from_rows(columns, column_names(variables))
    return [
        (variables[j].name, [variables[i].name for i in others])
        for j, others in determined(variables, moments)
    ]


def table(n=400):
    rng = np.random.default_rng(0)
    fine = rng.choice(["a", "b", "c", "d"], n)
    # A state of one row each, in the same row: neither category follows from the other.
    first, second = (rng.choice(["u", "v"], n) for _ in range(2))
    first[7], second[7] = "rare", "seldom"
    numbers = rng.normal(size=(n, 2))
    return pd.DataFrame(
        {"x": numbers[:, 0], "fine": fine, "first": first, "y": numbers[:, 1], "second": second}
    )


@pytest.mark.parametrize("functions", [1, 3])
def test_nothing_is_determined(functions):
    assert found(table(), functions) == []


@pytest.mark.parametrize("functions", [1, 3])
@pytest.mark.parametrize("first", [True, False])
def test_functions_of_others(functions, first):
    """In whichever order the columns are; of a copy the later one is named."""
    rows = table()
    halves = rows["fine"].isin(["a", "b"])
    added = {
        "coarse": np.where(halves, "ab", "cd"),
        "coded": halves.astype(float),
        "shifted": rows["x"] + 2.0 * halves,
    }
    for name, values in added.items():
        own = pd.Series(values, name=name)
        both = pd.concat([own, rows] if first else [rows, own], axis=1)
        if name == "shifted":
            # Each of the two numbers follows from the other and the category.
            others = {"shifted", "x", "fine"} - {"x" if first else "shifted"}
            (one, by), *rest = found(both, functions)
            assert (one, set(by), rest) == ("x" if first else "shifted", others, [])
        else:
            assert found(both, functions) == [(name, ["fine"])]


def test_numbers_are_linear_combinations():
    rows = table()
    rows["twice"] = 3.0 - 2.0 * rows["x"]
    rows["sum"] = rows["x"] + rows["y"]
    assert found(rows) == [("twice", ["x"]), ("sum", ["x", "y"])]
    assert found(rows, 3) == [("twice", ["x"]), ("sum", ["x", "y"])]
