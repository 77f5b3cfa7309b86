"""Masks, the ring and exact sums: what cancels, what is uniform, and what is refused."""

import hashlib
import hmac
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.data.check.agreement import pool
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import FederationError
from flwr_causal.secure import keys, masks, ring, totals
from flwr_causal.secure.ring import Size, SumError, WordLayout, WordSum, added
from flwr_causal.secure.server import MOST_PARTIES


def number_of(words):
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def parties(count):
    private = [keys.new_private_key() for _ in range(count)]
    public = [keys.public_key(one) for one in private]
    return [keys.pair_keys(one, public) for one in private]


FIFTY = Size(50)


def masks_of(pairs, purpose=b"run round 1", size=FIFTY):
    return np.array([masks.streams(masks.mask_keys(own, purpose), size) for own in pairs])


@pytest.mark.parametrize("size", [FIFTY, Size(20, 30), Size(0, 50)])
@pytest.mark.parametrize("count", [3, 4, 11])
def test_masks_cancel_in_the_sum_of_all_parties_and_in_no_smaller_one(count, size):
    found = masks_of(parties(count), size=size)
    assert not added(found, size).any()
    for left_out in range(count):
        assert added(np.delete(found, left_out, axis=0), size).all()
    assert found.all()


def test_the_order_of_the_keys_does_not_matter():
    private = [keys.new_private_key() for _ in range(4)]
    public = [keys.public_key(one) for one in private]
    one, other = (keys.pair_keys(private[0], order) for order in (public, public[::-1]))
    np.testing.assert_array_equal(masks_of([one]), masks_of([other]))


def test_a_mask_depends_on_its_purpose_and_on_nothing_else():
    pairs = parties(3)
    np.testing.assert_array_equal(masks_of(pairs), masks_of(pairs))
    assert (masks_of(pairs) != masks_of(pairs, b"run round 2")).all()
    # A longer vector begins with the same words: a purpose masks one vector only.
    np.testing.assert_array_equal(masks_of(pairs, size=Size(80))[:, :50], masks_of(pairs))


def test_every_byte_of_a_masked_vector_is_uniform_at_its_position():
    # Small whole numbers, whose high bytes are all 0 or all 255 without a mask.
    words = np.arange(-2048, 2048).view(np.uint64)
    pairs = parties(3)
    masked = masks.streams(masks.mask_keys(pairs[0], b"p"), Size(1000, len(words) - 1000), words)
    by_position = masked.view(np.uint8).reshape(-1, 8).T
    p_values = [stats.chisquare(np.bincount(own, minlength=256)).pvalue for own in by_position]
    assert min(p_values) > 1e-6
    # Nor do successive words depend on each other.
    steps = np.bincount((np.diff(masked) >> 56).astype(int), minlength=256)
    assert stats.chisquare(steps).pvalue > 1e-6


def test_keys_have_their_full_length_and_one_stream_for_each_pair_and_purpose(monkeypatch):
    used, cipher = [], masks.AES

    def watched(key):
        used.append(key)
        return cipher(key)

    monkeypatch.setattr(masks, "AES", watched)
    pairs = parties(4)
    for purpose in (b"run totals 0", b"run sums 1"):
        masks_of(pairs, purpose)
    assert {len(key) for key in used} == {32}
    # Each key is used by the two parties of its pair: 6 pairs, 2 purposes.
    assert sorted(map(used.count, set(used))) == [2] * 12
    assert {len(pair.key) for own in pairs for pair in own} == {32}
    assert all(np.unpackbits(np.frombuffer(key, np.uint8)).sum() > 64 for key in used)


