"""FedGES over parties that hold different columns of the same rows."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from sweeps import sweep

from flwr_causal import CausalGraph, simulate
from flwr_causal.core.discrete.joint_states import Parts, split
from flwr_causal.data.check.row_ids import hashed_ids
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.products.plan import ProductPlan
from flwr_causal.reports.run import Run
from flwr_causal.simulations.relay import KilledError, Killing, Relay

NAMES = tuple("abcdef")


@pytest.fixture(scope="module")
def table():
    """A network of six categories: a and b cause c; c causes d; b and c cause e; e causes f."""
    rng = np.random.default_rng(0)
    n = 1200
    a, b = rng.integers(0, 3, n), rng.integers(0, 2, n)

    def child(k, *parents):
        cell = sum(parent * 3**place for place, parent in enumerate(parents))
        tables = rng.dirichlet(np.full(k, 0.5), size=3 ** len(parents))
        return (rng.random(n)[:, None] > tables[cell].cumsum(axis=1)).sum(axis=1)

    c = child(3, a, b)
    d, e = child(2, c), child(3, c, b)
    f = child(3, e)
    columns = dict(zip(NAMES, (a, b, c, d, e, f), strict=True))
    frame = pd.DataFrame({name: [f"{name}{k}" for k in own] for name, own in columns.items()})
    return frame.assign(patient=[f"p{k:04d}" for k in range(n)])


def shuffled(frame, seed):
    return frame.sample(frac=1, random_state=seed)


def vertical(table, parties):
    """Each party has some of the columns of all rows."""
    groups = [list(NAMES[place::parties]) for place in range(parties)]
    return [shuffled(table[["patient", *own]], k) for k, own in enumerate(groups)]


def found_in(parties, **options):
    return simulate("fedges", parties, mode="exact", row_id="patient", **options)


def same_class(run, other):
    names = list(other.graph.names)
    order = [run.graph.names.index(name) for name in names]
    np.testing.assert_array_equal(run.graph.adjacency[np.ix_(order, order)], other.graph.adjacency)


@pytest.mark.slow
@pytest.mark.parametrize("score", sweep(["bic", "bdeu", "qnml"], kept=["bdeu"]))
@pytest.mark.parametrize(("number", "most"), [(2, 1), (2, 2), (3, 1), (5, 1)])
def test_the_class_and_the_tables_are_those_of_the_joined_rows(table, number, most, score):
    run = found_in(vertical(table, number), max_parents=most, score=score)
    names = list(run.graph.names)
    pooled = simulate("fedges", [table[names]], mode="exact", max_parents=most, score=score)
    same_class(run, pooled)
    assert run.rounds == 3
    assert run.num_rows == 1200
    rows = table[names][:50]
    expected = pooled.model.log_likelihood(rows)
    np.testing.assert_allclose(run.model.log_likelihood(rows), expected, rtol=1e-12)


def test_independencies_are_tested_on_the_joined_rows(table, tmp_path):
    """Of columns of different parties, too, as far as the tables of pairs or triples go."""
    run = found_in(vertical(table, 2), max_parents=2, output_dir=tmp_path)
    check = Run.load(tmp_path).fit_check()
    tests = check.independencies.set_index(["first", "second"])
    assert len(tests) > 4
    assert len(tests) + check.untested == 15 - run.graph.num_edges
    expected = run.fit_check(table).independencies.set_index(["first", "second"])
    assert set(tests.index) <= set(expected.index)
    for name in ("statistic", "p_value"):
        np.testing.assert_allclose(tests[name], expected.loc[tests.index, name], rtol=1e-9)
    assert {one for one, other in tests.index} - set("ace"), "columns of both parties"
    unconditional = [pair for pair, given in tests["given"].items() if not given]
    assert unconditional
    for first, second in unconditional:
        counts = pd.crosstab(table[first], table[second]).to_numpy()
        _, p, *_ = chi2_contingency(counts, correction=False, lambda_="log-likelihood")
        assert tests.loc[(first, second), "p_value"] == pytest.approx(p)


def test_two_parents_give_directions_that_one_cannot(table):
    """a and b are independent, and c depends on both: only families of three show that."""
    weights = np.zeros((6, 6))
    for one, other in ("ac", "bc", "cd", "ce", "be", "ef"):
        weights[NAMES.index(one), NAMES.index(other)] = 1.0
    truth = CausalGraph(NAMES, weights)
    run = found_in(vertical(table, 2), max_parents=2, truth=truth)
    assert run.metrics["cpdag_shd"] == 0
    assert found_in(vertical(table, 2), max_parents=1, truth=truth).metrics["cpdag_shd"] > 0


def test_replicates_equal_those_of_the_joined_table_with_the_same_rows(table):
    """The same draws of rows, by hand: the replicates' shares of edges."""
    few = table[:150]  # of more rows all replicates have the same graph
    run = found_in(vertical(few, 2), max_parents=2, replicates=4, seed=3)
    assert run.rounds == 3
    hashes = [row.tobytes() for row in hashed_ids(few["patient"], b"3")]
    plan, rows = ProductPlan.of(np.ones((1, 6), dtype=bool), [hashes])
    ordered, names, shares = few.iloc[rows[0]], list(run.graph.names), 0.0
    for weights in plan.weights(4, 3)[1:]:
        drawn = ordered.iloc[np.repeat(np.arange(150), weights)][names]
        own = simulate("fedges", [drawn], mode="exact", max_parents=2, parameters=False)
        edges = own.graph.adjacency != 0
        shares = shares + np.where(edges & edges.T, 0.5, edges) / 4  # without a direction
    assert 0 < shares[shares > 0].min() < 1
    np.testing.assert_allclose(run.graph.confidence, shares)


