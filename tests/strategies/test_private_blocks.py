"""epsilon with a dictionary: numbers and categories in one release, whose states are public."""

from functools import partial
from random import Random

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import mixed_table

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.privacy.release import clipping_norm, sensitivity
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party import noise as privacy
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Moments, NotearsADMM

TABLE, DAG = mixed_table(5, 6000, seed=5, kinds=(0, 0, 2, 3))
TABLE = TABLE.map(lambda cell: cell if isinstance(cell, float) else str(cell))
PARTIES = [TABLE.iloc[k::3].reset_index(drop=True) for k in range(3)]
NUMBERS = [name for name in TABLE if TABLE[name].dtype.kind == "f"]
TRUTH = CausalGraph.from_array(DAG, tuple(TABLE)).to_cpdag()


def dictionary_of(table, directory, *, ranges=True, name="dictionary.toml"):
    """The file of a dictionary that lists all states, and ranges of ten deviations."""
    lines = []
    for column in table:
        lines.append(f"[columns.{column}]")
        if table[column].dtype.kind == "f":
            lines.append('kind = "number"')
            if ranges:
                mean, spread = table[column].mean(), table[column].std()
                lines += [f"least = {mean - 5 * spread}", f"most = {mean + 5 * spread}"]
        else:
            states = sorted(set(table[column]))
            lines += ['kind = "category"', f"states = {states}".replace("'", '"')]
    path = directory / name
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Let the noise of a test be the same each time."""
    monkeypatch.setattr(privacy.secrets, "randbelow", Random(7).randrange)


@pytest.fixture
def file(tmp_path):
    return dictionary_of(TABLE, tmp_path)


def without_noise(d, variance, below):
    return np.zeros((1 + d, 1 + d), dtype=np.int64)


def test_the_table_has_numbers_and_categories():
    assert 1 < len(NUMBERS) < 5


@pytest.mark.parametrize("secure", [False, True])
def test_the_class_is_found_under_noise(secure, file):
    found = simulate(
        "moments",
        PARTIES,
        dictionary=file,
        text_columns="keep",
        epsilon=20.0,
        secure_aggregation=secure,
        truth=TRUTH,
    )
    assert found.graph.kind == "cpdag"
    assert found.metrics["shd"] == 0
    assert found.rounds == 2
    assert found.total_rows == pytest.approx(6000, rel=0.05)
    shown = found.privacy
    assert shown["sensitivity"] == sensitivity(5)
    assert shown["clipping_norm"] == clipping_norm(5)
    assert shown["estimated_scales"] == list(shown["scales"]) == NUMBERS
    for name, (center, scale) in shown["scales"].items():
        assert center == pytest.approx(TABLE[name].mean())
        assert scale == pytest.approx(TABLE[name].std(), rel=0.2)
    assert shown["effective_rows"] < 6000
    # Conditional distributions and effects would not know of the noise.
    assert found.model is None
    with pytest.raises(ConfigError, match="not with epsilon"):
        found.total_effect(NUMBERS[0], NUMBERS[1])


def test_without_noise_it_is_the_class_of_the_pooled_rows(file, monkeypatch):
    monkeypatch.setattr(privacy, "noise_of", without_noise)
    monkeypatch.setattr("flwr_causal.sources.released.steps_of_noise", lambda *given: 0)
    options = {"dictionary": file, "text_columns": "keep"}
    exact = simulate("moments", PARTIES, **options)
    # With these no row is shortened.
    wide = {name: (TABLE[name].mean(), 3 * TABLE[name].std()) for name in NUMBERS}
    for parties in (PARTIES, PARTIES[::-1], [TABLE]):
        found = simulate("moments", parties, epsilon=100.0, scales=wide, **options)
        np.testing.assert_array_equal(found.graph.adjacency, exact.graph.adjacency)
        np.testing.assert_allclose(found.graph.weights, exact.graph.weights, atol=0.01)
        assert found.privacy["effective_rows"] == pytest.approx(6000, rel=1e-3)


def test_ranges_are_centres_and_stated_scales_come_first(file, tmp_path):
    first, second = NUMBERS[:2]
    method = Moments(dictionary=file, text_columns="keep", epsilon=1.0, scales={first: (1.0, 2.0)})
    scales = method.options.stated_scales
    assert scales[first] == (1.0, 2.0)
    # The middle of a range is the centre, about which the scale is estimated.
    assert scales[second] == pytest.approx((TABLE[second].mean(), 0.0))
    every = dict.fromkeys(NUMBERS, (0.0, 2.0))
    found = simulate(
        "moments", PARTIES, dictionary=file, text_columns="keep", epsilon=20.0, scales=every
    )
    assert found.rounds == 1
    assert found.privacy["estimated_scales"] == []
    open_ended = dictionary_of(TABLE, tmp_path, ranges=False, name="open.toml")
    found = simulate(
        "moments", PARTIES, dictionary=open_ended, text_columns="keep", epsilon=20.0, truth=TRUTH
    )
    assert found.rounds == 2
    assert found.privacy["estimated_scales"] == NUMBERS
    assert found.metrics["shd"] <= 2
    # Without epsilon a dictionary states no scales.
    assert Moments(dictionary=file, text_columns="keep").options.scales is None


SCALE = """
[columns.x]
kind = "number"
least = -5
most = 5
[columns.y]
kind = "number"
least = -12
most = 12
[columns.sex]
kind = "category"
states = {m = ["M"], f = ["F"]}
[columns.grade]
kind = "ordered"
states = ["I", "II", "III", "IV"]
"""


def scaled_parties():
    rng = np.random.default_rng(5)
    sex, x = rng.integers(0, 2, 9000), rng.normal(size=9000)
    y = 2 * x + 2 * sex + rng.normal(size=9000)
    grade = np.digitize(y + rng.normal(size=9000), (-1, 1, 3))
    columns = {
        "x": x,
        "y": y,
        "sex": np.array(["m", "f"])[sex],
        "grade": np.array(["I", "II", "III", "IV"])[grade],
    }
    table = pd.DataFrame(columns)
    return table, [table.iloc[k::3].reset_index(drop=True) for k in range(3)]


@pytest.mark.parametrize("method", ["moments", "notears-admm"])
def test_tables_of_numbers_have_their_scales_from_the_dictionary(method, tmp_path):
    """Two states, and states with an order, are the numbers 0, 1, ... as without epsilon."""
    file = tmp_path / "dictionary.toml"
    file.write_text(SCALE)
    _, parties = scaled_parties()
    options = {"max_rounds": 8} if method == "notears-admm" else {}
    exact = simulate(method, parties, dictionary=str(file), **options)
    found = simulate(method, parties, dictionary=str(file), epsilon=30.0, **options)
    assert found.privacy["estimated_scales"] == ["x", "y"]
    assert found.privacy["scales"]["sex"] == [0.5, 0.5]
    assert found.privacy["scales"]["grade"] == pytest.approx([1.5, np.sqrt(1.25)])
    assert found.graph.weights[0, 1] == pytest.approx(exact.graph.weights[0, 1], abs=0.2)
    assert found.model.sample_moments is None


def test_a_party_writes_states_in_its_own_way(tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(SCALE)
    _, parties = scaled_parties()
    options = {"dictionary": str(file), "text_columns": "keep", "epsilon": 30.0}
    found = simulate("moments", parties, **options)
    own = [parties[0].assign(sex=parties[0]["sex"].str.upper()), *parties[1:]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy.secrets, "randbelow", Random(7).randrange)
        again = simulate("moments", own, **options)
    np.testing.assert_array_equal(found.graph.weights, again.graph.weights)
    assert found.num_rows == again.num_rows


def test_rows_with_other_states_are_left_out_and_nothing_says_so(file):
    name = next(one for one in TABLE if one not in NUMBERS)
    odd = PARTIES[0].copy()
    odd.loc[:399, name] = "elsewhere"
    odd.loc[400:499, NUMBERS[0]] = 1e6
    options = {"dictionary": file, "text_columns": "keep", "epsilon": 50.0}
    found = simulate("moments", [odd, *PARTIES[1:]], **options)
    assert found.total_rows == pytest.approx(5500, abs=60)
    assert found.warnings == []
    with pytest.raises(DataError, match=r"does not fit|outside"):
        simulate("moments", [odd, *PARTIES[1:]], dictionary=file, text_columns="keep")


REFUSED = {
    "no dictionary": (
        {"text_columns": "keep"},
        "'text_columns' is 'keep'; it must be 'auto', or a dictionary given, with epsilon",
    ),
    "curved": ({"model": "curved"}, "'model' is 'curved'; it must be 'linear' with epsilon"),
    "replicates": ({"replicates": 5}, "'replicates' is 5; it must be 0 with epsilon"),
    "order": ({"order": 1}, "'order' is 1; it must be 0 with epsilon"),
    "likelihood": (
        {"parameters": "likelihood"},
        "'parameters' is 'likelihood'; it must be 'moments' with epsilon",
    ),
    "scale of a category": (
        {"scales": "q=1"},
        "'scales' names the column 'q'; there are",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name, file):
    options, words = REFUSED[name]
    if name != "no dictionary":
        options = {"dictionary": file, "text_columns": "keep", **options}
    with pytest.raises(ConfigError, match=words):
        simulate("moments", PARTIES, epsilon=1.0, **options)


def test_states_must_be_listed_and_have_a_method(tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text('[columns.x]\nkind = "number"\n[columns.s]\nkind = "category"\n')
    with pytest.raises(ConfigError, match="lists fewer than two states of the column 's'"):
        Moments(dictionary=str(file), text_columns="keep", epsilon=1.0)
    file.write_text(
        '[columns.x]\nkind = "number"\n[columns.s]\nkind = "category"\nstates = ["a", "b", "c"]\n'
    )
    for method in (Moments, NotearsADMM):
        with pytest.raises(ConfigError, match=r"'s' is a category of 3 states.*use = false"):
            method(dictionary=str(file), epsilon=1.0)
    dropped = Moments(dictionary=str(file), text_columns="drop", epsilon=1.0)
    assert dropped.options.text_columns == "drop"
    with pytest.raises(ConfigError, match="'text_columns' is 'drop'"):
        NotearsADMM(dictionary=str(file), text_columns="drop", epsilon=1.0)


def test_categories_can_be_left_out(tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(SCALE.replace('kind = "ordered"', 'kind = "category"'))
    _, parties = scaled_parties()
    found = simulate("moments", parties, dictionary=str(file), text_columns="drop", epsilon=30.0)
    assert found.graph.names == ("x", "y", "sex")
    assert "column 'grade' is not used" in str(found.warnings)
    assert found.model is not None


def test_a_state_of_next_to_no_rows_does_not_spoil_the_others(tmp_path, file):
    wide = dictionary_of(TABLE, tmp_path, name="wide.toml")
    path = tmp_path / "wide.toml"
    text = path.read_text()
    for line in text.splitlines():
        if line.startswith("states"):
            text = text.replace(line, line.replace("]", ', "never", "nor this"]'))
    path.write_text(text)
    options = {"text_columns": "keep", "epsilon": 20.0, "truth": TRUTH}
    found = simulate("moments", PARTIES, dictionary=wide, **options)
    other = simulate("moments", PARTIES, dictionary=file, **options)
    assert found.metrics["shd"] <= 2
    assert found.privacy["effective_rows"] > 0.3 * other.privacy["effective_rows"]


class Stops(Relay):
    """A grid whose server is killed in an exchange of the training."""

    def __init__(self, grid, at):
        super().__init__(grid)
        self.at = at

    def before(self, messages):
        if messages[0].metadata.group_id == str(self.at):
            raise KeyboardInterrupt
        return messages


def _counted(made, own, *given):
    made.append(1)
    return own(*given)


@pytest.mark.few(1)
@pytest.mark.parametrize("secure", [False, True])
def test_a_resumed_run_goes_on_from_the_releases(secure, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(privacy, "octaves_of", partial(_counted, made, privacy.octaves_of))
    file = dictionary_of(TABLE, tmp_path, ranges=False)
    options = {
        "dictionary": file,
        "text_columns": "keep",
        "epsilon": 30.0,
        "secure_aggregation": secure,
    }
    whole = simulate("moments", PARTIES, **options)
    made.clear()
    monkeypatch.setattr(privacy.secrets, "randbelow", Random(7).randrange)
    options["output_dir"] = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, wrap_grid=lambda grid: Stops(grid, 2), **options)
    found = simulate("moments", PARTIES, resume=True, **options)
    np.testing.assert_array_equal(found.graph.weights, whole.graph.weights)
    assert found.privacy == whole.privacy
    assert len(made) == 3
    other = dictionary_of(TABLE, tmp_path, name="other.toml")
    with pytest.raises((ConfigError, FederationError, DataError)):
        simulate("moments", PARTIES, resume=True, **{**options, "dictionary": other, "seed": 1})
