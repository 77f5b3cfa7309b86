"""A report says once what each of its entries is, and how it travels."""

import json
from dataclasses import fields, replace

import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.contract.report import PARTS, facts_of
from flwr_causal.core.words import fault_of_name
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.errors import DataError

COUNTS = st.integers(0, 10**6)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=4)
NAMES = TEXTS.filter(lambda name: not fault_of_name(name))
FOLLOW = {"columns", "has_states", "has_relations"}


def test_each_field_declares_what_it_is():
    for report, without in ((TableReport, FOLLOW), (ColumnReport, set())):
        declared = {one.name: fact for one, fact in facts_of(report)}
        assert declared.keys() == {one.name for one in fields(report)} - without
        for fact in declared.values():
            assert fact.meaning
            assert fact.part in (None, *PARTS)


@st.composite
def reports(draw):
    sums, states, relations = (draw(st.booleans()) for _ in range(3))
    number = draw(st.integers(0, 4))
    positions = st.integers(0, max(number - 1, 0))
    own = {"sums": sums, "states": states, "relations": relations}
    parts = {
        None: {
            "missing": COUNTS,
            "infinite": COUNTS,
            "stray": COUNTS,
            "distinct_one": st.booleans(),
            "far": COUNTS,
            "texts": COUNTS,
            "copy_of": st.none() | positions,
        },
        "sums": {"mean": NUMBERS, "remainder": NUMBERS, "squares": st.floats(0)},
        "states": {
            "distinct": COUNTS,
            "whole": st.booleans(),
            "values": st.sampled_from(["", "bool", "int", "float", "str"]),
            "repeated": st.booleans(),
            "states": st.lists(TEXTS, max_size=3).map(tuple),
        },
        "relations": {
            "combination_of": st.lists(positions, max_size=3).map(tuple),
            "dominated": st.booleans(),
            "apart": st.booleans(),
            "skewed": st.booleans(),
        },
    }
    facts = {
        name: values
        for part, some in parts.items()
        if own.get(part, True)
        for name, values in some.items()
    }
    kinds = st.sampled_from(["numeric", "boolean", "category", "other"])
    column = st.builds(ColumnReport, TEXTS, kinds, **facts)
    rows = draw(COUNTS)
    return draw(
        st.builds(
            TableReport,
            st.just(rows),
            COUNTS,
            st.tuples(*[column] * number),
            has_sums=st.just(sums),
            has_states=st.just(states),
            has_relations=st.just(relations),
            level_rows=st.none() | st.integers(0, rows),
            step=TEXTS,
            notes=st.lists(TEXTS, max_size=2).map(tuple),
            targets=st.lists(st.lists(NAMES, max_size=2).map(tuple), max_size=2).map(tuple),
            has_ids=st.booleans(),
            ids_problem=TEXTS,
            ids_kind=st.sampled_from(["", "numbers", "text", "digits"]),
            withheld=st.booleans(),
        )
    )


@given(reports())
def test_a_report_is_the_same_after_a_message_and_after_a_checkpoint(report):
    plain = report.to_dict()
    assert TableReport.from_dict(dict(ConfigRecord(plain))) == report
    assert TableReport.from_dict(json.loads(json.dumps(plain))) == report
    assert TableReport.from_dict(dict(sorted(plain.items()))) == report


REPORT = TableReport(
    4,
    1,
    (
        ColumnReport("a", "numeric", 1, 2, mean=0.5, remainder=1e-9, squares=float("inf")),
        ColumnReport(
            "b",
            "boolean",
            distinct_one=True,
            far=3,
            texts=2,
            copy_of=0,
            distinct=2,
            whole=True,
            values="bool",
            repeated=True,
            states=("False", "True"),
            combination_of=(0, 1),
            dominated=True,
            apart=True,
            stray=1,
        ),
    ),
    has_sums=True,
    has_states=True,
    has_relations=True,
    level_rows=0,
    step="1 days",
    notes=("one series",),
    targets=((), ("a", "b")),
    has_ids=True,
    ids_problem="repeat",
    ids_kind="digits",
    withheld=True,
)
PLAIN = {
    "rows": 4,
    "dropped-rows": 1,
    "has-sums": 1,
    "withheld": 1,
    "names": ["a", "b"],
    "kinds": ["numeric", "boolean"],
    "missing": [1, 0],
    "infinite": [2, 0],
    "stray": [0, 1],
    "distinct-one": [0, 1],
    "far": [0, 3],
    "texts": [0, 2],
    "copy-of": [-1, 0],
    "means": [0.5, 0.0],
    "remainders": [1e-9, 0.0],
    "squares": [float("inf"), 0.0],
    "distinct": [0, 2],
    "whole": [0, 1],
    "values": ["", "bool"],
    "repeated": [0, 1],
    "states": ["False", "True"],
    "num-states": [0, 2],
    "combination-of": ["", "0 1"],
    "dominated": [0, 1],
    "apart": [0, 1],
    "skewed": [0, 0],
    "level-rows": 0,
    "step": "1 days",
    "notes": ["one series"],
    "targets": ["[]", '["a", "b"]'],
    "has-ids": 1,
    "ids-problem": "repeat",
    "ids-kind": "digits",
}


def test_what_travels():
    assert REPORT.to_dict() == PLAIN
    bare = TableReport(4, 1, (), has_sums=False)
    always = ["names", "kinds", "missing", "infinite", "stray", "distinct-one", "far", "texts"]
    always.append("copy-of")
    empty = {key: [] for key in [*always, "means", "remainders", "squares"]}
    assert bare.to_dict() == {"rows": 4, "dropped-rows": 1, "has-sums": 0, **empty}
    told = replace(bare, has_states=True).to_dict()
    assert told["states"] == told["num-states"] == []
    assert TableReport.from_dict(told).has_states


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"copy-of": [-1, 2]}, "a copy of a column that is not there"),
        ({"combination-of": ["", "0 2"]}, "a combination of columns that are not there"),
        ({"combination-of": ["-1", ""]}, "a combination of columns that are not there"),
        ({"combination-of": [0, ""]}, "malformed"),
        ({"kinds": ["numeric", "wishful"]}, "unknown kinds in .*wishful"),
        ({"values": ["", "bytes"]}, "unknown types of values in .*bytes"),
        ({"level-rows": 5}, "5 of 4 rows are behind the means"),
        ({"far": [1]}, "2 columns, but not as many of each fact"),
        ({"num-states": [1, 2]}, "2 states, but 3 are expected"),
        ({"targets": ['"a"']}, "no list of names"),
    ],
)
def test_what_the_rest_of_a_report_shows_to_be_impossible(change, words):
    with pytest.raises(DataError, match=words):
        TableReport.from_dict({**PLAIN, **change})
