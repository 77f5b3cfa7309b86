"""Counts of few rows: what leaves a party under each value of the option ``small_counts``."""

from typing import ClassVar

import numpy as np
import pytest
from method_modes import NUMBERS, TARGETED
from scipy.optimize import Bounds, LinearConstraint, milp

from flwr_causal.clients import CausalClient, answers
from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.core.discrete.contingency_tables import ContingencyCounts as Tables
from flwr_causal.core.discrete.contingency_tables import sets_of, tables_of, tabulate
from flwr_causal.core.discrete.discrete import as_discrete
from flwr_causal.core.discrete.small_counts import is_total, withheld
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.contract import Contract
from flwr_causal.simulations import simulate
from flwr_causal.strategies import Ask, CausalStrategy, Result
from flwr_causal.testing.subject import Spy

TABLES, _ = federated_discrete(5, 300, 3, seed=1)


def replies_of(method, parties, **options):
    """The run, and all arrays that left the parties, by name."""
    spies = []
    run = simulate(
        method, parties, wrap_grid=lambda grid: spies.append(Spy(grid)) or spies[0], **options
    )
    sent: dict[str, list] = {}
    for asked, reply in spies[0].pairs:
        if "exchange" in records.config_of(asked):
            for name, array in records.arrays_of(reply.content).items():
                sent.setdefault(name, []).append(array)
    return run, sent


@pytest.mark.parametrize("seed", range(30))
def test_each_withheld_count_of_a_table_might_be_of_many_rows(seed):
    """No count that leaves is of few rows, and none follows from the number of rows."""
    rng = np.random.default_rng(seed)
    tables = np.repeat(np.arange(12), rng.integers(1, 9, 12))
    counts = rng.integers(0, 4, len(tables)) * rng.integers(0, 8, len(tables))
    minimum = int(rng.integers(0, 9))
    left_out = withheld(counts, minimum, tables)
    for table in range(12):
        own, out = counts[tables == table], left_out[tables == table]
        kept = own[~out]
        assert not ((kept > 0) & (kept < minimum)).any()
        assert is_total(kept.sum(), own.sum(), minimum)
        small = (own > 0) & (own < minimum)
        assert out.any() == small.any()
        if out.any() and kept.any():
            # All that is known: the number of rows, and which of the counts are above 0.
            for k in np.flatnonzero(out):
                unknown = np.flatnonzero(out) == k
                most = milp(
                    -unknown.astype(float),
                    constraints=LinearConstraint(
                        np.ones(out.sum()), own[out].sum(), own[out].sum()
                    ),
                    bounds=Bounds(1, np.inf),
                    integrality=np.ones(out.sum()),
                )
                assert -most.fun >= minimum > 1
        # No more than needed: without its largest cell, another one could not be of many rows.
        if out.sum() > small.sum():
            rest = np.delete(own[out], own[out].argmax())
            assert (rest - 1).sum() + 1 < minimum
    assert not is_total(38, 40, 5)
    assert not is_total(41, 40, 5)
    assert not is_total(30, 40, 0)


def test_dense_and_sparse_tables_withhold_the_same_cells(monkeypatch):
    table = as_discrete(TABLES[0])
    sets = sets_of([[0, 1], [1, 2, 3], [0, 2, 4]])
    whole = [withheld(one.ravel(), 5) for one in of_cells(table, sets, None)]
    expected = [
        np.where(out.reshape(one.shape), 0, one)
        for one, out in zip(of_cells(table, sets, None), whole, strict=True)
    ]
    for cells in (4096, 1):
        monkeypatch.setattr("flwr_causal.core.discrete.contingency_tables.DENSE_CELLS", cells)
        found = of_cells(table, sets, 5)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def of_cells(table, sets, minimum):
    counts: Tables = tabulate(table, sets)
    if minimum is not None:
        counts = counts.without_small(sets, table.cardinalities, minimum)
    return tables_of(sets, counts, table.cardinalities)


