"""The exchange before training: which parties are connected, and what their tables hold."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import replace
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Message
from flwr.supercore import log

from flwr_causal.compat import own_run, raised_text
from flwr_causal.core.options import to_plain
from flwr_causal.core.words import (
    MOST_OF_PARTY,
    as_seen,
    by_reason,
    fault_of_name,
    nearest,
    printable,
)
from flwr_causal.data.check.agreement import not_used_in_words
from flwr_causal.data.check.checks import columns_of, unshared
from flwr_causal.data.check.report import TableReport
from flwr_causal.data.interventions import split_names
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.options import SmallCounts
from flwr_causal.protocol.schema import (
    PROBE,
    PROBE_NORM,
    is_clipped,
    node_name,
    own_version,
    probe,
    short_id,
)
from flwr_causal.protocol.setup import Setup, is_signature
from flwr_causal.protocol.terms import RunTerms, signed
from flwr_causal.runtime.federation import Federation, Party, grouped
from flwr_causal.secure.keys import is_public_key
from flwr_causal.secure.server import (
    agreed_keys,
    ask_totals,
    check_parties,
    check_targets,
    with_groups,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.serverapp import Grid

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.runtime.federation import Totals
    from flwr_causal.runtime.method import CausalMethod

POLL_SECONDS = 0.5
#: The mod of Flower's that also returns whether the reply was within the norm.
FIXED_MOD = "fixedclipping_mod"
ADAPTIVE_MOD = "adaptiveclipping_mod"


def exchange_schema(
    method: CausalMethod, grid: Grid, *, settle: float = 0.0
) -> tuple[Federation, Agreement, int]:
    """Ask every connected node for its schema and let the method agree on the columns.

    Options that the run leaves open ("auto") are asked as "fail". Where the reports then need a
    decision, the method takes it, and the nodes are asked again, as in a run whose options state
    what was decided.

    Parameters
    ----------
    method : CausalMethod
        Its handling is sent with the question; its ``agree`` checks the reports. Afterwards its
        ``decided`` has what was assumed.
    grid : Grid
    settle : float, default 0.0
        Seconds for which the number of connected nodes must stay the same before they are asked:
        nodes register one after the other.

    Returns
    -------
    federation : Federation
    agreement : Agreement
    num_bytes : int
        Sent and received in this exchange.

    Raises
    ------
    ConfigError
        If a node runs another version of flwr-causal.
    DataError
        If a party's data cannot be used, naming party, column and remedy.
    FederationError
        If too few nodes are connected within the round's timeout, or one does not answer.
    """
    method._decide({}, ())
    sizes: list[int] = []
    tried: list[dict[str, Any]] = [{}]
    while True:  # other options each time
        try:
            federation, agreement = _exchanged(method, grid, settle, sizes)
            break
        except (DataError, ConfigError) as error:
            decided = {**method._decided, **error.settings}
            if not error.assumed or decided in tried:
                if method._assumed:  # which the user has not stated
                    error.args = ("\n".join([*method._assumed, str(error)]),)
                raise
            method._decide(decided, (*method._assumed, *error.assumed))
            tried.append(decided)
            settle = 0.0
    log(
        INFO,
        "%d parties agree on %d columns, %d rows in all",
        len(federation.parties),
        len(agreement.names),
        agreement.n,
    )
    return federation, agreement, sum(sizes)


def _exchanged(
    method: CausalMethod, grid: Grid, settle: float, sizes: list[int]
) -> tuple[Federation, Agreement]:
    """Run the schema exchange with options that are decided; its bytes are added to ``sizes``."""
    first = {"names-only": 1} if _needs_names(method) else {}
    answers, failed, size = _present(method, grid, settle, **first)
    sizes.append(size)
    if failed:
        raise _unanswered(failed)
    dropped: dict[str, str] = {}
    if first:
        reports = _names_reported(answers)
    else:
        parties, reports, late = _reported(method, answers)
    _check_declared(method, reports)
    unused = _not_asked(method, reports) if first else _unused(method, reports)
    while first or unused:
        dropped |= unused
        columns = _chosen(method, reports)
        # Where no column is left, the reports on all of them say why.
        names = [name for name in columns if name not in unused] or columns
        nodes, first = [party.node_id for party, _ in answers], {}
        answers, failed, more = ask_schema(
            method, grid, nodes, method.options.round_timeout, columns=names
        )
        sizes.append(more)
        if failed:
            raise _unanswered(failed)
        parties, reports, late = _reported(method, answers)
        unused = _unused(method, reports)
    if method.options.groups != 1:
        parties = with_groups(method, parties)
    federation, agreement = agreed(method, parties, reports)
    if method.options.secure_aggregation and not method.options.withholds_totals:
        total, collected = ask_totals(method, grid, federation)
        sizes.append(collected.bytes_sent + collected.bytes_received + collected.setup_bytes)
        replied = {reply.party.name for reply in collected.replies}
        missing, failures = collected.without, federation.failures
        of_missing = {one.name for name in missing for one in federation.groups[name]}
        lost = [party.name for party in parties if party.name not in replied | of_missing]
        parties = [party for party in parties if party.name in replied]
        federation, agreement = agreed(method, parties, reports, total)
        federation.failures = failures
        if lost:
            late += (
                f"The run began without {', '.join(lost)}, which gave no reply in the exchange of "
                "totals. Sums of secure_aggregation never include a party that comes later.",
            )
        late += tuple(
            f"The run began without {name}, of which there are no totals: {reason}."
            for name, reason in missing.items()
        )
    lines = "\n".join(method._assumed)
    untold = {name: why for name, why in dropped.items() if repr(name) not in lines}
    for warning in (not_used := not_used_in_words(untold)):
        log(WARNING, warning)
    agreement = replace(
        agreement,
        dropped={**dropped, **agreement.dropped},
        warnings=(*late, *not_used, *agreement.warnings),
    )
    return federation, agreement


def _unanswered(failed: Mapping[int, str]) -> FederationError:
    """Return the error of nodes that did not answer, with the reasons."""
    return FederationError(
        "The schema exchange failed; training was not started. "
        + "; ".join(by_reason(dict(text.split(": ", 1) for text in failed.values())))
        + ". A node that was killed counts as connected for another minute."
    )


def _reported(
    method: CausalMethod, answers: list[tuple[Party, dict[str, Any]]]
) -> tuple[list[Party], dict[str, TableReport], tuple[str, ...]]:
    """Return the parties in their order, their reports by name, and warnings of their names."""
    answers.sort(key=_order)
    answers, late = _with_unique_names(method, answers)
    check_versions(answers)
    check_errors(answers, method)
    reports = {party.name: values["report"] for party, values in answers}
    _check_parts(reports)
    return [party for party, _ in answers], reports, late


def _needs_names(method: CausalMethod) -> bool:
    """Return whether the names of columns are asked for first, since some are not used."""
    handling = method.handling
    some = handling.unshared_columns == "drop" or handling.chooses_columns
    return some and not method.options.private and method._schema_options.chooses_columns(handling)


def _not_asked(method: CausalMethod, reports: Mapping[str, TableReport]) -> dict[str, str]:
    """Return the columns that parties do not report on, and why."""
    handling = method.handling
    lacked = unshared(reports) if handling.unshared_columns == "drop" else {}
    roles = method.options.role_columns
    named = [*split_names(handling.columns), *handling.added, *roles]
    only = named if handling.columns else None
    others = () if only is None else [name for name in columns_of(reports) if name not in only]
    return (
        lacked
        | dict.fromkeys(others, "the option 'columns' does not name it")
        | dict.fromkeys(split_names(handling.exclude), "the option 'exclude' names it")
    )


def _names_reported(answers: list[tuple[Party, dict[str, Any]]]) -> dict[str, TableReport]:
    """Return the reports on names of columns, by party."""
    answers.sort(key=_order)
    check_versions(answers)
    check_errors(answers)
    several = Counter(party.name for party, _ in answers)
    return {
        party.name if several[party.name] == 1 else f"{party.name} ({short_id(party.node_id)})": (
            values["report"]
        )
        for party, values in answers
    }


def _order(answer: tuple[Party, Any]) -> tuple[int, str, int]:
    """Return the key of the parties' order. Node ids, which are random in each run, come last."""
    party = answer[0]
    return party.partition_id, party.name, party.node_id


