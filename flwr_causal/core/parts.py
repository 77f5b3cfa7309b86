"""The parts of a method, and the one rule of which options fit together: needs - gives.

A part is a dataclass of the options that belong to it. The class of a method's options inherits its
parts, and says by ``parts`` which of them the values choose. A value of an option, or a part, may
need something of the run, which :data:`WORDS` name; a part says what it gives. The run gives what
all chosen parts give.

To add an option, declare one field in the part that it belongs to, with its meaning in the
docstring, and use it. An option of all settings is a field of the method's class of options. Its
type is checked from the annotation, a number by the bounds of its field
(``bounded(0.3, least=0)``); ``settled`` of the options fills in what is left to the method.

- A part says by ``text`` how it is chosen, and by ``gives`` which words hold with it:
  ``gives = all_but("folds", "median")``.
- A value says what it needs: ``option("auto", needs={"held-out": ("folds",)})``, or
  ``option(1.0, needs="sample")`` for all values but the default. Where no single option has the
  value, a part has ``needs``.
- The property ``parts`` of the options returns the parts that the values choose. It is the one
  place that reads values to choose.

:func:`check_parts` refuses another value than the default of an option whose part is not chosen,
and a value that needs what a chosen part does not give, with the name, the value and the remedy.
``validate`` checks only what is within one subject, such as a first and a last time. Do not add a
word for one pair of options where another word says it.

Give a new option a value in ``tests/strategies/test_option_effects.py``, which walks all options
in all modes: a value changes the run, or is refused. ``tests/strategies/test_pairs.py`` walks all
pairs and follows the remedies. An option that clients need is also a field of the contract's class
of options (``protocol/options.py``). ``python -m flwr_causal.app.pages`` then writes its keys.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from flwr_causal.core.arguments import shown
from flwr_causal.core.options import option_types, refusal, within
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: What a run may give, by word.
WORDS: Mapping[str, str] = {
    # Of the exchanges.
    "sample": "exchanges with some of the parties, drawn at random",
    "restart": "a second schema exchange where a table has changed",
    "draws": "sums of rows that are drawn with replacement",
    "parties": "the sums of each party, or of groups of parties",
    "replies": "the replies of each party, one by one",
    "small counts": "counts of few rows that a party may withhold",
    "iterations": "further sums of the rows, given an estimate",
    "reports": "what reports say of the columns' values",
    "states": "which columns are categories, and their states",
    # Of the rows.
    "gaps": "rows whose missing cells are expected",
    "rows": "rows without time",
    "time": "rows that are steps of time series",
    "observed": "rows without known or unknown interventions",
    "numbers": "variables that are one column of numbers each",
    # Of the sums over rows.
    "centring": "columns that are centred by other means than the method's own",
    "levels": "sums that tell the levels of the parties, or of series, apart",
    "median": "a median of the parties' arrays",
    "exact": "sums of the rows as they are",
    "pairs": "sums for every pair of columns",
    "sets": "sums for each set of intervention targets",
    "pooled": "sums over the rows of all parties, by columns that are flat at each of them",
    "folds": "sums of held-out rows",
    "functions": "sums of functions of the columns",
    "row weights": "sums in which rows have weights",
    "scores": "sums of normal scores of the columns",
    # Of the graph.
    "sufficiency": "a graph without hidden common causes",
    "solvers": "a graph by each solver of linear effects, with its Gaussian BIC",
    "candidates": "several fits side by side, of which one is chosen",
    "weights": "edges with weights",
    # Of methods on categories.
    "intervals": "numbers that are cut into intervals",
    "ids": "rows that are joined by ids",
    "tables": "tables of probabilities",
    "graph alone": "a graph without tables of probabilities",
}
_ALL = frozenset(WORDS)

PartT = TypeVar("PartT", bound="Part")


def words(*names: str) -> frozenset[str]:
    """Return a set of words of :data:`WORDS`.

    Raises
    ------
    ConfigError
        If a word is none of these.
    """
    for name in names:
        if name not in WORDS:
            listed = ", ".join(WORDS)
            raise ConfigError(f"A part gives or needs {shown(name)}; there are {listed}.")
    return frozenset(names)


def all_but(*names: str) -> frozenset[str]:
    """Return all words of :data:`WORDS` but some."""
    return _ALL - words(*names)


class Part:
    """Base of the parts of a method.

    A subclass is a frozen dataclass of the options that belong to the part, if there are such.

    Attributes
    ----------
    text : str
        By what the part is chosen, in words: "missing_values='em'". A class without is no part, but
        a class of options that inherits parts.
    gives : frozenset of str
        The words that hold for a run with this part.
    needs : frozenset of str
        The words that all chosen parts must give.
    chosen_by : tuple of str
        Options whose values choose the part, for parts that need something. An error names the
        first that differs from its default, or the first.
    instead : str
        What these options may be where the need is not met. Default: their defaults.
    remedies : tuple of pairs of str
        Words that the part does not give, each with what else gives it: "groups given".
    """

    text: ClassVar[str]
    gives: ClassVar[frozenset[str]] = _ALL
    needs: ClassVar[frozenset[str]] = frozenset()
    chosen_by: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[str] = ""
    remedies: ClassVar[tuple[tuple[str, str], ...]] = ()


def option(
    default: Any,
    *,
    needs: str | tuple[str, ...] | Mapping[Any, tuple[str, ...]] = (),
    **bounds: float,
) -> Any:
    """Return the field of an option whose values need something, and which may have bounds.

    Parameters
    ----------
    default : object
    needs : str, tuple of str or mapping, default ()
        What any other value than the default needs, or by value what it needs. It holds also where
        a subclass gives the option another default.
    **bounds
        Of a number, see :class:`~flwr_causal.core.options.Bounds`.
    """
    names = (needs,) if isinstance(needs, str) else needs
    known = (
        {value: words(*of_value) for value, of_value in names.items()}
        if isinstance(names, Mapping)
        else words(*names)
    )
    return field(default=default, metadata={"needs": known, **(within(**bounds) if bounds else {})})


def made(kind: type[PartT], options: Any, **own: Any) -> PartT:
    """Return the part whose fields have the values of a method's options of their names.

    Parameters
    ----------
    kind : type of Part
    options : CausalOptions
        None stands for the default of the part.
    **own
        Values that replace those of the options.
    """
    given = {one.name: getattr(options, one.name, None) for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: one for name, one in {**given, **own}.items() if one is not None})


class Misfit(NamedTuple):
    """An option that does not fit.

    Parameters
    ----------
    name : str
        The option.
    value : object
        Its value.
    instead : str
        What it may be.
    setting : str
        The part that does not give what the value needs; empty where ``owner`` has the option.
    owner : str
        The part that the option belongs to, which is not chosen.
    """

    name: str
    value: object
    instead: str
    setting: str = ""
    owner: str = ""

    @property
    def error(self) -> ConfigError:
        """The error that names the option, its value and the remedy."""
        if self.owner:
            return ConfigError(
                f"The option '{self.name}' is {shown(self.value)}, which is for {self.owner}: "
                "leave it out."
            )
        return refusal(self.name, self.value, f"{self.instead} with {self.setting}")


def check_parts(options: Any, chosen: Sequence[type[Part]]) -> None:
    """Check that every option belongs to a chosen part, and that the parts give what is needed.

    Raises
    ------
    ConfigError
        Naming the first option that does not fit, its value and the remedy.
    """
    for problem in (*unmet(options, chosen), *unowned(options, chosen)):
        raise problem.error


def unowned(options: Any, chosen: Sequence[type[Part]]) -> list[Misfit]:
    """Return the options of parts that are not chosen and differ from their defaults."""
    return [
        Misfit(name, getattr(options, name), "left out", owner=" or ".join(o.text for o in owners))
        for name, owners in _facts(options).owners.items()
        if _differs(options, name) and not _has(chosen, owners)
    ]


def unmet(options: Any, chosen: Sequence[type[Part]]) -> list[Misfit]:
    """Return what needs something that a chosen part does not give: needs - gives."""
    given = frozenset.intersection(_ALL, *(part.gives for part in chosen))
    found = [
        _misfit(options, name, _instead(options, name, given), needs - given, chosen)
        for name, needs in _needs(options)
        if needs - given
    ]
    for part in chosen:
        if part.needs - given:
            changed = (one for one in part.chosen_by if _differs(options, one))
            name = next(changed, part.chosen_by[0])
            instead = part.instead or _shown(_facts(options).defaults[name])
            found.append(_misfit(options, name, instead, part.needs - given, chosen))
    return found


def _misfit(
    options: Any, name: str, instead: str, lacking: frozenset[str], chosen: Sequence[type[Part]]
) -> Misfit:
    """Return the misfit of an option for which some words are lacking."""
    parts = [part for part in chosen if lacking - part.gives]
    remedies = {
        dict(part.remedies).get(word, "") for part in parts for word in lacking - part.gives
    }
    if len(remedies) == 1 and "" not in remedies:
        instead = f"{instead}, or {remedies.pop()},"
    return Misfit(name, getattr(options, name), instead, parts[0].text)


class _About(NamedTuple):
    """What the fields of a class of options say.

    Parameters
    ----------
    types, defaults : mapping
        By option.
    owners : mapping of str to tuple of type
        The parts that declare an option.
    needs : mapping
        What the values of options need, by option, as in :func:`option`.
    """

    types: Mapping[str, Any]
    defaults: Mapping[str, Any]
    owners: Mapping[str, tuple[type[Part], ...]]
    needs: Mapping[str, Any]


@cache
def _about(kind: type) -> _About:
    wanted = option_types(kind)
    owners: dict[str, tuple[type[Part], ...]] = {}
    needs: dict[str, Any] = {}
    for base in (one for one in kind.__mro__ if is_dataclass(one)):
        annotated = vars(base).get("__annotations__", {})
        declared = {one.name: one for one in fields(base) if one.name in annotated}
        # An option of a user's method may have the name of what a part says.
        part = issubclass(base, Part) and "text" in vars(base) and "text" not in declared
        for name, one in declared.items():
            if part:
                owners[name] = (*owners.get(name, ()), base)  # type: ignore[arg-type]
            if "needs" in one.metadata:
                needs.setdefault(name, one.metadata["needs"])
    owners = {name: owners[name] for name in wanted if name in owners}
    defaults = {one.name: one.default for one in fields(kind)}
    return _About(wanted, defaults, owners, {name: one for name, one in needs.items() if one})


def _facts(options: Any) -> _About:
    return _about(type(options))  # type: ignore[arg-type]


def _has(chosen: Iterable[type[Part]], owners: tuple[type[Part], ...]) -> bool:
    return any(issubclass(part, owners) for part in chosen)


def _differs(options: Any, name: str) -> bool:
    """Whether a value is not the default; what is open is "fail" where nothing is decided."""
    value, default = getattr(options, name), _facts(options).defaults[name]
    return bool(value != default and (value, default) != ("fail", "auto"))


def _needs(options: Any) -> Iterable[tuple[str, frozenset[str]]]:
    """Return the options whose values need something, with what they need."""
    for name, needs in _facts(options).needs.items():
        value = getattr(options, name)
        if not isinstance(needs, Mapping):
            if _differs(options, name):
                yield name, needs
        elif value in needs:
            yield name, needs[value]


def _instead(options: Any, name: str, given: frozenset[str]) -> str:
    """Return the values of an option that need nothing which is not given, in words."""
    about = _facts(options)
    needs = about.needs[name]
    if not isinstance(needs, Mapping):
        return _shown(about.defaults[name])
    wanted = about.types[name]
    union = get_origin(wanted) in (Union, types.UnionType)
    found: list[str] = []
    for one in get_args(wanted) if union else (wanted,):
        if one in (int, float):
            found.append("a number")
        elif one is types.NoneType:
            found.append("left out")
        else:
            values = get_args(one) if get_origin(one) is Literal else (True, False)
            found += [_shown(value) for value in values if needs.get(value, frozenset()) <= given]
    # Numbers come last, as words are more common.
    found.sort(key=lambda text: text == "a number")
    return " or ".join(filter(None, (", ".join(found[:-1]), found[-1])))


def _shown(value: object) -> str:
    """Return a possible value in words."""
    if value in (None, ""):
        return "left out"
    return f"{value:g}" if isinstance(value, float) else repr(value)
