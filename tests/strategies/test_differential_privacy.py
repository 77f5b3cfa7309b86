"""epsilon: one release with noise, and nothing else of the rows, in moments and notears-admm."""

from functools import partial
from random import Random

import numpy as np
import pandas as pd
import pytest
from federations import ask, make_federation, spy
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from sweeps import sweep

from flwr_causal.app.comparison import baselines
from flwr_causal.app.methods import CLIENTS, find
from flwr_causal.clients import Source, client_app
from flwr_causal.core.privacy.release import products_of, read, steps_of_noise
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party import noise
from flwr_causal.party import noise as privacy
from flwr_causal.party.record import PartyRecord, epsilon_spent
from flwr_causal.protocol import records
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run
from flwr_causal.runtime.checkpoint import forget
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Moments, NotearsADMM, run

FED = make_federation(d=4, n=8000, parties=4, seed=1)
TABLES = FED.tables
NAMES = list(TABLES[0].columns)
SCALES = dict.fromkeys(NAMES, 3.0)


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Let the noise of a test be the same each time."""
    monkeypatch.setattr(privacy.secrets, "randbelow", Random(7).randrange)


@pytest.mark.parametrize(
    ("secure", "scales"), [(False, None), (True, SCALES), (True, "x0=2"), (False, SCALES)]
)
def test_the_graph_is_found_under_noise(secure, scales):
    found = simulate(
        "moments", TABLES, truth=FED.truth, epsilon=1.0, scales=scales, secure_aggregation=secure
    )
    assert found.metrics["shd"] == 0
    assert found.rounds == (1 if scales == SCALES else 2)
    assert found.total_rows != 8000
    assert found.total_rows == pytest.approx(8000, rel=0.05)
    assert found.parties == {f"party {k}": 0 for k in range(4)}
    assert found.influence == {}
    assert found.columns[NAMES[0]] == {"kind": "numeric"}
    shown = found.privacy
    assert (shown["epsilon"], shown["delta"]) == (1.0, 1e-5)
    assert list(shown["scales"]) == NAMES
    assert shown["estimated_scales"] == [name for name in NAMES if name not in (scales or {})]
    assert ("all others" in shown["against"]) is not secure
    assert shown["effective_rows"] < 8000


def test_the_model_is_that_of_the_release_without_errors_by_rows():
    found = simulate("moments", TABLES, epsilon=8.0, scales=SCALES)
    exact = simulate("moments", TABLES)
    np.testing.assert_allclose(found.model.weights, exact.model.weights, atol=0.1)
    np.testing.assert_allclose(found.model.intercepts, exact.model.intercepts, atol=0.5)
    assert exact.model.total_effect("x0", "x1").standard_error is not None
    assert found.model.sample_moments is None
    for ask_rows in (found.fit_check, lambda: found.total_effect("x0", "x1")):
        with pytest.raises(ConfigError, match=r"without epsilon|no moments"):
            ask_rows()
    assert found.model.do({"x0": 1.0}) is not None


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{"solver": "ges"}, {"solver": "dagma"}, {"sparsity": "bic"}])
def test_solvers_and_standardised_columns(options):
    found = simulate("moments", TABLES, epsilon=8.0, standardize=True, **options)
    assert found.graph.num_edges > 0


def transcript(tables, secure=False, **options):
    """All that the parties sent in the schema exchange, and in the training."""
    grid = spy(tables)
    method = Moments(min_available_nodes=len(tables), secure_aggregation=secure, **options)
    outcome = run(method, grid)
    schema = [
        {
            key: value
            for key, value in records.config_of(reply.content).items()
            if key != "public-key"
        }
        for reply in grid.replies
        if reply.metadata.message_type == "query.schema"
    ]
    training = [reply.content for reply in grid.replies if reply.metadata.message_type == "train"]
    return schema, training, outcome


@pytest.mark.parametrize("secure", [False, True])
def test_nothing_else_leaves(secure):
    """Neighbouring tables, one of them odd in each way that reports tell of: the replies differ in
    the released arrays alone, not even in their sizes."""
    rows = pd.DataFrame([[np.nan, 1e12, 0.0, -3.0], [np.inf] * 4, [0.0] * 4], columns=NAMES)
    odd = pd.concat([TABLES[0], rows.astype(object)], ignore_index=True)
    odd.loc[0, NAMES[1]] = "a text"
    odd[NAMES[2]] = 1.0
    odd[NAMES[3]] = 1.0
    options = {"epsilon": 1.0, "scales": {NAMES[0]: 2.0}}
    one = transcript(TABLES, secure, **options)
    two = transcript([odd, *TABLES[1:]], secure, **options)
    assert one[0] == two[0]
    assert one[0][0]["rows"] == 0
    assert len(one[1]) == len(two[1]) == (16 if secure else 8)
    for left, right in zip(one[1], two[1], strict=True):
        assert dict(left[records.METRICS]) == dict(right[records.METRICS])
        assert left[records.METRICS][records.WEIGHT] == 1
        mine, other = left[records.ARRAYS], right[records.ARRAYS]
        assert [(k, v.shape, v.dtype, len(v.data)) for k, v in mine.items()] == [
            (k, v.shape, v.dtype, len(v.data)) for k, v in other.items()
        ]
    assert one[2].warnings == []


def test_the_noise_of_parties_is_all_of_it_alone_and_a_share_in_secure_sums(monkeypatch):
    drawn = []

    def without_noise(d, variance, below):
        drawn.append(variance)
        return np.zeros((1 + d, 1 + d), dtype=np.int64)

    monkeypatch.setattr(privacy, "noise_of", without_noise)
    plain = simulate("moments", TABLES, epsilon=1.0, scales=SCALES)
    shared, fewer = (
        simulate(
            "moments",
            TABLES,
            epsilon=1.0,
            scales=SCALES,
            secure_aggregation=True,
            quorum=quorum,
        )
        for quorum in (1.0, 0.5)
    )
    full = steps_of_noise(4, plain.privacy["noise_multiplier"], 1)
    assert drawn[:4] == [full] * 4
    # Three of four parties suffice for a sum, and have all of the noise.
    assert [len(set(part)) for part in (drawn[4:8], drawn[8:])] == [1, 1]
    assert full <= sum(drawn[4:8]) < full + 4
    assert full <= sum(drawn[8:11]) < full + 4
    worth = [one.privacy["effective_rows"] for one in (plain, fewer, shared)]
    assert worth == sorted(set(worth))
    # Without the noise the release is the moments of the clipped rows.
    sums = sum(products_of([t.to_numpy()], np.zeros(4), np.full(4, 3.0)) for t in TABLES)
    found = read(sums, 4 * full, np.zeros(4), np.full(4, 3.0))
    assert plain.num_rows == round(found.rows) == 8000


def test_noise_comes_from_the_system_not_from_the_seed(monkeypatch):
    monkeypatch.undo()
    first, second = (simulate("moments", TABLES, seed=3, epsilon=1.0) for _ in range(2))
    assert (first.graph.weights != second.graph.weights).any()


def released(grid, node, options, setup, **changes):
    """The reply of a node that is asked for its release."""
    values = {"centers": np.zeros(4), "scales": np.full(4, 3.0), **changes}
    return ask(grid, node, values, setup=setup, exchange="release", method="moments", **options)


def test_a_repeated_question_gets_the_same_bytes_and_another_one_none():
    grid = spy(TABLES)
    method = Moments(min_available_nodes=4, epsilon=1.0, scales=SCALES)
    run(method, grid)
    (sent,) = {
        message.metadata.dst_node_id: message
        for message in grid.of_exchange("release")
        if message.metadata.dst_node_id == grid.sent[-1].metadata.dst_node_id
    }.values()
    node = sent.metadata.dst_node_id
    first = next(
        reply
        for reply in grid.replies
        if reply.metadata.src_node_id == node and reply.metadata.message_type == "train"
    )
    again = released(grid, node, {}, None)
    assert isinstance(again.content[records.ARRAYS], ArrayRecord)
    assert again.content[records.ARRAYS]["products"].data == (
        first.content[records.ARRAYS]["products"].data
    )
    other = released(grid, node, {}, None, scales=np.full(4, 2.0))
    assert "makes no second one" in other.error.reason
    exact = ask(grid, node, {}, exchange="sums", method="moments")
    assert "'sums', which is for other runs" in exact.error.reason


@pytest.mark.parametrize("secure", [False, True])
def test_admm_computes_with_one_release_of_each_party(secure, monkeypatch):
    asked = []
    own = privacy.products_of
    monkeypatch.setattr(privacy, "products_of", lambda *given: asked.append(1) or own(*given))
    monkeypatch.setattr(privacy, "cached", None, raising=False)
    found = simulate(
        "notears-admm",
        TABLES,
        truth=FED.truth,
        epsilon=8.0,
        scales=SCALES,
        secure_aggregation=secure,
        max_rounds=10,
    )
    assert len(asked) == 4
    assert found.metrics["shd"] <= 1
    assert found.model.sample_moments is None
    assert found.total_rows == found.privacy["effective_rows"] < 8000
    assert "each party adds all of the noise" in found.privacy["against"]


def test_a_party_of_admm_shows_nothing_but_its_release():
    """With the same release two different tables give the same replies, bit by bit."""

    def replies(tables):
        grid = spy(tables)
        run(NotearsADMM(min_available_nodes=4, epsilon=8.0, max_rounds=8), grid)
        return [
            {k: v.data for k, v in reply.content[records.ARRAYS].items()}
            if records.ARRAYS in reply.content
            else records.config_of(reply.content)
            for reply in grid.replies
        ]

    kept, own = {}, privacy._once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            privacy,
            "_once",
            lambda context, name, *given: kept.setdefault(
                (context.node_config["partition-id"], name), own(context, name, *given)
            ),
        )
        first = replies(TABLES)
        odd = [table.iloc[:77].assign(x1=np.nan) for table in TABLES]
        assert replies(odd) == first


REFUSED = {
    "replicates": {"replicates": 10},
    "leave_one_out": {"leave_one_out": True},
    "changed_tables": {"changed_tables": "restart"},
    "center": {"center": "party"},
    "aggregation": {"aggregation": "median"},
    "model": {"model": "additive"},
    "order": {"order": 1},
    "intervention_column": {"intervention_column": "x0"},
    "sparsity": {"sparsity": "held-out"},
    "constant_columns": {"constant_columns": "drop"},
    "epsilon": {"epsilon": 0.0},
    "delta": {"delta": 1.0},
}


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_do_not_fit_are_refused(option):
    with pytest.raises(ConfigError, match=f"'{option}' is "):
        simulate("moments", TABLES, **{"epsilon": 1.0, **REFUSED[option]})


def test_perceptrons_other_methods_and_columns_that_are_not_there():
    with pytest.raises(ConfigError, match="'model' is 'mlp'; it must be 'linear' with epsilon"):
        simulate("notears-admm", TABLES, epsilon=1.0, model="mlp")
    with pytest.raises(ConfigError, match="'scales' names the column 'z'; there are x0"):
        simulate("moments", TABLES, epsilon=1.0, scales="z=1")
    with pytest.raises(ConfigError, match=r"'delta' is 0\.1, which is for epsilon"):
        simulate("moments", TABLES, delta=0.1)
    for method in ("fedges", "fedpc", "fedcausal", "lingam", "2dbn"):
        with pytest.raises(ConfigError, match="second moments are one release"):
            simulate(method, TABLES, epsilon=1.0)


def test_too_much_noise_is_an_error_that_says_so():
    tables = [table.iloc[:5] for table in TABLES]
    with pytest.raises(DataError, match="raise epsilon"):
        simulate("moments", tables, epsilon=0.1, scales=SCALES)


def test_columns_far_from_their_centre_are_named():
    far = [table.assign(x2=table["x2"] + 40) for table in TABLES]
    wide = simulate("moments", TABLES, epsilon=8.0, scales={**SCALES, "x0": 50.0})
    assert "Centres and scales do not fit x0: these" in str(wide.warnings)
    found = simulate("moments", far, epsilon=8.0, scales=SCALES)
    assert "Centres and scales do not fit" in str(found.warnings)
    near = simulate("moments", far, epsilon=8.0, scales={**SCALES, "x2": (40, 3)})
    assert near.warnings == []


def test_the_guarantee_is_saved_shown_and_printed(tmp_path):
    found = simulate("moments", TABLES, epsilon=1.0, scales=SCALES, output_dir=tmp_path)
    assert Run.load(tmp_path).privacy == found.privacy
    # A completed run is returned: no party is asked again.
    again = simulate(
        "moments", TABLES, epsilon=1.0, scales=SCALES, output_dir=tmp_path, resume=True
    )
    np.testing.assert_array_equal(again.graph.weights, found.graph.weights)
    line = "Differential privacy: epsilon 1, delta 1e-05, for one row of one party"
    assert line in str(found)
    assert any(text.startswith(line) for text in describe_run(found))
    assert "Differential privacy" in str(payload_of(found))
    assert simulate("moments", TABLES).privacy == {}


class Stops(Relay):
    """A grid whose server is killed in an exchange of the training, before the parties are asked or
    before it has their replies."""

    def __init__(self, grid, at, answered=False):
        super().__init__(grid)
        self.at, self.answered, self.messages = at, answered, []

    def before(self, messages):
        self.messages += messages
        if not self.answered:
            self.stop(messages)
        return messages

    def after(self, messages, replies):
        self.stop(messages)
        return replies

    def stop(self, messages):
        if messages[0].metadata.group_id == str(self.at):
            raise KeyboardInterrupt


def _counted(made, name, own, *given):
    made.append(name)
    return own(*given)


@pytest.fixture
def draws(monkeypatch):
    """What parties have drawn, in their order."""
    made = []
    for name in ("octaves_of", "products_of"):
        own = partial(_counted, made, name, getattr(privacy, name))
        monkeypatch.setattr(privacy, name, own)
    return made


INTERRUPTED = {
    "before the octaves": ("moments", {}, 1, False),
    "after the octaves have left": ("moments", {}, 1, True),
    "between octaves and release": ("moments", {}, 2, False),
    "after the release has left": ("moments", {}, 2, True),
    "secure, between the two": ("moments", {"secure_aggregation": True}, 2, False),
    "admm, before the first round": ("notears-admm", {"max_rounds": 6}, 1, False),
    "admm": ("notears-admm", {"max_rounds": 6}, 3, True),
    "admm, secure": ("notears-admm", {"max_rounds": 6, "secure_aggregation": True}, 3, True),
}


#: The others are nightly.
LEADING = ("after the octaves have left", "between octaves and release", "admm, secure")


@pytest.mark.parametrize("case", sweep(INTERRUPTED, LEADING))
def test_a_resumed_run_goes_on_from_the_releases(case, tmp_path, draws, monkeypatch):
    method, options, at, answered = INTERRUPTED[case]
    options = {"epsilon": 8.0, "scales": "x0=3", **options}
    whole = simulate(method, TABLES, **options)
    once = list(draws)
    assert len(once) == 8
    draws.clear()
    monkeypatch.setattr(privacy.secrets, "randbelow", Random(7).randrange)
    options |= {"output_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        simulate(method, TABLES, wrap_grid=lambda grid: Stops(grid, at, answered), **options)
    found = simulate(method, TABLES, resume=True, **options)
    assert sorted(draws) == sorted(once)
    np.testing.assert_array_equal(found.graph.weights, whole.graph.weights)
    assert found.privacy == whole.privacy
    assert not (tmp_path / "exchanges").exists()


def test_a_shared_release_is_for_one_sum_only(tmp_path, draws):
    """Under other masks others may be in the sum; the difference would have a party's part of the
    noise only."""
    options = {"epsilon": 8.0, "scales": SCALES, "secure_aggregation": True, "output_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", TABLES, wrap_grid=lambda grid: Stops(grid, 1, answered=True), **options)
    with pytest.raises(FederationError, match=r"among other parties, and makes no second one"):
        simulate("moments", TABLES, resume=True, **options)
    assert draws == ["products_of"] * 4


def test_a_changed_table_has_no_part_in_a_resumed_run(tmp_path):
    options = {"epsilon": 8.0, "scales": "x0=3", "output_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", TABLES, wrap_grid=lambda grid: Stops(grid, 2), **options)
    with pytest.raises(DataError, match="party 3: the table has changed"):
        simulate("moments", [*TABLES[:3], TABLES[3] + 1], resume=True, **options)


def nodes_of(directory=None, numbers=range(4)):
    """A grid of real nodes, each with a record in its own directory, or none of them."""
    configs = [{"name": f"site {k}", "data-path": "/a.csv"} for k in numbers]
    if directory is not None:
        for config in configs:
            own = directory / config["name"]
            own.mkdir(exist_ok=True)
            config["record"] = str(own / "record.jsonl")

    def source(context):
        name = str(context.node_config["name"])
        return Source(name, lambda: TABLES[int(name[-1])])

    return LocalGrid(client_app(CLIENTS, source), 4, node_configs=configs)


def test_one_release_is_charged_once_in_a_resumed_run(tmp_path):
    def method(**options):
        return Moments(min_available_nodes=4, epsilon=1.0, **options)

    own = {"output_dir": str(tmp_path / "run"), "scales": SCALES}
    with pytest.raises(KeyboardInterrupt):
        run(method(**own), Stops(nodes_of(tmp_path), 1, answered=True))
    outcome = run(method(**own, resume=True), nodes_of(tmp_path))
    assert outcome.graph is not None
    lines = PartyRecord(tmp_path / "site 0" / "record.jsonl").lines()
    assert len({line["run"] for line in lines}) == 2
    digests = {line["arrays"][0]["digest"] for line in lines if line["exchange"] == "release"}
    assert len(digests) == 1
    assert epsilon_spent(lines) == pytest.approx(1.0)
    run(method(scales=SCALES), nodes_of(tmp_path))
    lines = PartyRecord(tmp_path / "site 0" / "record.jsonl").lines()
    assert epsilon_spent(lines) == pytest.approx(1.4652, abs=1e-4)


def asked_again(grid, messages):
    """Ask a node that has lost its state what it was asked before, the schema as in mid-run."""
    node = grid.get_node_ids()[0]
    grid.context(node).state.clear()
    own = [message for message in messages if message.metadata.dst_node_id == node]
    replies = []
    for message in own:
        content = message.content
        kind = message.metadata.message_type
        if kind == "query.schema":
            content = RecordDict(
                {records.CONFIG: ConfigRecord({**content[records.CONFIG], "exchange": "a run"})}
            )
        again = Message(content, dst_node_id=node, message_type=kind, ttl=60.0)
        replies += grid.send_and_receive([again])
    return replies


@pytest.mark.parametrize("after_schema", [False, True])
def test_a_restarted_node_sends_the_bytes_that_it_has_sent(tmp_path, draws, after_schema):
    grid = nodes_of(tmp_path)
    watched = Stops(grid, None)
    run(Moments(min_available_nodes=4, epsilon=1.0, scales=SCALES), watched)
    record = PartyRecord(tmp_path / "site 0" / "record.jsonl")
    before = record.lines()
    messages = watched.messages[4 if after_schema else 0 :]
    reply = asked_again(grid, messages)[-1]
    assert not reply.has_error()
    assert draws == ["products_of"] * 4
    lines = record.lines()
    assert len(lines) == len(before) + (1 if after_schema else 2)
    assert lines[-1]["digest"] == before[-1]["digest"]
    assert epsilon_spent(lines) == pytest.approx(1.0)
    (file,) = (tmp_path / "site 0" / "releases").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def refusals(replies):
    return [
        reply.error.reason if reply.has_error() else records.config_of(reply.content)["error"]
        for reply in replies
    ]


def test_what_is_lost_is_not_drawn_again(tmp_path, draws):
    for directory in (None, tmp_path):
        grid = nodes_of(directory)
        watched = Stops(grid, None)
        run(Moments(min_available_nodes=4, epsilon=1.0, scales=SCALES), watched)
        if directory is not None:
            (file,) = (tmp_path / "site 0" / "releases").iterdir()
            file.write_text("{")
            for reason in refusals(asked_again(grid, watched.messages)):
                assert "cannot be read" in reason
            assert forget(tmp_path, days=1.0) == []
            assert len(forget(tmp_path)) == 4
            assert not file.exists()
        for reason in refusals(asked_again(grid, watched.messages)):
            assert "it makes no second release" in reason
    assert draws == ["products_of"] * 8


def test_an_answer_whose_state_was_lost_is_not_drawn_again(tmp_path, draws):
    grid = nodes_of(tmp_path)
    watched = Stops(grid, None)
    run(Moments(min_available_nodes=4, epsilon=1.0), watched)
    node = grid.get_node_ids()[0]
    own = [one for one in watched.messages if one.metadata.dst_node_id == node]
    drawn = list(draws)
    (file,) = (tmp_path / "site 0" / "releases").iterdir()
    kept = file.read_bytes()
    # The last answer has left, and the node did not keep what it had drawn for it.
    for name in privacy.OF_RELEASE[1:]:
        del grid.context(node).state[name]
    last = own[-1]
    again = Message(
        last.content, dst_node_id=node, message_type=last.metadata.message_type, ttl=60.0
    )
    (reply,) = grid.send_and_receive([again])
    assert not reply.has_error()
    assert draws == drawn
    lines = PartyRecord(tmp_path / "site 0" / "record.jsonl").lines()
    assert lines[-1]["digest"] == lines[-2]["digest"]
    assert file.read_bytes() == kept


def test_what_is_kept_later_is_kept_beside_the_rest(tmp_path):
    file = noise.ReleaseFile(tmp_path / "release.json")
    file.add({"private-octaves": {"drawn": [1]}})
    file.add({"private-release": {"drawn": [2]}})
    assert file.read() == {"private-octaves": {"drawn": [1]}, "private-release": {"drawn": [2]}}


def test_without_room_for_its_release_a_party_sends_none(tmp_path, monkeypatch):
    grid = nodes_of(tmp_path)
    monkeypatch.setattr("os.fsync", raising_no_space)
    with pytest.raises(DataError, match="nothing leaves the party"):
        run(Moments(min_available_nodes=4, epsilon=1.0, scales=SCALES), grid)
    assert not list(tmp_path.rglob("releases/*"))


def raising_no_space(handle):
    raise OSError(28, "No space left on device")


def test_nothing_is_compared_with_the_rows_themselves():
    client = find("moments").client
    assert baselines(Moments(epsilon=1.0), client, TABLES, tuple(NAMES), FED.truth) == {}
    assert baselines(Moments(), client, TABLES, tuple(NAMES), FED.truth)
