"""A run survives its way through a directory."""

import json
from dataclasses import fields, replace
from importlib.metadata import EntryPoint

import numpy as np
import pandas as pd
import pytest

from flwr_causal.app.job import execute
from flwr_causal.core.circuits.learners.spn.learn_spn import learn_spn
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.data.read.bif import read_bif
from flwr_causal.data.synthetic.discrete import random_network
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.party.options import METHODS_GROUP
from flwr_causal.reports import run as run_module
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.run import Run
from flwr_causal.runtime.loop import plain_options
from flwr_causal.simulations import simulate
from flwr_causal.strategies import Moments

BARE = {
    "graph": None,
    "history": [],
    "rounds": 0,
    "bytes_sent": 0,
    "bytes_received": 0,
    "schema_bytes": 0,
    "seconds": 0.0,
    "stop_reason": "",
}


def same(one, two):
    for field in fields(Run):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if field.name in ("graph", "truth", "disagreement"):
            assert first is second or first.equals(second)
        elif field.name == "scores":
            assert first is second or np.array_equal(first, second)
        elif field.name == "model":
            assert type(first) is type(second)
            if isinstance(first, BayesianNetwork):
                for part in ("names", "states", "parents"):
                    assert getattr(first, part) == getattr(second, part)
                for one_table, two_table in zip(first.tables, second.tables, strict=True):
                    assert np.array_equal(one_table, two_table)
            elif first is not None:
                assert first.names == second.names
                for part in ("weights", "intercepts", "noise_variances", "lagged"):
                    assert np.array_equal(getattr(first, part), getattr(second, part))
        else:
            assert first == second, field.name


@pytest.mark.parametrize("fixture", ["admm_run", "moments_run"])
def test_round_trip(fixture, request, tmp_path):
    run = request.getfixturevalue(fixture)
    directory = run.save(tmp_path / "deep" / "out")
    same(run, Run.load(directory))
    same(run, Run.load(str(directory)))


def test_numbers_keep_all_their_digits(tmp_path):
    rng = np.random.default_rng(0)
    scores = np.abs(rng.normal(size=(3, 3))) * 10.0 ** rng.integers(-300, 300, (3, 3))
    names = ("NA", "a,b", 'c"d')
    graph = CausalGraph(names, np.triu(rng.normal(size=(3, 3)), 1))
    history = [{"round": 1, "h": 1 / 3, "phase": "train", "consensus": 5e-324}]
    run = Run(**{**BARE, "graph": graph, "history": history}, scores=scores)
    same(run, Run.load(run.save(tmp_path)))


def test_a_run_without_a_graph(tmp_path):
    run = Run(**BARE, error="no quorum", failures=[{"round": 1, "party": "a", "reason": "b"}])
    same(run, Run.load(run.save(tmp_path)))
    assert run.summary()["status"] == "failed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.jsonl", "run.json"]


def test_the_files(admm_run, tmp_path):
    admm_run.save(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["status"] == "completed"
    assert content["config"]["method"] == "notears-admm"
    assert {"flwr-causal", "flwr", "numpy"} <= set(content["versions"])
    assert content["versions"]["numpy"] == np.__version__
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(1, admm_run.rounds + 1))
    edges = pd.read_csv(tmp_path / "edges.csv")
    assert len(edges) == admm_run.graph.num_edges
    scores = pd.read_csv(tmp_path / "scores.csv", index_col=0)
    assert list(scores.columns) == list(scores.index) == list(admm_run.graph.names)


def test_saving_again_replaces_what_was_there(admm_run, moments_run, tmp_path):
    """No file of an earlier run may pass for one of the later run."""
    admm_run.save(tmp_path)
    same(moments_run, Run.load(moments_run.save(tmp_path)))
    failed = Run(**BARE, error="no quorum")
    same(failed, Run.load(failed.save(tmp_path)))


def test_a_network_is_kept_exactly_and_for_other_programs(admm_run, tmp_path):
    network = random_network(5, seed=0)
    pattern = network.graph.to_cpdag()
    run = Run(**{**BARE, "graph": pattern}, model=network, scores=pattern.weights)
    loaded = Run.load(run.save(tmp_path))
    same(run, loaded)
    assert loaded.graph.kind == "cpdag"
    same(
        run,
        Run(
            **{**BARE, "graph": run.graph},
            model=read_bif(tmp_path / "model.bif"),
            scores=run.scores,
        ),
    )
    frame = network.sample(20, 0)
    assert np.array_equal(loaded.model.log_likelihood(frame), network.log_likelihood(frame))
    # The network of an earlier run must not pass for a part of this one.
    admm_run.save(tmp_path)
    assert not (tmp_path / "model.bif").exists()


