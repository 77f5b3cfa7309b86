"""Settings of the whole process that several threads share; the limit on BLAS threads."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator, contextmanager
from functools import cache, cached_property
from inspect import isfunction
from threading import Lock
from typing import TYPE_CHECKING, Any

from threadpoolctl import OpenBLASController, ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class SharedSetting(ContextDecorator):
    """A setting of the process that holds as long as any thread is in a block with it.

    The first block sets it and the last one takes it back. If each block did both, the end of one
    would end the setting of the others, and blocks that overlap would leave it behind. The object
    is the context of every block, and decorates functions.

    Parameters
    ----------
    make : callable
        Returns the context that has the setting.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._lock = Lock()
        self._blocks = 0

    @property
    def holds(self) -> bool:
        """Whether a thread is in a block."""
        return self._blocks > 0

    def __enter__(self) -> None:
        """Begin a block."""
        with self._lock:
            if not self._blocks:
                self._context = self._make()
                self._context.__enter__()
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        """End a block."""
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                self._context.__exit__(None, None, None)


@cache
def _controller(with_scipy: bool) -> ThreadpoolController:
    # Finding the loaded libraries takes milliseconds; limiting them afterwards takes microseconds.
    return ThreadpoolController()


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    _let_any_thread_set()
    # SciPy has a BLAS library of its own.
    limiter = _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        # Maybe in another thread than that of the first block.
        _let_any_thread_set()
        limiter.restore_original_limits()
        _let_any_thread_set()


def _let_any_thread_set() -> None:
    """Let this thread set the limit: from version 3.8 on, threadpoolctl lets the first one only."""
    if (clear := getattr(OpenBLASController, "clear_controlling_thread", None)) is not None:
        clear(force=True)


_one_thread = SharedSetting(_one_blas_thread)


def single_threaded() -> SharedSetting:
    """Run the block, or the decorated function, with one BLAS thread.

    The matrices of this package are small (d x d), so that several threads are slower than one, and
    many simulated parties would compete for few cores. With several threads the rounding of a sum
    would also depend on the number of cores, and the same seed would give different digits on
    different machines.
    """
    return _one_thread


class SingleThreaded:
    """Base of graphs, models and runs: their public methods run with one BLAS thread.

    So do their cached properties.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if name.startswith("_"):
                continue
            if isfunction(member):
                setattr(cls, name, _one_thread(member))
            elif isinstance(member, classmethod):
                setattr(cls, name, classmethod(_one_thread(member.__func__)))
            elif isinstance(member, cached_property):
                member.func = _one_thread(member.func)
