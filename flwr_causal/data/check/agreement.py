"""The agreement of all parties: columns, pooled moments, states, columns to be discretised.

Parties are matched by column *name*, never by position. One error before the training lists every
problem with party, column and remedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.core.discrete.discrete import labels_of
from flwr_causal.data.check.checks import (
    CONSTANT,
    GAPS,
    MISSING,
    NAMING,
    REPEATED,
    UNSHARED_COLUMNS,
    Constancy,
    Findings,
    TableProblem,
    assumed,
    columns_of,
    examine,
    have_states,
    in_words,
    is_left_open,
    left_out_in_words,
    settings_for,
    unshared,
)
from flwr_causal.data.check.columns import common_type, interval_names
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.interventions import Targets, agreed_targets
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from flwr_causal.contract.report import States
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.cut_points import CutState
    from flwr_causal.data.check.checks import Accepts
    from flwr_causal.data.check.report import ColumnReport, Kind, TableReport

T = TypeVar("T")

LONGEST_LIST = 20
#: Before the options that mend the tables, in the message of an error.
SETTINGS = "\nSet "
#: After them, where they do not mend all.
UNMENDED = "what these do not mend only other tables do"


@dataclass(frozen=True, eq=False)
class Agreement:
    """The columns that all parties train on, with their pooled moments and states.

    Parameters
    ----------
    names : tuple of str
        The agreed columns in the first party's order (columns that it lacks come after).
    kinds : tuple of Kind
        Their kinds.
    rows : mapping of str to int
        Each party's number of rows, in the order in which parties count; where parties add up in
        groups, each group's.
    mean, variance : float64 arrays of shape (d,)
        Over all parties' rows together, in the columns' units (and squared); the variance is
        divided by n, not n - 1. NaN where no sums were reported.
    dropped : mapping of str to str
        Column to the reason why it is not used.
    warnings : tuple of str
        What is unusual but allowed.
    states : tuple of tuple of str
        For methods on categories: the states of each column, over all parties, in the order in
        which they are coded; empty for a column that is yet to be discretised. ``()`` where the
        reports have no states.
    values : tuple of str
        For methods on categories: what the values of each column are in the tables, "bool", "int",
        "float" or "str"; "" where the parties' are of several types.
    continuous : tuple of str
        The columns that are to be discretised, in the order of ``names``.
    whole : tuple of str
        The columns of ``continuous`` that hold whole numbers only.
    targets : tuple of tuple of str
        The different sets of columns on which known interventions act, () among them if some rows
        are without one; empty if there are no interventions.
    shifted : tuple of tuple of str
        Where interventions were found (``core.interventions.targets``): for each entry of
        ``targets`` the columns whose mechanisms have a level of their own in its rows. Else empty.
    determined : tuple of str
        Columns that others determine at each party, for methods that leave their edges out; else
        empty (:mod:`core.linear.determined`).
    total : int or None
        Rows of all parties together where the parties withhold their own: ``rows`` then holds
        zeros. None if ``rows`` has them.
    groups : mapping of str to tuple of str
        The parties of each group, where parties add up in groups; else empty.
    columns_differ : bool
        Whether parties hold different columns of the same rows, and products of columns of two of
        them need keys of pairs.
    noted : object
        What a method has noted of the parties' reports, for its training.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.check.agreement import Agreement
    >>> rows = {"north": 60, "south": 40}
    >>> kinds = ("numeric", "numeric")
    >>> agreed = Agreement(("x", "y"), kinds, rows, np.zeros(2), np.ones(2), {}, ())
    >>> agreed.names, sum(agreed.rows.values())
    (('x', 'y'), 100)
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    rows: Mapping[str, int]
    mean: FloatArray
    variance: FloatArray
    dropped: Mapping[str, str]
    warnings: tuple[str, ...]
    states: States = ()
    values: tuple[str, ...] = ()
    continuous: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    targets: tuple[Targets, ...] = ()
    shifted: tuple[Targets, ...] = ()
    determined: tuple[str, ...] = ()
    total: int | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns_differ: bool = False
    noted: Any = None

    @property
    def num_parties(self) -> int:
        """The number of parties, also where ``rows`` has groups."""
        return sum(len(self.groups.get(name, (name,))) for name in self.rows)

    @property
    def labels(self) -> tuple[tuple[Any, ...], ...]:
        """The values that the states of each column stand for, in the types of the tables."""
        return tuple(
            states if name in self.continuous else labels_of(states, values)
            for name, states, values in zip(self.names, self.states, self.values, strict=True)
        )

    @property
    def n(self) -> int:
        """Rows of all parties together."""
        return sum(self.rows.values()) if self.total is None else self.total

    def rows_of(self, parties: Iterable[str]) -> int:
        """Return the rows of these parties together; of all where their numbers are withheld."""
        return sum(self.rows[party] for party in parties) if self.total is None else self.total

    def with_rows(self, total: int | None) -> Agreement:
        """Return the agreement with the rows of a secure sum, where parties may be missing.

        Without a ``total``, where no rows were summed, the agreement stays as it is.
        """
        return self if total in (None, self.n) else replace(self, total=total)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return kind, mean and standard deviation of each column, as far as they are known."""
        found: dict[str, dict[str, Any]] = {}
        spread = np.sqrt(self.variance)
        for name, kind, mean, deviation in zip(
            self.names, self.kinds, self.mean, spread, strict=True
        ):
            known = np.isfinite(mean) and np.isfinite(deviation)
            numbers = {"mean": float(mean), "deviation": float(deviation)} if known else {}
            found[name] = {"kind": kind, **numbers}
        return found


def agree(
    reports: Mapping[str, TableReport],
    handling: Handling | None = None,
    accepts: Accepts = lambda _: True,
    left_open: Collection[str] = (),
    *,
    leaves_out: bool = False,
) -> Agreement:
    """Compare all parties' reports and agree on the columns.

    Parameters
    ----------
    reports : mapping of str to TableReport
        From a party's name, as messages should call it, to its report, in the order in which
        parties count: the first one's column order becomes everyone's.
    handling : Handling, optional
        What to do about imperfections. It must be the one that the tables were described with.
    accepts : callable, optional
        ``options -> bool``: whether the method has these options together, which the error then
        proposes. Default: it has all.
    left_open : collection of str, optional
        The options that are decided by the reports. If they mend all, the error has the lines of
        what is assumed.
    leaves_out : bool, default False
        Whether columns with problems are left out, as long as others remain, in place of an error.

    Returns
    -------
    Agreement

    Raises
    ------
    DataError
        One error for all problems of all parties, a line each (about twenty at most), and a line
        with the options that mend what options can.
    """
    if not reports:
        raise DataError("no party reported a table: at least one is needed")
    handling = handling or Handling()
    findings = examine(reports, handling)
    unusable = left_out_in_words(findings.problems) if leaves_out else {}
    if unusable and set(findings.names) > unusable.keys():
        findings.dropped |= unusable
        findings.names = tuple(name for name in findings.names if name not in unusable)
    elif findings.problems:
        if 2 * len(unshared(reports)) > len(columns_of(reports)):
            # The tables are of different things, or the ids of their rows are missing.
            left_open = {*left_open} - {UNSHARED_COLUMNS}
        raise _refusal(findings.problems, handling, accepts, left_open)
    names = findings.names
    mean, variance = pool(reports, names)
    has_states = have_states(reports)
    return Agreement(
        names=names,
        kinds=tuple(_kind(reports, name) for name in names),
        rows={party: report.rows for party, report in reports.items()},
        mean=mean,
        variance=variance,
        dropped=dict(findings.dropped),
        warnings=(
            *not_used_in_words(findings.dropped),
            *findings.warnings,
        ),
        states=tuple(findings.states.get(name, ()) for name in names) if has_states else (),
        values=tuple(_values(reports, name) for name in names) if has_states else (),
        continuous=tuple(name for name in names if name in findings.continuous),
        whole=tuple(name for name in names if findings.continuous.get(name, False)),
        targets=agreed_targets(
            {party: report.targets or ((),) for party, report in reports.items()}, names
        ),
    )


def with_total(
    agreement: Agreement,
    total: TableReport,
    handling: Handling,
    accepts: Accepts = lambda _: True,
    left_open: Collection[str] = (),
) -> Agreement:
    """Complete the agreement of reports that withhold their numbers by the sums of all parties.

    Parameters
    ----------
    agreement : Agreement
    total : TableReport
        Rows and sums of all parties together, of the agreed columns.
    handling, accepts, left_open
        As of :func:`agree`.

    Raises
    ------
    DataError
        If columns have one value in all rows and the run is to fail, or as many states as rows.
    """
    # Of columns with states there are no sums.
    named = agreement.states or ((),) * len(agreement.names)
    summed = np.array([not states for states in named])
    mean, variance = np.full((2, len(named)), np.nan)
    mean[summed], variance[summed] = pool({"": total}, _kept(agreement.names, summed))
    constant = [name for name, one in zip(agreement.names, variance, strict=True) if one <= 0]
    if handling.constant_columns == "keep":
        constant = []
    found = Findings(handling)
    for name, kind, states in zip(agreement.names, agreement.kinds, named, strict=True):
        numeric = kind == "numeric"
        found.look((REPEATED,), name=name, states=states, rows=total.rows, numeric=numeric)
    kept = np.array([name not in constant for name in agreement.names])
    if not kept.any():
        # One that is left out would leave nothing.
        found.handling = replace(handling, constant_columns="fail")
    for name in constant:
        found.look((CONSTANT,), name=name, constancy=Constancy("one"))
    if found.problems:
        raise _refusal(found.problems, handling, accepts, left_open)
    return replace(
        agreement,
        names=_kept(agreement.names, kept),
        kinds=_kept(agreement.kinds, kept),
        states=_kept(agreement.states, kept) if agreement.states else (),
        values=_kept(agreement.values, kept) if agreement.values else (),
        continuous=tuple(name for name in agreement.continuous if name not in constant),
        whole=tuple(name for name in agreement.whole if name not in constant),
        mean=mean[kept],
        variance=variance[kept],
        dropped={**agreement.dropped, **found.dropped},
        warnings=(
            *agreement.warnings,
            *not_used_in_words(found.dropped),
        ),
        total=total.rows,
    )


def not_used_in_words(dropped: Mapping[str, str]) -> tuple[str, ...]:
    """Return the warnings of columns that are left out, by column the reason."""
    return tuple(f"column {name!r} is not used: {why}" for name, why in dropped.items())


def _kept(values: Sequence[T], kept: BoolArray) -> tuple[T, ...]:
    return tuple(value for value, one in zip(values, kept, strict=True) if one)


class ReportedSums(NamedTuple):
    """What K parties report of d numbers, each of shape (K, d); 0 where a party has no sums.

    Attributes
    ----------
    rows
        With a value. Missing values in rows that are kept do not count.
    levels
        Of these the rows over which the mean is.
    means, remainders, squares
        See :class:`~flwr_causal.data.check.report.ColumnReport`.
    """

    rows: FloatArray
    levels: FloatArray
    means: FloatArray
    remainders: FloatArray
    squares: FloatArray


def reported_sums(reports: Mapping[str, TableReport], names: Sequence[str]) -> ReportedSums:
    """Return the sums that parties report of these columns."""
    found = ReportedSums(*np.zeros((5, len(reports), len(names))))
    for party, report in enumerate(reports.values()):
        by_name = {column.name: column for column in report.columns}
        for position, name in enumerate(names):
            column = by_name.get(name)
            if column is None or not report.has_sums or not column.is_number:
                continue
            found.rows[party, position] = held = report.rows_with(column)
            found.levels[party, position] = max(held - report.rows + report.rows_of_means, 0)
            found.means[party, position] = column.mean
            found.remainders[party, position] = column.remainder
            found.squares[party, position] = column.squares
    return found


def pool(reports: Mapping[str, TableReport], names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Pool the parties' means and variances (Chan, Golub & LeVeque 1983, eq. 2.1, many parts).

    Deviations are taken from one party's mean and carry every mean's rounding error along, so that
    a large offset common to all rows (1e8 and a spread of 1) costs no digits.

    A party's means may be over some of its rows only (``level_rows``), if a level of their own was
    subtracted from the other rows. The pooled mean is then the mean over these ``level_rows`` of
    all parties, and a party's difference from the pooled mean changes the squares of its
    ``level_rows`` only. The variance is the mean square of all rows, centred in this way.

    Parameters
    ----------
    reports : mapping of str to TableReport
        Reports with sums; names must be unique in each.
    names : sequence of str
        d columns; a party that lacks one does not count for it.

    Returns
    -------
    mean, variance : float64 arrays of shape (d,)
        NaN for a column without sums. The variance is divided by n, the number of all rows.
    """
    rows, levels, means, remainders, squares = reported_sums(reports, names)
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


