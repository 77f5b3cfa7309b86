"""CPU seconds of circuits beside plain ways and other programs, in one process."""

import math
import time
from functools import partial

import numpy as np
from scipy.special import logsumexp

from benchmarks.files import binary, tabular
from benchmarks.measure.registry import Table, benchmark, cpu, with_error
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.spn.learn_spn import learn_spn
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import Leaf, Product, Sum

ROWS = 10_000
#: Rows that the slow recursion is timed on; its time is in proportion to them.
FEW = 20
REPEATS = 5
MISSING = 0.2
STATES = 4
#: Least rows of a sum of LearnSPN.
SLICES = (50, 100, 300)
# Einsum networks: the same size for all programs.
DEPTH, REPLICAS, SUMS, BATCH, EPOCHS = 4, 5, 10, 100, 2


@benchmark("speed-circuits", "Evaluation of circuits", "0-2", ("spflow",))
def evaluation(setup):
    rows = []
    for name, make in CASES[:2] if setup.quick else CASES:
        for missing in (0.0, MISSING):
            found = [measure(make, seed, missing) for seed in setup.seeds]
            cells = [
                f"{np.mean([one[peer] / one['engine'] for one in found]):,.1f}"
                if peer in found[0]
                else ""
                for peer in ("plain", "by node", "SPFlow")
            ]
            engine = 1e3 * np.mean([one["engine"] for one in found])
            difference = max(one["difference"] for one in found)
            row = (name, found[0]["nodes"], f"{missing:.0%}", f"{engine:.1f}")
            rows.append((*row, *cells, f"{difference:.0e}"))
    note = (
        f"Log-likelihoods of {ROWS:,} rows: CPU milliseconds, and how many times as long others "
        "take. Plain recursion goes node by node and row by row."
    )
    columns = ("circuit", "nodes", "missing", "ms", "plain recursion", "node by node in numpy")
    return Table((*columns, "SPFlow 0.0", "largest difference"), rows, (note,))


def measure(make, seed, missing):
    """CPU seconds of each way, and by how much they differ."""
    rng = np.random.default_rng(seed)
    circuit = make(rng)
    values = random_rows(rng, circuit.domain.num_states, missing)
    circuit.log_likelihood(values[:FEW])  # compiles, and makes the layers
    seconds, result = fastest(partial(circuit.log_likelihood, values))
    found = {"nodes": circuit.num_nodes, "engine": seconds}
    found["by node"], by_node = fastest(partial(node_by_node, circuit.root, values), 2)
    few, plain = fastest(
        lambda: np.array([recursion(circuit.root, row) for row in values[:FEW]]), 1
    )
    found["plain"] = few * ROWS / FEW
    differences = [np.abs(result - by_node).max(), np.abs(result[:FEW] - plain).max()]
    spflow = spflow_evaluation(circuit, values)
    if spflow is not None:
        found["SPFlow"], theirs = fastest(spflow, 2)
        differences.append(np.abs(result - theirs).max())
    return found | {"difference": max(differences)}


