"""Replies combined: sums whatever the order, the rest by party."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.errors import FederationError
from flwr_causal.protocol import Disclosure, Exchange, Replies
from flwr_causal.protocol.replies import Fold

MIXED = Exchange(
    "mixed",
    "",
    returns=(
        Disclosure("counts", "", ("*",), "count", "sum"),
        Disclosure("gains", "", ("*",), combine="sum"),
        Disclosure("edges", "", ("*", 2), "index"),
        Disclosure("score", "", optional=True),
    ),
)


def folded(parties):
    fold = Fold(MIXED)
    for name, arrays in parties:
        fold.add(name, arrays)
    return fold.close()


def party(seed, size=5):
    rng = np.random.default_rng(seed)
    arrays = {
        "counts": rng.integers(0, 200, size).astype(np.uint8),
        "gains": rng.integers(-1000, 1000, size) / 8.0,  # sums of these are exact
        "edges": rng.integers(0, 9, (seed % 4, 2)),
    }
    return {**arrays, "score": np.array(1.5 * seed)} if seed % 2 else arrays


@given(st.permutations(range(6)))
def test_the_order_of_the_parties_does_not_matter(order):
    parties = {f"p{seed}": party(seed) for seed in range(6)}
    replies = folded([(f"p{seed}", parties[f"p{seed}"]) for seed in order])
    assert replies.parties == tuple(f"p{seed}" for seed in order)
    for name in ("counts", "gains"):
        total = sum(arrays[name].astype(np.float64) for arrays in parties.values())
        assert np.array_equal(replies[name], total)
        assert name in replies
    for name in ("edges", "score"):
        assert name not in replies
        found = replies.of(name)
        assert set(found) == {p for p, arrays in parties.items() if name in arrays}
        assert all(np.array_equal(found[p], parties[p][name]) for p in found)
        assert list(found) == [p for p in replies.parties if p in found]
        assert [a.tobytes() for a in replies.list(name)] == [a.tobytes() for a in found.values()]


def test_small_types_do_not_overflow():
    replies = folded([(f"p{k}", {"counts": np.array([200], np.uint8)}) for k in range(50)])
    assert replies["counts"].tolist() == [10000]
    assert replies["counts"].dtype == np.int64


def test_parties_may_send_other_types_of_number():
    for types in ((np.int64, np.uint64, np.float64, bool), (np.float32, np.int8)):
        for kinds in (types, types[::-1]):
            arrays = [{"counts": np.ones(2, t), "gains": np.ones(2, t)} for t in kinds]
            replies = folded([(f"p{k}", own) for k, own in enumerate(arrays)])
            assert replies["counts"].tolist() == replies["gains"].tolist() == [len(kinds)] * 2
            assert replies["gains"].dtype == np.float64


@pytest.mark.parametrize("size", [1, 4])
def test_sums_do_not_stretch(size):
    """NumPy would add one number to every entry."""
    parties = [("a", {"gains": np.ones(5)}), ("b", {"gains": np.ones(size)})]
    with pytest.raises(FederationError, match=rf"b sent 'gains' of the shape \({size},\)"):
        folded(parties)


def test_what_a_party_sent_is_not_changed():
    mine = {"counts": np.ones(3, np.int64), "gains": np.ones(3)}
    replies = folded([("a", mine), ("b", mine)])
    assert mine["counts"].tolist() == mine["gains"].tolist() == [1, 1, 1]
    assert replies["gains"].tolist() == [2, 2, 2]


def test_no_replies():
    assert folded([]).parties == Replies().parties == ()
    assert Replies().of("edges") == {}


def test_whole_numbers_that_arrive_as_floats():
    own = party(3)
    kept = folded([("p", {name: array.astype(np.float64) for name, array in own.items()})])
    assert kept.by_party["p"]["edges"].dtype == np.int64
    assert np.array_equal(kept.by_party["p"]["edges"], own["edges"])
    assert kept.by_party["p"]["score"].dtype == np.float64
