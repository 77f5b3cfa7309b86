"""LearnSPN on tables with known answers, next to SPFlow's (the program of the MSPN paper).

    python benchmarks/run.py --suite circuits-learning --seeds 0-2 --tabular FOLDER --debd FOLDER

Both learn from the same rows in the same process. SPFlow's piecewise densities do not integrate to
one: its log-likelihoods are divided by what they integrate to.
"""

import time
from typing import NamedTuple

import numpy as np
import pandas as pd
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.spn.learn_spn import learn_spn

# SPFlow is to take so many times as long, at a lower likelihood.
FASTER = 20
# Least rows of a sum; the defaults are 60 here and 200 there.
SPFLOW_SLICES = {"breast cancer": (50, 100, 300), "income": (200,)}
THRESHOLD = 0.3
INTERVALS = 16
# LearnSPN followed by EM as measured before: prototype, 15 steps.
BINARY_GOALS = {"nltcs": -6.035, "plants": -13.07, "baudio": -40.13, "jester": -53.12}
OURS = {
    "learn_spn": {},
    "no blocks": {"blocks": False},
    "no blocks, target": {"blocks": False, "target": True},
    "no blocks, 10 EM steps": {"blocks": False, "em_steps": 10},
    "no blocks, correlation .3": {"blocks": False, "correlation": 0.3},
}
# With blocks, which are leaves over many columns, and without.
KINDS = {"": {}, ", no blocks": {"blocks": False}}


class Table(NamedTuple):
    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    domain: Domain

    def values(self, frame):
        return self.domain.encode(frame)


class Result(NamedTuple):
    log_likelihood: float
    accuracy: float
    nodes: int
    cpu_seconds: float


def breast_cancer(seed):
    """450 rows to learn from, 119 to test; numbers standardised."""
    from sklearn.datasets import load_breast_cancer

    numbers, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    order = np.random.default_rng(seed).permutation(len(numbers))
    train, test = order[:450], order[450:]
    frame = (numbers - numbers.iloc[train].mean()) / numbers.iloc[train].std(ddof=0)
    frame["diagnosis"] = np.array(["malignant", "benign"])[labels.to_numpy()]
    domain = Domain.from_frame(frame)
    return Table("breast cancer", frame.iloc[train], frame.iloc[test], "diagnosis", domain)


def income(folder, seed, num_rows):
    """UCI Adult, whose test part comes first; numbers are intervals of about equally many rows."""
    frame = pd.read_csv(folder / "adult.csv.gz")
    order = np.random.default_rng(seed).permutation(np.arange(16281, len(frame)))[:num_rows]
    train, test = frame.iloc[order], frame.iloc[:16281]
    plain = Domain.from_frame(frame).variables
    cuts = np.arange(1, INTERVALS) / INTERVALS
    variables = tuple(
        one
        if one.states
        else Variable(
            one.name, edges=tuple(np.unique(train[one.name].quantile(cuts, interpolation="lower")))
        )
        for one in plain
    )
    return Table("income", train, test, "income", Domain(variables))


def ours(table, options):
    options = {**options, **({"target": table.target} if "target" in options else {})}
    values = table.values(table.train)
    start = time.process_time()
    circuit = learn_spn(values, domain=table.domain, **options)
    spent = time.process_time() - start
    right = circuit.predict(table.test, table.target) == table.test[table.target]
    likelihood = circuit.log_likelihood(table.test).mean()
    return Result(likelihood, right.mean(), circuit.num_nodes, spent)


def spflow(table, least_rows):
    """SPFlow 0.0.4x, or None where it is not installed."""
    try:
        from spn.algorithms.Inference import log_likelihood
        from spn.algorithms.LearningWrappers import learn_mspn
        from spn.structure.Base import Context, get_number_of_nodes
        from spn.structure.StatisticalTypes import MetaType
    except ImportError:
        return None
    train, test = table.values(table.train), table.values(table.test)
    states = table.domain.num_states
    kinds = [MetaType.DISCRETE if count else MetaType.REAL for count in states]
    context = Context(meta_types=kinds).add_domains(np.concatenate((train, test)))
    start = time.process_time()
    learned = learn_mspn(
        train, context, min_instances_slice=least_rows, threshold=THRESHOLD, cpus=1
    )
    spent = time.process_time() - start
    everything = log_likelihood(learned, np.full((1, len(states)), np.nan))[0, 0]
    target = table.domain.index(table.target)
    joint = []
    for state in range(states[target]):
        rows = test.copy()
        rows[:, target] = state
        joint.append(log_likelihood(learned, rows)[:, 0])
    joint = np.column_stack(joint)
    labels = test[:, target].astype(int)
    likelihood = joint[np.arange(len(test)), labels].mean() - everything
    right = (joint.argmax(axis=1) == labels).mean()
    return Result(likelihood, right, get_number_of_nodes(learned), spent)


