"""The commands of a checkout: ``python -m benchmarks``, and ``flwr-causal reproduce``."""

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from flwr_causal.command_line import Commands, Engine, write_new
from flwr_causal.errors import ConfigError

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Repeat the experiments of the papers, measure, and keep what was measured.",
)


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A scenario, a pattern as 'hard-*', or a TOML file."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Default: the scenario's.")] = None,
    scale: Annotated[float, typer.Option(help="Smaller: fewer rows and sizes.")] = 1.0,
    engine: Annotated[
        Engine, typer.Option(metavar="local|ray", help="This process, or Ray.")
    ] = Engine.local,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    methods: Annotated[
        str, typer.Option(metavar="A,B", help="Only these lines of the table.")
    ] = "",
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=V,V", help="Only these points. Repeatable."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: reproduced/NAME.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="FLWR_CAUSAL_DATA", help="Other data."),
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it there, to change."),
    ] = None,
    progress: Annotated[bool | None, typer.Option(help="Default: in a terminal.")] = None,
) -> None:
    """Make a table of a paper, or of a scenario of yours: methods and baselines.

    A sweep that was ended goes on with the same command. Cells whose data are missing are skipped.
    """
    # Takes a second, which help and the shell's completion save.
    from benchmarks import reproduce as sweeps
    from benchmarks import scenario as scenarios

    if listed or name is None:
        for one in scenarios.names():
            found = scenarios.find(one)
            typer.secho(one, bold=True, nl=False)
            typer.echo(f"  {found.title}; {found.paper or 'no paper'}, {found.table or 'no table'}")
        return
    if copy is not None:
        write_new(copy, scenarios.text_of(name))
        typer.echo(f"Change {copy}, then: flwr-causal reproduce {shlex.quote(str(copy))}")
        return
    # A comma with a space is part of a label.
    labels = [label.strip() for label in re.split(r",(?! )", methods) if label.strip()]
    points = dict(_values_of(one) for one in at or ())
    failed = 0
    for one in sweeps.chosen(name):
        place = output_dir / one if output_dir and one != name else output_dir
        report = sweeps.reproduce(
            one,
            runs=runs,
            scale=scale,
            engine=engine.value,
            jobs=jobs,
            methods=labels,
            at=points,
            output_dir=place,
            data_dir=data_dir,
            progress=progress,
        )
        typer.echo(report.text)
        typer.echo(f"Results: {', '.join(str(file) for file in report.files)}")
        failed += report.failed
    if failed:
        raise typer.Exit(1)


def _values_of(text: str) -> tuple[str, list[str]]:
    """Return a coordinate and its values from ``AXIS=V,V``; a ConfigError if it is none."""
    axis, sign, values = text.partition("=")
    if not (axis and sign and values):
        raise ConfigError(f"--at '{text}': write AXIS=VALUE,VALUE")
    return axis.strip(), [value.strip() for value in values.split(",")]


@app.command()
def measure(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Patterns too. Default: all.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the measurements.")] = False,
    seeds: Annotated[str, typer.Option(help="As 0-4,3000. Default: each measurement's own.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Small settings only.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="FLWR_CAUSAL_DATA", help="As of `reproduce`."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For the result files.")
    ] = None,
) -> None:
    """Measure time, memory, traffic and calibration, beside other programs where they fit."""
    from benchmarks.measure.measured import chosen, measured

    for one in chosen(names or ["*"]):
        if listed:
            typer.echo(f"{one.name}  {one.title}")
        else:
            measured(one, seeds or one.seeds, quick, data_dir, output_dir)


@app.command()
def adopt(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Directories of sweeps, result files.")
    ],
    machine: Annotated[
        str, typer.Option(help="Replaces what the results say of their machine.")
    ] = "",
) -> None:
    """Copy results into benchmarks/results, from which the manual's tables are made."""
    from benchmarks import figures, results

    for path in paths:
        typer.echo(results.adopted(path, figures.RESULTS, machine))
    for name in figures.not_shown(figures.results(figures.RESULTS)):
        typer.echo(f"No page shows {name}: put a line <!-- results {name} --> on one.")
