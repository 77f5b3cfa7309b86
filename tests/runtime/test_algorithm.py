"""Methods as generators: what they may yield, what replicates share, what stands at a failure."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from federations import app_of, disturbed, make_federation

from flwr_causal import CausalGraph
from flwr_causal.clients import CausalClient, answers
from flwr_causal.data.check.party_table import describe
from flwr_causal.errors import ConfigError, DeadlineError, FederationError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.protocol.replies import Replies
from flwr_causal.runtime.training import Training
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Choice, Note, Result, run

FIRST = Exchange("first", "", returns=(Disclosure("sums", "of columns", ("d",), combine="sum"),))
SECOND = Exchange(
    "second",
    "",
    sends=(Sent("shift", "subtracted", ("d",)),),
    returns=(Disclosure("moments", "", ("d", "d"), combine="sum"),),
)
CONTRACT = Contract("centred", (FIRST, SECOND))
TABLES = make_federation(d=3, n=90, parties=3).tables


class CentredClient(CausalClient):
    contract = CONTRACT

    @answers(FIRST)
    def sums(self, asked):
        return {"sums": self.rows().sum(axis=0)}

    @answers(SECOND)
    def moments(self, asked):
        rows = self.rows() - asked["shift"]
        return {"moments": rows.T @ rows}


@dataclass(frozen=True, kw_only=True)
class CentredOptions(CausalOptions):
    max_rounds: int = 2


class Centred(CausalStrategy):
    """Means first, which replicates share; then moments, of which the main training chooses."""

    contract: ClassVar[Contract] = CONTRACT
    options_type = CentredOptions

    def train(self, agreement, replicate=0):
        replies = yield Ask(FIRST, shared=True)
        mean = replies["sums"] / agreement.n
        yield Note({"before": 1, "mean": float(mean[0])})
        yield Note({"before": 2})
        nothing = CausalGraph(agreement.names, np.zeros((3, 3)))
        replies = yield Ask(SECOND, {"shift": mean}, so_far=lambda: Result(nothing))
        limit = yield Choice(lambda: float(np.median(np.abs(replies["moments"]))))
        again = yield Choice(lambda: ("main", limit), lambda first: ("replicate", first[1]))
        assert again == ("replicate" if replicate else "main", limit)
        marks = np.triu(np.abs(replies["moments"]) > limit, 1)
        return Result(
            CausalGraph(agreement.names, marks * mean), model=(mean, limit), reason="two exchanges"
        )


def of(strategy, tables=TABLES):
    return simulate(strategy, tables, client=CentredClient)


def test_a_method_is_what_its_generator_says():
    found = of(Centred())
    rows = np.concatenate([table.to_numpy() for table in TABLES])
    np.testing.assert_allclose(found.model[0], rows.mean(axis=0))
    assert [record["exchange"] for record in found.history] == ["first", "second"]
    assert found.history[0]["before"] == 2
    assert found.history[0]["mean"] == pytest.approx(rows[:, 0].mean())
    assert found.stop_reason == "two exchanges"


def test_replicates_share_the_first_exchange_and_take_over_the_choice():
    found = of(Centred(replicates=3))
    assert [record["exchange"] for record in found.history] == ["first", "second"]
    assert found.graph.confidence is not None
    alone = of(Centred())
    assert np.array_equal(found.graph.weights, alone.graph.weights)
    assert found.model[1] == alone.model[1]


def test_the_request_before_says_what_stands():
    def failing(partition, config, context):
        if config["exchange"] == "second":
            raise RuntimeError("power cut")

    with pytest.raises(FederationError) as caught:
        run(Centred(), disturbed(TABLES, failing, CentredClient))
    assert caught.value.outcome.graph.num_edges == 0
    with pytest.raises(FederationError) as caught:
        run(Centred(), disturbed(TABLES, lambda *given: 1 / 0, CentredClient))
    assert caught.value.outcome.graph is None


def slip(train):
    return type("Slip", (Centred,), {"train": train})()


def returns_none(self, agreement, replicate=0):
    yield Ask(FIRST)


def yields_an_exchange(self, agreement, replicate=0):
    yield FIRST


def forgets_yield(self, agreement, replicate=0):
    return Result()


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (returns_none, r"train\(\) returned None: return a Result"),
        (yields_an_exchange, r"train\(\) yielded .*: yield an Ask, a Note or a Choice"),
        (forgets_yield, r"Slip.train\(\) is no generator"),
    ],
)
def test_slips_are_named(train, words):
    with pytest.raises(ConfigError, match=words):
        of(slip(train))


EDGE = np.eye(3, k=1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"graph": np.eye(3)}, "has a graph that is .*: give a CausalGraph"),
        ({"graph": ("abc", EDGE + EDGE.T)}, "has a graph that is called a DAG and has a cycle"),
        ({"graph": ("ab", EDGE[:2, :2])}, "has a graph that is over a, b; agreed are a, b, c"),
        ({"graph": ("cba", EDGE)}, "has a graph that is over c, b, a; agreed are a, b, c"),
        ({"scores": np.zeros((2, 2))}, r"has scores that have the shape \(2, 2\)"),
        ({"scores": np.zeros(3)}, r"has scores that have the shape \(3,\)"),
        ({"warnings": "beware"}, "has warnings that are 'beware': give a tuple of texts"),
        ({"warnings": (1,)}, r"has warnings that are \(1,\): give a tuple of texts"),
        ({"reason": None}, "has a reason that is None: give a text"),
    ],
)
def test_what_is_found_is_checked(fields, words):
    def train(self, agreement, replicate=0):
        yield Ask(FIRST)
        own = dict(fields)
        if isinstance(own.get("graph"), tuple):
            own["graph"] = CausalGraph(tuple(own["graph"][0]), own["graph"][1])
        return Result(**own)

    tables = [table.set_axis(list("abc"), axis=1) for table in TABLES]
    with pytest.raises(ConfigError, match=rf"The result of train\(\) {words}"):
        of(slip(train), tables)


@pytest.mark.parametrize("value", [np.zeros(2), {1, 2}, np.int64(3), b"x"])
def test_notes_are_plain(value):
    def train(self, agreement, replicate=0):
        yield Ask(FIRST)
        yield Note({"mine": value})
        return Result()

    with pytest.raises(ConfigError, match=r"train\(\) noted 'mine' as .*: the history holds"):
        of(slip(train))


def test_errors_of_a_choice_are_raised_where_it_is_asked_for():
    def careful(self, agreement, replicate=0):
        yield Ask(FIRST)
        try:
            yield Choice(lambda: 1 / 0)
        except ZeroDivisionError:
            return Result(reason="caught")

    assert of(slip(careful)).stop_reason == "caught"


def test_a_grid_of_ones_own():
    grid = LocalGrid(app_of(TABLES, CentredClient), 3)
    assert run(Centred(), grid).rounds == 2


def trained(strategy):
    """A training that has had the first exchange, and the replies to the second one."""
    reports = {f"party {k}": describe(one, strategy.handling) for k, one in enumerate(TABLES)}
    training = Training(strategy, strategy.agree(reports))
    rows = np.concatenate([table.to_numpy() for table in TABLES])
    assert training.ask().exchange is FIRST
    info = training.give(Replies(tuple(reports), {"sums": rows.sum(axis=0)}))
    assert info["before"] == 2
    shift = training.ask().values["shift"]
    return training, Replies(tuple(reports), {"moments": (rows - shift).T @ (rows - shift)})


def test_a_training_is_driven_by_replies_alone():
    training, replies = trained(Centred())
    assert training.ask().exchange is SECOND
    assert training.result.graph.num_edges == 0
    training.give(replies)
    assert not training.asked
    assert training.result.reason == "two exchanges"
    whole = of(Centred()).graph
    np.testing.assert_allclose(training.result.graph.weights, whole.weights, atol=1e-12)


def test_replies_after_which_the_time_is_up_change_nothing(monkeypatch):
    training, replies = trained(Centred(replicates=2))
    asked, result = dict(training.asked), training.result
    assert len(asked) == 3

    def late(self, name, choice, place):
        if name.replicate:
            raise DeadlineError("the time is up")
        return choice.compute()

    monkeypatch.setattr(Training, "_choice", late)
    named = {f"replicate {k}: moments": replies["moments"] for k in (1, 2)}
    with pytest.raises(DeadlineError):
        training.give(Replies(replies.parties, replies.combined | named))
    assert training.asked == asked
    assert training.result.graph.equals(result.graph)
