"""Self-masks, shares and the circle of neighbours: what the server learns of a sum, and when."""

import itertools
from contextlib import suppress

import numpy as np
import pytest
from federations import TOKEN, KeysAgreed
from flwr.app import ConfigRecord, Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.secure import masks, shamir, unmasking
from flwr_causal.secure import party as secure
from flwr_causal.secure.keys import PairKey, pair_keys
from flwr_causal.secure.masks import mask_key, mask_keys, streams
from flwr_causal.secure.ring import Size, WordSum

WORDS = 5
SIZE = Size(2, 3)


def added(vectors, size, less=None):
    total = WordSum(size)
    for vector in vectors:
        total.add(vector)
    if less is not None:
        total.subtract(less)
    return total.total()


def test_shares_are_those_of_a_published_example():
    # https://en.wikipedia.org/wiki/Shamir%27s_secret_sharing: the secret 1234 in a field of 1613.
    shares = shamir.shares_of([1234, 166, 94], range(1, 7), 1613)
    assert shares == {1: 1494, 2: 329, 3: 965, 4: 176, 5: 1188, 6: 775}
    for three in itertools.combinations(shares.items(), 3):
        assert shamir.secret_of(dict(three), 1613) == 1234


@given(st.lists(st.integers(0, shamir.PRIME - 1), min_size=2, max_size=6), st.data())
def test_as_many_shares_as_coefficients_give_the_secret_and_fewer_say_nothing(polynomial, data):
    places = data.draw(st.permutations(range(1, 9)))
    shares = shamir.shares_of(polynomial, places)
    enough = dict(list(shares.items())[: len(polynomial)])
    assert shamir.secret_of(enough) == polynomial[0]
    # With one share fewer every secret is possible: another value at the last place gives it.
    last = list(enough)[-1]
    other = {**enough, last: (enough[last] + 1) % shamir.PRIME}
    assert shamir.secret_of(other) != polynomial[0]