def test_a_model_with_lags_is_kept_exactly(admm_run, tmp_path):
    rng = np.random.default_rng(0)
    weights, lagged = np.triu(rng.normal(size=(3, 3)), 1), rng.normal(size=(2, 3, 3)) / 9
    graph = CausalGraph(("a", "b", "c"), weights, lagged=lagged)
    model = LinearModel(
        graph.names, weights, rng.normal(size=3), rng.uniform(size=3), lagged=lagged
    )
    run = Run(**{**BARE, "graph": graph}, model=model)
    loaded = Run.load(run.save(tmp_path))
    same(run, loaded)
    series = model.sample(20, seed=0)
    assert np.array_equal(loaded.model.predict(series), model.predict(series))
    # A later run's model takes its place.
    same(admm_run, Run.load(admm_run.save(tmp_path)))


class Mean:
    """A model of another package."""

    def __init__(self, value):
        self.value = value

    def save(self, path):
        path.write_text(repr(self.value))

    @classmethod
    def load(cls, path):
        return cls(float(path.read_text()))


def test_a_model_says_itself_how_it_is_kept(tmp_path):
    saved = Run(**BARE, model=Mean(0.1)).save(tmp_path)
    loaded = Run.load(saved, models=[Mean])
    assert (type(loaded.model), loaded.model.value) == (Mean, 0.1)
    # A model without the two methods is not kept.
    assert Run.load(Run(**BARE, model=object()).save(tmp_path / "other")).model is None
    content = json.loads((tmp_path / "run.json").read_text())
    for name, words in (
        (content["model"], f"'{content['model']}', which is of no package.*models="),
        ("nowhere.models:Mean", "'nowhere.models:Mean', which is of no package"),
        ("flwr_causalx.models:Mean", "is of no package"),
        ("flwr_causal.nowhere:Mean", "'flwr_causal.nowhere:Mean', which cannot be.*install the"),
        ("flwr_causal.reports.run:Means", "cannot be imported"),
        ("flwr_causal.reports.run:write_csv", "is no class with 'load'"),
        # Another module's class, under the name of one that imports it.
        ("flwr_causal.reports.run:CausalGraph", "is no class with 'load'"),
    ):
        (tmp_path / "run.json").write_text(json.dumps({**content, "model": name}))
        with pytest.raises(DataError, match=words):
            Run.load(tmp_path)


def test_a_directory_without_a_run(tmp_path):
    with pytest.raises(DataError, match=r"holds no run.*run\.json"):
        Run.load(tmp_path)
    with pytest.raises(DataError, match="holds no run"):
        Run.load(tmp_path / "nowhere")


def test_a_graph_can_be_thresholded_after_loading(admm_run, tmp_path):
    graph = Run.load(admm_run.save(tmp_path)).graph
    assert graph.threshold(0.9).equals(admm_run.graph.threshold(0.9))


def test_the_model_samples_scores_and_predicts(moments_run, federation):
    sample = moments_run.model.sample(4000, seed=0)
    pooled = federation.pooled
    spread = np.sqrt(pooled.var(axis=0))
    np.testing.assert_allclose(sample.mean(axis=0), pooled.mean(axis=0), atol=0.15 * spread.max())
    likelihood = moments_run.model.log_likelihood(federation.tables[0])
    assert likelihood.shape == (80,)
    effect = federation.tables[0].columns[np.flatnonzero(federation.weights.any(axis=0))[0]]
    predicted = moments_run.model.predict(federation.tables[0], effect)
    actual = federation.tables[0][effect]
    assert np.corrcoef(predicted, actual)[0, 1] > 0.5


def test_effects_are_those_of_the_model(moments_run):
    cause, effect, _ = moments_run.graph.edges()[0]
    assert moments_run.total_effect(cause, effect) == moments_run.model.total_effect(cause, effect)
    with pytest.raises(ConfigError, match=r"no model with total_effect.*notears-admm"):
        replace(moments_run, model=None).total_effect(cause, effect)


def test_print_is_short_and_has_the_strongest_edges():
    weights = np.triu(np.arange(1.0, 101.0).reshape(10, 10), 1)
    graph = CausalGraph.from_array(weights)
    run = Run(
        **{**BARE, "graph": graph, "stop_reason": "it converged"},
        config={"method": "moments"},
        parties={"a": 3, "b": 4},
        metrics={"shd": 2, "pooled": {"shd": 1}},
        warnings=["word " * 200],
    )
    lines = str(run).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) < 280
    assert lines[0] == run.headline
    assert lines[1] == "moments, completed: it converged"
    assert "2 parties, 7 rows" in lines[2]
    assert "x8 -> x9" in lines[4]
    assert "40 more" in lines[9]
    assert len(repr(run)) < 100
    assert "moments" in repr(run)


def test_print_counts_the_warnings_and_says_where_they_are():
    run = Run(**BARE, warnings=["the first one", "the second one", "the third one"])
    assert str(run).splitlines()[-1] == "Warnings: 3, in run.warnings; the first: the first one"
    assert "arning" not in str(Run(**BARE))


def test_strengths_have_no_sign(moments_run):
    """Of nonlinear models a weight says how strong an effect is, not its direction."""
    plain = replace(moments_run, config=moments_run.config | {"model": "mlp"})
    assert "  +" in str(moments_run)
    assert "  +" not in str(plain)
    assert payload_of(plain)["graph"]["unsigned"]
    assert not payload_of(moments_run)["graph"]["unsigned"]


