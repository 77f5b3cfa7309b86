"""``simulate``: a federated run on this machine, on tables in memory or in files."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from flwr.serverapp import ServerApp

from flwr_causal.app import methods
from flwr_causal.app.job import execute
from flwr_causal.clients import client_app
from flwr_causal.clients.bridge import CLIENT
from flwr_causal.compat import FLOWER_LOGGER, quiet, run_on_ray
from flwr_causal.core.arguments import FLAG, Form, check_argument, instance, one_of, or_none
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.options import to_plain
from flwr_causal.data.check.agreement import SETTINGS, UNMENDED, with_settings
from flwr_causal.data.read.pieces import open_table
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
from flwr_causal.party.dictionary import reading_at
from flwr_causal.party.policy import ColumnRules
from flwr_causal.protocol.release import RELEASES
from flwr_causal.reports.run import Run
from flwr_causal.runtime.checkpoint import EXCHANGES
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations.progress import progress_bar
from flwr_causal.simulations.tables import PartyTables
from flwr_causal.strategies import CausalStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from numpy.typing import ArrayLike

    from flwr_causal.clients import CausalClient
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.read.reading import Reading


# One CPU for each simulated party, and no dashboard.
RAY_BACKEND = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
_ray = Lock()
#: How often options that mend the tables are tried, each time with further ones.
MOST_TRIALS = 4
_ARGUMENTS = {
    "engine": one_of(Literal["local", "ray"]),
    "client": or_none(CLIENT),
    "wrap_grid": or_none(Form("a function that takes a Grid", callable)),
    "output_dir": or_none(instance((str, Path), "a path")),
    "resume": FLAG,
    "progress": or_none(FLAG),
    "maps": or_none(instance((list, tuple), "a list with a path or None for each party")),
}


def simulate(
    method: str | CausalStrategy,
    parties: Iterable[Any],
    *,
    engine: Literal["local", "ray"] = "local",
    seed: int = 0,
    truth: CausalGraph | ArrayLike | None = None,
    client: type[CausalClient] | None = None,
    wrap_grid: Callable[[Grid], Any] | None = None,
    output_dir: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    maps: Sequence[str | Path | None] | None = None,
    **options: Any,
) -> Run:
    """Run a method over simulated parties on this machine.

    ServerApp and ClientApp are the same as on real nodes; only the Grid differs. Several threads
    may run simulations at the same time, with the same results.

    Parameters
    ----------
    method : str or CausalStrategy
        A method id, or a strategy with its options (then ``options`` must be empty).
    parties : iterable
        One entry for each party: an array of shape (n_k, d), a pandas DataFrame, or the path of a
        CSV, Parquet or NPZ file. Arrays get the names ``x0, x1, ...``. A single table is refused:
        give it in a list.
    engine : {"local", "ray"}, default "local"
        "local" runs one node after the other in this process, "ray" uses Flower's Ray engine.
    seed : int, default 0
        Seed of all random choices, with the same results on both engines. A strategy given as
        ``method`` uses its own seed.
    truth : CausalGraph or array of shape (d, d), optional
        The true graph. If given, ``run.metrics`` holds SHD, TPR, FDR and other metrics, for methods
        on categories also SMHD and the BDeu score on the pooled rows. Rows and columns of an array
        are in the order of the first party's columns.
    client : type, optional
        The client class of a strategy that is not a registered method.
    wrap_grid : callable, optional
        Function that takes the Grid and returns a replacement, for example a ``Relay`` that logs,
        counts or disturbs messages. Each exchange, including the schema exchange, is one call of
        ``send_and_receive(messages, *, timeout=None)``; a second attempt is another call.
    output_dir : str or Path, optional
        Directory for the results, written while the run goes on; see ``Run.load``. It holds
        ``run.influence`` only where a party stands out: to write it in any case, call
        ``run.save(output_dir)``.
    resume : bool, default False
        Whether to continue the interrupted run that ``output_dir`` holds; the result equals that of
        a run without interruption. A completed run is returned; an empty directory starts a new
        run.
    progress : bool, optional
        Whether to show the exchanges and what is computed now, on the standard error stream.
        Default: in a terminal, and in a notebook that has ipywidgets.
    maps : sequence of str, Path or None, optional
        With the option ``dictionary``: of each party the file that maps its names, codes and units
        to the dictionary, None for a party without.
    **options
        The method's options; see its strategy.

    Returns
    -------
    Run
        The result.

    Raises
    ------
    ConfigError
        For an unknown method or option, or a wrong value; if ``output_dir`` holds files of the
        results' names that are not of an earlier run; on Ray, if another run on it is under way.
        Before anything runs.
    DataError
        If a party's data cannot be used.
    FederationError
        If the run failed.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> run = simulate("moments", tables, truth=weights)
    >>> run.graph.names, run.rounds, run.metrics["shd"]
    (('x0', 'x1', 'x2'), 1, 0)
    """
    given: dict[str, object] = {
        "engine": engine,
        "client": client,
        "wrap_grid": wrap_grid,
        "output_dir": output_dir,
    }
    given |= {"resume": resume, "progress": progress, "maps": maps}
    for name, form in _ARGUMENTS.items():
        check_argument("simulate", name, given[name], form)
    parties = _listed(parties)
    strategy = _strategy(method, seed, len(parties), options)
    own_maps = _maps_of(maps, parties)
    if output_dir is not None or resume:
        directory = strategy.options.output_dir
        directory = directory if output_dir is None else str(Path(output_dir).absolute())
        strategy = strategy.with_options(
            output_dir=directory, resume=resume or strategy.options.resume
        )
    if truth is not None:
        truth = _named_truth(truth, parties[0], strategy, own_maps[0])
    client_type = client or _registered(strategy).client

    def run_on(grid: Grid, settle: float) -> Run:
        grid = grid if wrap_grid is None else wrap_grid(grid)
        if not hasattr(grid, "send_and_receive"):
            raise ConfigError(f"wrap_grid returned {grid!r}; it must return a Grid.")
        with progress_bar(progress, strategy._exchanges_at_most) as bar:
            if bar is None:
                return execute(strategy, grid, settle=settle)
            return execute(strategy, bar.watch(grid), settle=settle, on_round=bar.after_exchange)

    with _naming_files(parties) as sources:
        try:
            with quiet(logging.WARNING):
                run = _run_on_engine(engine, run_on, client_type, parties, own_maps, strategy)
        except CausalError as error:
            _try_settings(error, strategy, client_type, parties, own_maps)
            if isinstance(error.outcome, Run):
                _name_files(error.outcome, sources)
                if strategy.options.output_dir:
                    error.outcome.save(strategy.options.output_dir)
            raise
    _name_files(run, sources)
    if truth is not None and run.graph is not None:
        run.truth = _truth_of(truth, run.graph)
        run.metrics = compare(run.truth, run.graph)
        # Metrics on the pooled rows, which only a simulation has.
        rows = (
            read_table(party, _reading(strategy, own))
            for party, own in zip(parties, own_maps, strict=True)
        )
        run.metrics |= strategy._pooled_metrics(rows, run.graph)
    if strategy.options.output_dir:
        run.save(strategy.options.output_dir, influence=False)
    vars(run)["_again"] = partial(
        _without,
        strategy,
        parties,
        engine=engine,
        truth=truth,
        client=client,
        wrap_grid=wrap_grid,
        progress=progress,
        maps=maps,
    )
    return run


def _without(strategy: CausalStrategy, parties: Sequence[Any], left: str, **given: Any) -> Run:
    """Repeat a simulation with the parties that are left, named as for ``expected_parties``."""
    own = strategy.with_options(expected_parties=left, output_dir=None, resume=False)
    return simulate(own, parties, **given)


def sources_of(parties: Sequence[Any]) -> dict[str, str]:
    """Return the files of simulated parties that read files, by party.

    A file is called by its name alone, where these differ.
    """
    files = {k: Path(one) for k, one in enumerate(parties) if isinstance(one, str | Path)}
    differ = len({file.name for file in files.values()}) == len(files)
    return {
        f"party {k}": file.name if differ and file.name else str(file) for k, file in files.items()
    }


def _with_files(text: str, sources: Mapping[str, str]) -> str:
    """Return a text that names the parties' files: 'north.csv' in quotes, else with the party."""

    def named(found: re.Match[str]) -> str:
        party, file = found[0], sources.get(found[0])
        if file is None:
            return party
        return file if found["quoted"] else f"{party} ({file})"

    # With a bracket behind it, it has its file already.
    return re.sub(r"(?P<quoted>(?<=')party \d+(?='))|\bparty \d+\b(?! \()", named, text)


