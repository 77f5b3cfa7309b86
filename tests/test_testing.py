"""The checks of a method: our six pass them, careless ones fail the check that is meant for it."""

from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
from method_modes import LEADING, MODES, NETWORKS, REFUSED
from sweeps import sweep

from flwr_causal import CausalGraph, simulate
from flwr_causal.clients import Asked, CausalClient, answers
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent, bundle
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Result
from flwr_causal.testing import check_method, method_checks, parametrize_with_checks
from flwr_causal.testing.faults import FAULTS
from flwr_causal.testing.report import fault_table, report_of
from flwr_causal.testing.trials import WHERE

RNG = np.random.default_rng(0)
CAUSE = RNG.normal(size=(90, 1))
ROWS = np.hstack([CAUSE, CAUSE + RNG.normal(size=(90, 1)), RNG.normal(size=(90, 1))])
NUMBERS = [ROWS[:25], ROWS[25:60], ROWS[60:]]

POOLING = (
    "moments",
    "moments ges",
    "moments hidden",
    "moments hidden mixed",
    "moments additive",
    "moments mixed",
    "moments regressions",
    "moments curved",
    "moments mixed interventions",
    "fedges exact",
    "fedges hidden",
    "fedges cuts",
    "fedges missing",
    "fedpc sums",
    "lingam",
)
#: So many runs make up the table of faults of one mode.
CELLS = [f"{fault.name}, {where}" for fault in FAULTS for where in WHERE]


def report(mode, cells):
    """The report of a mode on the checks without faults and on these faults."""
    method, parties, options = MODES[mode]
    chosen = {*cells, *NO_FAULTS}
    checks = [one for one in method_checks(method, parties, **options) if one[0] in chosen]
    return report_of(method, checks, EXPECTED.get(mode, {}))


EXPECTED = {
    "fedpc columns": {
        "order_of_parties": "clusters are drawn by the parties' names, here their numbers"
    },
    "moments missing": {
        "secure_sums": "parties that lack columns send their own estimates, which are no sum"
    },
}
NO_FAULTS = [name for name, _ in method_checks("moments", NUMBERS) if name not in CELLS]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    sweep(
        [mode for mode in MODES if mode not in NETWORKS], ("moments", "fedges exact", "fedcausal")
    ),
)
def test_our_methods_pass_with_some_faults(mode):
    # Each mode has other faults than the next one, those of LEADING together all of them.
    leads = mode in LEADING
    first, step = (LEADING.index(mode), 9) if leads else (list(MODES).index(mode) % 20, 20)
    found = report(mode, CELLS[first::step])
    assert found.passed, found.table()
    assert len(found.codes) >= 6
    skipped = {result.name for result in found.results if result.status == "skipped"}
    assert ("split_of_rows" in skipped) == (mode not in POOLING)


#: Faults of which the other modes have one, "raises".
LOST = {*REFUSED, *(fault.name for fault in FAULTS if fault.schema)}


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_our_methods_pass_with_every_fault(mode):
    if mode in NETWORKS:
        pytest.importorskip("torch", reason="perceptrons need torch")
    faults = [one.name for one in FAULTS if mode in LEADING or one.name not in LOST]
    found = report(mode, [cell for cell in CELLS if cell.rpartition(", ")[0] in faults])
    assert found.passed, found.table()
    assert len(found.codes) == len(faults)


def test_every_method_has_every_fault_in_some_mode():
    assert len(LEADING) == 9
    assert {MODES[mode][0] for mode in LEADING} == {method for method, *_ in MODES.values()}
    assert {fault.name for fault in FAULTS} > LOST


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


@dataclass(frozen=True, kw_only=True)
class MeansOptions(CausalOptions):
    pools: bool = False
    first_party_only: bool = False


class Means(CausalStrategy):
    """A graph whose weights depend on everything that a careless method may depend on."""

    contract: ClassVar[Contract] = Contract("means", (ONE,))
    options_type = MeansOptions

    @property
    def pools_rows(self) -> bool:
        return self.options.pools

    def train(self, agreement, replicate=0):
        d = len(agreement.names)
        weights = np.zeros((d, d))
        empty = CausalGraph(agreement.names, weights)
        replies = yield Ask(self.contract.exchanges[0], so_far=lambda: Result(empty))
        squares = replies.list("squares")
        chosen = squares[:1] if self.options.first_party_only else squares
        weights = weights.copy()
        weights[0, 1] = float(np.mean([one.mean() for one in chosen]))
        return Result(CausalGraph(agreement.names, weights), reason="done")


