"""Every setting of a message is an option of the run, or listed as none with its reason."""

from dataclasses import fields, replace

import numpy as np
import pytest
from federations import make_federation, setup_for

from flwr_causal.app.methods import METHODS, OWN_METHODS
from flwr_causal.app.pages import NAMES, renew_names
from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.options import from_plain, to_plain
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.errors import ConfigError
from flwr_causal.party.options import options_by_method
from flwr_causal.protocol import records, settings
from flwr_causal.protocol.bundle import (
    EXCHANGES,
    MAIN,
    SEED,
    TRAININGS,
    BundlePart,
    TrainingName,
    bundle_of,
    head_of,
)
from flwr_causal.protocol.options import SmallCounts
from flwr_causal.protocol.replay import REPLAY
from flwr_causal.protocol.setup import Setup
from flwr_causal.secure.totals import TOTALS
from flwr_causal.secure.unmasking import UNMASKING
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import FedPC, Moments, NotearsADMM

TABLES = make_federation(d=3, n=60, parties=3).tables
SETUP = setup_for(TABLES)
CONTRACT = NotearsADMM.contract

# Of each field of an agreement which setting it is, or why it is none.
FIELDS = {
    "precision": "the option precision",
    "small": "the options minimum_count and small_counts",
    "groups": "the option groups",
    "handling": "the options of the handling, see HANDLING",
    "options": "the options; those that are none are derived",
    "least_parties": "the option quorum",
    "names": "within the options columns and exclude, and of those that the policy shows",
    "num_rows": "follows from the parties' reports",
    "num_clients": "judged by the rule least-parties",
    "mean": "follows from the parties' reports",
    "variance": "follows from the parties' reports",
    "exchange": "a random name",
    "states": "follows from the parties' reports",
    "targets": "follows from the parties' reports",
    "keys": "made by the parties",
    "key_names": "made by the parties",
    "key_signatures": "made by the parties",
    "terms": "what the run states",
    "signature": "of the terms",
}
# Why keys of the question for the schema are no setting; "option-" and "policy-" are.
QUESTION = {
    "method": "judged by the rule methods",
    "terms": "what the run states",
    "signature": "of the terms",
    "secure-aggregation": "the option secure_aggregation",
    "clipping_norm": "of the probe that mods may clip; nothing of the table depends on it",
    "pair-keys": "asks for a public key where the table has ids",
    "exchange": "the name of the agreement that the party had",
    "resumed": "whether the run is resumed",
}
# Why plain values of exchanges are no setting.
SENT = {
    "penalty": "of this round, by the method's schedule",
    "multiplier": "of this round, by the method's schedule",
    "relaxation": "of this round, by the method's schedule",
    "iteration": "number of the round",
    "num_cells": "size of what returns",
    "levels": "whether they are taken out, by the option center and the parties' sums",
    "domain": "follows from the parties' reports and agreed cut points",
    "fingerprint": "of the circuit that a query asks about",
    "column": "that a query asks about",
    "seed": "of the random numbers of a query",
    "within": "the option target of fedpc",
    "requests": "earlier requests, each of which is judged",
    TRAININGS: "the options replicates and leave_one_out",
    EXCHANGES: "judged by the contract",
}


def named(found):
    return {one.option: one.value for one in found}


def test_each_field_of_an_agreement_is_a_setting_or_has_a_reason():
    assert FIELDS.keys() == {one.name for one in fields(Setup)}
    changed = setup_for(
        TABLES,
        precision="float32",
        small=SmallCounts(7, "suppress"),
        groups=(1, 1, 1, 2, 2),
        keys=("a", "", "c", "d", "e"),
        least_parties=(2, 1),
        handling=Handling(missing_values="drop", min_rows=9),
        options=replace(SETUP.options, center="party", held_out=True),
    )
    found = named(settings.of_setup(CONTRACT, changed))
    assert found["precision"] == "float32"
    assert (found["minimum_count"], found["small_counts"]) == (7, "suppress")
    assert found["groups"] == 2
    # Of the parties that have keys.
    shares = [one.value for one in settings.of_setup(CONTRACT, changed) if one.option == "quorum"]
    assert shares == [1.0, 0.5]
    assert named(settings.of_setup(CONTRACT, SETUP))["groups"] == 1
    assert found["missing_values"] == "drop"
    assert found["center"] == "party"
    assert found["sparsity"] is True


