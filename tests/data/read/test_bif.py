"""BIF files: as others write them, as we write them, and what is wrong with the rest."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.data.read.bif import plain_names, read_bif, write_bif
from flwr_causal.errors import DataError

#: Everything that a file of the format may hold.
FILE = """
// a network { by hand }
network "Dog-Problem" { property "version 1.1; not a state { }" ; property author = nobody ; }
variable lung { type discrete [ 2 ] { yes, no }; property position = (73, 165) ; }
variable "smoke or not" { type discrete[3] { "a lot" some none }; } /* two
lines: variable x { } */
variable tub { property x; type discrete [ 2 ] { <5, 12+ }; }
probability ( "smoke or not" ) { table 0.5, 0.25 2.5e-1; }
probability ( tub ) { table 1e-05 0.99999; } // probability ( tub ) {
probability ( lung | tub, "smoke or not" ) {
  default 0.5, 0.5;
  (<5, "a lot") 0.1, 0.9;
  (12+, some) 1, 0;
  (<5, none) .3 .7;
}
"""


def text_file(tmp_path, text, name="network.bif"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def same(one, two):
    assert (one.names, one.states, one.parents) == (two.names, two.states, two.parents)
    for first, second in zip(one.tables, two.tables, strict=True):
        np.testing.assert_array_equal(first, second)


def random_network(names, states, seed=0):
    """Each variable has up to two of those before it as parents."""
    rng = np.random.default_rng(seed)
    sizes = [len(own) for own in states]
    parents = [tuple(range(max(0, j - 2), j)) for j in range(len(names))]
    tables = [
        rng.dirichlet(np.ones(sizes[j]), size=tuple(sizes[i] for i in parents[j]))
        for j in range(len(names))
    ]
    return BayesianNetwork(tuple(names), tuple(states), tuple(parents), tuple(tables))


# Reading


def test_everything_that_the_format_has(tmp_path):
    network = read_bif(text_file(tmp_path, FILE))
    assert network.names == ("lung", "smoke or not", "tub")
    assert network.states == (("yes", "no"), ("a lot", "some", "none"), ("<5", "12+"))
    assert network.parents == ((1, 2), (), ())
    assert network.tables[1].tolist() == [0.5, 0.25, 0.25]
    assert network.tables[2].tolist() == [1e-05, 0.99999]
    # The file has tub first, the network the variables in order: axes are smoke, tub, lung.
    assert network.tables[0].tolist() == [
        [[0.1, 0.9], [0.5, 0.5]],
        [[0.5, 0.5], [1, 0]],
        [[0.3, 0.7], [0.5, 0.5]],
    ]


def test_a_table_without_labels_is_in_counting_order(tmp_path):
    """The file of JavaBayes, which has no bar either: p(light-on | family-out)."""
    text = """
    variable "light-on" { type discrete[2] { "true" "false" }; }
    variable "family-out" { type discrete[2] { "true" "false" }; }
    probability ( "light-on" "family-out" ) { table 0.6 0.05 0.4 0.95 ; }
    probability ( "family-out" ) { table 0.15 0.85 ; }
    """
    network = read_bif(text_file(tmp_path, text))
    assert network.tables[0].tolist() == [[0.6, 0.4], [0.05, 0.95]]
    # Two parents of different sizes: the last variable runs fastest.
    sizes = {"a": 2, "b": 2, "c": 3}
    head = "".join(
        f"variable {name} {{ type discrete [ {size} ] {{ {' '.join('xyz'[:size])} }}; }}\n"
        for name, size in sizes.items()
    )
    head += "probability ( b ) { table .5 .5; } probability ( c ) { table .5 .25 .25; }\n"
    numbers = np.arange(1, 7) / 10
    body = f"probability ( a | b, c ) {{ table {' '.join(map(str, [*numbers, *(1 - numbers)]))}; }}"
    network = read_bif(text_file(tmp_path, head + body))
    np.testing.assert_array_equal(network.tables[0][..., 0], numbers.reshape(2, 3))


def test_compressed_files_whatever_their_name(tmp_path):
    path = tmp_path / "network.bif"
    path.write_bytes(gzip.compress(FILE.encode()))
    assert read_bif(str(path)).names[0] == "lung"


def test_rounded_rows_are_divided_by_their_sum_and_others_left_alone(tmp_path):
    def read(row):
        text = "variable a { type discrete [ 3 ] { x, y, z }; } probability ( a ) { table ROW; }"
        text = text.replace("ROW", row)
        return read_bif(text_file(tmp_path, text)).tables[0]

    np.testing.assert_allclose(read("0.333, 0.333, 0.333"), [1 / 3] * 3, rtol=1e-15)
    thirds = read("0.3333333333333333, 0.3333333333333333, 0.3333333333333333")
    assert thirds.tolist() == [0.3333333333333333] * 3
    with pytest.raises(DataError, match=r"'a'.*sums to 0\.99[^9]"):
        read("0.33, 0.33, 0.33")
    with pytest.raises(DataError, match="negative"):
        read("0.5, 0.6, -0.1")


GOOD = """
variable a { type discrete [ 2 ] { x, y }; }
variable b { type discrete [ 2 ] { x, y }; }
probability ( a ) { table 0.5, 0.5; }
probability ( b | a ) { (x) 0.1, 0.9; (y) 0.2, 0.8; }
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (GOOD, "", "no variable"),
        (GOOD, "source,target\na,b\n", "found 'source' where a block"),
        (GOOD, '<?xml version="1.0"?><BIF>', "not a BIF file"),
        ("(y) 0.2, 0.8; }", "(y) 0.2,", "not complete"),
        ("(y) 0.2, 0.8; }", "(y) 0.2, 0.8;", "not complete"),
        ("(y) 0.2, 0.8; }", "(y", "not complete"),
        ("(y) 0.2, 0.8; ", "", "'b': 1 rows are missing"),
        ("(y) 0.2", "(z) 0.2", "'b': 'z' is not a state"),
        ("(y) 0.2", "(x) 0.2", "'b'.*given twice"),
        ("(y) 0.2", "(x, y) 0.2", "'b': a row has 2 states for 1 parents"),
        ("(y) 0.2, 0.8", "(y) 0.2, 0.7, 0.1", "'b': expected 2 finite numbers, got 3"),
        ("(y) 0.2, 0.8", "(y) nan, 0.8", "'b': expected 2 finite numbers"),
        ("(y) 0.2, 0.8", "(y) 0.2, much", "'b': could not convert.*much"),
        ("table 0.5, 0.5", "table 0.5", "'a': expected 2 finite numbers, got 1"),
        ("table 0.5, 0.5", "tabel 0.5, 0.5", "'a': found 'tabel' where a row"),
        ("probability ( a ) { table 0.5, 0.5; }", "", "probability of 'a' is missing"),
        ("probability ( a )", "probability ( b )", "'b' is given twice"),
        ("( b | a )", "( b | c )", r"\['c'\], not declared"),
        ("( b | a )", "( )", "not declared"),
        ("( b | a )", "{ b | a }", r"expected '\('"),
        ("variable b", "variable a", "'a' is declared twice"),
        ("discrete [ 2 ] { x, y }", "discrete [ 3 ] { x, y }", "'a' announces .* has 2"),
        ("discrete [ 2 ] { x, y }", "continuous", "'a' is not discrete"),
        ("type discrete [ 2 ] { x, y };", "", "'a' has no states"),
        ("type discrete [ 2 ] { x, y };", "types", "'a': expected .* found 'types'"),
        ("discrete [ 2 ] { x, y }", "discrete [ 2 ] { x, x }", "'a' has a state twice"),
        ("};", "}; property flwr_causal_names = %5B;", "flwr_causal_names is damaged"),
    ],
)
def test_bad_files_name_file_and_variable(tmp_path, old, new, words):
    assert old in GOOD
    with pytest.raises(DataError, match=words) as caught:
        read_bif(text_file(tmp_path, GOOD.replace(old, new)))
    assert "network.bif" in str(caught.value)


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.bif cannot be read"):
        read_bif(tmp_path / "nowhere.bif")
    (tmp_path / "n.bif").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read as text"):
        read_bif(tmp_path / "n.bif")
    (tmp_path / "n.bif").write_bytes(gzip.compress(FILE.encode())[:40])
    with pytest.raises(DataError, match="cannot be read as text"):
        read_bif(tmp_path / "n.bif")
    cycle = GOOD.replace("( a ) { table 0.5, 0.5;", "( a | b ) { default 0.5, 0.5;")
    with pytest.raises(DataError, match="directed cycle"):
        read_bif(text_file(tmp_path, cycle))


