"""The checks on all parties' reports: rows, names, types, values, states, constants and copies."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flwr_causal.core.discrete.discrete import MAX_STATES, sorted_states
from flwr_causal.core.limits import LARGEST, SMALLEST
from flwr_causal.core.words import some
from flwr_causal.data.check.policy import MOST_FRACTIONS
from flwr_causal.data.interventions import split_names
from flwr_causal.data.read.texts import are_whole_codes
from flwr_causal.errors import DataError, IncompleteError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import ColumnReport, TableReport


#: By option, values under which something is no problem, the best first.
Settings: TypeAlias = "Mapping[str, tuple[str | int, ...]]"
#: Whether a method has options together.
Accepts: TypeAlias = "Callable[[dict[str, str | int]], bool]"
#: A column's reports by party, of those parties that have the column.
Holders = dict[str, "ColumnReport"]

WORDS = {
    "numeric": "numbers",
    "boolean": "booleans",
    "category": "text or categories",
    "other": "neither numbers nor text (dates, a mixture, or codes that share a label)",
}
TO_USABLE = (
    "make it numbers (of a date: the days since another one) or text in the table, or leave it out "
    "with the option exclude"
)
STRAY_WORD = "a stray word, or a decimal comma, makes text of a column of numbers"
_UNIT = re.compile(r"\s*[(\[][^)\]]*[)\]]\s*$")
#: What becomes of a column of text, and of dates, where numbers are needed.
TO_NUMBERS = {
    "category": (
        f"convert it to numbers ({STRAY_WORD}), leave such columns out with text_columns='drop', "
        "or take them as categories: moments with 'keep', fedges, fedpc (docs/choose.md)"
    ),
    "other": f"{TO_USABLE}, or such columns with text_columns='drop'",
}
#: How many parties a message names.
NAMED_PARTIES = 3
#: How many columns a line of what is assumed names.
NAMED_COLUMNS = 10
#: Intervals that a remedy proposes.
SUGGESTED_BINS = 5
NO_VALUE = "no value at all, every one is missing"
NO_OPTION: Settings = MappingProxyType({})
NOT_CONSTANT: Settings = {"constant_columns": ("drop",)}
NO_COPIES: Settings = {"duplicate_columns": ("drop",)}
UNSHARED_COLUMNS = "unshared_columns"
UNSHARED: Settings = {UNSHARED_COLUMNS: ("keep", "drop")}
#: Where columns that some parties lack are kept, how methods take them as missing.
GAPS_OF_KEPT: Mapping[str, str | int] = {"missing_values": "em"}
INFINITE, MISSING = "infinite value", "missing value"
GAPS: Settings = {"missing_values": ("em", "keep", "drop")}
SAME_NAME = " columns have this name"
NAMES_ROWS = "it seems to number or to name the rows, or holds dates"
#: What a setting assumes, by option and value.
ASSUMED: Mapping[tuple[str, str], str] = {
    ("text_columns", "keep"): "text is taken as categories",
    ("text_columns", "drop"): (
        "columns of text are left out, since the method has no categories with these options"
    ),
    ("missing_values", "em"): (
        "rows with gaps are used by expectation-maximisation, as if whether a value is missing did "
        "not depend on it"
    ),
    ("missing_values", "keep"): "rows with gaps are used as they are",
    ("missing_values", "drop"): (
        "rows with gaps are left out, since the method cannot use them with these options"
    ),
    ("constant_columns", "drop"): "columns of one value in all rows tell nothing, and are left out",
    ("unshared_columns", "keep"): "columns that a party lacks are taken as missing there",
    ("unshared_columns", "drop"): "columns that a party lacks are left out",
}


class TableProblem(NamedTuple):
    """Why a table cannot be used.

    Parameters
    ----------
    party : str or None
        None: all parties together.
    name : str or None
        The column; None: all columns.
    text : str
    remedy : str
    amount : int or None, default None
        How many of what `text` names; written before it.
    settings : mapping of str to tuple, default {}
        The options that solve it together, each with its possible values; empty: only another table
        does.
    assumable : bool, default True
        Whether these may be set without a word of the user: False where they may hide an error of
        the table.
    """

    party: str | None
    name: str | None
    text: str
    remedy: str
    amount: int | None = None
    settings: Settings = NO_OPTION
    assumable: bool = True


@dataclass
class Findings:
    """The results of the checks so far.

    Parameters
    ----------
    problems : list of TableProblem
    warnings : list of str
        What is unusual but allowed.
    dropped : dict of str to str
        Column to the reason why it is left out.
    states : dict of str to tuple of str
        With states only: column to its states over all parties.
    continuous : dict of str to bool
        Columns to discretise, to whether they hold whole numbers only.
    names : tuple of str
        The agreed columns; meaningful if there are no problems.
    """

    problems: list[TableProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    continuous: dict[str, bool] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def add(
        self,
        party: str | None,
        name: str | None,
        problem: str,
        remedy: str,
        amount: int | None = None,
        settings: Settings = NO_OPTION,
        *,
        assumable: bool = True,
    ) -> None:
        """Add a problem of a column at one party, or at all of them together (None)."""
        one = TableProblem(party, name, problem, remedy, amount, settings, assumable)
        self.problems.append(one)


def in_words(problems: Sequence[TableProblem]) -> list[str]:
    """Return a line for each problem: parties, columns, what is wrong, and the remedy.

    What several parties have in common is one line, and so is what several columns have in common,
    except for amounts.
    """
    by_column: dict[tuple[str | None, str, str, bool], list[TableProblem]] = {}
    for one in problems:
        key = (one.name, one.text, one.remedy, one.party is None)
        by_column.setdefault(key, []).append(one)
    lines: dict[tuple[str, str, str], list[str]] = {}
    for (name, text, remedy, together), alike in by_column.items():
        where = "all parties" if together else some_parties(str(one.party) for one in alike)
        amounts = [str(one.amount) for one in alike if one.amount is not None]
        if amounts:
            text = f"{some(amounts, NAMED_PARTIES)} {text}{'s' * (amounts != ['1'])}"
        columns = lines.setdefault((where, f"{text}; {remedy}", str(name) * bool(amounts)), [])
        if name is not None:
            columns.append(repr(name))
    return [f"{where}, {_columns(columns)}: {text}" for (where, text, _), columns in lines.items()]


def left_out_in_words(problems: Sequence[TableProblem]) -> dict[str, str]:
    """Return by column its problems in words; nothing if one is of no column, or of two."""
    if any(one.name is None or one.text.endswith(SAME_NAME) for one in problems):
        return {}
    found: dict[str, str] = {}
    for name in dict.fromkeys(one.name for one in problems if one.name is not None):
        lines = in_words([one for one in problems if one.name == name])
        found[name] = "; ".join(line.replace(f", column {name!r}", "") for line in lines)
    return found


def settings_for(
    problems: Sequence[TableProblem],
    policy: Policy,
    accepts: Accepts,
) -> dict[str, str | int]:
    """Return the options that together solve all problems that options can solve.

    Parameters
    ----------
    problems : sequence of TableProblem
    policy : Policy
    accepts : callable
        ``options -> bool``: whether the method has these options together.

    Returns
    -------
    dict of str to str or int
        Empty if the method accepts no such options.
    """
    excluded = list(
        dict.fromkeys(name for one in problems for name in one.settings.get("exclude", ()))
    )
    possible: dict[str, tuple[str | int, ...]] = {}
    for one in problems:
        for option, values in one.settings.items() if one.name not in excluded else ():
            common = [value for value in possible.get(option, values) if value in values]
            possible[option] = tuple(common)
    if excluded:
        possible["exclude"] = (",".join([*split_names(policy.exclude), *map(str, excluded)]),)
    for values in product(*possible.values()):
        settings = dict(zip(possible, values, strict=True))
        tried = [settings]
        if settings.get(UNSHARED_COLUMNS) == "keep" and policy.missing_values == "fail":
            # Where all cells are there, columns that parties lack are the only gaps.
            tried.append({**GAPS_OF_KEPT, **settings})
        for choice in tried:
            if choice and accepts(choice):
                return choice
    return {}


def is_left_open(problem: TableProblem, policy: Policy, left_open: Collection[str]) -> bool:
    """Return whether options that are decided by the reports solve a problem.

    Parameters
    ----------
    problem : TableProblem
    policy : Policy
    left_open : collection of str
        The options that are decided by the reports.
    """
    return _may_be_assumed(problem, policy) and problem.settings.keys() <= {*left_open}


def _may_be_assumed(problem: TableProblem, policy: Policy) -> bool:
    """Return whether an option solves a problem that is no error of the table.

    A column that is declared is a variable, and never left out.
    """
    declared = "exclude" in problem.settings and problem.name in policy.named
    return bool(problem.settings) and problem.assumable and not declared


def assumed(
    problems: Sequence[TableProblem],
    settings: Mapping[str, str | int],
    policy: Policy,
    left_open: Collection[str],
) -> tuple[str, ...]:
    """Return a line for each setting, if settings that the options leave open solve all problems.

    Parameters
    ----------
    problems : sequence of TableProblem
    settings : mapping of str to str or int
        As of :func:`settings_for`.
    policy : Policy
    left_open : collection of str
        The options that are decided by the reports.
    """
    solved = all(_may_be_assumed(one, policy) for one in problems)
    settings = {k: value for k, value in settings.items() if getattr(policy, k) != value}
    out = {one.name for one in problems if "exclude" in one.settings}
    if not (settings and solved and settings.keys() <= {*left_open}):
        return ()
    lines = []
    for option, value in settings.items():
        about = [one for one in problems if option in one.settings]
        about = about or [one for one in problems if UNSHARED_COLUMNS in one.settings]
        names = [
            one.name or one.party for one in about if option == "exclude" or one.name not in out
        ]
        columns = some(dict.fromkeys(map(repr, names)), NAMED_COLUMNS)
        if option == "exclude":
            lines.append(
                f"Assumed that these columns are no variables: {columns}. They hold dates, names "
                "or numbers of rows, or more different texts than a category may have, and are "
                "left out. identifiers='fail' refuses them."
            )
            continue
        amount = sum(one.amount or 0 for one in about)
        cells = f", {amount} cells" if amount else ""
        lines.append(
            f"Assumed {option}={value!r}: {ASSUMED[option, str(value)]} ({columns}{cells}). "
            f"{option}='fail' refuses such tables."
        )
    return tuple(lines)


def _columns(names: Sequence[str]) -> str:
    if not names:
        return "all columns"
    return f"column{'s' * (len(names) > 1)} {some(names)}"


def examine(reports: Mapping[str, TableReport], policy: Policy) -> Findings:
    """Run every check.

    Parameters
    ----------
    reports : mapping of str to TableReport
        At least one, in the order in which parties count.
    policy : Policy
        What to do about imperfections.

    Returns
    -------
    Findings
    """
    found = Findings()
    columns = columns_of(reports)
    has_states = have_states(reports)
    _check_rows(reports, policy, found)
    found.warnings += [
        f"party {p!r}: {note}" for p, report in reports.items() for note in report.notes
    ]
    if hiding := [party for party, report in reports.items() if report.leaves_out]:
        found.warnings.append(
            f"{some_parties(hiding)}: columns that look like identifiers are left out, and only "
            "the node's log names them. identifiers='fail' refuses such tables."
        )
    _check_levels(reports, found)
    _check_duplicate_names(reports, found)
    lacked = {} if policy.unshared_columns == "keep" else unshared(reports)
    _check_shared(reports, columns, lacked, policy, found)
    shared = {name: holders for name, holders in columns.items() if name not in lacked}
    # Columns that some parties lack are checked too: one error lists all problems.
    for name, holders in columns.items():
        if name not in found.dropped:
            filled = {
                party: column
                for party, column in holders.items()
                if not reports[party].is_empty(column)
            }
            _check_kinds(name, filled, reports, policy, found)
        if name not in found.dropped:
            _check_values(name, holders, reports, policy, found)
        if has_states and name in policy.added:
            _check_parties(name, holders, policy, found)
        elif has_states and name not in found.dropped:
            _check_states(name, holders, reports, policy, found)
        elif name in shared and name not in found.dropped:
            _check_constant(name, holders, reports, policy, found)
    _check_copies(reports, shared, policy, found)
    found.names = tuple(name for name in shared if name not in found.dropped)
    if has_states:
        used = {
            name: found.states[name]
            for name in found.names
            if name in found.states and name not in policy.added
        }
        _warn_of_single_states(columns, used, found)
    if not found.names and not found.problems:
        dropped = "; ".join(f"{name!r} is {why}" for name, why in found.dropped.items())
        remedy = "give the parties columns of the same names with numbers in them"
        found.add(None, None, f"no column is left to train on: {dropped}", remedy)
    return found


def check_own(party: str, report: TableReport, policy: Policy) -> None:
    """Check rows and values of a table, whose problems the party itself must find.

    With secure aggregation its report has no numbers by which the server could find them.

    Parameters
    ----------
    party : str
        Its name.
    report : TableReport
    policy : Policy
    """
    found = Findings()
    _check_rows({party: report}, policy, found)
    for column in report.columns:
        if column.is_number or policy.text_columns != "drop":
            _check_values(column.name, {party: column}, {party: report}, policy, found)
    # The report has the numbers of infinite values.
    problems = [one for one in found.problems if one.text != INFINITE]
    if problems:
        only_gaps = all(one.text == MISSING for one in problems)
        kind = IncompleteError if only_gaps else DataError
        raise kind("; ".join(in_words(problems)))


def have_states(reports: Mapping[str, TableReport]) -> bool:
    """Say whether all parties report states, as methods on categories ask for."""
    return all(report.has_states for report in reports.values())


def columns_of(reports: Mapping[str, TableReport]) -> dict[str, Holders]:
    """Return all columns, the first party's order first; of doubled ones the first counts."""
    columns: dict[str, Holders] = {}
    for party, report in reports.items():
        for column in report.columns:
            columns.setdefault(column.name, {}).setdefault(party, column)
    return columns