class FreeMeans(Means):
    contract: ClassVar[Contract] = Contract("means", (FREE,))


def failed(strategy, client, *cells):
    checks = method_checks(strategy, NUMBERS, client)
    chosen = {*NO_FAULTS, *cells}
    found = report_of("means", [one for one in checks if one[0] in chosen], {})
    assert found.passed == (not {r.name for r in found.results if r.status == "failed"})
    return {result.name for result in found.results if result.status == "failed"}


def test_a_careful_method_passes():
    found = check_method(Means(), NUMBERS, MeansClient)
    assert found.passed, found.table()
    # A lie that looks possible is not taken for a failure, and is told apart from the rest.
    assert found.codes["x -1"] == ("P", "P")
    assert found.codes["NaN"] == ("N", "N")
    assert found.codes["raises once"] == ("=", "=")
    assert found.codes["schema: no reply"] == ("=", "E")
    assert found.codes["whole numbers halved"] == ("-", "-")


def test_an_order_of_parties_that_matters_is_found():
    assert failed(Means(first_party_only=True), MeansClient) == {"order_of_parties"}


def test_a_split_of_rows_that_matters_is_found():
    # A mean of the parties' means is not the mean of the rows.
    assert failed(Means(pools=True), MeansClient) == {"split_of_rows"}


def test_draws_without_the_seed_are_found():
    found = failed(Means(), RandomClient)
    assert "same_seed_same_result" in found


def test_a_state_that_changes_twice_for_one_exchange_is_found():
    once = "raises once, all exchanges"
    assert failed(Means(), ForgetfulClient, once) == {once}


def test_rows_under_a_free_shape_are_found():
    assert "no_entry_for_each_row" in failed(FreeMeans(), RowsClient)


@pytest.fixture
def raising_alone(monkeypatch):
    """Of the faults, the check has "raises" only."""
    raises = [fault for fault in FAULTS if fault.name == "raises"]
    monkeypatch.setattr("flwr_causal.testing.report.FAULTS", raises)


@pytest.mark.usefixtures("raising_alone")
def test_expected_failures_have_a_reason():
    found = check_method(
        Means(first_party_only=True),
        NUMBERS,
        client=MeansClient,
        expected_failures={"order_of_parties": "only the first party counts"},
    )
    assert found.passed
    assert "expected failure  only the first party counts" in found.table()


def test_the_table_names_what_does_not_hold():
    checks = method_checks(Means(first_party_only=True), NUMBERS, client=MeansClient)
    found = report_of("means", [one for one in checks if one[0] in NO_FAULTS], {})
    assert not found.passed
    text = found.table()
    assert text.startswith("means: FAILED")
    assert "order_of_parties" in text
    assert "differ by up to" in text


PARTS = Exchange(
    "parts",
    "sums",
    returns=(
        Disclosure("squares", "sums of squares", ("d",), "non-negative", "sum"),
        Disclosure("list", "the same, of any size", ("*",)),
    ),
)


class CarelessClient(CausalClient):
    contract: ClassVar[Contract] = Contract("careless", (PARTS,))

    @answers(PARTS)
    def squares(self, asked: Asked):
        squares = np.square(self.rows()).sum(axis=0)
        return {"squares": squares, "list": squares}


class Careless(Means):
    """Looks up a party that may be missing, and compares sums of two exchanges."""

    contract: ClassVar[Contract] = Contract("careless", (PARTS,))

    def train(self, agreement, replicate=0):
        weights = np.zeros((3, 3))
        empty = CausalGraph(agreement.names, weights)
        replies = yield Ask(PARTS, so_far=lambda: Result(empty))
        assert replies.of("list")["party 2"].ndim
        first = replies["squares"][2]
        replies = yield Ask(PARTS)
        weights = weights.copy()
        weights[0, 1] = 1.0 + 1000.0 * abs(replies["squares"][2] / first - 1.0)
        return Result(CausalGraph(agreement.names, weights), reason="done")