def _name_files(run: Run, sources: Mapping[str, str]) -> None:
    """Set the files of a run's parties, and name them in its messages."""
    run.sources = dict(sources)
    run.error = _with_files(run.error, sources)
    run.warnings = [_with_files(text, sources) for text in run.warnings]
    run.failures = [{**one, "reason": _with_files(one["reason"], sources)} for one in run.failures]


@contextmanager
def _naming_files(parties: Sequence[Any]) -> Iterator[dict[str, str]]:
    """Name the files of parties in this thread's log and in errors; yield the files by party."""
    sources, thread = sources_of(parties), get_ident()

    def named(record: logging.LogRecord) -> bool:
        if record.thread == thread:
            record.msg, record.args = _with_files(record.getMessage(), sources), ()
        return True

    if sources:
        FLOWER_LOGGER.addFilter(named)
    try:
        yield sources
    except CausalError as error:
        error.args = (_with_files(str(error), sources),)
        raise
    finally:
        FLOWER_LOGGER.removeFilter(named)


def _maps_of(maps: Sequence[str | Path | None] | None, parties: Sequence[Any]) -> list[Path | None]:
    """Return the parties' maps to the dictionary; a ConfigError if there is not one for each."""
    own = [None] * len(parties) if maps is None else list(maps)
    if len(own) != len(parties):
        raise ConfigError(
            f"maps has {len(own)} entries for {len(parties)} parties: give one for each, None for "
            "a party without"
        )
    return [None if one is None else Path(one).absolute() for one in own]


