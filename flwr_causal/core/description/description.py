"""What is known of the rows of all parties together, column by column.

Parties differ by sizes of effects: what is small or may be chance is left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.description.grids import StepGrid
from flwr_causal.core.saved import DAMAGE, read_record, writing
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

_FORM = "flwr-causal description 1"


@dataclass(frozen=True, kw_only=True)
class DescribedColumn:
    """One column over the rows of all parties.

    Parameters
    ----------
    name : str
    kind : {"number", "category"}
    seen, missing : int
        Rows with and without a value. A party that lacks the column has none.
    apart : float
        How far the parties are from each other: of numbers the root mean square distance of the
        parties' means from that of all rows, in standard deviations; of categories the mean share
        of a party's rows that would have another state if all parties had the same shares.
    lacking_apart : float
        The same mean of the differences of the shares of missing cells.
    mean, deviation : float or None
        Of numbers; the deviation is divided by n - 1.
    quantiles : dict of str to float or None
        By the share of the rows; None: outside the grid.
    whole : bool
        Whether it holds whole numbers only.
    grid : tuple of float
        First edge and step, of numbers.
    below : tuple of int
        Rows below each edge of the grid.
    rounding : int, default 0
        How many rows a number of `below` may lack, since parties round it down.
    states : dict of str to int
        Rows in each state, of categories.

    Examples
    --------
    >>> from flwr_causal.core.description.description import DescribedColumn
    >>> DescribedColumn(name="dose", kind="number", seen=95, missing=5, mean=4.0).missing
    5
    """

    name: str
    kind: str
    seen: int
    missing: int
    apart: float = 0.0
    lacking_apart: float = 0.0
    mean: float | None = None
    deviation: float | None = None
    quantiles: dict[str, float | None] = field(default_factory=dict)
    whole: bool = False
    grid: tuple[float, float] | None = None
    below: tuple[int, ...] = ()
    rounding: int = 0
    states: dict[str, int] = field(default_factory=dict)

    @property
    def edges(self) -> FloatArray:
        """The edges of the grid, shape (bins + 1,); of a category there are none."""
        return StepGrid(*self.grid).edges(len(self.below) - 1) if self.grid else np.zeros(0)

    @property
    def outside(self) -> tuple[int, int]:
        """Rows below and above the grid; above it those that are more than rounding may hide."""
        if not self.below:
            return (0, 0)
        above = self.seen - self.below[-1]
        return (self.below[0], above if above > self.rounding else 0)


@dataclass(frozen=True, kw_only=True)
class PartyDifference:
    """A column that is unlike at one party.

    Parameters
    ----------
    party, column : str
    what : {"mean", "deviation", "states", "missing"}
    value, others : float or None
        At the party, and at all others; of states None.
    effect : float
        Of means their difference in standard deviations, of deviations the logarithm of their
        ratio, of states and missing cells the difference of shares.

    Examples
    --------
    >>> from flwr_causal.core.description.description import PartyDifference
    >>> unlike = {"party": "north", "column": "dose", "what": "mean"}
    >>> PartyDifference(**unlike, value=4.0, others=2.0, effect=1.5).effect
    1.5
    """

    party: str
    column: str
    what: str
    value: float | None
    others: float | None
    effect: float


@dataclass(frozen=True, kw_only=True)
class Description:
    """Counts and sums over the rows of all parties.

    Parameters
    ----------
    rows : int
    columns : tuple of DescribedColumn
    correlations : tuple of tuple of float or None
        Pearson's, of each pair of the columns of numbers, over the rows that have both; None where
        it is not known.
    patterns : tuple of (tuple of str, int)
        Columns that are missing together and no others, and in how many rows; the most frequent
        first. () stands for complete rows.
    other_patterns : int
        Rows with other patterns, and rows whose pattern is withheld.
    differences : tuple of PartyDifference
        The largest first; empty where single parties are not known.
    withheld : int
        Counts of fewer rows of a party were withheld; 0: none was.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal import simulate
    >>> table = pd.DataFrame({"dose": [float(row % 7) for row in range(60)]})
    >>> description = simulate("describe", [table[:30], table[30:]]).model
    >>> description.rows, [column.name for column in description.columns]
    (60, ['dose'])
    """

    rows: int
    columns: tuple[DescribedColumn, ...]
    correlations: tuple[tuple[float | None, ...], ...] = ()
    patterns: tuple[tuple[tuple[str, ...], int], ...] = ()
    other_patterns: int = 0
    differences: tuple[PartyDifference, ...] = ()
    withheld: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return tuple(column.name for column in self.columns if column.kind == "number")

    def __getitem__(self, name: str) -> DescribedColumn:
        """Return a column.

        Raises
        ------
        ConfigError
            If there is none of the name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"There is no column '{name}'; there are {', '.join(self.names)}.")

    def table(self) -> pd.DataFrame:
        """Return a row for each column: kind, rows, gaps, mean, deviation, quantiles, states."""
        import pandas as pd

        rows = []
        for one in self.columns:
            known = {f"{100 * float(share):g}%": value for share, value in one.quantiles.items()}
            largest = sorted(one.states.items(), key=lambda pair: -pair[1])[:3]
            rows.append(
                {
                    **{name: getattr(one, name) for name in ("name", "kind", "seen", "missing")},
                    **{name: getattr(one, name) for name in ("mean", "deviation", "apart")},
                    **known,
                    "states": ", ".join(f"{state}: {count}" for state, count in largest),
                }
            )
        return pd.DataFrame(rows).set_index("name")

    def figures(self) -> dict[str, FloatArray]:
        """Return all numbers that do not depend on who holds which rows, by what they are."""
        found: dict[str, FloatArray] = {}
        for one in sorted(self.columns, key=lambda column: column.name):
            summary = [one.seen, one.missing, one.mean, one.deviation]
            found[f"summary of {one.name}"] = _as_floats(summary)
            found[f"rows of {one.name}"] = _as_floats([*(one.grid or ()), *one.below])
            found[f"states of {one.name}"] = _as_floats(
                [one.states[state] for state in sorted(one.states)]
            )
        order = np.argsort(self.numbers)
        correlations = [_as_floats(row) for row in self.correlations]
        found["correlations"] = np.array(correlations)[np.ix_(order, order)].ravel()
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file.

        Raises
        ------
        ConfigError
            If it cannot be written.
        """
        with writing(path, "description") as place:
            text = json.dumps({"format": _FORM, **self.to_dict()}, indent=2)
            place.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Description:
        """Read it from a JSON file.

        Raises
        ------
        DataError
            If the file holds none.
        """
        content = read_record(path, "description", _FORM)
        try:
            columns = tuple(
                DescribedColumn(
                    **{
                        **one,
                        "below": tuple(one["below"]),
                        "grid": None if one["grid"] is None else tuple(one["grid"]),
                    }
                )
                for one in content["columns"]
            )
            return cls(
                rows=int(content["rows"]),
                columns=columns,
                correlations=tuple(map(tuple, content["correlations"])),
                patterns=tuple((tuple(own), int(rows)) for own, rows in content["patterns"]),
                other_patterns=int(content["other_patterns"]),
                differences=tuple(PartyDifference(**one) for one in content["differences"]),
                withheld=int(content["withheld"]),
            )
        except DAMAGE as error:
            raise DataError(f"{path} holds a damaged description ({error!r})") from None


def _as_floats(values: Sequence[float | None]) -> FloatArray:
    return np.array([0.0 if value is None else value for value in values], dtype=np.float64)


#: The smallest effects that are told: standard deviations (Cohen's "small"), logarithms of a ratio
#: of standard deviations, and shares of rows.
LEAST_SHIFT, LEAST_RATIO, LEAST_SHARE = 0.2, 0.2, 0.05
#: And how many standard errors they must be.
CLEAR = 4.0


@dataclass(frozen=True, kw_only=True)
class NumberSums:
    """Rows, mean and sum of squared deviations from it, of one column at one party."""

    rows: int
    mean: float
    squares: float


def of_numbers(name: str, parties: Mapping[str, NumberSums]) -> list[PartyDifference]:
    """Return the parties at which mean or spread of a column of numbers is unlike the others'.

    Parameters
    ----------
    name : str
        The column.
    parties : mapping of str to NumberSums
    """
    known = {party: own for party, own in parties.items() if own.rows > 1}
    if len(known) < 2:
        return []
    rows, means, squares = (
        np.array([getattr(own, key) for own in known.values()], dtype=np.float64)
        for key in ("rows", "mean", "squares")
    )
    level = means.mean()
    left = rows.sum() - rows
    own = means - level
    others = ((rows * own).sum() - rows * own) / left
    about = squares + rows * own**2
    within = np.maximum(about.sum() - about - left * others**2, 0.0)
    spread = np.sqrt((squares + within) / np.maximum(rows + left - 2, 1))
    deviations = np.sqrt(squares / (rows - 1)), np.sqrt(within / np.maximum(left - 1, 1))
    error = np.sqrt(1 / rows + 1 / left)
    found = []
    for k, party in enumerate(known):
        if spread[k] > 0:
            shift = float((own[k] - others[k]) / spread[k])
            if abs(shift) >= max(LEAST_SHIFT, CLEAR * error[k]):
                found.append(
                    PartyDifference(
                        party=party,
                        column=name,
                        what="mean",
                        value=float(means[k]),
                        others=float(level + others[k]),
                        effect=shift,
                    )
                )
        here, there = float(deviations[0][k]), float(deviations[1][k])
        if here > 0 and there > 0:
            ratio = float(np.log(here / there))
            # Of Gaussian rows; heavier tails vary more.
            if abs(ratio) >= max(LEAST_RATIO, CLEAR * error[k] / np.sqrt(2)):
                found.append(
                    PartyDifference(
                        party=party,
                        column=name,
                        what="deviation",
                        value=here,
                        others=there,
                        effect=ratio,
                    )
                )
    return found


def of_states(
    name: str, counts: Mapping[str, IntArray], what: str = "states"
) -> list[PartyDifference]:
    """Return the parties at which the shares of a column's states are unlike the others'.

    Parameters
    ----------
    name : str
        The column.
    counts : mapping of str to ndarray of int, shape (s,)
        Of rows by state.
    what : {"states", "missing"}, default "states"
        Of missing cells the second of two states is that the cell is missing.
    """
    total = np.sum(list(counts.values()), axis=0)
    found = []
    for party, own in counts.items():
        others = total - own
        here, there = int(own.sum()), int(others.sum())
        if min(here, there) < 1:
            continue
        shares: tuple[FloatArray, FloatArray] = (own / here, others / there)
        apart = float(np.abs(shares[0] - shares[1]).sum() / 2)
        together = total / total.sum()
        # The standard deviation of each share, of rows that are dealt out at random.
        chance = np.sqrt(together * (1 - together) * (1 / here + 1 / there)).sum() / 2
        if apart >= max(LEAST_SHARE, CLEAR * chance):
            missing = what == "missing"
            found.append(
                PartyDifference(
                    party=party,
                    column=name,
                    what=what,
                    value=float(shares[0][1]) if missing else None,
                    others=float(shares[1][1]) if missing else None,
                    effect=apart,
                )
            )
    return found


def largest_first(found: list[PartyDifference]) -> tuple[PartyDifference, ...]:
    """Return differences in the order of their absolute effects."""
    return tuple(sorted(found, key=lambda one: -abs(one.effect)))


#: Columns that are missing in this share of the rows in which another one is belong to its gap.
TOGETHER = 0.9
#: The most patterns that are counted.
MOST_PATTERNS = 256


def likely_patterns(both: IntArray) -> BoolArray:
    """Return patterns of gaps that rows may have, from how often two columns lack together.

    These are no gap at all, each column alone, each with all those that are missing where it is,
    and each pair that is missing together.

    Parameters
    ----------
    both : ndarray of int, shape (d, d)
        Rows in which two columns are missing; on the diagonal those in which one is.

    Returns
    -------
    ndarray of bool, shape (m, d)
        Different patterns, m <= MOST_PATTERNS; the most frequent ones of each sort first.
    """
    d = len(both)
    alone = np.diagonal(both)
    lacking = np.flatnonzero(alone)[np.argsort(-alone[alone > 0], kind="stable")]
    found = [np.zeros(d, dtype=np.bool_)]
    found += [both[k] >= TOGETHER * alone[k] for k in lacking.tolist()]
    found += [np.arange(d) == k for k in lacking.tolist()]
    first, second = np.triu_indices(d, 1)
    pairs = both[first, second]
    for place in np.argsort(-pairs, kind="stable").tolist():
        if pairs[place] == 0 or len(found) >= 2 * MOST_PATTERNS:
            break
        found.append(np.isin(np.arange(d), [first[place], second[place]]))
    different = dict.fromkeys(tuple(one.tolist()) for one in found)
    return np.array(list(different)[:MOST_PATTERNS], dtype=np.bool_).reshape(-1, d)


def pattern_counts(missing: BoolArray, patterns: BoolArray) -> IntArray:
    """Return how many rows have each of some patterns of gaps, shape (m,).

    Parameters
    ----------
    missing : ndarray of bool, shape (n, d)
    patterns : ndarray of bool, shape (m, d)
    """
    counts = np.zeros(len(patterns), dtype=np.int64)
    place = {np.packbits(one).tobytes(): k for k, one in enumerate(patterns)}
    some = missing.any(axis=1)
    packed, times = np.unique(np.packbits(missing[some], axis=1), axis=0, return_counts=True)
    for pattern, rows in zip(packed, times.tolist(), strict=True):
        if (own := place.get(pattern.tobytes())) is not None:
            counts[own] = rows
    none = place.get(np.packbits(np.zeros(missing.shape[1], dtype=np.bool_)).tobytes())
    if none is not None:
        counts[none] = int((~some).sum())
    return counts
