"""describe: pooled rows, secure sums, gaps, small counts, parties that differ."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from sweeps import sweep

from flwr_causal.core.description.description import Description
from flwr_causal.data.read import pieces as reading
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.protocol import records
from flwr_causal.reports.page.description import description_blocks
from flwr_causal.reports.run import Run
from flwr_causal.simulations import Relay, simulate
from flwr_causal.testing import check_method


def hospital(rows=300, seed=0, shift=0.0, male=0.5):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60 + shift, 10, rows),
            "crp": np.exp(rng.normal(1, 1, rows)),
            "visits": rng.poisson(3, rows),
            "sex": np.where(rng.random(rows) < male, "m", "f"),
            "smoker": rng.random(rows) < 0.3,
        }
    )
    frame["crp"] += 0.1 * frame["age"]
    frame.loc[rng.random(rows) < 0.1, "crp"] = np.nan
    frame.loc[rng.random(rows) < 0.1, ["crp", "visits"]] = np.nan
    frame.loc[rng.random(rows) < 0.05, "sex"] = None
    return frame


@pytest.fixture(scope="module")
def hospitals():
    return [hospital(200, 0), hospital(300, 1, shift=8), hospital(400, 2, male=0.9)]


def same(one, other, exact=1e-9):
    first, second = one.figures(), other.figures()
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=exact, atol=exact, err_msg=name)


def test_it_describes_the_pooled_rows(hospitals):
    model = simulate("describe", hospitals, small_counts="report").model
    rows = pd.concat(hospitals, ignore_index=True)
    assert model.rows == len(rows)
    assert model.names == tuple(rows.columns)
    for name in ("age", "crp", "visits"):
        column, values = model[name], rows[name].dropna().to_numpy()
        assert (column.seen, column.missing) == (len(values), rows[name].isna().sum())
        assert column.mean == pytest.approx(values.mean())
        assert column.deviation == pytest.approx(values.std(ddof=1))
        step = np.floor((values - column.grid[0]) / column.grid[1])
        assert list(column.below) == [(step < k).sum() for k in range(257)]
        for share, value in column.quantiles.items():
            near = np.clip(float(share) + np.array([-1, 1]) / len(values), 0, 1)
            low, high = np.quantile(values, near)
            assert value is None or low - column.grid[1] <= value <= high + column.grid[1]
        assert None not in [column.quantiles[share] for share in ("0.05", "0.5", "0.95")]
    for name in ("sex", "smoker"):
        counts = rows[name].dropna().astype(str).value_counts()
        assert model[name].states == counts.sort_index().to_dict()
    expected = rows[["age", "crp", "visits"]].corr().to_numpy()
    np.testing.assert_allclose(np.array(model.correlations), expected, atol=1e-9)
    lacking = rows.isna().apply(lambda row: tuple(rows.columns[row]), axis=1).value_counts()
    known = dict(model.patterns)
    assert all(lacking[pattern] == count for pattern, count in known.items())
    assert sum(known.values()) + model.other_patterns == len(rows)
    assert {(), ("crp",), ("crp", "visits"), ("sex",)} <= known.keys()


def test_it_depends_neither_on_the_split_nor_on_the_order_of_the_parties(hospitals):
    rows = pd.concat(hospitals, ignore_index=True)
    whole = simulate("describe", [rows], small_counts="report").model
    for parties in (hospitals, hospitals[::-1], [rows.iloc[::2], rows.iloc[1::2]]):
        same(simulate("describe", parties, small_counts="report").model, whole)


@pytest.mark.parametrize("further", [{}, {"groups": 2}])
def test_secure_sums_are_the_plain_ones_and_name_no_party(hospitals, further):
    parties = hospitals * 2 if further else hospitals
    plain = simulate("describe", parties, small_counts="report").model
    secure = simulate("describe", parties, secure_aggregation=True, **further).model
    same(plain, secure)
    assert [one.apart for one in secure.columns] == pytest.approx(
        [one.apart for one in plain.columns], abs=1e-9
    )
    assert plain.differences
    named = {one.party for one in secure.differences}
    assert not named & {f"party {k}" for k in range(len(parties))}


def test_parties_that_differ_are_told_by_the_size_of_the_effect(hospitals):
    model = simulate("describe", hospitals).model
    found = {(one.party, one.column, one.what): one.effect for one in model.differences}
    assert found["party 1", "age", "mean"] > 0.5
    assert found["party 2", "sex", "states"] > 0.3
    assert not [key for key in found if key[1] in ("visits", "smoker")]
    sizes = [abs(one.effect) for one in model.differences]
    assert sizes == sorted(sizes, reverse=True)
    means = [table["age"].mean() for table in hospitals]
    weights = [len(table) for table in hospitals]
    level, pooled = np.average(means, weights=weights), pd.concat(hospitals)["age"].std(ddof=0)
    expected = np.sqrt(np.average((np.array(means) - level) ** 2, weights=weights)) / pooled
    assert model["age"].apart == pytest.approx(expected)


def sent_counts(parties, **options):
    """Return the counts that left the parties, by name."""
    found = {}

    class Kept(Relay):
        def after(self, messages, replies):
            for reply in replies:
                for name, array in records.arrays_of(reply.content).items():
                    found.setdefault(name, []).append(array)
            return replies

    run = simulate("describe", parties, wrap_grid=Kept, **options)
    return run.model, found


def test_small_counts_do_not_leave_a_party(hospitals):
    parties = [table.copy() for table in hospitals]
    parties[0].loc[:2, "sex"] = "x"  # three rows
    model, sent = sent_counts(parties)
    assert model.withheld == 5
    for name in ("states", "gaps", "patterns", "pairs"):
        for counts in sent[name]:
            assert not ((counts > 0) & (counts < 5)).any(), name
    for name in ("places", "below"):
        for counts in sent[name]:
            assert not (counts % 5).any(), name
    assert model["sex"].states["x"] == 0
    # How far a party is from all rows is computed from what leaves, so that it tells no more.
    pooled = np.sum(sent["states"], axis=0)[:3]
    for own, apart in zip(sent["states"], sent["apart"], strict=True):
        told = np.abs(own[:3] - own[:3].sum() * pooled / pooled.sum()).sum() / 2
        assert apart[3] == pytest.approx(told)
    # Without a further state the rows of the three would be the difference to all rows.
    first = sent["states"][0]
    assert len(parties[0]) - first[:3].sum() - parties[0]["sex"].isna().sum() >= 5
    plain, _ = sent_counts(parties, small_counts="report")
    assert plain["sex"].states["x"] == 3
    for name in ("age", "crp"):
        for share in ("0.25", "0.5", "0.75"):
            values = pd.concat(parties)[name].dropna()
            near = np.clip(float(share) + np.array([-1, 1]) * 15 / len(values), 0, 1)
            low, high = np.quantile(values, near)
            assert low - model[name].grid[1] <= model[name].quantiles[share]
            assert model[name].quantiles[share] <= high + model[name].grid[1]
    with pytest.raises(CausalError, match="minimum_count"):
        simulate("describe", parties, small_counts="refuse")


def test_sums_of_pairs_leave_out_rows_so_that_none_is_over_few_others():
    table = hospital(300).dropna()[["age", "crp"]].reset_index(drop=True)
    table.loc[:1, "crp"] = np.nan
    model, sent = sent_counts([table, table.iloc[::-1] + 1.0])
    # Of the rows that have the one and not the other there are five: three further values are told
    # as missing.
    for pairs, gaps in zip(sent["pairs"], sent["gaps"], strict=True):
        assert pairs.tolist() == [[len(table), len(table) - 5], [len(table) - 5] * 2]
        assert gaps[1, 1] == 5
    everything, _ = sent_counts([table, table.iloc[::-1] + 1.0], small_counts="report")
    assert model.correlations[0][1] == pytest.approx(everything.correlations[0][1], abs=0.05)
    with pytest.raises(CausalError, match="minimum_count"):
        simulate("describe", [table] * 2, small_counts="refuse")


def tables_with_few(seed):
    """Two parties: nested and scattered gaps, and states and gaps of few rows."""
    rng = np.random.default_rng(seed)
    parties = []
    for _ in range(2):
        n = int(rng.integers(40, 120))
        table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
        states = np.concatenate([np.repeat(["u", "v", "w"], rng.integers(1, 7, 3)), ["x"] * n])
        table["s"] = rng.permutation(states[:n])
        lacking = rng.random(n) < rng.choice([0.0, 0.05, 0.3])
        for name in ("a", "b", "s"):
            own = lacking.copy() if rng.random() < 0.7 else rng.random(n) < 0.1
            own[rng.integers(0, n, rng.integers(0, 4))] = True
            table.loc[own, name] = np.nan
        parties.append(table)
    return parties


def interval(count, equations, values, least):
    """Return the least and the largest whole number of each that fits what is known."""
    found = []
    for k in range(count):
        ends = [
            milp(
                sign * np.eye(count)[k],
                constraints=LinearConstraint(np.array(equations, dtype=float), values, values),
                bounds=Bounds(least, np.inf),
                integrality=np.ones(count),
            )
            for sign in (1, -1)
        ]
        assert all(one.success for one in ends)
        found.append([round(one.x[k]) for one in ends])
    return np.array(found)


def test_gaps_that_are_those_of_another_column_and_one_more_are_not_told_apart():
    parties = [hospital(300, k)[["age", "crp", "visits"]].fillna(1.0) for k in (3, 4)]
    for table in parties:
        table.loc[:19, "crp"], table.loc[:20, "visits"] = np.nan, np.nan
    _, sent = sent_counts(parties)
    for pairs, sums in zip(sent["pairs"], sent["sums"], strict=True):
        assert pairs[0, 0] < len(parties[0])
        assert pairs[0, 1] == pairs[0, 2]
        assert sums[0, 1] == pytest.approx(sums[0, 2], abs=1e-9)
    with pytest.raises(CausalError, match="patterns of gaps"):
        simulate("describe", parties, small_counts="refuse")


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", sweep(range(30), (0, 1, 2)))
def test_no_withheld_number_follows_from_all_that_leaves(seed):
    parties = tables_with_few(seed)
    asked, reports, replies = {}, [], [{}, {}]

    class Kept(Relay):
        def after(self, messages, answers):
            for message in messages:
                asked.update(records.arrays_of(message.content))
            for place, one in enumerate(sorted(answers, key=lambda m: m.metadata.src_node_id)):
                if "missing" in records.config_of(one.content):
                    reports.append(records.config_of(one.content))
                replies[place].update(records.arrays_of(one.content))
            return answers

    model = simulate("describe", parties, wrap_grid=Kept).model
    assert model.numbers == ("a", "b")
    reports = sorted(reports, key=lambda one: [len(t) for t in parties].index(one["rows"]))
    replies.sort(
        key=lambda own: [r["missing"] for r in reports].index(np.diag(own["gaps"]).tolist())
    )
    for table, report, own in zip(parties, reports, replies, strict=True):
        n, missing = report["rows"], np.array(report["missing"])
        assert not ((missing > 0) & (missing < 5)).any()
        assert ((missing == table.isna().sum()) | (missing == 5)).all()
        _check_states(report["states"], n - int(missing[2]), own, asked)
        _check_patterns(n, missing, own, asked["sought"].astype(bool))
        few = ~table.isna().to_numpy()
        assert (own["pairs"] <= few[:, :2].T.astype(int) @ few[:, :2]).all()


def _check_states(named, total, own, asked):
    """What was derived is derived from what was told, and no state of few rows follows."""
    told = own["states"].astype(int)
    expected = np.abs(told - told.sum() * asked["shares"]).sum() / 2
    assert own["apart"][2] == pytest.approx(expected)
    if len(told) == len(named):  # each of them is of a row
        equations = [np.ones(len(told)), *np.eye(len(told))[told > 0]]
        ends = interval(len(told), equations, [total, *told[told > 0]], 1)
        assert (ends[told == 0, 1] >= 5).all()
        assert (ends[told == 0, 0] == 1).all()


def _check_patterns(n, missing, own, sought):
    """Of rows by pattern of gaps, those that are summed and those left out are unknown."""
    patterns = np.array([[k >> j & 1 for j in range(3)] for k in range(8)], dtype=float)
    nothing = np.zeros(8)
    equations, values = [np.ones(16)], [n]
    for j in range(3):
        equations.append(np.tile(patterns[:, j], 2))
        values.append(missing[j])
        for i in range(j):
            equations.append(np.concatenate([patterns[:, i] * patterns[:, j], nothing]))
            values.append(own["gaps"][i, j])
    for i, j in ((0, 0), (0, 1), (1, 1)):
        both = (1 - patterns[:, i]) * (1 - patterns[:, j])
        equations.append(np.concatenate([both, nothing]))
        values.append(own["pairs"][i, j])
    for pattern, rows in zip(sought, own["patterns"], strict=True):
        equations.append(np.concatenate([(patterns == pattern).all(axis=1), nothing]))
        values.append(rows)
    # The rows of a pattern: all of them, as summed ones and those left out.
    both = np.hstack([np.eye(8), np.eye(8), -np.eye(8)])
    equations = np.hstack([np.array(equations, dtype=float), np.zeros((len(equations), 8))])
    ends = interval(24, np.vstack([equations, both]), [*values, *nothing], 0)[16:]
    few = ends[:, 0] == ends[:, 1]
    assert not (few & (ends[:, 0] > 0) & (ends[:, 0] < 5)).any(), ends


def test_a_column_that_a_party_lacks_is_a_gap(hospitals):
    parties = [hospitals[0].drop(columns=["crp", "sex"]), *hospitals[1:]]
    model = simulate("describe", parties, small_counts="report").model
    rows = pd.concat(parties)
    assert model["crp"].missing == rows["crp"].isna().sum()
    assert model["sex"].missing == rows["sex"].isna().sum()
    assert model["crp"].mean == pytest.approx(rows["crp"].mean())
    # The order of columns is that of the first party that has them.
    secure = simulate("describe", parties, secure_aggregation=True).model
    same(model, secure)
    with pytest.raises(DataError, match="'crp'"):
        simulate("describe", parties, unshared_columns="fail")
    kept = simulate("describe", parties, unshared_columns="drop").model
    assert set(kept.names) == {"age", "visits", "smoker"}


def test_tables_of_one_kind_and_constant_columns():
    texts = [pd.DataFrame({"a": list("xyxyxy") * 5, "b": list("uuv") * 10})] * 3
    for options in ({}, {"secure_aggregation": True}):
        model = simulate("describe", [t.iloc[k:] for k, t in enumerate(texts)], **options).model
        assert model.numbers == ()
        assert model.correlations == ()
    numbers = [np.column_stack([np.full(20, 7.0), np.arange(20.0) + k]) for k in range(3)]
    model = simulate("describe", numbers, small_counts="report").model
    assert model["x0"].states == {"7": 60}
    assert model.correlations == ((pytest.approx(1.0),),)
    numbers[2][:, 0] = 8.5  # constant at each party, and not everywhere the same
    model = simulate("describe", numbers, small_counts="report").model
    assert model["x0"].quantiles["0.25"] == pytest.approx(7.0, abs=model["x0"].grid[1])
    assert model["x0"].quantiles["0.95"] == pytest.approx(8.5, abs=model["x0"].grid[1])
    rows = np.vstack(numbers)
    np.testing.assert_allclose(np.array(model.correlations), np.corrcoef(rows.T), atol=1e-9)


def test_a_description_is_saved_and_read(hospitals, tmp_path):
    run = simulate("describe", hospitals, output_dir=tmp_path)
    again = Run.load(tmp_path)
    assert again.graph is None
    assert again.model == run.model
    assert again.model.figures().keys() == run.model.figures().keys()
    path = tmp_path / "model.json"
    path.write_text(path.read_text().replace('"below"', '"above"'))
    with pytest.raises(DataError, match="damaged"):
        Description.load(path)
    with pytest.raises(ConfigError, match="'weight'"):
        run.model["weight"]
    assert list(run.model.table().index) == list(run.model.names)
    assert run.model != replace(run.model, rows=1)


@pytest.mark.parametrize("options", [{"bins": 1}, {"replicates": 2}, {"max_rounds": 1}])
def test_options_without_an_effect_are_refused(hospitals, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        simulate("describe", hospitals, **options)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{"small_counts": "report"}, {}])
def test_it_keeps_its_contract(options):
    parties = [hospital(60 + 10 * k, k) for k in range(3)]
    report = check_method("describe", parties, **options)
    assert report.passed, report.table()


@pytest.mark.few(1)
@pytest.mark.parametrize("large", [False, True])
def test_values_of_single_rows_leave_neither_as_means_nor_as_states(hospitals, large, tmp_path):
    parties = [table.copy() for table in hospitals]
    for table in parties:
        table["rare"], table["note"] = np.nan, None
    parties[0].loc[[3], "rare"] = 123.456
    parties[1]["rare"] = 1.0 * np.arange(len(parties[1]))
    parties[2].loc[range(4), "rare"] = [5.5, 6.5, 7.5, 9.5]
    parties[0].loc[range(8), "note"] = [f"Smith fell on day {k}" for k in range(8)]
    if large:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "LARGE", 1)
            patch.setattr(reading, "PIECE", 7 * 50)
            _check_single_rows(parties, tmp_path)
    else:
        _check_single_rows(parties, None)


def _check_single_rows(parties, directory):
    given = parties
    if directory is not None:
        given = [directory / f"{k}.csv" for k in range(len(parties))]
        for table, path in zip(parties, given, strict=True):
            table.to_csv(path, index=False)
    said = []

    class Heard(Relay):
        def after(self, messages, replies):
            said.extend(str(dict(one.content)) for one in replies if one.has_content())
            return replies

    run = simulate("describe", given, wrap_grid=Heard)
    model = run.model
    assert any("'note' is not used: no value at any party, or too few" in t for t in run.warnings)
    (withheld,) = (text for text in run.warnings if "count as missing" in text)
    assert "'rare' (at part" in withheld
    assert "fewer than 5 rows (minimum_count)" in withheld
    for value in ("123.456", "Smith"):
        assert not any(value in text for text in said)
    # The parties lack these columns; the values of the others are there.
    assert model["rare"].seen == len(parties[1])
    assert model["rare"].mean == pytest.approx(parties[1]["rare"].mean())
    assert "note" not in model.names
    everything = simulate("describe", given, small_counts="report").model
    assert everything["rare"].seen == len(parties[1]) + 5
    assert "Smith fell on day 3" in everything["note"].states
    with pytest.raises(DataError, match=r"column 'rare'.*minimum_count=5.*exclude"):
        simulate("describe", given, small_counts="refuse")
    # The names of such columns are known.
    assert simulate("describe", given, exclude="rare,note").model.names == model.names[:-1]
    few = simulate("describe", given, minimum_count=2).model
    assert few["rare"].seen == len(parties[1]) + 4


def test_a_party_of_few_rows_is_told_what_to_do(hospitals):
    with pytest.raises(DataError, match=r"party 1.*'age'.*minimum_count=5.*leave the party out"):
        simulate("describe", [hospitals[0], hospitals[1][:4]])


def test_columns_without_any_value_are_named(hospitals):
    parties = [table.assign(empty=np.nan, blank=None) for table in hospitals]
    run = simulate("describe", parties)
    assert set(run.model.names) == set(hospitals[0].columns)
    for name in ("empty", "blank"):
        assert any(f"'{name}' is not used: no value at any" in text for text in run.warnings)
    with pytest.raises(CausalError, match=r"'empty' has no value at any party.*exclude='empty'"):
        simulate("describe", parties, secure_aggregation=True)
    secure = simulate("describe", parties, secure_aggregation=True, exclude="empty,blank").model
    assert secure.rows == sum(map(len, parties))


def as_found(seed):
    """A table that no method takes as it is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=80)
    frame = pd.DataFrame({"x": x, "lab": x.round(2), "big": x, "sex": rng.choice(["m", "f"], 80)})
    frame["visit"] = pd.Timestamp("2020-01-01")
    if seed == 1:
        frame["lab"] = frame["lab"].astype(object)
        frame.loc[4, "lab"] = "<5"
        frame.loc[3, "big"] = np.inf
    return frame


