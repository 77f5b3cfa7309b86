"""One job from the nodes of a grid to a finished run, and the ServerApp that does it by config."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from logging import ERROR, INFO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.serverapp import ServerApp
from flwr.supercore import log

from flwr_causal.app import methods
from flwr_causal.app.circuit_comparison import (
    answers,
    circuit_baselines,
    circuit_scores,
    query_table,
)
from flwr_causal.app.comparison import category_baselines, linear_baselines, pooled_score
from flwr_causal.app.sources import (
    DataConfig,
    kind_of_data,
    roles_of,
    simulated_parties,
    tabular_parties,
)
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.reports.graph_files import read_edges
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run
from flwr_causal.strategies import Outcome
from flwr_causal.strategies import run as run_strategy
from flwr_causal.strategies.options import check_names, checked, option_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr.app import Context
    from flwr.serverapp import Grid

    from flwr_causal.strategies import CausalStrategy

# Nodes of a simulation register one after the other, within milliseconds.
SETTLE_SECONDS = 1.0
METRICS = (
    *("shd", "tpr", "fdr", "cpdag_shd", "smhd"),
    *("log_likelihood", "accuracy", "macro_f1", "auroc"),
)


def execute(
    method: CausalStrategy[Any],
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
        What the run's ``config`` holds beside method and options.
    settle : float, default 0.0
        Seconds for which the number of connected nodes must stay the same before the start.
    on_round : callable, optional
        Called with the record of each round.

    Raises
    ------
    CausalError
        If the run failed; its attribute ``outcome`` is the run as far as it came.
    """
    settings = {**(config or {}), "method": method.method, **_plain_options(method)}
    try:
        outcome = run_strategy(method, grid, settle=settle, on_round=on_round)
    except CausalError as error:
        if isinstance(error.outcome, Outcome):
            error.outcome = _finished_run(error.outcome, settings)
        raise
    return _finished_run(outcome, settings)


def _finished_run(outcome: Outcome[Any], settings: dict[str, Any]) -> Run:
    return Run(
        graph=outcome.graph,
        history=outcome.history,
        rounds=outcome.rounds,
        bytes_sent=outcome.bytes_sent,
        bytes_received=outcome.bytes_received,
        schema_bytes=outcome.schema_bytes,
        seconds=outcome.seconds,
        stop_reason=outcome.stop_reason,
        scores=outcome.scores,
        config={
            **settings,
            "simulated": all(party.partition_id >= 0 for party in outcome.parties),
        },
        model=outcome.model,
        local_graphs=outcome.heterogeneity.graphs if outcome.heterogeneity else {},
        heterogeneity=outcome.heterogeneity.edges if outcome.heterogeneity else None,
        parties={party.name: party.num_rows for party in outcome.parties},
        failures=[
            {"round": f.server_round, "party": f.party, "reason": f.reason}
            for f in outcome.failures
        ],
        warnings=outcome.warnings,
        error=outcome.error,
    )


def _plain_options(method: CausalStrategy[Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, int | float | str | None) else value.to_dict()
        for name, value in method.options.items()
    }


# What follows reads a run config.


@dataclass(frozen=True)
class JobConfig:
    """The run config's keys that belong neither to the data nor to the method's options.

    Parameters
    ----------
    method : str, default "notears-admm"
        Method id.
    truth : str, default ""
        Absolute path of the true graph (edge CSV, adjacency matrix, or saved graph).
    output_dir : str, default ""
        Absolute path of the directory for the results; empty: the log only.
    compare : bool, default True
        In a simulation, compare with the pooled rows and with each party alone.
    query : str, default ""
        Absolute path of a table (or of a directory of tables with ids) whose rows a fitted circuit
        is asked about: ``answers.csv`` in the output directory.
    """

    method: str = "notears-admm"
    truth: str = ""
    output_dir: str = ""
    compare: bool = True
    query: str = ""


def read_config(run_config: Mapping[str, Any]) -> tuple[JobConfig, DataConfig, CausalStrategy[Any]]:
    """Turn a run config into a job, its data and the method with its options.

    Options that several methods share stand alone (``max-rounds``), a method's own behind its id
    (``notears-admm.schedule``). An empty text means the method's default.

    Raises
    ------
    ConfigError
        For an unknown key, a wrong type or an impossible value.
    """
    types = option_types(JobConfig)
    job = JobConfig(
        **{
            name: checked(_key(name), run_config[_key(name)], types[name])
            for name in types
            if _key(name) in run_config
        }
    )
    data = DataConfig.from_run_config(run_config)
    for name in ("truth", "output_dir", "query"):
        value = getattr(job, name)
        if value and not Path(value).is_absolute():
            raise ConfigError(
                f"{_key(name)}='{value}' is a relative path; Flower runs apps in a directory of "
                "its own. Give the absolute path."
            )
    if job.truth and not Path(job.truth).is_file():
        raise ConfigError(
            f"There is no file '{job.truth}', which the option 'truth' names. Check the path, or "
            "leave the option out."
        )
    if job.query:
        _check_query(job, run_config)
    known = {_key(f.name) for f in (*fields(JobConfig), *fields(DataConfig))} - {"seed"}
    options = {}
    for key, value in run_config.items():
        owner, _, name = key.replace("-", "_").rpartition(".")
        owner = owner.replace("_", "-")
        if owner:
            check_names(methods.find(owner).strategy, {name: value})
        if value != "" and owner in ("", job.method) and (owner or key not in known):
            options[name] = value
    return job, data, methods.build(job.method, options)


