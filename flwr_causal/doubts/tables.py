"""Doubts about the parties' tables before the training, in words: pure functions of their reports.

Nothing here is an error: tables may be as they are. What can be doubted of a finished graph is in
:mod:`flwr_causal.doubts.graphs`. docs/warnings.md lists all warnings.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.words import some
from flwr_causal.data.check.checks import columns_of, normal, some_parties
from flwr_causal.data.check.policy import MOST_FRACTIONS, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.checks import Holders
    from flwr_causal.data.check.report import ColumnReport, TableReport

#: Most ratio of a party's standard deviation to that of the others. Of rows that are dealt out at
#: random at most 2.6 where it is beyond chance (20 seeds of all papers' simulations); centimetres
#: for metres are 100.
SAME_UNITS = 5.0
#: The same where parties may have mechanisms of their own, or other rows: in the simulations of
#: FedCausal up to 14.
OTHER_MECHANISMS = 50.0
#: Most distance of a party's mean from that of the others, in the sum of both standard deviations:
#: at most 1.9 in the papers' simulations with a common level, of parties of four rows.
SAME_LEVEL = 3.0
#: Fewest rows whose mean is compared.
LEVEL_ROWS = 10
#: Most ratio of the standard deviations of two columns where a method looks at the columns' units.
#: In 1,200 draws of the simulations of NOTEARS-ADMM at most 48; salaries beside shares have more.
COMPARABLE_COLUMNS = 100.0
#: How probable a ratio of standard deviations beyond chance may be, over all columns and parties;
#: also that two tables agree in all means and spreads by chance.
CHANCE = 1e-6
#: Relative difference of sums of the same numbers in another order.
SAME = 1e-9
#: Fewest rows whose numbers are recognised: the spread of other whole numbers is the same by chance
#: once in 10,000 columns, of all parties together much less often.
NUMBERED_ROWS = 30
#: Names of identifiers: id, patient_id, "patient id", patientID, row_number, uuid.
IDENTIFIER = re.compile(
    r"(?i:(?:^|[\W_])(?:ids?|uu?id|guid|row_?(?:id|nr|num|number|index))$)|[a-z](?:Id|ID)$"
)
#: Dates such as 2024-01-31, also with a time of day, or in the order of a country: 31.12.1960.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}\S*)?$|\d{1,2}([./-])\d{1,2}\2\d{2,4}$")
NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:e[+-]?\d+)?")
#: Texts that stand for a missing value, as `_plain` writes them.
LIKE_MISSING = frozenset(
    (
        *("", "?", "-", "--", ".", "..", "na", "n/a", "n.a.", "nan", "null", "nil", "<na>", "nat"),
        *("missing", "#n/a", "#na", "#value!", "#ref!", "#div/0!", "#null!", "#name?"),
        *("-99", "-999", "-9999", "-99999"),
    )
)


#: What lessens what values that lie apart do, where a method has no option for it.
RANKS = "ranks or normal scores of these columns"


@dataclass(frozen=True)
class Expected:
    """What a method takes for granted of the parties' tables.

    Parameters
    ----------
    unit_ratio : float, default 50.0
        Most ratio of a party's standard deviation of a column to that of the others.
    level_remedy : str, default ""
        What to do where levels truly differ; empty: the method lets them.
    raw_units : bool, default False
        Whether the units of the columns matter to the method.
    columns : int, default 0
        Numbers for each column that are fitted to the rows: 1, or the functions of a number; 0
        where few rows do no harm.
    lags : int, default 0
        How many lags of each column are fitted, too.
    own_fits : bool, default False
        Whether each party's rows are fitted by themselves.
    nominal : bool, default False
        Whether all columns with states are categories, numbers of few values included.
    tails : str, default ""
        What lessens what values do that lie apart from all others; empty: they do no harm.
    fewest : int, default 0
        Fewest rows behind what a party tells of a column: it tells a column with fewer as one
        without values.
    """

    unit_ratio: float = OTHER_MECHANISMS
    level_remedy: str = ""
    raw_units: bool = False
    columns: int = 0
    lags: int = 0
    own_fits: bool = False
    nominal: bool = False
    tails: str = ""
    fewest: int = 0


def doubts(
    reports: Mapping[str, TableReport],
    agreement: Agreement,
    expected: Expected,
    policy: Policy | None = None,
) -> tuple[str, ...]:
    """Return what is implausible about the agreed columns; nothing is an error.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By the parties' names.
    agreement : Agreement
        Of these reports.
    expected : Expected
        What the method takes for granted.
    policy : Policy, optional
        That of the agreement. Default: the default policy.
    """
    policy = policy or Policy()
    columns = columns_of(reports)
    held = {name: columns[name] for name in agreement.names}
    # Each value of these has been held against the dictionary.
    unsure = {name: one for name, one in held.items() if name not in policy.certain_names}
    dominated = _dominated(held)
    far = _far(unsure)
    # What single rows do to a column is no matter of its unit.
    others = {name: one for name, one in held.items() if name not in (dominated.keys() | far)}
    spreads, levels = _unlike_parties(reports, others, expected.unit_ratio)
    comparable = [name for name in others if name not in spreads]
    withheld = any(report.withheld for report in reports.values())
    categories = zip(agreement.names, agreement.states, strict=True) if expected.nominal else ()
    return (
        *(() if withheld else few_rows(agreement, expected)),
        *_unlike_units(spreads),
        *(_unlike_levels(levels, expected.level_remedy) if expected.level_remedy else ()),
        *(_unlike_columns(agreement, comparable) if expected.raw_units else ()),
        *_combinations(reports, agreement.names),
        *_of_one_row({name: where for name, where in dominated.items() if name not in far}),
        *_far_outside(far),
        *_lying_apart(_parties_where(held, _is_apart), dominated.keys() | far, expected.tails),
        *_unlike_steps(reports),
        *_same_tables(reports),
        *_repeated_rows(reports),
        *_row_numbers(reports, unsure),
        *_without_values(reports, held, expected.fewest),
        *_states_that_are_names(unsure),
        *_like_states(unsure, policy.category_names),
        *_like_missing(unsure),
        *_numbers_as_text(unsure, policy.category_names),
        *_other_states(unsure),
        *_other_codes(reports, unsure),
        *nominal_numbers(reports, dict(categories), policy),
    )


def own_doubts(party: str, report: TableReport) -> tuple[str, ...]:
    """Return what is implausible about a table's own values.

    With secure aggregation its report has no numbers by which the server could find it.

    Parameters
    ----------
    party : str
        Its name.
    report : TableReport
    """
    held = columns_of({party: report})
    dominated, far = _dominated(held), _far(held)
    return (
        *_repeated_rows({party: report}),
        *_combinations({party: report}, report.names),
        *_of_one_row({name: where for name, where in dominated.items() if name not in far}),
        *_far_outside(far),
        *_lying_apart(_parties_where(held, _is_apart), dominated.keys() | far, RANKS),
    )


def doubts_of_total(
    agreement: Agreement, total: TableReport, expected: Expected
) -> tuple[str, ...]:
    """Return what is implausible about the columns of parties that withhold their numbers.

    Parameters
    ----------
    agreement : Agreement
        Completed by the sums of all parties.
    total : TableReport
        On the rows of all parties together.
    expected : Expected
    """
    columns = _unlike_columns(agreement, agreement.names) if expected.raw_units else []
    apart: dict[str, list[str]] = {one.name: [] for one in total.columns if one.apart}
    return (*few_rows(agreement, expected), *columns, *_lying_apart(apart, (), expected.tails))


def doubts_of_groups(
    reports: Mapping[str, TableReport], names: Sequence[str], expected: Expected
) -> tuple[str, ...]:
    """Return what is implausible about groups of parties, compared with each other.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By group, on the rows of its parties together.
    names : sequence of str
        The agreed columns.
    expected : Expected
    """
    columns = columns_of(reports)
    held = {name: columns[name] for name in names if name in columns}
    spreads, levels = _unlike_parties(reports, held, expected.unit_ratio)
    return (
        *_unlike_units(spreads),
        *(_unlike_levels(levels, expected.level_remedy) if expected.level_remedy else ()),
    )


def few_rows(agreement: Agreement, expected: Expected) -> list[str]:
    """Warn where there are no more rows than numbers that are fitted to each column."""
    if expected.own_fits and agreement.total is not None:
        return []
    # A category of k states is k - 1 columns.
    states = agreement.states or [()] * len(agreement.names)
    fitted = sum(len(own) - 1 if own else expected.columns for own in states)
    fitted *= (1 + expected.lags) * (expected.columns > 0)
    rows = max(agreement.rows.values()) if expected.own_fits else agreement.n
    if rows > fitted:
        return []
    whose = "The largest party has" if expected.own_fits else "All parties together have"
    what = " of values and states" if agreement.states else ""
    what += " with their lags" if expected.lags else ""
    return [
        f"{whose} {rows} rows for {fitted} columns{what}: so few rows fit any graph, and its "
        "edges mean little. Add rows, or leave columns out."
    ]


def _unlike_parties(
    reports: Mapping[str, TableReport], held: Mapping[str, Holders], most: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns whose spread, and those whose level, at a party is unlike the others'.

    Parameters
    ----------
    reports : mapping of str to TableReport
    held : mapping of str to Holders
        The columns, and who has them.
    most : float
        Ratio of standard deviations that is still plausible.

    Returns
    -------
    spreads, levels : dict of str to str
        From a column to the parties, in words.
    """
    spreads, levels = {}, {}
    for name, holders in held.items():
        seen = _seen(reports, holders)
        if len(seen) < 2:
            continue
        parties, (rows, means, spread) = list(seen), np.array(list(seen.values())).T
        # The lower one of two: a party of large numbers stands out, whichever comes first.
        middle = int(np.argsort(spread, kind="stable")[(len(spread) - 1) // 2])
        ratio = spread / spread[middle]
        unlike = np.maximum(ratio, 1 / ratio) > most
        if unlike.any():
            unlike &= _chance(ratio, rows, middle) * len(parties) * len(held) < CHANCE
        if unlike.any():
            spreads[name] = some(
                f"{times(ratio[k])} at {parties[k]!r}" for k in np.flatnonzero(unlike)
            )
            continue
        usual = np.sort(means)[(len(means) - 1) // 2]
        far = (rows >= LEVEL_ROWS) & (
            np.abs(means - usual) > SAME_LEVEL * (spread + spread[middle])
        )
        if far.any():
            levels[name] = some_parties(parties[k] for k in np.flatnonzero(far))
    return spreads, levels


def _unlike_units(spreads: Mapping[str, str]) -> list[str]:
    if not spreads:
        return []
    listed = some(f"{name!r} ({where})" for name, where in spreads.items())
    return [
        "The units of some columns seem to differ between the parties. Standard deviations, in "
        f"terms of those at the other parties: {listed}. Bring each column to one unit at all "
        "parties, or leave it out."
    ]


def _unlike_levels(levels: Mapping[str, str], remedy: str) -> list[str]:
    if not levels:
        return []
    listed = some(f"{name!r} (at {where})" for name, where in levels.items())
    return [
        "The means of some columns at a party lie far from those at the others, by more than "
        f"{SAME_LEVEL:g} times the standard deviations of both: {listed}. Bring each column to one "
        f"unit at all parties; if levels truly differ, {remedy}."
    ]


def _seen(
    reports: Mapping[str, TableReport], holders: Holders
) -> dict[str, tuple[float, float, float]]:
    """Return rows, mean and standard deviation by party, where a column varies.

    Parties with known interventions are left out: these change the columns on which they act, and
    those that depend on these.
    """
    found: dict[str, tuple[float, float, float]] = {}
    for party, column in holders.items():
        report = reports[party]
        if any(report.targets):
            continue
        rows = report.rows - (0 if report.dropped_rows else column.missing)
        if rows >= 2 and column.squares > 0 and not column.distinct_one:
            found[party] = rows, column.mean, float(np.sqrt(column.squares / (rows - 1)))
    return found


def _chance(ratio: FloatArray, rows: FloatArray, middle: int) -> FloatArray:
    """Return how probable ratios of standard deviations are among Gaussian rows (F test)."""
    import scipy.special  # which takes half a second to load

    own, reference = rows - 1, np.full(len(rows), rows[middle] - 1)
    larger = np.where(ratio >= 1, own, reference), np.where(ratio >= 1, reference, own)
    return np.asarray(2 * scipy.special.fdtrc(*larger, np.maximum(ratio, 1 / ratio) ** 2))


def _unlike_columns(agreement: Agreement, names: Sequence[str]) -> list[str]:
    """Warn where these columns' own units are of very different size."""
    variances = dict(zip(agreement.names, agreement.variance.tolist(), strict=True))
    known = [name for name in names if variances[name] > 0]
    if not known:
        return []
    low, high = min(known, key=variances.__getitem__), max(known, key=variances.__getitem__)
    ratio = math.sqrt(variances[high] / variances[low])
    if not ratio > COMPARABLE_COLUMNS:
        return []
    return [
        f"The standard deviation of column {high!r} is {times(ratio)} that of {low!r}. This method "
        "looks at the columns in their units, which may decide which edges are found and where "
        "they point. Set standardize=True, or give the columns comparable units."
    ]


def _combinations(reports: Mapping[str, TableReport], names: Sequence[str]) -> list[str]:
    """Warn of columns that are linear combinations of others at each party with enough rows."""
    return [combination_text(*one) for one in reported_relations(reports, names)]


def reported_relations(
    reports: Mapping[str, TableReport], names: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Return the columns that others determine at each party with enough rows, each with these.

    Of each relation it is the last column by name, see :mod:`core.linear.determined`.
    """
    by_party = [
        {
            frozenset(report.names[k] for k in (j, *column.combination_of))
            for j, column in enumerate(report.columns)
            if column.combination_of
        }
        for report in reports.values()
        if report.tells_combinations
    ]
    common = set.intersection(*by_party) if by_party else set()
    among = sorted(sorted(one) for one in common if one <= set(names))
    return [(own[-1], own[:-1]) for own in among]


def left_out_text(names: Iterable[str]) -> str:
    """Return the warning of the columns that leave the search, as others determine them."""
    return (
        "Left out of the search, so without edges, as other columns determine them: "
        f"{some(map(repr, names))}. Of each such relation it is the last column by name; to keep "
        "it, exclude another one."
    )


def combination_text(name: str, others: Sequence[str], *, linear: bool = True) -> str:
    """Return the warning of a column that others determine; numbers as a linear combination."""
    way = "a multiple" if len(others) == 1 else "a linear combination"
    way = way if linear else "a function"
    return (
        f"Column {name!r} is {way} of {some(map(repr, others))} in all rows: the effects of such "
        "columns cannot be distinguished, and edges among them mean nothing. Leave one of them out."
    )


def _parties_where(
    held: Mapping[str, Holders], strikes: Callable[[str, ColumnReport], bool]
) -> dict[str, list[str]]:
    """Return the parties by column whose report of it meets a condition."""
    by_name = {
        name: [party for party, column in holders.items() if strikes(party, column)]
        for name, holders in held.items()
    }
    return {name: parties for name, parties in by_name.items() if parties}


def _columns_at(parties: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns that are so at some party, each with these parties, in words."""
    return [f"{name!r} (at {some_parties(where)})" for name, where in parties.items() if where]


def _dominated(held: Mapping[str, Holders]) -> dict[str, list[str]]:
    """Return the columns in which a single row has most of a party's variance, and the parties."""
    return _parties_where(held, lambda _, column: column.dominated)


def _of_one_row(dominated: Mapping[str, Sequence[str]]) -> list[str]:
    if not dominated:
        return []
    listed = some(_columns_at(dominated))
    return [
        f"A single row has more than half of a party's variance of a column: {listed}. Second "
        "moments of such a column depend on this row. Correct the value if it is a mistake or "
        "stands for a missing one; where a column has heavy tails, take logarithms or ranks."
    ]


def _far(held: Mapping[str, Holders]) -> dict[str, str]:
    """Return the columns with values far outside all others, and in how many rows of whom.

    Of named states, marks of missing values are looked for by :func:`_like_missing`.
    """
    where = {
        name: some(
            f"{column.far} row{'s' * (column.far != 1)} at party {party!r}"
            for party, column in holders.items()
            if column.far and not any(_plain(state) in LIKE_MISSING for state in column.states)
        )
        for name, holders in held.items()
    }
    return {name: places for name, places in where.items() if places}


def _far_outside(far: Mapping[str, str]) -> list[str]:
    if not far:
        return []
    listed = some(f"{name!r} ({places})" for name, places in far.items())
    return [
        f"Some columns have values far outside all others: {listed}. Such values often stand for "
        "missing ones, as -999 or 9999, or are mistakes, and few of them decide means and second "
        "moments. 'flwr-causal check' shows them on the party's machine. Correct them, or leave "
        "the fields empty and choose by missing_values how these rows are treated."
    ]


def _is_apart(party: str, column: ColumnReport) -> bool:
    return column.apart


def _lying_apart(
    apart: Mapping[str, Sequence[str]], told: Collection[str], remedy: str
) -> list[str]:
    """Warn of columns in which a few values lie apart, at given parties or some that add up."""
    places = {
        name: some_parties(where) if where else "one party or more"
        for name, where in apart.items()
        if name not in told
    }
    if not (places and remedy):
        return []
    listed = some(f"{name!r} (at {where})" for name, where in places.items())
    return [
        f"Some columns have a few values that lie apart, beyond the tails of all others: {listed}. "
        "If they are mistyped or in other units, effects are too small, and their intervals too "
        f"narrow to hold the true ones. Correct them; {remedy} lessen what they do."
    ]


def _unlike_steps(reports: Mapping[str, TableReport]) -> list[str]:
    """Warn of time steps that differ between the parties."""
    by_step: dict[str, list[str]] = {}
    for party, report in reports.items():
        if report.step:
            by_step.setdefault(report.step, []).append(party)
    if len(by_step) < 2:
        return []
    listed = some(f"{step} at {some_parties(parties)}" for step, parties in by_step.items())
    return [
        f"The time steps differ between the parties: {listed}. A lag then is not the same time at "
        "all parties. Bring the series to one step, or leave parties out; if only the clocks "
        "differ, give the times in one unit."
    ]


def _repeated_rows(reports: Mapping[str, TableReport]) -> list[str]:
    """Warn of tables in which many rows are copies of others."""
    parties = [party for party, report in reports.items() if report.repeats]
    if not parties:
        return []
    return [
        f"Many rows repeat an earlier row in all columns, at {some_parties(parties)}: patients "
        "that are in a table twice count twice. 'flwr-causal check' tells how many, on the party's "
        "machine. Remove the copies, or leave a column in by which the rows differ."
    ]


def _same_tables(reports: Mapping[str, TableReport]) -> list[str]:
    """Warn of parties with the same table, as a file that is given twice.

    Equal means and spreads are no chance where values are fractions; whole numbers of few values
    may agree in them by chance, which many columns must make improbable.
    """
    near: dict[tuple[Any, int], list[str]] = {}
    pairs = []
    for party, report in reports.items():
        # Common rows of parties with ids are no mistake.
        if not report.has_sums or report.has_ids or not _tells_tables(report):
            continue
        form = (report.rows, frozenset((one.name, one.kind, one.states) for one in report.columns))
        place = _place(report)
        alike = (one for k in (-1, 0, 1) for one in near.get((form, place + k), ()))
        same = next((one for one in alike if _same_sums(reports[one], report)), None)
        if same is None:
            near.setdefault((form, place), []).append(party)
        else:
            pairs.append(f"{party!r} and {same!r}")
    if not pairs:
        return []
    return [
        f"The tables of some parties seem to be the same: {some(pairs)}. Their rows count twice. "
        "Check the paths of the tables; give each row to one party."
    ]


def _tells_tables(report: TableReport) -> bool:
    """Whether another table with the same means and spreads cannot be chance."""
    nats = 0.0
    for one in report.columns:
        if one.is_number and one.squares > 0:
            total = report.rows * one.mean
            fractions = abs(total - round(total)) > SAME * max(1.0, abs(total))
            # A sum of whole numbers is approximately normal with this variance.
            nats += math.inf if fractions else 0.5 * math.log(2 * math.pi * one.squares)
    return nats > -math.log(CHANCE)


def _place(report: TableReport) -> int:
    """Return a number by which tables with the same spreads are found: at most 1 apart."""
    varying = [one.squares for one in report.columns if 0 < one.squares < math.inf]
    # The sums of the logarithms differ by SAME a column, and their own rounding.
    return math.floor(math.fsum(map(math.log, varying)) / (100 * SAME * max(len(varying), 1)))


def _same_sums(one: TableReport, other: TableReport) -> bool:
    """Whether all columns have the same mean and spread."""
    by_name = {column.name: column for column in other.columns}
    return all(
        math.isclose(getattr(own, name), getattr(by_name[own.name], name), rel_tol=SAME)
        for own in one.columns
        for name in ("mean", "squares")
    )


def naming_columns(
    reports: Mapping[str, TableReport], agreement: Agreement, policy: Policy
) -> list[str]:
    """Return the agreed columns that seem to number or to name the rows, or that hold dates.

    Columns that are declared to be variables are not among them; nor are any if all were.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By the parties' names.
    agreement : Agreement
        Of these reports.
    policy : Policy
        That of the agreement.
    """
    columns = columns_of(reports)
    declared = policy.certain_names | policy.named
    unsure = {name: columns[name] for name in agreement.names if name not in declared}
    dates = [name for name, holders in unsure.items() if _are_dates(holders)]
    found = [*_naming_rows(reports, unsure), *dates]
    return found if len(found) < len(agreement.names) else []


def _are_dates(holders: Holders) -> bool:
    """Whether all states of a column are texts of dates."""
    states = [state for one in holders.values() for state in one.states]
    texts = all(one.kind == "category" for one in holders.values())
    return bool(states) and texts and all(map(DATE.match, states))


def _naming_rows(reports: Mapping[str, TableReport], held: Mapping[str, Holders]) -> list[str]:
    """Return the columns that number the rows, or are identifiers by their names."""
    found = []
    for name, holders in held.items():
        enough = {p: one for p, one in holders.items() if reports[p].rows >= NUMBERED_ROWS}
        numbered = enough and all(_numbers_rows(reports[p], one) for p, one in enough.items())
        # Of few states it is a group.
        many = any(
            one.is_number and not one.distinct_one and not one.states for one in holders.values()
        )
        if numbered or (many and IDENTIFIER.search(name)):
            found.append(name)
    return found


def _row_numbers(reports: Mapping[str, TableReport], held: Mapping[str, Holders]) -> list[str]:
    """Warn of columns that number the rows, or are identifiers by their names."""
    found = _naming_rows(reports, held)
    if not found:
        return []
    return [
        f"Some columns seem to number the rows or to identify them: {some(map(repr, found))}. Such "
        "a column is no measurement, and its edges mean nothing. Leave it out, or name it in the "
        "option for its role: row_id, series_column or time_column."
    ]


def _numbers_rows(report: TableReport, column: ColumnReport) -> bool:
    """Whether the values are successive whole numbers, or what is left of them in the kept rows.

    Of successive numbers mean and spread are known. Where rows were dropped, the values must be
    known to be different whole numbers (``states``); of numbers of the rows their spread is at
    most that before. A third dropped lets 30 other numbers pass once in 10,000 columns.
    """
    if not report.has_sums or report.level_rows is not None or column.kind != "numeric":
        return False
    n, dropped = report.rows, report.dropped_rows
    if dropped and column.whole and column.distinct == n >= 2 * dropped:
        return 0 < column.squares <= (1 + SAME) * _spread(n + dropped)
    middle = 2 * column.mean + n - 1
    return (
        not column.missing
        and abs(column.squares - _spread(n)) <= SAME * _spread(n)
        and abs(middle - round(middle)) <= SAME * abs(middle)
    )


def _spread(n: int) -> float:
    """Return the sum of the squared deviations of n successive whole numbers from their mean."""
    return n * (n**2 - 1) / 12


def _without_values(
    reports: Mapping[str, TableReport], held: Mapping[str, Holders], fewest: int
) -> list[str]:
    """Warn of columns that a party has without a single value, or whose counts it withholds."""
    empty = _parties_where(held, lambda party, column: reports[party].is_empty(column))
    where = _columns_at(empty)
    if not where:
        return []
    if fewest > 1:
        return [
            f"Some columns count as missing in all rows of a party: {some(where)}. The party has "
            f"no value there, or withholds its counts, which are of fewer than {fewest} rows "
            "(minimum_count)."
        ]
    return [
        f"Some columns have no value in any row of a party: {some(where)}. With "
        "missing_values='keep' that counts as a property of its rows: remove the column from this "
        "party's table. 'em' takes it as a column that the party lacks."
    ]


def _states_that_are_names(held: Mapping[str, Holders]) -> list[str]:
    """Warn of columns among whose states is the column's own name."""
    where = _places(held, lambda name, state: _plain(state) == _plain(name))
    if not where:
        return []
    return [
        f"Some columns have their own name among their states: {some(where)}. The header line may "
        "be repeated within the table, as in files that were joined; or the table may have none, "
        "and its first row was taken for the names. Remove such rows, or add the header."
    ]


def _like_missing(held: Mapping[str, Holders]) -> list[str]:
    """Warn of states that stand for a missing value. The states themselves are not named."""
    where = _places(held, lambda name, state: _plain(state) in LIKE_MISSING)
    if not where:
        return []
    return [
        "Some states look like marks of missing values, as '?', 'NA', a blank or -999, and count "
        f"as states like all others: {some(where)}. Leave such fields empty, and choose what "
        "becomes of them by missing_values; or keep them if that a value is missing matters."
    ]


def _numbers_as_text(held: Mapping[str, Holders], declared: Collection[str]) -> list[str]:
    """Warn of categories most of whose many values are numbers."""
    mixed = _parties_where(
        {name: one for name, one in held.items() if name not in declared},
        lambda _, column: column.stray > 0 and column.texts > MOST_FRACTIONS,
    )
    if not mixed:
        return []
    return [
        "Some columns are taken as categories, and most of their values are numbers: "
        f"{some(_columns_at(mixed))}. A few texts make a category of a column of numbers, as a "
        "stray word does, or the label of one code in a file of Stata or SPSS. 'flwr-causal check' "
        "shows them on the party's machine: correct them, or list the column in 'unlabelled' of a "
        "table description; name a column of codes in categories."
    ]


def _places(held: Mapping[str, Holders], striking: Callable[[str, str], bool]) -> list[str]:
    """Return the columns with a state of some sort, and the parties that have it, in words."""
    return _columns_at(
        {
            name: [
                party
                for party, column in holders.items()
                if any(striking(name, state) for state in column.states)
            ]
            for name, holders in held.items()
        }
    )


def _other_states(held: Mapping[str, Holders]) -> list[str]:
    """Warn of states that one party alone has, and of parties that have none of the others'."""
    alone: list[str] = []
    single: list[str] = []
    for name, holders in held.items():
        states = {party: set(column.states) for party, column in holders.items() if column.states}
        # How many parties have each state, each in one spelling, and each number of states.
        holding = Counter(state for own in states.values() for state in own)
        plain = {state: _plain(state) for state in holding}
        spelled = Counter(one for own in states.values() for one in {plain[k] for k in own})
        sizes = Counter(map(len, states.values()))
        unlike, own_states = [], []
        for party, own in states.items():
            shared = any(holding[state] > 1 for state in own)
            if len(own) > 1 and not shared and sizes[len(own)] > 1:
                unlike.append(party)
            # States of its own alone, as of its wards, are a party's right.
            elif shared:
                # Other doubts are about a state in another spelling, or that is none.
                known = {*LIKE_MISSING, _plain(name)}
                if not all(spelled[plain[k]] > 1 or plain[k] in known for k in own):
                    own_states.append(party)
        for found, parties in ((alone, unlike), (single, own_states)):
            if parties:
                found.append(f"{name!r} (at {some_parties(parties)})")
    warnings = []
    if alone:
        warnings.append(
            f"Some columns have at a party none of the states that they have at the others: "
            f"{some(alone)}. The same states may be written in another way there, and then count "
            "as different. Write them alike at all parties."
        )
    if single:
        warnings.append(
            f"Some columns have at a party a state that no other party has: {some(single)}. The "
            "states may be coded in another way there, as 1 and 2 for 0 and 1, or be misspelt: "
            "write them alike at all parties. A rare state may well be at one party only."
        )
    return warnings


def _other_codes(reports: Mapping[str, TableReport], held: Mapping[str, Holders]) -> list[str]:
    """Warn of columns of two successive whole numbers that are others at some parties."""
    where = []
    for name, holders in held.items():
        lower = {
            party: code
            for party, column in holders.items()
            if not column.states and (code := _lower_code(reports[party], column)) is not None
        }
        usual, _ = Counter(lower.values()).most_common(1)[0] if lower else (0, 0)
        others = [party for party, code in lower.items() if code != usual]
        if others:
            where.append(f"{name!r} (at {some_parties(others)})")
    if not where:
        return []
    return [
        "Some columns have two codes, and other ones at some parties, as 1 and 2 for 0 and 1: "
        f"{some(where)}. Write them alike at all parties."
    ]


def _lower_code(report: TableReport, column: ColumnReport) -> int | None:
    """Return k where the values of a column are k and k + 1, by their mean and squares."""
    if not report.has_sums or report.level_rows is not None or not column.squares > 0:
        return None
    rows = report.rows - (0 if report.dropped_rows else column.missing)
    # Of shares p and 1 - p the variance is p (1 - p), and the mean k + p.
    inside = 1 - 4 * column.squares / rows
    if inside < -SAME:
        return None
    root = math.sqrt(max(inside, 0.0))
    for share in ((1 - root) / 2, (1 + root) / 2):
        code = round(column.mean - share)
        counted = share * rows
        exact = abs(column.mean - share - code) < SAME * max(1, abs(code))
        if exact and abs(counted - round(counted)) < SAME * rows:
            return code
    return None


def nominal_numbers(
    reports: Mapping[str, TableReport],
    categories: Mapping[str, Sequence[str]],
    policy: Policy,
) -> list[str]:
    """Warn of numbers that are categories because they are few, where others stay numbers.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By the parties' names.
    categories : mapping of str to sequence of str
        The states of the columns that the method takes for categories without being told to.
    policy : Policy
        That of the agreement.
    """
    if not policy.discretize:
        return []
    held, declared = columns_of(reports), policy.category_names
    named = [
        name
        for name, states in categories.items()
        if len(states) > 2
        and name not in declared
        and all(column.kind == "numeric" for column in held[name].values())
    ]
    if not named:
        return []
    remedy = (
        "name them in the option numbers; if they are codes, in categories"
        if policy.entries is None
        else "say so in the dictionary, by the kind 'number'; if they are codes, by 'category'"
    )
    return [
        f"Some columns of numbers have so few different values that they are taken for categories "
        f"without an order: {some(map(repr, named))}. If they count or measure something, {remedy}."
    ]


def _like_states(held: Mapping[str, Holders], codes: Collection[str]) -> list[str]:
    """Warn of states that differ in spelling only, but for declared codes. They are not named."""
    where = []
    for name, holders in held.items():
        if name in codes:
            continue
        alike: dict[str, set[str]] = {}
        for column in holders.values():
            for state in column.states:
                alike.setdefault(_plain(state), set()).add(state)
        doubled = {state for group in alike.values() if len(group) > 1 for state in group}
        parties = [p for p, column in holders.items() if doubled.intersection(column.states)]
        if doubled:
            where.append(f"{name!r} (at {some_parties(parties)})")
    if not where:
        return []
    return [
        "Some states differ from another one only in case or blanks, as 'Yes ' from 'yes', or are "
        f"the same number, as '1.0' and '1', and count as different: {some(where)}. Write them "
        "alike at all parties; or name a column of codes in the option categories, and a column of "
        "numbers in numbers."
    ]


def _plain(state: str) -> str:
    """Return a state without blanks, in one case and one form of each letter and number."""
    text = "".join(normal(state).casefold().split())
    if not NUMBER.fullmatch(text):
        return text
    return f"{float(text.replace(',', '.')) + 0.0:.15g}"  # which makes 0 of -0


def times(ratio: float) -> str:
    """Write a ratio with at least two digits."""
    large = max(ratio, 1 / ratio)
    written = f"{large:,.0f}" if large >= 10 else f"{large:.2g}"
    return f"{written} times" if ratio >= 1 else f"1/{written}"
