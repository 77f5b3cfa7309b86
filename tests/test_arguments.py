"""Arguments of the public constructors and functions are checked where they are given."""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation

import flwr_causal
from flwr_causal import (
    CausalGraph,
    ConfigError,
    DataError,
    FederationError,
    Knowledge,
    LocalGrid,
    Run,
    clients,
    protocol,
    simulate,
    simulations,
    strategies,
)
from flwr_causal.clients import CausalClient, MomentsClient, Source, answers, client_app
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.strategies import Ask, CausalStrategy, Choice, Moments, Note, Result, run

TABLES = make_federation(d=3, n=60, parties=3, seed=1).tables
APP = client_app(MomentsClient, lambda context: None)
ONE = Exchange("one", "sums", returns=(Disclosure("s", "sums", (), combine="sum"),))


class Other(Moments):
    """A strategy that is no registered method."""

    method = "other"


#: By what is called: the argument, which the message names, and the call.
WRONG = [
    ("name", lambda: Source(3, lambda: None)),
    ("read", lambda: Source("a", pd.DataFrame({"x": [1]}))),
    ("read_as", lambda: Source("a", lambda: None, read_as=3)),
    ("clients", lambda: client_app([MomentsClient], lambda context: None)),
    ("clients", lambda: client_app(Moments, lambda context: None)),
    ("clients", lambda: client_app(CausalClient, lambda context: None)),
    ("clients", lambda: client_app({"moments": Moments}, lambda context: None)),
    ("source", lambda: client_app(MomentsClient, "table.csv")),
    ("node_keys", lambda: client_app(MomentsClient, lambda context: None, "key")),
    ("mods", lambda: client_app(MomentsClient, lambda context: None, mods=lambda *_: None)),
    ("mods", lambda: client_app(MomentsClient, lambda context: None, mods=[3])),
    ("exchanges", lambda: answers("one")),
    ("contract", lambda: type("Own", (CausalClient,), {"contract": (ONE,)})),
    ("client_app", lambda: LocalGrid(MomentsClient, 3)),
    ("num_nodes", lambda: LocalGrid(APP, "3")),
    ("num_nodes", lambda: LocalGrid(APP, -1)),
    ("num_nodes", lambda: LocalGrid(APP, True)),
    ("run_config", lambda: LocalGrid(APP, 3, run_config="a=1")),
    ("node_configs", lambda: LocalGrid(APP, 3, node_configs=["a=1"])),
    ("name", lambda: Sent(1, "words")),
    ("shape", lambda: Sent("w", "words", "d")),
    ("shape", lambda: Sent("w", "words", (1.5,))),
    ("values", lambda: Sent("w", "words", ("d",), values="finit")),
    ("optional", lambda: Sent("w", "words", optional="no")),
    ("most", lambda: Sent("w", "words", most="2")),
    ("shape", lambda: Disclosure("s", "words", None)),
    ("combine", lambda: Disclosure("s", "words", combine="add")),
    ("bound", lambda: Disclosure("s", "words", bound=3)),
    ("sends", lambda: Exchange("one", "words", sends=Sent("w", "words"))),
    ("returns", lambda: Exchange("one", "words", returns=("s",))),
    ("weight", lambda: Exchange("one", "words", weight="row")),
    ("when", lambda: Exchange("one", "words", when="always")),
    ("contradiction", lambda: Exchange("one", "words", contradiction="")),
    ("kept", lambda: Exchange("one", "words", kept=1)),
    ("exchanges", lambda: Contract("own", ONE)),
    ("reports", lambda: Contract("own", (ONE,), reports=("sum",))),
    ("options", lambda: Contract("own", (ONE,), options=strategies.CausalOptions)),
    ("dimensions", lambda: Contract("own", (ONE,), dimensions={"k": 3})),
    ("exchange", lambda: Ask("one")),
    ("values", lambda: Ask(ONE, [1])),
    ("parties", lambda: Ask(ONE, parties="north")),
    ("so_far", lambda: Ask(ONE, so_far=Result())),
    ("exchange", lambda: strategies.Ask("one")),
    ("info", lambda: Note([1])),
    ("compute", lambda: Choice(3)),
    ("grid", lambda: simulations.Relay(APP)),
    ("method", lambda: run(Moments, LocalGrid(APP, 3))),
    ("grid", lambda: run(Moments(), APP)),
    ("grid", lambda: Moments().start(grid=APP)),
    ("engine", lambda: simulate("moments", TABLES, engine="rays")),
    ("client", lambda: simulate("moments", TABLES, client=Moments)),
    ("wrap_grid", lambda: simulate("moments", TABLES, wrap_grid=3)),
    ("output_dir", lambda: simulate("moments", TABLES, output_dir=3)),
    ("resume", lambda: simulate("moments", TABLES, resume="yes")),
    ("progress", lambda: simulate("moments", TABLES, progress="yes")),
    ("maps", lambda: simulate("moments", TABLES[:1], maps="a.toml")),
    ("directory", lambda: Run.load(3)),
    ("required", lambda: Knowledge(required=3)),
]


