"""``flwr-causal``: the methods, their options, runs on files, and comparisons of runs.

The exit status is 0 where a command did what it should, 1 where a run or a check failed, 2 where
the arguments, an option or a table cannot be used, 3 where a run is completed without all parties,
and 130 where a command was interrupted.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
import textwrap
from collections import Counter
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from math import isnan
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from flwr_causal.app import methods as registry
from flwr_causal.app.config import DataConfig, checked_config, value_of
from flwr_causal.app.dry_run import COULD_BEGIN, on_nodes
from flwr_causal.app.new_method import create
from flwr_causal.app.sources import Roles, simulation
from flwr_causal.core.privacy.calibration import USUAL_DELTA
from flwr_causal.core.words import counted, some
from flwr_causal.data.check.agreement import SETTINGS
from flwr_causal.data.check.far_values import far_values
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import SHOWN_CELLS, describe, repeated_rows, stray_cells
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.data.dictionary.faults import DictionaryFaultError
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.read.origin import is_description
from flwr_causal.data.read.pieces import open_table
from flwr_causal.data.read.tables import spelled_table, texts_of_missing
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.party.dictionary import reading_at
from flwr_causal.party.policy import ColumnRules
from flwr_causal.party.record import PartyRecord, epsilon_spent, totals
from flwr_causal.protocol.schema import own_version
from flwr_causal.reports.asked import answer, asked_of
from flwr_causal.reports.changes import changes
from flwr_causal.reports.described import described
from flwr_causal.reports.edges import compared
from flwr_causal.reports.page.comparison import comparison_payload
from flwr_causal.reports.page.description import difference_rows
from flwr_causal.reports.page.template import write_page
from flwr_causal.reports.result import status_in_words
from flwr_causal.reports.run import Run
from flwr_causal.reports.trust import describe_differences
from flwr_causal.runtime.checkpoint import (
    PAGE,
    check_own,
    check_page,
    keeps_exchanges,
    read_history,
    status_of,
)
from flwr_causal.runtime.checkpoint import forget as forgotten
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of, sources_of
from flwr_causal.strategies.options import check_names
from flwr_causal.testing import check_method as checks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click
    import pandas as pd

    from flwr_causal.core.description.description import Description
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table

#: `check-method` without tables of the user's makes tables of this size.
SMALL = DataConfig(variables=4, rows=105)
#: Exit statuses: a run is completed, but not by all parties; with ``--strict`` its first line says
#: not to rely on it; a command was interrupted.
NOT_ALL_PARTIES, NOT_TO_RELY_ON, INTERRUPTED = 3, 4, 130
#: The directory that holds this package: of a checkout, or of the installed packages.
CHECKOUT = Path(__file__).parents[1]
#: Lines are not broken there.
NO_BREAK = "\xa0"
#: Characters of a line in which a table is measured; wider ones fit no terminal.
WIDEST = 10_000
#: Of mixed tables it takes so many rows of each party, so many columns and the last one.
SMALL_ROWS, SMALL_COLUMNS = 40, 3


class Engine(StrEnum):
    """Where the parties of a run are simulated."""

    local = "local"
    ray = "ray"


class Commands(TyperGroup):
    """A group of commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors become messages and exit statuses."""
        try:
            return super().invoke(ctx)
        except CausalError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, ConfigError | DataError) else 1) from None
        except KeyboardInterrupt:
            sweep = " The same command goes on." if ctx.invoked_subcommand == "reproduce" else ""
            typer.echo(f"Interrupted.{sweep}", err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated causal discovery: one graph from the tables of several parties.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MethodId = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help="`methods` lists them.", autocompletion=lambda: [*registry.METHODS]
    ),
]
Tables = Annotated[
    list[Path],
    typer.Argument(metavar="DATA...", help="Files, or table descriptions, one for each party."),
]
Maps = Annotated[
    list[str],
    typer.Option(
        "--map",
        metavar="TABLE=FILE",
        help="A table's own names and codes, with -o dictionary=FILE.",
    ),
]
Treatment = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --outcome: their effect comes first on the page."),
]
Outcome = Annotated[str | None, typer.Option(metavar="COLUMN", help="See --treatment.")]
Given = Annotated[
    list[str],
    typer.Option("-o", "--option", metavar="KEY=VALUE", help="See `options METHOD`."),
]


def _version(shown: bool) -> None:
    if shown:
        typer.echo(own_version())
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# What there is.


@app.command()
def methods(
    method: Annotated[str | None, typer.Argument(help="Say all of one method.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods: what for, data, what leaves a party."""
    ids = [method] if method else list(registry.METHODS)
    found = [described(registry.find(one).strategy()) for one in ids]
    if as_json:
        _print_json(found)
        return
    for one in found:
        typer.secho(one["id"], bold=True)
        text = one["description"] if method else one["summary"]
        typer.echo(textwrap.indent(text, "  "))
        most = one["exchanges_at_most"]
        typer.echo(f"  data: {one['data']}; exchanges at most: {most or 'not stated'}")
        if not method:
            leaves = dict.fromkeys(item["name"] for e in one["exchanges"] for item in e["leaves"])
            _wrapped(f"leaves a party: {', '.join(leaves)}", "  ")
            continue
        for exchange in one["exchanges"]:
            _wrapped(f"exchange '{exchange['name']}' ({exchange['when']})", "  ")
            for item in exchange["leaves"]:
                rows = f"; an entry for {item['rows']}" if item["rows"] else ""
                _wrapped(f"{item['name']}: {item['meaning']}{rows}", "    ")


