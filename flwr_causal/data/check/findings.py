"""The checks on rows, names, types and values of all parties' reports, one function each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import ColumnReport, TableReport

__all__ = [
    "Findings",
    "Holders",
    "check_duplicate_names",
    "check_kinds",
    "check_levels",
    "check_rows",
    "check_shared",
    "check_values",
    "columns_of",
    "pass_notes_on",
    "problem_line",
    "some_parties",
]

#: A column's reports by party, of those parties that have the column.
Holders = dict[str, "ColumnReport"]

WORDS = {
    "numeric": "numbers",
    "boolean": "booleans",
    "category": "text or categories",
    "other": "neither numbers nor text",
}
NAMED_PARTIES = 3


@dataclass
class Findings:
    """What the checks found so far.

    Parameters
    ----------
    problems : list of str
        One line each: who, which column, what is wrong, what to do.
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

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[str, ...]] = field(default_factory=dict)
    continuous: dict[str, bool] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def columns_of(reports: Mapping[str, TableReport]) -> dict[str, Holders]:
    """Return all columns, the first party's order first; of doubled ones the first counts."""
    columns: dict[str, Holders] = {}
    for party, report in reports.items():
        for column in report.columns:
            columns.setdefault(column.name, {}).setdefault(party, column)
    return columns


def problem_line(party: str, name: str, problem: str, remedy: str) -> str:
    """Return a problem of one column at one party, in the words of all of them."""
    return f"party {party!r}, column {name!r}: {problem}; {remedy}"


def some_parties(parties: Iterable[str]) -> str:
    """Name a few parties."""
    listed = list(parties)
    text = ", ".join(repr(party) for party in listed[:NAMED_PARTIES])
    rest = len(listed) - NAMED_PARTIES
    word = "party" if len(listed) == 1 else "parties"
    return f"{word} {text}" + (f" and {rest} more" if rest > 0 else "")


def check_rows(reports: Mapping[str, TableReport], policy: Policy, found: Findings) -> None:
    """Find the parties with too few rows."""
    for party, report in reports.items():
        count = f"{report.rows} row{'s' * (report.rows != 1)}"
        if report.dropped_rows:
            incomplete = f"{report.dropped_rows} of {report.rows + report.dropped_rows} rows"
            found.warnings.append(
                f"party {party!r}: {incomplete} have missing or infinite values and are not used"
            )
        if report.rows >= policy.min_rows:
            continue
        if report.dropped_rows:
            worst = max(report.columns, key=lambda column: column.missing + column.infinite)
            found.problems.append(
                problem_line(
                    party,
                    worst.name,
                    f"{count} left after dropping {incomplete} with missing or infinite values, "
                    f"{worst.missing + worst.infinite} of them in this column",
                    f"at least {policy.min_rows} are needed: fill values in, or remove the column",
                )
            )
        else:
            found.problems.append(
                f"party {party!r}, all columns: the table has {count}; at least {policy.min_rows} "
                "are needed: add rows, or leave this party out"
            )


def check_levels(reports: Mapping[str, TableReport], found: Findings) -> None:
    """Find out whether anybody knows the columns' means, where not all rows count for them."""
    sizes = [report.rows_of_means for report in reports.values() if report.rows > 0]
    if sizes and not any(sizes):
        found.problems.append(
            "all parties, all columns: all steps are under a perturbation, so that the level "
            "without one is unknown; give unperturbed steps too, or use center='series'"
        )


def pass_notes_on(reports: Mapping[str, TableReport], found: Findings) -> None:
    """Warn of what the parties' own code has to say of their tables."""
    for party, report in reports.items():
        found.warnings += [f"party {party!r}: {note}" for note in report.notes]


def check_duplicate_names(reports: Mapping[str, TableReport], found: Findings) -> None:
    """Find names that a party's table has twice."""
    for party, report in reports.items():
        for name in report.duplicate_names:
            count = report.names.count(name)
            found.problems.append(
                problem_line(
                    party, name, f"{count} columns have this name", "rename or remove all but one"
                )
            )


def check_shared(
    reports: Mapping[str, TableReport],
    columns: Mapping[str, Holders],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns that some parties lack, and say at whom the fault lies: at the fewer."""
    for name, holders in columns.items():
        lacking = [party for party in reports if party not in holders]
        if not lacking or policy.unshared_columns == "keep":
            continue
        if policy.unshared_columns == "drop":
            found.dropped[name] = f"not in the table of {some_parties(lacking)}"
            continue
        remedy = "or use only the columns that all share with unshared-columns='drop'"
        if len(holders) > len(lacking):
            for party in lacking:
                similar = _similar(name, reports[party], columns, len(reports))
                hint = f"rename its column {similar!r}" if similar else "add it"
                problem = f"missing, but there at {some_parties(holders)}"
                found.problems.append(problem_line(party, name, problem, f"{hint}, {remedy}"))
        else:
            for party in holders:
                similar = _similar(name, reports[lacking[0]], columns, len(reports))
                hint = f"rename it to {similar!r}" if similar else "remove it here or add it there"
                problem = f"not in the table of {some_parties(lacking)}"
                found.problems.append(problem_line(party, name, problem, f"{hint}, {remedy}"))


def _similar(
    name: str, report: TableReport, columns: Mapping[str, Holders], num_parties: int
) -> str | None:
    """Find a name that differs in case, blanks or punctuation only, and is not shared either."""

    def plain(text: str) -> str:
        return "".join(character for character in text.casefold() if character.isalnum())

    for other in report.names:
        if other != name and plain(other) == plain(name) and len(columns[other]) < num_parties:
            return other
    return None


def check_kinds(name: str, filled: Holders, policy: Policy, found: Findings) -> None:
    """Find columns that are no numbers, or numbers here and text there."""
    texts = [party for party, column in filled.items() if not column.is_number]
    numbers = [party for party in filled if party not in texts]
    if texts and numbers:
        for party in texts:
            problem = f"holds {WORDS[filled[party].kind]}, but numbers at {some_parties(numbers)}"
            remedy = "make it the same everywhere (a stray word makes text of a column of numbers)"
            found.problems.append(problem_line(party, name, problem, remedy))
    elif not texts:
        return
    elif policy.text_columns == "drop":
        found.dropped[name] = f"not numeric at {some_parties(texts)}"
    elif policy.text_columns == "fail":
        for party in texts:
            problem = f"not numeric, it holds {WORDS[filled[party].kind]}"
            remedy = "convert it to numbers, or leave such columns out with text-columns='drop'"
            found.problems.append(problem_line(party, name, problem, remedy))
    else:
        first = filled[texts[0]].kind
        for party in texts:
            if filled[party].kind != first:
                problem = (
                    f"holds {WORDS[filled[party].kind]}, but {WORDS[first]} at party {texts[0]!r}"
                )
                found.problems.append(
                    problem_line(party, name, problem, "make it the same everywhere")
                )


def check_values(name: str, holders: Holders, policy: Policy, found: Findings) -> None:
    """Find missing, infinite and overflowing values."""
    for party, column in holders.items():
        for count, word in ((column.missing, "missing"), (column.infinite, "infinite")):
            allowed = policy.missing_values == "keep" and word == "missing"
            if count and policy.missing_values != "drop" and not allowed:
                problem = f"{count} {word} value{'s' * (count > 1)}"
                remedy = "fill in or correct, or leave those rows out with missing-values='drop'"
                found.problems.append(problem_line(party, name, problem, remedy))
        if np.isinf(column.squares):
            problem = "values so large that their squares overflow"
            found.problems.append(
                problem_line(party, name, problem, "give the column a larger unit")
            )
