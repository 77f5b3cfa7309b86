"""The party's side of secure sums: its key, the masks of its replies, and what it never does twice.

The key is made in the schema exchange and kept in the node's state; it never leaves the party, and
a restarted node has lost it. A party answers an exchange again only with the same bytes: two
vectors under one mask would reveal their difference.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord

from flwr_causal.clients.base import cached
from flwr_causal.data.check.checks import own_problems
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import door
from flwr_causal.protocol.secure.keys import new_private_key, pair_keys, public_key
from flwr_causal.protocol.secure.masks import mask

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from flwr.app import Context, RecordDict
    from numpy.typing import NDArray

    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.setup import Setup

#: The key of the node config by which a party insists on secure sums.
NODE_KEY = "secure-aggregation"
#: The record in the node's state.
SECURE = "secure-sums"


def check_demand(context: Context, *, met: bool) -> None:
    """Check that a run has secure sums where the node's configuration asks for them.

    Raises
    ------
    ConfigError
        If it has none; nothing of the party's table leaves it.
    """
    if context.node_config.get(NODE_KEY) in (True, 1, "true") and not met:
        raise ConfigError(
            f"Its node config has {NODE_KEY}=true, and this run adds nothing up securely: set the "
            "option 'secure_aggregation', or take the key out of the node config."
        )


def offer_key(state: RecordDict, *, running: bool) -> str:
    """Return the party's public key as hexadecimal digits; make the pair of keys if necessary.

    Parameters
    ----------
    state : RecordDict
        Of the node.
    running : bool
        Whether the question comes from the run that the node takes part in. Another run, and one
        that starts over, gets a new key.
    """
    record = state.get(SECURE)
    if not isinstance(record, ConfigRecord) or (record["runs"] and not running):
        state[SECURE] = record = ConfigRecord(
            {"key": new_private_key(), "keys": "", "runs": "", "number": -1, "digest": ""}
        )
    return public_key(_private(record)).hex()


def own_report(context: Context, describe: Callable[[], TableReport]) -> TableReport:
    """Return the party's report with its numbers; it is computed once for each key and process."""
    own = public_key(_private(_record(context.state))).hex()
    return cached(context, f"report {own}", describe)


def withheld(report: TableReport, policy: Policy, party: str) -> TableReport:
    """Return a report without its numbers, which the party has checked itself.

    Raises
    ------
    DataError
        If the table has problems that the server can no longer find.
    """
    problems = own_problems(party, report, policy)
    if problems:
        raise DataError("; ".join(problems))
    return report.without_numbers()


def masked(
    context: Context, setup: Setup, exchange: str, number: int, vector: NDArray[np.uint64]
) -> tuple[RecordDict, dict[str, ConfigRecord]]:
    """Return a reply that holds a vector under the party's mask, and what to keep of it.

    Parameters
    ----------
    context : Context
        Of the node; not changed.
    setup : Setup
    exchange : str
    number : int
        Of the exchange.
    vector : ndarray of uint64
        What the party adds to the sum.

    Returns
    -------
    content : RecordDict
    kept : dict of str to ConfigRecord
        For the node's state, once the reply is complete.

    Raises
    ------
    FederationError
        If the party has no key, the keys of the parties cannot be used, or the exchange was
        answered before with another vector.
    """
    private = _private(_record(context.state))
    keys = [bytes.fromhex(key) for key in setup.keys]
    # A key exchange with each party takes longer than the masks of many exchanges.
    name = f"keys {public_key(private).hex()} {_hashed(*keys)}"
    pairs = cached(context, name, lambda: pair_keys(private, keys))
    words = vector + mask(pairs, f"{setup.exchange} {exchange} {number}".encode(), len(vector))
    kept = answered(context.state, setup, number, words.tobytes())
    return door.masked(words, number), {SECURE: kept}


def answered(state: RecordDict, setup: Setup, number: int, vector: bytes) -> ConfigRecord:
    """Return what to keep about a masked vector that is about to leave the party.

    Parameters
    ----------
    state : RecordDict
        Of the node; not changed.
    setup : Setup
    number : int
        Of the exchange.
    vector : bytes
        The masked vector.

    Raises
    ------
    FederationError
        If the exchange was answered before with another vector, a later one was, or the parties'
        keys are not those of the exchanges before.
    """
    record = _record(state)
    keys, digest = _hashed(*map(str.encode, setup.keys)), _hashed(vector)
    if record["keys"] not in ("", keys):
        raise FederationError("The parties' keys are not those of the first secure sum of the run.")
    runs = str(record["runs"]).split()
    if setup.exchange in runs[:-1]:
        raise FederationError("The message belongs to an earlier agreement: it came too late.")
    if setup.exchange in runs:
        last = record["number"]
        assert isinstance(last, int)
        if number < last:
            raise FederationError(
                f"The message of exchange {number} came after that of exchange {last}; it was "
                "ignored."
            )
        if number == last and digest != record["digest"]:
            raise FederationError(
                f"Exchange {number} was answered before, with other numbers. Two replies under one "
                "mask would reveal their difference: start the run again."
            )
    else:
        runs.append(setup.exchange)
    kept: dict[str, Any] = {"keys": keys, "runs": " ".join(runs), "number": number}
    return ConfigRecord({**record, **kept, "digest": digest})


def _record(state: RecordDict) -> ConfigRecord:
    record = state.get(SECURE)
    if not isinstance(record, ConfigRecord):
        raise FederationError(
            "This party has no key for secure sums: its node was restarted and has lost it. Start "
            "the run again."
        )
    return record


def _private(record: ConfigRecord) -> bytes:
    key = record["key"]
    assert isinstance(key, bytes)
    return key


def _hashed(*parts: bytes) -> str:
    """Return a digest of parts of one length each."""
    return hashlib.blake2b(b"".join(parts), digest_size=32).hexdigest()
