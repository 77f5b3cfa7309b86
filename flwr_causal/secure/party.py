"""The party's side of secure sums: its key, the masks of its replies, and what it never does twice.

The key is made in the schema exchange and kept in the node's state; it never leaves the party, and
a restarted node has lost it. A party answers an exchange again only with the same bytes: two
vectors under one mask would reveal their difference. Each mask is bound to all that determines the
vector and that all parties know: the run, the agreement, the exchange and what it sends. A party
answers under one agreement of a name, and none again that it has left. It helps to unmask each sum
once, for one set of parties.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from logging import WARNING
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord
from flwr.supercore import log

from flwr_causal.core.words import some
from flwr_causal.errors import AskedOtherwiseError, DataError, FederationError
from flwr_causal.party.cache import cached
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.protocol import door
from flwr_causal.protocol.setup import check_number, check_token
from flwr_causal.secure.keys import (
    KEY_BYTES,
    new_private_key,
    pair_keys,
    place_of,
    public_key,
)
from flwr_causal.secure.masks import Circle, circle_of, mask_key, mask_keys, streams
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.signatures import (
    check_peers,
    read_peers,
    signed_key,
)
from flwr_causal.secure.totals import TOTALS_NUMBER
from flwr_causal.secure.unmasking import (
    decrypted,
    encrypted,
    new_seed,
    own_key,
    polynomial,
    seal_of,
    shares_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from flwr.app import Context, RecordDict
    from numpy.typing import NDArray

    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.secure.keys import PairKey
    from flwr_causal.secure.ring import Size

#: The records in the node's state: of the key and secure sums, and of the party's masked table.
SECURE, TABLES, TOTALS_SENT = "secure-sums", "masked-tables", "totals-sent"
# What it holds beside the key: the names and digests of the agreements that the party has seen,
# in their order; and of the last masked reply its agreement's name, the parties' keys and what else
# it was for.
_UNUSED: dict[str, Any] = {
    "tokens": [],
    "agreements": [],
    "token": "",
    "keys": "",
    "heirs": "",
    "least": 0,
    "number": -1,
    "digest": "",
    "purpose": b"",
    "seed": b"",
}
_LAST = ("token", "keys", "least", "number")
_OTHER_TABLE = "The plan, or the order of rows, is not that of the masked table."
_OTHER_PARTIES = "The unmasking is not that of the parties that have agreed."
_NEVER_UNMASKED = {"unmasked-run": "", "unmasked": -1, "survivors": b""}


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
    found = state.get(SECURE)
    record: dict[str, Any] = dict(found) if isinstance(found, ConfigRecord) else {}
    if not record or (record["tokens"] and not running):
        # The latest unmasking is remembered in a later run, too, which may resume the one before.
        record = {**_NEVER_UNMASKED, **record, **_UNUSED, "key": new_private_key()}
        state[SECURE] = ConfigRecord(record)
    return public_key(record["key"]).hex()


def offered(context: Context, party: str, *, running: bool) -> dict[str, str]:
    """Return the party's public key for its report, signed where its node config says so."""
    key = offer_key(context.state, running=running)
    file = NodeConfig.of(context.node_config).sums_key
    if file is None:
        return {"public-key": key}
    return {"public-key": key, "signature": signed_key(key, party, context.run_id, str(file))}


def own_report(
    context: Context,
    columns: Iterable[object],
    describe: Callable[[], TableReport],
    *,
    private: bool,
) -> TableReport:
    """Return the party's report with its numbers.

    It is computed once for each key, set of columns and process.
    """
    own = public_key(_record(context.state)["key"]).hex()
    names = json.dumps([str(name) for name in columns])
    # That of a private run is another one.
    return cached(context, f"report {own} {private} {names}", describe)


def totals_of(setup: Setup, rows: int) -> dict[str, ConfigRecord]:
    """Return what a party keeps of the totals that it has sent: columns and number of rows."""
    return {TOTALS_SENT: ConfigRecord({"names": [*setup.names], "rows": rows})}


def check_rows(context: Context, names: Collection[str], rows: int) -> None:
    """Raise a DataError if the rows are not those of the totals.

    That a column has one value at all parties follows from the totals, after the rows that lack it
    were left out of them. Other totals, of all rows, would tell the server what these rows hold.
    """
    sent: Any = context.state.get(TOTALS_SENT)
    if sent is None or sent["rows"] == rows:
        return
    unused = [name for name in sent["names"] if name not in names]
    raise DataError(
        f"column {some(map(repr, unused))}: it is not used, as it has one value at all parties, "
        "and the totals lack the rows in which it has none; take it out of the tables"
    )


def withheld(report: TableReport, handling: Handling, party: str) -> TableReport:
    """Return a report without its numbers, which the party has checked itself.

    What it finds implausible it logs.

    Raises
    ------
    DataError
        If the table has problems that the server can no longer find.
    """
    # Imported here: other runs, and the later messages of this one, need neither.
    from flwr_causal.data.check.checks import check_own
    from flwr_causal.doubts.tables import own_doubts

    check_own(party, report, handling)
    for doubt in own_doubts(party, report):
        log(WARNING, "%s", doubt)
    # The rows of infinite values are left out then.
    return report.without_numbers(infinite=handling.missing_values != "drop")


def masked(
    context: Context,
    setup: Setup,
    exchange: str,
    number: int,
    vector: NDArray[np.uint64],
    size: Size,
    request: bytes = b"",
) -> tuple[RecordDict, dict[str, ConfigRecord]]:
    """Return a reply that holds a vector under the party's masks, and its record to keep.

    Parameters
    ----------
    context : Context
        Of the node; not changed.
    setup : Setup
    exchange : str
    number : int
        Of the exchange.
    vector : ndarray of uint64, shape (words,)
        What the party adds to the sum.
    size : Size
        Its words.
    request : bytes, optional
        The digest of what all parties are sent alike.

    Returns
    -------
    content : RecordDict
    kept : dict of str to ConfigRecord
        For the node's state, once the reply is complete.

    Raises
    ------
    FederationError
        If the party has no key, the keys of the parties cannot be used, the agreement has no
        proper name, or the exchange was answered before with another vector.
    """
    check_number(number)
    record = _record(context.state)
    sums = Sums.of(record, setup)
    record = _under(record, sums.token, sums.agreement)
    own = _Neighbours.of(context, record, setup, sums)
    about = (context.run_id, sums.agreement, sums.group, exchange, number, size, request)
    purpose = purpose_of("secure sum", *about)
    keys = mask_keys(own.pairs.values(), purpose)
    # The same question has the same answer, and another one has never the same mask.
    seed = record["seed"] if record["purpose"] == purpose else new_seed()
    boxes = np.zeros(0, dtype=np.uint64)
    if not own.circle.all_must_reply:
        coefficients = polynomial(seed, own.circle.shares)
        keys.append((own_key(coefficients), 1))
        boxes = own.boxes(coefficients, purpose)
    words = np.concatenate([streams(keys, size, vector), boxes])
    kept = answered(record, sums, number, words.tobytes())
    kept |= {"purpose": purpose, "seed": seed}
    return door.masked(words, number), {SECURE: ConfigRecord(kept)}


def confirmed(
    context: Context, setup: Setup, number: int, survivors: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], dict[str, ConfigRecord]]:
    """Return the seals by which a party confirms to the others who is in a sum, and what to keep.

    Parameters
    ----------
    context, setup, number, survivors
        As of :func:`unmasked`.

    Returns
    -------
    seals : ndarray of uint8, shape (parties, 32)
        By the other party; 0 for the party itself and for those that are not in the sum.
    kept : dict of str to ConfigRecord
        For the node's state, once the reply is complete.

    Raises
    ------
    FederationError
        As :func:`unmasked`, but for altered shares.
    """
    own, record, survivors = _unmaskable(context, setup, number, survivors)
    everyone, seals = own.everyone(), np.zeros((len(own.keys), KEY_BYTES), dtype=np.uint8)
    for place in np.flatnonzero(survivors).tolist():
        if place != own.place:
            seals[place] = seal_of(
                everyone[place], record["purpose"], own.keys[own.place], survivors
            )
    return seals, {SECURE: ConfigRecord(record)}


