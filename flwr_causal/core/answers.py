"""What a fitted model answers, and what it says to a question that it cannot answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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
