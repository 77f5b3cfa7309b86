"""Limit on the number of BLAS threads."""

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

    The matrices of this package are small (d x d), so that several threads are slower than one, and
    many simulated parties would compete for few cores. With several threads the rounding of a sum
    would also depend on the number of cores, and the same seed would give different digits on
    different machines.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield
