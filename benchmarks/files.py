"""Data sets in files that the repository does not hold, and the small networks that it has.

A file is looked for in the folder that ``--data-dir`` or the environment variable
``FLWR_CAUSAL_DATA`` names, and must have the digest that the scenarios were written for.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.catalogue import FILES
from benchmarks.readers.dream4 import TIME, dream4_parties, read_dream4
from benchmarks.readers.netsim import PAPER_SUBJECTS, cut_series, read_netsim
from benchmarks.readers.sachs import TARGETS, condition_parties, read_sachs
from benchmarks.world import World
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.data.read.bif import read_bif
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The networks of the folder `networks`.
SHIPPED = ("asia", "alarm")
#: The default of the option ``max_states``; variables of barley and mildew have more.
FEW_STATES = 64
SIMULATIONS = {5: "sim1.npz", 10: "sim2.npz", 15: "sim3.npz"}
#: Rows for training and for the test, by table; Seng et al. (2025) for breast cancer.
DIVISIONS = {"breast-cancer": (450, 119), "income": (27_000, 9_000), "credit": (60_000, 30_000)}


class MissingDataError(DataError):
    """A file of a data set is missing, or is another version."""


def located(data_dir: Path | None, folder: str, *names: str) -> Path:
    """Return the folder that holds the files of a data set, after a look at their digests.

    Raises
    ------
    MissingDataError
        If a file is missing or has another digest. The message says where to get it.
    """
    where, digests = FILES[folder]
    missing = f"get {', '.join(names)} from {where}, and give their folder by --data-dir"
    if data_dir is None:
        raise MissingDataError(f"the data '{folder}' are not in the repository: {missing}")
    for home in (data_dir / folder, data_dir):
        if all((home / name).is_file() for name in names):
            break
    else:
        raise MissingDataError(f"{data_dir} does not hold the data '{folder}': {missing}")
    for name in names:
        if _sha256(home / name) != digests[name]:
            raise MissingDataError(
                f"{home / name} has another SHA-256 than {digests[name]}: {missing}"
            )
    return home


@lru_cache(maxsize=64)
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def network(seed: int, data_dir: Path | None, network: str, num_rows: int = 5000) -> World:
    """Rows of a discrete Bayesian network: asia, alarm, or a BIF file of the bnlearn repository."""
    found = network_of(network, data_dir)
    most = max(map(len, found.states))
    options = {"max_states": most} if most > FEW_STATES else {}
    return World([found.sample(num_rows, seed)], found.graph, options=options)


@lru_cache(maxsize=4)
def network_of(name: str, data_dir: Path | None) -> BayesianNetwork:
    """Return a network by name."""
    if name in SHIPPED:
        file = resources.files(__package__).joinpath("networks", f"{name}.json")
        with resources.as_file(file) as path:
            return BayesianNetwork.load(path)
    file_name = f"{name}.bif.gz"
    if file_name not in FILES["bif_networks"][1]:
        raise DataError(f"no network '{name}': choose asia, alarm or one of the bnlearn repository")
    return read_bif(located(data_dir, "bif_networks", file_name) / file_name)


def sachs(
    seed: int,
    data_dir: Path | None,
    edges: int = 20,
    rows: str = "all",
    num_rows: int | None = None,
    log: bool = False,
    by_condition: bool = False,
    interventions: bool = False,
) -> World:
    """Flow cytometry of Sachs et al. (2005); ``rows`` are "all", or the "observational" ones.

    ``num_rows`` draws so many of them; ``by_condition`` makes a party of each of the conditions,
    and ``interventions`` states which columns they set.
    """
    truth_file = {17: "edges_dag_17.csv", 20: "edges_consensus_20.csv"}[edges]
    home = located(data_dir, "sachs", "sachs_all_7466.csv", "conditions.csv", truth_file)
    data = read_sachs(home, edges=edges, log=log)
    parties = condition_parties(data)
    if by_condition:
        targets = {k: TARGETS[name] for k, name in enumerate(parties) if name in TARGETS}
        options = {"interventions": targets} if interventions else {}
        return World(list(parties.values()), data.truth, options=options)
    frame = data.rows if rows == "all" else parties["cd3_cd28"]
    if num_rows is not None:
        frame = draw_rows(frame, min(round(num_rows), len(frame)), seed)
    return World([frame.reset_index(drop=True)], data.truth)


def dream4(seed: int, data_dir: Path | None, network: int, num_parties: int = 5) -> World:
    """Expression of 100 genes in ten series, of which every party has some: DREAM4."""
    home = located(data_dir, "dream4", f"size100_{network}.npz")
    data = read_dream4(home, network)
    parties = dream4_parties(data, num_parties)
    return World(list(parties), data.truth, options={"time_column": TIME, "order": 1})


def netsim(
    seed: int, data_dir: Path | None, num_variables: int, subject: int, num_parties: int = 5
) -> World:
    """One subject's 200 steps cut over the parties; ``subject`` counts the paper's five from 1.

    Subject 0: each of the five is a party, centred and scaled by itself.
    """
    name = SIMULATIONS[num_variables]
    home = located(data_dir, "netsim", name)
    chosen = PAPER_SUBJECTS[num_variables]
    data = read_netsim(home / name, chosen if subject == 0 else [chosen[subject - 1]])
    if subject == 0:
        series = [(x - x.mean(axis=0)) / x.std(axis=0) for x in data.subjects]
    else:
        series = cut_series(data.subjects[0], num_parties)
    columns = list(data.truth.names)
    parties = [pd.DataFrame(steps, columns=columns) for steps in series]
    return World(parties, data.truth, options={"order": 1})


def draw_rows(frame: pd.DataFrame, num_rows: int, seed: int) -> pd.DataFrame:
    """Draw rows of a table at random without replacement.

    Raises
    ------
    DataError
        If ``num_rows`` is not between 1 and the number of rows.
    """
    if not 0 < num_rows <= len(frame):
        raise DataError(
            f"cannot draw {num_rows} rows from a table of {len(frame)} rows: give a number from 1 "
            f"to {len(frame)}"
        )
    return frame.iloc[np.random.default_rng(seed).choice(len(frame), num_rows, replace=False)]


def tabular(
    seed: int, data_dir: Path | None, table: str, scale: float = 1.0, encoded: bool = False
) -> World:
    """Return a table with a class, divided into rows for training and for the test.

    ``table`` is "breast-cancer" (comes with scikit-learn), "income" or "credit"; ``scale`` is the
    share of the training rows that are used; ``encoded`` prepares the table as :func:`as_numbers`
    does.
    """
    frame, target = _TABLES[table](data_dir)
    if encoded:
        frame = as_numbers(frame, target)
    train, test = DIVISIONS[table]
    return _divided(frame, target, train, test, seed, scale)


def as_numbers(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return a table as Seng et al. (2025, appendix D.1) prepare it.

    Categories become numbers by the target encoder of scikit-learn, empty cells the median of their
    column, and all columns but the class are standardised.
    """
    from sklearn.preprocessing import TargetEncoder

    columns = frame.drop(columns=target)
    texts = columns.select_dtypes(exclude="number").columns.tolist()
    if texts:
        known = columns[texts].astype(str)
        encoder = TargetEncoder(target_type="binary", random_state=0)
        columns[texts] = encoder.fit(known, frame[target]).transform(known)
    columns = columns.fillna(columns.median())
    return ((columns - columns.mean()) / columns.std(ddof=0)).assign(**{target: frame[target]})


