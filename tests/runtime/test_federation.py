"""Parties that fail, come late, come back or are left out; and who is asked in a round."""

import random
from collections import Counter

import numpy as np
import pytest
from federations import (
    ShufflingGrid,
    SpyGrid,
    app_of,
    disturbed,
    make_federation,
    raising,
    setup_for,
    spy,
)
from flwr.app import Error, Message

from flwr_causal.compat import NODE_UNAVAILABLE, raised_text
from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.consensus import ROUND
from flwr_causal.reports.run import Run
from flwr_causal.runtime.federation import MAX_FAILURES, Federation, Party
from flwr_causal.simulations import simulate
from flwr_causal.strategies import Moments, NotearsADMM, run

ROUNDS = 20
FED = make_federation(d=5, n=240, parties=4)
TABLES = FED.tables


def admm(**options):
    return NotearsADMM(**{"max_rounds": ROUNDS, **options})


@pytest.fixture(scope="module")
def undisturbed():
    return run(admm(), spy(TABLES))


def same(one, two):
    return one.graph.equals(two.graph) and np.array_equal(one.scores, two.scores)


def asked(grid, server_round):
    """The partitions that got a message in a round, as often as they did."""
    ids = [
        m.metadata.dst_node_id - 2
        for m in grid.training_messages
        if m.metadata.group_id == str(server_round)
    ]
    return Counter(ids)


def test_a_party_that_stumbles_is_asked_again(undisturbed):
    grid = disturbed(TABLES, raising(1, {3, ROUNDS}))
    outcome = run(admm(), grid)
    assert same(outcome, undisturbed)
    assert outcome.failures == ()
    assert [record["parties"] for record in outcome.history] == [4] * ROUNDS
    assert asked(grid, 3) == {0: 1, 1: 2, 2: 1, 3: 1}
    second = [m for m in grid.training_messages if m.metadata.group_id == "3"][-1]
    assert "setup-names" not in records.config_of(second.content)  # it has the agreement
    assert records.config_of(second.content)["round"] == 3


def test_the_second_attempt_is_counted(undisturbed):
    outcome = run(admm(), disturbed(TABLES, raising(1, {3})))
    extra = [
        after["bytes_sent"] - before["bytes_sent"]
        for after, before in zip(outcome.history, undisturbed.history, strict=True)
    ]
    one_message = undisturbed.history[2]["bytes_sent"] // 4
    assert extra == [0, 0, one_message] + [0] * (ROUNDS - 3)
    assert undisturbed.history[2]["party_bytes_sent"] == one_message
    twice = outcome.history[2]["party_bytes_sent"]
    assert twice == dict.fromkeys(twice, one_message) | {"party 1": 2 * one_message}
    assert outcome.bytes_received == undisturbed.bytes_received
    assert outcome.schema_bytes == undisturbed.schema_bytes


def test_a_party_that_stumbles_in_its_first_exchange_gets_the_agreement_twice(undisturbed):
    grid = disturbed(TABLES, raising(1, {1}))
    outcome = run(admm(), grid)
    assert same(outcome, undisturbed)
    assert outcome.schema_bytes > undisturbed.schema_bytes
    sent = [records.config_of(m.content) for m in grid.training_messages[:5]]
    assert all(values["setup-names"] == list(TABLES[0].columns) for values in sent)


def test_a_party_that_keeps_failing_is_left_out_and_the_others_go_on(caplog):
    grid = disturbed(TABLES, raising(2, range(5, 100), attempts=2))
    outcome = run(admm(), grid)
    expected = [(r, "party 2") for r in range(5, 5 + MAX_FAILURES)]
    assert [(f.server_round, f.party) for f in outcome.failures] == expected
    assert all("tripped over round" in f.reason for f in outcome.failures)
    assert [asked(grid, r)[2] for r in range(4, 10)] == [1, 2, 2, 2, 0, 0]
    assert [record["parties"] for record in outcome.history] == [4] * 4 + [3] * (ROUNDS - 4)
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)
    assert "party 2 is left out (RuntimeError: party 2 tripped" in caplog.text
    assert caplog.text.count("It is not asked again") == 1


