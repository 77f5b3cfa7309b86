"""A run that is interrupted, wherever it was, goes on to the result of an undisturbed one."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from category_federations import make_tables
from federations import app_of, make_federation
from flwr.app import ConfigRecord, Error, Message
from lagged_systems import simulate_series
from neural_rows import nonlinear_rows

from flwr_causal import Knowledge
from flwr_causal.core.ges.speculative_search import SpeculativeGains
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.runtime import checkpoint
from flwr_causal.runtime.training import Training
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.relay import KilledError, Killing, Relay
from flwr_causal.strategies import NotearsADMM, Result

LINEAR = make_federation(d=4, n=200, parties=3).tables
SERIES = [
    simulate_series(seed, 80, np.triu(np.full((3, 3), 0.6), 1), 0.4 * np.eye(3)) for seed in (0, 1)
]
STATES = make_tables(d=5, n=300, parties=3, seed=4)[0]
CURVED = [nonlinear_rows(60, seed) for seed in range(2)]


def classes(seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, 240)
    frame = pd.DataFrame(rng.normal(size=(240, 4)) + label[:, None], columns=list("abcd"))
    frame["target"] = np.where(label, "yes", "no")
    return frame


FRAME = classes()
ROWS = [FRAME.iloc[part] for part in np.array_split(np.arange(240), 3)]
IDS = FRAME.assign(row_id=np.arange(240))
COLUMNS = [IDS[["row_id", "a", "b", "target"]], IDS[["row_id", "c", "d"]].sample(frac=1.0)]

CASES = {
    "admm": ("notears-admm", LINEAR, {"max_rounds": 8}),
    "admm float32": ("notears-admm", LINEAR, {"max_rounds": 8, "precision": "float32"}),
    "admm sampled": ("notears-admm", LINEAR, {"max_rounds": 8, "fraction_train": 0.6}),
    "2dbn": ("2dbn", SERIES, {"max_rounds": 8}),
    "moments": ("moments", LINEAR, {}),
    "moments regressions": (
        "moments",
        ROWS,
        {
            "text_columns": "keep",
            "parameters": "likelihood",
            "knowledge": Knowledge(required=[("a", "target")]),
        },
    ),
    "lingam": ("lingam", LINEAR, {}),
    "fedcausal": ("fedcausal", CURVED, {"max_rounds": 6}),
    "fedcausal linear": ("fedcausal", LINEAR, {"model": "linear", "max_rounds": 6}),
    "ges scores": ("fedges", STATES, {"mode": "scores"}),
    "ges scores driven": (
        "fedges",
        STATES,
        {"mode": "scores", "start": "driven", "patience": 1},
    ),
    "ges exact": ("fedges", STATES, {"mode": "exact"}),
    "ges fusion": ("fedges", STATES, {"mode": "fusion"}),
    "ges loop": ("fedges", STATES, {"mode": "fusion", "start": "fuse", "keep": "last"}),
    "ges cuts": ("fedges", LINEAR, {"discretize": 3}),
    "pc rows": ("fedpc", ROWS, {}),
    "pc trees": ("fedpc", ROWS, {"learner": "trees", "bins": 4}),
    "pc columns": ("fedpc", COLUMNS, {"training": "one-pass"}),
    "pc classes": ("fedpc", COLUMNS, {}),
    "pc em": ("fedpc", COLUMNS, {"weights": "em", "learner": "trees", "bins": 4}),
    "pc own rows": ("fedpc", ROWS, {"training": "one-pass", "weights": "counts"}),
}
#: One mode of each method and of each kind of exchange; the nightly tests have all of them.
LEADING = (
    *("admm", "2dbn", "moments", "lingam", "fedcausal", "ges scores", "ges exact", "ges loop"),
    *("pc rows", "pc columns", "pc em"),
)
NETWORKS = {
    "admm mlp": ("notears-admm", CURVED, {"model": "mlp", "max_rounds": 6, "inner_steps": 5}),
    "fedcausal mlp": ("fedcausal", CURVED, {"model": "mlp", "max_rounds": 4, "inner_steps": 5}),
}


def found(run):
    """What must not change, every bit of it."""
    plain = [
        {key: value for key, value in record.items() if not key.endswith("seconds")}
        for record in run.history
    ]
    arrays = []
    if run.graph is not None:
        arrays += [run.graph.weights, run.graph.adjacency, run.scores]
        arrays += getattr(run.model, "parameters", {}).values()
    if run.graph is None:
        arrays.append(run.model.log_likelihood(FRAME.assign(row_id=np.arange(240))))
    return plain, arrays


def same(one, two):
    (history, arrays), (other_history, other_arrays) = found(one), found(two)
    assert history == other_history
    for array, other in zip(arrays, other_arrays, strict=True):
        np.testing.assert_array_equal(array, other)


def check_resumed(case, directory, places):
    method, parties, options = case
    whole = simulate(method, parties, **options)
    for place in places(whole.rounds):
        target = directory / str(place)
        with pytest.raises(KilledError):
            simulate(
                method,
                parties,
                output_dir=target,
                wrap_grid=lambda grid, place=place: Killing(grid, place),
                **options,
            )
        assert Run.load(target).rounds == place - 1
        resumed = simulate(method, parties, output_dir=target, resume=True, **options)
        same(resumed, whole)
        assert checkpoint.status_of(target) == "completed"
        assert not (target / "exchanges").exists()
    # A completed run is returned as it was: the parties are asked for their reports alone.
    again = simulate(
        method,
        parties,
        output_dir=target,
        resume=True,
        wrap_grid=lambda grid: Killing(grid, 1),
        **options,
    )
    assert again.history == resumed.history


def some(rounds):
    return sorted({(rounds + 1) // 2, rounds})


def many(rounds):
    return sorted({round(place) for place in np.linspace(1, rounds, 4)})


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", LEADING)
def test_a_killed_run_goes_on_to_the_same_result(name, tmp_path):
    check_resumed(CASES[name], tmp_path, some)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_too(name, tmp_path):
    pytest.importorskip("torch", reason="perceptrons need torch")
    check_resumed(NETWORKS[name], tmp_path, some)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*CASES, *NETWORKS])
def test_wherever_it_is_killed(name, tmp_path):
    check_resumed((CASES | NETWORKS)[name], tmp_path, many)


ADMM = {"max_rounds": 8}


def interrupted(directory, exchange=5, **options):
    with pytest.raises(KilledError):
        simulate(
            "notears-admm",
            LINEAR,
            output_dir=directory,
            wrap_grid=lambda grid: Killing(grid, exchange),
            **{**ADMM, **options},
        )


def resumed(directory, parties=LINEAR, **options):
    return simulate(
        "notears-admm", parties, output_dir=directory, resume=True, **{**ADMM, **options}
    )


def test_what_is_on_disk_when_a_run_is_killed(tmp_path):
    interrupted(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["status"] == "stopped"
    assert content["rounds"] == 4
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 4
    run = Run.load(tmp_path)
    assert run.status == "stopped"
    assert run.graph is None
    assert run.config["max_rounds"] == 8


def test_the_file_says_running_while_it_runs(tmp_path):
    seen = []

    class Watching(Relay):
        def before(self, messages):
            if (tmp_path / "run.json").exists():
                content = json.loads((tmp_path / "run.json").read_text())
                seen.append((content["status"], content["rounds"]))
            return messages

    simulate(
        "notears-admm",
        LINEAR,
        output_dir=tmp_path,
        wrap_grid=Watching,
        **ADMM,
    )
    assert seen == [("running", 0), *(("running", k) for k in range(len(seen) - 1))]
    assert Run.load(tmp_path).status == "completed"


def test_nothing_to_resume_starts_and_an_empty_directory_is_fine(tmp_path):
    assert resumed(tmp_path / "new").rounds == resumed(tmp_path).rounds


def test_without_resume_an_earlier_run_is_replaced(tmp_path):
    interrupted(tmp_path)
    run = simulate("notears-admm", LINEAR, output_dir=tmp_path, **ADMM)
    assert run.history[0]["round"] == 1
    assert Run.load(tmp_path).rounds == run.rounds


@pytest.mark.parametrize(
    ("options", "words"),
    [({"max_rounds": 9}, "max_rounds=8, not 9"), ({"threshold": 0.2}, "threshold=None, not 0.2")],
)
def test_other_options_are_refused(tmp_path, options, words):
    interrupted(tmp_path)
    with pytest.raises(ConfigError, match=words):
        resumed(tmp_path, **options)
    same(resumed(tmp_path), simulate("notears-admm", LINEAR, **ADMM))


def test_other_tables_are_refused(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be resumed: party 1 is connected, but"):
        resumed(tmp_path, [LINEAR[0], LINEAR[1] + 1.0, LINEAR[2]])
    same(resumed(tmp_path), simulate("notears-admm", LINEAR, **ADMM))


def test_a_completed_run_is_returned_to_the_same_tables_alone(tmp_path, monkeypatch):
    options = {"output_dir": tmp_path, "resume": True, "max_rounds": 6}
    done = simulate("notears-admm", LINEAR, **options)
    said = []
    monkeypatch.setattr(
        "flwr_causal.app.job.log", lambda level, text, *own: said.append(text % own)
    )
    assert simulate("notears-admm", LINEAR, **options).graph.equals(done.graph)
    assert said == [
        f"Nothing was computed: the run in '{tmp_path}' was completed on "
        f"{datetime.now(UTC):%Y-%m-%d}, of the same tables"
    ]
    other = [LINEAR[0] + 1, *LINEAR[1:]]
    with pytest.raises(ConfigError, match=r"of today: another table: party 0\. Give another"):
        simulate("notears-admm", other, **options)
    with pytest.raises(ConfigError, match="not in that run: party"):
        simulate("notears-admm", [*LINEAR, LINEAR[0]], **options)
    with pytest.raises(ConfigError, match="missing now: party"):
        simulate("notears-admm", LINEAR[:-1], **options)
    monkeypatch.setattr("flwr_causal.app.job.own_version", lambda: "0.0.7")
    monkeypatch.setattr("flwr_causal.app.job.is_another", lambda version: version != "0.0.7")
    with pytest.raises(ConfigError, match=r"is completed, by version .* this is 0\.0\.7"):
        simulate("notears-admm", LINEAR, **options)


@pytest.mark.parametrize("how", [{"secure_aggregation": True}, {"epsilon": 50.0}])
def test_a_completed_run_of_secure_sums_and_one_with_noise(how, tmp_path, caplog):
    options = {"output_dir": tmp_path, "resume": True, **how}
    done = simulate("moments", LINEAR, **options)
    assert simulate("moments", LINEAR, **options).graph.equals(done.graph)
    other = [LINEAR[0] * 2, *LINEAR[1:]]
    if "epsilon" in how:  # asking again would spend more of the budget
        assert simulate("moments", other, **options).graph.equals(done.graph)
        assert "its tables were not compared" in caplog.text
    else:
        with pytest.raises(ConfigError, match="another table: all together"):
            simulate("moments", other, **options)


def test_another_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "own_version", lambda: "0.0.1")
        interrupted(tmp_path)
    with pytest.raises(ConfigError, match=r"\(version of flwr-causal\)"):
        resumed(tmp_path)
    assert Run.load(tmp_path).rounds == 4


def test_code_that_asks_something_else_is_refused(tmp_path, monkeypatch):
    """Replies to other questions, such as of a longer search, would give another graph."""
    options = {"mode": "scores", "output_dir": tmp_path}
    with monkeypatch.context() as earlier:
        earlier.setattr(SpeculativeGains, "must_stop", lambda self: bool(self._asked))
        with pytest.raises(KilledError):
            simulate("fedges", STATES, wrap_grid=lambda grid: Killing(grid, 4), **options)
    with pytest.raises(ConfigError, match=r"exchange 2 asked something else than FedGES asks"):
        simulate("fedges", STATES, resume=True, **options)


def test_code_that_needs_fewer_exchanges_is_refused(tmp_path, monkeypatch):
    interrupted(tmp_path, exchange=8)

    def early(self, agreement, replicate=0):
        return Result(reason="early")
        yield

    monkeypatch.setattr(NotearsADMM, "train", early)
    with pytest.raises(ConfigError, match=r"exchange 1 asked something else"):
        resumed(tmp_path)


def test_options_that_do_not_change_the_result_may_differ(tmp_path):
    interrupted(tmp_path)
    assert resumed(tmp_path, round_timeout=77.0, quorum=1.0).rounds > 5


def test_a_failed_run_goes_on(tmp_path):
    """Too few parties replied; once they are back, the run is resumed."""

    class Deaf(Relay):
        def after(self, messages, replies):
            return [] if messages[0].metadata.group_id == "4" else replies

    with pytest.raises(FederationError, match="only 0 parties"):
        simulate(
            "notears-admm",
            LINEAR,
            output_dir=tmp_path,
            wrap_grid=Deaf,
            round_timeout=1.0,
            **ADMM,
        )
    failed = Run.load(tmp_path)
    assert failed.status == "failed"
    assert "only 0 parties" in failed.error
    assert failed.graph is not None
    run = resumed(tmp_path)
    whole = simulate("notears-admm", LINEAR, **ADMM)
    np.testing.assert_array_equal(run.graph.weights, whole.graph.weights)
    assert run.status == "completed"


def test_a_training_that_started_again_is_resumed(tmp_path):
    """The restart is part of what happened."""

    def faulty(kill):
        class Losing(Killing):
            def after(self, messages, replies):
                number = messages[0].metadata.group_id
                return [r for r in replies if number != "2" or r.metadata.src_node_id != 3]

        return lambda grid: Losing(grid, kill)

    options = {"mode": "exact", "round_timeout": 1.0}
    whole = simulate("fedges", STATES, wrap_grid=faulty(-1), **options)
    assert "started_again" in whole.history[1]
    for place in (3, 4):
        target = tmp_path / str(place)
        with pytest.raises(KilledError):
            simulate("fedges", STATES, output_dir=target, wrap_grid=faulty(place), **options)
        again = simulate(
            "fedges", STATES, output_dir=target, resume=True, wrap_grid=faulty(-1), **options
        )
        same(again, whole)
        assert again.failures == whole.failures


def test_a_directory_that_cannot_be_used_is_found_before_the_first_exchange(tmp_path):
    (tmp_path / "file").write_text("")
    asked = []

    class Counting(Relay):
        def before(self, messages):
            asked.append(1)
            return messages

    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="cannot be written"):
            simulate("moments", LINEAR, output_dir=place, wrap_grid=Counting)
    assert asked == []
    with pytest.raises(ConfigError, match="output_dir"):
        simulate("moments", LINEAR, resume=True)


def test_a_disk_that_fills_up_does_not_end_the_run(tmp_path, monkeypatch):
    written = []

    def write(path, data):
        written.append(path)
        if len(written) > 12:
            raise OSError(28, "No space left on device")
        return real(path, data)

    real = checkpoint.write
    monkeypatch.setattr(checkpoint, "write", write)
    run = simulate("notears-admm", LINEAR, output_dir=tmp_path, **ADMM)
    assert any("No space left" in warning for warning in run.warnings)
    np.testing.assert_array_equal(
        run.graph.weights, simulate("notears-admm", LINEAR, **ADMM).graph.weights
    )


def test_a_write_that_is_cut_short_leaves_the_former_file(tmp_path, monkeypatch):
    run = simulate("moments", LINEAR, output_dir=tmp_path)
    before = (tmp_path / "run.json").read_bytes(), (tmp_path / "graph.json").read_bytes()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flwr_causal.reports.run.write_all", full)
    with pytest.raises(ConfigError, match="No space left"):
        run.save(tmp_path)
    assert before == ((tmp_path / "run.json").read_bytes(), (tmp_path / "graph.json").read_bytes())
    assert Run.load(tmp_path).graph.equals(run.graph)


def test_nothing_leaves_a_party_in_a_replay(tmp_path):
    interrupted(tmp_path)
    replies = []

    class Watching(Relay):
        def after(self, messages, here):
            if {records.config_of(m.content).get("exchange") for m in messages} == {"replay"}:
                replies.extend(here)
            return here

    simulate(
        "notears-admm",
        LINEAR,
        output_dir=tmp_path,
        resume=True,
        wrap_grid=Watching,
        **ADMM,
    )
    assert [dict(reply.content["metrics"]) for reply in replies] == [
        {"num-examples": 1.0, "round": 4}
    ] * 3
    assert all(set(reply.content) == {"metrics"} for reply in replies)


class Reached(Killing):
    """Loses the replies of some nodes in some exchanges."""

    def __init__(self, grid, lost, kill=-1) -> None:
        super().__init__(grid, kill)
        self.lost = lost

    def after(self, messages, replies):
        return [r for r in replies if not self.lost(r.metadata.group_id, r.metadata.src_node_id)]


# Where several exchanges are summed, the training starts again without the party that was lost.
# Cut points and the last exchange of FedGES are not: a party lost there may change the graph.
STARTS_AGAIN = ("ges exact", "pc rows", "pc trees", "pc own rows")


def check_lost_for_good(name, directory, places):
    """Resume without the last party, and lose it in a run that is not interrupted."""
    method, parties, options = CASES[name]
    last = 1 + len(parties)

    def ended(tables, **more):
        """Return the run, or the text of its error with one reason for a party's failure."""
        try:
            return simulate(method, tables, round_timeout=1.0, **options, **more)
        except FederationError as error:
            return str(error).replace("no reply within 1 s", "it is not connected")

    for place in places(ended(parties).rounds):
        kept = {"output_dir": directory / str(place)}
        with pytest.raises(KilledError):
            ended(parties, wrap_grid=lambda grid, place=place: Killing(grid, place), **kept)

        def lost(group, node, place=place):
            return node == last and group.isdigit() and int(group) >= place

        run = ended(parties[:-1], resume=True, **kept)
        expected = ended(parties, wrap_grid=lambda grid, lost=lost: Reached(grid, lost))
        if isinstance(expected, str):  # the party alone holds columns
            # Masked tables are asked for again, so that the exchange before may be the last one.
            assert run.partition(":")[2] == expected.partition(":")[2]
            continue
        np.testing.assert_equal(found(run)[1], found(expected)[1])
        took_part = [record["parties"] for record in run.history]
        assert took_part == [record["parties"] for record in expected.history]
        missed = [(one["round"], one["party"]) for one in run.failures]
        assert missed == [(one["round"], one["party"]) for one in expected.failures]
        assert f"resumed after exchange {place - 1} without party {last - 2}" in "".join(
            run.warnings
        )
        # The tables of a graph that was found may come from fewer parties than the graph.
        if name in STARTS_AGAIN and run.history[place - 1]["exchange"] != "fit":
            np.testing.assert_equal(found(run)[1], found(ended(parties[:-1]))[1])


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", LEADING)
def test_a_party_that_is_lost_for_good_is_left_out(name, tmp_path):
    check_lost_for_good(name, tmp_path, lambda rounds: [(rounds + 1) // 2])


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_wherever_it_is_lost_for_good(name, tmp_path):
    check_lost_for_good(name, tmp_path, many)


def test_a_run_without_a_lost_party_is_resumed_again(tmp_path):
    interrupted(tmp_path, 3)
    with pytest.raises(KilledError):
        resumed(tmp_path, LINEAR[:2], wrap_grid=lambda grid: Killing(grid, 5))
    assert resumed(tmp_path, LINEAR[:2]).rounds == ADMM["max_rounds"]
    interrupted(tmp_path, 3)
    with pytest.raises(KilledError):
        resumed(tmp_path, LINEAR[:2], wrap_grid=lambda grid: Killing(grid, 5))
    back = resumed(tmp_path)
    assert [record["parties"] for record in back.history] == [3, 3, 2, 2, 3, 3, 3, 3]
    assert [failure["round"] for failure in back.failures] == [3, 4]


def test_the_quorum_decides_whether_a_resumed_run_goes_on(tmp_path):
    interrupted(tmp_path)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(FederationError, match=r"none of its parties is connected \(party 0, par"):
        resumed(tmp_path, wrap_grid=lambda grid: Reached(grid, lambda group, _: group == "schema"))
    assert (tmp_path / "run.json").read_bytes() == before
    with pytest.raises(FederationError, match=r"Exchange 5: only 1 parties .* asks for 2"):
        resumed(tmp_path, LINEAR[:1])
    same(resumed(tmp_path), simulate("notears-admm", LINEAR, **ADMM))


def test_a_party_that_was_not_in_the_run_takes_no_part(tmp_path):
    interrupted(tmp_path)
    run = resumed(tmp_path, [*LINEAR, LINEAR[0]])
    same(run, simulate("notears-admm", LINEAR, **ADMM))
    assert any("party 3 is connected, but was not in the run" in one for one in run.warnings)
    assert list(run.parties) == ["party 0", "party 1", "party 2"]


def test_a_party_that_does_not_answer_the_replay_is_asked_again(tmp_path):
    """In the next exchange, where it is sent the requests again."""
    interrupted(tmp_path)
    replays = []

    class Losing(Relay):
        def after(self, messages, replies):
            if records.config_of(messages[0].content).get("exchange") == "replay":
                replays.append(len(messages))
                if len(replays) == 1:
                    return [reply for reply in replies if reply.metadata.src_node_id != 3]
            return replies

    run = resumed(tmp_path, wrap_grid=Losing, round_timeout=1.0)
    assert replays == [3, 1]
    assert run.failures == [{"round": 4, "party": "party 1", "reason": "no reply within 1 s"}]
    same(run, simulate("notears-admm", LINEAR, **ADMM))


def test_a_party_that_is_not_asked_any_more_stays_so(tmp_path):
    """It failed three times in a row before the interruption."""

    def faulty(kill):
        lost = lambda number, node: node == 3 and number in ("2", "3", "4")  # noqa: E731
        return lambda grid: Reached(grid, lost, kill)

    options = {"max_rounds": 8, "round_timeout": 1.0}
    whole = simulate("notears-admm", LINEAR, wrap_grid=faulty(-1), **options)
    assert [record["parties"] for record in whole.history[:6]] == [3, 2, 2, 2, 2, 2]
    with pytest.raises(KilledError):
        simulate("notears-admm", LINEAR, output_dir=tmp_path, wrap_grid=faulty(6), **options)
    again = simulate(
        "notears-admm", LINEAR, output_dir=tmp_path, resume=True, wrap_grid=faulty(-1), **options
    )
    same(again, whole)
    assert again.failures == whole.failures


def test_a_replay_whose_reply_is_lost_is_repeated(tmp_path):
    interrupted(tmp_path)
    dropped = []

    class Losing(Relay):
        def after(self, messages, replies):
            replay = records.config_of(messages[0].content).get("exchange") == "replay"
            if not replay or dropped:
                return replies
            dropped.append(replies[0])
            lost = replies[0]
            error = Error(0, "the reply was lost")
            return [Message(error, reply_to=messages[0]), *[r for r in replies if r is not lost]]

    run = simulate(
        "notears-admm",
        LINEAR,
        output_dir=tmp_path,
        resume=True,
        wrap_grid=Losing,
        **ADMM,
    )
    assert len(dropped) == 1
    same(run, simulate("notears-admm", LINEAR, **ADMM))


def started(method, grid, **options):
    return method.start(grid=grid, **options).outcome


def test_start_resumes_on_the_same_nodes_with_the_same_values_for_the_clients(tmp_path):
    def method(**options):
        return NotearsADMM(max_rounds=8, min_available_nodes=3, **options)

    def failing(number, arrays):
        if number == 4:
            raise KilledError

    config = {"train_config": ConfigRecord({"note": b"bytes", "factor": 2.0})}
    whole = started(method(), LocalGrid(app_of(LINEAR), 3), **config)
    kept = {"output_dir": str(tmp_path)}
    grid = LocalGrid(app_of(LINEAR), 3)
    with pytest.raises(KilledError):
        started(method(**kept), grid, evaluate_fn=failing, **config)
    with pytest.raises(ConfigError, match="train_config"):
        started(method(**kept, resume=True), grid)
    outcome = started(method(**kept, resume=True), grid, **config)
    np.testing.assert_array_equal(outcome.graph.weights, whole.graph.weights)
    assert outcome.status == "completed"


def test_a_resumed_run_that_fails_early_leaves_the_directory_as_it_was(tmp_path):
    interrupted(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(DataError, match=r"party 0: .* no columns"):
        resumed(tmp_path, [LINEAR[0].drop(columns=list(LINEAR[0])), *LINEAR[1:]])
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    same(resumed(tmp_path), simulate("notears-admm", LINEAR, **ADMM))


def test_a_killed_run_does_not_show_the_results_of_an_earlier_one(tmp_path):
    simulate("notears-admm", LINEAR, output_dir=tmp_path, **ADMM)
    interrupted(tmp_path)
    assert Run.load(tmp_path).graph is None
    assert not (tmp_path / "graph.json").exists()


def test_a_run_that_ended_before_its_results_were_saved_is_taken_up(tmp_path, monkeypatch):
    def killed(run, directory, **how):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", killed)
        with pytest.raises(KilledError):
            simulate("notears-admm", LINEAR, output_dir=tmp_path, **ADMM)
    assert checkpoint.status_of(tmp_path) == "completed"
    same(resumed(tmp_path), simulate("notears-admm", LINEAR, **ADMM))


def test_parties_that_have_changed_places_or_names_are_refused(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(ConfigError, match=r"party 0 is connected, but .* party 1 is conn"):
        resumed(tmp_path, [LINEAR[1], LINEAR[0], LINEAR[2]])


def test_exchanges_of_another_run_are_not_mixed_in(tmp_path):
    """Two runs wrote into one directory at the same time."""
    other = tmp_path / "other"
    interrupted(other, 7)
    interrupted(tmp_path, 3)
    for number in (3, 4, 5):
        name = f"{number:06d}.npz"
        shutil.copy(other / "exchanges" / name, tmp_path / "exchanges" / name)
    asked = []

    class Counting(Relay):
        def before(self, messages):
            asked.append(messages[0].metadata.group_id)
            return messages

    run = simulate(
        "notears-admm",
        LINEAR,
        output_dir=tmp_path,
        resume=True,
        wrap_grid=Counting,
        **ADMM,
    )
    assert "3" in asked
    same(run, simulate("notears-admm", LINEAR, **ADMM))


def test_another_method_is_named_first(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(ConfigError, match="had method='notears-admm', not 'fedcausal'"):
        simulate("fedcausal", LINEAR, output_dir=tmp_path, resume=True, max_rounds=6)


def headed(head):
    """A file of an exchange with another head."""
    return records.npz({"head": np.frombuffer(head, dtype=np.uint8)})


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"text", headed(b"[]"), headed(b"{}"), headed(b"[" * 100_000), headed(b"\xff")],
)
def test_a_damaged_file_is_named(tmp_path, content):
    interrupted(tmp_path)
    (tmp_path / "exchanges" / "000003.npz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"000003.npz.*cannot be read"):
        resumed(tmp_path)
    assert Run.load(tmp_path).rounds == 4


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"parties": [1]}', "[[1]]"])
def test_a_damaged_agreement_is_named(tmp_path, content):
    interrupted(tmp_path)
    (tmp_path / "exchanges" / "agreement.json").write_text(content)
    with pytest.raises(ConfigError, match=r"agreement.json.*cannot be read"):
        resumed(tmp_path)


def altered(file, name, change):
    """Write a file of an exchange with another array; None leaves it out."""
    with np.load(file) as archive:
        arrays = dict(archive)
    (key,) = (key for key in arrays if key.endswith(f" {name}"))
    values = arrays.pop(key)
    if change is not None:
        arrays[key] = change(values)
    file.write_bytes(records.npz(arrays))


OTHER_FORMS = {
    "missing": None,
    "longer": lambda values: np.concatenate([values, values]),
    "reshaped": lambda values: values[None],
    "texts": lambda values: values.astype("U3"),
    "empty": lambda values: values[:0],
    "other entries": lambda values: values + 1,
}


@pytest.mark.few(4)
@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize(
    ("case", "name"), [("fedcausal", "squared-norms"), ("ges scores", "gains")]
)
def test_replies_of_another_form_are_named(tmp_path, case, name, form):
    """They are arrays as any other; the method would fail, or have another result."""
    method, tables, options = CASES[case]
    with pytest.raises(KilledError):
        simulate(
            method, tables, output_dir=tmp_path, wrap_grid=lambda grid: Killing(grid, 2), **options
        )
    altered(tmp_path / "exchanges" / "000001.npz", name, OTHER_FORMS[form])
    with pytest.raises(ConfigError, match=r"000001.npz.*not those that were written"):
        simulate(method, tables, output_dir=tmp_path, resume=True, **options)
    assert Run.load(tmp_path).rounds == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("history before", [3]), ("history before", {}), ("setup-exchange", None)],
)
def test_an_agreement_of_another_form_is_named(tmp_path, key, value):
    interrupted(tmp_path)
    file = tmp_path / "exchanges" / "agreement.json"
    content = json.loads(file.read_text())
    assert key in content
    file.write_text(json.dumps({**content, key: value}))
    with pytest.raises(ConfigError, match=rf"agreement.json.*{key}(\[0\])? is no "):
        resumed(tmp_path)


def test_a_full_disk_is_found_before_the_first_exchange(tmp_path, monkeypatch):
    real = os.fsync

    def fsync(descriptor):
        if os.fstat(descriptor).st_size:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ConfigError, match="No space left"):
        simulate(
            "moments", LINEAR, output_dir=tmp_path, wrap_grid=lambda grid: Killing(grid, "schema")
        )


