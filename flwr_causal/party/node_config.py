"""A node's configuration: its keys, the type of each, and the only place where they are read.

A key that does not exist and a value of another type are errors: what a party writes to protect its
table never counts as not written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.core.words import MOST_OF_PARTY, as_seen, fault_of_name, nearest
from flwr_causal.data.interventions import split_names
from flwr_causal.errors import ConfigError
from flwr_causal.party.dictionary import MAP_KEY
from flwr_causal.protocol.release import RELEASES
from flwr_causal.secure.signatures import PEERS, SUMS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

#: The record's name beside the policy.
RECORD_FILE = "record.jsonl"
#: The key of several tables; in a TOML file each may have a key ``tables.NAME``.
TABLES = "tables"
_FLAGS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


class _WrongValueError(Exception):
    """What is wrong with a value, and the remedy; never the value, which may be a secret."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongValueError("is no text: put it in quotation marks")
    if not value.strip():
        raise _WrongValueError("is empty: write a text, or take the key out")
    return value.strip()


def _name(value: Any) -> str:
    name = _text(value)
    if fault := fault_of_name(name, MOST_OF_PARTY):
        raise _WrongValueError(f"{fault}: write it anew")
    return name


def _path(value: Any) -> Path:
    path = Path(_text(value))
    if "\0" in str(path):
        raise _WrongValueError("is no path: it has a null character")
    if not path.is_absolute():
        raise _WrongValueError("is no absolute path: give one")
    return path


def weakness_of(secret: str) -> str:
    """Return why a secret could be guessed; "" if it could not.

    Whoever has hashed ids and knows one id can try secrets at millions a second, so that it needs
    128 random bits: 32 hexadecimal digits, or 22 letters and digits. Randomness cannot be seen, but
    a short text, a repeated one, and one of few different characters have less.

    Parameters
    ----------
    secret : str
        Without blanks and ends of lines around it.
    """
    hexadecimal = not set(secret.lower()) - set("0123456789abcdef")
    least = 32 if hexadecimal else 22
    repeated = secret in (2 * secret)[1:-1]
    if len(secret) >= least and len(set(secret)) >= LEAST_DIFFERENT and not repeated:
        return ""
    return (
        f"can be guessed: it must be random, of {least} characters or more (`openssl rand -hex 32` "
        "makes one), and the same at all parties"
    )


def _secret(value: Any) -> str:
    secret = _text(value)
    if weakness := weakness_of(secret.strip()):
        raise _WrongValueError(weakness)
    return secret


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in _FLAGS:
        raise _WrongValueError("is neither true nor false: write true or false")
    return _FLAGS[text]


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _WrongValueError("is no whole number from 0 on: write one, without quotation marks")
    return value


def _columns(value: Any) -> tuple[str, ...]:
    names = tuple(split_names(_text(value)))
    if not names:
        raise _WrongValueError("names no column: write names, or take the key out")
    return names


def _pairs(value: Any) -> list[tuple[str, str]]:
    """Return names and paths of a text of pairs; :func:`_tables` checks them."""
    pairs = [pair.partition("=") for pair in _text(value).split(",") if pair.strip()]
    return [(name.strip(), path.strip()) for name, _, path in pairs]


#: Fewer different characters than random secrets have: 32 random hexadecimal digits have fewer than
#: 8 with a probability of 4e-8.
LEAST_DIFFERENT = 8


class Key(NamedTuple):
    """A key of a node's configuration.

    Parameters
    ----------
    meaning : str
        docs/policy.md lists it.
    read : callable
        Returns the value in its type.
    """

    meaning: str
    read: Callable[[Any], Any]


#: All keys; ``tables.NAME`` stands for one pair of ``tables``. A field of :class:`NodeConfig` each.
KEYS = {
    "name": Key("the party's name in logs, errors and results", _name),
    "data-path": Key("absolute path of its table, or of a directory of tables", _path),
    TABLES: Key("several tables: name=/path,name=/path", _pairs),
    "policy": Key("absolute path of its policy, a TOML file", _path),
    "record": Key(f"absolute path of its record; default: {RECORD_FILE} beside the policy", _path),
    RELEASES: Key(
        "absolute path of the directory in which it keeps private releases; default: releases "
        "beside the record",
        _path,
    ),
    "secure-aggregation": Key(
        "true: only runs in which the server learns sums over all parties alone", _flag
    ),
    SUMS_KEY: Key("absolute path of the party's key that signs its keys for secure sums", _path),
    PEERS: Key("absolute path of the parties' public keys, by which it knows theirs", _path),
    "row-secret-file": Key("absolute path of the text under which ids of rows are hashed", _path),
    "row-secret": Key("the text itself, which the machine's process list then shows", _secret),
    "model-path": Key("absolute path of a file in which the party keeps its circuits", _path),
    "learner": Key("of the party's own circuits (fedpc)", _text),
    MAP_KEY: Key(
        "absolute path of its map to the dictionary of a run: its own names, codes and units", _path
    ),
    "interventions": Key("columns on which interventions act in all of its rows", _columns),
    "partition-id": Key("in simulations only", _count),
    "num-partitions": Key("in simulations only", _count),
}


