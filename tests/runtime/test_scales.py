"""Columns of any unit: secure sums give what plain ones give, or both name the unit."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import DataError

TABLES, _ = federated_linear(3, 90, 3, seed=0)
METHODS = {"moments": {}, "lingam": {}, "notears-admm": {"max_rounds": 6}}


def outcome(method, tables, **options):
    try:
        return simulate(method, tables, **METHODS[method], **options).graph.weights
    except DataError as error:
        return str(error)


@cache
def in_units_of_one(method):
    return simulate(method, TABLES, **METHODS[method]).graph.weights


def check(method, exponent):
    tables = [table * 10.0**exponent for table in TABLES]
    plain = outcome(method, tables)
    secure = outcome(method, tables, secure_aggregation=True)
    for found in (plain, secure):
        if exponent < -46:
            assert "values so small that sums lose them" in found
            assert "rescale it: give the column a smaller unit" in found
        elif exponent > 21:
            assert "values so large that sums overflow" in found
            assert "give the column a larger unit" in found
    if -46 < exponent <= 20:
        np.testing.assert_allclose(secure, plain, rtol=0, atol=1e-8)
        np.testing.assert_allclose(plain, in_units_of_one(method), rtol=0, atol=1e-6)
    else:
        assert isinstance(plain, str)
        assert isinstance(secure, str)


@pytest.mark.few(11)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", [-300, -163, -60, -53, -47, -46, -20, 20, 22, 153, 300])
def test_secure_sums_are_plain_sums_in_any_unit_or_both_name_it(method, exponent):
    check(method, exponent)


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS)
def test_so_they_are_in_every_unit(method):
    # Every power near the limits, and some far from them.
    for exponent in (*range(-300, -60, 6), *range(-60, 30), *range(30, 301, 6)):
        check(method, exponent)


@pytest.mark.parametrize("secure", [False, True])
def test_a_column_that_is_0_is_constant_and_a_tiny_one_is_not(secure):
    zeros = [table.assign(x1=0.0) for table in TABLES]
    with pytest.raises(DataError, match="'x1': constant, one value in all rows"):
        simulate("moments", zeros, secure_aggregation=secure, strict=True)
    assert simulate("moments", zeros, secure_aggregation=secure).graph.names == ("x0", "x2")
    by_party = [table.assign(x1=(1 + k) * 1e-60) for k, table in enumerate(TABLES)]
    one_tiny = [table.assign(x1=table["x1"] * 1e-60) for table in TABLES]
    for tables in (by_party, one_tiny):
        with pytest.raises(DataError, match=r"column 'x1'.* so small"):
            simulate("moments", tables, secure_aggregation=secure)


def test_categories_and_missing_values_have_no_unit():
    states = [pd.DataFrame({"a": [0.0, 1e-60, 0.0] * 9, "b": [1, 2, 3] * 9}) for _ in range(3)]
    assert simulate("fedges", states).graph is not None
    assert simulate("fedges", states, discretize=5).graph is not None
