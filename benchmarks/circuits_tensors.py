"""Tensorised circuits: an epoch against peers from PyPI; parties in one pass, and by sums."""

import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from tables import mean_and_error, print_table, verdict, with_error

DEPTH, REPLICAS, SUMS, BATCH, EPOCHS = 4, 5, 10, 100, 2
#: Test log-likelihood of stepwise EM at that size after two epochs, in the original EiNet code.
ORIGINAL = -17.77
PARTIES = (2, 4, 8, 16)


def main(debd, images, seeds, quick):
    import torch

    torch.set_num_threads(1)
    if debd is None:
        print("\nskipped: plants need --debd FOLDER (NAME.npz: n_vars, train, test as packed bits)")
    else:
        plants(debd / "plants.npz", seeds[:1] if quick else seeds)
    if images is None:
        print("\nskipped: images need --images FILE.npz (x: images of bytes)")
    else:
        federated_images(images, seeds[:1] if quick else seeds, 3 if quick else 10)


def read_bits(file):
    with np.load(file) as packed:
        count = int(packed["n_vars"])
        return tuple(
            np.unpackbits(packed[part], axis=1, count=count).astype(float)
            for part in ("train", "test")
        )


# -- an epoch on binary data ----------------------------------------------------------------------


def plants(file, seeds):
    """The same size for all: depth, replicas, sums, batches, epochs."""
    train, test = read_bits(file)
    rows, seconds = [], {}
    for name, learn in LEARNERS.items():
        try:
            found = [timed(learn, train, test, seed) for seed in seeds]
        except (ImportError, PackageNotFoundError) as error:
            print(f"skipped: {name} ({error})")
            continue
        seconds[name], _ = mean_and_error([one[0] for one in found])
        density = mean_and_error([one[1] for one in found])
        rows.append([name, f"{seconds[name]:.2f}", with_error(*density, 2), found[0][2]])
    header = ("learner", "CPU s an epoch", "test log-likelihood", "parameters")
    title = f"plants, depth {DEPTH}, {REPLICAS} replicas, {SUMS} sums, {EPOCHS} epochs"
    print_table(f"{title}, {len(seeds)} seeds", header, rows)
    density = float(rows[0][2].split()[0])
    print(f"\nat least {ORIGINAL}: {verdict(density >= ORIGINAL)}")
    if len(seconds) > 1:
        own, *others = seconds.values()
        print(f"an epoch no slower than the fastest peer's: {verdict(own <= min(others))}")


def timed(learn, train, test, seed):
    start = time.process_time()
    parameters, densities = learn(train, seed)
    seconds = (time.process_time() - start) / EPOCHS
    return seconds, float(np.mean(densities(test))), parameters


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

    version("libcirkit")  # another package is called cirkit
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


# -- images ---------------------------------------------------------------------------------------


def federated_images(file, seeds, epochs):
    """Table 2 of Seng et al. (2025): one EiNet of all rows, and mixtures of the parties' own."""
    with np.load(file) as held:
        images = held["x"]
    height, width = images.shape[1:]
    values = images.reshape(len(images), -1) / 255.0
    found = {}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(values))
        cut = len(values) // 5
        test, train = values[order[:cut]], values[order[cut:]]
        domain, learner = image_learner((height, width), epochs)
        start = time.process_time()
        circuit = learner.learn(domain, train, seed)
        keep(found, "all rows", start, circuit, test)
        for parties in PARTIES:
            start = time.process_time()
            mixture = one_pass(learner, domain, np.array_split(train, parties), seed)
            keep(found, f"{parties} parties, one pass", start, mixture, test)
        folds = max(1, round(len(train) / 400))
        sums = replace(learner, batches=folds)
        start = time.process_time()
        trained = sums.train(np.array_split(train, 4), sums.plan(domain, seed=seed))
        name = f"4 parties, {epochs * folds} exchanges of sums"
        keep(found, name, start, trained.model(domain).density, test)
    rows = [
        [
            name,
            with_error(*mean_and_error([one[0] for one in own])),
            f"{np.mean(own, axis=0)[1]:.0f}",
        ]
        for name, own in found.items()
    ]
    central = np.mean([one[0] for one in found["all rows"]])
    title = f"{len(train)} images {height} x {width}, {epochs} epochs, {len(seeds)} seeds"
    print_table(title, ("learned from", "test log-likelihood", "CPU s"), rows)
    best = max(np.mean([one[0] for one in own]) for name, own in found.items() if "pass" in name)
    holds = verdict(best >= central)
    print(f"\na mixture of parties' circuits no worse than that of all rows: {holds}")


def image_learner(shape, epochs):
    from flwr_causal.core.circuits.domain import Domain, Variable
    from flwr_causal.core.circuits.learners.einsum import EinsumNetwork

    domain = Domain(tuple(Variable(f"pixel {j}") for j in range(shape[0] * shape[1])))
    return domain, EinsumNetwork(
        depth=6, replicas=4, sums=10, epochs=epochs, image=f"{shape[0]}x{shape[1]}", step=0.3
    )


def one_pass(learner, domain, parts, seed):
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.nodes import mixed

    roots = [learner.learn(domain, part, seed + k).root for k, part in enumerate(parts)]
    return Circuit(domain, mixed(roots, [len(part) for part in parts]))


def keep(found, name, start, circuit, test):
    seconds = time.process_time() - start
    found.setdefault(name, []).append((float(circuit.log_likelihood(test).mean()), seconds))
