"""First the columns are chosen, then the rows: gaps of a column that is not used cost no row."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.read import pieces
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of
from flwr_causal.simulations.relay import KilledError, Killing

NAMES = ("a", "b", "c")
METHODS = {
    "notears-admm": {"max_rounds": 6},
    "fedcausal": {"max_rounds": 6, "model": "linear"},
    "2dbn": {"max_rounds": 6},
    "moments": {},
    "moments series": {"order": 1},
    "moments interventions": {"intervention_column": "on"},
    "lingam": {},
    "fedges": {"discretize": 3},
    "fedges exact": {"discretize": 3, "mode": "exact"},
    "fedpc": {},
}
SERIES = [name for name in METHODS if name == "2dbn" or name.endswith("series")]
DROP = {"unshared_columns": "drop", "missing_values": "drop"}


def tables(interventions=False):
    rng = np.random.default_rng(5)
    rows = rng.exponential(size=(180, 3)) @ np.array([[1, 0.8, 0], [0, 1, -0.7], [0, 0, 1]])
    whole = pd.DataFrame(rows, columns=NAMES)
    whole.loc[::20, "b"] = np.nan
    if interventions:
        whole["on"] = np.where(np.arange(180) % 3 == 0, "a", "")
    return [whole[k::3].reset_index(drop=True) for k in range(3)]


def with_gaps(parts):
    """The first party has a column of its own with gaps, and one of text with others."""
    first = parts[0].assign(extra=np.where(np.arange(60) % 7, np.nan, 1.5))
    first["note"] = np.where(np.arange(60) % 5, None, "seen")
    return [first, *parts[1:]]


def same(one, other):
    assert one.total_rows == other.total_rows
    assert one.parties == other.parties
    if one.graph is None:
        rows = pd.DataFrame({name: [0.5, 1.5] for name in NAMES})
        np.testing.assert_array_equal(
            one.model.log_likelihood(rows), other.model.log_likelihood(rows)
        )
    else:
        # A large file is added up in pieces.
        np.testing.assert_allclose(one.graph.weights, other.graph.weights, rtol=1e-12)


@pytest.mark.few(4)
@pytest.mark.parametrize("method", METHODS)
def test_gaps_of_a_column_that_others_lack_cost_no_row(method):
    parts, options = tables("interventions" in method), {**METHODS[method], **DROP}
    found = simulate(method.split()[0], with_gaps(parts), **options)
    same(found, simulate(method.split()[0], parts, **options))
    for name in ("extra", "note"):
        text = f"column {name!r} is not used: not in the table of parties 'party 1', 'party 2'"
        assert found.warnings.count(text) == 1


@pytest.mark.few(8)
@pytest.mark.slow
@pytest.mark.parametrize("missing", ["drop", "fail"])
@pytest.mark.parametrize("method", METHODS)
def test_excluded_columns_are_as_if_they_were_not_there(method, missing):
    parts, options = tables("interventions" in method), {**METHODS[method]}
    options["missing_values"] = missing
    if missing == "fail":
        parts = [one.fillna(0.0) for one in parts]
    given = [
        one.assign(
            patient=[f"P{k}{row}" for row in range(60)],
            day=pd.Timestamp("2024-01-01"),
            number=2**60 + 2 * np.arange(60) + 1,  # float64 cannot hold it
            note=np.where(np.arange(60) % 5, None, "seen"),
        )
        for k, one in enumerate(parts)
    ]
    given[1] = given[1].drop(columns="note")
    left_out = "patient, day, number, note"
    found = simulate(method.split()[0], given, exclude=left_out, **options)
    same(found, simulate(method.split()[0], parts, **options))
    assert "column 'day' is not used: the option 'exclude' names it" in found.warnings


def test_excluded_columns_that_are_not_there_or_are_all():
    with pytest.raises(ConfigError, match="names the column 'd', which no party has"):
        simulate("moments", tables(), exclude="d")
    with pytest.raises(ConfigError, match="'exclude' names all columns"):
        simulate("moments", tables(), exclude="a, b, c")


@pytest.mark.few(4)
@pytest.mark.parametrize("method", [*METHODS])
def test_gaps_of_a_constant_column_cost_no_row(method):
    if method.startswith("fed") and method != "fedcausal":
        pytest.skip("constant columns are kept")
    parts, options = tables("interventions" in method), {**METHODS[method], **DROP}
    options["constant_columns"] = "drop"
    constant = [one.assign(k=np.where(np.arange(60) > 50, np.nan, 2.0)) for one in parts]
    found = agreement_of(method.split()[0], constant, **options)
    assert found.rows == agreement_of(method.split()[0], parts, **options).rows
    assert set(found.dropped) == {"k"}


@pytest.mark.parametrize("method", SERIES)
def test_gaps_of_a_column_that_others_lack_split_no_series(method):
    options = {**METHODS[method], "gaps": "split", "unshared_columns": "drop"}
    parts = tables()
    found = simulate(method.split()[0], with_gaps(parts), text_columns="drop", **options)
    same(found, simulate(method.split()[0], parts, text_columns="drop", **options))


@pytest.mark.parametrize("method", SERIES)
def test_series_of_a_list_stay_apart(method):
    def halves(parts):
        return [[one[:30], one[30:]] for one in parts]

    parts, options = tables(), {**METHODS[method], **DROP}
    found = simulate(method.split()[0], halves(with_gaps(parts)), **options)
    same(found, simulate(method.split()[0], halves(parts), **options))
    whole = agreement_of(method.split()[0], parts, **options)
    assert found.total_rows < whole.n  # each series loses the rows of its first lag


@pytest.mark.parametrize("how", ["secure", "large", "empty", "categories"])
def test_however_tables_are_held(tmp_path, monkeypatch, how):
    parts, method, options = tables(), "moments", dict(DROP)
    given = with_gaps(parts)
    if how == "secure":
        options["secure_aggregation"] = True
    if how == "empty":
        given[0]["extra"] = np.nan  # no row would be left
    if how == "large":
        monkeypatch.setattr(pieces, "LARGE", 1)
        monkeypatch.setattr(pieces, "PIECE", 60)
        options["text_columns"] = "drop"
        for k, one in enumerate(given):
            one.to_csv(tmp_path / f"{k}.csv", index=False)
        given = [tmp_path / f"{k}.csv" for k in range(3)]
        parts = [read_table(one)[[*NAMES]] for one in given]
    if how == "categories":
        method = "fedges"
        given, parts = ([_in_words(one) for one in some] for some in (given, parts))
    same(simulate(method, given, **options), simulate(method, parts, **options))


def _in_words(frame):
    words = {name: np.where(frame[name] > 1, "high", "low") for name in NAMES}
    return frame.assign(**words).where(frame.notna())


def test_columns_that_are_used_cost_their_rows_and_others_are_an_error_as_ever():
    parts = tables()
    found = agreement_of("moments", parts, **DROP)
    assert sum(found.rows.values()) == 180 - 9
    with pytest.raises(DataError, match="'extra', 'note': not in the table of parties"):
        agreement_of("moments", with_gaps(parts), missing_values="drop", strict=True)
    with pytest.raises(DataError, match="missing value"):
        agreement_of(
            "moments", with_gaps(parts), unshared_columns="drop", text_columns="drop", strict=True
        )


def test_columns_that_no_two_parties_share_are_named():
    parts = [
        one.rename(columns={name: f"{name}{k}" for name in NAMES}) for k, one in enumerate(tables())
    ]
    with pytest.raises(DataError, match="no column is left to train on: 'a0' is not in the table"):
        agreement_of("moments", parts, **DROP)


def test_an_interrupted_run_asks_for_the_same_columns(tmp_path):
    given = with_gaps(tables())
    options = {"max_rounds": 6, **DROP}
    undisturbed = simulate("notears-admm", given, **options)
    with pytest.raises(KilledError):
        simulate(
            "notears-admm",
            given,
            output_dir=tmp_path,
            wrap_grid=lambda grid: Killing(grid, 5),
            **options,
        )
    resumed = simulate("notears-admm", given, output_dir=tmp_path, resume=True, **options)
    assert isinstance(resumed, Run)
    same(resumed, undisturbed)


@pytest.mark.few(3)
@pytest.mark.parametrize("method", ["moments", "notears-admm", "fedges", "fedpc"])
@pytest.mark.parametrize("kind", ["copy", "constant"])
def test_columns_that_are_left_out_of_secure_sums_are_asked_for_once(method, kind):
    """Copies are known before the totals of the rows, and constants of states."""
    parts, options = [_in_words(one) for one in tables()], {**METHODS[method], **DROP}
    if method in ("moments", "notears-admm"):
        parts = tables()
        if kind == "constant":
            pytest.skip("known from the totals alone")
    options |= {"secure_aggregation": True, "constant_columns": "drop", "duplicate_columns": "drop"}
    options.pop("discretize", None)
    extra = [
        one.assign(k=one["a"] if kind == "copy" else np.where(np.arange(60) > 50, None, "one"))
        for one in parts
    ]
    found = agreement_of(method, extra, **options)
    assert found.n == agreement_of(method, parts, **options).n
    assert set(found.dropped) == {"k"}


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["moments", "lingam", "notears-admm"])
def test_gaps_of_a_constant_that_only_totals_show_are_an_error_of_the_party(method):
    options = {**METHODS[method], **DROP, "constant_columns": "drop", "secure_aggregation": True}
    whole = [one.assign(k=2.0) for one in tables()]
    same(simulate(method, whole, **options), simulate(method, tables(), **options))
    gaps = [one.assign(k=np.where(np.arange(60) > 50, np.nan, 2.0)) for one in tables()]
    with pytest.raises(FederationError, match=r"party 0.*column 'k': it is not used"):
        simulate(method, gaps, **options)
