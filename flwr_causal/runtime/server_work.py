"""The server's own work: on one thread, and for a limited time."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from logging import INFO
from traceback import extract_tb
from typing import TYPE_CHECKING

import numpy as np
from flwr.supercore import log

from flwr_causal.core.limits import deadline, in_progress
from flwr_causal.errors import DeadlineError, FederationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_causal.runtime.method import CausalMethod

#: After so many seconds the log says how far a step is, then each time that this has doubled, and
#: at least after so many more.
SECONDS_TO_LINE, MOST_SECONDS_TO_LINE = 15.0, 600.0
#: A watcher is told how far a step is, once in so many seconds.
SECONDS_TO_WATCHER = 0.5

_watcher: ContextVar[Callable[[str], None] | None] = ContextVar("_watcher", default=None)


@contextmanager
def watching(tell: Callable[[str], None]) -> Iterator[None]:
    """Let the server's work within the block say by ``tell`` how far it is, beside the log."""
    token = _watcher.set(tell)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def server_work(method: CausalMethod, step: str) -> Iterator[None]:
    """Run the block as a step of the server, for at most ``server_timeout`` seconds, an option.

    Of long work the log says what is done, of how much and since when.
    Work that ends without another check of the time is not interrupted: its result is complete.

    Parameters
    ----------
    method : CausalMethod
    step : str
        What the server does, for the message.

    Raises
    ------
    DeadlineError
        By the first solver that checks the time after it is up.
    FederationError
        If numbers overflow or a system of equations is singular where no solver expects it.
    """
    began = time.monotonic()
    ends, tell = began + method.options.server_timeout, _watcher.get()
    line, told = began + SECONDS_TO_LINE, began

    def check() -> None:
        nonlocal line, told
        now = time.monotonic()
        if now >= line:
            line = now + min(now - began, MOST_SECONDS_TO_LINE)
            log(INFO, "%s", _so_far(step, now - began))
        if tell is not None and now >= told + SECONDS_TO_WATCHER:
            told = now
            tell(_so_far("the server computes", now - began))
        if now > ends:
            raise DeadlineError(
                f"{step}: the server's own work has taken more than "
                f"{method.options.server_timeout:g} seconds, the option 'server_timeout'. "
                "What was done before is kept: a run with 'output_dir' goes on with "
                "resume=True and more seconds. Or make the problem "
                "smaller: fewer variables, a larger sparsity, fewer parents or lags."
            )

    try:
        with deadline(check):
            yield
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        place, name = extract_tb(error.__traceback__)[-1], type(method).__name__
        own = type(method).__module__.partition(".")[0] == "flwr_causal"
        what = (
            f"the server cannot compute with what the parties sent ({error}). Check"
            if own
            else f"{name} raised a {type(error).__name__} ({error}) in line {place.lineno} of "
            f"{place.filename}. Correct the method; where it is right, check"
        )
        raise FederationError(
            f"{step}: {what} the units of the columns at the parties, and leave out columns that "
            "follow from others."
        ) from error


def _so_far(step: str, seconds: float) -> str:
    """Return how far a step is, in words."""
    return ": ".join(filter(None, [f"{step}, for {seconds:.0f} s", in_progress()]))
