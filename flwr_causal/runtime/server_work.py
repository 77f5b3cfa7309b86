"""The server's own work: on one thread, and for a limited time."""

from __future__ import annotations

import time
from contextlib import contextmanager
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.limits import deadline
from flwr_causal.errors import DeadlineError, FederationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.runtime.method import Method


@contextmanager
def server_work(method: Method[Any], step: str) -> Iterator[None]:
    """Run the block as a step of the server, for at most ``server_timeout`` seconds, an option.

    Work that ends without another check of the time is not interrupted: its result is complete.

    Parameters
    ----------
    method : Method
    step : str
        What the server does, for the message.

    Raises
    ------
    DeadlineError
        By the first solver that checks the time after it is up.
    FederationError
        If numbers overflow or a system of equations is singular where no solver expects it.
    """
    ends = time.monotonic() + method.options.server_timeout

    def check() -> None:
        if time.monotonic() > ends:
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
