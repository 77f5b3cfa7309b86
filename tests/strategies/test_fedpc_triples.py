"""FedPC by counts of triples of states: the joined rows', over different columns."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import spy
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.clients.fedpc import FedPCClient
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.circuits.learners.trees.triple_tables import Joints, StateMarks
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies import run
from flwr_causal.strategies.fedpc.fedpc import FedPC

NAMES = ["ward", "age", "dose", "outcome", "days"]


def of_training(run):
    """The warnings of a run but that of doses, of which there are three."""
    return [one for one in run.warnings if "without an order: 'dose'" not in one]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 400
    ward = rng.integers(3, size=n)
    age = 50 + 5 * ward + rng.normal(0, 4, n)
    dose = (age + rng.normal(0, 4, n) > 55).astype(int) + (rng.random(n) < 0.1)
    outcome = np.where(rng.random(n) < 0.2 + 0.3 * dose, "ill", "well")
    days = 3 + 4 * (outcome == "ill") + rng.exponential(1.0, n)
    values = (np.array(["a", "b", "c"])[ward], age, dose, outcome, days)
    return pd.DataFrame({"row_id": np.arange(n)} | dict(zip(NAMES, values, strict=True)))


def shuffled(frame, seed):
    return frame.sample(frac=1, random_state=seed)


def vertical(table, *groups):
    return [shuffled(table[["row_id", *own]], k) for k, own in enumerate(groups)]


def counted(tables, training="triples", **options):
    return simulate("fedpc", tables, training=training, **options)


def of_joined_rows(found, rows, groups, target=None):
    """The circuit of the marks of all rows in one table, over the variables of a run's circuit."""
    domain = found.model.density.domain
    plan = training_of("trees", target, LearnerOptions()).plan(domain, seed=0, min_rows=2)
    joints = Joints.of(domain, plan, [[name in own for own in groups] for name in domain.names])
    marks = StateMarks(plan, joints)
    values = marks.values(domain.encode(rows))
    return marks.trained(domain, (values.T @ values) * marks.wanted)


