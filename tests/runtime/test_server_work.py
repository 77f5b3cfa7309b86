"""The server's own work: it ends when its time is up, and whatever sizes the replies have."""

import numpy as np
import pytest
from category_federations import make_tables
from federations import make_federation, spy
from flwr.app import Array, ArrayRecord

from flwr_causal.core import limits
from flwr_causal.core.limits import check_deadline, each, in_progress, steps
from flwr_causal.errors import CausalError, DeadlineError, FederationError
from flwr_causal.runtime import server_work
from flwr_causal.runtime.training import Training
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Moments, NotearsADMM, run

FED = make_federation(d=4, n=180, parties=3)
TABLES = FED.tables
HOUR = 3600.0


class Time:
    """A clock that moves on by ``tick`` seconds each time that it is read."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(server_work.time, "monotonic", clock)
    return clock


def admm(**options):
    return NotearsADMM(**{"max_rounds": 8, **options})


def test_time_is_up_after_the_seconds_of_the_option(clock):
    with server_work.server_work(Moments(server_timeout=100.0), "Exchange 7 ('sums')"):
        clock.now = 100.0
        check_deadline()
        clock.now = 100.5
        with pytest.raises(DeadlineError, match=r"Exchange 7 \('sums'\).* 100 .*server_timeout"):
            check_deadline()
    check_deadline()


def test_each_step_has_time_of_its_own_and_waiting_does_not_count(clock):
    class Slow(Relay):
        """Replies take half an hour."""

        def before(self, messages):
            clock.now += HOUR / 2
            return messages

    outcome = run(admm(server_timeout=60.0), Slow(spy(TABLES)))
    assert outcome.rounds == 8
    assert clock.now > 4 * HOUR


def test_expiry_ends_the_run_and_keeps_what_was_done(clock):
    def on_round(record):
        if record["round"] == 5:
            clock.tick = 1000.0

    with pytest.raises(
        DeadlineError, match=r"^Exchange 6 \('round'\): .*'server_timeout'"
    ) as caught:
        run(admm(), spy(TABLES), on_round=on_round)
    clock.tick = 0.0
    outcome = caught.value.outcome
    assert [record["round"] for record in outcome.history] == [1, 2, 3, 4, 5]
    assert "server_timeout" in outcome.error


def test_no_graph_is_made_of_a_solution_that_is_cut_short(clock):
    clock.tick = 1000.0
    with pytest.raises(DeadlineError, match=r"^Exchange 1 \('sums'\)") as caught:
        run(Moments(), spy(TABLES))
    assert caught.value.outcome.graph is None
    assert caught.value.outcome.rounds == 0


def test_the_final_graph_has_a_limit_too(clock, monkeypatch):
    def annotated(self, graph, agreement):
        clock.tick = 1000.0
        for _ in range(10):
            check_deadline()
        raise AssertionError("the time was up")

    monkeypatch.setattr(Moments, "_annotated", annotated)
    with pytest.raises(DeadlineError, match=r"^The results after exchange 1:") as caught:
        run(Moments(), spy(TABLES))
    outcome = caught.value.outcome
    assert outcome.rounds == 1
    assert outcome.state.result.graph is not None
    assert outcome.stop_reason.startswith("failed: The results")


def test_the_first_error_stands_where_the_last_state_gives_no_graph(clock, monkeypatch):
    def annotated(self, graph, agreement):
        raise CausalError("no graph")

    def on_round(record):
        clock.tick = 1000.0

    monkeypatch.setattr(NotearsADMM, "_annotated", annotated)
    with pytest.raises(DeadlineError) as caught:
        run(admm(), spy(TABLES), on_round=on_round)
    outcome = caught.value.outcome
    assert outcome.error == str(caught.value)
    assert outcome.rounds == 1
    assert outcome.warnings[-1].endswith("no complete results: no graph")


def test_a_run_is_resumed_with_more_time(clock, tmp_path):
    def on_round(record):
        clock.tick = 1000.0 if record["round"] == 5 else 0.0

    options = {"output_dir": str(tmp_path / "kept")}
    with pytest.raises(DeadlineError, match="resume=True"):
        run(admm(**options), spy(TABLES), on_round=on_round)
    clock.tick = 0.0
    resumed = run(admm(**options, resume=True, server_timeout=7200.0), spy(TABLES))
    assert resumed.rounds == 8
    assert resumed.graph.equals(run(admm(), spy(TABLES)).graph)


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("Singular matrix"), OverflowError("inf")])
def test_arithmetic_that_fails_is_an_error_of_the_run(monkeypatch, error):
    def give(self, replies):
        raise error

    monkeypatch.setattr(Training, "give", give)
    with pytest.raises(FederationError, match=r"Exchange 1 .*cannot compute .*units") as caught:
        run(Moments(), spy(TABLES))
    assert caught.value.outcome.rounds == 0


# Replies of absurd sizes.


class Changing(Relay):
    """The first party's arrays of floats are changed on their way, in every exchange."""

    def __init__(self, grid, change):
        super().__init__(grid)
        self.change = change

    def after(self, messages, replies):
        first = min(self.grid.get_node_ids())
        if any(message.metadata.message_type == "query.schema" for message in messages):
            return replies
        for reply in replies:
            if reply.metadata.src_node_id == first and not reply.has_error():
                self.disturb(reply.content)
        return replies

    def disturb(self, content):
        for name, record in list(content.items()):
            if isinstance(record, ArrayRecord):
                arrays = {key: array.numpy() for key, array in record.items()}
                content[name] = ArrayRecord(
                    {
                        key: Array(self.change(array) if array.dtype.kind == "f" else array)
                        for key, array in arrays.items()
                    }
                )


