"""What all sources give: products with ones, their units, and what a row is to the server."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from pooled import products

from flwr_causal.core.blocks.design import Design
from flwr_causal.core.linear.moments import row_products
from flwr_causal.data.check.agreement import Agreement
from flwr_causal.errors import DataError
from flwr_causal.sources.products import (
    Products,
    changed_mechanisms,
    in_new_units,
    products_with_ones,
    solved_design,
)

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(40, 3)) + np.array([1.0, 2.0, 3.0])


def test_means_and_second_moments_are_products():
    found = products_with_ones(Z.mean(axis=0), np.cov(Z, rowvar=False, bias=True))
    np.testing.assert_allclose(found, products(Z) / 40, atol=1e-12)


def test_products_in_other_units():
    units = np.array([2.0, 0.5, -3.0])
    several = np.array([products(Z), products(Z[:9])])
    expected = np.array([products(Z * units), products(Z[:9] * units)])
    np.testing.assert_allclose(in_new_units(several, units), expected)


def agreement_of(**changes):
    values = {
        "names": ("a", "b", "c"),
        "mean": np.array([1.0, 2.0, 3.0]),
        "variance": np.array([4.0, 9.0, 16.0]),
        "states": (),
        "values": (),
        "targets": (),
        "shifted": (),
        "n": 40,
    }
    return SimpleNamespace(**{**values, **changes})


@dataclass
class Options:
    model: str = "linear"
    takes_blocks: bool = False
    standardize: bool = False
    order: int = 0
    center: str = "global"
    weight_column: str = ""


@pytest.mark.parametrize(
    ("options", "scale", "widths", "marked"),
    [
        (Options(), [1, 1, 1], [1] * 3, False),
        (Options(standardize=True), [2, 3, 4], [1] * 3, False),
        (Options(takes_blocks=True), [2, 3, 4], [1] * 3, False),
        (Options("additive"), [2, 3, 4], [5] * 3, False),
        (Options("curved", takes_blocks=True, order=1), [2, 3, 4], [3] * 6, False),
        (Options(order=2, center="phase"), [1, 1, 1], [1] * 9, True),
        (Options(center="party"), [1, 1, 1], [1] * 3, False),
    ],
)
def test_the_servers_design(options, scale, widths, marked):
    made = solved_design(agreement_of(), options)
    np.testing.assert_array_equal(made.scale, scale)
    assert (made.widths, made.marked, made.order) == (widths, marked, options.order)
    np.testing.assert_array_equal([one.mean for one in made.variables], [1, 2, 3])
    states = ((), ("u", "v"), ())
    kept = solved_design(agreement_of(states=states, values=("", "bool", "")), options)
    assert (kept.variables[1].states, kept.variables[1].values) == (("u", "v"), "bool")


SETS = RNG.integers(0, 3, 40)
VALUES = np.array([products(Z[np.equal(SETS, k)]) for k in range(3)]) / 40


def test_moments_of_each_variable_are_of_the_rows_without_its_targets():
    agreement = agreement_of(targets=((), ("a",), ("b", "c")))
    found = Products(agreement, solved_design(agreement, Options()), VALUES).moments
    for own, outside in zip(found, (SETS != 1, SETS != 2, SETS != 2), strict=True):
        rows = Z[outside]
        assert own.n == len(rows)
        np.testing.assert_allclose(own.mean, rows.mean(axis=0))
        np.testing.assert_allclose(own.second, np.cov(rows, rowvar=False, bias=True), atol=1e-12)
    every = Products(agreement_of(), solved_design(agreement, Options()), VALUES).moments
    np.testing.assert_allclose(every.second, np.cov(Z, rowvar=False, bias=True), atol=1e-12)
    always = agreement_of(targets=(("a",), ("a",), ("a", "b")))
    with pytest.raises(DataError, match="'a' is the target of an intervention in all rows"):
        _ = Products(always, solved_design(always, Options()), VALUES).moments


def test_shifted_mechanisms_have_changed_and_their_rows_count_about_their_own_level():
    agreement = agreement_of(targets=((), ("a",), ()), shifted=((), (), ("b",)))
    changed = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(changed_mechanisms(agreement), changed)
    found = Products(agreement, solved_design(agreement, Options()), VALUES).moments
    # Rows of the third set are moved to the mean of the others.
    moved = Z.copy()
    moved[SETS == 2] += Z[SETS != 2].mean(axis=0) - Z[SETS == 2].mean(axis=0)
    np.testing.assert_allclose(found[1].second, np.cov(moved, rowvar=False, bias=True), atol=1e-12)
    np.testing.assert_array_equal(
        changed_mechanisms(agreement_of(targets=((), ("c",)))), [[0] * 3, [0, 0, 1]]
    )


def test_products_of_weighted_rows_are_those_of_effective_ones():
    names, weights = ("a", "b", "c"), RNG.exponential(size=40)
    mean, variance = np.zeros(3), np.ones(3)
    numbers, rows = ("numeric",) * 3, {"p": 15, "q": 25}
    agreement = Agreement(names, numbers, rows, mean, variance, {}, ())
    design = Design.of(names, mean, variance, weighted=True)
    of_weighted = design.of_weighted(np.column_stack([weights, Z]))
    assert of_weighted.shape[1] == design.size
    parts = {"p": row_products(of_weighted[:15]), "q": row_products(of_weighted[15:])}
    folds = np.array([*parts.values()]) / 40
    fewer = row_products(of_weighted[:33])[None] / 40
    found = Products(agreement, design, folds, fewer, parts=parts)

    def weighted(chosen):
        with_ones = np.column_stack([np.ones(40), Z])[chosen]
        return (with_ones * weights[chosen, None]).T @ with_ones

    # Each row counts as its weight times this.
    constant = weights.sum() / (weights**2).sum()
    assert found.agreement.n == round(constant * weights.sum()) < 40
    for place, (name, chosen) in enumerate((("p", slice(15)), ("q", slice(15, None)))):
        np.testing.assert_allclose(found.parts[name], constant * weighted(chosen))
        np.testing.assert_allclose(found.values[place], weighted(chosen) / weights.sum())
    np.testing.assert_allclose(found.of_fewer_lags[0], weighted(slice(33)) / weights.sum())
    assert found.moments.n == found.agreement.n == found.info["effective_rows"]
    np.testing.assert_allclose(found.moments.mean, np.average(Z, axis=0, weights=weights))
    second = np.cov(Z, rowvar=False, aweights=weights, ddof=0)
    np.testing.assert_allclose(found.moments.second, second)
    assert not found.design.weighted