def unmasked(
    context: Context,
    setup: Setup,
    number: int,
    survivors: NDArray[np.uint8],
    boxes: NDArray[np.uint8],
    seals: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.uint8], dict[str, ConfigRecord]]:
    """Return a party's help to unmask a sum, once a sum, and its record to keep.

    Parameters
    ----------
    context : Context
        Of the node; not changed.
    setup : Setup
    number : int
        Of the exchange.
    survivors : ndarray of uint8, shape (parties,)
        1 for each party whose vector is in the sum, else 0.
    boxes : ndarray of uint8, shape (holders, 48)
        By neighbour, the encrypted share of its seed, where its vector is in the sum.
    seals : ndarray of uint8, shape (parties, 32), optional
        By party, how it has confirmed who is in the sum; needed where a party is missing.

    Returns
    -------
    keys : ndarray of uint8, shape (holders, 32)
        By neighbour, and for the party itself: the share of its seed where its vector is in the
        sum, else the key of the mask of the two in this sum.
    kept : dict of str to ConfigRecord
        For the node's state, once the reply is complete.

    Raises
    ------
    FederationError
        If the sum is not the last one that the party has answered, it was unmasked before for
        other parties, too few are in it or have confirmed it, or a share was altered.
    """
    own, record, survivors = _unmaskable(context, setup, number, survivors)
    purpose = record["purpose"]
    if len(boxes) != len(own.holders):
        raise FederationError(_OTHER_PARTIES)
    own.check_confirmed(survivors, purpose, seals)
    coefficients = polynomial(record["seed"], own.circle.shares)
    keys = []
    for place, box in zip(own.holders, boxes, strict=True):
        if place == own.place:
            keys.append(shares_for(coefficients, [place])[place])
        elif survivors[place]:
            keys.append(decrypted(box.tobytes(), own.pairs[place], purpose, own.keys[place]))
        else:
            keys.append(mask_key(own.pairs[place], purpose))
    table = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
    return table, {SECURE: ConfigRecord(record)}


def _unmaskable(
    context: Context, setup: Setup, number: int, survivors: NDArray[np.uint8]
) -> tuple[_Neighbours, dict[str, Any], NDArray[np.uint8]]:
    """Return a party's neighbours, what to keep of an unmasking, and who is in the sum.

    The party helps to unmask it for these from then on: also if it only confirms who they are.
    """
    check_number(number)
    record = _record(context.state)
    sums = Sums.of(record, setup)
    record = _under(record, sums.token, sums.agreement)
    own = _Neighbours.of(context, record, setup, sums)
    asked = (sums.token, _hashed_keys(sums.keys), sums.least, number)
    if asked != tuple(record[one] for one in _LAST) or own.circle.all_must_reply:
        raise AskedOtherwiseError(f"Exchange {number} is no sum that this party can unmask now.")
    # What is compared with an earlier unmasking is what this one is done for.
    survivors = (survivors != 0).astype(np.uint8)
    own.check(survivors)
    return own, _unmasked_once(record, sums, number, survivors.tobytes()), survivors


class Peers(NamedTuple):
    """All parties of a run, as one of them sees them.

    Parameters
    ----------
    keys : tuple of bytes
        Their public keys, in their order.
    place : int
        The party's own place.
    pairs : dict of int to PairKey
        Its key with each other party, by that party's place.
    """

    keys: tuple[bytes, ...]
    place: int
    pairs: dict[int, PairKey]


def peers_of(context: Context, setup: Setup) -> Peers:
    """Return all parties of a run, for masked tables; two are enough.

    Raises
    ------
    FederationError
        If the party has no key, the keys cannot be used, one is not signed by a peer, or the
        agreement has no proper name, as that of a further training.
    """
    check_token(setup.exchange)
    private = _record(context.state)["key"]

    def find() -> Peers:
        keys = _signed_keys(context, setup)
        place = place_of(public_key(private), keys, least=2)
        return Peers(keys, place, {one.place: one for one in pair_keys(private, keys, least=2)})

    return cached(context, f"peers {_hashed(private)} {_hashed_keys(setup.keys)}", find)


