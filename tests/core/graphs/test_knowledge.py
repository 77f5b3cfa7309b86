"""Background knowledge: masks, contradictions, files."""

import json
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.graphs.acyclicity import ancestors, is_acyclic
from flwr_causal.core.graphs.knowledge import Knowledge, in_words
from flwr_causal.core.series.design import knowledge_masks, lagged_graph
from flwr_causal.errors import ConfigError

NAMES = ("a", "b", "c", "d")


def test_no_knowledge_allows_everything_but_the_diagonal():
    known = Knowledge()
    allowed, required = known.masks(NAMES)
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


def test_nothing_causes_a_root():
    known = Knowledge(roots=["b", "d"], tiers=[["c"], ["a"]])
    expected = [
        # to a, b, c, d
        [0, 0, 0, 0],
        [1, 0, 1, 0],
        [1, 0, 0, 0],
        [1, 0, 1, 0],
    ]
    np.testing.assert_array_equal(known.masks(NAMES).allowed.astype(int), expected)
    np.testing.assert_array_equal(known.precedence(NAMES).astype(int), expected)
    assert Knowledge.from_dict(known.to_dict()) == known
    assert "roots" not in Knowledge(tiers=[["a"]]).to_dict()
    assert Knowledge(roots=["a"])
    assert in_words(known).endswith("not caused by others: b, d")
    with pytest.raises(ConfigError, match="'roots' names the variable 'e'"):
        Knowledge(roots=["e"]).masks(NAMES)
    with pytest.raises(ConfigError, match="a -> b is required, but b is a root"):
        Knowledge(roots=["b"], required=[("a", "b")])
    with pytest.raises(ConfigError, match="'roots' must be a list of names"):
        Knowledge(roots="b")


def test_variables_outside_the_tiers_are_free():
    allowed = Knowledge(tiers=[["a"], ["b"]]).masks(("a", "b", "free")).allowed
    np.testing.assert_array_equal(allowed.astype(int), [[0, 1, 1], [0, 0, 1], [1, 1, 0]])


def test_edges_that_would_close_a_cycle_with_required_ones_are_not_allowed():
    allowed = Knowledge(required=[("a", "b"), ("b", "c")]).masks(NAMES).allowed
    for cause, effect in [("b", "a"), ("c", "b"), ("c", "a")]:
        assert not allowed[NAMES.index(cause), NAMES.index(effect)]
    assert allowed.sum() == 12 - 3


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
        (
            {"required_lagged": [["a", "b", 2]], "forbidden_lagged": [["a", "b", 2]]},
            ["a -> b at lag 2", "required and forbidden"],
        ),
        (
            {"required_lagged": [["a", "a", 1]], "forbidden_lagged": [["a", "a"]]},
            ["a -> a at lag 1", "required and forbidden"],
        ),
        ({"required_lagged": [["a", "b"]]}, ["['a', 'b']", "expected [cause, effect, lag]"]),
        ({"forbidden_lagged": [["a", "b", 1, 2]]}, ["['a', 'b', 1, 2]", "every lag"]),
        ({"forbidden_lagged": [["a"]]}, ["'forbidden_lagged'", "['a']"]),
        ({"forbidden_lagged": [["a", 1]]}, ["'forbidden_lagged'", "1", "quote"]),
        ({"forbidden_lagged": "ab"}, ["'forbidden_lagged'", "'ab'"]),
        ({"required_lagged": ["abc"]}, ["'required_lagged'", "'abc'"]),
        *(
            ({part: [["a", "b", lag]]}, [f"'{part}'", f"['a', 'b', {lag!r}]", "from 1 up"])
            for part in ("required_lagged", "forbidden_lagged")
            for lag in (0, -1, True, 1.0, "1", None)
        ),
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


@pytest.mark.parametrize("part", ["required_lagged", "forbidden_lagged"])
def test_unknown_names_of_lagged_edges_are_reported_too(part):
    known = Knowledge(**{part: [("flow", "presure", 1)]})
    with pytest.raises(ConfigError, match=rf"'{part}'.*'presure'.*did you mean 'pressure'"):
        known.blocks(["pressure", "flow"], 1)


def test_unknown_names_in_tiers_list_what_there_is():
    with pytest.raises(ConfigError, match=r"'tiers' names the variable 'zzz'.*they have a, b"):
        Knowledge(tiers=[["zzz"]]).masks(["a", "b"])


LAGGED = Knowledge(
    required=[("a", "b")],
    tiers=[("a",), ("b", "c")],
    required_lagged=[("b", "a", 2), ("c", "c", 1)],
    forbidden_lagged=[("a", "c"), ("b", "b", 1)],
)


