"""Products of columns of different parties: equality, uniform views, and what is bound to what."""

import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.columns import plan_of
from flwr_causal.protocol.products.matrices import (
    as_floats,
    check_size,
    fixed,
    fraction_bits,
    weighted_products,
)
from flwr_causal.protocol.products.plan import PlanColumns, ProductPlan
from flwr_causal.protocol.products.tables import (
    PartyTable,
    box_sizes,
    dealt,
    mask_of,
    opened,
    reply_mask,
    sealed,
)
from flwr_causal.secure.keys import new_private_key, pair_keys, public_key


class Federation:
    """Parties with some rows and columns of a table, and their parts of the sums."""

    def __init__(self, table, presence, held, replicates=0, seeds=None, columns=None):
        self.table, self.presence = table, presence
        ids = [[b"%06d" % row for row in own] for own in held]
        self.plan, order = ProductPlan.of(presence, ids, columns)
        self.weights = self.plan.weights(replicates, 5)
        parties = len(held)
        self.bits = fraction_bits(len(table) * parties, parties)
        # Rows in the order of the plan, from one party that has them.
        self.rows = np.zeros(self.plan.num_rows, dtype=np.int64)
        self.parts = []
        for place, (own, rows) in enumerate(zip(held, order, strict=True)):
            values = table[own][rows] * presence[place]
            self.parts.append(PartyTable(self.plan, place, fixed(values, self.bits)))
            self.rows[self.plan.numbers(self.plan.patterns_of(place))] = own[rows]
        self.seeds = seeds or {place: secrets.token_bytes(32) for place in range(parties)}
        self.masked = [part.masked(self.seeds[k]) for k, part in enumerate(self.parts)]

    def replies(self):
        """By party, products and sums."""
        return [
            part.sums(
                self.weights,
                self.seeds[place],
                {k: own[place] for k, own in enumerate(self.masked) if k != place},
            )
            for place, part in enumerate(self.parts)
        ]

    def totals(self):
        """Products and sums over all parties, as floats."""
        replies = self.replies()
        products = sum(one[0] for one in replies) + dealt(self.plan, self.weights, self.seeds)
        sums = sum(one[1] for one in replies)
        return (
            as_floats(products.view(np.int64), 2 * self.bits),
            as_floats(sums.view(np.int64), self.bits),
        )


def drawn(seed, parties, columns, rows):
    """A federation in which any party may have any rows and columns."""
    rng = np.random.default_rng(seed)
    presence = rng.random((parties, columns)) < 0.5
    presence[rng.integers(parties, size=columns), np.arange(columns)] = True
    held = [rng.permutation(np.flatnonzero(rng.random(rows) < 0.8)) for _ in range(parties)]
    return Federation(rng.standard_normal((rows, columns)), presence, held, replicates=2)


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 6), st.integers(3, 40))
def test_sums_are_those_of_the_joined_table_with_each_row_and_pair_once(
    seed, parties, columns, rows
):
    federation = drawn(seed, parties, columns, rows)
    plan = federation.plan
    known = np.zeros((plan.num_rows, columns), dtype=bool)
    for place in range(parties):
        own = plan.numbers(plan.patterns_of(place))
        known[np.ix_(own, federation.presence[place])] = True
    values = np.where(known, federation.table[federation.rows], 0.0)
    products, sums = federation.totals()
    counts = plan.num_known(federation.weights)
    for weights, product, first, count in zip(
        federation.weights, products, sums, counts, strict=True
    ):
        weighed = weights[:, None] * known
        assert product == pytest.approx(values.T @ (weights[:, None] * values), abs=1e-5)
        assert first == pytest.approx(values.T @ weighed, abs=1e-5)
        assert (count == known.T @ weighed).all()


