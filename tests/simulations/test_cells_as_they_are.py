"""Runs on tables whose cells may be read in several ways: states, codes, ids, booleans, names."""

import csv

import numpy as np
import pandas as pd
import pytest

from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of


def categories(seed, n=300):
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    t = np.where(rng.random(n) < 0.85, s, 1 - s)
    return pd.DataFrame({"s": s, "t": t, "u": np.where(rng.random(n) < 0.8, t, 2)})


def written(frames, folder, **options):
    paths = [folder / f"{k}.csv" for k in range(len(frames))]
    for path, frame in zip(paths, frames, strict=True):
        frame.to_csv(path, index=False, **options)
    return paths


def states_of(agreement):
    return dict(zip(agreement.names, agreement.states, strict=True))


@pytest.mark.few(4)
@pytest.mark.parametrize("word", ["None", "NA", "null", "nan", "N/A"])
@pytest.mark.parametrize("method", ["fedges", "fedpc"])
def test_states_that_look_missing_are_states_in_files_as_in_frames(tmp_path, method, word):
    frames = [categories(k).assign(drink=lambda f: f["s"].map({0: word, 1: "Low"})) for k in (0, 1)]
    paths = written(frames, tmp_path)
    one, other = agreement_of(method, frames), agreement_of(method, paths)
    assert states_of(one) == states_of(other)
    assert set(states_of(one)["drink"]) == {word, "Low"}
    assert one.rows == other.rows
    # On request they are missing, everywhere.
    options = {"missing_texts": f"?,{word}", "missing_values": "drop"}
    for tables in (frames, paths):
        found = agreement_of(method, tables, constant_columns="keep", **options)
        assert found.n == sum(int((frame["s"] == 1).sum()) for frame in frames)


@pytest.mark.parametrize("method", ["moments", "notears-admm", "lingam", "fedcausal"])
def test_codes_of_missing_numbers_are_missing_on_request(tmp_path, method):
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame(rng.exponential(size=(60, 2)), columns=["a", "b"]) for _ in range(2)]
    holed = [frame.assign(b=frame["b"].where(np.arange(60) % 6 > 0, -999)) for frame in frames]
    options = {"missing_texts": "-999", "missing_values": "drop"}
    for tables in (holed, written(holed, tmp_path)):
        assert agreement_of(method, tables, **options).n == 100
    with pytest.raises(ConfigError, match="missing_texts"):
        simulate("moments", holed, epsilon=1.0, missing_texts="-999")


KEEPING = [("fedges", {}), ("fedpc", {}), ("moments", {"text_columns": "keep"})]


@pytest.mark.few(2)
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize(("method", "options"), KEEPING)
def test_codes_keep_their_spelling(tmp_path, method, options, quoting):
    frames = [categories(k) for k in range(3)]
    for frame in frames:
        frame["dx"] = np.where(frame["s"] == 0, "250.0", np.where(frame["t"], "250.00", "401.1"))
    for code in (None, "V58.1"):
        if code:
            frames[1].loc[:4, "dx"] = code
        one = agreement_of(method, frames, **options)
        other = agreement_of(method, written(frames, tmp_path, quoting=quoting), **options)
        assert states_of(one) == states_of(other)
        assert set(states_of(one)["dx"]) == {"250.0", "250.00", "401.1", *filter(None, [code])}


@pytest.mark.parametrize(("method", "options"), KEEPING)
def test_a_column_that_is_declared_a_category_is_one_at_all_parties(tmp_path, method, options):
    frames = [categories(k) for k in range(3)]
    for frame in frames:
        frame["dx"] = np.where(frame["s"] == 0, "07", "12")
    frames[1].loc[:4, "dx"] = "V58.1"
    paths = written(frames, tmp_path)
    with pytest.raises(DataError, match=r"'dx'.*but numbers.*in the option categories"):
        agreement_of(method, paths, **options)
    found = agreement_of(method, paths, categories="dx", **options)
    assert set(states_of(found)["dx"]) == {"07", "12", "V58.1"}
    assert simulate(method, paths, categories="dx", **options).total_rows == 900
    with pytest.raises(ConfigError, match="'dx' is in categories and in numbers"):
        agreement_of(method, paths, categories="dx", numbers="dx", **options)


