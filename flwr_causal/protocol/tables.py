"""The tables of the pages on privacy: everything that a contract lets pass, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.contract.report import PARTS
from flwr_causal.core.words import markdown_table
from flwr_causal.protocol.schema import FACTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr_causal.contract.exchange import Disclosure, Exchange, Sent, Shape
    from flwr_causal.protocol.contract import Contract


def leaves(contract: Contract) -> str:
    """Return the table of everything that leaves a party, a row for each disclosure."""
    rows = []
    for exchange in contract.exchanges:
        for number, item in enumerate(exchange.returns):
            head = (f"`{exchange.name}`", exchange.when_in_words) if number == 0 else ("", "")
            rows.append((*head, _returned(item), _size(item.shape), _combination(exchange, item)))
    heads = ("Exchange", "When", "Leaves the party", "Size", "Combined by the server")
    return markdown_table(heads, rows) + "\n"


def row_entries(contracts: Iterable[Contract]) -> str:
    """Return the table of everything that has an entry for each row of a party."""
    places: dict[tuple[str, Disclosure], list[str]] = {}
    for contract in contracts:
        for exchange in contract.exchanges:
            for item in exchange.returns:
                if item.rows:
                    places.setdefault((contract.method, item), []).append(f"`{exchange.name}`")
    heads = ("Method", "Leaves the party", "An entry for", "Size", "In the exchanges")
    rows = [
        (f"`{method}`", _named(item), item.rows, _size(item.shape), ", ".join(names))
        for (method, item), names in places.items()
    ]
    return markdown_table(heads, rows) + "\n"


def is_sent(contract: Contract) -> str:
    """Return the table of what a party is sent, a row for each exchange.

    A thing that is sent in several exchanges has its meaning at the first one, then its name only.
    """
    known: set[Sent] = set()
    rows = []
    for exchange in contract.exchanges:
        things = [
            f"`{item.name}`" if item in known else f"{_named(item)}{_in_brackets(item)}"
            for item in exchange.sends
        ]
        known.update(exchange.sends)
        rows.append((f"`{exchange.name}`", exchange.meaning, "; ".join(things) or "nothing"))
    return markdown_table(("Exchange", "What it is for", "A party is sent"), rows) + "\n"


def report(contracts: Iterable[Contract]) -> str:
    """Return the table of what leaves a party in the schema exchange."""
    known = list(contracts)
    rows = []
    for fact in FACTS:
        when = "always"
        if fact.part is not None:
            methods = [f"`{one.method}`" for one in known if fact.part in one.reports]
            when = f"{PARTS[fact.part]} ({', '.join(methods)})"
        rows.append((f"`{fact.key}`", fact.meaning, fact.each or "table", when))
    return markdown_table(("Key", "Meaning", "One for each", "When"), rows) + "\n"


def _named(item: Disclosure | Sent) -> str:
    return f"`{item.name}`: {item.meaning}"


def _returned(item: Disclosure) -> str:
    marked = f"{_named(item)}. **An entry for {item.rows}**" if item.rows else _named(item)
    return f"{marked} (may be left out)" if item.optional else marked


def _in_brackets(item: Sent) -> str:
    return f" ({_size(item.shape)})" if item.shape is not None else ""


def _size(shape: Shape) -> str:
    return (
        " \N{MULTIPLICATION SIGN} ".join("any" if size == "*" else str(size) for size in shape)
        or "one number"
    )


def _combination(exchange: Exchange, item: Disclosure) -> str:
    if item.combine == "mean":
        return "averaged" if exchange.weight == "one" else "averaged, weighted by rows"
    return "added up" if item.combine == "sum" else "kept by party"