def test_the_prime_is_prime():
    p = shamir.PRIME
    assert p < 2**256
    assert all(pow(base, p - 1, p) == 1 for base in (2, 3, 5, 7, 11))
    assert all(pow(base, (p - 1) // 2, p) in (1, p - 1) for base in range(2, 20))


@pytest.mark.parametrize(("least", "expected"), [(180, (46, 30)), (140, (96, 49))])
def test_the_circle_of_200_parties_is_that_of_the_bounds(least, expected):
    keys = tuple(f"{place:064x}" for place in range(200))
    circle = masks.circle_of(keys, least, "token")
    assert (2 * circle.reach, circle.shares) == expected
    near = {place: set(circle.holders(place)) for place in range(200)}
    assert {len(own) for own in near.values()} == {expected[0] + 1}
    assert all(place in near[other] for place, own in near.items() for other in own)
    # The chances that the number of neighbours is chosen for, computed by scipy.
    disclosed = stats.hypergeom.sf(circle.shares - 1, 199, 40, expected[0])
    too_few = stats.hypergeom.cdf(circle.shares - 1, 199, least - 1, expected[0])
    assert 200 * disclosed <= 2**-40
    assert 200 * too_few <= 2**-20
    assert masks.circle_of(keys, least, "other").order != circle.order
    apart = {*circle.order[:40], *circle.order[100:140]}
    assert circle.connected(circle.order[::4])
    assert not circle.connected(apart)


def test_up_to_100_parties_all_mask_with_each_other():
    for count in (3, 4, 7, 100):
        keys = tuple(f"{place:064x}" for place in range(count))
        circle = masks.circle_of(keys, masks.least_parties(count, 0.5), "t")
        assert circle.holders(2) == tuple(range(count))


def test_half_of_the_parties_are_never_enough():
    assert [masks.least_parties(count, 0.1) for count in range(3, 10)] == [3, 3, 3, 4, 4, 5, 5]
    assert masks.least_parties(10, 0.75) == 8
    assert masks.least_parties(10, 1.0) == 10
    assert [masks.least_parties(count, 0.5) for count in (100, 101, 200)] == [51, 71, 140]
    keys = tuple("abcdefgh")
    for least in (2, 4, 9):
        with pytest.raises(FederationError, match=f"sum of {least} parties of 8 is refused"):
            masks.circle_of(keys, least, "t")


class Parties:
    """Parties of secure sums without a grid, and what they send."""

    def __init__(self, count, quorum=0.5, seed=0):
        self.contexts = [Context(seed, k, {}, RecordDict(), {}) for k in range(count)]
        keys = tuple(secure.offer_key(own.state, running=False) for own in self.contexts)
        least = masks.least_parties(count, quorum)
        self.setup = KeysAgreed(keys=keys, least_parties=(least,))
        self.circle = masks.circle_of(keys, least, TOKEN)
        rng = np.random.default_rng(seed)
        self.vectors = rng.integers(0, 100, (count, WORDS)).astype(np.uint64)

    def masked(self, place, number=1, vector=None):
        """The words that a party sends."""
        own = self.contexts[place]
        vector = self.vectors[place] if vector is None else vector
        content, kept = secure.masked(own, self.setup, "sums", number, vector, SIZE)
        own.state.update(kept)
        return records.arrays_of(content)["masked"]

    def unmasking(self, sent):
        """The server's side, given what has arrived."""
        boxes = {k: words[WORDS:].view(np.uint8).reshape(-1, 48) for k, words in sent.items()}
        keys = [bytes.fromhex(key) for key in self.setup.keys]
        return unmasking.Unmasking(self.circle, keys, boxes)

    def confirmation(self, place, survivors, number=1):
        """By what a party confirms who is in a sum."""
        seals, kept = secure.confirmed(self.contexts[place], self.setup, number, survivors)
        self.contexts[place].state.update(kept)
        return seals

    def answer(self, server, place, number=1, survivors=None, boxes=None, seals=None):
        """What a party returns in the unmasking; the parties in the sum confirm it where needed."""
        marks = server.survivors if survivors is None else survivors
        shares = server.forwarded(place) if boxes is None else boxes
        if seals is None and server.lost and survivors is None:
            seals = {k: self.confirmation(k, marks, number) for k in server.boxes}
        given = None if seals is None else server.seals_for(place, seals)
        keys, kept = secure.unmasked(self.contexts[place], self.setup, number, marks, shares, given)
        self.contexts[place].state.update(kept)
        return keys


@given(st.integers(3, 12), st.sampled_from([0.5, 0.8]), st.data())
def test_the_sum_is_that_of_the_survivors_or_there_is_none(count, quorum, data):
    parties = Parties(count, quorum)
    least, everyone = parties.circle.least, range(count)
    if parties.circle.all_must_reply:
        total = added((parties.masked(place) for place in everyone), SIZE)
        np.testing.assert_array_equal(total, parties.vectors.sum(axis=0))
        return
    lost = data.draw(st.sets(st.sampled_from(everyone), max_size=count - least), "lost")
    survivors = [place for place in everyone if place not in lost]
    silent = data.draw(st.sets(st.sampled_from(survivors), max_size=count - least + 1), "silent")
    sent = {place: parties.masked(place) for place in everyone}
    server = parties.unmasking({place: sent[place] for place in survivors})
    answers = {p: parties.answer(server, p) for p in survivors if p not in silent}
    enough = len(answers) == len(survivors) if lost else len(answers) >= least
    assert server.enough(answers) is enough
    if enough:
        masks = server.masks(answers, SIZE)
        total = added((sent[place][:WORDS] for place in survivors), SIZE, masks)
        np.testing.assert_array_equal(total, parties.vectors[survivors].sum(axis=0))
    # What the server can remove from the vector of a party that was late: the masks of pairs.
    for late in lost if enough else ():
        keys = parties.setup.keys
        pairs = [
            (answers[near][late].tobytes(), 1 if keys[late] < keys[near] else -1)
            for near in answers
        ]
        rest = added([sent[late][:WORDS]], SIZE, streams(pairs, SIZE))
        others = [place for place in lost if place != late]
        assert (rest > 2**32).any() or others
        assert not np.array_equal(rest, parties.vectors[late])


def unmasked_once(count=5, lost=()):
    parties = Parties(count)
    sent = {k: parties.masked(k) for k in range(count) if k not in lost}
    return parties, parties.unmasking(sent)


def test_a_party_unmasks_a_sum_once_and_for_one_set_of_parties():
    parties, server = unmasked_once()
    first = parties.answer(server, 0)
    np.testing.assert_array_equal(parties.answer(server, 0), first)
    with pytest.raises(FederationError, match="unmasked before, for other parties"):
        parties.answer(server, 0, survivors=np.array([1, 1, 1, 1, 0], dtype=np.uint8))
    parties.confirmation(1, np.array([1, 1, 1, 1, 0]))
    for marks in ([1, 1, 1, 1, 256], [1, 1, 1, 0, 1]):
        with pytest.raises(FederationError, match="unmasked before, for other parties"):
            parties.answer(server, 1, survivors=np.array(marks))
        with pytest.raises(FederationError, match="unmasked before, for other parties"):
            parties.confirmation(1, np.array(marks))
    for number in (0, 2):
        with pytest.raises(FederationError, match="is no sum that this party can unmask now"):
            parties.answer(server, 0, number)
    for k in range(5):
        parties.masked(k, 2)
    with pytest.raises(FederationError, match="is no sum that this party can unmask now"):
        parties.answer(server, 0, 1)


def told(parties, names):
    """1 for each of the named parties."""
    marks = np.zeros(parties, dtype=np.uint8)
    marks[list(names)] = 1
    return marks


def test_parties_that_are_told_different_parties_of_a_sum_give_no_mask_of_a_single_one():
    """Else some return keys of the masks of party 0, and others shares of its seed."""
    parties, server = unmasked_once()
    named = {0: (0, 3, 4), 1: (0, 1, 2), 2: (0, 1, 2), 3: (1, 3, 4), 4: (1, 3, 4)}
    marks = {k: told(5, names) for k, names in named.items()}
    for k in range(5):
        with pytest.raises(FederationError, match="not that of the parties that have agreed"):
            parties.answer(server, k, survivors=marks[k])
    seals = {k: parties.confirmation(k, marks[k]) for k in range(5)}
    for k in range(5):
        with pytest.raises(FederationError, match=r"Only [12] of the parties in the sum"):
            parties.answer(server, k, survivors=marks[k], seals=seals)


@given(st.integers(4, 7), st.data())
def test_keys_are_returned_for_one_set_of_parties_and_then_too_few_shares_for_another(count, data):
    parties, server = unmasked_once(count)
    least, everyone = parties.circle.least, frozenset(range(count))
    sets = st.frozensets(st.sampled_from(sorted(everyone)), min_size=least, max_size=count)
    choices = [everyone, *data.draw(st.lists(sets, min_size=1, max_size=2), "choices")]
    confirmed, asked = (
        [data.draw(st.sampled_from(choices)) for _ in everyone] for _ in ("confirmed", "asked")
    )
    seals, answered = {}, []
    for k, names in enumerate(confirmed):
        with suppress(FederationError):
            seals[k] = parties.confirmation(k, told(count, names))
    for k, names in enumerate(asked):
        with suppress(FederationError):
            parties.answer(server, k, survivors=told(count, names), seals=seals)
            answered.append(names)
    smaller = set(answered) - {everyone}
    assert len(smaller) <= 1
    assert not smaller or answered.count(everyone) < least


def test_a_confirmation_is_of_one_sum_one_sender_and_one_set_of_parties():
    parties, server = unmasked_once(lost=(4,))
    seals = {k: parties.confirmation(k, server.survivors) for k in range(4)}
    assert not seals[0][[0, 4]].any()
    assert len(np.unique(np.concatenate(list(seals.values())), axis=0)) == 1 + 4 * 3
    exchanged = {**seals, 1: seals[2], 2: seals[1]}
    altered = {**seals, 1: seals[1] ^ 1, 2: seals[2] ^ 1}
    for wrong in (exchanged, altered, {0: seals[0], 1: seals[1]}):
        with pytest.raises(FederationError, match="Only 2 of the parties in the sum have conf"):
            parties.answer(server, 0, seals=wrong)
    # Three are enough, its own included.
    parties.answer(server, 0, seals={1: seals[1], 3: seals[3]})
    later = parties.unmasking({k: parties.masked(k, 2) for k in range(4)})
    with pytest.raises(FederationError, match="Only 1 of the parties in the sum have conf"):
        parties.answer(later, 0, 2, seals=seals)


@pytest.mark.slow
def test_of_many_parties_all_can_confirm_and_not_neighbours_alone():
    parties = Parties(120, quorum=0.75)
    server = parties.unmasking({k: parties.masked(k) for k in range(1, 120)})
    assert len(parties.circle.holders(1)) < 90
    seals = {k: parties.confirmation(k, server.survivors) for k in range(1, 92)}
    parties.answer(server, 1, seals={k: seals[k] for k in range(1, 91)})
    with pytest.raises(FederationError, match=r"Only 89 of the parties .* and 90 must"):
        parties.answer(server, 2, seals={k: seals[k] for k in range(1, 90)})


def test_a_resumed_run_unmasks_its_last_sum_for_the_same_parties_only():
    parties, server = unmasked_once()
    parties.answer(server, 0)
    keys = [secure.offer_key(own.state, running=False) for own in parties.contexts]
    parties.setup.keys = tuple(keys)
    parties.circle = masks.circle_of(parties.setup.keys, 3, TOKEN)
    server = parties.unmasking({k: parties.masked(k) for k in range(4)})
    with pytest.raises(FederationError, match="unmasked before, for other parties"):
        parties.confirmation(0, server.survivors)
    # Those that had not answered.
    seals = {k: parties.confirmation(k, server.survivors) for k in range(1, 4)}
    parties.answer(server, 1, seals=seals)


def test_absent_parties_keep_their_places():
    """Else one list of marks would name different parties."""
    parties = Parties(6)
    parties.setup.keys = (*parties.setup.keys[:2], "", *parties.setup.keys[3:])
    parties.masked(0)
    parties.setup.keys = (*parties.setup.keys[:2], *parties.setup.keys[3:], "")
    with pytest.raises(FederationError, match="is no sum that this party can unmask now"):
        secure.unmasked(
            parties.contexts[0],
            parties.setup,
            1,
            np.array([1, 1, 0, 1, 1, 0], dtype=np.uint8),
            np.zeros((5, 48), dtype=np.uint8),
        )


def test_sums_of_too_few_or_of_others_are_not_unmasked():
    parties, server = unmasked_once()
    for marks, reason in (
        ([1, 1, 0, 0, 0], "sum of 2 parties is not unmasked: at least 3 of 5"),
        ([0, 1, 1, 1, 1], "This party's vector"),
        ([1, 1, 1, 1], "not that of the parties that have agreed"),
    ):
        with pytest.raises(FederationError, match=reason):
            parties.answer(server, 0, survivors=np.array(marks, dtype=np.uint8))
    for boxes in (server.forwarded(0)[:4], server.forwarded(0)[[0, 0, 1, 2, 3, 4]]):
        with pytest.raises(FederationError, match="not that of the parties that have agreed"):
            parties.answer(server, 0, boxes=boxes)
    # Nor under other terms than those of the masks.
    parties.setup.least_parties = (4,)
    with pytest.raises(FederationError, match="is no sum that this party can unmask now"):
        parties.answer(server, 0)


def test_of_many_parties_enough_neighbours_must_be_in_the_sum():
    parties = Parties(200, quorum=0.7)
    parties.masked(0)
    holders, shares = parties.circle.holders(0), parties.circle.shares
    marks = np.ones(200, dtype=np.uint8)
    marks[[k for k in holders if k != 0][: len(holders) - shares + 1]] = 0
    assert parties.setup.least_parties[0] <= marks.sum()
    boxes = np.zeros((len(holders), 48), dtype=np.uint8)
    with pytest.raises(FederationError, match=f"and {shares} of {len(holders)} neighbours"):
        secure.unmasked(parties.contexts[0], parties.setup, 1, marks, boxes)


def test_altered_shares_and_those_of_another_sum_are_refused():
    parties, server = unmasked_once()
    for row, byte in ((1, 0), (4, 47)):
        boxes = server.forwarded(0)
        boxes[row, byte] ^= 1
        with pytest.raises(FederationError, match=f"share of party {row + 1} .* was altered"):
            parties.answer(server, 0, boxes=boxes)
    exchanged = server.forwarded(0)[[0, 2, 1, 3, 4]]
    with pytest.raises(FederationError, match="was altered, or is of another sum"):
        parties.answer(server, 0, boxes=exchanged)
    with pytest.raises(FederationError, match="was altered, or is of another sum"):
        parties.answer(server, 0, boxes=server.forwarded(1))
    later = parties.unmasking({k: parties.masked(k, 2) for k in range(5)})
    with pytest.raises(FederationError, match="was altered, or is of another sum"):
        parties.answer(later, 0, 2, boxes=server.forwarded(0))
    parties.answer(later, 0, 2)


def test_where_all_must_reply_nothing_is_unmasked():
    parties = Parties(4, 1.0)
    parties.masked(0)
    marks, none = np.ones(4, dtype=np.uint8), np.zeros((4, 48), dtype=np.uint8)
    with pytest.raises(FederationError, match="is no sum that this party can unmask now"):
        secure.unmasked(parties.contexts[0], parties.setup, 1, marks, none)


def test_the_two_directions_of_a_pair_have_keys_of_their_own():
    pair = PairKey(bytes(range(32)), 1, 3)
    one, other = (unmasking.encrypted(bytes(32), pair, b"p", own) for own in (b"a", b"b"))
    assert one != other
    assert unmasking.decrypted(one, pair, b"p", b"a") == bytes(32)
    with pytest.raises(FederationError, match="share of party 4"):
        unmasking.decrypted(one, pair, b"p", b"b")


def test_an_altered_answer_leaves_masks_in_the_sum():
    parties, server = unmasked_once()
    answers = {k: parties.answer(server, k).copy() for k in range(5)}
    right = server.masks(answers, SIZE)
    answers[0][2, 0] ^= 1
    assert (server.masks(answers, SIZE) != right).all()


def test_a_repeated_question_has_the_same_bytes_and_the_next_sum_others():
    parties = Parties(5)
    first = parties.masked(0)
    np.testing.assert_array_equal(parties.masked(0), first)
    with pytest.raises(FederationError, match="would reveal their difference"):
        parties.masked(0, vector=parties.vectors[1])
    assert (parties.masked(0, 2) != first).all()


def test_what_leaves_in_an_unmasking_is_of_this_sum_only():
    parties, server = unmasked_once(lost=(4,))
    keys = parties.answer(server, 0)
    private = parties.contexts[0].state[secure.SECURE]
    assert private["key"] not in map(bytes, keys)
    assert private["seed"] not in map(bytes, keys)
    sent = {k: parties.masked(k, 2) for k in range(4)}
    again = parties.answer(parties.unmasking(sent), 0, 2)
    # The key of the mask with the missing party, and all shares, are others in the next sum.
    assert (keys != again).any(axis=1).all()


def test_every_byte_of_the_encrypted_shares_is_uniform_at_its_position():
    parties, server = unmasked_once(20)
    boxes = np.concatenate(list(server.boxes.values()))
    assert boxes.shape == (20 * 19, 48)
    p_values = [
        stats.chisquare(np.bincount(column >> 4, minlength=16)).pvalue for column in boxes.T
    ]
    assert min(p_values) > 1e-6
    shares = np.concatenate([parties.answer(server, place) for place in range(20)])
    assert len(np.unique(shares, axis=0)) == len(np.unique(boxes, axis=0)) + 20 == 400


def test_seeds_have_their_full_length_and_are_not_drawn_from_a_seeded_generator():
    import random

    drawn = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        drawn.append(unmasking.new_seed())
    assert drawn[0] != drawn[1]
    for seed in drawn:
        # A short seed that is repeated to the full width would pass every other test.
        assert len(seed) == 32
        assert len({seed[start : start + 4] for start in range(0, 32, 4)}) == 8
    coefficients = unmasking.polynomial(drawn[0], 4)
    assert len(set(coefficients)) == 4
    assert min(coefficients) > 2**200
    assert len(unmasking.own_key(coefficients)) == 32


def test_the_state_holds_plain_values():
    parties, server = unmasked_once()
    parties.answer(server, 0)
    assert isinstance(parties.contexts[0].state[secure.SECURE], ConfigRecord)


def stream_of(parties, one, other):
    """The mask of two parties in the first sum, and its sign at the first of them."""
    keys = [bytes.fromhex(key) for key in parties.setup.keys]
    private = parties.contexts[one].state[secure.SECURE]["key"]
    (pair,) = pair_keys(private, keys, [other])
    purpose = parties.contexts[0].state[secure.SECURE]["purpose"]  # the same at all parties
    return streams([(mask_key(pair, purpose), 1)], SIZE), pair.sign


@pytest.mark.parametrize(("quorum", "lost"), [(0.5, ()), (0.5, (1, 4)), (1.0, ())])
def test_any_other_vectors_of_the_same_sum_could_have_been_sent(quorum, lost):
    """A witness: masks under which other vectors give the same bytes, once the server unmasked."""
    parties = Parties(6, quorum)
    survivors = [place for place in range(6) if place not in lost]
    sent = {place: parties.masked(place)[:WORDS] for place in survivors}
    for place in survivors if quorum < 1 else ():
        seed = parties.contexts[place].state[secure.SECURE]["seed"]
        coefficients = unmasking.polynomial(seed, parties.circle.shares)
        own = streams([(unmasking.own_key(coefficients), 1)], SIZE)
        sent[place] = added([sent[place]], SIZE, own)
    # What is left are the vector and one stream for each other party.
    pairs = {pair: stream_of(parties, *pair) for pair in itertools.permutations(range(6), 2)}
    for place in survivors:
        masks = [pairs[place, other] for other in range(6) if other != place]
        vector = sent[place].copy()
        for stream, sign in masks:
            vector = added([vector], SIZE, stream) if sign > 0 else added([vector, stream], SIZE)
        np.testing.assert_array_equal(vector, parties.vectors[place])
    for one, other in itertools.combinations(range(6), 2):
        np.testing.assert_array_equal(pairs[one, other][0], pairs[other, one][0])
        assert pairs[one, other][1] == -pairs[other, one][1]
    assert len({stream.tobytes() for stream, _ in pairs.values()}) == 15
    # Any other vectors with the same sum: the streams with the first survivor take up the change.
    rng = np.random.default_rng(1)
    first, *rest = survivors
    others = rng.integers(0, 2**64, (6, WORDS), dtype=np.uint64)
    total = added(parties.vectors[survivors], SIZE)
    others[first] = added([total], SIZE, added(others[rest], SIZE))
    for place in rest:
        stream, sign = pairs[place, first]
        change = added([parties.vectors[place]], SIZE, others[place])
        changed = added([stream, change], SIZE) if sign > 0 else added([stream], SIZE, change)
        pairs[place, first] = changed, sign
        pairs[first, place] = changed, -sign
    for place in survivors:
        words = others[place].copy()
        for other in range(6):
            if other != place:
                stream, sign = pairs[place, other]
                words = added([words, stream], SIZE) if sign > 0 else added([words], SIZE, stream)
        np.testing.assert_array_equal(words, sent[place])


def told_apart(mask):
    """How often a linear classifier, trained on other draws, tells two masked vectors apart."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 3000)
    values = np.where(which[:, None] == 0, np.uint64(5), np.uint64(2**40)).repeat(2, axis=1)
    words = np.array([added([own, mask()], Size(1, 1)) for own in values])
    bits = np.unpackbits(words.view(np.uint8), axis=1)
    design = np.column_stack([bits - 0.5, np.ones(len(bits))])
    train, test = slice(0, 2000), slice(2000, None)
    penalised = design[train].T @ design[train] + 10 * np.eye(design.shape[1])
    weights = np.linalg.solve(penalised, design[train].T @ (2 * which[train] - 1))
    return np.mean((design[test] @ weights > 0) == which[test])


def test_a_trained_classifier_does_not_tell_masked_vectors_apart():
    rng = np.random.default_rng(1)

    def masked():
        return streams(mask_keys([PairKey(rng.bytes(32), 1)], b"p"), Size(1, 1))

    # Four standard errors of a thousand guesses.
    assert abs(told_apart(masked) - 0.5) < 0.065
    # It does where the mask has too few bits, or is one that is used twice.
    assert told_apart(lambda: rng.integers(0, 2**38, 2, dtype=np.uint64)) > 0.95
    assert told_apart(lambda: np.full(2, 77777, dtype=np.uint64)) > 0.95
