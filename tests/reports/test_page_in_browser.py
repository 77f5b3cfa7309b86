"""The page in a headless Chromium: quiet, without requests, readable, and its controls work.

Skipped where there is no Chromium or no playwright; CONTRIBUTING.md says how to get them.
"""

import os
import shutil
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from small_graphs import full_graph

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
WIDTHS = (1280, 400)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        # Chromium's sandbox refuses to start as root.
        flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Page:
    """A page that was opened, what the console said, and what was requested."""

    def __init__(self, browser, file, width=1280):
        self.said, self.requests = [], []
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        started = time.perf_counter()
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")
        self.seconds = time.perf_counter() - started

    def read(self):
        """Draw all plots, as before printing; else they are drawn when they come into view."""
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.wait_for_function("!document.querySelector('.plot:not(:has(svg))')")

    def edges(self):
        return self.page.locator(".picture .edge").count()

    def set(self, control, value):
        self.page.locator(f"#graph-{control}").evaluate(
            "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }",
            str(value),
        )
        self.page.wait_for_timeout(120)

    def check_quiet(self):
        assert self.said == []
        assert [
            url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))
        ] == []
        assert (
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            <= 0
        )


def circuit_run():
    rng = np.random.default_rng(0)
    rows = [pd.DataFrame({"x": rng.normal(size=60), "c": rng.choice(["a", "b"], 60)})]
    return simulate("fedpc", rows, target="c")


def bare(graph, **known):
    return Run(graph, [], 0, 0, 0, 0, 0.0, "done", **known)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["admm", "lags", "hostile", "circuit"])
def test_pages_are_quiet_and_fit(chromium, admm_run, tmp_path, kind, width):
    name = "</script><img src=x onerror=document.title='run'>" + "long " * 30
    runs = {
        "admm": lambda: admm_run,
        "lags": lambda: bare(full_graph(), truth=full_graph(1)),
        "hostile": lambda: bare(
            CausalGraph.from_array([[0, 1], [0, 0]], (name, "b")), warnings=[name * 3]
        ),
        "circuit": circuit_run,
    }
    opened = Page(chromium, runs[kind]().report(tmp_path / "page.html"), width)
    opened.read()
    opened.check_quiet()
    assert opened.page.title() != "run"
    assert opened.page.locator("h1").inner_text()
    # Every control can be reached and has a name.
    for control in opened.page.locator("button, input, select").all():
        assert control.evaluate(
            "one => one.getAttribute('aria-label') || one.textContent || one.labels.length"
        )


def test_the_effect_that_was_asked_for_stands_above_the_graph(chromium, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2))
    rows[:, 1] += rows[:, 0]
    run = simulate("moments", [rows[:150], rows[150:]])
    run.report(tmp_path / "page.html", treatment="x0", outcome="x1")
    opened = Page(chromium, tmp_path / "page.html")
    opened.check_quiet()
    sections = opened.page.locator("main > section").all()
    assert [one.get_attribute("id") for one in sections[:2]] == ["asked", "graph"]
    assert "x0 raised by 1" in sections[0].inner_text()


SCROLLED = """() => {
  const place = document.querySelector("#parties .scroll");
  place.scrollLeft = place.scrollWidth;
  const edges = place.getBoundingClientRect();
  const cells = [...place.querySelectorAll("tbody tr")].map((row) => row.cells);
  return {
    moved: place.scrollLeft,
    hint: !document.querySelector("#parties .wider").hidden,
    // The party's name and the last column are in sight together.
    seen: cells.every((row) => [row[0], row[row.length - 1]].every((cell) => {
      const box = cell.getBoundingClientRect();
      return box.left >= edges.left - 1 && box.right <= edges.right + 1;
    })),
    cut: cells.some((row) => [...row].some((cell) => cell.scrollWidth > cell.clientWidth + 1)),
  };
}"""


