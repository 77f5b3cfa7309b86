"""Trees with two parents, from counts of triples: brute force, closed form, what is learned."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.circuits.learners.trees.triple_tables import (
    MOST_MARKS,
    Joints,
    StateMarks,
    TripleTables,
    fitted,
    grown,
    normal_table,
    roots,
    shrunk,
    tree_leaf,
)


def categories(*sizes):
    return Domain(tuple(Variable(f"x{k}", tuple(range(size))) for k, size in enumerate(sizes)))


def plan_of(domain, target=None, least=1):
    training = training_of("trees", target, LearnerOptions())
    return training.plan(domain, seed=0, min_rows=least)


def counted(domain, values, holders, target=None):
    """The plan, its joint marks, and the products of all marks that are wanted."""
    plan = plan_of(domain, target)
    joints = Joints.of(domain, plan, holders)
    marks = StateMarks(plan, joints)
    design = marks.values(values)
    return plan, joints, (design.T @ design) * marks.wanted


def tables_of(domain, values, holders):
    _, joints, counts = counted(domain, values, holders)
    ordered = np.array([one.edges is not None for one in domain.variables])
    return TripleTables(joints, counts, ordered)


def every_row(sizes):
    return np.array(list(product(*(range(size) for size in sizes))), dtype=np.float64)


def conditional(found, joints, member, row):
    """The probability of a variable's state in a row by its table."""
    states = row.astype(int)
    if len(member.parents) == 2:
        index = tuple(joints.groups[one][states[one]] for one in member.parents)
    else:
        index = tuple(states[one] for one in member.parents)
    return found.table[(*index, states[member.variable])]


