"""Tables of categories with a known graph: read from a folder, or sampled from networks.

The package ships no networks. The figures in docs/figures.md are from the networks of the bnlearn
repository, as BIF files.
"""

from typing import NamedTuple

import numpy as np
from cases import split

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.read.bif import read_bif

NUM_ROWS = 5000  # of each sample in Torrijos et al. (2024)


class DiscreteCase(NamedTuple):
    network: str
    sample: str  # where the rows come from
    rows: np.ndarray  # (n, d), small whole numbers
    marks: np.ndarray  # (d, d) of bool, [i, j]: i causes j

    @property
    def truth(self):
        """The true graph over the names that arrays get, ``x0, x1, ...``."""
        return CausalGraph.from_array(self.marks, [f"x{i}" for i in range(len(self.marks))])

    def parties(self, num_parties):
        """Equal parts in the order of the rows."""
        return split(self.rows, num_parties)


def read_cases(names, samples, networks, seeds):
    """Return the cases of the named networks from either folder, or from both.

    ``samples`` holds ``NAME_0.npz`` with X (n, d) and edges (m, 2), cause and effect; ``networks``
    holds ``NAME.bif`` or ``NAME.bif.gz``, from which each seed draws rows.
    """
    cases = [stored_case(name, samples) for name in names if samples is not None]
    if networks is not None:
        cases += [drawn_case(name, networks, seed) for name in names for seed in seeds]
    return cases


def stored_case(name, folder):
    with np.load(folder / f"{name}_0.npz") as stored:
        rows, edges = stored["X"], stored["edges"]
    marks = np.zeros((rows.shape[1], rows.shape[1]), dtype=bool)
    marks[edges[:, 0], edges[:, 1]] = True
    return DiscreteCase(name, "file", rows, marks)


def drawn_case(name, folder, seed):
    plain = folder / f"{name}.bif"
    network = read_bif(plain if plain.exists() else folder / f"{name}.bif.gz")
    rows = np.ascontiguousarray(network.sample_table(NUM_ROWS, seed).codes.T)
    return DiscreteCase(name, f"seed {seed}", rows, network.graph.adjacency)


def small_case():
    """Twelve variables: enough for a first run to compile, or load, every kernel."""
    rng = np.random.default_rng(0)
    num_rows, d = 400, 12
    rows = np.zeros((num_rows, d), dtype=np.uint8)
    marks = np.zeros((d, d), dtype=bool)
    for j in range(d):
        causes = rng.choice(j, min(j, 2), replace=False)
        marks[causes, j] = True
        flipped = rng.random(num_rows) < (0.2 if j > 1 else 0.5)
        rows[:, j] = rows[:, causes].any(axis=1) ^ flipped
    return DiscreteCase("small", "drawn", rows, marks)