#: Methods that take categories beside numbers, with the options for it.
MIXED = [
    ("moments", {"text_columns": "keep"}),
    ("fedpc", {}),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(("method", "options"), MIXED)
def test_declared_columns_are_there_and_hold_what_is_declared(method, options, secure):
    frames = [categories(k).assign(x=np.random.default_rng(k).normal(size=300)) for k in range(3)]
    options = {**options, "secure_aggregation": secure}
    for option in ("categories", "numbers"):
        with pytest.raises(ConfigError, match=f"'{option}'.*column 'dx', which no party has"):
            agreement_of(method, frames, **{option: "dx"}, **options)
    with pytest.raises(ConfigError, match="column 'tt', which no party has: write 't', or"):
        agreement_of(method, frames, categories="tt", **options)
    # A column that one party has, which is left out; and ids, of which no party reports.
    frames[0]["dx"] = "a"
    ids = [one.assign(row_id=np.arange(300)) for one in frames]
    found = agreement_of(
        method,
        ids,
        categories="dx, row_id",
        unshared_columns="drop",
        missing_values="drop",
        **options,
    )
    assert "dx" in found.dropped
    words = [one[["s", "x"]].assign(t=np.where(one["t"], "some", "all")) for one in frames]
    with pytest.raises(DataError, match=r"'t': holds text or categories, and the option numbers"):
        agreement_of(method, words, numbers="t", **options)
    texts = [one.assign(x=one["x"].astype(str)) for one in words]
    for one in texts:
        one.loc[7, "x"] = "n.d."
    how_many = "correct the values" if secure else "1 of its values is no number: correct it"
    with pytest.raises(DataError, match=f"have 1 problem:.*\n.*'x': holds text.*{how_many}"):
        agreement_of(method, texts, numbers="x", **options)


CATEGORICAL = [
    ("fedges", {}),
    ("fedges", {"discretize": 3}),
    ("fedpc", {}),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("method", "options"), CATEGORICAL)
@pytest.mark.parametrize("kind", ["csv", "parquet", "ints"])
def test_codes_with_zeros_beside_codes_without(tmp_path, method, options, kind):
    """No number at one party, and numbers at the others: postal codes of two regions."""
    frames = [categories(k) for k in range(3)]
    for k, frame in enumerate(frames):
        known = ("01234", "10115") if k == 0 else ("80331", "10115")
        frame["zip"] = np.where(frame["s"] == 0, *known)
        if kind == "ints" and k > 0:
            frame["zip"] = frame["zip"].astype(int)
    tables = written(frames, tmp_path) if kind == "csv" else frames
    run = simulate(method, tables, **options)
    seen = set(run.model.sample(300, seed=0)["zip"])
    assert seen == {"01234", "10115", "80331"}
    assert np.isfinite(run.model.log_likelihood(frames[0])).all()
    # As a spreadsheet would write it: nobody knows whether 1234 is 01234.
    frames[1]["zip"] = np.where(frames[1]["s"] == 0, 1234, 10115)
    tables = written(frames, tmp_path) if kind == "csv" else frames
    with pytest.raises(DataError, match=r"'zip'.*the option categories"):
        agreement_of(method, tables, **options)
    found = agreement_of(method, tables, categories="zip", **options)
    assert set(states_of(found)["zip"]) == {"1234", "01234", "10115", "80331"}


@pytest.mark.parametrize(("method", "options"), CATEGORICAL[1:])
def test_counts_of_few_values_are_numbers_on_request(method, options):
    frames = [categories(k).assign(visits=np.arange(300) % 6) for k in range(2)]
    found = agreement_of(method, frames, **options)
    assert any("without an order" in text and "'visits'" in text for text in found.warnings)
    run = simulate(method, frames, numbers="visits", **options)
    assert not any("'visits'" in text and "without an order" in text for text in run.warnings)
    found = agreement_of(method, frames, numbers="visits", **options)
    assert "visits" in found.continuous
    with pytest.raises(DataError, match=r"'visits': it is declared as numbers.*discretize"):
        agreement_of("fedges", frames, numbers="visits")


@pytest.mark.few(4)
@pytest.mark.parametrize("training", ["sums", "one-pass"])
@pytest.mark.parametrize(
    "learner", ["trees", "spn", "class-conditional", "einsum", "decision-tree"]
)
def test_circuits_say_that_counts_are_categories_where_they_are(learner, training):
    if (learner, training) in [("spn", "sums"), ("decision-tree", "sums")]:
        pytest.skip("it is trained in one pass")
    frames = [categories(k).assign(visits=np.arange(300) % 6) for k in range(2)]
    for frame in frames:
        frame["v"] = np.random.default_rng(0).normal(size=300)
        frame["target"] = np.where(frame["s"] == 1, "yes", "no")
    options = {"learner": learner, "training": training}
    if training == "one-pass":
        options["queries"] = "central"
    run = simulate("fedpc", frames, **options)
    said = any("without an order" in text and "'visits'" in text for text in run.warnings)
    values = run.model.sample(50, seed=0)["visits"]
    assert said == (set(values) <= set(range(6)))


COLUMNS = [("moments", {}), ("fedges", {"mode": "exact", "max_parents": 1}), ("fedpc", {})]


@pytest.mark.parametrize(("method", "options"), COLUMNS)
@pytest.mark.parametrize("large", [False, True])
def test_ids_that_do_not_match_are_refused(tmp_path, method, options, large):
    base = 10**16 if large else 0
    whole = categories(3)
    ids = np.arange(1, 301) + base
    other = ids.astype(float) if large else [f"{one:04d}" for one in ids]
    left = whole[["s", "t"]].assign(pid=ids)
    right = whole[["u"]].assign(pid=other)
    if method == "moments":
        right["u"] += np.random.default_rng(0).normal(size=300)
    words = "beyond 2.53, whose last digits are lost" if large else "zeros"
    with pytest.raises(DataError, match=words):
        simulate(method, [left, right], row_id="pid", **options)
    if not large:
        # Both numbers (the zeros are no part of a number in CSV), or both texts.
        paths = written([left.assign(pid=other), right], tmp_path)
        for tables in (paths, [left.assign(pid=[*map(str, ids)]), right.assign(pid=ids)]):
            agreement_of(method, tables, row_id="pid", **options)


def test_booleans_are_called_booleans(tmp_path):
    frames = [categories(k) for k in range(3)]
    for frame, words in zip(
        frames, (("FALSE", "TRUE"), ("False", "True"), ("no", "yes")), strict=True
    ):
        frame["s"] = frame["s"].map(dict(enumerate(words)))
    with pytest.raises(DataError, match="holds text or categories, but booleans at parties"):
        agreement_of("fedges", written(frames, tmp_path))


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("name", ["\u00b5g", "\u03bcg"])
def test_names_that_look_the_same_are_told_apart(name, odd):
    """The signs of micro and of the Greek letter."""
    (other,) = {"\u00b5g", "\u03bcg"} - {name}
    frames = [categories(k).rename(columns={"s": name if k == odd else other}) for k in range(3)]
    with pytest.raises(DataError) as caught:
        agreement_of("fedges", frames)
    text = str(caught.value)
    assert f"party 'party {odd}'" in text
    assert "rename it" in text
    assert f"{name!a} here, {other!a} there" in text


@pytest.mark.few(3)
@pytest.mark.parametrize(("method", "options"), [("moments", {}), *CATEGORICAL[1:]])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_stray_cell_of_a_frame_is_said_once(method, options, everywhere):
    frames = [categories(k).assign(v=np.random.default_rng(k).normal(size=300)) for k in range(3)]
    for frame in frames[: 3 if everywhere else 1]:
        frame["v"] = frame["v"].astype(object).where(np.arange(300) != 7, "12,5")
    with pytest.raises(DataError, match=r"tables have 1 problem.*\n.*1 of its values is no number"):
        simulate(method, frames, **options)
    for frame in frames:
        frame["v"] = pd.Timestamp("2024-01-01")
    with pytest.raises(DataError, match=r"tables have 1 problem.*\n.*dates, a mixture") as found:
        simulate(method, frames, strict=True, **options)
    assert "stray" not in str(found.value)


@pytest.mark.parametrize("method", ["fedges", "fedpc", "moments"])
def test_a_party_with_one_state_is_named(method):
    frames = [categories(k) for k in range(3)]
    frames[1]["s"] = 0
    warnings = simulate(method, frames).warnings
    assert any("'s'" in one and "'party 1'" in one and "one" in one for one in warnings), warnings