def test_each_rule_for_problems_of_tables_is_an_option_or_has_a_reason():
    found = named(settings.of_setup(CONTRACT, SETUP))
    for one in fields(Handling):
        assert (one.name in found) is not (one.name in settings.HANDLING), one.name
    for method in OWN_METHODS:
        names = options_by_method()[method]
        for one in fields(Handling):
            assert one.name not in names or one.name in found, (method, one.name)


class Watching(Relay):
    def __init__(self, grid):
        super().__init__(grid)
        self.asked = []

    def before(self, messages):
        self.asked += [records.config_of(one.content) for one in messages]
        return messages


MODES = {
    **{method: {} for method in OWN_METHODS},
    "moments, in time": {"order": 1},
    "moments, private": {"epsilon": 90.0},
    "moments, secure": {"secure_aggregation": True},
    "moments, replicates": {"replicates": 2, "leave_one_out": True},
}


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", MODES)
def test_each_key_that_travels_is_a_setting_or_has_a_reason(mode):
    method, contract = mode.partition(",")[0], METHODS[mode.partition(",")[0]].client.contract
    grids = []

    def watched(grid):
        grids.append(Watching(grid))
        return grids[0]

    few = {"max_rounds": 6} if method == "notears-admm" else {}
    tables = TABLES
    if method == "fedges":
        tables = [(table > 0).astype(int).astype(str) for table in TABLES]
    simulate(method, tables, wrap_grid=watched, **few, **MODES[mode])
    names = options_by_method()[method]
    for config in grids[0].asked:
        question = "exchange" not in config
        prefix = "" if question else "setup-"
        options = {
            key.removeprefix(f"{prefix}option-")
            for key in config
            if key.startswith(f"{prefix}option-")
        }
        kind = (contract.question or contract.options) if question else contract.options
        for one in fields(kind):
            # Of the last two the settings are others: sparsity, and the options of learners.
            other = "derived" in one.metadata or one.name in ("held_out", "learners")
            assert (one.name in names) is not other, one.name
        if question:
            others = {k for k in config if not k.startswith(("option-", "policy-"))}
            assert others <= QUESTION.keys()
            assert options
        assert options <= {one.name for one in fields(kind)}


def test_each_plain_value_of_an_exchange_is_a_setting_or_has_a_reason():
    known = {"start", "candidates", "proximity", "share", "weightings", "draw", SEED}
    declared = {
        one.name
        for method in OWN_METHODS
        for exchange in METHODS[method].client.contract.exchanges
        for one in exchange.sends
        if one.shape is None
    }
    replicate = BundlePart(TrainingName(1), METHODS["moments"].client.contract.exchanges[0])
    heads = {one.name for one in bundle_of([replicate]).sends}
    common = {one.name for each in (REPLAY, UNMASKING) for one in each.sends if one.shape is None}
    assert declared | heads | common | {"within"} == known | SENT.keys()
    assert not TOTALS.sends
    assert not known & SENT.keys()


def of(exchange, **values):
    content = records.request(exchange.name, "method", 1, values)
    return settings.of_request(exchange, content, rows=100)


def test_the_settings_of_requests():
    contract = METHODS["fedcausal"].client.contract
    found = named(of(contract.find("local graphs"), candidates=7, share=0.5))
    assert (found["candidates"], found["evidence_rows"]) == (7, 50)
    fedges = METHODS["fedges"].client.contract
    assert named(of(fedges.find("graph"), start="fuse"))["start"] == "fuse"
    products = METHODS["moments"].client.contract.find("products")
    found = named(of(products, weightings=6, draw=3, folds=np.array([0, 1, 1])))
    assert (found["replicates"], found["seed"]) == (3, 3)
    found = named(of(products, weightings=1, draw=3))
    assert "seed" not in found
    # As the party reads them: the largest number of 64 bits is -1 then, and no fold is left.
    folds = np.array([2**64 - 1], dtype=np.uint64)
    assert named(of(products, weightings=6, draw=3, folds=folds))["replicates"] == 5
    assert named(of(fedges.find("graph"), start=["fuse"]))["start"] == ["fuse"]
    assert "start" not in named(of(contract.find("local graphs"), start=np.eye(3), share=0.5))
    sums = METHODS["moments"].client.contract.find("sums")
    parts = [BundlePart(one, sums) for one in (MAIN, TrainingName(3), TrainingName(without=2))]
    found = named(of(bundle_of(parts), **head_of(parts, 11)))
    assert (found["replicates"], found["leave_one_out"], found["seed"]) == (3, True, 11)


@pytest.mark.parametrize(
    "name", ["replicate -1", "replicate 0", "without 0", "replicate 1_0", "replicate ", "x", " "]
)
def test_no_training_has_such_a_name(name):
    with pytest.raises(ConfigError, match="no training"):
        TrainingName.of(name)


