"""The form of names, and foreign texts as they are shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.words import (
    MOST_OF_NAME,
    by_reason,
    fault_of_name,
    is_invisible,
    one_form,
    printable,
)

TEXTS = st.text(st.characters(), max_size=40)


@pytest.mark.parametrize(
    "name",
    [
        "age",
        "Alter in Jahren",
        "Größe",
        "µg/l",
        "年齢",
        "a\u00a0b",
        "\u0633\u0646\u200c\u0628",
        "🙂",
    ],
)
def test_names_in_use_have_the_form(name):
    assert fault_of_name(name) == ""
    assert printable(name) == name


@pytest.mark.parametrize(
    "sign",
    [
        "\n",
        "\r",
        "\0",
        "\x1b",
        "\x7f",
        "\x85",
        "\u2066",
        "\ufeff",
        "\ud800",
        "\u200b",
        "\u2028",
        "\u2029",
        "\u202e",
    ],
)
def test_signals_are_no_part_of_names_and_are_written_by_their_number(sign):
    assert fault_of_name(f"a{sign}b") == "has characters that do not print, or ends of lines"
    assert printable(f"a{sign}b") == f"a{sign.encode('unicode_escape').decode()}b"


def test_names_have_a_length_and_one_form():
    assert fault_of_name("") == "has 0 letters; it must have 1 to 500"
    assert fault_of_name("é" * MOST_OF_NAME) == ""
    assert fault_of_name("é" * (MOST_OF_NAME + 1)).startswith("has 501 letters")
    assert "NFC" in fault_of_name("e\u0301")


@given(TEXTS)
def test_a_name_of_the_form_is_shown_as_it_is(name):
    if not fault_of_name(name):
        assert printable(name) == name
        assert unicodedata.normalize("NFC", name) == name


@given(TEXTS, st.integers(2, 60))
def test_a_foreign_text_is_one_short_line_and_written_once(text, most):
    shown = printable(text, most)
    assert len(shown.splitlines()) <= 1
    assert not any(is_invisible(one) and one not in "\u200c\u200d" for one in shown)
    assert len(shown) <= most + 7
    assert printable(shown, most) == shown
    shown.encode()


def test_of_a_long_text_both_ends_are_shown():
    assert printable("a" + "b" * 100_000 + "c", 10) == "abbbb [...] bbbbc"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("age", "age"),
        ("  a  b ", "  a  b "),
        ("dose\n(mg)", "dose (mg)"),
        ("dose \r\n (mg)\n", "dose (mg)"),
        ("a\tb\u2028c", "a b c"),
        ("a\u0302ge", "\u00e2ge"),
        ("a\u200bb", "a\u200bb"),  # what cannot be seen is an error, not a blank
    ],
)
def test_names_of_tables_are_in_one_form_and_on_one_line(text, name):
    assert one_form(text) == name == one_form(one_form(text))


def test_a_reason_that_several_have_is_given_once():
    reasons = {f"p{k}": "no answer" for k in range(14)} | {"q": "no table"}
    one, other = by_reason(reasons)
    assert one == "p0, p1, p2, p3, p4 and 9 more: no answer"
    assert other == "q: no table"
