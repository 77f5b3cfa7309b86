"""Several trainings of one method whose requests travel in one message.

A run may hold further trainings beside the main one: replicates on resampled rows, and trainings
without one of the parties. A :class:`Bundle` is the exchange in which the parties answer one
request of each. It is made from the declarations of these requests, so that each reply in it is
checked and combined as it would be alone. What belongs to the main training has its own names, what
belongs to another one has the training's name in front: ``"moments"`` and ``"replicate 3:
moments"``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flwr_causal.contract.exchange import Exchange, Sent
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.contract import ReplyContext
from flwr_causal.protocol.replies import Replies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.contract.exchange import Disclosure, Shape
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.replies import Summed
    from flwr_causal.protocol.setup import Setup

T = TypeVar("T")

#: What a bundle sends beside the values of its requests.
TRAININGS, EXCHANGES, SEED = "bundle-trainings", "bundle-exchanges", "bundle-seed"
_HEAD = (
    Sent(TRAININGS, "the trainings that the party answers"),
    Sent(EXCHANGES, "the exchange of each training"),
    Sent(SEED, "seed of the random draws of rows"),
)
#: Fields of a declaration that name another thing of the same training.
_NAMES = ("below", "parts")
_REPLICATE, _WITHOUT = "replicate ", "without "
_NAME = re.compile(rf"(?:{_REPLICATE}([1-9][0-9]{{0,5}})|{_WITHOUT}([1-9][0-9]{{0,5}}))?")
#: The most replicates of a run; their sums are held at the same time.
MOST_REPLICATES = 10_000


@dataclass(frozen=True)
class TrainingName:
    """One of the trainings of a run.

    Parameters
    ----------
    replicate : int, default 0
        0: on the parties' own rows; from 1 on the number of a replicate, on resampled rows.
    without : int, default 0
        0: all parties take part; from 1 on the place of the party that is left out.
    """

    replicate: int = 0
    without: int = 0

    @property
    def name(self) -> str:
        """The name in messages; "" for the main training."""
        if self.without:
            return f"{_WITHOUT}{self.without}"
        return f"{_REPLICATE}{self.replicate}" if self.replicate else ""

    @classmethod
    def of(cls, name: str) -> TrainingName:
        """Return the training of a name.

        Raises
        ------
        ConfigError
            If no run has a training of this name.
        """
        found = _NAME.fullmatch(name)
        numbers = [int(number or 0) for number in found.groups()] if found else [0]
        if found is None or max(numbers) > MOST_REPLICATES:
            raise ConfigError(
                f"There is no training '{name:.40}'. Install the same version of flwr-causal on "
                "both sides."
            )
        return cls(*numbers)

    def named(self, name: str) -> str:
        """Return the name of one of its things in a bundle."""
        return f"{self.name}: {name}" if self.name else name


#: The training on the parties' own rows.
MAIN = TrainingName()


class BundlePart(NamedTuple):
    """The request of one training in a bundle.

    Parameters
    ----------
    training : TrainingName
    exchange : Exchange
    """

    training: TrainingName
    exchange: Exchange

    def sent(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return the training's values, of all values in a message, by its own names."""
        return self._own(values, self.exchange.sends)

    def returned(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return the training's part of a reply, by its own names."""
        return self._own(values, self.exchange.returns)

    def named(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return the training's values by their names in a bundle."""
        return {self.training.named(name): value for name, value in values.items()}

    def _own(self, values: Mapping[str, T], declared: Iterable[Sent | Disclosure]) -> dict[str, T]:
        names = {self.training.named(item.name): item.name for item in declared}
        return {names[name]: value for name, value in values.items() if name in names}

    def replies(self, bundled: Replies, parties: Iterable[str]) -> Replies:
        """Return the training's part of a bundle's replies; ``parties`` were asked."""
        names = tuple(name for name in bundled.parties if name in set(parties))
        own = {name: self.returned(bundled.by_party.get(name, {})) for name in names}
        kept = own if any(name in bundled.by_party for name in names) else {}
        sums = {name: one for name, one in bundled.sums.items() if name in ("", *names)}
        return Replies(names, self.returned(bundled.combined), kept, sums)


@dataclass(frozen=True)
class Bundle(Exchange):
    """The exchange of several trainings' requests.

    Parameters
    ----------
    parts : tuple of BundlePart
    """

    parts: tuple[BundlePart, ...] = ()

    def __post_init__(self) -> None:
        """Each part was checked when it was declared; different parts may combine differently."""

    def asked(self, values: Mapping[str, Any]) -> Exchange:
        """Return the exchange of the trainings that a party was asked about."""
        names = set(values[TRAININGS])
        return bundle_of([part for part in self.parts if part.training.name in names])

    def sizes(self, agreed: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes that the symbols in shapes stand for."""
        return {
            part.training.named(name): size for part in self.parts for name, size in agreed.items()
        } | dict(agreed)


def bundle_of(parts: Sequence[BundlePart]) -> Exchange:
    """Return the exchange of some trainings' requests; the exchange itself of the main one's."""
    if [part.training for part in parts] == [MAIN]:
        return parts[0].exchange
    exchanges = [part.exchange for part in parts]
    names = list(dict.fromkeys(exchange.name for exchange in exchanges))
    checks = any(exchange.contradiction is not None for exchange in exchanges)
    derives = any(exchange.derived is not None for exchange in exchanges)
    return Bundle(
        name=" and ".join(names),
        meaning="requests of several trainings",
        sends=(*_HEAD, *(_renamed(part, item) for part in parts for item in part.exchange.sends)),
        returns=tuple(_renamed(part, item) for part in parts for item in part.exchange.returns),
        weight="rows" if any(exchange.weight == "rows" for exchange in exchanges) else "one",
        single_means=any(exchange.single_means for exchange in exchanges),
        same_parties=any(exchange.same_parties for exchange in exchanges),
        remembered=any(exchange.remembered for exchange in exchanges),
        contradiction=partial(_contradiction, tuple(parts)) if checks else None,
        derived=partial(_derived, tuple(parts)) if derives else None,
        parts=tuple(parts),
    )


def exchange_of(contract: Contract, values: Mapping[str, Any]) -> Exchange:
    """Return the exchange of a message from the plain values that it carries.

    Raises
    ------
    ConfigError
        If the contract has no such exchange, or a training is named twice.
    """
    if TRAININGS not in values:
        return contract.find(values.get("exchange"))
    if len(set(values[TRAININGS])) < len(values[TRAININGS]):
        raise ConfigError("The server asks one training twice in a message: start the run anew.")
    pairs = zip(values[TRAININGS], values[EXCHANGES], strict=True)
    return bundle_of([BundlePart(TrainingName.of(name), contract.find(own)) for name, own in pairs])


def parts_of(exchange: Exchange) -> tuple[BundlePart, ...]:
    """Return the parts of a bundle; any other exchange is a part of the main training."""
    return exchange.parts if isinstance(exchange, Bundle) else (BundlePart(MAIN, exchange),)


def head_of(parts: Sequence[BundlePart], seed: int) -> dict[str, Any]:
    """Return the values that a bundle adds to those of its requests."""
    return {
        TRAININGS: [part.training.name for part in parts],
        EXCHANGES: [part.exchange.name for part in parts],
        SEED: seed,
    }


def joined(parts: Iterable[tuple[BundlePart, Replies]]) -> Replies:
    """Return the replies to a bundle, from the replies to several trainings."""
    parties: dict[str, None] = {}
    combined: Arrays = {}
    by_party: dict[str, Arrays] = {}
    sums: dict[str, Summed] = {}
    for part, replies in parts:
        parties |= dict.fromkeys(replies.parties)
        sums |= replies.sums
        combined |= part.named(replies.combined)
        for name, arrays in replies.by_party.items():
            by_party.setdefault(name, {}).update(part.named(arrays))
    return Replies(tuple(parties), combined, by_party, sums)


def _renamed(part: BundlePart, item: Any) -> Any:
    """Return a declaration with the names that it has in a bundle."""
    named = part.training.named
    changed = {"name": named(item.name), "shape": _renamed_shape(part, item.shape)}
    changed |= {key: named(getattr(item, key)) for key in _NAMES if getattr(item, key, "")}
    return item if part.training == MAIN else replace(item, **changed)


def _renamed_shape(part: BundlePart, shape: Shape | None) -> Shape | None:
    if shape is None:
        return None
    return tuple(
        part.training.named(size) if isinstance(size, str) and size != "*" else size
        for size in shape
    )


def _contradiction(parts: Sequence[BundlePart], arrays: Arrays, known: ReplyContext) -> str:
    """Return how the reply of a training contradicts itself, in words; "" if none does."""
    for part in parts:
        if part.exchange.contradiction is None:
            continue
        own = ReplyContext(
            {name: known.sizes[part.training.named(name)] for name in _symbols(part, known)},
            part.sent(known.sent),
            known.setup,
            known.report,
            resampled=part.training.replicate > 0,
        )
        complaint = part.exchange.contradiction(part.returned(arrays), own)
        if complaint:
            return complaint if part.training == MAIN else f"{part.training.name}: {complaint}"
    return ""


def _derived(parts: Sequence[BundlePart], sent: Mapping[str, Any], setup: Setup) -> dict[str, int]:
    """Return the sizes of each training's further symbols, by their names in the bundle."""
    return {
        part.training.named(symbol): size
        for part in parts
        if part.exchange.derived is not None
        for symbol, size in part.exchange.derived(part.sent(sent), setup).items()
    }


def _symbols(part: BundlePart, known: ReplyContext) -> list[str]:
    """Return the symbols whose sizes a training knows."""
    prefix = part.training.named("")
    if not prefix:
        return list(known.sizes)
    return [name.removeprefix(prefix) for name in known.sizes if name.startswith(prefix)]
