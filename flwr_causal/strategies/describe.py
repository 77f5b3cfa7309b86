"""What describes the rows of all parties together: the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.description.description import (
    DescribedColumn,
    Description,
    NumberSums,
    largest_first,
    likely_patterns,
    of_numbers,
    of_states,
)
from flwr_causal.core.description.grids import QUANTILES, StepGrid, grid_of, place_edges, quantile
from flwr_causal.core.options import bounded
from flwr_causal.data.check.handling import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.tables import Expected
from flwr_causal.protocol.describe import (
    CONTRACT,
    FEWEST_BINS,
    MOST_BINS,
    TABLES,
    scaling_of,
)
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.runtime.options import CausalOptions, CountedRows, Repeated
from flwr_causal.strategies.base import CausalStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.base import RunAlone
    from flwr_causal.strategies.options import takes


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(CausalOptions):
    """The options of :class:`Describe`.

    Parameters
    ----------
    max_rounds : int, default 2
        The number of exchanges.
    bins : int, default 256
        Steps of the grid of each column of numbers, on which rows are counted. Quantiles are exact
        to one step.
    small_counts : {"auto", "report", "suppress", "refuse"}, default "auto"
        What parties do with counts of fewer rows than ``minimum_count``. "auto" is "suppress", or
        "report" with ``secure_aggregation``. With "suppress" counts of rows up to an edge are
        rounded down to multiples of ``minimum_count`` at each party.
    missing_values : {"keep", "fail", "drop", "auto"}, default "keep"
        What to do about missing values: "keep" counts them, and uses all cells that are there.
        Infinite values are an error, or their rows are left out with "drop".
    constant_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns with one value in the rows of all parties.
    text_columns : {"keep", "drop", "fail", "auto"}, default "keep"
        What to do about columns that hold no numbers: "keep" takes them as categories.
    unshared_columns : {"keep", "drop", "fail", "auto"}, default "keep"
        What to do about columns that only some parties have: "keep" counts their cells as missing
        at the others.
    duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that equal another one in every row.
    identifiers : {"fail", "auto"}, default "fail"
        "auto" leaves out columns of dates, and those that number or name the rows; "fail" describes
        them, too.
    categories : str, default ""
        Columns that are categories, separated by commas: all parties read them as text, in the
        spelling of their cells, such as codes of wards.
    numbers : str, default ""
        Columns that are numbers, separated by commas: text in them is an error.

    Examples
    --------
    >>> from flwr_causal.strategies.describe import DescribeOptions
    >>> DescribeOptions(minimum_count=10).minimum_count
    10
    """

    max_rounds: int = bounded(2, least=2)
    bins: int = bounded(256, least=FEWEST_BINS, most=MOST_BINS)
    small_counts: Literal["auto", "report", "suppress", "refuse"] = "auto"  # type: ignore[assignment]
    missing_values: AutoDropKeep = "keep"  # type: ignore[assignment]
    constant_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    text_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    unshared_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    identifiers: Literal["auto", "fail"] = "fail"
    categories: str = ""
    numbers: str = ""

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose; there is no graph."""
        return (*(one for one in super().parts if one is not Repeated), CountedRows)

    def settled(self) -> Any:
        """Return the options with the treatment of small counts."""
        options = super().settled()
        if options.small_counts != "auto":
            return options
        chosen = "report" if options.secure_aggregation else "suppress"
        return replace(options, small_counts=chosen)