def _check_declared(method: CausalMethod, reports: Mapping[str, TableReport]) -> None:
    """Raise a ConfigError if an option declares a column that no party has."""
    entries = method.handling.entries
    listed = () if entries is None else [one.name for one in entries.columns]
    known = {*columns_of(reports), *method.options.role_columns, *listed}
    for option in ("categories", "numbers", "exclude", "columns"):
        for name in split_names(getattr(method.handling, option)):
            if name not in known:
                near = nearest(name, known)
                hint = f"write {near!r}" if near else "correct the name"
                raise ConfigError(
                    f"The option {option!r} names the column {name!r}, which no party has: {hint}, "
                    "or leave it out."
                )


def _chosen(method: CausalMethod, reports: Mapping[str, TableReport]) -> list[str]:
    """Return the columns that ``columns`` and ``exclude`` leave; a ConfigError if none is."""
    handling, roles = method.handling, method.options.role_columns
    excluded = split_names(handling.exclude)
    held = columns_of(reports)
    names = [
        name for name in held if handling.chooses(name) or (name in roles and name not in excluded)
    ]
    if handling.chooses_columns and not any(name not in roles for name in names):
        option = "columns" if handling.columns else "exclude"
        which = "no column" if handling.columns else "all columns"
        raise ConfigError(f"The option '{option}' names {which} of the tables: name others.")
    return names


