"""Rules: what is looked for in the facts of a run, and what is said of it.

A rule reads facts by the names of its function's parameters, and is applied where they are known: a
party that withholds its numbers, the sums of all parties and a finished graph give other facts, and
so have other rules. docs/warnings.md is written from the rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import LISTED, markdown_table, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    #: The fields of each message of a rule.
    Fields = Iterable[Mapping[str, object]]

#: A field of what is found, in the words of a rule.
_FIELD = re.compile(r"\{[^}]*\}")
#: Where the first statement of a message ends.
_END = re.compile(r"[:;.,] | \(|\.$")


@dataclass(frozen=True)
class Notice:
    """A message as docs/warnings.md lists it.

    Parameters
    ----------
    words : str
        The message, or its first words; "..." for what differs from case to case.
    cause : str, default ""
        When it is told and by which methods, in Markdown. Empty: the page does not list it, as
        another one has its words.
    remedy : str, default ""
        What to do.
    """

    words: str
    cause: str = ""
    remedy: str = ""

    @property
    def listed_as(self) -> str:
        """The message as the page lists it."""
        return self.words


@dataclass(frozen=True, kw_only=True)
class FactRule(Notice):
    """A message, and what is looked for.

    Parameters
    ----------
    words : str
        The message, with the fields of what is found in braces.
    finds : callable
        Returns the fields of each message from the facts that its parameters name. A parameter with
        a default is a fact that may be unknown.
    title : str, default ""
        How it is listed. Empty: the first statement of the words.
    """

    finds: Callable[..., Fields]
    title: str = ""

    @property
    def listed_as(self) -> str:
        """The message as the page lists it."""
        first = _END.split(_FIELD.sub("\0", self.words))[0].rstrip("\0 ")
        return self.title or first.replace("\0", "...")

    @cached_property
    def reads(self) -> Mapping[str, Parameter]:
        """The facts that the rule reads."""
        return signature(self.finds).parameters

    @cached_property
    def needs(self) -> frozenset[str]:
        """The facts without which the rule is not applied."""
        return frozenset(k for k, one in self.reads.items() if one.default is Parameter.empty)


def found_by(
    rules: Iterable[Notice], facts: Mapping[str, Any]
) -> Iterator[tuple[FactRule, Mapping[str, Any]]]:
    """Yield what is found by the rules whose facts are known, in the order of the rules."""
    for rule in rules:
        if not isinstance(rule, FactRule) or not rule.needs <= facts.keys():
            continue
        known = {name: facts[name] for name in rule.reads if name in facts}
        for fields in rule.finds(**known):
            yield rule, fields


def told(rules: Iterable[Notice], facts: Mapping[str, Any]) -> list[str]:
    """Return the messages of the rules whose facts are known."""
    return [rule.words.format(**fields) for rule, fields in found_by(rules, facts)]


def listed(
    found: Iterable[str], *, most: int = LISTED, **further: Any
) -> list[Mapping[str, object]]:
    """Return the fields of one message that lists what is found; no fields if nothing is."""
    names = [*found]
    return [{"listed": some(names, most), **further}] if names else []


def table_of(notices: Iterable[Notice]) -> str:
    """Return the table of messages in Markdown."""
    rows = [(one.listed_as, one.cause, one.remedy) for one in notices if one.cause]
    return markdown_table(("Warning", "Cause", "Remedy"), rows) + "\n"
