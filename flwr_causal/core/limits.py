"""Limits of a solver's work: its time, its steps, and the size of the numbers it computes with.

A solver calls :func:`check_deadline` once an iteration. Who calls the solver may install a check
with :func:`deadline`; it raises once the time is up. This package has no clock of its own.

A loop that goes on as long as something improves runs over :func:`steps`, which ends it with a
warning where rounding would let it go on for ever. Who calls the solver may take the warnings with
:func:`noting`. A long loop over things that are known beforehand runs over :func:`each`. Of both
the check of the deadline can say by :func:`in_progress` how far they are.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from numpy.typing import NDArray

ThingT = TypeVar("ThingT")

#: The largest absolute value that is computed with: a sum of a million of its squares stays below
#: the values that solvers report for an objective that overflows (1e100). Sums of squares of
#: columns in units of 1e20 are smaller.
LARGEST = 1e45
#: The smallest sum of squares of a column that varies: sums of all parties keep 15 digits of it,
#: secure sums too, whose last digit is 2^-352 (1e-106).
SMALLEST = 1e-90
#: The most entries of the arrays that a party makes for one answer, beside those of its rows.
MOST_ENTRIES = 2**28
#: Halvings that take any finite float to exactly 0.
MOST_HALVINGS = 2200
#: Steps of a search for each of its variables, and rounds over all of them, that no search makes
#: whose scores are known up to rounding: they end after a few.
MOST_STEPS = 1000


def _no_deadline() -> None:
    pass


_check: ContextVar[Callable[[], None]] = ContextVar("_check", default=_no_deadline)


class Work(NamedTuple):
    """How far a loop is.

    Parameters
    ----------
    name : str
        What it does.
    step : int
        The number of its present step, from 1.
    of : int or None
        How many there are; None of a loop that ends by itself.
    """

    name: str
    step: int
    of: int | None

    def __str__(self) -> str:
        return f"{self.name}, {self.step} of {self.of}" if self.of else f"{self.name}, {self.step}"


# The loops that are under way in the block of a deadline, from the outer to the inner one.
_works: ContextVar[list[Work] | None] = ContextVar("_works", default=None)


def in_progress() -> str:
    """Return the loops that are under way, with their steps, from the outer to the inner one."""
    return ": ".join(map(str, _works.get() or ()))


@contextmanager
def deadline(check: Callable[[], None]) -> Iterator[None]:
    """Let all solvers that the block calls call ``check`` once an iteration.

    Parameters
    ----------
    check : callable
        Raises what is to end the work, when its time is up.
    """
    token, works = _check.set(check), _works.set([])
    try:
        yield
    finally:
        _check.reset(token)
        _works.reset(works)


def check_deadline() -> None:
    """Raise if the caller of the solver has set a deadline that has passed.

    Compiled code cannot call it: there the number of iterations is bounded, and the check is made
    between two calls.
    """
    _check.get()()


def _warn(warning: str) -> None:
    warnings.warn(warning, RuntimeWarning, stacklevel=4)


_note: ContextVar[Callable[[str], None]] = ContextVar("_note", default=_warn)


@contextmanager
def noting(note: Callable[[str], None]) -> Iterator[None]:
    """Let all solvers that the block calls give their warnings to ``note``.

    Parameters
    ----------
    note : callable
        Takes a sentence or more for the user. Default, outside of any such block: a
        ``RuntimeWarning``.
    """
    token = _note.set(note)
    try:
        yield
    finally:
        _note.reset(token)


def steps(work: str, most: int) -> Iterator[int]:
    """Count the steps of a loop that ends by itself; end it after ``most`` steps, with a warning.

    The deadline is checked before each step.

    Parameters
    ----------
    work : str
        What the loop does, as the subject of the warning.
    most : int
        More than any loop needs in which each step is better than the one before by more than
        rounding (:mod:`flwr_causal.core.ties`), such as :data:`MOST_STEPS`.

    Yields
    ------
    int
        The number of the step, from 0.
    """
    yield from _counted(work, range(most), None)
    _note.get()(
        f"{work} was ended after {most:,} steps, its limit, though its last step still changed "
        "something: the result may not be the best one. Leave out columns that nearly follow from "
        "others, such as sums, copies, or shares of a whole."
    )


def each(work: str, things: Collection[ThingT]) -> Iterator[ThingT]:
    """Yield things one after the other; the deadline is checked before each.

    Parameters
    ----------
    work : str
        What the loop does, for those who wait.
    things : collection
    """
    return _counted(work, things, len(things))


def _counted(work: str, things: Iterable[ThingT], of: int | None) -> Iterator[ThingT]:
    works = _works.get()
    works = [] if works is None else works
    depth = len(works)
    try:
        for step, thing in enumerate(things, start=1):
            works[depth:] = [Work(work, step, of)]
            check_deadline()
            yield thing
    finally:  # also where the loop is left early
        del works[depth:]


def require_computable(what: str, values: NDArray[np.float64] | float) -> None:
    """Raise a DataError if a value is not finite or larger than `LARGEST`.

    Parameters
    ----------
    what : str
        What the values are, for the message.
    values : ndarray of float64, or float
    """
    largest = float(np.max(np.abs(values), initial=0.0))  # NaN, if there is one
    if not largest <= LARGEST:
        raise DataError(
            f"{what} reach {largest:.3g}, which is too large to be computed with (at most "
            f"{LARGEST:g}): check the units of the columns at the parties"
        )


def require_room(what: str, entries: float) -> None:
    """Raise a DataError before more than `MOST_ENTRIES` entries are made.

    Parameters
    ----------
    what : str
        What they are entries of, for the message.
    entries : float
        How many.
    """
    if not entries <= MOST_ENTRIES:
        raise DataError(
            f"{what} have {entries:.3g} entries together; at most {MOST_ENTRIES} are made at a "
            "time: ask for fewer or smaller ones, as with a lower option 'max_parents'"
        )


def least_eigenvalue(second: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Return second moments, shape (d, d), with eigenvalues below ``least`` raised to it."""
    values, vectors = np.linalg.eigh(second)
    raised = (vectors * np.maximum(values, least)) @ vectors.T
    return np.asarray((raised + raised.T) / 2)