def masked_once(
    context: Context, setup: Setup, about: bytes, nonce: bytes
) -> dict[str, ConfigRecord]:
    """Return the record that this table was masked; a second table is refused.

    Parameters
    ----------
    context : Context
        Of the node; not changed.
    setup : Setup
    about : bytes
        What the table is of.
    nonce : bytes
        Drawn with its masks.

    Raises
    ------
    AskedOtherwiseError
        If a table of something else was masked in this agreement, or sums were computed from it.
    """
    known = _masked_table(context, setup)
    if known and known["about"] != about:
        raise AskedOtherwiseError(_OTHER_TABLE)
    if known and known["question"]:
        raise AskedOtherwiseError(
            "The party has computed products from its masked table, and masks no second one in "
            "this agreement: start the run again."
        )
    kept: dict[str, Any] = {
        "agreement": setup.digest,
        "about": about,
        "nonce": nonce,
        "question": b"",
    }
    return {TABLES: ConfigRecord(kept)}


def multiplied_once(
    context: Context, setup: Setup, about: bytes, nonce: bytes, question: bytes
) -> dict[str, ConfigRecord]:
    """Return what to keep of the sums that a party computes from its masked table.

    Parameters
    ----------
    context, setup, about, nonce
        As of :func:`masked_once`.
    question : bytes
        The digest of everything that the party is asked.

    Raises
    ------
    AskedOtherwiseError
        If they are not of the masked table, or another question about it was answered.
    """
    known = _masked_table(context, setup)
    if (known.get("about"), known.get("nonce")) != (about, nonce):
        raise AskedOtherwiseError(_OTHER_TABLE)
    if known["question"] not in (b"", question):
        raise AskedOtherwiseError(
            "The party has answered another question about its masked table. The difference of "
            "two answers could reveal its numbers: start the run again."
        )
    return {TABLES: ConfigRecord({**known, "question": question})}


def _masked_table(context: Context, setup: Setup) -> dict[str, Any]:
    """Return what the node keeps of the party's masked table in an agreement; {} if nothing."""
    record = context.state.get(TABLES)
    known = dict(record) if isinstance(record, ConfigRecord) else {}
    return known if known.get("agreement") == setup.digest else {}


def _signed_keys(context: Context, setup: Setup) -> tuple[bytes, ...]:
    """Return the parties' public keys; where the party knows its peers, they have signed them."""
    file = NodeConfig.of(context.node_config).peers
    if file is not None:
        named = (setup.keys, setup.key_signatures, setup.key_names)
        check_peers(*named, context.run_id, read_peers(str(file)))
    return tuple(bytes.fromhex(key) for key in setup.keys)


