"""Where the rows of a table are and how they are written, from a path or a table description.

A path names a file of rows, whose suffix says its format, or a table description: a TOML file whose
name ends in ``.table.toml``. A description names a file and how it is written (separator, decimal
comma, encoding, sheet), or a query to a database::

    file = "labs.csv"             # relative paths start at the directory of the description
    separator = ";"
    decimal = ","
    encoding = "latin-1"
    skip-lines = 3                # above the line with the names of the columns

    url-variable = "OMOP_URL"     # the environment variable that holds the SQLAlchemy URL
    query = "select ... order by person_id"
"""

from __future__ import annotations

import codecs
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from flwr_causal.core.words import nearest
from flwr_causal.errors import DataError

Format: TypeAlias = Literal["text", "npz", "parquet", "arrow", "workbook", "statistics", "database"]

#: The suffix of a table description.
DESCRIPTION = ".table.toml"
#: The format of a file by its suffix.
FORMATS: dict[str, Format] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".npz": "npz",
    **dict.fromkeys((".feather", ".arrow"), "arrow"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "workbook"),
    **dict.fromkeys((".dta", ".sav", ".zsav", ".por", ".sas7bdat", ".xpt"), "statistics"),
}
#: The suffixes of files that :func:`~flwr_causal.data.read.tables.read_table` reads.
SUFFIXES = (*FORMATS, DESCRIPTION)
#: UTF-8, with or without a mark of it at the beginning.
UTF_8 = "utf-8-sig"
_SEPARATORS = ",;\t|:^~ "
# What a query may begin with: a database may keep the changes of other statements.
_QUERY = re.compile(r"(?:--[^\n]*\n|/\*.*?\*/|[\s(])*(?:select|with|values|table)\b", re.I | re.S)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A database gives rows in any order without it, and other passes would see another table.
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
# Comments, texts and quoted names of a query, in which words have no meaning.
_NO_WORDS = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|\'\')*'|"[^"]*"|`[^`]*`|\$(\w*)\$.*?\$\1\$""", re.DOTALL
)
_INNERMOST = re.compile(r"\([^()]*\)")
# The formats in which each key has a meaning.
_KEYS: dict[str, tuple[Format, ...]] = {
    "file": get_args(Format),
    "separator": ("text",),
    "decimal": ("text",),
    "encoding": ("text", "statistics"),
    "sheet": ("workbook",),
    "skip-lines": ("text", "workbook"),
    "unlabelled": ("statistics",),
    "url-variable": ("database",),
    "query": ("database",),
}


class Delimited(NamedTuple):
    """A file of delimited text.

    Parameters
    ----------
    path : Path
        Perhaps compressed by gzip.
    separator : str
        The character between fields.
    decimal : {".", ","}, default "."
        The decimal mark of numbers.
    encoding : str, default "utf-8-sig"
        As Python names it.
    skip_lines : int, default 0
        Lines above the one with the names.
    """

    path: Path
    separator: str
    decimal: str = "."
    encoding: str = UTF_8
    skip_lines: int = 0