def fastest(function, repeats=REPEATS):
    """CPU seconds of the fastest of some calls, and what it returned."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def of_nodes(compute):
    """Return a function of nodes that computes each node once, however many parents it has."""
    known = {}

    def value(node):
        if id(node) not in known:
            known[id(node)] = compute(node, value)
        return known[id(node)]

    return value


def recursion(root, row):
    """Log density of one row, node by node."""

    def compute(node, value):
        if isinstance(node, Product):
            return sum(map(value, node.children))
        if isinstance(node, Sum):
            terms = [
                math.log(weight) + value(child)
                for weight, child in zip(node.weights, node.children, strict=True)
            ]
            peak = max(terms)
            return peak + math.log(sum(math.exp(term - peak) for term in terms))
        if isinstance(node, Gaussian | Categorical):
            x = row[node.column]
            if math.isnan(x):
                return 0.0
            if isinstance(node, Categorical):
                return math.log(node.probabilities[int(x)])
            standard = (x - node.mean) / node.sd
            return -0.5 * standard * standard - math.log(node.sd * math.sqrt(2 * math.pi))
        if isinstance(node, ChowLiuTree):
            return tree_recursion(node, row)
        return float(node.log_density(row[None, list(node.scope)])[0])

    return of_nodes(compute)(root)


def tree_recursion(tree, row):
    """Log probability of one row; parents stand before their children here."""
    messages = [[1.0] * table.shape[1] for table in tree.tables]
    result = 0.0
    for j in range(len(tree.parents) - 1, -1, -1):
        state, parent = row[tree.scope[j]], tree.parents[j]
        own = [m if math.isnan(state) or s == state else 0.0 for s, m in enumerate(messages[j])]
        above = [sum(p * m for p, m in zip(line, own, strict=True)) for line in tree.tables[j]]
        if parent < 0:
            result += math.log(above[0])
        else:
            messages[parent] = [m * a for m, a in zip(messages[parent], above, strict=True)]
    return result


def node_by_node(root, values):
    """Log densities of all rows by numpy, one node after the other."""

    def compute(node, value):
        if isinstance(node, Leaf):
            return node.log_density(values[:, list(node.scope)])
        parts = np.array([value(child) for child in node.children])
        if isinstance(node, Product):
            return parts.sum(axis=0)
        return logsumexp(parts + np.log(node.weights)[:, None], axis=0)

    return of_nodes(compute)(root)


def spflow_evaluation(circuit, values):
    """The evaluation of the same circuit by SPFlow 0.0; None without it, or for other leaves."""
    try:
        from spn.algorithms.Inference import log_likelihood
        from spn.structure import Base
        from spn.structure.leaves.parametric import Parametric
    except ImportError:
        return None
    made = {}
    for node in circuit.layers.nodes:
        if isinstance(node, Gaussian):
            theirs = Parametric.Gaussian(mean=node.mean, stdev=node.sd, scope=node.column)
        elif isinstance(node, Categorical):
            theirs = Parametric.Categorical(p=node.probabilities, scope=node.column)
        elif isinstance(node, Leaf):
            return None
        else:
            children = [made[id(child)] for child in node.children]
            if isinstance(node, Sum):
                theirs = Base.Sum(weights=node.weights.tolist(), children=children)
            else:
                theirs = Base.Product(children=children)
            theirs.scope = list(node.scope)
        made[id(node)] = theirs
    root = Base.assign_ids(made[id(circuit.root)])
    return lambda: log_likelihood(root, values)[:, 0]


def random_rows(rng, num_states, missing):
    columns = [rng.integers(0, k, ROWS) if k else rng.normal(size=ROWS) for k in num_states]
    values = np.column_stack(columns).astype(np.float64)
    values[rng.random(values.shape) < missing] = np.nan
    return values


def domain_of(num_states):
    return Domain(
        tuple(
            Variable(f"x{j}", tuple(range(count)) if count else None)
            for j, count in enumerate(num_states)
        )
    )


def grown(rng, d, depth):
    """A tree of sums and products as LearnSPN makes them, of numbers and categories by turns."""

    def leaf(column):
        if column % 2:
            return Gaussian(column, rng.normal(), rng.uniform(0.5, 1.5))
        return Categorical(column, rng.dirichlet(np.ones(STATES)))

    def node(scope, depth):
        if len(scope) == 1 or depth == 0:
            leaves = [leaf(column) for column in scope]
            return leaves[0] if len(leaves) == 1 else Product(leaves)
        if depth % 2 == 0:
            children = [node(scope, depth - 1) for _ in range(3)]
            return Sum(children, rng.dirichlet(np.ones(3)))
        cut = len(scope) // 2
        order = rng.permutation(scope).tolist()
        return Product([node(sorted(part), depth - 1) for part in (order[:cut], order[cut:])])

    return Circuit(domain_of([0 if j % 2 else STATES for j in range(d)]), node(range(d), depth))


def shared(rng, d, width):
    """Halves of halves of the columns with so many sums each: nodes have many parents."""

    def sums(scope):
        if len(scope) == 1:
            return [Categorical(scope[0], rng.dirichlet(np.ones(2))) for _ in range(width)]
        left, right = sums(scope[: len(scope) // 2]), sums(scope[len(scope) // 2 :])
        products = [Product([a, b]) for a in left for b in right]
        return [Sum(products, rng.dirichlet(np.ones(len(products)))) for _ in range(width)]

    return Circuit(domain_of([2] * d), Sum(sums(range(d)), rng.dirichlet(np.ones(width))))


def trees(rng, d, width):
    """A mixture of trees of binary variables."""

    def tree():
        parents = [-1, *(int(rng.integers(j)) for j in range(1, d))]
        tables = [rng.dirichlet(np.ones(2), size=1 if p < 0 else 2) for p in parents]
        return ChowLiuTree(range(d), parents, tables)

    return Circuit(
        domain_of([2] * d), Sum([tree() for _ in range(width)], rng.dirichlet(np.ones(width)))
    )


def blocks(rng, d, width):
    """A mixture of t distributions of transformed numbers, of a common transform."""
    powers, scales = rng.uniform(0.2, 1.8, d), rng.uniform(0.5, 2.0, d)

    def block():
        factor = rng.normal(size=(d, d))
        covariance = factor @ factor.T / d + 0.3 * np.eye(d)
        return Elliptical(range(d), rng.normal(size=d), covariance, 6.0, powers, scales)

    return Circuit(
        domain_of([0] * d), Sum([block() for _ in range(width)], rng.dirichlet(np.ones(width)))
    )


CASES = (
    ("tree, 10 columns", partial(grown, d=10, depth=4)),
    ("tree, 20 columns", partial(grown, d=20, depth=6)),
    ("tree, 100 columns", partial(grown, d=100, depth=8)),
    ("shared nodes, 16 columns, 6 wide", partial(shared, d=16, width=6)),
    ("shared nodes, 64 columns, 10 wide", partial(shared, d=64, width=10)),
    ("20 Chow-Liu trees of 100 columns", partial(trees, d=100, width=20)),
    ("10 t distributions of 8 numbers", partial(blocks, d=8, width=10)),
)


@benchmark("speed-learnspn", "LearnSPN beside SPFlow, breast cancer", "0-2", ("spflow",))
def learning(setup):
    """Both learn from the same rows, and stop at as many."""
    from spn.algorithms.LearningWrappers import learn_mspn  # noqa: F401 - skipped without it

    rows = []
    for least in SLICES[-1:] if setup.quick else SLICES:
        for blocks in (True, False):
            found = []
            for seed in setup.seeds:
                world = tabular(seed, None, "breast-cancer")
                frame, target = world.pooled, world.options["target"]
                domain = Domain.from_frame(frame)
                train, test = domain.encode(frame), domain.encode(world.test)
                options = {"split_rows": least, **({} if blocks else {"blocks": False})}
                learn_spn(train, domain=domain, **options)  # compiles
                circuit, seconds = cpu(learn_spn, train, domain=domain, **options)
                own = circuit.log_likelihood(world.test).mean()
                found.append((own, seconds, *spflow_learned(domain, train, test, target, least)))
            own, seconds, theirs, their_seconds = np.transpose(found)
            times = f"{their_seconds.mean() / seconds.mean():.0f}"
            cells = (f"{seconds.mean():.3f}", f"{their_seconds.mean():.2f}", times)
            label = f"{least}{'' if blocks else ', no blocks'}"
            rows.append((label, with_error(own), with_error(theirs), *cells))
    note = (
        "Without blocks the leaves are over one column, as SPFlow's are. SPFlow's piecewise "
        "densities do not integrate to one: its log-likelihoods are divided by what they "
        "integrate to."
    )
    columns = ("least rows", "LL", "SPFlow", "CPU s", "SPFlow, CPU s", "times as fast")
    return Table(columns, rows, (note,))


def spflow_learned(domain, train, test, target, least):
    """Return the mean log-likelihood of SPFlow 0.0's circuit, and its CPU seconds."""
    from spn.algorithms.Inference import log_likelihood
    from spn.algorithms.LearningWrappers import learn_mspn
    from spn.structure.Base import Context
    from spn.structure.StatisticalTypes import MetaType

    kinds = [MetaType.DISCRETE if count else MetaType.REAL for count in domain.num_states]
    context = Context(meta_types=kinds).add_domains(np.concatenate((train, test)))
    options = {"min_instances_slice": least, "threshold": 0.3, "cpus": 1}
    learned, seconds = cpu(learn_mspn, train, context, **options)
    everything = log_likelihood(learned, np.full((1, train.shape[1]), np.nan))[0, 0]
    return float(np.mean(log_likelihood(learned, test))) - everything, seconds


