"""What a terminal or a notebook shows while a simulation runs."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flwr_causal.runtime.server_work import watching
from flwr_causal.simulations.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr.app import Message
    from flwr.serverapp import Grid

    Entry = dict[str, Any]

SCHEMA, PARTIES, SERVER = (
    "the parties agree on columns",
    "the parties compute",
    "the server computes",
)


class Bar:
    """A bar of exchanges, with the current computation.

    Parameters
    ----------
    progress : rich.progress.Progress
    total : int or None
        The largest number of exchanges, None if the method has no such number.
    """

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(SCHEMA, total=total)

    def say(self, now: str) -> None:
        """Show what is computed now."""
        self._progress.update(self._task, description=now)

    def after_exchange(self, entry: Entry) -> None:
        """Count an exchange."""
        self._progress.update(self._task, advance=1)

    def end(self) -> None:
        """Show the bar as complete: runs may end before their largest number of exchanges."""
        self._progress.update(
            self._task, description="done", total=self._progress.tasks[0].completed
        )

    def watch(self, grid: Grid) -> Any:
        """Return a Grid that sends by another one and says whose turn it is."""
        return _Watched(grid, self.say)


class _Watched(Relay):
    def __init__(self, grid: Grid, say: Callable[[str], None]) -> None:
        super().__init__(grid)
        self._say = say
        self._asked = False

    def before(self, messages: list[Message]) -> list[Message]:
        self._say(PARTIES if self._asked else SCHEMA)
        self._asked = True
        return messages

    def after(self, messages: list[Message], replies: list[Message]) -> list[Message]:
        self._say(SERVER)
        return replies


@contextmanager
def _compilations(say: Callable[[str], None]) -> Iterator[None]:
    """Say that functions are compiled, which takes seconds when a method is first used."""
    from numba.core import event  # takes a third of a second

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            module = event.data["dispatcher"].py_func.__module__
            say(f"compiling {module}, once in this environment")

        def on_end(self, event: Any) -> None:
            """Leave the text, until the next computation begins."""

    with event.install_listener("numba:compile", Compiling()):
        yield


@contextmanager
def progress_bar(shown: bool | None, total: int | None) -> Iterator[Bar | None]:
    """Yield a bar on the standard error stream, or None if none is shown.

    Parameters
    ----------
    shown : bool or None
        None: in a terminal, and in a notebook that has ipywidgets.
    total : int or None
        The largest number of exchanges.
    """
    console = Console(stderr=True)
    if shown is None:
        widgets = console.is_jupyter and find_spec("ipywidgets") is not None
        shown = widgets or (console.is_terminal and not console.is_jupyter)
    if not shown:
        yield None
        return
    columns = (
        TextColumn("exchanges"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = Bar(progress, total)
        with _compilations(bar.say), watching(bar.say):
            yield bar
        bar.end()
