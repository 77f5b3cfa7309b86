"""Flower's own way in: ``start`` and privacy wrappers."""

import numpy as np
import pytest
from federations import SpyGrid, app_of, disturbed, make_federation, raising, spy
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Result,
    Strategy,
)

from flwr_causal.clients import NotearsADMMClient, Source, client_app
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import Moments, NotearsADMM, run

FED = make_federation(d=5, n=240, parties=3)
TABLES = FED.tables
TRUE = FED.weights != 0


def admm(**options):
    return NotearsADMM(**{"max_rounds": 20, **options})


def test_methods_are_flower_strategies():
    for method in (admm(), Moments()):
        assert isinstance(method, Strategy)
        assert isinstance(method, FedAvg)
    # Flower's accountant of differential privacy asks for FedAvg's own mean.
    assert NotearsADMM.aggregate_train is FedAvg.aggregate_train
    assert Moments.aggregate_train is FedAvg.aggregate_train


def test_start_returns_flowers_result():
    outcome = run(admm(), spy(TABLES))
    started = admm().start(grid=spy(TABLES))
    assert isinstance(started, Result)
    np.testing.assert_array_equal(
        records.unpack_arrays(started.arrays)["weights"], outcome.graph.weights
    )
    assert sorted(started.train_metrics_clientapp) == list(range(1, 21))
    metrics = started.train_metrics_clientapp[3]
    assert isinstance(metrics, MetricRecord)
    assert metrics["h"] == outcome.history[2]["h"]
    assert started.outcome.graph.equals(outcome.graph)


def test_start_inside_a_users_own_app():
    kept = []
    app = ServerApp()

    @app.main()
    def main(grid, context):
        methods = (admm(), Moments(), admm(standardize=True))
        kept.extend(method.start(grid=grid) for method in methods)

    grid = LocalGrid(app_of(TABLES), 3)
    app(grid, Context(1, 1, {}, RecordDict(), {}))
    assert [np.array_equal(k.outcome.graph.adjacency, TRUE) for k in kept[:2]] == [True, True]
    fresh = run(admm(standardize=True), spy(TABLES))
    assert kept[2].outcome.graph.equals(fresh.graph)


def test_a_run_of_start_can_be_resumed_by_simulate(tmp_path):
    options = {"max_rounds": 8, "output_dir": str(tmp_path)}
    started = admm(**options).start(grid=spy(TABLES)).outcome
    again = simulate(admm(**options), TABLES, resume=True)
    assert again.graph.equals(started.graph)
    assert again.history == started.history
    assert Run.load(tmp_path).graph.equals(started.graph)


def test_num_rounds_and_timeout_replace_the_options():
    grid = spy(TABLES)
    started = admm().start(grid=grid, num_rounds=8, timeout=55.0)
    assert started.outcome.rounds == 8
    assert {message.metadata.ttl for message in grid.sent} == {55.0}
    with pytest.raises(ConfigError, match="max_rounds"):
        admm().start(grid=spy(TABLES), num_rounds=2)
    with pytest.raises(ConfigError, match="decides how many exchanges"):
        Moments().start(grid=spy(TABLES), num_rounds=3)


def test_num_rounds_holds_for_its_start_alone():
    method = admm(early_stop=False)
    assert method.start(grid=spy(TABLES), num_rounds=8).outcome.rounds == 8
    with pytest.raises(ConfigError, match="max_rounds"):
        method.start(grid=spy(TABLES), num_rounds=2)
    assert method.start(grid=spy(TABLES)).outcome.rounds == 20


def test_train_config_reaches_the_clients():
    grid = spy(TABLES)
    admm().start(grid=grid, train_config=ConfigRecord({"site": "A"}))
    assert {records.config_of(m.content)["site"] for m in grid.training_messages} == {"A"}


def test_evaluate_fn_sees_every_round():
    seen = []

    def evaluate(server_round, arrays):
        assert isinstance(arrays, ArrayRecord)
        seen.append((server_round, list(arrays)))
        return MetricRecord({"round": server_round}) if server_round % 2 else None

    started = admm().start(grid=spy(TABLES), evaluate_fn=evaluate)
    assert [server_round for server_round, _ in seen] == list(range(21))
    assert seen[0][1] == []
    assert seen[1][1] == ["weights"]
    assert sorted(started.evaluate_metrics_serverapp) == list(range(1, 21, 2))
    assert started.evaluate_metrics_serverapp[3]["round"] == 3


