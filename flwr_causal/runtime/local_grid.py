"""A Flower Grid that calls the ClientApp in this process: no Ray, no network, no waiting."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from flwr_causal.compat import (
    CLIENT_RAISED,
    FlowerRun,
    empty_run,
    set_message_id,
    set_task_identity,
)
from flwr_causal.core.arguments import COUNT, Form, check_argument, instance, or_none
from flwr_causal.errors import CausalError
from flwr_causal.runtime.raised import log_raised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.clientapp import ClientApp


_APP = Form(
    "a ClientApp, such as client_app(...) returns",
    lambda value: callable(value) and not isinstance(value, type),
)
_CONFIG = instance(Mapping, "a dict of plain values by name, for each node")


class LocalGrid(Grid):
    """Runs the same ServerApp and ClientApp as Flower's engines, one node after the other.

    An exchange takes about a millisecond a node, so that tests, sweeps and notebooks need no Ray.
    Each node has its own ``Context``, whose state lasts for the run. A client that raises gives an
    error reply and keeps its state, as on the other engines; unless the exception is a
    :class:`~flwr_causal.errors.CausalError`, Flower's log shows its traceback, once a run for each
    place in the code.

    Parameters
    ----------
    client_app : ClientApp
        The app of all nodes.
    num_nodes : int
        How many nodes there are.
    run_config : mapping, optional
        The run's configuration, as ``flwr run -c`` gives it.
    node_configs : sequence of mapping, optional
        One configuration for each node; by default ``partition-id`` and ``num-partitions``, as in
        Flower's simulation.

    Attributes
    ----------
    raised : list of Exception
        The exceptions that the nodes' apps have raised, in their order.

    Raises
    ------
    ConfigError
        Naming an argument that is of another type.

    Examples
    --------
    >>> from flwr_causal.clients import MomentsClient, Source, client_app
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.simulations import LocalGrid
    >>> from flwr_causal.strategies import Moments
    >>> tables, weights = federated_linear(3, 90, 3)
    >>> def source(context):
    ...     number = context.node_config["partition-id"]
    ...     return Source(f"party {number}", lambda: tables[number])
    >>> grid = LocalGrid(client_app(MomentsClient, source), num_nodes=3)
    >>> Moments().start(grid=grid).outcome.graph.names
    ('x0', 'x1', 'x2')
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        run_config: Mapping[str, Any] | None = None,
        node_configs: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        check_argument("LocalGrid", "client_app", client_app, _APP)
        check_argument("LocalGrid", "num_nodes", num_nodes, COUNT)
        check_argument("LocalGrid", "run_config", run_config, or_none(_CONFIG))
        self._client_app = client_app
        self._run = empty_run(secrets.randbits(62))
        own = [{"partition-id": k, "num-partitions": num_nodes} for k in range(num_nodes)]
        configs = own if node_configs is None else [*node_configs]
        for config in configs:
            check_argument("LocalGrid", "node_configs", config, _CONFIG)
        self._contexts = {
            # Node ids start at 2: Flower's server is node 1.
            node_id: Context(
                run_id=self._run.run_id,
                node_id=node_id,
                node_config=dict(config),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node_id, config in enumerate(configs, start=2)
        }
        self._replies: dict[str, Message] = {}
        self.raised: list[Exception] = []
        set_task_identity(self._run.run_id)

    @property
    def run(self) -> FlowerRun:
        """Information on the run."""
        return self._run

    def set_run(self, run: FlowerRun) -> None:
        """Set the run that this grid belongs to."""
        self._run = run

    def context(self, node_id: int) -> Context:
        """Return a node's context, in which tests find the node's state."""
        return self._contexts[node_id]

    def get_node_ids(self) -> list[int]:
        """Return the ids of the nodes."""
        return list(self._contexts)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Build a message; Flower prefers ``flwr.app.Message`` itself."""
        return Message(
            content=content,
            dst_node_id=dst_node_id,
            message_type=message_type,
            group_id=group_id,
            ttl=ttl,
        )

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand each message to its node and keep the reply until it is pulled."""
        ids = []
        for message in messages:
            message_id = str(uuid4())
            self._replies[message_id] = self._deliver(message, message_id)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to the given messages."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Hand each message to its node and return the replies, in their order."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message, message_id: str) -> Message:
        set_message_id(message, message_id, self._run.run_id)
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._client_app(message, context)
        except Exception as error:
            self.raised.append(error)
            if not isinstance(error, CausalError):
                log_raised(context, error)
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=CLIENT_RAISED, reason=reason), reply_to=message)
