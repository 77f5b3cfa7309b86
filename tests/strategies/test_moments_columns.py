"""Moments over parties that hold different columns of the same rows."""

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, Error, Message

from flwr_causal import simulate
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.products.plan import ProductPlan

NAMES = ("age", "dose", "pressure", "risk", "cost", "days")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    n = 300
    age = rng.normal(60, 8, n)
    dose = 0.1 * age + rng.normal(0, 1, n)
    pressure = 100 + 0.8 * age - 4 * dose + rng.normal(0, 5, n)
    risk = 0.05 * pressure + rng.normal(0, 0.5, n)
    cost = 1e3 + 20 * risk + 3 * age + rng.normal(0, 9, n)
    days = 0.5 * dose - 0.01 * cost + rng.normal(0, 1, n)
    values = dict(zip(NAMES, (age, dose, pressure, risk, cost, days), strict=True))
    return pd.DataFrame({"patient": [f"p{k:03d}" for k in range(n)], **values})


def shuffled(frame, seed):
    return frame.sample(frac=1, random_state=seed)


def vertical(table, parties):
    """Each party has some of the columns of all rows."""
    groups = np.array_split(np.array(NAMES), parties)
    return [shuffled(table[["patient", *own]], k) for k, own in enumerate(groups)]


def hybrid(table):
    """Overlapping rows and columns, all cells known: two blocks of rows, split in two ways."""
    top, bottom = table[:180], table[180:]
    return [
        shuffled(top[["patient", "age", "dose", "pressure"]], 0),
        shuffled(top[["patient", "pressure", "risk", "cost", "days"]], 1),
        shuffled(bottom[["patient", "cost", "age", "risk"]], 2),
        shuffled(bottom[["patient", "dose", "pressure", "days"]], 3),
        shuffled(table[100:250][["patient", "age", "days"]], 4),
    ]


def alike(parties, table, **options):
    """Whether the run equals that of the joined table; returns both."""
    found = simulate("moments", parties, row_id="patient", **options)
    names = list(found.graph.names)
    pooled = simulate("moments", [table[names]], **options)
    assert (found.graph.adjacency == pooled.graph.adjacency).all()
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    return found, pooled


def test_parties_with_different_columns_find_the_graph_of_the_joined_table(table):
    found, pooled = alike(vertical(table, 5), table)
    assert found.rounds == 3
    assert found.num_rows == 300
    assert found.warnings == pooled.warnings


def test_overlapping_rows_and_columns_count_once(table):
    found, _ = alike(hybrid(table), table)
    assert found.num_rows == 300


def differing(parties):
    run = simulate("moments", parties, row_id="patient")
    return [one.split(". ")[0] for one in run.warnings if one.startswith("Values differ")]


def test_values_that_two_parties_hold_differently_are_named(table):
    """By column and parties, of rows that both have; one value of one row is enough."""
    *others, last = hybrid(table)
    assert differing([*others, last]) == []
    spoiled = last.copy()
    spoiled.loc[spoiled["patient"] == "p120", "age"] += 1e-3
    in_first = "Values differ between party 0 and party 4 in rows that both have: 'age'"
    assert differing([*others, spoiled]) == [in_first]
    spoiled.loc[spoiled["patient"] == "p190", ["age", "days"]] += 1e-3
    assert differing([*others, spoiled]) == [
        in_first,
        "Values differ between party 2 and party 4 in rows that both have: 'age'",
        "Values differ between party 3 and party 4 in rows that both have: 'days'",
    ]


def test_effects_have_the_intervals_of_the_joined_rows(table):
    found, pooled = alike(vertical(table, 2), table)
    assert found.model.intercepts == pytest.approx(pooled.model.intercepts, rel=1e-6)
    one, other = (run.model.total_effect("age", "risk") for run in (found, pooled))
    assert one.value == pytest.approx(other.value, abs=1e-6)
    assert one.interval == pytest.approx(other.interval, abs=1e-6)