def _unused(method: CausalMethod, reports: Mapping[str, TableReport]) -> dict[str, str]:
    """Return the columns that are not used although their gaps have cost rows, and why."""
    if not columns_asked(method, reports):
        return {}
    return {
        name: why
        for name, why in method.agree(reports).dropped.items()
        if method.handling.text_columns != "drop"
        or any(column.is_number for column in columns_of(reports)[name].values())
    }


def columns_asked(method: CausalMethod, reports: Mapping[str, TableReport]) -> dict[str, list[str]]:
    """Return the values on columns that a schema question has, given the parties' reports."""
    if method.options.private or not method._schema_options.chooses_columns(method.handling):
        return {}
    return {"columns": [*columns_of(reports)]}


def _present(
    method: CausalMethod, grid: Grid, settle: float, **further: records.Value
) -> tuple[list[tuple[Party, dict[str, Any]]], dict[int, str], int]:
    """Wait for enough nodes, and ask them for their schema, see :func:`ask_schema`.

    With ``expected_parties`` these parties are waited for by name; other nodes take no part.

    Raises
    ------
    FederationError
        If too few nodes are connected within the round's timeout, or a party is missing.
    """
    timeout = method.options.round_timeout
    text = method.options.expected_parties
    expected = [name for part in text.split(",") if (name := part.strip())]
    if not expected:
        node_ids = _connected(grid, method.options.min_available_nodes, settle, timeout)
        return ask_schema(method, grid, node_ids, timeout, **further)
    deadline = time.monotonic() + timeout
    answers: dict[int, tuple[Party, dict[str, Any]]] = {}
    size, said = 0, ""
    while True:
        connected = sorted(grid.get_node_ids())
        answers = {node_id: answers[node_id] for node_id in answers if node_id in connected}
        new = [node_id for node_id in connected if node_id not in answers]
        if new:
            found, failed, more = ask_schema(method, grid, new, timeout, **further)
            answers |= {party.node_id: (party, values) for party, values in found}
            size += more
            if failed:
                return list(answers.values()), failed, size
        here = [party.name for party, _ in answers.values()]
        missing = [name for name in expected if name not in here]
        if not missing:
            break
        state = f"{', '.join(missing)}; connected: {', '.join(sorted(here)) or 'none'}"
        if time.monotonic() > deadline:
            raise FederationError(
                f"Parties that the option 'expected_parties' names are missing after {timeout:g} "
                f"s: {state}. Start their SuperNodes under these names, or change the option."
            )
        if state != said:
            log(INFO, "Waiting for %s", state)
            said = state
        time.sleep(POLL_SECONDS)
    for party, _ in answers.values():
        if party.name not in expected:
            log(WARNING, "%s is connected and takes no part: it is not expected", party.name)
    return [one for one in answers.values() if one[0].name in expected], {}, size