def test_evaluate_fn_sees_the_initial_arrays():
    """As in Flower: before the first round, with round 0, kept like the others."""
    seen = {}

    def evaluate(server_round, arrays):
        seen[server_round] = arrays
        return MetricRecord({"size": float(np.abs(arrays["weights"].numpy()).sum())})

    start = np.zeros((5, 5))
    start[0, 1] = 0.5
    initial = ArrayRecord({"weights": Array(start)})
    started = admm().start(grid=spy(TABLES), initial_arrays=initial, evaluate_fn=evaluate)
    np.testing.assert_array_equal(seen[0]["weights"].numpy(), start)
    assert started.evaluate_metrics_serverapp[0]["size"] == 0.5


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_rounds": 3}, r"start\(num_rounds=\.\.\.\), the option 'max_rounds', is 3"),
        ({"timeout": -1.0}, r"start\(timeout=\.\.\.\), the option 'round_timeout', is -1"),
    ],
)
def test_an_argument_of_start_is_named(given, words):
    with pytest.raises(ConfigError, match=words):
        NotearsADMM().start(grid=spy(TABLES), **given)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ConfigError, match=r"evaluate_config=.*no meaning for NotearsADMM"):
        admm().start(grid=spy(TABLES), evaluate_config=ConfigRecord())


def test_a_strategy_that_was_not_started_says_so():
    with pytest.raises(FederationError, match="has not been started"):
        admm().configure_train(2, ArrayRecord(), ConfigRecord(), spy(TABLES))
    with pytest.raises(FederationError, match="No start of a strategy around NotearsADMM has run"):
        _ = admm().outcome


def test_flowers_own_loop_ends_cheaply_once_finished():
    method = admm()
    messages = []

    def after(record):
        if record["exchange"] == "refit":
            more = method.configure_train(21, ArrayRecord(), ConfigRecord(), None)
            messages.append(list(more))

    run(method, spy(TABLES), on_round=after)
    assert messages == [[]]
    assert list(method.configure_evaluate(1, ArrayRecord(), ConfigRecord(), None)) == []


# Differential privacy.


def wrapped(method, noise=1e-12, clipping=1e6):
    return DifferentialPrivacyServerSideFixedClipping(method, noise, clipping, 3)


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"refit": False}, {"variant": "paper"}])
def test_a_privacy_wrapper_with_next_to_no_noise_changes_nothing(options):
    plain = run(admm(**options), spy(TABLES))
    method = admm(**options)
    private = run(method, spy(TABLES), strategy=wrapped(method))
    assert private.rounds == plain.rounds
    assert np.array_equal(private.graph.adjacency, plain.graph.adjacency)
    np.testing.assert_allclose(private.scores, plain.scores, atol=1e-3)


def test_the_noise_comes_before_the_server_step():
    """The graph is a DAG however large the noise; noise after the step would spoil that."""
    method = admm(refit=False)
    private = run(method, spy(TABLES), strategy=wrapped(method, noise=3.0, clipping=1.0))
    assert private.graph.is_acyclic()
    assert not np.array_equal(private.scores, run(admm(refit=False), spy(TABLES)).scores)


def test_clipping_bounds_what_a_party_adds():
    method = admm(refit=False, max_rounds=6)
    outcome = run(method, spy(TABLES), strategy=wrapped(method, noise=0.0, clipping=1e-6))
    assert np.abs(outcome.scores).max() < 1e-4


def test_a_method_that_sends_nothing_to_clip_against_is_refused():
    method, grid = Moments(), spy(TABLES)
    with pytest.raises(ConfigError, match=r"FixedClipping .* of Moments sends none"):
        run(method, grid, strategy=wrapped(method))
    assert not grid.training_messages


def update_norm(sent, reply):
    """How far the arrays of a reply are from those that were sent."""
    return np.sqrt(sum(np.sum((reply[name] - sent[name]) ** 2) for name in sent))


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda m: DifferentialPrivacyServerSideAdaptiveClipping(m, 1e-9, 3),
        lambda m: DifferentialPrivacyServerSideFixedClipping(m, 1e-9, 0.1, 3),
    ],
)
def test_wrappers_clip_every_reply_before_the_mean(wrapper, monkeypatch):
    method, norms = admm(refit=False, max_rounds=6), []
    strategy = wrapper(method)
    mean, configure = NotearsADMM.aggregate_train, NotearsADMM.configure_train
    sent, norm = {}, []

    def configured(self, number, arrays, config, grid):
        sent.update(records.unpack_arrays(arrays))
        norm.append(strategy.clipping_norm)
        return configure(self, number, arrays, config, grid)

    def averaged(self, number, replies):
        replies = list(replies)
        norms.extend(
            update_norm(sent, records.arrays_of(reply.content)) / norm[-1] for reply in replies
        )
        return mean(self, number, replies)

    monkeypatch.setattr(NotearsADMM, "configure_train", configured)
    monkeypatch.setattr(NotearsADMM, "aggregate_train", averaged)
    outcome = run(method, spy(TABLES), strategy=strategy)
    assert outcome.rounds == 6
    assert outcome.graph.is_acyclic()
    assert len(norms) == 18
    assert max(norms) == pytest.approx(1.0)


