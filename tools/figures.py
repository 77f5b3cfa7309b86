"""Write the tables on the pages of docs/figures from the result files of docs/results.

    python tools/figures.py                      # the pages, from the files
    python tools/figures.py --adopt DIR ...      # results of `flwr-causal reproduce` first

On a page, the tables of all results whose names fit one of the patterns stand between the lines
``<!-- results PATTERN ... -->`` and ``<!-- end -->``; what is outside is written by hand.
"""

import argparse
import fnmatch
import re
from pathlib import Path

from flwr_causal.simulations.scenarios.results import MEASURED, Result, adopted, read

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "docs" / "results", ROOT / "docs" / "figures"
MARKED = re.compile(r"(<!-- results ([^>]+) -->\n).*?(<!-- end -->\n)", re.S)


def results(folder: Path = RESULTS) -> dict[str, Result]:
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


def section(result: Result) -> str:
    """Return what a page shows of a result."""
    head = result.head
    parts = [f"### {head['title']}"]
    parts += (
        [f"After {head['paper']}; the paper's own figures in brackets."] if "paper" in head else []
    )
    parts += [*result.notes, result.markdown()]
    source = "" if head["source"] == MEASURED else f"{head['source'].capitalize()}. "
    parts.append(
        f"<small>{source}`{head['command']}`; {head['date']}; {head['machine']}; "
        f"{head['versions']}; {head['seeds']}. [File](../results/{result.name}.csv)</small>"
    )
    return "\n\n".join(parts)


def written(page: str, found: dict[str, Result]) -> str:
    """Return the text of a page with its tables written anew."""

    def block(match: re.Match[str]) -> str:
        names = fitting(match[2], list(found))
        sections = "".join(f"\n{section(found[name])}\n" for name in names)
        return f"{match[1]}{sections}\n{match[3]}"

    return MARKED.sub(block, page)


def placed(pages: list[str], names: list[str]) -> dict[str, int]:
    """Return on how many places of the pages each result stands."""
    blocks = [fitting(match[2], names) for page in pages for match in MARKED.finditer(page)]
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
    paths = sorted(PAGES.glob("*.md"))
    pages = [path.read_text(encoding="utf-8") for path in paths]
    for name, count in placed(pages, list(found)).items():
        if count != 1:
            print(f"{name} stands on {count} pages: put a line <!-- results {name} --> on one")
    for path, page in zip(paths, pages, strict=True):
        path.write_text(written(page, found), encoding="utf-8")


if __name__ == "__main__":
    main()
