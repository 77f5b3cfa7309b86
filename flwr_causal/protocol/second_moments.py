"""Second moments of centred and scaled rows, compared with the party's own report.

Where variables are blocks of columns (:mod:`core.blocks.design`), the rows are [1, z].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.design import Number, functions_of, variables_of, widths_of
from flwr_causal.core.linear.moments import columns_of, data_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.blocks.design import Variable
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


def spreads(setup: Setup) -> FloatArray:
    """Return bounds of the root mean squares of the design's m columns over all rows, shape (m,).

    Of the variables they are the agreed standard deviations, after scaling; the lags of a variable
    may be larger, by the values before the first row.
    """
    d = len(setup.names)
    options: LinearPartyOptions = setup.options
    own = np.ones(d) if options.standardize else np.sqrt(setup.variance)
    return np.concatenate([own, *[LAGS_ROOM * own] * options.lags])


def largest_products(setup: Setup) -> FloatArray:
    """Return bounds of the mean products of the design's columns, by Cauchy and Schwarz.

    Under known interventions a column of ones is before the design.
    """
    own = spreads(setup)
    own = np.concatenate([np.ones(1), own]) if setup.targets else own
    return np.outer(own, own)


def largest_leveled_products(setup: Setup) -> FloatArray | None:
    """Return the same where the rows of time series are [1, g, z], with g of 0 or 1.

    Of functions of the columns no bound is known.
    """
    options: LinearPartyOptions = setup.options
    if options.additive:
        return None
    if setup.targets or not options.lags:
        return largest_products(setup)
    own = np.concatenate([np.ones(2), spreads(setup)])
    return np.outer(own, own)


def largest_weights(setup: Setup) -> FloatArray:
    """Return bounds of weights of the design's columns on the variables, shape (m, d).

    Weights of standardised columns hardly exceed 1. Under known interventions the last row is
    intercepts.
    """
    options: LinearPartyOptions = setup.options
    own = spreads(setup)
    causes = own
    if setup.targets:
        unit = 1.0 if options.standardize else np.sqrt(data_scale(setup.variance))
        causes = np.concatenate([own, [unit]])
    return WEIGHTS_ROOM * np.outer(1 / causes, own[: len(setup.names)])


def other_variances(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether the diagonal of ``moments`` differs from the variances that were reported.

    Without lags the mean squares of a party's centred and scaled rows follow from its means and
    sums of squares in the schema exchange. The diagonal of REFIT holds every variable too.

    Parameters
    ----------
    arrays : dict
        ``moments`` of shape (folds, d, d), with targets (groups, 1 + d, 1 + d); of another width
        nothing is compared.
    known : ReplyContext
        Of resampled rows nothing is compared.

    Returns
    -------
    str
        The first column that differs, in words; "" if none does.
    """
    if known.resampled:
        return ""
    setup = known.setup
    options: LinearPartyOptions = setup.options
    diagonal = np.diagonal(arrays["moments"], axis1=-2, axis2=-1).sum(axis=0)
    if setup.targets:
        # The rows are [1, x].
        diagonal = diagonal[1:]
    if len(diagonal) != len(setup.names):
        return ""
    return wrong_squares(diagonal, setup.names, known, standardized=options.standardize)


def wrong_squares(
    squares: FloatArray, names: Sequence[str], known: ReplyContext, *, standardized: bool
) -> str:
    """Return whether the mean squares of columns are not those that follow from the report.

    Parameters
    ----------
    squares : ndarray of shape (d',)
        Of the centred rows, with secure sums those of a share of them.
    names : sequence of str
        The columns, which have sums in the report.
    known : ReplyContext
    standardized : bool
        Whether the rows were divided by the columns' standard deviations.

    Returns
    -------
    str
        The first column that differs, in words; "" if none does.
    """
    setup, report = known.setup, known.report
    options: LinearPartyOptions = setup.options
    if not report.has_sums or not len(names):
        return ""
    columns = {column.name: column for column in report.columns}
    reported = [columns[name] for name in names]
    places = [setup.names.index(name) for name in names]
    agreed_mean, agreed_variance = setup.mean[places], setup.variance[places]
    # Missing cells add nothing.
    facts = [(one.mean, report.rows_with(one), one.squares, one.remainder) for one in reported]
    mean, rows, total, remainder = np.array(facts, dtype=np.float64).T
    held, expected, shift = rows / report.rows, total / report.rows, remainder / report.rows
    # A sum of n equal numbers may be wrong by n roundings.
    error = np.finfo(np.float64).eps * max(report.rows, FEWEST_ROWS)
    rounding = (error * mean) ** 2
    if options.center == "party":
        expected = expected - shift**2
    else:
        offset = mean - agreed_mean
        expected = expected + 2 * offset * shift + held * offset**2
        rounding = rounding + (error * agreed_mean) ** 2
    scale = agreed_variance if standardized else np.ones(len(mean))
    expected, rounding = expected / scale, rounding / scale
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


