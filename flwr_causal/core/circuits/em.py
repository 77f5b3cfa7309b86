"""Expectation maximisation: the loop of all circuits that are trained by it.

A learner gives the expectation, the maximisation and, where it is to end by itself, the objective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ParametersT = TypeVar("ParametersT")
CountsT = TypeVar("CountsT")
AskedT = TypeVar("AskedT")


class EMResult(NamedTuple, Generic[ParametersT]):
    """The result of EM.

    Parameters
    ----------
    parameters : object
    objectives : tuple of float
        Before the first step and after each; empty where no objective was given.
    """

    parameters: ParametersT
    objectives: tuple[float, ...]


def expectation_maximisation(
    start: ParametersT,
    expectation: Callable[[ParametersT, int], Generator[AskedT, Any, CountsT]],
    maximisation: Callable[[ParametersT, CountsT, int], ParametersT],
    *,
    steps: int,
    objective: Callable[[ParametersT, CountsT], float] | None = None,
    tolerance: float = 0.0,
) -> Generator[AskedT, Any, EMResult[ParametersT]]:
    """Alternate expectation and maximisation.

    Parameters
    ----------
    start : object
        The first parameters.
    expectation : callable
        Takes parameters and the number of the step, from 0, and returns a generator that yields
        what it asks the parties and returns the expected counts; see `local`.
    maximisation : callable
        Takes parameters, the expected counts under them and the number of the step, and returns
        the next parameters.
    steps : int
        Largest number of steps.
    objective : callable, optional
        Takes parameters and the expected counts under them. Default: all steps are taken, and
        nothing is expected under the last parameters.
    tolerance : float, default 0
        EM ends after a step by which the objective grows by less.
    """
    parameters, objectives = start, list[float]()
    for step in range(steps if objective is None else steps + 1):
        check_deadline()
        counts = yield from expectation(parameters, step)
        if objective is not None:
            objectives.append(objective(parameters, counts))
            gained = objectives[-1] - objectives[-2] if step else tolerance
            if step == steps or gained < tolerance:
                break
        parameters = maximisation(parameters, counts, step)
    return EMResult(parameters, tuple(objectives))


def local(
    start: ParametersT,
    expectation: Callable[[ParametersT, int], CountsT],
    maximisation: Callable[[ParametersT, CountsT, int], ParametersT],
    **options: Any,
) -> EMResult[ParametersT]:
    """Return what EM finds with rows that are all here: ``expectation`` returns the counts itself.

    Parameters are those of `expectation_maximisation`.
    """

    def counted(parameters: ParametersT, step: int) -> Generator[None, None, CountsT]:
        yield from ()
        return expectation(parameters, step)

    loop = expectation_maximisation(start, counted, maximisation, **options)
    while True:
        try:
            next(loop)
        except StopIteration as end:
            fitted: EMResult[ParametersT] = end.value
            return fitted
