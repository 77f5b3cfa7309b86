"""Products of the rows [1, z] of a design, compared with the party's own report.

:mod:`core.blocks.design` says what z is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.blocks.design import Design, Number, widths_of
from flwr_causal.core.linear.levels import about_one_mean
from flwr_causal.core.linear.moments import columns_of, data_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.options import LinearPartyOptions
    from flwr_causal.protocol.setup import Setup

# How much larger than those of x_t, in standard deviations, the values of its lags may be, which
# begin p steps earlier; and how much larger than a standardised weight of 1 a weight may be.
LAGS_ROOM, WEIGHTS_ROOM = 2.0**10, 2.0**20
# Means, variances and products are computed in different orders, and may travel as float32.
RELATIVE = 1e-3
# Rounding errors of a mean, relative to its size: at least that of a hundred rows added one by one.
FEWEST_ROWS = 100
#: By how much the mean of ones may differ from 1, in half precision.
OF_ONES = 1e-2
#: Bound of the root mean square of normal scores, which is about 1 over all rows.
OF_SCORES = 2.0

#: With the requests of sums, where numbers are normal scores.
SCORES = Sent(
    "scores",
    "with scale='normal-scores': the normal score of each cell between the points of the grid, "
    "from which a party interpolates those of its rows",
    ("d", "cells"),
    optional=True,
    exact=True,
)


def sent_design(setup: Setup) -> Design:
    """Return the design whose z the party sends.

    Normal scores have mean 0 and variance 1; which they are is not known here.
    """
    options: LinearPartyOptions = setup.options
    functions = options.functions
    mean, variance = setup.mean, setup.variance
    if options.scores:
        mean, variance = np.zeros(len(mean)), np.ones(len(variance))
    # Missing cells are completed by correlations; the server restores the solver's units.
    standardized = options.standardize or setup.handling.missing_values == "em"
    # An agreement has states exactly where variables are blocks of columns.
    return Design.of(
        setup.names,
        mean,
        variance,
        setup.states,
        functions=functions,
        standardized=standardized or functions > 1 or bool(setup.states),
        order=options.lags,
        marked=options.center == "phase",
        weighted=options.weighted,
    )


def sends_levels(setup: Setup) -> bool:
    """Return whether the products of the rows are within units, with those of their means.

    Not under known interventions, which move levels.
    """
    options: LinearPartyOptions = setup.options
    return options.levels and not setup.targets


def num_columns(setup: Setup) -> int:
    """Return s, the number of columns of z: it follows from options and states, before any mean.

    Sums of weighted rows have their roots and weights as columns. Missing cells are expected
    without them.
    """
    options: LinearPartyOptions = setup.options
    states = setup.states or ((),) * len(setup.names)
    marks = int(options.center == "phase")
    if setup.handling.missing_values != "em":
        marks += 2 * options.weighted
    return marks + (1 + options.lags) * sum(widths_of(states, options.functions))


def largest_columns(setup: Setup) -> FloatArray:
    """Return bounds of the root mean squares of the columns of the rows [1, z], shape (1 + s,).

    A column's root mean square over all rows is at most the agreed standard deviation, in units of
    the design, or 1 for columns of states and functions; the lags of a variable may be larger, by
    the values before the first row.
    """
    options: LinearPartyOptions = setup.options
    design, spread = sent_design(setup), np.sqrt(setup.variance)
    if options.scores:
        spread = np.full(len(spread), OF_SCORES)
    now = np.concatenate(
        [
            [own / block.scale]
            if isinstance(block, Number) and block.width == 1
            # Functions but the first one are at most 1, which has variance 1.
            else np.ones(block.width)
            for block, own in zip(design.variables, spread, strict=True)
        ]
    )
    return np.concatenate([np.ones(1 + design.marked), now, *[LAGS_ROOM * now] * design.order])


def largest_sums(setup: Setup) -> FloatArray | None:
    """Return bounds of the mean products of the rows [1, z], by Cauchy and Schwarz.

    None where rows have weights, of which no largest one is known: secure sums of them are exact.
    """
    if sent_design(setup).weighted:
        return None
    own = largest_columns(setup)
    return np.outer(own, own)


def largest_weights(setup: Setup) -> FloatArray:
    """Return bounds of weights of the m columns, without a mark, on the variables, shape (m, d).

    Weights of standardised columns hardly exceed 1. Under known interventions the last row is
    intercepts.
    """
    options: LinearPartyOptions = setup.options
    own = largest_columns(setup)[1 + sent_design(setup).marked :]
    causes = own
    if setup.targets:
        unit = 1.0 if options.standardize else np.sqrt(data_scale(setup.variance))
        causes = np.concatenate([own, [unit]])
    return WEIGHTS_ROOM * np.outer(1 / causes, own[: len(setup.names)])


def wrong_squares(
    squares: FloatArray, names: Sequence[str], known: ReplyContext, *, own: bool = False
) -> str:
    """Return whether the mean squares of columns are not those that follow from the report.

    Parameters
    ----------
    squares : ndarray of shape (d',)
        Of the centred rows, in the units of the data; with secure sums those of a share of them.
    names : sequence of str
        The columns, which have sums in the report.
    known : ReplyContext
    own : bool, default False
        Whether the rows are centred by the party's own means.

    Returns
    -------
    str
        The first column that differs, in words; "" if none does.
    """
    setup, report = known.setup, known.report
    options: LinearPartyOptions = setup.options
    # Of normal scores a report says nothing.
    if not report.has_sums or not len(names) or options.scores:
        return ""
    columns = {column.name: column for column in report.columns}
    reported = [columns[name] for name in names]
    places = [setup.names.index(name) for name in names]
    agreed_mean = setup.mean[places]
    # Missing cells add nothing.
    facts = [(one.mean, report.rows_with(one), one.squares, one.remainder) for one in reported]
    mean, rows, total, remainder = np.array(facts, dtype=np.float64).T
    held, expected, shift = rows / report.rows, total / report.rows, remainder / report.rows
    # A sum of n equal numbers may be wrong by n roundings.
    error = np.finfo(np.float64).eps * max(report.rows, FEWEST_ROWS)
    rounding = (error * mean) ** 2
    if own or (options.center == "party" and not options.levels):
        expected = expected - shift**2
    else:
        offset = mean - agreed_mean
        expected = expected + 2 * offset * shift + held * offset**2
        rounding = rounding + (error * agreed_mean) ** 2
    # Of a secure sum that lacks parties, and where groups of few rows are left out, squares of all
    # rows are an upper bound only.
    share = min(known.sizes["n"] / report.rows, 1.0)
    excess = share * squares - expected
    below = share < 1 or (setup.targets and setup.small.withheld > 0)
    wrong = (excess if below else np.abs(excess)) > RELATIVE * expected + rounding
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    return (
        f"the mean square of the column '{names[first]}' is not the one that the party "
        "reported in the schema exchange; its table may have changed since"
    )


def impossible_products(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether the products of a party's rows cannot be, or differ from its report.

    Parameters
    ----------
    arrays : dict
        ``moments`` of the rows [1, z], shape (sets, 1 + s, 1 + s) or (1 + s, 1 + s), divided by the
        number of rows. Of series the sets of all rows may be followed by those of fewer lags. With
        levels two arrays, see :func:`core.linear.levels.unit_products`.
    known : ReplyContext
        Of resampled rows no number is compared with the report.

    Returns
    -------
    str
        The first variable that is wrong, in words; "" if none is.
    """
    setup, moments = known.setup, arrays["moments"]
    design = sent_design(setup)
    if moments.ndim == 3 and sends_levels(setup):
        if not -OF_ONES <= moments[0, 0, 0] <= 1 + OF_ONES:
            return "the products within parties are not those of rows about their mean"
        if wrong := _other_products_within(moments[0], known):
            return wrong
        moments = about_one_mean(moments)
    else:
        every = moments.reshape(-1, *moments.shape[-2:])
        moments = every[: num_sets(setup)].sum(axis=0)
    rows = float(moments[0, 0])
    left_out = bool(setup.targets) and setup.small.withheld > 0
    if rows - 1 > OF_ONES or (1 - rows > OF_ONES and not left_out):
        return "the products are not means over rows that begin with 1"
    if design.weighted:
        none = not moments[2, 2] > 0
        if none and left_out:
            return ""
        if none or abs(moments[1, 1] - moments[0, 2]) > RELATIVE * moments[0, 2]:
            return "the products are not those of rows with weights"
        moments = design.effective(moments, moments)
        rows = float(moments[0, 0])
    moments = design.without_mark(moments)
    error = RELATIVE * max(rows, 0.0)
    squares: dict[str, float] = {}
    for block, columns in zip(design.variables, columns_of(design.widths), strict=False):
        shares = moments[0, 1 + columns]
        own = moments[np.ix_(1 + columns, 1 + columns)]
        if isinstance(block, Number):
            squares[block.name] = own[0, 0] * block.scale**2
            continue
        other = np.abs(own - np.diag(shares)).max(initial=0.0) > error
        if other or shares.min(initial=0.0) < -error or shares.sum() > rows + error:
            return f"the products of the states of '{block.name}' are not those of counts of rows"
    # Series that are centred by their own means report no squares about the agreed ones, and
    # reports know of no weights.
    own_levels = setup.options.center in ("series", "phase")
    if known.resampled or own_levels or design.weighted:
        return ""
    return wrong_squares(np.array([*squares.values()]), [*squares], known)


def _other_products_within(within: FloatArray, known: ReplyContext) -> str:
    """Return whether squares about the mean of a party's rows differ from its report, in words."""
    setup = known.setup
    if known.resampled or setup.options.lags or round(known.sizes["n"] * (1 - within[0, 0])) != 1:
        return ""
    design = sent_design(setup)
    squares = {
        block.name: within[1 + columns[0], 1 + columns[0]] * block.scale**2
        for block, columns in zip(design.variables, columns_of(design.widths), strict=True)
        if isinstance(block, Number)
    }
    return wrong_squares(np.array([*squares.values()]), [*squares], known, own=True)


def num_sets(setup: Setup) -> int:
    """Return the number of sets of rows whose products a party sends, which have all its rows.

    Rows are divided by their targets under known interventions, or into folds where something is
    chosen by held-out error.
    """
    options: LinearPartyOptions = setup.options
    return len(setup.targets) or options.folds


def other_sums(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether sums over seen cells differ from what the party reported.

    Parameters
    ----------
    arrays : dict
        ``counts`` and ``products`` of shape (sets, s, s), in units of n, which those of levels may
        follow; ``weights`` of shape (2,).
    known : ReplyContext
        Of resampled rows, and of rows with weights, nothing is compared.

    Returns
    -------
    str
        The first column that differs, in words; "" if none does.
    """
    report, design = known.report, sent_design(known.setup)
    if design.weighted:
        return ""
    if (np.abs(arrays["weights"] - 1) > OF_ONES).any():
        return "the rows have weights, and the run has none"
    share = min(known.sizes["n"] / max(report.rows, 1), 1.0)
    if known.resampled or not report.has_sums:
        more = share * arrays["counts"][: num_sets(known.setup)].max() > 1 + OF_ONES
        return "two cells are seen in more rows than there are" if more else ""
    columns = {column.name: column for column in report.columns}
    sets = slice(None, -1 if sends_levels(known.setup) else None)
    counts, products = (arrays[name][sets].sum(axis=0) for name in ("counts", "products"))
    squares: dict[str, float] = {}
    for block, places in zip(design.variables, columns_of(design.widths), strict=False):
        if not isinstance(block, Number):
            continue
        name, first = block.name, places[0]
        held = report.rows_with(columns[name]) / report.rows if name in columns else 0.0
        excess = share * float(counts[first, first]) - held
        if (excess if share < 1 else abs(excess)) > RELATIVE * held:
            return f"the column '{name}' has values in other rows than the party reported"
        if name in columns:
            squares[name] = float(products[first, first]) * block.scale**2
    return wrong_squares(np.array([*squares.values()]), [*squares], known)


def other_counts(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether counts of rows up to points descend, or are of more rows than there are.

    Parameters
    ----------
    arrays : dict
        ``counts`` of shape (d, cells).
    known : ReplyContext
    """
    counts = arrays["counts"].astype(np.int64)
    wrong = (np.diff(counts, axis=1) < 0).any(axis=1) | (counts[:, -1] > known.sizes["n"])
    if not wrong.any():
        return ""
    name = known.setup.names[int(np.argmax(wrong))]
    return f"the counts of rows of the column '{name}' descend, or are of more rows than there are"
