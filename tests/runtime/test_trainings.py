"""Bootstrap replicates: what parties draw and send, what stays as it was, what is refused."""

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from federations import app_of

from flwr_causal.clients import CausalClient, answers
from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.resampling import Draw, block_length
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import ConfigError
from flwr_causal.party.table_digest import digest
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import BundlePart, TrainingName, bundle_of, exchange_of, parts_of
from flwr_causal.protocol.contract import Contract
from flwr_causal.runtime.training import drawn_parties
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import KilledError, Killing
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Moments, Result
from flwr_causal.testing import check_method
from flwr_causal.testing.checks import CHECKS
from flwr_causal.testing.subject import CheckSkippedError, Spy, Subject

FRAMES, _ = federated_linear(4, 150, 3, seed=1)
R = 3


def spied(method, parties, **options):
    """A run, and the pairs of request and reply of its exchanges."""
    spies = []
    run = simulate(
        method, parties, wrap_grid=lambda grid: spies.append(Spy(grid)) or spies[0], **options
    )
    return run, [
        (sent, reply) for sent, reply in spies[0].pairs if "exchange" in records.config_of(sent)
    ]


# What travels.


def test_moments_of_a_replicate_are_those_of_the_rows_that_are_drawn():
    run, pairs = spied("moments", FRAMES, replicates=R, center="global")
    mean = np.concatenate(FRAMES).mean(axis=0)
    for frame, (_, reply) in zip(FRAMES, pairs, strict=True):
        key = int(digest(read_table(frame), "rows 0"), 16)
        arrays = records.arrays_of(reply.content)
        for replicate in range(R + 1):
            draw = Draw(key, replicate).rows(len(frame)) if replicate else slice(None)
            rows = np.column_stack([np.ones(len(frame)), frame.to_numpy()[draw] - mean])
            name = f"replicate {replicate}: moments" if replicate else "moments"
            np.testing.assert_allclose(arrays[name][0], rows.T @ rows / len(rows))
    assert run.rounds == 1


def test_the_main_training_is_that_without_replicates():
    for method, options in (("moments", {}), ("notears-admm", {"max_rounds": 6})):
        alone, _ = spied(method, FRAMES, **options)
        run, pairs = spied(method, FRAMES, replicates=R, **options)
        np.testing.assert_array_equal(run.graph.weights, alone.graph.weights)
        assert run.rounds == alone.rounds
        assert {exchange["exchange"] for exchange in run.history} == {
            exchange["exchange"] for exchange in alone.history
        }
        for _, reply in pairs:
            names = records.arrays_of(reply.content)
            assert sum(name.startswith("replicate ") for name in names) == R * len(names) // (R + 1)


def test_a_replicate_is_the_pooled_bootstrap_of_one_party():
    frame = pd.concat(FRAMES, ignore_index=True)
    run = simulate("moments", [frame], replicates=R)
    key, found = int(digest(read_table(frame), "rows 0"), 16), []
    for replicate in range(1, R + 1):
        moments = SampleMoments.from_rows(frame.iloc[Draw(key, replicate).rows(len(frame))], frame)
        found.append(search_orders(moments, Knowledge().masks(tuple(frame))).best.adjacency)
    np.testing.assert_allclose(run.graph.confidence, np.mean(found, axis=0))


@pytest.mark.slow
def test_confidence_does_not_depend_on_the_order_of_the_parties_but_on_the_seed():
    run = simulate("moments", FRAMES, replicates=20)
    again = simulate("moments", FRAMES[::-1], replicates=20)
    np.testing.assert_array_equal(run.graph.confidence, again.graph.confidence)
    other = simulate("moments", FRAMES, replicates=20, seed=1)
    assert (run.graph.confidence != other.graph.confidence).any()


