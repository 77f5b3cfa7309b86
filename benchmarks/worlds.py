"""The data of scenarios by name: simulated systems with a known truth, and data sets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    differ,
    files,
    hard,
    hidden,
    joint,
    real_tables,
    simulators,
)
from benchmarks.declared import with_declared
from benchmarks.world import World
from flwr_causal.data.partition import split, split_columns
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import ConfigError
from flwr_causal.reports.graph_files import read_edges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from benchmarks.scenario import Point, Scenario


def tables(seed: int, paths: list[str], truth: str = "", num_rows: int | None = None) -> World:
    """Tables of the user's own; a truth is a file of edges (columns source and target)."""
    found = [read_table(Path(path)) for path in paths]
    if num_rows is not None:
        found = [files.draw_rows(table, min(num_rows, len(table)), seed) for table in found]
    graph = read_edges(Path(truth), tuple(found[0].columns)) if truth else None
    return World(found, graph)


#: Maker of the data by name. All take ``seed``; what they take beside are a scenario's coordinates
#: and the keys of its table ``[data]``. Those that need files also take ``data_dir``.
WORLDS: Mapping[str, Callable[..., World]] = with_declared(
    {
        "linear": simulators.linear,
        "nonlinear": simulators.nonlinear,
        "series": simulators.series,
        "differing-series": simulators.differing_series,
        "joint": joint.joint,
        "tables": tables,
        **hard.HARD,
        **differ.DIFFER,
        **hidden.HIDDEN,
        **real_tables.REAL_TABLES,
        **files.DATA_SETS,
    },
    "simulator",
)


@lru_cache(maxsize=2)
def _made(call: _Call) -> World:
    return call.make()


@dataclass(frozen=True)
class _Call:
    """The making of one world, by the name under which a process keeps it."""

    key: str
    make: Callable[[], World] = field(compare=False)


def world_of(scenario: Scenario, point: Point, run: int, data_dir: Path | None) -> World:
    """Return the data of one run at one point; a process keeps the last ones.

    Raises
    ------
    ConfigError
        If the data do not exist, or do not take a coordinate or a key.
    files.MissingDataError
        If files are missing.
    """
    seed = scenario.seed_of(point, run)
    key = f"{scenario.name} {scenario.data} {scenario.split} {point} {seed} {scenario.scale}"
    return _made(_Call(key, lambda: _make(scenario, point, seed, data_dir)))


def _make(scenario: Scenario, point: Point, seed: int, data_dir: Path | None) -> World:
    name, given = scenario.data["name"], scenario.data_at(point)
    if name not in WORLDS:
        raise ConfigError(
            f"scenario '{scenario.name}': there are no data '{name}'. Known: {', '.join(WORLDS)}."
        )
    taken = inspect.signature(WORLDS[name]).parameters
    unknown = [key for key in given if key not in taken]
    if unknown:
        raise ConfigError(
            f"scenario '{scenario.name}': the data '{name}' do not take {', '.join(unknown)}; they "
            f"take {', '.join(key for key in taken if key not in ('seed', 'data_dir', 'scale'))}."
        )
    if scenario.folder is not None:
        given |= {
            k: _absolute(scenario.folder, given[k]) for k in ("paths", "truth") if given.get(k)
        }
    if "scale" in taken:
        given["scale"] = scenario.scale
    if "data_dir" in taken:
        given["data_dir"] = data_dir
    world = WORLDS[name](seed, **given)
    if scenario.split is None or len(world.parties) != 1:
        return world
    return replace(world, parties=_dealt(world, scenario, point, seed))


def _absolute(folder: Path, given: str | list[str]) -> str | list[str]:
    if isinstance(given, list):
        return [str(folder / one) for one in given]
    return str(folder / given)


def _dealt(world: World, scenario: Scenario, point: Point, seed: int) -> list[pd.DataFrame]:
    """Deal the rows, or the columns, of the only table to parties."""
    options = {**(scenario.split or {}), **{k: point[k] for k in ("how",) if k in point}}
    how, column = options.get("how", "even"), options.get("column")
    num_parties = scenario.parties_at(point)
    if num_parties is None:
        raise ConfigError(f"scenario '{scenario.name}': [split] lacks 'num_parties': add it.")
    (frame,) = world.parties
    if how in ("vertical", "hybrid"):
        target = str(world.options.get("target", ""))
        return split_columns(frame, num_parties, how, target=target, seed=seed)
    if column is None and how in ("sorted", "dirichlet"):
        column = world.options.get("target")
    return split(
        frame,
        num_parties,
        how,
        column=column,
        seed=seed,
        concentration=options.get("concentration"),
    )
