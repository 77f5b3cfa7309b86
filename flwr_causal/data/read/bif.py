"""Reading and writing Bayesian networks in the Bayesian interchange format (BIF).

The format is used by the bnlearn repository, GeNIe, JavaBayes, pgmpy, pyAgrum and others. Rows of a
table are labelled with the states of the parents::

    variable smoke { type discrete [ 2 ] { yes, no }; }
    probability ( lung | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }

Between commas a name may have blanks, as pgmpy writes them; a list without commas is one of names
without blanks. Names in quotes may have commas, too.

Names that some programs cannot read are replaced. The original names, and states that are numbers
or booleans, are kept in a property ``flwr_causal_names = "..."``, as JSON with percent-encoded
special characters; cut points in a property ``flwr_causal_cuts``.

References
----------
Cozman, F. (1998). The interchange format for Bayesian networks, version 0.15.
"""

from __future__ import annotations

import gzip
import json
import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.saved import writing
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from flwr_causal.core.arrays import FloatArray


#: Files have few digits: a row whose sum differs from 1 by at most this is divided by its sum.
ROUNDING = 1e-3
#: A row whose sum differs from 1 by at most this is not changed: written files are read exactly.
EXACT = 1e-12
# Commas separate tokens as blanks do, see `split_names`. A bar is a token, with or without blanks.
_TOKEN = re.compile(r'"[^"]*"|[{}()\[\]|;]|[^\s,{}()\[\]|;"]+')
_QUOTED_OR_COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# What lies between commas that are not in quotes; in a family between commas or bars.
_PIECE, _MEMBER = re.compile(r'(?:"[^"]*"|[^",])+'), re.compile(r'(?:"[^"]*"|[^",|])+')
PROPERTY, CUTS = "flwr_causal_names", "flwr_causal_cuts"
# Some programs treat these words as keywords anywhere in a file.
KEYWORDS = frozenset(
    ("network", "variable", "probability", "property", "type", "discrete", "table", "default")
)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
# pyAgrum reads 12 and 1_2 as states, but 1e5 and 1e_05 as numbers.
_NUMBER = re.compile(r"[0-9]+[eE]")


class _Variable:
    """A variable of a file; ``original`` is its name before `write_bif` replaced it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.original = name
        self.states: tuple[str, ...] = ()
        self.cuts: list[float] | None = None
        self.original_states: tuple[Any, ...] = ()
        self.parents: tuple[str, ...] | None = None
        self.table: FloatArray | None = None


def read_bif(path: str | Path) -> BayesianNetwork:
    """Read a network.

    Quoted names, names with blanks, comments, properties, ``default`` entries and tables without
    labels (the last variable varies fastest) are supported. Rows whose sum differs from 1 by at
    most 0.001 are divided by their sum.

    Parameters
    ----------
    path : str or Path
        A BIF file, plain or compressed with gzip.

    Returns
    -------
    BayesianNetwork
        The network, with variables in the order of the file. Names that `write_bif` replaced are
        restored.

    Raises
    ------
    DataError
        If the file is missing, is not a BIF file, or holds no valid network; the message names the
        file and the variable.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from flwr_causal.data.read.bif import read_bif
    >>> rain = "variable rain { type discrete [2] { no, yes }; }"
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rain.bif")
    ...     _ = path.write_text(rain + "probability (rain) { table 0.8, 0.2; }")
    ...     print(read_bif(path).states)
    (('no', 'yes'),)
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text ({error}): give a BIF file") from None
    try:
        return _network(_variables(Tokens(text)))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def write_bif(network: BayesianNetwork, path: str | Path) -> None:
    """Write a network without loss: `read_bif` returns the same network.

    Some programs cannot read names with blanks, punctuation or letters beyond ASCII, names of
    variables that begin with a digit, or names that differ only in case. Such a name is written
    with underscores, followed by a number if it is not unique; the original name is kept in a
    ``property`` of the variable.

    Parameters
    ----------
    network : BayesianNetwork
        The network.
    path : str or Path
        The file, which is compressed by gzip if the name ends in ``.gz``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from flwr_causal.data.read.bif import read_bif, write_bif
    >>> from flwr_causal.data.synthetic.discrete import random_network
    >>> network = random_network(3, seed=0)
    >>> with TemporaryDirectory() as folder:
    ...     write_bif(network, Path(folder, "network.bif"))
    ...     print(read_bif(Path(folder, "network.bif")).names == network.names)
    True
    """
    content = ("\n".join(_lines(network)) + "\n").encode()
    with writing(path, "network") as file:
        file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def _lines(network: BayesianNetwork) -> Iterator[str]:
    """Return the lines of the file."""
    names = plain_names(network.names, variables=True)
    states = [plain_names(own, variables=False) for own in network.state_names]
    yield "network unknown {\n}"
    for j, name in enumerate(names):
        yield f"variable {name} {{"
        yield f"  type discrete [ {len(states[j])} ] {{ {', '.join(states[j])} }};"
        if name != network.names[j] or states[j] != network.states[j]:
            yield f"  property {encoded(PROPERTY, [network.names[j], *network.states[j]])};"
        if (cuts := network.cuts.get(network.names[j])) is not None:
            yield f"  property {encoded(CUTS, cuts.tolist())};"
        yield "}"
    for j, name in enumerate(names):
        parents, table = network.parents[j], network.tables[j]
        condition = " | " + ", ".join(names[i] for i in parents) if parents else ""
        yield f"probability ( {name}{condition} ) {{"
        if not parents:
            yield f"  table {_numbers(table)};"
        # The first parent varies fastest, as in the bnlearn repository.
        for reverse in product(*(range(len(states[i])) for i in parents[::-1])) if parents else ():
            configuration = reverse[::-1]
            label = ", ".join(states[i][k] for i, k in zip(parents, configuration, strict=True))
            yield f"  ({label}) {_numbers(table[configuration])};"
        yield "}"


