"""What all trainings by sums share: a request to all parties, their sums, and the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FloatArray = NDArray[np.float64]
Arrays = dict[str, FloatArray]
StateT = TypeVar("StateT")


class Request(NamedTuple):
    """What the server asks of every party alike.

    Parameters
    ----------
    phase : str
        Which sums.
    arrays : dict of arrays
        What a party needs to know for them; finite, as what it answers.
    """

    phase: str
    arrays: Arrays


def add(replies: Iterable[Mapping[str, FloatArray]]) -> Arrays:
    """Add up replies, entry by entry."""
    total: Arrays = {}
    for reply in replies:
        for name, array in reply.items():
            total[name] = total[name] + array if name in total else array
    return total


def exchanged(
    state: StateT,
    parties: Sequence[FloatArray],
    plan: Any,
    *,
    request: Callable[[StateT], Request | None],
    sums: Callable[[FloatArray, Any, Request], Arrays],
    step: Callable[[StateT, Mapping[str, FloatArray]], StateT],
) -> StateT:
    """Return the state once nothing is left to ask, the parties being in one process.

    Parameters
    ----------
    state : StateT
        Before the first exchange.
    parties : sequence of arrays
        Values of each.
    plan : object
        What all have agreed on.
    request, sums, step : callable
        Of the training: what the server asks, a party answers, and the server makes of the total.
    """
    while (asked := request(state)) is not None:
        state = step(state, add(sums(values, plan, asked) for values in parties))
    return state
