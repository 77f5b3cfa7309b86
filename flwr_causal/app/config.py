"""The keys of a run config: what ``flwr run -c`` and an app's ``pyproject.toml`` may set.

A key is the name of an option in kebab-case. Options that methods share have no prefix
(``max-rounds``); a method's own options have its id as prefix (``fedges.max-edges``). An empty text
stands for the default.

``flwr-causal check-config "method='fedges' fedges.max-edges=3"`` checks keys and values, or a TOML
file with them, without a run; so does ``python -m flwr_causal.app.config``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from logging import WARNING, LogRecord
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flwr_causal.app import methods
from flwr_causal.compat import FLOWER_LOGGER
from flwr_causal.core.options import checked, option_types, require
from flwr_causal.core.words import nearest
from flwr_causal.data.dictionary.entries import DIGEST, dictionary_digest
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.partition import Partition, Setting  # noqa: TC001 (types of options)
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.reports.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flwr_causal.strategies import CausalStrategy

ConfigT = TypeVar("ConfigT")

# Limits of a synthetic system: a matrix of weights, and a table of 8 GB.
MOST_VARIABLES, MOST_VALUES = 10_000, 10**9

# Of a text of pairs: key=value, the value quoted where it holds spaces.
_PAIR = re.compile(r"""(?<!\S)([^\s=]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"']+)""")


@dataclass(frozen=True)
class JobConfig:
    """The keys of the run as a whole.

    Parameters
    ----------
    method : str, default "notears-admm"
        Method id.
    truth : str, default ""
        Absolute path of the true graph (edge CSV, adjacency matrix, or saved graph).
    compare : bool, default True
        In a simulation, compare with the pooled rows and with each party alone.
    query : str, default ""
        Absolute path of a table (or of a directory of tables with ids) on whose rows a fitted
        circuit is evaluated: ``answers.csv`` in the output directory.
    dry_run : bool, default False
        Do all that comes before the training, and then end: the schema exchange, the parties'
        policies, warnings, and what the run would cost. Nothing is trained, and no results are
        written. A run that could not begin fails with the reason.
    options : str, default ""
        Further keys and values, in the form of ``-c``. As keys of ``-c`` itself Flower refuses all
        that the app's ``pyproject.toml`` does not list; this text may hold any key, including the
        options of methods of other packages.
    """

    method: str = "notears-admm"
    truth: str = ""
    compare: bool = True
    query: str = ""
    dry_run: bool = False
    options: str = ""


@dataclass(frozen=True)
class DataConfig:
    """The keys about the data of a simulated federation.

    Parameters
    ----------
    data : str, default ""
        Absolute path of a table whose rows are dealt to the parties, or of a directory with one
        table for each party. Empty: a synthetic system, or for methods on mixed tables
        "breast-cancer". These methods also accept the names of the examples "breast-cancer" and
        "digits". On real nodes: which of its tables each party uses, by name, where nodes have
        several.
    partition : {"even", "uneven", "dirichlet", "sorted", "column"}, default "even"
        How a table's rows are dealt; see ``flwr_causal.data.partition.split``.
    partition_column : str, default ""
        The column for "dirichlet", "sorted" and "column".
    partition_concentration : float, default 1.0
        Concentration of the Dirichlet distribution for "uneven" and "dirichlet".
    variables : int, default 20
        Number of variables of the synthetic system.
    rows : int, default 0
        Rows of all parties of the synthetic system together. 0 stands for 256 of a linear system,
        1000 if its noise is not Gaussian, 2000 of functions, and 5000 of a network of categories.
    graph : {"er", "sf"}, default "er"
        Erdos-Renyi or scale-free (Ng & Zhang 2022, section 6: ER with as many edges as variables).
    setting : {"horizontal", "vertical", "hybrid"}, default "horizontal"
        For methods on mixed tables: whether parties have rows of their own, columns of their own,
        or both; see ``flwr_causal.data.partition.split_columns``.
    test_share : float, default 0.2
        For methods on mixed tables: share of the rows that are set aside and evaluate the result.
    seed : int, default 0
        Fixes the synthetic system, the dealing of the rows, and every random choice of the method.
    """

    data: str = ""
    partition: Partition = "even"
    partition_column: str = ""
    partition_concentration: float = 1.0
    variables: int = 20
    rows: int = 0
    graph: Literal["er", "sf"] = "er"
    setting: Setting = "horizontal"
    test_share: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        most = MOST_VARIABLES
        require(self.variables <= most, "variables", self.variables, f"at most {most}")
        most = MOST_VALUES // max(self.variables, 1)
        require(self.rows <= most, "rows", self.rows, f"at most {most} of so many variables")


