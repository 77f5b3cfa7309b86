"""Secure sums by groups of parties: medians, influence, dropouts, and what no party answers."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import KeysAgreed, app_of, losing, make_federation, spy
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from lagged_systems import simulate_series

from flwr_causal import Run
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.secure import party as secure
from flwr_causal.secure import ring
from flwr_causal.secure.groups import dealt, name_of
from flwr_causal.secure.ring import Size
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.simulations.relay import KilledError, Killing, Relay
from flwr_causal.strategies import Moments, run

TABLES = make_federation(d=4, n=420, parties=7, seed=1).tables
GROUPED = {"secure_aggregation": True, "groups": "auto"}
TARGETS = [table.assign(by=np.where(np.arange(60) < 30, "", "x1")) for table in TABLES]
SERIES = [
    simulate_series(seed, 90, np.triu(np.full((3, 3), 0.6), 1), 0.4 * np.eye(3))
    for seed in range(6)
]


def make_categories():
    tables = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        a, c = rng.integers(0, 2, (2, 90 + 10 * seed))
        b = np.where(rng.random(len(a)) < 0.9, a | c, 1 - (a | c))
        tables.append(pd.DataFrame({"a": a, "b": b, "c": c}).astype(str))
    return tables


CASES = {
    "moments": ("moments", TABLES, {}),
    "bic": ("moments", TABLES, {"sparsity": "bic"}),
    "interventions": ("moments", TARGETS, {"intervention_column": "by"}),
    "series": ("moments", SERIES, {"order": 1, "center": "series"}),
    "own levels": ("moments", [t + 9.0 * k for k, t in enumerate(TABLES)], {"center": "party"}),
    "replicates": ("moments", TABLES, {"replicates": 3}),
    "additive": ("moments", TABLES, {"model": "additive"}),
    "lingam": ("lingam", TABLES, {}),
    "admm": ("notears-admm", TABLES, {"max_rounds": 6}),
    # Each party counts once, whatever its rows; a refit would hide other weights in the rounds.
    "admm of unequal parties": (
        "notears-admm",
        [table[: 20 + 6 * k] for k, table in enumerate(TABLES)],
        {"max_rounds": 6, "refit": False},
    ),
    "admm of levels": ("notears-admm", TABLES, {"max_rounds": 6, "center": "party"}),
    "fedcausal": ("fedcausal", TABLES, {"model": "linear", "max_rounds": 6}),
    "2dbn": ("2dbn", SERIES, {"max_rounds": 6}),
    "fedges": ("fedges", make_categories(), {"mode": "exact", "replicates": 2}),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("case", CASES)
def test_sums_of_groups_add_up_to_those_of_all(case):
    method, tables, options = CASES[case]
    plain = simulate(method, tables, **options)
    found = simulate(method, tables, **GROUPED, **options)
    assert len(found.groups) == 2
    assert sorted(one for own in found.groups.values() for one in own) == sorted(plain.parties)
    assert np.array_equal(plain.graph.adjacency, found.graph.adjacency)
    atol = 1e-12 * np.abs(plain.graph.weights).max()
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=atol)
    if plain.graph.party_agreement is not None:
        np.testing.assert_array_equal(found.graph.party_agreement, plain.graph.party_agreement)
    assert found.rounds == plain.rounds
    assert found.num_rows == plain.total_rows
    assert set(found.parties.values()) == {0}
    assert found.answered == plain.answered


def joined(tables, groups):
    """The rows of each group's parties in one table."""
    return [pd.concat([tables[int(one.split()[1])] for one in own]) for own in groups.values()]


TWELVE = [
    table.iloc[: 40 + 5 * k]
    for k, table in enumerate(make_federation(d=5, n=1200, parties=12, seed=3).tables)
]


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"leave_one_out": True}])
@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_a_run_by_groups_is_the_plain_one_with_the_groups_as_parties(aggregation, options):
    # Levels are of parties, and of those that are joined here: about one mean both are the same.
    options = {"aggregation": aggregation, "center": "global", **options}
    found = simulate("moments", TWELVE, **GROUPED, **options)
    plain = simulate("moments", joined(TWELVE, found.groups), **options)
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-11)
    assert list(found.influence) == list(found.groups)
    for own, other in zip(found.influence.values(), plain.influence.values(), strict=True):
        assert own["changes"] == other["changes"]
        assert own["largest_change"] == pytest.approx(other["largest_change"], abs=1e-9)
        if other["distance"] is not None:
            assert own["distance"] == pytest.approx(other["distance"], rel=1e-6)
    if aggregation == "mean":
        for column in ("value", "others", "z"):
            own, other = (one.disagreement[column] for one in (found, plain))
            np.testing.assert_allclose(own, other, rtol=1e-6)


