"""FedPC by composition: parties keep their circuits, and answer for them."""

from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from federations import spy

from flwr_causal import simulate
from flwr_causal.clients.fedpc import FedPCClient
from flwr_causal.data.partition import hold_out, split, split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.sources.own_circuits import own_circuits
from flwr_causal.strategies import run
from flwr_causal.strategies.fedpc.fedpc import FedPC

COLUMNS = ["mean radius", "mean texture", "mean smoothness", "mean symmetry", "area error"]
COLUMNS += ["worst concavity"]


@pytest.fixture(scope="module")
def table():
    return breast_cancer()[[*COLUMNS, "target"]]


@pytest.fixture(scope="module")
def vertical(table):
    return hold_out(split_columns(table, 2, "vertical", target="target", seed=1), 0.25)


@pytest.fixture(scope="module")
def hybrid(table):
    return hold_out(split_columns(table, 3, "hybrid", target="target", seed=1), 0.25)


@pytest.fixture(scope="module")
def horizontal(table):
    return hold_out(split(table, 3, "even", seed=1), 0.25)


def composed(tables, **options):
    return simulate("fedpc", tables, **({"training": "one-pass"} | options))


@pytest.fixture(scope="module")
def trained(request):
    """Circuits of a pattern's tables, trained once for all tests that only ask them."""

    @cache
    def model(pattern, queries="federated"):
        return composed(request.getfixturevalue(pattern)[0], queries=queries).model

    return model