def agreed(
    method: CausalMethod,
    parties: Sequence[Party],
    reports: Mapping[str, TableReport],
    total: Totals | None = None,
) -> tuple[Federation, Agreement]:
    """Let the method agree on the columns of some parties.

    Parameters
    ----------
    method : CausalMethod
    parties : sequence of Party
        In their order.
    reports : mapping of str to TableReport
        By name; of other parties they are not used.
    total : Totals, optional
        With secure aggregation, the reports on rows of parties together; without them the
        agreement has no numbers.

    Raises
    ------
    ConfigError
        If there are too few parties for secure aggregation.
    DataError
        If the parties' data cannot be used together.
    """
    own = {party.name: reports[party.name] for party in parties}
    if method.options.secure_aggregation:
        check_parties(method, parties)
    agreement = method.agree(own)
    method._columns_differ = agreement.columns_differ
    agreement = replace(agreement, warnings=(*method._assumed, *agreement.warnings))
    if total is not None:
        groups = grouped(parties)
        agreement = method._complete(
            agreement,
            total.all,
            {name: total.groups[group[0].group] for name, group in groups.items()},
        )
        agreement = replace(
            agreement,
            groups={name: tuple(one.name for one in group) for name, group in groups.items()},
        )
        for group in groups.values() or [parties]:
            check_targets(agreement.targets, {one.name: own[one.name] for one in group})
    if total is not None or not method.options.secure_aggregation:
        for warning in agreement.warnings:
            log(WARNING, warning)
    sums = any(report.has_sums for report in (*own.values(), *([total.all] if total else [])))
    keys = method.options.secure_aggregation or method._columns_differ
    setup = Setup(
        names=agreement.names,
        num_rows=agreement.n,
        num_clients=len(parties),
        mean=agreement.mean if sums else np.zeros(0),
        variance=agreement.variance if sums else np.zeros(0),
        handling=method.handling,
        precision=method.options.precision,
        small=SmallCounts(method.options.minimum_count, method.options.small_counts),
        options=method._agreed_options(agreement),
        exchange=secrets.token_hex(8),
        states=agreement.states,
        targets=agreement.targets,
        **(agreed_keys(method, parties) if keys else {}),
        **_terms(method),
    )
    rows = agreement.rows
    with_rows = tuple(replace(one, num_rows=rows.get(one.name, 0)) for one in parties)
    federation = Federation(with_rows, own, setup, method.contract, len(parties), total=total)
    return federation, agreement


