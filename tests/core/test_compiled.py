"""Compiled functions where the machine code can be kept, and where it cannot."""

import importlib

import numba
import pytest

from flwr_causal.core import compiled
from flwr_causal.core.ges import cpdag


def twice(x):
    return 2 * x


def test_kernels_keep_their_code():
    """A process of a real node answers one message: it must not compile anew."""
    assert cpdag.open_path._cache is not None
    assert type(cpdag.open_path._cache).__name__ != "NullCache"
    assert compiled.compiled(twice)(3) == 6


def test_without_a_place_to_keep_it_the_code_is_compiled_all_the_same(monkeypatch):
    real = numba.njit

    def nowhere(*arguments, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'twice': no locator available")
        return real(*arguments, **options)

    monkeypatch.setattr(numba, "njit", nowhere)
    module = importlib.reload(compiled)
    try:
        assert module.compiled(twice)(3) == 6
    finally:
        monkeypatch.undo()
        importlib.reload(compiled)


@pytest.mark.parametrize("value", [1, 2.5])
def test_a_compiled_function_is_the_function(value):
    assert compiled.compiled(twice)(value) == twice(value)