class Sums(NamedTuple):
    """The secure sums of a party, as the agreement says.

    Parameters
    ----------
    token : str
        Of the agreement.
    group : int
        The number of the party's group; 0 if there are none.
    keys : tuple of str
        The public keys of the parties that add up together, in the order of all parties; "" in the
        places of others.
    least : int
        How many of them must be in a sum.
    agreement : str, default ""
        Its digest.
    """

    token: str
    group: int
    keys: tuple[str, ...]
    least: int
    agreement: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any], setup: Setup) -> Sums:
        """Return the sums of the party whose key the record of its node's state holds.

        Raises
        ------
        FederationError
            If the agreement does not say with whom it adds up, or has no proper name.
        """
        check_token(setup.exchange)
        own = public_key(record["key"]).hex()
        try:
            circles = setup.circles
        except ValueError:
            circles = {}
        for group, (keys, least) in circles.items():
            if own in keys:
                return cls(setup.exchange, group, keys, least, setup.digest)
        raise FederationError(
            "This party's public key is not among those of the secure sum: its node was restarted "
            "and has lost its key, or the keys have been exchanged. Start the run again."
        )


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """A party among the others of its secure sums.

    Parameters
    ----------
    keys : tuple of bytes
        The public keys of the parties that add up with it, in the order of all parties.
    place : int
        The party's own place among them.
    circle : Circle
    holders : tuple of int
        The places of its neighbours and its own, in ascending order.
    pairs : dict of int to PairKey
        Its key with each neighbour, by the neighbour's place.
    everyone : callable
        Returns its key with each other party of its sums, by place.
    """

    keys: tuple[bytes, ...]
    place: int
    circle: Circle
    holders: tuple[int, ...]
    pairs: dict[int, PairKey]
    everyone: Callable[[], dict[int, PairKey]]

    @classmethod
    def of(cls, context: Context, record: dict[str, Any], setup: Setup, sums: Sums) -> _Neighbours:
        """Return the party's neighbours; its keys with them are computed once a process."""
        private = record["key"]

        def find() -> _Neighbours:
            _signed_keys(context, setup)
            keys = tuple(bytes.fromhex(key) for key in sums.keys)
            place = place_of(public_key(private), keys)
            holders = circle.holders(place)

            def pairs_with(places: Iterable[int]) -> dict[int, PairKey]:
                return {pair.place: pair for pair in pair_keys(private, keys, places)}

            # Of many parties those that are no neighbours are needed where one is missing only.
            everyone = cache(lambda: pairs_with(circle.order))
            return cls(keys, place, circle, holders, pairs_with(holders), everyone)

        # A key exchange with each party takes longer than the masks of many exchanges.
        circle = circle_of(sums.keys, sums.least, sums.token)
        agreed = f"{_hashed_keys(setup.keys)} {sums.group} {_hashed_keys(sums.keys)} {circle}"
        name = f"neighbours {_hashed(private)} {agreed}"
        return cached(context, name, find)

    def boxes(self, coefficients: list[int], purpose: bytes) -> NDArray[np.uint64]:
        """Return the shares of the party's seed, encrypted for its neighbours in their order."""
        own, shares = self.keys[self.place], shares_for(coefficients, self.pairs)
        boxes = [encrypted(shares[k], pair, purpose, own) for k, pair in self.pairs.items()]
        return np.frombuffer(b"".join(boxes), dtype="<u8")

    def check(self, survivors: NDArray[np.uint8]) -> None:
        """Check that a sum may be unmasked.

        Raises
        ------
        FederationError
            If the party itself is not in it, or too few others are.
        """
        if len(survivors) != len(self.keys):
            raise FederationError(_OTHER_PARTIES)
        among = {place for place, one in enumerate(survivors.tolist()) if one}
        if self.place not in among or not among <= set(self.circle.order):
            raise FederationError("This party's vector, or that of no party, is in the sum.")
        near = len(among.intersection(self.holders))
        if len(among) < self.circle.least or near < self.circle.shares:
            raise FederationError(
                f"The sum of {len(among)} parties is not unmasked: at least {self.circle.least} of "
                f"{len(self.circle.order)} must be in it, and {self.circle.shares} of "
                f"{len(self.holders)} neighbours."
            )

    def check_confirmed(
        self, survivors: NDArray[np.uint8], purpose: bytes, seals: NDArray[np.uint8] | None
    ) -> None:
        """Check that enough parties were told the same: who is in a sum that lacks a party.

        Each confirms it once for a sum. As many as must be in a sum are more than half of all, so
        that honest ones never return keys for one set of parties and shares for another one.

        Raises
        ------
        FederationError
            If too few have.
        """
        among = np.flatnonzero(survivors).tolist()
        if len(among) == len(self.circle.order):  # no key is returned
            return
        if seals is None or len(seals) != len(self.keys):
            raise FederationError(_OTHER_PARTIES)
        everyone = self.everyone()
        found = sum(
            place == self.place
            or np.array_equal(
                seals[place], seal_of(everyone[place], purpose, self.keys[place], survivors)
            )
            for place in among
        )
        if found < self.circle.least:
            raise FederationError(
                f"Only {found} of the parties in the sum have confirmed who is in it, and "
                f"{self.circle.least} must: the server has named others to some of them, or a "
                "message was altered. Start the run again."
            )