def test_results_cannot_be_saved_where_a_file_stands(tmp_path):
    run = simulate("moments", LINEAR)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        run.save(tmp_path / "file")


def test_the_history_grows_by_what_is_new_and_a_line_that_was_cut_short_is_not_read(
    tmp_path, monkeypatch
):
    written, removed = [], []
    write, unlink = checkpoint.write, Path.unlink
    monkeypatch.setattr(
        checkpoint, "write", lambda path, data: (written.append(path.name), write(path, data))
    )
    monkeypatch.setattr(
        Path, "unlink", lambda path, **how: (removed.append(path.name), unlink(path, **how))
    )
    whole = simulate("notears-admm", LINEAR, max_rounds=8, output_dir=tmp_path)
    # Once as the run begins, and not after each exchange.
    assert written.count("history.jsonl") <= 2
    assert removed.count("graph.json") <= 1
    assert Run.load(tmp_path).history == whole.history
    file = tmp_path / "history.jsonl"
    assert [json.loads(line) for line in file.read_text().splitlines()] == whole.history
    file.write_bytes(file.read_bytes()[:-20])
    assert Run.load(tmp_path).history == whole.history[:-1]


def test_what_is_sent_is_prepared_once_an_exchange(monkeypatch):
    prepared = []
    ask = Training.ask
    monkeypatch.setattr(Training, "ask", lambda self: prepared.append(1) or ask(self))
    assert simulate("notears-admm", LINEAR, max_rounds=8).rounds == len(prepared)
