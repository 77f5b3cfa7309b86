"""Moments of numbers and categories over parties that hold different columns of the same rows."""

import numpy as np
import pytest
from sweeps import sweep
from worlds_of_blocks import mixed_table

from flwr_causal import simulate

ROWS = 400
TABLE = mixed_table(6, ROWS, seed=4)[0]
TABLE.insert(0, "id", [f"p{k:03d}" for k in range(ROWS)])
NAMES = list(TABLE)[1:]
CATEGORY = next(one for one in NAMES if TABLE[one].dtype.kind not in "iuf")


def shuffled(frame, seed):
    return frame.sample(frac=1, random_state=seed)


def vertical(parties):
    groups = np.array_split(np.array(NAMES), parties)
    return [shuffled(TABLE[["id", *own]], k) for k, own in enumerate(groups)]


def hybrid():
    """Overlapping rows and columns, of which a party has some states of a category alone."""
    top, bottom = TABLE[:250], TABLE[250:]
    return [
        shuffled(top[["id", *NAMES[:4]]], 0),
        shuffled(top[["id", *NAMES[3:]]], 1),
        shuffled(bottom[["id", *NAMES[::2]]], 2),
        shuffled(bottom[["id", *NAMES[1::2]]], 3),
        shuffled(TABLE[TABLE[CATEGORY] == TABLE[CATEGORY].iloc[0]][["id", CATEGORY]], 4),
    ]


def found(parties, **options):
    return simulate("moments", parties, **({"text_columns": "keep", "row_id": "id"} | options))


def joined(names, **options):
    table = TABLE[list(names)]
    return simulate("moments", [table], **({"text_columns": "keep"} | options))


@pytest.mark.slow
@pytest.mark.parametrize("model", sweep(["linear", "curved"], kept=["linear"]))
def test_the_class_is_that_of_the_joined_table(model):
    run = found(hybrid(), model=model)
    pooled = joined(run.graph.names, model=model)
    assert run.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    assert run.num_rows == ROWS
    assert run.rounds == 3
    said = [one for one in run.warnings if "one state only at some of them" not in one]
    assert said == pooled.warnings
    number = next(one for one in NAMES if one != CATEGORY and TABLE[one].dtype.kind == "f")
    states = sorted(TABLE[CATEGORY].unique())
    asked = {"state": states[0], "reference": states[1]}
    ours, theirs = (one.model.possible_effects(CATEGORY, number, **asked) for one in (run, pooled))
    assert [one.value for one in ours] == pytest.approx([one.value for one in theirs], abs=1e-5)


def test_replicates_draw_the_same_rows_of_all_parties():
    run = found(vertical(2), replicates=5)
    assert set(np.unique(run.graph.adjacency_confidence)) - {0, 1}
    assert run.rounds == 3


def test_a_category_that_two_parties_hold_differently_is_named_once():
    parties = hybrid()
    assert not [one for one in found(parties).warnings if "Values differ" in one]
    spoiled = parties[-1].copy()
    other = next(one for one in TABLE[CATEGORY].unique() if one != spoiled[CATEGORY].iloc[0])
    spoiled.loc[spoiled.index[0], CATEGORY] = other
    said = [one for one in found([*parties[:-1], spoiled]).warnings if "Values differ" in one]
    assert len(said) == 1
    assert f"in rows that both have: '{CATEGORY}'." in said[0]


def test_columns_that_those_of_another_party_determine_are_named():
    first, second = vertical(2)
    codes = {state: k for k, state in enumerate(sorted(TABLE[CATEGORY].unique()))}
    coded = TABLE[["id"]].assign(xcode=(TABLE[CATEGORY].map(codes) == 0).astype(float))
    holds = first if CATEGORY in first else second
    lacks = second if holds is first else first
    warnings = found([holds, lacks.merge(coded, on="id")]).warnings
    assert any(f"'xcode' is a function of '{CATEGORY}'" in one for one in warnings)


def test_numbers_that_those_of_another_party_determine_are_named():
    first, second = vertical(2)
    number = next(one for one in first if one != "id" and TABLE[one].dtype.kind == "f")
    twice = TABLE[["id"]].assign(x2=2 * TABLE[number])
    warnings = found([first, second.merge(twice, on="id")]).warnings
    assert sum(f"'x2' is a multiple of '{number}'" in one for one in warnings) == 1


def test_few_matched_rows_are_counted_against_all_columns():
    few = [part[part["id"] < "p012"] for part in vertical(2)]
    warnings = found(few, minimum_count=2, model="curved").warnings
    assert any("12 rows for" in one for one in warnings)
