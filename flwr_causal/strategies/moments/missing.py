"""Second moments of rows with missing cells: Moments with ``missing_values="em"``.

The estimate is that of :mod:`core.blocks.missing`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.blocks.lacking import (
    column_sets,
    estimate_of_sets,
    fitted,
    structured,
)
from flwr_causal.core.blocks.missing import (
    FEWEST_TOGETHER,
    MOST_STEPS,
    TOLERANCE,
    MomentEstimate,
    SeenSums,
    accelerated,
    change,
    completed,
    depends_on,
    effective_rows,
    few_together,
    first_estimate,
    stepped,
)
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.words import some
from flwr_causal.errors import DataError
from flwr_causal.protocol.moments import EXPECTED, OWN, SEEN
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.strategies.linear import divisors
from flwr_causal.strategies.moments.outcome import PooledMoments, products_with_ones

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step

#: How many pairs of columns a warning names.
NAMED_PAIRS = 3


class EstimatedMoments(NamedTuple):
    """Second moments of all parties' rows, with missing cells.

    Parameters
    ----------
    estimate : MomentEstimate
        Of the centred and scaled columns.
    together : ndarray of shape (d, d)
        At [i, j] the rows in which i and j are seen.
    num_rows : int
        Of which a cell is seen.
    steps : int
    few_together : ndarray of bool, shape (variables, variables)
        The pairs of which too few rows have both: no edge between them is looked for.
    warnings : tuple of str
    """

    estimate: MomentEstimate
    together: FloatArray
    num_rows: int
    steps: int
    few_together: BoolArray
    warnings: tuple[str, ...]

    @property
    def effective_rows(self) -> int:
        """The mean number of rows that have two columns."""
        return effective_rows(self.together)


def completed_moments(
    agreement: Agreement,
    masks: EdgeMasks,
    blocks: Sequence[Variable],
    *,
    takes_blocks: bool,
    by_party: bool,
    standardize: bool,
) -> Generator[Step, Any, PooledMoments]:
    """Estimate the second moments of rows with missing cells, an exchange a step.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Edges between variables that too few rows have together are taken out.
    blocks : sequence of Variable
        The variables and their lags.
    takes_blocks : bool
        Whether the solver takes blocks of columns, in their own units.
    by_party : bool
        Whether parties send their own estimates, see :func:`expected_moments`.
    standardize : bool
    """
    found = yield from expected_moments(agreement, blocks, masks, by_party=by_party)
    mean, second = found.estimate
    own = replace(agreement, total=found.effective_rows)
    if takes_blocks:
        products = products_with_ones(mean, second)
    else:
        d, spread = len(agreement.names), np.sqrt(agreement.variance)
        own = replace(own, variance=agreement.variance * np.diagonal(second)[:d])
        units = np.resize(spread / divisors(own.variance, standardize), len(mean))
        products = second * np.outer(units, units)
        if len(blocks) > d:
            products = products_with_ones(mean * units, products, 2)
        else:
            own = replace(own, mean=agreement.mean + spread * mean)
    return PooledMoments(
        own,
        masks._replace(allowed=masks.allowed & ~found.few_together | masks.required),
        products[None],
        info={"steps": found.steps, "effective_rows": own.n},
        warnings=found.warnings,
        num_rows=found.num_rows,
        adapted=lambda model: model.with_rows_together(found.together),
        reason="the estimate of the moments stands",
    )


def expected_moments(
    agreement: Agreement, blocks: Sequence[Variable], masks: EdgeMasks, *, by_party: bool
) -> Generator[Step, Any, EstimatedMoments]:
    """Estimate the second moments by expectation-maximisation, an exchange a step.

    Parameters
    ----------
    agreement : Agreement
    blocks : sequence of Variable
        The variables, whose columns the moments are of.
    masks : EdgeMasks
        Background knowledge over the variables.
    by_party : bool
        Whether parties may lack columns, and send their own estimates: see
        :mod:`core.blocks.lacking`.

    Raises
    ------
    DataError
        If the first estimate is none, as where a column is constant in the rows that have it.
    """
    replies = yield Ask(SEEN)
    n = agreement.with_rows(replies.rows).n
    seen = SeenSums(*(np.asarray(n * replies[name]) for name in SeenSums._fields))
    estimate = first_estimate(seen)
    if not np.isfinite(estimate.second).all():
        raise DataError(
            "the columns of the rows with missing cells have no correlations: leave out columns "
            "that hardly vary, or rows with missing_values='drop'"
        )
    widths = [block.width for block in blocks]
    dag: BoolArray | None = None
    if by_party:
        replies = yield Ask(OWN, estimate._asdict())
        rows = agreement.rows
        own = (rows[party] * sent["expected"] for party, sent in replies.by_party.items())
        sets = column_sets(own, seen)
        estimate = estimate_of_sets(sets, estimate, seen)
        if any(len(one.columns) < sum(widths) for one in sets):
            dag, estimate = structured(sets, estimate, seen, widths, masks)
    steps: list[tuple[MomentEstimate, MomentEstimate]] = []
    while len(steps) < MOST_STEPS:
        replies = yield Ask(EXPECTED, estimate._asdict())
        led = stepped(replies["expected"])
        after = completed(led, seen) if dag is None else fitted(dag, led, widths)
        steps.append((estimate, after))
        if change(estimate, after) < TOLERANCE:
            break
        estimate = accelerated(steps)
        estimate = estimate if dag is None else fitted(dag, estimate, widths)
    last = change(*steps[-1])
    firsts = [columns[0] for columns in columns_of(widths)]
    both = np.ix_(firsts, firsts)
    few, found = few_together(seen)[both], np.zeros((len(blocks),) * 2, dtype=np.bool_)
    if dag is not None:
        found = (dag | dag.T) & (seen.counts[both] == 0)
    return EstimatedMoments(
        after if dag is None else led,
        seen.counts,
        round(n * float(replies["expected"][0, 0])),
        len(steps),
        few & ~found,
        (
            *_not_converged(last),
            *_few_together(few & ~found, blocks),
            *_never_together(found, blocks),
            *_depending(seen, blocks),
        ),
    )


def _not_converged(last: float) -> list[str]:
    if last < TOLERANCE:
        return []
    return [
        f"The moments of the rows with missing cells changed by {last:.2g} standard deviations in "
        f"the last of {MOST_STEPS} steps: too little is seen of some columns together. Leave out "
        "columns that few rows have."
    ]


def _named(pairs: IntArray, blocks: Sequence[Variable]) -> list[tuple[str, str]]:
    """Return the variables of pairs of columns, each pair of variables once."""
    names = [block.name for block in blocks for _ in range(block.width)]
    return list(dict.fromkeys((names[i], names[j]) for i, j in pairs if names[i] != names[j]))


def _few_together(few: BoolArray, blocks: Sequence[Variable]) -> list[str]:
    pairs, listed = _pairs(few, blocks)
    if not pairs:
        return []
    return [
        f"Too few rows, fewer than {FEWEST_TOGETHER}, have both columns of {pairs} pairs: "
        f"{listed}. No edge between them is looked for."
    ]


def _never_together(found: BoolArray, blocks: Sequence[Variable]) -> list[str]:
    pairs, listed = _pairs(found, blocks)
    if not pairs:
        return []
    return [
        f"No row has both columns of {pairs} pairs that may be joined by an edge: {listed}. Such "
        "an edge follows from what other columns have in common with both: check it on rows that "
        "have both."
    ]


def _pairs(marked: BoolArray, blocks: Sequence[Variable]) -> tuple[int, str]:
    """Return the number of pairs of variables that are marked, and names of the first ones."""
    pairs = [f"{blocks[i].name!r} and {blocks[j].name!r}" for i, j in np.argwhere(np.triu(marked))]
    return len(pairs), some(pairs, NAMED_PAIRS)


def _depending(seen: SeenSums, blocks: Sequence[Variable]) -> list[str]:
    pairs = _named(depends_on(seen), blocks)
    if not pairs:
        return []
    listed = some([f"{missing!r} on {cause!r}" for cause, missing in pairs], NAMED_PAIRS)
    return [
        f"Whether a cell is missing depends on seen columns: {listed}. The estimate allows for "
        "that, and 'drop' does not; where it depends on the missing value itself, neither does."
    ]
