"""Background knowledge: masks, contradictions, files."""

import json
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_causal.core.acyclicity import ancestors, is_acyclic
from flwr_causal.core.knowledge import Knowledge
from flwr_causal.errors import ConfigError

NAMES = ("a", "b", "c", "d")


def test_no_knowledge_allows_everything_but_the_diagonal():
    known = Knowledge()
    allowed, required = known.masks(NAMES)
    assert known.empty
    assert not known
    np.testing.assert_array_equal(allowed, ~np.eye(4, dtype=bool))
    assert not required.any()


def test_masks_by_name_whatever_the_column_order():
    known = Knowledge(
        required=[["a", "b"]], forbidden=[("c", "a")], tiers=[["a"], ["b", "c"], ["d"]]
    )
    allowed, required = known.masks(("d", "c", "b", "a"))
    expected_allowed = [
        # to d, c, b, a
        [0, 0, 0, 0],  # d is in the last tier
        [1, 0, 1, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
    ]
    np.testing.assert_array_equal(allowed.astype(int), expected_allowed)
    assert np.argwhere(required).tolist() == [[3, 2]]
    assert known
    assert not known.empty


def test_variables_outside_the_tiers_are_free():
    allowed = Knowledge(tiers=[["a"], ["b"]]).masks(("a", "b", "free")).allowed
    np.testing.assert_array_equal(allowed.astype(int), [[0, 1, 1], [0, 0, 1], [1, 1, 0]])


def test_edges_that_would_close_a_cycle_with_required_ones_are_not_allowed():
    allowed = Knowledge(required=[("a", "b"), ("b", "c")]).masks(NAMES).allowed
    for cause, effect in [("b", "a"), ("c", "b"), ("c", "a")]:
        assert not allowed[NAMES.index(cause), NAMES.index(effect)]
    assert allowed.sum() == 12 - 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_single_allowed_edge_keeps_the_required_ones_acyclic(data):
    order = data.draw(st.permutations(range(5)))
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    names = [f"v{k}" for k in range(5)]
    known = Knowledge(required=[(names[order[i]], names[order[j]]) for i, j in chosen])
    allowed, required = known.masks(names)
    assert (allowed | ~required).all()
    for i in range(5):
        for j in range(5):
            closes = i == j or ancestors(required)[j, i]
            assert allowed[i, j] == (not closes)
            if allowed[i, j]:
                extended = required.copy()
                extended[i, j] = True
                assert is_acyclic(extended)


@pytest.mark.parametrize(
    ("record", "parts"),
    [
        ({"required": [["a", "b"]], "forbidden": [["a", "b"]]}, ["a -> b", "required", "forbid"]),
        ({"required": [["a", "b"], ["b", "c"], ["c", "a"]]}, ["cycle", "a -> b -> c -> a"]),
        ({"required": [["b", "a"]], "tiers": [["a"], ["b"]]}, ["b -> a", "tier 2", "tier 1"]),
        ({"tiers": [["a"], ["b", "a"]]}, ["'a' twice"]),
        ({"tiers": [["a", "a"]]}, ["'a' twice"]),
        ({"required": [["a", "a"]]}, ["a -> a", "itself"]),
        ({"forbidden": [["a", "a"]]}, ["a -> a", "itself"]),
        ({"required": [["a", "b", "c"]]}, ["['a', 'b', 'c']", "pairs"]),
        ({"required": ["ab"]}, ["'required'", "'ab'"]),
        ({"required": "ab"}, ["'required'", "'ab'"]),
        ({"tiers": [1, 2]}, ["'tiers'", "1"]),
        ({"forbidden": [["a", 1]]}, ["'forbidden'", "1", "quote"]),
        ({"forbiden": [["a", "b"]]}, ["'forbiden'", "required, forbidden, tiers"]),
    ],
)
def test_contradictions_and_malformed_entries_name_the_thing(record, parts):
    with pytest.raises(ConfigError) as caught:
        Knowledge.from_dict(record)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("part", ["required", "forbidden"])
def test_unknown_names_are_reported_with_a_suggestion(part):
    known = Knowledge(**{part: [("presure", "flow")]})
    with pytest.raises(ConfigError, match=rf"'{part}'.*'presure'.*did you mean 'pressure'"):
        known.masks(["pressure", "flow"])


def test_unknown_names_in_tiers_list_what_there_is():
    with pytest.raises(ConfigError, match=r"'tiers' names the variable 'zzz'.*they have a, b"):
        Knowledge(tiers=[["zzz"]]).masks(["a", "b"])


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_files_round_trip_with_awkward_names(tmp_path, suffix):
    names = ('say "hi"', "back\\slash", "new\nline", "Zürich \x7f", "tab\t😀")
    known = Knowledge(
        required=[names[:2]], forbidden=[names[1:3]], tiers=[names[:2], names[2:4], (names[4],)]
    )
    path = tmp_path / f"known{suffix}"
    known.save(path)
    assert Knowledge.load(path) == known
    text = path.read_text(encoding="utf-8")
    plain = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
    assert plain["required"] == [list(names[:2])]


def test_a_hand_written_toml(tmp_path):
    path = tmp_path / "k.toml"
    path.write_text('required = [["raf", "mek"]]\ntiers = [\n  ["plc"],\n  ["raf"],\n]\n')
    assert Knowledge.load(path) == Knowledge(required=(("raf", "mek"),), tiers=(("plc",), ("raf",)))


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("k.yaml", "required: []", "neither .toml nor .json"),
        ("k.toml", "required = [", "ill-formed"),
        ("k.json", "[1]", "must hold a table"),
        ("k.json", '{"required": [["a", "a"]]}', "itself"),
        ("absent.toml", None, "cannot read"),
    ],
)
def test_bad_files_name_the_file(tmp_path, name, text, part):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Knowledge.load(path)
    assert part in str(caught.value)
    assert name in str(caught.value)


def test_saving_to_another_type_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"neither \.toml nor \.json"):
        Knowledge().save(tmp_path / "k.yaml")
