"""The log of what clients raise: a mistake in a client's code is shown once, not once a party."""

from __future__ import annotations

from collections import deque
from logging import ERROR
from traceback import extract_tb
from typing import TYPE_CHECKING

from flwr.supercore import log

from flwr_causal.protocol.schema import party_name

if TYPE_CHECKING:
    from flwr.app import Context

_logged: deque[tuple[int, str, str, int | None]] = deque(maxlen=100)


def log_raised(context: Context, error: Exception) -> None:
    """Log an exception with its traceback, if none of this kind and place was in this run.

    Parameters
    ----------
    context : Context
        That of the node whose app has raised it.
    error : Exception
    """
    place = extract_tb(error.__traceback__)[-1]
    mistake = (context.run_id, type(error).__name__, place.filename, place.lineno)
    if mistake not in _logged:
        _logged.append(mistake)
        log(ERROR, "The ClientApp of %s raised an exception", party_name(context), exc_info=error)
