"""FedPC on the paper's tables: all ways to train, with its figures and plain classifiers beside.

    python benchmarks/run.py --suite fedpc --seeds 0-9
    python benchmarks/run.py --suite fedpc --seeds 0-9 --names vertical
    python benchmarks/run.py --suite fedpc --seeds 0-2 --tabular FOLDER --names income,credit
    python benchmarks/run.py --suite fedpc --seeds 0 --debd FOLDER --names binary

A seed is another division into training and test rows, and among the parties. Log-likelihoods are
nats a row, the class included: on breast cancer of standardised columns; where trees learn from
intervals, of these. In brackets are those of other intervals, or of numbers in their own units,
which are not comparable.
"""

import sys
import time
from typing import NamedTuple

import numpy as np
from fedpc_cases import (
    CENTRAL,
    CREDIT_PAPER,
    HORIZONTAL,
    HYBRID,
    INCOME_PAPER,
    KEEP,
    ON_NUMBERS,
    ONE_PASS,
    VERTICAL,
    Case,
    learner,
    mixed_cases,
)
from peer_classifiers import classifiers
from tables import mean_and_error, print_table, verdict
from tabular_tables import binary_set, cancer, credit, income

from flwr_causal.app.comparison import circuit_scores
from flwr_causal.data.partition import split, split_columns
from flwr_causal.errors import CausalError
from flwr_causal.simulations import simulate

SCORES = ("log_likelihood", "accuracy", "macro_f1", "auroc")
HEADER = (
    "parties",
    "who holds what",
    "options",
    "LL",
    "accuracy",
    "macro F1",
    "AUROC",
    "exchanges",
    "kB a party",
    "CPU s",
    "the paper: LL; accuracy, F1",
)
# What the paper's other methods would send: exchanges of a network's weights, rows' activations.
FEDAVG_ROUNDS, SPLIT_EPOCHS, SPLIT_WIDTH, BYTES = 100, 100, 32, 8
BINARY_SETS = ("nltcs", "plants", "baudio", "jester")
# The study's best by sums over three mixtures; LearnSPN followed by 15 steps of EM.
BINARY_GOALS = {"nltcs": -5.995, "plants": -12.39, "baudio": -39.48, "jester": -52.47}
LEARN_SPN = {"nltcs": -6.017, "plants": -12.920, "baudio": -40.025, "jester": -53.034}


class Found(NamedTuple):
    """Means over the seeds, the error of the log-likelihood's, and what it is of.

    ``other``: of numbers, or of other intervals than most lines of the table.
    """

    scores: dict
    error: float
    exchanges: float
    kilobytes: float
    seconds: float
    other: bool = False


def main(tabular, debd, seeds, quick, names=None):
    """Print the tables that are named; default: all whose data are there."""
    tables = {"income": income, "credit": credit}
    groups = {"central": CENTRAL, "horizontal": HORIZONTAL, "vertical": VERTICAL, "hybrid": HYBRID}
    chosen = tuple(names or (*groups, "traffic", "peers", *tables, "binary"))
    simulate("fedpc", split(cancer(0).train, 2))  # imports and compiles on first use
    for name in chosen:
        if name in groups:
            cases = groups[name][:2] if quick else groups[name]
            compare(f"Breast cancer, {name}", [cancer(seed) for seed in seeds], cases, seeds)
        elif name == "peers":
            peers("Breast cancer", [cancer(seed) for seed in seeds])
        elif name == "traffic":
            traffic(cancer(seeds[0]).train)
        elif name in tables and tabular is None:
            print(f"\nskipped: {name} needs --tabular FOLDER")
        elif name in tables:
            sizes = (3_000, 1_000) if quick else ()
            read = [tables[name](tabular, seed, *sizes) for seed in seeds]
            keep, papers = ({}, INCOME_PAPER) if name == "income" else (KEEP, CREDIT_PAPER)
            cases = mixed_cases(5, papers, keep)
            compare(name.capitalize(), read, cases[:2] if quick else cases, seeds)
            peers(name.capitalize(), read)
        elif debd is None:
            print("\nskipped: the binary sets need --debd FOLDER")
        else:
            binary(debd, seeds, BINARY_SETS[:1] if quick else BINARY_SETS)