@pytest.mark.slow
def test_requests_differ_where_trainings_are_in_different_exchanges():
    frames, _ = federated_discrete(5, 900, 3, seed=2)
    alone = simulate("fedges", frames)
    run, pairs = spied("fedges", frames, replicates=4)
    np.testing.assert_array_equal(run.graph.weights, alone.graph.weights)
    assert any(" and " in record["exchange"] for record in run.history)
    assert run.graph.confidence.max() <= 1
    config = records.config_of(pairs[0][0])
    contract = type_of("fedges").contract
    assert [part.exchange.name for part in parts_of(exchange_of(contract, config))] == 5 * [
        "likelihoods"
    ]


def test_replicates_begin_with_the_cut_points_of_all_rows():
    run, pairs = spied("fedges", FRAMES, discretize=2, replicates=2)
    alone = simulate("fedges", FRAMES, discretize=2)
    assert [record["exchange"] for record in run.history][:1] == ["cuts"]
    np.testing.assert_array_equal(run.graph.weights, alone.graph.weights)
    for sent, _ in pairs:
        arrays = records.arrays_of(sent)
        for name in arrays:
            if name.endswith(": cuts") and "cuts" in arrays:
                np.testing.assert_array_equal(arrays[name], arrays["cuts"])
        assert "replicate 1: thresholds" not in arrays
    assert any("replicate 2: cuts" in records.arrays_of(sent) for sent, _ in pairs)


def type_of(method):
    from flwr_causal.app.methods import find

    return find(method).strategy


# Draws.


def test_blocks_are_stretches_of_one_series_and_cover_all_rows_alike():
    lengths, counts = [7, 40, 13], np.zeros(60)
    starts = np.repeat([0, 7, 47], lengths)
    for replicate in range(2000):
        drawn = Draw(3, replicate).blocks(lengths)
        assert len(drawn) == 60
        size = block_length(20)
        block, own = drawn[:size], starts[drawn[0]]
        length = dict(zip([0, 7, 47], lengths, strict=True))[own]
        np.testing.assert_array_equal(
            (block - own) % length, (block[0] - own + np.arange(size)) % length
        )
        counts += np.bincount(drawn, minlength=60)
    assert np.abs(counts / 2000 - 1).max() < 0.15


def test_rows_are_drawn_within_strata():
    strata = np.array([0, 1, 1, 0, 1, 2])
    for replicate in range(50):
        drawn = Draw(1, replicate).rows(6, strata)
        np.testing.assert_array_equal(np.sort(strata[drawn]), np.sort(strata))
        half = Draw(1, replicate, distinct=True).rows(6, strata)
        assert len(half) == len(np.unique(half)) == 4


def test_lags_stay_with_their_steps():
    series, _ = federated_dynamic(3, 240, 3, seed=1)
    run, pairs = spied("moments", series, order=1, replicates=2)
    assert run.graph.lagged_confidence.shape == (1, 3, 3)
    for _, reply in pairs:
        arrays = records.arrays_of(reply.content)
        # The products of [1, g, x_t, x_{t-1}] are those of as many rows.
        assert arrays["replicate 1: moments"][0, 0, 0] == arrays["moments"][0, 0, 0]
        assert not np.allclose(arrays["replicate 1: moments"], arrays["moments"], atol=1e-3)


def test_incomplete_rows_stay_outside_a_replicate():
    holed = [frame.copy() for frame in FRAMES]
    holed[1].iloc[::5, 2] = np.nan
    run = simulate("moments", holed, missing_values="drop", replicates=R)
    assert run.failures == []
    assert run.graph.confidence.max() <= 1


