"""Products of rows with missing cells: ``missing_values="em"``.

The estimate is that of :mod:`core.blocks.missing`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from flwr_causal.contract.answers import answers
from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.core.blocks.missing import (
    FEWEST_TOGETHER,
    MOST_STEPS,
    TOLERANCE,
    MomentEstimate,
    SeenSums,
    Unrestricted,
    accelerated,
    at_own_level,
    change,
    depends_on,
    effective_rows,
    expected_sums,
    few_together,
    first_estimate,
    levels_of_seen,
    narrowing,
    own_sums,
    regular,
    seen_sums,
)
from flwr_causal.core.interventions.moments import rows_by_variable
from flwr_causal.core.linear.determined import RIDGE
from flwr_causal.core.linear.levels import SeenLevels, about_means, between_units
from flwr_causal.core.linear.moments import columns_of, mean_and_second, pairwise
from flwr_causal.core.words import some
from flwr_causal.data.interventions import acted_on
from flwr_causal.data.series.levels import require_varying
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.second_moments import SCORES, other_sums, sends_levels
from flwr_causal.runtime.algorithm import Ask, Choice
from flwr_causal.sources.levels import named, told
from flwr_causal.sources.products import (
    DesignOptions,
    Products,
    in_new_units,
    products_with_ones,
    require_informing,
    solved_design,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.blocks.missing import Maximisation
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.rows import DesignRows

#: A column is determined by others that leave no more of its variance, of which estimates of
#: missing cells add a part, :data:`~core.linear.determined.RIDGE`.
DETERMINED_SHARE = 10 * RIDGE

SEEN = Exchange(
    "seen",
    "sums over the rows in which two cells are seen, for the first estimate",
    sends=(SCORES,),
    returns=(
        Disclosure(
            "counts",
            "at [i, j] the rows in which the columns i and j are seen, over n_k; under known "
            "interventions those of each set of targets; here and below with weight_column each "
            "row as its weight. With center='auto' or 'party' one array more, at [i, i] whether "
            "the party has such rows, below 0, and the square of their sum by their number",
            ("folds", "w", "w"),
            "non-negative",
            "mean",
        ),
        Disclosure(
            "weights",
            "mean weight and mean squared weight of the rows; 1 and 1 without weight_column",
            (2,),
            "non-negative",
            "mean",
        ),
        Disclosure(
            "sums",
            "at [i, j] the sum of the column i over these rows, over n_k; numbers are centred and "
            "scaled, and a category has a column for each state but one",
            ("folds", "w", "w"),
            "finite",
            "mean",
        ),
        Disclosure(
            "products",
            "at [i, j] the sum of products of the columns i and j over these rows, over n_k",
            ("folds", "w", "w"),
            "finite",
            "mean",
        ),
    ),
    most=1,
    same_parties=True,
    contradiction=other_sums,
)

ESTIMATE = (
    Sent(
        "mean",
        "estimated means of the columns; under known interventions of each set of targets",
        ("sets", "w"),
        exact=True,
    ),
    Sent(
        "second",
        "estimated central second moments of the columns, likewise",
        ("sets", "w", "w"),
        exact=True,
    ),
)
OWN = Exchange(
    "own",
    "each party's second moments by its own estimate, as parties may lack columns",
    sends=(*ESTIMATE, SCORES),
    returns=(
        Disclosure(
            "expected",
            "E[X_k^T X_k | seen cells] / n_k of the rows [1, x], by an estimate from the party's "
            "own rows; 0 at columns that it lacks",
            ("s", "s"),
            "second-moments",
        ),
    ),
    most=1,
    same_parties=True,
)

EXPECTED = Exchange(
    "expected",
    "second moments of the parties' rows, with missing cells as expected from the seen ones",
    sends=(
        *ESTIMATE,
        Sent("levels", "1 if cells are expected with means of the party's own, else 0"),
        SCORES,
    ),
    returns=(
        Disclosure(
            "expected",
            "E[X_k^T X_k | seen cells] / n_k of the rows [1, x], by the estimate; under known "
            "interventions of each set of targets; rows without a seen cell are left out. With "
            "center='auto' or 'party' one array more, the products of the mean of these rows",
            ("folds", "s", "s"),
            "second-moments",
            "mean",
        ),
    ),
    timing="3 to 15 times",
    most=MOST_STEPS,
    same_parties=True,
)


#: How many pairs of columns a warning names.
NAMED_PAIRS = 3


class EstimatedMoments(NamedTuple):
    """Second moments of all parties' rows, with missing cells.

    Parameters
    ----------
    products : ndarray of shape (sets, 1 + w, 1 + w)
        Mean products of the rows [1, x] of centred and scaled columns x, over all rows; under known
        interventions those of each set of targets, summed and divided by the number of all rows.
    together : list of ndarray of shape (w, w)
        For each variable, at [i, j] the rows in which i and j are seen and it is no target.
    num_rows : int
        Of which a cell is seen.
    effective_rows : int
        The mean number of rows that have two columns.
    steps : int
    units : int
        How many parties have had their means taken out; 1: the products are about one mean.
    few_together : ndarray of bool, shape (variables and lags,) * 2
        The pairs of which too few rows have both: no edge between them is looked for.
    under_graph : bool
        Whether the covariances are those of a graph, see :func:`structured`.
    warnings : tuple of str
    """

    products: FloatArray
    together: list[FloatArray]
    num_rows: int
    effective_rows: int
    steps: int
    units: int
    few_together: BoolArray
    under_graph: bool
    warnings: tuple[str, ...]


class CompletedOptions(DesignOptions, Protocol):
    """The options that say how missing cells are expected."""

    @property
    def by_party(self) -> bool:
        """Whether parties send estimates of the columns that they have, which are no sum."""

    @property
    def level_sums(self) -> bool:
        """Whether the sums tell levels of parties apart."""


def completed_products(
    agreement: Agreement, masks: EdgeMasks, options: CompletedOptions
) -> Generator[Step, Any, Products]:
    """Estimate the second moments of rows with missing cells, an exchange a step.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge: under interventions the estimate is restricted by a graph.
    options : CompletedOptions
    """
    design = replace(solved_design(agreement, options), weighted=False)
    levels = "" if agreement.targets or not options.level_sums else options.center
    found = yield from expected_moments(
        agreement, design.blocks, masks, by_party=options.by_party, levels=levels
    )
    own, products = replace(agreement, total=found.effective_rows), found.products
    if not options.takes_blocks:
        own = _of_completed(own, products)
        design = replace(solved_design(own, options), weighted=False)
        # The parties' z is in the agreed standard deviations, and now in the solver's units.
        units = np.tile(np.sqrt(agreement.variance) / design.scale, 1 + options.order)
        products = in_new_units(products, units)
    return Products(
        own,
        design,
        products,
        info={"steps": found.steps, "effective_rows": own.n},
        warnings=found.warnings,
        num_rows=found.num_rows,
        adapted=lambda model: model.with_rows_together(found.together),
        reason=f"the estimate of the moments{' under a graph' * found.under_graph} stands",
        units=found.units,
        seldom=found.few_together,
        determined_share=DETERMINED_SHARE,
    )


def _of_completed(agreement: Agreement, products: FloatArray) -> Agreement:
    """Return the agreement with each variance as it is with the missing cells.

    The means stay: z is centred by them.
    """
    second = mean_and_second(products.sum(axis=0))[1]
    spread = np.diagonal(second)[: len(agreement.names)]
    return replace(agreement, variance=agreement.variance * spread)


def expected_moments(
    agreement: Agreement,
    blocks: Sequence[Variable],
    masks: EdgeMasks,
    *,
    by_party: bool,
    levels: str = "",
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
        :mod:`core.blocks.lacking`. Not under known interventions.
    levels : {"", "auto", "party"}, default ""
        The option ``center`` where it is followed by :mod:`flwr_causal.sources.levels`.

    Raises
    ------
    DataError
        If the first estimate is none, as where a column is constant in the rows that have it, or
        in those that count by their weights, or if levels are taken out as stated, and a column
        varies between parties only.
    """
    # Compiled searches, which a party that imports this module does not need.
    from flwr_causal.core.blocks.lacking import (
        UnderGraph,
        column_sets,
        estimate_of_sets,
        seen_alone,
        structured,
        thin,
    )
    from flwr_causal.core.blocks.missing_interventions import UnderTargets

    replies = yield Ask(SEEN)
    n = agreement.with_rows(replies.rows).n
    # A row counts as its weight times a constant, so that all count as Kish's effective rows.
    weight, square = replies["weights"]
    rows_of_unit = n * float(weight / square)
    of_sets = SeenSums(*(np.asarray(rows_of_unit * replies[one]) for one in SeenSums._fields))
    taken = False
    said: tuple[str, ...] = ()
    if levels:
        of_units = SeenSums(*(part[-1] for part in of_sets))
        of_sets = SeenSums(*(part[:-1] for part in of_sets))
        taken, said = yield from _levels(of_sets, of_units, blocks, stated=levels == "party")
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = tuple(block.name for block in blocks for _ in range(block.width))
        counts, sums, products = (part.sum(axis=0) for part in of_sets)
        informing = pairwise(products, sums, counts)
        require_informing(rows_of_unit * float(weight), columns, *informing)
    # Replies arrive as means over the rows: counts are whole again.
    of_sets = of_sets._replace(counts=np.rint(of_sets.counts))
    seen = SeenSums(*(part.sum(axis=0) for part in of_sets))
    estimate = first_estimate(seen)
    if not np.isfinite(estimate.second).all():
        raise DataError(
            "the columns of the rows with missing cells have no correlations: leave out columns "
            "that hardly vary, or rows with missing_values='drop'"
        )
    widths, d = [block.width for block in blocks], len(agreement.names)
    together = [seen.counts] * d
    dag: BoolArray | None = None
    restrictions: Maximisation = Unrestricted(seen)
    if agreement.targets:
        acted, rows = acted_on(agreement.targets, agreement.names), effective_rows(seen.counts)
        together = rows_by_variable(of_sets.counts, acted)
        restrictions = UnderTargets(acted, widths, agreement.names, masks, rows, seen)
    elif by_party:
        replies = yield Ask(OWN, estimate.for_sets(1)._asdict())
        own = (agreement.rows[party] * sent["expected"] for party, sent in replies.by_party.items())
        alone = seen_alone(seen, widths, masks.required)
        sets = column_sets(own, seen, alone)
        estimate = estimate_of_sets(sets, estimate.without(alone), seen)
        if thin(seen)[np.ix_(~alone, ~alone)].any():
            apart = alone[[columns[0] for columns in columns_of(widths)]]
            allowed = masks.allowed & ~(apart[:, None] | apart)
            dag, estimate = structured(
                sets, estimate, seen, widths, masks._replace(allowed=allowed | masks.required)
            )
            restrictions = UnderGraph(dag, widths)
    begun = estimate.for_sets(len(of_sets.counts))
    found = yield from _iterated(restrictions, begun, n if levels else 0, taken=taken)
    firsts = [columns[0] for columns in columns_of(widths)]
    distinct = {id(own): own for own in together}.values()
    few = np.any([few_together(seen._replace(counts=own)) for own in distinct], axis=0)
    few = (few | few.T)[np.ix_(firsts, firsts)]
    joined = np.zeros_like(few)
    if dag is not None:
        joined = (dag | dag.T) & (seen.counts[np.ix_(firsts, firsts)] == 0)
    share = float(found.products[:, 0, 0].sum())
    rows = effective_rows(seen.counts)
    return EstimatedMoments(
        _of_fewer_rows(found.products / share, rows, found.units),
        together,
        round(n * share / float(weight)),
        max(rows - found.units + 1, 1),
        found.steps,
        found.units,
        few & ~joined,
        dag is not None,
        (
            *said,
            *_not_converged(found.last),
            *_few_together(few & ~joined, blocks),
            *_never_together(joined, blocks),
            *_depending(seen, blocks),
        ),
    )