def unshared(reports: Mapping[str, TableReport]) -> dict[str, str]:
    """Return the columns that some parties lack, and which."""
    lacking = {
        name: [party for party in reports if party not in holders]
        for name, holders in columns_of(reports).items()
    }
    return {
        name: f"not in the table of {some_parties(parties)}"
        for name, parties in lacking.items()
        if parties
    }


def letters(name: str) -> str:
    """Return the letters and digits of a name, in one case and one form of each character."""
    return "".join(character for character in normal(name).casefold() if character.isalnum())


def some_parties(parties: Iterable[str]) -> str:
    """Name a few parties."""
    listed = [repr(party) for party in parties]
    return f"{'party' if len(listed) == 1 else 'parties'} {some(listed, NAMED_PARTIES)}"


def _check_rows(reports: Mapping[str, TableReport], policy: Policy, found: Findings) -> None:
    """Find the parties with too few rows."""
    needed = f"at least {policy.min_rows} {'is' if policy.min_rows == 1 else 'are'} needed"
    for party, report in reports.items():
        count = f"{report.rows} row{'s' * (report.rows != 1)}"
        if report.dropped_rows:
            incomplete = f"{report.dropped_rows} of {report.rows + report.dropped_rows} rows"
            found.warnings.append(
                f"party {party!r}: {incomplete} have missing or infinite values and are not used"
            )
        if report.rows >= policy.min_rows or report.withheld:
            continue
        if report.dropped_rows:
            worst = max(report.columns, key=lambda column: column.missing + column.infinite)
            found.add(
                party,
                worst.name,
                f"{count} left after dropping {incomplete} with missing or infinite values, "
                f"{worst.missing + worst.infinite} of them in this column",
                f"{needed}: fill values in, or remove the column",
                settings={"missing_values": ("em", "keep")},
            )
        else:
            remedy = f"{needed}: add rows, or leave this party out"
            found.add(party, None, f"the table has {count}", remedy)