@app.command()
def options(method: MethodId, as_json: Json = False) -> None:
    """List the options of a METHOD: name, values, default, meaning."""
    # Takes half a second, which help and the shell's completion save.
    from flwr_causal.app.pages import options_of, values_in_words

    rows = [
        {
            "name": option.key,
            "values": values_in_words(option.kind).replace("`", ""),
            "default": option.default,
            "meaning": option.meaning,
        }
        for option in options_of(registry.find(method).strategy.options_type, str)
    ]
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        typer.secho(row["name"], bold=True, nl=False)
        typer.echo(f"  {row['values'] or 'see below'}; default {_cell_text(row['default'])}")
        _wrapped(row["meaning"], "    ")


# Tables and runs.


@app.command()
def dictionary(
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA...", help="Tables, or proposals that parties made of theirs."),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file; default: print it.")
    ] = None,
) -> None:
    """Propose a dictionary of all parties' columns, with questions to answer.

    Each party may propose one from its own table; the coordinator joins the proposals. It has names
    of columns, kinds, states, and coarse ranges of numbers; no ids, free text or counts.
    """
    # Takes a moment, which help and the shell's completion save.
    from flwr_causal.data.dictionary import proposal

    known: dict[str, dict[str, proposal.PartyColumn]] = {}
    for name, path in zip(proposal.labels(map(str, data)), data, strict=True):
        if path.suffix.lower() == ".toml" and not is_description(path):
            known[name] = proposal.of_proposal(path)
            continue
        known[name] = proposal.of_table(spelled_table(path))
    text, questions = proposal.proposed(known)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_new(output, text)
    typer.echo(f"{output}: {counted(questions, 'question')} to answer, in lines # QUESTION")


