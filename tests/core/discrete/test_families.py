"""The table of families against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.families import FULL, empty_families, enlarged, enter, find, row_of

FAMILY = st.integers(0, 11).flatmap(
    lambda owner: st.tuples(
        st.just(owner), st.sets(st.integers(0, 11).filter(lambda x: x != owner), max_size=9)
    )
)


def ascending(members):
    return np.array(sorted(members), dtype=np.int64)


@given(st.lists(FAMILY, max_size=60), st.randoms(use_true_random=False))
def test_the_table_remembers_as_a_dict_does(entries, random):
    families, known = empty_families(12, rows=2, width=1), {}
    for number, (owner, members) in enumerate(entries):
        shuffled = list(members)
        random.shuffle(shuffled)
        families, row = row_of(families, owner, shuffled)
        key = owner, frozenset(members)
        if key in known:
            assert row == known[key][0]
        else:
            assert row == len(known)
            assert np.isnan(families.gains[row]).all()
            known[key] = row, float(number)
            families.gains[row] = number
    assert families.used[0] == len(known)
    for (owner, members), (row, value) in known.items():
        assert find(families, owner, ascending(members), len(members)) == row
        assert families.owners[row] == owner
        assert families.members[row, : families.sizes[row]].tolist() == sorted(members)
        assert (families.gains[row] == value).all()
    for owner, members in entries:
        other = members ^ {(owner + 1) % 12}
        expected = known.get((owner, frozenset(other)))
        row = find(families, owner, ascending(other), len(other))
        assert row < 0 if expected is None else row == expected[0]


def test_a_full_table_says_so_and_can_be_enlarged():
    families = empty_families(5, rows=2, width=2)
    assert enter(families, 0, ascending([1]), 1) == 0
    assert enter(families, 0, ascending([1, 2, 3]), 3) == FULL  # too large a set
    assert enter(families, 1, ascending([0]), 1) == 1
    assert enter(families, 2, ascending([0]), 1) == FULL  # too many families
    assert enter(families, 0, ascending([1]), 1) == 0  # known ones need no room
    families.gains[1] = 7.0
    families = enlarged(enlarged(families), width=3)
    assert families.owners.shape == (4,)
    assert families.members.shape == (4, 3)
    assert enter(families, 0, ascending([1, 2, 3]), 3) == 2
    assert find(families, 1, ascending([0]), 1) == 1
    assert (families.gains[1] == 7.0).all()
    assert np.isnan(families.gains[2:]).all()


def test_a_prefix_or_another_owner_is_another_family():
    families, first = row_of(empty_families(6), 0, [1, 2])
    families, second = row_of(families, 0, [1])
    families, third = row_of(families, 3, [1, 2])
    families, empty = row_of(families, 0, [])
    assert [first, second, third, empty] == [0, 1, 2, 3]
