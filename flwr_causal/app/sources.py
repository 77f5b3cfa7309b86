"""Where the rows of a node come from: its own file, or its share of a simulated federation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from flwr_causal.app import methods
from flwr_causal.clients import Source
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.partition import Partition, Setting, hold_out, split, split_columns
from flwr_causal.data.read.example_tables import breast_cancer, digits
from flwr_causal.data.read.tables import read_table, read_table_cached
from flwr_causal.data.roles import ROW_ID, target_in
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies.options import checked, option_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.app import Context

ROWS_OF_NUMBERS, ROWS_OF_CATEGORIES, ROWS_OF_FUNCTIONS = 256, 5000, 2000
EXAMPLES = {"": breast_cancer, "breast-cancer": breast_cancer, "digits": digits}
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".npz")


@dataclass(frozen=True)
class DataConfig:
    """The run config's keys about the data of a simulated federation.

    Parameters
    ----------
    data : str, default ""
        Absolute path of a table whose rows are dealt to the parties, or of a directory with one
        table for each party. Empty: a synthetic system, or for methods on mixed tables an example;
        for these also "breast-cancer" or "digits".
    partition : {"even", "uneven", "dirichlet", "sorted", "column"}, default "even"
        How a table's rows are dealt; see ``flwr_causal.data.partition.split``.
    partition_column : str, default ""
        The column for "dirichlet", "sorted" and "column".
    partition_concentration : float, default 1.0
        Concentration of the Dirichlet distribution for "uneven" and "dirichlet".
    variables, rows : int, default 20 and 0
        Size of the synthetic system; the rows of all parties together. 0 rows stands for 256 of a
        linear system, 2000 of functions, and 5000 of a network of categories.
    graph : {"er", "sf"}, default "er"
        Erdos-Renyi or scale-free (Ng & Zhang 2022, section 6: ER with as many edges as variables).
    setting : {"horizontal", "vertical", "hybrid"}, default "horizontal"
        For methods on mixed tables: whether parties have rows of their own, columns of their own,
        or both; see ``flwr_causal.data.partition.split_columns``.
    test_share : float, default 0.2
        For methods on mixed tables: the share of the rows on which the result is judged.
    seed : int, default 0
        Fixes the synthetic system and the dealing of the rows.
    """

    data: str = ""
    partition: Partition = "even"
    partition_column: str = ""
    partition_concentration: float = 1.0
    variables: int = 20
    rows: int = 0
    graph: Literal["er", "sf"] = "er"
    setting: Setting = "horizontal"
    test_share: float = 0.2
    seed: int = 0

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Any]) -> DataConfig:
        """Take the keys about the data out of a run config and check their types.

        Raises
        ------
        ConfigError
            If a value has the wrong type.
        """
        types = option_types(cls)
        values = {}
        for name in (field.name for field in fields(cls)):
            key = name.replace("_", "-")
            if key in run_config:
                values[name] = checked(key, run_config[key], types[name])
        return cls(**values)


@lru_cache(maxsize=2)
def simulated_parties(
    config: DataConfig,
    num_parties: int,
    *,
    categorical: bool = False,
    temporal: bool = False,
    nonlinear: bool = False,
    series_column: str = "",
) -> tuple[list[pd.DataFrame], CausalGraph | None]:
    """Return the tables of all parties of a simulation, and the true graph where it is known.

    Parameters
    ----------
    config : DataConfig
    num_parties : int
    categorical : bool, default False
        Whether the synthetic data is of a Bayesian network of categories, not of a linear system.
    temporal : bool, default False
        Whether the rows are steps of time series: synthetic ones, or a table that is dealt out in
        stretches of time.
    nonlinear : bool, default False
        Whether the synthetic parties have mechanisms of different kinds.
    series_column : str, default ""
        Of a table of several series: they are dealt out whole.

    Raises
    ------
    ConfigError, DataError
        If the data cannot be read or dealt to so many parties.
    """
    if not config.data:
        if nonlinear:
            rows = config.rows or ROWS_OF_FUNCTIONS
            size = (config.variables, rows, num_parties)
            return federated_nonlinear(*size, graph=config.graph, seed=config.seed)
        return _synthetic(config, num_parties, categorical=categorical, temporal=temporal)
    path = _path_of(config)
    if path.is_dir():
        return [read_table(file) for file in _tables_in(path, num_parties)], None
    if temporal:
        return deal_series(read_table(path), num_parties, series_column), None
    return _dealt(read_table(path), config, num_parties), None


@lru_cache(maxsize=2)
def tabular_parties(
    config: DataConfig, num_parties: int, *, target: str = "", row_id: str = ROW_ID
) -> tuple[list[pd.DataFrame], pd.DataFrame]:
    """Return the tables of all parties of a simulation, and rows set aside for the test.

    Parameters
    ----------
    config : DataConfig
        Its data may also be the name of a table of scikit-learn, "breast-cancer" (the default) or
        "digits".
    num_parties : int
    target : str, default ""
        The class, a column of the table; empty: see `flwr_causal.data.roles.target_in`.
    row_id : str
        The column of ids, where the tables have one.

    Raises
    ------
    ConfigError, DataError
        If the data cannot be read or dealt to so many parties.
    """
    example = EXAMPLES.get(config.data)
    if example is None and _path_of(config).is_dir():
        tables = [read_table(file) for file in _tables_in(_path_of(config), num_parties)]
    else:
        frame = read_table(_path_of(config)) if example is None else example()
        if config.setting == "horizontal":
            tables = _dealt(frame, config, num_parties)
        else:
            label = target_in(frame.columns, target)
            tables = split_columns(
                frame, num_parties, config.setting, target=label, row_id=row_id, seed=config.seed
            )
    return hold_out(tables, config.test_share, config.seed, row_id)


def _path_of(config: DataConfig) -> Path:
    path = Path(config.data)
    if not path.is_absolute():
        raise ConfigError(
            f"data='{config.data}' is a relative path; Flower runs apps in a directory of its own. "
            "Give the absolute path."
        )
    return path


def _dealt(frame: pd.DataFrame, config: DataConfig, num_parties: int) -> list[pd.DataFrame]:
    """Deal the rows of a table out."""
    return split(
        frame,
        num_parties,
        config.partition,
        column=config.partition_column or None,
        concentration=config.partition_concentration,
        seed=config.seed,
    )


def _synthetic(
    config: DataConfig, num_parties: int, *, categorical: bool, temporal: bool
) -> tuple[list[pd.DataFrame], CausalGraph]:
    rows = config.rows or (ROWS_OF_CATEGORIES if categorical else ROWS_OF_NUMBERS)
    size, graph, seed = (config.variables, rows, num_parties), config.graph, config.seed
    if temporal:
        series, truth = federated_dynamic(*size, graph=graph, seed=seed)
        return [read_table(party) for party in series], truth
    if categorical:
        frames, network = federated_discrete(*size, graph=graph, seed=seed)
        return frames, network.graph
    frames, weights = federated_linear(*size, graph=graph, seed=seed)
    return frames, CausalGraph.from_array(weights, list(frames[0].columns))


def deal_series(frame: pd.DataFrame, num_parties: int, series_column: str) -> list[pd.DataFrame]:
    """Deal a table of time series out: whole series, or stretches of the only one.

    Raises
    ------
    DataError
        If there are fewer series, or steps, than parties, or no such column.
    """
    if not series_column:
        stretches = np.array_split(np.arange(len(frame)), num_parties)
        if len(frame) < num_parties:
            raise DataError(f"{len(frame)} steps cannot be dealt to {num_parties} parties")
        return [frame.iloc[rows].reset_index(drop=True) for rows in stretches]
    if series_column not in frame.columns:
        raise DataError(f"the table has no column {series_column!r}, which series_column names")
    codes, names = pd.factorize(frame[series_column])
    if len(names) < num_parties:
        raise DataError(f"{len(names)} series cannot be dealt to {num_parties} parties")
    return [frame[codes % num_parties == k].reset_index(drop=True) for k in range(num_parties)]


def _tables_in(directory: Path, num_parties: int) -> list[Path]:
    files = sorted(f for f in directory.iterdir() if f.name.endswith(TABLE_SUFFIXES))
    if len(files) != num_parties:
        raise DataError(
            f"The directory {directory} holds {len(files)} tables, but the federation has "
            f"{num_parties} parties: one table for each. Set --federation-config "
            f'"num-supernodes={len(files)}".'
        )
    return files


def kind_of_data(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `simulated_parties` has to know of a run's method."""
    method = run_config.get("method")
    if method not in methods.METHODS:
        return {}
    strategy, client = methods.find(str(method))
    # With order 0 a method on series works on rows without time.
    order = run_config.get(f"{method}.order", getattr(strategy, "order", 0))
    temporal = client.temporal and order != 0
    series_column = str(run_config.get(f"{method}.series-column", "")) if temporal else ""
    return {
        "categorical": client.categorical,
        "temporal": temporal,
        "nonlinear": client.nonlinear,
        "series_column": series_column,
    }