def blocks_of(setup: Setup) -> tuple[Variable, ...]:
    """Return the variables of an agreement as blocks of columns."""
    functions = functions_of(setup.options.model)
    return variables_of(setup.names, setup.states, setup.mean, setup.variance, functions)


def num_block_columns(setup: Setup) -> int:
    """Return the number of columns of all blocks and their lags, which follows from the states."""
    states = setup.states or ((),) * len(setup.names)
    lags: int = setup.options.lags
    return (1 + lags) * sum(widths_of(states, functions_of(setup.options.model)))


def largest_block_products(setup: Setup) -> FloatArray:
    """Return bounds of the mean products of the rows of all parties, shape (s, s)."""
    own = np.ones(1 + num_block_columns(setup))
    own[1 + (len(own) - 1) // (1 + setup.options.lags) :] = LAGS_ROOM
    return np.outer(own, own)


def impossible_products(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether the products of a party's rows cannot be, or differ from its report.

    Parameters
    ----------
    arrays : dict
        ``moments`` of shape (1, s, s), in units of n.
    known : ReplyContext
        Of resampled rows no number is compared with the report.

    Returns
    -------
    str
        The first variable that is wrong, in words; "" if none is.
    """
    blocks = blocks_of(known.setup)
    moments = arrays["moments"].sum(axis=0)
    rows = float(moments[0, 0])
    error = RELATIVE * max(rows, 0.0)
    squares: dict[str, float] = {}
    for block, columns in zip(blocks, columns_of([one.width for one in blocks]), strict=True):
        shares = moments[0, 1 + columns]
        own = moments[np.ix_(1 + columns, 1 + columns)]
        if isinstance(block, Number):
            squares[block.name] = own[0, 0]
            continue
        other = np.abs(own - np.diag(shares)).max(initial=0.0) > error
        if other or shares.min(initial=0.0) < -error or shares.sum() > rows + error:
            return f"the products of the states of '{block.name}' are not those of counts of rows"
    if known.resampled:
        return ""
    return wrong_squares(np.array([*squares.values()]), [*squares], known, standardized=True)


def other_sums(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether sums over seen cells differ from what the party reported.

    Parameters
    ----------
    arrays : dict
        ``counts`` and ``products`` of shape (folds, s, s), in units of n.
    known : ReplyContext
        Of resampled rows nothing is compared.

    Returns
    -------
    str
        The first column that differs, in words; "" if none does.
    """
    report, blocks = known.report, blocks_of(known.setup)
    if known.resampled or not report.has_sums:
        return ""
    columns = {column.name: column for column in report.columns}
    share = min(known.sizes["n"] / report.rows, 1.0)
    counts, products = arrays["counts"].sum(axis=0), arrays["products"].sum(axis=0)
    squares: dict[str, float] = {}
    for block, places in zip(blocks, columns_of([one.width for one in blocks]), strict=True):
        if not isinstance(block, Number):
            continue
        name, first = block.name, places[0]
        held = report.rows_with(columns[name]) / report.rows if name in columns else 0.0
        excess = share * float(counts[first, first]) - held
        if (excess if share < 1 else abs(excess)) > RELATIVE * held:
            return f"the column '{name}' has values in other rows than the party reported"
        if name in columns:
            squares[name] = float(products[first, first])
    return wrong_squares(np.array([*squares.values()]), [*squares], known, standardized=True)