# Writing

ODD_NAMES = ["raf kinase", "raf_kinase", "RAF_KINASE", "1st", "table", 'é "q"; }', "", "a//b"]
ODD_STATES = [
    ("<5", ">=5"),
    ("0", "1", "2"),
    ("True", "true"),
    ("a b", "a_b", "a,b"),
    ("x", "default"),
    ("", "-", "--"),
    ("1e-05", "nan"),
    ("ä{}", "\n"),
]


@pytest.mark.parametrize("name", ["n.bif", "n.bif.gz"])
def test_what_is_written_is_read_to_the_last_bit(tmp_path, name):
    network = random_network(ODD_NAMES, ODD_STATES)
    write_bif(network, tmp_path / name)
    same(read_bif(tmp_path / name), network)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    write_bif(network, tmp_path / name)
    assert (tmp_path / name).read_bytes() == content


@given(
    st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True),
    st.lists(
        st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True), min_size=4, max_size=4
    ),
    st.integers(0, 10**6),
)
def test_any_names_survive(tmp_path_factory, names, states, seed):
    states = [tuple(own) for own in states[: len(names)]]
    path = tmp_path_factory.mktemp("n") / "n.bif"
    network = random_network(names, states, seed)
    write_bif(network, path)
    same(read_bif(path), network)


