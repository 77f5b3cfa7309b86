"""Background knowledge: required edges, forbidden edges, and an order of tiers."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.saved import writing
from flwr_causal.core.words import nearest, some
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray


#: (cause, effect).
Pair = tuple[str, str]

#: (cause, effect, lag), the lag counted from 1.
LaggedEdge = tuple[str, str, int]


class EdgeMasks(NamedTuple):
    """Knowledge over the columns of one data set, as boolean matrices.

    Parameters
    ----------
    allowed : ndarray of bool, shape (d, d)
        Edges that the graph may have. False on the diagonal, on forbidden edges, against the tiers,
        and where the edge would close a cycle with required edges. True on every required edge.
    required : ndarray of bool, shape (d, d)
        Edges that the graph must have.
    """

    allowed: BoolArray
    required: BoolArray

    @classmethod
    def free(cls, size: int) -> EdgeMasks:
        """Return the masks without any knowledge."""
        return cls(~np.eye(size, dtype=bool), np.zeros((size, size), dtype=bool))

    def first(self, size: int) -> EdgeMasks:
        """Return the knowledge over the first columns alone."""
        return EdgeMasks(self.allowed[:size, :size], self.required[:size, :size])


class EdgeBlocks(NamedTuple):
    """Knowledge over the columns of time series: instantaneous edges, and edges at each lag.

    Parameters
    ----------
    allowed_now, required_now : ndarray of bool, shape (d, d)
        Instantaneous edges, as in `EdgeMasks`.
    allowed_lagged, required_lagged : ndarray of bool, shape (p, d, d)
        ``[l, i, j]``: the edge from i at t - l - 1 to j at t. The diagonals, effects of variables
        on their own future, are allowed unless they are forbidden.
    """

    allowed_now: BoolArray
    required_now: BoolArray
    allowed_lagged: BoolArray
    required_lagged: BoolArray


@dataclass(frozen=True)
class Knowledge:
    """Background knowledge about the graph. Every method's result agrees with all of it.

    Lists are accepted in place of tuples. An empty ``Knowledge()`` is false in a condition.

    Parameters
    ----------
    required : tuple of (cause, effect), default ()
        Edges that the graph must have. Sparsity, threshold and removal of cycles do not apply to
        them.
    forbidden : tuple of (cause, effect), default ()
        Edges that the graph must not have; the opposite edge remains allowed.
    tiers : tuple of tuples of names, default ()
        Groups of variables in temporal order: no edge leads from a later tier into an earlier one.
        Edges within a tier, and all edges of variables in no tier, remain allowed.
    required_lagged : tuple of (cause, effect, lag), default ()
        For time series: edges at a lag (1, 2, ...) that the graph must have. Cause and effect may
        be the same variable.
    forbidden_lagged : tuple of (cause, effect, lag) or (cause, effect), default ()
        For time series: edges at a lag that the graph must not have; a pair stands for every lag.
        Cause and effect may be the same variable.
    roots : tuple of names, default ()
        Variables that no other one causes, such as the party that a row is from.
    other_names : bool, default False
        Whether the tiers may name variables that the data do not have, as those of a dictionary of
        many runs; these are left out.

    Raises
    ------
    ConfigError
        If an entry has another form, a variable is in two tiers, or an edge without a lag leads
        from a variable to itself; if an edge is both required and forbidden, or is required against
        the tiers or into a root; if required edges form a cycle.

    Notes
    -----
    ``required``, ``forbidden``, ``tiers`` and ``roots`` concern edges without a lag only. An event
    of the evening cannot cause one of the same morning, but it may cause one of the next morning:
    tiers and acyclicity do not apply to lagged edges, and an edge may be absent within a time step
    and present between time steps.

    Examples
    --------
    >>> from flwr_causal import Knowledge
    >>> known = Knowledge(required=[("dose", "effect")], tiers=[("age",), ("dose", "effect")])
    >>> known.masks(("effect", "age", "dose")).allowed.astype(int)
    array([[0, 0, 0],
           [1, 0, 1],
           [1, 0, 0]])
    """

    required: tuple[Pair, ...] = ()
    forbidden: tuple[Pair, ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()
    required_lagged: tuple[LaggedEdge, ...] = ()
    forbidden_lagged: tuple[LaggedEdge | Pair, ...] = ()
    roots: tuple[str, ...] = ()
    other_names: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", _checked_pairs("required", self.required))
        object.__setattr__(self, "forbidden", _checked_pairs("forbidden", self.forbidden))
        object.__setattr__(self, "tiers", _checked_tiers(self.tiers))
        for part, every_lag in (("required_lagged", False), ("forbidden_lagged", True)):
            entries = _checked_lagged_edges(part, getattr(self, part), every_lag=every_lag)
            object.__setattr__(self, part, entries)
        object.__setattr__(self, "roots", _checked_roots(self.roots))
        self._check_contradictions()

    def _check_contradictions(self) -> None:
        """Raise a ConfigError if two statements contradict each other."""
        now, lagged = set(self.forbidden), set(self.forbidden_lagged)
        both: list[Pair | LaggedEdge] = [pair for pair in self.required if pair in now]
        both += [edge for edge in self.required_lagged if {edge, edge[:2]} & lagged]
        if both:
            raise ConfigError(f"{_arrow(both[0])} is both required and forbidden: drop one of them")
        tier_of = self._tier_of()
        for cause, effect in self.required:
            if effect in self.roots:
                raise ConfigError(
                    f"{cause} -> {effect} is required, but {effect} is a root, which nothing "
                    "causes: drop the edge, or take it out of 'roots'"
                )
            if tier_of.get(cause, -1) > tier_of.get(effect, len(self.tiers)):
                raise ConfigError(
                    f"{cause} -> {effect} is required, but {cause} is in tier {tier_of[cause] + 1}"
                    f", after {effect} in tier {tier_of[effect] + 1}: drop the edge or move a "
                    "variable"
                )
        if not self.required:
            return
        import networkx as nx  # takes 0.1 s, which parties without required edges save

        try:
            cycle = nx.find_cycle(nx.DiGraph(list(self.required)))
        except nx.NetworkXNoCycle:
            return
        path = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
        raise ConfigError(f"the required edges form a cycle, {path}: drop one of them")

    def _tier_of(self) -> dict[str, int]:
        """Return each listed variable's tier, counted from 0."""
        return {name: k for k, tier in enumerate(self.tiers) for name in tier}

    @property
    def longest_lag(self) -> int:
        """The longest lag of a statement; 0 if none has a lag."""
        edges = [*self.required_lagged, *self.forbidden_lagged]
        return max((edge[2] for edge in edges if len(edge) == 3), default=0)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in _STATEMENTS)

    def masks(self, names: Sequence[str]) -> EdgeMasks:
        """Return the knowledge as matrices over ``names``, for methods without lags.

        An edge j -> i is also disallowed if required edges lead from i to j, because the cycle
        could only be broken by removing a required edge.

        Parameters
        ----------
        names : sequence of str
            The data's ``d`` columns, in order.

        Raises
        ------
        ConfigError
            If the knowledge names a variable that is not among ``names``, or states lagged edges.
        """
        lagged = [*self.required_lagged, *self.forbidden_lagged]
        if lagged:
            raise ConfigError(
                f"the background knowledge states lagged edges ({_arrow(lagged[0])}"
                f"{', ...' if len(lagged) > 1 else ''}), but this method has no lags: leave them "
                "out, or use '2dbn', or 'moments' with an order"
            )
        return self._masks_now(names)

    def without_edges_of(
        self, leaving: Sequence[str], names: Sequence[str], *, lagged: bool = False
    ) -> Knowledge:
        """Return the knowledge with no edge of some variables but the required ones.

        Parameters
        ----------
        leaving : sequence of str
            These variables.
        names : sequence of str
            All variables.
        lagged : bool, default False
            Whether edges may have a lag.
        """
        ends = [(i, j) for i in names for j in names if i in leaving or j in leaving]
        now = {(i, j) for i, j in ends if i != j} - set(self.required)
        past = set(ends) - {edge[:2] for edge in self.required_lagged} if lagged else set()
        return replace(
            self,
            forbidden=tuple(sorted(now.union(self.forbidden))),
            forbidden_lagged=tuple(dict.fromkeys([*self.forbidden_lagged, *sorted(past)])),
        )

    def precedence(self, names: Sequence[str]) -> BoolArray:
        """Return the pairs (i, j) for which i precedes j in every causal order, shape (d, d).

        These follow from required edges, tiers and roots. Arguments and errors are those of
        :meth:`masks`.
        """
        index = {name: k for k, name in enumerate(names)}
        before = self.masks(names).required.copy()
        for earlier, later in self._tiers_apart(index):
            before[np.ix_(earlier, later)] = True
        return before

    def _tiers_apart(self, index: Mapping[str, int]) -> Iterable[tuple[list[int], list[int]]]:
        """Yield the positions of each tier's variables behind those of all earlier tiers.

        Roots come before all others.
        """
        earlier: list[int] = []
        yield self._root_places(index), [k for name, k in index.items() if name not in self.roots]
        for tier in self.tiers:
            later = [index[name] for name in tier if name in index]
            yield earlier, later
            earlier = earlier + later

    def _root_places(self, index: Mapping[str, int]) -> list[int]:
        return [index[name] for name in self.roots if name in index]

    def blocks(self, names: Sequence[str], order: int) -> EdgeBlocks:
        """Return the knowledge as matrices over ``names`` and their lags, for time series.

        Parameters
        ----------
        names : sequence of str
            The data's ``d`` columns, in order.
        order : int
            p, the number of lags.

        Raises
        ------
        ConfigError
            If the knowledge names a variable that is not among ``names``, or a lag beyond the
            order.
        """
        now = self._masks_now(names)
        index = {name: k for k, name in enumerate(names)}
        allowed = np.ones((order, len(index), len(index)), dtype=bool)
        required = np.zeros_like(allowed)
        for part, mask, value in (
            ("required_lagged", required, True),
            ("forbidden_lagged", allowed, False),
        ):
            for cause, effect, *lags in getattr(self, part):
                for lag in lags:
                    if lag > order:
                        raise ConfigError(
                            f"'{part}' states {_arrow((cause, effect, lag))}, but the order is "
                            f"{order}: set the order to {lag} or more, or leave the statement out"
                        )
                at = lags[0] - 1 if lags else slice(None)
                mask[at, index[cause], index[effect]] = value
        return EdgeBlocks(now.allowed, now.required, allowed, required)

    def _masks_now(self, names: Sequence[str]) -> EdgeMasks:
        """Return the knowledge of edges without a lag."""
        index = {name: k for k, name in enumerate(names)}
        self._check_known(index)
        required = np.zeros((len(index), len(index)), dtype=bool)
        for cause, effect in self.required:
            required[index[cause], index[effect]] = True

        allowed = ~np.eye(len(index), dtype=bool) & ~ancestors(required).T
        for cause, effect in self.forbidden:
            allowed[index[cause], index[effect]] = False
        for earlier, later in self._tiers_apart(index):
            allowed[np.ix_(later, earlier)] = False
        allowed[:, self._root_places(index)] = False
        return EdgeMasks(allowed, required)

    def _check_known(self, names: Iterable[str]) -> None:
        """Raise a ConfigError for a variable that the data do not have."""
        known = list(names)
        mentioned = {
            "required": [name for pair in self.required for name in pair],
            "forbidden": [name for pair in self.forbidden for name in pair],
            "tiers": [name for tier in self.tiers for name in tier if not self.other_names],
            "roots": self.roots,
            "required_lagged": [name for edge in self.required_lagged for name in edge[:2]],
            "forbidden_lagged": [name for edge in self.forbidden_lagged for name in edge[:2]],
        }
        for part, listed in mentioned.items():
            for name in listed:
                if name not in known:
                    raise ConfigError(
                        f"'{part}' names the variable {name!r}, which the data do not have"
                        f"{_suggestion(name, known)}"
                    )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the knowledge of ``{"required": [[a, b]], "tiers": [[...]], ...}``.

        Parameters
        ----------
        record : mapping
            Keys are names of fields of this class, in any number.

        Raises
        ------
        ConfigError
            If a key is not the name of a field, or the constructor refuses the values.
        """
        expected = [field.name for field in fields(cls)]
        for key in record:
            if key not in expected:
                raise ConfigError(f"unknown key {key!r} in knowledge: use {', '.join(expected)}")
        return cls(**record)

    def to_dict(self) -> dict[str, Any]:
        """Return the statements as lists of names and lags, ready for JSON and TOML."""
        found: dict[str, Any] = {
            name: [list(entry) for entry in getattr(self, name)] for name in _OF_LISTS
        }
        found |= {"roots": list(self.roots)} if self.roots else {}
        return found | ({"other_names": True} if self.other_names else {})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a ``.toml`` or ``.json`` file with the keys of `from_dict`.

        Raises
        ------
        ConfigError
            If the file is missing, has another suffix or is ill-formed, or `from_dict` refuses its
            content.
        """
        path = Path(path)
        parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
        if parse is None:
            raise ConfigError(f"knowledge file {path} is neither .toml nor .json: rename it")
        try:
            record = parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the knowledge file {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"knowledge file {path} is ill-formed: {error}") from None
        if not isinstance(record, dict):
            raise ConfigError(f"knowledge file {path} must hold a table with 'required' and so on")
        try:
            return cls.from_dict(record)
        except ConfigError as error:
            raise ConfigError(f"knowledge file {path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write a ``.toml`` or ``.json`` file that `load` reads back.

        Raises
        ------
        ConfigError
            If the file has another suffix, or cannot be written.
        """
        path = Path(path)
        record = self.to_dict()
        if path.suffix.lower() == ".json":
            text = json.dumps(record, indent=2) + "\n"
        elif path.suffix.lower() == ".toml":
            text = "".join(f"{key} = {_toml(value)}\n" for key, value in record.items())
        else:
            raise ConfigError(f"knowledge file {path} is neither .toml nor .json: rename it")
        with writing(path, "knowledge") as file:
            file.write_text(text, encoding="utf-8")


# The fields that state something of edges.
_STATEMENTS = tuple(one.name for one in fields(Knowledge) if one.name != "other_names")
# Those that are lists of lists.
_OF_LISTS = tuple(name for name in _STATEMENTS if name != "roots")


def as_knowledge(given: Knowledge | str | None) -> Knowledge | None:
    """Return background knowledge, read if it is given as the path of its file; "" is none.

    Raises
    ------
    ConfigError
        If the file cannot be read, see `Knowledge.load`.
    """
    if not isinstance(given, str):
        return given
    return Knowledge.load(given) if given else None


def in_words(knowledge: Knowledge) -> str:
    """Return what knowledge states, such as "tier 1: age, sex; tier 2: dose; required: a -> b"."""
    parts = [f"tier {k}: {', '.join(tier)}" for k, tier in enumerate(knowledge.tiers, 1)]
    for name in ("required", "forbidden", "required_lagged", "forbidden_lagged"):
        if edges := getattr(knowledge, name):
            words = name.replace("_lagged", " between steps")
            parts.append(f"{words}: {', '.join(map(_arrow, edges))}")
    if knowledge.roots:
        parts.append(f"not caused by others: {', '.join(knowledge.roots)}")
    return "; ".join(parts) or "none"


def _suggestion(name: str, known: Sequence[str]) -> str:
    """Return the end of a message: the most similar known name, or else the known names."""
    close = nearest(name, known)
    if close:
        return f"; did you mean {close!r}?"
    return f"; they have {some(known)}"


def _toml(value: Any) -> str:
    """Return a TOML array of arrays, or a truth value."""
    # JSON strings are TOML strings, except for the delete character, which TOML escapes.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked_pairs(part: str, entries: Iterable[Sequence[str]]) -> tuple[Pair, ...]:
    """Return edges between different variables as pairs.

    Raises
    ------
    ConfigError
        If an entry is not such an edge; the message names the entry.
    """
    result = []
    for entry in _tuples(part, entries):
        _check_names(part, entry)
        if len(entry) != 2:
            raise ConfigError(f"'{part}' holds {list(entry)}: expected pairs [cause, effect]")
        if entry[0] == entry[1]:
            raise ConfigError(f"'{part}' holds the edge {_arrow(entry)} of a variable to itself")
        result.append((entry[0], entry[1]))
    return tuple(result)


def _checked_lagged_edges(
    part: str, entries: Iterable[Sequence[str | int]], *, every_lag: bool
) -> tuple[Pair | LaggedEdge, ...]:
    """Return edges with their lags; cause and effect may be the same variable.

    Parameters
    ----------
    part : str
        Name of the list, for messages.
    entries : iterable of (cause, effect, lag)
        The list.
    every_lag : bool
        Whether a pair is accepted too; it stands for the edge at every lag.

    Raises
    ------
    ConfigError
        If an entry is not such an edge; the message names the entry.
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


def _checked_tiers(entries: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return tiers as tuples of names.

    Raises
    ------
    ConfigError
        If an entry is not a list of names, or a name occurs twice; the message names it.
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


def _checked_roots(entries: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple.

    Raises
    ------
    ConfigError
        If they are no list of names.
    """
    names = entries if isinstance(entries, list | tuple) else [entries]
    if names is not entries or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"'roots' must be a list of names, got {entries!r}")
    return tuple(dict.fromkeys(names))


def _arrow(edge: Sequence[Any]) -> str:
    """Return an edge as text, with its lag if it has one."""
    lag = f" at lag {edge[2]}" if len(edge) > 2 else ""
    return f"{edge[0]} -> {edge[1]}{lag}"


def _tuples(part: str, entries: Iterable[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Return a list of lists as a tuple of tuples; strings and mappings are refused."""
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
