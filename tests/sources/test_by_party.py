"""Sums of each party, or of each group: those of its own rows, whose total is that of all rows."""

from types import SimpleNamespace

import numpy as np
import pytest
from federations import losing, make_federation
from pooled import pooled, products

from flwr_causal.errors import FederationError
from flwr_causal.protocol.replies import Replies, Summed
from flwr_causal.sources.by_party import sums_by_party

TABLES = [
    table.iloc[: 12 + 3 * k] * (1.0, 9.0, 1.0) + k
    for k, table in enumerate(make_federation(d=3, n=300, parties=8, seed=4).tables)
]
OPTIONS = {"local_graphs": True}


def check(found, tables):
    """Each part is of its tables about the agreed means, and their sum over all rows has ones."""
    own = np.array([*found.parts.values()])
    expected = [products(np.concatenate(part) - found.agreement.mean) for part in tables]
    np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-4)
    rows = sum(len(one) for part in tables for one in part)
    np.testing.assert_allclose(found.values, [sum(expected) / rows], rtol=1e-5, atol=1e-5)
    assert found.values[0, 0, 0] == pytest.approx(1.0, abs=1e-12)
    assert found.agreement.n == rows


def test_parts_are_those_of_the_parties():
    found = pooled(TABLES[:4], **OPTIONS)
    assert list(found.parts) == [f"party {k}" for k in range(4)]
    check(found, [[one] for one in TABLES[:4]])


def test_a_party_that_is_lost_is_no_part():
    found = pooled(TABLES[:4], grid=losing({(1, False): [1]}), **OPTIONS)
    assert list(found.parts) == ["party 0", "party 2", "party 3"]
    check(found, [[TABLES[k]] for k in (0, 2, 3)])


@pytest.mark.parametrize("lost", [False, True])
def test_parts_of_groups_are_those_of_the_parties_in_their_sums(lost):
    options = {**OPTIONS, "secure_aggregation": True, "groups": 2}
    # A group of four of which one is lost is a sum of three.
    found = pooled(TABLES, grid=losing({(1, False): [2]} if lost else {}), **options)
    kept = [k for k in range(8) if not lost or k != 2]
    assert len(found.parts) == 2
    rows = [round(one[0, 0]) for one in found.parts.values()]
    assert sum(rows) == found.agreement.n == sum(len(TABLES[k]) for k in kept)
    z = np.concatenate([TABLES[k] for k in kept]) - found.agreement.mean
    np.testing.assert_allclose(sum(found.parts.values()), products(z), atol=1e-3)
    np.testing.assert_allclose(found.values[0], products(z) / len(z), atol=1e-4)


def replies_of(names, sums=None):
    return Replies(
        names, by_party={name: {"moments": np.eye(2)} for name in names}, sums=sums or {}
    )


def test_means_count_by_rows():
    agreement = SimpleNamespace(rows={"one": 3, "two": 5})
    found = sums_by_party(replies_of(("one", "two")), agreement)
    np.testing.assert_array_equal(found["one"], 3 * np.eye(2))
    np.testing.assert_array_equal(found["two"], 5 * np.eye(2))
    # Of groups the rows are those in the sums.
    sums = {"first": Summed(3, ("one",)), "second": Summed(11, ("two", "three"))}
    found = sums_by_party(replies_of(("first", "second"), sums), agreement)
    np.testing.assert_array_equal(found["second"], 11 * np.eye(2))


def test_one_part_alone_is_not_compared():
    with pytest.raises(FederationError, match="there are the moments of one only"):
        sums_by_party(replies_of(("one",)), SimpleNamespace(rows={"one": 3}))
