"""The rows of a node: from its own file, or its part of a simulated federation."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.app.config import DataConfig, data_config, strategy_of
from flwr_causal.clients import Source
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.dictionary.party_dictionary import LocalMap
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.partition import hold_out, split, split_columns
from flwr_causal.data.read.example_tables import breast_cancer, digits
from flwr_causal.data.read.origin import table_name, tables_in
from flwr_causal.data.read.pieces import open_table, open_table_cached, whole
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading, as_read
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.roles import ROW_ID, target_in
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.party.tables import table_path
from flwr_causal.protocol.schema import party_name

if TYPE_CHECKING:
    from flwr.app import Context

    from flwr_causal.data.synthetic.linear import Noise
    from flwr_causal.strategies import CausalStrategy

EXAMPLES = {"": breast_cancer, "breast-cancer": breast_cancer, "digits": digits}
# Rows of a synthetic system where none are given.
ROWS = {
    DataKind.LINEAR: 256,
    DataKind.ANY: 256,
    DataKind.NON_GAUSSIAN: 1000,
    DataKind.SERIES: 256,
    DataKind.NONLINEAR: 2000,
    DataKind.CATEGORIES: 5000,
}


class Roles(NamedTuple):
    """The columns that a method's options name and that decide how a table is divided.

    Parameters
    ----------
    series_column : str
        The column that names the time series of each row; a series is not divided.
    target : str
        The class; empty: see `flwr_causal.data.roles.target_in`.
    row_id : str
        The column of ids, where tables have one.
    """

    series_column: str = ""
    target: str = ""
    row_id: str = ROW_ID

    @classmethod
    def of(cls, strategy: CausalStrategy) -> Roles:
        """Return the columns that a strategy's options name, the defaults where it names none."""
        given = {name: getattr(strategy.options, name, "") for name in cls._fields}
        return cls(**{name: value for name, value in given.items() if value})


NO_ROLES = Roles()


class Simulation(NamedTuple):
    """The data of a simulated federation.

    Parameters
    ----------
    tables : list of DataFrame
        One for each party.
    truth : CausalGraph or None
        The true graph, of a synthetic system.
    test : DataFrame or None
        Rows that are set aside for evaluation, for methods on mixed tables.
    """

    tables: list[pd.DataFrame]
    truth: CausalGraph | None = None
    test: pd.DataFrame | None = None


@lru_cache(maxsize=2)
def simulation(
    config: DataConfig,
    num_parties: int,
    kind: DataKind = DataKind.LINEAR,
    roles: Roles = NO_ROLES,
    *,
    by_cell: bool = False,
    reading: Reading = AS_THEY_ARE,
) -> Simulation:
    """Make or read the data of a simulated federation.

    Parameters
    ----------
    config : DataConfig
    num_parties : int
    kind : DataKind
        The kind of tables of the method. It decides which synthetic system or example is used, and
        how a table is divided among the parties.
    roles : Roles
    by_cell : bool, default False
        Whether the files of a directory are read as a run with epsilon needs it. Which rows of a
        single table a party is dealt depends on all of them in any case.
    reading : Reading, optional
        What the run says about columns that may be read in several ways. With a dictionary each
        table is read by its map, NAME.map.toml beside it, where there is one.

    Raises
    ------
    ConfigError, DataError
        If the data cannot be read, or cannot be divided among this number of parties.
    """
    if kind is DataKind.TABLE:
        tables = _mixed_tables(config, num_parties, roles, reading)
        parties, test = hold_out(tables, config.test_share, config.seed, roles.row_id)
        return Simulation(parties, test=test)
    if not config.data:
        if reading.dictionary is not None:
            raise ConfigError(
                "The option 'dictionary' is for tables, and the run makes up its data: give "
                "'data', or leave the dictionary out."
            )
        return _synthetic(config, num_parties, kind)
    path = _path_of(config)
    if path.is_dir():
        files = _tables_in(path, num_parties)
        opened = [open_table(f, by_cell=by_cell, reading=_by_map(f, reading)) for f in files]
        return Simulation([whole(table) for table in opened])
    if kind is DataKind.SERIES:
        series = read_table(path, _by_map(path, reading))
        return Simulation(deal_series(series, num_parties, roles.series_column))
    return Simulation(_dealt(read_table(path, _by_map(path, reading)), config, num_parties))