# The wrappers' own start.

CLIPPED = {
    "server fixed": (lambda m: wrapped(m, 0.05, 0.5), ()),
    "server adaptive": (lambda m: DifferentialPrivacyServerSideAdaptiveClipping(m, 0.05, 3), ()),
    "client fixed": (
        lambda m: DifferentialPrivacyClientSideFixedClipping(m, 0.05, 0.5, 3),
        (fixedclipping_mod,),
    ),
    "client adaptive": (
        lambda m: DifferentialPrivacyClientSideAdaptiveClipping(m, 0.05, 3),
        (adaptiveclipping_mod,),
    ),
}


def with_mods(*mods):
    def source(context):
        index = int(context.node_config["partition-id"])
        return Source(f"party {index}", lambda: TABLES[index])

    return SpyGrid(client_app(NotearsADMMClient, source, mods=mods), 3)


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("kind", CLIPPED)
def test_a_wrappers_start_is_the_same_as_run(kind, refit):
    wrapper, mods = CLIPPED[kind]
    if mods and refit:
        return
    method = admm(refit=refit, max_rounds=12)
    np.random.seed(0)  # noqa: NPY002 - wrappers draw from it
    outcome = run(method, with_mods(*mods), strategy=wrapper(method))
    np.random.seed(0)  # noqa: NPY002 - wrappers draw from it
    rounds = outcome.rounds + 2  # two beyond the end change nothing
    result = wrapper(method).start(with_mods(*mods), ArrayRecord(), num_rounds=rounds)
    started = method.outcome
    assert started.graph.equals(outcome.graph)
    np.testing.assert_array_equal(started.scores, outcome.scores)
    for name in ("stop_reason", "rounds", "bytes_sent", "bytes_received", "status", "answered"):
        assert getattr(started, name) == getattr(outcome, name), name
    weights = records.unpack_arrays(result.arrays)["weights"]
    np.testing.assert_array_equal(weights, outcome.graph.weights)
    assert result.train_metrics_clientapp[3]["h"] == outcome.history[2]["h"]
    if refit and kind == "server fixed":
        # The noise is more than the second moments of the clipped replies.
        assert any("The refit is left out" in text for text in outcome.warnings)
    # The next run is one without a wrapper.
    again = run(method, spy(TABLES))
    assert again.graph.equals(run(admm(refit=refit, max_rounds=12), spy(TABLES)).graph)


def test_the_arrays_of_a_wrappers_start_are_the_graph_so_far():
    seen, method = [], admm(refit=False, max_rounds=8)

    def evaluate(number, arrays):
        seen.append(records.unpack_arrays(arrays).get("weights"))

    wrapped(method).start(spy(TABLES), ArrayRecord(), num_rounds=8, evaluate_fn=evaluate)
    assert seen[0] is None
    assert [weights.shape for weights in seen[1:]] == [(5, 5)] * 8
    np.testing.assert_array_equal(seen[-1], method.outcome.graph.weights)


@pytest.mark.slow
def test_a_wrappers_start_of_too_few_rounds_says_how_many_are_needed():
    method = admm()
    wrapped(method).start(spy(TABLES), ArrayRecord())
    with pytest.raises(FederationError, match=r"after 3 exchanges .* num_rounds=20") as raised:
        _ = method.outcome
    assert raised.value.outcome.graph.names == ("x0", "x1", "x2", "x3", "x4")
    # What it left does not disturb what follows.
    plain = run(admm(), spy(TABLES)).graph
    assert run(method, spy(TABLES)).graph.equals(plain)
    wrapped(method).start(spy(TABLES), ArrayRecord())
    assert method.start(grid=spy(TABLES)).outcome.graph.equals(plain)


