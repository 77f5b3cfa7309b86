"""What keys are bound to: no two purposes are the same bytes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.secure.purposes import PURPOSE_BYTES, purpose_of

CONFUSABLE = (
    (),
    ("",),
    ("", ""),
    (None,),
    ("1",),
    (1,),
    (1.0,),
    (True,),
    (b"1",),
    (-1,),
    ("asb",),
    ("a", "b"),
    (["asb"],),
    (["a", "b"],),
    (b"ayb",),
    (b"a", b"b"),
    (12,),
    (1, 2),
    ("a b", "c"),
    ("a", "b c"),
    ("a", "b", "c"),
    (["a", "b"], "c"),
    ("a", ["b", "c"]),
    (["a", ["b", "c"]],),
    ({"a": "b"},),
    ({"a": "b", "c": ""},),
    ("e\u0301",),
    ("\u00e9",),
    ("A",),
    ("a",),
    ("a\n",),
    (np.zeros(2),),
    (np.zeros(2, np.float32),),
    (np.zeros(2, np.uint8),),
    (np.zeros((2, 1)),),
    (np.zeros((1, 2)),),
    (np.array([0.0, -0.0]),),
    ([0.0, 0.0],),
    (float("nan"),),
    (float("inf"),),
    (10**30,),
    (np.array(["a"]),),
    (np.array(["b"]),),
)


def test_no_field_is_taken_for_another():
    found = {purpose_of("label", *fields) for fields in CONFUSABLE}
    found |= {purpose_of("labe", "l", *fields) for fields in CONFUSABLE}
    assert len(found) == 2 * len(CONFUSABLE)
    assert {len(one) for one in found} == {PURPOSE_BYTES}


fields = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=1),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.lists(fields, max_size=4), st.lists(fields, max_size=4))
def test_purposes_are_equal_only_where_all_fields_are(one, other):
    assert (purpose_of("x", *one) == purpose_of("x", *other)) == (repr(one) == repr(other))


def test_labels_are_part_of_a_purpose():
    assert purpose_of("mask", 1) != purpose_of("seal", 1)
    assert purpose_of("mask", "x") != purpose_of("x", "mask")
    assert purpose_of("mask") != purpose_of("seal")


def test_the_order_of_a_mapping_and_of_an_arrays_bytes_does_not_matter():
    assert purpose_of("x", {"a": 1, "b": 2}) == purpose_of("x", {"b": 2, "a": 1})
    values = np.arange(6.0).reshape(2, 3)
    same = [values, np.asfortranarray(values), values.astype(">f8")]
    assert all(purpose_of("x", a) == purpose_of("x", b) for a, b in combinations(same, 2))


@pytest.mark.parametrize("field", [object(), {1, 2}, np.array([None])])
def test_what_has_no_encoding_is_refused(field):
    with pytest.raises(TypeError, match="no field of the type"):
        purpose_of("x", field)