@pytest.mark.slow
def test_without_each_group_the_iterations_are_those_of_the_other_parties():
    options = {"max_rounds": 6}
    found = simulate("notears-admm", TWELVE, leave_one_out=True, **GROUPED, **options)
    whole = simulate("notears-admm", TWELVE, **options)
    assert len(found.influence) == 4
    np.testing.assert_allclose(found.graph.weights, whole.graph.weights, rtol=0, atol=1e-12)
    # The same penalties as of the twelve: of nine, so the setup is that of all.
    for name, group in found.groups.items():
        assert found.influence[name]["largest_change"] > 1e-4, group


def scaled(tables, place, factor=5.0):
    return [table * (factor if k == place else 1.0) for k, table in enumerate(tables)]


def test_a_party_that_lies_moves_the_mean_and_not_the_median_and_its_group_is_named():
    lying = scaled(TWELVE, 7)
    honest = simulate("moments", TWELVE, **GROUPED)
    mean = simulate("moments", lying, **GROUPED)
    median = simulate("moments", lying, aggregation="median", **GROUPED)

    def apart(one):
        return np.abs(one.graph.weights - honest.graph.weights).max()

    assert apart(median) < 0.15
    assert apart(mean) > 2 * apart(median)
    (own,) = [name for name, group in mean.groups.items() if "party 7" in group]
    assert max(mean.influence, key=lambda name: mean.influence[name]["distance"]) == own
    assert mean.influence[own]["distance"] > 4


def test_units_that_differ_are_warned_of_by_group():
    tables = scaled(TWELVE, 2, 1e4)
    found = simulate("moments", tables, **GROUPED)
    (warning,) = [text for text in found.warnings if text.startswith("The units of some columns")]
    (own,) = [name for name, group in found.groups.items() if "party 2" in group]
    assert own in warning


NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=3, max_size=40, unique=True)


@given(NAMES, st.integers(3, 5), st.integers(0, 5), st.data())
def test_groups_are_dealt_by_seed_and_names_alone(names, least, seed, data):
    if len(names) < 2 * least:
        with pytest.raises(ConfigError, match=f"need {2 * least} parties"):
            dealt(names, "auto", least, 2, seed)
        return
    groups = dealt(names, "auto", least, 2, seed)
    sizes = [list(groups.values()).count(number) for number in set(groups.values())]
    assert min(sizes) >= least
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == len(names) // least
    assert set(groups.values()) == set(range(1, 1 + len(sizes)))
    assert dealt(data.draw(st.permutations(names)), "auto", least, 2, seed) == groups


def test_another_seed_deals_other_groups():
    names = [f"party {k}" for k in range(12)]
    deals = {tuple(sorted(dealt(names, 4, 3, 2, seed).items())) for seed in range(6)}
    assert len(deals) == 6
    assert name_of(2, names) == f"group 2 ({', '.join(names[:8])}, 4 more)"