def _numbers(row: FloatArray) -> str:
    """Return a row with all the digits that its numbers need."""
    return ", ".join(map(repr, row.tolist()))


def _variables(tokens: Tokens) -> dict[str, _Variable]:
    """Return the variables of a file in its order."""
    variables: dict[str, _Variable] = {}
    while (block := tokens.next_or_none()) is not None:
        if block == "network":
            tokens.until("{")
            tokens.until("}")
        elif block == "variable":
            variable = _read_variable(tokens)
            if variable.name in variables:
                raise DataError(f"the variable {variable.name!r} is declared twice")
            variables[variable.name] = variable
        elif block == "probability":
            _read_probability(tokens, variables)
        elif block != ";":
            raise DataError(
                f"found {block[:40]!r} where a block 'network', 'variable' or 'probability' was "
                "expected: this is not a BIF file"
            )
    if not variables:
        raise DataError("there is no variable in it: this is not a BIF file")
    return variables


def _read_variable(tokens: Tokens) -> _Variable:
    """Read a block behind the word ``variable``."""
    variable = _Variable(_unquoted(tokens.text_until("{").strip()))
    where = f"variable {variable.name!r}"
    while (entry := tokens.next()) != "}":
        if entry == "type":
            if tokens.next() != "discrete":
                raise DataError(f"{where} is not discrete: only discrete networks are read")
            number = tokens.until("{")
            announced = int(number[1]) if number[1:2] and number[1].isdecimal() else None
            variable.states = tuple(split_names(tokens.text_until("}"), announced))
            if number and number != ["[", str(len(variable.states)), "]"]:
                raise DataError(
                    f"{where} announces {' '.join(number)} states and has {len(variable.states)}"
                )
        elif entry == "property":
            words = tokens.until(";")
            if (names := decoded(PROPERTY, words)) is not None:
                variable.original, *labels = names
                variable.original_states = tuple(labels)
            variable.cuts = decoded(CUTS, words) or variable.cuts
        elif entry != ";":
            raise DataError(f"{where}: expected 'type' or 'property', found {entry[:40]!r}")
    if not variable.states:
        raise DataError(f"{where} has no states")
    if len(set(variable.states)) < len(variable.states):
        raise DataError(f"{where} has a state twice")
    if len(variable.original_states) != len(variable.states):
        variable.original_states = variable.states
    return variable


def _read_probability(tokens: Tokens, variables: dict[str, _Variable]) -> None:
    """Read a block behind the word ``probability`` into its variable."""
    tokens.expect("(", "probability")
    family = _known_names(tokens.text_until(")"), variables)
    unknown = [name for name in family if name not in variables]
    if unknown or not family:
        raise DataError(f"a probability is given of {unknown or family}, not declared before")
    child = variables[family[0]]
    where = f"probability of {child.name!r}"
    if child.parents is not None:
        raise DataError(f"the {where} is given twice")
    child.parents = tuple(family[1:])
    shape = [len(variables[name].states) for name in (*family[1:], child.name)]
    codes = [{s: k for k, s in enumerate(variables[name].states)} for name in child.parents]
    table = np.full(shape, np.nan)
    default: FloatArray | None = None
    tokens.expect("{", where)
    while (entry := tokens.next()) != "}":
        if entry == "(":
            place, numbers = _read_labelled(tokens, codes, where)
            if not np.isnan(table[place]).any():
                raise DataError(f"{where}: row {place} (states counted from 0) is given twice")
            table[place] = _row(numbers, shape[-1], where)
        elif entry == "table":
            flat = _row(tokens.until(";"), table.size, where)
            # The child is the first axis of a table without labels.
            table = np.moveaxis(flat.reshape(shape[-1:] + shape[:-1]), 0, -1)
        elif entry == "default":
            default = _row(tokens.until(";"), shape[-1], where)
        elif entry == "property":
            tokens.until(";")
        elif entry != ";":
            raise DataError(f"{where}: found {entry[:40]!r} where a row was expected")
    if default is not None:
        table = np.where(np.isnan(table), default, table)
    child.table = table


