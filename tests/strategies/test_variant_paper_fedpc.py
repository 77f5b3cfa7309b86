"""FedPC's ``variant="paper"``: the constants by section of Seng et al. (2025), and its circuit."""

import numpy as np
import pandas as pd
import pytest
from federations import spy

from flwr_causal import simulate
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.composition import tasks_of
from flwr_causal.core.circuits.composed.party_clusters import train_party
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.spn.learn_spn import LearnSPN
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum, ascending
from flwr_causal.data.partition import hold_out, split, split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.strategies import FedPC, run
from flwr_causal.strategies.fedpc.paper import composed

COLUMNS = ["mean radius", "mean perimeter", "mean texture", "worst concavity", "area error"]
#: Thresholds of the paper's tables that split rows and columns of so few rows.
FINE = {"correlation": 0.3, "split_rows": 50.0}


@pytest.fixture(scope="module")
def table():
    return breast_cancer()[[*COLUMNS, "target"]]


@pytest.fixture(scope="module")
def parts(table):
    tables, test = hold_out(split(table, 3, "even", seed=1), 0.25)
    return {
        "horizontal": (tables, test),
        "vertical": hold_out(split_columns(table, 2, "vertical", target="target", seed=1), 0.25),
    }


def central(tables, **options):
    found = simulate("fedpc", tables, **({"variant": "paper", "queries": "central"} | options))
    assert isinstance(found.model.density, Circuit)
    return found.model


def leaves(circuit):
    return [node for node in ascending(circuit.root) if not isinstance(node, Sum | Product)]


def explicit(tables, domain, clusters, num_products, **options):
    """Algorithm 1 by the functions of the core, with the paper's LearnSPN."""
    presence = np.array([[name in table.columns for name in domain.names] for table in tables])
    parties = []
    for table, tasks in zip(tables, tasks_of(presence), strict=True):
        own = Domain(tuple(one for one in domain.variables if one.name in table.columns))
        places = [
            task._replace(columns=tuple(own.index(domain.names[j]) for j in task.columns))
            for task in tasks
        ]
        learner = LearnSPN(blocks=False, class_root=False, leaves="gaussian", **options)
        values = own.encode(table)
        parties.append(
            train_party(
                own, values, places, num_clusters=clusters, learner=learner, minimum_count=2
            )
        )
    composition = composed(domain, presence, [one.rows for one in parties], num_products)
    return composition.circuit([one.circuits for one in parties])


class TestSettings:
    def test_section_3_3_algorithm_1(self):
        """One pass; the weight of a child is its share of the rows."""
        method = FedPC(variant="paper")
        assert (method.options.training, method.options.weights) == ("one-pass", "counts")

    def test_section_4_q1_mspn(self):
        """MSPNs by LearnSPN: leaves over one column, and the class is a column like the others."""
        method = FedPC(variant="paper")
        assert (method.options.learner, method.options.blocks, method.options.class_root) == (
            "spn",
            False,
            False,
        )

    def test_appendix_d_3_table_4(self):
        """Cancer .4 and 300 in all settings; thresholds .3, .4, .5, instances 50 to 300."""
        method = FedPC(variant="paper")
        assert (method.options.correlation, method.options.split_rows) == (0.4, 300)
        rows = [(0.3, 200), (0.5, 200), (0.4, 300), (0.4, 100), (0.5, 50)]
        for threshold, instances in rows:
            method = FedPC(variant="paper", correlation=threshold, split_rows=instances)
            assert (method.options.correlation, method.options.split_rows) == (threshold, instances)

    @pytest.mark.parametrize(
        "options",
        [
            {"training": "sums"},
            {"weights": "em"},
            {"learner": "trees"},
            {"correlation": 0.2},
            {"split_rows": 40.0},
        ],
        ids=str,
    )
    def test_another_value_is_refused_by_name(self, options):
        (name,) = options
        with pytest.raises(ConfigError, match=rf"option '{name}' is .*variant='paper'"):
            FedPC(variant="paper", **options)

    def test_the_papers_values_may_be_given(self):
        settled = FedPC(variant="paper")
        assert FedPC(**settled.options.by_name()).options == settled.options


@pytest.mark.parametrize(
    "pattern", ["horizontal", pytest.param("vertical", marks=pytest.mark.slow)]
)
def test_leaves_are_over_one_column(parts, pattern):
    tables, _ = parts[pattern]
    own = leaves(central(tables, **FINE).density)
    assert {len(leaf.scope) for leaf in own} == {1}
    ours = simulate("fedpc", tables, training="one-pass", queries="central", learner="spn")
    assert max(len(leaf.scope) for leaf in leaves(ours.model.density)) > 1


def test_the_root_is_no_sum_over_classes(parts):
    """A class that no split separates has a distribution over the states in a leaf."""
    tables, _ = parts["horizontal"]
    circuit = central(tables).density
    place = circuit.domain.index("target")
    shares = [leaf.probabilities for leaf in leaves(circuit) if leaf.scope == (place,)]
    assert all(isinstance(leaf, Categorical) for leaf in leaves(circuit) if leaf.scope == (place,))
    assert all(share.min() > 0 for share in shares)