REFUSED = [
    ({"groups": 2}, "secure_aggregation=True"),
    ({"secure_aggregation": True, "aggregation": "median"}, "'mean', or groups given"),
    ({"secure_aggregation": True, "leave_one_out": True}, "False, or groups given"),
    ({"secure_aggregation": True, "groups": 0}, "'groups'"),
    ({"secure_aggregation": True, "groups": 3}, "3 groups of 3 parties or more"),
    ({**GROUPED, "aggregation": "median"}, "need 9 parties, and there are 7"),
    ({**GROUPED, "groups": 2, "aggregation": "median"}, "need 3 groups at least"),
    ({**GROUPED, "min_parties": 4}, "need 8 parties, and there are 7"),
    ({**GROUPED, "epsilon": 1.0}, "with epsilon"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_refused(options, reason):
    with pytest.raises(ConfigError, match=reason):
        simulate("moments", TABLES, **options)


def test_circuits_have_no_groups():
    with pytest.raises(ConfigError, match="groups"):
        simulate("fedpc", TABLES, **GROUPED)


def places_of(group):
    return [int(name.split()[1]) for name in group]


def of_three(found):
    """A group that all of its parties are needed for, and its name."""
    return next((name, own) for name, own in found.groups.items() if len(own) == 3)


def test_a_group_that_lacks_a_party_is_missing_from_that_sum_only():
    clean = simulate("notears-admm", TABLES, max_rounds=6, **GROUPED)
    name, group = of_three(clean)
    first = places_of(group)[0]
    found = simulate(
        "notears-admm", TABLES, wrap_grid=losing({(2, False): [first]}), max_rounds=6, **GROUPED
    )
    whole = losing({(2, False): places_of(group)})
    plain = simulate("notears-admm", TABLES, wrap_grid=whole, max_rounds=6)
    assert [record["parties"] for record in found.history] == [7, 4, 7, 7, 7, 7]
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-12)
    (warning,) = [text for text in found.warnings if "is missing from" in text]
    assert warning.startswith(f"Group {name.removeprefix('group ')} is missing from 1 of 6")
    assert f"no usable reply of party {first}" in warning
    assert [found.answered[one] for one in group] == [5, 5, 5]


def test_a_group_of_four_has_the_sum_of_three():
    clean = simulate("notears-admm", TABLES, max_rounds=6, **GROUPED)
    (group,) = [own for own in clean.groups.values() if len(own) == 4]
    lost = {(2, False): [places_of(group)[1]], (4, False): [places_of(group)[3]]}
    found = simulate("notears-admm", TABLES, wrap_grid=losing(lost), max_rounds=6, **GROUPED)
    plain = simulate("notears-admm", TABLES, wrap_grid=losing(lost), max_rounds=6)
    assert [record["parties"] for record in found.history] == [7, 6, 7, 6, 7, 7]
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-12)
    # An answer to the unmasking may be missing too.
    late = {(3, True): [places_of(group)[2]]}
    found = simulate("notears-admm", TABLES, wrap_grid=losing(late), max_rounds=6, **GROUPED)
    np.testing.assert_array_equal(found.graph.weights, clean.graph.weights)


def test_a_group_without_totals_takes_no_part():
    clean = simulate("moments", TABLES, **GROUPED)
    tables = [*TABLES, *make_federation(d=4, n=180, parties=3, seed=1).tables]
    clean = simulate("moments", tables, **GROUPED)
    name, group = of_three(clean)
    found = simulate(
        "moments", tables, wrap_grid=losing({(0, False): places_of(group)[:1]}), **GROUPED
    )
    rest = [table for k, table in enumerate(tables) if k not in places_of(group)]
    plain = simulate("moments", rest)
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-12)
    assert list(found.groups) == [one for one in clean.groups if one != name]
    assert len(found.parties) == 7
    (warning,) = [text for text in found.warnings if text.startswith("The run began without")]
    assert name in warning


def test_too_few_groups_with_totals_end_the_run():
    clean = simulate("moments", TABLES, **GROUPED)
    _, group = of_three(clean)
    lost = f"There are totals of 1 groups.*there is no usable reply of {group[0]}.*{group[0]}: "
    with pytest.raises(FederationError, match=lost):
        simulate("moments", TABLES, wrap_grid=losing({(0, False): places_of(group)[:1]}), **GROUPED)


def test_sums_that_must_be_of_the_same_parties_go_on_without_a_group_or_end():
    clean = simulate("lingam", TABLES, **GROUPED)
    _, group = of_three(clean)
    first = places_of(group)[0]
    found = simulate("lingam", TABLES, wrap_grid=losing({(1, False): [first]}), **GROUPED)
    assert {record["parties"] for record in found.history} == {4}
    assert found.rounds > 1
    with pytest.raises(FederationError, match="earlier sums of this method have them in it"):
        simulate("lingam", TABLES, wrap_grid=losing({(2, False): [first]}), **GROUPED)