def _read_labelled(
    tokens: Tokens, codes: Sequence[dict[str, int]], where: str
) -> tuple[tuple[int, ...], list[str]]:
    """Read a row behind its "(": the indices of its parents' states, and its numbers."""
    start, words = tokens.place, tokens.until(";")
    if ")" not in words:
        raise DataError(f"{where}: the states of a row have no ')' behind them")
    # Names of states may have brackets, numbers have none.
    close = len(words) - 1 - words[::-1].index(")")
    place = _words_position(words[:close], codes)
    if place is None:
        place = _position(tokens.text(start, start + close), codes, where)
    return place, words[close + 1 :]


def _words_position(
    words: Sequence[str], codes: Sequence[dict[str, int]]
) -> tuple[int, ...] | None:
    """Return the indices of states without blanks; None where a word is no such state."""
    if len(words) != len(codes):
        return None
    found = tuple(own.get(_unquoted(word), -1) for own, word in zip(codes, words, strict=True))
    return None if -1 in found else found


def _position(written: str, codes: Sequence[dict[str, int]], where: str) -> tuple[int, ...]:
    """Return the indices of a row's parent states in the table."""
    labels = split_names(written, len(codes))
    if len(labels) != len(codes):
        raise DataError(f"{where}: a row has {len(labels)} states for {len(codes)} parents")
    try:
        return tuple(own[label] for own, label in zip(codes, labels, strict=True))
    except KeyError as error:
        raise DataError(f"{where}: {error} is not a state of the parent in its place") from None


def _row(words: Sequence[str], size: int, where: str) -> FloatArray:
    """Return the numbers of a row."""
    try:
        row = np.array([float(word) for word in words])
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    if len(row) != size or not np.isfinite(row).all():
        raise DataError(f"{where}: expected {size} finite numbers, got {len(row)}")
    return row


def _network(variables: dict[str, _Variable]) -> BayesianNetwork:
    """Return the network of the variables."""
    index = {name: k for k, name in enumerate(variables)}
    parents, tables = [], []
    for variable in variables.values():
        if variable.parents is None or variable.table is None:
            raise DataError(f"the probability of {variable.name!r} is missing")
        own = [index[name] for name in variable.parents]
        order = np.argsort(own)
        parents.append(tuple(own[k] for k in order))
        tables.append(_normalized(variable).transpose(*order, len(own)))
    return BayesianNetwork(
        tuple(variable.original for variable in variables.values()),
        tuple(variable.original_states for variable in variables.values()),
        tuple(parents),
        tuple(tables),
        cuts={one.original: np.array(one.cuts) for one in variables.values() if one.cuts},
    )


def _normalized(variable: _Variable) -> FloatArray:
    """Return a variable's table; rows whose sums are 1 up to rounding are divided by them."""
    assert variable.table is not None
    table = variable.table
    sums = table.sum(axis=-1, keepdims=True)
    if np.isnan(sums).any():
        raise DataError(
            f"probability of {variable.name!r}: {int(np.isnan(sums).sum())} rows are missing"
        )
    if (table < 0).any() or (np.abs(sums - 1) > ROUNDING).any():
        worst = float(sums.ravel()[np.abs(sums - 1).argmax()])
        raise DataError(
            f"probability of {variable.name!r}: a row sums to {worst:.6g} or has a negative "
            "number: correct it (in a table without labels the child's states vary slowest)"
        )
    return np.where(np.abs(sums - 1) > EXACT, table / sums, table)


