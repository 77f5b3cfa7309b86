"""Flower's client-side mods around a party's answers: what they return passes the party's door."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from flwr_causal.errors import FederationError
from flwr_causal.party.record import left
from flwr_causal.protocol import door, records
from flwr_causal.protocol.schema import PROBE, probe_returned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Answers a message.
    Handler: TypeAlias = Callable[[Message, Context], Message]
    #: As Flower knows them: called with the message, the context, and what answers next.
    Mod: TypeAlias = Callable[[Message, Context, Handler], Message]


def _nothing(content: RecordDict) -> None:
    """Remember nothing."""


@dataclass(frozen=True)
class Answer:
    """What a client answers, before the mods.

    Parameters
    ----------
    content : RecordDict
    accepted : callable, optional
        Raises a RefusedError where a content that the mods return may not leave. Default: mods may
        change nothing.
    leave : callable
        Called with what leaves, before it does: notes it, and keeps what the party remembers.
    """

    content: RecordDict
    accepted: Callable[[RecordDict], Any] | None = None
    leave: Callable[[RecordDict], None] = field(default=_nothing)


def through(
    mods: Sequence[Mod],
    message: Message,
    context: Context,
    answer: Callable[[Message, Context], Answer],
) -> Message:
    """Return the reply to a message that passes the mods on its way in and out.

    Raises
    ------
    FederationError
        If a mod refuses the message, answers it alone, or returns what may not leave.
    """
    answers: list[tuple[Answer, str]] = []

    def inner(message: Message, context: Context) -> Message:
        found = answer(message, context)
        # Mods change contents in place.
        answers.append((found, left(found.content)["digest"] if mods else ""))
        return Message(found.content, reply_to=message)

    call: Handler = inner
    for mod in reversed(mods):
        call = partial(_called, mod, call)
    reply = call(message, context)
    if reply.has_error():
        raise FederationError(f"A mod of the node's ClientApp refused it: {reply.error.reason}")
    if not answers:
        raise FederationError("A mod of the node's ClientApp answered in place of the client.")
    (found, digest) = answers[-1]
    if mods:
        try:
            if found.accepted is not None:
                found.accepted(reply.content)
            elif left(reply.content)["digest"] != digest:
                raise door.RefusedError("what is sent in this exchange may not be changed at all")
        except door.RefusedError as error:
            raise FederationError(
                f"A mod of the node's ClientApp changed the reply, which may not leave: {error}. "
                "Mods may change values of what an exchange declares, not its form: change the mod "
                "or take it out of client_app(mods=...)."
            ) from None
    found.leave(reply.content)
    return reply


def _called(mod: Mod, call_next: Handler, message: Message, context: Context) -> Message:
    return mod(message, context, call_next)


def probed(message: Message, content: RecordDict) -> RecordDict:
    """Return the content of a reply of the schema exchange with the probe that the server sent.

    Mods that clip expect in every message arrays, a norm, and the same arrays in the reply. The
    probe is theirs to clip; it follows from what was sent and says nothing of the party.
    """
    sent = message.content.get(records.ARRAYS)
    probe = sent.get(PROBE) if isinstance(sent, ArrayRecord) else None
    norm = records.config_of(message.content).get(records.CLIPPING_NORM)
    if probe is None or not isinstance(norm, float):
        return content
    returned = _returned(probe.dtype, tuple(probe.shape), probe.stype, probe.data, norm)
    if returned is not None:
        content[records.ARRAYS] = ArrayRecord({PROBE: returned})
        content[records.METRICS] = MetricRecord({})
    return content


@lru_cache(maxsize=8)
def _returned(
    dtype: str, shape: tuple[int, ...], stype: str, data: bytes, norm: float
) -> Array | None:
    """Return the probe as all parties return it, packed; None if the server sent none."""
    sent = RecordDict({records.ARRAYS: ArrayRecord({PROBE: Array(dtype, shape, stype, data)})})
    try:
        moved = probe_returned(door.received(sent)[PROBE], norm)
    except door.RefusedError:
        return None
    return None if moved is None else records.pack_arrays({PROBE: moved})[PROBE]


def accepted_report(report: ConfigRecord, content: RecordDict) -> None:
    """Refuse a report that the mods have changed beside the probe."""
    known = {records.CONFIG, records.ARRAYS, records.METRICS}
    own = content.get(records.CONFIG)
    if not set(content) <= known or own != report:
        raise door.RefusedError("the report on the table may not be changed")
    if not set(door.received(content)) <= {PROBE}:
        raise door.RefusedError("a report has no arrays")