# What goes wrong, and what is refused.


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({}, "moments"),
        ({"aggregation": "median", "precision": "float32"}, "moments"),
        ({"max_rounds": 6}, "notears-admm"),
    ],
)
def test_a_resumed_run_has_the_same_confidence(tmp_path, options, method):
    whole = simulate(method, FRAMES, replicates=2, **options)
    with pytest.raises(KilledError):
        simulate(
            method,
            FRAMES,
            replicates=2,
            output_dir=tmp_path,
            wrap_grid=lambda grid: Killing(grid, (whole.rounds + 1) // 2),
            **options,
        )
    resumed = simulate(method, FRAMES, replicates=2, output_dir=tmp_path, resume=True, **options)
    np.testing.assert_array_equal(resumed.graph.weights, whole.graph.weights)
    np.testing.assert_array_equal(resumed.graph.confidence, whole.graph.confidence)


def test_methods_without_a_graph_and_privacy_wrappers_are_refused():
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

    from flwr_causal.simulations import LocalGrid
    from flwr_causal.strategies import Moments, run

    with pytest.raises(ConfigError, match="'replicates' is 3, which is for methods that return"):
        simulate("fedpc", FRAMES, replicates=3)
    with pytest.raises(ConfigError, match=r"'replicates'.* must be from 0 to"):
        simulate("moments", FRAMES, replicates=-1)
    method = Moments(replicates=2)
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 0.1, 1.0, 3)
    with pytest.raises(ConfigError, match="replicates"):
        run(method, LocalGrid(app_of(FRAMES), 3), strategy=wrapper)


def test_few_rows_for_many_replicates_are_a_warning():
    assert simulate("moments", FRAMES, replicates=2).warnings == []
    (warning,) = simulate("moments", FRAMES, replicates=30).warnings
    assert "3 of 3 parties have few rows for 30 replicates" in warning


# A stranger's method.

_STEP = Exchange(
    "step",
    "sums of products, with a number that a party remembers",
    sends=(Sent("scale", "a factor", ("k",)),),
    returns=(
        Disclosure("products", "products of the rows", ("d", "d"), combine="sum"),
        Disclosure("scaled", "the factor again", ("k",)),
        Disclosure("count", "the exchanges that the party has answered", (), "index"),
    ),
    same_parties=True,
    remembered=True,
)


class StrangersClient(CausalClient):
    """Remembers how often it was asked."""

    contract: ClassVar[Contract] = Contract("strangers", (_STEP,))

    @answers(_STEP)
    def step(self, asked):
        memory = self.recall()
        before = 0 if memory is None else memory.numbers["count"]
        count = (
            before if memory is not None and memory.numbers["at"] == asked.number else before + 1
        )
        self.remember({}, count=count, at=asked.number)
        rows = self.rows()
        return {"products": rows.T @ rows, "scaled": asked["scale"], "count": np.array(count)}


@dataclass(frozen=True, kw_only=True)
class StrangersOptions(CausalOptions):
    max_rounds: int = 3


class Strangers(CausalStrategy):
    """Draws edges between variables of large covariance."""

    contract: ClassVar[Contract] = StrangersClient.contract
    options_type = StrangersOptions

    def train(self, agreement, replicate=0):
        for step in range(3):
            replies = yield Ask(_STEP, {"scale": np.full(2 + step, 2.0)})
        products = replies["products"]
        size = np.sqrt(np.diag(products))
        strong = np.abs(products / size / size[:, None]) > 0.5
        graph = CausalGraph(agreement.names, np.triu(np.where(strong, products, 0.0), 1))
        return Result(graph, reason="all steps are done")


@pytest.mark.slow
def test_a_strangers_method_needs_nothing_for_replicates():
    strategy = Strangers(replicates=2, min_available_nodes=3)
    run, pairs = spied(strategy, FRAMES, client=StrangersClient)
    assert set(np.unique(run.graph.confidence)) <= {0.0, 0.5, 1.0}
    for sent, reply in pairs:
        counts = dict(reply.content["metrics"])
        # Each training has a memory of its own.
        assert counts["count"] == counts["replicate 2: count"] == records.config_of(sent)["round"]
    for check in CHECKS:
        with suppress(CheckSkippedError):
            check(Subject(strategy, FRAMES, StrangersClient))