def _check_query(job: JobConfig, run_config: Mapping[str, Any]) -> None:
    """Find out before a training that nobody could answer the query after it."""
    if not Path(job.query).exists():
        raise ConfigError(
            f"There is no file '{job.query}', which the option 'query' names. Check the path, or "
            "leave the option out."
        )
    if roles_of(run_config) is None:
        raise ConfigError(
            f"query='{job.query}' is for methods that fit a circuit, not for '{job.method}': leave "
            "it out."
        )


def _key(name: str) -> str:
    return name.replace("_", "-")


def server_app() -> ServerApp:
    """Build the ServerApp that runs the method of the run config and reports."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the job; raise what went wrong, so that Flower marks the run as failed."""
        job = None
        try:
            job, data, method = read_config(context.run_config)
            run = execute(
                method,
                grid,
                config={**vars(data), "truth": job.truth},
                settle=SETTLE_SECONDS,
                on_round=lambda record: log(INFO, _round_line(record, method)),
            )
            try:
                _compare(run, job, data, context.run_config)
                _answer(run, job, context.run_config)
            except CausalError as error:
                run.error = str(error)
                error.outcome = run
                raise
        except CausalError as error:
            if isinstance(error.outcome, Run) and job is not None and job.output_dir:
                error.outcome.save(job.output_dir)
            log(ERROR, json.dumps({"flwr-causal": {"status": "failed", "error": str(error)}}))
            raise
        for line in describe_run(run):
            log(INFO, line)
        if job.output_dir:
            log(INFO, "Results are in %s", run.save(job.output_dir))
        if len(run.parties) == 2:
            log(
                INFO,
                "Two nodes took part, Flower's default. For more: flwr run . --stream "
                '--federation-config "num-supernodes=10"',
            )
        log(INFO, json.dumps({"flwr-causal": _compact(run)}))

    return app


def _round_line(record: dict[str, Any], method: CausalStrategy[Any]) -> str:
    shown = ("h", "consensus", "changed", "num_edges")
    values = [f"{name} {record[name]:.3g}" for name in shown if name in record]
    return ", ".join(
        [f"Round {record['round']} of at most {method.max_rounds} ({record['phase']})", *values]
    )


def _compact(run: Run) -> dict[str, Any]:
    summary = run.summary()
    kept = ("status", "rounds", "bytes_sent", "bytes_received", "seconds", "stop_reason")
    metrics = {name: run.metrics[name] for name in METRICS if name in run.metrics}
    edges = None if run.graph is None else run.graph.num_edges
    return {**{name: summary[name] for name in kept}, **metrics, "edges": edges}


def _answer(run: Run, job: JobConfig, run_config: Mapping[str, Any]) -> None:
    """Ask a fitted circuit about the rows of the query, while its parties are in reach."""
    roles = roles_of(run_config)
    if not job.query or roles is None:
        return
    rows = query_table(job.query, roles["row_id"])
    run.answers = answers(run.model, rows, roles["row_id"])
    run.metrics["query"] = circuit_scores(run.model, rows, run.answers)


def _compare(run: Run, job: JobConfig, data: DataConfig, run_config: Mapping[str, Any]) -> None:
    """Fill in the metrics; in a simulation also those of the parties alone and of all rows."""
    roles = roles_of(run_config)
    if roles is not None and run.model is not None and run.config["simulated"]:
        frames, test = tabular_parties(data, len(run.parties), **roles)
        if len(test):
            run.metrics = circuit_scores(run.model, test)
            if job.compare:
                run.metrics |= circuit_baselines(frames, test, run.config)
    if run.graph is None:
        return
    truth = read_edges(job.truth, run.graph.names) if job.truth else None
    if not run.config["simulated"]:
        if truth is not None:
            run.metrics = compare(truth, run.graph)
        return
    kind = kind_of_data({"method": job.method, **run_config})
    frames, synthetic = simulated_parties(data, len(run.parties), **kind)
    truth = truth or synthetic
    if truth is not None:
        run.metrics = compare(truth, run.graph)
    if kind["categorical"]:
        run.metrics |= pooled_score(frames, run.graph, run.config)
    # Of time series there are no baselines here; see simulations/dynamic_scenarios.py.
    if truth is not None and job.compare and not kind["temporal"]:
        baselines = category_baselines if kind["categorical"] else linear_baselines
        run.metrics |= baselines(frames, run.graph.names, truth, run.config)