def compare(title, tables, cases, seeds):
    """Print a table of cases, and another of what was to be reached."""
    rows, goals = [], []
    for case in cases:
        try:
            runs = [measured(case, *both) for both in zip(tables, seeds, strict=True)]
        except CausalError as error:
            print(f"\nskipped: {case.num_parties} parties, {case.how}, {case.label}: {error}")
            continue
        found = summary(runs)
        if standardised_by(tables[0]) == 0:
            other = case.options.get("learner") in ON_NUMBERS or "bins" in case.options
            found = found._replace(other=other)
        rows.append(row(case, found))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)  # a table takes minutes
        for score, goal in zip(SCORES, case.goal, strict=False):
            if goal is not None:
                value = found.scores[score]
                what = f"{case.num_parties}, {case.how}, {case.label}: {score}, at least"
                goals.append((what, f"{value:.3f}", goal, verdict(value >= goal)))
    print_table(f"{title}, {len(tables)} divisions", HEADER, rows)
    if goals:
        print_table(f"Goals, {title}", ("quantity", "measured", "goal", "met"), goals)


def measured(case, table, seed):
    """One run: its scores, and what it took."""
    parties = dealt(table, case, seed)
    start = time.process_time()
    run = simulate("fedpc", parties, seed=seed, target=table.target, **case.options)
    seconds = time.process_time() - start
    test = table.test.dropna() if case.options.get("missing_values") == "drop" else table.test
    scores = circuit_scores(run.model, known(test, run.model.domain))
    scores["log_likelihood"] += standardised_by(table)
    sent = (run.bytes_sent + run.bytes_received) / case.num_parties / 1e3
    return scores, run.rounds, sent, seconds


def known(test, domain):
    """Rows in which a state that no party has (one in a few thousand) is missing."""
    states = {one.name: test[one.name].isin(one.states) for one in domain.variables if one.states}
    return test.assign(**{name: test[name].where(rows) for name, rows in states.items()})


def dealt(table, case, seed):
    if case.how in ("vertical", "hybrid"):
        return split_columns(
            table.train, case.num_parties, case.how, target=table.target, seed=seed
        )
    if case.how == "sorted":
        return split(table.train, case.num_parties, "sorted", column=table.target, seed=seed)
    return split(table.train, case.num_parties, seed=seed)


def standardised_by(table):
    """Log-likelihood that standardising adds, where all columns but the class are measurements."""
    numbers = table.train.drop(columns=table.target or [])
    if any(kind.kind not in "f" for kind in numbers.dtypes) or numbers.isna().any(axis=None):
        return 0.0
    return float(np.log(numbers.std(ddof=0)).sum())


def summary(runs):
    scores, exchanges, sent, seconds = zip(*runs, strict=True)
    means = {name: np.mean([one[name] for one in scores]) for name in SCORES if name in scores[0]}
    error = mean_and_error([one["log_likelihood"] for one in scores])[1]
    return Found(means, error, np.mean(exchanges), np.mean(sent), np.mean(seconds))


def row(case, found):
    likelihood = f"{found.scores['log_likelihood']:.2f} ± {found.error:.2f}"
    if found.other:
        likelihood = f"({likelihood})"
    rates = (f"{found.scores[name]:.3f}" if name in found.scores else "" for name in SCORES[1:])
    return (
        case.num_parties,
        case.how,
        case.label,
        likelihood,
        *rates,
        f"{found.exchanges:.1f}",
        f"{found.kilobytes:,.0f}",
        f"{found.seconds:.2f}",
        case.paper,
    )


def peers(title, tables):
    """Plain classifiers on all rows in one place; they have no density."""
    found = [classifiers(table) for table in tables]
    rows = [
        (name, *(f"{np.mean([one[name][score] for one in found]):.3f}" for score in found[0][name]))
        for name in found[0]
    ]
    header = ("scikit-learn", "accuracy", "macro F1", "AUROC", "F1 at a threshold", "CPU s")
    print_table(f"{title}: classifiers of all rows, {len(tables)} divisions", header, rows)


