"""Layouts and pictures: nothing overlaps, nothing is lost, every kind of graph can be drawn."""

import builtins
import subprocess
import sys
import warnings
from dataclasses import replace
from io import StringIO

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from small_graphs import CHAIN, dags, matrix

from flwr_causal.core.graphs import drawing
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.layout import layered_layout
from flwr_causal.errors import ConfigError


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def arrows(ax):
    return [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]


def heads(ax):
    return [type(patch.get_arrowstyle()).__name__ for patch in arrows(ax)]


def box_centres(ax):
    centres = {}
    boxes = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    for box, text in zip(boxes, ax.texts[-len(boxes) :], strict=True):
        centres[text.get_text()] = (
            box.get_x() + box.get_width() / 2,
            box.get_y() + box.get_height() / 2,
        )
    return centres


@given(dags(9))
def test_layers_put_causes_above_and_boxes_apart(dag):
    widths = np.linspace(0.3, 2.0, 9)
    positions, routes = layered_layout(dag, widths, 0.3)
    assert np.isfinite(positions).all()
    assert set(routes) == {tuple(edge) for edge in np.argwhere(dag).tolist()}
    for i, j in routes:
        assert positions[i, 1] > positions[j, 1] + 0.3
        heights = [positions[i, 1], *routes[i, j][:, 1], positions[j, 1]]
        assert (np.diff(heights) < 0).all()
    for i in range(9):
        for j in range(i):
            apart_x = abs(positions[i, 0] - positions[j, 0]) - (widths[i] + widths[j]) / 2
            apart_y = abs(positions[i, 1] - positions[j, 1]) - 0.3
            assert max(apart_x, apart_y) > 0.05


def test_crossings_that_can_be_avoided_are_avoided():
    # Drawn in the given order, the two edges 0 -> 3 and 1 -> 2 cross.
    positions, _ = layered_layout(matrix(4, (0, 3), (1, 2)), np.full(4, 0.5), 0.3)
    assert (positions[0, 0] - positions[1, 0]) * (positions[3, 0] - positions[2, 0]) > 0


def test_long_edges_pass_beside_the_boxes_on_their_way():
    dag = matrix(3, (0, 1), (1, 2), (0, 2))
    positions, routes = layered_layout(dag, np.full(3, 1.0), 0.3)
    (waypoint,) = routes[0, 2]
    assert waypoint[1] == positions[1, 1]
    assert abs(waypoint[0] - positions[1, 0]) > 0.5


def test_a_picture_has_every_name_and_edge_with_its_sign_and_strength():
    graph = CausalGraph(("cause", "$middle$", "alone"), [[0, -2, 0], [0, 0, 0], [0, 0, 0]])
    ax = graph.draw()
    assert list(box_centres(ax)) == ["cause", "$middle$", "alone"]
    (arrow,) = arrows(ax)
    assert to_hex(arrow.get_edgecolor()) == drawing.NEGATIVE
    strong_and_weak = CausalGraph(("a", "b", "c"), [[0, 2, 0.5], [0, 0, 0], [0, 0, 0]]).draw()
    thick, thin = (arrow.get_linewidth() for arrow in arrows(strong_and_weak))
    assert thick > thin
    assert to_hex(arrows(strong_and_weak)[0].get_edgecolor()) == drawing.POSITIVE


def test_undirected_edges_are_one_line_without_a_head():
    pattern = CausalGraph.from_array(matrix(4, (0, 2), (1, 2), (2, 3))).to_cpdag()
    assert heads(pattern.draw()) == ["CurveFilledB"] * 3
    chain = CausalGraph.from_array(CHAIN).to_cpdag()
    assert heads(chain.draw()) == ["Curve"] * 2


def test_the_edges_of_a_class_are_labelled_with_their_confidence():
    chain = CausalGraph(
        ("a", "b", "c", "d"), matrix(4, (0, 1), (1, 0), (1, 2), (3, 2)), kind="cpdag"
    )
    confidence = np.zeros((4, 4))
    confidence[0, 1], confidence[1, 0], confidence[1, 2], confidence[3, 2] = 0.25, 0.5, 1, 0.125
    confidence[2, 1] = 0.75  # of an edge that is not there
    texts = {
        text.get_text()
        for text in replace(chain, confidence=confidence).draw(edge_labels=True).texts
    }
    assert texts == {"a", "b", "c", "d", "0.5", "1", "0.12"}
    assert len(chain.draw(edge_labels=True).texts) == 4


def test_cyclic_graphs_loops_and_required_edges_can_be_drawn():
    weights = np.array([[0, 1.0, 0], [0.5, 0, 1], [1, 0, 0.3]])
    graph = CausalGraph(
        ("a", "b", "c"), weights, kind="summary", required=matrix(3, (2, 1)).astype(bool)
    )
    ax = graph.draw(edge_labels=True)
    assert len(arrows(ax)) == graph.num_edges == 6
    square = matrix(4, (0, 1), (1, 2), (2, 3), (3, 0))
    no_class = CausalGraph.from_array(square | square.T, kind="cpdag").draw()
    assert heads(no_class) == ["Curve"] * 4