def test_products_that_are_not_wanted_are_in_no_partys_part():
    rng = np.random.default_rng(3)
    presence = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], dtype=bool)
    wanted = np.ones((5, 5), dtype=bool)
    for one, other in ((0, 1), (1, 4), (3, 4)):  # of one party, of both, of the other
        wanted[one, other] = wanted[other, one] = False
    table, held = rng.standard_normal((30, 5)), [np.arange(30), np.arange(4, 30)]
    federation = Federation(table, presence, held, columns=PlanColumns("", wanted))
    every = Federation(table, presence, held).totals()[0]
    np.testing.assert_allclose(federation.totals()[0], every * wanted, atol=1e-9)
    for products, _ in federation.replies():
        assert not products[0][~wanted].any()


def test_masks_are_bound_to_what_columns_mean():
    presence, wanted = np.eye(2, dtype=bool), np.ones((2, 2), dtype=bool)
    columns = [
        None,
        PlanColumns("up to 3", wanted),
        PlanColumns("up to 4", wanted),
        PlanColumns("up to 3", np.eye(2, dtype=bool)),
    ]
    digests = {ProductPlan.of(presence, [[b"1"], [b"1"]], one)[0].digest for one in columns}
    assert len(digests) == len(columns)


def test_products_of_any_words_are_exact_modulo_two_to_the_64():
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 2**64, (1100, d), dtype=np.uint64) for d in (3, 4))
    weights = rng.integers(0, 9, (2, 1100))
    found = weighted_products(left, weights, right)
    for own, w in zip(found, weights, strict=True):
        assert (own == (left * w[:, None].astype(np.uint64)).T @ right).all()


@pytest.mark.parametrize(("rows", "parties"), [(2, 2), (10**3, 5), (2 * 10**5, 2), (10**9, 100)])
def test_no_sum_of_products_leaves_the_range_of_a_word(rows, parties):
    bits = fraction_bits(rows, parties)
    largest = 8 * rows * parties * 2 ** (2 * bits)
    assert largest < 2**62 <= 8 * largest
    # An error of half a step in each value, in a mean product of columns of variance 1.
    assert 2.0**-bits / np.sqrt(6 * rows / parties) < 1e-6


def test_values_that_could_overflow_are_refused():
    values = np.array([[100.0], [0.0]])
    check_size(values, np.array([[1, 1]]), 10**4)
    with pytest.raises(DataError, match="overflow"):
        check_size(values, np.array([[9, 0]]), 10**4)
    with pytest.raises(DataError, match="so far from its mean"):
        check_size(np.full((2, 1), np.nan), np.array([[1, 1]]), 10**4)


def test_replicates_draw_as_many_rows_with_replacement():
    plan = drawn(1, 3, 3, 400).plan
    weights = plan.weights(200, 7)
    assert (weights[0] == 1).all()
    assert (weights.sum(axis=1) == plan.num_rows).all()
    assert weights[1:].var() == pytest.approx(1, abs=0.02)  # of counts with mean 1
    assert weights[1:].mean(axis=0) == pytest.approx(1, abs=0.4)
    assert (plan.weights(3, 7) == weights[:4]).all()
    assert (plan.weights(3, 8)[1] != weights[1]).any()


def test_folds_are_stretches_of_the_first_party_that_has_a_row():
    """Five of each party's rows in its own order, whatever the order of hashes."""
    presence = np.array([[True, False], [False, True], [True, True]])
    held = ([5, 3, 9, 1, 7], [3, 5, 6, 8], [8, 6, 0, 2, 4])
    ids = [[b"%d" % row for row in own] for own in held]
    plan, rows = ProductPlan.of(presence, ids, num_folds=5)
    assert plan.num_folds == 5
    of = {}
    for party, own in enumerate(rows):
        numbers = plan.numbers(plan.patterns_of(party))
        of |= {int(n): held[party][place] for n, place in zip(numbers, own, strict=True)}
    found = {row: int(plan.folds[number]) for number, row in of.items()}
    assert found == {5: 0, 3: 1, 9: 2, 1: 3, 7: 4, 6: 2, 8: 3, 0: 2, 2: 3, 4: 4}
    weights = plan.weights(2, 7)
    assert (weights[1:6].sum(axis=0) == 1).all()
    assert [set(np.flatnonzero(row)) for row in weights[1:6]] == [
        {number for number, row in of.items() if found[row] == fold} for fold in range(5)
    ]
    # Replicates are those of the plan without folds, which nothing is sealed for.
    without, _ = ProductPlan.of(presence, ids)
    assert (without.weights(2, 7)[1:] == weights[6:]).all()
    assert without.num_folds == 0
    assert without.digest != plan.digest
    again = plan_of(plan.to_arrays())
    assert (again.folds == plan.folds).all()
    assert again.digest == plan.digest


