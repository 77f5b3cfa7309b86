"""Reader of the data of Sachs et al. (2005): protein signalling in human T cells.

Flow cytometry of 11 proteins and lipids in 7466 cells, each under one of nine combinations of
reagents (Sachs et al., Science 2005). The reagents intervene on some of the variables. If each
condition is a party, the parties have the same network and different mechanisms. Two versions of
the network are in use: 17 edges (`sachs` of bnlearn; Ng & Zhang 2022) and 20 edges (Yang et al.
2024), which has one edge reversed and three more. A third version with 18 edges has a directed
cycle.

The data are not part of this package; users provide the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError

ROWS_FILE = "sachs_all_7466.csv"
CONDITIONS_FILE = "conditions.csv"
EDGE_FILES = {17: "edges_dag_17.csv", 20: "edges_consensus_20.csv"}
#: Name of the column that holds the numbers of the conditions.
CONDITION = "condition"
#: The measured variables on which each condition's reagents act directly (Sachs et al. 2005, table
#: 1). The general stimuli have no specific target, and that of "ly", PI3K, is not measured.
TARGETS = {
    "cd3_cd28+aktinhib": ("akt",),
    "cd3_cd28+g0076": ("pkc",),
    "cd3_cd28+psitect": ("pip2",),
    "cd3_cd28+u0126": ("mek",),
    "pma": ("pkc",),
    "b2camp": ("pka",),
}
#: Number added before the logarithm, as in published versions; the smallest values are near 1.
LOG_OFFSET = 10.0


class Sachs(NamedTuple):
    """The cells, their conditions and the network.

    Attributes
    ----------
    rows : DataFrame
        ``(n, d)``, float64.
    conditions : Series
        ``(n,)`` the condition's reagents for each row.
    truth : CausalGraph
        Weights are 1 for edges.
    """

    rows: pd.DataFrame
    conditions: pd.Series
    truth: CausalGraph


def read_sachs(
    directory: str | Path, *, edges: int = 20, log: bool = False, standardize: bool = False
) -> Sachs:
    """Read the cells and the network.

    Parameters
    ----------
    directory : str or Path
        Holds ``sachs_all_7466.csv`` (a column per variable, and ``condition``), ``conditions.csv``
        (``condition``, ``reagents``), and ``edges_dag_17.csv`` or ``edges_consensus_20.csv``
        (``source``, ``target``).
    edges : {17, 20}, default 20
        Version of the network; 20 in Yang et al. (2024).
    log : bool, default False
        Whether to return ``log(x + 10)``. The intensities are skewed, and their standard deviations
        differ by a factor of 15.
    standardize : bool, default False
        Whether to scale every variable to mean 0 and standard deviation 1 over all rows, after the
        logarithm.

    Returns
    -------
    Sachs
        The cells, their conditions and the network.

    Raises
    ------
    ConfigError
        If there is no network with so many edges.
    DataError
        If a file is missing or has another form, or names an unknown variable or condition.
    """
    if edges not in EDGE_FILES:
        raise ConfigError(
            f"no network with {edges} edges: choose {' or '.join(map(str, EDGE_FILES))}"
        )
    folder = Path(directory).expanduser()
    table = _read(folder / ROWS_FILE, (CONDITION,))
    reagents = _read(folder / CONDITIONS_FILE, (CONDITION, "reagents"))
    unknown = sorted(set(table[CONDITION]) - set(reagents[CONDITION]))
    if unknown:
        raise DataError(f"{folder / CONDITIONS_FILE} does not list the conditions {unknown}")
    conditions = table[CONDITION].map(
        dict(zip(reagents[CONDITION], reagents["reagents"], strict=True))
    )
    rows = table.drop(columns=CONDITION).astype(np.float64)
    if log:
        rows = (rows + LOG_OFFSET).apply(np.log)
    if standardize:
        rows = (rows - rows.mean()) / rows.std(ddof=0)
    return Sachs(rows, conditions, _truth(folder / EDGE_FILES[edges], tuple(rows.columns)))


def condition_parties(data: Sachs) -> dict[str, pd.DataFrame]:
    """Return one party for each condition, by the reagents' names, with rows in file order."""
    return {
        str(name): data.rows[data.conditions == name].reset_index(drop=True)
        for name in data.conditions.unique()
    }


def _truth(path: Path, names: tuple[str, ...]) -> CausalGraph:
    listed = _read(path, ("source", "target"))
    unknown = sorted(set(listed["source"]).union(listed["target"]) - set(names))
    if unknown:
        raise DataError(f"{path} has edges of {', '.join(unknown)}, which are not in the rows")
    position = {name: place for place, name in enumerate(names)}
    weights = np.zeros((len(names), len(names)))
    weights[listed["source"].map(position), listed["target"].map(position)] = 1.0
    return CausalGraph(names, weights)


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(
            f"no file {path}: give the directory that holds it; the data are not part of this "
            "package"
        )
    table = pd.read_csv(path)
    missing = [column for column in columns if column not in table.columns]
    if missing or table.isna().any(axis=None):
        raise DataError(
            f"{path} has missing values, or lacks the columns {missing}: give the file that "
            "read_sachs describes"
        )
    return table