def ask_schema(
    method: CausalMethod,
    grid: Grid,
    node_ids: Sequence[int],
    timeout: float,
    **further: records.Value,
) -> tuple[list[tuple[Party, dict[str, Any]]], dict[int, str], int]:
    """Ask nodes for their schema; a node that fails or whose answer is refused is asked again once.

    Parameters
    ----------
    method : CausalMethod
    grid : Grid
    node_ids : sequence of int
    timeout : float
        Seconds to wait in each attempt.
    **further
        Further plain values of the question.

    Returns
    -------
    answers : list of (Party, dict)
        A party, and its ``report``, or the ``error`` of its table; with its ``version`` of
        flwr-causal.
    failed : dict of int to str
        By node without an accepted answer, the reason.
    num_bytes : int
        Sent and received.
    """
    handling = method.handling
    rules = {f"policy-{name}": value for name, value in to_plain(handling).items()}
    options = {f"option-{name}": value for name, value in to_plain(method._schema_options).items()}
    secure = {"secure-aggregation": 1} if method.options.secure_aggregation else {}
    if method.options.joins_columns:
        secure["pair-keys"] = 1
    values = {"method": method.method, **secure, **_terms(method), **rules, **options, **further}
    norm = method._clipping_norm or PROBE_NORM
    question = records.message_content(
        records.pack_arrays({PROBE: probe()}), {records.CLIPPING_NORM: norm, **values}
    )
    answers: dict[int, tuple[Party, dict[str, Any]]] = {}
    waiting, failed, size = list(node_ids), {}, 0
    for _ in range(2):
        messages = [
            Message(
                content=question,
                dst_node_id=node_id,
                message_type="query.schema",
                ttl=timeout,
                group_id="schema",
            )
            for node_id in waiting
        ]
        failed = {node_id: f"{node_name(node_id)}: no answer" for node_id in waiting}
        size += len(messages) * records.num_bytes(question)
        for reply in grid.send_and_receive(messages, timeout=timeout):
            node_id = reply.metadata.src_node_id
            if node_id not in failed or node_id in answers:
                continue  # delivered twice
            if reply.has_error():
                reason = printable(raised_text(reply.error.reason))
                failed[node_id] = f"{node_name(node_id)}: {reason}"
                continue
            size += records.reply_bytes(reply)
            try:
                answers[node_id] = _answer(
                    method, handling, reply, names_only="names-only" in further
                )
            except door.RefusedError as error:
                failed[node_id] = printable(str(error))
        waiting = [node_id for node_id in waiting if node_id not in answers]
        if not waiting:
            break
    return list(answers.values()), {node_id: failed[node_id] for node_id in waiting}, size


def _terms(method: CausalMethod) -> dict[str, Any]:
    """Return the terms of the run, which the parties' policies judge, and their signature."""
    # A path of the server says nothing to a party, and the digest everything.
    entries = method._entries
    dictionary = {"dictionary": None if entries is None else entries.digest}
    terms = RunTerms.of(method.method, method.options.asked() | dictionary).to_text()
    key = method.options.signing_key
    return {"terms": terms, "signature": signed(terms, own_run(), key) if key else ""}


def _answer(
    method: CausalMethod, handling: Handling, reply: Message, *, names_only: bool
) -> tuple[Party, dict[str, Any]]:
    """Return a party and its report; raise a RefusedError for undeclared entries."""
    node_id = reply.metadata.src_node_id
    values: dict[str, Any] = records.config_of(reply.content)
    # Error and version as they may be shown; the report has its checks.
    words = {key: values.get(key) for key in ("error", "version")}
    values |= {key: printable(one) for key, one in words.items() if isinstance(one, str)}
    name, partition = values.pop("party", None), values.pop("partition-id", None)
    key, signature = (values.pop(name, "") for name in ("public-key", "signature"))
    named = isinstance(name, str) and not fault_of_name(name, MOST_OF_PARTY)
    party = str(name) if named else node_name(node_id)
    try:
        if not named or not isinstance(partition, int):
            raise door.RefusedError("it lacks the party's name, in the form of names, or number")
        if not set(door.received(reply.content)) <= {PROBE}:
            raise door.RefusedError("it holds arrays, which no report has")
        if not isinstance(values.get("version"), str):
            raise door.RefusedError("it lacks the version of flwr-causal")
        if not ((key == "" or is_public_key(key)) and (signature == "" or is_signature(signature))):
            raise door.RefusedError("its public key, or the signature of the key, is none")
        contract = values.pop("contract", None)
        same = is_another(values["version"]) or contract == method.contract.digest
        if not (same or isinstance(values.get("error"), str)):
            values["version"] += f" with another contract of '{method.method}'"
        if is_another(values["version"]):
            return Party(node_id, party, partition), {"version": values["version"]}
        if not isinstance(values.get("error"), str):
            door.reported(values, method.contract.parts(handling), handling.max_states)
            report = TableReport.from_dict(values)
            withheld = (
                names_only or method.options.secure_aggregation or method.options.withholds_totals
            )
            if report.withheld is not withheld:
                raise door.RefusedError(
                    "it withholds its numbers"
                    if report.withheld
                    else "it does not withhold its numbers, as the run's options ask"
                )
            if method._clipping_norm:
                _check_clips(method, reply, party)
            values = {"version": values["version"], "report": report}
    except (door.RefusedError, DataError) as error:
        raise door.RefusedError(
            f"{party}: its answer was refused: {error}. Do all nodes run the same version of "
            "flwr-causal?"
        ) from None
    return Party(node_id, party, partition, public_key=key, signature=signature), values


