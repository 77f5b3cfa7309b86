"""Whatever is given for tables, files and options: a result, or an error with the remedy."""

import contextlib
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.app.config import main, pairs_of, read_config
from flwr_causal.app.methods import METHODS, OWN_METHODS, find
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.options import option_types
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

TABLES = make_federation(d=3, n=60, parties=3).tables
# What each method needs so that these tables make a short run.
SHORT = {"fedges": {"discretize": 3}, "notears-admm": {"max_rounds": 6}, "2dbn": {"max_rounds": 6}}


def given_second(table):
    return [TABLES[0], table, TABLES[2]]


# The collection of parties.


@pytest.mark.parametrize("make", [iter, tuple, lambda tables: (table for table in tables)])
def test_parties_are_any_iterable(make):
    run = simulate("moments", make(TABLES))
    assert run.graph.equals(simulate("moments", TABLES).graph)


@pytest.mark.parametrize(
    ("parties", "words"),
    [
        (TABLES[0], r"a single DataFrame: give a list .*\[table\]"),
        (TABLES[0].to_numpy(), r"a single ndarray: .*\[table\]"),
        ("/data/a.csv", "a single str: give a list"),
        (dict(enumerate(TABLES)), r"is a dict: .*list\(parties\.values\(\)\)"),
        ({"/data/a.csv"}, "is a set, which has no order"),
        (None, "of type NoneType: give a list"),
        (7, "of type int: give a list"),
        (iter(()), "no parties"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_list_of_parties(parties, words):
    with pytest.raises(DataError, match=words):
        simulate("moments", parties)


# Columns and their names.


@pytest.mark.parametrize("method", OWN_METHODS)
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([10**20 + k % 3 for k in range(20)], r"beyond 2\^53 .* subtract a number"),
        ([10**400 + k for k in range(20)], "no float64 .* larger unit"),
    ],
    ids=["equal as float64", "beyond float64"],
)
def test_whole_numbers_that_float64_cannot_hold(method, values, words):
    table = TABLES[1].assign(x1=pd.Series(values, dtype=object))
    with pytest.raises(DataError, match=f"party 1: column 'x1' .*{words}"):
        simulate(method, given_second(table), **SHORT.get(method, {}))


def test_half_a_surrogate_pair_is_no_state_but_can_be_left_out():
    tables = [t.assign(x1=pd.Series(["\udc80", "u"] * 10, dtype=object)) for t in TABLES]
    with pytest.raises(DataError, match="party 2: column 'x1': a text is not valid"):
        simulate("fedpc", tables)
    assert simulate("moments", tables, text_columns="drop").graph.names == ("x0", "x2")


def test_numbers_in_another_byte_order_are_the_same_numbers():
    swapped = TABLES[1].astype(">f8")
    for method in ("moments", "2dbn"):
        own = simulate(method, TABLES, **SHORT.get(method, {}))
        assert own.graph.equals(
            simulate(method, given_second(swapped), **SHORT.get(method, {})).graph
        )


def test_fedpc_takes_pandas_categories_of_numbers():
    """Their states are texts to the parties, and numbers in the tables."""
    tables = [t.assign(x1=pd.Categorical((t["x1"] > 0).astype(int) + 1)) for t in TABLES]
    texts = [t.assign(x1=t["x1"].astype(str)) for t in tables]
    model, other = (simulate("fedpc", given).model for given in (tables, texts))
    assert np.array_equal(model.log_likelihood(tables[0]), other.log_likelihood(texts[0]))


# Files.


def test_files_that_are_no_tables(tmp_path):
    def message(path):
        with pytest.raises(DataError, match=r"party 1( \(.*\))?: ") as caught:
            simulate("moments", given_second(path))
        assert str(path) in str(caught.value)
        return str(caught.value)

    foreign = tmp_path / "foreign.npz"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("hello.txt", "hello")
    assert "holds no array" in message(foreign)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9999), }\n"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert "cannot be read" in message(foreign)
    np.savez_compressed(tmp_path / "cut.npz", X=TABLES[1])
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:60] + b"\xff" * 10 + whole[70:])
    assert "save the table again" in message(tmp_path / "cut.npz")
    assert "is a pipe or a device" in message("/dev/null")
    assert "no path that can be read" in message("/" + "x" * 300 + ".csv")


# Options.

