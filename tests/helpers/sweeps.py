"""Sweeps of which `.ci/run` has some cases, and `.ci/nightly` all."""

import pytest


def sweep(cases, kept):
    """Return cases of one argument; those that are not among the kept ones are nightly."""
    return [
        case if case in kept else pytest.param(case, marks=pytest.mark.nightly) for case in cases
    ]