def test_lagged_edges_in_blocks():
    blocks = LAGGED.blocks(("c", "a", "b"), 2)
    now = Knowledge(required=[("a", "b")], tiers=[("a",), ("b", "c")]).masks(("c", "a", "b"))
    np.testing.assert_array_equal(blocks.allowed_now, now.allowed)
    np.testing.assert_array_equal(blocks.required_now, now.required)
    # the tiers do not bind over lags: of 18 edges only a -> c, twice, and b -> b at lag 1 are out
    assert np.argwhere(~blocks.allowed_lagged).tolist() == [[0, 1, 0], [0, 2, 2], [1, 1, 0]]
    assert np.argwhere(blocks.required_lagged).tolist() == [[0, 0, 0], [1, 2, 1]]


def test_lagged_edges_over_the_columns_of_the_design():
    names = ("c", "a", "b")
    masks, blocks = knowledge_masks(LAGGED, names, 2), LAGGED.blocks(names, 2)
    assert masks.allowed.shape == masks.required.shape == (9, 9)
    assert not masks.allowed[:, 3:].any()
    assert not masks.required[:, 3:].any()
    np.testing.assert_array_equal(masks.allowed[:3, :3], blocks.allowed_now)
    np.testing.assert_array_equal(masks.allowed[3:, :3].reshape(2, 3, 3), blocks.allowed_lagged)
    np.testing.assert_array_equal(masks.required[3:, :3].reshape(2, 3, 3), blocks.required_lagged)
    # b two steps ago to a now
    assert masks.required[6 + 2, 1]
    free = knowledge_masks(None, names, 1)
    assert free.allowed[:, :3].sum() == 6 + 9
    assert not free.required.any()
    for order in (-1, 1.0, True):
        with pytest.raises(ConfigError, match="order is"):
            knowledge_masks(LAGGED, names, order)


def test_the_graph_keeps_to_knowledge_of_lagged_edges():
    weights = np.full((6, 3), 0.1) + np.eye(6, 3, k=-3)
    known = Knowledge(required_lagged=[("b", "a", 1)], forbidden_lagged=[("c", "c")])
    masks = knowledge_masks(known, ("a", "b", "c"), 1)
    graph = lagged_graph(
        ("a", "b", "c"), weights, threshold_now=0.3, threshold_lagged=0.3, masks=masks
    )
    np.testing.assert_array_equal(graph.lagged[0], [[1.1, 0, 0], [0.1, 1.1, 0], [0, 0, 0]])


def test_a_lag_beyond_the_order_is_named():
    message = "'required_lagged' states b -> a at lag 2, but the order is 1: set the order to 2"
    with pytest.raises(ConfigError, match=message):
        LAGGED.blocks("abc", 1)
    with pytest.raises(ConfigError, match=r"'forbidden_lagged' states a -> b at lag 1.*order is 0"):
        Knowledge(forbidden_lagged=[("a", "b", 1)]).blocks("ab", 0)


@pytest.mark.parametrize("part", ["required_lagged", "forbidden_lagged"])
def test_methods_without_lags_refuse_lagged_edges(part):
    known = Knowledge(**{part: [("a", "a", 3), ("a", "b", 1)]})
    assert known
    assert known
    words = (
        r"lagged edges \(a -> a at lag 3, \.\.\.\).*no lags: leave them out, or use '2dbn', or 'mom"
    )
    with pytest.raises(ConfigError, match=words):
        known.masks(("a", "b"))


def test_what_is_forbidden_at_once_may_be_required_later_and_the_other_way_round():
    known = Knowledge(
        required=[("b", "c")],
        forbidden=[("a", "b")],
        required_lagged=[("a", "b", 1), ("c", "b", 1), ("a", "c", 2)],
        forbidden_lagged=[("b", "c"), ("a", "c", 1)],
    )
    assert known.blocks("abc", 2).required_lagged.sum() == 3


NAME = st.text(min_size=1, max_size=4)
LAGS = st.integers(1, 9)


@given(
    required=st.lists(st.tuples(NAME, NAME, LAGS), max_size=4),
    forbidden=st.lists(st.one_of(st.tuples(NAME, NAME, LAGS), st.tuples(NAME, NAME)), max_size=4),
    suffix=st.sampled_from([".toml", ".json"]),
)
def test_lagged_edges_survive_files(tmp_path_factory, required, forbidden, suffix):
    stated = {edge[:2] for edge in required}
    forbidden = [edge for edge in forbidden if edge[:2] not in stated]
    known = Knowledge(required_lagged=required, forbidden_lagged=forbidden)
    assert Knowledge.from_dict(known.to_dict()) == known
    path = tmp_path_factory.mktemp("known") / f"k{suffix}"
    known.save(path)
    again = Knowledge.load(path)
    assert again == known
    assert again.required_lagged == tuple(required)
    assert again.forbidden_lagged == tuple(forbidden)


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
    path.write_text('required_lagged = [["a", "b", 2]]\nforbidden_lagged = [["a", "a"]]\n')
    assert Knowledge.load(path) == Knowledge(
        required_lagged=(("a", "b", 2),), forbidden_lagged=(("a", "a"),)
    )


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