@pytest.mark.nightly
def test_faults_of_replicates():
    report = check_method(Strangers(replicates=2), FRAMES, client=StrangersClient)
    assert report.passed, report.table()


def test_a_bundle_declares_what_its_parts_declare():
    parts = [BundlePart(TrainingName(), _STEP), BundlePart(TrainingName(replicate=2), _STEP)]
    bundle = bundle_of(parts)
    assert bundle_of(parts[:1]) is _STEP
    assert bundle.same_parties
    assert bundle.remembered
    declared = {item.name: item for item in bundle.returns}
    assert declared["replicate 2: products"].combine == declared["products"].combine == "sum"
    assert declared["replicate 2: scaled"].shape == ("replicate 2: k",)
    assert bundle.sizes({"d": 4})["replicate 2: d"] == 4


# Replicates of some of the parties.


def test_the_parties_of_a_replicate_do_not_depend_on_their_order():
    names = [f"p{k}" for k in range(9)]
    drawn = [drawn_parties(names, 5, number) for number in range(1, 300)]
    assert all(len(set(own)) == 3 and own == [n for n in names if n in own] for own in drawn)
    assert {*drawn_parties(names[::-1], 5, 7)} == {*drawn[6]}
    shares = np.array([sum(name in own for own in drawn) for name in names]) / len(drawn)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.1)
    assert [len(drawn_parties(names[:k], 0, 1)) for k in (1, 2, 3, 4, 6, 7)] == [1, 1, 2, 2, 2, 3]


def test_a_replicate_of_parties_has_the_edges_of_the_parties_that_are_drawn():
    """One party of four has an edge: it has the confidence of being drawn."""
    rng, number = np.random.default_rng(0), 12
    tables = [rng.normal(size=(300, 2)) for _ in range(4)]
    tables[2][:, 1] += 2 * tables[2][:, 0]
    names = [f"party {k}" for k in range(4)]
    drawn = [drawn_parties(names, 3, replicate) for replicate in range(1, 1 + number)]
    share = np.mean(["party 2" in own for own in drawn])
    assert 0 < share < 1
    options = {"solver": "class", "replicates": number, "seed": 3}
    rows = simulate("moments", tables, **options, resample="rows").graph.adjacency_confidence
    run, pairs = spied("moments", tables, **options, resample="parties")
    np.testing.assert_allclose([rows[0, 1], run.graph.adjacency_confidence[0, 1]], [1, share])
    # A party sends the replicates for which it is drawn, and no others.
    for name, (_, reply) in zip(names, pairs, strict=True):
        sent = [f"replicate {k}: moments" for k, own in enumerate(drawn, start=1) if name in own]
        assert list(records.arrays_of(reply.content)) == ["moments", *sent]


@pytest.mark.nightly
def test_confidences_of_parties_that_differ_are_calibrated():
    """Two of six parties have other weights: by rows edges of confidence 1 are false."""
    sure, means = {"rows": [], "parties": []}, {"rows": [], "parties": []}
    for seed in range(3):
        tables, edges = differing(np.random.default_rng(seed))
        for resample in sure:
            options = {"solver": "class", "replicates": 20, "resample": resample}
            graph = simulate("moments", tables, **options).graph
            found, pairs = graph.adjacency_confidence, np.triu(graph.adjacency | graph.adjacency.T)
            sure[resample] += edges[np.triu(found > 0.999)].tolist()
            means[resample].append(float(np.mean(found[pairs]) - np.mean(edges[pairs])))
    assert np.mean(sure["rows"]) < 0.9
    assert np.mean(sure["parties"]) > 0.97
    assert np.mean(means["rows"]) > 0.15
    assert abs(np.mean(means["parties"])) < 0.1


def differing(rng):
    """Tables of six parties, two of which have other weights, and the pairs that are edges."""
    names, size = 10, 400
    shape = np.triu(rng.random((names, names)) < 0.35, 1)

    def weights():
        return shape * rng.choice([-1, 1], shape.shape) * rng.uniform(0.4, 1.2, shape.shape)

    common = weights()
    systems = [common, common, weights(), common, weights(), common]
    order = rng.permutation(names)
    tables = [
        (rng.normal(size=(size, names)) @ np.linalg.inv(np.eye(names) - own))[:, order]
        for own in systems
    ]
    return tables, (shape | shape.T)[np.ix_(order, order)]


def test_a_replicate_of_parties_is_that_of_a_run_of_them_alone():
    drawn = [drawn_parties([f"party {k}" for k in range(3)], 0, number) for number in (1, 2)]
    run, pairs = spied("moments", FRAMES, replicates=2, resample="parties")
    replies = [records.arrays_of(reply.content) for _, reply in pairs]
    shares = np.zeros((4, 4))
    for number, own in enumerate(drawn, start=1):
        places = [int(name.removeprefix("party ")) for name in own]
        rows = [len(FRAMES[k]) for k in places]
        sums = [replies[k][f"replicate {number}: moments"][0] for k in places]
        products = np.average(sums, axis=0, weights=rows)
        mean = products[0, 1:]
        second = products[1:, 1:] - np.outer(mean, mean)
        moments = SampleMoments(sum(rows), mean, second, ("x0", "x1", "x2", "x3"))
        shares += search_orders(moments, EdgeMasks.free(4), least_effect=0.1).best.adjacency / 2
    np.testing.assert_array_equal(run.graph.confidence, shares)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {"missing_values": "em"}),
        ("moments", {"secure_aggregation": True, "groups": 2}),
        ("moments", {"leave_one_out": True}),
        ("fedcausal", {"model": "linear"}),
    ],
)
def test_parties_are_drawn_in_runs_of_all_kinds(method, options):
    tables = [*FRAMES, *(frame + 0.01 for frame in FRAMES)]
    given = {"replicates": 3, "resample": "parties", **options}
    run = simulate(method, tables, **given)
    assert run.graph.confidence.max() == 1
    assert not any("could not be fitted" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"replicates": 0}, "'auto' or 'rows' without replicates"),
        ({"fraction_train": 0.5}, "'auto' or 'rows' with fraction_train"),
        ({"aggregation": "median"}, "'auto' or 'rows' with aggregation='median'"),
        (
            {"secure_aggregation": True},
            "'auto' or 'rows', or groups given, with secure_aggregation=True",
        ),
    ],
)
def test_draws_of_parties_need_replicates_and_single_replies(options, remedy):
    with pytest.raises(ConfigError, match=rf"'resample' is 'parties'; it must be {remedy}\."):
        Moments(resample="parties", **{"replicates": 2, **options})


def test_a_replicate_whose_parties_do_not_reply_has_failed():
    """The run goes on: what is left is the confidence of the others."""
    tables = [*FRAMES, *FRAMES]
    lost = drawn_parties([f"party {k}" for k in range(6)], 0, 1)

    class Silent(Spy):
        places: ClassVar = {}

        def after(self, messages, replies):
            for reply in replies:
                if "party" in (told := records.config_of(reply.content)):
                    self.places[reply.metadata.src_node_id] = told["party"]
            asks = "exchange" in records.config_of(messages[0].content)
            return [
                reply
                for reply in replies
                if not (asks and self.places[reply.metadata.src_node_id] in lost)
            ]

    options = {"replicates": 4, "resample": "parties", "round_timeout": 1.0, "max_rounds": 2}
    run = simulate("fedcausal", tables, wrap_grid=Silent, model="linear", **options)
    assert any("none of its parties replied" in warning for warning in run.warnings)
    assert run.graph.confidence.max() == 1


def test_one_party_cannot_be_left_out():
    table = np.random.default_rng(0).normal(size=(50, 3))
    found = simulate("moments", [table], leave_one_out=True).warnings
    assert any("no training without it" in warning for warning in found)
