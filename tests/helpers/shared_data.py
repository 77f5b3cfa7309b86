"""Measurement data that lie beside the project and are no part of it."""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def needs_shared_data(test):
    """Mark a test that reads `DATA`, and skip it where that is not there."""
    skip = pytest.mark.skipif(not DATA.is_dir(), reason=f"no measurement data at {DATA}")
    return pytest.mark.shared(skip(test))