@pytest.mark.usefixtures("raising_alone")
def test_a_careless_method_fails_with_a_readable_table():
    found = check_method(Careless(), NUMBERS, client=CarelessClient)
    assert not found.passed
    # In the second exchange sums over two parties are compared with sums over three; in the first
    # one it looks up the party that is missing.
    assert found.codes["raises"] == ("W", "T")
    lines = found.table().splitlines()
    (line,) = (one for one in lines if one.startswith("  raises, all exchanges"))
    assert line.split()[3:] == ["failed", "KeyError:", "'party", "2'"]
    (row,) = (one for one in lines if one.startswith("raises  "))
    assert row.split() == ["raises", "W/T"]
    assert "T  the run ends with an error that is none of flwr-causal's" in found.table()


def test_modes_stand_side_by_side_in_a_table():
    checks = [
        ("NaN, one exchange", lambda: "N"),
        ("NaN, all exchanges", lambda: "E"),
        ("raises, one exchange", lambda: "N"),
        ("raises, all exchanges", lambda: "N"),
    ]
    one, other = report_of("a", checks, {}), report_of("b", checks[:2], {})
    lines = fault_table({"a": one, "b": other}).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["a", "b"],
        ["raises", "N"],
        ["NaN", *2 * ["N/E"]],
    ]


SUMS = Exchange(
    "sums",
    "sums of powers up to the one that is sent",
    sends=(Sent("highest", "the highest power"),),
    returns=(Disclosure("sums", "by power and column", ("powers", "d"), combine="sum"),),
    derived=lambda sent, setup: {"powers": int(sent["highest"])},
)


class PowersClient(CausalClient):
    contract: ClassVar[Contract] = Contract("powers", (SUMS,))

    @answers(SUMS)
    def powers(self, asked: Asked):
        grid = np.arange(1, int(asked["highest"]) + 1)[:, None, None]
        return {"sums": (self.rows() ** grid).sum(axis=1)}


@dataclass(frozen=True, kw_only=True)
class PowersOptions(MeansOptions):
    max_rounds: int = 2


class Powers(Means):
    """A size of the reply is derived from what is sent, and differs between exchanges."""

    contract: ClassVar[Contract] = Contract("powers", (SUMS,))
    options_type = PowersOptions

    def train(self, agreement, replicate=0):
        found = []
        for highest in (2, 3):
            replies = yield Ask(SUMS, {"highest": highest}, so_far=lambda: self.drawn(found))
            assert replies["sums"].shape == (highest, 3)
            found.append(replies["sums"][-1] / agreement.n)
        return replace(self.drawn(found), reason="done")

    def drawn(self, found):
        weights = np.zeros((3, 3))
        if found:
            weights[0, 1], weights[0, 2] = found[0][0], found[-1][1]
        return Result(CausalGraph(("x0", "x1", "x2"), weights))


def test_sizes_that_are_derived_are_known_to_secure_sums_of_several_trainings():
    """What leaves as several sums at once: the parties' own rows, and those of replicates."""
    plain = simulate(Powers(replicates=2), NUMBERS, client=PowersClient)
    masked = simulate(Powers(replicates=2, secure_aggregation=True), NUMBERS, client=PowersClient)
    np.testing.assert_allclose(masked.graph.weights, plain.graph.weights, rtol=1e-9)
    np.testing.assert_array_equal(masked.graph.confidence, plain.graph.confidence)


def test_secure_sums_are_checked_with_replicates(monkeypatch):
    chosen = [one for one in method_checks(Powers(), NUMBERS, PowersClient) if one[0] in NO_FAULTS]
    assert report_of("powers", chosen, {}).passed
    # Without the sizes of replicates the check fails, and the error names what is missing.
    monkeypatch.setattr(bundle, "_derived", lambda parts, sent, setup: {})
    chosen = [one for one in method_checks(Powers(), NUMBERS, PowersClient) if one[0] in NO_FAULTS]
    found = report_of("powers", chosen, {})
    assert {one.name for one in found.results if one.status == "failed"} == {"secure_sums"}
    assert "Exchange(derived=...)" in found.table()


EACH = parametrize_with_checks([(Means(), NUMBERS, MeansClient)])
#: All checks, and the first faults of some kinds; test_a_careful_method_passes has the others.
SOME = [f"means-{name}" for name in (*NO_FAULTS, *CELLS[::25])]


@pytest.mark.parametrize("check", [one for one in EACH.args[1] if one.id in SOME])
def test_each_check_is_a_test(check):
    check()


def test_every_check_is_a_test_with_its_name():
    assert EACH.args[0] == "check"
    assert [one.id for one in EACH.args[1]] == [f"means-{name}" for name in (*NO_FAULTS, *CELLS)]