def hkdf(secret, info):
    """RFC 5869 with SHA-256, 32 bytes, without salt."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def test_masks_are_those_of_the_documented_protocol():
    private = [X25519PrivateKey.from_private_bytes(bytes([k]) * 32) for k in (1, 2, 3)]
    public = [one.public_key().public_bytes_raw() for one in private]
    label = b"flwr-causal secure sum, key of a pair of parties"
    expected = 0
    for other in (1, 2):
        secret = private[0].exchange(private[other].public_key())
        shared = hkdf(secret, label + b"".join(sorted([public[0], public[other]])))
        stream_key = hashlib.blake2b(b"token sums 1", key=shared, digest_size=32).digest()
        blocks = b"".join(count.to_bytes(16, "big") for count in range(3))
        stream = Cipher(AES(stream_key), ECB()).encryptor().update(blocks)
        number = int.from_bytes(stream[:40], "little")
        expected += number if public[0] < public[other] else -number
    found = masks.streams(
        masks.mask_keys(keys.pair_keys(bytes([1]) * 32, public), b"token sums 1"), Size(0, 5)
    )
    assert number_of(found) == expected % 2**320


def test_keys_are_not_drawn_from_a_seeded_generator():
    import random

    drawn = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        drawn.append(keys.new_private_key())
    assert drawn[0] != drawn[1]


def test_keys_that_hide_nothing_are_refused():
    private = [keys.new_private_key() for _ in range(3)]
    public = [keys.public_key(one) for one in private]
    with pytest.raises(FederationError, match="3 parties or more, not 2"):
        keys.pair_keys(private[0], public[:2])
    with pytest.raises(FederationError, match="occurs twice"):
        keys.pair_keys(private[0], [public[0], public[1], public[1]])
    with pytest.raises(FederationError, match="not among those"):
        keys.pair_keys(keys.new_private_key(), public)
    # A point of small order: the shared secret would be 0, whatever the private key.
    with pytest.raises(FederationError, match="is none"):
        keys.pair_keys(private[0], [*public[:2], bytes(32)])


class Agreed:
    """What the layout reads of a setup."""

    num_rows, num_clients = 900, 3


def exchange(*returns, weight="rows"):
    return Exchange("sums", "for a test", returns=returns, weight=weight)


MEAN = exchange(
    Disclosure("x", "a mean", ("d", 2), combine="mean", bound=lambda setup: [4.0, 1e-9])
)
COUNTS = exchange(
    Disclosure("c", "counts", ("d",), "count", "sum"),
    Disclosure("s", "a sum", (), combine="sum", bound=lambda setup: 7.0),
)


def test_a_weighted_mean_is_that_of_floats():
    rng = np.random.default_rng(0)
    weights = np.array([500, 300, 100])
    values = rng.uniform(-1, 1, (3, 5, 2)) * [4.0, 1e-9]
    layout = WordLayout.of(MEAN, {"d": 5}, Agreed())
    vectors = [layout.encoded({"x": x}, n) for x, n in zip(values, weights.tolist(), strict=True)]
    assert layout.size == Size(len(vectors[0])) == Size(12)
    total = added(vectors, layout.size)
    found = layout.decoded(total, 3)[0]["x"]
    expected = np.tensordot(weights / 900, values, axes=1)
    np.testing.assert_allclose(found / [4, 1e-9], expected / [4, 1e-9], rtol=0, atol=2e-16)


def test_counts_are_exact_whole_numbers():
    layout = WordLayout.of(COUNTS, {"d": 2}, Agreed())
    assert layout.size == Size(2 + 1 + 1)  # both counts fit into one word
    vectors = [
        layout.encoded({"c": np.array([300, k]), "s": np.array(-k / 2)}, 300) for k in (0, 2, 5)
    ]
    found, rows = layout.decoded(added(vectors, layout.size), 3)
    assert rows == 900
    assert found["c"].tolist() == [900, 7]
    assert found["c"].dtype == np.int64
    np.testing.assert_allclose(found["s"], -3.5, rtol=1e-15)


def test_masks_that_do_not_cancel_and_values_that_do_not_fit_are_refused():
    layout = WordLayout.of(MEAN, {"d": 1}, Agreed())
    total = added([layout.encoded({"x": np.zeros((1, 2))}, 300)] * 3, layout.size)
    layout.decoded(total, 3)
    for place in (0, 1):
        wrong = total.copy()
        wrong[place] += 1
        with pytest.raises(SumError, match="do not cancel"):
            layout.decoded(wrong, 3)
    for large in (9.0, np.nan, np.inf):
        with pytest.raises(SumError, match="larger than the secure sum can hold"):
            layout.encoded({"x": np.array([[large, 0]])}, 900)


def test_a_sum_that_lacks_parties_is_that_of_the_others_rows():
    layout = WordLayout.of(MEAN, {"d": 1}, Agreed())
    vectors = [layout.encoded({"x": np.array([[k, 0.0]])}, n) for k, n in ((1, 500), (4, 300))]
    found, rows = layout.decoded(added(vectors, layout.size), 2)
    assert rows == 800
    np.testing.assert_allclose(found["x"][0], [(500 + 1200) / 800, 0], rtol=1e-15)
    # The missing party has a row at least, and so has each of the others.
    for rows in (1, 900):
        vectors = [layout.encoded({"x": np.zeros((1, 2))}, n) for n in (1, rows - 1)]
        with pytest.raises(SumError, match="do not cancel"):
            layout.decoded(added(vectors, layout.size), 2)
    for rows in (2, 899):
        vectors = [layout.encoded({"x": np.zeros((1, 2))}, n) for n in (1, rows - 1)]
        assert layout.decoded(added(vectors, layout.size), 2)[1] == rows


def test_no_total_overflows():
    layout = WordLayout.of(COUNTS, {"d": 1}, Agreed())
    for sign in (1, -1):
        part = {"c": np.array([0]), "s": np.array(sign * 13.9)}
        total = added([layout.encoded(part, 300)] * 3, layout.size)
        np.testing.assert_allclose(layout.decoded(total, 3)[0]["s"], sign * 41.7, rtol=1e-15)
    for part in ({"c": [0], "s": 14.1}, {"c": [2**61], "s": 0.0}):
        with pytest.raises(SumError, match="larger than the secure sum can hold"):
            layout.encoded(part, 300)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (Disclosure("x", "", ("d",)), "is kept by party"),
        (Disclosure("x", "", ("*",), "count", "sum"), "size of 'x'"),
        (Disclosure("x", "", ("d",), "count", "sum", optional=True), "size of 'x'"),
    ],
)
def test_what_is_no_sum_is_refused(returned, reason):
    with pytest.raises(SumError, match=reason):
        WordLayout.of(exchange(returned), {"d": 2}, Agreed())


def test_a_size_that_does_not_follow_from_what_is_sent_is_refused():
    with pytest.raises(SumError, match=r"the size 'd' of 'x' does not follow .* 'sums'"):
        WordLayout.of(MEAN, {}, Agreed())


floats = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e60, max_value=1e60)


@given(st.lists(st.lists(floats, min_size=3, max_size=3), min_size=1, max_size=5))
def test_floats_without_a_bound_add_up_exactly(rows):
    size = Size(0, 3 * ring.WORDS)
    words = added((ring.encoded_floats(np.array(row)) for row in rows), size)
    unit = Fraction(1, 2**ring.FRACTION_BITS)
    sums = ring.decoded_floats(words, len(rows))
    for found, column in zip(sums, zip(*rows, strict=True), strict=True):
        wanted = sum(map(Fraction, column))
        assert abs(Fraction(found) - wanted) <= len(rows) * unit + abs(wanted) * Fraction(1, 2**51)


def test_a_mean_without_a_bound_is_that_of_all_rows():
    layout = WordLayout.of(
        exchange(Disclosure("x", "", ("d",), combine="mean")), {"d": 2}, Agreed()
    )
    assert layout.size == Size(2, 2 * ring.WORDS)
    values = [[1e-30, 2.0], [3e-30, -1e40], [-5e-30, 1e40]]
    rows = [100, 300, 500]
    vectors = [layout.encoded({"x": np.array(own)}, n) for own, n in zip(values, rows, strict=True)]
    found, _ = layout.decoded(added(vectors, layout.size), 3)
    expected = np.average(values, axis=0, weights=rows)
    np.testing.assert_allclose(found["x"], expected, rtol=1e-15)
    for large in (1e63, np.inf, np.nan):
        with pytest.raises(SumError, match="larger than the secure sum can hold"):
            layout.encoded({"x": np.array([large, 0.0])}, 300)


words_of_vectors = st.lists(
    st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), min_size=4).map(
        lambda words: np.array(words[:4], dtype=np.uint64)
    ),
    min_size=1,
    max_size=6,
)


@given(words_of_vectors, words_of_vectors, st.integers(0, 4))
# Nothing is borrowed from the second word.
@example([np.array([2**64 - 1, 1, 0, 0], np.uint64)], [np.array([5, 0, 0, 0], np.uint64)], 0)
def test_single_words_are_added_by_themselves_and_wide_ones_as_one_number(plus, minus, single):
    total = WordSum(Size(single, 4 - single))
    # In pieces of one word and three.
    for vector in plus:
        total.add(vector[:1])
        total.add(vector[1:], 1)
    for vector in minus:
        total.subtract(vector[:1])
        total.subtract(vector[1:], 1)
    found = total.total()
    fields = [slice(k, k + 1) for k in range(single)] + [slice(single, 4)]
    for own in fields:
        expected = sum(number_of(one[own]) for one in plus)
        expected -= sum(number_of(one[own]) for one in minus)
        assert number_of(found[own]) == expected % 2 ** (64 * len(found[own]))


FREE = exchange(Disclosure("x", "a mean of any size", ("d",), combine="mean"))


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(-50, 50))
def test_the_words_of_a_sum_depend_on_the_sum_alone(one, other, exponent):
    """Other numbers of the parties with the same sum give the same words, carries included."""
    layout = WordLayout.of(FREE, {"d": 1}, Agreed())
    found = set()
    for numbers in ([one, other, 0], [0, 0, one + other], [other + 7, one - 8, 1]):
        values = [{"x": np.array([number * 2.0**exponent])} for number in numbers]
        vectors = [layout.encoded(value, 300) for value in values]
        found.add(added(vectors, layout.size).tobytes())
    assert len(found) == 1


def test_numbers_of_any_size_stand_behind_those_of_one_word():
    both = exchange(
        Disclosure("free", "of any size", ("d",), combine="mean"),
        Disclosure("bound", "bounded", ("d",), combine="mean", bound=lambda setup: 4.0),
    )
    layout = WordLayout.of(both, {"d": 2}, Agreed())
    assert layout.size == Size(2 + 2, 2 * ring.WORDS)
    # So small that the lowest words are not 0.
    free = np.array([[-1.5, 2], [4, -8], [0.5, -1]]) * 2.0**-320
    bound = np.array([[-3, 1], [2, 2], [-1, 3.0]])
    vectors = [
        layout.encoded({"free": x, "bound": y}, 300) for x, y in zip(free, bound, strict=True)
    ]
    found, _ = layout.decoded(added(vectors, layout.size), 3)
    np.testing.assert_allclose(found["free"] / free.mean(axis=0), 1, rtol=1e-15)
    np.testing.assert_allclose(found["bound"], bound.mean(axis=0), rtol=1e-15)


def test_the_largest_numbers_of_the_most_parties_have_room():
    assert ring.MOST * 2.0**ring.FRACTION_BITS == ring.BIAS
    assert MOST_PARTIES * 2 * ring.BIAS <= 2 ** (64 * ring.WORDS)


def test_sums_of_any_size_are_exact():
    numbers = [Fraction(x) for x in (1e60, -1e60, 1e-60, -3.5, 2.0**-352, 12345678901234567890, 0)]
    vectors = [ring.encoded(numbers), ring.encoded([-x for x in numbers[::-1]])]
    expected = [x - y for x, y in zip(numbers, numbers[::-1], strict=True)]
    unit = Fraction(1, 2**ring.FRACTION_BITS)
    sums = ring.decoded(added(vectors, Size(0, len(vectors[0]))), 2)
    for found, wanted in zip(sums, expected, strict=True):
        assert abs(found - wanted) <= unit


@pytest.mark.parametrize(("offset", "unit"), [(0.0, 1.0), (1e8, 1.0), (-3e-9, 1e-12), (0.0, 1e12)])
def test_the_totals_are_those_of_the_pooled_rows(offset, unit):
    tables, _ = federated_linear(3, 500, 4, seed=2)
    tables = [table * unit + offset for table in tables]
    names = tuple(tables[0].columns)
    reports = [describe(table, sums=True) for table in tables]
    vectors = [totals.vector_of(report, names) for report in reports]
    size = totals.size(names)
    assert {len(vector) for vector in vectors} == {size.words}
    total = totals.report_of(added(vectors, size), names, 4, within=False)
    assert total.rows == 500
    rows = np.concatenate([table.to_numpy() for table in tables])
    mean, variance = pool({"all": total}, names)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14, atol=1e-16 * unit)
    plain = pool({str(k): report for k, report in enumerate(reports)}, names)
    np.testing.assert_allclose(variance, plain[1], rtol=1e-13)
    in_reverse = totals.report_of(added(vectors[::-1], size), names, 4, within=False)
    assert in_reverse == total


def test_totals_of_a_constant_column_have_no_variance_and_false_ones_are_refused():
    import pandas as pd

    table = pd.DataFrame({"a": np.full(7, 0.1)})
    vector = totals.vector_of(describe(table, sums=True), ("a",))
    total = totals.report_of(added([vector] * 3, totals.size(("a",))), ("a",), 3, within=False)
    assert (total.rows, total.columns[0].mean, total.columns[0].squares) == (21, 0.1, 0.0)
    for broken in (vector + np.uint64(1), np.roll(vector, 1), vector[::-1]):
        with pytest.raises(SumError):
            totals.report_of(broken, ("a",), 1, within=False)


def test_squares_within_parties_are_those_of_the_deviations_from_their_own_means():
    tables, _ = federated_linear(3, 60, 3, seed=2)
    # As far from 0 as the parties' means are from each other.
    tables = [table * [1, 2, 3] + 1e6 * k / 3 for k, table in enumerate(tables)]
    names = tuple(tables[0].columns)
    reports = [describe(table, sums=True) for table in tables]
    vectors = [totals.vector_of(report, names) for report in reports]
    total = totals.report_of(added(vectors, totals.size(names)), names, 3, within=True)
    squares = sum(((table - table.mean()) ** 2).sum() for table in tables)
    np.testing.assert_allclose([one.squares for one in total.columns], squares, rtol=1e-8)
    level = sum(table.sum() for table in tables) / 60
    between = sum(len(table) * (table.mean() - level) ** 2 for table in tables)
    np.testing.assert_allclose(total.between, between, rtol=1e-9)
    whole = totals.report_of(added(vectors, totals.size(names)), names, 3, within=False)
    np.testing.assert_allclose([one.squares for one in whole.columns], squares + between)


def test_squares_within_parties_are_at_most_those_of_all_rows():
    sums = [Fraction(k) for k in (7, 7, 3, 9, 8, 0, 0)]
    total = np.concatenate([np.ones(2, dtype=np.uint64), ring.encoded(sums)])
    with pytest.raises(SumError, match="cannot be those of 7 rows"):
        totals.report_of(total, ("a",), 1, within=False)


def test_squares_within_a_party_are_those_from_the_mean_that_its_remainder_gives():
    # 0.5, 1.5 and 2.5 less 0.5: the mean is 1.5.
    column = ColumnReport("a", "numeric", missing=0, mean=0.5, remainder=3.0, squares=5.0)
    vector = totals.vector_of(TableReport(3, 0, (column,), has_sums=True), ("a",))
    (found,) = totals.report_of(vector, ("a",), 1, within=True).columns
    assert (found.mean, found.remainder, found.squares) == (1.5, 0.0, 2.0)


@pytest.mark.parametrize(("digits", "squares"), [(-28, 0), (28, 0), (29, 29), (-29, None)])
def test_squares_of_less_than_the_last_digits_are_none(digits, squares):
    last = Fraction(digits, 2**ring.FRACTION_BITS)
    sums = [Fraction(7), Fraction(7), Fraction(0), last, last, Fraction(0), Fraction(0)]
    total = np.concatenate([np.ones(2, dtype=np.uint64), ring.encoded(sums)])
    if squares is None:
        with pytest.raises(SumError, match="cannot be those of 7 rows"):
            totals.report_of(total, ("a",), 1, within=False)
        return
    (found,) = totals.report_of(total, ("a",), 1, within=False).columns
    assert found.squares == squares * 2.0**-ring.FRACTION_BITS


def test_a_party_adds_nothing_to_the_totals_of_a_column_that_it_lacks():
    tables, _ = federated_linear(3, 60, 3, seed=2)
    names = tuple(tables[0].columns)
    reports = [describe(table, sums=True) for table in (tables[0][[*names[:2]]], *tables[1:])]
    vectors = [totals.vector_of(report, names) for report in reports]
    total = totals.report_of(added(vectors, totals.size(names)), names, 3, within=False)
    rows = [table[names[2]] for table in tables[1:]]
    lacking = total.columns[2]
    assert (total.rows, lacking.missing) == (60, len(tables[0]))
    np.testing.assert_allclose(lacking.mean, np.concatenate(rows).mean(), rtol=1e-14)


@pytest.mark.parametrize("held", [0, -1, 8])
def test_totals_of_a_column_in_no_row_or_in_more_than_all_are_refused(held):
    sums = [Fraction(k) for k in (7, held, 3, 9, 0, 0, 0)]
    total = np.concatenate([np.ones(2, dtype=np.uint64), ring.encoded(sums)])
    with pytest.raises(SumError, match="the column 'a' has"):
        totals.report_of(total, ("a",), 1, within=False)


@pytest.mark.parametrize("rows", [0, -7, 10**12 + 1, 10**60])
def test_totals_of_no_rows_or_of_more_than_parties_have_are_refused(rows):
    sums = [Fraction(k) for k in (rows, 1, 3, 9, 0, 0, 0)]
    total = np.concatenate([np.ones(2, dtype=np.uint64), ring.encoded(sums)])
    with pytest.raises(SumError, match="all parties together have"):
        totals.report_of(total, ("a",), 1, within=False)


@pytest.mark.parametrize("rows", [1, 10**12])
def test_totals_of_the_fewest_and_of_the_most_rows_are_accepted(rows):
    sums = [Fraction(k) for k in (rows, 1, 3, 9, 0, 0, 0)]
    total = np.concatenate([np.ones(2, dtype=np.uint64), ring.encoded(sums)])
    assert totals.report_of(total, ("a",), 1, within=False).rows == rows