def _breast_cancer(data_dir: Path | None) -> tuple[pd.DataFrame, str]:
    frame = breast_cancer()
    numbers = frame.drop(columns="target")
    return frame.assign(**(numbers - numbers.mean()) / numbers.std(ddof=0)), "target"


def _income(data_dir: Path | None) -> tuple[pd.DataFrame, str]:
    home = located(data_dir, "tabular", "adult.csv.gz")
    # education-num says what education does.
    return pd.read_csv(home / "adult.csv.gz").drop(columns="education-num"), "income"


def _credit(data_dir: Path | None) -> tuple[pd.DataFrame, str]:
    home = located(data_dir, "tabular", "give_me_some_credit.npz")
    columns = {}
    with np.load(home / "give_me_some_credit.npz") as file:
        for name in file.files:
            # Names that end in _e9 are in units of 1e-9.
            scale = 1e9 if name.endswith("_e9") else 1.0
            columns[name.removesuffix("_e9")] = file[name].astype(np.float64) / scale
    late = np.where(columns.pop("SeriousDlqin2yrs") == 1, "yes", "no")
    return pd.DataFrame(columns).assign(late=late), "late"


_TABLES: dict[str, Callable[[Path | None], tuple[pd.DataFrame, str]]] = {
    "breast-cancer": _breast_cancer,
    "income": _income,
    "credit": _credit,
}


def binary(seed: int, data_dir: Path | None, table: str, scale: float = 1.0) -> World:
    """Return a binary set for density estimation, with its own rows for the test."""
    home = located(data_dir, "debd", f"{table}.npz")
    with np.load(home / f"{table}.npz") as file:
        width = int(file["n_vars"])
        columns = [f"v{j}" for j in range(width)]
        train, test = (
            pd.DataFrame(np.unpackbits(file[part], axis=1, count=width), columns=columns)
            for part in ("train", "test")
        )
    train = draw_rows(train, round(scale * len(train)), seed)
    return World([train.reset_index(drop=True)], test=test, options={"constant_columns": "drop"})


def mnist(
    seed: int, data_dir: Path | None, num_rows: float = 4000, num_test: float = 1000, side: int = 28
) -> World:
    """Return the 5,000 digits of the MNIST subset, grey values from 0 to 1.

    ``side`` 14 averages blocks of four pixels.
    """
    home = located(data_dir, "tabular", "mnist_5k.npz")
    with np.load(home / "mnist_5k.npz") as file:
        images = file["x"].astype(np.float64) / 255.0
    fold = 28 // side
    images = images.reshape(len(images), side, fold, side, fold).mean(axis=(2, 4))
    flat = pd.DataFrame(images.reshape(len(images), -1)).rename(columns="p{}".format)
    return _divided(flat, "", round(num_rows), round(num_test), seed)


def _divided(
    frame: pd.DataFrame, target: str, train: int, test: int, seed: int, scale: float = 1.0
) -> World:
    order = np.random.default_rng(seed).permutation(len(frame))
    rows = frame.iloc[order].reset_index(drop=True)
    held_out = rows.iloc[train : train + test].reset_index(drop=True)
    options: dict[str, object] = {"target": target} if target else {"constant_columns": "drop"}
    if frame.isna().any(axis=None):
        options["missing_values"] = "keep"
    return World([rows.iloc[: round(scale * train)]], test=held_out, options=options)


DATA_SETS: dict[str, Callable[..., World]] = {
    "network": network,
    "sachs": sachs,
    "dream4": dream4,
    "netsim": netsim,
    "tabular": tabular,
    "binary": binary,
    "mnist": mnist,
}
