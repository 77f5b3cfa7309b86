"""What may leave a party in the schema exchange."""

from dataclasses import replace

import pandas as pd
import pytest
from federations import app_of, make_federation

from flwr_causal.clients import MomentsClient, Source, client_app
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.policy import Policy
from flwr_causal.errors import DataError
from flwr_causal.protocol.door import RefusedError, reported
from flwr_causal.protocol.schema import FACTS, PARTS
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments

FRAME = pd.DataFrame({"a": [1.0, 2.5, 2.5], "b": ["u", "v", "u"]})
WHOLE = replace(
    describe(FRAME, sums=True, states=True), level_rows=2, has_ids=True, notes=("one series",)
)


def test_every_key_of_a_report_is_declared_and_no_other():
    assert {fact.key for fact in FACTS} == {*WHOLE.to_dict(), "party", "partition-id", "error"}
    assert len({fact.key for fact in FACTS}) == len(FACTS)
    assert {fact.part for fact in FACTS} == {None, *PARTS}
    assert all(fact.meaning for fact in FACTS)


def test_a_report_passes_whole():
    assert reported(WHOLE.to_dict(), tuple(PARTS), 2) == WHOLE.to_dict()


def test_a_key_that_is_not_declared_does_not_leave():
    with pytest.raises(RefusedError, match="no report has the key 'first-row'"):
        reported({**WHOLE.to_dict(), "first-row": [1.0, 2.0]}, tuple(PARTS), 9)


@pytest.mark.parametrize(
    ("part", "key"),
    [("sums", "means"), ("states", "distinct"), ("series", "level-rows"), ("ids", "has-ids")],
)
def test_a_part_leaves_only_where_the_contract_names_it(part, key):
    others = [one for one in PARTS if one != part]
    with pytest.raises(RefusedError, match=f"does not declare that parties report '{part}'.*{key}"):
        reported(WHOLE.to_dict(), others, 9)


def test_a_report_without_sums_needs_no_part():
    report = describe(FRAME).to_dict()
    assert reported(report, (), 9) == report


def test_a_list_has_a_value_for_each_column():
    with pytest.raises(RefusedError, match="'means' has 3 values for 2 columns"):
        reported({**WHOLE.to_dict(), "means": [1.0, 2.0, 2.5]}, tuple(PARTS), 9)


@pytest.mark.parametrize("change", [{}, {"states": ["1", "2.5", "u", "v", "w"]}])
def test_no_more_states_than_allowed_are_named(change):
    most = 9 if change else 1
    with pytest.raises(RefusedError, match=f"more than {most} states of a column"):
        reported({**WHOLE.to_dict(), **change}, tuple(PARTS), most)


class Naming(MomentsClient):
    """Would name the values of its columns, which the contract of Moments does not allow."""

    def describe(self, policy: Policy):
        return describe(self.table(), policy, sums=True, states=True)


def test_the_party_refuses_to_report_what_the_contract_does_not_declare():
    tables = make_federation(d=3, n=8, parties=2).tables
    app = client_app(Naming, lambda context: Source("north", lambda: tables[0]))
    with pytest.raises(DataError, match=r"north.*does not declare that parties report 'states'"):
        exchange_schema(Moments(round_timeout=5.0), LocalGrid(app, 2))
    exchange_schema(Moments(round_timeout=5.0), LocalGrid(app_of(tables, MomentsClient), 2))