def test_one_party_with_half_of_the_rows_gives_the_moments_of_those_that_are_known(table):
    whole = shuffled(table[["patient", "age", "dose"]], 0)
    half = shuffled(table[["patient", "risk", "days"]], 1)[:150]
    found = simulate("moments", [whole, half], row_id="patient")
    joined = whole.merge(half, on="patient", how="left")[list(found.graph.names)]
    count = joined.notna().to_numpy(dtype=float).T @ joined.notna().to_numpy(dtype=float)
    # pandas divides by one less where values are missing.
    second, mean = joined.cov().to_numpy() * (count - 1) / count, joined.mean().to_numpy()
    moments = found.model.sample_moments
    assert moments.n == 150
    assert moments.mean == pytest.approx(mean)
    assert moments.second == pytest.approx(second, abs=1e-6)
    assert found.history[-1]["complete_rows"] == 150
    assert found.num_rows == 300
    assert any("150 of 300 rows have all columns" in warning for warning in found.warnings)


def test_moments_of_different_rows_that_contradict_each_other_are_made_possible():
    rng = np.random.default_rng(0)
    n = 300
    x, y, z = rng.standard_normal((3, n))
    row = np.arange(n)
    third = n // 3
    # Each pair of columns is known of other rows, and the correlations .9, .9, -.9 are impossible.
    parties = []
    for k, (one, other, sign) in enumerate((("x", "y", 1), ("y", "z", 1), ("x", "z", -1))):
        own = slice(k * third, (k + 1) * third)
        noise = 0.4 * rng.standard_normal(third)
        first = {"x": x, "y": y, "z": z}[one][own]
        frame = pd.DataFrame({"row_id": row[own], one: first, other: sign * first + noise})
        parties.append(frame)
    found = simulate("moments", parties, solver="ges")
    assert any("1 of 3 eigenvalues were raised" in warning for warning in found.warnings)
    assert np.linalg.eigvalsh(found.model.sample_moments.second)[0] > 0


def test_rows_with_missing_values_are_rows_that_the_party_lacks(table):
    parties = vertical(table, 2)
    parties[0].loc[parties[0].index[:20], "age"] = np.nan
    with pytest.raises(DataError, match="age"):
        simulate("moments", parties, row_id="patient", missing_values="fail")
    found = simulate("moments", parties, row_id="patient", missing_values="drop")
    assert simulate("moments", parties, row_id="patient").config["assumed"] == {
        "missing_values": "drop"
    }
    assert found.history[-1]["complete_rows"] == 280
    assert found.history[-1]["rows"] == 300


def test_repeated_ids_and_missing_ids_are_errors(table):
    parties = vertical(table, 2)
    parties[1] = pd.concat([parties[1], parties[1][:2]])
    with pytest.raises(DataError, match="party 1: column 'patient' of ids has 2 that repeat"):
        simulate("moments", parties, row_id="patient")


@pytest.mark.parametrize("order", [0, 1])
def test_rows_that_are_too_few_are_counted_once(table, order):
    """Those of the parties together, 12 or 26, are more than the columns with their lags."""
    number = 6 if order == 0 else 13
    parties = [table[["patient", *own]][:number] for own in (NAMES[:2], NAMES[2:])]
    found = simulate("moments", parties, row_id="patient", order=order)
    rows = f"All parties together have {number - order} rows for {6 * (1 + order)} columns"
    assert [one.startswith(rows) for one in found.warnings].count(True) == 1
    parties = [table[["patient", *own]][: number + 1] for own in (NAMES[:2], NAMES[2:])]
    found = simulate("moments", parties, row_id="patient", order=order)
    assert not any("All parties together" in one for one in found.warnings)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "columns",
    [
        (("age",), ("dose",), ("cost", "risk")),
        (("age", "dose", "cost"), ("risk",)),
        (("age", "dose", "cost"), ("age", "dose", "cost", "risk")),
    ],
    ids=str,
)
def test_combinations_of_different_parties_columns_are_named(table, order, columns):
    """A total and its parts, at three parties, at one, at both: once each."""
    total = table.assign(cost=table["dose"] + 2 * table["age"])
    parties = [total[["patient", *own]] for own in columns]
    found = simulate("moments", parties, row_id="patient", order=order)
    named = [one for one in found.warnings if "is a linear combination of" in one]
    assert len(named) == 1
    assert all(f"'{name}'" in named[0] for name in ("age", "dose", "cost"))
    assert "risk" not in named[0]


