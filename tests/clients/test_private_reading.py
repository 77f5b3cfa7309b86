"""With epsilon a row, whatever it holds, changes a release by the sensitivity at most.

The noise is left out, so that the exact parts of the releases of neighbouring tables are compared.
"""

from functools import partial
from itertools import count

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import Source, client_app
from flwr_causal.core.privacy import release
from flwr_causal.core.privacy.release import STEPS
from flwr_causal.core.privacy.scales import Scaling
from flwr_causal.data.read import pieces as reading
from flwr_causal.data.read.pieces import open_table, pieces
from flwr_causal.errors import DataError
from flwr_causal.party import noise as privacy
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.relay import Relay
from flwr_causal.simulations.tables import PartyTables
from flwr_causal.strategies import Moments, run

NAMES = ["x", "flag", "count"]
SCALES = {"x": 2.0, "flag": 1.0, "count": (4, 3.0)}


def table(n=90, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, "flag": x > 0, "count": rng.integers(0, 9, n)})


ROWS = {
    "text beside booleans": [0.5, "unknown", 3],
    "text beside numbers": ["unknown", True, 3],
    "texts": ["a", "b", "c"],
    "number as text": ["0.5", "True", "3"],
    "spelled otherwise": [" .5 ", "FALSE", "3.0"],
    "yes": [0.5, "yes", 3],
    "missing": [None, None, None],
    "missing as text": ["NA", "null", ""],
    "infinite": [np.inf, True, -np.inf],
    "infinite as text": ["Inf", True, "1e400"],
    "huge": [1e308, True, -1e308],
    "beyond 64 bits": [0.5, True, 2**70],
    "beyond float64": [0.5, True, 10**400],
    "beyond 2^53": [0.5, True, 2**53 + 1],
    "fraction beside whole numbers": [0.5, True, 3.5],
    "number beside booleans": [0.5, 7, 3],
    "date": [pd.Timestamp("2020"), True, 3],
    "duration": [0.5, pd.Timedelta(5), 3],
    "date as text": ["2020-01-01", True, 3],
    "decimal comma": ["0,5", True, 3],
    "hexadecimal": ["0x1F", True, 3],
    "underscore": ["1_000", True, 3],
    "lines": ["1\n0.5,True,3\n0.5,True,3\n", True, 3],
    "quotation marks": ['"', '"",', 'a"b'],
    "separators": ["1,2", "\t", ";"],
    "far away": [1e9, True, 10**9],
}
LINES = {
    "text": b"0.5,unknown,3",
    "too few fields": b"0.5,True",
    "too many fields": b"0.5,True,3,7",
    "blank": b"",
    "not UTF-8": b"0.5,\xff,3",
    "a mark that is not closed": b'0.5,"True,3',
    "a mark out of place": b'"0.5"x,True,3',
    "zeros": b"0.5,True\0,3",
}


@pytest.fixture(autouse=True)
def without_noise(monkeypatch):
    for module in (privacy, release):
        monkeypatch.setattr(module, "discrete_gaussian", lambda variance, below: 0)


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch):
    """Files that are in memory, or read in pieces of ten rows."""
    if request.param == "large":
        monkeypatch.setattr(reading, "LARGE", 1)
        monkeypatch.setattr(reading, "PIECE", 30)


def parts_of(source):
    """The exact parts of the releases of a table: products, and counts by octave."""
    return parts_of_table(open_table(source, by_cell=True))


def parts_of_table(table):
    centers, scales = np.array([0.0, 0.0, 4.0]), np.array([2.0, 1.0, 3.0])
    products = privacy.products_of(privacy.numbers(table, NAMES), centers, scales)
    return products, privacy.octaves_of(privacy.numbers(table, NAMES))


def kept_in(made, own, *given):
    made.append(own(*given))
    return made[-1]


def parts_in_run(method, source, **options):
    """The same, where a party releases them in a run, and what it has said of its table."""
    found, said = [], []

    class Watching(Relay):
        def send_and_receive(self, messages, *, timeout=None):
            replies = list(super().send_and_receive(messages, timeout=timeout))
            said.append(dict(records.config_of(replies[0].content)))
            return replies

    parties = [source, table(200, seed=1)]
    for kept, scales in (("products_of", SCALES), ("octaves_of", None)):
        own, made = getattr(privacy, kept), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(privacy, kept, partial(kept_in, made, own))
            simulate(method, parties, epsilon=100.0, scales=scales, wrap_grid=Watching, **options)
        found.append(made[0])
    return found, said[0]


def check_neighbours(before, after):
    """The parts of releases of neighbouring tables differ by the sensitivity at most."""
    (products, counts), (other_products, other_counts) = before, after
    assert np.linalg.norm(other_products - products) <= STEPS + 2 * (1 + len(NAMES))
    assert np.abs(other_counts - counts).sum(axis=1).max() <= 1
    # All other rows are there.
    assert 90 * STEPS * 0.2 == products[0, 0] == counts[0].sum() * STEPS * 0.2


