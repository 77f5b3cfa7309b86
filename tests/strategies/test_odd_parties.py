"""Runs name the party that differs, whatever the method, and are repeated without it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sweeps import sweep

from flwr_causal import Run, simulate
from flwr_causal.errors import ConfigError

D = 6
#: A chain with two further edges.
WEIGHTS = np.diag([0.9, -0.8, 0.9, 0.7, -0.9], 1)
WEIGHTS[0, 3], WEIGHTS[1, 5] = 0.6, 0.7
SIZES = (400, 300, 500, 350, 450)


def parties(seed=0, weights=None, sizes=SIZES):
    """Tables; with weights, those of party 2."""
    rng = np.random.default_rng(seed)
    found = []
    for k, n in enumerate(sizes):
        own = weights if k == 2 and weights is not None else WEIGHTS
        rows = rng.normal(size=(n, D)) @ np.linalg.inv(np.eye(D) - own)
        found.append(pd.DataFrame(rows, columns=[f"x{j}" for j in range(D)]))
    return found


def reversed_column(tables):
    tables[2]["x3"] = 10 - tables[2]["x3"]
    return tables


def about_parties(run):
    return [text for text in run.warnings if " differs from the others" in text]


REVERSED = "party 2 differs from the others: column 'x3' is reversed"
MODES = {
    "default": {},
    "class": {"solver": "class"},
    "curved": {"model": "curved"},
    "hidden causes": {"hidden_causes": True},
    "series": {"order": 1},
    "missing": {"missing_values": "em"},
    "missing and curved": {"missing_values": "em", "model": "curved"},
    "median": {"aggregation": "median"},
    "own graphs": {"local_graphs": True},
    "targets": {"unknown_targets": True},
    "lingam": {},
}


@pytest.mark.parametrize("mode", sweep(MODES, ["curved", "missing", "targets"]))
def test_a_reversed_column_is_named(mode):
    tables = reversed_column(parties())
    if "missing" in mode:
        tables[2]["x3"] -= 10  # a missing cell is expected at the level of all parties
        rng = np.random.default_rng(1)
        tables = [table.mask(rng.random(table.shape) < 0.1) for table in tables]
    run = simulate("lingam" if mode == "lingam" else "moments", tables, **MODES[mode])
    (said,) = about_parties(run)
    assert said.startswith(REVERSED)
    assert run.disagreement["what"].iloc[0] == "reversed"
    assert "party 2 differs: column 'x3' is reversed" in str(run)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_parties_that_agree_are_not_named(mode):
    tables = parties(1)
    if "missing" in mode:
        rng = np.random.default_rng(1)
        tables = [table.mask(rng.random(table.shape) < 0.1) for table in tables]
    run = simulate("lingam" if mode == "lingam" else "moments", tables, **MODES[mode])
    assert about_parties(run) == []


def test_of_two_parties_the_column_is_named_and_not_which_party_is_right():
    tables = parties(sizes=(500, 400))
    tables[1]["x3"] *= -1
    (said,) = [text for text in simulate("moments", tables).warnings if "run.without" in text]
    assert said.startswith("party 0 differs from party 1: column 'x3' is reversed")
    assert "Which of the two is right the rows do not tell." in said


def test_by_groups_the_group_is_named():
    tables = parties(sizes=(300,) * 12)
    tables[2]["x3"] *= -1
    run = simulate("moments", tables, secure_aggregation=True, groups=4)
    (said,) = about_parties(run)
    (group,) = [name for name, own in run.groups.items() if "party 2" in own]
    assert said.startswith(f"{group} differs from the others")


def test_where_all_rows_are_one_sum_nothing_is_said_of_parties():
    run = simulate("moments", reversed_column(parties()), secure_aggregation=True)
    assert run.disagreement is None
    assert about_parties(run) == []
    assert "without secure aggregation" in run.model.why_not("disagreement")


@pytest.mark.parametrize("options", [{}, {"unknown_targets": True}])
def test_a_party_of_other_mechanisms_is_named_and_not_for_false_columns(options):
    rng = np.random.default_rng(3)
    own = -WEIGHTS * rng.uniform(0.3, 1, (D, D))
    run = simulate("moments", parties(weights=own), **options)
    (said,) = about_parties(run)
    assert said.startswith("party 2 differs from the others")
    assert ("effects differ" in said) is not bool(options)
    assert ("as if it were another system" in said) is bool(options)
    assert "fedcausal" in said


def test_a_party_of_most_rows_is_the_one_that_is_named():
    own = -WEIGHTS
    run = simulate("moments", parties(weights=own, sizes=(300, 350, 20_000, 400, 300)))
    (said,) = about_parties(run)
    assert said.startswith("party 2 differs from the others")


def test_a_run_is_repeated_without_the_party():
    tables = reversed_column(parties())
    run = simulate("moments", tables, seed=3, truth=WEIGHTS)
    again = run.without("party 2")
    assert list(again.parties) == ["party 0", "party 1", "party 3", "party 4"]
    assert about_parties(again) == []
    left = simulate("moments", [tables[k] for k in (0, 1, 3, 4)], seed=3)
    np.testing.assert_allclose(again.graph.weights, left.graph.weights, atol=1e-12)
    assert again.metrics["shd"] <= run.metrics["shd"]
    assert list(again.without("party 0", "party 4").parties) == ["party 1", "party 3"]


def test_a_table_without_sizes_is_read(tmp_path):
    """That of an earlier version."""
    run = simulate("moments", reversed_column(parties()), output_dir=tmp_path / "run")
    file = tmp_path / "run" / "disagreement.csv"
    table = pd.read_csv(file, keep_default_na=False)
    table[table["what"] != "reversed"].drop(columns="size").to_csv(file, index=False)
    loaded = Run.load(tmp_path / "run").disagreement
    assert np.isinf(loaded["size"]).all()
    assert list(loaded) == list(run.disagreement)
    assert "party 2 differs: " in str(Run.load(tmp_path / "run"))


def test_without_takes_files_and_says_what_else_there_is(tmp_path):
    names = ["north", "south", "west"]
    for name, table in zip(names, parties(), strict=False):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / f"{name}.csv" for name in names]
    run = simulate("moments", files, output_dir=tmp_path / "run")
    assert list(run.without("south.csv").parties) == ["party 0", "party 2"]
    with pytest.raises(ConfigError, match="no party is called east: there are party 0, party 1"):
        run.without("east")
    with pytest.raises(ConfigError, match="no party is left"):
        run.without(*run.parties)
    for copy in (Run.load(tmp_path / "run"), pickle.loads(pickle.dumps(run))):
        with pytest.raises(ConfigError, match="expected_parties='party 0,party 2'"):
            copy.without("party 1")


def categories(seed=0):
    """Five parties of a network over five categories."""
    rng = np.random.default_rng(seed)
    found = []
    for n in (600, 400, 800, 500, 450):
        a = rng.integers(3, size=n)
        b, f = (np.where(rng.random(n) < 0.7, a, rng.integers(3, size=n)) for _ in range(2))
        c = rng.random(n) < 0.15 + 0.3 * b
        e = rng.random(n) < np.where(c, 0.8, 0.25)
        found.append(pd.DataFrame({"a": a, "b": b, "c": 1 * c, "e": 1 * e, "f": f}).astype(str))
    return found


@pytest.mark.parametrize(
    "options", sweep([{}, {"mode": "exact"}, {"mode": "exact", "replicates": 2}], [{}])
)
def test_exchanged_codes_are_named_in_networks(options):
    assert about_parties(simulate("fedges", categories(), **options)) == []
    tables = categories()
    tables[3]["c"] = np.where(tables[3]["c"] == "1", "0", "1")
    run = simulate("fedges", tables, **options)
    (said,) = about_parties(run)
    assert "party 3 differs from the others: codes '1' and '0' of 'c' are exchanged" in said
    shares = tables[3]["e"].eq("0").mean()
    table = run.disagreement
    (mean,) = table[
        (table["what"] == "mean") & (table["party"] == "party 3") & (table["effect"] == "e=0")
    ]["value"]
    assert mean == pytest.approx(shares)


def test_where_counts_add_up_securely_nothing_is_said_of_parties():
    assert simulate("fedges", categories(), secure_aggregation=True).disagreement is None