# -- what each side sees ---------------------------------------------------------------------------


def vertical(values, seeds=None):
    """Two parties with two columns each of the same rows."""
    presence = np.array([[True, True, False, False], [False, False, True, True]])
    return Federation(values, presence, [np.arange(len(values))] * 2, seeds=seeds)


def uniform_bytes(words):
    """Whether each byte of words is uniform, by the position of the byte."""
    table = np.frombuffer(words.astype("<u8").tobytes(), dtype=np.uint8).reshape(-1, 8)
    return [chisquare(np.bincount(column, minlength=256)).pvalue for column in table.T]


def test_a_masked_table_is_uniform_whatever_the_rows_are():
    federation = vertical(np.ones((20_000, 4)))
    assert min(uniform_bytes(federation.masked[0][1].ravel())) > 1e-4


def test_without_the_seed_of_its_masks_a_table_can_be_any_other():
    """The witness: for each other table there is a mask under which the same words travel."""
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal((2, 50, 4))
    seen = vertical(first).masked[0][1]
    other = fixed(second[:, :2], fraction_bits(100, 2))
    assert ((other + (seen - other)) == seen).all()


def test_the_server_sees_the_same_for_tables_with_the_same_moments():
    """Two tables, the same moments: the same total, and masks under which all replies agree."""
    rng = np.random.default_rng(3)
    values = np.round(rng.standard_normal((60, 4)) * 8) / 8
    signs = rng.choice([-1.0, 1.0], size=(60, 1))
    seeds = {0: bytes(32), 1: bytes([1]) * 32}
    federations = [vertical(values, seeds), vertical(values * signs, seeds)]
    replies = [one.replies() for one in federations]
    totals = [sum(own[0] for own in one) for one in replies]
    assert (totals[0] == totals[1]).all()
    # The replies themselves differ: they tell more than the moments, and must not be sent openly.
    assert (replies[0][0][0] != replies[1][0][0]).any()
    # With a stream of the pair the first party's words are the same, and so are the second's.
    stream = rng.integers(0, 2**64, totals[0].shape, dtype=np.uint64)
    other = stream + replies[0][0][0] - replies[1][0][0]
    assert (replies[0][0][0] + stream == replies[1][0][0] + other).all()
    assert (replies[0][1][0] - stream == replies[1][1][0] - other).all()


def pairs_of(parties):
    private = [new_private_key() for _ in range(parties)]
    keys = [public_key(one) for one in private]
    return keys, [pair_keys(one, keys, least=2) for one in private]


def test_masks_of_replies_cancel_and_are_new_with_each_nonce():
    _, pairs = pairs_of(3)
    nonces = {place: secrets.token_bytes(32) for place in range(3)}
    masks = [reply_mask(own, nonces, place, b"", 5000) for place, own in enumerate(pairs)]
    assert (sum(masks) == 0).all()
    assert min(uniform_bytes(masks[0])) > 1e-4
    again = reply_mask(pairs[0], {**nonces, 0: secrets.token_bytes(32)}, 0, b"", 5000)
    other_plan = reply_mask(pairs[0], nonces, 0, b"other", 5000)
    for words in (again, other_plan):
        assert (words != masks[0]).mean() > 0.99