def written(directory, frame, suffix, line=None):
    """The path of a file of this table, with a further line in its midst."""
    directory.mkdir(exist_ok=True)
    path = directory / f"t{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".npz":
        np.savez(path, X=frame.to_numpy(dtype=str), names=NAMES)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in suffix else ",")
    if line is not None:
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([*lines[:40], line, *lines[40:]]))
    return path


def with_row(frame, row):
    """The table with a row in its midst, in columns of the types that pandas then chooses."""
    rows = frame.astype(object).to_numpy().tolist()
    rows.insert(40, row)
    return pd.DataFrame(rows, columns=NAMES)


def of_texts(frame):
    """A table whose columns of Python's objects hold their texts, as Parquet needs it."""
    return frame.astype({name: str for name in NAMES if frame[name].dtype == object})


def neighbours(directory, suffix, row):
    """Two tables, or the paths of their files, which differ by a row."""
    before, after = table(), with_row(table(), row)
    if suffix == ".parquet":
        after = of_texts(after)
    if suffix:
        before = written(directory / "before", before, suffix)
        after = written(directory / "after", after, suffix)
    return before, after


SUFFIXES = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz", ""]


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_row_changes_how_another_one_is_read(tmp_path, size, suffix):
    """The release would change by ninety sensitivities, if a column became one of texts."""
    # Files of texts spell all numbers of a complex column otherwise.
    expected = None
    for row in [*ROWS.values(), *([] if suffix else [[1 + 2j, True, 3]])]:
        before, after = neighbours(tmp_path, suffix, row)
        expected = parts_of(before) if expected is None else expected
        check_neighbours(expected, parts_of(after))


@pytest.mark.few(6)
@pytest.mark.parametrize("line", LINES)
def test_no_line_changes_how_another_one_is_read(tmp_path, size, line):
    before = written(tmp_path / "before", table(), ".csv")
    after = written(tmp_path / "after", table(), ".csv", LINES[line])
    check_neighbours(parts_of(before), parts_of(after))


@pytest.mark.few(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "suffix"),
    [*(("moments", one) for one in SUFFIXES), ("notears-admm", ".csv"), ("notears-admm", "")],
)
def test_a_party_releases_what_was_read_cell_by_cell(tmp_path, size, suffix, method):
    before, after = neighbours(tmp_path, suffix, ROWS["text beside booleans"])
    options = {"max_rounds": 6} if method == "notears-admm" else {}
    parts, report = parts_in_run(method, before, **options)
    other_parts, other_report = parts_in_run(method, after, **options)
    check_neighbours(parts, other_parts)
    if method == "moments":
        assert report == other_report


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("method", "line"), [*(("moments", one) for one in LINES), ("notears-admm", "text")]
)
def test_no_line_of_its_file_stops_a_party(tmp_path, size, line, method):
    path = written(tmp_path / "t", table(), ".csv", LINES[line])
    options = {"max_rounds": 6} if method == "notears-admm" else {}
    parts, _ = parts_in_run(method, path, truth=np.zeros((3, 3)), **options)
    check_neighbours(parts_of(table()), parts)


RUNS = count(1)


def context(node, **data):
    return Context(next(RUNS), 1, node, RecordDict(), {"method": "moments", "epsilon": 1.0, **data})


def test_every_source_of_a_party_is_read_cell_by_cell(tmp_path, size):
    """On a node, in simulations of all kinds, and of a source that reads otherwise."""
    path = written(tmp_path / "data", table(), ".csv", LINES["too many fields"])
    frame = with_row(table(), ROWS["text beside booleans"])
    simulated = {"partition-id": 0, "num-partitions": 1}
    sources = [
        source_of(context({"data-path": str(path)})),
        source_of(context(simulated, data=str(path.parent))),
        PartyTables([path])(context(simulated)),
        PartyTables([path], str(path.parent.parent))(context(simulated)),
        PartyTables([frame])(context(simulated)),
        PartyTables([frame], str(path.parent))(context(simulated)),
        Source("other", lambda: frame),
    ]
    if size == "large":
        short = written(tmp_path / "short", table(), ".csv", LINES["too few fields"])
        sources.append(Source("other", lambda: open_table(short)))
    expected = parts_of(table())
    for source in sources:
        opened = source.opened(private=True)
        assert all(set(piece.dtypes) == {np.dtype(float)} for piece in pieces(opened))
        check_neighbours(expected, parts_of_table(opened))


def test_a_table_that_was_opened_otherwise_is_released_cell_by_cell():
    frame = with_row(table(), ROWS["text beside booleans"])
    check_neighbours(parts_of_table(table()), parts_of_table(frame))


def test_a_node_looks_at_no_values_of_columns_that_could_be_ids(tmp_path):
    nodes = []
    for name in ("a", "b"):
        frame = table().assign(count=10_000_000 + np.arange(90))
        path = written(tmp_path / name, frame, ".csv", LINES["too many fields"])
        nodes.append({"data-path": str(path), "name": name})
    grid = LocalGrid(client_app(CLIENTS, source_of), 2, node_configs=nodes)
    options = {"epsilon": 100.0, "scales": SCALES, "min_available_nodes": 2}
    assert run(Moments(**options), grid).graph is not None
    for node in nodes:
        table().assign(count=10_000_000 + np.arange(90)).to_csv(node["data-path"], index=False)
    with pytest.raises(DataError, match="identifiers"):
        run(Moments(min_available_nodes=2, identifiers="fail"), grid)


