"""The decorator of compiled functions: numba's, with the code kept where that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called.

    The machine code is kept beside the module, or in numba's cache directory, so that the processes
    that a node starts for its messages need not compile again. Where neither can be written (a
    read-only installation without a home) each process compiles for itself.
    """
    try:
        return njit(cache=True)(function)  # type: ignore[return-value]
    except RuntimeError:
        return njit(function)  # type: ignore[no-any-return]