def test_a_median_of_too_few_groups_ends_the_run():
    clean = simulate("moments", TWELVE, groups=3, aggregation="median", secure_aggregation=True)
    (group, *_) = clean.groups.values()
    lost = losing({(1, False): places_of(group)[:2]})
    with pytest.raises(FederationError, match=f"only 2 groups replied.*{group[0]}.*: "):
        simulate(
            "moments",
            TWELVE,
            wrap_grid=lost,
            groups=3,
            aggregation="median",
            secure_aggregation=True,
        )


class Altered(Relay):
    """A grid that alters the masked words of one party in one exchange."""

    def __init__(self, grid, place, number):
        super().__init__(grid)
        self.place, self.number = place, number

    def after(self, messages, replies):
        number = records.config_of(messages[0].content).get("round")
        for reply in replies:
            mine = reply.metadata.src_node_id == self.place + 2
            if mine and number == self.number and "arrays" in reply.content:
                arrays = records.arrays_of(reply.content)
                if "masked" in arrays:
                    words = arrays["masked"].copy()
                    words[:3] += np.uint64(2**40)
                    reply.content["arrays"] = records.pack_arrays({"masked": words})
        return replies


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [0, 2])
def test_a_group_whose_sum_is_altered_is_left_out(number):
    tables = [*TABLES, *make_federation(d=4, n=180, parties=3, seed=1).tables]
    clean = simulate("notears-admm", tables, max_rounds=6, **GROUPED)
    name, group = of_three(clean)
    place = places_of(group)[0]
    found = simulate(
        "notears-admm",
        tables,
        max_rounds=6,
        wrap_grid=lambda grid: Altered(grid, place, number),
        **GROUPED,
    )
    (warning,) = [text for text in found.warnings if "do not cancel" in text]
    assert name.removeprefix("group ") in warning
    assert [found.answered.get(one, 0) for one in group] == [0 if number == 0 else 5] * 3
    assert found.graph.num_edges


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"leave_one_out": True, "replicates": 2}])
def test_a_killed_run_goes_on_with_the_same_groups(tmp_path, options):
    options = {"max_rounds": 6, **GROUPED, **options}
    lost = losing({(2, False): [0]})
    whole = simulate("notears-admm", TABLES, wrap_grid=lost, **options)
    directory = str(tmp_path / "run")
    with pytest.raises(KilledError):
        simulate(
            "notears-admm",
            TABLES,
            wrap_grid=lambda grid: Killing(lost(grid), 4),
            output_dir=directory,
            **options,
        )
    found = simulate("notears-admm", TABLES, output_dir=directory, resume=True, **options)
    np.testing.assert_array_equal(found.graph.weights, whole.graph.weights)
    assert found.groups == whole.groups
    assert found.answered == whole.answered
    assert [text for text in found.warnings if "is missing from" in text] == [
        text for text in whole.warnings if "is missing from" in text
    ]
    assert found.influence == whole.influence
    with pytest.raises(ConfigError, match="groups"):
        simulate(
            "notears-admm",
            TABLES,
            output_dir=directory,
            resume=True,
            **{**options, "groups": 2},
        )


def test_a_resumed_run_has_the_groups_that_have_totals(tmp_path):
    tables = [*TABLES, *make_federation(d=4, n=180, parties=3, seed=1).tables]
    options = {"max_rounds": 6, **GROUPED}
    _, group = of_three(simulate("moments", tables, **GROUPED))
    lost = losing({(0, False): places_of(group)[:1]})
    whole = simulate("notears-admm", tables, wrap_grid=lost, **options)
    directory = str(tmp_path / "run")
    with pytest.raises(KilledError):
        simulate(
            "notears-admm",
            tables,
            wrap_grid=lambda grid: Killing(lost(grid), 3),
            output_dir=directory,
            **options,
        )
    found = simulate("notears-admm", tables, output_dir=directory, resume=True, **options)
    assert found.groups == whole.groups
    np.testing.assert_array_equal(found.graph.weights, whole.graph.weights)


def test_saved_runs_and_the_page_say_the_groups(tmp_path):
    found = simulate("moments", TABLES, **GROUPED)
    assert Run.load(found.save(tmp_path / "run")).groups == found.groups
    assert json.loads((tmp_path / "run" / "run.json").read_text())["groups"] == found.groups
    page = found.report(tmp_path / "report.html").read_text()
    assert "Groups of parties that add up" in page
    for name in found.groups:
        assert name in page


