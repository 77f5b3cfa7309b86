"""What the tests of the protocol share: small federations, and grids that watch or disturb them."""

from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from flwr.app import Message

from flwr_causal.app.methods import CLIENTS
from flwr_causal.clients import Source, client_app
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.options import to_plain
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.protocol import records
from flwr_causal.protocol.options import PartyOptions
from flwr_causal.protocol.setup import Setup
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import NotearsADMM


class Federation(NamedTuple):
    """Tables of the parties and the weights that made them."""

    tables: list[pd.DataFrame]
    weights: np.ndarray

    @property
    def truth(self) -> CausalGraph:
        return CausalGraph.from_array(self.weights, list(self.tables[0].columns))

    @property
    def pooled(self) -> np.ndarray:
        return np.concatenate([table.to_numpy() for table in self.tables])


def make_federation(d=5, n=240, parties=3, seed=0, **options) -> Federation:
    """A system whose graph is found without error by both methods (for the seeds used here)."""
    return Federation(*federated_linear(d, n, parties, seed=seed, **options))


def question_of(method, **options):
    """What the question for the schema holds of a method's options, with some of them changed."""
    sent = to_plain(method._schema_options) | options
    given = {name: value for name, value in sent.items() if value is not None}
    return question(method.method, method.handling, given)


def question(method, handling, options=None):
    """What a question for the schema holds of a handling, and of options as plain values."""
    parts = {"policy-": to_plain(handling), "option-": options or to_plain(PartyOptions())}
    plain = {f"{part}{name}": one for part, own in parts.items() for name, one in own.items()}
    return {"method": method, **plain}


def app_of(tables, clients=CLIENTS):
    """The ClientApp of tables in memory; node by node, by ``partition-id``."""

    def source(context):
        index = int(context.node_config["partition-id"])
        return Source(f"party {index}", lambda: tables[index])

    return client_app(clients, source)


def once(run):
    """Decorate ``run(parties, **options)``: the run of a repeated call is kept, to be read only."""
    finished = {}

    @wraps(run)
    def looked_up(*parties, **options):
        key = tuple(map(id, parties)), repr(options)
        if key not in finished:
            # What was given is kept with it, so that its ids stay its own.
            finished[key] = run(*parties, **options), parties
        return finished[key][0]

    return looked_up


class SpyGrid(LocalGrid):
    """Keeps every message that was sent and every reply that came."""

    def __init__(self, app, num_nodes, **options) -> None:
        super().__init__(app, num_nodes, **options)
        self.sent: list[Message] = []
        self.replies: list[Message] = []

    def push_messages(self, messages):
        messages = list(messages)
        self.sent += messages
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        self.replies += replies
        return replies

    def of_exchange(self, name: str) -> list[Message]:
        """The sent messages of an exchange."""
        return [m for m in self.sent if records.config_of(m.content).get("exchange") == name]

    @property
    def training_messages(self) -> list[Message]:
        return [m for m in self.sent if m.metadata.message_type == "train"]


class ShufflingGrid(LocalGrid):
    """Returns the replies in another order each time, as networks do."""

    def __init__(self, app, num_nodes, seed=0) -> None:
        super().__init__(app, num_nodes)
        self._rng = np.random.default_rng(seed)

    def get_node_ids(self):
        return [int(i) for i in self._rng.permutation(super().get_node_ids())]

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        return [replies[i] for i in self._rng.permutation(len(replies))]


def spy(tables, clients=CLIENTS, **options) -> SpyGrid:
    """A watched grid over tables."""
    return SpyGrid(app_of(tables, clients), len(tables), **options)


def disturbed(tables, fault, clients=CLIENTS) -> SpyGrid:
    """A watched grid whose nodes call ``fault(partition, config, context)`` before they work."""
    app = app_of(tables, clients)

    def faulty(message, context):
        if message.metadata.message_type == "train":
            fault(context.node_config["partition-id"], records.config_of(message.content), context)
        return app(message, context)

    return SpyGrid(faulty, len(tables))


def raising(party: int, rounds, attempts: int = 1):
    """A fault: the party raises in the given rounds, so many times in each."""
    seen: dict[int, int] = {}

    def fault(partition: int, config: dict[str, Any], context: Any) -> None:
        round_ = config["round"]
        if partition == party and round_ in rounds and seen.get(round_, 0) < attempts:
            seen[round_] = seen.get(round_, 0) + 1
            raise RuntimeError(f"party {party} tripped over round {round_}")

    return fault


def adjacency_of(graph: CausalGraph, names) -> np.ndarray:
    """The adjacency with rows and columns in the given order of names."""
    order = [graph.names.index(name) for name in names]
    return graph.adjacency[np.ix_(order, order)]


def ask(grid, node_id, arrays, message_type="train", *, setup=None, **config) -> Message:
    """Send one node one message, as a strategy would, and return the reply."""
    values = {"exchange": "round", "method": "notears-admm", "round": 1, **config}
    if setup is not None:
        values |= setup.to_config()
    content = records.message_content(records.pack_arrays(arrays), values)
    message = Message(content, dst_node_id=node_id, message_type=message_type, ttl=60.0)
    (reply,) = grid.send_and_receive([message])
    return reply


#: The name of an agreement.
TOKEN = "0123456789abcdef"


class KeysAgreed(SimpleNamespace):
    """What secure sums need of an agreement, of which a test may change single values."""

    groups = ()
    exchange = TOKEN
    circles = Setup.circles
    # The same whatever changes, so that a test reaches the check of a single value.
    digest = "0" * 64


def setup_for(tables, **changes) -> Setup:
    """The agreement of the linear methods over tables, with their default options."""
    pooled = np.concatenate([table.to_numpy() for table in tables])
    values = {
        "names": tuple(tables[0].columns),
        "num_rows": len(pooled),
        "num_clients": len(tables),
        "mean": pooled.mean(axis=0),
        "variance": pooled.var(axis=0),
        "handling": Handling(),
        "exchange": TOKEN,
        "options": NotearsADMM().client_options,
    }
    return Setup(**{**values, **changes})


def stating(setup, method) -> Setup:
    """The agreement as one of a run of a strategy, which states its options."""
    return replace(setup, terms=RunTerms.of(method.method, method.options.by_name()).to_text())


class Losing(Relay):
    """A grid in which parties miss exchanges, or their replies are lost.

    ``lost`` maps the number of an exchange, and whether it is the unmasking, to the numbers of
    parties and to how many times: by default each time.
    """

    def __init__(self, grid, lost, *, replies=False):
        super().__init__(grid)
        self.lost, self.replies, self.calls, self.missing = dict(lost), replies, [], set()

    def before(self, messages):
        config = records.config_of(messages[0].content)
        key = (config.get("round", "schema"), config.get("exchange") == "unmasking")
        self.missing = {place + 2 for place in self.lost.get(key, ())}
        self.calls.append(key)
        if self.replies:
            return messages
        return [m for m in messages if m.metadata.dst_node_id not in self.missing]

    def after(self, messages, replies):
        return [reply for reply in replies if reply.metadata.src_node_id not in self.missing]


def losing(lost, **options):
    return lambda grid: Losing(grid, lost, **options)