def test_levels_that_differ_have_a_remedy_that_different_columns_allow(table):
    """Not an option that is refused where they differ."""
    *others, last = hybrid(table)
    last = last.assign(days=last["days"] + 1e3)
    found = simulate("moments", [*others, last], row_id="patient")
    (warning,) = [one for one in found.warnings if "lie far from those at the others" in one]
    assert "subtract the parties' own means" in warning
    assert "center=" not in warning


def test_parties_without_a_common_row_are_an_error(table):
    parties = vertical(table, 2)
    parties[1]["patient"] = "q" + parties[1]["patient"]
    with pytest.raises(DataError, match=r"are both known of 0 rows.*row-secret"):
        simulate("moments", parties, row_id="patient")


def test_without_ids_different_columns_are_an_error_that_names_the_remedy(table):
    parties = [one.drop(columns="patient") for one in vertical(table, 2)]
    with pytest.raises(DataError, match=r"give all tables ids of their rows \(row_id"):
        simulate("moments", parties)


def test_the_columns_that_all_share_are_used_if_the_user_says_so(table):
    parties = [table[["patient", "age", "dose", "cost"]], table[["patient", "age", "dose"]]]
    found = simulate("moments", parties, row_id="patient", unshared_columns="drop")
    assert found.graph.names == ("age", "dose")
    assert found.rounds == 1


def test_replicates_equal_those_of_the_joined_table_with_the_same_rows(table):
    """The same draws of rows, by hand: the replicates' shares of edges."""
    parties = [table[["patient", *NAMES[:3]]], table[["patient", *NAMES[3:]]]]
    found = simulate("moments", parties, row_id="patient", replicates=4, seed=3)
    assert found.rounds == 3
    assert not any("could not be fitted" in warning for warning in found.warnings)
    from flwr_causal.data.check.row_ids import hashed_ids
    from flwr_causal.protocol.products.plan import ProductPlan

    hashes = [row.tobytes() for row in hashed_ids(table["patient"], b"3")]
    plan, rows = ProductPlan.of(np.ones((1, 6), dtype=bool), [hashes])
    ordered, shares = table.iloc[rows[0]], 0.0
    for weights in plan.weights(4, 3)[1:]:
        drawn = ordered.iloc[np.repeat(np.arange(300), weights)][list(NAMES)]
        own = simulate("moments", [drawn], stability=0).graph
        shares = shares + own.adjacency / 4
    assert found.graph.confidence == pytest.approx(shares)


# -- faults ----------------------------------------------------------------------------------------


class Altering:
    """A grid that changes what the server sends or receives."""

    def __init__(self, grid, change):
        self.grid, self.change = grid, change

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        return self.change(self.grid, list(messages), timeout)


def altered_run(parties, change):
    return simulate(
        "moments", parties, row_id="patient", wrap_grid=lambda grid: Altering(grid, change)
    )


def exchange_of(messages):
    return str(dict(messages[0].content.get("config", {})).get("exchange", ""))


def flipped(record, name):
    array = record[name].numpy().copy()
    array[-1] ^= array.dtype.type(1)
    return array


def with_array(record, name, values):
    record[name] = Array(values)