@pytest.mark.parametrize(("width", "wide"), [(1280, False), (400, True)])
def test_a_table_that_is_wider_than_the_screen_says_so(chromium, admm_run, tmp_path, width, wide):
    files = {name: f"hospital-number-{k}.csv" for k, name in enumerate(admm_run.parties)}
    run = replace(admm_run, sources=files)
    opened = Page(chromium, run.report(tmp_path / "page.html"), width)
    opened.read()
    found = opened.page.evaluate(SCROLLED)
    assert found == {"moved": found["moved"], "hint": wide, "seen": True, "cut": False}
    assert (found["moved"] > 0) == wide


CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map(
      (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [];
  for (const one of document.querySelectorAll("body *:not(svg *):not(script):not(style)")) {
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (!one.checkVisibility() || one.closest(".plot summary")) continue;
    let back = one;
    while (parse(getComputedStyle(back).backgroundColor)[3] === 0) back = back.parentElement;
    const values = [one, back].map((each, k) =>
      light(parse(getComputedStyle(each)[k ? "backgroundColor" : "color"]).slice(0, 3)));
    const [bright, dim] = values.sort((a, b) => b - a);
    if ((bright + 0.05) / (dim + 0.05) < 4.5) low.push(one.textContent.slice(0, 40));
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(chromium, admm_run, tmp_path, scheme):
    run = replace(admm_run, warnings=["Few rows."])
    opened = Page(chromium, run.report(tmp_path / "page.html"))
    opened.page.emulate_media(color_scheme=scheme)
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 18, 18)"}[scheme]
    assert opened.page.evaluate(CONTRASTS) == []
    # Paper is white again, and as wide as A4 without margins.
    opened.page.emulate_media(color_scheme=scheme, media="print")
    opened.page.set_viewport_size({"width": 730, "height": 1000})
    opened.read()
    opened.check_quiet()
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"


def test_the_controls_change_the_picture(chromium, tmp_path):
    weights = np.zeros((5, 5))
    weights[0, 1], weights[1, 2], weights[2, 3], weights[3, 4] = 2.0, -1.5, 1.0, 0.5
    raw = weights.copy()
    raw[0, 4] = 0.2
    graph = CausalGraph(
        tuple("abcde"),
        weights,
        raw_weights=raw,
        confidence=np.abs(weights) / 2,
        required=weights == 0.5,
    )
    truth = CausalGraph.from_array(
        np.eye(5, k=1)[:, ::1] * [[1], [1], [1], [0], [0]], tuple("abcde")
    )
    opened = Page(chromium, bare(graph, truth=truth).report(tmp_path / "page.html"))
    page = opened.page
    assert opened.edges() == 4
    before = page.locator(".picture").inner_html()
    opened.set("count", 2)
    assert opened.edges() == 2
    assert page.locator(".picture").inner_html() != before
    opened.set("count", 4)
    opened.set("strength", 1.2)
    assert opened.edges() == 2
    opened.set("strength", 0)
    opened.set("confidence", 0.6)
    assert opened.edges() == 2
    opened.set("confidence", 0)
    page.check("#graph-leftOut")
    page.wait_for_timeout(120)
    assert opened.edges() == 5
    page.uncheck("#graph-leftOut")
    opened.set("centre", "a")
    assert opened.edges() == 1
    assert page.locator(".node").count() == 2
    page.get_by_role("button", name="Undo all choices").click()
    page.wait_for_timeout(120)
    assert opened.edges() == 4
    # Known by more than their colour: dashes and a sign for the extra edge.
    shape = page.locator(".edge", has_text="extra: not in the truth")
    assert shape.locator("path").first.get_attribute("stroke-dasharray")
    assert shape.locator("text").text_content() == "required +"
    # By keyboard: a variable's neighbours, and back.
    page.locator(".node").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(120)
    assert opened.edges() < 4
    page.keyboard.press("Escape")
    page.wait_for_timeout(120)
    assert opened.edges() == 4
    view = page.locator(".picture > svg").get_attribute("viewBox")
    page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".picture > svg").get_attribute("viewBox") != view
    # The table sorts and filters.
    rows = page.locator("#edges tbody tr")
    page.locator("#edges th button", has_text="weight").first.click()
    assert rows.first.locator("td").nth(3).inner_text() == "2"
    for kind in ("SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save the picture as {kind}").click()
        saved = download.value.path().read_bytes()
        assert saved.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    opened.check_quiet()


def test_plots_show_their_values_and_are_saved(chromium, tmp_path):
    rows = pd.DataFrame({"x": [0.0, 1.0, 2.0, 5.0] * 20, "c": [*"aaab"] * 20})
    run = simulate("describe", [rows, rows])
    opened = Page(chromium, run.report(tmp_path / "page.html"))
    opened.read()
    plots = opened.page.locator("#description .plot", has=opened.page.locator("h3"))
    states = plots.filter(has_text="c").locator("svg rect:has(title)")
    assert states.locator("title").all_text_contents() == ["a: 120", "b: 40"]
    high, low = (one.bounding_box()["height"] for one in states.all())
    assert high == pytest.approx(3 * low, rel=0.02)
    plots.first.locator("summary").click()
    for kind in ("SVG", "PNG"):
        with opened.page.expect_download() as download:
            plots.first.get_by_role("button", name=f"Save the plot as {kind}").click()
        saved = download.value.path().read_bytes()
        assert saved.startswith(b"<svg" if kind == "SVG" else b"\x89PNG")
    opened.check_quiet()


DRAWN = """() => {
  const page = (points, log) => plots.line(300, { points, log }, "exchange");
  const marks = (svg) => [...svg.querySelectorAll("text")].map((one) => one.textContent);
  const cells = plots.heat(600, {
    unit: "weight", axes: ["cause", "effect"], names: ["a", "b"], cells: [[0, 1, -2], [1, 0, 1]],
  });
  return {
    powers: marks(page([[1, 1e-3], [2, 1e-1], [3, 10]], true)),
    numbers: marks(page([[1, 2], [2, 3]], false)),
    one: marks(page([[1, 0]], false)).length,
    colours: [...cells.querySelectorAll("rect:has(title)")].map((one) => one.getAttribute("fill")),
    titles: [...cells.querySelectorAll("title")].map((one) => one.textContent),
  };
}"""


def test_axes_and_colours_of_plots(chromium, tmp_path):
    opened = Page(chromium, bare(full_graph()).report(tmp_path / "page.html"))
    found = opened.page.evaluate(DRAWN)
    assert found["powers"] == ["0.001", "0.01", "0.1", "1", "10", "exchange", "1", "2", "3"]
    assert found["numbers"] == ["0", "1", "2", "3", "exchange", "1", "2"]
    assert found["one"] > 1
    # The largest value has the strong colour of its sign, a smaller one a paler colour.
    assert found["colours"] == ["rgb(148,56,8)", "rgb(124,153,187)"]
    assert found["titles"] == ["cause a, effect b: -2", "cause b, effect a: 1"]
    opened.check_quiet()


def test_time_slices_are_drawn(chromium, tmp_path):
    graph = full_graph()
    opened = Page(chromium, bare(graph).report(tmp_path / "page.html"))
    assert opened.page.locator(".node").count() == 3
    opened.page.select_option("#graph-view", "slices")
    opened.page.wait_for_timeout(150)
    assert opened.page.locator(".node").count() == 9
    assert opened.edges() == graph.num_edges + graph.num_lagged_edges
    opened.check_quiet()


def test_a_large_graph_opens_soon(chromium, tmp_path):
    rng = np.random.default_rng(0)
    weights = np.zeros((200, 200))
    upper = np.argwhere(np.triu(np.ones((200, 200)), 1))
    for i, j in upper[rng.choice(len(upper), 400, replace=False)]:
        weights[i, j] = rng.uniform(0.5, 2.0)
    graph = CausalGraph.from_array(weights)
    opened = Page(chromium, bare(graph).report(tmp_path / "page.html"))
    # It takes less than a second; other tests run at the same time.
    assert opened.seconds < 10
    assert opened.edges() == 60
    opened.set("count", 400)
    opened.page.wait_for_timeout(500)
    assert opened.edges() == 400
    opened.check_quiet()