def _check_clips(method: CausalMethod, reply: Message, party: str) -> None:
    """Refuse a party whose mod does not clip what Flower's client-side wrapper takes as clipped.

    Raises
    ------
    ConfigError
        Naming the party, the mod and what may be used instead.
    """
    # In the start of a wrapper, which kind it is cannot be told; Flower asks for the norm bit.
    mod = method._clipping_mod or FIXED_MOD
    kind = "Adaptive" if mod == ADAPTIVE_MOD else "Fixed"
    tells = records.has_norm_bit(reply.content)
    returned = door.received(reply.content).get(PROBE)
    if is_clipped(returned, method._clipping_norm) and (tells or mod != ADAPTIVE_MOD):
        return
    raise ConfigError(
        f"{party} does not clip its replies as the privacy wrapper takes for granted; training was "
        f"not started. Give the mod to its app, client_app(..., mods=[{mod}]) with "
        f"from flwr.clientapp.mod import {mod}; or use DifferentialPrivacyServerSide{kind}Clipping "
        "with the same arguments: it clips each reply before the mean, and adds the same noise."
    )


def _connected(grid: Grid, minimum: int, settle: float, timeout: float) -> list[int]:
    """Wait until enough nodes are connected and their number has been stable for ``settle`` s."""
    deadline = time.monotonic() + timeout
    node_ids = sorted(grid.get_node_ids())
    stable_since = time.monotonic()
    said = -1
    while len(node_ids) < minimum or time.monotonic() - stable_since < settle:
        if time.monotonic() > deadline:
            raise FederationError(
                f"Only {len(node_ids)} of the {minimum} nodes that 'min_available_nodes' asks for "
                f"connected within {timeout:g} s. Start more SuperNodes, or lower the option. With "
                "the option 'expected_parties' the log names those that are missing."
            )
        if len(node_ids) < minimum and len(node_ids) != said:
            said = len(node_ids)
            log(INFO, "Waiting for nodes: %d of %d are connected", said, minimum)
        time.sleep(POLL_SECONDS)
        now = sorted(grid.get_node_ids())
        if now != node_ids:
            node_ids, stable_since = now, time.monotonic()
    return node_ids