def test_rows_and_columns_may_overlap(table):
    """Rows that lack a column are not used, and counted."""
    parties = [
        shuffled(table[["patient", "a", "c", "f", "b"]][:1000], 0),
        shuffled(table[["patient", "b", "d", "e", "c"]][100:], 1),
    ]
    run = found_in(parties, max_parents=2)
    pooled = simulate(
        "fedges", [table[list(run.graph.names)][100:1000]], mode="exact", max_parents=2
    )
    same_class(run, pooled)
    assert (run.history[-1]["rows"], run.history[-1]["complete_rows"]) == (1200, 900)
    assert any("Only 900 of 1200 rows have all columns" in text for text in run.warnings)


def test_numbers_are_cut_before_rows_are_matched():
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 2000))
    y, w = x + rng.normal(size=2000), z + 0.5 * x + 0.3 * rng.normal(size=2000)
    table = pd.DataFrame({"x": x, "y": y, "z": z, "w": w, "patient": np.arange(2000)})
    parties = [table[["patient", "x", "w"]], shuffled(table[["patient", "y", "z"]], 0)]
    run = found_in(parties, max_parents=2, discretize=3)
    pooled = simulate(
        "fedges",
        [table[list(run.graph.names)]],
        mode="exact",
        max_parents=2,
        discretize=3,
    )
    same_class(run, pooled)
    assert run.model.states == pooled.model.states


def test_secure_sums_and_knowledge(table, tmp_path):
    file = tmp_path / "knowledge.toml"
    file.write_text('forbidden = [["c", "d"], ["d", "c"]]\nrequired = [["b", "e"]]\n')
    options = {"max_parents": 1, "knowledge": str(file)}
    run = found_in(vertical(table, 3), secure_aggregation=True, **options)
    names = list(run.graph.names)
    same_class(run, simulate("fedges", [table[names]], mode="exact", **options))
    b, c, d, e = (names.index(name) for name in "bcde")
    assert run.graph.adjacency[b, e]
    assert not run.graph.adjacency[[e, c, d], [b, d, c]].any()


def test_more_required_causes_than_are_counted_are_refused(table, tmp_path):
    file = tmp_path / "knowledge.toml"
    file.write_text('required = [["a", "e"], ["b", "e"]]\n')
    with pytest.raises(ConfigError, match=r"requires 2 causes of 'e' \('a', 'b'\).*max_parents=1"):
        found_in(vertical(table, 2), max_parents=1, knowledge=str(file))
    assert found_in(vertical(table, 2), max_parents=2, knowledge=str(file)).graph is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "max_parents.*1 or 2"),
        ({"max_parents": 3}, "max_parents.*1 or 2"),
        ({"max_parents": 1, "small_counts": "suppress"}, "small_counts.*'report'"),
        ({"max_parents": 1, "max_rounds": 2}, "max_rounds.*3 or more"),
    ],
)
def test_options_that_do_not_fit_are_named_before_rows_are_compared(table, options, words):
    with pytest.raises(ConfigError, match=words):
        found_in(vertical(table, 2), **options)