def test_a_wrappers_start_asks_a_party_that_failed_once_more():
    method = admm(refit=False, max_rounds=8)
    plain = run(admm(refit=False, max_rounds=8), spy(TABLES))
    grid = disturbed(TABLES, raising(1, {4}))
    wrapped(method, noise=0.0).start(grid, ArrayRecord(), num_rounds=9)
    np.testing.assert_allclose(method.outcome.scores, plain.scores, atol=1e-12)
    with pytest.raises(FederationError, match=r"Exchange 4: .*run\(method, grid, strategy=wrapper"):
        wrapped(method).start(
            disturbed(TABLES, raising(1, {4}, attempts=9)), ArrayRecord(), num_rounds=9
        )
    with pytest.raises(FederationError, match="after 3 exchanges"):
        _ = method.outcome


def test_a_wrappers_start_refuses_what_is_not_declared():
    def lying(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "train":
            reply.content["arrays"] = records.pack_arrays({"weights": np.zeros((1, 9, 5))})
        return reply

    app = ClientApp(mods=[lying])
    inner = app_of(TABLES)
    app.train()(inner)
    app.query("schema")(inner)
    method = admm(refit=False)
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 0.0, 1e6, 3)
    with pytest.raises(ConfigError, match="party 0 does not clip"):
        wrapper.start(SpyGrid(app, 3), ArrayRecord())
    outer = FedAvgAround(method)
    with pytest.raises(FederationError, match=r"Exchange 1: a reply was refused: .* shape"):
        outer.start(SpyGrid(app, 3), ArrayRecord())


class FedAvgAround(Strategy):
    """A wrapper of a user's own that changes nothing."""

    def __init__(self, strategy):
        self.strategy = strategy

    def configure_train(self, *given):
        return self.strategy.configure_train(*given)

    def aggregate_train(self, *given):
        return self.strategy.aggregate_train(*given)

    def configure_evaluate(self, *given):
        return self.strategy.configure_evaluate(*given)

    def aggregate_evaluate(self, *given):
        return self.strategy.aggregate_evaluate(*given)

    def summary(self):
        self.strategy.summary()


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (lambda path: Moments(), "of Moments sends none"),
        (lambda path: admm(replicates=3), "'replicates' of NotearsADMM is 3"),
        (lambda path: admm(secure_aggregation=True), "secure_aggregation hides"),
        (lambda path: admm(output_dir=path, resume=True), "its run cannot be resumed"),
    ],
)
def test_what_a_wrappers_start_cannot_do_is_refused(method, why, tmp_path):
    made, grid = method(str(tmp_path)), spy(TABLES)
    with pytest.raises(ConfigError, match=why):
        wrapped(made).start(grid, ArrayRecord())
    assert not grid.training_messages
    assert (made._clipping_norm, made.state, made._federation) == (0.0, None, None)


def of_start(place):
    return admm(output_dir=place, refit=False).start(grid=spy(TABLES)).outcome


def of_run(place):
    return run(admm(output_dir=place, refit=False), spy(TABLES))


def of_run_around(place):
    method = admm(output_dir=place, refit=False)
    return run(method, spy(TABLES), strategy=wrapped(method))


def of_wrapper(place):
    method = admm(output_dir=place, refit=False)
    wrapped(method).start(spy(TABLES), ArrayRecord(), num_rounds=20)
    return method.outcome


@pytest.mark.few(2)
@pytest.mark.parametrize("entry", [of_start, of_run, of_run_around, of_wrapper])
def test_every_entry_writes_what_simulate_writes(entry, tmp_path):
    outcome = entry(str(tmp_path / "own"))
    simulate(admm(output_dir=str(tmp_path / "simulated"), refit=False), TABLES)
    loaded, simulated = Run.load(tmp_path / "own"), Run.load(tmp_path / "simulated")
    assert loaded.status == outcome.run.status == "completed"
    assert loaded.graph.equals(outcome.graph)
    assert loaded.graph.equals(outcome.run.graph)
    np.testing.assert_array_equal(loaded.scores, outcome.scores)
    assert loaded.about == simulated.about
    assert loaded.config.keys() - {"wrapper"} == simulated.config.keys()
    files = {place: {one.name for one in place.iterdir()} for place in tmp_path.iterdir()}
    # What the run can be resumed from goes once the caller saves the run.
    kept = {"exchanges"} if entry in (of_start, of_run) else set()
    assert files[tmp_path / "own"] == files[tmp_path / "simulated"] | kept
    outcome.run.save(tmp_path / "own")
    assert not (tmp_path / "own" / "exchanges").exists()
    assert outcome.run.report(tmp_path / "page.html").is_file()