# Keys and options.


@cache
def shared_options() -> dict[str, Any]:
    """Return the names and defaults of the options whose keys have no prefix.

    These are the options of the base of the linear methods.
    """
    from flwr_causal.strategies.linear import LinearOptions  # late: a node with a file needs none

    return {field.name: field.default for field in fields(LinearOptions)}


def kebab(name: str) -> str:
    """Return a name as a key spells it."""
    return name.replace("_", "-")


def key_of(method: str, name: str) -> str:
    """Return the key of a method's option."""
    return kebab(name) if name in shared_options() else f"{method}.{kebab(name)}"


def options_by_key(method: str) -> dict[str, str]:
    """Return the names of a method's options by key; shared options have two keys each."""
    names = option_types(methods.find(method).strategy.options_type)
    behind_id = {f"{method}.{kebab(name)}": name for name in names if name in shared_options()}
    return {key_of(method, name): name for name in names} | behind_id


def data_config(run_config: Mapping[str, Any]) -> DataConfig:
    """Return the section of a run config that describes the data.

    Raises
    ------
    ConfigError
        If a value has the wrong type.
    """
    return _section(DataConfig, _given(run_config))


def strategy_of(run_config: Mapping[str, Any]) -> CausalStrategy:
    """Return the method of a run config with its options; other keys are not checked.

    Raises
    ------
    ConfigError
        For an unknown method, a wrong type or an impossible value.
    """
    return _strategy(_section(JobConfig, _given(run_config)).method, _given(run_config))


def read_config(run_config: Mapping[str, Any]) -> tuple[JobConfig, DataConfig, CausalStrategy]:
    """Turn a run config into a job, its data and the method with its options, and check all of it.

    Raises
    ------
    ConfigError
        For an unknown key (the message names the nearest one), an option of another method, a wrong
        type, an impossible value, or a path that is relative or leads nowhere.
    """
    given = _given(run_config)
    job, data = _section(JobConfig, given), _section(DataConfig, given)
    for key, value in given.items():
        _check_key(key, value, job.method)
    strategy = _strategy(job.method, given)
    names = ("output_dir", "signing_key", "dictionary")
    paths = {name: getattr(strategy.options, name) for name in names}
    _check_paths({"truth": job.truth, "query": job.query, **paths})
    if job.query and strategy.data is not DataKind.TABLE:
        raise ConfigError(
            f"query='{job.query}' is for methods that fit a circuit, not for '{job.method}': leave "
            "it out."
        )
    return job, data, strategy


def pairs_of(text: str) -> dict[str, Any]:
    """Return the keys and values of a text such as ``method='fedges' fedges.max-edges=3``.

    Raises
    ------
    ConfigError
        If a part of the text is no ``key=value``, or a key is given twice.
    """
    pairs = _PAIR.findall(text)
    rest = _PAIR.sub(" ", text).split()
    if rest:
        raise ConfigError(
            f"'{rest[0]}' is no key=value: write them such as max-rounds=20, with spaces between "
            "them and quotes around texts that hold spaces."
        )
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"The key '{key}' is given twice: give it once.")
        found[key] = value_of(value)
    return found


@contextmanager
def keys_in_errors(method: str) -> Iterator[None]:
    """Replace the names of options by their keys in errors raised inside."""
    try:
        yield
    except CausalError as error:
        error.args = (in_keys(str(error), method),)
        raise