def _columns(reports: Mapping[str, TableReport], name: str) -> list[ColumnReport]:
    """Return the reports on a column of the parties that have values of it."""
    return [
        column
        for report in reports.values()
        for column in report.columns
        if column.name == name and not report.is_empty(column)
    ]


def _values(reports: Mapping[str, TableReport], name: str) -> str:
    """Return the type of a column's values: "int" if the numbers of all parties are whole."""
    columns = _columns(reports, name)
    types = {column.values for column in columns}
    if types == {"int", "float"} and all(column.whole for column in columns):
        return "int"
    return common_type(types)


def _kind(reports: Mapping[str, TableReport], name: str) -> Kind:
    """Return the kind that the parties gave.

    One number among booleans makes numbers of them, and one code among numbers categories.
    """
    kinds: list[Kind] = [column.kind for column in _columns(reports, name)]
    if "category" in kinds:
        return "category"
    if not kinds or "numeric" in kinds:
        return "numeric"
    return kinds[0]


def _refusal(
    problems: Sequence[TableProblem],
    handling: Handling,
    accepts: Accepts = lambda _: True,
    left_open: Collection[str] = (),
) -> DataError:
    """Return the error for all problems, with the options that mend what options can.

    If options that are left open solve some of them, it names the others, which come first.
    """
    settings = settings_for(problems, handling, accepts)
    taken = assumed(problems, settings, handling, left_open)
    others = [one for one in problems if not is_left_open(one, handling, left_open)]
    rest = len(problems) - len(others) if others and not taken else 0
    if rest:
        problems, settings = others, settings_for(others, handling, accepts)
    lines = in_words(problems)
    shown = lines[:LONGEST_LIST]
    if len(lines) > LONGEST_LIST:
        shown.append(f"... and {len(lines) - LONGEST_LIST} more")
    of_which = " of which nothing is assumed" if rest else ""
    heading = f"the parties' tables have {len(lines)} problem{'s' * (len(lines) > 1)}{of_which}:"
    text = "\n  ".join([heading, *shown])
    mended = all(one.settings for one in problems)
    text = with_settings(text, settings, "" if mended else UNMENDED)
    if rest:
        text += "\nWhat else these tables need is then assumed, as docs/start.md says."
    error = DataError(text)
    error.settings, error.assumed = settings, taken
    return error