@pytest.mark.parametrize(
    ("parties", "minimum", "options"),
    [
        (TABLES, 5, {"mode": "exact"}),
        (TABLES, 5, {"mode": "scores"}),
        (NUMBERS, 5, {"mode": "exact", "discretize": 3}),
    ],
    ids=["exact", "scores", "cuts"],
)
def test_no_small_count_leaves_a_party_of_fedges(parties, minimum, options):
    named = ("dense", "values", "counts")
    _, sent = replies_of("fedges", parties, minimum_count=minimum, **options)
    assert any(((one > 0) & (one < minimum)).any() for name in named for one in sent.get(name, []))
    options = {**options, "minimum_count": minimum}
    run, sent = replies_of("fedges", parties, small_counts="suppress", **options)
    assert run.status == "completed"
    assert run.failures == []
    assert any(f"withheld counts of fewer than {minimum}" in text for text in run.warnings)
    for name in named:
        for one in sent.get(name, []):
            assert not ((one > 0) & (one < minimum)).any()
    if "discretize" in options:
        first = sent["counts"][0].astype(int)
        assert (np.diff(np.sort(first, axis=1), axis=1) % minimum == 0).all()
    with pytest.raises(FederationError, match=r"party \d.*minimum_count.*small_counts='refuse'"):
        simulate("fedges", parties, small_counts="refuse", **options)


def test_tables_without_small_counts_are_the_same_whatever_is_done_with_them():
    parts = [part.iloc[:, :2] for part in TABLES]
    options = {"mode": "exact", "minimum_count": 1}
    runs = [simulate("fedges", parts, small_counts=one, **options) for one in ("report", "refuse")]
    runs.append(simulate("fedges", parts, small_counts="suppress", **options))
    assert all(run.graph.equals(runs[0].graph) for run in runs)


def test_sums_over_few_rows_of_an_intervention():
    """Each set of targets has about a quarter of 40, 30 and 35 rows."""
    options = {"intervention_column": "on"}
    plain = simulate("moments", TARGETED, minimum_count=9, **options)
    # With fewer rows the causes of a target may be said to be replaced, and an edge turns.
    for minimum, most in ((7, 0.0), (9, 2.0)):
        run, sent = replies_of(
            "moments", TARGETED, minimum_count=minimum, small_counts="suppress", **options
        )
        rows = [one[:, 0, 0] * n for one, n in zip(sent["moments"], (40, 30, 35), strict=True)]
        for own, n in zip(rows, (40, 30, 35), strict=True):
            assert not ((own > 0.5) & (own < minimum - 0.5)).any()
            assert own.sum() == pytest.approx(n) or own.sum() <= n - minimum + 1e-9
        changed = np.abs(run.graph.weights - plain.graph.weights).max()
        assert changed <= most
        assert (changed > 0) == (most > 0)
    with pytest.raises(FederationError, match="sets of targets have counts or sums of fewer"):
        simulate("moments", TARGETED, minimum_count=9, small_counts="refuse", **options)


HISTOGRAM = Exchange(
    "histogram",
    "rows by sign",
    returns=(Disclosure("counts", "rows by sign of each column", ("d", 2), "count", "sum"),),
)


class HistogramClient(CausalClient):
    contract: ClassVar[Contract] = Contract("histogram", (HISTOGRAM,))

    @answers(HISTOGRAM)
    def histogram(self, asked):
        return {"counts": np.stack([(self.rows() <= 2).sum(0), (self.rows() > 2).sum(0)], axis=1)}


class Histogram(CausalStrategy):
    """A stranger's method, without a word of small counts."""

    contract: ClassVar[Contract] = HistogramClient.contract

    def train(self, agreement, replicate=0):
        yield Ask(HISTOGRAM)
        return Result(reason="counted")


def test_a_method_that_declares_counts_has_the_option():
    frames, _ = federated_linear(4, 90, 3, seed=0)
    expected = 0
    for part in frames:
        own = np.stack([(part <= 2).sum(0), (part > 2).sum(0)], axis=1)
        assert ((own > 0) & (own < 5)).any()
        expected = expected + np.where(own < 5, 0, own)
    _, sent = replies_of_strategy(frames, small_counts="suppress")
    np.testing.assert_array_equal(sum(one.astype(int) for one in sent["counts"]), expected)
    with pytest.raises(FederationError, match="'counts' of the exchange 'histogram' has counts"):
        replies_of_strategy(frames, small_counts="refuse")


def replies_of_strategy(frames, **options):
    return replies_of(Histogram(**options), frames, client=HistogramClient)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("lingam", {"small_counts": "suppress"}, "methods and options that send counts"),
        ("fedges", {"small_counts": "suppress", "replicates": 5}, "replicates"),
        ("fedpc", {"small_counts": "suppress"}, "must add up"),
        ("moments", {"small_counts": "refuse", "secure_aggregation": True}, "small_counts"),
    ],
)
def test_settings_in_which_the_option_has_no_meaning(method, options, words):
    with pytest.raises(ConfigError, match=words):
        simulate(method, NUMBERS, **options)
