"""The checks of a method: our six pass them, careless ones fail the check that is meant for it."""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from flwr_causal import CausalGraph
from flwr_causal.clients import Asked, CausalClient, answers
from flwr_causal.protocol import Contract, Disclosure, Exchange
from flwr_causal.runtime.method import Request
from flwr_causal.strategies import CausalStrategy, Moments
from flwr_causal.testing import check_method, parametrize_with_checks

RNG = np.random.default_rng(0)
CAUSE = RNG.normal(size=(90, 1))
ROWS = np.hstack([CAUSE, CAUSE + RNG.normal(size=(90, 1)), RNG.normal(size=(90, 1))])
NUMBERS = [ROWS[:25], ROWS[25:60], ROWS[60:]]
CATEGORIES = [pd.DataFrame(np.where(rows > 0, "high", "low")) for rows in NUMBERS]
CATEGORIES = [table.rename(columns=str) for table in CATEGORIES]
CLASSES = [pd.DataFrame(rows, columns=list("abc")) for rows in NUMBERS]
CLASSES = [table.assign(target=table["a"] > 0) for table in CLASSES]

OURS = {
    "notears-admm": (NUMBERS, {"max_rounds": 8}),
    "moments": (NUMBERS, {}),
    "2dbn": (NUMBERS, {"max_rounds": 6}),
    "fedcausal": (NUMBERS, {"max_rounds": 6}),
    "fedges": (CATEGORIES, {"mode": "exact"}),
    "fedpc": (CLASSES, {"minimum_count": 1, "training": "sums"}),
}


@pytest.mark.parametrize("method", OURS)
def test_our_methods_pass(method):
    parties, options = OURS[method]
    report = check_method(method, parties, **options)
    assert report.passed, report.table()
    skipped = {result.name for result in report.results if result.status == "skipped"}
    pools = method in ("moments", "fedges", "fedpc")
    assert ("split_of_rows" in skipped) == (not pools)


ONE = Exchange("means", "a mean of squares", returns=(Disclosure("squares", "by column", ("d",)),))
FREE = Exchange("means", "values", returns=(Disclosure("squares", "of any size", ("*",)),))
draws = count()


class MeansClient(CausalClient):
    contract: ClassVar[Contract] = Contract("means", (ONE,))

    @answers(ONE)
    def squares(self, asked: Asked):
        return {"squares": np.square(self.rows()).mean(axis=0)}


class RandomClient(MeansClient):
    """Draws without the seed."""

    @answers(ONE)
    def squares(self, asked: Asked):
        return {"squares": np.full(len(self.setup.names), float(next(draws)))}


class ForgetfulClient(MeansClient):
    """Changes its state when it is asked again."""

    @answers(ONE)
    def squares(self, asked: Asked):
        memory = self.recall()
        times = 1.0 if memory is None else memory.numbers["times"] + 1.0
        self.remember({}, times=times)
        # What was remembered is kept although the reply never arrives.
        return {"squares": np.full(len(self.setup.names), times)}


class RowsClient(CausalClient):
    """Sends a column of its rows under a free shape."""

    contract: ClassVar[Contract] = Contract("means", (FREE,))

    @answers(FREE)
    def squares(self, asked: Asked):
        return {"squares": self.rows()[:, 0]}


@dataclass(kw_only=True, eq=False)
class Means(CausalStrategy):
    """A graph whose weights depend on everything that a careless method may depend on."""

    contract: ClassVar[Contract] = Contract("means", (ONE,))
    pools: bool = False
    first_party_only: bool = False

    @property
    def pools_rows(self) -> bool:
        return self.pools

    def init(self, agreement):
        return agreement.names, None

    def request(self, state):
        return Request(self.contract.exchanges[0])

    def close(self, state, replies):
        squares = replies.list("squares")
        chosen = squares[:1] if self.first_party_only else squares
        return (state[0], float(np.mean([one.mean() for one in chosen]))), {}

    def finished(self, state):
        return None if state[1] is None else "done"

    def graph(self, state):
        d = len(state[0])
        weights = np.zeros((d, d))
        weights[0, 1] = 0.0 if state[1] is None else state[1]
        return CausalGraph(state[0], weights)


class FreeMeans(Means):
    contract: ClassVar[Contract] = Contract("means", (FREE,))


def failed(strategy, client):
    report = check_method(strategy, NUMBERS, client=client)
    assert report.passed == (not {r.name for r in report.results if r.status == "failed"})
    return {result.name for result in report.results if result.status == "failed"}


def test_a_careful_method_passes():
    assert failed(Means(), MeansClient) == set()


def test_an_order_of_parties_that_matters_is_found():
    assert failed(Means(first_party_only=True), MeansClient) == {"order_of_parties"}


def test_a_split_of_rows_that_matters_is_found():
    # A mean of the parties' means is not the mean of the rows.
    assert failed(Means(pools=True), MeansClient) == {"split_of_rows"}


def test_draws_without_the_seed_are_found():
    found = failed(Means(), RandomClient)
    assert {"same_seed_same_result", "lost_replies"} <= found


def test_a_state_that_changes_twice_for_one_exchange_is_found():
    assert failed(Means(), ForgetfulClient) == {"lost_replies"}


def test_rows_under_a_free_shape_are_found():
    assert "no_entry_for_each_row" in failed(FreeMeans(), RowsClient)


def test_expected_failures_have_a_reason():
    report = check_method(
        Means(first_party_only=True),
        NUMBERS,
        client=MeansClient,
        expected_failures={"order_of_parties": "only the first party counts"},
    )
    assert report.passed
    assert "expected failure  only the first party counts" in report.table()


def test_the_table_names_what_does_not_hold():
    report = check_method(Means(first_party_only=True), NUMBERS, client=MeansClient)
    assert not report.passed
    text = report.table()
    assert text.startswith("means: FAILED")
    assert "order_of_parties" in text
    assert "differ by up to" in text


@parametrize_with_checks([(Moments(), NUMBERS), (Means(), NUMBERS, MeansClient)])
def test_each_check_is_a_test(check):
    check()
