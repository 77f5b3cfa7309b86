"""What all parties have agreed on before training, as it travels to each of them once.

**Form.** The parties' masks are bound to the agreement. What is not exactly what a server writes
(an empty name, a text in place of a number, a key that nobody knows) may be made to take one
agreement for another, and is refused before a key is derived from it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from flwr.app import ConfigRecord

from flwr_causal.contract.report import States, pack_states, unpack_states
from flwr_causal.contract.when import COLUMNS_DIFFER
from flwr_causal.core.options import to_plain
from flwr_causal.core.received import json_of
from flwr_causal.core.words import fault_of_name
from flwr_causal.data.check.handling import Handling
from flwr_causal.protocol.options import (
    REPORT,
    FormError,
    PartyOptions,
    SmallCounts,
    Treatment,
    received,
)
from flwr_causal.protocol.records import behind
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.secure.purposes import purpose_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from flwr_causal.protocol.records import Value

#: Hexadecimal digits of an agreement's name, of a public key, and of a signature.
TOKEN_DIGITS, KEY_DIGITS, SIGNATURE_DIGITS = 16, 64, 128
#: No number of an exchange is as large.
MOST_EXCHANGES = 2**31


def check_token(token: object) -> None:
    """Check the name of an agreement: 16 hexadecimal digits, as a server draws them.

    Raises
    ------
    FormError
        If it has another form.
    """
    if not _is_hex(token, TOKEN_DIGITS):
        raise FormError(_refused("exchange", f"{TOKEN_DIGITS} hexadecimal digits"))


def check_number(number: object) -> int:
    """Return the number of an exchange.

    Raises
    ------
    FormError
        If it is no whole number, negative or too large.
    """
    if type(number) is not int or not 0 <= number < MOST_EXCHANGES:
        raise FormError("The server's message has no possible number of an exchange.")
    return number


def is_key(text: object) -> bool:
    """Return whether a text has the form of a public key."""
    return _is_hex(text, KEY_DIGITS)


def is_signature(text: object) -> bool:
    """Return whether a text has the form of a signature."""
    return _is_hex(text, SIGNATURE_DIGITS)


def _check_lengths(entries: Mapping[str, Any]) -> None:
    """Check lists with a value for each column."""
    columns = len(entries["names"])
    counts = entries.get("num-states", [])
    texts = entries.get("states", [])
    if (len(counts) != columns and (counts or texts)) or sum(counts) != len(texts):
        raise FormError(_refused("num-states", "one number for each column, of all states"))
    for name in ("mean", "variance"):
        if len(entries[name]) not in (0, columns) or len(entries[name]) != len(entries["mean"]):
            raise FormError(_refused(name, "one number for each column, or none"))
        # Columns of categories have neither.
        named = counts or [0] * columns
        unknown = [math.isnan(one) for one in entries[name]]
        if any(nan and not count for nan, count in zip(unknown, named, strict=bool(unknown))):
            raise FormError(_refused(name, "a finite number for each column of numbers"))


def _check_keys(entries: Mapping[str, Any]) -> None:
    """Check lists with a value for each party, and the numbers of groups."""
    keys, groups = entries.get("keys", []), entries.get("groups", [])
    least = entries.get("least-parties", [])
    present = [key for key in keys if key]
    if keys and (len(keys) != entries["num-clients"] or len(set(present)) < len(present)):
        raise FormError(_refused("keys", "one key for each party, all different"))
    for name in ("key-names", "key-signatures", "groups"):
        if name in entries and len(entries[name]) != len(keys):
            raise FormError(_refused(name, "one value for each key"))
    if len(least) not in ((len(set(groups)),) if groups else (0, 1)) or (least and not keys):
        raise FormError(_refused("least-parties", "one number for each group"))


def _refused(name: str, words: str) -> str:
    return (
        f"The parties' agreement was refused: '{name}' must be {words}. Install the same version "
        "of flwr-causal on all machines."
    )


def _is_hex(text: object, digits: int) -> bool:
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) is not None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and not (value and fault_of_name(value))


def _whole_from(least: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value < 2**62


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_square(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _each(form: Callable[[object], bool], *, different: bool = False) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, list | tuple) or not all(map(form, value)):
            return False
        return not different or len(set(value)) == len(value)

    return check


def _is_list_of_names(text: object) -> bool:
    try:
        names = json_of(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return isinstance(names, list) and _each(_is_name, different=True)(names)


def _or_none(form: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda text: text == "" or form(text)


def _or_nan(form: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (isinstance(value, float) and math.isnan(value)) or form(value)


class Entry(NamedTuple):
    """One entry of an agreement, by the name of its value.

    Parameters
    ----------
    fits : callable
        Whether a plain value has the form that servers write.
    words : str
        This form, in words.
    optional : bool
        Whether it may be missing; an empty tuple is not written then.
    write, read : callable
        Write the value as a plain one, and read it again.
    """

    fits: Callable[[object], bool]
    words: str
    optional: bool = False
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda plain: plain


def _listed(fits: Callable[[object], bool], words: str, *, optional: bool = True) -> Entry:
    return Entry(fits, words, optional, list, tuple)


def _numbers(form: Callable[[object], bool], words: str) -> Entry:
    read = partial(np.array, dtype=np.float64)
    return Entry(_each(_or_nan(form)), words, write=np.ndarray.tolist, read=read)


_ENTRIES: dict[str, Entry] = {
    "names": _listed(_each(_is_name, different=True), "different names", optional=False),
    "num-rows": Entry(_whole_from(0), "a whole number, 0 or more"),
    "num-clients": Entry(_whole_from(1), "a whole number, 1 or more"),
    "mean": _numbers(_is_number, "finite numbers"),
    "variance": _numbers(_is_square, "finite numbers, 0 or more"),
    "precision": Entry(lambda value: value in ("float64", "float32"), "float64 or float32"),
    "minimum-count": Entry(_whole_from(0), "a whole number, 0 or more"),
    "small-counts": Entry(
        lambda value: value in get_args(Treatment), f"one of {', '.join(get_args(Treatment))}"
    ),
    "exchange": Entry(
        lambda value: _is_hex(value, TOKEN_DIGITS), f"{TOKEN_DIGITS} hexadecimal digits"
    ),
    "terms": Entry(lambda value: isinstance(value, str), "a text", optional=True),
    "signature": Entry(_or_none(is_signature), "a signature in hexadecimal digits", optional=True),
    "states": _listed(_each(_is_name), "names"),
    "num-states": _listed(_each(_whole_from(0)), "whole numbers, 0 or more"),
    "targets": Entry(
        _each(_is_list_of_names, different=True),
        "different lists of names",
        optional=True,
        write=lambda value: [json.dumps(one) for one in value],
        read=lambda plain: tuple(tuple(json_of(text)) for text in plain),
    ),
    "keys": _listed(_each(_or_none(is_key)), "public keys in hexadecimal digits"),
    "least-parties": _listed(_each(_whole_from(1)), "whole numbers, 1 or more"),
    "groups": _listed(_each(_whole_from(1)), "whole numbers, 1 or more"),
    "key-names": _listed(_each(_is_name), "names"),
    "key-signatures": _listed(_each(_or_none(is_signature)), "signatures in hexadecimal digits"),
}


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an agreement as plain ones, both by names without the prefix."""
    return {
        name: entry.write(values[name])
        for name, entry in _ENTRIES.items()
        if not (entry.optional and values[name] == ())
    }