def agreement_of(
    method: str,
    parties: Iterable[Any],
    maps: Sequence[str | Path | None] | None = None,
    **options: Any,
) -> Agreement:
    """Run the schema exchange alone: what a method says of the parties' tables before training.

    Parameters
    ----------
    method : str
        A method id.
    parties, maps, options
        As of :func:`simulate`.

    Returns
    -------
    Agreement
        The columns that all parties would train on, their rows, and warnings.

    Raises
    ------
    ConfigError, DataError
        Those that :func:`simulate` would raise before it trains.
    """
    parties = _listed(parties)
    strategy = _strategy(method, 0, len(parties), options)
    own_maps, client = _maps_of(maps, parties), methods.find(method).client
    with _naming_files(parties) as sources:
        try:
            agreement = _agreed(strategy, client, parties, own_maps)
        except DataError as error:
            _try_settings(error, strategy, client, parties, own_maps)
            raise
    warnings = tuple(_with_files(text, sources) for text in agreement.warnings)
    return replace(agreement, warnings=warnings)


def _agreed(
    strategy: CausalStrategy,
    client: type[CausalClient],
    parties: Sequence[Any],
    maps: Sequence[Path | None],
) -> Agreement:
    app = client_app(client, PartyTables(parties, maps=maps))
    with quiet(logging.ERROR):
        return exchange_schema(strategy, LocalGrid(app, len(parties)))[1]


def _try_settings(
    error: CausalError,
    strategy: CausalStrategy,
    client: type[CausalClient],
    parties: Sequence[Any],
    maps: Sequence[Path | None],
) -> None:
    """Complete the options that an error proposes, until the schema exchange takes the tables.

    Options that mend what a first reading tells may let another problem be seen, with further
    options: these are added. Where no options mend all, the error says what is left.
    """
    settings: dict[str, Any] = dict(error.settings)
    rest = known = UNMENDED if UNMENDED in str(error) else ""
    for _ in range(MOST_TRIALS if settings else 0):
        try:
            _agreed(strategy.with_options(**settings), client, parties, maps)
        except CausalError as second:
            rest = known or f"what is left then: {str(second).partition(SETTINGS)[0]}"
            if second.settings.items() <= settings.items():
                break
            settings |= second.settings
        else:
            rest = ""
            break
    if settings:
        text = str(error).partition(SETTINGS)[0]
        error.args, error.settings = (with_settings(text, settings, rest),), settings


def _registered(strategy: CausalStrategy) -> methods.Method:
    """Return a registered method; a ConfigError says how another one is given."""
    if strategy.method not in methods.METHODS:
        raise ConfigError(
            f"{type(strategy).__name__} is the strategy of '{strategy.method}', which is no "
            "registered method: give its client class, too, as simulate(..., client=YourClient)."
        )
    return methods.find(strategy.method)


def _listed(parties: Any) -> list[Any]:
    """Return the parties' tables as a list.

    Raises
    ------
    DataError
        If they are no collection of tables, or one without an order, or none at all.
    """
    kind = type(parties).__name__
    table = isinstance(parties, np.ndarray) and parties.ndim == 2 and parties.dtype != object
    if table or isinstance(parties, str | bytes | Path) or hasattr(parties, "columns"):
        raise DataError(
            f"parties is a single {kind}: give a list with one table for each party, [table] for "
            "one party"
        )
    if isinstance(parties, Mapping):
        raise DataError(f"parties is a {kind}: give a list, as list(parties.values())")
    if isinstance(parties, Set):
        raise DataError(f"parties is a {kind}, which has no order: give a list of tables")
    try:
        tables = iter(parties)
    except TypeError:
        raise DataError(
            f"parties is of type {kind}: give a list with one table for each party"
        ) from None
    listed = list(tables)
    if not listed:
        raise DataError("There are no parties: 'parties' is empty. Give at least one table.")
    return listed


