"""From Flower's messages to a client's ``fit`` and back: the ClientApp of every method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from logging import WARNING
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log

from flwr_causal.clients.base import MEMORIES, SETUP, CausalClient, Source
from flwr_causal.clients.mods import Answer, accepted_report, probed, through
from flwr_causal.contract.answers import check_steps
from flwr_causal.core.arguments import Form, check_argument
from flwr_causal.core.limits import noting
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.words import printable
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.report import TableReport
from flwr_causal.data.dictionary.faults import DictionaryFaultError
from flwr_causal.data.interventions import USERS
from flwr_causal.data.resampling import Draw
from flwr_causal.errors import (
    CausalError,
    ConfigError,
    FederationError,
    ForgottenError,
    IncompleteError,
)
from flwr_causal.party import noise
from flwr_causal.party.dictionary import log_faults, reading_at
from flwr_causal.party.door import ASKED, PartyDoor, note_question
from flwr_causal.party.node_config import without_directories
from flwr_causal.party.noise import OF_RELEASE
from flwr_causal.party.record import SCHEMA
from flwr_causal.party.table_digest import TABLE, check_digest, digest, keep_digest
from flwr_causal.party.tables import with_party
from flwr_causal.protocol import door, records
from flwr_causal.protocol.bundle import (
    MAIN,
    SEED,
    Bundle,
    TrainingName,
    exchange_of,
    parts_of,
)
from flwr_causal.protocol.options import received
from flwr_causal.protocol.release import check_released
from flwr_causal.protocol.replay import REPLAY, unpacked
from flwr_causal.protocol.schema import own_version, partition_of, party_name
from flwr_causal.protocol.settings import WEIGHTINGS, check_trainings
from flwr_causal.protocol.setup import DIGEST, PREFIX, Setup, check_number
from flwr_causal.runtime.raised import log_raised
from flwr_causal.secure import party as secure
from flwr_causal.secure import totals
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.totals import TOTALS, TOTALS_NUMBER
from flwr_causal.secure.unmasking import CONFIRMATION, SECURE_SUMS, UNMASKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Array

    from flwr_causal.clients.mods import Mod
    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.bundle import BundlePart
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PartyOptions

    Clients = type[CausalClient] | Mapping[str, type[CausalClient]]
    # What a party is asked, with the content that it is sent for it.
    Request = tuple[Exchange, RecordDict]


# What a node keeps from the schema exchange on, whichever agreement follows.
OF_RUN = (TABLE, ASKED, secure.SECURE, secure.TOTALS_SENT, *OF_RELEASE)
# What was read last of what servers send to all parties alike, by what it is and whose, with a text
# that tells it from others: a process may serve many simulated parties, and with many columns an
# agreement takes longer to read than many a message to answer.
_last_read: dict[tuple[str, type[CausalClient]], tuple[str, Any]] = {}


def _is_client(value: Any) -> bool:
    return (
        isinstance(value, type) and issubclass(value, CausalClient) and hasattr(value, "contract")
    )


def _is_clients(value: Any) -> bool:
    # The methods of other packages are imported when they are looked up.
    return _is_client(value) or (
        isinstance(value, Mapping)
        and not (isinstance(value, dict) and not all(map(_is_client, value.values())))
    )


CLIENT = Form("a subclass of CausalClient with a contract", _is_client)
_CLIENTS = Form(f"{CLIENT.words}, or a dict of such classes by their methods' ids", _is_clients)
_FINDS = Form("a function that takes a Context and returns a Source", callable)
_KEYS = Form(
    "a collection of texts",
    lambda value: isinstance(value, Collection) and not isinstance(value, str),
)
_MODS = Form(
    "a list of Flower's mods",
    lambda value: isinstance(value, Sequence) and all(map(callable, value)),
)


class _App(ClientApp):
    """A ClientApp that Ray, which sends it with each message, packs as what it is built from."""

    def __init__(
        self,
        clients: Clients,
        source: Callable[[Context], Source],
        node_keys: Collection[str],
        mods: Sequence[Mod],
    ) -> None:
        super().__init__()
        self._built_from = (clients, source, node_keys, mods)

    def __reduce__(self) -> tuple[Callable[..., ClientApp], tuple[Any, ...]]:
        return client_app, self._built_from


def client_app(
    clients: Clients,
    source: Callable[[Context], Source],
    node_keys: Collection[str] = (),
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Build the ClientApp that runs one method, or any of several.

    Parameters
    ----------
    clients : type or mapping of str to type
        A subclass of :class:`CausalClient`, or one for each method id: then the server's message
        says which method runs.
    source : callable
        Finds a node's data from its context, which holds the node's configuration
        (``data-path``, or ``partition-id`` in a simulation) and the run's.
    node_keys : collection of str, default ()
        Keys of the node's configuration that `source` reads beside those of docs/policy.md. A node
        with any other key takes no part.
    mods : sequence of callable, default ()
        Flower's client-side mods, or others of their form, around every message; the first is the
        outermost. What they return passes the party's door, and is what its record says. The
        handlers may also be those of a ClientApp of one's own with mods, which then come after
        the door.

    Returns
    -------
    ClientApp
        Handles ``train``, ``query`` and ``query.schema`` messages; answers ``evaluate`` with an
        error that says what to use.

    Raises
    ------
    ConfigError
        Naming an argument that is of another type.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.clients import MomentsClient, Source, client_app
    >>> table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [2.0, 4.0, 7.0]})
    >>> app = client_app(MomentsClient, lambda context: Source("north", lambda: table))
    >>> callable(app)  # the app of each node, also of ``LocalGrid``
    True
    """
    check_argument("client_app", "clients", clients, _CLIENTS)
    check_argument("client_app", "source", source, _FINDS)
    check_argument("client_app", "node_keys", node_keys, _KEYS)
    check_argument("client_app", "mods", mods, _MODS)
    mods = tuple(mods)
    app = _App(clients, source, node_keys, mods)

    by_method = {clients.contract.method: clients} if isinstance(clients, type) else clients

    @app.query("schema")
    def schema(message: Message, context: Context) -> Message:
        """Report the schema; a problem with the data is part of the report, not a failure."""
        config = records.config_of(message.content)
        about = {"method": str(config.get("method", "")), "exchange": SCHEMA}
        name, own = party_name(context), None

        def answer(message: Message, context: Context) -> Answer:
            nonlocal name
            assert own is not None
            config = records.config_of(message.content)
            party = source(context)
            name, about["table"] = party.name, party.table
            report = _reported(context, name, _report(clients, party, config, context, own, about))
            about["agreement"] = str(config.get("exchange", ""))
            content = probed(message, RecordDict({records.CONFIG: report}))
            accepted = partial(accepted_report, report.copy())
            return Answer(content, accepted, lambda content: own.note(content, **about))

        try:
            own = PartyDoor.of(context, node_keys, by_method)
            return through(mods, message, context, answer)
        except Exception as error:
            noted = error if own is None else own.noted(error, **about)
            only_gaps = {"incomplete": 1} if isinstance(noted, IncompleteError) else {}
            report = _reported(context, name, {"error": _in_words(noted, context), **only_gaps})
            content = probed(message, RecordDict({records.CONFIG: report}))
            return Message(content, reply_to=message)

    def reply(message: Message, context: Context) -> Message:
        """Let the client answer an exchange of the training, or a question after it."""
        own = PartyDoor.of(context, node_keys, by_method)
        check_sender(clients, message)
        return _reply(clients, source, message, context, own, mods)

    app.train()(reply)
    app.query()(reply)
    app.evaluate()(reply)
    return app