def test_targets_must_be_at_three_parties_of_a_group_or_none():
    clean = simulate("moments", TABLES, **GROUPED)
    _, group = of_three(clean)
    tables = [
        table.assign(by="") if k == places_of(group)[0] else table
        for k, table in enumerate(TARGETS)
    ]
    with pytest.raises(DataError, match="under an intervention on x1 are at"):
        simulate("moments", tables, intervention_column="by", **GROUPED)
    simulate("moments", tables, intervention_column="by", secure_aggregation=True)
    none = [
        table.assign(by="") if k in places_of(group) else table for k, table in enumerate(TARGETS)
    ]
    found = simulate("moments", none, intervention_column="by", **GROUPED)
    plain = simulate("moments", none, intervention_column="by")
    np.testing.assert_allclose(found.graph.weights, plain.graph.weights, rtol=0, atol=1e-12)


# What the server learns, and what a party answers.


def decoded_in(tables, monkeypatch, method, **options):
    """Everything that is decoded in a run."""
    seen = []
    own = ring.WordLayout.decoded

    def watched(self, total, answered):
        arrays, rows = own(self, total, answered)
        seen.append((answered, rows, {name: one.copy() for name, one in arrays.items()}))
        return arrays, rows

    with monkeypatch.context() as patch:
        patch.setattr(ring.WordLayout, "decoded", watched)
        found = simulate(method, tables, **GROUPED, **options)
    return seen, found


def test_all_that_is_decoded_is_of_a_whole_group(monkeypatch):
    seen, found = decoded_in(TABLES, monkeypatch, "moments", leave_one_out=True, replicates=2)
    sizes = [len(own) for own in found.groups.values()]
    assert [answered for answered, _, _ in seen] == sizes
    assert [rows for _, rows, _ in seen] == [60 * size for size in sizes]
    # Rows that move between two parties of a group change nothing that the server learns but for
    # the replicates, which parties draw themselves.
    group = next(iter(found.groups.values()))
    one, other = places_of(group)[:2]
    moved = list(TABLES)
    moved[one] = TABLES[one].iloc[:20]
    moved[other] = pd.concat([TABLES[other], TABLES[one].iloc[20:]])
    options = {"leave_one_out": True, "center": "global"}
    again, _ = decoded_in(moved, monkeypatch, "moments", **options)
    before, _ = decoded_in(TABLES, monkeypatch, "moments", **options)
    for (_, rows, arrays), (_, same_rows, same) in zip(before, again, strict=True):
        assert rows == same_rows
        for name, array in arrays.items():
            np.testing.assert_allclose(array, same[name], rtol=0, atol=1e-12)


def vectors_of(tables, method):
    """By party, its masked vectors in their order."""
    grid = spy(tables)
    run(method, grid)
    found = {}
    for reply in grid.replies:
        arrays = records.arrays_of(reply.content) if "arrays" in reply.content else {}
        if "masked" in arrays:
            found.setdefault(reply.metadata.src_node_id - 2, []).append(arrays["masked"])
    return found


def is_open(words):
    """Whether the second word, which is 1 in each vector, has no mask left."""
    return int(words[1]) < 100


def test_masks_cancel_within_a_group_and_in_no_other_set_of_parties():
    tables = TABLES[:6]
    found = simulate("moments", tables, **GROUPED)
    groups = [set(places_of(own)) for own in found.groups.values()]
    vectors = vectors_of(tables, Moments(**GROUPED))
    for exchange in range(2):  # the totals, and the moments
        for code in range(1, 2**6):
            chosen = {place for place in range(6) if code >> place & 1}
            total = sum(vectors[place][exchange] for place in chosen)
            whole = all(chosen >= group or not chosen & group for group in groups)
            assert is_open(total) is whole


def grouped_parties(groups, least, seed=0):
    """Parties with keys, and an agreement on groups."""
    contexts = [Context(seed, k, {}, RecordDict(), {}) for k in range(len(groups))]
    keys = tuple(secure.offer_key(own.state, running=False) for own in contexts)
    return contexts, KeysAgreed(keys=keys, groups=groups, least_parties=least)