def test_a_party_that_recovers_is_welcome():
    rounds = range(5, 5 + MAX_FAILURES - 1)
    grid = disturbed(TABLES, raising(2, rounds, attempts=2))
    outcome = run(admm(), grid)
    assert len(outcome.failures) == MAX_FAILURES - 1
    assert [record["parties"] for record in outcome.history][6:] == [4] * (ROUNDS - 6)
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)


def failing_from(server_round, parties):
    def fault(partition, config, context):
        if partition in parties and config["round"] >= server_round:
            raise RuntimeError(f"disk {partition} is full")

    return fault


def test_below_the_quorum_the_run_ends_and_keeps_what_it_has():
    grid = disturbed(TABLES, failing_from(7, {0, 1, 3}))
    with pytest.raises(
        FederationError, match=r"Exchange 7: only 1 .*'quorum' asks for 2"
    ) as caught:
        run(admm(), grid)
    assert "party 3: RuntimeError: disk 3 is full" in str(caught.value)
    outcome = caught.value.outcome
    assert [record["round"] for record in outcome.history] == list(range(1, 7))
    assert outcome.error == str(caught.value)
    assert outcome.stop_reason.startswith("failed: Exchange 7")
    assert outcome.graph is not None
    assert outcome.graph.is_acyclic()


def test_the_quorum_is_an_option():
    failing = failing_from(7, {0, 1, 3})
    assert run(admm(quorum=0.25), disturbed(TABLES, failing)).rounds == ROUNDS
    one_missing = failing_from(2, {0})
    with pytest.raises(FederationError, match=r"only 3 parties .* asks for 4"):
        run(admm(quorum=1.0), disturbed(TABLES, one_missing))


def test_the_quorum_is_of_all_parties_not_of_those_that_are_left():
    def one_after_the_other(partition, config, context):
        if config["round"] >= 3 * partition > 0:
            raise RuntimeError("left")

    with pytest.raises(FederationError, match=r"Exchange 9: only 1 parties .* asks for 2"):
        run(admm(), disturbed(TABLES, one_after_the_other))


@pytest.mark.parametrize(
    ("fraction", "quorum", "needed"), [(1.0, 0.5, 5), (1.0, 0.01, 1), (0.3, 1.0, 3), (0.3, 0.5, 2)]
)
def test_how_many_are_needed(fraction, quorum, needed):
    assert federation(10).needed(fraction, quorum) == needed


def test_simulate_hands_over_the_broken_run(monkeypatch, tmp_path):
    from flwr_causal.clients import NotearsADMMClient

    class Fragile(NotearsADMMClient):
        def fit(self, parameters, config):
            if config["round"] >= 4:
                raise RuntimeError("no more")
            return super().fit(parameters, config)

    with pytest.raises(FederationError) as caught:
        simulate(admm(), TABLES, client=Fragile)
    broken = caught.value.outcome
    assert isinstance(broken, Run)
    assert (broken.rounds, bool(broken.error)) == (3, True)
    assert Run.load(broken.save(tmp_path)).summary() == broken.summary()
    assert broken.summary()["status"] == "failed"


@pytest.mark.parametrize("lost_in", [2, 9, ROUNDS])
def test_a_party_that_lost_its_state_rejoins(lost_in, undisturbed):
    done = []

    def forget(partition, config, context):
        if partition == 1 and config["round"] == lost_in and not done:
            done.append(context.state.clear())

    grid = disturbed(TABLES, forget)
    outcome = run(admm(), grid)
    assert asked(grid, lost_in)[1] == 2
    assert outcome.failures == ()
    assert same(outcome, undisturbed)
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)
    # With the multiplier lost the party's array is an ordinary one: nothing blows up.
    for reply in filter(Message.has_content, grid.replies):
        for array in records.arrays_of(reply.content).values():
            assert np.abs(array).max() < 50