@pytest.mark.slow
def test_rows_with_gaps_are_left_out_as_no_sum_tells_what_they_lack(table):
    # Also where no option names the ids, and it is left open what is done about gaps.
    parties = [one.rename(columns={"patient": "row_id"}) for one in vertical(table, 2)]
    parties[0] = parties[0].astype(object)
    gone = parties[0].index[::9]
    parties[0].loc[gone, "a"] = None
    run = simulate("fedges", parties, mode="exact", max_parents=2)
    assert "Assumed missing_values='drop'" in " ".join(run.warnings)
    same_class(run, found_in(vertical(table.drop(index=gone), 2), max_parents=2))
    with pytest.raises(ConfigError, match="set missing_values='auto', 'fail' or 'drop'"):
        simulate("fedges", parties, mode="exact", max_parents=2, missing_values="em")


def test_three_columns_of_three_parties_are_refused(table):
    with pytest.raises(DataError, match=r"no party holds two in every row.*max_parents=1"):
        found_in(vertical(table, 3), max_parents=2)


def test_parties_without_common_rows_are_refused(table):
    one, other = vertical(table, 2)
    ids = other["patient"].str.replace("p", "q")
    with pytest.raises(DataError, match="both known of 0 rows"):
        found_in([one, other.assign(patient=ids)], max_parents=1)


def test_other_modes_name_the_remedy(table):
    with pytest.raises(DataError, match="mode='exact'"):
        simulate("fedges", vertical(table, 2), row_id="patient")


def test_counts_of_few_rows_are_counted(table):
    rare = table.assign(a=np.where(np.arange(len(table)) < 2, "rare", table["a"]))
    run = found_in(vertical(rare, 2), max_parents=1)
    tables = [pd.crosstab(rare[i], rare[j]).to_numpy() for i, j in combinations(NAMES, 2)]
    few = sum(int(((own > 0) & (own < 5)).sum()) for own in tables)
    assert few > 0
    assert any(f"learned {few} counts of fewer joined rows" in text for text in run.warnings)


def test_parts_count_every_cell():
    """Products of marks are contingency tables, whatever the division."""
    rng = np.random.default_rng(2)
    cards = np.array([2, 3, 4])
    codes = np.array([rng.integers(0, k, 200) for k in cards]).astype(np.uint8)
    expected = np.zeros(cards, dtype=np.int64)
    np.add.at(expected, tuple(codes.astype(np.int64)), 1)
    for division in [((0, 1), (2,)), ((0, 2), (1,)), ((1, 2), (0,)), ((0, 1, 2), ())]:
        parts = Parts.of([division])
        marks = parts.marks(codes, cards, np.ones(3, dtype=np.bool_))
        (counted,) = parts.tables(marks.T @ marks, cards)
        np.testing.assert_array_equal(counted, expected)
    assert split((0, 1, 2), cards, lambda *parts: len(parts[0]) < 3) == ((0, 1), (2,))


@pytest.mark.few(2)
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_killed_run_goes_on_to_the_same_class(table, place, tmp_path):
    options = {"max_parents": 2, "output_dir": tmp_path}
    with pytest.raises(KilledError):
        found_in(vertical(table, 2), wrap_grid=lambda grid: Killing(grid, place), **options)
    resumed = found_in(vertical(table, 2), resume=True, **options)
    same_class(resumed, found_in(vertical(table, 2), max_parents=2))
    assert resumed.status == "completed"


def altered(table, change, **options):
    """Run with a server that changes what it asks the parties for in the exchange of marks."""

    class Altering(Relay):
        def before(self, messages):
            for message in messages:
                config = dict(message.content["config"])
                if config.get("exchange") == "masked tables":
                    arrays = records.arrays_of(message.content)
                    message.content["arrays"] = records.pack_arrays(change(arrays))
            return messages

    return found_in(vertical(table, 2), wrap_grid=Altering, **options)


def test_a_party_refuses_marks_of_more_columns_than_the_option_says(table):
    """As a curious server may ask for: of three columns, with max_parents=2."""

    def change(arrays):
        sizes, members = arrays["sizes"].copy(), arrays["members"]
        sizes[0], extra = 3, {0, 1, 2}
        members = np.concatenate([sorted(extra), members[arrays["sizes"][0] :]])
        return {**arrays, "sizes": sizes, "members": members.astype(arrays["members"].dtype)}

    with pytest.raises(FederationError, match="joint states of more than 2 columns"):
        altered(table, change, max_parents=2)


def test_a_party_refuses_other_parts_than_its_columns(table):
    def change(arrays):
        return {**arrays, "members": np.sort(arrays["members"])[::-1].copy()}

    with pytest.raises(FederationError, match="not that of this party's rows and columns"):
        altered(table, change, max_parents=1)