@contextmanager
def keys_in_log(method: str) -> Iterator[None]:
    """Replace the names of options by their keys in warnings that are logged inside."""

    def renamed(record: LogRecord) -> bool:
        if record.levelno >= WARNING:
            record.msg, record.args = in_keys(record.getMessage(), method), ()
        return True

    FLOWER_LOGGER.addFilter(renamed)
    try:
        yield
    finally:
        FLOWER_LOGGER.removeFilter(renamed)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a message with other names for options.

    Replaced are ``option 'name'``, ``name=`` and bare words with an underscore. Quoted names, such
    as those of columns, are not replaced.

    Parameters
    ----------
    text : str
        The message.
    names : mapping of str to str
        New name by name in the message.
    """
    if not names:
        return text
    words = sorted(map(re.escape, names), key=len, reverse=True)
    name, snake = "|".join(words), "|".join(word for word in words if "_" in word) or "(?!)"
    pattern = (
        rf"(?<=option ')(?:{name})(?=')"
        rf"|(?<![\w.'\"/-])(?:{name})(?==)"
        rf"|(?<![\w.'\"/-])(?:{snake})(?![\w'\"/-]|\.\w)"
    )
    return re.sub(pattern, lambda found: names[found[0]], text)


def in_keys(text: str, method: str) -> str:
    """Return a message with options by their keys and booleans as in TOML."""
    names = option_types(methods.find(method).strategy.options_type)
    keys = {name: key_of(method, name) for name in names}
    return re.sub(r"=(True|False)\b", lambda found: found[0].lower(), _renamed(text, keys))


def _given(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that are set; those in the text of ``options`` replace the others."""
    further = pairs_of(str(run_config.get("options", "")))
    return {key: value for key, value in {**run_config, **further}.items() if value != ""}


def _section(owner: type[ConfigT], given: Mapping[str, Any]) -> ConfigT:
    wanted = {kebab(name): (name, kind) for name, kind in option_types(owner).items()}
    return owner(
        **{
            name: checked(key, given[key], kind)
            for key, (name, kind) in wanted.items()
            if key in given
        }
    )


def _strategy(method: str, given: Mapping[str, Any]) -> CausalStrategy:
    strategy, names = methods.find(method).strategy, options_by_key(method)
    options: dict[str, Any] = {}
    for key in names.keys() & given.keys():
        if options.setdefault(names[key], given[key]) != given[key]:
            raise ConfigError(
                f"'{kebab(names[key])}' and '{method}.{kebab(names[key])}' are the same option and "
                "have different values: give one of them."
            )
    with keys_in_errors(method):
        return strategy(**options)


def _check_key(key: str, value: Any, method: str) -> None:
    """Raise for a key that does not exist, or sets an option that the run's method lacks."""
    if key in _keys_of_sections() or key in options_by_key(method):
        return
    owner = key.rpartition(".")[0]
    if not owner and key in map(kebab, shared_options()):
        default = shared_options()[key.replace("-", "_")]
        problem = f"is no option of the method '{method}': leave it out."
    elif owner in methods.METHODS and key in options_by_key(owner):
        default = getattr(methods.find(owner).strategy.options_type, options_by_key(owner)[key])
        problem = (
            f"is an option of the method '{owner}', but the run's method is '{method}': leave it "
            f"out, or set method='{owner}'."
        )
    else:
        near = _nearest(key, method)
        hint = f" Did you mean '{near}'?" if near else ""
        if owner and owner not in methods.METHODS:
            known = ", ".join(sorted(methods.METHODS))
            hint += f" There is no method '{owner}'; there are {known}."
        raise ConfigError(f"There is no key '{key}'.{hint} All keys are listed in docs/options.md.")
    # Flower passes every key of the pyproject.toml, with its default where the user has not set it.
    if value != default or isinstance(value, bool) != isinstance(default, bool):
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigError(f"{key}={shown} {problem}")