def read(config: Mapping[str, Any], prefixes: Collection[str]) -> dict[str, Any]:
    """Return the values of an agreement that has the form which servers write.

    Parameters
    ----------
    config : mapping
        By names without the prefix of agreements.
    prefixes : collection of str
        Of names that are read elsewhere: the handling's and the options'.

    Raises
    ------
    FormError
        Naming the first value that is missing, unknown or of another form.
    """
    plain = {name: one for name, one in config.items() if not name.startswith(tuple(prefixes))}
    for name in plain:
        if name not in _ENTRIES:
            raise FormError(_refused(name, "in no agreement"))
    for name, entry in _ENTRIES.items():
        if name in plain and not entry.fits(plain[name]):
            raise FormError(_refused(name, entry.words))
        if name not in plain and not entry.optional:
            raise FormError(_refused(name, "in every agreement"))
    _check_lengths(plain)
    _check_keys(plain)
    return {name: _ENTRIES[name].read(one) for name, one in plain.items()}


PREFIX = "setup-"
#: The name of the digest in a node's record of the setup.
DIGEST = "digest"
_HANDLING, _OPTION = "policy-", "option-"
_NUMBERS = (PREFIX + "mean", PREFIX + "variance")
KEYS = PREFIX + "keys"
TERMS = PREFIX + "terms"
SIGNATURE = PREFIX + "signature"
KEY_NAMES, KEY_SIGNATURES = PREFIX + "key-names", PREFIX + "key-signatures"
LEAST = PREFIX + "least-parties"


