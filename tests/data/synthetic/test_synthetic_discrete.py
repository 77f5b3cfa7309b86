"""Random networks: their size, their rows, and that their edges can be found."""

import numpy as np
import pytest
from scipy.special import gammaln

from flwr_causal.core.discrete.probabilities import family_counts
from flwr_causal.data.synthetic.discrete import (
    LEAST_PROBABILITY,
    federated_discrete,
    random_network,
)
from flwr_causal.errors import ConfigError, DataError


def test_size_names_and_states():
    network = random_network(30, num_states=(2, 5), seed=1)
    assert network.names == tuple(f"x{k}" for k in range(30))
    assert network.graph.num_edges == 45
    sizes = {len(own) for own in network.states}
    assert sizes == {2, 3, 4, 5}
    assert network.states[0] == tuple(f"s{k}" for k in range(len(network.states[0])))
    assert {len(own) for own in random_network(5, num_states=(3, 3)).states} == {3}
    assert random_network(1).graph.num_edges == 0
    assert random_network(3, edges_per_variable=9).graph.num_edges == 3
    assert random_network(6, edges_per_variable=0).graph.num_edges == 0


def test_no_state_is_rare_and_no_row_is_certain():
    for seed in range(5):
        network = random_network(20, concentration=0.01, seed=seed)
        assert min(table.min() for table in network.tables) >= LEAST_PROBABILITY - 1e-12
        counts = [len(set(row)) for row in network.sample_table(500, seed).codes]
        assert counts == [len(own) for own in network.states]


def test_concentration_moves_rows_between_certainty_and_uniform():
    def spread(concentration):
        network = random_network(20, num_states=(3, 3), concentration=concentration)
        return np.mean([table.max(axis=-1).mean() for table in network.tables])

    assert spread(0.05) > 0.85
    assert spread(0.05) > spread(0.5) > spread(5)
    assert spread(500) < 0.4


def test_no_variable_has_more_parents_than_allowed():
    for graph in ("er", "sf"):
        free = random_network(15, graph=graph, edges_per_variable=4, max_parents=15, seed=2)
        most = max(len(own) for own in free.parents)
        limited = random_network(15, graph=graph, edges_per_variable=4, max_parents=2, seed=2)
        assert most > 2 == max(len(own) for own in limited.parents)
        assert all(
            set(few) <= set(all_) and len(few) == min(len(all_), 2)
            for few, all_ in zip(limited.parents, free.parents, strict=True)
        )


def test_graphs_with_hubs():
    network = random_network(40, graph="sf", edges_per_variable=1.5, max_parents=40)
    assert network.graph.num_edges == 2 * 38
    degrees = network.graph.adjacency.sum(axis=0) + network.graph.adjacency.sum(axis=1)
    assert degrees.max() > 10


def bdeu(counts):
    rows = counts.reshape(-1, counts.shape[-1])
    prior_row, prior = 1 / len(rows), 1 / rows.size
    return (gammaln(prior_row) - gammaln(prior_row + rows.sum(axis=1))).sum() + (
        gammaln(prior + rows) - gammaln(prior)
    ).sum()


def test_most_edges_can_be_seen_in_some_thousand_rows():
    """Without the edge the score would be lower, given the child's other parents."""
    seen = []
    for seed in range(8):
        network = random_network(20, seed=seed)
        table = network.sample_table(3000, seed)
        for child, parents in enumerate(network.parents):
            score = bdeu(family_counts(table, child, parents))
            for parent in parents:
                others = [other for other in parents if other != parent]
                seen.append(score > bdeu(family_counts(table, child, others)))
    assert len(seen) > 200
    assert np.mean(seen) > 0.9


def test_the_seed_decides():
    one, two, other = (random_network(6, seed=seed) for seed in (3, 3, 4))
    assert one.parents == two.parents
    assert all(np.array_equal(a, b) for a, b in zip(one.tables, two.tables, strict=True))
    assert one.parents != other.parents or one.states != other.states
    rng = np.random.default_rng(3)
    assert random_network(6, seed=rng).parents == one.parents


def test_a_federation_is_the_same_data_for_every_number_of_parties():
    whole, truth = federated_discrete(5, 61, 1, seed=3)
    for num_parties in (2, 7):
        parties, network = federated_discrete(5, 61, num_parties, seed=3)
        assert network.parents == truth.parents
        assert len(parties) == num_parties
        np.testing.assert_array_equal(np.vstack(parties), whole[0].to_numpy())
    assert list(whole[0].columns) == list(truth.names)
    assert np.isfinite(truth.log_likelihood(whole[0])).all()
    other, _ = federated_discrete(5, 61, 1, seed=4)
    assert not np.array_equal(other[0], whole[0])


def test_federation_options():
    parties, network = federated_discrete(
        20,
        100,
        4,
        graph="sf",
        edges_per_variable=2,
        num_states=(3, 3),
        concentration=0.2,
        max_parents=3,
        partition="uneven",
        seed=0,
    )
    expected = random_network(
        20,
        graph="sf",
        edges_per_variable=2,
        num_states=(3, 3),
        concentration=0.2,
        max_parents=3,
        seed=0,
    )
    assert network.parents == expected.parents
    assert all(np.array_equal(a, b) for a, b in zip(network.tables, expected.tables, strict=True))
    sizes = [len(part) for part in parties]
    assert sum(sizes) == 100
    assert len(set(sizes)) > 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: random_network(0), ConfigError, "0 variables"),
        (lambda: random_network(3, graph="tree"), ConfigError, "graph is 'tree'"),
        (lambda: random_network(3, num_states=(1, 2)), ConfigError, r"num_states is \(1, 2\)"),
        (lambda: random_network(3, num_states=(4, 2)), ConfigError, "num_states"),
        (lambda: random_network(3, num_states=(2, 50)), ConfigError, "2 to 49"),
        (lambda: random_network(3, concentration=0), ConfigError, "concentration is 0"),
        (lambda: random_network(3, concentration=np.nan), ConfigError, "concentration is nan"),
        (lambda: random_network(3, max_parents=0), ConfigError, "max_parents is 0"),
        (lambda: random_network(3, edges_per_variable=-1), ConfigError, "edges_per_variable is -1"),
        (lambda: federated_discrete(3, 2, 3), DataError, "2 rows are too few for 3 parties"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()
