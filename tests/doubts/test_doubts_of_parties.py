"""Parties that differ, in words."""

import pandas as pd
import pytest

from flwr_causal.core.blocks.disagreement import Difference
from flwr_causal.doubts.parties import clear_differences, odd_parties, party_warnings


def rows(*entries):
    """Entries of party, what, cause, effect, value, others, size, corrected."""
    found = []
    for party, what, cause, effect, value, others, size, corrected in entries:
        z = 9.0 if corrected < 0.05 else 0.1
        one = Difference(party, what, cause, effect, value, others, z, "", size)
        found.append({**one._asdict(), "corrected": corrected})
    # Three parties and more are compared.
    calm = ("west", "spread", "", "a", 1.0, 1.0, 0.0, 1.0)
    if entries and entries[-1] != calm:
        return rows(*entries, calm[:0] or ("east", *calm[1:]), calm)
    return pd.DataFrame(found)


def test_parties_that_agree_are_not_named():
    assert odd_parties(None) == {}
    assert odd_parties(rows(("north", "effect", "a", "b", 1.0, 1.1, 0.1, 0.4))) == {}
    # Certain, and no matter.
    small = rows(("north", "effect", "a", "b", 1.0, 1.04, 0.04, 1e-30))
    assert odd_parties(small) == {}
    assert clear_differences(small).empty


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            [("reversed", "", "pain")],
            "column 'pain' is reversed (its correlations have the other sign)",
        ),
        (
            [("exchanged", "a", "b"), ("exchanged", "b", "a")],
            "columns 'b' and 'a' stand under each other's names",
        ),
        (
            [("exchanged", "b", "a"), ("exchanged", "c", "b"), ("exchanged", "a", "c")],
            "columns 'a', 'b' and 'c' stand under each other's names",
        ),
        (
            [("exchanged", "drug=yes", "drug=no"), ("exchanged", "drug=no", "drug=yes")],
            "codes 'no' and 'yes' of 'drug' are exchanged",
        ),
        (
            [
                (what, f"{one}={state}", f"{two}={state}")
                for state in ("no", "yes")
                for what, one, two in (("exchanged", "a", "b"), ("exchanged", "b", "a"))
            ],
            "columns 'b' and 'a' stand under each other's names",
        ),
    ],
)
def test_false_columns_are_said_with_their_direction(entries, said):
    table = rows(*(("north", *one, 0.5, 0.02, 0.5, 1e-20) for one in entries))
    assert odd_parties(table) == {"north": said}


def test_effects_that_follow_from_a_false_column_are_not_said():
    table = rows(
        ("north", "reversed", "", "pain", 0.5, 0.02, 0.5, 1e-20),
        ("north", "effect", "pain", "life", 2.0, -2.2, 0.9, 1e-40),
        ("north", "effect", "age", "life", 2.0, 0.5, 0.9, 1e-40),
        ("north", "effect", "dose", "pain (function 2)", 2.0, -2.2, 0.9, 1e-40),
    )
    (said,) = odd_parties(table).values()
    assert said == "column 'pain' is reversed (its correlations have the other sign)"
    more = rows(
        *table.drop(columns=["z", "supports"]).itertuples(index=False, name=None),
        ("north", "effect", "age", "weight", 2.0, -0.5, 0.9, 1e-40),
    )
    (said,) = odd_parties(more).values()
    assert said.endswith(
        "; the effect of 'age' on 'weight' is 2 there and -0.5 at the others, the other sign"
    )


def test_what_targets_explain_is_not_said_unless_there_are_many():
    table = rows(
        ("north", "effect", "a", "b", 1.0, 0.1, 0.9, 1e-20),
        ("south", "effect", "a", "b", 1.0, 0.1, 0.9, 1e-20),
    )
    targets = [{"party": "north", "variable": "b"}]
    assert list(odd_parties(table, targets, 6)) == ["south"]
    targets += [{"party": "north", "variable": name} for name in "ac"]
    found = odd_parties(table, targets, 6)
    assert found["north"] == "it acts on 3 of 6 variables, as if it were another system"


def test_of_two_parties_one_is_named_and_the_doubt_is_said():
    table = rows(
        ("north", "effect", "a", "b", 1.0, 0.1, 0.9, 1e-20),
        ("south", "effect", "a", "b", 0.1, 1.0, 0.9, 1e-20),
    )
    table = table[table["party"].isin(["north", "south"])]
    found = odd_parties(table)
    assert list(found) == ["north"]
    (line,) = party_warnings(found, ["north", "south"], ["do this"])
    assert line.startswith("north differs from south: the effect of 'a' on 'b' is 1 there and 0.1")
    assert "Which of the two is right the rows do not tell." in line
    assert "run.without('north')" in line
    assert "; do this" in line


def test_a_few_parties_have_warnings_of_their_own():
    found = {f"p{k}": "column 'a' is reversed" for k in range(5)}
    lines = party_warnings(found, [f"p{k}" for k in range(9)], ["do this"])
    assert len(lines) == 4
    assert "Mend its table" in lines[0]
    assert "do this" not in lines[0]  # other ways to run mend no table
    assert lines[3] == "2 more parties differ from the others: p3, p4."