class _Steps(NamedTuple):
    """The products of the last step, how many there were, and the last change of the estimate.

    With levels also the number of units that have had theirs taken out; else it is 1.
    """

    products: FloatArray
    steps: int
    last: float
    units: int


def _levels(
    of_sets: SeenSums, of_units: SeenSums, blocks: Sequence[Variable], *, stated: bool
) -> Generator[Step, Any, tuple[bool, tuple[str, ...]]]:
    """Return whether levels are taken out, and the warning of levels that differ."""
    counts, sums, squares = (np.diagonal(part.sum(axis=0)) for part in of_sets)
    units, between = np.rint(np.diagonal(of_units.counts)), np.diagonal(of_units.products)
    found = SeenLevels.of(counts, sums, squares, units, between)
    flat = named(blocks, found.flat)
    if stated:
        require_varying(flat, "party")
    apart = bool(found.differ.any())
    taken: bool = yield Choice(lambda: stated or (apart and not flat))
    said = told(blocks, found.shares, found.differ, flat) if apart and not stated else ()
    return taken, said


def _of_fewer_rows(products: FloatArray, rows: int, units: int) -> FloatArray:
    """Return mean products whose central second moments have a row less for each unit but one."""
    if units == 1:
        return products
    mean, second = mean_and_second(products[0])
    return products_with_ones(mean, second * rows / max(rows - units + 1, 1))[None]


