"""What fitted models answer, such as an effect, and what they say to what they cannot answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flwr_causal.core.threads import SingleThreaded
from flwr_causal.errors import ConfigError

#: The methods that answer questions; a model has some of them.
QUESTIONS = (
    *("total_effect", "possible_effects", "contrast", "contrasts", "do", "response"),
    *("sample", "log_likelihood", "predict", "predict_proba", "conditional", "coefficients"),
    *("mean", "covariance", "residuals", "fit_check", "edge_tests", "disagreement"),
)


def answers(model: Any, question: str) -> bool:
    """Return whether a model, maybe of another package without `can`, answers a question."""
    can = getattr(model, "can", None)
    return hasattr(model, question) if can is None else bool(can(question))


class UnansweredError(ConfigError, AttributeError):
    """A model was asked what it cannot answer; the message says why."""


class Answers(SingleThreaded):
    """Base of fitted models: says which questions a model answers.

    Subclasses say what they are called (``KIND``), and in `_lacks` what one of their answers lacks.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.discrete import random_network
    >>> network = random_network(3, seed=0)
    >>> network.can("do"), network.can("response")
    (True, False)
    """

    KIND: ClassVar[str]

    def can(self, question: str) -> bool:
        """Return whether the model answers a question: the name of a method, such as "do".

        See :meth:`why_not`. Whether values that are given are possible is another matter.
        """
        return not self.why_not(question)

    def why_not(self, question: str) -> str:
        """Return why the model does not answer a question; empty if it does.

        Parameters
        ----------
        question : str
            One of :data:`QUESTIONS`.

        Raises
        ------
        ConfigError
            If there is no such question.
        """
        if question not in QUESTIONS:
            raise ConfigError(f"{question!r} is no question: give one of {', '.join(QUESTIONS)}")
        if not hasattr(type(self), question):
            own = (one for one in QUESTIONS if hasattr(type(self), one) and not self._lacks(one))
            return f"this {self.KIND} has no {question}: it has {', '.join(own)}"
        return self._lacks(question)

    def _lacks(self, question: str) -> str:
        """Return what this model lacks for an answer that others of its class give."""
        return ""

    def _require(self, question: str) -> None:
        """Raise a ConfigError if the model does not answer a question."""
        if reason := self._lacks(question):
            raise ConfigError(reason)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in QUESTIONS:
                raise UnansweredError(self.why_not(name))
            return object.__getattribute__(self, name)


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
    >>> from flwr_causal.core.answers import Effect
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
