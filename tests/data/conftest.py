import pytest


@pytest.fixture
def write(tmp_path):
    """A function that writes a text to a file of the test, and returns its path."""

    def write(text, name="party.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write