@pytest.mark.parametrize(
    "pattern", ["horizontal", pytest.param("vertical", marks=pytest.mark.nightly), "hybrid"]
)
def test_federated_is_central(pattern, request, trained):
    _, test = request.getfixturevalue(pattern)
    test = test.iloc[:12].reset_index(drop=True)
    holes = test.copy()
    rng = np.random.default_rng(0)
    for name in COLUMNS:
        holes.loc[rng.random(len(test)) < 0.3, name] = np.nan
    federated, central = trained(pattern), trained(pattern, "central")
    for rows in (test, holes):
        np.testing.assert_allclose(
            federated.log_likelihood(rows), central.log_likelihood(rows), rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(
            federated.predict_proba(rows), central.predict_proba(rows), atol=1e-10
        )
        assert (federated.predict(rows) == central.predict(rows)).all()
        ours, theirs = (model.moments("mean texture", rows) for model in (federated, central))
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
        pd.testing.assert_frame_equal(federated.mpe(rows), central.mpe(rows))
    evidence = {"mean radius": 14.0, "target": "benign"}
    one, other = federated.conditional(evidence), central.conditional(evidence)
    rest = test.drop(columns=["mean radius", "target"])
    ours, theirs = one.log_likelihood(rest), other.log_likelihood(rest)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    names = ["mean texture", "worst concavity"]
    np.testing.assert_allclose(
        federated.marginal(names).log_likelihood(test),
        central.marginal(names).log_likelihood(test),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.slow
def test_sampling_agrees(trained):
    federated, central = trained("vertical"), trained("vertical", "central")
    ours, theirs = federated.sample(4000, seed=1), central.sample(4000, seed=2)
    assert list(ours.columns) == list(theirs.columns) == list(federated.names)
    pd.testing.assert_frame_equal(ours, federated.sample(4000, seed=1))
    for name in COLUMNS:
        error = theirs[name].std() / np.sqrt(4000)
        assert abs(ours[name].mean() - theirs[name].mean()) < 6 * error
    assert abs((ours["target"] == "benign").mean() - (theirs["target"] == "benign").mean()) < 0.05
    # The dependence between columns of different parties is in the draws.
    given = federated.sample(50, seed=0, given={"target": "malignant"})
    assert set(given["target"]) == {"malignant"}
    assert given["mean radius"].mean() > ours["mean radius"].mean()


@pytest.mark.slow
def test_what_aligned_rows_add(table):
    """Accuracy .95 / .70 and nats -14.8 / -16.6 when measured."""
    tables, test = hold_out(split_columns(table, 2, "vertical", target="target", seed=1), 0.25)
    nats, accuracy = {}, {}
    for weights in ("em", "counts"):
        model = composed(tables, weights=weights).model
        nats[weights] = model.log_likelihood(test).mean()
        accuracy[weights] = (model.predict(test) == test["target"]).mean()
    assert nats["em"] > nats["counts"] + 0.5
    assert accuracy["em"] > 0.88


@pytest.mark.slow
def test_the_order_of_rows_does_not_matter(vertical):
    tables, test = vertical
    shuffled = [t.sample(frac=1, random_state=k, ignore_index=True) for k, t in enumerate(tables)]
    one, other = (composed(t, weights="em").model for t in (tables, shuffled))
    assert abs(one.log_likelihood(test).mean() - other.log_likelihood(test).mean()) < 0.5


@pytest.mark.slow
def test_circuits_stay_with_the_parties(vertical):
    tables, test = vertical
    grid = spy(tables, {"fedpc": FedPCClient})
    method = FedPC(target="target", training="one-pass", min_available_nodes=2)
    model = run(method, grid).model
    phases = [records.config_of(m.content).get("exchange") for m in grid.sent[2:]]
    assert list(dict.fromkeys(phases)) == ["align", "local, weights by em"]
    assert all("circuits" not in records.arrays_of(reply.content) for reply in grid.replies[2:])
    for message in grid.sent[2:]:
        assert "secret" not in str(records.config_of(message.content)).lower()
    hashes = [records.arrays_of(reply.content)["hashes"] for reply in grid.replies[2:4]]
    assert all(one.shape[1] == 16 for one in hashes)
    before = len(grid.replies)
    model.log_likelihood(test)
    sent = [records.arrays_of(reply.content) for reply in grid.replies[before:]]
    assert {name for arrays in sent for name in arrays} == {"densities"}


@pytest.mark.slow
def test_an_earlier_training_is_asked_again(vertical, tmp_path):
    from flwr_causal.clients import Source, client_app
    from flwr_causal.runtime.local_grid import LocalGrid

    tables, test = vertical

    def grid(names=("a", "b")):
        configs = [
            {
                "model-path": str(tmp_path / f"{name}.npz"),
                "number": k,
                "row-secret": "e3b0c44298fc1c149afbf4c8996fb924",
            }
            for k, name in enumerate(names)
        ]

        def source(context):
            number = int(context.node_config["number"])
            return Source(f"party {number}", lambda: tables[number])

        return LocalGrid(client_app(FedPCClient, source, ["number"]), 2, node_configs=configs)

    from flwr_causal.app.job import execute

    options = {"target": "target", "training": "one-pass", "min_available_nodes": 2}
    first = execute(FedPC(**options), grid())
    expected = first.model.log_likelihood(test)
    first.save(tmp_path / "first")
    again = execute(FedPC(**options, trained=str(tmp_path / "first")), grid())
    assert again.rounds == 1
    np.testing.assert_allclose(again.model.log_likelihood(test), expected, rtol=1e-12)
    # Loaded without a run the parties are out of reach.
    alone = Run.load(tmp_path / "first").model
    with pytest.raises(ConfigError, match="run is over"):
        alone.log_likelihood(test)
    execute(FedPC(**options, seed=1), grid())  # writes over the kept circuits
    with pytest.raises(CausalError, match="another training"):
        execute(FedPC(**options, trained=str(tmp_path / "first")), grid())


@pytest.mark.slow
def test_a_central_circuit_is_saved_whole(vertical, tmp_path):
    tables, test = vertical
    result = composed(tables, queries="central")
    result.save(tmp_path / "run")
    again = Run.load(tmp_path / "run").model
    assert np.array_equal(again.log_likelihood(test), result.model.log_likelihood(test))
    assert (again.predict(test) == result.model.predict(test)).all()


def test_frames_of_several_parties_are_joined(trained, table):
    model = trained("vertical")
    whole = split_columns(table.iloc[:30], 2, "vertical", target="target", seed=1)
    together = model.log_likelihood(whole)
    assert together.shape == (30,)
    np.testing.assert_allclose(together, model.log_likelihood(table.iloc[:30]), rtol=1e-12)


def test_without_ids_the_dependence_is_lost_with_a_warning(vertical):
    tables = [table.drop(columns="row_id") for table in vertical[0]]
    result = composed(tables)
    assert any("row_id" in warning for warning in result.warnings)
    with pytest.raises(ConfigError, match="row_id"):
        composed(tables, weights="em")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: [t[0], t[1].assign(row_id=t[1]["row_id"] + 10**6)], "no row in common"),
        (lambda t: [t[0], t[1].assign(row_id=0)], "repeat"),
        (lambda t: [t[0], t[1].assign(row_id=t[1]["row_id"].where(t[1].index > 3))], "missing"),
        (lambda t: [t[0].assign(shared=1.5), t[1].assign(shared="a")], "'shared'"),
    ],
    ids=["nothing in common", "repeated", "missing", "types"],
)
def test_bad_tables(vertical, change, words):
    with pytest.raises(DataError, match=words):
        composed(change(vertical[0]))


