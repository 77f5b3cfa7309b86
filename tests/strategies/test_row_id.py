"""The option ``row_id`` of methods that cannot join the rows of parties with different columns."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.errors import DataError

NAMES = ("a", "b", "c")
METHODS = {
    "notears-admm": {"max_rounds": 6},
    "fedcausal": {"max_rounds": 6},
    "2dbn": {"order": 1, "max_rounds": 6},
    "lingam": {},
    "fedges": {},
    "moments": {},
}
APART = {name: options for name, options in METHODS.items() if name not in ("fedges", "moments")}


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(2)
    rows = rng.exponential(size=(90, 3)) @ np.array([[1, 0.8, 0], [0, 1, -0.7], [0, 0, 1]])
    whole = pd.DataFrame(rows, columns=NAMES)
    whole.insert(1, "row_id", [f"p{k}" for k in range(90)])
    return [whole[:45], whole[45:]]


def in_categories(table):
    return table.assign(**{name: (table[name] > table[name].median()).map(str) for name in NAMES})


@pytest.mark.few(4)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("called", ["row_id", "patient"])
def test_ids_are_no_variable(tables, method, called):
    options = METHODS[method]
    given = [in_categories(one) if method == "fedges" else one for one in tables]
    named = [one.rename(columns={"row_id": called}) for one in given]
    found = simulate(method, named, row_id="" if called == "row_id" else called, **options)
    without = simulate(method, [one.drop(columns="row_id") for one in given], **options)
    assert found.graph.names == NAMES
    assert found.graph.weights == pytest.approx(without.graph.weights)
    assert (found.graph.adjacency == without.graph.adjacency).all()


@pytest.mark.few(3)
@pytest.mark.parametrize("method", [*METHODS, "fedpc"])
def test_ids_may_repeat_where_all_parties_hold_the_same_columns(tables, method):
    """Several visits of a patient: no rows are matched."""
    texts = method in ("fedges", "fedpc")
    given = [in_categories(one) if texts else one for one in tables]
    visits = [one.assign(row_id=np.arange(len(one)) // 2) for one in given]
    options = METHODS.get(method, {})
    found, without = simulate(method, visits, **options), simulate(method, given, **options)
    if method == "fedpc":
        rows = visits[0].drop(columns="row_id")
        assert found.model.log_likelihood(rows) == pytest.approx(without.model.log_likelihood(rows))
    else:
        assert found.graph.weights == pytest.approx(without.graph.weights)
    if method in ("moments", "fedges", "fedpc"):
        parties = [visits[0][["row_id", "a", "b"]], visits[1][["row_id", "b", "c"]]]
        exact = {"mode": "exact"} if method == "fedges" else {}
        with pytest.raises(DataError, match=r"party 0: column 'row_id' of ids has 22 that repeat"):
            simulate(method, parties, **options, **exact)


@pytest.mark.parametrize("method", APART)
def test_different_columns_are_an_error_that_names_the_methods_for_them(tables, method):
    parties = [tables[0][["row_id", "a", "b"]], tables[0][["row_id", "b", "c"]]]
    with pytest.raises(
        DataError, match=r"\(row_id\), by which 'moments' \(numbers\), 'fedges' with mode='exact'"
    ):
        simulate(method, parties, **APART[method])


@pytest.mark.parametrize("method", METHODS)
def test_a_party_without_the_named_ids_is_an_error(tables, method):
    parties = [tables[0].rename(columns={"row_id": "patient"}), tables[1]]
    with pytest.raises(DataError, match=r"party 1.*no column 'patient', which .* 'row_id' names"):
        simulate(method, parties, row_id="patient", **METHODS[method])