# By a dictionary: a category, a number in a range, codes that look like numbers.
DICTIONARY = """
missing = ["-9"]
[columns.x]
kind = "number"
least = -8
most = 8
[columns.flag]
kind = "category"
states = {no = ["False", "f"], yes = ["True", "a, b"]}
[columns.count]
kind = "ordered"
states = ["0", "1", "2", "3", "4", "5", "6", "7", "8"]
"""
STATE_ROWS = {
    **ROWS,
    "state with a separator": [0.5, "a, b", 3],
    "other spelling": [0.5, "f", "3"],
    "outside the range": [9.0, True, 3],
    "no state": [0.5, "maybe", 3],
    "no place": [0.5, True, 9],
    "code of a missing value": [-9, True, 3],
    "code of a missing state": [0.5, -9, -9],
}


@pytest.fixture
def dictionary(tmp_path):
    path = tmp_path / "dictionary.toml"
    path.write_text(DICTIONARY)
    return str(path)


def parts_by_dictionary(source, dictionary):
    """The exact products of the release of a table with categories."""
    reading = Moments(dictionary=dictionary, text_columns="keep", epsilon=1.0)._reading
    opened = open_table(source, by_cell=True, reading=reading)
    assert all(set(piece.dtypes) == {np.dtype(float)} for piece in pieces(opened))
    states = (0, 2, 9)
    scaling = Scaling.of(NAMES, {"x": (0.0, 4.0)}, None, states)
    return release.products_of(privacy.numbers(opened, NAMES), *scaling)


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_row_changes_how_states_of_another_one_are_read(tmp_path, size, suffix, dictionary):
    expected = None
    for name, row in STATE_ROWS.items():
        before, after = neighbours(tmp_path, suffix, row)
        if expected is None:
            expected = parts_by_dictionary(before, dictionary)
            # By hand: all rows are there, with their states.
            reference = table()
            codes = np.column_stack([reference["x"], reference["flag"], reference["count"]])
            scaling = Scaling.of(NAMES, {"x": (0.0, 4.0)}, None, (0, 2, 9))
            by_hand = release.products_of([codes.astype(float)], *scaling)
            np.testing.assert_array_equal(expected, by_hand)
        change = parts_by_dictionary(after, dictionary) - expected
        assert np.linalg.norm(change.astype(float)) <= STEPS + 2 * (1 + 10)
        counted = change[0, 0] > 0
        if name in ("outside the range", "no state", "no place", "missing"):
            assert not change.any()
        if name in ("other spelling", "state with a separator"):
            assert counted


@pytest.mark.few(6)
@pytest.mark.parametrize("line", LINES)
def test_no_line_changes_how_states_of_another_one_are_read(tmp_path, size, line, dictionary):
    before = written(tmp_path / "before", table(), ".csv")
    after = written(tmp_path / "after", table(), ".csv", LINES[line])
    change = parts_by_dictionary(after, dictionary) - parts_by_dictionary(before, dictionary)
    assert not change.any()


def test_a_file_with_decimal_commas_keeps_the_spelling_of_states(tmp_path):
    (tmp_path / "t.csv").write_text("x;s\n1,5;a.b\n2,5;c,d\n")
    path = tmp_path / "t.table.toml"
    path.write_text('file = "t.csv"\nseparator = ";"\ndecimal = ","\n')
    own = tmp_path / "d.toml"
    own.write_text(
        '[columns.x]\nkind = "number"\n[columns.s]\nkind = "category"\nstates = ["a.b", "c,d"]\n'
    )
    reading = Moments(dictionary=str(own), text_columns="keep", epsilon=1.0)._reading
    found = open_table(path, by_cell=True, reading=reading)
    assert found.to_numpy().tolist() == [[1.5, 0.0], [2.5, 1.0]]


def test_a_missing_column_of_the_dictionary_is_an_error_of_names_alone(dictionary):
    parties = [table(), table(seed=1).drop(columns="flag")]
    with pytest.raises(DataError, match=r"party 1: .*'flag'.* is missing in the table"):
        simulate("moments", parties, dictionary=dictionary, text_columns="keep", epsilon=1.0)


def test_what_a_party_says_follows_from_names_and_dictionary(tmp_path, dictionary):
    said = []

    class Watching(Relay):
        def send_and_receive(self, messages, *, timeout=None):
            replies = list(super().send_and_receive(messages, timeout=timeout))
            said.append([dict(records.config_of(reply.content)) for reply in replies])
            return replies

    odd = pd.DataFrame({"x": [1e9] * 90, "flag": ["?"] * 90, "count": ["11"] * 90})
    for own in (table(), odd):
        simulate(
            "moments",
            [own, table(400, seed=1)],
            dictionary=dictionary,
            text_columns="keep",
            epsilon=50.0,
            wrap_grid=Watching,
        )
    first, second = (one for one in said if "names" in one[0])
    assert first == second
    assert first[0]["states"][:2] == ["no", "yes"]
    assert first[0]["rows"] == 0
