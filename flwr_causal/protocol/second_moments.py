"""Second moments of centred and scaled rows, compared with the party's own report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.moments import data_scale

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.exchange import ReplyContext
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
    setup, report = known.setup, known.report
    options: LinearPartyOptions = setup.options
    diagonal = np.diagonal(arrays["moments"], axis1=-2, axis2=-1).sum(axis=0)
    if setup.targets:
        # The rows are [1, x].
        diagonal = diagonal[1:]
    if not report.has_sums or len(diagonal) != len(setup.names):
        return ""
    columns = {column.name: column for column in report.columns}
    reported = [columns[name] for name in setup.names]
    mean = np.array([column.mean for column in reported])
    expected = np.array([column.squares for column in reported]) / report.rows
    shift = np.array([column.remainder for column in reported]) / report.rows
    # A sum of n equal numbers may be wrong by n roundings.
    error = np.finfo(np.float64).eps * max(report.rows, FEWEST_ROWS)
    rounding = (error * mean) ** 2
    if options.center == "party":
        expected = expected - shift**2
    else:
        offset = mean - setup.mean
        expected = expected + 2 * offset * shift + offset**2
        rounding = rounding + (error * setup.mean) ** 2
    scale = setup.variance if options.standardize else np.ones(len(mean))
    expected, rounding = expected / scale, rounding / scale
    # Of a secure sum that lacks parties, and where groups of few rows are left out, squares of all
    # rows are an upper bound only.
    share = min(known.sizes["n"] / report.rows, 1.0)
    excess = share * diagonal - expected
    below = share < 1 or (setup.targets and setup.small.withheld > 0)
    wrong = (excess if below else np.abs(excess)) > RELATIVE * expected + rounding
    if not wrong.any():
        return ""
    first = int(np.argmax(wrong))
    return (
        f"the mean square of the column '{setup.names[first]}' is not the one that the party "
        "reported in the schema exchange; its table may have changed since"
    )