@app.command()
def check(
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATA...]", help="As of `run`; none with --nodes."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only these methods.")
    ] = None,
    option: Given = [],  # noqa: B006 - typer copies it
    own_map: Maps = [],  # noqa: B006 - typer copies it
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Ask connected nodes, by `flwr run`, in place of files.")
    ] = False,
    app_dir: Annotated[
        Path, typer.Option("--app", metavar="DIR", help="With --nodes: the app.")
    ] = Path(),
    connection: Annotated[
        str, typer.Option(metavar="NAME", help="With --nodes: of Flower's config.toml.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Check tables, and list which methods accept them.

    With -o dictionary=FILE it first shows the rows and values that do not fit the dictionary.

    --nodes asks connected nodes whether a run of the app could begin, and what it would cost.
    Nothing is trained. Exit status 1: a run could not begin.
    """
    if nodes == bool(data):
        raise ConfigError("Give tables, or --nodes in place of them.")
    if nodes:
        _check_nodes(app_dir, connection, method or [], option, as_json=as_json)
        return
    data = data or []
    maps = _maps(own_map, data)
    entries = _dictionary(option)
    tables = _fitting(entries, data, maps, as_json=as_json)
    reports = {path: describe(table) for path, table in tables.items()}
    stray = [
        {"table": str(path), "column": name, "row": row, "value": value}
        for path, table in tables.items()
        for name, row, value in stray_cells(table, reports[path])
    ]
    far = {path: _far_values(table, reports[path]) for path, table in tables.items()}
    columns = [
        {
            "table": str(path),
            "column": column.name,
            "kind": column.kind,
            "rows": report.rows + report.dropped_rows,
            "missing": column.missing,
            "infinite": column.infinite,
            "constant": column.distinct_one,
            "far_values": far[path].get(column.name),
            "copy_of": None if column.copy_of is None else report.names[column.copy_of],
        }
        for path, report in reports.items()
        for column in report.columns
    ]
    verdicts = {one: _verdict(one, data, maps, option) for one in method or registry.METHODS}
    digest = None if entries is None else entries.digest
    if as_json:
        found = {"columns": columns, "stray": stray, "methods": verdicts, "dictionary": digest}
        _print_json(found)
    else:
        if digest:
            typer.echo(f"The tables fit the dictionary, whose digest is {digest}")
        _print_rows(columns if len(tables) < 2 else _by_column(columns, reports))
        for path, own in reports.items():
            _echo_missing(path, own)
            if count := repeated_rows(tables[path]):
                repeat = "repeats an earlier one" if count == 1 else "repeat earlier ones"
                typer.echo(f"{path}: {counted(count, 'row')} {repeat} in all columns")
        for cell in stray[:SHOWN_CELLS]:
            typer.echo(
                "{table}, column {column!r}: {value!r} in row {row} is no number, as most of the "
                "column is".format(**cell)
            )
        if len(stray) > SHOWN_CELLS:
            typer.echo(f"... and {len(stray) - SHOWN_CELLS} more such values; --json lists all")
        _echo_verdicts(verdicts)
    if not any(verdict["usable"] for verdict in verdicts.values()):
        raise typer.Exit(2)


def _by_column(
    columns: Sequence[dict[str, Any]], reports: Mapping[Path, TableReport]
) -> list[dict[str, Any]]:
    """Return what is known of the columns of several tables, with a row for each name."""
    labels = dict(zip(map(str, reports), sources_of([*reports]).values(), strict=True))
    held: dict[str, dict[str, dict[str, Any]]] = {}
    for one in columns:
        held.setdefault(one["column"], {}).setdefault(labels[one["table"]], one)
    rows = []
    for name, own in held.items():
        kinds = Counter(one["kind"] for one in own.values())
        usual, _ = kinds.most_common(1)[0]
        notes = [
            f"{what} at {some(tables)}"
            for what, tables in _notes_of(usual, own).items()
            if len(tables) < len(own) or what != usual
        ]
        lacking = [label for label in labels.values() if label not in own]
        rows.append(
            {
                "column": name,
                "kind": usual,
                "missing": ", ".join(str(one["missing"]) for one in own.values()),
                "notes": "; ".join([*notes, *([f"not in {some(lacking)}"] if lacking else [])]),
            }
        )
    sizes = (report.rows + report.dropped_rows for report in reports.values())
    listed = zip(labels.values(), sizes, strict=True)
    typer.echo("; ".join(f"{label}: {counted(rows, 'row')}" for label, rows in listed))
    return rows


def _notes_of(usual: str, own: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return what is unusual about a column, and at which tables."""
    found: dict[str, list[str]] = {}
    for label, one in own.items():
        notes = {
            one["kind"]: one["kind"] != usual,
            f"{one['infinite']} infinite": one["infinite"],
            "constant": one["constant"],
            f"far values {one['far_values']}": one["far_values"],
            f"a copy of {one['copy_of']}": one["copy_of"],
        }
        for note in (note for note, is_so in notes.items() if is_so):
            found.setdefault(note, []).append(label)
    return found


def _echo_verdicts(verdicts: Mapping[str, dict[str, Any]]) -> None:
    """Say which methods can use the tables; what several say of them is printed once."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for method, verdict in verdicts.items():
        alike.setdefault((verdict["error"], *verdict["warnings"]), []).append(method)
    parts = {texts: _problems_in(texts[0]) for texts in alike}
    times = Counter(
        text
        for texts, (problems, _) in parts.items()
        for text in dict.fromkeys([*problems, *texts[1:]])
    )
    common = [text for text, count in times.items() if count > 1]
    numbers = {text: number for number, text in enumerate(common, start=1)}
    for text, number in numbers.items():
        _wrapped(text, "    ", f"{number:2}. ")
    for texts, methods in alike.items():
        problems, rest = parts[texts]
        said = [*problems, *texts[1:]]
        known = ", ".join(str(numbers[text]) for text in said if text in numbers)
        head = f"{', '.join(methods)}: {'not usable' if texts[0] else 'usable'}"
        typer.secho(f"{head}, see {known}" if known else head, bold=True)
        for text in (*(text for text in said if text not in numbers), *rest):
            _wrapped(text, "    ", "  ")


def _problems_in(error: str) -> tuple[list[str], list[str]]:
    """Return the problems of tables that an error lists, and what it says of the options."""
    text, settings, rest = error.partition(SETTINGS)
    lines = [line.strip() for line in text.splitlines() if not re.search(r" problems?:$", line)]
    return lines, f"{settings}{rest}".strip().splitlines()


def _check_nodes(
    app_dir: Path,
    connection: str,
    methods: Sequence[str],
    option: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Ask connected nodes whether runs could begin; exit with 1 if one could not."""
    pairs = [*map(_key_and_value, option)]
    given = {key: value_of(value) for key, value in pairs}
    if len(given) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"The key '{twice}' is given twice: give it once.")
    chosen = [{"method": one} for one in methods] or [{}]
    found = [on_nodes(app_dir, connection, {**given, **one}) for one in chosen]
    if as_json:
        _print_json(found if methods else found[0])
    else:
        for one in found:
            _echo_dry_run(one)
    if any(one["status"] != COULD_BEGIN for one in found):
        raise typer.Exit(1)


def _echo_dry_run(found: dict[str, Any]) -> None:
    """Print whether a run could begin, and what it would cost."""
    if found["status"] != COULD_BEGIN:
        typer.echo(f"The run could not begin: {found['error']}", err=True)
        return
    typer.secho(f"A run of {found['method']} could begin", bold=True)
    for party, rows in found["parties"].items():
        typer.echo(f"  {party}: {'rows are withheld' if rows is None else counted(rows, 'row')}")
    typer.echo(f"  {counted(found['rows'], 'row')}, {counted(len(found['columns']), 'column')}")
    most, size = found["exchanges_at_most"], found["bytes_at_most"]
    exchanges = (
        "as many exchanges as the search needs"
        if most is None
        else (f"at most {counted(most, 'exchange')}")
    )
    amount = "" if size is None else f", {size:,} bytes at most"
    typer.echo(f"  {exchanges}{amount}; {found['schema_bytes']:,} bytes before the first one")
    for one in found["exchanges"]:
        more = ", and arrays whose size depends on the run" if one["further"] else ""
        typer.echo(
            f"  {one['name']} ({one['when']}): {one['sent']:,} bytes to a party, "
            f"{one['received']:,} from it{more}"
        )
    for warning in found["warnings"]:
        _wrapped(f"Warning: {warning}", "    ", "  ")


def _far_values(table: Table, report: TableReport) -> dict[str, str]:
    """Return the values far outside all others, by column."""
    some = any(column.far for column in report.columns)
    return {name: str(found) for name, found in far_values(table).items()} if some else {}


def _echo_missing(path: Path, report: TableReport) -> None:
    """Say which texts of a file stand for missing values, where there are others than none."""
    if not any(column.missing for column in report.columns):
        return
    for name, texts in texts_of_missing(path).items():
        if texts.keys() - {""}:
            listed = ", ".join(
                f"{count} {repr(text) if text else 'empty fields'}" for text, count in texts.items()
            )
            typer.echo(f"{path}, column {name!r}: missing values are {listed}")


def _dictionary(pairs: Sequence[str]) -> Dictionary | None:
    """Return the dictionary that an option names; None if none does."""
    given = [pair.partition("=")[2] for pair in pairs if pair.partition("=")[0] == "dictionary"]
    return Dictionary.read(value_of(given[0])) if given else None


def write_new(path: Path, text: str) -> None:
    """Write a text into a file that is not there yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already: name a new file") from None


def _maps(given: Sequence[str], data: Sequence[Path]) -> list[Path | None]:
    """Return each table's map to the dictionary, from TABLE=FILE; of one table FILE is enough.

    Raises
    ------
    ConfigError
        If no table has the name, or it has two maps.
    """
    found: list[Path | None] = [None] * len(data)
    for text in given:
        table, equals, file = text.rpartition("=")
        places = [k for k, path in enumerate(data) if table in (str(path), path.name)]
        if not equals and len(data) == 1:
            places = [0]
        if len(places) != 1 or found[places[0]] is not None:
            raise ConfigError(
                f"--map {text} names {'a table twice' if places else 'no table'}: write "
                f"--map {data[0].name}=FILE, once for each table that has a map"
            )
        found[places[0]] = Path(file)
    return found


def _fitting(
    dictionary: Dictionary | None,
    data: Sequence[Path],
    maps: Sequence[Path | None],
    *,
    as_json: bool,
) -> dict[Path, Table]:
    """Return the tables as the dictionary has them; show what does not fit it, and exit with 2."""
    tables, faults = _read_by(dictionary, data, maps)
    if faults:
        _show_faults(faults, as_json=as_json)
        raise typer.Exit(2)
    return tables


def _read_by(
    dictionary: Dictionary | None, data: Sequence[Path], maps: Sequence[Path | None]
) -> tuple[dict[Path, Table], dict[Path, DictionaryFaultError]]:
    """Return the tables as the dictionary has them, and what of others does not fit it.

    Raises
    ------
    DataError
        With a line for each file that cannot be read.
    """
    tables: dict[Path, Table] = {}
    faults: dict[Path, DictionaryFaultError] = {}
    unreadable: list[str] = []
    handling = Handling(
        text_columns="keep", dictionary="" if dictionary is None else dictionary.text
    )
    for path, own in zip(data, maps, strict=True):
        try:
            tables[path] = open_table(path, reading=reading_at(handling, None, own, ColumnRules()))
            len(tables[path])  # all rows of a large file are looked at
        except DictionaryFaultError as error:
            faults[path] = error
        except DataError as error:
            unreadable.append(str(error))
    if unreadable:
        raise DataError("\n".join(unreadable))
    return tables, faults


def _show_faults(faults: Mapping[Path, DictionaryFaultError], *, as_json: bool) -> None:
    """Print what of tables does not fit the dictionary: for the party, with rows and values."""
    if as_json:
        listed = [
            {"table": str(path), **asdict(one)}
            for path, own in faults.items()
            for one in own.faults
        ]
        _print_json({"faults": listed})
        return
    for path, own in faults.items():
        typer.secho(f"{path} does not fit the dictionary:", bold=True)
        for line in own.local():
            _wrapped(line, "    ", "  ")
    typer.echo("Rows and values stay here: a run is told the columns and how many values.")


def _verdict(
    method: str, data: Sequence[Path], maps: Sequence[Path | None], option: Sequence[str]
) -> dict[str, Any]:
    """Return what a method says of tables in the schema exchange."""
    registry.find(method)
    try:
        agreed = agreement_of(method, data, maps, **_options(method, option))
    except CausalError as error:
        return {"usable": False, "columns": [], "warnings": [], "error": _with_options(error)}
    return {
        "usable": True,
        "columns": list(agreed.names),
        "warnings": [*agreed.warnings],
        "error": "",
    }


@app.command()
def run(
    method: MethodId,
    data: Tables,
    option: Given = [],  # noqa: B006 - typer copies it
    engine: Annotated[
        Engine, typer.Option(metavar="local|ray", help="This process, or Ray.")
    ] = Engine.local,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Determines all random choices.")
    ] = 0,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For results and page; replaces a run.")
    ] = None,
    own_map: Maps = [],  # noqa: B006 - typer copies it
    treatment: Treatment = None,
    outcome: Outcome = None,
    progress: Annotated[bool | None, typer.Option(help="Default: in a terminal.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit status 4 where not to rely on the result.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a METHOD on files, each the table of one party.

    Nothing starts if an option or a table cannot be used. --output-dir DIR makes a page. The first
    line says whether to rely on the result. Exit status 3: the run is completed without all
    parties; 4, with --strict: the first line says not to rely on it.
    """
    given = {"seed": seed, **_options(method, option)}
    if output_dir is not None:
        given["output_dir"] = str(output_dir.absolute())
        check_own(output_dir)
        check_page(output_dir / PAGE)
    try:
        found = _on_files(
            method, data, given, engine, maps=own_map, progress=False if as_json else progress
        )
    except KeyboardInterrupt:
        typer.echo(_interrupted(output_dir), err=True)
        raise typer.Exit(INTERRUPTED) from None
    asked, trust = asked_of(found, treatment, outcome), found.trust
    page = None
    if output_dir is not None:
        page = found.report(output_dir.absolute() / PAGE, treatment=treatment, outcome=outcome)
    if as_json:
        edges = [] if found.graph is None else found.graph.marked_edges()
        names = ("cause", "mark", "effect", "weight")
        listed = [dict(zip(names, edge, strict=True)) for edge in edges]
        first = {"verdict": trust.verdict, "headline": trust.sentence}
        _print_json({**first, **found.summary(influence=False), "edges": listed})
    else:
        typer.echo(str(found))
        if asked is not None and asked != asked_of(found):  # else it has told
            typer.echo("\n".join(answer(found, *asked)))
        if page is not None:
            typer.echo(f"Results in {given['output_dir']}, to look at: {page}")
        else:
            typer.echo("Nothing was written: --output-dir DIR keeps results and makes their page.")
    if strict and trust.verdict == "do not rely":
        raise typer.Exit(NOT_TO_RELY_ON)
    _exit_if_lost(found)


def _on_files(
    method: str,
    data: Sequence[Path],
    given: dict[str, Any],
    engine: Engine = Engine.local,
    *,
    maps: Sequence[str],
    progress: bool | None,
) -> Run:
    """Return a run on files; a DataError names them."""
    own = _maps(maps, data)
    try:
        agreement_of(method, data, own, **{**given, "output_dir": None, "resume": False})
        return simulate(method, data, engine=engine.value, progress=progress, maps=own, **given)
    except DataError as error:
        raise DataError(_with_options(error)) from error


def _exit_if_lost(found: Run) -> None:
    """Exit with the status of a run that is completed without all parties, if it is one."""
    if found.lost:
        typer.echo(f"The run is {status_in_words(found)}.", err=True)
        raise typer.Exit(NOT_ALL_PARTIES)


@app.command("describe")
def describe_files(
    data: Tables,
    option: Annotated[
        list[str],
        typer.Option("-o", "--option", metavar="KEY=VALUE", help="See `options describe`."),
    ] = [],  # noqa: B006 - typer copies it
    own_map: Maps = [],  # noqa: B006 - typer copies it
    output: Annotated[Path | None, typer.Option(help="Write an HTML page.")] = None,
    as_json: Json = False,
) -> None:
    """Describe files as one table, each that of one party: gaps, means, quantiles, histograms.

    Nothing but sums and counts leaves a party, as in a run: `run describe` keeps it, and
    `flwr run . -c "method='describe'"` asks connected nodes.
    """
    if output is not None:
        check_page(output)
    found = _on_files("describe", data, _options("describe", option), maps=own_map, progress=False)
    model: Description = found.model
    if output is not None:
        found.report(output)
    if as_json:
        _print_json({**model.to_dict(), "warnings": found.warnings})
    else:
        _echo_description(found, model)
        if output is not None:
            typer.echo(f"Page: {output}")
    _exit_if_lost(found)


def _echo_description(found: Run, model: Description) -> None:
    """Print a description: the columns, the gaps, and what differs at single parties."""
    typer.echo(f"{counted(len(found.parties), 'party')}, {counted(model.rows, 'row')}")
    columns = model.table().reset_index().to_dict("records")
    _print_rows([{str(name): _short(value) for name, value in row.items()} for row in columns])
    for missing, rows in model.patterns[:SHOWN_CELLS]:
        if missing:
            typer.echo(f"Missing together in {counted(rows, 'row')}: {', '.join(missing)}")
    for party, column, what, value, others, effect, unit in difference_rows(model)[:SHOWN_CELLS]:
        values = f" {_short(value)}, elsewhere {_short(others)}" if value is not None else ""
        typer.echo(f"{party}, column {column!r}: {what}{values}; effect {effect:.2g} ({unit})")
    if (more := len(model.differences) - SHOWN_CELLS) > 0:
        typer.echo(f"... and {counted(more, 'smaller difference')}; --json lists all")
    for warning in found.warnings:
        _wrapped(f"Warning: {warning}", "  ", "")


def _short(value: Any) -> Any:
    """Return a number with four digits; what is not known as an empty text."""
    if isinstance(value, float):
        return "" if isnan(value) else f"{value:.4g}"
    return "" if value is None else value


def _interrupted(directory: Path | None) -> str:
    """Return the message of an interrupted run: which files are kept, and how to resume it."""
    if directory is None:
        return "Interrupted. Nothing was kept: with --output-dir DIR a run can be resumed."
    if not keeps_exchanges(directory) or status_of(directory) == "completed":
        return f"Interrupted before the run began: {directory} is as it was."
    done = counted(len(read_history(directory)), "exchange")
    return (
        f"Interrupted after {done}; what was done is kept in {directory}. The same command with "
        "-o resume=true goes on from there; flwr-causal forget "
        f"{shlex.quote(str(directory))} deletes it."
    )


def _options(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return options by name from KEY=VALUE; keys of a run config are accepted, too."""
    given: dict[str, Any] = {}
    for pair in pairs:
        key, value = _key_and_value(pair)
        name = key.removeprefix(f"{method}.").replace("-", "_")
        if name in given:
            raise ConfigError(f"The option '{name}' is given twice: give it once.")
        given[name] = value_of(value)
    check_names(registry.find(method).strategy, given)
    return given


def _key_and_value(pair: str) -> tuple[str, str]:
    """Return both parts of KEY=VALUE."""
    key, equals, value = pair.partition("=")
    if not (key and equals):
        raise ConfigError(f"'{pair}' is no KEY=VALUE: write -o sparsity=0.1")
    return key.strip(), value.strip()


def _with_options(error: CausalError) -> str:
    """Return an error's words, and how to give the options that they name."""
    lines = [text := str(error)]
    if error.settings:
        given = (f"-o {shlex.quote(f'{name}={value}')}" for name, value in error.settings.items())
        lines.append(f"Options are given as {' '.join(given)}")
    elif option := re.search(r"\b([a-z_]+)='([a-z]+)'", text):
        lines.append(f"Options are given as -o {option[1]}={option[2]}")
    return "\n".join(lines)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a saved run.")],
    output: Annotated[
        Path | None, typer.Option(help=f"The file to write. Default: {PAGE} in the directory.")
    ] = None,
    treatment: Treatment = None,
    outcome: Outcome = None,
) -> None:
    """Make one HTML page of a saved run.

    It shows the graph, how far to trust it, parties and traffic. It holds all it needs: it works
    without a network, and can be sent as one file.
    """
    found = Run.load(directory)
    page = found.report(output or directory / PAGE, treatment=treatment, outcome=outcome)
    typer.echo(str(page))


@app.command()
def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR DIR...", help="Of saved runs.")],
    everything: Annotated[bool, typer.Option("--all", help="List common edges, too.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write an HTML page with the graph in which they agree.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which edges differ between saved runs, and what else: options, parties, rows, weights."""
    if len(directories) < 2:
        raise ConfigError("Give the directories of at least two runs.")
    runs, graphs = [], []
    for directory in directories:
        runs.append(Run.load(directory))
        if (graph := runs[-1].graph) is None:
            raise DataError(f"The run in {directory} has no graph, so it cannot be compared.")
        graphs.append(graph)
    pairs = compared(graphs)
    names = [str(directory) for directory in directories]
    if output is not None:
        write_page(comparison_payload(names, runs, graphs), output)
    listed = [pair for pair in pairs if everything or pair.differs]
    others = changes(runs, graphs)
    if as_json:
        edges = [
            {"edges": dict(zip(names, pair.edges, strict=True)), "differs": pair.differs}
            | {"weights": dict(zip(names, pair.weights, strict=True))}
            | {"confidences": dict(zip(names, pair.confidences, strict=True))}
            for pair in listed
        ]
        changed = [
            {"subject": one.subject, "values": dict(zip(names, one.values, strict=True))}
            for one in others
        ]
        _print_json({"edges": edges, "changes": changed})
        return
    common = sum(not pair.differs for pair in pairs)
    typer.echo(f"{common} common edges, {len(pairs) - common} pairs of variables that differ")
    if listed:
        rows = [
            ["-" if w is None else f"{edge} {w:+.3f}" for edge, w in zip(*pair[:2], strict=True)]
            for pair in listed
        ]
        _print_rows([dict(zip(names, row, strict=True)) for row in rows])
    for one in others:
        _wrapped(f"{one.subject}: {', '.join(one.values)}", "")
    for name, run in zip(names, runs, strict=True):
        for line in (run.headline, *describe_differences(run)):
            typer.echo(f"{name}: {line}")
    if output is not None:
        typer.echo(f"Page: {output}")


# Of parties and of the server.


@app.command()
def check_config(
    given: Annotated[
        list[str],
        typer.Argument(metavar="TEXT...", help="As of `flwr run -c`, or TOML files."),
    ],
    repeats: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A saved run, which must have the same dictionary."),
    ] = None,
) -> None:
    """Name what is wrong in the keys and values of `flwr run -c`, which Flower does not."""
    typer.echo(checked_config(given, repeats=repeats))


@app.command()
def record(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The record of a party's node.")],
    run: Annotated[int | None, typer.Option(help="Only the lines of this run.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check the chain of lines.")] = False,
    delta: Annotated[
        float, typer.Option(min=1e-15, max=0.999, help="At which the privacy loss is told.")
    ] = USUAL_DELTA,
    as_json: Json = False,
) -> None:
    """Say what has left a party, by run; of one run each exchange.

    --verify finds lines that were changed, added or deleted, and prints the digest of the last
    line. Kept elsewhere, it shows later whether lines were cut off at the end.
    """
    if not path.is_file():
        raise DataError(f"There is no record {path}.")
    kept = PartyRecord(path)
    if verify:
        typer.echo(
            f"{len(kept.lines())} lines, none changed; digest of the last: {kept.check_chain()}"
        )
        return
    lines = [one for one in kept.lines() if run is None or one.get("run") == run]
    rows = totals(lines, delta) if run is None else [_of_exchange(one) for one in lines]
    if as_json:
        _print_json(rows if run is None else lines)
        return
    _print_rows(rows)
    typer.echo(
        f"{sum(one.get('bytes', 0) for one in lines)} bytes in all; privacy loss "
        f"epsilon {epsilon_spent(lines, delta):g}, delta {delta:g}"
    )


def _of_exchange(line: dict[str, Any]) -> dict[str, Any]:
    shapes = [f"{one['name']} {tuple(one['shape'])}" for one in line.get("arrays", ())]
    names = ("time", "event", "exchange", "number", "bytes")
    what = line.get("reason") or ", ".join(shapes) or ", ".join(line.get("values", ()))
    return {**{name: line.get(name) for name in names}, "what": what}


@app.command()
def forget(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a run, or of many.")],
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=0.0, help="Only what is older.")
    ] = 0.0,
) -> None:
    """Delete what unfinished runs keep of the parties, and a party's releases; results stay.

    A run keeps the parties' reports and the combined replies until its results are saved. A failed
    or stopped run keeps them until this command; afterwards it cannot be resumed. A party keeps
    what it has released in runs with epsilon; afterwards they cannot go on after a restart.
    """
    for path in forgotten(directory, older_than):
        typer.echo(f"Deleted {path}")


