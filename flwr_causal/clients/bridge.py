"""From Flower's messages to a client's ``fit`` and back: the ClientApp of every method."""

from __future__ import annotations

from logging import ERROR
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log

from flwr_causal.clients.base import SETUP, CausalClient, Source
from flwr_causal.clients.table_digest import TABLE, check_digest, keep_digest
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.interventions import NODE_KEY, USERS
from flwr_causal.errors import CausalError, ConfigError, ForgottenError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.replay import REPLAY, unpacked
from flwr_causal.protocol.schema import own_version, party_name
from flwr_causal.protocol.setup import PREFIX, Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr.app import Context

    Clients = type[CausalClient] | Mapping[str, type[CausalClient]]


# The agreement that was read last, by its exchange: with many columns it takes longer to read than
# many a message to answer.
_last_setup: dict[str, Setup] = {}


def client_app(clients: Clients, source: Callable[[Context], Source]) -> ClientApp:
    """Build the ClientApp that runs one method, or any of several.

    Parameters
    ----------
    clients : type or mapping of str to type
        A subclass of :class:`CausalClient`, or one for each method id: then the server's message
        says which method runs.
    source : callable
        Finds a node's data from its context, which holds the node's configuration
        (``data-path``, or ``partition-id`` in a simulation) and the run's.

    Returns
    -------
    ClientApp
        Handles ``train``, ``query`` and ``query.schema`` messages.
    """
    app = ClientApp()

    @app.query("schema")
    def schema(message: Message, context: Context) -> Message:
        """Report the schema; a problem with the data is part of the report, not a failure."""
        config = records.config_of(message.content)
        name = party_name(context)
        report: dict[str, Any]
        try:
            party = source(context)
            name = party.name
            table = party.read()
            if _is_running(context, config):
                check_digest(context.state, table, name)
            else:
                keep_digest(context.state, table)
            policy = Policy.from_dict(_behind("policy-", config))
            options = _behind("option-", config)
            own = Source(name, lambda: table)
            client = _client_type(clients, config)(own, context, options=options)
            if NODE_KEY in context.node_config and "interventions" not in client.contract.reports:
                raise ConfigError(
                    f"its node config states interventions, which '{client.contract.method}' does "
                    f"not use: use {USERS}, or take them out"
                )
            with single_threaded():
                report = client.describe(policy).to_dict()
            report = door.reported(report, client.contract.reports, policy.max_states)
        except door.RefusedError as error:
            report = {"error": f"The report was not sent: {error}"}
        except CausalError as error:
            report = {"error": str(error)}
        except Exception as error:  # of a client; its traceback stays in the party's log
            log(ERROR, "The ClientApp of %s raised an exception", name, exc_info=error)
            report = {"error": f"{type(error).__name__}: {error}"}
        partition = context.node_config.get("partition-id", -1)
        head = {"party": name, "version": own_version(), "partition-id": partition}
        content = RecordDict({records.CONFIG: ConfigRecord({**head, **report})})
        return Message(content, reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Let the client answer an exchange of the training."""
        return _reply(clients, source, message, context)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        """Let the client answer a question after the training."""
        return _reply(clients, source, message, context)

    return app


def _open(
    clients: Clients, source: Callable[[Context], Source], message: Message, context: Context
) -> tuple[CausalClient, dict[str, Any]]:
    """Build the client of this message with the agreement from the message or from its state."""
    config: dict[str, Any] = records.config_of(message.content)
    record = context.state.get(SETUP)
    setup = _read_setup(dict(record), known=True) if isinstance(record, ConfigRecord) else None
    if f"{PREFIX}names" in config:
        sent = _read_setup(config, known=False)
        if setup is not None and sent.exchange != setup.exchange:
            # Another run over the same nodes: what was remembered belongs to the one before.
            table = context.state.get(TABLE)
            context.state.clear()
            if table is not None:
                context.state[TABLE] = table
        # A new agreement replaces the one in the state, which may come from a lost attempt.
        context.state.pop(SETUP, None)
        setup = sent
    if setup is None:
        raise ForgottenError(
            "This party has no agreement with the others: its node was restarted, or missed the "
            "schema exchange. The server sends it again with the next attempt."
        )
    client = _client_type(clients, config)(_unchanged(source(context), context), context, setup)
    return client, {key: value for key, value in config.items() if not key.startswith(PREFIX)}


def _is_running(context: Context, config: Mapping[str, Any]) -> bool:
    """Return whether a question for the schema comes from the run that the node takes part in."""
    record = context.state.get(SETUP)
    if not isinstance(record, ConfigRecord):
        return False
    return record[f"{PREFIX}exchange"] == config.get("exchange")


def _unchanged(source: Source, context: Context) -> Source:
    """Return the source with the table as it is now, which must be that of the schema exchange."""
    table = source.read()
    check_digest(context.state, table, source.name)
    return Source(source.name, lambda: table)


def _read_setup(config: Mapping[str, Any], *, known: bool) -> Setup:
    """Return the setup of a record; one that was ``known`` before need not be read again."""
    exchange = config[f"{PREFIX}exchange"]
    if known and exchange and exchange in _last_setup:
        return _last_setup[exchange]
    setup = Setup.from_config(config)
    _last_setup.clear()
    _last_setup[exchange] = setup
    return setup


def _reply(
    clients: Clients, source: Callable[[Context], Source], message: Message, context: Context
) -> Message:
    """Call ``fit``, name what it returns, and let only declared things out."""
    client, config = _open(clients, source, message, context)
    if config.get("exchange") == REPLAY.name:
        return _replay(client, clients, message)
    exchange = client.contract.find(config.get("exchange"))
    received = records.arrays_of(message.content)
    with single_threaded():
        arrays, weight, numbers = client.fit(
            list(received.values()), {**config, "arrays": list(received)}
        )
    named = dict(zip(client.names_of(exchange), arrays, strict=True))
    agreed = client.contract.sizes(client.setup, client.num_rows)
    content = door.outgoing(
        exchange,
        {**named, **{name: np.asarray(value) for name, value in numbers.items()}},
        door.sizes_of(exchange, message.content, agreed),
        weight=weight,
        number=int(config[records.NUMBER]),
        precision=client.setup.precision,
    )
    reply = Message(content, reply_to=message)
    packed = content.get(records.ARRAYS)
    if isinstance(packed, ArrayRecord):
        client.commit([(array, packed[name]) for name, array in named.items() if name in packed])
    else:
        client.commit()
    return reply


def _replay(client: CausalClient, clients: Clients, message: Message) -> Message:
    """Answer earlier requests to oneself, for what is remembered of them; return nothing."""
    config: dict[str, Any] = records.config_of(message.content)
    requests = unpacked(records.arrays_of(message.content)["archive"], config.pop("requests"))
    # Where the reply to an earlier attempt was lost, the memory is there already.
    client.forget()
    for content in requests:
        earlier = _client_type(clients, config)(client.source, client.context, client.setup)
        received, values = records.arrays_of(content), records.config_of(content)
        with single_threaded():
            earlier.fit(list(received.values()), {**config, **values, "arrays": list(received)})
        earlier.commit()
    client.commit()
    number = int(config[records.NUMBER])
    return Message(door.outgoing(REPLAY, {}, {}, weight=1, number=number), reply_to=message)


def _client_type(clients: Clients, config: Mapping[str, Any]) -> type[CausalClient]:
    if isinstance(clients, type):
        return clients
    method = config.get("method", "")
    if method not in clients:
        raise ConfigError(
            f"The server runs the method '{method}', which this node does not know; it knows "
            f"{', '.join(sorted(clients))}. Install the same version of flwr-causal on both sides."
        )
    return clients[method]


def _behind(prefix: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
