"""The statements of background knowledge as users write them: lists of lists, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["LaggedEdge", "Pair", "arrow", "lagged_edges", "pairs", "tiers"]

#: (cause, effect).
Pair = tuple[str, str]

#: (cause, effect, lag), the lag counted from 1.
LaggedEdge = tuple[str, str, int]


def pairs(part: str, entries: Iterable[Sequence[str]]) -> tuple[Pair, ...]:
    """Return edges between different variables as pairs.

    Raises
    ------
    ConfigError
        For anything else, naming the entry.
    """
    result = []
    for entry in _tuples(part, entries):
        _check_names(part, entry)
        if len(entry) != 2:
            raise ConfigError(f"'{part}' holds {list(entry)}: expected pairs [cause, effect]")
        if entry[0] == entry[1]:
            raise ConfigError(f"'{part}' holds the edge {arrow(entry)} of a variable to itself")
        result.append((entry[0], entry[1]))
    return tuple(result)


def lagged_edges(
    part: str, entries: Iterable[Sequence[str | int]], *, every_lag: bool
) -> tuple[Pair | LaggedEdge, ...]:
    """Return edges with their lags; a variable's effect on itself is one too.

    Parameters
    ----------
    part : str
        What errors call the list.
    entries : iterable of (cause, effect, lag)
    every_lag : bool
        Whether a pair may stand for the edge at every lag.

    Raises
    ------
    ConfigError
        For anything else, naming the entry.
    """
    pair = " or, for every lag, [cause, effect]" if every_lag else ""
    result: list[Pair | LaggedEdge] = []
    for entry in _tuples(part, entries):
        _check_names(part, entry[:2])
        if len(entry) == 2 and every_lag:
            result.append((entry[0], entry[1]))
            continue
        if len(entry) != 3:
            raise ConfigError(f"'{part}' holds {list(entry)}: expected [cause, effect, lag]{pair}")
        cause, effect, lag = entry
        if isinstance(lag, bool) or not isinstance(lag, int | np.integer) or lag < 1:
            raise ConfigError(
                f"'{part}' holds {list(entry)}: the lag must be a whole number from 1 up, "
                f"got {lag!r}"
            )
        result.append((cause, effect, int(lag)))
    return tuple(result)


def tiers(entries: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return tiers as tuples of names, each name once.

    Raises
    ------
    ConfigError
        For anything else, naming the entry.
    """
    result = _tuples("tiers", entries)
    seen: set[str] = set()
    for tier in result:
        _check_names("tiers", tier)
        for name in tier:
            if name in seen:
                raise ConfigError(f"'tiers' lists {name!r} twice: a variable has one tier")
            seen.add(name)
    return result


def arrow(edge: Sequence[Any]) -> str:
    """Return an edge as people read it, with its lag if it has one."""
    lag = f" at lag {edge[2]}" if len(edge) > 2 else ""
    return f"{edge[0]} -> {edge[1]}{lag}"


def _tuples(part: str, entries: Iterable[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Return a list of lists as tuples; a string is not a list."""
    if isinstance(entries, str | bytes | dict) or not hasattr(entries, "__iter__"):
        raise ConfigError(f"'{part}' must be a list of lists of names, got {entries!r}")
    result = []
    for entry in entries:
        if isinstance(entry, str | bytes | dict) or not hasattr(entry, "__iter__"):
            raise ConfigError(f"'{part}' must be a list of lists of names, got {entry!r} in it")
        result.append(tuple(entry))
    return tuple(result)


def _check_names(part: str, names: Sequence[Any]) -> None:
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise ConfigError(
            f"'{part}' must be a list of lists of names, got {wrong[0]!r} as a name: quote it"
        )
