"""Options as data: bounds in words, and the way of a dataclass through plain values."""

from dataclasses import dataclass, field, replace

import pytest

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.options import Bounds, as_text, check_bounds, from_plain, to_plain, within
from flwr_causal.errors import ConfigError


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        (Bounds(least=0), [0, 7.5], [-1e-9], "0 or more"),
        (Bounds(least=1, most=10**6), [1, 10**6], [0, 10**6 + 1], "from 1 to 1000000"),
        (Bounds(above=0), [1e-9], [0, -1], "above 0"),
        (Bounds(above=0, most=1), [1e-9, 1], [0, 1.1], "above 0, at most 1"),
        (Bounds(least=0, below=1), [0, 0.99], [1, -0.1], "from 0 to below 1"),
        (Bounds(most=3), [3, -9], [4], "at most 3"),
        (Bounds(below=3), [2], [3], "below 3"),
    ],
)
def test_bounds(bounds, inside, outside, words):
    assert str(bounds) == words
    assert all(map(bounds.hold, inside))
    assert not any(map(bounds.hold, outside))
    assert not bounds.hold(float("nan"))


@dataclass(frozen=True, kw_only=True)
class Sent:
    """Options of all kinds."""

    rate: float
    most: int | None
    sets: tuple[int, ...] = ()
    known: Knowledge | None = field(metadata=as_text(Knowledge.to_dict, Knowledge.from_dict))
    hidden: int = field(default=3, metadata=within(least=1))


SENT = Sent(rate=0.5, most=None, sets=(2, 0), known=Knowledge(required=[("a", "b")]))


def test_what_is_read_is_what_was_written():
    plain = to_plain(SENT)
    assert plain.keys() == {"rate", "sets", "known", "hidden"}
    assert plain["sets"] == [2, 0]
    assert isinstance(plain["known"], str)
    assert from_plain(Sent, plain) == SENT
    none = replace(SENT, known=None, most=4)
    assert from_plain(Sent, to_plain(none)) == none
    assert type(from_plain(Sent, {**plain, "rate": 1}).rate) is float


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": None}, "'rate' is None; it must be a finite number"),
        ({"hidden": None}, "'hidden' is None"),
        ({"hidden": 0}, "'hidden' is 0; it must be 1 or more"),
        ({"most": True}, "'most' is True"),
        ({"sets": [1, "2"]}, "'sets' is"),
        ({"known": "[1]"}, "'known' cannot be read"),
        ({"known": "{"}, "'known' cannot be read"),
        ({"known": 3}, "'known' cannot be read"),
        ({"known": '{"required": [["a", "a"]]}'}, "'known' cannot be read"),
        ({"Rate": 0.5}, "no option 'Rate'"),
    ],
)
def test_what_no_server_writes_is_refused(changes, words):
    given = {**to_plain(SENT), **changes}
    with pytest.raises(ConfigError, match=words):
        from_plain(Sent, {name: value for name, value in given.items() if value is not None})


def test_bounds_are_checked_by_name():
    check_bounds(SENT)
    with pytest.raises(ConfigError, match="'hidden' is 0"):
        check_bounds(replace(SENT, hidden=0))