def _iterated(
    restrictions: Maximisation, estimate: MomentEstimate, num_rows: int, *, taken: bool
) -> Generator[Step, Any, _Steps]:
    """Repeat the steps until the estimate stands.

    ``num_rows`` is that of all rows where the products of the parties' means are sent too; else 0.
    """
    units = 1
    steps: list[tuple[MomentEstimate, MomentEstimate]] = []
    estimate, number, last = regular(estimate), 0, np.inf
    while number < MOST_STEPS:
        number += 1
        replies = yield Ask(EXPECTED, {**estimate._asdict(), "levels": int(taken)})
        products = replies["expected"]
        if num_rows:
            products, between = products[:-1], products[-1]
            if taken:
                units = max(round(num_rows * float(between[0, 0])), 1)
                products = about_means(products[0], between)[None]
        after = restrictions.step(products)
        steps = [*([] if restrictions.began else steps), (estimate, after)]
        last = change(estimate, after)
        settled = last < TOLERANCE and not narrowing(estimate, after)
        if settled and not restrictions.began:
            break
        estimate = regular(restrictions.restricted(accelerated(steps)))
    return _Steps(products, number, last, units)


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


@answers(SEEN)
def sums_of_seen(rows: DesignRows, asked: Asked) -> Arrays:
    """Return sums over a party's rows in which two cells are seen."""
    sums, weights = [], np.zeros(2)
    for own in rows.rows_by_targets():
        parts = [_parted(rows, one) for one in own]
        sums.append([seen_sums(*part) for part in parts])
        each = [np.ones(len(part)) if of is None else of for part, of in parts]
        weights += [sum(float((of**power).sum()) for of in each) for power in (1, 2)]
    total = np.sum(sums, axis=0)
    if sends_levels(rows.setup):
        total = np.concatenate([total, [levels_of_seen(SeenSums(*total[0]))]])
    means = total / rows.num_rows
    return {**SeenSums(*np.swapaxes(means, 0, 1))._asdict(), "weights": weights / rows.num_rows}


