"""The checks on columns that do not vary, or that vary just as another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.data.check.findings import some_parties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.data.check.findings import Findings, Holders
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport

NAMED_COLUMNS = 5

__all__ = ["check_constant", "check_copies", "warn_of_single_states"]


def check_constant(
    name: str,
    holders: Holders,
    reports: Mapping[str, TableReport],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns with one value over all parties; warn of those with one at some party."""
    constant = [
        party
        for party, column in holders.items()
        if column.distinct_one and reports[party].rows > 0
    ]
    filled = [party for party in holders if reports[party].rows > 0]
    if not constant or policy.constant_columns == "keep":
        return
    if len(constant) < len(filled):
        # A single row is constant by nature and not worth a word.
        striking = [party for party in constant if reports[party].rows > 1]
        if striking:
            found.warnings.append(
                f"column {name!r} varies, but has one value only at {some_parties(striking)}"
            )
        return
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
            f"column {name!r} has one value only at every party, and not the same one: it tells "
            "the parties apart and varies within none"
        )
        return
    if policy.constant_columns == "drop":
        found.dropped[name] = "constant over all parties"
    else:
        found.problems.append(
            f"all parties, column {name!r}: constant, one value in all rows; remove it, or leave "
            "such columns out with constant-columns='drop'"
        )


def warn_of_single_states(
    holders_of: Mapping[str, Holders], states: Mapping[str, tuple[str, ...]], found: Findings
) -> None:
    """Say in a line each which columns have one state at all parties, at each, and at some.

    Parameters
    ----------
    holders_of : mapping of str to Holders
        The columns that are used.
    states : mapping of str to tuple of str
        The states of each over all parties; columns to be discretised are not among them.
    found : Findings
        Gets at most one warning of each sort, since such columns come by the dozen.
    """
    lone, told_apart, at_some = [], [], []
    for name, together in states.items():
        numbers = [column.distinct for column in holders_of[name].values() if column.distinct]
        if len(together) == 1:
            lone.append(name)
        elif numbers and max(numbers) == 1:
            told_apart.append(name)
        elif 1 in numbers:
            at_some.append(name)
    if lone:
        found.warnings.append(
            f"{_these(lone, 'has', 'have')} one state only at all parties: "
            f"{'it stays as an isolated node' if len(lone) == 1 else 'they stay as isolated nodes'}"
            "; constant-columns='fail' makes this an error"
        )
    if told_apart:
        found.warnings.append(
            f"{_these(told_apart, 'has', 'have')} one state only at every party, and not the same "
            "one: such a column tells the parties apart and varies within none"
        )
    if at_some:
        found.warnings.append(
            f"{_these(at_some, 'varies, but has', 'vary, but have')} one state only at some parties"
        )


def _these(names: list[str], one: str, many: str) -> str:
    if len(names) == 1:
        return f"column {names[0]!r} {one}"
    listed = ", ".join(repr(name) for name in names[:NAMED_COLUMNS])
    rest = len(names) - NAMED_COLUMNS
    return f"{len(names)} columns ({listed}{f' and {rest} more' if rest > 0 else ''}) {many}"


def check_copies(
    reports: Mapping[str, TableReport],
    shared: Mapping[str, Holders],
    policy: Policy,
    found: Findings,
) -> None:
    """Find columns that equal an earlier one at every party."""
    if policy.duplicate_columns == "keep" or not any(report.rows for report in reports.values()):
        return
    doubled = {name for report in reports.values() for name in report.duplicate_names}
    positions = {
        party: {name: position for position, name in enumerate(report.names)}
        for party, report in reports.items()
        if report.rows > 0
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
            found.problems.append(
                f"all parties, column {name!r}: the same values as column {first!r} in all rows; "
                "remove one of them, or leave copies out with duplicate-columns='drop'"
            )