def roles_of(run_config: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what `tabular_parties` has to know of a run's method; None if it is not for it."""
    method = run_config.get("method")
    if method not in methods.METHODS or not methods.find(str(method)).client.tabular:
        return None
    target = str(run_config.get(f"{method}.target", ""))
    return {"target": target, "row_id": str(run_config.get(f"{method}.row-id", "")) or ROW_ID}


def source_of(context: Context) -> Source:
    """Return a node's data: its partition in a simulation, its own file on a real node.

    Parameters
    ----------
    context : Context
        With ``partition-id`` and ``num-partitions`` in its node config (a simulation), or
        ``data-path`` and perhaps ``name``.

    Raises
    ------
    DataError
        If the node config says neither.
    """
    node = context.node_config
    if "partition-id" in node and "num-partitions" in node:
        index, num = int(node["partition-id"]), int(node["num-partitions"])
        config = DataConfig.from_run_config(context.run_config)
        roles = roles_of(context.run_config)
        if roles is not None:
            return Source(f"party {index}", lambda: tabular_parties(config, num, **roles)[0][index])
        kind = kind_of_data(context.run_config)
        return Source(f"party {index}", lambda: simulated_parties(config, num, **kind)[0][index])
    if "data-path" not in node:
        raise DataError(
            "This node's config does not say where its data is. Start its SuperNode with "
            "--node-config \"data-path='/absolute/path/to/table.csv'\"."
        )
    path = str(node["data-path"])
    # The file's name may say more about a party than it wants to: the name is its own choice.
    name = str(node.get("name", f"node {context.node_id}"))
    return Source(name, lambda: read_table_cached(path))
