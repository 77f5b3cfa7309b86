"""Rows with missing cells under known interventions: ``missing_values="em"`` of Moments."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import intervened_table

from flwr_causal import Run, simulate

D, NAMES = 6, list("abcdef")
WEIGHTS = np.zeros((D, D))
for cause, effect, weight in ((0, 1, 1.0), (0, 2, -0.8), (1, 3, 1.2), (2, 3, 0.7), (3, 4, -1.0)):
    WEIGHTS[cause, effect] = weight
ON = np.array(["", "b", "d; c"])


def table_of(n, seed=0):
    """Rows of which a third each are observed, have b set to 2, and c and d drawn anew."""
    rng = np.random.default_rng(seed)
    on = rng.integers(0, 3, n)
    rows = rng.normal(size=(n, D))
    for j in range(D):
        rows[:, j] += rows @ np.where(np.arange(D) < j, WEIGHTS[:, j], 0)
        hit = np.array([False, j == 1, j in (2, 3)])[on]
        rows[hit, j] = 2.0 if j == 1 else rng.normal(-1, 1.5, hit.sum())
    return pd.DataFrame(3 * rows + 10, columns=NAMES).assign(on=ON[on])


def with_gaps(table, share, seed=0):
    gaps = np.random.default_rng(seed).random(table.shape) < share
    gaps[:, -1] = False
    return table.mask(gaps)


def dealt(table, parties=3):
    return [table.iloc[k::parties].reset_index(drop=True) for k in range(parties)]


COMPLETE = table_of(1200)
TABLE = with_gaps(COMPLETE, 0.2)
STATED = {"intervention_column": "on"}
EM = {**STATED, "missing_values": "em"}
RUN = simulate("moments", dealt(TABLE), **EM)


def edges(run):
    return sorted((edge[0], edge[1]) for edge in run.graph.edges())


TRUE = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]


def test_the_graph_and_its_effects_are_those_of_the_complete_rows():
    assert edges(RUN) == TRUE
    full = simulate("moments", dealt(COMPLETE), **STATED)
    assert edges(full) == TRUE
    np.testing.assert_allclose(RUN.graph.weights, full.graph.weights, atol=0.12)
    assert len(RUN.history) <= 9
    for pair in (("a", "b"), ("a", "d"), ("b", "e")):
        one, other = (run.model.total_effect(*pair) for run in (RUN, full))
        assert one.value == pytest.approx(other.value, abs=3 * one.standard_error)
        assert 1.05 < one.standard_error / other.standard_error < 2
    # What is missing of b in the rows in which it was set says nothing of its causes.
    blind = simulate("moments", dealt(TABLE.drop(columns="on")), missing_values="em")
    assert edges(blind) != TRUE


@pytest.mark.slow
def test_numbers_and_categories_replicates_and_saved_models(tmp_path):
    table, _, targets = intervened_table(6, 1500, seed=1)
    table = table.assign(on=[",".join(own) for own in targets])
    kept = {"text_columns": "keep", **EM}
    run = simulate(
        "moments",
        dealt(with_gaps(table, 0.05)),
        **kept,
        replicates=2,
        leave_one_out=True,
        output_dir=str(tmp_path / "run"),
    )
    full = simulate("moments", dealt(table), text_columns="keep", **STATED)
    np.testing.assert_array_equal(run.graph.adjacency, full.graph.adjacency)
    assert run.graph.adjacency_confidence.shape == (6, 6)
    assert len(run.influence) == 3
    again = Run.load(tmp_path / "run")
    assert again.model.edge_tests() == run.model.edge_tests()
    informing = [own.together for own in run.model.own_moments]
    assert all(own is not None for own in informing)
    assert (run.model.moments.together <= np.min(informing, axis=0)).all()


def test_parties_may_lack_columns():
    tables = dealt(with_gaps(COMPLETE, 0.05))
    tables[0] = tables[0].drop(columns="f")
    tables[1] = tables[1].drop(columns=["e"])
    run = simulate("moments", tables, **EM, unshared_columns="keep")
    assert [record["exchange"] for record in run.history][:2] == ["seen", "expected"]
    assert edges(run) == TRUE


def test_pairs_that_are_seen_in_rows_of_targets_alone_get_no_edge():
    # d is measured where c and d were set alone: nothing says what causes it.
    table = COMPLETE.copy()
    table["d"] = table["d"].where((table["on"] == "d; c") | (np.arange(len(table)) % 60 == 0))
    run = simulate("moments", dealt(table), **EM)
    assert not {"d"} & {name for edge in edges(run) for name in edge}
    assert any("No edge between them" in warning for warning in run.warnings)


def test_series_under_interventions():
    rng = np.random.default_rng(5)
    steps, on = np.zeros((900, 3)), np.repeat(rng.random(30) < 0.4, 30)
    for t in range(1, 900):
        steps[t, 0] = 0.5 * steps[t - 1, 0] + rng.normal()
        steps[t, 1] = 4 + rng.normal() if on[t] else steps[t, 0] + rng.normal()
        steps[t, 2] = 0.8 * steps[t, 1] + 0.4 * steps[t - 1, 2] + rng.normal()
    table = pd.DataFrame(steps, columns=list("abc")).assign(on=np.where(on, "b", ""))
    parties = [table[:450].reset_index(drop=True), table[450:].reset_index(drop=True)]
    options = {"order": 1, **STATED}
    full = simulate("moments", parties, **options)
    gaps = [with_gaps(part, 0.1, k) for k, part in enumerate(parties)]
    run = simulate("moments", gaps, **options, missing_values="em")
    np.testing.assert_array_equal(run.graph.weights != 0, full.graph.weights != 0)
    np.testing.assert_array_equal(run.graph.lagged != 0, full.graph.lagged != 0)
    same = simulate("moments", parties, **options, missing_values="em")
    np.testing.assert_allclose(same.graph.weights, full.graph.weights, atol=1e-9)
