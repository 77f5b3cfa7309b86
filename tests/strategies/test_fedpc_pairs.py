"""FedPC by counts of pairs and triples of states: the joined rows', over different columns."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import spy

from flwr_causal import simulate
from flwr_causal.clients.fedpc import FedPCClient
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.circuits.learners.trees.pair_tables import marks, trained, wanted
from flwr_causal.core.circuits.learners.trees.triple_tables import Joints
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


def pairs(tables, training="pairs", **options):
    return simulate("fedpc", tables, training=training, **options)


def joined(table, **options):
    plain = {"learner": "trees", "components": 1, "head": False}
    return simulate("fedpc", [table], training="sums", **plain, **options)


def alike(found, pooled, rows):
    ours, theirs = (one.model.log_likelihood(rows) for one in (found, pooled))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert set(found.model.names) == set(pooled.model.names)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_the_tree_is_that_of_the_joined_rows(table, parties):
    groups = [list(own) for own in np.array_split(np.array(NAMES), parties)]
    found = pairs(vertical(table, *groups))
    alike(found, joined(table), table)
    assert found.num_rows == len(table)
    assert of_training(found) == []
    # The dependence on a column of another party is there: of the wards' means 50, 55 and 60.
    given = pd.DataFrame({"ward": ["a", "c"]})
    low, high = found.model.moments("age", given)[0]
    assert high - low > 7


@pytest.mark.parametrize("holders", [1, 2])
def test_a_class_that_all_know_has_a_tree_of_its_own_another_is_a_column(table, holders):
    first, second = ["ward", "age", "outcome"], ["dose", "days"]
    if holders == 2:
        second.append("outcome")
    found = pairs(vertical(table, first, second), target="outcome")
    alike(found, joined(table, target="outcome" if holders == 2 else ""), table)
    rows = table[["days"]]
    assert (found.model.predict(rows) == table["outcome"]).mean() > 0.9


@pytest.mark.parametrize(
    ("groups", "target"),
    [
        ([["ward", "age", "dose"], ["outcome", "days"]], ""),
        ([["ward", "age"], ["dose", "days"], ["outcome"]], ""),
        ([["ward", "age", "outcome"], ["dose", "days", "outcome"]], "outcome"),
    ],
)
@pytest.mark.parametrize("training", ["triples", "auto"])
def test_triples_are_those_of_the_joined_rows(table, groups, target, training):
    found = pairs(vertical(table, *groups), training, target=target)
    names = list(found.model.names)
    domain = found.model.density.domain
    plan = training_of("trees", target or None, LearnerOptions()).plan(domain, seed=0, min_rows=2)
    joints = Joints.of(domain, plan, [[name in own for own in groups] for name in names])
    rows = marks(domain.encode(table), plan, joints)
    whole = trained(domain, plan, joints, (rows.T @ rows) * wanted(plan, joints))
    ours, theirs = (one.log_likelihood(table) for one in (found.model, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
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
    found = pairs(tables, "triples").model
    assert found.predict_proba(rows, "c")[:, 1] == pytest.approx([0.05, 0.95], abs=0.06)
    assert pairs(tables).model.predict_proba(rows, "c")[:, 1] == pytest.approx(0.5, abs=0.1)


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
    model = pairs(vertical(train, *groups), "auto").model
    of_density = replace(model, posterior=None).predict(test) == test["target"]
    right = model.predict(test) == test["target"]
    assert right.mean() > 0.75
    assert right.mean() > of_density.mean() + 0.08


def test_triples_of_rows_that_overlap(table):
    """Columns are marked together where the same parties hold them; each row counts once."""
    whole = table.round({"age": -1, "days": 0})
    groups = ["ward", "age"], ["dose", "outcome", "days"]
    apart = pairs(vertical(whole, *groups), "triples")
    more = [*vertical(whole[:250], *groups), *vertical(whole[200:], *groups)]
    alike(pairs(more, "triples"), apart, whole)


@pytest.mark.parametrize("training", ["pairs", "triples"])
def test_the_mean_given_a_number_of_another_party_reaches_into_the_tails(training):
    rng = np.random.default_rng(2)
    x = rng.normal(size=1000)
    frame = pd.DataFrame({"row_id": np.arange(1000), "x": x, "y": x + rng.normal(0, 0.3, 1000)})
    found = pairs(vertical(frame, ["x"], ["y"]), training).model
    means = found.moments("y", pd.DataFrame({"x": [-2.0, -1.0, 0.0, 1.0, 2.0]}))[0]
    assert means == pytest.approx([-2.0, -1.0, 0.0, 1.0, 2.0], abs=0.13)


def test_overlapping_rows_and_columns_count_once(table):
    top, bottom = table[:250], table[250:]
    tables = [
        *vertical(top, ["ward", "age", "dose"], ["dose", "outcome", "days"]),
        *vertical(bottom, ["days", "age"], ["ward", "dose", "outcome"]),
        *vertical(table[200:300], ["age", "outcome"]),
    ]
    # The parties' cut points count a row at each holder: columns of few values have none.
    tables = [one.round({"age": -1, "days": 0}) for one in tables]
    found = pairs(tables)
    alike(found, joined(table.round({"age": -1, "days": 0})), table.round({"age": -1, "days": 0}))
    assert found.num_rows == 400


def test_rows_that_some_parties_lack_are_reported(table):
    whole, half = vertical(table, ["ward", "age"], ["outcome", "days"])
    found = pairs([whole, half[:150]])
    assert any("Only 150 of 400 rows have all columns" in one for one in found.warnings)
    assert found.num_rows == 400
    share = np.exp(found.model.log_likelihood(pd.DataFrame({"ward": ["a"]})))
    assert share == pytest.approx((table["ward"] == "a").mean(), abs=0.02)


def test_missing_values_are_states(table):
    holes = table.copy()
    holes.loc[::4, "ward"] = None
    tables = vertical(holes, ["ward", "age"], ["outcome", "days"])
    found = pairs(tables, missing_values="keep")
    pooled = joined(holes.drop(columns="dose"), missing_values="keep")
    alike(found, pooled, holes)


def test_classes_of_few_rows_leave_no_party(table):
    rare = table.assign(outcome=["rare"] * 3 + table["outcome"].tolist()[3:])
    tables = vertical(rare, ["ward", "outcome"], ["dose", "outcome"])
    kept = pairs(tables, target="outcome", minimum_count=3)
    left_out = pairs(tables, target="outcome", minimum_count=4)
    row = pd.DataFrame({"outcome": ["rare"]})
    assert kept.model.log_likelihood(row) == pytest.approx(np.log(3 / 400), abs=1e-9)
    assert of_training(kept) == []
    assert left_out.model.log_likelihood(row) == -np.inf
    (warning,) = of_training(left_out)
    assert "3 rows are not counted: fewer than 4 (minimum_count)" in warning
    assert "'outcome'" in warning


@pytest.mark.parametrize("training", ["pairs", "triples"])
def test_few_common_rows_of_a_class_are_not_counted(table, training, monkeypatch):
    """Each party has three rows of the class; they have one in common, which no count contains."""
    rare = table.assign(outcome=["rare"] * 5 + table["outcome"].tolist()[5:])
    first, second = vertical(rare, ["ward", "outcome"], ["dose", "outcome"])
    tables = [first[~first["row_id"].isin([3, 4])], second[~second["row_id"].isin([0, 1])]]
    seen = []

    def keeping(domain, plan, joints, products):
        seen.append((plan, products))
        return trained(domain, plan, joints, products)

    monkeypatch.setattr("flwr_causal.strategies.fedpc.counts.trained", keeping)
    found = pairs(tables, training, target="outcome")
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
        assert run(FedPC(training="pairs"), grid).rounds == 3
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
        pairs(vertical(table, ["ward", "dose"], ["outcome"]), **options)


def test_ids_are_needed(table):
    tables = [one.drop(columns="row_id") for one in vertical(table, ["ward"], ["outcome"])]
    with pytest.raises(ConfigError, match="training='pairs' needs rows that are matched by ids"):
        pairs(tables)


def test_a_pair_of_columns_without_common_rows_is_named(table):
    one, other = vertical(table, ["ward"], ["outcome"])
    other["row_id"] += 1000
    with pytest.raises(DataError, match=r"'outcome' and 'ward'|'ward' and 'outcome'"):
        pairs([one, other])


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
        monkeypatch.setattr("flwr_causal.strategies.fedpc.choices.MOST_BYTES", most)
        groups.clear()
        found = pairs(tables, "auto")
        assert "by counts of triples, chosen because not all" in found.stop_reason
        assert set(groups) == {expected}


@pytest.mark.parametrize(
    "options",
    [{"learner": "spn"}, {"weights": "em"}, {"components": 4}, {"head": True}],
    ids=str,
)
def test_options_of_one_pass_keep_the_default_from_counting(table, options):
    found = pairs(vertical(table, ["ward", "dose"], ["outcome"]), "auto", **options)
    assert "in one pass" in found.stop_reason


def test_equal_columns_are_trained_by_sums(table):
    frame = table[["ward", "outcome"]]
    found = pairs([frame[:200], frame[200:]])
    sums = simulate("fedpc", [frame], training="sums", learner="trees")
    alike(found, sums, frame)