def test_notebook_shows_names_as_text_and_a_picture():
    graph = CausalGraph(("<b>", "y"), [[0, 2.0], [0, 0]])
    shown = Run(**{**BARE, "graph": graph})._repr_html_()
    assert "<b>&lt;b&gt;" not in shown
    assert "<td>&lt;b&gt;</td><td>-&gt;</td><td>y</td><td>+2</td>" in shown
    assert shown.count('src="data:image/svg+xml;base64,') == 1
    assert "<script" not in shown
    large = CausalGraph.from_array(np.triu(np.ones((61, 61)), 1))._repr_html_()
    assert "The 30 strongest edges" in large
    assert large.count("<img") == 1
    assert "and 1815 more edges" in large
    assert "<table" not in CausalGraph.from_array(np.zeros((2, 2)))._repr_html_()


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("moments", {}, ("LinearModel: 5 variables", "drawing of the graph")),
        ("fedges", {"discretize": 3}, ("BayesianNetwork", "<th>states</th>", "drawing of")),
    ],
)
def test_models_in_a_notebook(federation, method, options, words):
    model = simulate(method, federation.tables, **options).model
    shown = model._repr_html_()
    assert all(word in shown for word in words)
    assert len(repr(model)) < 100


def test_models_over_time_and_circuits_in_a_notebook():
    lagged = LinearModel(
        ("a", "b"), np.zeros((2, 2)), *np.ones((2, 2)), lagged=0.5 * np.eye(2)[None]
    )
    assert repr(lagged) == "<LinearModel: 2 variables, 1 lags, 2 edges>"
    assert "a[t-1]" in lagged._repr_html_()
    table = pd.DataFrame({"<x>": np.arange(60.0), "c": ["u", "v"] * 30})
    shown = learn_spn(table)._repr_html_()
    assert "<td>&lt;x&gt;</td><td>number</td>" in shown
    assert "<td>c</td><td>u, v</td>" in shown


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    import flwr_causal

    assert flwr_causal.__version__ == version("flwr-causal")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"{}"),
        ("run.json", b"[]"),
        ("run.json", b"\xff"),
        ("run.json", b"[" * 100_000),
        ("history.jsonl", b"{\n"),
        ("history.jsonl", None),
        ("graph.json", b"[" * 100_000),
        ("graph.json", b"\xff"),
        ("scores.csv", b""),
        ("scores.csv", b",a\nb,x\n"),
        ("model.json", b"[" * 100_000),
        ("disagreement.csv", b"a,b\n"),
    ],
)
def test_a_damaged_file_of_a_run_is_an_error_of_the_data(name, content, moments_run, tmp_path):
    moments_run.save(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"damaged|is not JSON"):
        Run.load(tmp_path)


def test_a_package_that_declares_a_method_has_models_of_its_own(tmp_path, monkeypatch):
    """Its modules are imported in any case, when the method runs."""
    saved = Run(**BARE, model=Mean(0.1)).save(tmp_path)
    assert Run.load(saved, models=[f"{Mean.__module__}.more"]).model.value == 0.1
    for module, known in ((Mean.__module__, True), (f"{Mean.__module__}.more", True), ("x", False)):
        point = EntryPoint("mine", f"{module}:METHOD", METHODS_GROUP)
        monkeypatch.setattr(run_module, "entry_points", lambda group, point=point: [point])
        if known:
            assert Run.load(saved).model.value == 0.1
            continue
        with pytest.raises(DataError, match="is of no package"):
            Run.load(saved)


class OwnMoments(Moments):
    """A method of this module."""


def test_a_completed_run_of_an_own_method_is_loaded_where_it_is_resumed(tmp_path):
    """Whoever runs the method lets its package run code."""
    method = OwnMoments(output_dir=str(tmp_path), resume=True)
    saved = Run(**BARE, model=Mean(0.1), config=plain_options(method))
    saved.save(tmp_path)
    assert execute(method, grid=None).model.value == 0.1


def test_no_module_is_imported_for_a_model_that_is_not_known(tmp_path, monkeypatch):
    saved = Run(**BARE).save(tmp_path / "run")
    (tmp_path / "harm_of_a_run.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    content = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps({**content, "model": "harm_of_a_run:Model"}))
    with pytest.raises(DataError, match="is of no package"):
        Run.load(saved)


def test_names_with_a_zero_byte(moments_run, tmp_path):
    for write in (
        lambda: moments_run.save(tmp_path / "a\0b"),
        lambda: moments_run.report(tmp_path / "a\0b" / "page.html"),
        lambda: moments_run.report(tmp_path / "a\0b.html"),
        lambda: simulate("moments", [np.eye(3)] * 2, output_dir=str(tmp_path / "a\0b")),
    ):
        with pytest.raises(ConfigError, match=r"its name holds a zero byte.*another"):
            write()
    assert not list(tmp_path.iterdir())
