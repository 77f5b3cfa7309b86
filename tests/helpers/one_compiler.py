"""Numba compiles each function in one of several processes, which share the cache beside it."""

import fcntl
from functools import wraps
from pathlib import Path

from numba.core.dispatcher import Dispatcher

import flwr_causal

PACKAGE = Path(flwr_causal.__file__).parent


def install_locks():
    """Lock a function's source file while it is compiled, or read from the cache.

    A function calls those of its own module and of modules that its module imports, and imports
    have no circles: no two processes wait for each other.
    """
    compiled, held = Dispatcher.compile, set()

    @wraps(compiled)
    def compiled_once(dispatcher, signature):
        path = Path(dispatcher.py_func.__code__.co_filename)
        if path in held or not path.is_relative_to(PACKAGE):
            return compiled(dispatcher, signature)
        with path.open("rb") as source:
            fcntl.flock(source, fcntl.LOCK_EX)
            held.add(path)
            try:
                return compiled(dispatcher, signature)
            finally:
                held.discard(path)

    Dispatcher.compile = compiled_once