def test_a_trainings_name_is_read_back():
    for training in (MAIN, TrainingName(12), TrainingName(without=3)):
        assert TrainingName.of(training.name) == training


def test_the_names_of_options_are_those_of_the_methods(pytestconfig):
    text = (pytestconfig.rootpath / NAMES).read_text()
    assert renew_names(text) == text
    assert options_by_method().keys() == set(OWN_METHODS)
    assert "model" in options_by_method()["moments"]
    assert "kind" not in options_by_method()["moments"]


def test_learner_settings_are_options_each():
    options = FedPC()
    agreement = options.agree({"a": describe(TABLES[0], options.handling, sums=True, states=True)})
    setup = setup_for(TABLES, options=options._agreed_options(agreement))
    found = named(settings.of_setup(CONTRACT, setup))
    assert (found["depth"], found["components"]) == (4, None)
    assert {one.name for one in fields(LearnerOptions)} <= found.keys()


def test_a_party_divides_its_series_into_few_folds():
    options = Moments(order=1, center="global").client_options
    contract = METHODS["moments"].client.contract
    few = setup_for(TABLES, options=replace(options, num_folds=5, level_sums=False))
    assert contract.sizes(few, 9)["folds"] == 5
    many = to_plain(replace(options, num_folds=60))
    with pytest.raises(ConfigError, match="'num_folds' is 60; it must be from 1 to 5"):
        from_plain(contract.options, many)


def test_what_is_left_to_the_method_may_be_any_number():
    keys = tuple(digit * 64 for digit in "abc")
    grouped = setup_for(TABLES, groups=(1, 1, 2), keys=keys)
    (groups,) = (one for one in settings.of_setup(CONTRACT, grouped) if one.option == "groups")
    assert [groups.fits(stated, groups.value) for stated in ("auto", 2, 1, None)] == [1, 1, 0, 0]
    known = setup_for(TABLES, options=replace(SETUP.options, interventions="{}"))
    (stated,) = (one for one in settings.of_setup(CONTRACT, known) if one.option == "interventions")
    assert [stated.fits(text, "{}") for text in ("{}", "", None)] == [1, 0, 0]


def test_in_a_sum_there_are_at_least_as_many_parties_as_stated():
    keys = (*(digit * 64 for digit in "abcd"), "", "", "")
    tables = make_federation(d=4, n=70, parties=7, seed=0).tables
    whole = setup_for(tables, keys=keys, least_parties=(3,))
    # Nobody of the second group is there.
    grouped = setup_for(tables, keys=keys, groups=(1, 1, 1, 1, 2, 2, 2), least_parties=(3, 3))
    for setup in (whole, grouped):
        (quorum,) = (one for one in settings.of_setup(CONTRACT, setup) if one.option == "quorum")
        # A rule says what a run states; what follows from it is compared with that alone.
        assert (quorum.value, quorum.judged) == (0.75, False)
        fits = [quorum.fits(stated, quorum.value) for stated in (0.5, 0.75, 1, None, "0.5")]
        assert fits == [True, True, False, False, False]


def test_columns_that_some_lack_may_be_kept_whatever_is_stated():
    handling = replace(SETUP.handling, unshared_columns="keep", text_columns="keep")
    found = {
        one.option: one
        for one in settings.of_question(CONTRACT, SETUP.options, handling, masked=False)
    }
    fits = {name: found[name].fits("drop", "keep") for name in ("unshared_columns", "text_columns")}
    assert fits == {"unshared_columns": True, "text_columns": False}
    assert not found["unshared_columns"].fits("drop", "fail")


def test_what_follows_from_an_option_is_compared_with_what_is_stated_alone():
    def setting(method, exchange, name, **sent):
        request = of(METHODS[method].client.contract.find(exchange), **sent)
        (found,) = (one for one in request if one.option == name)
        assert not found.judged
        return [found.fits(stated, found.value) for stated in (2, 3, 4, None)]

    replicates = setting("moments", "products", "replicates", weightings=4, draw=1)
    assert replicates == [False, True, True, False]
    # Of 100 rows; a share is a quotient, up to its rounding.
    for share in (0.03, 0.03 * (1 + 1e-12)):
        rows = setting("fedcausal", "local graphs", "evidence_rows", share=share)
        assert rows == [False, True, True, False]
    rows = setting("fedcausal", "local graphs", "evidence_rows", share=0.0301)
    assert rows == [False, False, True, False]