@dataclass(frozen=True)
class Setup:
    """The answer to the schema exchange: everything a party needs to prepare its own rows.

    Parameters
    ----------
    names : tuple of str
        Agreed columns, in the order of the first party.
    num_rows : int
        Rows of all parties together (n).
    num_clients : int
        Number of parties (K).
    mean, variance : ndarray of shape (d,)
        Mean and variance (1/n) of every agreed column over the rows of all parties; empty where the
        method does not ask for sums.
    handling : Handling
        How problems of the data are handled.
    precision : str
        The type in which floating-point arrays are sent, "float64" or "float32".
    small : SmallCounts
        What parties do with counts of few rows.
    options : PartyOptions
        The options that the parties need: an object of the contract's class ``options``.
    exchange : str
        A random name of this schema exchange. A ServerApp may run several methods one after the
        other; a client that finds another name here discards what it kept from an earlier one.
    states : tuple of tuple of str
        For methods on categories: the agreed states of every column, empty for one that is to be
        discretised. ``()`` for the others.
    targets : tuple of tuple of str
        The different sets of columns on which known interventions act, by which rows are grouped;
        empty if there are no interventions.
    keys : tuple of str
        The public keys of all parties, in hexadecimal digits, in the parties' order; "" for a
        party that is absent from a resumed run. For secure sums, or for masked tables between
        parties that hold different columns; else empty.
    key_names, key_signatures : tuple of str
        By key, the name of its party and the party's signature of it; empty where no party signs.
    groups : tuple of int
        By key, the group of its party; a secure sum is that of one group's parties. Empty where
        all parties are in one sum.
    least_parties : tuple of int
        By group, in the order of their numbers, how many of its parties must be in a secure sum;
        one number without groups. Empty without secure aggregation.
    terms, signature : str
        What the run asks of the parties, and the coordinator's signature of it, see
        :mod:`flwr_causal.protocol.terms`; by them a party's policy decides.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.check.handling import Handling
    >>> from flwr_causal.protocol.setup import Setup
    >>> setup = Setup(("x", "y"), 100, 3, np.zeros(2), np.ones(2), Handling())
    >>> setup.names, setup.num_rows
    (('x', 'y'), 100)
    """

    names: tuple[str, ...]
    num_rows: int
    num_clients: int
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    handling: Handling
    precision: str = "float64"
    small: SmallCounts = REPORT
    options: Any = field(default_factory=PartyOptions)
    exchange: str = ""
    states: States = ()
    targets: tuple[tuple[str, ...], ...] = ()
    keys: tuple[str, ...] = ()
    terms: str = ""
    signature: str = ""
    key_names: tuple[str, ...] = ()
    key_signatures: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    least_parties: tuple[int, ...] = ()

    @property
    def circles(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """By group, the keys of those that add up together, and how many must be in a sum.

        There is "" in the places of the parties of other groups. Without groups the number is 0.
        """
        groups = self.groups or (0,) * len(self.keys)
        pairs = list(zip(self.keys, groups, strict=True))
        return {
            group: (tuple(key if own == group else "" for key, own in pairs), least)
            for group, least in zip(sorted(set(groups)), self.least_parties, strict=True)
        }

    @property
    def present(self) -> dict[int, int]:
        """By group, how many of its parties have keys; others are in no sum."""
        groups = self.groups or (0,) * len(self.keys)
        return Counter(group for key, group in zip(self.keys, groups, strict=True) if key)

    @cached_property
    def digest(self) -> str:
        """A digest of everything that the parties have agreed on, 64 hexadecimal digits."""
        plain = {name: one for name, one in self.to_config().items() if name not in _NUMBERS}
        # A text of JSON tells types and ends of values as well, and is made faster.
        text = json.dumps(plain, sort_keys=True)
        return purpose_of("agreement", text, self.mean, self.variance).hex()

    @cached_property
    def record(self) -> ConfigRecord:
        """The setup as a node keeps it, to be copied."""
        return ConfigRecord({**self.to_config(), DIGEST: self.digest})

    def of_training(self, name: str) -> Setup:
        """Return the agreement of a further training, whose digest follows from this one's."""
        own = replace(self, exchange=f"{self.exchange} {name}")
        own.__dict__["digest"] = purpose_of("training", self.digest, name).hex()
        return own

    @cached_property
    def run(self) -> Mapping[str, Any]:
        """The run by its stated options, as the conditions of exchanges see it.

        Raises
        ------
        ConfigError
            If the terms state none.
        """
        stated = RunTerms.from_text(self.terms).options if self.terms else {}
        chosen = {
            one.name: getattr(self.options, one.name)
            for one in fields(self.options)
            if one.metadata.get("chosen")
        }
        # With secure sums there are keys in any case; rows are matched where columns are kept.
        kept = self.handling.unshared_columns == "keep" != stated.get("unshared_columns")
        return {**stated, **chosen, COLUMNS_DIFFER: bool(self.keys) and (kept or not self.masked)}

    @property
    def masked(self) -> bool:
        """Whether sums are secure sums."""
        return bool(self.least_parties)

    @property
    def continuous(self) -> tuple[str, ...]:
        """The columns that are to be discretised; none without states."""
        if not self.states:
            return ()
        pairs = zip(self.names, self.states, strict=True)
        return tuple(name for name, states in pairs if not states)

    @property
    def summed(self) -> tuple[str, ...]:
        """The columns of which parties report sums and sums of squares: those without states."""
        return self.continuous if self.states else self.names

    def to_config(self) -> dict[str, Value]:
        """Return the setup as plain values whose keys start with ``setup-``."""
        texts, counts = pack_states(self.states)
        values = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        values |= {"states": tuple(texts), "num-states": tuple(counts)}
        values |= {"minimum-count": self.small.minimum, "small-counts": self.small.treatment}
        plain = written(values)
        if self.keys:
            plain.setdefault("least-parties", [])
        parts = {_HANDLING: self.handling, _OPTION: self.options}
        plain |= {k + name: v for k, part in parts.items() for name, v in to_plain(part).items()}
        return {PREFIX + name: value for name, value in plain.items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], options: type[PartyOptions]) -> Setup:
        """Rebuild the setup from a message's configuration.

        Parameters
        ----------
        config : mapping
        options : type
            The class of the contract's options.

        Raises
        ------
        FormError
            If something of it is missing, unknown, or has another form than servers write.
        """
        plain = behind(PREFIX, config)
        values = read(plain, (_HANDLING, _OPTION))
        states = unpack_states(values.pop("states", ()), values.pop("num-states", ()))
        small = SmallCounts(values.pop("minimum-count"), values.pop("small-counts"))
        return cls(
            **{name.replace("-", "_"): value for name, value in values.items()},
            states=states,
            small=small,
            handling=received(Handling, behind(_HANDLING, plain)),
            options=received(options, behind(_OPTION, plain)),
        )