@pytest.mark.parametrize("further", [{}, {"small_counts": "report"}])
def test_tables_that_need_mending_are_described_and_said_to_need_it(further):
    tables = [as_found(seed) for seed in range(3)]
    run = simulate("describe", tables, **further)
    assert run.model.names == ("x", "sex")
    told = "\n".join(run.warnings)
    for words in (
        "'big' is not used: party 'party 1': 1 infinite value",
        "'lab' is not used: party 'party 1': .*1 of its values is no number",
        "'visit' is not used: parties 'party 0', .*neither numbers nor text",
    ):
        assert re.search(words, told)
    # What is asked to be an error stays one, and so is a table with nothing to describe.
    for options in ({"text_columns": "fail"}, {"columns": "visit"}):
        with pytest.raises(DataError, match="'visit'"):
            simulate("describe", tables, **further, **options)


def test_infinite_values_are_told_with_secure_sums_as_without():
    """The others are refused by the server, which names party, column and number."""
    tables = [as_found(seed)[["x", "big"]] for seed in (0, 1, 1)]
    told = "'big' is not used: parties 'party 1', 'party 2': 1, 1 infinite values"
    for further in ({}, {"secure_aggregation": True}):
        run = simulate("describe", tables, **further)
        assert run.model.names == ("x",)
        assert run.model.rows == 240
        assert any(told in text for text in run.warnings)
        with pytest.raises(DataError, match=r"'party 2', column 'big': 1, 1 infinite values"):
            simulate("moments", tables, **further)
        assert simulate("describe", tables, missing_values="drop", **further).model.rows == 238


@pytest.mark.parametrize("further", [{}, {"small_counts": "report"}])
def test_scores_and_columns_of_zeros_are_described_as_they_are(further):
    """Rounded counts put no row outside; the axis ends where the rows do; zeros are zeros."""
    rng = [np.random.default_rng(seed) for seed in range(4)]
    tables = [
        pd.DataFrame(
            {
                "score": one.integers(0, 11, 402),
                "cost": np.where(one.random(402) < 0.8, 0.0, one.lognormal(5, 1, 402)),
                "tiny": one.uniform(1e-9, 2e-9, 402),
            }
        )
        for one in rng
    ]
    model = simulate("describe", tables, **further).model
    assert model["score"].outside == (0, 0)
    shapes = next(block for block in description_blocks(model) if block["kind"] == "shapes")
    blocks = {panel["name"]: panel["points"] for panel in shapes["panels"]}
    assert blocks["score"][0][0] == -0.5
    assert blocks["score"][-1][0] == 10.5
    assert [model["cost"].quantiles[share] for share in ("0.05", "0.5", "0.75")] == [0, 0, 0]
    assert model["cost"].quantiles["0.95"] > 50
    assert model["tiny"].quantiles["0.5"] == pytest.approx(1.5e-9, rel=0.1)