@dataclass(frozen=True)
class Origin:
    """Where the rows of a table are, and how they are written.

    Parameters
    ----------
    path : Path
        What the party names: a file of rows, or a table description.
    format : str
        One of `Format`.
    file : Path or None, default None
        The file of rows; None for a database.
    separator : str, default ""
        Of delimited text; default: a comma, a tab for ``.tsv``.
    decimal : {".", ","}, default "."
        Of delimited text: the decimal mark.
    encoding : str, default ""
        As Python names it, of delimited text (default: UTF-8) and of files of statistics programs
        (default: what they say).
    sheet : str, default ""
        Of a workbook; default: the only one that is neither empty nor hidden.
    skip_lines : int, default 0
        Of delimited text and of a workbook: lines (rows of the sheet, empty ones too) above the
        names of the columns.
    unlabelled : tuple of str, default ()
        Columns of Stata and SPSS that keep their numbers in place of value labels.
    url_variable : str, default ""
        The environment variable that holds the SQLAlchemy URL of a database.
    query : str, default ""
        What is asked of the database.
    """

    path: Path
    format: Format
    file: Path | None = None
    separator: str = ""
    decimal: str = "."
    encoding: str = ""
    sheet: str = ""
    skip_lines: int = 0
    unlabelled: tuple[str, ...] = ()
    url_variable: str = ""
    query: str = ""

    @property
    def rows(self) -> Path:
        """The file of rows; not of a database."""
        assert self.file is not None
        return self.file

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the table, or say where it is."""
        return (self.path,) if self.file in (None, self.path) else (self.path, self.rows)

    @property
    def in_pieces(self) -> bool:
        """Whether the rows can be read in pieces."""
        return self.format not in ("npz", "workbook")

    @property
    def delimited(self) -> Delimited | None:
        """How the text is written; None for another format."""
        if self.format != "text":
            return None
        tabs = self.rows.name.lower().removesuffix(".gz").endswith(".tsv")
        separator = self.separator or ("\t" if tabs else ",")
        return Delimited(
            self.rows, separator, self.decimal, self.encoding or UTF_8, self.skip_lines
        )


def origin_of(path: Path) -> Origin:
    """Return where the rows of a table are, and how they are written.

    Parameters
    ----------
    path : Path
        Of a file of rows, or of a table description.

    Raises
    ------
    DataError
        If a file does not exist or its type is unknown, or if the description cannot be used; the
        message holds no value of the keys of a database.
    """
    path = existing_file(path).absolute()
    if not is_description(path):
        return Origin(path, format_of(path), path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return _described(path, content)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        place = re.search(r"\(at .*\)$", str(error))
        raise DataError(
            f"{path} is no TOML file {place[0] if place else ''}: write lines such as "
            'file = "labs.csv" and separator = ";"'
        ) from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def existing_file(path: Path) -> Path:
    """Return the path of a file that is there, with the home directory for ``~``."""
    try:
        path = path.expanduser()
        is_dir, exists, is_file = path.is_dir(), path.exists(), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{path} is no path that can be read ({error}): check it") from error
    if is_dir:
        raise DataError(
            f"{path} is a directory, and a party's table is one file or table description: give "
            f"its path, such as {path / 'north.csv'}"
        )
    if not exists:
        raise DataError(
            f"{path} does not exist: check the path "
            "(on a node it must be absolute, and readable on that machine)"
        )
    if not is_file:
        # Reading a pipe or a device may never end.
        raise DataError(f"{path} is a pipe or a device: save the table in a file")
    return path


def is_description(path: Path) -> bool:
    """Return whether a path is, by its name, of a table description."""
    return path.name.lower().endswith(DESCRIPTION)


def table_name(path: Path) -> str:
    """Return the name of a table: that of its file, or of its description, without suffix."""
    suffixes = [suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)]
    return path.name[: -max(map(len, suffixes))] if suffixes else path.name


def format_of(path: Path) -> Format:
    """Return the format of a file of rows by its suffix.

    Raises
    ------
    DataError
        If it is unknown.
    """
    name = path.name.lower()
    for suffix, found in FORMATS.items():
        if name.endswith(suffix):
            return found
    raise DataError(f"{path} has an unknown file type: convert it to one of {', '.join(SUFFIXES)}")


def tables_in(directory: Path) -> list[Path]:
    """Return the tables of a directory by name; a described file counts once, by its description.

    Raises
    ------
    DataError
        If a description cannot be used.
    """
    found = [file for file in sorted(directory.iterdir()) if _is_table(file)]
    described = {origin_of(file).file for file in found if is_description(file)}
    return [file for file in found if file.absolute() not in described]


def _is_table(file: Path) -> bool:
    return file.name.lower().endswith(SUFFIXES) and not file.name.startswith(".")


def _described(path: Path, content: dict[str, Any]) -> Origin:
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise DataError(_unknown(unknown[0]))
    for key, value in content.items():
        if key == "skip-lines":
            if type(value) is not int or value < 0:
                raise DataError(f"'{key}' must be a number of lines, 0 or more")
        elif key != "unlabelled" and (not isinstance(value, str) or not value):
            raise DataError(f"'{key}' must be a text in quotation marks")
    is_query = "query" in content or "url-variable" in content
    if is_query is ("file" in content):
        raise DataError(
            "a description names either a 'file', or a 'query' and the 'url-variable' of a "
            "database: write one of them"
        )
    file = None if is_query else existing_file(path.parent / Path(content["file"]).expanduser())
    found: Format = "database"
    if file is not None:
        found = "text" if "separator" in content else format_of(file)
    for key in content:
        if found not in _KEYS[key]:
            raise DataError(f"'{key}' says nothing of a table of this type ({found}): take it out")
    _check_text(content)
    if is_query:
        _check_query(content)
    return Origin(
        path,
        found,
        None if file is None else file.absolute(),
        unlabelled=_names(content.pop("unlabelled", [])),
        **{key.replace("-", "_"): value for key, value in content.items() if key != "file"},
    )


def _unknown(key: str) -> str:
    if key in ("url", "password"):
        return (
            f"there is no key '{key}', because a description must hold no secret: put the URL into "
            "an environment variable, and name it by 'url-variable'"
        )
    near = nearest(key.lower().replace("_", "-"), _KEYS)
    known = f" (did you mean '{near}'?)" if near else f" among {', '.join(_KEYS)}"
    return f"there is no key '{key}'{known}"


def _check_text(content: dict[str, Any]) -> None:
    """Check separator, decimal mark and encoding, where they are given."""
    separator, decimal = content.get("separator", ""), content.get("decimal", ".")
    if separator and (len(separator) > 1 or separator not in _SEPARATORS):
        raise DataError(
            f"'separator' is {separator!r}: write one of a comma, a semicolon, a tab (\"\\t\"), a "
            "bar, a colon, a blank, ^ and ~"
        )
    if decimal not in (".", ","):
        raise DataError(f'\'decimal\' is {decimal!r}: write "." or ","')
    if decimal == "," and separator == ",":
        raise DataError(
            "'separator' and 'decimal' are both a comma: no reader can tell them apart; save the "
            "table with semicolons"
        )
    if (
        decimal == ","
        and not separator
        and not content["file"].lower().endswith((".tsv", ".tsv.gz"))
    ):
        raise DataError("'decimal' is a comma: name the separator too, such as separator = \";\"")
    if encoding := content.get("encoding"):
        try:
            "".encode(encoding)
            codecs.lookup(encoding)
        except LookupError:
            raise DataError(
                f"'encoding' is {encoding!r}, which Python does not know: write one such as "
                '"latin-1", "cp1252" or "utf-16"'
            ) from None
        if codecs.lookup(encoding).name == "utf-8":
            content["encoding"] = UTF_8


def _check_query(content: dict[str, Any]) -> None:
    """Check the entries of a table description about a database; messages hold no value."""
    for key in ("url-variable", "query"):
        if key not in content:
            raise DataError(f"'{key}' is missing: a database needs 'url-variable' and 'query'")
    if not _VARIABLE.fullmatch(content["url-variable"]):
        raise DataError(
            "'url-variable' is no name of an environment variable: write the name, such as "
            "OMOP_URL, and the URL into the variable, not into this file"
        )
    if not _QUERY.match(content["query"]):
        raise DataError(
            "the query begins neither with SELECT nor with WITH, VALUES or TABLE: write one that "
            "reads rows, since nothing may be changed in the database"
        )
    if not _ORDER.search(_outermost(content["query"])):
        raise DataError(
            "the query has no ORDER BY of its own (that of a subquery, of a window function or of "
            "a comment does not order the rows): a database gives rows in any order without it, "
            "and the next reading would find another table; end it with ORDER BY and the columns "
            "of a key"
        )


def _outermost(query: str) -> str:
    """Return a query without comments, texts, and what stands in parentheses."""
    text = _NO_WORDS.sub(" ", query).strip().rstrip(";").strip()
    while True:
        inner = text
        while (found := _INNERMOST.sub(" ", inner)) != inner:
            inner = found
        if inner.strip() or not text.startswith("("):
            return inner
        text = text[1:-1].strip()  # all of the query stands in parentheses


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise DataError("'unlabelled' must be a list of columns' names")
    return tuple(value)
