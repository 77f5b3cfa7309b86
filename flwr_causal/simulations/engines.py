"""``simulate``: a whole federated run from Python, on tables in memory or in files."""

from __future__ import annotations

import copy
import logging
import pickle
import tempfile
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from flwr.serverapp import ServerApp
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flwr_causal.app import methods
from flwr_causal.app.job import execute
from flwr_causal.clients import Source, client_app
from flwr_causal.compat import quiet, run_on_ray
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.strategies import CausalStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from numpy.typing import ArrayLike

    from flwr_causal.clients import CausalClient
    from flwr_causal.reports.run import Run

# One CPU for each simulated party, and no dashboard.
RAY_BACKEND = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


def simulate(
    method: str | CausalStrategy[Any],
    parties: Sequence[Any],
    *,
    engine: Literal["local", "ray"] = "local",
    seed: int = 0,
    truth: CausalGraph | ArrayLike | None = None,
    client: type[CausalClient] | None = None,
    wrap_grid: Callable[[Grid], Any] | None = None,
    progress: bool = False,
    **options: Any,
) -> Run:
    """Run a method over parties on this machine.

    The same ServerApp and ClientApp run as on real nodes; only the Grid differs.

    Parameters
    ----------
    method : str or CausalStrategy
        A method id, or a ready strategy (then without ``options``).
    parties : sequence
        One entry for each party: an array of shape (n_k, d), a pandas DataFrame, or the path of a
        CSV, Parquet or NPZ file. Arrays get the names ``x0, x1, ...``.
    engine : {"local", "ray"}, default "local"
        One node after the other in this process, or Flower's Ray engine.
    seed : int, default 0
        Fixes every random choice; the same on both engines. A ready strategy has its own.
    truth : CausalGraph or array of shape (d, d), optional
        Then ``run.metrics`` holds SHD, TPR, FDR and so on, for methods on categories also SMHD and
        the BDeu score on the pooled rows. An array's rows and columns are the columns of the first
        party.
    client : type, optional
        The client of a strategy that is not in the table of methods.
    wrap_grid : callable, optional
        Is given the Grid and returns what takes its place, to log, count or disturb messages. Each
        exchange, the schema's too, is one call of ``send_and_receive(messages, *, timeout=None)``;
        a second attempt is another call.
    progress : bool, default False
        Show a progress bar.
    **options
        The method's options; see its strategy.

    Returns
    -------
    Run

    Raises
    ------
    ConfigError
        For an unknown method or option, or a wrong value; before anything runs.
    DataError
        If a party's data cannot be used.
    FederationError
        If the run failed.
    """
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine is {engine!r}; it must be 'local' or 'ray'.")
    if len(parties) == 0:
        raise DataError("There are no parties: 'parties' is empty. Give at least one table.")
    strategy = _strategy(method, seed, len(parties), options)
    if truth is not None and not isinstance(truth, CausalGraph):
        truth = _named_truth(truth, parties[0], strategy.role_columns)
    client_type = client or methods.find(strategy.method).client

    def run_on(grid: Grid, settle: float) -> Run:
        grid = grid if wrap_grid is None else wrap_grid(grid)
        with _progress_bar(progress, strategy.max_rounds) as on_round:
            return execute(strategy, grid, settle=settle, on_round=on_round)

    with quiet(logging.WARNING):
        if engine == "local":
            grid = LocalGrid(client_app(client_type, _Tables(parties)), len(parties))
            try:
                run = run_on(grid, 0.0)
            except FederationError as error:
                # The cause is what a party's client has raised; its traceback says where.
                raise error from (grid.raised[-1] if grid.raised else error.__cause__)
        else:
            with tempfile.TemporaryDirectory(prefix="flwr-causal-") as directory:
                app = client_app(client_type, _Tables(parties, directory))
                run = _run_on_ray(run_on, app, len(parties))
    if truth is not None and run.graph is not None:
        run.metrics = compare(_without_dropped(truth, run.graph.names), run.graph)
        # No federation can know this: the score of the graph on all rows in one place.
        rows = (read_table(party) for party in parties)
        run.metrics |= strategy.pooled_metrics(rows, run.graph)
    return run


