"""What the federation makes of all parties' reports: agreed columns, pooled moments, states.

Parties are matched by column *name*, never by position. Everything that is wrong is said at once,
with party, column and remedy, before anything is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.data.check.categories import prepare_states
from flwr_causal.data.check.columns import FloatArray, kind_of
from flwr_causal.data.check.describe import complete_rows, describe, prepare
from flwr_causal.data.check.findings import (
    Findings,
    check_duplicate_names,
    check_kinds,
    check_levels,
    check_rows,
    check_shared,
    check_values,
    columns_of,
    pass_notes_on,
)
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.check.report import ColumnReport, Kind, States, TableReport
from flwr_causal.data.check.states import check_states
from flwr_causal.data.check.variation import check_constant, check_copies, warn_of_single_states
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Agreement",
    "ColumnReport",
    "Kind",
    "Policy",
    "TableReport",
    "agree",
    "complete_rows",
    "describe",
    "examine",
    "kind_of",
    "pool",
    "prepare",
    "prepare_states",
]

LONGEST_LIST = 20


@dataclass(frozen=True, eq=False)
class Agreement:
    """What all parties train on.

    Parameters
    ----------
    names : tuple of str
        The agreed columns in the first party's order (columns that it lacks come after).
    kinds : tuple of Kind
        Their kinds.
    rows : mapping of str to int
        Each party's number of rows, in the order in which parties count.
    mean, variance : float64 arrays of shape (d,)
        Over all parties' rows together, in the columns' units (and squared); the variance is
        divided by n, not n - 1. NaN where no sums were reported.
    dropped : mapping of str to str
        Column to the reason why it is not used.
    warnings : tuple of str
        What a user should hear although nothing failed.
    states : tuple of tuple of str
        For methods on categories: the states of each column, over all parties, in the order in
        which they are coded; empty for a column that is yet to be discretised. ``()`` where the
        reports have no states.
    continuous : tuple of str
        The columns that are to be discretised, in the order of ``names``.
    whole : tuple of str
        Those of them that hold whole numbers only.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    rows: Mapping[str, int]
    mean: FloatArray
    variance: FloatArray
    dropped: Mapping[str, str]
    warnings: tuple[str, ...]
    states: States = ()
    continuous: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows of all parties together."""
        return sum(self.rows.values())


def agree(reports: Mapping[str, TableReport], policy: Policy | None = None) -> Agreement:
    """Compare all parties' reports and agree on the columns.

    Parameters
    ----------
    reports : mapping of str to TableReport
        From a party's name, as messages should call it, to its report, in the order in which
        parties count: the first one's column order becomes everyone's.
    policy : Policy, optional
        What to do about imperfections. It must be the one that the tables were described with.

    Returns
    -------
    Agreement

    Raises
    ------
    DataError
        One error for all problems of all parties, a line each (about twenty at most).
    """
    if not reports:
        raise DataError("no party reported a table: at least one is needed")
    findings = examine(reports, policy or Policy())
    if findings.problems:
        raise DataError(_listed(findings.problems))
    names = findings.names
    mean, variance = pool(reports, names)
    has_states = _have_states(reports)
    return Agreement(
        names=names,
        kinds=tuple(_kind(reports, name) for name in names),
        rows={party: report.rows for party, report in reports.items()},
        mean=mean,
        variance=variance,
        dropped=dict(findings.dropped),
        warnings=_warnings(findings),
        states=tuple(findings.states.get(name, ()) for name in names) if has_states else (),
        continuous=tuple(name for name in names if name in findings.continuous),
        whole=tuple(name for name in names if findings.continuous.get(name, False)),
    )


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
    has_states = _have_states(reports)
    check_rows(reports, policy, found)
    pass_notes_on(reports, found)
    check_levels(reports, found)
    check_duplicate_names(reports, found)
    check_shared(reports, columns, policy, found)
    shared = {
        name: holders
        for name, holders in columns.items()
        if len(holders) == len(reports) or policy.unshared_columns == "keep"
    }
    # Columns that some parties should yet add are looked at too: all problems are said at once.
    for name, holders in columns.items():
        if name not in found.dropped:
            filled = {
                party: column
                for party, column in holders.items()
                if not reports[party].is_empty(column)
            }
            check_kinds(name, filled, policy, found)
        if name not in found.dropped:
            check_values(name, holders, policy, found)
        if has_states and name not in found.dropped:
            check_states(name, holders, reports, policy, found)
        elif name in shared and name not in found.dropped:
            check_constant(name, holders, reports, policy, found)
    check_copies(reports, shared, policy, found)
    found.names = tuple(name for name in shared if name not in found.dropped)
    if has_states:
        used = {name: found.states[name] for name in found.names if name in found.states}
        warn_of_single_states(columns, used, found)
    if not found.names and not found.problems:
        found.problems.append(
            "no column is left to train on: "
            + "; ".join(f"{name!r} is {why}" for name, why in found.dropped.items())
            + "; give the parties columns of the same names with numbers in them"
        )
    return found


def pool(reports: Mapping[str, TableReport], names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Pool the parties' means and variances (Chan, Golub & LeVeque 1983, eq. 2.1, many parts).

    Deviations are taken from one party's mean and carry every mean's rounding error along, so that
    a large offset common to all rows (1e8 and a spread of 1) costs no digits.

    Where a party's means are those of some of its rows only (``level_rows``), the others have lost
    a level of their own already and stay as they are: the mean is that of the rows behind the
    means, and a party's difference from it moves the squares of those rows alone. So the variance
    is the mean square of all rows as each party centres them by that mean.

    Parameters
    ----------
    reports : mapping of str to TableReport
        Reports with sums; names must be unique in each.
    names : sequence of str
        d columns; a party that lacks one has no say in it.

    Returns
    -------
    mean, variance : float64 arrays of shape (d,)
        NaN for a column without sums. The variance is divided by n, the number of all rows.
    """
    shape = (len(reports), len(names))
    rows, levels, means, remainders, squares = (np.zeros(shape) for _ in range(5))
    for party, report in enumerate(reports.values()):
        by_name = {column.name: column for column in report.columns}
        for position, name in enumerate(names):
            column = by_name.get(name)
            if column is None or not report.has_sums or not column.is_number:
                continue
            # Missing values in rows that are kept have no say.
            lacking = 0 if report.dropped_rows else column.missing
            rows[party, position] = report.rows - lacking
            levels[party, position] = max(report.rows_of_means - lacking, 0)
            means[party, position] = column.mean
            remainders[party, position] = column.remainder
            squares[party, position] = column.squares
    known = levels.sum(axis=0) > 0
    # From here on an undefined column has n = 1, and is set to NaN at the end.
    total, behind = (np.where(known, count.sum(axis=0), 1.0) for count in (rows, levels))
    share = np.where(levels > 0, levels, 1.0)
    reference = means[np.argmax(levels > 0, axis=0), np.arange(len(names))]
    shift = np.where(levels > 0, means - reference + remainders / share, 0.0)
    offset = (levels * shift).sum(axis=0) / behind
    within = squares - remainders**2 / share
    between = levels * (shift - offset) ** 2
    mean = np.where(known, reference + offset, np.nan)
    variance = np.where(known, np.maximum((within + between).sum(axis=0) / total, 0.0), np.nan)
    return mean, variance


def _kind(reports: Mapping[str, TableReport], name: str) -> Kind:
    """Return the kind that the parties gave; one number among booleans makes numbers of them."""
    kinds: list[Kind] = [
        column.kind
        for report in reports.values()
        for column in report.columns
        if column.name == name and not report.is_empty(column)
    ]
    if not kinds or "numeric" in kinds:
        return "numeric"
    return kinds[0]


def _have_states(reports: Mapping[str, TableReport]) -> bool:
    return all(report.has_states for report in reports.values())


def _listed(problems: Sequence[str]) -> str:
    shown = list(problems[:LONGEST_LIST])
    if len(problems) > LONGEST_LIST:
        shown.append(f"... and {len(problems) - LONGEST_LIST} more")
    heading = f"the parties' tables have {len(problems)} problem{'s' * (len(problems) > 1)}:"
    return "\n  ".join([heading, *shown])


def _warnings(findings: Findings) -> tuple[str, ...]:
    dropped = [f"column {name!r} is not used: {why}" for name, why in findings.dropped.items()]
    return (*dropped, *findings.warnings)
