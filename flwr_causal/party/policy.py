"""A party's policy: a TOML file that stays with the party and says what runs may ask of it.

What it does not limit is allowed. A refusal names a rule of the policy, never its value, a column
or anything else of the party's table; the party's own log has the details.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.metadata import entry_points
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.core.privacy.calibration import USUAL_DELTA
from flwr_causal.core.words import as_seen, nearest
from flwr_causal.errors import ConfigError, PolicyError
from flwr_causal.party.options import (
    METHODS_GROUP,
    in_words,
    is_possible,
    options_by_method,
)
from flwr_causal.protocol.options import Guarantee
from flwr_causal.protocol.terms import is_signed, public_key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from flwr_causal.protocol.options import PartyOptions, Setting
    from flwr_causal.protocol.terms import RunTerms

#: The keys of a range of allowed numbers.
_RANGE = frozenset({"least", "most"})


@dataclass(frozen=True)
class ColumnRules:
    """The table ``[columns]`` of a policy; ``*`` is any text, ``?`` a character.

    Names are compared without case, blanks, invisible characters and forms of Unicode.

    Parameters
    ----------
    allowed : tuple of str, default ()
        The only columns that runs see; default: all.
    never : tuple of str, default ()
        Columns that no run sees, not even their names.
    identifiers : tuple of str, default ()
        Columns that look like identifiers and may be used all the same.
    """

    allowed: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()

    @property
    def shows_all(self) -> bool:
        """Whether runs see every column."""
        return not self.allowed and not self.never

    def shows(self, name: str) -> bool:
        """Return whether runs see a column."""
        return self.shows_as(name, name)

    def shows_as(self, name: str, own: str) -> bool:
        """Return whether runs see a column whose name at the party differs from that in the run."""
        allowed = not self.allowed or _any(self.allowed, name) or _any(self.allowed, own)
        return allowed and not (_any(self.never, name) or _any(self.never, own))

    def knows(self, name: str) -> bool:
        """Return whether a column that looks like an identifier may be used."""
        return _any(self.identifiers, name)


def _any(patterns: tuple[str, ...], name: str) -> bool:
    seen, stands_for = as_seen(name), {"*": ".*", "?": "."}
    return any(
        re.fullmatch(
            "".join(stands_for.get(one, re.escape(one)) for one in as_seen(pattern)),
            seen,
            re.DOTALL,
        )
        for pattern in patterns
    )


@dataclass(frozen=True)
class PartyPolicy:
    """What runs may ask of a party. A rule that is left out allows everything.

    Parameters
    ----------
    methods : tuple of str, default ()
        Ids of the methods that may run.
    tables : tuple of str, default ()
        Names of the tables that runs may use; they do not see the others. Default: all.
    secure_aggregation : bool, default False
        Whether the server must learn sums over all parties only.
    least_parties : int, default 1
        Fewest parties of a run.
    least_rows : int, default 0
        Fewest rows that the party trains on.
    most_exchanges_a_day : int or None, default None
        Most replies that leave the party in 24 hours, of all runs, without those of schema
        exchanges.
    epsilon : float or None, default None
        Most that all releases in the party's record may lose together, at ``delta``. A run without
        the option ``epsilon`` is refused.
    delta : float or None, default None
        With ``epsilon``: the delta at which the losses are added up, and the largest delta of a
        run. Default: 1e-5.
    askers : tuple of str, default ()
        Ed25519 public keys, as in the ``.pub`` files of ``ssh-keygen``. One of them must have
        signed the run.
    columns : ColumnRules
        Which columns runs see.
    options : mapping
        What the options of a run may be: a value, a list of values, or a table with ``least`` and
        ``most``. A table under a method's id holds rules for runs of this method only. A run that
        lacks a limited option is refused.

    Raises
    ------
    ConfigError
        If a rule cannot be used.
    """

    methods: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    secure_aggregation: bool = False
    least_parties: int = 1
    least_rows: int = 0
    most_exchanges_a_day: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    askers: tuple[str, ...] = ()
    columns: ColumnRules = field(default_factory=ColumnRules)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("least_parties", "least_rows", "most_exchanges_a_day"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ConfigError(f"{_kebab(name)} is {value!r}: give a whole number")
            if value is not None and value < 0:
                raise ConfigError(f"{_kebab(name)} is {value}: give 0 or more")
        if not isinstance(self.secure_aggregation, bool):
            raise ConfigError("secure-aggregation: give true or false")
        if self.epsilon is not None and not (_is_number(self.epsilon) and self.epsilon >= 0):
            raise ConfigError(f"epsilon is {self.epsilon!r}: give a number, 0 or more")
        if self.delta is not None and not (_is_number(self.delta) and 0 < self.delta < 1):
            raise ConfigError(f"delta is {self.delta!r}: give a number between 0 and 1")
        if self.delta is not None and self.epsilon is None:
            raise ConfigError("delta is the delta of the rule epsilon: give both, or neither")
        _check_methods(self.methods)
        _check_rules(self.options)
        for line in self.askers:
            public_key_of(line)

    @property
    def used_delta(self) -> float:
        """The rule ``delta`` or its default."""
        return USUAL_DELTA if self.delta is None else self.delta

    @property
    def counts(self) -> bool:
        """Whether a rule limits numbers that follow from the record."""
        return self.most_exchanges_a_day is not None or self.epsilon is not None

    @classmethod
    def read(cls, path: str | Path) -> PartyPolicy:
        """Read the policy of a file.

        Raises
        ------
        ConfigError
            If the file cannot be read, or has a rule that there is not.
        """
        file = Path(path)
        try:
            return _read(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"The party's policy {file} cannot be read: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"The party's policy {file}: {error}") from error

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PartyPolicy:
        """Return the policy of a TOML file's values.

        Raises
        ------
        ConfigError
            If a rule does not exist or cannot be used.
        """
        given = _fields_of(cls, values, "")
        columns = given.pop("columns", {})
        options = given.pop("options", {})
        if not isinstance(columns, dict) or not isinstance(options, dict):
            raise ConfigError("'columns' and 'options' are tables: write [columns] and [options]")
        for name in ("methods", "tables", "askers"):
            if name in given:
                given[name] = _texts(name, given[name])
        shown = {
            name: _texts(name, rule)
            for name, rule in _fields_of(ColumnRules, columns, "columns.").items()
        }
        return cls(columns=ColumnRules(**shown), options=options, **given)

    def gives(self, table: str) -> bool:
        """Return whether runs may use the table of this name."""
        return not self.tables or table in self.tables

    def check(self, terms: RunTerms) -> None:
        """Check what a run asks.

        Raises
        ------
        PolicyError
            Naming the rule that refuses it.
        """
        if self.methods and terms.method not in self.methods:
            raise PolicyError("methods", f"the run's method is '{terms.method}'")
        if self.secure_aggregation and not terms.secure:
            raise PolicyError("secure-aggregation", "the run adds nothing up securely")
        if terms.parties < self.least_parties:
            raise PolicyError(
                "least-parties",
                f"the run starts with {terms.parties} parties, the policy asks for "
                f"{self.least_parties}; the coordinator raises it by the option "
                "'min_available_nodes'",
            )
        for name, rule in self._rules(terms.method):
            option = _snake(name)
            if option not in terms.options:
                raise PolicyError(f"options.{name}", f"'{terms.method}' has no such option")
            if not _allows(rule, terms.options[option]):
                raise PolicyError(f"options.{name}", f"the run has {terms.options[option]!r}")
        if self.epsilon is not None:
            self._guarantee(terms)

    def check_asker(self, text: str, run_id: int, signature: str) -> None:
        """Check who has signed the terms of a run.

        Raises
        ------
        PolicyError
            If none of the policy's keys has.
        """
        if self.askers and not is_signed(text, run_id, signature, self.askers):
            raise PolicyError("askers", "no key of the policy has signed the run")

    def check_kept(
        self, terms: RunTerms, method: str, options: PartyOptions, *, masked: bool
    ) -> None:
        """Check that a message keeps to the terms.

        Parameters
        ----------
        terms : RunTerms
        method : str
            Of the message.
        options : PartyOptions
            Those that the party is sent.
        masked : bool
            Whether what leaves the party is masked.

        Raises
        ------
        PolicyError
            Naming the rule that refuses it.
        """
        if terms.method != method:
            raise PolicyError("methods", f"the terms are of '{terms.method}', not of '{method}'")
        if self.secure_aggregation and not masked:
            raise PolicyError("secure-aggregation", "what would leave the party is not masked")
        if self.epsilon is not None and options.guarantee != self._guarantee(terms):
            raise PolicyError(
                "epsilon", "the party is sent other epsilon, delta or scales than the terms"
            )

    def check_settings(self, terms: RunTerms, settings: Sequence[Setting]) -> None:
        """Check what a message asks, wherever it says so.

        Parameters
        ----------
        terms : RunTerms
        settings : sequence of Setting
            All of the message.

        Raises
        ------
        PolicyError
            If a rule does not allow a setting, or the terms state another one.
        """
        rules: dict[str, list[Any]] = {}
        for name, rule in self._rules(terms.method):
            rules.setdefault(_snake(name), []).append(rule)
        for option, value, fits, judged, always in settings:
            name, own = _kebab(option), rules.get(option, ())
            if judged and not all(_allows(rule, value) for rule in own):
                raise PolicyError(f"options.{name}", f"the party is asked for {value!r}")
            if option in terms.options and not fits(terms.options[option], value):
                signed = self.askers and not own and not always
                raise PolicyError(
                    "askers" if signed else f"options.{name}",
                    f"the party is asked for '{name}' {value!r}, which the run did not state",
                )
            if always and option not in terms.options and value:
                raise PolicyError(f"options.{name}", f"the run did not state '{name}'")

    def _guarantee(self, terms: RunTerms) -> Guarantee:
        """Return the guarantee of a run, which the policy asks for."""
        try:
            guarantee = Guarantee.of(terms.options)
        except ConfigError as error:
            raise PolicyError("epsilon", str(error)) from error
        if guarantee is None:
            raise PolicyError("epsilon", "the run has no option 'epsilon', a bound of its loss")
        if guarantee.delta > self.used_delta:
            raise PolicyError("delta", f"the run's delta is {guarantee.delta:g}")
        return guarantee

    def _rules(self, method: str) -> Iterable[tuple[str, Any]]:
        """Yield the rules of a method's options."""
        for name, rule in self.options.items():
            if not isinstance(rule, dict) or rule.keys() <= _RANGE:
                yield name, rule
            elif name == method:
                yield from rule.items()


def _check_methods(methods: Sequence[str]) -> None:
    """Check the rule ``methods``: a name near one of this package's is a misspelt one.

    Methods of other packages may be named, also before their package is installed.

    Raises
    ------
    ConfigError
        If a method of this package seems to be meant.
    """
    own = options_by_method() if methods else {}
    for name in methods:
        if nearest(name.strip().lower(), own, 0.7) and not _declared(name):
            _check_known(name, own, "methods", "method")


def _check_rules(options: Mapping[str, Any]) -> None:
    """Check the table ``[options]`` of a policy.

    Raises
    ------
    ConfigError
        If no method has an option of the name of a rule, or a rule cannot be used.
    """
    # Each message makes a policy; most have no such rule, and methods are looked for on the disk.
    own = options_by_method() if options else {}
    everywhere: dict[str, tuple[str, ...]] = {}
    for known in own.values():
        for option, values in known.items():
            everywhere[option] = tuple(dict.fromkeys((*everywhere.get(option, ()), *values)))
    for name, rule in options.items():
        if isinstance(rule, dict) and not rule.keys() <= _RANGE:
            if name not in own and not _declared(name):
                _check_known(name, own, "options", "method")
            for option, one in rule.items():
                _check_rule(f"options.{name}", option, one, own.get(name))
        else:
            _check_rule("options", name, rule, everywhere)


