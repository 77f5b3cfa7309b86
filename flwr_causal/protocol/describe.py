"""The exchanges of describe: where the rows are, then their counts on common grids."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import POOLED
from flwr_causal.core.description.description import MOST_PATTERNS
from flwr_causal.core.description.grids import NUM_PLACES, are_grids, place_edges
from flwr_causal.core.options import MOST, within
from flwr_causal.data.check.handling import Handling
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import PartyOptions, Treatment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup

#: Fewest and most steps of a grid.
FEWEST_BINS, MOST_BINS = 2, 1024


def scaling_of(agreed: Any) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the columns of numbers; 0 where they are unknown.

    Parameters
    ----------
    agreed : Setup or Agreement
    """
    number = [place for place, name in enumerate(agreed.names) if name in agreed.continuous]
    if not number:
        return np.zeros(0), np.zeros(0)
    mean, variance = (np.nan_to_num(one[number]) for one in (agreed.mean, agreed.variance))
    return mean, np.sqrt(variance)


def _all_rows(setup: Setup) -> float:
    """Return the number of all rows: a bound of sums over rows of standardised numbers."""
    return float(setup.num_rows)


def _descending(arrays: Arrays, name: str) -> str:
    if (np.diff(arrays[name].astype(np.int64), axis=-1) < 0).any():
        return f"'{name}' counts fewer rows below a larger number"
    return ""


def _impossible_overview(arrays: Arrays, known: ReplyContext) -> str:
    """Return how counts contradict each other: of a column there are no more than all rows."""
    setup, rows = known.setup, known.sizes["n"]
    missing = np.diagonal(arrays["gaps"]).astype(np.int64)
    numbers = np.array([not states for states in setup.states], dtype=np.bool_)
    held = missing.copy()
    held[numbers] += arrays["places"][:, -1].astype(np.int64)
    ends = np.cumsum([len(states) for states in setup.states])
    totals = np.concatenate([[0], np.cumsum(arrays["states"].astype(np.int64))])[[0, *ends]]
    held += np.diff(totals)
    for name, count in zip(setup.names, held.tolist(), strict=True):
        if count > rows:
            return f"it counts {count} cells of the column '{name}' in {rows} rows"
    return _descending(arrays, "places")


def _impossible_tables(arrays: Arrays, known: ReplyContext) -> str:
    """Return how counts contradict each other."""
    if arrays["patterns"].astype(np.int64).sum() > known.sizes["n"]:
        return "it counts more patterns of gaps than there are rows"
    return _descending(arrays, "below")


def _other_grids(sent: Mapping[str, Any], setup: Setup) -> str:
    """Return whether grids are none that follow from counts on the coarse grid, in words."""
    edges = place_edges(*scaling_of(setup))
    grids = sent["lowest"], sent["widths"]
    if not (sent["widths"] > 0).all():
        return "has a grid whose steps have no width"
    if not are_grids(edges, *grids, setup.options.bins):
        return "has a grid that does not begin and end at edges of the coarse grid"
    if len(sent["sought"]) > MOST_PATTERNS:
        return f"has more than {MOST_PATTERNS} patterns of gaps"
    return ""


OVERVIEW = Exchange(
    "overview",
    "where the rows of each column are, the rows of each state, and the gaps",
    returns=(
        Disclosure(
            "places",
            "of each column of numbers, rows below each edge of a coarse grid: powers of two, and "
            "the mean with powers of two of the standard deviation of all rows",
            ("q", "g"),
            "count",
            cumulative=True,
        ),
        Disclosure("states", "rows in each state of each category", ("t",), "count"),
        Disclosure(
            "gaps",
            "at [i, j] the rows in which the columns i and j are missing",
            ("d", "d"),
            "count",
        ),
    ),
    most=1,
    when=~POOLED,
    same_parties=True,
    contradiction=_impossible_overview,
)