def _report(
    clients: Clients,
    party: Source,
    config: Mapping[str, Any],
    context: Context,
    own: PartyDoor,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Return what a party reports of its table, with its key where the run adds up securely.

    To ``about`` is added what the record says of a private run, before anything is drawn.
    """
    masked = bool(config.get("secure-aggregation"))
    kind = _client_type(clients, config)
    contract = kind.contract
    options, handling = _read_question(kind, config)
    own.check_question(contract, config, options, handling)
    # Whether the question comes from the run that the node takes part in.
    record = context.state.get(SETUP)
    running = isinstance(record, ConfigRecord) and (
        record[f"{PREFIX}exchange"] == config.get("exchange")
    )
    guarantee = options.guarantee
    table = _opened(party, own, handling, options, counts=not masked)
    again = bool(config.get("exchange") or config.get("resumed"))
    restored = guarantee is not None and noise.begin(context, options, again=again)
    if restored or running:
        check_digest(context.state, table, party.name)
    else:
        keep_digest(context.state, table)
    if guarantee is not None:
        released = noise.of_line(context, guarantee)
        own.check_budget(released)
        # Where it cannot be kept, nothing is drawn and nothing counts.
        noise.keep(context)
        about |= released
    shown = Source(party.name, lambda: table)
    names_only = bool(config.get("names-only"))
    used: Any = config.get("columns")
    if handling.chooses_columns and not (names_only or guarantee is not None):
        # Also where the server does not say so.
        asked = table.columns if used is None else used
        used = [name for name in asked if handling.chooses(name)]
    # A dictionary says of each column what it is; a private run has all columns from the beginning.
    undeclared = guarantee is None and handling.entries is None
    left_out = own.left_out(table, str(config.get("terms", ""))) if undeclared else []
    if left_out:
        listed = printable(", ".join(left_out))
        log(WARNING, "Columns that look like identifiers are left out: %s", listed)
        used = [name for name in (table.columns if used is None else used) if name not in left_out]
    client = kind(shown, context, options=options, columns=used)
    if own.node.interventions and "interventions" not in client.contract.reports:
        raise ConfigError(
            f"its node config states interventions, which '{client.contract.method}' does "
            f"not use: use {USERS}, or take them out"
        )
    public = client.private or names_only
    names = TableReport.of_names(client.table().columns if public else ())
    if public:
        # Before anything is drawn, which counts also where the run is refused. A column that is
        # excluded is named, and not used.
        chosen = filter(handling.chooses, names.names) if names_only else names.names
        own.check_report(TableReport.of_names(chosen), table, handling, private=True)
    with single_threaded():
        described = names if names_only else _described(client, handling)
    if not public:
        own.check_report(described, table, handling)
    for column in described.columns:
        if column.stray and own.guarded:
            # Rows and values are shown by commands that a person starts on this machine.
            text = "Column %r is text, as %d of its values are no numbers: see flwr-causal check"
            log(WARNING, text, column.name, column.stray)
    key: dict[str, Any] = {}
    if masked or (described.has_ids and config.get("pair-keys")):
        key = secure.offered(context, party.name, running=running)
    if masked and not described.withheld:
        columns = client.table().columns
        whole = secure.own_report(context, columns, lambda: described, private=client.private)
        described = secure.withheld(whole, handling, party.name)
    described = replace(described, leaves_out=bool(left_out))
    report = door.reported(
        described.to_dict(), client.contract.parts(handling), handling.max_states
    )
    return {"contract": client.contract.digest} | key | report


def _described(client: CausalClient, handling: Handling) -> TableReport:
    """Return a party's report; in a private run, the entries that follow from its release."""
    return client.released_report(handling) if client.private else client.describe(handling)


def check_sender(clients: Clients, message: Message) -> None:
    """Refuse a message that no strategy of flwr-causal has sent.

    Raises
    ------
    ConfigError
        Naming the methods that the node knows and what to start instead.
    """
    config = records.config_of(message.content)
    kind = message.metadata.message_type
    if "method" in config and "exchange" in config and not kind.startswith("evaluate"):
        return
    known = [clients.contract.method] if isinstance(clients, type) else sorted(clients)
    raise ConfigError(
        f"This '{kind}' message is not of a strategy of flwr-causal: it names no method and no "
        "exchange, as those of Flower's FedAvg and other strategies do not. This node's ClientApp "
        f"answers {', '.join(known)}: start its strategy of flwr_causal.strategies in the "
        "ServerApp, such as NotearsADMM().start(grid=grid). Other training on the same node needs "
        'a name: @app.train("name") answers messages of the type train.name.'
    )


def _reported(context: Context, name: str, report: dict[str, Any]) -> ConfigRecord:
    """Return the record that holds a report, or an error in its place."""
    head: dict[str, Any] = {"party": name, "version": own_version()}
    head["partition-id"] = partition_of(context)
    return ConfigRecord({**head, **report})


def _in_words(error: Exception, context: Context) -> str:
    """Return an error of the schema exchange as it is reported."""
    if isinstance(error, door.RefusedError):
        return printable(f"The report was not sent: {error}")
    return str(_sayable(error, context))


def _sayable(error: Exception, context: Context) -> CausalError:
    """Return an error as the server may see it: texts of other packages may hold values."""
    if isinstance(error, CausalError):
        text = without_directories(str(error), context.node_config)
        if text != str(error):
            log(WARNING, "%s", printable(str(error)))
        # It may cite the server, and is logged here, too.
        error.args = (printable(text), *error.args[1:])
        return error
    log_raised(context, error)
    return FederationError(
        f"The party's client raised a {type(error).__name__}; the log of its node says where."
    )


def _open(
    clients: Clients,
    source: Callable[[Context], Source],
    message: Message,
    context: Context,
    own: PartyDoor,
) -> tuple[CausalClient, list[Request]]:
    """Build the client of this message, and return with it what :func:`_requests` reads of it.

    The agreement is that of the message, or else of the node's state.
    """
    config: dict[str, Any] = records.config_of(message.content)
    kind = _client_type(clients, config)
    record = context.state.get(SETUP)
    if any(name.startswith(PREFIX) for name in config):
        setup = _read_setup(kind, config)
        if secure.SECURE in context.state:
            secure.accept(context, setup)
        if isinstance(record, ConfigRecord) and record[f"{PREFIX}exchange"] != setup.exchange:
            # Another run over the same nodes: what was remembered belongs to the one before.
            kept = {name: context.state[name] for name in OF_RUN if name in context.state}
            context.state.clear()
            context.state.update(kept)
    elif isinstance(record, ConfigRecord):
        setup = _read_setup(kind, record, str(record[DIGEST]))
    else:
        raise ForgottenError(
            "This party has no agreement with the others: its node was restarted, or missed the "
            "schema exchange. The server sends it again with the next attempt."
        )
    requests = _requests(kind.contract, message.content)
    own.check_agreement(kind.contract, setup, requests)
    for exchange, content in requests:
        for part in parts_of(exchange):
            kind.contract.check_taking_place(part.exchange, setup)
        if isinstance(exchange, Bundle) or exchange.sends_name(WEIGHTINGS):
            check_trainings(kind.contract, setup, exchange, content)
    guarantee = setup.options.guarantee
    if guarantee is not None:
        for exchange, _ in requests:
            for part in parts_of(exchange):
                check_released(kind.contract, part)
        noise.begin(context, setup.options, again=True)
    party = source(context)
    table = _opened(party, own, setup.handling, setup.options, counts=not setup.masked)
    # It must be the one of the schema exchange.
    check_digest(context.state, table, party.name)
    client = kind(replace(party, read=lambda: table), context, setup)
    if guarantee is None:
        own.check_used(client.num_rows, partial(client.once, "identifiers", client.identifiers))
    return client, requests


def _requests(contract: Contract, content: RecordDict) -> list[Request]:
    """Return each request of a message with its content; of a replay also the earlier ones."""
    values: dict[str, Any] = records.config_of(content)
    common = {one.name: one for one in (REPLAY, *SECURE_SUMS.exchanges)}
    name = values.get("exchange")
    if name not in common:
        return [(exchange_of(contract, values), content)]
    earlier: list[RecordDict] = []
    if name == REPLAY.name:
        earlier = _earlier(content)
    # An archive holds exchanges of the method alone.
    own = [(exchange_of(contract, records.config_of(one)), one) for one in earlier]
    return [(common[name], content), *own]


def _opened(
    source: Source, own: PartyDoor, handling: Handling, options: PartyOptions, *, counts: bool
) -> Table:
    """Return the table as runs see it, with the column of the parties if the run has one.

    Raises
    ------
    DataError
        If the table has a column of that name.
    DictionaryFaultError
        If it does not fit the dictionary: names, with ``counts`` numbers of values. Rows and values
        are in the party's log.
    """
    own_map = own.node.dictionary_map or source.own_map
    if handling.entries is None and own_map is None:
        reading = handling.reading.for_options(options)
    else:
        reading = reading_at(handling, options, own_map, own.policy.columns)
    try:
        table = source.opened(reading, private=options.guarantee is not None)
    except DictionaryFaultError as error:
        log_faults(source.name, error)
        raise (error if counts else error.without_counts()) from None
    # By a dictionary a column that the policy withholds has not been read.
    table = own.shown(table) if reading.dictionary is None else table
    name = handling.party_column
    return with_party(table, name, source.name) if name else table


def _read_question(client: type[CausalClient], config: Mapping[str, Any]) -> tuple[Any, Handling]:
    """Return the options and the handling of a question for the schema."""
    contract = client.contract
    names = ("option-", "policy-")
    plain = {name: value for name, value in config.items() if name.startswith(names)}

    def read() -> tuple[Any, Handling]:
        kind = contract.question or contract.options
        options: Any = received(kind, records.behind("option-", plain))
        handling = received(Handling, records.behind("policy-", plain))
        contract.check_handling(options, handling)
        return options, handling

    found: tuple[Any, Handling] = _read_once(("question", client), repr(plain), read)
    return found


def _read_setup(client: type[CausalClient], config: Mapping[str, Any], digest: str = "") -> Setup:
    """Return the setup of a message, or of a node's record of it, which has its digest."""
    contract = client.contract
    plain = {name: value for name, value in config.items() if name.startswith(PREFIX)}

    def read() -> Setup:
        setup = Setup.from_config(plain, contract.options)
        contract.check_handling(setup.options, setup.handling, states=bool(setup.states))
        contract.check_names(setup)
        check_steps(client, setup.run)
        return setup

    found: Setup = _read_once(("setup", client), digest or repr(plain), read)
    return found


def _read_once(what: tuple[str, type[CausalClient]], text: str, read: Callable[[], Any]) -> Any:
    """Return what a text says; it is not read again where the last one was the same."""
    # One look-up: another thread may put another text there meanwhile.
    last = _last_read.get(what)
    if last is None or last[0] != text:
        last = _last_read[what] = text, read()
    return last[1]


@noting(partial(log, WARNING, "%s"))
@single_threaded()
def _reply(
    clients: Clients,
    source: Callable[[Context], Source],
    message: Message,
    context: Context,
    own: PartyDoor,
    mods: Sequence[Mod],
) -> Message:
    """Answer an exchange through the mods; note what leaves before it does."""
    config: dict[str, Any] = records.config_of(message.content)
    about: dict[str, Any] = {
        "method": str(config.get("method", "")),
        "exchange": str(config.get("exchange", "")),
    }

    def answer(message: Message, context: Context) -> Answer:
        config: dict[str, Any] = records.config_of(message.content)
        about["number"] = check_number(config.get(records.NUMBER))
        client, requests = _open(clients, source, message, context, own)
        # What is answered; a bundle states the exchanges of its trainings besides.
        about["exchange"] = requests[0][0].name
        about.update({"agreement": client.setup.exchange, "table": client.source.table})
        guarantee = client.options.guarantee
        if guarantee is not None:
            about.update(noise.of_line(context, guarantee, client.sharing))
            own.check_budget(about)
        found = _answer(client, own, requests, message, config)

        def leave(content: RecordDict) -> None:
            own.note(content, **about)
            found.leave(content)

        return replace(found, leave=leave)

    try:
        return through(mods, message, context, answer)
    except Exception as error:
        raise _sayable(own.noted(error, **about), context) from error


def _answer(
    client: CausalClient,
    party: PartyDoor,
    requests: Sequence[Request],
    message: Message,
    config: dict[str, Any],
) -> Answer:
    """Call ``fit``, name what it returns, and let only declared things out."""
    context = client.context
    (exchange, _), *earlier = requests
    if exchange is REPLAY:
        return _replay(client, party, earlier, config)
    if exchange is TOTALS:
        return _totals(client, message)
    if exchange in (CONFIRMATION, UNMASKING):
        return _unmasking(client, exchange, message)
    # Before anything is computed with what was sent.
    agreed = client.contract.sizes(client.setup, client.num_rows)
    masked = client.setup.masked and not exchange.open
    sizes = door.asked(exchange, message.content, agreed, client.setup if masked else None)
    _note_questions(client, party, exchange, message.content)
    named: Arrays = {}
    weight, answered = 1, []
    for part in parts_of(exchange):
        own = client if part.training == MAIN else _in_training(client, part.training, config)
        arrays, weight = _fit(own, part, exchange, message.content)
        own.source = client.source  # the drawn rows of many replicates need not stay in memory
        named |= part.named(arrays)
        answered.append((part.training, own))
    if isinstance(exchange, Bundle):
        weight = 1 if exchange.weight == "one" else client.num_rows
    number = config[records.NUMBER]
    kept: dict[str, ConfigRecord] = {}
    accepted: Callable[[RecordDict], Any] | None = None
    if masked:
        secure.check_rows(context, client.setup.names, client.num_rows)
        summand = door.summand(exchange, named, sizes, client.setup, rows=client.num_rows)
        content, kept = secure.masked(
            context,
            client.setup,
            exchange.name,
            number,
            *summand,
            door.question_of(exchange, message.content),
        )
    else:
        content = door.outgoing(
            exchange,
            named,
            sizes,
            weight=weight,
            number=number,
            precision=client.setup.precision,
            small=client.setup.small,
        )
        accepted = partial(
            door.accepted, exchange, sizes=dict(sizes), weight=float(weight), number=number
        )

    # Before the mods, which may replace what leaves and not what is remembered.
    packed = content.get(records.ARRAYS)
    sent = (
        [(array, packed[name]) for name, array in named.items() if name in packed]
        if isinstance(packed, ArrayRecord)
        else []
    )

    def leave(content: RecordDict) -> None:
        for training, own in answered:
            _commit(own, training, context, sent)
        context.state.update(kept)

    return Answer(content, accepted, leave)


def _note_questions(
    client: CausalClient, party: PartyDoor, exchange: Exchange, content: RecordDict
) -> None:
    """Note what is asked of exchanges that are answered a few times only, or refuse it."""
    questions: dict[str, tuple[str, int]] = {}
    sent: dict[str, Any] = {}
    for part in parts_of(exchange):
        asked, limited = part.exchange, [one for one in part.exchange.sends if one.most]
        # Where nothing is sent there is one question.
        if not (limited or (asked.sends and asked.most)):
            continue
        sent = sent or {**records.config_of(content), **door.received(content)}
        values = part.sent(sent)
        if asked.most:
            name = part.training.named(asked.name)
            questions[name] = (purpose_of("question", values).hex(), asked.most)
        for one in limited:
            if one.name in values:
                digest = purpose_of("value", values[one.name]).hex()
                questions[f"values of {one.name}"] = (digest, one.most or 0)
    if not questions:
        return
    for name in party.asked_under(client.setup):
        note_question(client.context, client.node.releases, name, questions)


def _fit(
    client: CausalClient,
    part: BundlePart,
    exchange: Exchange,
    content: RecordDict,
    further: Mapping[str, Any] | None = None,
) -> tuple[Arrays, int]:
    """Return what the client answers to the request of one training, by name, and its weight."""
    plain = records.config_of(content)
    # What an exchange declares is read under the name that it has in the bundle, and nowhere else.
    config = {
        key: value
        for key, value in {**(further or {}), **plain}.items()
        if not key.startswith(PREFIX)
        and not (exchange.sends_name(key) or part.exchange.sends_name(key))
    }
    received = part.sent(door.received(content))
    own = part.sent(plain)
    door.check_fitting(part.exchange, {**own, **received}, client.setup)
    values = {**config, **own, "exchange": part.exchange.name}
    arrays, weight, numbers = client.fit(
        list(received.values()), {**values, "arrays": list(received)}
    )
    named = dict(zip(client.names_of(part.exchange), arrays, strict=True))
    return {**named, **{name: np.asarray(value) for name, value in numbers.items()}}, weight


def _in_training(
    client: CausalClient, training: TrainingName, config: Mapping[str, Any]
) -> CausalClient:
    """Return the client of a further training: with rows, a memory and a cache of its own."""
    context, name = client.context, training.name
    prefix = training.named("")
    state = RecordDict(
        {
            key.removeprefix(prefix): context.state[key]
            for key in context.state
            if key.startswith(prefix)
        }
    )
    own = Context(context.run_id, context.node_id, context.node_config, state, context.run_config)
    setup = client.setup.of_training(name)
    if training.without:
        return type(client)(client.source, own, setup)
    key = _drawing_key(client, int(config[SEED]))
    draw = Draw(key, training.replicate, type(client).distinct_rows)
    result = type(client)(client.resampled(draw), own, setup)
    result.draw = draw
    return result


def _drawing_key(client: CausalClient, seed: int) -> int:
    """Return a number that follows from the party's table, so that only the party knows it."""
    table = client.source.read()
    return client.once(f"drawing key {seed}", lambda: int(digest(table, f"rows {seed}"), 16))


def _commit(
    client: CausalClient,
    training: TrainingName,
    context: Context,
    sent: Sequence[tuple[Any, Array]],
) -> None:
    """Store what a training is to remember, behind its name in the node's state."""
    client.commit(sent)
    if training == MAIN:
        return
    for key, record in client.context.state.items():
        if key != SETUP:
            context.state[training.named(key)] = record


def _committed(client: CausalClient, kept: Mapping[str, ConfigRecord], content: RecordDict) -> None:
    """Keep what the party remembers of an answer that leaves."""
    client.commit()
    client.context.state.update(kept)


def _totals(client: CausalClient, message: Message) -> Answer:
    """Return the numbers that the party's report withholds, masked."""
    config: dict[str, Any] = records.config_of(message.content)
    number = config[records.NUMBER]
    door.asked(TOTALS, message.content, {})
    if number != TOTALS_NUMBER:
        raise door.RefusedError("the server's message does not ask for totals as servers do")
    setup, columns = client.setup, client.table().columns
    report = secure.own_report(
        client.context, columns, lambda: _described(client, setup.handling), private=client.private
    )
    vector = totals.vector_of(report, setup.summed)
    size, request = totals.size(setup.summed), door.question_of(TOTALS, message.content)
    content, kept = secure.masked(client.context, setup, TOTALS.name, number, vector, size, request)
    kept |= secure.totals_of(setup, report.rows)
    return Answer(content, leave=partial(_committed, client, kept))


def _unmasking(client: CausalClient, exchange: Exchange, message: Message) -> Answer:
    """Return the party's keys for the unmasking of its last sum, or its seals that confirm it."""
    context, sent = client.context, door.received(message.content, "uint8")
    number: Any = records.config_of(message.content)[records.NUMBER]
    sizes = door.asked(exchange, message.content, {})
    asked, survivors = (context, client.setup, number), sent["survivors"]
    if exchange is CONFIRMATION:
        seals, kept = secure.confirmed(*asked, survivors)
        returned = {"seals": seals}
    else:
        keys, kept = secure.unmasked(*asked, survivors, sent["shares"], sent.get("seals"))
        returned = {"keys": keys}
    content = door.outgoing(exchange, returned, sizes, weight=1, number=number)
    return Answer(content, leave=partial(_committed, client, kept))


def _replay(
    client: CausalClient,
    party: PartyDoor,
    requests: Sequence[Request],
    config: Mapping[str, Any],
) -> Answer:
    """Rebuild the client's memory by repeating earlier requests; send none of the replies."""
    common = {name: value for name, value in config.items() if name != "requests"}
    # Where the reply to an earlier attempt was lost, the memory is there already.
    context = client.context
    for key in [key for key in context.state if key.endswith(MEMORIES)]:
        context.state.pop(key)
    agreed = client.contract.sizes(client.setup, client.num_rows)
    for exchange, content in requests:
        earlier = type(client)(client.source, context, client.setup)
        door.asked(exchange, content, agreed)
        # What is remembered follows from the same cut points as what has left.
        _note_questions(client, party, exchange, content)
        for part in parts_of(exchange):
            own = earlier
            if part.training != MAIN:
                own = _in_training(earlier, part.training, records.config_of(content))
            _fit(own, part, exchange, content, common)
            _commit(own, part.training, context, ())
    number = config[records.NUMBER]
    answer = door.outgoing(REPLAY, {}, {}, weight=1, number=number)
    return Answer(answer, leave=partial(_committed, client, {}))


def _earlier(content: RecordDict) -> list[RecordDict]:
    """Return the earlier requests of a replay; a RefusedError if they cannot be read."""
    door.asked(REPLAY, content, {})
    archive = door.received(content, "uint8")["archive"]
    requests: Any = records.config_of(content).get("requests", "")
    try:
        return unpacked(archive, requests)
    except FederationError as error:
        raise door.RefusedError(str(error)) from None


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
