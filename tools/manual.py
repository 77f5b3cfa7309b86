"""Hooks of the manual's build: tables of figures, tutorials with what they print and draw, links.

``mkdocs build`` (``mkdocs.yml``) builds the manual into ``build/manual``.
"""

import base64
import json
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

# Before numpy is imported by a block.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ["MPLBACKEND"] = "Agg"

import blocks
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parents[1]))  # before another package of the name
from benchmarks import figures

#: Pages whose blocks are run at the build.
EXECUTED = ("start.md", "tutorials/")
#: In a line of an output.
MOST_LETTERS = 88
NOTEBOOKS: dict[str, list[dict[str, Any]]] = {}
RESULTS = figures.results()
# Sphinx's roles in docstrings.
ROLE = re.compile(
    r":(?:class|func|meth|mod|data|attr|exc):<code>~?(?:[\w.]*\.)?(\w+)(?: &lt;[^<]*)?</code>"
)
# A link to a file of the repository that is no page of the manual.
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)]*)\)")


def on_files(files: Any, config: Any) -> None:
    """Add the result files, to which the tables link."""
    for name in RESULTS:
        source = str(figures.RESULTS / f"{name}.csv")
        files.append(File.generated(config, f"results/{name}.csv", abs_src_path=source))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put in tables and what the blocks print and draw, and name files outside of the manual."""
    name = page.file.src_uri
    markdown = figures.with_tables(markdown, RESULTS, os.path.relpath("results", Path(name).parent))
    if name.startswith(EXECUTED):
        markdown = _executed(markdown, name)
    known = {file.src_uri for file in files}

    def link(found: re.Match[str]) -> str:
        target = (Path(name).parent / found[0].split("](")[1][:-1].partition("#")[0]).as_posix()
        inside = os.path.normpath(target) in known
        return found[0] if inside else f"{found[1]} (`{found[2]}` in the repository)"

    return OUTSIDE.sub(link, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show the roles of docstrings as names, and keep a mean and its standard error on a line."""
    return ROLE.sub(r"<code>\1</code>", html).replace(" ± ", "&nbsp;±&nbsp;")


def on_post_build(config: Any) -> None:
    """Write each tutorial as a notebook beside its page."""
    for name, cells in NOTEBOOKS.items():
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 4,
            "metadata": {"kernelspec": kernel},
            "cells": cells,
        }
        path = Path(config["site_dir"]) / Path(name).with_suffix(".ipynb")
        path.write_text(json.dumps(notebook), encoding="utf-8")


def _executed(markdown: str, name: str) -> str:
    """Run a page's blocks; return it with their outputs, and keep it as a notebook."""
    shown, place, cells = [], 0, []
    with tempfile.TemporaryDirectory() as directory:
        for block, output in blocks.run(markdown, name, Path(directory)):
            output = output._replace(text=output.text.replace(f"{directory}/", ""))
            start = markdown.rindex("```" + block.language, place, block.end)
            cells += [_text(markdown[place:start]), _code(block, output)]
            shown += [markdown[place : block.end], _shown(output)]
            place = block.end
    NOTEBOOKS[name] = [*cells, _text(markdown[place:])]
    notebook = Path(name).with_suffix(".ipynb").name
    note = f'\n\n<a href="{notebook}" download>Download this page as a notebook</a>\n'
    return "".join([*shown, markdown[place:], note])


def _shown(output: blocks.Output) -> str:
    """Return an output as Markdown."""
    lines = "\n".join(_wrapped(line) for line in output.text.rstrip().splitlines())
    text = f"\n``` {{ .text .output }}\n{lines}\n```\n" if lines.strip() else ""
    for picture in output.pictures:
        data = base64.b64encode(picture.encode()).decode()
        source = f"data:image/svg+xml;base64,{data}"
        text += f'\n<img class="drawn" alt="What the block draws" src="{source}">\n'
    return text


def _wrapped(line: str) -> str:
    """Break a long line, unless it is the row of a table."""
    if re.search(r"\S {2,}\S", line):
        return line
    return textwrap.fill(line, MOST_LETTERS, subsequent_indent="    ") or line


def _text(markdown: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": markdown.strip()}


def _code(block: blocks.Block, output: blocks.Output) -> dict[str, Any]:
    commands = block.language == "bash"
    source = "".join(f"!{line}\n" for line in block.text.splitlines()) if commands else block.text
    outputs: list[dict[str, Any]] = []
    if output.text:
        outputs.append({"output_type": "stream", "name": "stdout", "text": output.text})
    outputs += [
        {"output_type": "display_data", "metadata": {}, "data": {"image/svg+xml": picture}}
        for picture in output.pictures
    ]
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "source": source.strip(),
        "outputs": outputs,
    }