def _nearest(key: str, method: str) -> str | None:
    """Return the existing key nearest to a misspelt one, or None.

    Without a dot it is also compared with the method's own options without their prefix; behind the
    id of a method with this method's alone, since the id itself makes all of them alike.
    """
    owner, _, name = key.rpartition(".")
    if owner in methods.METHODS:
        own_keys = {one.rpartition(".")[2]: one for one in options_by_key(owner)}
        near = nearest(name, own_keys)
        return own_keys[near] if near else None
    known = {key: key for key in (*_keys_of_sections(), *map(kebab, shared_options()))}
    for owner in {*methods.OWN_METHODS, method}:
        own = (
            key_of(owner, name) for name in option_types(methods.find(owner).strategy.options_type)
        )
        known |= {key: key for key in own}
    if "." not in key:
        known = {key.rpartition(".")[2]: key for key in options_by_key(method)} | known
    near = nearest(key, known)
    return known[near] if near else None


def _keys_of_sections() -> tuple[str, ...]:
    return tuple(kebab(field.name) for field in (*fields(JobConfig), *fields(DataConfig)))


def value_of(text: str) -> Any:
    """Return a value as TOML reads it; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or more digits or brackets than Python reads
        return text


def _check_paths(paths: Mapping[str, str | None]) -> None:
    for name, value in paths.items():
        if value and not Path(value).is_absolute():
            raise ConfigError(
                f"{kebab(name)}='{value}' is a relative path; Flower runs apps in a directory of "
                "its own. Give the absolute path."
            )
    for name, found in (("truth", Path.is_file), ("query", Path.exists)):
        value = paths[name]
        try:
            there = not value or found(Path(value))
        except OSError:  # a name that no file can have
            there = False
        if not there:
            raise ConfigError(
                f"There is no file '{value}', which the option '{name}' names. Check the path, or "
                "leave the option out."
            )


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as Flower reads them: keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error


def checked_config(
    arguments: Sequence[str],
    further: Mapping[str, Any] = MappingProxyType({}),
    *,
    repeats: Path | None = None,
) -> str:
    """Check the keys and values of texts and TOML files; say which run could begin with them.

    Parameters
    ----------
    arguments : sequence of str
        As of ``flwr run -c``; later ones replace earlier ones. Of the ``pyproject.toml`` of an app
        its run config counts.
    further : mapping of str to object, default {}
        Keys and values that replace those of the arguments.
    repeats : Path, optional
        The results of a run that this one repeats: then both must have the same dictionary.

    Raises
    ------
    ConfigError
        As :func:`read_config`, for a file that cannot be read, and for another dictionary.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        if not argument.endswith(".toml"):
            given |= pairs_of(argument)
            continue
        content = _toml(Path(argument))
        app = content.get("tool", {}).get("flwr", {}).get("app", {})
        given |= _flat(app.get("config", content))
    job, _, strategy = read_config({**given, **further})
    could = f"A run of '{job.method}' with {len(strategy.options.by_name())} options could begin."
    if repeats is None:
        return could
    return f"{could} {_same_dictionary(dictionary_digest(strategy.handling.dictionary), repeats)}"


def _same_dictionary(digest: str, earlier: Path) -> str:
    """Return the note that a dictionary is that of the repeated run."""
    kept = Run.load(earlier).config.get(DIGEST) or ""
    if digest != kept:
        one, other = (f"the dictionary {found}" if found else "none" for found in (digest, kept))
        raise ConfigError(
            f"The dictionary is not the one of the run in {earlier}: now {one}, then {other} (by "
            "digest). Columns, states and units may differ, so that the results could not be "
            "compared. Put the earlier dictionary back, or start a run of a new name"
        )
    return f"Its dictionary is that of {earlier}: {digest}." if digest else "It has no dictionary."


def main(arguments: list[str]) -> int:
    """Check the keys and values of texts or TOML files; return 0 if a run could begin with them."""
    try:
        print(checked_config(arguments))
    except CausalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