class LossyGrid(SpyGrid):
    """Loses the replies of one node in one round, or says that the node is gone."""

    def __init__(self, app, num_nodes, server_round, gone):
        super().__init__(app, num_nodes)
        self.server_round, self.gone = str(server_round), gone

    def get_node_ids(self):
        away = (
            self.gone and bool(self.sent) and self.sent[-1].metadata.group_id == self.server_round
        )
        return [node for node in super().get_node_ids() if node != 3 or not away]

    def pull_messages(self, message_ids):
        kept = []
        for reply in super().pull_messages(message_ids):
            if (reply.metadata.src_node_id, reply.metadata.group_id) != (3, self.server_round):
                kept.append(reply)
            elif self.gone:
                error = Error(NODE_UNAVAILABLE, "Node unavailable: no heartbeat")
                original = next(
                    m
                    for m in self.sent
                    if m.metadata.message_id == reply.metadata.reply_to_message_id
                )
                kept.append(Message(error, reply_to=original))
                if self.gone == "superlink":
                    # So Flower answers for a node whose message has expired.
                    kept[-1].metadata.__dict__["_src_node_id"] = 1
        return kept


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        (False, "no reply within 3600 s"),
        (True, "Node unavailable"),
        ("superlink", "Node unavailable"),
    ],
)
def test_a_party_that_says_nothing_is_not_waited_for_twice(gone, reason):
    grid = LossyGrid(app_of(TABLES), 4, 6, gone)
    outcome = run(admm(), grid)
    (failure,) = outcome.failures
    assert (failure.server_round, failure.party) == (6, "party 1")
    assert reason in failure.reason
    assert asked(grid, 6)[1] == 1
    assert outcome.history[5]["parties"] == 3
    # Its multiplier went on without the server's knowledge; the next rounds bring it back.
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)


# Who is asked.


def test_sampling_is_the_seeds_alone():
    def participants(seed):
        grid = spy(TABLES)
        outcome = run(admm(fraction_train=0.5, seed=seed), grid)
        assert all(record["parties"] == 2 for record in outcome.history)
        return [sorted(asked(grid, r)) for r in range(1, ROUNDS + 1)], outcome

    random.seed(1)
    before = random.getstate()
    first, one = participants(5)
    assert random.getstate() == before
    random.seed(2)
    again, two = participants(5)
    assert first == again
    assert same(one, two)
    assert participants(6)[0] != first
    assert len({tuple(p) for p in first}) > 2
    assert {partition for round_ in first for partition in round_} == {0, 1, 2, 3}


def test_every_party_is_informed_whenever_it_is_first_asked():
    grid = spy(TABLES)
    run(admm(fraction_train=0.25, seed=3), grid)
    seen = set()
    for message in grid.training_messages:
        first = message.metadata.dst_node_id not in seen
        assert ("setup-names" in records.config_of(message.content)) == first
        seen.add(message.metadata.dst_node_id)


def federation(num):
    parties = tuple(Party(index + 2, f"p{index}", index) for index in range(num))
    return Federation(parties, {}, setup_for(TABLES), NotearsADMM.contract, num)


@pytest.mark.parametrize(
    ("num", "fraction", "size"), [(10, 1.0, 10), (10, 0.3, 3), (10, 0.01, 1), (3, 0.5, 2)]
)
def test_sample_sizes(num, fraction, size):
    for server_round in range(1, 6):
        sample = federation(num).asked(ROUND, server_round, fraction, 0)
        assert len(sample) == size
        assert [p.partition_id for p in sample] == sorted({p.partition_id for p in sample})


def test_samples_are_even():
    counts = Counter(p.name for r in range(1, 501) for p in federation(5).asked(ROUND, r, 0.4, 11))
    assert sum(counts.values()) == 1000
    assert all(150 < count < 250 for count in counts.values())


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [admm, Moments])
def test_the_order_of_replies_and_nodes_does_not_matter(method):
    one = run(method(), spy(TABLES))
    for seed in range(3):
        assert same(one, run(method(), ShufflingGrid(app_of(TABLES), 4, seed)))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("<class 'flwr_causal.errors.TableChangedError'>:<'it has changed'>",
         "TableChangedError: it has changed"),
        ("<class 'ValueError'>:<'a\nb'>", "ValueError: a\nb"),
        ("ValueError: as it is", "ValueError: as it is"),
        (None, "unknown reason"),
    ],
)  # fmt: skip
def test_what_a_client_raised_is_told_without_the_words_of_python(told, shown):
    """Flower's real nodes write the class as Python prints it."""
    assert raised_text(told) == shown
