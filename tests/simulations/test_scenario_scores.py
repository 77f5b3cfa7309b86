"""Metrics of scenarios that are of the world, not of what was found."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.simulations.scenarios.scores import OF_WORLDS, measured
from flwr_causal.simulations.scenarios.world import LineResult, World

CHAIN = CausalGraph.from_array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], ["a", "b", "c"])


def rows(weight):
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 400))
    b += weight * a
    return pd.DataFrame({"c": c + weight * b, "b": b, "a": a})


def test_sortability_is_that_of_the_pooled_rows_in_the_order_of_the_truth():
    table = rows(2.0)
    world = World([table[:100], table[100:]], CHAIN)
    assert measured(world, LineResult(()), OF_WORLDS)["varsortability"] == 1.0
    # In units that reverse the variances.
    turned = World([table * [0.01, 0.1, 1.0]], CHAIN)
    found = measured(turned, LineResult(()), OF_WORLDS)
    assert found["varsortability"] == 0.0
    # Shares are free of units: b and c are explained more than a; c less than b.
    assert found["r2_sortability"] == pytest.approx(
        measured(world, LineResult(()), OF_WORLDS)["r2_sortability"]
    )
    assert measured(turned, LineResult(()), ["shd"]) == {}


def test_sortability_is_not_known_of_categories_or_without_a_truth():
    text = rows(1.0).assign(a="yes")
    assert measured(World([text], CHAIN), LineResult(()), OF_WORLDS) == {}
    assert measured(World([rows(1.0)]), LineResult(()), OF_WORLDS) == {}
