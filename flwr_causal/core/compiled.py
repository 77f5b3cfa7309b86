"""The decorators of compiled functions: numba's, with the code kept where that is possible."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from numba import njit
from numba.core import event

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., object])

logger = logging.getLogger("flwr_causal")


def compiled(function: Function) -> Function:
    """Compile a function when it is first called.

    The machine code is kept beside the module, or in numba's cache directory, so that the processes
    that a node starts for its messages need not compile again. Where neither can be written (a
    read-only installation without a home) each process compiles for itself.
    """
    return _cached(function, {})


def compiled_in_place(function: Function) -> Function:
    """Compile a function that makes no array, as :func:`compiled` does, in less time.

    All arrays come from the caller: without arrays of its own the code need not count references.
    Division by zero is no error, as in numpy.
    """
    return _cached(function, {"_nrt": False, "error_model": "numpy"})


def compiled_inside(function: Function) -> Function:
    """Compile a function of :func:`compiled_in_place` that only compiled functions call.

    Python cannot call it: unpacking the arguments of Python's calls takes long to compile.
    """
    return _cached(function, {"_nrt": False, "error_model": "numpy", "no_cpython_wrapper": True})


def _cached(function: Function, options: dict[str, Any]) -> Function:
    # Without an entry for callers in C there is less to compile.
    options = {"no_cfunc_wrapper": True, **options}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return njit(**options)(function)  # type: ignore[no-any-return]


class _Notice(event.Listener):
    """Say once in a process that functions are being compiled, before it takes its time."""

    said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"]
        if self.said or not function.py_func.__module__.startswith("flwr_causal."):
            return
        self.said = True
        place = getattr(function._cache, "cache_path", None)
        kept = (
            f"once in this environment; the machine code is kept in {place}"
            if place
            else "in each process, since no directory for the machine code can be written; "
            "NUMBA_CACHE_DIR names one"
        )
        logger.info(
            "Compiling %s and what it needs: some seconds, %s",
            function.py_func.__module__,
            kept,
        )

    def on_end(self, event: Any) -> None:
        """Nothing is said at the end."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
