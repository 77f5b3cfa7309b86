"""FedGES on rows with missing cells: ``missing_values="em"``."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from category_federations import alike, make_tables, pooled

from flwr_causal import ConfigError, DataError, simulate
from flwr_causal.core.graphs.metrics import moral_hamming_distance

EM = {"missing_values": "em"}
TABLES, NETWORK = make_tables(d=8, n=3000, parties=3, seed=2, num_states=(2, 3))
WHOLE = pooled(TABLES)
GAPS = WHOLE.mask(np.random.default_rng(0).random(WHOLE.shape) < 0.15)
MODES = ("scores", "exact")


def parties(table, cuts=(700, 1500)):
    ends = (0, *cuts, len(table))
    return [table.iloc[i:j].reset_index(drop=True) for i, j in pairwise(ends)]


def wrong(run):
    return moral_hamming_distance(NETWORK.graph, run.graph)


@pytest.fixture(scope="module", params=MODES)
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def found(mode):
    return simulate("fedges", parties(GAPS), mode=mode, **EM)


@pytest.mark.few(1)
def test_it_finds_what_complete_rows_show(mode, found):
    of_complete = wrong(simulate("fedges", parties(WHOLE), mode=mode))
    dropped = wrong(simulate("fedges", parties(GAPS), mode=mode, missing_values="drop"))
    assert wrong(found) <= of_complete + 1
    assert wrong(found) < dropped


def test_the_network_is_near_that_of_complete_rows(mode, found):
    of_complete = simulate("fedges", parties(WHOLE), mode=mode)
    rows = NETWORK.sample(4000, seed=9)
    loss = of_complete.model.log_likelihood(rows) - found.model.log_likelihood(rows)
    assert loss.mean() < 0.03


def test_complete_rows_give_the_result_of_the_default(mode):
    tables = parties(WHOLE)
    plain, run = (simulate("fedges", tables, mode=mode, **options) for options in ({}, EM))
    assert alike(run.graph, plain.graph)
    for one, other in zip(run.model.tables, plain.model.tables, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "tables",
    [[GAPS], parties(GAPS)[::-1], parties(GAPS.iloc[::-1], (100, 2000)), parties(GAPS[::-1])],
    ids=["one party", "parties turned", "other split", "rows turned"],
)
def test_exact_is_the_search_on_all_rows_however_they_lie(tables):
    run = simulate("fedges", parties(GAPS), mode="exact", **EM)
    other = simulate("fedges", tables, mode="exact", **EM)
    assert alike(run.graph, other.graph)
    # Only equal rows may be completed otherwise, as they are not told apart.
    for one, another in zip(run.model.tables, other.model.tables, strict=True):
        np.testing.assert_allclose(one, another, atol=0.05)


@pytest.mark.few(1)
def test_secure_sums_give_the_same(mode, found):
    secure = simulate("fedges", parties(GAPS), mode=mode, secure_aggregation=True, **EM)
    assert alike(secure.graph, found.graph)
    for one, other in zip(secure.model.tables, found.model.tables, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.few(1)
def test_a_column_that_a_party_lacks_is_missing_there(mode):
    tables = parties(GAPS)
    name = GAPS.columns[-1]
    tables[1] = tables[1].drop(columns=name)
    run = simulate("fedges", tables, mode=mode, unshared_columns="keep", **EM)
    assert set(run.graph.names) == set(GAPS.columns)
    assert wrong(run) <= 3
    with pytest.raises(DataError, match=name):
        simulate("fedges", tables, mode=mode, unshared_columns="fail", **EM)


def test_cells_missing_by_seen_columns_do_not_shift_the_network():
    """Where the first column has its last state most cells of a child are missing."""
    rng = np.random.default_rng(1)
    truth = rng.choice(["0", "1"], 6000, p=[0.5, 0.5])
    child = np.where(rng.random(6000) < 0.9, truth, np.where(truth == "1", "0", "1"))
    table = pd.DataFrame({"cause": truth, "child": child})
    hidden = (truth == "1") & (rng.random(6000) < 0.8)
    table.loc[hidden, "child"] = None
    run = simulate("fedges", parties(table, (2000, 4000)), mode="exact", **EM)
    assert run.model.sample(20_000, seed=0)["child"].eq("1").mean() == pytest.approx(0.5, abs=0.03)
    dropped = simulate("fedges", parties(table, (2000, 4000)), mode="exact", missing_values="drop")
    assert dropped.model.sample(20_000, seed=0)["child"].eq("1").mean() < 0.3


@pytest.mark.few(1)
def test_withheld_counts_take_part(mode):
    run = simulate("fedges", parties(GAPS), mode=mode, small_counts="suppress", **EM)
    assert wrong(run) <= 4


@pytest.mark.few(1)
@pytest.mark.slow
def test_replicates_take_part(mode):
    run = simulate("fedges", parties(GAPS), mode=mode, replicates=4, seed=3, **EM)
    assert run.graph.confidence is not None
    assert run.graph.confidence[run.graph.adjacency].min() > 0.2
    assert wrong(run) <= 4


def test_bdeu_takes_part():
    run = simulate("fedges", parties(GAPS), mode="scores", score="bdeu", **EM)
    assert [one["exchange"] for one in run.history].count("fit") == 2
    assert wrong(run) <= 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "fusion"}, "mode='fusion'"),
        ({"mode": "scores", "start": "driven"}, "start='driven'"),
        ({"parameters": False}, "'parameters'"),
        ({"discretize": 3}, "'discretize'"),
        ({"max_rounds": 3}, "'max_rounds'"),
        ({"row_id": "row"}, "'row_id'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ConfigError, match=words) as error:
        simulate("fedges", parties(GAPS), **options, **EM)
    assert re.search("missing_values.*'em'", str(error.value))


def test_unshared_columns_are_kept_only_as_missing():
    with pytest.raises(ConfigError, match="missing_values='em'"):
        simulate("fedges", parties(WHOLE), unshared_columns="keep")


def test_few_exchanges_are_divided_among_both_searches():
    run = simulate("fedges", parties(GAPS), mode="exact", max_rounds=4, **EM)
    assert len(run.history) <= 4
    assert [one["exchange"] for one in run.history].count("fit") == 2