@app.command()
def doctor(
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of the SuperLink to reach.")
    ] = None,
    root_certificates: Annotated[Path | None, typer.Option(help="The authority's ca.crt.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS.")] = False,
    auth_supernode_private_key: Annotated[
        Path | None, typer.Option(help="A node's key, to be tried.")
    ] = None,
    node_config: Annotated[
        str | None, typer.Option(help="Its text, or a TOML file; tables, policy, record.")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(metavar="NAME", help="A SuperLink of Flower's config.toml.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="To listen on: is it free?")] = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="A SuperLink's certificate.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="And its key.")] = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="The node was started, and ended with an error.")
    ] = False,
    settings: Annotated[
        bool,
        typer.Option("--settings", help="Only a node's settings and policy, and its key."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what keeps a node or a SuperLink from working, and the remedy.

    The options are those of flower-supernode and flower-superlink: give what these are given.
    --connection looks at a SuperLink that runs. Exit status 1: there is a problem; with --ended and
    --settings 4: there is one that passes, so that the node can be started later.
    """
    from flwr_causal.app.doctor.command import examine
    from flwr_causal.app.doctor.finding import LATER

    findings = examine(
        superlink=superlink,
        root_certificates=root_certificates,
        insecure=insecure,
        key=auth_supernode_private_key,
        node_config=node_config,
        connection=connection,
        port=port,
        certificate=ssl_certfile,
        certificate_key=ssl_keyfile,
        ended=ended,
        settings=settings,
    )
    if as_json:
        _print_json([asdict(one) for one in findings])
    else:
        for one in findings:
            typer.secho(f"{one.level:8}{one.subject}: ", bold=one.level == "problem", nl=False)
            typer.echo(one.text)
            if one.remedy:
                _wrapped(one.remedy, "        ")
    if (ended or settings) and any(one.passing for one in findings):
        raise typer.Exit(LATER)
    if any(one.level == "problem" for one in findings):
        raise typer.Exit(1)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def reproduce(ctx: typer.Context) -> None:
    """Make a table of a paper, or of a scenario of yours: methods and baselines. In a checkout."""
    if not (CHECKOUT / "benchmarks" / "commands.py").is_file():
        raise ConfigError(
            "The scenarios are in the folder 'benchmarks' of the repository, which a wheel leaves "
            "out: run pip install -e . in a checkout, then this command again."
        )
    sys.path.insert(0, str(CHECKOUT))  # before another package of this name
    found = typer.main.get_command(import_module("benchmarks.commands").app)
    arguments = [ctx.info_name or "", *ctx.args]
    raise typer.Exit(found.main(arguments, prog_name="flwr-causal", standalone_mode=False) or 0)


@app.command()
def deploy(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="TOML: name, parties, address.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: the file's name.")
    ] = None,
    join: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="At a party: make its keys; print public halves."),
    ] = None,
) -> None:
    """Write what coordinator and parties need: keys, certificates, services, a checklist.

    Done again, it keeps keys, adds parties, and renews a certificate that ends soon.
    """
    from flwr_causal.app.deploy.write import deploy as write
    from flwr_causal.app.deploy.write import join as make_keys

    if (file is None) == (join is None):
        raise ConfigError("Give a deployment file, or --join with a party's bundle.")
    if join is not None:
        node, sums = make_keys(join).values()
        typer.echo(f"The public key of this party's node, for the coordinator:\n{node}")
        typer.echo(
            "Of its key for secure sums, for the other parties; the lines of all are peers.toml:"
        )
        typer.echo(f"{join.resolve().name} = {json.dumps(sums)}")
    elif file is not None:
        checklist = write(file, output or file.with_suffix(""))
        typer.echo(f"What to do next: {checklist}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its id, such as my-method.")],
    directory: Annotated[
        Path | None, typer.Option(help="Where to write it.", show_default="./NAME")
    ] = None,
) -> None:
    """Write a package with a method of your own, with tests."""
    target = directory or Path(name)
    for path in create(name, target):
        typer.echo(path)
    typer.echo(f'\nNow: cd {target} && pip install -e ".[dev]" && pytest')


@app.command()
def check_method(
    method: MethodId,
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATA...]", help="Small tables; default: made by the command."),
    ] = None,
    option: Given = [],  # noqa: B006 - typer copies it
    as_json: Json = False,
) -> None:
    """Check a method, also your own, against its contract."""
    given = _options(method, option)
    logging.disable(logging.CRITICAL)  # every fault would be logged
    try:
        report = checks_of(method, data or _small_tables(method, given), **given)
    finally:
        logging.disable(logging.NOTSET)
    if as_json:
        results = [asdict(result) for result in report.results]
        _print_json({"method": method, "passed": report.passed, "results": results})
    else:
        typer.echo(report.table())
    if not report.passed:
        raise typer.Exit(1)


def _small_tables(method: str, given: dict[str, Any]) -> list[pd.DataFrame]:
    """Return three small tables of the kind that a method learns from."""
    strategy = registry.build(method, given)
    tables = simulation(SMALL, 3, strategy.data, Roles.of(strategy)).tables
    if strategy.data is DataKind.TABLE:
        kept = [*range(SMALL_COLUMNS), -1]
        tables = [table.iloc[:SMALL_ROWS, kept].reset_index(drop=True) for table in tables]
    return tables


# How things are printed.


def _cell_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None or value is False:
        return "none" if value is None else "no"
    return "yes" if value is True else str(value)


def _wrapped(text: str, indent: str, first: str | None = None) -> None:
    """Print lines within the width of the terminal; no word is cut, nor at a no-break space."""
    fill = textwrap.TextWrapper(
        min(100, get_terminal_size().columns),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in text.splitlines():
        typer.echo(fill.fill(line).replace(NO_BREAK, " "))


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table, or each as a paragraph where the table is wider than the terminal."""
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table as Grid

    cells = [[*rows[0]], *([_cell_text(value) for value in row.values()] for row in rows)]
    columns = get_terminal_size().columns
    console = Console(width=WIDEST, markup=False, highlight=False, emoji=False)
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for row in cells:
        grid.add_row(*row)
    if console.measure(grid).maximum <= columns:
        with console.capture() as shown:
            console.print(grid)
        for line in shown.get().splitlines():
            typer.echo(line.rstrip())
        return
    for row in cells[1:]:
        pairs = [(name, f"{cell};") for name, cell in zip(cells[0], row, strict=True) if cell]
        parts = [
            part.replace(" ", NO_BREAK) if len(part) < columns - 4 else part
            for pair in pairs
            for part in ((" ".join(pair),) if len(" ".join(pair)) < columns - 4 else pair)
        ]
        _wrapped(" ".join(parts).rstrip(";"), "    ", "")


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))
