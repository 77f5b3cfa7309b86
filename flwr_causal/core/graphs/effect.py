"""The total effect of one variable on another, as the models of all kinds return it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError


class Effect(NamedTuple):
    """How much an intervention on the cause changes the effect on average.

    The standard error and the interval hold for a graph that was known beforehand: they do not
    contain the uncertainty of a graph that was found in the same rows.

    Attributes
    ----------
    value
        The estimate: the change of the effect for each unit of the cause in linear models, the
        change of a probability in Bayesian networks. Exactly 0, with standard error 0, where the
        graph has no directed path from the cause to the effect.
    standard_error
        Its estimated standard deviation over samples of the same size.
    interval
        The confidence interval, lower and upper end.
    adjustment_set
        The variables that were adjusted for. None where the estimate is no adjustment: it is 0 by
        the graph, or combines the effects along all directed paths.

    Examples
    --------
    >>> from flwr_causal.core.graphs.effect import Effect
    >>> effect = Effect(-4.0, 0.5, (-5.0, -3.0), ("age",))
    >>> effect.interval[1] < 0
    True
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    adjustment_set: tuple[str, ...] | None


#: The effect where the graph has no directed path.
NO_EFFECT = Effect(0.0, 0.0, (0.0, 0.0), None)


def estimated(
    value: float,
    standard_error: float,
    level: float,
    degrees: float = np.inf,
    adjustment_set: tuple[str, ...] | None = None,
) -> Effect:
    """Return an effect with the interval of Student's t distribution, or the normal one.

    Parameters
    ----------
    value, standard_error, adjustment_set
        See `Effect`.
    level
        Probability with which the interval contains the true effect, between 0 and 1.
    degrees
        Degrees of freedom. Default: the normal distribution.

    Raises
    ------
    ConfigError
        If the level is not between 0 and 1.
    """
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ConfigError(f"level is {level}: expected a probability between 0 and 1, such as 0.95")
    half = float(stdtrit(degrees, 0.5 + level / 2)) * standard_error
    return Effect(value, standard_error, (value - half, value + half), adjustment_set)