class Describe(CausalStrategy):
    """Rows, gaps, states, means, quantiles, histograms and correlations of all parties together.

    The agreement has the mean and the standard deviation of each column of numbers. In the first
    exchange parties count their rows on a coarse grid that follows from these two, by state, and by
    pairs of columns that are missing together. The server chooses a grid of equal steps over the
    rows of each column, and patterns of gaps. In the second exchange parties count their rows on
    the grids and by pattern, and sum products of pairs of columns, over the rows that have both.
    Counts and sums are those of the pooled rows. No smallest or largest value leaves a party.

    Columns that differ between the parties are told by the size of the effect; the parties
    themselves are named where their replies are known one by one.

    **What leaves a party**: in the schema exchange names, types, the number of rows, for each
    column of numbers mean and sum of squared deviations, and for each column of text its states;
    then counts of rows and the sums of products.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.strategies import Describe
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> simulate(Describe(), tables).model.rows
    200
    """

    options_type = DescribeOptions
    options: DescribeOptions

    if TYPE_CHECKING:

        @takes(DescribeOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.ANY

    @property
    def pools_rows(self) -> bool:
        """Whether nothing is withheld by party."""
        return self.options.small_counts == "report"

    @property
    def _leaves_out(self) -> bool:
        """Whether no option asks for an error: a first look names what is to be mended."""
        handling = self.handling
        rules = (
            *(handling.missing_values, handling.constant_columns, handling.text_columns),
            *(handling.unshared_columns, handling.duplicate_columns),
        )
        return "fail" not in rules

    @property
    def _expected(self) -> Expected:
        """What parties withhold: columns of few values are reported without any."""
        return Expected(fewest=self._withheld)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return None: there is nothing to compare with."""
        return None

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Count rows on coarse grids, then on grids of equal steps.

        Yields
        ------
        Ask
            For the overview, then for the tables.

        Returns
        -------
        Result
            Its model is a :class:`~flwr_causal.core.description.description.Description`.
        """
        overview = self._exchanges[0]
        replies = yield Ask(overview)
        found = _overview(replies)
        agreement = agreement.with_rows(replies.rows)
        bins, whole = self.options.bins, _whole(agreement)
        edges = place_edges(*scaling_of(agreement))
        grids = [
            grid_of(own, below, bins, whole=integers)
            for own, below, integers in zip(edges, found["places"], whole, strict=True)
        ]
        yield Note({"columns": len(agreement.names)})
        rows, missing = agreement.n, np.diagonal(found["gaps"])
        sought = likely_patterns(found["gaps"])
        counts = _by_column(agreement, found["states"])
        shares = [one / max(one.sum(), 1) for one in counts if one is not None]
        replies = yield Ask(
            TABLES,
            {
                "lowest": np.array([grid.lowest for grid in grids], dtype=np.float64),
                "widths": np.array([grid.width for grid in grids], dtype=np.float64),
                "shares": np.concatenate([*shares, np.zeros(0)]),
                "lacking": missing / max(rows, 1),
                "sought": sought.astype(np.uint8),
            },
        )
        yield Note({"patterns": len(sought)})
        agreement = agreement.with_rows(replies.rows)
        model = self._description(agreement, found, grids, sought, replies)
        by_party = found["by_party"]
        if by_party:
            model = replace(model, differences=_unlike_counts(agreement, by_party))
        return Result(model=model, reason="all counts are known")

    def _description(
        self,
        agreement: Agreement,
        found: Mapping[str, Any],
        grids: Sequence[StepGrid],
        sought: Any,
        replies: Replies,
    ) -> Description:
        """Return the description from both exchanges."""
        rows, missing = agreement.n, np.diagonal(found["gaps"]).astype(np.int64)
        counts = _by_column(agreement, found["states"])
        places = {name: k for k, name in enumerate(agreement.continuous)}
        edges = place_edges(*scaling_of(agreement))
        columns = []
        for j, (name, states) in enumerate(zip(agreement.names, agreement.states, strict=True)):
            seen = rows - int(missing[j])
            apart = float(replies["apart"][j]) / max(seen, 1)
            common: dict[str, Any] = {
                "name": name,
                "seen": seen,
                "missing": int(missing[j]),
                "lacking_apart": float(replies["lacking_apart"][j]) / max(rows, 1),
            }
            if (own := counts[j]) is not None:
                held = dict(zip(states, own.tolist(), strict=True))
                columns.append(DescribedColumn(**common, kind="category", apart=apart, states=held))
                continue
            k = places[name]
            below, whole = replies["below"][k].astype(np.int64), name in agreement.whole
            mean, variance = float(agreement.mean[j]), float(agreement.variance[j])
            known = np.isfinite(mean) and seen > 0
            parties = agreement.num_parties
            corrected = self._corrected(below, seen, parties)
            coarse = (edges[k], self._corrected(found["places"][k], seen, parties))
            columns.append(
                DescribedColumn(
                    **common,
                    kind="number",
                    apart=float(np.sqrt(apart)),
                    mean=mean if known else None,
                    deviation=float(np.sqrt(variance * seen / (seen - 1)))
                    if known and seen > 1
                    else None,
                    quantiles={
                        f"{share:g}": quantile(
                            grids[k], corrected, coarse, seen, share, whole=whole
                        )
                        for share in QUANTILES
                    },
                    whole=whole,
                    grid=(float(grids[k].lowest), float(grids[k].width)),
                    below=tuple(below.tolist()),
                    rounding=parties * max(self._withheld - 1, 0),
                )
            )
        held_rows = replies["patterns"].astype(np.int64)
        order = np.argsort(-held_rows, kind="stable").tolist()
        return Description(
            rows=rows,
            columns=tuple(columns),
            correlations=_correlations(replies),
            patterns=tuple(
                (
                    tuple(n for n, one in zip(agreement.names, sought[k], strict=True) if one),
                    int(held_rows[k]),
                )
                for k in order
                if held_rows[k]
            ),
            other_patterns=max(rows - int(held_rows.sum()), 0),
            withheld=self._withheld,
        )

    @property
    def _withheld(self) -> int:
        options = self.options
        return options.minimum_count if options.small_counts == "suppress" else 0

    def _corrected(self, below: IntArray, seen: int, parties: int) -> IntArray:
        """Return counts that each party has rounded down, plus the mean loss by rounding."""
        if self._withheld < 2:
            return below
        more = round(parties * (self._withheld - 1) / 2)
        return np.where(below > 0, np.minimum(below + more, seen), 0)

    def _with_parties(
        self,
        agreement: Agreement,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return the description with the parties whose numbers are unlike the others'."""
        if not isinstance(model, Description):
            return model
        answered = agreement.rows
        known = {
            party: {column.name: column for column in report.columns}
            for party, report in reports.items()
            if report.has_sums and not report.withheld and party in answered
        }
        found = list(model.differences)
        for name in model.numbers:
            sums = {
                party: NumberSums(
                    rows=reports[party].rows_with(columns[name]),
                    mean=columns[name].mean,
                    squares=columns[name].squares,
                )
                for party, columns in known.items()
                if name in columns
            }
            found += of_numbers(name, sums)
        return replace(model, differences=largest_first(found))


def _whole(agreement: Agreement) -> list[bool]:
    return [name in agreement.whole for name in agreement.continuous]


def _overview(replies: Replies) -> dict[str, Any]:
    """Return the sums of the first exchange, and the replies by party where they are known."""
    names = ("places", "states", "gaps")
    if "places" in replies:
        return {**{name: replies[name] for name in names}, "by_party": {}}
    sums = {name: np.sum([one.astype(np.int64) for one in replies.list(name)], 0) for name in names}
    return {**sums, "by_party": replies.by_party}


def _by_column(agreement: Agreement, counts: IntArray) -> list[IntArray | None]:
    """Return the counts of the states of each column; None of numbers."""
    found: list[IntArray | None] = []
    start = 0
    for states in agreement.states:
        own = counts[start : start + len(states)].astype(np.int64)
        found.append(own if states else None)
        start += len(states)
    return found


def _unlike_counts(agreement: Agreement, replies: Mapping[str, Arrays]) -> Any:
    """Return the parties whose states or gaps are unlike the others'."""
    states = {party: _by_column(agreement, own["states"]) for party, own in replies.items()}
    found = []
    for j, name in enumerate(agreement.names):
        counted = {party: own[j] for party, own in states.items()}
        found += of_states(name, {p: own for p, own in counted.items() if own is not None})
        gaps = {
            party: np.array([agreement.rows[party] - own["gaps"][j, j], own["gaps"][j, j]])
            for party, own in replies.items()
        }
        found += of_states(name, gaps, "missing")
    return largest_first(found)


def _correlations(replies: Replies) -> tuple[tuple[float | None, ...], ...]:
    """Return Pearson's correlation of each pair of columns; None where it is not known."""
    pairs = replies["pairs"].astype(np.float64)
    n = np.maximum(pairs, 1.0)
    level, square = replies["sums"] / n, replies["squares"] / n
    variance = square - level**2
    both = variance * variance.T
    # What is left of a variance below this is rounding.
    known = (pairs > 1) & (np.minimum(variance, variance.T) > 1e-9)
    covariance = replies["products"] / n - level * level.T
    values = np.clip(covariance / np.sqrt(np.where(known, both, 1.0)), -1.0, 1.0)
    return tuple(
        tuple(float(one) if some else None for one, some in zip(row, held, strict=True))
        for row, held in zip(values, known, strict=True)
    )
