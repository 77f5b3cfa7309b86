"""Levels of series: centring, and reports that agree on what is learned from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.check.agreement import agree, pool
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.report import TableReport
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.series import levels
from flwr_causal.data.series.levels import centered_rows, describe_series
from flwr_causal.data.series.series import SeriesLayout, find_series
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations.engines import agreement_of

PHASES = SeriesLayout(phase_column="pulse")


def pulsed(values, pulse):
    return pd.DataFrame({"a": np.asarray(values, dtype=float), "pulse": pulse})


def test_centering_in_numbers():
    frame = read_table([pulsed([1, 3, 5, 9], [1, 1, 0, 0]), pulsed([2, 4, 6], [0, 0, 0])])
    series = find_series(frame, PHASES)

    def centered(**given):
        return [rows[:, 0].tolist() for rows in centered_rows(series, 0, **given)]

    assert centered(mean=np.array([2.0])) == [[-1, 1, 3, 7], [0, 2, 4]]
    assert centered(by="series") == [[-3.5, -1.5, 0.5, 4.5], [-2, 0, 2]]
    assert centered(mean=np.array([5.0]), by="phase") == [[-1, 1, 0, 4], [-3, -1, 1]]
    assert series[0].values[0, 0] == 1
    # with a lag: the rows of a perturbed step lose their own mean, lags and all
    one, other = centered_rows(series, 1, np.array([5.0]), "phase")
    assert one.tolist() == [[0, 0], [0, -2], [4, 0]]
    assert other.tolist() == [[-1, -3], [1, -1]]
    one, other = centered_rows(series, 1, by="series")
    assert one.tolist() == [[-1.5, -3.5], [0.5, -1.5], [4.5, 0.5]]


def test_a_constant_becomes_zero_exactly():
    series = find_series(pd.DataFrame({"a": [0.1] * 3}), SeriesLayout())
    assert not centered_rows(series, 1, by="series")[0].any()


def test_centering_refuses():
    series = find_series(pd.DataFrame({"a": [1.0, 2.0]}), SeriesLayout())
    with pytest.raises(ConfigError, match="center is 'party': choose 'global', 'series' or"):
        centered_rows(series, 1, by="party")
    with pytest.raises(ConfigError, match="agreed mean of the 1 variables, got none"):
        centered_rows(series, 1)
    with pytest.raises(ConfigError, match=r"got shape \(2,\)"):
        centered_rows(series, 1, np.zeros(2))
    with pytest.raises(ConfigError, match="phase_column, or time_column and perturbed"):
        centered_rows(series, 1, np.zeros(1), "phase")


def test_a_report_counts_the_rows_of_the_design():
    frame = read_table([np.arange(10.0).reshape(5, 2), np.ones((1, 2)), np.eye(3)[:, :2]])
    layout = SeriesLayout(order=1)
    report = describe_series(frame, layout, sums=True)
    assert (report.rows, report.dropped_rows, report.names) == (6, 0, ("x0", "x1"))
    design = lagged_rows([frame.loc[:4, ["x0", "x1"]], frame.loc[6:, ["x0", "x1"]]], 1)
    assert report.rows == len(design)
    agreed = agree({"one": report})
    np.testing.assert_allclose(agreed.mean, design[:, :2].mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(agreed.variance, design[:, :2].var(axis=0), rtol=1e-14)
    assert TableReport.from_dict(report.to_dict()) == report
    assert not describe_series(frame, layout).has_sums


def test_without_lags_to_lose_it_is_the_ordinary_report():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((9, 3)), columns=list("abc"))
    table = table.assign(d=table["a"], e=1.0, f=["u"] * 9, g=[True, False] * 4 + [True])
    targets = replace(describe(table.iloc[2:], sums=True), step="1")
    layout = SeriesLayout(series_column="id", time_column="t", order=2)
    assert describe_series(table.assign(id=7, t=range(9)), layout, sums=True) == targets
    assert targets.columns[3].copy_of == 0
    # a variable that the other ways of centring must not confuse with the one before it
    series = describe_series(table, SeriesLayout(order=2), sums=True, by="series")
    assert [column.kind for column in series.columns] == [c.kind for c in targets.columns]
    assert series.columns[6].mean == pytest.approx(targets.columns[6].mean)


@given(
    seed=st.integers(0, 10**6),
    order=st.integers(1, 2),
    offset=st.sampled_from([0.0, 1e6]),
    by=st.sampled_from(["global", "series"]),
)
def test_the_agreement_does_not_depend_on_who_holds_which_series(seed, order, offset, by):
    rng = np.random.default_rng(seed)
    series = [rng.standard_normal((steps, 2)) + offset for steps in rng.integers(order + 2, 9, 6)]

    def agreed(parts):
        layout = SeriesLayout(order=order)
        reports = {
            str(k): describe_series(read_table(part), layout, sums=True, by=by)
            for k, part in enumerate(parts)
        }
        return agree(reports)

    one, three = agreed([series]), agreed([series[:1], series[1:3], series[3:]])
    assert one.n == three.n == sum(len(values) - order for values in series)
    targets = np.vstack([values[order:] for values in series])
    for agreement in (one, three):
        np.testing.assert_allclose(agreement.mean, targets.mean(axis=0), rtol=1e-13, atol=1e-13)
    if by == "global":
        np.testing.assert_allclose(one.variance, targets.var(axis=0), rtol=1e-8)
        np.testing.assert_allclose(three.variance, one.variance, rtol=1e-8)


def test_squares_are_those_of_the_centred_values():
    tables = [
        pulsed([9, 7, 1, 3], [1, 1, 0, 0]),
        pulsed([20, 30, 4, 8], [True, True, False, False]),
    ]
    frame = read_table(tables)
    for by, centered in (
        ("series", [[2, -4, -2], [14.5, -11.5, -7.5]]),
        # unperturbed steps 1, 3, 4, 8 have the mean 4
        ("phase", [[0, -3, -1], [0, 0, 4]]),
    ):
        column = describe_series(frame, PHASES, sums=True, by=by).columns[0]
        assert column.squares == pytest.approx(np.square(centered).sum())
        assert column.mean == pytest.approx(4 if by == "phase" else np.mean([7, 1, 3, 30, 4, 8]))
        assert column.remainder == pytest.approx(0)


def phase_reports(**parties):
    return {
        name: describe_series(pulsed(*columns), PHASES, sums=True, by="phase")
        for name, columns in parties.items()
    }


def test_the_level_is_that_of_all_unperturbed_rows():
    """Rows from the second on: one has a single unperturbed one, two has three."""
    reports = phase_reports(
        one=([9, 7, 8, 2], [1, 1, 1, 0]), two=([20, 30, 4, 8, 6], [1, 1, 0, 0, 0])
    )
    assert [report.level_rows for report in reports.values()] == [1, 3]
    assert [report.rows for report in reports.values()] == [3, 4]
    agreement = agree(reports)
    assert agreement.names == ("a",)
    np.testing.assert_allclose(agreement.mean, [(2 + 4 + 8 + 6) / 4])
    # perturbed rows lose 7.5 and 30, the others 5
    np.testing.assert_allclose(
        agreement.variance, [np.square([-0.5, 0.5, -3, 0, -1, 3, 1]).mean()], rtol=1e-14
    )


def test_a_party_with_perturbed_rows_only_has_no_say_in_the_level():
    reports = phase_reports(one=([20, 30, 40], [1, 1, 1]), two=([5, 4, 8, 6], [0, 0, 0, 0]))
    assert reports["one"].level_rows == 0
    for order in ("one", "two"), ("two", "one"):
        agreement = agree({name: reports[name] for name in order})
        np.testing.assert_allclose(agreement.mean, [6])
        np.testing.assert_allclose(agreement.variance, [np.square([-5, 5, -2, 2, 0]).mean()])
    with pytest.raises(DataError, match=r"all steps are under a perturbation.*center='series'"):
        agree({"one": reports["one"]})
    # nor in whether a column has the same one value everywhere
    flat = phase_reports(one=([7, 7, 7], [1, 1, 1]), two=([5, 5, 5], [0, 0, 0]))
    with pytest.raises(DataError, match="column 'a': constant"):
        agree(flat)


@given(
    seed=st.integers(0, 10**6),
    order=st.integers(1, 3),
    offset=st.sampled_from([0.0, 1e8]),
    num_parties=st.integers(1, 4),
)
def test_phases_pool_to_what_the_parties_will_centre_to(seed, order, offset, num_parties):
    rng = np.random.default_rng(seed)
    layout = SeriesLayout(phase_column="pulse", order=order)
    tables = []
    for _ in range(num_parties):
        lengths = rng.integers(order + 2, 30, size=rng.integers(1, 4))
        # some parties are perturbed rarely, some often, some always
        share = rng.choice([0.0, 0.2, 0.8, 1.0])
        tables.append(
            read_table(
                [
                    pd.DataFrame(rng.standard_normal((steps, 2)) * [1, 5] + offset).assign(
                        pulse=rng.random(steps) < share
                    )
                    for steps in lengths
                ]
            )
        )
    tables[-1].loc[tables[-1].index[-1], "pulse"] = False
    series = [find_series(table, layout) for table in tables]
    every = [one for party in series for one in party]
    level = np.vstack([one.values[order:][~one.phase[order:]] - offset for one in every])

    reports = {
        str(k): describe_series(table, layout, sums=True, by="phase")
        for k, table in enumerate(tables)
    }
    reports = {name: TableReport.from_dict(report.to_dict()) for name, report in reports.items()}
    mean, variance = pool(reports, ["0", "1"])
    np.testing.assert_allclose(mean, level.mean(axis=0) + offset, rtol=1e-15, atol=1e-12)
    if not offset:
        np.testing.assert_allclose(mean, level.mean(axis=0), rtol=1e-12, atol=1e-13)
    centered = np.vstack(centered_rows(every, order, mean, "phase"))[:, :2]
    np.testing.assert_allclose(variance, centered.var(axis=0), rtol=1e-12)


def test_series_left_out_are_noted():
    frame = read_table([np.eye(4)[:, 2:], np.ones((1, 2)), np.eye(5)[:, 3:]])
    for by in ("global", "series"):
        report = describe_series(frame, SeriesLayout(order=2), sums=True, by=by)
        assert TableReport.from_dict(report.to_dict()) == report
        (note,) = report.notes
        assert note.startswith("1 of 3 series (1 steps in all) are shorter than the 4 steps")
        agreement = agree({"clinic": report})
        assert agreement.warnings == (f"party 'clinic': {note}",)
    assert describe_series(frame.iloc[:4], SeriesLayout(), sums=True).notes == ()


def test_what_varies_between_series_only_is_constant_once_series_lose_their_means():
    frame = read_table([np.array([[1.0, 0.1], [2.0, 0.1], [4.0, 0.1]]), np.eye(3)[:, :2] * [1, 0]])
    assert not any(column.distinct_one for column in describe_series(frame, SeriesLayout()).columns)
    flags = [c.distinct_one for c in describe_series(frame, SeriesLayout(), by="series").columns]
    assert flags == [False, True]
    with pytest.raises(DataError, match="column 'x1': constant"):
        agree({"one": describe_series(frame, SeriesLayout(), sums=True, by="series")})


def test_problems_of_tables_are_found_as_ever():
    fine = pd.DataFrame({"t": range(4), "a": [1.0, 2.0, 4.0, 3.0], "b": [1.0, 0.0, 0.0, 1.0]})
    layout = SeriesLayout(time_column="t")

    def agreed(*frames, handling=None):
        reports = {
            str(k): describe_series(frame, layout, handling) for k, frame in enumerate(frames)
        }
        return agree(reports, handling)

    assert agreed(fine, fine).names == ("a", "b")
    with pytest.raises(DataError, match="party '1', column 'b': missing"):
        agreed(fine, fine[["t", "a"]], fine)
    with pytest.raises(DataError, match="'b': not numeric"):
        agreed(fine.assign(b=["u", "v", "u", "v"]))
    with pytest.raises(DataError, match="column 'b': constant"):
        agreed(fine.assign(b=1.0))
    dropping = Handling(text_columns="drop", missing_values="drop")
    texts = fine.assign(b=["u", None, "u", "v"])
    assert agreed(texts, handling=dropping).rows == {"0": 3}
    holed = pd.concat([fine, fine.assign(t=range(4, 8))]).assign(b=range(8)).reset_index(drop=True)
    holed.loc[3, "b"] = np.nan
    with pytest.raises(DataError, match="'b': missing in series 1 of 1, step 4"):
        agreed(holed)
    agreement = agreed(holed, handling=Handling(missing_values="drop"))
    assert agreement.rows == {"0": 2 + 3}
    assert agreement.warnings == ()


def test_nothing_left_to_report():
    with pytest.raises(DataError, match="order 3 needs 5 steps"):
        describe_series(pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]}), SeriesLayout(order=3))
    unknown = describe_series(pulsed([1, 2, 3], [0, 1, 1]), PHASES, by="phase")
    with pytest.raises(DataError, match="all steps are under a perturbation"):
        agree({"one": unknown})
    with pytest.raises(ConfigError, match="phase_column"):
        describe_series(pd.DataFrame({"a": [1.0, 2.0, 4.0]}), SeriesLayout(), by="phase")


@pytest.mark.parametrize(
    ("method", "options", "asked"),
    [
        ("moments", {}, False),  # whose sums tell levels
        ("lingam", {}, True),
        ("lingam", {"center": "global"}, False),
    ],
)
def test_only_a_report_that_decides_says_whether_levels_differ(method, options, asked, monkeypatch):
    compared = []
    monkeypatch.setattr(levels, "_unlike", lambda series, _: bool(compared.append(series)))
    series = np.random.default_rng(0).normal(size=(40, 2))
    agreement_of(method, [[series, series + 9.0]], order=1, **options)
    assert bool(compared) == asked
