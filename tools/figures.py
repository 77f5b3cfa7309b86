"""Write the tables of figures on the pages of docs from the result files of docs/results.

    python tools/figures.py                      # the pages, from the files
    python tools/figures.py --adopt DIR ...      # results of `flwr-causal reproduce` first

On the pages of docs, the results whose names fit one of the patterns stand between the lines
``<!-- results PATTERN ... -->`` and ``<!-- end -->``, and a table without its title and its text
between ``<!-- table NAME -->`` and ``<!-- end -->``; what is outside is written by hand.
``<!-- worlds PATTERN ... -->`` shows in one table where each method breaks.
"""

import argparse
import fnmatch
import os
import re
from pathlib import Path

from flwr_causal.simulations.scenarios.results import FigureTable, adopted, read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
MARKED = re.compile(r"(<!-- (results|table|worlds) ([^>]+) -->\n).*?(<!-- end -->\n)", re.S)
# The methods in the table of worlds; of those that return an equivalence class the errors of that.
OWN = {
    "moments": "shd",
    "moments, class": "cpdag_shd",
    "moments, GES": "cpdag_shd",
    "moments, states as 0 and 1": "cpdag_shd",
    "FedGES, conditional Gaussian": "cpdag_shd",
    "NOTEARS-ADMM": "shd",
    "fedcausal": "shd",
    "lingam": "shd",
    "sort-by-variance": "shd",
}
#: Columns of the table of worlds that hold several lines.
SAME = {"moments, states as 0 and 1": "moments, class"}
#: More errors for each variable than this are a failure.
BREAKS = 0.5
WORST = 3


def results(folder: Path = RESULTS) -> dict[str, FigureTable]:
    """Return the results by name."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.csv"))}
    for name, result in found.items():
        if name != result.name:
            raise ValueError(f"{name}.csv says that its name is '{result.name}': rename the file")
    return found


def fitting(patterns: str, names: list[str]) -> list[str]:
    """Return the names that fit patterns, in the order of the patterns."""
    found = [name for pattern in patterns.split() for name in fnmatch.filter(names, pattern)]
    return list(dict.fromkeys(found))


def pages() -> dict[Path, str]:
    """Return the texts of the pages that show results."""
    found = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return {path: text for path, text in found.items() if MARKED.search(text)}


def folder_from(page: Path) -> str:
    """Return the folder of results as a page links to it."""
    return Path(os.path.relpath(RESULTS, page.parent)).as_posix()


def section(result: FigureTable, folder: str) -> str:
    """Return a result with its title and its text."""
    head = result.head
    paper = (
        f"After {head['paper']}; the paper's own figures in brackets." if "paper" in head else ""
    )
    texts = [f"### {head['title']}", paper, *result.notes, result.markdown(), *result.remarks]
    return "\n\n".join([*filter(None, texts), source(result, folder)])


def source(result: FigureTable, folder: str) -> str:
    """Return how a result was made, with a link to its file in a folder."""
    head = result.head
    return (
        f"<small>`{head['command']}`; {head['date']}; {head['machine']}; "
        f"{head['versions']}; {head['seeds']}. [File]({folder}/{result.name}.csv)</small>"
    )


def errors_of(shown: list[FigureTable]) -> dict[str, dict[str, float]]:
    """Return the errors for each variable, by world and method; means over the sizes."""
    found: dict[str, dict[str, float]] = {}
    for result in shown:
        rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
        kept = [row for row in rows if row["line"] in OWN and row[OWN[row["line"]]]]
        each: dict[tuple[str, str], list[float]] = {}
        for row in kept:
            world = row.get("kind") or row.get("mechanisms")
            world = world or f"interventions, known: {row['known']}"
            errors = float(row[OWN[row["line"]]]) / float(row["num_variables"])
            each.setdefault((world, SAME.get(row["line"], row["line"])), []).append(errors)
        for (world, line), values in each.items():
            found.setdefault(world, {})[line] = sum(values) / len(values)
    return found


def worlds(shown: list[FigureTable]) -> str:
    """Return the table of `errors_of`, failures in bold, and the worst of them."""
    found = errors_of(shown)
    lines = [line for line in OWN if any(line in errors for errors in found.values())]
    table = [("world", *lines), ("---",) * (len(lines) + 1)]
    for world, errors in found.items():
        cells = (errors.get(line) for line in lines)
        texts = ("" if e is None else f"**{e:.2f}**" if e > BREAKS else f"{e:.2f}" for e in cells)
        table.append((world, *texts))
    own = [
        (value, line, world)
        for world, errors in found.items()
        for line, value in errors.items()
        if not line.startswith("sort-")
    ]
    last = reversed(sorted(own)[-WORST:])
    worst = "; ".join(f"{line} with {world} ({value:.1f})" for value, line, world in last)
    rows = "\n".join("| " + " | ".join(row) + " |" for row in table)
    return f"{rows}\n\nThe worst of our own: {worst}."


def written(page: str, found: dict[str, FigureTable], folder: str = "results") -> str:
    """Return the text of a page with its tables written anew; it sees the files in a folder."""

    def block(match: re.Match[str]) -> str:
        shown = [found[name] for name in fitting(match[3], list(found))]
        if match[2] == "worlds":
            return f"{match[1]}\n{worlds(shown)}\n\n{match[4]}"
        whole = match[2] == "results"
        texts = [
            section(one, folder) if whole else f"{one.markdown()}\n\n{source(one, folder)}"
            for one in shown
        ]
        return match[1] + "".join(f"\n{text}\n" for text in texts) + "\n" + match[4]

    return MARKED.sub(block, page)


def placed(names: list[str]) -> dict[str, int]:
    """Return on how many places of the pages each result stands."""
    marks = [match for text in pages().values() for match in MARKED.finditer(text)]
    blocks = [fitting(match[3], names) for match in marks if match[2] != "worlds"]
    return {name: sum(name in block for block in blocks) for name in names}


def main() -> None:
    """Adopt results, if there are any, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--adopt", nargs="+", type=Path, default=[], metavar="DIR", help="directories of sweeps"
    )
    parser.add_argument("--machine", default="", help="replaces what the results say of theirs")
    arguments = parser.parse_args()
    for directory in arguments.adopt:
        print(adopted(directory, RESULTS, arguments.machine))
    found = results()
    for name, count in placed(list(found)).items():
        if count != 1:
            print(f"{name} stands on {count} pages: put a line <!-- results {name} --> on one")
    for path, text in pages().items():
        path.write_text(written(text, found, folder_from(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
