"""One job: a method over the nodes of a grid, to a finished run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from logging import INFO, WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.supercore import log

from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.protocol.schema import own_version
from flwr_causal.reports.run import Run
from flwr_causal.runtime.checkpoint import (
    RUN_FILE,
    CheckpointError,
    check_options,
    check_tables,
    results_saved,
)
from flwr_causal.runtime.loop import plain_options
from flwr_causal.runtime.schema import exchange_schema, is_another
from flwr_causal.strategies import Outcome
from flwr_causal.strategies import run as run_strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr.serverapp import Grid

    from flwr_causal.strategies import CausalStrategy


#: Of the object in the last line of a run's log, which says how it has ended.
_RESULT = "flwr-causal"


def result_line(result: Mapping[str, Any]) -> str:
    """Return the line of the log that says how a run has ended."""
    return json.dumps({_RESULT: result})


def result_in(line: str) -> dict[str, Any] | None:
    """Return what :func:`result_line` wrote at the end of a line; None if there is nothing."""
    start = line.find(f'{{"{_RESULT}":')
    try:
        found: dict[str, Any] | None = json.loads(line[start:])[_RESULT] if start >= 0 else None
    except ValueError:
        return None
    return found


@single_threaded()
def execute(
    method: CausalStrategy,
    grid: Grid,
    *,
    config: Mapping[str, Any] | None = None,
    settle: float = 0.0,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Run a method over the nodes of a grid and return the finished run.

    Parameters
    ----------
    method : CausalStrategy
    grid : Grid
    config : mapping, optional
        Further entries of the run's ``config``, beside method and options.
    settle : float, default 0.0
        Seconds for which the number of connected nodes must stay the same before the start.
    on_round : callable, optional
        Called with the record of each exchange.

    Raises
    ------
    CausalError
        If the run failed; its attribute ``outcome`` is the run up to the error.
    """

    def finished(outcome: Outcome) -> Run:
        run: Run = outcome.run
        run.config = {**(config or {}), **run.config}
        return run

    directory = method.options.output_dir
    if directory and method.options.resume and results_saved(directory):
        return _completed(directory, method, grid, settle)
    try:
        outcome = run_strategy(method, grid, settle=settle, on_round=on_round, write_results=False)
    except CausalError as error:
        if isinstance(error.outcome, Outcome):
            error.outcome = finished(error.outcome)
        raise
    except MemoryError as error:
        raise ConfigError(
            f"The server's memory does not suffice ({error}): lower the options that say how many "
            "rounds or units there are, or use fewer columns."
        ) from error
    return finished(outcome)


def _completed(directory: str, method: CausalStrategy, grid: Grid, settle: float) -> Run:
    """Return the completed run in a directory, if it is one of these options and tables.

    Raises
    ------
    CheckpointError
        If it had other options, parties or tables, or another version made it.
    """
    check_options(directory, plain_options(method))
    run = Run.load(directory, models=[type(method).__module__])
    day = f"{datetime.fromtimestamp(Path(directory, RUN_FILE).stat().st_mtime, UTC):%Y-%m-%d}"
    said = f"Nothing was computed: the run in '{directory}' was completed on {day}"
    if method.options.private or not run.tables:
        # A report under differential privacy would spend more of the budget.
        log(WARNING, "%s; its tables were not compared with those of today", said)
        return run
    made = run.versions.get("flwr-causal", own_version())
    if is_another(made):
        raise CheckpointError(
            f"The run in '{directory}' is completed, by version {made} of flwr-causal; this is "
            f"{own_version()}. Load it (Run.load), give another directory, or start anew without "
            "resume."
        )
    federation, _, _ = exchange_schema(method, grid, settle=settle)
    check_tables(directory, run.tables, federation.digests)
    log(INFO, "%s, of the same tables", said)
    return run
