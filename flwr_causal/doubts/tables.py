"""Doubts about the parties' tables before the training: rules on their reports.

Nothing here is an error: tables may be as they are. What can be doubted of a finished graph is in
:mod:`flwr_causal.doubts.graphs`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from flwr_causal.core.linear.levels import deviations
from flwr_causal.core.ties import as_ranked
from flwr_causal.core.words import some
from flwr_causal.data.check.checks import columns_of, normal, some_parties
from flwr_causal.data.check.handling import MOST_FRACTIONS, Handling
from flwr_causal.data.check.rules import FactRule, Notice, listed, told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.checks import Holders
    from flwr_causal.data.check.report import ColumnReport, TableReport
    from flwr_causal.data.check.rules import Fields

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
#: How many columns a message of levels names.
NAMED = 5
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


class TableFacts(TypedDict, total=False):
    """What may be known of the parties' tables before the training, as the rules read it.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By party.
    agreement, handling, expected : Agreement, Handling, Expected
    counts : Agreement
        Where the numbers of rows are known.
    names, comparable : sequence of str
        The columns, and those whose units may be compared with each other.
    held, unsure : mapping of str to Holders
        The columns and who has them; without those of which a dictionary lists all values.
    dominated, apart, empty : mapping of str to sequence of str
        By column the parties where one row has most of the variance, where values lie apart, where
        there is no value.
    far : mapping of str to str
        By column in how many rows of whom values are far outside all others.
    spreads, levels : mapping of str to str
        By column the parties whose spread, and whose level, is unlike the others'.
    foreign, rare : mapping of str to sequence of str
        By column the parties that have none of the others' states, and a state of their own.
    categories : mapping of str to sequence of str
        The states of the columns that the method takes for categories without being told to.
    left_out : sequence of str
        Columns that others determine, which leave the search.
    shares : ndarray of shape (m,)
        The share of a column's variance that is between units.
    differ : ndarray of bool, shape (m,)
        Whether its levels differ. ``names`` are then the variables of these columns.
    flat : sequence of str
        The columns that vary between units only. With such columns levels are not taken out.
    whose : str
        The units: "parties" or "series".
    """

    reports: Mapping[str, TableReport]
    agreement: Agreement
    counts: Agreement
    handling: Handling
    expected: Expected
    names: Sequence[str]
    comparable: Sequence[str]
    held: Mapping[str, Holders]
    unsure: Mapping[str, Holders]
    dominated: Mapping[str, Sequence[str]]
    apart: Mapping[str, Sequence[str]]
    empty: Mapping[str, Sequence[str]]
    far: Mapping[str, str]
    spreads: Mapping[str, str]
    levels: Mapping[str, str]
    foreign: Mapping[str, Sequence[str]]
    rare: Mapping[str, Sequence[str]]
    categories: Mapping[str, Sequence[str]]
    left_out: Sequence[str]
    shares: FloatArray
    differ: BoolArray
    flat: Sequence[str]
    whose: str


def doubts(
    reports: Mapping[str, TableReport],
    agreement: Agreement,
    expected: Expected,
    handling: Handling | None = None,
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
    handling : Handling, optional
        That of the agreement. Default: the default one.
    """
    return tuple(told(RULES, facts_of(reports, agreement, expected, handling or Handling())))