@dataclass(frozen=True)
class NodeConfig:
    """A node's configuration, checked; a field for each of :data:`KEYS`, with its meaning.

    Attributes
    ----------
    record : Path or None
        None where the node keeps no record; beside the policy if it is not given.
    releases : Path or None
        None where the node keeps no private releases; beside the record if it is not given.
    tables : dict of str to Path
        By name; empty if there is a `data_path`.
    """

    name: str = ""
    data_path: Path | None = None
    tables: Mapping[str, Path] = field(default_factory=dict)
    policy: Path | None = None
    record: Path | None = None
    releases: Path | None = None
    secure_aggregation: bool = False
    sums_key: Path | None = None
    peers: Path | None = None
    row_secret_file: Path | None = None
    row_secret: str = ""
    model_path: Path | None = None
    learner: str = ""
    dictionary_map: Path | None = None
    interventions: tuple[str, ...] = ()
    partition_id: int | None = None
    num_partitions: int | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether the node has the number of a simulated party in place of a table of its own."""
        return self.partition_id is not None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> NodeConfig:
        """Return the configuration that Flower hands to a node; keys are checked by `check_keys`.

        Raises
        ------
        ConfigError
            Naming the keys whose values cannot be used, the reasons and remedies.
        """
        # A node is asked often, and its configuration stays. No key has a value of another type.
        plain = {k: one if isinstance(one, str | int | float) else None for k, one in given.items()}
        return _read(tuple((key, type(value), value) for key, value in plain.items()))


@lru_cache(maxsize=1024)
def _read(items: tuple[tuple[str, type, Any], ...]) -> NodeConfig:
    """Return the configuration of keys, types and values; equal values of two types differ."""
    given = {key: value for key, _, value in items}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in given.items():
        if key in KEYS:
            try:
                values[key] = KEYS[key].read(value)
            except _WrongValueError as error:
                problems.append(f"'{key}' {error}")
    try:
        values[TABLES] = _tables(given, values.get(TABLES, ()))
    except _WrongValueError as error:
        problems.append(str(error))
    problems += _contradictions(given, values)
    if problems:
        raise _error(problems)
    policy, record = values.get("policy"), values.get("record")
    if record is None and policy is not None:
        record = values["record"] = policy.parent / RECORD_FILE
    if record is not None:
        values.setdefault(RELEASES, record.parent / RELEASES)
    return NodeConfig(**{key.replace("-", "_"): value for key, value in values.items()})


def check_keys(
    given: Iterable[str], further: Collection[str] = (), clients: Mapping[str, Any] | None = None
) -> None:
    """Check that a node's configuration has no key that nobody reads.

    Parameters
    ----------
    given : iterable of str
        The configuration's keys.
    further : collection of str, default ()
        Keys that the app's source reads.
    clients : mapping of str to type of CausalClient, optional
        By method; they declare ``node_keys``, which are written ``METHOD.KEY``.

    Raises
    ------
    ConfigError
        Naming the keys, and for each the nearest one that there is.
    """
    known = [*KEYS, *further]
    unknown = []
    for key in given:
        room, dot, name = key.partition(".")
        if key in known or (room == TABLES and dot):
            continue
        own = tuple(clients[room].node_keys) if clients and dot and room in clients else ()
        if name not in own:
            unknown.append((key, [*known, *(f"{room}.{one}" for one in own)]))
    if unknown:
        raise _error([_without(*one) for one in unknown])


def without_directories(text: str, given: Mapping[str, Any]) -> str:
    """Return a text with the files of a node's configuration by their names alone.

    Parameters
    ----------
    text : str
    given : mapping
        The configuration. Its paths, and the files of a directory among them, are looked for.
    """
    words = [word for value in given.values() for word in re.split("[,=]", str(value))]
    paths = [Path(word.strip()) for word in words if Path(word.strip()).is_absolute()]
    directories = {f"{one}/" for path in paths for one in (path, path.parent) if one != one.parent}
    # The longer ones first: a directory of tables lies in another one.
    for directory in sorted(directories, key=len, reverse=True):
        text = text.replace(directory, "")
    return text


def _without(key: str, known: Collection[str]) -> str:
    """Return the text that a key is unknown, with the most similar known one."""
    near = nearest(key.strip().lower().replace("_", "-"), known)
    text = f"there is no key '{key}'"
    return f"{text} (did you mean '{near}'?)" if near else f"{text} among {', '.join(known)}"


def _error(problems: Iterable[str]) -> ConfigError:
    return ConfigError(
        "Its node config cannot be used, so the party takes no part: "
        f"{'; '.join(problems)}. Start its node again with the right keys and values."
    )


def _tables(given: Mapping[str, Any], pairs: Iterable[tuple[str, str]]) -> dict[str, Path]:
    """Return the tables of ``tables``, and of the keys ``tables.NAME``, by name."""
    prefix = f"{TABLES}."
    own = [(key[len(prefix) :], path) for key, path in given.items() if key.startswith(prefix)]
    found: dict[str, Path] = {}
    for name, path in (*pairs, *own):
        usable = isinstance(path, str) and Path(path).is_absolute()
        if not (name.strip() and usable) or as_seen(name) in map(as_seen, found):
            raise _WrongValueError(
                f"'{TABLES}' is not of the form name=/absolute/path,name=/absolute/path with "
                "different names that a reader can tell apart"
            )
        found[name] = Path(path)
    return found


def _contradictions(given: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return the problems of keys that exclude each other."""
    found = []
    table = [key for key in given if key == "data-path" or key.split(".")[0] == TABLES]
    if "partition-id" in given and table:
        found.append(
            "'partition-id' means a simulation, in which the node would make up its data, and "
            f"'{table[0]}' names its own: take one of them out"
        )
    if "num-partitions" in given and "partition-id" not in given:
        found.append("'num-partitions' is of no use without 'partition-id': take it out")
    number, count = values.get("partition-id"), values.get("num-partitions")
    if number is not None and count is not None and number >= count:
        found.append("'partition-id' counts from 0 and is below 'num-partitions': correct it")
    if "row-secret" in given and "row-secret-file" in given:
        found.append("'row-secret' and 'row-secret-file' are one secret: take one of them out")
    return found
