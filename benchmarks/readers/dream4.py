"""Reader of the time series of the DREAM4 in-silico network challenge.

The expression of 100 genes (ten series) or 10 genes (five series) at 21 times, simulated from parts
of real regulatory networks (Marbach et al., 2009 and 2010; Prill et al., 2010). In the first half
of each series, up to time 500, a perturbation acts on some genes. All ten gold standards have
directed cycles, and none has a gene that regulates itself. Evaluate by ranking the edges without
the diagonal (`core.graphs.metrics.auroc`), or by comparing with a summary graph.

The data are not part of this package; users provide the files. The originals are on Synapse
(syn3049712), which needs an account.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray

#: Name of the column that holds the times.
TIME = "time"
NUM_NETWORKS = 5
SIZES = (10, 100)
ARRAYS = ("series", "time", "adjacency", "names")


class Dream4(NamedTuple):
    """One network of the challenge.

    Attributes
    ----------
    series : list of DataFrame
        Each with the column ``time`` (0, 50, ..., 1000) and one column per gene.
    gold : bool array of shape (d, d)
        ``gold[i, j]``: gene i regulates gene j; the diagonal is False.
    names : tuple of str
        The genes, ``G1``, ``G2``, ...
    """

    series: list[pd.DataFrame]
    gold: BoolArray
    names: tuple[str, ...]

    @property
    def truth(self) -> CausalGraph:
        """The gold standard as a summary graph."""
        return CausalGraph(self.names, self.gold.astype(np.float64), kind="summary")


def read_dream4(directory: str | Path, network: int = 1, size: int = 100) -> Dream4:
    """Read one network.

    Parameters
    ----------
    directory : str or Path
        Holds ``size100_1.npz`` to ``size100_5.npz`` and ``size10_1.npz`` to ``size10_5.npz``, each
        with ``series (number, T, d)``, ``time (T,)``, ``adjacency (d, d)`` (row regulates column)
        and ``names (d,)``.
    network : {1, 2, 3, 4, 5}, default 1
        Number of the network.
    size : {100, 10}, default 100
        Number of genes.

    Returns
    -------
    Dream4
        The series and the gold standard.

    Raises
    ------
    ConfigError
        If there is no such network or size.
    DataError
        If the file is missing or has another form.
    """
    if size not in SIZES or not 1 <= network <= NUM_NETWORKS:
        raise ConfigError(
            f"no DREAM4 network {network} of size {size}: there are 1 to {NUM_NETWORKS}, of size "
            f"{' and '.join(map(str, SIZES))}"
        )
    path = Path(directory).expanduser() / f"size{size}_{network}.npz"
    if not path.is_file():
        raise DataError(
            f"no DREAM4 file {path}: give the directory that holds it; the data are not part of "
            "this package"
        )
    try:
        with np.load(path, allow_pickle=False) as archive:
            values, time, adjacency, labels = (archive[name] for name in ARRAYS)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not an NPZ archive of {', '.join(ARRAYS)} ({error})") from None
    names = tuple(str(label) for label in labels)
    d = len(names)
    if values.ndim != 3 or values.shape[1:] != (len(time), d) or adjacency.shape != (d, d):
        raise DataError(
            f"{path} holds series of shape {values.shape} and an adjacency of shape "
            f"{adjacency.shape} for {len(time)} times and {d} names: they do not fit"
        )
    columns = pd.Index([TIME, *names])
    series = [
        pd.DataFrame(np.column_stack([time, rows]).astype(np.float64), columns=columns)
        for rows in values
    ]
    return Dream4(series, adjacency != 0, names)


def dream4_parties(data: Dream4, num_parties: int = 5) -> list[list[pd.DataFrame]]:
    """Return the series of each party: consecutive series, in numbers that differ by at most one.

    Five parties with two series each is the setting of Chen, Ma & Yue (2024), section 5, for size
    100.

    Raises
    ------
    DataError
        If there are fewer series than parties.
    """
    if not 1 <= num_parties <= len(data.series):
        raise DataError(
            f"{num_parties} parties for {len(data.series)} series: give from 1 to "
            f"{len(data.series)} parties"
        )
    shares = np.array_split(np.arange(len(data.series)), num_parties)
    return [[data.series[m] for m in share] for share in shares]