def answered(record: dict[str, Any], sums: Sums, number: int, vector: bytes) -> dict[str, Any]:
    """Return what to keep about a masked vector that is about to leave the party.

    Parameters
    ----------
    record : dict
        Of the node's state; not changed.
    sums : Sums
    number : int
        Of the exchange.
    vector : bytes
        The masked vector.

    Raises
    ------
    AskedOtherwiseError
        If the exchange was answered before with another vector, a later one was, the parties'
        keys are not those of the exchanges before, or the agreement is not, see :func:`accept`.
    """
    record = _under(record, sums.token, sums.agreement)
    keys, digest = _hashed_keys(sums.keys), _hashed(vector)
    # Without the places of other groups, of which there may be fewer after the totals.
    heirs = _hashed_keys(tuple(filter(None, sums.keys)))
    if record["token"] == sums.token:
        last = record["number"]
        if keys != record["keys"]:
            raise AskedOtherwiseError("The parties' keys are not those of the first secure sum.")
        if number < last:
            raise AskedOtherwiseError(
                f"The message of exchange {number} came after that of exchange {last}; it was "
                "ignored."
            )
        if number == last and digest != record["digest"]:
            raise AskedOtherwiseError(
                f"Exchange {number} was answered before, with other numbers. Two replies under one "
                "mask would reveal their difference: start the run again."
            )
    # After the totals the run goes on with the parties that are in them.
    elif record["token"] and (heirs != record["heirs"] or number == TOTALS_NUMBER):
        raise AskedOtherwiseError("The parties' keys are not those of the first secure sum.")
    answer = {"token": sums.token, "least": sums.least, "number": number, "digest": digest}
    return {**record, **answer, "keys": keys, "heirs": heirs}


def accept(context: Context, setup: Setup) -> None:
    """Note the agreement under which a party with a key for secure sums is asked.

    Also one without keys: after it the party is in no earlier agreement any more.

    Raises
    ------
    AskedOtherwiseError
        If the party knows another agreement of this name, or has left this one for a later one.
    """
    noted = _under(_record(context.state), setup.exchange, setup.digest)
    context.state[SECURE] = ConfigRecord(noted)


def _under(record: dict[str, Any], token: str, agreement: str) -> dict[str, Any]:
    """Return what to keep of the agreement under which the party is asked, see :func:`accept`."""
    if token not in record["tokens"]:
        noted = {"tokens": [*record["tokens"], token]}
        return {**record, **noted, "agreements": [*record["agreements"], agreement]}
    if token != record["tokens"][-1]:
        raise AskedOtherwiseError("The message belongs to an earlier agreement: it came too late.")
    if agreement != record["agreements"][-1]:
        raise AskedOtherwiseError(
            "The parties' agreement is not the one that this party was sent before under the same "
            "name: start the run again."
        )
    return record


def _unmasked_once(
    record: dict[str, Any], sums: Sums, number: int, survivors: bytes
) -> dict[str, Any]:
    """Return what to keep about an unmasking; refuse another one of the same sum.

    A resumed run may ask for its last sum again, under new keys. It then has to be that of the same
    parties.

    Raises
    ------
    FederationError
        If the sum, or a later one of the same agreement, was unmasked for other parties.
    """
    former = record["unmasked"]
    other = number < former or (number == former and record["survivors"] != survivors)
    if record["unmasked-run"] == sums.token and other:
        raise AskedOtherwiseError(
            f"The sum of exchange {number} was unmasked before, for other parties. The difference "
            "of the two would reveal the numbers of some of them: start the run again."
        )
    kept = {"unmasked-run": sums.token, "unmasked": number, "survivors": survivors}
    if number == TOTALS_NUMBER:
        pairs = zip(sums.keys, survivors, strict=True)
        kept["heirs"] = _hashed_keys(tuple(key for key, one in pairs if one))
    return {**record, **kept}


def _record(state: RecordDict) -> dict[str, Any]:
    record = state.get(SECURE)
    if not isinstance(record, ConfigRecord):
        raise FederationError(
            "This party has no key for secure sums: its node was restarted and has lost it. Start "
            "the run again."
        )
    return dict(record)


@lru_cache(maxsize=64)
def _hashed_keys(keys: tuple[str, ...]) -> str:
    # Also the places of parties without a key.
    return purpose_of("keys", keys).hex()


def _hashed(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=32).hexdigest()
