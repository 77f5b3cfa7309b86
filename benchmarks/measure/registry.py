"""What benchmarks share: their list, tables, CPU seconds, data."""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flwr_causal.data.synthetic.linear import federated_linear


class Table(NamedTuple):
    """Cells as they are shown; notes stand above the table."""

    columns: tuple
    rows: list
    notes: tuple = ()


class Benchmark(NamedTuple):
    """A measurement: ``measure(Setup)`` returns a `Table`."""

    name: str
    title: str
    seeds: str
    versions: tuple
    measure: object


class Setup(NamedTuple):
    """What a benchmark is run with; ``quick`` asks for small settings only."""

    seeds: list
    quick: bool
    data_dir: Path | None


BENCHMARKS = {}


def benchmark(name, title, seeds="0-1", versions=()):
    """Register a measurement, with its default seeds and the peers whose versions are recorded."""

    def register(measure):
        BENCHMARKS[name] = Benchmark(name, title, seeds, versions, measure)
        return measure

    return register


def cpu(function, *arguments, **options):
    """Return the result and the CPU seconds of a call."""
    start = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - start


def with_error(values, digits=2):
    """Mean over the seeds, and its standard error if there are several."""
    values = np.asarray(values, dtype=float)
    mean = f"{values.mean():.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"


def linear_parties(d, n, num_parties, seed):
    """The simulator of Ng & Zhang (2022): the parties' rows as arrays, and the true weights."""
    frames, weights = federated_linear(d, n, num_parties, seed=seed)
    return [frame.to_numpy() for frame in frames], weights