@pytest.mark.parametrize("pattern", ["horizontal", "vertical"])
def test_equals_algorithm_1_by_the_core(parts, pattern):
    """With all combinations of clusters, which table 4 calls combinatorial."""
    tables, test = parts[pattern]
    clusters = {"clusters": 3} if pattern == "vertical" else {}
    model = central(tables, **clusters, **FINE)
    expected = explicit(tables, model.density.domain, 3, 1000, **FINE)
    values = expected.domain.encode(test[list(expected.domain.names)])
    np.testing.assert_allclose(
        model.density.log_densities(values), expected.log_densities(values), rtol=1e-9
    )


def test_products_are_a_number_of_random_combinations(parts):
    tables, test = parts["vertical"]
    several, every = (central(tables, clusters=3, **FINE, **p) for p in ({"products": 3}, {}))
    assert several.log_likelihood(test).mean() != every.log_likelihood(test).mean()
    expected = explicit(tables, several.density.domain, 3, 3, **FINE)
    values = expected.domain.encode(test[list(expected.domain.names)])
    np.testing.assert_allclose(
        several.density.log_densities(values), expected.log_densities(values), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["blocks", "class_root", "correlation", "split_rows"])
def test_options_of_learn_spn_are_for_no_other_learner(parts, name):
    values = {"blocks": False, "class_root": False, "correlation": 0.4, "split_rows": 9.0}
    tables, _ = parts["horizontal"]
    with pytest.raises(CausalError, match=rf"'?{name}'?.*learner='spn'"):
        run(FedPC(training="one-pass", learner="trees", **{name: values[name]}), spy(tables))


@pytest.mark.parametrize(("name", "value"), [("split_rows", 0.0), ("correlation", 1.0)])
def test_values_out_of_range(name, value):
    with pytest.raises(ConfigError, match=name):
        FedPC(learner="spn", **{name: value})


def test_decision_trees_over_different_columns_say_what_the_paper_leaves_open(parts):
    tables, _ = parts["vertical"]
    method = FedPC(target="target", training="one-pass", learner="decision-tree")
    with pytest.raises(ConfigError, match="nor what a product of trees predicts"):
        run(method, spy(tables))


def halves(rows, seed):
    """Return two clusters by Lloyd's algorithm, begun at two rows."""
    centres = rows[np.random.default_rng(seed).choice(len(rows), 2, replace=False)]
    for _ in range(30):
        near = np.argmin(((rows[:, None] - centres) ** 2).sum(axis=2), axis=1)
        centres = np.array([rows[near == k].mean(axis=0) for k in (0, 1)])
    return [rows[near == k] for k in (0, 1)]


def mixed(groups, test, least):
    """Return the mean log density of a mixture of independent normal columns, a component a group.

    The class is the last column; it has Laplace's estimate.
    """
    parts = []
    for group in groups:
        sd = np.maximum(group[:, :-1].std(axis=0), least)
        z = (test[:, :-1] - group[:, :-1].mean(axis=0)) / sd
        share = (group[:, -1].sum() + 1) / (len(group) + 2)
        density = (-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum(axis=1)
        label = np.log(np.where(test[:, -1] == 1, share, 1 - share))
        parts.append(np.log(len(group)) + density + label)
    return float(np.logaddexp.reduce(parts, axis=0).mean() - np.log(sum(map(len, groups))))


@pytest.mark.slow
def test_the_papers_densities_are_those_of_leaves_of_one_standard_deviation():
    """Table 1 on breast cancer: -38.9 nats in one place, -38.5 over parties of one class each.

    A short program of its own has these figures where leaves are one standard deviation wide at
    least, and four nats more where they are not; FedPC has them, too. Horizontally a party has too
    few rows to be split (300, table 4), so that its circuit takes columns as independent.
    """
    found = {}
    for seed in range(6):
        frame = breast_cancer()
        order = np.random.default_rng(seed).permutation(len(frame))
        numbers = frame.drop(columns="target")
        train = numbers.iloc[order[:450]]
        frame = ((numbers - train.mean()) / train.std(ddof=0)).assign(target=frame["target"])
        own, test = frame.iloc[order[:450]], frame.iloc[order[450:]]
        rows, held = (
            part.assign(target=pd.factorize(part["target"], sort=True)[0]).to_numpy(np.float64)
            for part in (own, test)
        )
        by_class = np.array_split(np.argsort(rows[:, -1], kind="stable"), 5)
        for least in (0.0, 1.0):
            wide = {"variant": "paper", "least_deviation": least, "seed": seed}
            values = {
                "program": mixed(halves(rows, seed), held, least),
                "program, parties": mixed([rows[part] for part in by_class], held, least),
                "fedpc": simulate("fedpc", [own], **wide).model.log_likelihood(test).mean(),
                "fedpc, parties": simulate("fedpc", [own.iloc[part] for part in by_class], **wide)
                .model.log_likelihood(test)
                .mean(),
            }
            for name, value in values.items():
                found.setdefault((name, least), []).append(value)
    mean = {key: np.mean(values) for key, values in found.items()}
    for who in ("program", "fedpc"):
        assert mean[who, 1.0] == pytest.approx(-38.9, abs=1.0)
        assert mean[f"{who}, parties", 1.0] == pytest.approx(-38.5, abs=1.0)
        assert mean[who, 0.0] > -36
        assert mean[f"{who}, parties", 0.0] > -35
