"""A scenario: one experiment, read from a TOML file.

A scenario has *points* (what varies: sizes, numbers of parties, data sets), *lines* (methods,
baselines and peers, each with its settings) and runs. A *cell* is one line on one run's rows of one
point; `runner` computes cells.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from flwr_causal.core.words import nearest
from flwr_causal.data.synthetic.nonlinear import PACKAGE_ROWS
from flwr_causal.errors import ConfigError

Point = Mapping[str, Any]
Kind = Literal["method", "baseline", "peer"]

KINDS: tuple[Kind, ...] = ("method", "baseline", "peer")
#: Coordinates and arguments that ``--scale`` multiplies.
ROW_COUNTS = frozenset({"num_rows", "rows_per_variable", "num_test"})
#: Rows that every party keeps whatever the scale, if the scenario says nothing else.
LEAST_ROWS_OF_A_PARTY = 4
#: How rows are dealt to parties, and what is missing of them: these are no coordinates of the rows
#: themselves.
DEALING = ("num_parties", "how", "missing", "share")
#: The scenarios of the papers, and of harder worlds.
SCENARIOS = Path(__file__).parent / "scenarios"
_KEYS: dict[str, type | tuple[type, ...]] = {
    "title": str,
    "paper": str,
    "table": str,
    "notes": str,
    "seed": int,
    "runs": int,
    "metrics": list,
    "data": dict,
    "split": dict,
    "grid": (dict, list),
    "lines": dict,
    "figures": list,
    "not-run": dict,
    "plot": dict,
    "least-rows": int,
}
_NEEDED = ("title", "metrics", "data", "lines")


@dataclass(frozen=True)
class Line:
    """A method, baseline or peer with its settings: one column of the tables.

    Parameters
    ----------
    label : str
        Its name in the tables.
    kind : {"method", "baseline", "peer"}
        "method": a federated method by its id, also of another package. "baseline": see
        `baselines.BASELINES`. "peer": see `peers.PEERS`.
    name : str
    options : mapping
    needs : tuple of str
        Python modules that must be installed.
    only : mapping
        Coordinates with the values at which the line is run; empty: everywhere.
    settings : tuple of mapping
        Options of some points: each mapping has the coordinates of its points as ``at``.
    """

    label: str
    kind: Kind
    name: str
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    only: Mapping[str, Sequence[Any]] = None  # type: ignore[assignment]
    settings: tuple[Mapping[str, Any], ...] = ()

    def runs_at(self, point: Point) -> bool:
        """Return whether the line is run at a point."""
        return all(point.get(key) in values for key, values in (self.only or {}).items())

    def options_at(self, point: Point) -> dict[str, Any]:
        """Return the options at a point."""
        found = dict(self.options)
        for given in self.settings:
            if all(point.get(key) == value for key, value in given.get("at", {}).items()):
                found |= _options(given, ("at",))
        return found


@dataclass(frozen=True)
class Figure:
    """Figures of the paper itself.

    Parameters
    ----------
    line : str
        Label; a line that the scenario does not run has a column of its own.
    at : mapping
        Coordinates; a figure belongs to every point that has them.
    values : mapping of str to float
        By metric.
    """

    line: str
    at: Point
    values: Mapping[str, float]


@dataclass(frozen=True)
class Scenario:
    """One experiment.

    Parameters
    ----------
    name : str
    title, paper, table, notes : str
        What is measured; who measured it first, and in which table or figure; what to know.
    seed : int
        All random choices follow from it and from a cell's coordinates.
    runs : int
        Default number of runs.
    metrics : tuple of str
        Names in `scores.OWN`, or of metrics of other packages.
    data : mapping
        ``name`` in `worlds.WORLDS`, and its arguments.
    split : mapping or None
        How the rows of the data are dealt to parties; None: the data have parties of their own.
    grid : tuple of mapping
        The points.
    lines : tuple of Line
    figures : tuple of Figure
    not_run : mapping
        Methods of the paper that are not run, with the reason.
    plot : mapping
        ``x``: the coordinate on the horizontal axis; ``rows``: the one with a row of panels each.
    least : int or None
        Rows that every party keeps whatever the scale.
    scale : float
        1, or what `scaled` was given.
    folder : Path or None
        Where relative paths in ``data`` start.
    """

    name: str
    title: str
    paper: str
    table: str
    notes: str
    seed: int
    runs: int
    metrics: tuple[str, ...]
    data: Mapping[str, Any]
    split: Mapping[str, Any] | None
    grid: tuple[Point, ...]
    lines: tuple[Line, ...]
    figures: tuple[Figure, ...]
    not_run: Mapping[str, str]
    plot: Mapping[str, str]
    least: int | None = None
    scale: float = 1.0
    folder: Path | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The coordinates, in the order in which points first have them."""
        return tuple(dict.fromkeys(key for point in self.grid for key in point))

    @property
    def least_rows(self) -> int:
        """Rows that every party keeps whatever the scale: uneven sizes are dealt in packages."""
        if self.least is not None:
            return self.least
        return PACKAGE_ROWS if self.data.get("sizes") == "uneven" else LEAST_ROWS_OF_A_PARTY

    def data_at(self, point: Point) -> dict[str, Any]:
        """Return the arguments of the data at a point, scaled; ``name`` is not among them."""
        given = {key: value for key, value in self.data.items() if key != "name"}
        given |= {k: v for k, v in point.items() if self.split is None or k not in DEALING}
        if self.scale == 1:
            return given
        rows = self.least_rows * int(self.parties_at(point) or 1)
        least = {"num_rows": rows, "rows_per_variable": rows / given.get("num_variables", 1)}
        for key in ROW_COUNTS & given.keys():
            scaled = min(given[key], max(given[key] * self.scale, least.get(key, 0)))
            given[key] = round(scaled) if key == "num_rows" else scaled
        return given

    def parties_at(self, point: Point) -> int | None:
        """Return the number of parties at a point, where the scenario says one."""
        for given in (point, self.split or {}, self.data):
            if "num_parties" in given:
                return int(given["num_parties"])
        return None

    def seed_of(self, point: Point, run: int) -> int:
        """Return the seed of the rows at a point: it depends on coordinates, not on positions.

        What says how rows are dealt is left out: the same rows are dealt to few and to many.
        """
        rows = {key: value for key, value in point.items() if key not in DEALING}
        return int(digest([self.seed, rows, run])[:8], 16) % 2**31

    def scaled(self, scale: float) -> Scenario:
        """Return the scenario with fewer rows, and the first of the values of each coordinate.

        Raises
        ------
        ConfigError
            If the scale is not above 0 and at most 1.
        """
        if not 0 < scale <= 1:
            raise ConfigError(f"--scale is {scale}: give a number above 0, at most 1")
        if scale == 1:
            return self
        kept: dict[str, list[Any]] = {}
        for axis in self.axes:
            values = list(dict.fromkeys(point[axis] for point in self.grid if axis in point))
            kept[axis] = values[: math.ceil(scale * len(values))]
        grid = tuple(p for p in self.grid if all(v in kept[k] for k, v in p.items()))
        return replace(self, scale=scale, grid=grid)

    def with_lines(self, names: Sequence[str]) -> Scenario:
        """Return the scenario with some of its lines.

        A name is a label, a pattern of labels such as ``FedGES*``, or the name of a method.

        Raises
        ------
        ConfigError
            If no line has a name.
        """

        def fits(line: Line, name: str) -> bool:
            return name in (line.label, line.name) or fnmatch.fnmatchcase(line.label, name)

        for name in names:
            if not any(fits(line, name) for line in self.lines):
                labels = "; ".join(line.label for line in self.lines)
                raise ConfigError(
                    f"{self.name} has no line '{name}'. Its lines: {labels}. Between lines write a "
                    "comma without a space."
                )
        kept = (line for line in self.lines if any(fits(line, name) for name in names))
        return replace(self, lines=tuple(kept))

    def with_points(self, at: Mapping[str, Sequence[str]]) -> Scenario:
        """Return the scenario with the points whose coordinates have some of the given values.

        Raises
        ------
        ConfigError
            If there is no such coordinate, or it never has one of the values.
        """
        for axis, values in at.items():
            if axis not in self.axes:
                raise ConfigError(
                    f"{self.name} has no coordinate '{axis}'. Its coordinates: "
                    f"{', '.join(self.axes) or 'none'}."
                )
            known = list(dict.fromkeys(str(point.get(axis, "")) for point in self.grid))
            if absent := [value for value in values if value not in known]:
                raise ConfigError(
                    f"{self.name}, '{axis}': there is no '{absent[0]}'. Values: {', '.join(known)}."
                )
        kept = (
            point
            for point in self.grid
            if all(str(point.get(axis, "")) in values for axis, values in at.items())
        )
        return replace(self, grid=tuple(kept))

    def figure(self, line: str, point: Point, metric: str) -> float | None:
        """Return the paper's own figure for a cell of the tables, or None."""
        for one in self.figures:
            at_point = all(point.get(key) == value for key, value in one.at.items())
            if one.line == line and metric in one.values and at_point:
                return one.values[metric]
        return None