POOLED_OVERVIEW = replace(
    OVERVIEW,
    name="pooled overview",
    meaning=f"the exchange 'overview' with secure_aggregation: {OVERVIEW.meaning}",
    returns=tuple(replace(item, combine="sum") for item in OVERVIEW.returns),
    timing="in place of 'overview'",
    when=POOLED,
    contradiction=None,
)

TABLES = Exchange(
    "tables",
    "histograms on common grids, patterns of gaps, and what correlations follow from",
    sends=(
        Sent("lowest", "first edge of each column's grid", ("q",), exact=True),
        Sent("widths", "steps of the grids", ("q",), values="non-negative", exact=True),
        Sent("shares", "of each state among all rows with a value", ("t",), values="probability"),
        Sent("lacking", "share of all rows in which each column is missing", ("d",)),
        Sent("sought", "patterns of gaps; 1: missing", ("m", "d"), values="mark"),
    ),
    returns=(
        Disclosure(
            "below",
            "of each column of numbers, rows below each edge of its grid",
            ("q", "edges"),
            "count",
            "sum",
            cumulative=True,
        ),
        Disclosure("patterns", "rows with each pattern of gaps", ("m",), "count", "sum"),
        Disclosure(
            "pairs",
            "at [i, j] rows with a value of the columns i and j of numbers",
            ("q", "q"),
            "count",
            "sum",
        ),
        Disclosure(
            "sums",
            "at [i, j] the sum of column i over these rows, in standard deviations from the mean "
            "of all rows",
            ("q", "q"),
            "finite",
            "sum",
            bound=_all_rows,
        ),
        Disclosure(
            "squares", "the sum of its squares", ("q", "q"), "non-negative", "sum", bound=_all_rows
        ),
        Disclosure(
            "products",
            "at [i, j] the sum of the products of both columns over these rows",
            ("q", "q"),
            "finite",
            "sum",
            bound=_all_rows,
        ),
        Disclosure(
            "apart",
            "rows times the distance of the party from all rows: of a number the squared "
            "difference of means in standard deviations, of a category half the sum of the "
            "differences of shares",
            ("d",),
            "non-negative",
            "sum",
            bound=_all_rows,
        ),
        Disclosure(
            "lacking_apart",
            "rows times the difference of the shares of missing cells",
            ("d",),
            "non-negative",
            "sum",
            bound=_all_rows,
        ),
    ),
    most=1,
    same_parties=True,
    contradiction=_impossible_tables,
    unfitting=_other_grids,
)


@dataclass(frozen=True, kw_only=True)
class DescribePartyOptions(PartyOptions):
    """What the parties need beside the column of ids and the seed.

    Parameters
    ----------
    bins : int
        Steps of each grid.
    minimum_count : int
        See `small_counts`.
    small_counts : {"report", "suppress", "refuse"}
        What parties do with a column of fewer values than ``minimum_count``, and with one of texts
        that each stand in fewer rows: lack it, or refuse the run.
    """

    bins: int = field(metadata=within(least=FEWEST_BINS, most=MOST_BINS))
    minimum_count: int = field(metadata=within(least=0, most=MOST))
    small_counts: Treatment


def dimensions(setup: Setup) -> dict[str, int]:
    """Return q columns of numbers, t states of all categories, and the edges of the grids."""
    return {
        "q": len(setup.continuous),
        "g": NUM_PLACES,
        "t": sum(map(len, setup.states)),
        "edges": setup.options.bins + 1,
    }


def _completed(options: Any, handling: Handling) -> Handling:
    """Return the handling by which parties name states of text, and never values of numbers."""
    max_states = Handling().max_states
    return replace(
        handling, names_states=True, max_states=max_states, discretize=2, number_states=1
    )


CONTRACT = Contract(
    "describe",
    (OVERVIEW, POOLED_OVERVIEW, TABLES),
    dimensions,
    ("sums", "states"),
    options=DescribePartyOptions,
    completes=_completed,
    trainings=False,
)
