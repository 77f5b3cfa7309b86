"""The server's side of secure sums: what is refused, the totals of all parties, and each sum.

A sum is that of the parties whose masked vectors arrive. Where some may be missing, these parties
help to unmask it in a second exchange. The server learns no part of a sum, never asks for one again
with fewer parties, and cannot tell which party has altered one.

With the option ``groups`` there is a sum for each group of parties, in the same exchanges. Every
sum of the run, that of the totals too, is then one group's. A group that lacks a sum is left out of
the exchange.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.contract import ReplyContext
from flwr_causal.protocol.replies import Replies, Summed
from flwr_causal.runtime.federation import Arrival, Collected, Party, Totals
from flwr_causal.runtime.round import combined_groups
from flwr_causal.secure import totals
from flwr_causal.secure.groups import dealt
from flwr_causal.secure.keys import (
    LEAST_PARTIES,
    new_private_key,
    public_key,
)
from flwr_causal.secure.masks import circle_of, least_parties
from flwr_causal.secure.ring import SumError, WordLayout, WordSum, added
from flwr_causal.secure.unmasking import (
    BOX_BYTES,
    BOX_WORDS,
    CONFIRMATION,
    UNMASKING,
    Unmasking,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.interventions import Targets
    from flwr_causal.runtime.federation import Federation, Find
    from flwr_causal.runtime.method import CausalMethod
    from flwr_causal.secure.masks import Circle
    from flwr_causal.secure.ring import Size

    Fix = Callable[[int, Sequence[Sequence[str]]], None]

#: The digits of the totals of so many parties could overflow.
MOST_PARTIES = 2**16
#: How often a party is asked whose reply a sum needs; each time twice where its reply is refused.
ATTEMPTS = 2

_REMEDY = "Start the run again once all of them can answer."
_TOO_FEW = (
    "a secure sum must be that of {least} of the {parties} parties at least (quorum, and more than "
    "half of them)"
)
_OF_EARLIER_SUMS = (
    "earlier sums of this method have them in it. Sums over different parties cannot be combined, "
    "and to start without them would repeat a sum with fewer parties, whose difference would be "
    "their numbers"
)
_NOT_CONNECTED = "without them the sum would fall into several, each of a part of the parties"
_NOT_UNMASKED = (
    "they have not helped to unmask the sum. It is not repeated with fewer parties: the difference "
    "of the two would be the numbers of those that are left out"
)


def with_groups(method: CausalMethod, parties: Sequence[Party]) -> list[Party]:
    """Return the parties with their groups.

    Raises
    ------
    ConfigError
        If there are too few parties.
    """
    least = max(method.options.min_parties, LEAST_PARTIES)
    names = [party.name for party in parties]
    groups = dealt(
        names, method.options.groups, least, method.options.fewest_groups, method.options.seed
    )
    return [replace(party, group=groups[party.name]) for party in parties]


def check_parties(method: CausalMethod, parties: Sequence[Party]) -> None:
    """Check that the parties of a run can add up securely.

    Raises
    ------
    ConfigError
        If there are fewer than ``min_parties``.
    FederationError
        If a party has sent no key.
    """
    least = max(method.options.min_parties, LEAST_PARTIES)
    if len(parties) < least:
        raise ConfigError(
            f"The option 'secure_aggregation' is True, and there are {len(parties)} parties; "
            f"'min_parties' asks for {least}. Of two parties, each knows the other's part from the "
            "sum. Connect more parties."
        )
    groups = {party.group for party in parties}
    if method.options.groups != 1 and len(groups) < method.options.fewest_groups:
        raise ConfigError(
            f"Only {len(groups)} groups of parties are left, and the options need "
            f"{method.options.fewest_groups}: start the run again once all parties can answer."
        )
    if len(parties) >= MOST_PARTIES:
        raise ConfigError(f"secure_aggregation is for fewer than {MOST_PARTIES} parties.")
    # A party without a node is absent from a resumed run.
    without = [party.name for party in parties if party.has_node and not party.public_key]
    if without:
        raise FederationError(
            f"{', '.join(without)} sent no key for secure sums. Install the same version of "
            "flwr-causal on all machines."
        )


def agreed_keys(method: CausalMethod, parties: Sequence[Party]) -> dict[str, Any]:
    """Return the parties' keys, for secure sums and for products of different columns.

    Raises
    ------
    FederationError
        If two parties have sent the same key.
    """
    times = Counter(party.public_key for party in parties)
    same = [party.name for party in parties if party.public_key and times[party.public_key] > 1]
    if same:
        raise FederationError(
            f"{', '.join(same)} sent the same public key: each node makes its own, so that one of "
            "them has copied it. Start the run again without that party."
        )
    agreed: dict[str, Any] = {"keys": tuple(_key_of(method, party) for party in parties)}
    if method.options.secure_aggregation:
        groups = [party.group for party in parties]
        agreed["groups"] = tuple(groups) if any(groups) else ()
        agreed["least_parties"] = tuple(
            least_parties(groups.count(group), method.options.quorum)
            for group in sorted(set(groups))
        )
    if any(party.signature for party in parties):
        agreed["key_names"] = tuple(party.name for party in parties)
        agreed["key_signatures"] = tuple(party.signature for party in parties)
    return agreed


def _key_of(method: CausalMethod, party: Party) -> str:
    """Return the party's public key; of one that is absent from a resumed run any that is valid.

    Where columns differ the others then answer, and the run ends as where it is lost after the
    schema exchange. Nobody knows the private key. In a secure sum the others miss it by its key.
    """
    if party.has_node or method.options.secure_aggregation:
        return party.public_key
    return public_key(new_private_key()).hex()


def check_targets(targets: Iterable[Targets], reports: Mapping[str, TableReport]) -> None:
    """Check that rows under the same interventions are those of three parties or more, or none.

    Rows are summed by their targets: of fewer parties such a sum would disclose too much.

    Parameters
    ----------
    targets : iterable of tuple of str
        The different sets of targets.
    reports : mapping of str to TableReport
        Of the parties in one sum, by name.

    Raises
    ------
    DataError
        Naming the targets and the parties.
    """
    for one in targets:
        own = [name for name, report in reports.items() if one in (report.targets or ((),))]
        if 0 < len(own) < LEAST_PARTIES:
            acted = f"under an intervention on {', '.join(one)}" if one else "without one"
            raise DataError(
                f"Rows {acted} are at {', '.join(own)} only, and with secure_aggregation sums are "
                f"those of {LEAST_PARTIES} parties or more. Leave these rows out, or run without "
                "secure_aggregation."
            )


def ask_totals(
    method: CausalMethod, grid: Grid, federation: Federation
) -> tuple[Totals, Collected]:
    """Run the exchange of totals.

    Parameters
    ----------
    method : CausalMethod
    grid : Grid
    federation : Federation
        Its setup has the agreed columns and the parties' keys, but neither means nor variances.

    Returns
    -------
    total : Totals
        On the rows of the parties that replied.
    collected : Collected
        Their replies, and the traffic.

    Raises
    ------
    FederationError
        If too few parties reply, or the masks do not cancel.
    """
    names, within, number = federation.setup.summed, method.options.own_levels, totals.TOTALS_NUMBER
    content = records.request(totals.TOTALS.name, method.method, number, {})
    everyone = [party.name for party in federation.parties]
    collected = ask_sum(
        federation,
        grid,
        totals.TOTALS,
        dict.fromkeys(everyone, content),
        number=number,
        timeout=method.options.round_timeout,
        sizes=dict.fromkeys(everyone, totals.size(names)),
    )
    counts = Counter(reply.party.group for reply in collected.replies)
    reports = {}
    for name, group in federation.groups.items():
        number = group[0].group
        try:
            if number in collected.totals:
                total = collected.totals[number]
                reports[number] = totals.report_of(total, names, counts[number], within=within)
        except SumError as error:
            collected.without[name] = f"its sum was refused: {error}"
    used = list(reports) if federation.groups else [0]
    least = method.options.fewest_groups if federation.groups else 1
    if len(used) < least:
        reasons = "; ".join(f"{name}: {why}" for name, why in collected.without.items())
        raise FederationError(
            f"There are totals of {len(used)} groups, and the options need {least}. {reasons}. "
            f"{federation.latest_reasons()}. {_REMEDY}"
        )
    collected.replies = [reply for reply in collected.replies if reply.party.group in used]
    whole = added((collected.totals[number] for number in used), totals.size(names))
    replied = len(collected.replies)
    return Totals(totals.report_of(whole, names, replied, within=within), reports), collected


@dataclass(frozen=True, eq=False)
class _AskedGroup:
    """The parties of one sum, as the server asks them.

    Parameters
    ----------
    number : int
        0 for the only sum.
    name : str
        In messages.
    circle : Circle
    places : mapping of str to int
        By party, its place in the list of public keys.
    together : frozenset of str
        The parties that must be in the sum because they were in earlier ones.
    """

    number: int
    name: str
    circle: Circle
    places: Mapping[str, int]
    together: frozenset[str]

    @property
    def boxes(self) -> int:
        """How many encrypted shares are behind a vector."""
        if self.circle.all_must_reply:
            return 0
        return len(self.circle.holders(self.circle.order[0])) - 1

    def among(self, names: Iterable[str]) -> list[str]:
        """Return those of its parties that are named, in their order."""
        given = set(names)
        return [name for name in self.places if name in given]

    def enough(self, names: Iterable[str]) -> bool:
        """Return whether a sum of these parties can be unmasked."""
        own = set(self.among(names))
        return len(own) >= self.circle.least and own >= self.together

    def lost(self, names: Iterable[str]) -> list[str]:
        """Return which parties that ought to be in the sum are not among the named ones."""
        given = set(names)
        return [name for name in self.together or self.places if name not in given]

    @property
    def too_few(self) -> str:
        """Why there is no sum of the parties that have replied."""
        if self.together:
            return _OF_EARLIER_SUMS
        return _TOO_FEW.format(least=self.circle.least, parties=len(self.circle.order))


def _groups(asking: _Asking, exchange: Exchange, names: Iterable[str]) -> list[_AskedGroup]:
    """Return the groups of the parties that are asked, and that can have a sum."""
    federation, setup, asked = asking.federation, asking.federation.setup, set(names)
    together = frozenset(federation.together if exchange.same_parties else ())
    numbers = {name: group[0].group for name, group in federation.groups.items()}
    found = []
    for number, (keys, least) in setup.circles.items():
        name = next((name for name, own in numbers.items() if own == number), "")
        places = {
            party.name: place
            for place, party in enumerate(federation.parties)
            if party.group == number
        }
        own = together.intersection(places)
        if together and not own:  # it was lost in the first of these sums
            continue
        present = sum(map(bool, keys))
        if number and present < least:
            gone = [one for one, place in places.items() if not keys[place]]
            asking.left_out(number, name, own, gone, _TOO_FEW.format(least=least, parties=present))
            continue
        group = _AskedGroup(number, name, circle_of(keys, least, setup.exchange), places, own)
        if number and not group.enough(asked):
            asking.left_out(number, name, own, group.lost(asked), group.too_few)
            continue
        found.append(group)
    return found


def ask_sum(
    federation: Federation,
    grid: Grid,
    exchange: Exchange,
    contents: Mapping[str, RecordDict],
    *,
    number: int,
    timeout: float,
    sizes: Mapping[str, Size],
    find: Find | None = None,
    fix: Fix | None = None,
) -> Collected:
    """Ask parties for the vectors of a sum, or of a sum for each group, and unmask it.

    Parameters
    ----------
    federation : Federation
    grid : Grid
    exchange : Exchange
    contents : mapping of str to RecordDict
        What each party is sent, by its name.
    number : int
        Of the exchange.
    timeout : float
        Seconds to wait for the replies of an attempt.
    sizes : mapping of str to Size
        Of each party's vector.
    find : callable, optional
        As of ``Federation.exchange``.
    fix : callable, optional
        Called with the number of the exchange and the parties in each sum, before it is unmasked;
        raises an error if it must not be.

    Returns
    -------
    Collected
        The replies of the parties in the sums, the sums, and the traffic of both exchanges.

    Raises
    ------
    FederationError
        If replies are missing that the sum needs; it names the parties.
    """
    asking = _Asking(federation, grid, number, timeout, find)
    groups = _groups(asking, exchange, contents)
    asked = {name: group for group in groups for name in group.places if name in contents}
    collected = asking.replies(
        exchange,
        {name: contents[name] for name in asked},
        lambda replied: all(group.enough(replied) for group in groups),
        {name: sizes[name].words + group.boxes * BOX_WORDS for name, group in asked.items()},
    )
    vectors = {reply.party.name: reply.arrays[door.MASKED] for reply in collected.replies}
    kept = []
    for group in groups:
        lost = group.lost(vectors)
        if lost and not group.enough(vectors):
            asking.left_out(group.number, group.name, group.together, lost, group.too_few)
            continue
        if lost:
            own = group.among(vectors)
            check_targets(
                federation.setup.targets, {name: federation.reports[name] for name in own}
            )
        kept.append(group)
    if fix is not None:
        fix(number, [group.among(vectors) for group in kept])
    _unmask(asking, kept, vectors, sizes, collected)
    # The replies of a group without a sum are of no use.
    collected.replies = [
        reply for reply in collected.replies if reply.party.group in collected.totals
    ]
    collected.without = asking.without
    if not collected.totals:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in asking.without.items())
        raise FederationError(f"Exchange {number}: no group of parties has a sum. {reasons}")
    return collected


def _unmask(
    asking: _Asking,
    groups: Sequence[_AskedGroup],
    vectors: Mapping[str, NDArray[np.uint64]],
    sizes: Mapping[str, Size],
    collected: Collected,
) -> None:
    """Add up the vectors of each group, and take the masks out that are left.

    Parameters
    ----------
    asking : _Asking
    groups : sequence of _AskedGroup
        That have enough vectors.
    vectors : mapping of str to ndarray of uint64
        By party.
    sizes : mapping of str to Size
        Of each party's vector, without its shares.
    collected : Collected
        Is given the sums, and the traffic.
    """
    federation = asking.federation
    keys = [bytes.fromhex(key) for key in federation.setup.keys]
    pending: dict[int, Unmasking] = {}
    masked: dict[int, WordSum] = {}
    for group in groups:
        own = group.among(vectors)
        size = sizes[own[0]]
        total = WordSum(size)
        for name in own:
            total.add(vectors[name][: size.words])
        boxes = {
            group.places[name]: vectors[name][size.words :].view(np.uint8).reshape(-1, BOX_BYTES)
            for name in own
        }
        if group.circle.all_must_reply:
            collected.totals[group.number] = total.total()
        elif group.circle.connected(boxes):
            masked[group.number] = total
            pending[group.number] = Unmasking(group.circle, keys, boxes)
        else:
            lost = [name for name, place in group.places.items() if place not in boxes]
            asking.left_out(group.number, group.name, group.together, lost, _NOT_CONNECTED)
    seals = _confirmations(asking, groups, pending, collected)
    if not pending:
        return

    def asked(place: int, unmasking: Unmasking) -> dict[str, NDArray[np.uint8]]:
        values = {"survivors": unmasking.survivors, "shares": unmasking.forwarded(place)}
        return values | ({"seals": unmasking.seals_for(place, seals)} if unmasking.lost else {})

    given, answers = _given(
        asking, UNMASKING, groups, pending, asked, lambda one, places: one.enough(places)
    )
    for group in groups:
        unmasking = pending.get(group.number)
        if unmasking is None:
            continue
        if unmasking.enough(given):
            own_given = {place: given[place] for place in unmasking.boxes if place in given}
            total = masked[group.number]
            total.subtract(unmasking.masks(own_given, total.size))
            collected.totals[group.number] = total.total()
            continue
        silent = [
            name
            for name, place in group.places.items()
            if place in unmasking.boxes and place not in given
        ]
        asking.left_out(group.number, group.name, group.together, silent, _NOT_UNMASKED)
    collected.add(answers)


def _confirmations(
    asking: _Asking,
    groups: Sequence[_AskedGroup],
    pending: dict[int, Unmasking],
    collected: Collected,
) -> dict[int, NDArray[np.uint8]]:
    """Return, by the place of each party that has confirmed who is in its sum, its seals.

    Only sums from which a party is missing need it. Those that too few confirm are no longer
    ``pending``.
    """
    lacking = {number: one for number, one in pending.items() if one.lost}
    if not lacking:
        return {}
    seals, answers = _given(
        asking,
        CONFIRMATION,
        groups,
        lacking,
        lambda place, one: {"survivors": one.survivors},
        lambda one, places: len(places) >= one.circle.least,
    )
    collected.add(answers)
    for group in groups:
        one = lacking.get(group.number)
        if one is None or len(seals.keys() & one.boxes.keys()) >= one.circle.least:
            continue
        del pending[group.number]
        silent = [
            name
            for name, place in group.places.items()
            if place in one.boxes and place not in seals
        ]
        asking.left_out(group.number, group.name, group.together, silent, _NOT_UNMASKED)
    return seals


def _given(
    asking: _Asking,
    exchange: Exchange,
    groups: Sequence[_AskedGroup],
    pending: Mapping[int, Unmasking],
    asked: Callable[[int, Unmasking], Mapping[str, NDArray[np.uint8]]],
    enough: Callable[[Unmasking, list[int]], bool],
) -> tuple[dict[int, NDArray[np.uint8]], Collected]:
    """Ask the parties whose vectors have arrived to help with their sums.

    Parameters
    ----------
    asking : _Asking
    exchange : Exchange
        Which returns one array.
    groups : sequence of _AskedGroup
    pending : mapping of int to Unmasking
        By the number of a group, its sum.
    asked : callable
        Returns what the party of a place is sent, of its sum.
    enough : callable
        Returns whether the answers of the parties of some places are enough for a sum.

    Returns
    -------
    given : dict of int to ndarray of uint8
        By place, what a party has returned.
    answers : Collected
        The traffic.
    """
    places = {
        name: (place, pending[group.number])
        for group in groups
        if group.number in pending
        for name, place in group.places.items()
        if place in pending[group.number].boxes
    }
    method = asking.federation.contract.method
    contents = {
        name: records.request(exchange.name, method, asking.number, asked(*one))
        for name, one in places.items()
    }

    def answered(replied: set[str]) -> bool:
        answering = [places[name][0] for name in replied]
        return all(
            enough(one, [place for place in answering if place in one.boxes])
            for one in pending.values()
        )

    answers = asking.replies(exchange, contents, answered)
    (returned,) = exchange.returns
    given = {places[one.party.name][0]: one.arrays[returned.name] for one in answers.replies}
    return given, replace(answers, replies=[])


@dataclass(frozen=True, eq=False)
class _Asking:
    """How parties are asked in the exchanges of one secure sum, or of one for each group.

    Parameters
    ----------
    federation, grid, number, timeout, find
        As of :func:`ask_sum`.
    without : dict of str to str
        The groups that have no sum, with the reason.
    """

    federation: Federation
    grid: Grid
    number: int
    timeout: float
    find: Find | None
    without: dict[str, str] = field(default_factory=dict)

    def replies(
        self,
        exchange: Exchange,
        contents: Mapping[str, RecordDict],
        enough: Callable[[set[str]], bool],
        words: Mapping[str, int] | None = None,
    ) -> Collected:
        """Ask parties, and where not enough have replied once more those that have not."""
        federation, result = self.federation, Collected()
        failed = {name: federation.failed_in_a_row.get(name, 0) for name in contents}
        for _ in range(ATTEMPTS):
            replied = {reply.party.name for reply in result.replies}
            if enough(replied):
                break
            # A party that fails in both attempts has failed in one exchange.
            federation.failed_in_a_row |= {k: n for k, n in failed.items() if k not in replied}
            messages = [
                federation.message(
                    party.node_id, contents[party.name], exchange, self.number, self.timeout
                )
                for party in federation.parties
                if party.name in contents and party.name not in replied
            ]
            result.add(
                federation.exchange(
                    self.grid,
                    exchange,
                    messages,
                    server_round=self.number,
                    timeout=self.timeout,
                    find=self.find,
                    words=words,
                )
            )
        order = {party.name: place for place, party in enumerate(federation.parties)}
        result.replies.sort(key=lambda reply: order[reply.party.name])
        return result

    def left_out(
        self, number: int, name: str, together: Collection[str], lost: Iterable[str], why: str
    ) -> None:
        """Note that a group has no sum in this exchange.

        Raises
        ------
        FederationError
            If it is the only sum, or one that earlier sums need.
        """
        text = f"there is no usable reply of {', '.join(lost)}, and with secure_aggregation {why}"
        if together or not number:
            raise FederationError(
                f"Exchange {self.number}: {text}. {self.federation.latest_reasons()}. {_REMEDY}"
            )
        self.without[name] = text


@dataclass(frozen=True, eq=False)
class SecureSum:
    """One secure sum, or one for each group, from the messages that ask for it.

    Parameters
    ----------
    method : CausalMethod
    federation : Federation
    exchange : Exchange
    server_round : int
        The number of the exchange.
    contents : mapping of str to RecordDict
        What each party is sent, by its name.
    fix : callable
        As of :func:`ask_sum`.
    """

    method: CausalMethod
    federation: Federation
    exchange: Exchange
    server_round: int
    contents: Mapping[str, RecordDict]
    fix: Fix

    @classmethod
    def of(
        cls,
        method: CausalMethod,
        exchange: Exchange,
        messages: Sequence[Message],
        server_round: int,
        fix: Fix,
    ) -> SecureSum:
        """Return the sum of the replies to these messages.

        Raises
        ------
        ConfigError
            If parties whose replies are to be added up are asked for different sums.
        """
        federation = method._federation
        assert federation is not None
        parties = {party.node_id: party for party in federation.parties}
        contents, asked = {}, {0: {len(exchange.returns)}}
        for message in messages:
            party = parties[message.metadata.dst_node_id]
            contents[party.name] = message.content
            own = len(exchange.asked(records.config_of(message.content)).returns)
            asked.setdefault(party.group, set()).add(own)
        if any(len(own) > 1 for own in asked.values()):
            raise ConfigError(
                f"The exchange '{exchange.name}' does not ask all parties for all of its sums, as "
                "secure_aggregation needs: run the method without it."
            )
        _check_alike(
            exchange, [(party.group, contents.get(party.name)) for party in parties.values()]
        )
        return cls(method, federation, exchange, server_round, contents, fix)

    def _layout(self, party: str) -> tuple[Exchange, WordLayout]:
        """Return the exchange as a party is asked, and how its arrays lie in its vector."""
        content, setup = self.contents[party], self.federation.setup
        exchange = self.exchange.asked(records.config_of(content))
        sizes = _sizes(self.federation, exchange, content, setup.num_rows)
        return exchange, WordLayout.of(exchange, sizes, setup)

    def ask(self, grid: Grid, messages: Sequence[Message], timeout: float, find: Find) -> Collected:
        """Send the messages; return the replies and their sums, see :func:`ask_sum`."""
        # All parties of a sum are asked for the same.
        groups = {party.name: party.group for party in self.federation.parties}
        one_of = {groups[name]: name for name in self.contents}
        sizes = {group: self._layout(name)[1].size for group, name in one_of.items()}
        return ask_sum(
            self.federation,
            grid,
            self.exchange,
            self.contents,
            number=self.server_round,
            timeout=timeout,
            sizes={name: sizes[groups[name]] for name in self.contents},
            find=find,
            fix=self.fix,
        )

    def arrivals(self, collected: Collected) -> Sequence[Arrival]:
        """Return the sums or means of the groups, by which they can be compared; else nothing.

        Raises
        ------
        FederationError
            If the masks do not cancel, or the totals are not possible, and no other group is left.
        """
        found = []
        for name, group in self.federation.groups.items():
            number = group[0].group
            if number not in collected.totals:
                continue
            parties = self._members(collected, number)
            try:
                arrays, rows = self._decoded(collected, number)
            except (SumError, door.RefusedError) as error:
                if set(parties) & set(self._together):
                    raise self._impossible(f"the sum over {name}", str(error)) from None
                collected.without[name] = f"its sum was refused: {error}"
                continue
            own = Party(-1, name, -1, rows, group=number)
            found.append(Arrival(own, arrays, members=parties))
        if self.federation.groups and not found:
            reasons = "; ".join(f"{name}: {one}" for name, one in collected.without.items())
            raise self._impossible("the sum over each group", reasons)
        return found

    def combined(self, collected: Collected, arrivals: Sequence[Arrival]) -> Replies:
        """Return the sums or means of the replies, or medians over groups.

        Raises
        ------
        FederationError
            If the masks do not cancel, the totals are not possible, or groups are too few for a
            median.
        """
        if arrivals:
            return combined_groups(self.method, self.exchange, self.server_round, arrivals)
        parties = self._members(collected, 0)
        try:
            arrays, rows = self._decoded(collected, 0)
        except (SumError, door.RefusedError) as error:
            raise self._impossible("the sum over all parties", str(error)) from None
        return Replies(parties, arrays, sums={"": Summed(rows, parties)})

    @property
    def _together(self) -> Collection[str]:
        return self.federation.together if self.exchange.same_parties else ()

    @staticmethod
    def _members(collected: Collected, number: int) -> tuple[str, ...]:
        return tuple(one.party.name for one in collected.replies if one.party.group == number)

    def _decoded(self, collected: Collected, number: int) -> tuple[Arrays, int]:
        """Return the sums or means of one sum, and its rows."""
        federation, parties = self.federation, self._members(collected, number)
        exchange, layout = self._layout(parties[0])
        total = federation.total
        report = None if total is None else (total.groups[number] if number else total.all)
        if number:
            assert report is not None
            size = sum(party.group == number for party in federation.parties)
            layout = replace(layout, rows=report.rows, parties=size)
        arrays, rows = layout.decoded(collected.totals[number], len(parties))
        content = self.contents[parties[0]]
        sizes = _sizes(federation, exchange, content, rows)
        door.check_total(exchange, arrays, sizes, len(parties))
        if exchange.contradiction is not None:
            assert report is not None
            received = {**records.config_of(content), **records.arrays_of(content)}
            known = ReplyContext(sizes, received, federation.setup, report)
            complaint = exchange.contradiction(arrays, known)
            if complaint:
                raise door.RefusedError(complaint)
        return arrays, rows

    def _impossible(self, what: str, reason: str) -> FederationError:
        return FederationError(
            f"Exchange {self.server_round} ('{self.exchange.name}'): {what} was refused: {reason}. "
            "Which party it comes from cannot be known from a secure sum: run without "
            "secure_aggregation to find out, or start the run again."
        )


def _check_alike(exchange: Exchange, contents: Iterable[tuple[int, RecordDict | None]]) -> None:
    """Check that the parties of each sum are sent the same; masks are bound to it.

    Raises
    ------
    ConfigError
        If an exchange does not declare what parties are sent by party.
    """
    # Most parties are sent one object.
    different = {(group, id(one)): one for group, one in contents if one is not None}
    digests: dict[int, set[bytes]] = {}
    for (group, _), one in different.items():
        own = exchange.asked(records.config_of(one))
        digests.setdefault(group, set()).add(door.question_of(own, one))
    if any(len(own) > 1 for own in digests.values()):
        raise ConfigError(
            f"The exchange '{exchange.name}' sends different values to the parties of one secure "
            "sum: declare what differs as Sent(..., by_party=True)."
        )


def _sizes(
    federation: Federation, exchange: Exchange, content: RecordDict, rows: int
) -> dict[str, int]:
    agreed = federation.contract.sizes(federation.setup, rows)
    return door.sizes_of(exchange, content, agreed, federation.setup)