def digest(value: Any) -> str:
    """Return the digest of a value that JSON can hold, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def names() -> list[str]:
    """Return the names of the scenarios."""
    return sorted(file.stem for file in SCENARIOS.glob("*.toml"))


def find(name: str) -> Scenario:
    """Return a scenario by name, or from the TOML file at a path.

    Raises
    ------
    ConfigError
        If there is no such scenario, or its file is not right.
    """
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read the scenario '{name}': {error.strerror}") from None
        return read(text, path.stem, path.absolute().parent)
    return read(text_of(name), name)


def text_of(name: str) -> str:
    """Return the TOML text of a scenario by name.

    Raises
    ------
    ConfigError
        If there is no such scenario.
    """
    if name not in names():
        raise ConfigError(f"There is no scenario '{name}'.{_nearest(name, names())} See --list.")
    return (SCENARIOS / f"{name}.toml").read_text(encoding="utf-8")


def read(text: str, name: str, folder: Path | None = None) -> Scenario:
    """Return the scenario that a TOML text describes.

    Raises
    ------
    ConfigError
        If the text is no TOML, or a key is missing, unknown or of another type. The message names
        the key.
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"scenario '{name}' is no TOML: {error}") from None
    for key, value in given.items():
        if key not in _KEYS:
            raise ConfigError(
                f"scenario '{name}' has an unknown key '{key}'.{_nearest(key, _KEYS)}"
            )
        if not isinstance(value, _KEYS[key]):
            raise ConfigError(f"scenario '{name}': '{key}' is {value!r}, of another type.")
    for key in _NEEDED:
        if key not in given:
            raise ConfigError(f"scenario '{name}' lacks the key '{key}': add it.")
    if "name" not in given["data"]:
        raise ConfigError(f"scenario '{name}': [data] lacks 'name': add the name of the data.")
    grid = given.get("grid", {})
    return Scenario(
        name=name,
        title=given["title"],
        paper=given.get("paper", ""),
        table=given.get("table", ""),
        notes=given.get("notes", ""),
        seed=given.get("seed", 0),
        runs=given.get("runs", 10),
        metrics=tuple(given["metrics"]),
        data=given["data"],
        split=given.get("split"),
        grid=tuple(
            p for table in ([grid] if isinstance(grid, dict) else grid) for p in _points(table)
        ),
        lines=tuple(_line(name, label, table) for label, table in given["lines"].items()),
        figures=tuple(_figure(name, table) for table in given.get("figures", [])),
        not_run=given.get("not-run", {}),
        plot=given.get("plot", {}),
        least=given.get("least-rows"),
        folder=folder,
    )