@benchmark(
    "speed-einsum", "Einsum networks, plants: an epoch", "0", ("torch", "spflow", "libcirkit")
)
def epochs(setup):
    """The same depth, replicas, sums, batches and epochs for all."""
    import torch

    torch.set_num_threads(1)
    rows = []
    for name, learn in LEARNERS.items():
        found = []
        for seed in setup.seeds:
            world = binary(seed, setup.data_dir, "plants")
            train, test = (one.to_numpy(float) for one in (world.pooled, world.test))
            try:
                (parameters, densities), seconds = cpu(learn, train, seed)
            except ImportError:
                break
            found.append((seconds / EPOCHS, float(np.mean(densities(test))), parameters))
        if found:
            seconds, density, parameters = np.transpose(found)
            rows.append((name, f"{seconds.mean():.2f}", with_error(density), int(parameters[0])))
    return Table(("learner", "CPU s an epoch", "LL", "parameters"), rows)


def own_learner(train, seed):
    from flwr_causal.core.circuits.domain import Domain, Variable
    from flwr_causal.core.circuits.learners.einsum import EinsumNetwork

    domain = Domain(tuple(Variable(f"x{j}", (0, 1)) for j in range(train.shape[1])))
    options = {"depth": DEPTH, "replicas": REPLICAS, "sums": SUMS, "batch_size": BATCH}
    circuit = EinsumNetwork(epochs=EPOCHS, **options).learn(domain, train, seed)
    return circuit.num_parameters, circuit.log_likelihood