class Tokens:
    """The tokens of a file, and the position of the next one.

    Parameters
    ----------
    text : str
        Content of the file; comments are removed.
    """

    def __init__(self, text: str) -> None:
        if "//" in text or "/*" in text:
            text = _QUOTED_OR_COMMENT.sub(
                lambda match: match[0] if match[0].startswith('"') else " ", text
            )
        self._text = text
        found = list(_TOKEN.finditer(text))
        self._tokens = [match[0] for match in found]
        self._spans = [match.span() for match in found]
        self.place = 0

    def next_or_none(self) -> str | None:
        """Return the next token, None at the end of the file."""
        if self.place == len(self._tokens):
            return None
        self.place += 1
        return self._tokens[self.place - 1]

    def next(self) -> str:
        """Return the next token; a DataError at the end of the file."""
        token = self.next_or_none()
        if token is None:
            raise DataError("the file ends within a block: it is not complete")
        return token

    def expect(self, token: str, where: str) -> None:
        """Skip the next token; a DataError if it is another one."""
        found = self.next()
        if found != token:
            raise DataError(f"{where}: expected {token!r}, found {found[:40]!r}")

    def until(self, end: str) -> list[str]:
        """Return the tokens before the next ``end``, and skip ``end``."""
        try:
            stop = self._tokens.index(end, self.place)
        except ValueError:
            raise DataError(
                f"the file ends where {end!r} was expected: it is not complete"
            ) from None
        found = self._tokens[self.place : stop]
        self.place = stop + 1
        return found

    def text_until(self, end: str) -> str:
        """Return the text before the next ``end``, and skip ``end``."""
        start = self.place
        self.until(end)
        return self.text(start, self.place - 1)

    def text(self, start: int, stop: int) -> str:
        """Return the source text from the token ``start`` up to the token ``stop``."""
        return self._text[self._spans[start - 1][1] : self._spans[stop][0]]


def split_names(text: str, number: int | None = None) -> list[str]:
    """Return the names of a list, without quotes: between commas, or between blanks without any.

    Parameters
    ----------
    text : str
    number : int, optional
        How many there should be, which decides where the text can be read in both ways.
    """
    pieces = [piece for found in _PIECE.findall(text) if (piece := _unquoted(found.strip()))]
    words = _words(text)
    if len(pieces) == number or (len(pieces) > 1 and len(words) != number):
        return pieces
    return words


def _words(text: str) -> list[str]:
    """Return the names of a list whose names have no blanks but in quotes."""
    return [_unquoted(token) for token in _TOKEN.findall(text)]


def _known_names(text: str, known: Collection[str]) -> list[str]:
    """Return the names of a list of variables, of which those that are declared may have blanks."""
    whole = _unquoted(text.strip())
    if whole in known:
        return [whole]
    found: list[str] = []
    for piece in _MEMBER.findall(text):
        name = _unquoted(piece.strip())
        found += [name] if name in known else _words(piece)
    return found


def _unquoted(token: str) -> str:
    quoted = token.startswith('"') and token.find('"', 1) == len(token) - 1
    return token[1:-1] if quoted else token


def plain_names(names: Sequence[str], *, variables: bool) -> tuple[str, ...]:
    """Replace names by distinct names of ASCII letters, digits and underscores.

    Names that have this form already are not changed.

    Parameters
    ----------
    names : sequence of str
        Distinct names.
    variables : bool
        Whether they are names of variables. These must not begin with a digit or differ only in
        case, because some programs ignore case; names of states may.

    Returns
    -------
    tuple of str
        One name for each of ``names``.
    """

    def key(name: str) -> str:
        return name.lower() if variables else name

    plain = [_plain(name, variables) for name in names]
    kept = {key(name) for name, own in zip(names, plain, strict=True) if name == own}
    taken: set[str] = set()
    result = []
    for name, own in zip(names, plain, strict=True):
        candidate, number = own, 1
        while key(candidate) in taken or (candidate != name and key(candidate) in kept):
            number += 1
            candidate = f"{own}_{number}"
        taken.add(key(candidate))
        result.append(candidate)
    return tuple(result)


def _plain(name: str, variable: bool) -> str:
    """Return a name with underscores in place of all other characters than letters and digits."""
    plain = _NO_WORD.sub("_", name)
    if not plain or plain.lower() in KEYWORDS or _NUMBER.match(plain):
        return f"_{plain}"
    return f"_{plain}" if variable and plain[0].isdigit() else plain


def encoded(key: str, values: Sequence[Any]) -> str:
    """Return the text of a property that holds these values."""
    return f'{key} = "{quote(json.dumps(values), safe="")}"'


def decoded(key: str, words: Sequence[str]) -> list[Any] | None:
    """Return the values of the tokens of a property, None for another property.

    Raises
    ------
    DataError
        If the property has not the form of `encoded`.
    """
    if len(words) != 3 or words[0] != key:
        return None
    try:
        values = json.loads(unquote(words[2].strip('"')))
    except (ValueError, TypeError) as error:
        raise DataError(f"the property {key} is damaged ({error}): remove it") from None
    if not isinstance(values, list) or not values:
        raise DataError(f"the property {key} is damaged (no list): remove it")
    return values