def _points(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all combinations of a table's values; a value that is no list is fixed."""
    values = [value if isinstance(value, list) else [value] for value in table.values()]
    return [dict(zip(table, point, strict=True)) for point in itertools.product(*values)]


def _line(scenario: str, label: str, table: Any) -> Line:
    where = f"scenario '{scenario}', [lines.{label}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is {table!r}: write a table such as {{ method = 'moments' }}.")
    kinds: list[Kind] = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: give exactly one of {', '.join(KINDS)}, with its name.")
    options = _options(table, (kinds[0], "needs", "only", "settings"))
    needs, settings = tuple(table.get("needs", ())), tuple(table.get("settings", ()))
    return Line(label, kinds[0], table[kinds[0]], options, needs, table.get("only", {}), settings)


def _options(table: Mapping[str, Any], others: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a table that are options, as Python has them."""
    return {key.replace("-", "_"): value for key, value in table.items() if key not in others}


def _figure(scenario: str, table: Mapping[str, Any]) -> Figure:
    if "line" not in table:
        raise ConfigError(f"scenario '{scenario}': an entry of [[figures]] lacks 'line': add it.")
    values = {key: value for key, value in table.items() if key not in ("line", "at")}
    return Figure(table["line"], table.get("at", {}), values)


def _nearest(name: str, known: Any) -> str:
    near = nearest(name, known)
    return f" Did you mean '{near}'?" if near else f" Known: {', '.join(known)}."