@given(st.integers(0, 10**6))
def test_a_tree_with_hidden_variables_is_the_product_of_its_tables(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(3, 7))
    numbers = rng.random(d) < 0.3
    domain = Domain(
        tuple(
            Variable(f"x{k}", edges=tuple(range(9)))  # ten intervals in eight groups
            if number and k < 2
            else Variable(f"x{k}", tuple(range(rng.integers(1, 4))))
            for k, number in enumerate(numbers)
        )
    )
    sizes = domain.num_states
    values = rng.integers(sizes, size=(60, d)).astype(float)
    if d > 3:
        values[:, -1] = (values[:, 0] + values[:, 1]) % sizes[-1]
        values[:, 2] = (values[:, -1] + values[:, 1]) % sizes[2]
    tables = tables_of(domain, values, rng.integers(2, size=d))
    members = grown(tables, int(rng.integers(d)))
    leaf = tree_leaf(tables, members, range(d))
    rows = every_row(sizes)
    expected = [
        np.prod([conditional(tables.estimate(*one), tables.joints, one, row) for one in members])
        for row in rows
    ]
    found = np.exp(leaf.log_density(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found.sum() == pytest.approx(1.0, abs=1e-9)
    assert sorted(one.variable for one in members) == list(range(d))


@pytest.mark.parametrize("holders", [[0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 2, 3]], ids=str)
def test_all_variables_depend_on_the_target_that_is_to_be_predicted(holders):
    """And possibly on another one, whoever holds which."""
    domain, rng = categories(2, 3, 2, 3), np.random.default_rng(4)
    values = np.array([rng.integers(size, size=300) for size in (2, 3, 2, 3)], dtype=float).T
    values[:, 2] = values[:, 0]
    values[:, 3] = values[:, 1]
    tables = tables_of(domain, values, holders)
    for root in range(4):
        members = {one.variable: one.parents for one in grown(tables, root, 0)}
        assert members.pop(0) == ()
        assert set(members) == {1, 2, 3}
        assert all(0 in parents for parents in members.values())
        # Of x1 and x3, which are equal, one depends on the other.
        assert 3 in members[1] or 1 in members[3]


def test_the_evidence_is_that_of_one_row_after_the_other():
    """Polya's urn: the probability of each row given those before it, one strength for all."""
    counts, prior = np.array([[3.0, 0.0, 2.0], [0.0, 1.0, 0.0]]), np.array([0.2, 0.3, 0.5])
    found = shrunk(counts, [prior])
    by_strength = {}
    for strength in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0):
        total = 0.0
        for row in counts:
            seen = np.zeros(3)
            for state in np.repeat(np.arange(3), row.astype(int)):
                cells = seen + strength * prior
                total += np.log(cells[state] / cells.sum())
                seen[state] += 1
        by_strength[strength] = total
    best = max(by_strength, key=by_strength.get)
    assert found.evidence == pytest.approx(by_strength[best], abs=1e-9)
    cells = counts + best * prior
    np.testing.assert_allclose(found.table, cells / cells.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("apart", [0, 1, 2])
def test_what_depends_on_two_others_only_together_is_found(apart):
    """An exclusive or: no pair of the three depends on each other; any two may be at one party."""
    rng = np.random.default_rng(apart)
    values = rng.integers(2, size=(400, 4)).astype(float)
    values[:, 2] = (values[:, 0] + values[:, 1]) % 2
    holders = np.array([0, 0, 0, 1])
    holders[apart] = 1
    domain = categories(2, 2, 2, 2)
    plan, joints, products = counted(domain, values, holders)
    triples = StateMarks(plan, joints).trained(domain, products)
    size = sum(plan.sizes)
    unmarked = Joints.of(domain, plan, holders, most_marks=0)
    pairs = StateMarks(plan, unmarked).trained(domain, products[:size, :size])
    bits = np.log(2)
    assert triples.log_densities(values).mean() == pytest.approx(-3 * bits, abs=0.05)
    assert pairs.log_densities(values).mean() == pytest.approx(-4 * bits, abs=0.05)


def test_a_table_without_interaction_is_found_from_its_pairs():
    """Also where a pair was counted in more rows; its log probability is a sum of three tables."""
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(3, 4, 1)) + rng.normal(size=(3, 1, 2)) + rng.normal(size=(1, 4, 2))
    table = 500 * np.exp(logs) / np.exp(logs).sum()
    found = fitted(table.sum(axis=2), 2 * table.sum(axis=1), table.sum(axis=0))
    np.testing.assert_allclose(found, table, rtol=1e-3)
    # Other rows with the same pairs: the log probability is the same, and that of the fitted ones.
    other = table.copy()
    other[:2, :2, 0] += [[1, -1], [-1, 1]]
    other[:2, :2, 1] -= [[1, -1], [-1, 1]]
    assert (other * logs).sum() == pytest.approx((table * logs).sum())
    assert not fitted(np.zeros((3, 4)), table.sum(axis=1), table.sum(axis=0)).any()


def test_three_variables_of_three_parties_are_fitted_to_their_pairs():
    """What two tell together of the third is there, but for an interaction of the three."""
    rng = np.random.default_rng(0)
    values = rng.integers(2, size=(5000, 3)).astype(float)
    chance = 1 / (1 + np.exp(2 - 2 * values[:, 0] - 2 * values[:, 1]))
    sums, odd = (values.copy() for _ in range(2))
    sums[:, 2] = rng.random(5000) < chance
    odd[:, 2] = (values[:, 0] + values[:, 1]) % 2
    domain = categories(2, 2, 2)
    tables = tables_of(domain, sums, [0, 1, 2])
    assert tables.joints.pairs == ()
    logistic = 1 / (1 + np.exp(2 - 2 * np.add.outer(np.arange(2), np.arange(2))))
    np.testing.assert_allclose(tables.estimate(2, (0, 1)).table[:, :, 1], logistic, atol=0.03)
    counted_together = tables_of(domain, sums, [0, 0, 1]).estimate(2, (0, 1))
    alone = tables.estimate(2).evidence
    gain = tables.estimate(2, (0, 1)).evidence - alone
    assert gain == pytest.approx(counted_together.evidence - alone, rel=0.02)
    assert {len(one.parents) for one in grown(tables, 0)} == {0, 1, 2}
    interaction = tables_of(domain, odd, [0, 1, 2]).estimate(2, (0, 1))
    np.testing.assert_allclose(interaction.table, 0.5, atol=0.03)


@pytest.mark.parametrize(("holders", "variable"), [([0, 0, 1], 2), ([0, 1, 1], 2), ([1, 0, 1], 2)])
def test_tables_follow_the_rows_whoever_counts_them(holders, variable):
    """With many rows a table is that of the rows, in the groups of its parents."""
    rng = np.random.default_rng(4)
    edges = tuple(np.arange(1.0, 12.0))
    domain = Domain((Variable("a", edges=edges), Variable("b", ("u", "v")), Variable("c", (0, 1))))
    values = np.column_stack(
        [rng.integers(12, size=50_000), rng.integers(2, size=50_000), np.zeros(50_000)]
    ).astype(float)
    chance = np.where(values[:, 1] > 0, values[:, 0] / 12, 0.5)
    values[:, 2] = rng.random(50_000) < chance
    tables = tables_of(domain, values, holders)
    found = tables.estimate(variable, (0, 1))
    groups = tables.joints.groups[0]
    for group, second in product(range(8), range(2)):
        rows = (groups[values[:, 0].astype(int)] == group) & (values[:, 1] == second)
        assert found.table[group, second, 1] == pytest.approx(values[rows, 2].mean(), abs=0.02)
    turned = tables.estimate(variable, (1, 0))
    np.testing.assert_array_equal(turned.table, found.table.swapaxes(0, 1))


def test_intervals_within_groups_follow_a_parent():
    """A number that a party has together with one parent is counted in groups; its intervals are
    those of the pairs."""
    rng = np.random.default_rng(5)
    n = 20_000
    domain = Domain(
        (Variable("a", edges=tuple(range(11))), Variable("b", (0, 1)), Variable("c", (0, 1)))
    )
    b, c = rng.integers(2, size=(2, n))
    # Groups of intervals depend on both, even and odd intervals on b.
    low = rng.integers(0, 3, size=n) * 2 + 6 * ((b ^ c) > 0)
    values = np.column_stack([low + b, b, c]).astype(float)
    tables = tables_of(domain, values, [0, 0, 1])
    members = grown(tables, 1)
    leaf = tree_leaf(tables, members, range(3))
    assert leaf.log_density(values).mean() == pytest.approx(-np.log(2) - np.log(6), abs=0.02)


def test_marks_of_pairs_are_few_and_of_columns_with_the_same_holders():
    numbers = Domain(tuple(Variable(f"v{k}", edges=tuple(range(15))) for k in range(20)))
    plan = plan_of(numbers)
    for holders in ([0] * 20, [0] * 10 + [1] * 10, list(range(20))):
        joints = Joints.of(numbers, plan, holders)
        assert all(holders[i] == holders[j] for i, j in joints.pairs)
        count = len(StateMarks(plan, joints).owners) - sum(plan.sizes)
        assert count == sum(joints.counts[i] * joints.counts[j] for i, j in joints.pairs)
        assert count <= MOST_MARKS
    assert Joints.of(numbers, plan, [0] * 20).counts == (2,) * 20
    assert Joints.of(numbers, plan, [0] * 10 + [1] * 10).counts == (2,) * 20
    few = Joints.of(numbers, plan, [0, 0, *range(1, 19)])
    assert few.counts == (8,) * 20
    assert few.pairs == ((0, 1),)
    for most, groups, pairs in ((63, 6, 1), (4, 2, 1), (3, 2, 0), (0, 2, 0)):
        fewer = Joints.of(numbers, plan, [0, 0, *range(1, 19)], most)
        assert (fewer.counts[0], len(fewer.pairs)) == (groups, pairs)


def test_categories_of_many_states_have_pairs_as_far_as_there_is_room():
    domain = categories(30, 30, 2, 3, 4)
    joints = Joints.of(domain, plan_of(domain), [0] * 5)
    assert (0, 1) not in joints.pairs
    assert {(2, 3), (2, 4), (3, 4), (0, 2), (1, 2)} <= set(joints.pairs)


def test_a_missing_value_is_a_group_of_its_own_and_has_no_mark_without_a_state():
    domain = Domain(
        (Variable("v", edges=tuple(range(19)), missing_state=True), Variable("w", (0, 1)))
    )
    plan = plan_of(domain)
    joints = Joints.of(domain, plan, [0, 0])
    assert joints.groups[0].tolist()[-2:] == [7, 8]
    codes = joints.codes(np.array([[20, 0, -1], [1, -1, 1]], dtype=np.int32))
    assert codes.tolist() == [[8 * 2 + 1, -1, -1]]


def test_each_class_has_its_own_trees():
    rng = np.random.default_rng(6)
    values = rng.integers(2, size=(600, 4)).astype(float)
    values[:, 2] = np.where(
        values[:, 3] > 0, (values[:, 0] + values[:, 1]) % 2, values[:, 0] * values[:, 1]
    )
    domain = categories(2, 2, 2, 2)
    plan, joints, products = counted(domain, values, [0, 0, 1, 2], target="x3")
    found = StateMarks(plan, joints).trained(domain, products)
    rows = every_row([2] * 4)
    densities = np.exp(found.log_densities(rows))
    assert densities.sum() == pytest.approx(1.0)
    right = np.where(rows[:, 3] > 0, (rows[:, 0] + rows[:, 1]) % 2, rows[:, 0] * rows[:, 1])
    assert densities[rows[:, 2] == right].sum() > 0.97


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.5, 0.97])
def test_a_table_of_normal_scores_is_that_of_the_normal_distribution(correlation):
    rng = np.random.default_rng(7)
    x, noise = rng.standard_normal((2, 400_000))
    y = correlation * x + np.sqrt(1 - correlation**2) * noise
    codes = [
        np.searchsorted(np.quantile(one, np.arange(1, size) / size), one)
        for one, size in ((x, 16), (y, 10))
    ]
    seen = np.zeros((16, 10))
    np.add.at(seen, tuple(codes), 1.0)
    above, alone = seen.sum(axis=1) / len(x), seen.sum(axis=0) / len(x)
    found = normal_table(seen, above, alone)
    np.testing.assert_allclose(found, seen / seen.sum(axis=1, keepdims=True), atol=0.05)
    assert found.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("d", [1, 3, 8, 30])
def test_trees_have_different_roots(d):
    found = roots(d)
    assert len(set(found)) == len(found) == min(d, 8)
    assert max(found) < d