def _strategy(
    method: str | CausalStrategy, seed: int, num_parties: int, options: dict[str, Any]
) -> CausalStrategy:
    if isinstance(method, CausalStrategy):
        if options:
            raise ConfigError(
                f"The strategy is ready; give {', '.join(sorted(options))} to "
                f"{type(method).__name__}(...) instead."
            )
        # All parties are available from the beginning.
        return method.with_options(min_available_nodes=num_parties)
    if not isinstance(method, str):
        raise ConfigError(
            f"method is {method!r}; it must be a method id ({', '.join(sorted(methods.METHODS))}) "
            "or a CausalStrategy."
        )
    strategy = methods.build(method, {"min_available_nodes": num_parties, **options, "seed": seed})
    if strategy.options.min_available_nodes > num_parties:
        raise ConfigError(
            f"The option 'min_available_nodes' is {strategy.options.min_available_nodes}, but "
            f"there are {num_parties} parties: leave it out."
        )
    return strategy


def _reading(strategy: CausalStrategy, own_map: Path | None) -> Reading:
    """Return how a simulated party reads its table."""
    return reading_at(strategy.handling, strategy.options, own_map, ColumnRules())


def _named_truth(
    truth: Any, first_party: Any, strategy: CausalStrategy, own_map: Path | None
) -> CausalGraph:
    """Return a true graph whose variables are the first party's columns.

    Raises
    ------
    DataError
        If an array has another shape, or the graph other variables.
    """
    try:
        reading = _reading(strategy, own_map)
        columns = open_table(first_party, by_cell=strategy.options.private, reading=reading).columns
    except DataError as error:
        raise DataError(f"party 0: {error}") from error
    names = tuple(name for name in columns if name not in strategy.options.role_columns)
    if isinstance(truth, CausalGraph):
        lacking = [name for name in names if name not in truth.names]
        # With an option "drop" the run may leave out the columns that the truth lacks.
        if lacking and "drop" not in to_plain(strategy.handling).values():
            raise DataError(
                f"truth has no variable {lacking[0]!r}, which is a column of party 0: give a graph "
                "with the parties' columns for variables, or leave truth out"
            )
        return truth
    try:
        matrix = np.asarray(truth)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"truth is no matrix: {error}") from error
    if matrix.shape != (len(names), len(names)):
        raise DataError(
            f"truth has the shape {matrix.shape}, but the first party has {len(names)} columns: "
            f"give an array of shape {(len(names), len(names))}, or a CausalGraph with names."
        )
    return CausalGraph.from_array(matrix, names)


def _truth_of(truth: CausalGraph, graph: CausalGraph) -> CausalGraph:
    """Return the truth over the agreed columns; options may allow other columns to be dropped.

    With hidden causes it is the PAG of these columns: the others are hidden.
    """
    names = graph.names
    if graph.marks is not None and truth.kind == "dag":
        return truth.to_pag(names)
    if not set(names) < set(truth.names):
        return truth
    order = [truth.names.index(name) for name in names]
    both = np.ix_(order, order)
    lagged = None if truth.lagged is None else truth.lagged[:, both[0], both[1]]
    return CausalGraph.from_array(truth.weights[both], names, kind=truth.kind, lagged=lagged)


def _run_on_engine(
    engine: str,
    run_on: Callable[[Grid, float], Run],
    client: type[CausalClient],
    parties: Sequence[Any],
    maps: Sequence[Path | None],
    strategy: CausalStrategy,
) -> Run:
    if engine == "ray":
        with _alone_on_ray(), tempfile.TemporaryDirectory(prefix="flwr-causal-") as directory:
            app = client_app(client, PartyTables(parties, directory, maps))
            return _run_on_ray(run_on, app, len(parties))
    number, kept = len(parties), {}
    if strategy.options.private and strategy.options.output_dir:
        kept[RELEASES] = str(Path(strategy.options.output_dir, EXCHANGES, RELEASES))
    nodes = [{"partition-id": k, "num-partitions": number, **kept} for k in range(number)]
    grid = LocalGrid(
        client_app(client, PartyTables(parties, maps=maps)), number, node_configs=nodes
    )
    try:
        return run_on(grid, 0.0)
    except FederationError as error:
        # The error's cause is the exception of the party's client, with its traceback.
        raise error from (grid.raised[-1] if grid.raised else error.__cause__)


@contextmanager
def _alone_on_ray() -> Iterator[None]:
    """Refuse a second run on Ray beside one of another thread, or inside one: Flower has one."""
    if not _ray.acquire(blocking=False):
        raise ConfigError(
            "A run on Ray is under way in this process: wait for its end, or give engine='local'."
        )
    try:
        yield
    finally:
        _ray.release()


def _run_on_ray(run_on: Callable[[Grid, float], Run], app: ClientApp, num_parties: int) -> Run:
    """Run on Flower's Ray engine, and raise errors as they are (Flower would wrap them)."""
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
        # A model that sends requests to the parties: Ray's nodes have ended, so the model must not.
        run.model = run.model.out_of_reach()
    return run
