"""Decorators of compiled functions (numba's, with the machine code cached), and bit operations.

Loops over rows and graphs are compiled: :func:`compiled` on small functions of arrays, with named
tuples of arrays for state; :func:`compiled_in_place` where the caller brings all arrays, which
compiles in less time; :func:`inlined` on a helper with one caller, which else is compiled again
with it. A literal 0 as an argument is a type of its own to numba and compiles the callee again:
write ``np.int64(0)``.

The machine code is kept in ``__pycache__``, or in numba's cache directory if that cannot be
written (``NUMBA_CACHE_DIR`` names another one). A function is compiled again when its own file
changes, not when a function that it calls changes in another file: after editing a kernel that
others call, run ``find flwr_causal -name "*.nb[ic]" -delete``. The first call in an environment
logs that it compiles. Only the modules that need numba or torch import them, so that nodes of
other methods start faster.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., object])

logger = logging.getLogger("flwr_causal")

# The entry point for callers in C is left out: it takes time to compile, too.
_NO_CALLERS_IN_C: dict[str, Any] = {"no_cfunc_wrapper": True}
_IN_PLACE: dict[str, Any] = {**_NO_CALLERS_IN_C, "_nrt": False, "error_model": "numpy"}


def compiled(function: Function) -> Function:
    """Compile a function when it is first called.

    The machine code is kept beside the module or in numba's cache directory, so that the process
    that a node starts for each message need not compile again. Where neither directory can be
    written (a read-only installation without a home), each process compiles for itself.
    """
    return _cached(function, _NO_CALLERS_IN_C)


def compiled_in_place(function: Function) -> Function:
    """Compile a function that creates no arrays: as :func:`compiled`, in less time.

    The caller passes all arrays, those for intermediate results included, so that the code need not
    count references. Division by zero gives infinity or NaN, as in numpy, not an exception.
    """
    return _cached(function, _IN_PLACE)


def compiled_inside(function: Function) -> Function:
    """Compile a function as :func:`compiled_in_place` does, for calls from compiled code only.

    Python cannot call it: the code that unpacks the arguments of a Python call is left out, since
    it takes long to compile. Its machine code is in that of its callers, and is kept with theirs.
    """
    options = {**_IN_PLACE, "no_cpython_wrapper": True}
    return njit(**options)(function)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Copy the statements of a function into the one compiled function that calls it.

    Machine code is optimized again in every caller, and in the callers of these, with all that it
    calls: a level of calls less saves that time where the callees are long. A function with several
    calls would be copied as many times.
    """
    return njit(inline="always")(function)  # type: ignore[return-value]


def _cached(function: Function, options: dict[str, Any]) -> Function:
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return njit(**options)(function)  # type: ignore[no-any-return]


def _count_ones(typing_context: Any, word: Any) -> Any:
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)])
        return builder.call(function, arguments)

    return signature, generate


def _lowest_one(typing_context: Any, word: Any) -> Any:
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


# Bit operations of compiled functions, one instruction each. Of a uint64 word: the number of ones,
# and the position of the lowest one (64 if there is none).
count_ones: Any = intrinsic(_count_ones)
lowest_one: Any = intrinsic(_lowest_one)


class _Compiling(event.Listener):
    """Log the first compilation in a process; collect no garbage while functions are compiled.

    Compilation makes millions of objects: collections would take a tenth of its time. Numba
    compiles in one thread at a time.
    """

    said = False
    depth = 0
    collects = True

    def on_start(self, event: Any) -> None:
        """Log the first compilation; collect no garbage until the outermost one ends."""
        function = event.data["dispatcher"]
        if not _is_own(function):
            return
        if not self.depth:
            self.collects = gc.isenabled()
            gc.disable()
        self.depth += 1
        if self.said:
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
        """Collect garbage again, if that was so before."""
        if not _is_own(event.data["dispatcher"]):
            return
        self.depth -= 1
        if self.collects and not self.depth:
            gc.enable()


def _is_own(function: Any) -> bool:
    return bool(function.py_func.__module__.startswith("flwr_causal."))


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]