def alike(found, whole, rows):
    ours, theirs = (one.log_likelihood(rows) for one in (found.model, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_the_circuit_is_that_of_the_joined_rows(table, parties):
    groups = [list(own) for own in np.array_split(np.array(NAMES), parties)]
    found = counted(vertical(table, *groups))
    alike(found, of_joined_rows(found, table, groups), table)
    assert set(found.model.names) == set(NAMES)
    assert found.num_rows == len(table)
    assert of_training(found) == []
    # The dependence on a column of another party is there: of the wards' means 50, 55 and 60.
    given = pd.DataFrame({"ward": ["a", "c"]})
    low, high = found.model.moments("age", given)[0]
    assert high - low > 7


@pytest.mark.parametrize("holders", [1, 2])
def test_a_class_that_all_know_has_trees_of_its_own_another_is_a_column(table, holders):
    first, second = ["ward", "age", "outcome"], ["dose", "days"]
    if holders == 2:
        second.append("outcome")
    found = counted(vertical(table, first, second), target="outcome")
    known = "outcome" if holders == 2 else None
    alike(found, of_joined_rows(found, table, [first, second], known), table)
    rows = table[["days"]]
    assert (found.model.predict(rows) == table["outcome"]).mean() > 0.9


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("groups", "target"),
    [
        ([["ward", "age", "dose"], ["outcome", "days"]], ""),
        ([["ward", "age"], ["dose", "days"], ["outcome"]], ""),
        ([["ward", "age", "outcome"], ["dose", "days", "outcome"]], "outcome"),
    ],
)
@pytest.mark.parametrize("training", sweep(["triples", "auto"], kept=["triples"]))
def test_triples_are_those_of_the_joined_rows(table, groups, target, training):
    found = counted(vertical(table, *groups), training, target=target)
    whole = of_joined_rows(found, table, groups, target or None)
    alike(found, whole, table)
    days = [one.moments("days", table[["ward", "age"]])[0] for one in (found.model, whole)]
    np.testing.assert_allclose(*days, rtol=1e-12)
    assert "trees circuits by counts of triples" in found.stop_reason
    assert ("chosen because" in found.stop_reason) == (training == "auto")
    assert (found.model.predict(table[["days"]], "outcome") == table["outcome"]).mean() > 0.9


def test_what_depends_on_columns_of_two_parties_together_is_there():
    rng = np.random.default_rng(1)
    first, second, noise = rng.integers(2, size=(3, 500))
    either = np.where(rng.random(500) < 0.9, first ^ second, noise)
    values = {"row_id": np.arange(500), "a": first, "b": second, "c": either}
    frame = pd.DataFrame(values).replace({0: "no", 1: "yes"})
    frame["row_id"] = np.arange(500)
    tables = vertical(frame, ["a", "c"], ["b"])
    rows = pd.DataFrame({"a": ["no", "no"], "b": ["no", "yes"]})
    found = counted(tables).model
    assert found.predict_proba(rows, "c")[:, 1] == pytest.approx([0.05, 0.95], abs=0.06)


def test_a_target_of_one_party_is_predicted_from_all_columns():
    """Columns move together whatever the class is, and some of them a little with the class.

    Trees of the density join columns that move together, and the target to one or two of them.
    """
    rng, n, d = np.random.default_rng(3), 2000, 10
    ill, common = rng.random(n) < 0.5, rng.normal(size=n)
    moved = 0.3 * np.outer(2 * ill - 1, [1, 0, -1, 1, 0, -1, 1, 0, -1, 1])
    values = common[:, None] + moved + 0.6 * rng.normal(size=(n, d))
    states = np.array(["low", "middle", "high"])[np.digitize(values, [-0.5, 0.5])]
    frame = pd.DataFrame(states, columns=[f"x{k}" for k in range(d)])
    frame = frame.assign(row_id=np.arange(n), target=np.where(ill, "y", "n"))
    train, test = frame[:1500], frame[1500:]
    groups = ["x0", "x1", "x2", "x3", "x4", "target"], ["x5", "x6", "x7", "x8", "x9"]
    model = counted(vertical(train, *groups), "auto").model
    of_density = replace(model, posterior=None).predict(test) == test["target"]
    right = model.predict(test) == test["target"]
    assert right.mean() > 0.75
    assert right.mean() > of_density.mean() + 0.08


def test_triples_of_rows_that_overlap(table):
    """Columns are marked together where the same parties hold them; each row counts once."""
    whole = table.round({"age": -1, "days": 0})
    groups = ["ward", "age"], ["dose", "outcome", "days"]
    apart = counted(vertical(whole, *groups))
    more = [*vertical(whole[:250], *groups), *vertical(whole[200:], *groups)]
    alike(counted(more), apart.model, whole)


def test_the_mean_given_a_number_of_another_party_reaches_into_the_tails():
    rng = np.random.default_rng(2)
    x = rng.normal(size=1000)
    frame = pd.DataFrame({"row_id": np.arange(1000), "x": x, "y": x + rng.normal(0, 0.3, 1000)})
    found = counted(vertical(frame, ["x"], ["y"])).model
    means = found.moments("y", pd.DataFrame({"x": [-2.0, -1.0, 0.0, 1.0, 2.0]}))[0]
    assert means == pytest.approx([-2.0, -1.0, 0.0, 1.0, 2.0], abs=0.13)


def test_overlapping_rows_and_columns_count_once(table):
    # The parties' cut points count a row at each holder: columns of few values have none.
    table = table.round({"age": -1, "days": 0})
    groups = [["ward", "age", "dose"], ["dose", "outcome", "days"]]
    groups += [["days", "age"], ["ward", "dose", "outcome"], ["age", "outcome"]]
    parts = [table[:250]] * 2 + [table[250:]] * 2 + [table[200:300]]
    tables = [vertical(part, own)[0] for part, own in zip(parts, groups, strict=True)]
    found = counted(tables)
    alike(found, of_joined_rows(found, table, groups), table)
    assert found.num_rows == 400


def test_rows_that_some_parties_lack_are_reported(table):
    whole, half = vertical(table, ["ward", "age"], ["outcome", "days"])
    found = counted([whole, half[:150]])
    assert any("Only 150 of 400 rows have all columns" in one for one in found.warnings)
    assert found.num_rows == 400
    share = np.exp(found.model.log_likelihood(pd.DataFrame({"ward": ["a"]})))
    assert share == pytest.approx((table["ward"] == "a").mean(), abs=0.02)


def test_missing_values_are_states(table):
    holes = table.copy()
    holes.loc[::4, "ward"] = None
    tables = vertical(holes, ["ward", "age"], ["outcome", "days"])
    found = counted(tables, missing_values="keep")
    alike(found, of_joined_rows(found, holes, [["ward", "age"], ["outcome", "days"]]), holes)
    assert found.model.log_likelihood(holes[["ward"]][:1]) == pytest.approx(np.log(0.25), abs=0.02)


def test_classes_of_few_rows_leave_no_party(table):
    rare = table.assign(outcome=["rare"] * 3 + table["outcome"].tolist()[3:])
    tables = vertical(rare, ["ward", "outcome"], ["dose", "outcome"])
    kept = counted(tables, target="outcome", minimum_count=3)
    left_out = counted(tables, target="outcome", minimum_count=4)
    row = pd.DataFrame({"outcome": ["rare"]})
    assert kept.model.log_likelihood(row) == pytest.approx(np.log(3 / 400), abs=1e-9)
    assert of_training(kept) == []
    assert left_out.model.log_likelihood(row) == -np.inf
    (warning,) = of_training(left_out)
    assert "3 rows are not counted: fewer than 4 (minimum_count)" in warning
    assert "'outcome'" in warning


def test_few_common_rows_of_a_class_are_not_counted(table, monkeypatch):
    """Each party has three rows of the class; they have one in common, which no count contains."""
    rare = table.assign(outcome=["rare"] * 5 + table["outcome"].tolist()[5:])
    first, second = vertical(rare, ["ward", "outcome"], ["dose", "outcome"])
    tables = [first[~first["row_id"].isin([3, 4])], second[~second["row_id"].isin([0, 1])]]
    seen, trained = [], StateMarks.trained

    def keeping(self, domain, products, target=None):
        seen.append((self.plan, products))
        return trained(self, domain, products, target)

    monkeypatch.setattr(StateMarks, "trained", keeping)
    found = counted(tables, target="outcome")
    (plan, products), label = seen[0], ["ill", "rare", "well"].index("rare")
    sizes, length = plan.sizes, len(products) // plan.num_classes
    own = products[label * length :, label * length :][: sum(sizes), : sum(sizes)]
    # Two rows that the party alone has, of each variable; none of ward and dose together.
    assert [np.trace(own[:3, :3]), np.trace(own[3:, 3:])] == [2, 2]
    assert not own[: sizes[0], sizes[0] :].any()
    assert any("1 rows are not counted" in one for one in found.warnings)


def test_replies_are_masked_and_parties_learn_nothing_of_single_rows(table):
    """Words of plain sums would be multiples of the square of the step, 2^20 and more."""
    words = []
    for _ in range(2):
        grid = spy(vertical(table, ["ward", "dose"], ["outcome"]), {"fedpc": FedPCClient})
        assert run(FedPC(training="triples"), grid).rounds == 3
        arrays = [reply.content["arrays"] for reply in grid.replies if "arrays" in reply.content]
        replies = [one for one in arrays if "products" in one]
        words += [np.append(one["products"].numpy(), one["sums"].numpy()) for one in replies]
        sent = {name for one in grid.training_messages for name in one.content.get("arrays", {})}
        # Positions of the party's own rows, and tables that are masked for it.
        assert sent == {"presence", "patterns", "pattern-rows", "rows", "boxes"}
    assert len(words) == 4
    for one in words:
        assert np.count_nonzero(one.view(np.uint64) % np.uint64(2**16) == 0) < 3
    assert not (words[0] == words[2]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": "spn"}, "set learner='trees'"),
        ({"weights": "em"}, "'weights' is 'em', which is for training='one-pass'"),
        ({"components": 4}, "set components=1"),
        ({"head": True}, "set head=False"),
        ({"decision": "macro-f1"}, "set decision='most-probable'"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_named(table, options, message):
    with pytest.raises(ConfigError, match=message):
        counted(vertical(table, ["ward", "dose"], ["outcome"]), **options)


def test_ids_are_needed(table):
    tables = [one.drop(columns="row_id") for one in vertical(table, ["ward"], ["outcome"])]
    with pytest.raises(ConfigError, match="training='triples' needs rows that are matched by ids"):
        counted(tables)


def test_a_pair_of_columns_without_common_rows_is_named(table):
    one, other = vertical(table, ["ward"], ["outcome"])
    other["row_id"] += 1000
    with pytest.raises(DataError, match=r"'outcome' and 'ward'|'ward' and 'outcome'"):
        counted([one, other])


def test_the_default_marks_as_many_pairs_of_states_as_its_tables_have_room_for(table, monkeypatch):
    """States of all columns: 3 wards, 16 ages, 3 doses; pairs of the first two, 3 x 8 groups."""
    tables = vertical(table, ["ward", "age"], ["dose"])
    groups = []

    class Spied(Joints):
        @classmethod
        def of(cls, *args):
            joints = super().of(*args)
            groups.append(joints.counts[1] if joints.pairs else 0)
            return joints

    monkeypatch.setattr("flwr_causal.protocol.fedpc.Joints", Spied)
    # Both sides take the number of groups that fits; with other marks the run would be over.
    for room, expected in ((3 * 8, 8), (3 * 8 - 1, 6), (3 * 2, 2), (3 * 2 - 1, 0), (-9, 0)):
        most = 8 * len(table) * (3 + 16 + 3 + room)
        monkeypatch.setattr("flwr_causal.strategies.fedpc.plan.MOST_BYTES", most)
        groups.clear()
        found = counted(tables, "auto")
        assert "by counts of triples, chosen because not all" in found.stop_reason
        assert set(groups) == {expected}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [{"learner": "spn"}, {"weights": "em"}, {"components": 4}, {"head": True}],
    ids=str,
)
def test_options_of_one_pass_keep_the_default_from_counting(table, options):
    found = counted(vertical(table, ["ward", "dose"], ["outcome"]), "auto", **options)
    assert "in one pass" in found.stop_reason


def test_equal_columns_are_trained_by_sums(table):
    frame = table[["ward", "outcome"]]
    found = counted([frame[:200], frame[200:]])
    sums = simulate("fedpc", [frame], training="sums", learner="trees")
    alike(found, sums.model, frame)