def test_equal_columns_of_two_parties_have_equal_digests_that_only_these_two_can_compute():
    """The server and third parties see whether they are equal, and nothing of their values."""
    rng = np.random.default_rng(5)
    table = np.round(rng.standard_normal((40, 3)))
    presence = np.array([[True, True, False], [True, True, True], [True, False, True]])
    held = [np.arange(30), np.arange(39, 9, -1), np.arange(10)]  # the last two share no row
    hashes = rng.integers(0, 256, (40, 16), dtype=np.uint8)
    pairs = pairs_of(3)[1]

    def digests(values, keys=pairs, purpose=b"run"):
        federation = Federation(values, presence, held)
        plan, found = federation.plan, []
        for place, (one, own) in enumerate(zip(federation.parts, keys, strict=True)):
            rows = federation.rows[plan.numbers(plan.patterns_of(place))]
            found.append(one.digests(own, purpose, hashes[rows]))
        return found

    first = digests(table)
    assert (first[0][1] == first[1][0]).all()
    assert (first[0][2] == first[2][0]).all()
    sent = [[own[place].any(axis=1).tolist() for place in range(3)] for own in first]
    of_first = [[False] * 3, [True, True, False], [True, False, False]]
    assert sent == [
        of_first,
        [of_first[1], [False] * 3, [False] * 3],
        [of_first[2], *[[False] * 3] * 2],
    ]
    changed = table.copy()
    changed[0, 0] += 1  # a row of the first and the last party
    other = digests(changed)
    assert (other[0][1] == first[1][0]).all()
    assert (other[0][2, 0] != first[2][0, 0]).any()
    # Rows that the two do not have in common say nothing, whatever their values are.
    constant = np.ones_like(table)
    assert (digests(constant)[0][1] == digests(constant)[1][0]).all()
    truly, hashes = digests(constant)[1][0], hashes[::-1]
    assert (digests(constant)[0][1, :2] != truly[:2]).any(axis=1).all()
    # Equal columns under one key, one column under two keys, in two runs: digests tell nothing.
    same = digests(np.repeat(table[:, :1], 3, axis=1))
    seen = [same[0][1, 0], same[0][1, 1], same[0][2, 0]]
    seen += [digests(table, pairs_of(3)[1])[0][1, 0], digests(table, purpose=b"again")[0][1, 0]]
    assert len({one.tobytes() for one in seen}) == len(seen)


def test_a_sealed_table_opens_for_its_receiver_and_plan_only():
    keys, pairs = pairs_of(3)
    table = np.arange(12, dtype=np.uint64).reshape(4, 3)
    nonce = secrets.token_bytes(32)
    box = sealed(table, pairs[0][0], keys[0], nonce, b"plan")
    found, words = opened(box, pairs[1][0], keys[0], b"plan")
    assert (found, words.tolist()) == (nonce, table.ravel().tolist())
    assert table.tobytes() not in box
    wrong = [
        (box, pairs[2][0], keys[0], b"plan"),  # another receiver
        (box, pairs[1][0], keys[1], b"plan"),  # another sender
        (box, pairs[1][0], keys[0], b"other plan"),
        (box[:-1] + bytes([box[-1] ^ 1]), pairs[1][0], keys[0], b"plan"),
        (bytes([box[0] ^ 1]) + box[1:], pairs[1][0], keys[0], b"plan"),
    ]
    for one in wrong:
        with pytest.raises(FederationError, match="was altered"):
            opened(*one)


def test_masks_for_different_parties_and_seeds_differ():
    masks = [mask_of(seed, k, 5, 2) for seed in (bytes(32), bytes([1]) * 32) for k in (0, 1)]
    words = np.concatenate([one.ravel() for one in masks])
    assert len(np.unique(words)) == len(words)


def test_parties_that_compute_nothing_together_send_each_other_nonces_only():
    presence = np.array([[True, True], [True, True], [True, True]])
    plan, _ = ProductPlan.of(presence, [[b"a", b"b"], [b"b", b"c"], [b"d"]])
    assert plan.blocks == ()
    assert box_sizes(plan, 0) == {1: (0, 0), 2: (0, 0)}


def test_a_pair_of_columns_that_few_rows_have_is_refused_by_name():
    presence = np.array([[True, True, False], [False, False, True]])
    plan, _ = ProductPlan.of(
        presence, [[b"%d" % k for k in range(9)], [b"%d" % k for k in range(7, 20)]]
    )
    plan.check(("x", "y", "z"), 2)
    with pytest.raises(DataError, match="'x' and 'z' are both known of 2 rows, and 3 are the few"):
        plan.check(("x", "y", "z"), 3)