def test_numbers_of_any_size_survive(tmp_path):
    table = np.array([[5e-324, 1.0], [1 / 3, 2 / 3], [1e-17, 1 - 1e-16], [0.1 + 0.2, 0.7 - 1e-12]])
    network = BayesianNetwork(
        ("a", "b"), (tuple("wxyz"), ("p", "q")), ((), (0,)), (np.full(4, 0.25), table)
    )
    write_bif(network, tmp_path / "n.bif")
    same(read_bif(tmp_path / "n.bif"), network)


def test_the_file_is_plain_where_names_are(tmp_path):
    network = read_bif(text_file(tmp_path, GOOD))
    write_bif(network, tmp_path / "out.bif")
    assert (tmp_path / "out.bif").read_text().split() == ("network unknown { }" + GOOD).split()


def test_names_are_replaced_by_words_that_every_reader_takes():
    assert plain_names(ODD_NAMES, variables=True) == (
        "raf_kinase_2",  # the one that is fine keeps its name
        "raf_kinase",
        "RAF_KINASE_3",
        "_1st",
        "_table",
        "___q____",
        "_",
        "a__b",
    )
    states = ("<5", ">5", "0", "12+", "Yes", "yes", "1e5")
    assert plain_names(states, variables=False) == (
        "_5",
        "_5_2",
        "0",
        "12_",
        "Yes",
        "yes",
        "_1e5",
    )


@given(st.lists(st.text("aA_ -1é2", max_size=5), max_size=8, unique=True), st.booleans())
def test_replaced_names_are_words_and_differ(names, variables):
    plain = plain_names(names, variables=variables)
    folded = [name.lower() for name in plain] if variables else list(plain)
    assert len(set(folded)) == len(names)
    assert all(name.isascii() and name.replace("_", "a").isalnum() for name in plain)
    assert plain_names(plain, variables=variables) == plain


@pytest.mark.slow
def test_pgmpy_reads_the_same_distribution(tmp_path):
    """Names are the replaced ones there; the order of rows must not matter to it."""
    reader = pytest.importorskip("pgmpy.readwrite").BIFReader
    for names, states in (
        (["a", "B", "c_3", "d"], [("x", "y"), ("0", "1", "2"), ("True", "False"), ("p", "q", "r")]),
        (ODD_NAMES, ODD_STATES),
    ):
        network = random_network(names, states)
        write_bif(network, tmp_path / "n.bif")
        model = reader(str(tmp_path / "n.bif")).get_model()
        assert model.check_model()
        plain = plain_names(names, variables=True)
        plain_states = [plain_names(own, variables=False) for own in states]
        assert set(model.nodes) == set(plain)
        for j, name in enumerate(plain):
            factor = model.get_cpds(name).to_factor()
            family = [*network.parents[j], j]
            for cell in np.ndindex(network.tables[j].shape):
                state = {
                    plain[i]: plain_states[i][code] for i, code in zip(family, cell, strict=True)
                }
                assert factor.get_value(**state) == pytest.approx(
                    network.tables[j][cell], abs=1e-15
                )


PGMPY = """network unknown {
}
variable low dose {
    type discrete [ 2 ] { low risk, high risk };
    property position = (73, 165) ;
    property note = "a; b" ;
}
variable B {
    type discrete [ 3 ] { 1 to 2, "a, b", under <= 3 };
}
variable C {
    type discrete [ 2 ] { no yes };
}
probability ( low dose ) {
    table 0.3, 0.7 ;
}
probability ( B | low dose, C ) {
    ( low risk, no ) 0.1, 0.2, 0.7;
    ( high risk, no ) 0.3, 0.3, 0.4;
    (low risk yes) 0.5, 0.25, 0.25;
    ( "high risk" , yes ) 1, 0, 0;

}
probability ( C ) {
    table 0.5 0.5;
}
"""


