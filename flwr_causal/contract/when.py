"""Which runs have an exchange: conditions on what a run states, as data.

``When(mode="exact", parameters=(None, True))`` holds in a run that states one of these values of
each option. ``&``, ``|`` and ``~`` combine conditions; ``str`` has them in words, or in those that
:meth:`Condition.called` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a run says beside its options: whether parties hold different columns of the same rows.
COLUMNS_DIFFER = "columns_differ"


@dataclass(frozen=True)
class Condition:
    """Base of the conditions."""

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether a run has it.

        Parameters
        ----------
        run : mapping
            What the run states, by the names of options. An option that it does not state has no
            value.
        """
        raise NotImplementedError

    def __and__(self, other: Condition) -> Condition:
        return Every(_parts(Every, self) + _parts(Every, other))

    def __or__(self, other: Condition) -> Condition:
        return Some(_parts(Some, self) + _parts(Some, other))

    def __invert__(self) -> Condition:
        return Unless(self)

    def called(self, words: str) -> Condition:
        """Return the condition, in these words."""
        return Called(self, words)


@dataclass(frozen=True)
class Stated(Condition):
    """One of some values of an option."""

    option: str
    values: tuple[Any, ...]

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether the run states one of the values."""
        return self.option in run and run[self.option] in self.values

    def __str__(self) -> str:
        return f"{self.option}={' or '.join(map(repr, self.values))}"


@dataclass(frozen=True)
class Every(Condition):
    """All of several conditions; without any it always holds."""

    parts: tuple[Condition, ...] = ()

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether all of them hold."""
        return all(part.holds(run) for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(_within(part, Some) for part in self.parts)


@dataclass(frozen=True)
class Some(Condition):
    """At least one of several conditions."""

    parts: tuple[Condition, ...]

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether one of them holds."""
        return any(part.holds(run) for part in self.parts)

    def __str__(self) -> str:
        return ", or ".join(map(str, self.parts))


@dataclass(frozen=True)
class Unless(Condition):
    """That a condition does not hold."""

    part: Condition

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether it does not."""
        return not self.part.holds(run)

    def __str__(self) -> str:
        return f"without {_within(self.part, Every, Some)}"


@dataclass(frozen=True)
class Called(Condition):
    """A condition in words of its own."""

    part: Condition
    words: str

    def holds(self, run: Mapping[str, Any]) -> bool:
        """Return whether the condition holds."""
        return self.part.holds(run)

    def __str__(self) -> str:
        return self.words


def When(**options: Any) -> Condition:  # noqa: N802 (reads as a declaration)
    """Return the condition that a run states these values of options; a tuple lists several."""
    stated = tuple(
        Stated(name, value if isinstance(value, tuple) else (value,))
        for name, value in options.items()
    )
    return stated[0] if len(stated) == 1 else Every(stated)


#: Holds in every run.
ALWAYS = Every()
#: Runs in which the server learns sums over all parties, or over groups of them, only.
POOLED = When(secure_aggregation=True)
#: Runs in which parties hold different columns of the same rows: the agreement has keys of pairs.
DIFFERENT = Stated(COLUMNS_DIFFER, (True,)).called("different columns at the parties")


def _parts(kind: type[Every | Some], condition: Condition) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, kind) else (condition,)


def _within(part: Condition, *kinds: type[Condition]) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)
