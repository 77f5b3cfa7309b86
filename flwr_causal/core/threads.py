"""How many threads the linear algebra may use."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def _controller() -> ThreadpoolController:
    # Finding the loaded libraries takes milliseconds; limiting them afterwards takes microseconds.
    return ThreadpoolController()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run the block with one BLAS thread.

    The matrices of this package are small (d x d): threads cost more than they bring, many
    simulated parties on few cores would oversubscribe them, and a sum's rounding would depend on
    the number of cores, so that the same seed gave different digits on different machines.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield
