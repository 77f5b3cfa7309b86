"""Flower's client-side mods around a party's answers."""

import pickle

import numpy as np
import pytest
from federations import SpyGrid, make_federation
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, arrays_size_mod, fixedclipping_mod
from flwr.server import strategy as legacy
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    FedAvg,
)

from flwr_causal.clients import NotearsADMMClient, Source, client_app
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party.record import PartyRecord, left
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import NotearsADMM, run

TABLES = make_federation(d=4, n=240, parties=3).tables


def source(context):
    index = int(context.node_config["partition-id"])
    return Source(f"party {index}", lambda: TABLES[index])


def app(*mods):
    return client_app(NotearsADMMClient, source, mods=mods)


def own_app(*mods):
    """A ClientApp of a Flower user's own around our handlers."""
    inner, outer = client_app(NotearsADMMClient, source), ClientApp(mods=list(mods))
    outer.train()(inner)
    outer.query()(inner)
    outer.query("schema")(inner)
    return outer


def admm(**options):
    return NotearsADMM(**{"max_rounds": 6, "refit": False, **options})


def grid_of(made):
    return SpyGrid(made, len(TABLES))


def norms(grid):
    """How far each reply of the training is from what was sent."""
    return [
        np.linalg.norm(
            records.arrays_of(reply.content)["weights"]
            - records.arrays_of(message.content)["weights"]
        )
        for message, reply in zip(grid.training_messages, grid.replies[3:], strict=True)
    ]


@pytest.mark.parametrize("build", [app, own_app])
def test_mods_that_only_watch_change_nothing(build):
    seen = []

    def watching(message, context, call_next):
        seen.append(message.metadata.message_type)
        return call_next(message, context)

    plain = run(admm(), grid_of(app()))
    watched = run(admm(), grid_of(build(watching, arrays_size_mod)))
    assert watched.graph.equals(plain.graph)
    assert seen == ["query.schema"] * 3 + ["train"] * 18


@pytest.mark.parametrize("build", [app, own_app])
@pytest.mark.parametrize(
    ("mod", "wrapper"),
    [
        (fixedclipping_mod, lambda m: DifferentialPrivacyClientSideFixedClipping(m, 0, 0.05, 3)),
        (
            adaptiveclipping_mod,
            lambda m: DifferentialPrivacyClientSideAdaptiveClipping(
                m, 0, 3, initial_clipping_norm=0.05, clip_norm_lr=1e-9
            ),
        ),
    ],
)
def test_client_side_wrappers_run_where_the_mod_clips(build, mod, wrapper):
    grid, method = grid_of(build(mod)), admm()
    outcome = run(method, grid, strategy=wrapper(method))
    assert outcome.rounds == 6
    assert max(norms(grid)) == pytest.approx(0.05)
    # The next run is one without a wrapper.
    assert (method._clipping_norm, method._clipping_mod) == (0.0, "")


def started(method, grid, wrapper):
    return wrapper.start(grid, ArrayRecord(), num_rounds=8)


def ran(method, grid, wrapper):
    return run(method, grid, strategy=wrapper)


@pytest.mark.parametrize("call", [started, ran])
@pytest.mark.parametrize("norm", [1, 0.05])
def test_a_norm_is_a_norm_whatever_its_type(call, norm):
    method, grid = admm(), grid_of(app())
    with pytest.raises(ConfigError, match="party 0 does not clip"):
        call(method, grid, DifferentialPrivacyClientSideFixedClipping(method, 0, norm, 3))
    assert not grid.training_messages
    grid = grid_of(app(fixedclipping_mod))
    call(method, grid, DifferentialPrivacyClientSideFixedClipping(method, 0, norm, 3))
    assert max(norms(grid)) == pytest.approx(norm)


@pytest.mark.parametrize("call", [started, ran])
@pytest.mark.parametrize("inside", [False, True])
def test_a_reply_that_is_not_clipped_is_refused(call, inside):
    """The mod is around the question for the schema alone."""
    inner, outer = client_app(NotearsADMMClient, source), ClientApp()
    outer.train()(inner)
    outer.query("schema", mods=[fixedclipping_mod])(inner)
    method, grid = admm(precision="float32"), grid_of(outer)
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 0, 9.0 if inside else 0.5, 3)
    if inside:
        call(method, grid, wrapper)
        assert 0.5 < max(norms(grid)) < 9
        return
    with pytest.raises(FederationError, match=r"refused: it is not within the norm 0\.5"):
        call(method, grid, wrapper)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_replies_that_are_clipped_are_within_the_norm_up_to_rounding(precision):
    method, grid = admm(precision=precision), grid_of(app(fixedclipping_mod))
    start = {"weights": np.triu(np.full((4, 4), 300.0), 1)}
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 0, 1e-3, 3)
    assert run(method, grid, strategy=wrapper, initial_arrays=start).failures == ()


@pytest.mark.parametrize("name", [one for one in legacy.__all__ if "DifferentialPrivacy" in one])
def test_wrappers_of_flowers_former_strategies_are_refused(name):
    sizes = {"num_sampled_clients": 3, "noise_multiplier": 0}
    if "Fixed" in name:
        sizes["clipping_norm"] = 1.0
    method, grid = admm(), grid_of(app(fixedclipping_mod))
    with pytest.raises(ConfigError, match=r"is none of flwr\.serverapp\.strategy"):
        run(method, grid, strategy=getattr(legacy, name)(method, **sizes))
    assert not grid.sent


def test_the_adaptive_wrapper_needs_the_mod_that_tells_what_it_clips():
    method, grid = admm(), grid_of(app(fixedclipping_mod))
    wrapper = DifferentialPrivacyClientSideAdaptiveClipping(method, 0, 3)
    with pytest.raises(ConfigError, match=r"party 0 does not clip .*mods=\[adaptiveclipping_mod\]"):
        run(method, grid, strategy=wrapper)
    assert not grid.training_messages


class WithBits(Relay):
    """Changes whether the replies of a party in the training tell that they are clipped."""

    def __init__(self, grid, told):
        super().__init__(grid)
        self.told = told

    def after(self, messages, replies):
        for reply in replies:
            own = reply.metadata.src_node_id == 3 and records.METRICS in reply.content
            if own and messages[0].metadata.message_type == "train":
                metrics = dict(reply.content[records.METRICS])
                metrics.pop(records.NORM_BIT, None)
                more = {records.NORM_BIT: 1} if self.told else {}
                reply.content[records.METRICS] = MetricRecord(metrics | more)
        return replies


def test_replies_of_which_only_some_tell_that_they_are_clipped_name_the_parties():
    method = admm()
    wrapper = DifferentialPrivacyClientSideAdaptiveClipping(method, 0, 3)
    grid = WithBits(grid_of(app(adaptiveclipping_mod)), told=False)
    words = r"party 0, party 2 returned 'norm_bit', .* and party 1 did not"
    with pytest.raises(FederationError, match=words):
        run(method, grid, strategy=wrapper)


def test_a_party_that_tells_what_nobody_asked_for_is_left_out():
    outcome = run(admm(), WithBits(grid_of(app()), told=True))
    assert {(one.party, "'norm_bit'" in one.reason) for one in outcome.failures} == {
        ("party 1", True)
    }


def test_a_mod_that_clips_to_a_larger_norm_is_noticed():
    method, grid = admm(), grid_of(app(LocalDpMod(0.2, 0.0, 1.0, 1e-5)))
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 0, 0.11, 3)
    with pytest.raises(ConfigError, match="party 0 does not clip"):
        run(method, grid, strategy=wrapper)


@pytest.mark.parametrize("build", [app, own_app])
def test_local_privacy(build):
    grid = grid_of(build(LocalDpMod(0.01, 0.0, 1.0, 1e-5)))
    run(admm(), grid)
    assert max(norms(grid)) == pytest.approx(0.01)


def test_a_mod_without_its_wrapper_says_what_it_needs():
    with pytest.raises(FederationError, match="requires the key 'clipping_norm'"):
        run(admm(), grid_of(app(fixedclipping_mod)))


def changing(change):
    def mod(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "train":
            change(reply)
        return reply

    return mod


def renamed(reply):
    arrays = reply.content["arrays"]
    reply.content["arrays"] = ArrayRecord({"rows": arrays["weights"]})


def added(reply):
    reply.content["metrics"]["mean-age"] = 51.0


def further(reply):
    reply.content["more"] = ConfigRecord({"a": 1})


def reshaped(reply):
    reply.content["arrays"] = records.pack_arrays({"weights": np.zeros((1, 9, 4))})


def heavier(reply):
    reply.content["metrics"]["num-examples"] = 1000.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed, "'rows' may not leave a party"),
        (added, "'mean-age' may not leave a party"),
        (further, "holds the record 'more'"),
        (reshaped, "has the shape"),
        (heavier, "the weight of the reply is"),
    ],
)
def test_a_mod_that_changes_the_form_of_a_reply_is_refused_at_the_party(change, why):
    grid = grid_of(app(changing(change)))
    with pytest.raises(FederationError, match=f"A mod of the node's ClientApp .*{why}"):
        run(admm(), grid)
    assert all(reply.has_error() for reply in grid.replies[3:])


def test_values_of_a_declared_form_are_the_mods_to_change_and_memory_is_the_partys():
    def halved(reply):
        half = records.arrays_of(reply.content)["weights"] / 2
        reply.content["arrays"] = records.pack_arrays({"weights": half})

    plain, grid = grid_of(app()), grid_of(app(changing(halved)))
    run(admm(), plain)
    run(admm(), grid)
    before, after = (records.arrays_of(one.replies[3].content)["weights"] for one in (plain, grid))
    np.testing.assert_array_equal(after, before / 2)
    kept = [one.context(one.get_node_ids()[0]).state for one in (plain, grid)]
    assert all("memory" in state for state in kept)


def test_masked_replies_may_not_be_changed():
    def shifted(reply):
        words = records.arrays_of(reply.content)["masked"]
        reply.content["arrays"] = records.pack_arrays({"masked": words + np.uint64(1)})

    with pytest.raises(FederationError, match="may not be changed at all"):
        run(admm(secure_aggregation=True), grid_of(app(changing(shifted))))


def test_a_report_may_not_be_changed():
    def lying(message, context, call_next):
        reply = call_next(message, context)
        reply.content["config"]["rows"] = 10**6
        return reply

    with pytest.raises(DataError, match=r"party 0.*: .*the report on the table may not be changed"):
        run(admm(), grid_of(app(lying)))


def test_a_mod_that_answers_alone_is_refused():
    def alone(message, context, call_next):
        if message.metadata.message_type == "train":
            return Message(RecordDict({"metrics": MetricRecord({})}), reply_to=message)
        return call_next(message, context)

    with pytest.raises(FederationError, match="answered in place of the client"):
        run(admm(), grid_of(app(alone)))


def test_a_mod_that_refuses_is_named():
    def refusing(message, context, call_next):
        if message.metadata.message_type == "train":
            return Message(Error(1, "not on Sundays"), reply_to=message)
        return call_next(message, context)

    with pytest.raises(FederationError, match=r"A mod of .* refused it: not on Sundays"):
        run(admm(), grid_of(app(refusing)))


def test_the_record_is_of_what_leaves_after_the_mods(tmp_path):
    path = tmp_path / "record.jsonl"

    made = app(LocalDpMod(0.01, 0.0, 1.0, 1e-5))

    def recorded(message, context):
        own = {**context.node_config, "record": str(path)}
        if context.node_config["partition-id"] == 0:
            context = Context(context.run_id, context.node_id, own, context.state, {})
        return made(message, context)

    grid = SpyGrid(recorded, 3)
    run(admm(), grid)
    lines = PartyRecord(path).lines()
    first = min(reply.metadata.src_node_id for reply in grid.replies)
    sent = [left(one.content) for one in grid.replies if one.metadata.src_node_id == first]
    assert [line["digest"] for line in lines] == [one["digest"] for one in sent]


def test_the_app_with_mods_is_packed_as_what_it_is_built_from():
    packed = pickle.loads(pickle.dumps(app(fixedclipping_mod)))
    assert packed._built_from[-1] == (fixedclipping_mod,)


# What is no message of flwr-causal.


def test_a_strategy_of_flower_is_told_what_to_use(caplog):
    grid = LocalGrid(app(), 3)
    arrays = records.pack_arrays({"w": np.zeros(3)})
    with caplog.at_level("INFO", logger="flwr"):
        ended = FedAvg().start(grid=grid, initial_arrays=arrays, num_rounds=1)
    assert caplog.text.count("This 'train' message is not of a strategy of flwr-causal") == 3
    assert not ended.train_metrics_clientapp
    said = [reply.error.reason for reply in asked(grid, "train", {"server-round": 1})]
    assert all("not of a strategy of flwr-causal" in one and "notears-admm" in one for one in said)
    assert len(said) == 3
    said = [reply.error.reason for reply in asked(grid, "evaluate", {"method": "notears-admm"})]
    assert all("This 'evaluate' message" in one for one in said)


def asked(grid, kind, config):
    content = records.message_content(records.pack_arrays({"w": np.zeros(3)}), config)
    nodes = grid.get_node_ids()
    messages = [Message(content, dst_node_id=one, message_type=kind, ttl=9.0) for one in nodes]
    return grid.send_and_receive(messages)


def test_client_fn_is_told_of_client_app():
    made = ClientApp(client_fn=lambda c: NotearsADMMClient(source(c), c).to_client())
    for kind in ("train", "evaluate"):
        for reply in asked(LocalGrid(made, 1), kind, {"server-round": 1}):
            assert reply.has_error()
    with pytest.raises(ConfigError, match=r"client_app\(NotearsADMMClient, source\)"):
        NotearsADMMClient(
            source(Context(1, 2, {"partition-id": 0}, RecordDict(), {})), None
        ).to_client()