def _check_levels(reports: Mapping[str, TableReport], found: Findings) -> None:
    """Check that at least one party has rows from which to report the columns' means."""
    sizes = [report.rows_of_means for report in reports.values() if report.rows > 0]
    if sizes and not any(sizes):
        problem = "all steps are under a perturbation, so that the level without one is unknown"
        found.add(None, None, problem, "give unperturbed steps too, or use center='series'")


def _check_duplicate_names(reports: Mapping[str, TableReport], found: Findings) -> None:
    """Find names that a party's table has twice."""
    for party, report in reports.items():
        for name in report.duplicate_names:
            count = report.names.count(name)
            found.add(party, name, f"{count}{SAME_NAME}", "rename or remove all but one")


def _check_shared(
    reports: Mapping[str, TableReport],
    columns: Mapping[str, Holders],
    lacked: Mapping[str, str],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns that some parties lack; the smaller group of parties gets the problem."""
    if policy.unshared_columns == "drop":
        found.dropped |= lacked
        return
    renamed = set()  # by the remedy of a name that more parties have
    for name in lacked:
        holders = columns[name]
        lacking = [party for party in reports if party not in holders]
        remedy = (
            "or use only the columns that all share with unshared_columns='drop', or give all "
            "tables ids of their rows (row_id), by which 'moments' (numbers), 'fedges' with "
            "mode='exact' (categories) and 'fedpc' join them"
        )
        if len(holders) > len(lacking):
            for party in lacking:
                similar = _similar(name, reports[party], columns, len(reports))
                hint = f"rename its column {similar!r}" if similar else "add it"
                hint += _spelled(similar, name)
                renamed.add((party, similar))
                problem = f"missing, but there at {some_parties(holders)}"
                settings = NO_OPTION if similar else UNSHARED
                found.add(party, name, problem, f"{hint}, {remedy}", settings=settings)
        else:
            for party in holders:
                if (party, name) in renamed:
                    continue
                similar = _similar(name, reports[lacking[0]], columns, len(reports))
                hint = f"rename it to {similar!r}" if similar else "remove it here or add it there"
                hint += _spelled(name, similar)
                problem = f"not in the table of {some_parties(lacking)}"
                settings = NO_OPTION if similar else UNSHARED
                found.add(party, name, problem, f"{hint}, {remedy}", settings=settings)


def _similar(
    name: str, report: TableReport, columns: Mapping[str, Holders], num_parties: int
) -> str | None:
    """Find a name that differs in case, blanks, punctuation or a unit only, and is not shared."""
    for other in report.names:
        same = letters(_without_unit(other)) == letters(_without_unit(name))
        if other != name and same and len(columns[other]) < num_parties:
            return other
    return None


def _without_unit(name: str) -> str:
    """Return a name without what stands in brackets at its end, as in "dose (mg)"."""
    return _UNIT.sub("", name) or name


def _spelled(name: str | None, wanted: str | None) -> str:
    """Return how two names that look the same, or their units, differ, in words; "" for others."""
    if name is None or wanted is None:
        return ""
    if _UNIT.search(name) or _UNIT.search(wanted):
        return " (if what stands in brackets are units, bring the values to one unit)"
    if normal(name) != normal(wanted):
        return ""
    return (
        f" (the names look the same, but their characters differ: {name!a} here, "
        f"{wanted!a} there; unicodedata.normalize('NFKC', name) makes them equal)"
    )


def normal(text: str) -> str:
    """Return a text in the form in which what looks the same is the same."""
    return unicodedata.normalize("NFKC", text)


def _check_kinds(
    name: str,
    filled: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns that are no numbers, or numbers here and text there."""
    texts = [party for party, column in filled.items() if not column.is_number]
    numbers = [party for party in filled if party not in texts]
    if texts and numbers and not (policy.text_columns == "keep" and _are_codes(filled)):
        _check_mixture(name, texts, numbers, filled, reports, policy, found)
    elif not texts:
        return
    elif policy.text_columns == "drop":
        strays = max(filled[party].stray for party in texts)
        few = f" ({strays} values are no numbers)" if strays else ""
        found.dropped[name] = f"not numeric at {some_parties(texts)}{few}"
    elif policy.text_columns == "fail":
        for party in texts:
            problem = f"not numeric, it holds {WORDS[filled[party].kind]}"
            remedy = TO_NUMBERS[filled[party].kind]
            stray = _strays(filled[party])
            settings = NO_OPTION if stray else _as_category(name, filled, policy)
            found.add(party, name, problem, stray or remedy, settings=settings)
    elif name in policy.number_names:
        for party in texts:
            problem = f"holds {WORDS[filled[party].kind]}, and the option numbers names it"
            remedy = "correct the values that are no numbers, or leave it out of the option"
            found.add(party, name, problem, _strays(filled[party]) or remedy)
    else:
        first = filled[texts[0]].kind
        for party in texts:
            if filled[party].kind != first:
                problem = (
                    f"holds {WORDS[filled[party].kind]}, but {WORDS[first]} at party {texts[0]!r}"
                )
                found.add(party, name, problem, "make it the same everywhere")


def _check_mixture(
    name: str,
    texts: Sequence[str],
    numbers: Sequence[str],
    filled: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Add the problem of a column that is text at some parties and numbers at others."""
    there = " and ".join(dict.fromkeys(WORDS[filled[party].kind] for party in numbers))
    whole = all(_may_be_whole(filled[party], reports[party]) for party in numbers)
    for party in texts:
        problem = f"holds {WORDS[filled[party].kind]}, but {there} at {some_parties(numbers)}"
        why = _strays(filled[party]) or STRAY_WORD
        remedy = f"make it the same everywhere ({why})"
        settings = NO_OPTION
        if whole and _all_differ(filled[party], reports[party], policy):
            remedy += (
                ", or leave it out with the option exclude, or name it in the option for its "
                "role (row_id, series_column), if it names the rows: no two texts are equal"
            )
            settings = excluded(name)
        elif policy.text_columns == "keep":
            remedy += ", or name it in the option categories if its numbers are codes"
        # Of measurements that are written as texts no two may be equal either.
        found.add(party, name, problem, remedy, settings=settings, assumable=False)


def _all_differ(column: ColumnReport, report: TableReport, policy: Policy) -> bool:
    """Return whether no two rows have the same text, as far as texts are counted."""
    text = column.kind == "category" and not column.stray
    return text and (column.texts > policy.max_states or column.texts >= report.rows > 2)


def _may_be_whole(column: ColumnReport, report: TableReport) -> bool:
    """Return whether the numbers of a column may be whole, by what its party reports of them."""
    if column.distinct or not report.has_sums:
        return column.whole or not column.distinct
    total = column.mean * report.rows_of_means + column.remainder
    return abs(total - round(total)) < 1e-3


def excluded(name: str) -> Settings:
    """Return the option that leaves a column out, if text can name it."""
    return {"exclude": (name,)} if split_names(name) == [name] else NO_OPTION


def _as_category(name: str, filled: Holders, policy: Policy) -> Settings:
    """Return the options that take a column of text as a category, or leave it out."""
    columns = filled.values()
    kinds = {column.kind for column in columns}
    if kinds != {"category"} or any(column.texts > policy.max_states for column in columns):
        return excluded(name)
    return {"text_columns": ("keep", "drop")}


def _as_fewer_states(name: str, numeric: bool) -> Settings:
    """Return the options for a column of too many states."""
    return {"discretize": (SUGGESTED_BINS,)} if numeric else excluded(name)


def _are_codes(filled: Holders) -> bool:
    """Whether some parties have codes such as 01234, and the others whole numbers as 80331.

    The states of these numbers are texts like the codes, unless 1234 and 01234 may be the same.
    """
    columns = filled.values()
    states = [state for column in columns for state in column.states]
    return (
        {column.kind for column in columns} == {"category", "numeric"}
        and all(column.whole for column in columns if column.kind == "numeric")
        and not any(column.hides_states for column in columns)
        and are_whole_codes(states)
    )


def _strays(column: ColumnReport) -> str:
    """Return the remedy where most values of a column of text are numbers; "" for other text."""
    if not column.stray:
        return ""
    is_none, it = ("is no number", "it") if column.stray == 1 else ("are no numbers", "them")
    return (
        f"{column.stray} of its values {is_none}: correct {it} (labels of Stata or SPSS: "
        "'unlabelled' of a table description keeps the numbers); flwr-causal check FILE, on the "
        "party's machine, shows row and value"
    )


def _check_values(
    name: str,
    holders: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Find missing, infinite, too large and too small values."""
    for party, column in holders.items():
        before = len(found.problems)
        for count, word in ((column.missing, "missing"), (column.infinite, "infinite")):
            allowed = policy.keeps_missing and word == "missing"
            if count and policy.missing_values != "drop" and not allowed:
                remedy = "fill in or correct, or leave those rows out with missing_values='drop'"
                settings: Settings = {"missing_values": ("drop",)}
                if word == "missing":
                    remedy += "; moments and fedges use them, with 'em'"
                    settings = GAPS
                found.add(
                    party,
                    name,
                    f"{word} value",
                    remedy,
                    count,
                    settings,
                    assumable=word == "missing",
                )
        if column.squares > LARGEST or abs(column.mean) > LARGEST**0.5:
            problem = f"values so large that sums overflow (sums of squares above {LARGEST:g})"
            found.add(party, name, problem, "give the column a larger unit")
        # Of incomplete columns there are no sums.
        if len(found.problems) == before and _is_too_small(column, reports[party]):
            problem = f"values so small that sums lose them (sums of squares below {SMALLEST:g})"
            remedy = "rescale it: give the column a smaller unit, the same at all parties"
            found.add(party, name, problem, remedy)


def _is_too_small(column: ColumnReport, report: TableReport) -> bool:
    """Return whether a column that is not 0 is lost in sums of squares."""
    summed = report.has_sums and report.rows_of_means > 0 and column.is_number
    if not summed or report.is_empty(column) or column.states:
        return False
    squares = column.mean**2 if column.distinct_one else column.squares
    return squares < SMALLEST and not (column.distinct_one and column.mean == 0)


def _check_states(
    name: str,
    holders: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Unite the parties' states of a column, or find why they are no states.

    Parameters
    ----------
    name : str
        A column that is not dropped so far.
    holders : Holders
        What the parties that have it report, with states.
    reports : mapping of str to TableReport
    policy : Policy
    found : Findings
        Gets the states, or the column among the continuous ones, or a problem.
    """
    filled = {p: column for p, column in holders.items() if not reports[p].is_empty(column)}
    numbers = name in policy.number_names
    if numbers and not all(column.is_number for column in filled.values()):
        return  # found before
    if not _is_one_kind(name, filled, found):
        return
    if not filled and policy.keeps_missing:
        _check_empty(name, policy, found)
        return
    states = sorted_states(state for column in filled.values() for state in column.states)
    hidden = {party: c.distinct for party, c in filled.items() if c.hides_states}
    if policy.discretize and {column.kind for column in filled.values()} == {"numeric"}:
        # A party hides its states only for one of these two reasons, so that the rule depends on
        # the rows of all parties together alone.
        whole = all(column.whole for column in filled.values())
        too_fine = not whole and len(states) > policy.discretize
        too_fine |= len(states) > policy.number_states > 0
        if hidden or too_fine or len(states) > policy.max_states:
            found.continuous[name] = whole
            if policy.number_states:
                # Numbers whose values are not named may be one number at all parties.
                _check_constant(name, holders, reports, policy, found)
            return
    if hidden:
        party = max(hidden, key=lambda party: hidden[party])
        others = [other for other in hidden if other != party]
        fractions = filled[party].kind == "numeric" and hidden[party] <= policy.max_states
        number = f"{hidden[party]} different values"
        if reports[party].withheld:
            # How many values there are is withheld; whether they are whole numbers is not.
            fractions &= not filled[party].whole
            number = "different values that are not named"
        limit = f"more than max_states={policy.max_states}"
        if fractions:
            limit = f"not whole and more than {MOST_FRACTIONS}, so that they are no categories"
        problem = f"{number}, {limit}"
        problem += f" (too many at {some_parties(others)} too)" if others else ""
        if numbers:
            problem = "it is declared as numbers, which this method takes as intervals only"
        numeric = filled[party].kind == "numeric"
        remedy = _remedy(numeric, hidden[party], fractions, policy)
        strays = _strays(filled[party])
        settings = NO_OPTION if strays else _as_fewer_states(name, numeric)
        found.add(party, name, problem, strays or remedy, settings=settings)
    elif len(states) > policy.max_states:
        numeric = all(column.kind == "numeric" for column in filled.values())
        problem = f"{len(states)} different values in all, more than max_states={policy.max_states}"
        remedy = _remedy(numeric, len(states), False, policy)
        found.add(None, name, problem, remedy, settings=_as_fewer_states(name, numeric))
    else:
        found.states[name] = policy.in_order(name, states)
        numeric = all(column.kind == "numeric" for column in filled.values())
        rows = sum(report.rows for report in reports.values())
        check_repetition(name, len(states), rows, policy, found, numeric=numeric)
        _check_single(name, states, policy, found)


def _check_parties(name: str, holders: Holders, policy: Policy, found: Findings) -> None:
    """Take the parties' names as states of the column of the parties, or find why they are none."""
    states = sorted_states(state for column in holders.values() for state in column.states)
    if 1 < len(states) <= policy.max_states:
        found.states[name] = states
        return
    problem = f"its states are the names of the parties with rows, of which there are {len(states)}"
    remedy = f"leave party_column out, which needs 2 to {policy.max_states}"
    found.add(None, name, problem, remedy, assumable=False)


def _check_empty(name: str, policy: Policy, found: Findings) -> None:
    """Find a column without any value; a description leaves it out."""
    if policy.has_blocks and policy.constant_columns == "keep":
        # Its parties lack columns of which they may tell nothing.
        found.dropped[name] = "no value at any party, or too few to be told"
    else:
        found.add(None, name, NO_VALUE, "remove it", settings=excluded(name), assumable=False)


def check_repetition(
    name: str, states: int, rows: int, policy: Policy, found: Findings, *, numeric: bool
) -> None:
    """Find a category of which no two rows agree; of rows that are withheld, 0, nothing."""
    # Two rows may well differ; where no two of more rows agree there is nothing to count.
    if states >= rows > 2:
        problem = f"{states} states for {rows} rows in all, so that no value occurs twice"
        remedy = _repetition_remedy(numeric, states, policy)
        found.add(None, name, problem, remedy, settings=NO_OPTION if numeric else excluded(name))


def _is_one_kind(name: str, filled: Holders, found: Findings) -> bool:
    """Find dates and mixtures, and booleans that are numbers elsewhere.

    What is numbers or booleans elsewhere, and not here, has been found before.
    """
    odd = [party for party, column in filled.items() if column.kind == "other"]
    booleans = [party for party, column in filled.items() if column.kind == "boolean"]
    numbers = [party for party, column in filled.items() if column.kind == "numeric"]
    for party in odd if not (booleans or numbers) else ():
        problem = f"holds {WORDS['other']}, so that it has no states"
        strays = _strays(filled[party])
        settings = NO_OPTION if strays else excluded(name)
        remedy = strays or TO_USABLE
        found.add(party, name, problem, remedy, settings=settings)
    if booleans and numbers:
        for party in booleans:
            problem = f"holds booleans, but numbers at {some_parties(numbers)}"
            remedy = "make it the same everywhere: True and 1 are different states"
            found.add(party, name, problem, remedy)
    texts = any(column.kind == "category" for column in filled.values())
    apart = booleans or (numbers and not _are_codes(filled))
    return not odd and not (booleans and numbers) and not (texts and apart)


def _remedy(numeric: bool, count: int, fractions: bool, policy: Policy) -> str:
    ways = []
    if numeric:
        ways.append(
            f"discretize it with the option discretize={SUGGESTED_BINS} (equal frequency, cut "
            "points agreed by all parties), use a method that takes numbers beside categories "
            "('moments' with text_columns='keep', 'fedpc')"
        )
    else:
        ways.append("join values that belong together")
    if count <= MAX_STATES and not (fractions or policy.has_blocks):
        ways.append("raise max_states")
    return f"{', '.join(ways)}, or drop it"


def _repetition_remedy(numeric: bool, count: int, policy: Policy) -> str:
    bins = policy.discretize or SUGGESTED_BINS
    if not numeric or count <= bins:
        return "drop it if it only names the rows, else join values that belong together"
    return (
        f"drop it if it only numbers the rows, else set discretize={bins} and "
        f"max_states below {count}"
    )


def _check_single(name: str, states: tuple[str, ...], policy: Policy, found: Findings) -> None:
    if len(states) != 1 or policy.constant_columns == "keep":
        return
    if policy.constant_columns == "drop":
        found.dropped[name] = "constant over all parties"
    else:
        remedy = "remove it, leave such columns out with constant_columns='drop'"
        if not policy.has_blocks:
            remedy += ", or keep them as isolated nodes with constant_columns='keep'"
        found.add(None, name, "constant, one state in all rows", remedy, settings=NOT_CONSTANT)


def _check_constant(
    name: str,
    holders: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns with one value over all parties; warn of those with one at some party."""
    filled = [
        party
        for party, column in holders.items()
        if reports[party].has_rows and not reports[party].is_empty(column)
    ]
    if not filled and policy.keeps_missing and policy.constant_columns == "fail":
        found.add(None, name, NO_VALUE, "remove it", settings=excluded(name), assumable=False)
    if not filled and policy.keeps_missing and policy.constant_columns == "drop":
        found.dropped[name] = "no value at any party"
    constant = [party for party in filled if holders[party].distinct_one]
    if not constant or policy.constant_columns == "keep":
        return
    if len(constant) < len(filled):
        # A single row is constant by nature: no warning.
        striking = [party for party in constant if reports[party].rows != 1]
        if striking:
            found.warnings.append(
                f"column {name!r} varies, but has one value only at {some_parties(striking)}"
            )
        return
    if any(reports[party].withheld for party in filled):
        return  # whether it is one value follows from the secure sum
    comparable = all(reports[party].has_sums and holders[party].is_number for party in filled)
    if len(filled) > 1 and not comparable:
        found.warnings.append(
            f"column {name!r} has one value only at every party; whether it is the same one was "
            "not compared, since values stay with the parties"
        )
        return
    # A party whose rows have all lost levels of their own has no mean to compare.
    if len({holders[party].mean for party in filled if reports[party].rows_of_means > 0}) > 1:
        found.warnings.append(
            f"column {name!r} has one value only at every party, and not the same one: it "
            "differs between the parties and varies within none"
        )
        return
    if policy.constant_columns == "drop":
        found.dropped[name] = "constant over all parties"
    else:
        remedy = "remove it, or leave such columns out with constant_columns='drop'"
        found.add(None, name, "constant, one value in all rows", remedy, settings=NOT_CONSTANT)


def _warn_of_single_states(
    holders_of: Mapping[str, Holders], states: Mapping[str, tuple[str, ...]], found: Findings
) -> None:
    """Warn of columns with one state: at all parties together, at each party, at some parties.

    Parameters
    ----------
    holders_of : mapping of str to Holders
        The columns that are used.
    states : mapping of str to tuple of str
        The states of each over all parties; columns to be discretised are not among them.
    found : Findings
        Gets at most one warning of each sort, since such columns can be many.
    """
    lone, told_apart = [], []
    at_some: dict[str, str] = {}
    for name, together in states.items():
        holders = holders_of[name]
        numbers = [column.distinct for column in holders.values() if column.distinct]
        if len(together) == 1:
            lone.append(name)
        elif numbers and max(numbers) == 1:
            told_apart.append(name)
        elif 1 in numbers:
            at_some[name] = some_parties(p for p, column in holders.items() if column.distinct == 1)
    if lone:
        found.warnings.append(
            f"{_listed(lone, 'has', 'have')} one state only at all parties: "
            f"{'it stays as an isolated node' if len(lone) == 1 else 'they stay as isolated nodes'}"
            "; constant_columns='fail' makes this an error"
        )
    if told_apart:
        found.warnings.append(
            f"{_listed(told_apart, 'has', 'have')} one state only at every party, and not the same "
            "one: such a column differs between the parties and varies within none"
        )
    if at_some:
        listed = [f"{name!r} at {parties}" for name, parties in at_some.items()]
        found.warnings.append(
            f"{len(at_some)} column{'s vary' if len(at_some) > 1 else ' varies'} between parties, "
            f"with one state only at some of them: {some(listed)}"
        )


def _listed(names: list[str], one: str, many: str) -> str:
    if len(names) == 1:
        return f"column {names[0]!r} {one}"
    return f"{len(names)} columns ({some(map(repr, names))}) {many}"


def _check_copies(
    reports: Mapping[str, TableReport],
    shared: Mapping[str, Holders],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns that equal an earlier one at every party."""
    if policy.duplicate_columns == "keep" or not any(
        report.has_rows for report in reports.values()
    ):
        return
    doubled = {name for report in reports.values() for name in report.duplicate_names}
    positions = {
        party: {name: position for position, name in enumerate(report.names)}
        for party, report in reports.items()
        if report.has_rows
    }
    first_like: dict[tuple[tuple[str, int], ...], str] = {}
    for name, holders in shared.items():
        if name in found.dropped or name in doubled:
            continue
        # Two columns are copies if at every party they point to the same first column.
        originals = []
        for party, column in holders.items():
            if party in positions:
                own = positions[party][name]
                originals.append((party, own if column.copy_of is None else column.copy_of))
        first = first_like.setdefault(tuple(sorted(originals)), name)
        constant = all(column.distinct_one for column in holders.values())
        if first == name or constant:
            continue
        if policy.duplicate_columns == "drop":
            found.dropped[name] = f"a copy of {first!r} at every party"
        else:
            remedy = "remove one of them, or leave copies out with duplicate_columns='drop'"
            text = f"the same values as column {first!r} in all rows"
            found.add(None, name, text, remedy, settings=NO_COPIES)