@pytest.mark.parametrize(("name", "call"), WRONG)
def test_an_argument_of_another_type_is_named(name, call):
    with pytest.raises(ConfigError, match=rf"'?{name}'? (is|must be) ") as caught:
        call()
    assert "must be" in str(caught.value)


def test_names_of_a_graph_are_a_sequence():
    with pytest.raises(DataError, match="names is 3: give a sequence"):
        CausalGraph(3, np.zeros((1, 1)))


@pytest.mark.parametrize(
    "kind",
    [
        one
        for name in strategies.__all__
        if isinstance(one := getattr(strategies, name), type)
        and issubclass(one, CausalStrategy)
        and one is not CausalStrategy
    ],
)
def test_a_client_is_no_option(kind):
    with pytest.raises(ConfigError, match=rf"{kind.__name__} is given <class .*simulate\(client="):
        kind(MomentsClient)


#: What has no arguments that a user could mistake, and what only the package makes.
EXEMPT = {
    *("CausalError", "ConfigError", "DataError", "FederationError"),
    *("PartyOptions", "PrivatePartyOptions", "CausalOptions", "LinearOptions"),  # by their fields
    *("Asked", "LineResult", "Outcome", "Replies", "Result", "When", "World"),
    *("CausalGraph", "CausalClient", "CausalStrategy", "LinearClient"),
}


def test_every_public_name_is_in_the_table():
    """By the names in the calls; clients are made by ``client_app`` alone."""
    called = {name for _, call in WRONG for name in (*call.__code__.co_names, *_globals(call))}
    for module in (flwr_causal, clients, protocol, simulations, strategies):
        for name in module.__all__:
            known = name in called | EXEMPT or name.endswith("Client")
            strategy = getattr(module, name)
            assert known or issubclass(strategy, CausalStrategy), name


def _globals(call):
    return [name for name in call.__code__.co_names if name in globals()]


def test_lists_in_declarations_are_tuples():
    made = Exchange("one", "words", returns=[Disclosure("s", "sums", ["d"], combine="sum")])
    assert made.returns == (Disclosure("s", "sums", ("d",), combine="sum"),)
    assert hash(made)


@pytest.mark.parametrize("made", [np.zeros((30, 3)), "table.csv", None, [[1.0, 2.0]]])
def test_a_source_returns_a_table(made):
    app = client_app(MomentsClient, lambda context: Source("north", lambda: made))
    with pytest.raises(DataError, match="The source of 'north' returns a value of type") as caught:
        Moments().start(grid=LocalGrid(app, 2))
    assert "pandas DataFrame" in str(caught.value)
    assert "AttributeError" not in str(caught.value)


def test_a_forgotten_client_is_named():
    with pytest.raises(ConfigError, match=r"Other is the strategy of 'other'.*client=YourClient"):
        simulate(Other(), TABLES)


class Sums(CausalClient):
    """Returns the number of columns."""

    contract = Contract(
        "sums",
        (
            Exchange(
                "one",
                "sums",
                sends=(Sent("w", "weights", ("d",)),),
                returns=(Disclosure("s", "columns", (), combine="sum"),),
            ),
        ),
    )

    @answers(contract.exchanges[0])
    def one(self, asked):
        return {"s": np.array(float(len(asked["w"])))}


class Sending(CausalStrategy):
    """Sends what it is given."""

    method, contract, weights = "sums", Sums.contract, np.ones(3)
    wrong = False

    def train(self, agreement):
        yield Ask(self.contract.exchanges[0], {"w": self.weights})
        empty = np.zeros((3, 3)) * (1 // (not self.wrong))
        return Result(CausalGraph.from_array(empty, agreement.names))


@pytest.mark.parametrize("shape", [(4,), (3, 3), ()])
def test_what_is_sent_has_the_declared_shape(shape, caplog):
    seen = []

    class Looking(simulations.Relay):
        def before(self, messages):
            seen.extend(one.metadata.message_type for one in messages)
            return messages

    strategy = Sending()
    assert simulate(strategy, TABLES, client=Sums).status == "completed"
    strategy.weights = np.ones(shape)
    with pytest.raises(ConfigError, match=r"Sending cannot ask for the exchange 'one': .*'w'"):
        simulate(strategy, TABLES, client=Sums, wrap_grid=Looking)
    # Nothing but the question for the schema was sent.
    assert set(seen) == {"query.schema"}


def test_a_mistake_in_train_is_called_one():
    strategy = Sending()
    strategy.wrong = True
    with pytest.raises(FederationError, match=r"Sending raised a ZeroDivisionError .* in line"):
        simulate(strategy, TABLES, client=Sums)