def masked(context, setup, number=1, vector=(1, 2)):
    content, kept = secure.masked(
        context, setup, "sums", number, np.array(vector, dtype=np.uint64), Size(len(vector))
    )
    context.state.update(kept)
    return records.arrays_of(content)["masked"]


def test_a_party_refuses_groups_of_two_and_those_without_it():
    contexts, setup = grouped_parties((1, 1, 2, 2, 2), (3, 3))
    with pytest.raises(FederationError, match=r"of 2 is refused|3 parties or more, not 2"):
        masked(contexts[0], setup)
    masked(contexts[2], setup)
    contexts, setup = grouped_parties((1, 1, 1, 2, 2, 2), (2, 3))
    with pytest.raises(FederationError, match="sum of 2 parties of 3 is refused"):
        masked(contexts[0], setup)
    for wrong in ({"keys": ("", *setup.keys[1:])}, {"groups": (1, 1, 1, 2, 2)}):
        with pytest.raises(FederationError, match="not among those of the secure sum"):
            masked(contexts[0], KeysAgreed(**{**vars(setup), **wrong}))


def test_a_party_keeps_its_group_for_the_run():
    contexts, setup = grouped_parties((1, 1, 1, 2, 2, 2), (3, 3))
    masked(contexts[0], setup, number=0)
    other = KeysAgreed(keys=setup.keys, groups=(1, 2, 1, 1, 2, 2), least_parties=(3, 3))
    with pytest.raises(FederationError, match="keys are not those of the first"):
        masked(contexts[0], other)
    # Nor in the agreement after the totals.
    other.exchange = "f" * 16
    with pytest.raises(FederationError, match="keys are not those of the first"):
        masked(contexts[0], other)
    alone = KeysAgreed(keys=setup.keys, least_parties=(6,), exchange="f" * 16)
    with pytest.raises(FederationError, match="keys are not those of the first"):
        masked(contexts[0], alone)
    # Another group may have gone.
    rest = KeysAgreed(keys=setup.keys[:3], groups=(1, 1, 1), least_parties=(3,), exchange="f" * 16)
    masked(contexts[0], rest)


def test_the_group_enters_the_masks():
    words = []
    for number in (1, 2):
        contexts, setup = grouped_parties((number,) * 3, (3,))
        for context, key in zip(contexts, (b"1", b"2", b"3"), strict=True):
            context.state[secure.SECURE]["key"] = key * 32
        keys = tuple(secure.offer_key(own.state, running=True) for own in contexts)
        words.append(masked(contexts[0], KeysAgreed(**{**vars(setup), "keys": keys})))
    assert (words[0] != words[1]).all()


@pytest.mark.parametrize(
    ("least", "quorum", "refused"),
    [(3, 0.5, False), (4, 0.5, True), (4, 1.0, False), (5, 0.5, True)],
)
def test_a_policy_counts_the_parties_of_the_group(tmp_path, least, quorum, refused):
    """Of the group of four, and of its sums without those that do not answer."""
    policy = tmp_path / "policy.toml"
    policy.write_text(f"least-parties = {least}\n")
    configs = [{"partition-id": k, "num-partitions": 8} for k in range(8)]
    configs[3]["policy"] = str(policy)
    tables = [*TABLES, TABLES[0] + 0.1]
    method = Moments(secure_aggregation=True, groups=2, min_available_nodes=8, quorum=quorum)
    outcome = run(method, LocalGrid(app_of(tables), 8, node_configs=configs))
    assert ("party 3" not in [party.name for party in outcome.parties]) is refused
    reasons = [failure.reason for failure in outcome.failures]
    assert all("by its rule 'least-parties'" in reason for reason in reasons)
    assert bool(reasons) is refused


def test_a_party_that_is_asked_twice_has_failed_once():
    _, group = of_three(simulate("notears-admm", TABLES, max_rounds=6, **GROUPED))
    place = places_of(group)[0]
    lost = losing({(2, False): [place], (3, False): [place]})
    found = simulate("notears-admm", TABLES, wrap_grid=lost, max_rounds=6, **GROUPED)
    assert [record["parties"] for record in found.history] == [7, 4, 4, 7, 7, 7]