def _with_unique_names(
    method: CausalMethod, answers: list[tuple[Party, dict[str, Any]]]
) -> tuple[list[tuple[Party, dict[str, Any]]], tuple[str, ...]]:
    """Add the node id to names that several nodes have, and return a warning of each such name.

    Names that differ in case, blanks or their form of Unicode are one name.

    Raises
    ------
    FederationError
        If nodes of one name report the same: the rows of one party would count twice. If a name has
        to tell who takes part, as ``expected_parties`` names parties, a column has their names, or
        keys are signed. If the
        parties withhold their numbers, so that two reports on one table cannot be told.
    """
    withheld = method.options.secure_aggregation or method.options.withholds_totals
    nodes: dict[str, list[Party]] = {}
    for party, _ in answers:
        nodes.setdefault(as_seen(party.name), []).append(party)
    # Of names that a reader cannot tell apart each is told.
    several = {
        " or ".join(dict.fromkeys(one.name for one in own)): own
        for own in nodes.values()
        if len(own) > 1
    }
    alike = {party.node_id for own in several.values() for party in own}
    for name, own in several.items():
        # Simulated parties of other numbers have other tables, which may be equal.
        nodes_of_name = {party.node_id for party in own}
        reports = [
            repr((party.partition_id, sorted(values.items())))
            for party, values in answers
            if party.node_id in nodes_of_name and "error" not in values
        ]
        text = f"{name} is connected twice, as the nodes {_listed(own)}"
        remedy = (
            "training was not started. End one of its SuperNodes. Two parties need different names "
            "in their nodes' config."
        )
        if not withheld and len(set(reports)) < len(reports):
            raise FederationError(f"{text} with the same table; {remedy}")
        told_apart = method.options.expected_parties or method.handling.party_column
        if withheld or told_apart or any(one.signature for one in own):
            raise FederationError(f"{text}; {remedy}")
    unique = [
        (replace(party, name=f"{party.name} ({short_id(party.node_id)})"), values)
        if party.node_id in alike
        else (party, values)
        for party, values in answers
    ]
    if len({party.name for party, _ in unique}) < len(unique):
        raise FederationError(
            f"A node has the name of another one with its number, as {', '.join(several)} are told "
            "apart; training was not started. Give each node a name of its own in its config."
        )
    warnings = tuple(
        f"The nodes {_listed(own)} have one name, {name}: results name them by node, and after a "
        "restart they are not found again. Give each party's node a name of its own in its config; "
        "if both nodes are one party's, end one of them."
        for name, own in several.items()
    )
    for warning in warnings:
        log(WARNING, warning)
    return unique, warnings


def _listed(nodes: Sequence[Party]) -> str:
    """Return the nodes of one name as text."""
    *first, last = (short_id(node.node_id) for node in nodes)
    return f"{', '.join(first)} and {last}"


def is_another(version: str) -> bool:
    """Return whether a version is not this one: the contracts of two versions may differ."""
    return version != own_version()


def check_versions(answers: Sequence[tuple[Party, dict[str, Any]]]) -> None:
    """Take the versions out of the answers.

    Raises
    ------
    ConfigError
        Naming the parties whose versions are not the server's.
    """
    own, versions = own_version(), {}
    for party, values in answers:
        versions[party.name] = values.pop("version")
    differ = {name: version for name, version in versions.items() if is_another(version)}
    if differ:
        text = ", ".join(f"{name} has {version}" for name, version in differ.items())
        raise ConfigError(
            f"The parties' versions of flwr-causal are not the server's, {own}; training was not "
            f"started: {text}. Install the same version, also of the method's package, on all "
            "machines."
        )


def _check_parts(reports: Mapping[str, TableReport]) -> None:
    """Check that all parties report sums, states and relations, or none of them does.

    Raises
    ------
    FederationError
        Naming the parties.
    """
    for part in ("sums", "states", "relations"):
        given = {name: bool(getattr(report, f"has_{part}")) for name, report in reports.items()}
        if len(set(given.values())) > 1:
            which = [
                ", ".join(name for name in given if given[name] is one) for one in (True, False)
            ]
            raise FederationError(
                f"The schema exchange failed; training was not started. {which[0]} reported {part} "
                f"of the columns, {which[1]} did not. Install the same version of flwr-causal on "
                "all machines."
            )


def check_errors(
    answers: Sequence[tuple[Party, dict[str, Any]]], method: CausalMethod | None = None
) -> None:
    """Check that all parties can use their tables; a DataError names those that cannot.

    If they lack values alone, the error has what the method assumes of them.
    """
    errors = {party.name: values for party, values in answers if "error" in values}
    if not errors:
        return
    listed = "\n".join(by_reason({name: values["error"] for name, values in errors.items()}))
    error = DataError(f"Some parties cannot take part; training was not started.\n{listed}")
    if method is not None and all(values.get("incomplete") == 1 for values in errors.values()):
        mended = method._mended(errors)
        if mended.assumed:
            error.settings, error.assumed = mended.settings, mended.assumed
    raise error
