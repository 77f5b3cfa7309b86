"""Secure sums from which parties are missing: who is in them, what is refused, what is said."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import Losing, app_of, disturbed, losing, make_federation, raising, spy
from tampering import guarded, recorded

from flwr_causal.errors import CausalError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.runtime.training import Training
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.relay import KilledError
from flwr_causal.strategies import Moments, NotearsADMM, run

TABLES = make_federation(d=4, n=240, parties=5, seed=1).tables
ADMM = {"secure_aggregation": True, "max_rounds": 6}


def same(one, other):
    np.testing.assert_array_equal(one.graph.adjacency, other.graph.adjacency)
    atol = 1e-12 * np.abs(other.graph.weights).max()
    np.testing.assert_allclose(one.graph.weights, other.graph.weights, rtol=0, atol=atol)


@pytest.mark.parametrize("replies", [False, True])
def test_a_run_with_missing_parties_is_that_of_plain_sums_over_the_others(replies):
    lost = {(2, False): [1], (3, False): [0, 4], (6, False): [3]}
    plain = simulate("notears-admm", TABLES, wrap_grid=losing(lost, replies=replies), max_rounds=6)
    masked = simulate("notears-admm", TABLES, wrap_grid=losing(lost, replies=replies), **ADMM)
    parties = [record["parties"] for record in masked.history]
    assert parties == [record["parties"] for record in plain.history] == [5, 4, 3, 5, 5, 4]
    same(masked, plain)
    assert {failure["party"] for failure in masked.failures} == {f"party {k}" for k in (0, 1, 3, 4)}
    (warning,) = [text for text in masked.warnings if text.startswith("Some secure sums lack")]
    assert "party 0, party 1, party 3, party 4" in warning


def test_an_answer_that_is_missing_in_the_unmasking_costs_nothing():
    clean = simulate("notears-admm", TABLES, **ADMM)
    masked = simulate(
        "notears-admm", TABLES, wrap_grid=losing({(2, True): [0, 3], (4, True): [1]}), **ADMM
    )
    np.testing.assert_array_equal(masked.graph.weights, clean.graph.weights)
    assert [record["parties"] for record in masked.history] == [5] * 6
    assert not [text for text in masked.warnings if "lack" in text]


def test_bytes_and_seconds_of_the_unmasking_are_counted():
    one, two = (
        simulate("moments", TABLES, secure_aggregation=True, quorum=quorum) for quorum in (1.0, 0.5)
    )
    (record,), (both,) = one.history, two.history
    shares, keys = 4 * 48, 128 + 5 * 32 + len("keys" + "num-examples" + "round") + 16
    assert both["party_bytes_received"] == record["party_bytes_received"] + shares + keys
    assert both["bytes_sent"] > record["bytes_sent"]
    assert set(both["party_seconds"]) == {f"party {k}" for k in range(5)}


def test_the_sums_of_a_method_go_on_without_a_party_that_missed_the_first(monkeypatch):
    seen, give = {}, Training.give

    def watched(self, replies):
        seen.update(replies.combined)
        return give(self, replies)

    monkeypatch.setattr(Training, "give", watched)
    options = {"secure_aggregation": True, "center": "global"}
    found = simulate("moments", TABLES, wrap_grid=losing({(1, False): [2]}), **options)
    centred = pd.concat(TABLES).to_numpy().mean(axis=0)
    rows = np.concatenate([table.to_numpy() - centred for k, table in enumerate(TABLES) if k != 2])
    rows = np.column_stack([np.ones(len(rows)), rows])
    np.testing.assert_allclose(
        seen["moments"][0], rows.T @ rows / len(rows), rtol=0, atol=1e-13 * np.abs(rows).max() ** 2
    )
    assert found.status == "completed"
    assert found.total_rows == 240
    # The next sums of such a method are of the same parties, though the party would answer.
    calls = []

    def counting(grid):
        calls.append(Losing(grid, {(1, False): [2]}))
        return calls[-1]

    series = simulate("lingam", TABLES, wrap_grid=counting, secure_aggregation=True)
    assert {record["parties"] for record in series.history} == {4}
    assert series.rounds > 1


def test_a_party_of_earlier_sums_that_must_be_the_same_ends_the_run():
    with pytest.raises(FederationError, match="earlier sums of this method have them in it") as out:
        simulate("lingam", TABLES, wrap_grid=losing({(2, False): [2]}), secure_aggregation=True)
    assert "party 2" in str(out.value)


def test_too_few_parties_end_the_run_after_they_were_asked_again():
    grids = []

    def watched(grid):
        grids.append(Losing(grid, {(2, False): [0, 1, 2]}))
        return grids[-1]

    with pytest.raises(FederationError, match="that of 3 of the 5 parties at least"):
        simulate("notears-admm", TABLES, wrap_grid=watched, **ADMM)
    assert grids[0].calls.count((2, False)) == 2
    assert (2, True) not in grids[0].calls
    with pytest.raises(FederationError, match="that of 4 of the 5 parties at least"):
        simulate("notears-admm", TABLES, wrap_grid=losing({(2, False): [0, 1]}), quorum=0.8, **ADMM)


def test_a_sum_that_cannot_be_unmasked_ends_the_run_and_is_not_repeated():
    grids = []

    def watched(grid):
        grids.append(Losing(grid, {(2, False): [1], (2, True): [3]}))
        return grids[-1]

    with pytest.raises(FederationError, match=r"party 3.*have not helped to unmask the sum"):
        simulate("notears-admm", TABLES, wrap_grid=watched, **ADMM)
    assert grids[0].calls[-3:] == [(2, False), (2, True), (2, True)]


def test_a_party_without_totals_is_left_out_of_the_run():
    found = simulate("notears-admm", TABLES, wrap_grid=losing({(0, False): [1]}), **ADMM)
    others = [table for k, table in enumerate(TABLES) if k != 1]
    np.testing.assert_allclose(
        found.graph.weights,
        simulate("notears-admm", others, max_rounds=6).graph.weights,
        atol=1e-12,
    )
    assert found.total_rows == 192
    assert list(found.parties) == ["party 0", "party 2", "party 3", "party 4"]
    assert any("The run began without party 1" in text for text in found.warnings)
    assert [failure["party"] for failure in found.failures] == ["party 1"]


def test_what_a_party_cannot_add_up_is_its_failure():
    grid = disturbed(TABLES, raising(2, {1}, attempts=9))
    found = run(Moments(secure_aggregation=True), grid)
    assert found.history[0]["parties"] == 4
    assert "tripped" in found.failures[0].reason


def test_an_altered_share_is_the_failure_of_the_party_that_holds_it():
    class Altering(Losing):
        def after(self, messages, replies):
            for reply in replies:
                arrays = records.arrays_of(reply.content) if reply.has_content() else {}
                if "masked" in arrays and reply.metadata.src_node_id == 2:
                    vector = arrays["masked"].copy()
                    vector[-1] ^= np.uint64(1)
                    reply.content["arrays"] = records.pack_arrays({"masked": vector})
            return replies

    found = simulate(
        "moments", TABLES, secure_aggregation=True, wrap_grid=lambda grid: Altering(grid, {})
    )
    same(found, simulate("moments", TABLES))
    assert {failure["party"] for failure in found.failures} == {"party 4"}
    assert "The share of party 1" in found.failures[0]["reason"]


def killing(number, lost=None, unmasking=False):
    class Killing(Losing):
        def before(self, messages):
            config = records.config_of(messages[0].content)
            if config.get("round") == number and unmasking is (
                config.get("exchange") == "unmasking"
            ):
                raise KilledError
            return super().before(messages)

    return lambda grid: Killing(grid, lost or {})


def test_a_run_with_missing_parties_is_resumed(tmp_path):
    lost = {(2, False): [1], (5, False): [0]}
    options = {**ADMM, "output_dir": tmp_path}
    with pytest.raises(KilledError):
        simulate("notears-admm", TABLES, wrap_grid=killing(4, lost), **options)
    resumed = simulate("notears-admm", TABLES, resume=True, wrap_grid=losing(lost), **options)
    clean = simulate("notears-admm", TABLES, wrap_grid=losing(lost), **ADMM)
    same(resumed, clean)
    assert [record["parties"] for record in resumed.history] == [5, 4, 5, 5, 4, 5]


def test_a_run_is_resumed_without_a_party_that_is_not_there(tmp_path):
    method = {**ADMM, "output_dir": str(tmp_path), "min_available_nodes": 2}
    with pytest.raises(KilledError):
        run(NotearsADMM(**method), killing(4)(LocalGrid(app_of(TABLES), 5)))
    configs = [{"partition-id": k, "num-partitions": 5} for k in (0, 1, 2, 4)]
    grid = LocalGrid(app_of(TABLES), 4, node_configs=configs)
    found = run(NotearsADMM(resume=True, **method), grid)
    assert [record["parties"] for record in found.history] == [5, 5, 5, 4, 4, 4]
    assert any("without party 3" in text for text in found.warnings)


def test_a_sum_that_was_interrupted_is_repeated_with_the_same_parties_only(tmp_path):
    options = {**ADMM, "output_dir": tmp_path}
    with pytest.raises(KilledError):
        simulate("notears-admm", TABLES, wrap_grid=killing(4, {(4, False): [1]}, True), **options)
    with pytest.raises(CausalError, match="was that of party 0, party 2, party 3, party 4"):
        simulate("notears-admm", TABLES, resume=True, **options)
    found = simulate(
        "notears-admm", TABLES, resume=True, wrap_grid=losing({(4, False): [1]}), **options
    )
    assert found.status == "completed"


def test_the_order_of_the_parties_changes_no_bit():
    def weights(order, lost):
        tables = [TABLES[k] for k in order]
        names = [order.index(k) for k in lost]
        wrap = losing({(1, False): names})
        return simulate("moments", tables, secure_aggregation=True, wrap_grid=wrap).graph.weights

    np.testing.assert_array_equal(
        weights([0, 1, 2, 3, 4], [1, 3]), weights([4, 2, 3, 0, 1], [1, 3])
    )


def test_replicates_go_on_without_a_party():
    options = {"secure_aggregation": True, "replicates": 3}
    found = simulate("moments", TABLES, wrap_grid=losing({(1, False): [0]}), **options)
    assert found.history[0]["parties"] == 4
    assert found.graph.confidence is not None


def test_every_exchange_is_one_call_and_unmasking_another():
    grid = spy(TABLES)
    run(NotearsADMM(**ADMM), grid)
    names = [records.config_of(m.content)["exchange"] for m in grid.training_messages[::5]]
    assert names == ["totals", "unmasking", *["round", "unmasking"] * 5, "refit", "unmasking"]


def test_parties_confirm_who_is_in_a_sum_where_one_is_missing():
    """Enough of them; one that is silent then may help to unmask the sum."""

    class Silent(Losing):
        def after(self, messages, replies):
            names.append(records.config_of(messages[0].content).get("exchange", "schema"))
            if names[-1] == "confirmation":
                silent = [k + 2 for k in self.silent]
                return [one for one in replies if one.metadata.src_node_id not in silent]
            return super().after(messages, replies)

    def found(*silent):
        names.clear()
        grid = Silent(spy(TABLES), {(1, False): [0]})
        grid.silent = silent
        return run(Moments(secure_aggregation=True), grid)

    names = []
    for silent in ((), (1,)):
        assert found(*silent).history[0]["parties"] == 4
        assert names == ["schema", "totals", "unmasking", "sums", "confirmation", "unmasking"]
    with pytest.raises(FederationError, match=r"party 1, party 2, and with secure_aggr.* unmask"):
        found(1, 2)
    assert names[-2:] == ["confirmation"] * 2


def test_rows_under_an_intervention_are_never_those_of_two_parties_alone():
    tables = [table.assign(by="" if k < 2 else "x1") for k, table in enumerate(TABLES)]
    tables[0]["by"] = np.where(np.arange(len(tables[0])) < 20, "", "x1")
    tables[2]["by"] = np.where(np.arange(len(tables[2])) < 20, "", "x1")
    options = {"secure_aggregation": True, "intervention_column": "by"}
    for lost in (3, 4):
        simulate("moments", tables, wrap_grid=losing({(1, False): [lost]}), **options)
    with pytest.raises(CausalError, match="Rows without one are at party 0, party 2 only"):
        simulate("moments", tables, wrap_grid=losing({(1, False): [1]}), **options)


CENTRED = [table - table.mean() for table in TABLES]
BY_ROWS = {
    "bic": ("moments", {"solver": "dagma", "sparsity": "bic"}),
    "automatic sparsity": ("moments", {"solver": "dagma"}),
    "orders": ("moments", {}),
    "class": ("moments", {"solver": "ges"}),
    "lingam": ("lingam", {}),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", BY_ROWS)
def test_what_depends_on_the_rows_takes_those_in_the_sum(case):
    method, options = BY_ROWS[case]
    tables = [table.iloc[: 20 if k else 60] for k, table in enumerate(CENTRED)]
    tables = [table - table.mean() for table in tables]
    found = simulate(
        method, tables, wrap_grid=losing({(1, False): [0]}), secure_aggregation=True, **options
    )
    plain = simulate(method, tables[1:], **options)
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-9)
    if "sparsity" in plain.history[0]:
        assert found.history[0]["sparsity"] == pytest.approx(plain.history[0]["sparsity"], rel=1e-9)
    if case == "class":
        return
    cause, effect = np.argwhere(plain.graph.adjacency)[0]
    names = plain.graph.names
    own, other = (run.model.total_effect(names[cause], names[effect]) for run in (found, plain))
    assert own.value == pytest.approx(other.value, rel=1e-9)
    assert own.standard_error == pytest.approx(other.standard_error, rel=1e-9)


def test_the_refit_of_the_admm_takes_the_rows_in_its_sum():
    tables = [table.iloc[: 20 if k else 60] for k, table in enumerate(CENTRED)]
    tables = [table - table.mean() for table in tables]
    lost = losing({(6, False): [0]})
    plain = simulate("notears-admm", tables, wrap_grid=lost, max_rounds=6)
    masked = simulate("notears-admm", tables, wrap_grid=lost, **ADMM)
    same(masked, plain)
    cause, effect = (plain.graph.names[one] for one in np.argwhere(plain.graph.adjacency)[0])
    own, other = (run.model.total_effect(cause, effect) for run in (masked, plain))
    assert own.standard_error == pytest.approx(other.standard_error, rel=1e-9)


def test_a_resumed_run_keeps_the_rows_of_its_sums(tmp_path):
    from flwr_causal.protocol.replies import Replies, Summed
    from flwr_causal.runtime.checkpoint import KeptExchange, _packed, _read_step

    replies = Replies(("a", "b"), {"x": np.ones(2)}, sums={"": Summed(7, ("a", "b"))})
    file = tmp_path / "000001.npz"
    file.write_bytes(_packed(KeptExchange({"round": 1}, (), (), replies, {}, ""), "token"))
    token, step = _read_step(file)
    assert token == "token"
    assert step.replies.sums == replies.sums
    assert step.replies.rows == 7


# Who is missing is part of what a run says of itself.


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options", "lost", "expected"),
    [
        # The training starts again without the party.
        ("moments", {}, {(1, False): [2]}, {"party 2": 48}),
        # Its rows are known from a later reply.
        ("notears-admm", {"max_rounds": 6}, {(2, False): [1]}, {"party 1": 48}),
        # Under secure sums rows are withheld.
        ("moments", {"secure_aggregation": True}, {(1, False): [2]}, {"party 2": 0}),
        # What is missing in the unmasking costs nothing.
        ("moments", {"secure_aggregation": True}, {(1, True): [2]}, {}),
        ("notears-admm", {"max_rounds": 6}, {}, {}),
    ],
)
def test_a_run_names_the_parties_that_its_result_lacks(tmp_path, method, options, lost, expected):
    found = simulate(method, TABLES, wrap_grid=losing(lost), output_dir=tmp_path, **options)
    assert found.status == "completed"
    assert found.lost == expected == Run.load(tmp_path).lost
    assert json.loads((tmp_path / "run.json").read_text())["lost"] == expected
    first = str(found).splitlines()[0]
    for name, rows in expected.items():
        assert name in first
        assert not rows or f"{rows} of 240 rows" in first
    assert ("without" in found.headline) == bool(expected)


def test_parties_that_are_missing_for_good_and_for_once_are_told_apart():
    lost = {(1, False): [3], (2, False): [1, 3], (3, False): [3]}
    found = simulate("notears-admm", TABLES, wrap_grid=losing(lost), max_rounds=6)
    assert found.lost == {"party 1": 48, "party 3": 48}
    assert found.answered["party 3"] == 0
    assert (
        "it is without party 3 (48 of 240 rows) and without some replies of party 1 (48 of 240 "
        "rows), which took part in 5 of 6 exchanges"
    ) in found.headline


def test_parties_that_each_miss_another_exchange_are_all_named():
    lost = {(k + 1, False): [k] for k in range(2)}
    found = simulate("notears-admm", TABLES[:2], wrap_grid=losing(lost), max_rounds=6)
    assert found.lost == {"party 0": 48, "party 1": 48}
    assert "party 1 (48 of 96 rows), which took part in 5 of 6 exchanges" in found.headline


def test_a_group_without_a_sum_is_lost_with_all_its_parties():
    tables = make_federation(d=4, n=280, parties=7, seed=1).tables
    grouped = {**ADMM, "groups": 2}
    clean = simulate("notears-admm", tables, **grouped)
    assert clean.lost == {}
    group = next(own for own in clean.groups.values() if len(own) == 3)
    first = int(group[0].split()[1])
    found = simulate("notears-admm", tables, wrap_grid=losing({(2, False): [first]}), **grouped)
    assert set(found.lost) == set(group)


@pytest.mark.parametrize(
    ("least", "quorum", "allowed"), [(3, 0.5, True), (4, 0.5, False), (4, 0.8, True), (5, 1, True)]
)
def test_a_policy_limits_each_sum_without_those_that_do_not_answer(
    least, quorum, allowed, tmp_path
):
    grid = guarded(TABLES, tmp_path, f"least-parties = {least}", **{"secure-aggregation": True})
    method = NotearsADMM(min_available_nodes=5, quorum=quorum, **ADMM)
    outcome = run(method, grid)
    refused = [one.reason for one in outcome.failures if one.party == "party 0"]
    assert bool(refused) == (not allowed)
    assert all("'least-parties'" in reason for reason in refused)
    reasons = [line["reason"] for line in recorded(tmp_path) if line.get("reason")]
    assert ("least-parties" in reasons) == (not allowed)