ABSURD = [
    10**18,
    2**63,
    -(10**400),
    10**5000,
    float("nan"),
    float("-inf"),
    np.float32("nan"),
    np.bool_(True),
    np.array([1, 2]),
    pd.NA,
    pd.Timestamp(0),
    "\udc80",
    "a\0b",
    "x" * 9999,
    b"x",
    1j,
    [],
    {},
    TABLES[0],
    len,
    object(),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("method", OWN_METHODS)
def test_absurd_options(method):
    """Each option of each method with each value: built, or refused by name."""
    strategy = find(method).strategy
    for name in option_types(strategy.options_type):
        for value in ABSURD:
            with contextlib.suppress(ConfigError):
                strategy(**{name: value})


@pytest.mark.parametrize("method", OWN_METHODS)
def test_more_rounds_than_anybody_waits_for(method):
    with pytest.raises(ConfigError, match="max_rounds"):
        simulate(method, TABLES, max_rounds=10**18)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": -1}, "'seed' is -1; it must be 0 or more"),
        ({"seed": True}, "'seed' is True"),
        ({"engine": np.array(["local", "ray"])}, "'engine' is"),
        ({"client": int}, "'client' is .* subclass of CausalClient"),
        ({"wrap_grid": 3}, "'wrap_grid' is 3; it must be a function"),
        ({"wrap_grid": lambda grid: None}, "wrap_grid returned None"),
        ({"min_available_nodes": 4}, "'min_available_nodes' is 4, but there are 3 parties"),
        ({"truth": [[10**400] * 3] * 3}, "not a number"),
        ({"truth": np.eye(3) * 1j}, "not a number"),
        ({"truth": [[1], [1, 2]]}, "truth is no matrix"),
        ({"truth": CausalGraph.from_array(np.zeros((2, 2)))}, "truth has no variable 'x2'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_the_other_arguments(arguments, words):
    with pytest.raises(CausalError, match=words):
        simulate("moments", TABLES, **arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-rounds=" + "9" * 5000, "'max-rounds' is a value of type str; it must be a whole"),
        ("max-rounds=" + "[" * 5000, "'max-rounds' is"),
        ("truth=/" + "x" * 5000, "There is no file"),
        ("variables=1000000", "'variables' is 1000000; it must be at most 10000"),
        ("rows=1000000000000", "'rows' is 1000000000000; it must be at most 50000000"),
        ("seed=-1", "'seed' is -1"),
    ],
)
def test_absurd_run_configs(text, words):
    with pytest.raises(ConfigError, match=words):
        read_config(pairs_of(text))


def test_a_long_text_is_split_in_no_time():
    with pytest.raises(ConfigError, match="is no key=value"):
        pairs_of("x" * 200_000)


@pytest.mark.parametrize("content", [b"\xff", b"a=", b"a=" + b"[" * 100_000])
def test_a_run_config_that_is_no_toml(content, tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    assert main([str(path)]) == 1
    assert "cannot be read as TOML" in capsys.readouterr().err


# All of it at random.

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.decimals(),
    st.dates(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
)
COLUMNS = st.one_of(
    *(
        st.lists(kind, min_size=6, max_size=6)
        for kind in (CELLS, st.integers(), st.floats(), st.sampled_from([2**70, 2**70 + 1, -1]))
    )
)
TEXTS = st.one_of(st.text(st.characters(), max_size=3), st.just("x0"))
NAMES = st.one_of(TEXTS, st.none(), st.floats(), st.binary(max_size=2))


@st.composite
def frames(draw):
    columns = draw(st.lists(COLUMNS, max_size=3))
    names = draw(st.lists(NAMES, min_size=len(columns), max_size=len(columns)))
    frame = pd.DataFrame({k: pd.Series(c, dtype=object) for k, c in enumerate(columns)})
    if draw(st.booleans()):
        frame = frame.infer_objects()
    frame.columns = pd.Index(names, dtype=object)
    return frame.iloc[: draw(st.integers(0, 6))]


THINGS = st.one_of(
    frames(), CELLS, st.lists(frames(), max_size=2), st.builds(lambda f: f.to_numpy(), frames())
)


@given(
    table=THINGS,
    alike=st.booleans(),
    method=st.sampled_from(sorted(set(METHODS) & set(OWN_METHODS))),
    drop=st.booleans(),
)
def test_any_tables_give_a_run_or_an_error_with_words(table, alike, method, drop):
    options = {**SHORT.get(method, {}), **({"missing_values": "drop"} if drop else {})}
    parties = [table] * 2 if alike else given_second(table)
    try:
        result = simulate(method, parties, **options)
    except CausalError as error:
        result = error
    # No error of another kind, and in none the number of a node for a party's name.
    assert isinstance(result, Run) or not re.search(r"\bnode \d", str(result))