def _declared(method: str) -> bool:
    """Return whether another package declares a method."""
    return bool(entry_points(group=METHODS_GROUP, name=method))


def _check_known(name: str, known: Collection[str], where: str, what: str) -> None:
    if name in known:
        return
    near = nearest(name.strip().lower(), known)
    hint = f"; did you mean '{_kebab(near)}'?" if near else ""
    raise ConfigError(f"{where}: there is no {what} {_kebab(name)}{hint}")


def _check_rule(
    where: str, option: str, rule: Any, known: Mapping[str, Sequence[str]] | None
) -> None:
    """Check a rule of an option: a value, a list of values, or a range.

    Parameters
    ----------
    where : str
        The table of the rule.
    option : str
    rule : object
    known : mapping of str to sequence of str or None
        The options that there are, with their values; None where they are not known.

    Raises
    ------
    ConfigError
        If there is no such option, or the rule names no values, or others than it may have.
    """
    name = f"{where}.{option}"
    values = list(rule.values()) if isinstance(rule, dict) else rule
    values = values if isinstance(values, list) else [values]
    plain = all(isinstance(one, bool | str) or _is_number(one) for one in values)
    ranged = isinstance(rule, dict)
    if known is not None:
        _check_known(_snake(option), known, where, "option")
    if not values or not plain or (ranged and not rule.keys() <= _RANGE):
        raise ConfigError(
            f"{name}: give a value, a list of values, or a range such as {{most = 5}}"
        )
    if ranged and not (all(map(_is_number, values)) and _least_first(rule)):
        raise ConfigError(f"{name}: give numbers, 'least' no larger than 'most'")
    if known is not None:
        possible = known[_snake(option)]
        wrong = [one for one in values if not is_possible(one, possible)]
        if wrong:
            raise ConfigError(f"{name} is never {wrong[0]!r}; it is {in_words(possible)}")


def _least_first(rule: Mapping[str, Any]) -> bool:
    return not rule.keys() >= _RANGE or bool(rule["least"] <= rule["most"])


def _allows(rule: Any, value: Any) -> bool:
    if isinstance(rule, dict):
        if not _is_number(value):
            return False
        return bool(rule.get("least", value) <= value <= rule.get("most", value))
    allowed = rule if isinstance(rule, list) else [rule]
    # A truth value is no number here.
    return any(isinstance(one, bool) == isinstance(value, bool) and one == value for one in allowed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _snake(name: str) -> str:
    return name.replace("-", "_")


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _fields_of(owner: type, values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return a TOML table's values by the names of the fields of a class."""
    known = {_kebab(one.name): one.name for one in fields(owner)}
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ConfigError(
            f"there is no rule '{prefix}{unknown[0]}'; there are "
            f"{', '.join(prefix + key for key in known)}"
        )
    return {known[key]: value for key, value in values.items()}


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f'{_kebab(name)}: give a list of texts, such as ["a", "b"]')
    if not value or not all(map(str.strip, value)):
        raise ConfigError(
            f"{_kebab(name)} names nothing: write a name, or take the rule out, which allows all"
        )
    return tuple(value)


@lru_cache(maxsize=8)
def _read(text: str) -> PartyPolicy:
    return PartyPolicy.from_dict(tomllib.loads(text))
