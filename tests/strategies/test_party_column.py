"""The party as a cause: a category that no table has, whose states are the parties' names."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import ConfigError, DataError, FederationError, Knowledge, simulate
from flwr_causal.clients.base import Source
from flwr_causal.clients.bridge import client_app
from flwr_causal.clients.fedges import FedGESClient
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.data.check.handling import Handling
from flwr_causal.party.tables import with_party
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.strategies import FedGES, Moments, run

TIERS = Knowledge(tiers=[["age"], ["drug"], ["life"]])
NAMES = ("bern", "oslo", "rome")


def tables():
    """Clinics that differ in how often they give the drug, and in the level of the outcome."""
    rng, found = np.random.default_rng(0), []
    for share, level in ((0.2, 70), (0.5, 64), (0.8, 58)):
        age = rng.normal(60, 10, 500)
        drug = rng.random(500) < share
        life = level + 3 * drug - 0.2 * (age - 60) + rng.normal(0, 4, 500)
        texts = np.where(drug, "new", "old")
        found.append(pd.DataFrame({"age": age, "drug": texts, "life": life}))
    return found


TABLES = tables()
STATES = [
    table.assign(age=table["age"] > 60, life=np.where(table["life"] > 64, "long", "short"))
    for table in TABLES
]


def nodes(client, frames=TABLES, names=NAMES):
    """A grid of nodes with names of their own, which the policy of each guards."""

    def source(context):
        node = context.node_config
        return Source(str(node["name"]), lambda: frames[node["place"]])

    configs = [{"name": name, "place": place} for place, name in enumerate(names)]
    return LocalGrid(client_app(client, source, ["place"]), len(names), node_configs=configs)


def by_regression():
    """The effect of the drug and its standard error, with an indicator of each clinic."""
    rows = pd.concat([one.assign(clinic=k) for k, one in enumerate(TABLES)])
    design = np.column_stack(
        [pd.get_dummies(rows["clinic"]), rows["drug"] == "new", rows["age"]]
    ).astype(float)
    weights, *_ = np.linalg.lstsq(design, rows["life"], rcond=None)
    residual = rows["life"] - design @ weights
    variance = residual @ residual / (len(rows) - 5) * np.linalg.inv(design.T @ design)[3, 3]
    return weights[3], np.sqrt(variance)


def edges(graph):
    return {(cause, effect) for cause, effect, *_ in graph.edges()}


@pytest.mark.parametrize(
    "options",
    [{}, {"secure_aggregation": True}, {"parameters": "likelihood"}, {"center": "global"}],
)
def test_an_effect_is_adjusted_for_the_party(options):
    grid = nodes(MomentsClient)
    found = run(Moments(party_column="clinic", knowledge=TIERS, **options), grid).run
    effect = found.total_effect("drug", "life", state="new", reference="old")
    value, error = by_regression()
    np.testing.assert_allclose(effect.value, value, atol=1e-9)
    np.testing.assert_allclose(effect.standard_error, error, rtol=0.01)
    assert set(effect.adjustment_set) == {"age", "clinic"}
    assert edges(found.graph) >= {("clinic", "drug"), ("clinic", "life")}
    assert not [cause for cause, effect in edges(found.graph) if effect == "clinic"]
    assert not found.warnings


def test_the_states_are_the_names_and_nothing_causes_the_party_without_knowledge():
    found = run(Moments(party_column="clinic"), nodes(MomentsClient)).run
    assert "clinic" not in {effect for _, effect in edges(found.graph)}
    same = simulate(
        "moments",
        [one.assign(clinic=name) for one, name in zip(TABLES, NAMES, strict=True)],
        text_columns="keep",
        knowledge=Knowledge(roots=["clinic"]),
        center="global",
    )
    np.testing.assert_allclose(found.graph.weights, same.graph.weights)


@pytest.mark.parametrize("gaps", [False, True])
def test_expected_cells_are_adjusted_too(gaps):
    frames = [one.copy() for one in TABLES]
    if gaps:
        for one in frames:
            one.loc[np.random.default_rng(1).random(len(one)) < 0.1, "age"] = np.nan
    options = {"party_column": "clinic", "missing_values": "em", "knowledge": TIERS}
    found = simulate("moments", frames, **options)
    effect = found.total_effect("drug", "life", state="new", reference="old")
    np.testing.assert_allclose(effect.value, by_regression()[0], atol=0.1 if gaps else 1e-6)
    assert not found.warnings


@pytest.mark.parametrize("options", [{}, {"secure_aggregation": True}, {"hidden_causes": True}])
def test_counts_are_those_of_tables_with_the_column(options):
    options = {"mode": "exact", **options}
    found = run(FedGES(party_column="clinic", **options), nodes(FedGESClient, STATES)).run
    by_hand = [one.assign(clinic=name) for one, name in zip(STATES, NAMES, strict=True)]
    same = simulate("fedges", by_hand, knowledge=Knowledge(roots=["clinic"]), **options)
    np.testing.assert_array_equal(found.graph.weights, same.graph.weights)
    assert not any("clinic" in text for text in found.warnings)
    assert any("'clinic' has one state only" in text for text in same.warnings)


def test_only_named_columns_are_used_beside_it():
    options = {"party_column": "clinic_id", "columns": "drug,life", "round_timeout": 5.0}
    found = run(Moments(**options), nodes(MomentsClient))
    assert found.graph.names == ("drug", "life", "clinic_id")


def test_a_table_must_not_have_the_column():
    frames = [TABLES[0], TABLES[1].assign(clinic="b"), TABLES[2]]
    with pytest.raises(
        DataError, match=r"oslo: its table has a column 'clinic', .* choose another"
    ):
        run(Moments(party_column="clinic"), nodes(MomentsClient, frames))
    with pytest.raises(DataError, match="the names of the parties with rows, of which there are 1"):
        simulate("moments", TABLES[:1], party_column="clinic", min_available_nodes=1)


def test_parties_must_have_different_names():
    with pytest.raises(FederationError, match="bern is connected twice, as the nodes"):
        run(Moments(party_column="clinic"), nodes(MomentsClient, names=("bern", "bern", "rome")))


@pytest.mark.parametrize(
    "options",
    [
        *({"order": 1}, {"local_graphs": True}, {"unknown_targets": True}, {"epsilon": 1.0}),
        *({"text_columns": "drop"}, {"center": "party"}, {"exclude": "clinic"}),
        *({"solver": "dagma"}, {"standardize": True}),
        *({"numbers": "clinic"}, {"knowledge": Knowledge(required=[("age", "clinic")])}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options):
    with pytest.raises(ConfigError, match=r"party_column|roots"):
        _ = Moments(party_column="clinic", **options).handling


@pytest.mark.parametrize("mode", ["scores", "fusion"])
def test_scores_of_each_party_say_nothing_of_the_parties(mode):
    with pytest.raises(ConfigError, match=r"'party_column' is 'clinic'; .* or mode='exact'"):
        FedGES(party_column="clinic", mode=mode)
    with pytest.raises(ConfigError, match="'moments' with text_columns='keep' and 'fedges'"):
        simulate("lingam", TABLES, party_column="clinic")


def test_the_column_is_chosen_whatever_the_options_choose():
    handling = Handling(columns="drug", party_column="clinic")
    assert handling.unchosen(["drug", "age", "clinic"]) == ["age"]
    assert set(with_party(TABLES[0], "clinic", "bern")["clinic"]) == {"bern"}
