"""What the pages name is there: files, headings, modules and what is in them."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import figures

ROOT = Path(__file__).parents[2]
RESULTS = figures.results()
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/*/*.md"),
    *ROOT.glob("benchmarks/*.md"),
]
# Names with dots that are no modules: the groups of entry points.
GROUPS = {f"flwr_causal.{kind}" for kind in ("methods", "simulators", "metrics", "peers")}


def anchors(path):
    """The anchors of a page's headings in the manual."""
    text = figures.with_tables(path.read_text(encoding="utf-8"), RESULTS)
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_manual_lists_all_pages():
    named = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"\bflwr_causal(?:\.[A-Za-z_][A-Za-z_0-9]*)+", text)) - GROUPS:
        _find(name)
    pattern = r"^(?:>>> )?from (flwr_causal[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))"
    for module, some, others in re.findall(pattern, text, re.M):
        for one in re.findall(r"\w+", some or others):
            _find(f"{module}.{one}")


def _find(name):
    """Return what a name stands for: the longest part that is a module is imported."""
    parts = name.split(".")
    found, rest = import_module(parts[0]), parts[1:]
    for number, part in enumerate(rest, start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = import_module(".".join(parts[:number]))
    return found


def described(page):
    """The names that a page of the reference describes."""
    return re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)


def test_the_reference_describes_each_name_once():
    """A second place is an error of ``mkdocs build --strict``."""
    named = [name for page in ROOT.glob("docs/reference/*.md") for name in described(page)]
    assert len(named) > 50
    assert sorted(named) == sorted(set(named))
    for name in named:
        _find(name)


def test_the_table_of_algorithms_names_the_modules_that_the_page_describes():
    """A name without a package is in that of the name before it."""
    page = ROOT / "docs/reference/algorithms.md"
    named = set()
    for cell in re.findall(r"^\|.*\| (`\w+\..*) \|$", page.read_text(encoding="utf-8"), re.M):
        package = ""
        for name in re.findall(r"`([\w.]+)`", cell):
            if name.startswith(("core.", "data.")):
                package = name.rpartition(".")[0]
            else:
                name = f"{package}.{name}"
            import_module(f"flwr_causal.{name}")
            named.add(f"flwr_causal.{name}")
    assert named == {name for name in described(page) if isinstance(_find(name), ModuleType)}
