"""The blocks of code on a page of the documentation, and how they are run.

The blocks of a page run in order, in one module and in one directory. Tests run all pages so, and
the manual shows what the blocks of its tutorials print and draw.

    python tools/blocks.py PAGE DIRECTORY   # runs those of a page in this environment
"""

import ast
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from itertools import count
from pathlib import Path
from typing import NamedTuple

# Commands that look at a machine, or take long: their options are checked, they are not run.
ONLY_PARSED = {"deploy", "doctor", "reproduce"}
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n", re.S | re.M)
NUMBERS = count()


class Block(NamedTuple):
    """A block: its language, its text, and where it ends on its page."""

    language: str
    text: str
    end: int


class Output(NamedTuple):
    """What a block printed, and what it drew as SVG."""

    text: str
    pictures: tuple[str, ...]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of Python and of commands in the text of a page."""
    return [Block(found[1], found[2], found.end()) for found in BLOCK.finditer(page)]


def commands_of(text: str) -> list[list[str]]:
    """Return the commands of a block, as lists of words, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(page: str, name: str, directory: Path) -> Iterator[tuple[Block, Output]]:
    """Run the blocks of a page one after the other, and yield what each printed and drew."""
    module = types.ModuleType(f"page{next(NUMBERS)}")
    # Dataclasses look the names of their annotations up in their module.
    sys.modules[module.__name__] = module
    for block in blocks_of(page):
        with chdir(directory):
            if block.language == "bash":
                yield block, Output("".join(map(_command, commands_of(block.text))), ())
            else:
                yield block, _python(block.text, name, vars(module))


def _python(text: str, name: str, names: dict[str, object]) -> Output:
    tree = ast.parse(text, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
            if value is not None and not type(value).__module__.startswith("matplotlib"):
                print(value)
    return Output(printed.getvalue(), _pictures())


def _command(words: list[str]) -> str:
    """Run a command of this package in this process; others need a network or a SuperLink."""
    if words[0] != "flwr-causal":
        return ""
    from typer.main import get_command
    from typer.testing import CliRunner

    from flwr_causal.command_line import app

    if words[1] in ONLY_PARSED:
        from benchmarks.commands import app as of_checkout

        commands = {**get_command(app).commands, **get_command(of_checkout).commands}
        command = commands[words[1]]
        with command.context_class(command) as context:
            command.make_parser(context).parse_args(list(words[2:]))
        return ""
    done = CliRunner().invoke(app, words[1:])
    if done.exit_code:
        raise RuntimeError(f"{shlex.join(words)} ended with {done.exit_code}:\n{done.output}")
    return done.stdout


def _pictures() -> tuple[str, ...]:
    """Return the open figures as SVG, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return ()
    from matplotlib import pyplot as plt

    pictures = []
    for number in plt.get_fignums():
        drawn = io.StringIO()
        plt.figure(number).savefig(
            drawn, format="svg", bbox_inches="tight", metadata={"Date": None}
        )
        pictures.append(drawn.getvalue()[drawn.getvalue().index("<svg") :])
    plt.close("all")
    return tuple(pictures)


if __name__ == "__main__":
    for block, output in run(Path(sys.argv[1]).read_text("utf-8"), sys.argv[1], Path(sys.argv[2])):
        print(block.text, output.text, sep="\n")