def _strategy(
    method: str | CausalStrategy[Any], seed: int, num_parties: int, options: dict[str, Any]
) -> CausalStrategy[Any]:
    if isinstance(method, CausalStrategy):
        if options:
            raise ConfigError(
                f"The strategy is ready; give {', '.join(sorted(options))} to "
                f"{type(method).__name__}(...) instead."
            )
        strategy = copy.copy(method)
        # All parties are here, however few: there is nothing to wait for.
        strategy.min_available_nodes = num_parties
        return strategy
    if not isinstance(method, str):
        raise ConfigError(
            f"method is {method!r}; it must be a method id ({', '.join(sorted(methods.METHODS))}) "
            "or a CausalStrategy."
        )
    options = {"min_available_nodes": num_parties, **options}
    return methods.build(method, {**options, "seed": seed})


def _named_truth(truth: ArrayLike, first_party: Any, roles: Sequence[str]) -> CausalGraph:
    """Give the rows and columns of a true graph the names of the first party's columns."""
    columns = read_table(first_party).columns
    matrix, names = np.asarray(truth), tuple(name for name in columns if name not in roles)
    if matrix.shape != (len(names), len(names)):
        raise DataError(
            f"truth has the shape {matrix.shape}, but the first party has {len(names)} columns: "
            f"give an array of shape {(len(names), len(names))}, or a CausalGraph with names."
        )
    return CausalGraph.from_array(matrix, names)


def _without_dropped(truth: CausalGraph, names: tuple[str, ...]) -> CausalGraph:
    """Return the truth over the agreed columns, where the options let others be dropped."""
    if not set(names) < set(truth.names):
        return truth
    order = [truth.names.index(name) for name in names]
    both = np.ix_(order, order)
    lagged = None if truth.lagged is None else truth.lagged[:, both[0], both[1]]
    return CausalGraph.from_array(truth.weights[both], names, kind=truth.kind, lagged=lagged)


def _run_on_ray(run_on: Callable[[Grid, float], Run], app: ClientApp, num_parties: int) -> Run:
    """Run on Flower's Ray engine; errors are raised as they are, where Flower would wrap them."""
    results: list[Run] = []
    errors: list[CausalError] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            results.append(run_on(grid, 0.5))
        except CausalError as error:
            errors.append(error)

    run_on_ray(server, app, num_parties, RAY_BACKEND)
    if errors:
        raise errors[0]
    run = results[0]
    if hasattr(run.model, "out_of_reach"):
        # A model that asks the parties: Ray's nodes have ended, and their Grid would wait.
        run.model = run.model.out_of_reach()
    return run


class _Tables:
    """Finds the table of a simulated party; reads a file when its party first needs it.

    Parameters
    ----------
    parties : sequence
        Tables in memory, or paths of files.
    directory : str, optional
        Tables in memory are written there once and read by the processes that Ray starts: Ray would
        otherwise ship all of them with each message.
    """

    def __init__(self, parties: Sequence[Any], directory: str | None = None) -> None:
        self._reads = [self._read(index, party, directory) for index, party in enumerate(parties)]

    @staticmethod
    def _read(index: int, party: Any, directory: str | None) -> Callable[[], pd.DataFrame]:
        if directory is None:
            return cache(partial(read_table, party))
        if isinstance(party, str | Path):
            return partial(read_table, Path(party).absolute())
        path = Path(directory, f"party-{index}.pickle")
        path.write_bytes(pickle.dumps(read_table(party)))
        return partial(_unpickled, path)

    def __call__(self, context: Context) -> Source:
        index = int(context.node_config["partition-id"])
        return Source(f"party {index}", self._reads[index])


@lru_cache(maxsize=64)
def _unpickled(path: Path) -> pd.DataFrame:
    frame: pd.DataFrame = pickle.loads(path.read_bytes())
    return frame


@contextmanager
def _progress_bar(
    shown: bool, rounds: int | None
) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yield what to call after each round; None where no bar is wanted."""
    if not shown:
        yield None
        return
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("rounds", total=rounds)
        yield lambda record: bar.update(task, advance=1)