@answers(OWN)
def own_products(rows: DesignRows, asked: Asked) -> Arrays:
    """Return a party's products by an estimate from its own rows.

    Raises
    ------
    FederationError
        As of :func:`estimate_of`.
    """
    own, weights = _parted(rows, np.concatenate(list(rows.sum_rows())))
    return {"expected": own_sums(own, estimate_of(asked).of_set(0), weights) / rows.num_rows}


@answers(EXPECTED)
def expected_products(rows: DesignRows, asked: Asked) -> Arrays:
    """Return a party's products with missing cells as expected by the estimate.

    Raises
    ------
    FederationError
        As of :func:`estimate_of`.
    """
    estimate = estimate_of(asked)
    if asked["levels"]:
        first = estimate.of_set(0)
        estimate = at_own_level(np.concatenate([*rows.sum_rows()]), first).for_sets(1)

    def expected(one: FloatArray, number: int) -> FloatArray:
        own, weights = _parted(rows, one)
        return expected_sums(own, estimate.of_set(number), weights)

    parts = (
        np.array([expected(one, k) for k, one in enumerate(own)]) for own in rows.rows_by_targets()
    )
    sums = reduce(np.add, parts)
    if sends_levels(rows.setup):
        sums = np.concatenate([sums, between_units(sums[:, 0, 1:], sums[:, 0, 0])[None]])
    return {"expected": sums / rows.num_rows}


def _parted(party: DesignRows, rows: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return a party's rows without their weights, and the weights; None where it has none."""
    return (rows[:, 1:], rows[:, 0]) if party.options.weighted else (rows, None)


def estimate_of(asked: Asked) -> MomentEstimate:
    """Return the estimate that the server sent.

    Raises
    ------
    FederationError
        If it is none: its second moments are not positive definite.
    """
    estimate = MomentEstimate(asked["mean"], asked["second"])
    second = estimate.second
    if not (np.linalg.eigvalsh(second) > 0).all() or (second != second.swapaxes(1, 2)).any():
        raise FederationError("The second moments that the server sent are none of any rows.")
    return estimate