def test_start_resumes_a_completed_run_and_leaves_its_results(tmp_path):
    place = tmp_path / "own"
    options = {"output_dir": str(place), "resume": True}
    first = Moments(**options).start(grid=spy(TABLES)).outcome
    files = {one.name: one.read_bytes() for one in place.iterdir() if one.is_file()}
    assert "disagreement.csv" in files  # which follows from single replies, that are not kept
    again = Moments(**options).start(grid=spy(TABLES)).outcome
    assert again.graph.equals(first.graph)
    assert {one.name: one.read_bytes() for one in place.iterdir() if one.is_file()} == files
    with pytest.raises(ConfigError, match="table is not the one"):
        Moments(**options).start(grid=spy([table + 1.0 for table in TABLES]))
    simulated = simulate(Moments(**options), TABLES)
    np.testing.assert_array_equal(simulated.disagreement["value"], first.run.disagreement["value"])
    with pytest.raises(ConfigError, match="what it could be resumed from is gone"):
        Moments(**options).start(grid=spy(TABLES))
    assert Run.load(place).graph.equals(first.graph)


def test_what_failed_is_written_by_start(tmp_path):
    def evaluate(number, arrays):
        if number == 3:
            raise RuntimeError("the disk of the plots is full")

    place = tmp_path / "own"
    with pytest.raises(RuntimeError):
        admm(output_dir=str(place)).start(grid=spy(TABLES), evaluate_fn=evaluate)
    loaded = Run.load(place)
    assert (loaded.status, loaded.rounds) == ("failed", 3)
    assert "plots is full" in loaded.error
    assert loaded.graph is not None


def test_a_run_with_a_wrapper_is_not_resumed_without_it(tmp_path):
    place = str(tmp_path / "own")
    of_run_around(place)
    with pytest.raises(ConfigError, match="had wrapper='DifferentialPrivacy"):
        simulate(admm(output_dir=place, refit=False, resume=True), TABLES)


def test_results_that_cannot_be_written_leave_the_outcome(tmp_path, monkeypatch):
    def full(self, *given, **options):
        raise ConfigError("No space left on device.")

    monkeypatch.setattr(Run, "save", full)
    outcome = of_start(str(tmp_path / "own"))
    assert outcome.status == "completed"
    assert "cannot be written" in outcome.warnings[-1]


def test_client_side_clipping_of_moments_is_refused_before_the_first_exchange():
    method, grid = admm(), with_mods(fixedclipping_mod)
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 0.05, 0.5, 3)
    for start in (
        lambda: run(method, grid, strategy=wrapper),
        lambda: wrapper.start(grid, ArrayRecord()),
    ):
        with pytest.raises(ConfigError, match="'refit' of NotearsADMM would contradict"):
            start()
    assert not grid.training_messages


class OfUsers(DifferentialPrivacyClientSideFixedClipping):
    """A wrapper that a user derived from one of Flower's."""


@pytest.mark.parametrize(
    ("wrapper", "instead"),
    [
        (lambda m: DifferentialPrivacyClientSideFixedClipping(m, 1.0, 1.0, 3), "ServerSideFixed"),
        (
            lambda m: DifferentialPrivacyClientSideAdaptiveClipping(m, 0.1, 3),
            "ServerSideAdaptive",
        ),
        (lambda m: OfUsers(m, 1.0, 1.0, 3), "ServerSideFixed"),
        (
            lambda m: wrapped(DifferentialPrivacyClientSideFixedClipping(m, 1.0, 1.0, 3)),
            "ServerSideFixed",
        ),
    ],
)
def test_client_side_wrappers_are_refused_where_parties_do_not_clip(wrapper, instead):
    method, grid = admm(refit=False), spy(TABLES)
    with pytest.raises(
        ConfigError, match=rf"party 0 does not clip .* DifferentialPrivacy{instead}Clip"
    ):
        run(method, grid, strategy=wrapper(method))
    assert not grid.training_messages


def test_a_mod_of_local_privacy_stands_around_the_parties_app():
    inner = app_of(TABLES)
    app = ClientApp()
    app.train(mods=[LocalDpMod(0.01, 0.0, 1.0, 1e-5)])(lambda *given: inner(*given))
    app.query("schema")(lambda *given: inner(*given))
    grid = SpyGrid(app, 3)
    run(admm(refit=False, max_rounds=6), grid)
    norms = [
        update_norm(records.arrays_of(message.content), records.arrays_of(reply.content))
        for message, reply in zip(grid.training_messages, grid.replies[3:], strict=True)
    ]
    assert max(norms) == pytest.approx(0.01)
    with pytest.raises(FederationError, match="LocalDpMod expects the keys"):
        run(Moments(), SpyGrid(app, 3))