def test_a_secret_is_needed_on_real_nodes(vertical):
    from flwr_causal.clients import Source, client_app
    from flwr_causal.runtime.local_grid import LocalGrid

    tables, _ = vertical
    configs = [{"number": 0}, {"number": 1}]

    def source(context):
        number = int(context.node_config["number"])
        return Source(f"party {number}", lambda: tables[number])

    grid = LocalGrid(client_app(FedPCClient, source, ["number"]), 2, node_configs=configs)
    with pytest.raises(CausalError, match="row-secret"):
        run(FedPC(training="one-pass", min_available_nodes=2), grid)


def test_options_that_do_not_fit(vertical, hybrid):
    without = [table.drop(columns="row_id", errors="ignore") for table in vertical[0]]
    with pytest.raises(ConfigError, match="training='one-pass'"):
        simulate("fedpc", without, training="sums")
    with pytest.raises(ConfigError, match="all parties hold"):
        composed(vertical[0], weights="classes")
    with pytest.raises(ConfigError, match="fraction_train"):
        FedPC(fraction_train=0.5)
    assert composed(hybrid[0], weights="classes").model.predict(hybrid[1]).shape


def test_few_rows_make_fewer_clusters(vertical):
    tables = [table.iloc[::45].reset_index(drop=True) for table in vertical[0]]
    result = composed(tables, clusters=50, minimum_count=4)
    assert result.history[-1]["circuits"] <= 5
    assert np.isfinite(result.model.log_likelihood(vertical[1])).all()


def with_learners(tables, *learners, **options):
    """Return the model of parties whose node configs name these learners."""
    from flwr_causal.clients import Source, client_app
    from flwr_causal.runtime.local_grid import LocalGrid

    def source(context):
        number = int(context.node_config["number"])
        return Source(f"party {number}", lambda: tables[number])

    configs = [{"number": k, "learner": name} for k, name in enumerate(learners)]
    grid = LocalGrid(client_app(FedPCClient, source, ["number"]), 3, node_configs=configs)
    return run(FedPC(training="one-pass", min_available_nodes=3, **options), grid).model


def test_a_party_may_use_its_own_learner(horizontal):
    tables, test = horizontal
    model = partial(with_learners, tables)
    same = model("class-conditional", "class-conditional", "class-conditional").log_likelihood(test)
    other = model("class-conditional", "decision-tree", "class-conditional").log_likelihood(test)
    assert np.isfinite(other).all()
    assert not np.allclose(same, other)
    with pytest.raises(CausalError, match="no learner 'oracle'"):
        model("oracle", "oracle", "oracle")


@pytest.mark.parametrize(("learner", "split"), [("spn", False), ("class-conditional", True)])
def test_all_parties_split_clusters_by_the_class_or_none(horizontal, learner, split, monkeypatch):
    tables, _ = horizontal
    learners = ("spn", "class-conditional", "decision-tree")
    found = []

    def watched(*given, split, **options):
        found.append(split is not None)
        return own_circuits(*given, split=split, **options)

    monkeypatch.setattr("flwr_causal.clients.fedpc.own_circuits", watched)
    with_learners(tables, *learners, learner=learner, weights="counts", target="target")
    assert found == [split] * 3


@pytest.mark.parametrize("pattern", ["horizontal", "vertical"])
def test_a_party_that_fails(pattern, request):
    from federations import app_of, raising

    from flwr_causal.runtime.local_grid import LocalGrid

    tables, test = request.getfixturevalue(pattern)
    app = app_of(tables, {"fedpc": FedPCClient})
    fault = raising(len(tables) - 1, rounds=range(1, 9), attempts=2)

    def faulty(message, context):
        if message.metadata.message_type == "train":
            fault(context.node_config["partition-id"], records.config_of(message.content), context)
        return app(message, context)

    method = FedPC(training="one-pass", weights="counts", min_available_nodes=len(tables))
    if pattern == "vertical":
        with pytest.raises(CausalError, match=r"no usable reply of party 1.*party 1: "):
            run(method, LocalGrid(faulty, 2))
    else:
        outcome = run(method, LocalGrid(faulty, 3))
        without = simulate("fedpc", tables[:2], training="one-pass").model
        found = outcome.model.log_likelihood(test)
        np.testing.assert_allclose(found, without.log_likelihood(test), rtol=1e-12)


def test_parties_of_too_few_rows_are_named_before_the_training():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    with pytest.raises(DataError, match=r"3 rows or more \(minimum_count\): 'party 1' has 2"):
        composed([rows, rows[:2]], minimum_count=3)
    assert composed([rows, rows[:2]], minimum_count=2).failures == []