def leave_out(names: Sequence[str], handling: Handling, accepts: Accepts = lambda _: True) -> None:
    """Raise the error by which a run leaves out columns that name rows; without any do nothing.

    Parameters
    ----------
    names : sequence of str
    handling : Handling
    accepts : callable
        ``options -> bool``: whether the method has these options together.

    Raises
    ------
    DataError
        Unless the method cannot leave them out.
    """
    found = Findings(handling)
    found.look((NAMING,), naming=names)
    problems = [one for one in found.problems if one.settings]
    error = _refusal(problems, handling, accepts, ("exclude",))
    if error.assumed:
        raise error


def of_gaps(
    parties: Iterable[str], handling: Handling, accepts: Accepts, left_open: Collection[str]
) -> DataError:
    """Return the error of :func:`agree` for missing values that the parties find themselves."""
    problems = [TableProblem(party, None, MISSING, "", settings=GAPS) for party in parties]
    return _refusal(problems, handling, accepts, left_open)


def with_settings(text: str, settings: Mapping[str, object], rest: str = "") -> str:
    """Return a message with the options that solve the problem, and what they leave unsolved."""
    listed = ", ".join(f"{option}={value!r}" for option, value in settings.items())
    return text + f"{SETTINGS}{listed}" * bool(settings) + f"; {rest}" * bool(settings and rest)


