"""The ServerApp that runs the method of a run config, computes its metrics, and reports."""

from __future__ import annotations

from functools import partial
from logging import ERROR, INFO
from typing import TYPE_CHECKING, Any

from flwr.serverapp import ServerApp
from flwr.supercore import log

from flwr_causal.app import methods
from flwr_causal.app.comparison import answers, baselines, circuit_scores, judged, query_table
from flwr_causal.app.config import in_keys, keys_in_errors, keys_in_log, read_config
from flwr_causal.app.dry_run import dry_run
from flwr_causal.app.job import execute, result_line
from flwr_causal.app.sources import Roles, simulation
from flwr_causal.compat import before_exit
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.errors import CausalError
from flwr_causal.reports.graph_files import read_edges
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run
from flwr_causal.runtime import loop
from flwr_causal.runtime.checkpoint import mark_stopped

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from flwr_causal.app.config import DataConfig, JobConfig
    from flwr_causal.strategies import CausalStrategy

METRICS = (
    *("shd", "tpr", "fdr", "cpdag_shd", "smhd"),
    *("log_likelihood", "accuracy", "macro_f1", "auroc"),
)


def server_app() -> ServerApp:
    """Build the ServerApp that runs the method of the run config and reports."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the job; an error is raised again, so that Flower marks the run as failed."""
        strategy = None
        try:
            job, data, strategy = read_config(context.run_config)
            if job.dry_run:
                with keys_in_errors(job.method), keys_in_log(job.method):
                    found = dry_run(strategy, grid, settle=loop.SETTLE_SECONDS)
                log(INFO, result_line(found))
                return
            if strategy.options.output_dir:
                before_exit(partial(mark_stopped, strategy.options.output_dir))
            with keys_in_errors(job.method), keys_in_log(job.method):
                run = _run(grid, job, data, strategy)
        except CausalError as error:
            if (
                isinstance(error.outcome, Run)
                and strategy is not None
                and strategy.options.output_dir
            ):
                error.outcome.save(strategy.options.output_dir)
            log(ERROR, result_line({"status": "failed", "error": str(error)}))
            raise
        for line in describe_run(run):
            log(INFO, line)
        if strategy.options.output_dir:
            log(INFO, "Results are in %s", run.save(strategy.options.output_dir))
        if set(run.parties) == {"party 0", "party 1"}:  # the names of simulated ones
            log(
                INFO,
                "Two nodes took part, Flower's default. For more: flwr run . --stream "
                '--federation-config "num-supernodes=10"',
            )
        log(INFO, result_line(_compact(run)))

    return app


def _run(grid: Grid, job: JobConfig, data: DataConfig, strategy: CausalStrategy) -> Run:
    """Run the method and fill in the metrics; an error's ``outcome`` is the run up to it."""
    run = execute(
        strategy,
        grid,
        config={**vars(data), "truth": job.truth},
        settle=loop.SETTLE_SECONDS,
        on_round=lambda record: log(INFO, _round_line(record, strategy)),
    )
    try:
        _judge(run, job, data, strategy)
        _answer(run, job, strategy)
        run.warnings += strategy._metric_warnings(run.metrics)
    except CausalError as error:
        run.error, run.status = in_keys(str(error), job.method), "failed"
        error.outcome = run
        raise
    finally:
        run.warnings = [in_keys(warning, job.method) for warning in run.warnings]
        run.stop_reason = in_keys(run.stop_reason, job.method)
    return run


def _judge(run: Run, job: JobConfig, data: DataConfig, strategy: CausalStrategy) -> None:
    """Fill in the metrics of the result, and in a simulation the metrics of the baselines."""
    names = () if run.graph is None else run.graph.names
    truth = read_edges(job.truth, names) if job.truth and names else None
    if not run.config["simulated"]:
        if truth is not None and run.graph is not None:
            run.truth, run.metrics = truth, compare(truth, run.graph)
        return
    what = (data, len(run.parties), strategy.data, Roles.of(strategy))
    tables, made, test = simulation(
        *what, by_cell=strategy.options.private, reading=strategy._reading
    )
    truth = truth or made
    run.truth = None if run.graph is None else truth
    run.metrics = judged(run.model if run.graph is None else run.graph, truth, test)
    compared = bool(run.metrics) and job.compare
    if run.graph is not None:
        run.metrics |= strategy._pooled_metrics(tables, run.graph)
    if compared:
        client = methods.find(job.method).client
        run.metrics |= baselines(strategy, client, tables, names, truth, test)


def _answer(run: Run, job: JobConfig, strategy: CausalStrategy) -> None:
    """Evaluate a fitted circuit on the rows of the query while its parties are connected."""
    if job.query:
        row_id = Roles.of(strategy).row_id
        rows = query_table(job.query, row_id, strategy._reading)
        run.answers = answers(run.model, rows, row_id)
        run.metrics["query"] = circuit_scores(run.model, rows, run.answers)


def _round_line(record: dict[str, Any], method: CausalStrategy) -> str:
    shown = ("h", "consensus", "changed", "num_edges")
    values = [f"{name} {record[name]:.3g}" for name in shown if name in record]
    number, most = record["round"], method._exchanges_at_most
    # Replicates are further trainings.
    limit = f" of at most {most}" if most is not None and number <= most else ""
    head = f"Exchange {number}{limit} ({record['exchange']})"
    return ", ".join([head, *values])


def _compact(run: Run) -> dict[str, Any]:
    summary, trust = run.summary(influence=False), run.trust
    kept = ("status", "lost", "rounds", "bytes_sent", "bytes_received", "seconds", "stop_reason")
    metrics = {name: run.metrics[name] for name in METRICS if name in run.metrics}
    edges = None if run.graph is None else run.graph.num_edges
    first = {"verdict": trust.verdict, "headline": trust.sentence}
    return {**{name: summary[name] for name in kept}, **first, **metrics, "edges": edges}