def series(k):
    rng = np.random.default_rng(k)
    rows = rng.standard_normal((60, 3))
    for t in range(1, 60):
        rows[t] += 0.5 * rows[t - 1]
    return rows


SERIES = [series(k) for k in range(3)]
CATEGORIES = make_tables(d=4, n=240, parties=3)[0]
MODES = {
    "notears-admm": (TABLES, {"max_rounds": 8}),
    "notears-admm held-out": (TABLES, {"max_rounds": 8, "sparsity": "held-out"}),
    "2dbn": (SERIES, {"max_rounds": 8}),
    "fedcausal": (TABLES, {"max_rounds": 8}),
    "fedcausal linear": (TABLES, {"model": "linear", "max_rounds": 6}),
    "moments": (TABLES, {}),
    "moments order": (SERIES, {"order": 1}),
    "lingam": (TABLES, {}),
    "fedges": (CATEGORIES, {"mode": "scores"}),
    "fedges fusion": (CATEGORIES, {"mode": "fusion", "max_rounds": 4, "keep": "best"}),
    "fedpc": (TABLES, {"training": "sums"}),
}


def one_entry(value):
    def change(array):
        changed = np.array(array)
        changed.flat[-1:] = value
        return changed

    return change


HUGE = {"all": lambda array: np.full_like(array, 1e100), "one entry": one_entry(-1e308)}


def finite(run):
    arrays = [] if run.graph is None else [run.graph.weights, run.graph.raw_weights, run.scores]
    return all(np.isfinite(array).all() for array in arrays if array is not None)


@pytest.mark.few(8)
@pytest.mark.slow
@pytest.mark.parametrize("change", HUGE)
@pytest.mark.parametrize("mode", MODES)
def test_a_party_whose_values_are_huge_is_left_out(mode, change):
    parties, options = MODES[mode]

    def wrapped(grid):
        return Changing(grid, HUGE[change])

    found = simulate(mode.split()[0], parties, wrap_grid=wrapped, **options)
    assert {failure["party"] for failure in found.failures} == {"party 0"}
    assert all("too large to be computed with" in one["reason"] for one in found.failures)
    assert finite(found)


GROWING = ["notears-admm", "notears-admm held-out", "2dbn", "fedcausal", "fedcausal linear"]


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", GROWING)
def test_replies_that_are_a_million_times_too_large_do_not_keep_the_server_busy(mode):
    parties, options = MODES[mode]

    def wrapped(grid):
        return Changing(grid, lambda array: 1e6 * array)

    try:
        found = simulate(mode.split()[0], parties, wrap_grid=wrapped, **options)
    except CausalError as error:
        ended = "check the units" in str(error) and error.outcome is not None
    else:
        ended = finite(found)
    assert ended


def told_by(caplog):
    return [one.getMessage() for one in caplog.records if ", for " in one.getMessage()]


def test_long_work_says_what_is_done_of_how_much_and_since_when(clock, caplog):
    caplog.set_level("INFO", logger="flwr")
    with server_work.server_work(Moments(), "Exchange 7 ('sums')"):
        for number in each("replicates", range(30)):
            for step in steps("The search", 1000):
                clock.now += 1.0
                if step == 99 or number == 12:
                    break
    seconds = [int(one.split(", for ")[1].split(" s")[0]) for one in told_by(caplog)]
    # The time between two lines doubles up to ten minutes.
    assert seconds == [15, 30, 60, 120, 240, 480, 960, 1560, 2160, 2760]
    assert told_by(caplog)[0] == (
        "Exchange 7 ('sums'), for 15 s: replicates, 1 of 30: The search, 16"
    )
    # Of the loop that was left early nothing is said later.
    assert "replicates, 29 of 30: The search" in told_by(caplog)[-1]
    assert in_progress() == ""


def test_loops_one_after_the_other_are_told_apart():
    told = []
    with limits.deadline(lambda: told.append(in_progress())):
        for _ in each("first", range(3)):
            break
        for _ in each("second", [1]):
            for _ in each("inner", "a"):
                pass
            check_deadline()
    second = "second, 1 of 1"
    assert told == ["first, 1 of 3", second, f"{second}: inner, 1 of 1", second]


def test_short_work_says_nothing(clock, caplog):
    caplog.set_level("INFO", logger="flwr")
    with server_work.server_work(Moments(), "Exchange 1"):
        for _ in each("replicates", range(14)):
            clock.now += 1.0
    assert not told_by(caplog)


def test_a_watcher_is_told_more_often(clock, caplog):
    told = []
    with (
        server_work.watching(told.append),
        server_work.server_work(Moments(), "Exchange 1"),
    ):
        for _ in each("replicates", range(20)):
            clock.now += 0.1
    assert 2 <= len(told) <= 4
    assert told[0] == "the server computes, for 0 s: replicates, 6 of 20"


def test_replicates_are_counted(monkeypatch):
    monkeypatch.setattr(server_work, "SECONDS_TO_WATCHER", 0.0)
    told = []
    with server_work.watching(told.append):
        run(Moments(replicates=3), spy(TABLES))
    assert any("further trainings after their replies, 3 of 3" in one for one in told)
