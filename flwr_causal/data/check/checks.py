"""The checks on all parties' reports: rules of what makes tables unusable, and what is unusual.

A problem is a rule with a remedy and the options that solve it; :func:`examine` applies the rules
to the reports of all parties, and then to each column.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from flwr_causal.core.discrete.discrete import MAX_STATES, sorted_states
from flwr_causal.core.limits import LARGEST, SMALLEST
from flwr_causal.core.words import some
from flwr_causal.data.check.handling import MOST_FRACTIONS
from flwr_causal.data.check.rules import FactRule, Notice, found_by, listed
from flwr_causal.data.interventions import split_names
from flwr_causal.data.read.texts import are_whole_codes
from flwr_causal.errors import DataError, IncompleteError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import ColumnReport, TableReport
    from flwr_causal.data.check.rules import Fields


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


@dataclass(frozen=True, kw_only=True)
class ProblemRule(FactRule):
    """A rule for what makes tables unusable.

    What it finds has the fields of its words and its remedy, and may have those of
    :class:`TableProblem`: ``party``, ``name`` (by default the fact of this name), ``amount``,
    ``settings`` and ``assumable``.

    Parameters
    ----------
    settings : mapping of str to tuple, default {}
        The options that solve it, where what is found does not say it.
    option : str, default ""
        The option that decides: "fail" makes it a problem, "drop" leaves the column
        out, "keep" does nothing.
    why : str, default ""
        Why a column is left out.
    """

    settings: Settings = field(default_factory=dict)
    option: str = ""
    why: str = ""

    def choice(self, handling: Handling) -> str:
        """Return what the run does about it."""
        return getattr(handling, self.option) if self.option else "fail"

    def problem(self, fields: Mapping[str, Any]) -> TableProblem:
        """Return the problem of what is found."""
        return TableProblem(
            fields.get("party"),
            fields["name"],
            self.words.format(**fields),
            self.remedy.format(**fields),
            fields.get("amount"),
            fields.get("settings", self.settings),
            fields.get("assumable", True),
        )


@dataclass
class Findings:
    """The results of the checks so far.

    Parameters
    ----------
    handling : Handling
        What to do about imperfections.
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

    handling: Handling
    problems: list[TableProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    continuous: dict[str, bool] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def look(self, rules: Iterable[Notice], **facts: Any) -> None:
        """Apply the rules whose facts are known, and add what they find."""
        asked = [
            one
            for one in rules
            if not isinstance(one, ProblemRule) or one.choice(self.handling) != "keep"
        ]
        for rule, fields in found_by(asked, {"handling": self.handling, **facts}):
            one = {"name": facts.get("name"), **fields}
            if not isinstance(rule, ProblemRule):
                self.warnings.append(rule.words.format(**one))
            elif rule.choice(self.handling) == "drop":
                self.dropped[one["name"]] = rule.why.format(**one)
            else:
                self.problems.append(rule.problem(one))


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
    """Return each column's problems in words; nothing if one is of no column, or of two columns."""
    if any(one.name is None or one.text.endswith(SAME_NAME) for one in problems):
        return {}
    found: dict[str, str] = {}
    for name in dict.fromkeys(one.name for one in problems if one.name is not None):
        lines = in_words([one for one in problems if one.name == name])
        found[name] = "; ".join(line.replace(f", column {name!r}", "") for line in lines)
    return found


def settings_for(
    problems: Sequence[TableProblem],
    handling: Handling,
    accepts: Accepts,
) -> dict[str, str | int]:
    """Return the options that together solve all problems that options can solve.

    Parameters
    ----------
    problems : sequence of TableProblem
    handling : Handling
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
        possible["exclude"] = (",".join([*split_names(handling.exclude), *map(str, excluded)]),)
    for values in product(*possible.values()):
        settings = dict(zip(possible, values, strict=True))
        tried = [settings]
        if settings.get(UNSHARED_COLUMNS) == "keep" and handling.missing_values == "fail":
            # Where all cells are there, columns that parties lack are the only gaps.
            tried.append({**GAPS_OF_KEPT, **settings})
        for choice in tried:
            if choice and accepts(choice):
                return choice
    return {}


def is_left_open(problem: TableProblem, handling: Handling, left_open: Collection[str]) -> bool:
    """Return whether options that are decided by the reports solve a problem.

    Parameters
    ----------
    problem : TableProblem
    handling : Handling
    left_open : collection of str
        The options that are decided by the reports.
    """
    return _may_be_assumed(problem, handling) and problem.settings.keys() <= {*left_open}


def _may_be_assumed(problem: TableProblem, handling: Handling) -> bool:
    """Return whether an option solves a problem that is no error of the table.

    A column that is declared is a variable, and never left out.
    """
    declared = "exclude" in problem.settings and problem.name in handling.named
    return bool(problem.settings) and problem.assumable and not declared


def assumed(
    problems: Sequence[TableProblem],
    settings: Mapping[str, str | int],
    handling: Handling,
    left_open: Collection[str],
) -> tuple[str, ...]:
    """Return a line for each setting, if settings that the options leave open solve all problems.

    Parameters
    ----------
    problems : sequence of TableProblem
    settings : mapping of str to str or int
        As of :func:`settings_for`.
    handling : Handling
    left_open : collection of str
        The options that are decided by the reports.
    """
    solved = all(_may_be_assumed(one, handling) for one in problems)
    settings = {k: value for k, value in settings.items() if getattr(handling, k) != value}
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


def examine(reports: Mapping[str, TableReport], handling: Handling) -> Findings:
    """Run every check.

    Parameters
    ----------
    reports : mapping of str to TableReport
        At least one, in the order in which parties count.
    handling : Handling
        What to do about imperfections.

    Returns
    -------
    Findings
    """
    found, columns, has_states = Findings(handling), columns_of(reports), have_states(reports)
    lacked = {} if handling.unshared_columns == "keep" else unshared(reports)
    if handling.unshared_columns == "drop":
        found.dropped |= lacked
    found.look((*OF_ROWS, *OF_TABLES), reports=reports)
    if lacked and handling.unshared_columns == "fail":
        found.look(OF_LACKED, reports=reports, columns=columns, lacked=lacked)
    # Columns that some parties lack are checked too: one error lists all problems.
    for name, holders in columns.items():
        filled = {p: column for p, column in holders.items() if not reports[p].is_empty(column)}
        facts = {"name": name, "holders": holders, "filled": filled, "reports": reports}
        texts = [party for party, column in filled.items() if not column.is_number]
        if texts and name not in found.dropped:
            numbers = [party for party in filled if party not in texts]
            codes = handling.text_columns == "keep" and _are_codes(filled)
            rules = (MIXTURE,) if numbers and not codes else OF_TEXTS
            found.look(rules, texts=texts, numbers=numbers, **facts)
        if name not in found.dropped:
            found.look(OF_VALUES, **facts)
        if has_states and name in handling.added:
            names = sorted_states(state for column in holders.values() for state in column.states)
            found.states[name] = names
            found.look((PARTIES,), name=name, names=names)
        elif has_states and name not in found.dropped:
            _find_states(facts, found)
        elif name not in lacked and name not in found.dropped:
            found.look(OF_CONSTANTS, constancy=_constancy(holders, reports, handling), **facts)
    shared = {name: holders for name, holders in columns.items() if name not in lacked}
    found.look((COPIES,), reports=reports, shared=shared, dropped=found.dropped)
    found.names = tuple(name for name in shared if name not in found.dropped)
    if has_states:
        used = {k: found.states[k] for k in found.names if k in {*found.states} - {*handling.added}}
        lone, apart, at_some = _single_states(columns, used)
        found.look(OF_STATES, lone=lone, apart=apart, at_some=at_some)
    if not found.names and not found.problems:
        found.look((NOTHING,), dropped=found.dropped)
    return found


def _find_states(facts: Mapping[str, Any], found: Findings) -> None:
    """Unite the parties' states of a column, or find why they are no states.

    Parameters
    ----------
    facts : mapping of str to object
        Of a column that is not dropped so far.
    found : Findings
        Gets the states, or the column among the continuous ones, or a problem.
    """
    name, filled, handling = facts["name"], facts["filled"], found.handling
    if name in handling.number_names and not all(column.is_number for column in filled.values()):
        return  # found before
    states = _states_of(filled, handling)
    if states.are == "empty" and handling.has_blocks and handling.constant_columns == "keep":
        # Its parties lack columns of which they may tell nothing.
        found.dropped[name] = "no value at any party, or too few to be told"
        return
    if states.are == "intervals":
        found.continuous[name] = all(column.whole for column in filled.values())
        if handling.number_states:
            # Numbers whose values are not named may be one number at all parties.
            constancy = _constancy(facts["holders"], facts["reports"], handling)
            found.look(OF_CONSTANTS, constancy=constancy, **facts)
        return
    if states.are == "states":
        found.states[name] = handling.in_order(name, states.names)
        rows = sum(report.rows for report in facts["reports"].values())
        found.look((REPEATED,), name=name, states=states.names, rows=rows, numeric=states.numeric)
    found.look(OF_STATES_OF_A_COLUMN, of=states, **facts)


def check_own(party: str, report: TableReport, handling: Handling) -> None:
    """Check rows and values of a table, whose problems the party itself must find.

    With secure aggregation its report has no numbers by which the server could find them.

    Parameters
    ----------
    party : str
        Its name.
    report : TableReport
    handling : Handling
    """
    found, reports = Findings(handling), {party: report}
    found.look(OF_ROWS, reports=reports)
    for column in report.columns:
        if column.is_number or handling.text_columns != "drop":
            found.look(OF_VALUES, name=column.name, holders={party: column}, reports=reports)
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
    """Return all columns, in the first party's order; of two with one name the first counts."""
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


# What rules find.


def _few_rows(reports: Mapping[str, TableReport], handling: Handling, *, dropped: bool) -> Fields:
    """Find the parties with too few rows, of whose tables rows were dropped, or none."""
    needed = f"at least {handling.min_rows} {'is' if handling.min_rows == 1 else 'are'} needed"
    for party, report in reports.items():
        few = report.rows < handling.min_rows and not report.withheld
        if not few or dropped != bool(report.dropped_rows):
            continue
        found: dict[str, Any] = {"party": party, "needed": needed}
        found["count"] = f"{report.rows} row{'s' * (report.rows != 1)}"
        if dropped:
            worst = max(report.columns, key=lambda column: column.missing + column.infinite)
            found |= _incomplete(report)
            found |= {"name": worst.name, "worst": worst.missing + worst.infinite}
        yield found


def _incomplete(report: TableReport) -> dict[str, Any]:
    return {"lost": report.dropped_rows, "all": report.rows + report.dropped_rows}


def _not_shared(
    reports: Mapping[str, TableReport],
    columns: Mapping[str, Holders],
    lacked: Mapping[str, str],
    *,
    missing: bool,
) -> Fields:
    """Find columns that some parties lack; the smaller group of parties gets the problem.

    ``missing``: those that fewer parties lack than have them, or the others.
    """
    renamed = set()  # by the remedy of a name that more parties have
    for name in lacked:
        holders = columns[name]
        lacking = [party for party in reports if party not in holders]
        few_lack = len(holders) > len(lacking)
        for party in lacking if few_lack else holders:
            if not few_lack and (party, name) in renamed:
                continue
            other = reports[party if few_lack else lacking[0]]
            similar = _similar(name, other, columns, len(reports))
            if few_lack:
                renamed.add((party, similar))
                hint = f"rename its column {similar!r}" if similar else "add it"
                hint += _spelled(similar, name)
            else:
                hint = f"rename it to {similar!r}" if similar else "remove it here or add it there"
                hint += _spelled(name, similar)
            if few_lack == missing:
                yield {
                    "party": party,
                    "name": name,
                    "there": some_parties(holders if few_lack else lacking),
                    "hint": hint,
                    "settings": NO_OPTION if similar else UNSHARED,
                }


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
    """Return a text in the normal form in which texts that look alike are equal."""
    return unicodedata.normalize("NFKC", text)


def _may_be_whole(column: ColumnReport, report: TableReport) -> bool:
    """Return whether the numbers of a column may be whole, by what its party reports of them."""
    if column.distinct or not report.has_sums:
        return column.whole or not column.distinct
    total = column.mean * report.rows_of_means + column.remainder
    return abs(total - round(total)) < 1e-3


def excluded(name: str) -> Settings:
    """Return the option that leaves a column out, if text can name it."""
    return {"exclude": (name,)} if split_names(name) == [name] else NO_OPTION


def _as_category(name: str, filled: Holders, handling: Handling) -> Settings:
    """Return the options that take a column of text as a category, or leave it out."""
    columns = filled.values()
    kinds = {column.kind for column in columns}
    if kinds != {"category"} or any(column.texts > handling.max_states for column in columns):
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


def _mixture(
    name: str,
    filled: Holders,
    reports: Mapping[str, TableReport],
    handling: Handling,
    texts: Sequence[str],
    numbers: Sequence[str],
) -> Fields:
    """Find a column that is text at some parties and numbers at others."""
    there = " and ".join(dict.fromkeys(WORDS[filled[party].kind] for party in numbers))
    whole = all(_may_be_whole(filled[party], reports[party]) for party in numbers)
    for party in texts:
        column = filled[party]
        # Whether no two rows have the same text, as far as texts are counted.
        differ = column.kind == "category" and not column.stray
        differ &= column.texts > handling.max_states or column.texts >= reports[party].rows > 2
        names_rows = whole and differ
        ways = ""
        if names_rows:
            ways = (
                ", or leave it out with the option exclude, or name it in the option for its "
                "role (row_id, series_column), if it names the rows: no two texts are equal"
            )
        elif handling.text_columns == "keep":
            ways = ", or name it in the option categories if its numbers are codes"
        yield {
            "party": party,
            "kind": WORDS[column.kind],
            "there": f"{there} at {some_parties(numbers)}",
            "why": _strays(column) or STRAY_WORD,
            "ways": ways,
            "settings": excluded(name) if names_rows else NO_OPTION,
            # Of measurements that are written as texts no two may be equal either.
            "assumable": False,
        }


def _texts(name: str, filled: Holders, handling: Handling, texts: Sequence[str]) -> Fields:
    """Find a column that is no number at some party."""
    strays = max(filled[party].stray for party in texts)
    few = f" ({strays} values are no numbers)" if strays else ""
    for party in texts:
        kind, stray = filled[party].kind, _strays(filled[party])
        yield {
            "party": party,
            "kind": WORDS[kind],
            "remedy": stray or TO_NUMBERS.get(kind, ""),
            "where": f"{some_parties(texts)}{few}",
            "settings": NO_OPTION if stray else _as_category(name, filled, handling),
        }


def _kept_texts(
    filled: Holders, handling: Handling, texts: Sequence[str], *, declared: bool
) -> Fields:
    """Find texts among columns that are declared as numbers, or among other kinds of text."""
    for party in texts if handling.text_columns == "keep" else ():
        kind, first = filled[party].kind, filled[texts[0]].kind
        if declared or kind != first:
            yield {
                "party": party,
                "kind": WORDS[kind],
                "there": f"{WORDS[first]} at party {texts[0]!r}",
                "remedy": _strays(filled[party])
                or "correct the values that are no numbers, or leave it out of the option",
            }


def _too_small(column: ColumnReport, report: TableReport, handling: Handling) -> bool:
    """Return whether a column that is not 0 is lost in sums of squares."""
    gaps = column.missing and handling.missing_values == "fail"
    infinite = column.infinite and handling.missing_values != "drop"
    summed = report.has_sums and report.rows_of_means > 0 and column.is_number
    # Of incomplete columns there are no sums.
    if gaps or infinite or not summed or report.is_empty(column) or column.states:
        return False
    if column.distinct_one:
        return bool(0 < abs(column.mean) < SMALLEST**0.5)
    return column.squares < SMALLEST and abs(column.mean) <= LARGEST**0.5


class _States(NamedTuple):
    """What the states of a column are, over all parties.

    ``are`` says what follows: "mixed" of no single kind, "empty" without a value, "intervals" of
    numbers that are to be cut, "hidden" at a party with too many values, "many" at all together.
    """

    are: Literal["mixed", "empty", "intervals", "hidden", "many", "states"]
    names: tuple[str, ...] = ()
    numeric: bool = False


def _states_of(filled: Holders, handling: Handling) -> _States:
    """Unite the parties' states of a column."""
    kinds = {column.kind for column in filled.values()}
    codes = kinds <= {"category", "numeric"} and _are_codes(filled)
    if (len(kinds) > 1 and not codes) or "other" in kinds:
        return _States("mixed")
    if not filled and handling.keeps_missing:
        return _States("empty")
    names = sorted_states(state for column in filled.values() for state in column.states)
    hidden, numeric = any(c.hides_states for c in filled.values()), kinds <= {"numeric"}
    many = len(names) > handling.max_states
    if handling.discretize and kinds == {"numeric"}:
        # A party hides its states only for one of these two reasons, so that the rule depends on
        # the rows of all parties together alone.
        whole = all(column.whole for column in filled.values())
        too_fine = not whole and len(names) > handling.discretize
        too_fine |= len(names) > handling.number_states > 0
        if hidden or too_fine or many:
            return _States("intervals")
    if hidden:
        return _States("hidden")
    return _States("many" if many else "states", names, numeric)


def _hidden(
    name: str, filled: Holders, reports: Mapping[str, TableReport], handling: Handling, of: _States
) -> Fields:
    """Find that a party has more values than it names."""
    if of.are != "hidden":
        return ()
    hidden = {party: c.distinct for party, c in filled.items() if c.hides_states}
    party = max(hidden, key=lambda party: hidden[party])
    others = [other for other in hidden if other != party]
    numeric = filled[party].kind == "numeric"
    fractions = numeric and hidden[party] <= handling.max_states
    number = f"{hidden[party]} different values"
    if reports[party].withheld:
        # How many values there are is withheld; whether they are whole numbers is not.
        fractions &= not filled[party].whole
        number = "different values that are not named"
    limit = f"more than max_states={handling.max_states}"
    if fractions:
        limit = f"not whole and more than {MOST_FRACTIONS}, so that they are no categories"
    what = f"{number}, {limit}"
    what += f" (too many at {some_parties(others)} too)" if others else ""
    if name in handling.number_names:
        what = "it is declared as numbers, which this method takes as intervals only"
    strays = _strays(filled[party])
    return [
        {
            "party": party,
            "what": what,
            "remedy": strays or _fewer_states(numeric, hidden[party], fractions, handling),
            "settings": NO_OPTION if strays else _as_fewer_states(name, numeric),
        }
    ]


def _fewer_states(numeric: bool, count: int, fractions: bool, handling: Handling) -> str:
    """Return the remedy of a column of too many states."""
    ways = []
    if numeric:
        ways.append(
            f"discretize it with the option discretize={SUGGESTED_BINS} (equal frequency, cut "
            "points agreed by all parties), use a method that takes numbers beside categories "
            "('moments' with text_columns='keep', 'fedpc')"
        )
    else:
        ways.append("join values that belong together")
    if count <= MAX_STATES and not (fractions or handling.has_blocks):
        ways.append("raise max_states")
    return f"{', '.join(ways)}, or drop it"


def _repetition_remedy(numeric: bool, count: int, handling: Handling) -> str:
    bins = handling.discretize or SUGGESTED_BINS
    if not numeric or count <= bins:
        return "drop it if it only names the rows, else join values that belong together"
    return (
        f"drop it if it only numbers the rows, else set discretize={bins} and "
        f"max_states below {count}"
    )


def _repeated(
    name: str, states: Sequence[str], rows: int, numeric: bool, handling: Handling
) -> Fields:
    """Find a category of which no two rows agree; of rows that are withheld, 0, nothing."""
    # Two rows may well differ; where no two of more rows agree there is nothing to count.
    if not len(states) >= rows > 2:
        return ()
    remedy = _repetition_remedy(numeric, len(states), handling)
    settings = NO_OPTION if numeric else excluded(name)
    return [{"count": len(states), "rows": rows, "remedy": remedy, "settings": settings}]


class Constancy(NamedTuple):
    """At which parties a column has one value only.

    ``at`` is "none", "some", or, where it is so at all parties, how their values compare: "one"
    value, values that lie "apart", "unknown", or "withheld". ``empty``: there is no value.
    """

    at: Literal["none", "some", "one", "apart", "unknown", "withheld"]
    parties: tuple[str, ...] = ()
    empty: bool = False


def _constancy(
    holders: Holders, reports: Mapping[str, TableReport], handling: Handling
) -> Constancy:
    """Find where a column has one value only."""
    filled = [
        party
        for party, column in holders.items()
        if reports[party].has_rows and not reports[party].is_empty(column)
    ]
    constant = [party for party in filled if holders[party].distinct_one]
    if not constant or handling.constant_columns == "keep":
        return Constancy("none", empty=not filled)
    if len(constant) < len(filled):
        # A single row is constant by nature.
        return Constancy("some", tuple(party for party in constant if reports[party].rows != 1))
    if any(reports[party].withheld for party in filled):
        return Constancy("withheld")  # whether it is one value follows from the secure sum
    if len(filled) > 1 and not all(
        reports[party].has_sums and holders[party].is_number for party in filled
    ):
        return Constancy("unknown")
    # A party whose rows have all lost levels of their own has no mean to compare.
    means = {holders[party].mean for party in filled if reports[party].rows_of_means > 0}
    return Constancy("apart" if len(means) > 1 else "one")


def _single_states(
    columns: Mapping[str, Holders], used: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the columns with one state: at all parties together, at each party, at some parties.

    Parameters
    ----------
    columns : mapping of str to Holders
    used : mapping of str to sequence of str
        The states over all parties of each column that is used; columns to be discretised are not
        among them.
    """
    lone, apart = [], []
    at_some: dict[str, str] = {}
    for name, together in used.items():
        holders = columns[name]
        numbers = [column.distinct for column in holders.values() if column.distinct]
        if len(together) == 1:
            lone.append(name)
        elif numbers and max(numbers) == 1:
            apart.append(name)
        elif 1 in numbers:
            at_some[name] = some_parties(p for p, column in holders.items() if column.distinct == 1)
    return lone, apart, at_some


def _have(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"column {names[0]!r} has"
    return f"{len(names)} columns ({some(map(repr, names))}) have"


def _copies(
    reports: Mapping[str, TableReport],
    shared: Mapping[str, Holders],
    dropped: Mapping[str, str],
) -> Fields:
    """Find columns that equal an earlier one at every party."""
    if not any(report.has_rows for report in reports.values()):
        return
    doubled = {name for report in reports.values() for name in report.duplicate_names}
    positions = {
        party: {name: position for position, name in enumerate(report.names)}
        for party, report in reports.items()
        if report.has_rows
    }
    first_like: dict[tuple[tuple[str, int], ...], str] = {}
    for name, holders in shared.items():
        if name in dropped or name in doubled:
            continue
        # Two columns are copies if at every party they point to the same first column.
        originals = []
        for party, column in holders.items():
            if party in positions:
                own = positions[party][name]
                originals.append((party, own if column.copy_of is None else column.copy_of))
        first = first_like.setdefault(tuple(sorted(originals)), name)
        if first != name and not all(column.distinct_one for column in holders.values()):
            yield {"name": name, "first": first}


# The rules, by what they are about.

_JOIN = (
    "or use only the columns that all share with unshared_columns='drop', or give all tables ids "
    "of their rows (row_id), by which 'moments' (numbers), 'fedges' with mode='exact' (categories) "
    "and 'fedpc' join them"
)
_FILL_IN = "fill in or correct, or leave those rows out with missing_values='drop'"

OF_ROWS: tuple[FactRule, ...] = (
    FactRule(
        "party {party!r}: {lost} of {all} rows have missing or infinite values and are not used",
        'With `missing_values="drop"`',
        "Fill them in",
        title="... of ... rows have missing or infinite values and are not used",
        finds=lambda reports: [
            {"party": party, **_incomplete(report)}
            for party, report in reports.items()
            if report.dropped_rows
        ],
    ),
    ProblemRule(
        "{count} left after dropping {lost} of {all} rows with missing or infinite values, {worst} "
        "of them in this column",
        remedy="{needed}: fill values in, or remove the column",
        finds=lambda reports, handling: _few_rows(reports, handling, dropped=True),
        settings={"missing_values": ("em", "keep")},
    ),
    ProblemRule(
        "the table has {count}",
        remedy="{needed}: add rows, or leave this party out",
        finds=lambda reports, handling: _few_rows(reports, handling, dropped=False),
    ),
)

OF_TABLES: tuple[FactRule, ...] = (
    FactRule(
        "party {party!r}: {note}",
        finds=lambda reports: [
            {"party": party, "note": note}
            for party, report in reports.items()
            for note in report.notes
        ],
    ),
    FactRule(
        "{parties}: columns that look like identifiers are left out, and only the node's log names "
        "them. identifiers='fail' refuses such tables.",
        "Columns of a real node that [look like identifiers](policy.md)",
        "Nothing; a column that is none is listed in `columns.identifiers` of the party's policy",
        title="... columns that look like identifiers are left out, and only the node's log names "
        "them",
        finds=lambda reports: [
            {"parties": some_parties(hiding)}
            for hiding in [[party for party, report in reports.items() if report.leaves_out]]
            if hiding
        ],
    ),
    ProblemRule(
        "all steps are under a perturbation, so that the level without one is unknown",
        remedy="give unperturbed steps too, or use center='series'",
        finds=lambda reports: [
            {}
            for sizes in [[one.rows_of_means for one in reports.values() if one.rows > 0]]
            if sizes and not any(sizes)
        ],
    ),
    ProblemRule(
        f"{{count}}{SAME_NAME}",
        remedy="rename or remove all but one",
        finds=lambda reports: [
            {"party": party, "name": name, "count": report.names.count(name)}
            for party, report in reports.items()
            for name in report.duplicate_names
        ],
    ),
)

OF_LACKED: tuple[FactRule, ...] = (
    ProblemRule(
        "missing, but there at {there}",
        remedy=f"{{hint}}, {_JOIN}",
        finds=lambda reports, columns, lacked: _not_shared(reports, columns, lacked, missing=True),
    ),
    ProblemRule(
        "not in the table of {there}",
        remedy=f"{{hint}}, {_JOIN}",
        finds=lambda reports, columns, lacked: _not_shared(reports, columns, lacked, missing=False),
    ),
)

MIXTURE = ProblemRule(
    "holds {kind}, but {there}",
    remedy="make it the same everywhere ({why}){ways}",
    finds=_mixture,
)
OF_TEXTS: tuple[FactRule, ...] = (
    ProblemRule(
        "not numeric, it holds {kind}",
        remedy="{remedy}",
        finds=_texts,
        option="text_columns",
        why="not numeric at {where}",
    ),
    ProblemRule(
        "holds {kind}, and the option numbers names it",
        remedy="{remedy}",
        finds=lambda name, filled, handling, texts: _kept_texts(
            filled, handling, texts * (name in handling.number_names), declared=True
        ),
    ),
    ProblemRule(
        "holds {kind}, but {there}",
        remedy="make it the same everywhere",
        finds=lambda name, filled, handling, texts: _kept_texts(
            filled, handling, texts * (name not in handling.number_names), declared=False
        ),
    ),
)

OF_VALUES: tuple[FactRule, ...] = (
    ProblemRule(
        MISSING,
        remedy=f"{_FILL_IN}; moments and fedges use them, with 'em'",
        finds=lambda holders, handling: [
            {"party": party, "amount": column.missing}
            for party, column in holders.items()
            if column.missing and handling.missing_values == "fail"
        ],
        settings=GAPS,
    ),
    ProblemRule(
        INFINITE,
        remedy=_FILL_IN,
        finds=lambda holders, handling: [
            {"party": party, "amount": column.infinite, "assumable": False}
            for party, column in holders.items()
            if column.infinite and handling.missing_values != "drop"
        ],
        settings={"missing_values": ("drop",)},
    ),
    ProblemRule(
        f"values so large that sums overflow (sums of squares above {LARGEST:g})",
        remedy="give the column a larger unit",
        finds=lambda holders: [
            {"party": party}
            for party, column in holders.items()
            if column.squares > LARGEST or abs(column.mean) > LARGEST**0.5
        ],
    ),
    ProblemRule(
        f"values so small that sums lose them (sums of squares below {SMALLEST:g})",
        remedy="rescale it: give the column a smaller unit, the same at all parties",
        finds=lambda holders, reports, handling: [
            {"party": party}
            for party, column in holders.items()
            if _too_small(column, reports[party], handling)
        ],
    ),
)

#: Of the column of the parties, whose states are their names.
PARTIES = ProblemRule(
    "its states are the names of the parties with rows, of which there are {count}",
    remedy="leave party_column out, which needs 2 to {most}",
    finds=lambda names, handling: [
        {"count": len(names), "most": handling.max_states, "assumable": False}
    ][: not 1 < len(names) <= handling.max_states],
)

REPEATED = ProblemRule(
    "{count} states for {rows} rows in all, so that no value occurs twice",
    remedy="{remedy}",
    finds=_repeated,
)
OF_STATES_OF_A_COLUMN: tuple[FactRule, ...] = (
    ProblemRule(
        f"holds {WORDS['other']}, so that it has no states",
        remedy="{remedy}",
        finds=lambda name, filled: [
            {
                "party": party,
                "remedy": _strays(column) or TO_USABLE,
                "settings": NO_OPTION if column.stray else excluded(name),
            }
            for party, column in filled.items()
            if column.kind == "other" and not any(one.is_number for one in filled.values())
        ],
    ),
    ProblemRule(
        "holds booleans, but numbers at {there}",
        remedy="make it the same everywhere: True and 1 are different states",
        finds=lambda filled: [
            {"party": party, "there": some_parties(numbers)}
            for numbers in [[p for p, column in filled.items() if column.kind == "numeric"]]
            for party, column in filled.items()
            if numbers and column.kind == "boolean"
        ],
    ),
    ProblemRule(
        NO_VALUE,
        remedy="remove it",
        finds=lambda name, of: [{"settings": excluded(name), "assumable": False}][
            : of.are == "empty"
        ],
    ),
    ProblemRule(
        "{what}",
        remedy="{remedy}",
        title="... different values, more than max_states=...",
        finds=_hidden,
    ),
    ProblemRule(
        "{count} different values in all, more than max_states={most}",
        remedy="{remedy}",
        finds=lambda name, handling, of: [
            {
                "count": len(of.names),
                "most": handling.max_states,
                "remedy": _fewer_states(of.numeric, len(of.names), False, handling),
                "settings": _as_fewer_states(name, of.numeric),
            }
        ][: of.are == "many"],
    ),
    ProblemRule(
        "constant, one state in all rows",
        remedy="remove it, leave such columns out with constant_columns='drop'{kept}",
        finds=lambda handling, of: [
            {
                "kept": ", or keep them as isolated nodes with constant_columns='keep'"
                * (not handling.has_blocks),
            }
        ][: of.are == "states" and len(of.names) == 1],
        settings=NOT_CONSTANT,
        option="constant_columns",
        why="constant over all parties",
    ),
)

CONSTANT = ProblemRule(
    "constant, one value in all rows",
    remedy="remove it, or leave such columns out with constant_columns='drop'",
    finds=lambda constancy: [{}][: constancy.at == "one"],
    settings=NOT_CONSTANT,
    option="constant_columns",
    why="constant over all parties",
)
OF_CONSTANTS: tuple[FactRule, ...] = (
    ProblemRule(
        NO_VALUE,
        remedy="remove it",
        finds=lambda name, handling, constancy: (
            [{"settings": excluded(name), "assumable": False}]
            if constancy.empty and handling.keeps_missing
            else []
        ),
        option="constant_columns",
        why="no value at any party",
    ),
    FactRule(
        "column {name!r} varies, but has one value only at {parties}",
        "Constant at some parties: see the table's checks in the log",
        title="column ... varies, but has one value only at ...",
        finds=lambda constancy: [
            {"parties": some_parties(found)} for found in [constancy.parties] if found
        ],
    ),
    FactRule(
        "column {name!r} has one value only at every party; whether it is the same one was not "
        "compared, since values stay with the parties",
        "A method on categories, or a column that is no number",
        title="column ... has one value only at every party; whether it is the same one was not "
        "compared",
        finds=lambda constancy: [{}][: constancy.at == "unknown"],
    ),
    FactRule(
        "column {name!r} has one value only at every party, and not the same one: it differs "
        "between the parties and varies within none",
        "A column that says which party a row is of, such as the site",
        title="column ... has one value only at every party, and not the same one",
        finds=lambda constancy: [{}][: constancy.at == "apart"],
    ),
    CONSTANT,
)

COPIES = ProblemRule(
    "the same values as column {first!r} in all rows",
    remedy="remove one of them, or leave copies out with duplicate_columns='drop'",
    finds=_copies,
    settings=NO_COPIES,
    option="duplicate_columns",
    why="a copy of {first!r} at every party",
)

#: Of the states of all columns: at most one warning of each sort, since such columns can be many.
OF_STATES: tuple[FactRule, ...] = (
    FactRule(
        "{have} one state only at all parties: {stay}; constant_columns='fail' makes this an error",
        'With `constant_columns="keep"`',
        title="... one state only at all parties",
        finds=lambda lone: [
            {
                "have": _have(lone),
                "stay": "it stays as an isolated node"
                if len(lone) == 1
                else "they stay as isolated nodes",
            }
        ][: len(lone)],
    ),
    FactRule(
        "{have} one state only at every party, and not the same one: such a column differs between "
        "the parties and varies within none",
        "A column that says which party a row is of, such as the site",
        title="... one state only at every party, and not the same one",
        finds=lambda apart: [{"have": _have(apart)}] if apart else [],
    ),
    FactRule(
        "{count} column{vary} between parties, with one state only at some of them: {listed}",
        "One sex only at a party, say. Columns and parties are named",
        title="... between parties, with one state only at some of them",
        finds=lambda at_some: listed(
            (f"{name!r} at {where}" for name, where in at_some.items()),
            count=len(at_some),
            vary="s vary" if len(at_some) > 1 else " varies",
        ),
    ),
)

NOTHING = ProblemRule(
    "no column is left to train on: {left_out}",
    remedy="give the parties columns of the same names with numbers in them",
    finds=lambda dropped: [
        {"left_out": "; ".join(f"{name!r} is {why}" for name, why in dropped.items())}
    ],
)

#: Columns that an option may leave out, as they seem to name the rows.
NAMING = ProblemRule(
    NAMES_ROWS,
    remedy="leave it out, or name it in the option for its role",
    finds=lambda naming: [{"name": name, "settings": excluded(name)} for name in naming],
)

RULES: tuple[FactRule, ...] = (
    *(*OF_ROWS, *OF_TABLES, *OF_LACKED, MIXTURE, *OF_TEXTS, *OF_VALUES, PARTIES, REPEATED),
    *(*OF_STATES_OF_A_COLUMN, *OF_CONSTANTS, COPIES, *OF_STATES, NOTHING, NAMING),
)
