"""Stated interventions that leave the causes of their target in place, from second moments."""

import numpy as np
import pytest

from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.kept import kept_mechanisms
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.linear.order_search import search_orders

# x0 -> x1 -> x2 <- x3
WEIGHTS = np.zeros((4, 4))
WEIGHTS[0, 1], WEIGHTS[1, 2], WEIGHTS[3, 2] = 1.2, -1.0, 0.9
NAMES = ("x0", "x1", "x2", "x3")
KINDS = ["set", "shifted", "quiet"]


def rows_of(rng, target, kind, n=200):
    """Rows of the system, of which one variable is set, is shifted or has less noise."""
    weights, noise = WEIGHTS.copy(), rng.standard_normal((n, 4))
    if kind == "set":
        weights[:, target] = 0.0
    if kind in ("set", "shifted"):
        noise[:, target] += 2.0
    if kind == "quiet":
        noise[:, target] *= 0.3
    return noise @ np.linalg.inv(np.eye(4) - weights)


def world(seed, kinds):
    """Rows without interventions, and groups with targets 1, 2, ... each of its kind."""
    rng = np.random.default_rng(seed)
    groups = [rows_of(rng, 0, "untouched")]
    groups += [rows_of(rng, 1 + k, kind) for k, kind in enumerate(kinds)]
    acted = np.zeros((len(groups), 4), dtype=bool)
    acted[range(1, len(groups)), range(1, len(groups))] = True
    designs = [np.column_stack([np.ones(len(rows)), rows]) for rows in groups]
    return np.stack([design.T @ design for design in designs]), acted


def search_in(products):
    n = round(products[:, 0, 0].sum())

    def search(replaced, shifted):
        own = moments_by_variable(products / n, replaced, n, NAMES, NAMES, shifted)
        return search_orders(own, EdgeMasks.free(4)).best.adjacency

    return search


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_each_target_is_judged_by_its_own_rows(first, second):
    products, acted = world(2, [first, second])
    search = search_in(products)
    kept, shifted = kept_mechanisms(products, acted, [1] * 4, search)
    assert kept[1].tolist() == [False, first != "set", False, False]
    assert kept[2].tolist() == [False, False, second != "set", False]
    assert (shifted[1, 1], shifted[2, 2]) == (first == "shifted", second == "shifted")
    assert np.array_equal(search(acted & ~kept, shifted), WEIGHTS != 0)


def test_leaving_rows_out_whose_causes_still_act_reverses_edges():
    products, acted = world(2, ["quiet", "quiet"])
    found = search_in(products)(acted, np.zeros_like(acted))
    assert not np.array_equal(found, WEIGHTS != 0)


def test_a_variable_without_causes_or_with_more_noise_is_left_out():
    rng = np.random.default_rng(3)
    loud = rows_of(rng, 0, "untouched")
    loud[:, 1] += 4.0 * rng.standard_normal(200)
    loud[:, 2] -= loud[:, 1]
    products, acted = world(3, ["untouched"])
    products[1] = (design := np.column_stack([np.ones(200), loud])).T @ design
    graph = WEIGHTS != 0
    assert not kept_mechanisms(products, acted, [1] * 4, lambda *_: graph).kept.any()
    assert not kept_mechanisms(products, acted, [1] * 4, lambda *_: np.zeros_like(graph)).kept.any()


def test_units_levels_and_the_order_of_groups_do_not_matter():
    products, acted = world(5, ["shifted", "set", "quiet"])
    kept = kept_mechanisms(products, acted, [1] * 4, search_in(products)).kept
    change = np.diag([1.0, 3.0, 0.2, 50.0, 7.0])
    change[1:, 0] = [5.0, -2.0, 30.0, 1.0]
    others = (change @ products @ change.T)[::-1]
    again = kept_mechanisms(others, acted[::-1], [1] * 4, search_in(others)).kept
    assert np.array_equal(again, kept[::-1])


def test_rows_of_a_fixed_value_and_single_rows_are_left_out():
    rng = np.random.default_rng(7)
    products, acted = world(7, ["set", "set"])
    fixed = rows_of(rng, 1, "set")
    fixed[:, 1] = 2.0
    for k, rows in ((1, fixed), (2, rows_of(rng, 2, "set", n=1))):
        design = np.column_stack([np.ones(len(rows)), rows])
        products[k] = design.T @ design
    assert not kept_mechanisms(products, acted, [1] * 4, search_in(products)).kept.any()