def main(tabular, debd, seeds, quick):
    compare("breast cancer", [breast_cancer(seed) for seed in seeds])
    if tabular is None:
        print("\nskipped: income needs --tabular FOLDER")
    else:
        num_rows = 5000 if quick else None
        compare("income", [income(tabular, seed, num_rows) for seed in seeds])
    if debd is None:
        print("\nskipped: the binary sets need --debd FOLDER")
    else:
        binary(debd, seeds, quick)


def compare(name, tables):
    for options in OURS.values():
        ours(tables[0], options)  # compiles, or loads, what is compiled
    variants = dict(OURS)
    for count in SPFLOW_SLICES[name]:
        # SPFlow has leaves over one column only, as learn_spn has without blocks.
        variants |= {f"{count} rows{end}": {"min_rows": count, **KINDS[end]} for end in KINDS}
    results = {label: [ours(one, options) for one in tables] for label, options in variants.items()}
    peers = {}
    for least_rows in SPFLOW_SLICES[name]:
        found = [spflow(one, least_rows) for one in tables]
        if None in found:
            print("\nskipped: SPFlow is not installed (pip install 'spflow<1')")
            break
        peers[f"SPFlow, {least_rows} rows"] = found
    rows = [row(label, found, results["learn_spn"]) for label, found in (results | peers).items()]
    print_table(
        f"LearnSPN on {name}, {len(tables)} splits",
        ("learner", "test log-likelihood", "accuracy", "nodes", "CPU s", "learn_spn is faster"),
        rows,
    )
    if peers:
        goals = [
            goal(label, results[label.removeprefix("SPFlow, ") + end], found, end)
            for end in KINDS
            for label, found in peers.items()
        ]
        print_table(
            f"Goals on {name}: {FASTER} times as fast as SPFlow with as many rows, and likelier",
            ("peer", "log-likelihood less the peer's", "times as fast", "met"),
            goals,
        )


def goal(label, found, peer, end):
    """A row of the table of goals."""
    times = mean(peer, "cpu_seconds") / mean(found, "cpu_seconds")
    gain = mean(found, "log_likelihood") - mean(peer, "log_likelihood")
    met = verdict(times >= FASTER and gain > 0)
    return label + end, f"{gain:.2f}", f"{times:.0f}", met


def mean(results, field):
    return np.mean([getattr(one, field) for one in results])


def row(label, results, reference):
    ratio = mean(results, "cpu_seconds") / mean(reference, "cpu_seconds")
    return (
        label,
        with_error(*mean_and_error([one.log_likelihood for one in results]), digits=2),
        f"{mean(results, 'accuracy'):.3f}",
        f"{mean(results, 'nodes'):.0f}",
        f"{mean(results, 'cpu_seconds'):.2f}",
        f"{ratio:.1f}",
    )


def binary(folder, seeds, quick):
    """Sets of zeros and ones with their own test rows."""
    rows = []
    for name, goal in list(BINARY_GOALS.items())[: 1 if quick else None]:
        file = np.load(folder / f"{name}.npz")
        width = int(file["n_vars"])
        train, test = (
            np.unpackbits(file[part], axis=1, count=width).astype(float)
            for part in ("train", "test")
        )
        domain = Domain(tuple(Variable(f"v{j}", (0, 1)) for j in range(width)))
        found = {"structure": [], "EM": []}
        for seed in seeds:
            for label, steps in (("structure", 0), ("EM", 15)):
                start = time.process_time()
                circuit = learn_spn(train, domain=domain, seed=seed, em_steps=steps)
                spent = time.process_time() - start
                likelihood = circuit.log_likelihood(test).mean()
                found[label].append(Result(likelihood, np.nan, circuit.num_nodes, spent))
        after = mean(found["EM"], "log_likelihood")
        rows.append(
            (
                name,
                f"{mean(found['structure'], 'log_likelihood'):.3f}",
                f"{after:.3f}",
                goal,
                verdict(after >= goal),
                f"{mean(found['EM'], 'nodes'):.0f}",
                f"{mean(found['structure'], 'cpu_seconds'):.2f}",
                f"{mean(found['EM'], 'cpu_seconds'):.2f}",
            )
        )
    print_table(
        f"LearnSPN on binary sets, {len(seeds)} seeds: test log-likelihood",
        ("set", "learn_spn", "15 EM steps", "goal", "met", "nodes", "CPU s", "with EM"),
        rows,
    )