def start_cuts(
    agreement: Agreement,
    num_bins: int,
    num_rows: IntArray | None = None,
    *,
    apart: bool = False,
) -> CutState:
    """Return the state before the first exchange on the cut points of the continuous columns.

    With ``Handling.discretize`` bins these are the columns of numbers that over all parties have
    more than ``max_states`` different values, or that hold numbers which are not whole and more
    different values than bins. A column of few whole numbers thus stays as it is (codes of
    categories are often numbers), and so does one with no more values than there would be bins.
    Which columns these are depends on the rows of all parties together, not on who has which.

    Parameters
    ----------
    agreement : Agreement
        Of reports with sums.
    num_bins : int
        Intervals for each column, at least 2 (``Handling.discretize``).
    num_rows : int64 array, optional
        Rows that have a value of each of these columns. Default: all rows.
    apart : bool, default False
        See :func:`~flwr_causal.core.discrete.cut_points.init`.

    Raises
    ------
    DataError
        The reports had no sums.
    """
    chosen = [agreement.names.index(name) for name in agreement.continuous]
    whole = np.array([name in agreement.whole for name in agreement.continuous], dtype=np.bool_)
    mean, variance = agreement.mean[chosen], agreement.variance[chosen]
    rows = agreement.n if num_rows is None else num_rows
    return cut_points.init(mean, variance, num_bins, rows, whole, apart=apart)


def with_cuts(agreement: Agreement, cuts: Mapping[str, FloatArray]) -> Agreement:
    """Return the agreement with the states of the discretised columns filled in."""
    named = zip(agreement.names, agreement.states, strict=True)
    states = tuple(interval_names(cuts[name]) if name in cuts else old for name, old in named)
    return replace(agreement, states=states)