def test_names_with_blanks_and_commas(tmp_path):
    text = PGMPY.replace("(low risk yes)", "(low risk, yes)")
    network = read_bif(text_file(tmp_path, text))
    assert network.names == ("low dose", "B", "C")
    assert network.states == (
        ("low risk", "high risk"),
        ("1 to 2", "a, b", "under <= 3"),
        ("no", "yes"),
    )
    assert network.parents == ((), (0, 2), ())
    np.testing.assert_array_equal(network.tables[0], [0.3, 0.7])
    np.testing.assert_array_equal(network.tables[1][1, 0], [0.3, 0.3, 0.4])
    np.testing.assert_array_equal(network.tables[1][1, 1], [1, 0, 0])
    write_bif(network, tmp_path / "again.bif")
    same(read_bif(tmp_path / "again.bif"), network)
    brackets = read_bif(text_file(tmp_path, text.replace("low risk", "low (risk)")))
    assert brackets.states[0] == ("low (risk)", "high risk")
    np.testing.assert_array_equal(brackets.tables[1], network.tables[1])
    with pytest.raises(DataError, match=r"no '\)' behind"):
        read_bif(text_file(tmp_path, text.replace("( high risk, no )", "( high risk, no ")))
    with pytest.raises(DataError, match="1 states for 2 parents"):
        read_bif(text_file(tmp_path, text.replace("(low risk, yes)", "(low)")))


def test_lists_without_commas_and_how_many_names_they_have(tmp_path):
    for states, expected in (
        ("[ 2 ] { low risk }", ("low", "risk")),
        ("[ 1 ] { low risk }", ("low risk",)),
        ("{ low risk }", ("low", "risk")),
        ("{ low risk, high }", ("low risk", "high")),
        ("[ 3 ] { low risk, high }", ("low", "risk", "high")),
        ("[ 2 ] { low risk, high }", ("low risk", "high")),
    ):
        table = ", ".join(["0"] * (len(expected) - 1) + ["1"])
        text = f"variable A {{ type discrete {states}; }}\nprobability ( A ) {{ table {table}; }}"
        assert read_bif(text_file(tmp_path, text)).states == (expected,)


@pytest.mark.slow
@pytest.mark.parametrize("blank", [" ", "  ", " - "])
def test_what_pgmpy_writes_is_read_and_what_is_written_pgmpy_reads(tmp_path, blank):
    models = pytest.importorskip("pgmpy.models")
    factors = pytest.importorskip("pgmpy.factors.discrete")
    names = ["A", f"my{blank}B", "C"]
    states = {
        names[0]: [f"low{blank}risk", f"high{blank}risk"],
        names[1]: [f"< 3{blank}a", "3.5 to 4", f"> 4{blank}b", "x"],
        names[2]: [True, False],
    }
    rng = np.random.default_rng(0)
    given = models.DiscreteBayesianNetwork([(names[0], names[1]), (names[2], names[1])])
    table = rng.dirichlet(np.ones(4), size=4).T
    given.add_cpds(
        factors.TabularCPD(names[0], 2, [[0.3], [0.7]], state_names={names[0]: states[names[0]]}),
        factors.TabularCPD(names[2], 2, [[0.4], [0.6]], state_names={names[2]: states[names[2]]}),
        factors.TabularCPD(names[1], 4, table, [names[0], names[2]], [2, 2], state_names=states),
    )
    given.save(str(tmp_path / "given.bif"))
    network = read_bif(tmp_path / "given.bif")
    assert sorted(network.names) == sorted(names)
    for name, own in zip(network.names, network.states, strict=True):
        assert own == tuple(map(str, states[name]))
    child = network.names.index(names[1])
    order = [network.names[k] for k in network.parents[child]]
    own = network.tables[child].transpose(*(order.index(names[k]) for k in (0, 2)), 2)
    np.testing.assert_allclose(own.reshape(4, 4), table.T)
    write_bif(network, tmp_path / "ours.bif")
    assert models.DiscreteBayesianNetwork.load(str(tmp_path / "ours.bif")).check_model()
    same(read_bif(tmp_path / "ours.bif"), network)


def test_values_and_cut_points_survive(tmp_path):
    states = ((1, 2, 10), (True, False), (0.5, 2.0), ("<= 1.5", "> 1.5"), ("a", "b"))
    tables = tuple(np.full(len(own), 1 / len(own)) for own in states)
    network = BayesianNetwork(
        tuple("vwxyz"), states, ((),) * 5, tables, cuts={"y": np.array([1.5])}
    )
    write_bif(network, tmp_path / "n.bif")
    found = read_bif(tmp_path / "n.bif")
    same(found, network)
    assert [[type(one) for one in own] for own in found.states] == [
        [type(one) for one in own] for own in states
    ]
    np.testing.assert_array_equal(found.cuts["y"], [1.5])
    assert found.cuts.keys() == {"y"}
    # Of a file that an earlier version wrote the names are texts.
    text = (tmp_path / "n.bif").read_text()
    assert text.count("flwr_causal_cuts") == 1