def traffic(train, num_parties=5):
    """Bytes of one pass beside what others exchange by formula for as many parameters."""
    rows = []
    for name in ("class-conditional", "spn", "decision-tree"):
        parties = split(train, num_parties, seed=0)
        for queries in ("federated", "central"):
            run = simulate("fedpc", parties, **learner(name, queries=queries))
            sent = run.bytes_sent + run.bytes_received
            parameters = num_parameters(run.model) if queries == "central" else 0
            weights = 2 * FEDAVG_ROUNDS * parameters * BYTES  # to all parties and back, each round
            # Activations of each row and their gradients, each epoch.
            activations = 2 * SPLIT_EPOCHS * len(train) * SPLIT_WIDTH * BYTES
            formulas = (f"{n:,}" for n in (parameters, weights, activations))
            told = formulas if parameters else ("", "", "")
            rows.append((name, queries, run.rounds, f"{sent:,}", *told))
    run = simulate("fedpc", split(train, num_parties, seed=0))
    sent = run.bytes_sent + run.bytes_received
    rows.append(("class-conditional", "training=sums", run.rounds, f"{sent:,}", "", "", ""))
    print_table(
        f"Bytes of all {num_parties} parties together, {len(train)} rows",
        (
            "learner",
            "queries",
            "exchanges",
            "bytes",
            "parameters",
            f"FedAvg of as many parameters, {FEDAVG_ROUNDS} rounds",
            f"SplitNN, {SPLIT_WIDTH} activations, {SPLIT_EPOCHS} epochs",
        ),
        rows,
    )


def num_parameters(model):
    return model.density.num_parameters


def binary(folder, seeds, names):
    """Sets of zeros and ones: five parties at random, and along their first direction."""
    for name in names:
        table, rows = binary_set(folder, name), []
        for num_parties, how, options in (
            (1, "horizontal", {}),
            (5, "horizontal", {}),
            (5, "skewed", {}),
            (5, "horizontal", ONE_PASS),
            (5, "skewed", ONE_PASS),
        ):
            runs = []
            for seed in seeds:
                parties = split(table.train, num_parties, seed=seed)
                if how == "skewed":
                    parties = skewed(table.train, num_parties, seed)
                start = time.process_time()
                run = simulate("fedpc", parties, seed=seed, constant_columns="drop", **options)
                seconds = time.process_time() - start
                sent = (run.bytes_sent + run.bytes_received) / num_parties / 1e3
                scores = circuit_scores(run.model, known(table.test, run.model.domain))
                runs.append((scores, run.rounds, sent, seconds))
            found = summary(runs)
            value, goal = found.scores["log_likelihood"], BINARY_GOALS[name]
            rows.append(
                (
                    num_parties,
                    how,
                    Case(num_parties, how, options).label,
                    f"{value:.3f}",
                    LEARN_SPN[name],
                    goal if not options else "",
                    verdict(value >= goal) if not options else "",
                    f"{found.exchanges:.0f}",
                    f"{found.kilobytes:,.0f}",
                    f"{found.seconds:.2f}",
                )
            )
        print_table(
            f"{name}, {len(seeds)} seeds: test log-likelihood",
            (
                *HEADER[:4],
                "LearnSPN + EM, all rows",
                "goal",
                "met",
                *HEADER[7:10],
            ),
            rows,
        )


def skewed(train, num_parties, seed):
    """Parties that follow each other along the direction in which the rows vary most."""
    centred = train.to_numpy(float) - train.to_numpy(float).mean(axis=0)
    axis = np.linalg.svd(centred[:2000], full_matrices=False)[2][0]
    parties = split(
        train.assign(place=centred @ axis), num_parties, "sorted", column="place", seed=seed
    )
    return [party.drop(columns="place") for party in parties]
