"""Options of tables that are left open: what is assumed is said, and is as if it had been given."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sweeps import sweep
from typer.testing import CliRunner

from flwr_causal.clients import client_app
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.command_line import app
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.engines import PartyTables, agreement_of
from flwr_causal.simulations.relay import KilledError, Killing
from flwr_causal.strategies import Lingam, Moments
from flwr_causal.strategies import run as run_strategy

QUICK = {
    "notears-admm": {"max_rounds": 6},
    "fedcausal": {"max_rounds": 6, "model": "linear"},
    "2dbn": {"max_rounds": 6},
    "fedges": {"discretize": 3, "constant_columns": "drop"},
}
METHODS = ["moments", "lingam", "notears-admm", "fedcausal", "2dbn", "fedges", "fedpc", "describe"]
ROWS = 80


def clinic(seed):
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 8, ROWS)
    dose = 0.1 * age + rng.normal(0, 1, ROWS)
    return pd.DataFrame({"age": age, "dose": dose, "risk": dose + rng.normal(0, 0.5, ROWS)})


CLINICS = [clinic(k) for k in range(3)]


def wards(k, table):
    texts = np.random.default_rng(k).choice(["inner", "surgery", "eyes"], ROWS)
    return table.assign(ward=texts)


def flags(k, table):
    return table.assign(smoker=np.random.default_rng(k).random(ROWS) < 0.3)


def gaps(k, table):
    return table.mask(np.random.default_rng(k).random(table.shape) < 0.05)


def patients(k, table):
    return table.assign(patient=[f"P{k}{row:03}" for row in range(ROWS)])


def numbered(k, table):
    return table.assign(patient=np.arange(ROWS) + 1000.0 * k)


def days(k, table):
    added = pd.to_timedelta(np.random.default_rng(k).integers(0, 365, ROWS), unit="D")
    return table.assign(admitted=pd.Timestamp("2024-01-01") + added)


def few_days(k, table):
    """As few that they could be states."""
    months = np.random.default_rng(k).integers(1, 9, ROWS)
    return table.assign(visit=[f"2024-0{month}-01" for month in months])


def names(k, table):
    """Of the party: one state at each, another one."""
    return table.assign(clinic="ABC"[k])


def units(k, table):
    return table.assign(unit="mg")


def lab(k, table):
    noise = np.random.default_rng(k).normal(0, 1, ROWS)
    return table if k == 1 else table.assign(lab=table["risk"] + noise)


#: By trait, the change of a table, and what moments assumes; None where nothing is to be decided.
TRAITS = {
    "text": (wards, {"text_columns": "keep"}),
    "booleans": (flags, None),
    "gaps": (gaps, {"missing_values": "em"}),
    "identifiers": (patients, {"exclude": "patient"}),
    "numbers of rows": (numbered, {"exclude": "patient"}),
    "dates": (days, {"exclude": "admitted"}),
    "dates as text": (few_days, {"text_columns": "keep", "exclude": "visit"}),
    "names of parties": (names, {"text_columns": "keep"}),
    "one value": (units, {"text_columns": "keep", "constant_columns": "drop"}),
    "a column that one party lacks": (lab, {"unshared_columns": "keep", "missing_values": "em"}),
}
ALL = (wards, flags, gaps, patients, days, lab)


def tables(*changes):
    parties = CLINICS
    for change in changes:
        parties = [change(k, one) for k, one in enumerate(parties)]
    return parties


def assumed_of(run):
    return run.config.get("assumed", {})


def lines_of(run):
    return [one for one in run.warnings if one.startswith("Assumed")]


def assert_same(run, other):
    if run.graph is None:
        assert repr(run.model) == repr(other.model)
        return
    assert run.graph.names == other.graph.names
    np.testing.assert_array_equal(run.graph.adjacency, other.graph.adjacency)
    np.testing.assert_array_equal(run.graph.weights, other.graph.weights)
    assert run.rounds == other.rounds
    assert run.bytes_sent == other.bytes_sent


CASES = [(method, trait) for method in METHODS for trait in TRAITS]


KEPT = [("moments", "dates as text"), ("moments", "a column that one party lacks")]


@pytest.mark.few(2)
@pytest.mark.parametrize("case", sweep(CASES, [*KEPT, ("lingam", "text"), ("lingam", "gaps")]))
def test_a_run_is_that_of_the_options_given_or_is_refused_with_the_remedy(case):
    method, trait = case
    parties, options = tables(TRAITS[trait][0]), QUICK.get(method, {})
    refused = ""
    try:
        run = simulate(method, parties, **options)
    except (DataError, ConfigError) as error:
        assert method not in {"moments", "lingam", "notears-admm", "fedcausal", "fedpc"}
        refused = str(error)
    if refused:
        assert re.search(r"\w+='?\w+'?", refused)
        return
    assumed = assumed_of(run)
    if method == "moments":
        assert assumed == (TRAITS[trait][1] or {})
    # A line a decision; columns may be left out in two steps.
    assert len(lines_of(run)) >= len(assumed)
    assert bool(lines_of(run)) == bool(assumed)
    for option, value in assumed.items():
        told = [one for one in lines_of(run) if f"{option}={value!r}" in one]
        assert len(told) == 1 or (option == "exclude" and value in lines_of(run)[-1])
    if assumed:
        by_hand = simulate(method, parties, identifiers="fail", **options, **assumed)
        assert not lines_of(by_hand)
        assert_same(run, by_hand)


@pytest.mark.parametrize("method", sweep(METHODS, ["moments", "fedges"]))
def test_tables_without_these_traits_are_asked_as_by_fail(method):
    class Spy:
        def __init__(self, grid):
            self.grid, self.asked = grid, 0

        def __getattr__(self, name):
            return getattr(self.grid, name)

        def send_and_receive(self, messages, *, timeout=None):
            self.asked += 1
            return self.grid.send_and_receive(messages, timeout=timeout)

    spies = []

    def spy(grid):
        spies.append(Spy(grid))
        return spies[-1]

    options = QUICK.get(method, {})
    runs = [
        simulate(method, CLINICS, wrap_grid=spy, **options, **further)
        for further in ({}, {"strict": True})
    ]
    assert spies[0].asked == spies[1].asked
    assert runs[0].warnings == runs[1].warnings
    assert_same(*runs)


def test_the_whole_of_it_for_files(tmp_path):
    files = []
    for name, table in zip(("north", "south", "west"), tables(*ALL), strict=True):
        files.append(str(tmp_path / f"{name}.csv"))
        table.to_csv(files[-1], index=False)
    results = tmp_path / "results"
    shown = CliRunner().invoke(app, ["run", "moments", *files, "--output-dir", str(results)])
    assert shown.exit_code == 0, shown.output
    run = Run.load(results)
    assert set(run.graph.names) == {"age", "dose", "risk", "ward", "smoker", "lab"}
    assert assumed_of(run) == {
        "unshared_columns": "keep",
        "missing_values": "em",
        "text_columns": "keep",
        "exclude": "patient,admitted",
    }
    assert len(lines_of(run)) == 4
    kept = json.loads((results / "run.json").read_text())
    assert kept["warnings"][:4] == lines_of(run)
    assert run.config["missing_values"] == "auto"
    # Each line is shown, and each is on the page.
    run.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for option in ("text_columns", "missing_values", "unshared_columns"):
        assert option in page
    # Nothing is assumed of the same tables where that is not wanted.
    refused = CliRunner().invoke(app, ["run", "moments", *files, "-o", "strict=true"])
    assert refused.exit_code != 0
    assert "missing_values" in refused.output
    # A completed run is found by the options that were given.
    again = simulate("moments", files, output_dir=results, resume=True)
    assert_same(run, again)


@pytest.mark.parametrize(
    ("trait", "options"),
    [
        ("text", {"text_columns": "fail"}),
        ("gaps", {"missing_values": "fail"}),
        ("a column that one party lacks", {"unshared_columns": "fail"}),
        ("identifiers", {"identifiers": "fail"}),
        ("dates", {"identifiers": "fail"}),
        *((trait, {"strict": True}) for trait in ("text", "gaps", "identifiers", "dates")),
    ],
)
def test_fail_refuses_as_ever(trait, options):
    with pytest.raises(DataError) as caught:
        simulate("moments", tables(TRAITS[trait][0]), **options)
    assert caught.value.settings
    assert not caught.value.assumed


def test_identifiers_in_numbers_are_kept_with_a_warning_where_nothing_is_assumed():
    run = simulate("moments", tables(numbered), identifiers="fail")
    assert "patient" in run.graph.names
    assert any("number the rows" in one for one in run.warnings)


def test_what_a_table_itself_has_to_mend_is_not_assumed():
    parties = tables(wards, gaps)
    parties[1].loc[3, "dose"] = np.inf
    with pytest.raises(DataError, match="1 infinite value"):
        simulate("moments", parties)
    with pytest.raises(DataError, match="1 infinite value"):
        simulate("lingam", parties)
    parties = tables(wards)
    parties[2] = parties[2].rename(columns={"dose": "Dose"})
    with pytest.raises(DataError, match="rename its column 'Dose'"):
        simulate("moments", parties)


def test_an_error_says_what_was_assumed_before():
    # No row is complete.
    cells = (np.arange(ROWS)[:, None] + np.arange(3)) % 3 == 0
    with pytest.raises(DataError, match=r"(?s)^Assumed missing_values='drop'.*0 rows left") as one:
        simulate("lingam", [table.mask(cells) for table in CLINICS])
    assert str(one.value).count("Assumed") == 1


def test_a_strategy_assumes_anew_in_each_run():
    strategy = Moments(min_available_nodes=3)
    assert assumed_of(simulate(strategy, tables(wards))) == {"text_columns": "keep"}
    assert assumed_of(simulate(strategy, tables(gaps))) == {"missing_values": "em"}
    assert strategy.options == Moments(min_available_nodes=3).options
    # A strategy that is started itself keeps what was decided until its next run.
    decided = []
    for change in (wards, gaps):
        nodes = client_app(MomentsClient, PartyTables(tables(change)))
        run_strategy(strategy, LocalGrid(nodes, 3))
        decided.append(strategy._decided)
    assert decided == [{"text_columns": "keep"}, {"missing_values": "em"}]
    assert strategy.options.text_columns == "auto"
    assert strategy.options.missing_values == "em"


def test_the_other_options_limit_what_is_assumed():
    run = simulate("moments", tables(wards), solver="dagma")
    assert assumed_of(run) == {"text_columns": "drop"}
    run = simulate("moments", tables(gaps), aggregation="median")
    assert assumed_of(run) == {"missing_values": "drop"}
    run = simulate("moments", tables(patients, wards), exclude="dose")
    assert run.config["assumed"]["exclude"] == "dose,patient"
    assert "column 'dose' is not used: the option 'exclude' names it" in run.warnings
    assert Lingam(text_columns="fail").options.left_open == {
        "missing_values",
        "unshared_columns",
        "constant_columns",
        "exclude",
    }


def test_columns_that_are_declared_are_variables():
    options = {"text_columns": "keep", "columns": "dose,risk,patient"}
    assert "patient" in simulate("moments", tables(numbered), **options).graph.names
    options = {"text_columns": "keep", "categories": "visit"}
    assert "visit" in simulate("moments", tables(few_days), **options).graph.names
    with pytest.raises(DataError, match="'patient'"):
        simulate("moments", tables(patients), columns="dose,risk,patient")
    # No column would be left.
    only = [one[["patient"]] for one in tables(numbered)]
    assert simulate("moments", only).graph.names == ("patient",)


def test_a_description_before_the_run_assumes_the_same():
    agreement = agreement_of("moments", tables(*ALL))
    run = simulate("moments", tables(*ALL))
    assert agreement.names == run.graph.names
    assert [one for one in agreement.warnings if one.startswith("Assumed")] == lines_of(run)


def test_an_interrupted_run_goes_on_with_what_was_decided(tmp_path):
    parties, interrupted = tables(wards, gaps, patients, lab), tmp_path / "interrupted"
    undisturbed = simulate("moments", parties)
    with pytest.raises(KilledError):
        simulate(
            "moments",
            parties,
            output_dir=interrupted,
            wrap_grid=lambda grid: Killing(grid, 2),
        )
    resumed = simulate("moments", parties, output_dir=interrupted, resume=True)
    assert_same(resumed, undisturbed)
    assert assumed_of(resumed) == assumed_of(undisturbed) == assumed_of(Run.load(interrupted))
    assert lines_of(resumed) == lines_of(undisturbed)


def test_replicates_and_trainings_without_a_party_follow_what_was_decided():
    options = {"replicates": 2, "leave_one_out": True}
    run = simulate("moments", tables(wards), **options)
    by_hand = simulate("moments", tables(wards), text_columns="keep", **options)
    assert_same(run, by_hand)
    np.testing.assert_array_equal(run.graph.confidence, by_hand.graph.confidence)


@pytest.mark.slow
def test_parties_that_find_gaps_themselves_say_so():
    """With secure sums, and of series, the server is not told of single gaps."""
    secure = {"secure_aggregation": True}
    run = simulate("moments", tables(wards, gaps, patients, lab), **secure)
    given = {"text_columns": "keep", "exclude": "patient", "missing_values": "em"}
    assert assumed_of(run) == {**given, "unshared_columns": "keep"}
    assert_same(
        run, simulate("moments", tables(wards, gaps, patients, lab), **assumed_of(run), **secure)
    )
    assert any("missing_values='em'" in one and "'party 0'" in one for one in lines_of(run))
    run = simulate("moments", tables(gaps), order=1)
    assert_same(run, simulate("moments", tables(gaps), order=1, missing_values="em"))
    assert lines_of(run)
    run = simulate("2dbn", tables(gaps), **QUICK["2dbn"])
    assert_same(run, simulate("2dbn", tables(gaps), missing_values="drop", **QUICK["2dbn"]))
    parties = tables(gaps)
    parties[1].loc[3, "dose"] = np.inf
    for options in (secure, {"order": 1}):
        with pytest.raises(DataError, match="infinite"):
            simulate("moments", parties, **options)
        with pytest.raises(DataError, match="missing"):
            simulate("moments", tables(gaps), strict=True, **options)


def test_an_error_has_what_is_not_assumed_alone():
    parties = tables(wards, gaps, lab)
    stray = parties[0].assign(dose=parties[0]["dose"].astype(object))
    stray.loc[5, "dose"] = "12 mg"
    with pytest.raises(DataError, match="1 problem of which nothing is assumed") as error:
        simulate("moments", [stray, *parties[1:]])
    assert "column 'dose'" in str(error.value)
    for name in ("'ward'", "'lab'", "'risk'"):
        assert name not in str(error.value)
    endless = [one.assign(age=one["age"].where(one.index > 0, np.inf)) for one in parties]
    with pytest.raises(DataError, match="infinite values") as error:
        simulate("moments", endless)
    assert error.value.settings == {"missing_values": "drop"}
    assert simulate("moments", endless, **error.value.settings).graph is not None
