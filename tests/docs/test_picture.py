"""The README's picture of a page is that of its example."""

import picture
import pytest

MOST_BYTES = 150_000


@pytest.mark.slow
def test_the_picture_of_the_page_says_what_the_example_says_today(tmp_path):
    """If not: python tools/picture.py."""
    pytest.importorskip("PIL")
    file = picture.PICTURES / picture.PAGE
    picture.example("", tmp_path)
    assert picture.words_in(file) == picture.words_of(tmp_path / "page.html")
    assert file.stat().st_size < MOST_BYTES
    readme = (picture.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"docs/pictures/{picture.PAGE}" in readme