def spflow_learner(train, seed):
    import torch
    from spflow.modules.leaves import Bernoulli
    from spflow.zoo.einet import Einet

    torch.manual_seed(seed)
    scope = list(range(train.shape[1]))
    probabilities = torch.rand(len(scope), SUMS, REPLICAS) * 0.8 + 0.1
    leaf = Bernoulli(scope, out_channels=SUMS, num_repetitions=REPLICAS, probs=probabilities)
    model = Einet(
        [leaf],
        num_sums=SUMS,
        num_leaves=SUMS,
        depth=DEPTH,
        num_repetitions=REPLICAS,
        layer_type="einsum",
    )
    return descended(model, lambda rows: model.log_likelihood(rows).flatten(), train)


def cirkit_learner(train, seed):
    import torch
    from cirkit.pipeline import compile as compiled
    from cirkit.templates.region_graph import RandomBinaryTree
    from cirkit.templates.utils import (
        Parameterization,
        name_to_input_layer_factory,
        parameterization_to_factory,
    )

    torch.manual_seed(seed)
    weights = parameterization_to_factory(
        Parameterization(activation="softmax", initialization="normal")
    )
    regions = RandomBinaryTree(train.shape[1], depth=DEPTH, num_repetitions=REPLICAS, seed=seed)
    symbolic = regions.build_circuit(
        input_factory=name_to_input_layer_factory("categorical", num_categories=2),
        sum_product="tucker",
        sum_weight_factory=weights,
        nary_sum_weight_factory=weights,
        num_input_units=SUMS,
        num_sum_units=SUMS,
        num_classes=1,
        factorize_multivariate=True,
    )
    model = compiled(symbolic)
    return descended(model, lambda rows: model(rows.long()).flatten(), train)


def descended(model, densities, train):
    """Adam at the rate that the peers do best with, 0.02, on the same batches."""
    import torch

    rows = torch.tensor(train, dtype=torch.float32)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(EPOCHS):
        for batch in rows[torch.randperm(len(rows))].split(BATCH):
            optimiser.zero_grad()
            loss = -densities(batch).mean()
            loss.backward()
            optimiser.step()

    def of(test):
        with torch.no_grad():
            parts = torch.tensor(test, dtype=torch.float32).split(1000)
            return np.concatenate([densities(part).numpy() for part in parts])

    return sum(one.numel() for one in model.parameters()), of


LEARNERS = {
    "EinsumNetwork": own_learner,
    "SPFlow 1.x, Einet": spflow_learner,
    "cirkit, Tucker layers": cirkit_learner,
}
