"""A logistic head and a decision threshold, trained by sums over rows.

The posterior of the class from a product of leaves is overconfident, as it counts information that
leaves share several times. A head gives every leaf a weight (`LogisticHead`); with all weights 1
its posterior is that of the product. For two classes it is logistic regression on the log ratios of
the leaves. The features of a training row are its log densities under leaves that were made without
the row (`Features`). Loss, gradient and Hessian are sums over rows, so every exchange
(`HeadExchange`) is a Newton step for the rows of all parties. Five to nine steps reach the optimum.

The sums are taken by fold of the rows. From those of the last step follow the heads without each
fold (one Newton step from the head of all rows), under which `ChoiceExchange` judges the rows of
the fold: the head is taken where it predicts the class of held-out rows better than the circuit.

`ThresholdExchange` counts rows by class and log odds, under the head or the circuit. From these
counts follows the threshold: the probability from which on the second of two classes is predicted.

The server's side is `fitted_head` and `best_decision`, parts of the trainings of learners.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.contract.when import When
from flwr_causal.core.arrays import symmetric, upper_triangles
from flwr_causal.core.circuits.learners.options import HeadOptions
from flwr_causal.core.circuits.learners.training_by_sums import (
    ROUNDING,
    SumsExchange,
    Trained,
    TrainingBySums,
    impossible,
    miscounted,
    summed_array,
)
from flwr_causal.core.circuits.model import EDGES, LogisticHead, best_threshold, log_odds_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Summing, TrainingPlan

# Rows summed at once.
CHUNK = 4096
# With 1, 2, 3 and 10 the test accuracy is .979, .980, .981 and .979 and the log loss .067, .067,
# .069 and .080 on 20 splits of the breast cancer data (seeds 10 to 29).
PENALTY = 2.0
# Nats, of all rows together: less than half of what one parameter that is only noise gains. The
# step is still taken, so that the objective of the head is within .01 nats of the best.
TOLERANCE = 0.5
# Most Newton steps; on breast cancer, wine, digits and Income five to nine are taken.
MOST_EXCHANGES = 15
# Added to second derivatives, in units of the features: without it they are singular where all rows
# are predicted with certainty.
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class HeadTraining:
    """The state of the training of a head.

    Parameters
    ----------
    head : LogisticHead
        The head at which the next exchange evaluates the loss; final if ``done``.
    penalty : float
        Half of it times the sum of squared weights is added to the loss, each weight in units of
        its feature's standard deviation (of the log ratio for two classes).
    tolerance : float
        The training ends after a step with a smaller gain, in nats.
    most_exchanges : int
        Largest number of exchanges, after which the training ends with the best head so far.
    units : ndarray of float, shape (m,), optional
        Standard deviations of the features; None before the first exchange.
    accepted : LogisticHead, optional
        The best head so far; None before the first exchange.
    objective : float
        Penalised loss of ``accepted``, in nats.
    exchanges : int
        Number of exchanges so far.
    done : bool
        Whether the training has ended.
    without_each : tuple of LogisticHead
        Of the other rows than those of each fold; empty until the training has ended.
    """

    head: LogisticHead
    penalty: float
    tolerance: float
    most_exchanges: int
    units: FloatArray | None = None
    accepted: LogisticHead | None = None
    objective: float = np.inf
    exchanges: int = 0
    done: bool = False
    without_each: tuple[LogisticHead, ...] = ()


def init_head(
    counts: FloatArray,
    num_features: int,
    penalty: float = PENALTY,
    tolerance: float = TOLERANCE,
    most_exchanges: int = MOST_EXCHANGES,
) -> HeadTraining:
    """Return the state before the first exchange: all weights 0.

    Parameters
    ----------
    counts : ndarray of float, shape (C,)
        Rows of each class over all parties.
    num_features : int
    penalty, tolerance, most_exchanges
        See :class:`HeadTraining`.
    """
    with np.errstate(divide="ignore"):
        biases = np.log(counts / counts.sum())
    done = int((counts > 0).sum()) < 2  # one class needs no head
    head = LogisticHead(np.zeros(num_features), biases)
    return HeadTraining(head, penalty, tolerance, most_exchanges, done=done)


def head_sums(
    features: FloatArray,
    classes: IntArray,
    head: LogisticHead,
    folds: IntArray | None = None,
    num_folds: int = 1,
) -> Arrays:
    """Return loss, gradient and Hessian at a head, summed over a party's rows by fold.

    Parameters
    ----------
    features : ndarray of float, shape (n, C, m)
        Log densities under leaves that were made without the row.
    classes : ndarray of int, shape (n,)
    head : LogisticHead
    folds : ndarray of int, shape (n,), optional
        Default: all rows are in fold 0.
    num_folds : int, default 1
        F.

    Returns
    -------
    dict of arrays
        With C' the number of classes that have rows: ``loss`` (F,); ``gradient`` (F, C' + m) and
        the upper triangle of the ``hessian``, for the biases and then the weights; ``count`` (1,),
        ``first`` (C', m) and ``second`` (C', m), sums of the log densities minus their mean over
        the classes and of the squares, for the units of the penalty.
    """
    present = np.flatnonzero(head.biases > -np.inf)
    place = np.zeros(len(head.biases), dtype=np.int64)
    place[present] = np.arange(len(present))
    num_classes, m = len(present), features.shape[2]
    size = num_classes + m
    loss, gradient = np.zeros(num_folds), np.zeros((num_folds, size))
    hessian = np.zeros((num_folds, size, size))
    first, second = np.zeros((num_classes, m)), np.zeros((num_classes, m))
    known = LogisticHead(head.weights, head.biases[present])
    fold_of = np.zeros(len(classes), dtype=np.int64) if folds is None else folds
    for fold in range(num_folds):
        of_fold = np.flatnonzero(fold_of == fold)
        for start in range(0, len(of_fold), CHUNK):
            rows = of_fold[start : start + CHUNK]
            f = features[rows][:, present]
            f = f - f.mean(axis=1, keepdims=True)
            labels = place[classes[rows]]
            index = np.arange(len(f))
            log_p = known.log_posterior(f)
            p = np.exp(log_p)
            loss[fold] -= float(log_p[index, labels].sum())
            error = p.copy()
            error[index, labels] -= 1.0
            gradient[fold, :num_classes] += error.sum(axis=0)
            gradient[fold, num_classes:] += np.einsum("nc,ncm->m", error, f)
            # The Hessian is the covariance under p of (indicators of the class, f), summed.
            design = np.zeros((len(f), num_classes, size))
            design[:, np.arange(num_classes), np.arange(num_classes)] = 1.0
            design[:, :, num_classes:] = f
            design -= np.einsum("nc,ncs->ns", p, design)[:, None]
            design *= np.sqrt(p)[:, :, None]
            flat = design.reshape(-1, size)
            hessian[fold] += flat.T @ flat
            first += f.sum(axis=0)
            second += (f**2).sum(axis=0)
    return {
        "count": np.array([float(len(features))]),
        "loss": loss,
        "gradient": gradient,
        "hessian": upper_triangles(hessian),
        "first": first,
        "second": second,
    }


def head_step(state: HeadTraining, summed: Mapping[str, FloatArray]) -> HeadTraining:
    """Return the state after an exchange: a Newton step, or half the last one if the loss grew."""
    head, exchanges = state.head, state.exchanges + 1
    present = np.flatnonzero(head.biases > -np.inf)
    units = _units(summed, len(present)) if state.units is None else state.units
    objective = float(summed["loss"].sum()) + 0.5 * state.penalty * float(
        ((head.weights * units) ** 2).sum()
    )
    state = replace(state, units=units, exchanges=exchanges)
    ended = exchanges >= state.most_exchanges
    gradients = summed["gradient"]
    hessians = symmetric(summed["hessian"], gradients.shape[-1])
    gradient, hessian = gradients.sum(axis=0), hessians.sum(axis=0)
    following, gain = _newton(head, gradient, hessian, units, state.penalty)
    # The one after this step would gain next to nothing.
    close = gain < state.tolerance
    if ended or close:
        without = (
            _newton(head, gradient - one, hessian - other, units, state.penalty)[0]
            for one, other in zip(gradients, hessians, strict=True)
        )
        state = replace(state, done=True, without_each=tuple(without))
    if state.accepted is not None and objective > state.objective * (1.0 + 1e-12):
        best = state.accepted
        middle = LogisticHead(
            (head.weights + best.weights) / 2.0,
            np.where(head.biases > -np.inf, (head.biases + best.biases) / 2.0, -np.inf),
        )
        return replace(state, head=best if ended else middle, done=ended)
    # A long step is not evaluated any more at the end.
    following = head if ended and not close else following
    return replace(state, head=following, accepted=head, objective=objective)


def _newton(
    head: LogisticHead, gradient: FloatArray, hessian: FloatArray, units: FloatArray, penalty: float
) -> tuple[LogisticHead, float]:
    """Return the head after a Newton step, and about what the step gains, in nats.

    Parameters
    ----------
    head : LogisticHead
    gradient : ndarray of float, shape (C' + m,)
        Of the log loss by the biases of the classes that have rows, and the weights.
    hessian : ndarray of float, shape (C' + m, C' + m)
    units : ndarray of float, shape (m,)
        Standard deviations of the features.
    penalty : float
    """
    present = np.flatnonzero(head.biases > -np.inf)
    free = len(present) - 1  # the first class's bias stays, only differences matter
    scale = np.concatenate((np.ones(free), units))
    curvature = hessian[1:, 1:] / np.outer(scale, scale)
    slope = gradient[1:] / scale
    slope[free:] += penalty * head.weights * units
    index = np.arange(len(scale))
    curvature[index, index] += np.where(index < free, RIDGE, penalty)
    move = np.linalg.solve(curvature, slope)
    biases = head.biases.copy()
    biases[present[1:]] -= move[:free]
    return LogisticHead(head.weights - move[free:] / units, biases), 0.5 * float(slope @ move)


def _units(summed: Mapping[str, FloatArray], num_classes: int) -> FloatArray:
    """Return the units of the features (m,), for two classes the deviation of their log ratio."""
    n = float(summed["count"][0])
    variances = summed["second"] / n - (summed["first"] / n) ** 2
    total = 2.0 / (num_classes - 1) * variances.sum(axis=0)
    # The weight of a leaf that is the same for all classes has no effect.
    return np.sqrt(np.where(total > 1e-20, total, 1.0))


# -- the exchanges --------------------------------------------------------------------------------

HEAD_SENT = (
    Sent("head_weights", "weights of the features", ("features",)),
    Sent("head_biases", "biases of the classes; 0 without rows", ("classes",)),
    Sent("head_present", "1 for a class that has rows, else 0", ("classes",)),
)
HEAD_SUMS = (
    summed_array("count", "rows", (1,), "count"),
    summed_array("loss", "log loss of the head, by fold", ("folds",), "non-negative"),
    summed_array("gradient", "its gradient by biases and weights", ("folds", "parameters")),
    summed_array(
        "hessian", "upper triangle of its second derivatives", ("folds", "parameter pairs")
    ),
    summed_array("first", "log densities, centred over classes", ("present", "features")),
    summed_array("second", "their squares", ("present", "features"), "non-negative"),
)
THRESHOLD_SUMS = (
    summed_array("log_odds", "rows by class and log odds", (2, len(EDGES) + 1), "count"),
)
CHOICE_SENT = (
    Sent("without_weights", "weights of the features without each fold", ("folds", "features")),
    Sent("without_biases", "biases of the classes without each fold", ("folds", "classes")),
    Sent("head_present", "1 for a class that has rows, else 0", ("classes",)),
)
CHOICE_SUMS = (
    summed_array(
        "errors",
        "rows whose class the circuit predicts rightly or wrongly, by the same of the head",
        (2, 2),
        "count",
    ),
    summed_array("losses", "log losses of circuit and head", (2,), "non-negative"),
)
#: Log loss of a row at most, so that sums are finite.
MOST_LOSS = 700.0
#: A difference of errors of this many standard deviations decides whether the head is taken; a
#: smaller one leaves it to the log loss.
CLEAR = 2.0


def head_arrays(head: LogisticHead) -> Arrays:
    """Return a head as finite arrays, which `head_of` reads."""
    present = head.biases > -np.inf
    return {
        "head_weights": head.weights,
        "head_biases": np.where(present, head.biases, 0.0),
        "head_present": present.astype(np.float64),
    }


def head_of(asked: Arrays) -> LogisticHead:
    """Return the head of :func:`head_arrays`."""
    return LogisticHead(
        asked["head_weights"], np.where(asked["head_present"] > 0, asked["head_biases"], -np.inf)
    )


def fold_heads_arrays(heads: tuple[LogisticHead, ...]) -> Arrays:
    """Return the heads without each fold as finite arrays, as `CHOICE_SENT` declares them."""
    biases = np.array([one.biases for one in heads])
    present = biases > -np.inf
    return {
        "without_weights": np.array([one.weights for one in heads]),
        "without_biases": np.where(present, biases, 0.0),
        "head_present": present[0].astype(np.float64),
    }


class Features(ABC):
    """The features that a head weighs. It has no instances.

    Attributes
    ----------
    sent : tuple of Sent
        The arrays from which parties compute the features of their rows.
    num_folds : int
    """

    sent: ClassVar[tuple[Sent, ...]]
    num_folds: ClassVar[int]

    @classmethod
    @abstractmethod
    def of_rows(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> RowFeatures:
        """Return the features of a party's rows, from leaves that were made without their fold."""


class RowFeatures(NamedTuple):
    """Features (n, C, m), classes (n,) and folds (n,) of rows."""

    features: FloatArray
    classes: IntArray
    folds: IntArray


@dataclass(frozen=True)
class HeadChoice:
    """Errors and log losses of circuit and head on held-out rows, and the choice between them.

    Parameters
    ----------
    rows : int
    circuit_errors, head_errors : int
        Rows whose class is not the most probable one.
    circuit_loss, head_loss : float
        Mean log losses of the class, nats a row.
    pays : bool
        Whether the head is taken.
    """

    rows: int
    circuit_errors: int
    head_errors: int
    circuit_loss: float
    head_loss: float
    pays: bool

    @classmethod
    def of(cls, errors: FloatArray, losses: FloatArray) -> HeadChoice:
        """Return the choice: by errors if their difference is clear, else by the log loss.

        Parameters
        ----------
        errors : ndarray of float, shape (2, 2)
            Rows whose class the circuit predicts rightly (0) or wrongly (1), by the same of the
            head.
        losses : ndarray of float, shape (2,)
            Of circuit and head, summed over the rows.
        """
        rows, gain, apart = errors.sum(), errors[1, 0] - errors[0, 1], errors[1, 0] + errors[0, 1]
        clear = abs(gain) > CLEAR * np.sqrt(apart)
        pays = gain > 0 if clear else losses[1] < losses[0]
        circuit, head = losses / max(rows, 1.0)
        return cls(
            int(rows),
            int(errors[1].sum()),
            int(errors[:, 1].sum()),
            float(circuit),
            float(head),
            bool(pays),
        )

    def __str__(self) -> str:
        what = "a logistic head" if self.pays else "the circuit, not a head,"
        return (
            f"{what} predicts the class: on {self.rows} held-out rows the head makes "
            f"{self.head_errors} errors and the circuit {self.circuit_errors}, their log losses "
            f"are {self.head_loss:.3f} and {self.circuit_loss:.3f}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedWithHead(Trained):
    """Trained circuits, and a head and a threshold if they were asked for.

    Parameters
    ----------
    head : LogisticHead, optional
        Default: the circuit predicts the class.
    threshold : float, optional
        Probability from which on the second of two classes is predicted. Default: the more
        probable class is predicted.
    choice_of_head : HeadChoice, optional
        With the option "auto": what the choice between head and circuit is based on.
    """

    head: LogisticHead | None = None
    threshold: float | None = None
    choice_of_head: HeadChoice | None = None


#: Runs whose circuits may have a head.
HAS_HEAD = ~When(head=False)


class ThresholdExchange(SumsExchange):
    """Rows by class and log odds under a head. A subclass defines ``kind``, the features."""

    name = "threshold"
    most = 1
    when = When(decision="macro-f1")
    summed = THRESHOLD_SUMS

    kind: ClassVar[type[Features]]

    def __init_subclass__(cls) -> None:
        cls.sent = (*cls.kind.sent, *HEAD_SENT)

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Count a party's rows by class and log odds."""
        features, classes, _ = cls.kind.of_rows(values, plan, asked)
        return {"log_odds": log_odds_counts(head_of(asked).log_posterior(features), classes)}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield a complaint if the counts contradict the party's rows."""
        yield from miscounted(sums["log_odds"], plan, rows)


class ChoiceExchange(SumsExchange):
    """Errors and log losses of head and circuit on held-out rows.

    A subclass defines ``kind``, the features, and ``circuit_sent`` with `circuit_log_posterior`,
    the posterior of the circuit.
    """

    name = "choice"
    most = 1
    when = When(head="auto")
    summed = CHOICE_SUMS

    kind: ClassVar[type[Features]]
    circuit_sent: ClassVar[tuple[Sent, ...]]

    def __init_subclass__(cls) -> None:
        sent = {one.name: one for one in (*cls.circuit_sent, *cls.kind.sent)}
        cls.sent = (*sent.values(), *CHOICE_SENT)

    @classmethod
    @abstractmethod
    def circuit_log_posterior(
        cls, values: FloatArray, plan: TrainingPlan, asked: Arrays, features: FloatArray
    ) -> FloatArray:
        """Return the log posterior of the class (n, C) of the rows of `Features.of_rows`."""

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Count a party's rows by errors of circuit and head, and sum the log losses."""
        features, classes, folds = cls.kind.of_rows(values, plan, asked)
        biases = np.where(asked["head_present"] > 0, asked["without_biases"], -np.inf)
        posteriors = [
            cls.circuit_log_posterior(values, plan, asked, features),
            np.empty(features.shape[:2]),
        ]
        for fold, head in enumerate(map(LogisticHead, asked["without_weights"], biases)):
            of_fold = folds == fold
            posteriors[1][of_fold] = head.log_posterior(features[of_fold])
        index = np.arange(len(classes))
        wrong = [(one.argmax(axis=1) != classes).astype(np.int64) for one in posteriors]
        errors = np.zeros((2, 2))
        np.add.at(errors, tuple(wrong), 1.0)
        losses = [np.minimum(-one[index, classes], MOST_LOSS).sum() for one in posteriors]
        return {"errors": errors, "losses": np.maximum(losses, 0.0)}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield a complaint if the counts contradict the party's rows."""
        yield from miscounted(sums["errors"], plan, rows)
        # The class of a wrong prediction has at most half of the probability.
        wrong = np.array([sums["errors"][1].sum(), sums["errors"][:, 1].sum()])
        if (sums["losses"] < wrong * np.log(2.0) * (1.0 - ROUNDING)).any():
            yield "its log losses are smaller than its errors allow"


class HeadExchange(SumsExchange):
    """One Newton step of a head. A subclass defines ``kind``, the features."""

    name = "head"
    when = HAS_HEAD
    summed = HEAD_SUMS

    kind: ClassVar[type[Features]]

    def __init_subclass__(cls) -> None:
        cls.sent = (*cls.kind.sent, *HEAD_SENT)

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return loss, gradient and Hessian over a party's rows; see :func:`head_sums`."""
        features, classes, folds = cls.kind.of_rows(values, plan, asked)
        return head_sums(features, classes, head_of(asked), folds, cls.kind.num_folds)

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        present, m = int((asked["head_present"] > 0).sum()), len(asked["head_weights"])
        size = present + m
        return {
            **super().sizes(plan, asked),
            "folds": cls.kind.num_folds,
            "present": present,
            "features": m,
            "parameters": size,
            "parameter pairs": size * (size + 1) // 2,
        }

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows."""
        yield from miscounted(sums["count"], plan, rows)
        yield from impossible(sums["count"], sums["first"], sums["second"])


# -- the server's side ----------------------------------------------------------------------------


class FittedHead(NamedTuple):
    """The head, None where the circuit predicts better, and what the choice is based on."""

    head: LogisticHead | None
    choice: HeadChoice | None


def fitted_head(
    newton: type[HeadExchange],
    choice: type[ChoiceExchange],
    training: HeadTraining,
    features: Arrays,
    circuit: Arrays,
    option: bool | Literal["auto"],
) -> Summing[FittedHead]:
    """Train a head by Newton steps, and compare it with the circuit if the option is "auto".

    Parameters
    ----------
    newton : subclass of HeadExchange
    choice : subclass of ChoiceExchange
    training : HeadTraining
        As `init_head` returns it.
    features, circuit : dict of arrays
        As ``kind.sent`` and ``circuit_sent`` of ``choice`` declare them.
    option : bool or "auto"
        The option ``head``.
    """
    while not training.done:
        summed = yield newton.ask(**features, **head_arrays(training.head))
        training = head_step(training, summed)
    if option != "auto" or not training.without_each:
        return FittedHead(training.head, None)
    sent = circuit | features | fold_heads_arrays(training.without_each)
    summed = yield choice.ask(**sent)
    found = HeadChoice.of(summed["errors"], summed["losses"])
    return FittedHead(training.head if found.pays else None, found)


def best_decision(
    exchange: type[ThresholdExchange], features: Arrays, head: LogisticHead, decision: str
) -> Summing[float | None]:
    """Return the threshold of a head with the best macro F1; None unless this is the decision.

    Parameters
    ----------
    exchange : subclass of ThresholdExchange
    features : dict of arrays
        As ``kind.sent`` of the exchange declares them.
    head : LogisticHead
        The trained head, or the head whose posterior is that of the circuit.
    decision : str
        The option ``decision``.
    """
    two = len(head.biases) == 2 and bool(np.isfinite(head.biases).all())
    if decision != "macro-f1" or not two:
        return None
    summed = yield exchange.ask(**features, **head_arrays(head))
    return float(best_threshold(summed["log_odds"])[0])


class TrainingWithHead(TrainingBySums, HeadOptions):
    """A learner whose training may end with a head and a threshold. A subclass is a dataclass."""

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the density alone; neither head nor threshold is trained."""
        plain = replace(self, head=False, decision="most-probable")
        return TrainingBySums.learn(plain, domain, values, seed)
