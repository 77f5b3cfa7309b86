"""Doubts about the parties' tables before the training, in words: pure functions of their reports.

Nothing here is an error: tables may be as they are. What can be doubted of a finished graph is in
:mod:`flwr_causal.strategies.plausibility`. docs/warnings.md lists all warnings.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.data.check.checks import columns_of, some, some_parties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.checks import Holders
    from flwr_causal.data.check.report import TableReport

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
#: How probable a ratio of standard deviations beyond chance may be, over all columns and parties.
CHANCE = 1e-6


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
        Numbers for each column that are fitted to the rows: 1, or 1 + p with p lags; 0 where few
        rows do no harm.
    own_fits : bool, default False
        Whether each party's rows are fitted by themselves.
    """

    unit_ratio: float = OTHER_MECHANISMS
    level_remedy: str = ""
    raw_units: bool = False
    columns: int = 0
    own_fits: bool = False


def doubts(
    reports: Mapping[str, TableReport], agreement: Agreement, expected: Expected
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
    """
    columns = columns_of(reports)
    held = {name: columns[name] for name in agreement.names}
    dominated = _dominated(held)
    # What one row does to a column is no matter of its unit.
    others = {name: holders for name, holders in held.items() if name not in dominated}
    spreads, levels = _unlike_parties(reports, others, expected.unit_ratio)
    comparable = [name for name in others if name not in spreads]
    return (
        *_few_rows(agreement, expected),
        *_unlike_units(spreads),
        *(_unlike_levels(levels, expected.level_remedy) if expected.level_remedy else ()),
        *(_unlike_columns(agreement, comparable) if expected.raw_units else ()),
        *_combinations(reports, agreement.names),
        *_of_one_row(dominated),
        *_like_states(held),
    )


def _few_rows(agreement: Agreement, expected: Expected) -> list[str]:
    """Warn where there are no more rows than numbers that are fitted to each column."""
    fitted = len(agreement.names) * expected.columns
    rows = max(agreement.rows.values()) if expected.own_fits else agreement.n
    if rows > fitted:
        return []
    whose = "The largest party has" if expected.own_fits else "All parties together have"
    of_lags = " with their lags" if expected.columns > 1 else ""
    return [
        f"{whose} {rows} rows for {fitted} columns{of_lags}: so few rows fit any graph, and its "
        "edges mean little. Add rows, or leave columns out."
    ]


def _unlike_parties(
    reports: Mapping[str, TableReport], held: Mapping[str, Holders], most: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns whose spread, and those whose level, at a party is not that of the others.

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
        unlike &= _chance(ratio, rows, middle) * len(parties) * len(held) < CHANCE
        if unlike.any():
            spreads[name] = some(
                f"{times(ratio[k])} at {parties[k]!r}" for k in np.flatnonzero(unlike)
            )
            continue
        usual = np.quantile(means, 0.5, method="lower")
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
    """Return rows, mean and standard deviation by party, where a column varies."""
    found: dict[str, tuple[float, float, float]] = {}
    for party, column in holders.items():
        report = reports[party]
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
    by_party = [
        {
            frozenset(report.names[k] for k in (j, *column.combination_of))
            for j, column in enumerate(report.columns)
            if column.combination_of
        }
        for report in reports.values()
        if report.tells_combinations
    ]
    place = {name: position for position, name in enumerate(names)}
    common = set.intersection(*by_party) if by_party else set()
    among = sorted(sorted(place[name] for name in one) for one in common if one <= place.keys())
    return [combination_text(names[own[-1]], [names[k] for k in own[:-1]]) for own in among]


def combination_text(name: str, others: Sequence[str]) -> str:
    """Return the warning of a column that is a linear combination of others."""
    way = "a multiple" if len(others) == 1 else "a linear combination"
    return (
        f"Column {name!r} is {way} of {some(map(repr, others))} in all rows: the effects of such "
        "columns cannot be distinguished, and edges among them mean nothing. Leave one of them out."
    )


def _dominated(held: Mapping[str, Holders]) -> dict[str, list[str]]:
    """Return the columns in which a single row has most of a party's variance, and the parties."""
    by_name = {
        name: [party for party, column in holders.items() if column.dominated]
        for name, holders in held.items()
    }
    return {name: parties for name, parties in by_name.items() if parties}


def _of_one_row(dominated: Mapping[str, Sequence[str]]) -> list[str]:
    if not dominated:
        return []
    listed = some(f"{name!r} (at {some_parties(where)})" for name, where in dominated.items())
    return [
        f"A single row has more than half of a party's variance of a column: {listed}. Second "
        "moments of such a column depend on this row. Correct the value if it is a mistake or "
        "stands for a missing one; where a column has heavy tails, take logarithms or ranks."
    ]


def _like_states(held: Mapping[str, Holders]) -> list[str]:
    """Warn of states that differ in case or blanks only. The states themselves are not named."""
    where = []
    for name, holders in held.items():
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
        "Some states differ from another one only in case or blanks, as 'Yes ' from 'yes', and "
        f"count as different: {some(where)}. Write them alike at all parties."
    ]


def _plain(state: str) -> str:
    """Return a state without blanks, in one case and one form of each letter."""
    return "".join(unicodedata.normalize("NFKC", state).casefold().split())


def times(ratio: float) -> str:
    """Write a ratio with at least two digits."""
    large = max(ratio, 1 / ratio)
    written = f"{large:,.0f}" if large >= 10 else f"{large:.2g}"
    return f"{written} times" if ratio >= 1 else f"1/{written}"