def _by_map(file: Path, reading: Reading) -> Reading:
    """Return how a table is read by the map to the dictionary that lies beside it."""
    by = reading.dictionary
    own_map = file.with_name(f"{table_name(file)}.map.toml")
    if by is None or not own_map.is_file():
        return reading
    return reading._replace(dictionary=replace(by, local=LocalMap.read(own_map, by.dictionary)))


def _mixed_tables(
    config: DataConfig, num_parties: int, roles: Roles, reading: Reading
) -> list[pd.DataFrame]:
    example = EXAMPLES.get(config.data)
    if example is None and _path_of(config).is_dir():
        files = _tables_in(_path_of(config), num_parties)
        return [read_table(file, _by_map(file, reading)) for file in files]
    if example is None:
        frame = read_table(_path_of(config), _by_map(_path_of(config), reading))
    else:
        frame = as_read(example(), reading)
    if config.setting == "horizontal":
        return _dealt(frame, config, num_parties)
    target = target_in(frame.columns, roles.target)
    return split_columns(
        frame, num_parties, config.setting, target=target, row_id=roles.row_id, seed=config.seed
    )


def _path_of(config: DataConfig) -> Path:
    path = Path(config.data)
    if not path.is_absolute():
        raise ConfigError(
            f"data='{config.data}' is a relative path; Flower runs apps in a directory of its own. "
            "Give the absolute path. (On real nodes it names one of a party's tables.)"
        )
    return path


def _dealt(frame: pd.DataFrame, config: DataConfig, num_parties: int) -> list[pd.DataFrame]:
    """Divide the rows of a table among the parties."""
    return split(
        frame,
        num_parties,
        config.partition,
        column=config.partition_column or None,
        concentration=config.partition_concentration,
        seed=config.seed,
    )


def _synthetic(config: DataConfig, num_parties: int, kind: DataKind) -> Simulation:
    size = (config.variables, config.rows or ROWS[kind], num_parties)
    graph, seed = config.graph, config.seed
    # Each system is imported where it is made: a node with a file needs none.
    if kind is DataKind.NONLINEAR:
        from flwr_causal.data.synthetic.nonlinear import federated_nonlinear

        return Simulation(*federated_nonlinear(*size, graph=graph, seed=seed))
    if kind is DataKind.SERIES:
        from flwr_causal.data.synthetic.series import federated_dynamic

        series, truth = federated_dynamic(*size, graph=graph, seed=seed)
        return Simulation([read_table(party) for party in series], truth)
    if kind is DataKind.CATEGORIES:
        from flwr_causal.data.synthetic.discrete import federated_discrete

        frames, network = federated_discrete(*size, graph=graph, seed=seed)
        return Simulation(frames, network.graph)
    from flwr_causal.data.synthetic.linear import federated_linear

    noise: Noise = "exponential" if kind is DataKind.NON_GAUSSIAN else "gaussian"
    frames, weights = federated_linear(*size, graph=graph, seed=seed, noise=noise)
    return Simulation(frames, CausalGraph.from_array(weights, list(frames[0].columns)))


def deal_series(frame: pd.DataFrame, num_parties: int, series_column: str) -> list[pd.DataFrame]:
    """Divide a table of time series among the parties: whole series, or parts of the only one.

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
    files = tables_in(directory)
    if len(files) != num_parties:
        raise DataError(
            f"The directory {directory} holds {len(files)} tables, but the federation has "
            f"{num_parties} parties: one table for each. Set --federation-config "
            f'"num-supernodes={len(files)}".'
        )
    return files


def source_of(context: Context) -> Source:
    """Return a node's data: its partition in a simulation, its own file on a real node.

    Parameters
    ----------
    context : Context
        With ``partition-id`` and ``num-partitions`` in its node config (a simulation), or
        ``data-path`` or ``tables`` and perhaps ``name``. Of several tables the run names one by its
        ``data``.

    Raises
    ------
    DataError
        If the node config has neither, or no such table.
    """
    node = NodeConfig.of(context.node_config)
    index, num = node.partition_id, node.num_partitions
    if index is not None and num is not None:
        config, strategy = data_config(context.run_config), strategy_of(context.run_config)
        made = partial(simulation, config, num, strategy.data, Roles.of(strategy))
        return Source.opening(party_name(context), lambda **how: made(**how).tables[index])
    name = party_name(context)
    wanted = data_config(context.run_config).data
    path = table_path(node, wanted)
    # Not the file's name, which may disclose more than the party wants.
    return Source.opening(name, partial(open_table_cached, path), wanted)