def test_a_masked_table_that_the_server_alters_is_noticed(table):
    altered = {}  # the same in the second attempt

    def change(grid, messages, timeout):
        if exchange_of(messages) == "products":
            record = messages[0].content["arrays"]
            boxes = record["boxes"].numpy().copy()
            boxes[len(boxes) // 2] = altered.setdefault("byte", boxes[len(boxes) // 2] ^ 1)
            with_array(record, "boxes", boxes)
        return grid.send_and_receive(messages, timeout=timeout)

    with pytest.raises(FederationError, match="was altered"):
        altered_run(vertical(table, 2), change)


def test_a_party_refuses_a_plan_that_counts_a_row_of_it_twice(table):
    def change(grid, messages, timeout):
        if exchange_of(messages) == "masked tables":
            record = messages[0].content["arrays"]
            rows = record["rows"].numpy().copy()
            rows[0] = rows[1]
            with_array(record, "rows", rows)
        return grid.send_and_receive(messages, timeout=timeout)

    with pytest.raises(FederationError, match="not that of this party's rows"):
        altered_run(vertical(table, 2), change)


def test_a_party_refuses_products_of_other_rows_than_it_has_masked(table):
    """The same stream would hide both."""
    altered = {}  # the same in the second attempt

    def change(grid, messages, timeout):
        if exchange_of(messages) == "products":
            record = messages[0].content["arrays"]
            rows = altered.setdefault(
                messages[0].metadata.dst_node_id, record["rows"].numpy()[::-1]
            )
            with_array(record, "rows", rows.copy())
        return grid.send_and_receive(messages, timeout=timeout)

    with pytest.raises(FederationError, match="not that of the masked table"):
        altered_run(vertical(table, 2), change)


def test_a_party_masks_its_table_for_one_plan_and_order_of_rows(table):
    """Digests for several would tell the server which rows have the same value."""
    altered = {}  # the same in the second attempt

    def change(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == "masked tables":
            record = messages[0].content["arrays"]
            rows = altered.setdefault("rows", record["rows"].numpy()[::-1].copy())
            with_array(record, "rows", rows)
            return grid.send_and_receive(messages, timeout=timeout)
        return replies

    with pytest.raises(FederationError, match="not that of the masked table"):
        altered_run(vertical(table, 2), change)


def test_a_reply_that_was_altered_is_noticed(table):
    def change(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == "products":
            record = replies[0].content["arrays"]
            with_array(record, "ones", flipped(record, "ones"))
        return replies

    with pytest.raises(FederationError, match="do not cancel"):
        altered_run(vertical(table, 2), change)


def test_no_number_that_a_party_sends_is_without_a_mask(table):
    seen = []

    def look(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == "products":
            seen.extend(reply.content["arrays"] for reply in replies)
        return replies

    altered_run(vertical(table, 3), look)
    assert len(seen) == 3
    for name in ("products", "sums", "ones"):
        words = np.array([arrays[name].numpy().view(np.uint64) for arrays in seen])
        # Without masks most are 0, and none of the others is near 2^64 / 2.
        assert (np.minimum(words, -words) > 2**40).all()


def test_a_party_refuses_a_plan_in_which_too_few_rows_know_two_columns(table, monkeypatch):
    parties = [table[["patient", "age"]][:160], table[["patient", "dose"]][140:]]
    real, calls = ProductPlan.check, []

    def check(plan, names, least):
        calls.append(least)
        if len(calls) > 1:  # the first one is the server
            real(plan, names, least)

    monkeypatch.setattr(ProductPlan, "check", check)
    with pytest.raises((DataError, FederationError), match=r"party \d.* both known of 20 rows"):
        simulate("moments", parties, row_id="patient", minimum_count=21)


@pytest.mark.parametrize("where", ["align", "masked tables", "products"])
def test_a_reply_that_is_lost_once_is_asked_for_again(table, where):
    lost = []

    def change(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == where and not lost:
            lost.append(replies.pop())
            request = messages[-1]
            replies.append(Message(Error(code=0, reason="lost"), reply_to=request))
        return replies

    found = simulate(
        "moments",
        vertical(table, 2),
        row_id="patient",
        wrap_grid=lambda grid: Altering(grid, change),
    )
    pooled = simulate("moments", [table[list(found.graph.names)]])
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)


def test_a_run_is_resumed_with_new_masks_and_no_seed_is_saved(table, tmp_path):
    seen = {}

    def stop(grid, messages, timeout):
        if exchange_of(messages) == "products" and "stopped" not in seen:
            seen["stopped"] = True
            raise KeyboardInterrupt
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == "masked tables":
            seen.setdefault("seeds", []).append(
                [reply.content["arrays"]["seed"].numpy().tobytes() for reply in replies]
            )
        return replies

    options = {"row_id": "patient", "output_dir": str(tmp_path), "resume": True}
    grid = {"wrap_grid": lambda grid: Altering(grid, stop)}
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", vertical(table, 2), **options, **grid)
    kept = sorted(file.name for file in (tmp_path / "exchanges").glob("*.npz"))
    assert kept == ["000001.npz"]  # the hashes alone
    found = simulate("moments", vertical(table, 2), **options, **grid)
    pooled = simulate("moments", [table[list(found.graph.names)]])
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    assert len(seen["seeds"]) == 2
    assert not set(seen["seeds"][0]) & set(seen["seeds"][1])


# -- secure sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("quorum", [0.5, 1.0])
def test_with_secure_sums_the_server_learns_no_partys_numbers(table, quorum):
    seen = []

    def look(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        seen.append((exchange_of(messages), replies))
        return replies

    options = {"secure_aggregation": True, "quorum": quorum}
    parties = [*vertical(table, 3), hybrid(table)[4]]
    found = simulate(
        "moments",
        parties,
        row_id="patient",
        wrap_grid=lambda grid: Altering(grid, look),
        **options,
    )
    pooled = simulate("moments", [table[list(found.graph.names)]])
    assert (found.graph.adjacency == pooled.graph.adjacency).all()
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    assert found.model.intercepts == pytest.approx(pooled.model.intercepts, rel=1e-6)
    assert found.num_rows == 300
    reports = [dict(reply.content["config"]) for _, replies in seen[:1] for reply in replies]
    assert all(report["withheld"] and not report["has-sums"] for report in reports)
    sums = [name for name, replies in seen for reply in replies if "masked" in arrays_of(reply)]
    assert set(sums) == {"totals", "products"}


def arrays_of(reply):
    return set(reply.content["arrays"]) if "arrays" in reply.content else set()


@pytest.mark.parametrize("where", ["align", "masked tables", "products"])
def test_with_secure_sums_a_lost_party_ends_the_run(table, where):
    def change(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        lost = exchange_of(messages) == where
        return [one for one in replies if not lost or one.metadata.src_node_id != _last(messages)]

    # A party whose rows and columns others have, too.
    parties = [*vertical(table, 3), table[["patient", "age", "risk"]]]
    with pytest.raises(FederationError, match="no usable reply of party 3"):
        simulate(
            "moments",
            parties,
            row_id="patient",
            secure_aggregation=True,
            wrap_grid=lambda grid: Altering(grid, change),
        )


def test_without_them_the_others_start_again_if_they_hold_all_columns(table):
    lost = []

    def change(grid, messages, timeout):
        replies = list(grid.send_and_receive(messages, timeout=timeout))
        if exchange_of(messages) == "products" and not lost:
            lost.append(_last(messages))
            return [one for one in replies if one.metadata.src_node_id != lost[0]]
        return replies

    parties = [*vertical(table, 2), table[["patient", "age", "risk"]]]
    found = simulate(
        "moments",
        parties,
        row_id="patient",
        wrap_grid=lambda grid: Altering(grid, change),
    )
    pooled = simulate("moments", [table[list(found.graph.names)]])
    assert found.graph.weights == pytest.approx(pooled.graph.weights, abs=1e-6)
    assert any("started again without party 2" in warning for warning in found.warnings)


def _last(messages):
    return max(message.metadata.dst_node_id for message in messages)