def test_lags_are_unrolled_from_left_to_right():
    lagged = np.zeros((2, 2, 2))
    lagged[0, 0, 0] = lagged[1, 1, 0] = 1
    graph = CausalGraph(("a", "b"), [[0, 1], [0, 0]], lagged=lagged)
    ax = graph.draw()
    centres = box_centres(ax)
    assert list(centres) == ["a[t-2]", "b[t-2]", "a[t-1]", "b[t-1]", "a[t]", "b[t]"]
    assert centres["a[t-2]"][0] < centres["a[t-1]"][0] < centres["a[t]"][0]
    assert centres["a[t]"][1] > centres["b[t]"][1]
    assert len(arrows(ax)) == 3


def test_lagged_edges_have_sign_strength_label_and_miss_the_boxes_between():
    lagged = np.zeros((2, 3, 3))
    lagged[1, 0, 0], lagged[0, 2, 1] = -0.75, 0.25
    graph = CausalGraph(("a", "b", "c"), np.zeros((3, 3)), lagged=lagged)
    ax = graph.draw(edge_labels=True)
    short, far = arrows(ax)
    assert to_hex(far.get_edgecolor()) == drawing.NEGATIVE
    assert to_hex(short.get_edgecolor()) == drawing.POSITIVE
    assert far.get_linewidth() > short.get_linewidth()
    assert {"0.25", "-0.75"} <= {text.get_text() for text in ax.texts}
    # a[t-2] -> a[t] passes the slice t-1 between its boxes, not through that of a.
    middle = next(p for p in ax.patches if isinstance(p, FancyBboxPatch) and p.get_x() > 0.5)
    x, y = middle.get_x() + middle.get_width() / 2, middle.get_y()
    way = far.get_path().to_polygons(closed_only=False)[0]
    beside = way[np.abs(way[:, 0] - x) < middle.get_width() / 2]
    outside = (beside[:, 1] < y) | (beside[:, 1] > y + middle.get_height())
    assert len(beside)
    assert outside.all()


def test_a_summary_with_loops_has_one_arrow_for_each_edge():
    lagged = np.zeros((2, 3, 3))
    lagged[0, 0, 0] = lagged[1, 0, 1] = lagged[0, 1, 0] = 1
    summary = CausalGraph(("a", "b", "c"), np.zeros((3, 3)), lagged=lagged).summary()
    ax = summary.draw()
    assert list(box_centres(ax)) == ["a", "b", "c"]
    assert len(arrows(ax)) == 3


def test_everything_lies_inside_the_axes():
    rng = np.random.default_rng(0)
    weights = np.triu(rng.normal(size=(12, 12)) * (rng.random((12, 12)) < 0.3), 1)
    ax = CausalGraph.from_array(weights).draw()
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    for patch in ax.patches:
        extents = patch.get_path().get_extents()
        if isinstance(patch, FancyBboxPatch):
            assert left <= extents.x0 <= extents.x1 <= right
            assert bottom <= extents.y0 <= extents.y1 <= top


def test_given_axes_are_used_and_letters_shrink_to_fit():
    figure, (small, _) = plt.subplots(1, 2, figsize=(3, 1))
    graph = CausalGraph.from_array(np.triu(np.ones((6, 6)), 1))
    assert graph.draw(small) is small
    assert small.figure is figure
    assert small.texts[-1].get_fontsize() < 10
    assert graph.draw().texts[-1].get_fontsize() == 10


def test_edge_labels_and_other_names():
    graph = CausalGraph(("a", "b"), [[0, 0.123], [0, 0]])
    ax = graph.draw(labels={"a": "dose"}, edge_labels=True)
    assert {text.get_text() for text in ax.texts} == {"dose", "b", "0.12"}


@pytest.mark.parametrize("size", [0, 1, 2])
def test_tiny_and_empty_graphs(size):
    ax = CausalGraph.from_array(np.zeros((size, size))).draw()
    assert len(box_centres(ax)) == size


def test_a_picture_can_be_saved_without_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CausalGraph.from_array(CHAIN).draw().figure.savefig(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 1000


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    real_import = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "flwr_causal.core.graphs.drawing")
    monkeypatch.delattr("flwr_causal.core.graphs.drawing")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'pip install "flwr-causal\[plot\]"'):
        CausalGraph.from_array(CHAIN).draw()


def test_matplotlib_is_not_imported_before_something_is_drawn():
    code = "import sys, flwr_causal.core.graphs.graph; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_heat_maps_of_every_lag():
    required = np.array([[False, False], [True, False]])
    lagged = [[[0.0, -2.0], [0.0, 0.5]]]
    graph = CausalGraph(("a", "b"), [[0, 1.0], [0, 0]], "summary", lagged=lagged, required=required)
    figure = graph.draw_matrix()
    now, past, _ = figure.axes
    assert [ax.get_title() for ax in (now, past)] == ["no lag", "lag 1"]
    np.testing.assert_array_equal(now.images[0].get_array(), graph.weights)
    np.testing.assert_array_equal(past.images[0].get_array(), graph.lagged[0])
    assert now.images[0].get_clim() == past.images[0].get_clim() == (-2.0, 2.0)
    assert [text.get_text() for text in now.get_yticklabels()] == ["a", "b"]
    assert now.lines[0].get_xydata().tolist() == [[0, 1]]  # column a, row b: the required edge
    blue, orange = (to_hex(now.images[0].cmap(share)) for share in (1.0, 0.0))
    assert (blue, orange) == (drawing.POSITIVE, drawing.NEGATIVE)
    figure.savefig(StringIO(), format="svg")