def facts_of(
    reports: Mapping[str, TableReport], agreement: Agreement, expected: Expected, handling: Handling
) -> TableFacts:
    """Return what the reports of all parties tell of the agreed columns."""
    columns = columns_of(reports)
    held = {name: columns[name] for name in agreement.names}
    # Each value of the others has been held against the dictionary.
    unsure = {name: one for name, one in held.items() if name not in handling.certain_names}
    dominated, far = where(held, lambda _, column: column.dominated), _far(unsure)
    # What single rows do to a column is no matter of its unit.
    others = {name: one for name, one in held.items() if name not in {*dominated, *far}}
    spreads, levels = _unlike_parties(reports, others, expected.unit_ratio)
    foreign, rare = _own_states(unsure)
    facts: TableFacts = {
        "reports": reports,
        "agreement": agreement,
        "handling": handling,
        "expected": expected,
        "names": agreement.names,
        "comparable": [name for name in others if name not in spreads],
        "held": held,
        "unsure": unsure,
        "dominated": dominated,
        "apart": where(held, lambda _, column: column.apart),
        "empty": {
            name: parties
            for name, holders in held.items()
            if (parties := [p for p, one in holders.items() if reports[p].is_empty(one)])
        },
        "far": far,
        "spreads": spreads,
        "levels": levels,
        "foreign": foreign,
        "rare": rare,
    }
    if not any(report.withheld for report in reports.values()):
        facts["counts"] = agreement
    if expected.nominal:
        facts["categories"] = dict(zip(agreement.names, agreement.states, strict=True))
    return facts


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
    return doubts_by(
        reports={party: report},
        names=report.names,
        dominated=where(held, lambda _, column: column.dominated),
        apart=where(held, lambda _, column: column.apart),
        far=_far(held),
        expected=Expected(tails=RANKS),
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
    return doubts_by(
        counts=agreement,
        agreement=agreement,
        comparable=agreement.names,
        dominated={},
        apart={one.name: () for one in total.columns if one.apart},
        far={},
        expected=expected,
    )


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
    return doubts_by(spreads=spreads, levels=levels, expected=expected)


def doubts_by(**facts: Unpack[TableFacts]) -> tuple[str, ...]:
    """Return what the rules say whose facts are given."""
    return tuple(told(RULES, facts))


# What rules find.


def where(
    held: Mapping[str, Holders], strikes: Callable[[str, ColumnReport], bool]
) -> dict[str, list[str]]:
    """Return by column the parties where its name and report meet a condition; none: no entry."""
    found = {
        name: [party for party, column in holders.items() if strikes(name, column)]
        for name, holders in held.items()
    }
    return {name: parties for name, parties in found.items() if parties}


def at(parties: Mapping[str, Sequence[str]], **further: Any) -> Fields:
    """Return the fields of one message that lists columns, each with its parties."""
    return listed(
        (
            f"{name!r} (at {some_parties(found) if found else 'one party or more'})"
            for name, found in parties.items()
        ),
        **further,
    )


def _fitted(counts: Agreement, expected: Expected, rows: int) -> Fields:
    """Find that there are no more rows than numbers that are fitted to each column."""
    # A category of k states is k - 1 columns.
    states = counts.states or [()] * len(counts.names)
    fitted = sum(len(own) - 1 if own else expected.columns for own in states)
    fitted *= (1 + expected.lags) * (expected.columns > 0)
    if rows > fitted:
        return []
    what = " of values and states" * bool(counts.states)
    what += " with their lags" * bool(expected.lags)
    return [{"rows": rows, "fitted": fitted, "what": what}]


def _unlike_parties(
    reports: Mapping[str, TableReport], held: Mapping[str, Holders], most: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns whose spread, and those whose level, at a party is unlike the others'.

    Parties with known interventions are left out: these change the columns on which they act, and
    those that depend on these.

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
        seen: dict[str, tuple[float, float, float]] = {}
        for party, column in holders.items():
            count = reports[party].rows_with(column)
            varies = count >= 2 and column.squares > 0 and not column.distinct_one
            if varies and not any(reports[party].targets):
                seen[party] = count, column.mean, math.sqrt(column.squares / (count - 1))
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


def _chance(ratio: FloatArray, rows: FloatArray, middle: int) -> FloatArray:
    """Return how probable ratios of standard deviations are among Gaussian rows (F test)."""
    import scipy.special  # which takes half a second to load

    own, reference = rows - 1, np.full(len(rows), rows[middle] - 1)
    larger = np.where(ratio >= 1, own, reference), np.where(ratio >= 1, reference, own)
    return np.asarray(2 * scipy.special.fdtrc(*larger, np.maximum(ratio, 1 / ratio) ** 2))


def _unlike_columns(agreement: Agreement, comparable: Sequence[str], expected: Expected) -> Fields:
    """Find that these columns' own units are of very different size."""
    variances = dict(zip(agreement.names, agreement.variance.tolist(), strict=True))
    known = [name for name in comparable if variances[name] > 0]
    if not (known and expected.raw_units):
        return []
    low, high = min(known, key=variances.__getitem__), max(known, key=variances.__getitem__)
    ratio = math.sqrt(variances[high] / variances[low])
    if not ratio > COMPARABLE_COLUMNS:
        return []
    return [{"high": high, "low": low, "times": times(ratio)}]


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


def combination(name: str, others: Sequence[str], *, linear: bool = True) -> Mapping[str, object]:
    """Return the fields of the message of a column that others determine."""
    way = "a multiple" if len(others) == 1 else "a linear combination"
    way = way if linear else "a function"
    return {"name": name, "way": way, "others": some(map(repr, others))}


def _far(held: Mapping[str, Holders]) -> dict[str, str]:
    """Return the columns with values far outside all others, and in how many rows of whom.

    Of named states, marks of missing values are looked for by another rule.
    """
    found = {
        name: some(
            f"{column.far} row{'s' * (column.far != 1)} at party {party!r}"
            for party, column in holders.items()
            if column.far and not any(_plain(state) in LIKE_MISSING for state in column.states)
        )
        for name, holders in held.items()
    }
    return {name: places for name, places in found.items() if places}


def _unlike_steps(reports: Mapping[str, TableReport]) -> Fields:
    """Find time steps that differ between the parties."""
    by_step: dict[str, list[str]] = {}
    for party, report in reports.items():
        if report.step:
            by_step.setdefault(report.step, []).append(party)
    if len(by_step) < 2:
        return []
    return listed(f"{step} at {some_parties(parties)}" for step, parties in by_step.items())


def _same_tables(reports: Mapping[str, TableReport]) -> Fields:
    """Find parties with the same table, as a file that is given twice.

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
    return listed(pairs)


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
    reports: Mapping[str, TableReport], agreement: Agreement, handling: Handling
) -> list[str]:
    """Return the agreed columns that seem to number or to name the rows, or that hold dates.

    Columns that are declared to be variables are not among them; nor are any if all were.

    Parameters
    ----------
    reports : mapping of str to TableReport
        By the parties' names.
    agreement : Agreement
        Of these reports.
    handling : Handling
        That of the agreement.
    """
    columns = columns_of(reports)
    declared = handling.certain_names | handling.named
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


def _own_states(
    held: Mapping[str, Holders],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return by column the parties that have none of the others' states, and one of their own."""
    foreign: dict[str, list[str]] = {}
    rare: dict[str, list[str]] = {}
    for name, holders in held.items():
        states = {party: set(column.states) for party, column in holders.items() if column.states}
        # How many parties have each state, each in one spelling, and each number of states.
        holding = Counter(state for own in states.values() for state in own)
        plain = {state: _plain(state) for state in holding}
        spelled = Counter(one for own in states.values() for one in {plain[k] for k in own})
        sizes = Counter(map(len, states.values()))
        for party, own in states.items():
            shared = any(holding[state] > 1 for state in own)
            if len(own) > 1 and not shared and sizes[len(own)] > 1:
                foreign.setdefault(name, []).append(party)
            # States of its own alone, as of its wards, are a party's right.
            elif shared:
                # Other doubts are about a state in another spelling, or that is none.
                known = {*LIKE_MISSING, _plain(name)}
                if not all(spelled[plain[k]] > 1 or plain[k] in known for k in own):
                    rare.setdefault(name, []).append(party)
    return foreign, rare


def levels_in_words(names: Sequence[str], shares: FloatArray, differ: BoolArray) -> str:
    """Return the variables whose levels differ, the largest differences first.

    The parameters are those of :class:`TableFacts`.
    """
    sizes, found = deviations(shares), dict[str, float]()
    for j in np.argsort(-as_ranked(shares), kind="stable"):
        if differ[j]:
            found.setdefault(names[j], sizes[j])
    return some((f"{name!r} by {size:.2g}" for name, size in found.items()), NAMED)


def _other_codes(reports: Mapping[str, TableReport], unsure: Mapping[str, Holders]) -> Fields:
    """Find columns of two successive whole numbers that are others at some parties."""
    found = {}
    for name, holders in unsure.items():
        lower = {
            party: code
            for party, column in holders.items()
            if not column.states and (code := _lower_code(reports[party], column)) is not None
        }
        usual, _ = Counter(lower.values()).most_common(1)[0] if lower else (0, 0)
        found[name] = [party for party, code in lower.items() if code != usual]
    return at({name: parties for name, parties in found.items() if parties})


def _lower_code(report: TableReport, column: ColumnReport) -> int | None:
    """Return k where the values of a column are k and k + 1, by their mean and squares."""
    if not report.has_sums or report.level_rows is not None or not column.squares > 0:
        return None
    rows = report.rows_with(column)
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


def _nominal(
    held: Mapping[str, Holders], categories: Mapping[str, Sequence[str]], handling: Handling
) -> Fields:
    """Find numbers that are categories because they are few, where others stay numbers."""
    remedy = (
        "name them in the option numbers; if they are codes, in categories"
        if handling.entries is None
        else "say so in the dictionary, by the kind 'number'; if they are codes, by 'category'"
    )
    named = (
        repr(name)
        for name, states in categories.items()
        if len(states) > 2
        and name not in handling.category_names
        and all(column.kind == "numeric" for column in held[name].values())
    )
    return listed(named, remedy=remedy) if handling.discretize else ()


def _spelt_alike(unsure: Mapping[str, Holders], handling: Handling) -> Fields:
    """Find states that differ in spelling only, but for declared codes. They are not named."""
    found = {}
    for name, holders in unsure.items():
        alike: dict[str, set[str]] = {}
        for column in holders.values():
            for state in column.states:
                alike.setdefault(_plain(state), set()).add(state)
        doubled = {state for group in alike.values() if len(group) > 1 for state in group}
        if doubled and name not in handling.category_names:
            found[name] = [p for p, column in holders.items() if doubled & {*column.states}]
    return at(found)


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


# The rules.

_FEW_ROWS = (
    "{rows} rows for {fitted} columns{what}: so few rows fit any graph, and its edges mean little. "
    "Add rows, or leave columns out."
)
COMBINATION = (
    "Column {name!r} is {way} of {others} in all rows: the effects of such columns cannot be "
    "distinguished, and edges among them mean nothing. Leave one of them out."
)
LEFT_OUT = (
    "Left out of the search, so without edges, as other columns determine them: {listed}. Of each "
    "such relation it is the last column by name; to keep it, exclude another one."
)

RULES: tuple[Notice, ...] = (
    Notice(
        "Assumed ...",
        "Tables have text, gaps, dates, columns that name rows or that a party lacks, and the "
        "option for it was not given: the best that the method has with the other options",
        "The option, if it should be another; `strict=True` assumes nothing",
    ),
    FactRule(
        f"All parties together have {_FEW_ROWS}",
        "No more rows than columns (with their lags): any graph fits them",
        "More rows, fewer columns",
        finds=lambda counts, expected: (
            () if expected.own_fits else _fitted(counts, expected, counts.n)
        ),
    ),
    FactRule(
        f"The largest party has {_FEW_ROWS}",
        "The same for `fedcausal`, where each party's mechanisms are its own",
        "More rows a party, fewer columns",
        finds=lambda counts, expected: (
            _fitted(counts, expected, max(counts.rows.values()))
            if expected.own_fits and counts.total is None
            else ()
        ),
    ),
    FactRule(
        "The units of some columns seem to differ between the parties. Standard deviations, in "
        "terms of those at the other parties: {listed}. Bring each column to one unit at all "
        "parties, or leave it out.",
        "A column's standard deviation at a party is more than 5 times, or less than a fifth of, "
        "its standard deviation at the others, beyond chance; 50 times where mechanisms or rows "
        "may differ (`fedcausal`, `fedges`, `fedpc`)",
        "One unit at all parties",
        finds=lambda spreads: listed(f"{name!r} ({there})" for name, there in spreads.items()),
    ),
    FactRule(
        "The means of some columns at a party lie far from those at the others, by more than "
        f"{SAME_LEVEL:g} times the standard deviations of both: {{listed}}. Bring each column to "
        "one unit at all parties; if levels truly differ, {remedy}.",
        "By more than 3 times the standard deviations of both; for methods that subtract one "
        'common mean, as with `center="global"`',
        'One unit; or the default `center="auto"`',
        finds=lambda levels, expected: (
            listed(
                (f"{name!r} (at {there})" for name, there in levels.items()),
                remedy=expected.level_remedy,
            )
            if expected.level_remedy
            else ()
        ),
    ),
    FactRule(
        "The levels of the {whose} differ (in standard deviations: {listed}) beyond what the "
        "columns say that vary between the {whose} only, {flat}. Differences between the {whose} "
        "count as effects here: leave these columns out, and effects are those within the "
        "{whose}.",
        finds=lambda names, shares, differ, flat, whose: [
            {
                "whose": whose,
                "listed": levels_in_words(names, shares, differ),
                "flat": some(map(repr, flat), NAMED),
            }
        ][: len(flat)],
    ),
    FactRule(
        "The levels of the {whose} differ (in standard deviations: {listed}). Effects are those "
        "within the {whose}, as with an intercept for each; center='global' takes differences "
        "between them for effects too.",
        '`moments`, `lingam`, `notears-admm`, `2dbn` with `center="auto"`: beyond chance (p < '
        "1e-4), of columns of which more than 2 % of the variance is between parties; by how many "
        "standard deviations within them",
        "None: effects are [those within the parties]"
        '(moments.md#levels-of-parties-and-series-centerauto). `center="global"` if levels differ '
        "because their causes do. Where columns vary between parties only: leave these out",
        title="The levels of the parties (or series) differ",
        finds=lambda names, shares, differ, flat, whose: (
            [] if flat else [{"whose": whose, "listed": levels_in_words(names, shares, differ)}]
        ),
    ),
    FactRule(
        "The standard deviation of column {high!r} is {times} that of {low!r}. This method looks "
        "at the columns in their units, which may decide which edges are found and where they "
        "point. Set standardize=True, or give the columns comparable units.",
        "More than 100 times, for methods that look at the columns in their units: `moments`, "
        "`notears-admm`, `2dbn`, and `fedcausal` but for the search on evidence with "
        '`noise="own"`',
        "`standardize=True`, or comparable units",
        finds=_unlike_columns,
    ),
    FactRule(
        COMBINATION,
        "A total beside its parts, one quantity in two units, indicators of all states of a "
        'category; a category in coarser or in other words ("a function"), with '
        '`text_columns="keep"` of `moments`',
        "Leave one of them out",
        finds=lambda reports, names: [
            combination(*relation) for relation in reported_relations(reports, names)
        ],
    ),
    FactRule(
        LEFT_OUT,
        "The same, with what the method did: see [below](#columns-that-others-determine)",
        "To keep such a column, exclude another one of the relation",
        finds=lambda left_out: listed(map(repr, left_out)),
    ),
    FactRule(
        "A single row has more than half of a party's variance of a column: {listed}. Second "
        "moments of such a column depend on this row. Correct the value if it is a mistake or "
        "stands for a missing one; where a column has heavy tails, take logarithms or ranks.",
        "A typing error, a code such as -9999 for missing values, or tails so heavy that moments "
        "do not settle; for methods on second moments",
        "Correct the value; logarithms or ranks",
        finds=lambda dominated, far: at({k: own for k, own in dominated.items() if k not in far}),
    ),
    FactRule(
        "Some columns have values far outside all others: {listed}. Such values often stand for "
        "missing ones, as -999 or 9999, or are mistakes, and few of them decide means and second "
        "moments. 'flwr-causal check' shows them on the party's machine. Correct them, or leave "
        "the fields empty and choose by missing_values how these rows are treated.",
        "Codes such as -999 or 9999 for missing values, alone or in many rows, also at all "
        "parties; a few rows of mistyped numbers. Number and party are named; the values only by "
        "`flwr-causal check`, on the party's machine. See [below](#values-far-outside)",
        "Correct them; leave the fields empty",
        finds=lambda far: listed(f"{name!r} ({places})" for name, places in far.items()),
    ),
    FactRule(
        "Some columns have a few values that lie apart, beyond the tails of all others: {listed}. "
        "If they are mistyped or in other units, effects are too small, and their intervals too "
        "narrow to hold the true ones. Correct them; {remedy} lessen what they do.",
        "At most one row in twenty of a party, and hardly any values between them and the rest: "
        "cells that are mistyped or in another unit. Effects are then too small, and their "
        "intervals too narrow: with one cell in a hundred moved by 6 to 12 standard deviations "
        "hardly any 95 % interval holds the true effect. Columns and parties are named, with "
        "`secure_aggregation` the columns. See [below](#values-that-lie-apart)",
        'Correct them; in `moments` [`scale="normal-scores"`]'
        "(moments.md#normal-scores-scalenormal-scores) lessens what they do, and effects stay "
        "somewhat too small",
        finds=lambda apart, dominated, far, expected: (
            at(
                {k: own for k, own in apart.items() if k not in {*dominated, *far}},
                remedy=expected.tails,
            )
            if expected.tails
            else ()
        ),
    ),
    FactRule(
        "The time steps differ between the parties: {listed}. A lag then is not the same time at "
        "all parties. Bring the series to one step, or leave parties out; if only the clocks "
        "differ, give the times in one unit.",
        "The usual differences of the column of times: hours here, days there",
        "One step at all parties",
        finds=_unlike_steps,
    ),
    FactRule(
        "The tables of some parties seem to be the same: {listed}. Their rows count twice. Check "
        "the paths of the tables; give each row to one party.",
        "All means and spreads are equal: a file that two parties read. Not seen where all columns "
        "are text",
        "Give each row to one party",
        finds=_same_tables,
    ),
    FactRule(
        "Many rows repeat an earlier row in all columns, at {parties}: patients that are in a "
        "table twice count twice. 'flwr-causal check' tells how many, on the party's machine. "
        "Remove the copies, or leave a column in by which the rows differ.",
        "A hundredth of a party's rows, and five at least: an export twice in one file, a join "
        "that doubles patients. Not told of tables in which no column has many different values, "
        "nor with secure sums",
        "`flwr-causal check` says how many: remove them",
        title="Many rows repeat an earlier row in all columns",
        finds=lambda reports: [
            {"parties": some_parties(found)}
            for found in [[party for party, report in reports.items() if report.repeats]]
            if found
        ],
    ),
    FactRule(
        "Some columns seem to number the rows or to identify them: {listed}. Such a column is no "
        "measurement, and its edges mean nothing. Leave it out, or name it in the option for its "
        "role: row_id, series_column or time_column.",
        "Successive whole numbers, of 30 rows or more; a name such as `id`, `patient_id` or "
        "`row_number`",
        "Leave them out; `row_id`, `series_column` or `time_column`",
        finds=lambda reports, unsure: listed(map(repr, _naming_rows(reports, unsure))),
    ),
    FactRule(
        "Some columns count as missing in all rows of a party: {listed}. The party has no value "
        "there, or withholds its counts, which are of fewer than {fewest} rows (minimum_count).",
        "`describe`, where counts below `minimum_count` are withheld: the party has no value "
        "there, or too few to tell",
        'Nothing; `small_counts="report"` tells all',
        finds=lambda empty, expected: at(
            empty if expected.fewest > 1 else {}, fewest=expected.fewest
        ),
    ),
    FactRule(
        "Some columns have no value in any row of a party: {listed}. With missing_values='keep' "
        "that counts as a property of its rows: remove the column from this party's table. 'em' "
        "takes it as a column that the party lacks.",
        'With `missing_values="keep"` or `"em"`',
        'Remove the column there; with "em" nothing',
        finds=lambda empty, expected: at({} if expected.fewest > 1 else empty),
    ),
    FactRule(
        "Some columns have their own name among their states: {listed}. The header line may be "
        "repeated within the table, as in files that were joined; or the table may have none, and "
        "its first row was taken for the names. Remove such rows, or add the header.",
        "A header line within the table, or a file without one",
        "Remove the line; add a header",
        finds=lambda unsure: at(
            where(unsure, lambda name, one: any(_plain(k) == _plain(name) for k in one.states))
        ),
    ),
    FactRule(
        "Some states differ from another one only in case or blanks, as 'Yes ' from 'yes', or are "
        "the same number, as '1.0' and '1', and count as different: {listed}. Write them alike at "
        "all parties; or name a column of codes in the option categories, and a column of numbers "
        "in numbers.",
        "`YES` at one party, `yes` at another; `1.0` and `1` as text. The states are not written "
        "to the log",
        "Write them alike; `categories` for codes",
        finds=_spelt_alike,
    ),
    FactRule(
        "Some states look like marks of missing values, as '?', 'NA', a blank or -999, and count "
        "as states like all others: {listed}. Leave such fields empty, and choose what becomes of "
        "them by missing_values; or keep them if that a value is missing matters.",
        "`?`, a blank, -999, `NA` in a column of text",
        "Leave such fields empty, or name the texts in `missing_texts` "
        "([missing values](how_to/missing_values.md#which-cells-are-missing))",
        finds=lambda unsure: at(
            where(unsure, lambda _, one: any(_plain(k) in LIKE_MISSING for k in one.states))
        ),
    ),
    FactRule(
        "Some columns are taken as categories, and most of their values are numbers: {listed}. A "
        "few texts make a category of a column of numbers, as a stray word does, or the label of "
        "one code in a file of Stata or SPSS. 'flwr-causal check' shows them on the party's "
        "machine: correct them, or list the column in 'unlabelled' of a table description; name a "
        "column of codes in categories.",
        "More than 10 different values: a stray word, or a label of one code in a file of Stata or "
        "SPSS, makes text of the column",
        "Correct it; `unlabelled` in a [table description]"
        "(how_to/sources.md#a-table-description); `categories` for codes",
        title="Some columns are taken as categories, and most of their values are numbers",
        finds=lambda unsure, handling: at(
            where(
                {k: own for k, own in unsure.items() if k not in handling.category_names},
                lambda _, column: column.stray > 0 and column.texts > MOST_FRACTIONS,
            )
        ),
    ),
    FactRule(
        "Some columns have at a party none of the states that they have at the others: {listed}. "
        "The same states may be written in another way there, and then count as different. Write "
        "them alike at all parties.",
        "And as many of them: `ja` and `nein` for `yes` and `no`",
        "Write them alike",
        finds=lambda foreign: at(foreign),
    ),
    FactRule(
        "Some columns have at a party a state that no other party has: {listed}. The states may be "
        "coded in another way there, as 1 and 2 for 0 and 1, or be misspelt: write them alike at "
        "all parties. A rare state may well be at one party only.",
        "Beside states that others have: 1 and 2 for 0 and 1, a misspelling, a rare state",
        "Write them alike, if they are the same",
        finds=lambda rare: at(rare),
    ),
    FactRule(
        "Some columns have two codes, and other ones at some parties, as 1 and 2 for 0 and 1: "
        "{listed}. Write them alike at all parties.",
        "1 and 2 for 0 and 1, where columns are numbers",
        "Write them alike",
        title="Some columns have two codes, and other ones at some parties",
        finds=_other_codes,
    ),
    FactRule(
        "Some columns of numbers have so few different values that they are taken for categories "
        "without an order: {listed}. If they count or measure something, {remedy}.",
        "`fedges` with `discretize`, `fedpc` with trees: counts, such as visits; ratings",
        "`numbers`, or `categories` ([codes and counts](fedges.md#codes-and-counts))",
        finds=_nominal,
    ),
)
