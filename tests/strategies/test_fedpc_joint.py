"""FedPC by joint EM: parties with different columns train trees together, which stay with them."""

import numpy as np
import pandas as pd
import pytest
from federations import app_of, raising, spy
from joint_trees import trained_together

from flwr_causal import simulate
from flwr_causal.clients.fedpc import FedPCClient
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.joint_trees import Table, composed
from flwr_causal.core.circuits.learners.trees.learner import tree_leaves
from flwr_causal.data.partition import split_columns
from flwr_causal.errors import CausalError, ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.strategies import run
from flwr_causal.strategies.fedpc.fedpc import FedPC

COLUMNS = [f"v{j}" for j in range(8)]
JOINT = {"training": "one-pass", "learner": "trees", "weights": "em"}


def answers(rows=700, seed=0):
    """Yes and no to eight questions by people of six kinds, which also decide who is ill."""
    law = np.random.default_rng(7)
    shares = law.beta(0.4, 0.4, size=(6, len(COLUMNS)))
    rng = np.random.default_rng(seed)
    kind = rng.integers(6, size=rows)
    frame = pd.DataFrame((rng.random((rows, len(COLUMNS))) < shares[kind]).astype(int))
    frame.columns = COLUMNS
    ill = rng.random(rows) < np.where(kind < 2, 0.95, 0.05)
    return frame.assign(target=np.where(ill, "ill", "well"))


@pytest.fixture(scope="module")
def tables():
    return split_columns(answers(), 2, "vertical", target="target", seed=0)


@pytest.fixture(scope="module")
def joint(tables):
    return simulate("fedpc", tables, **JOINT)


def test_it_is_the_training_in_one_process():
    frame = answers()[COLUMNS]
    parts = split_columns(frame, 3, "vertical", seed=1)
    found = simulate("fedpc", parts, **JOINT, components=5, minimum_count=1, seed=4).model
    domain = found.domain
    columns = [[domain.index(name) for name in COLUMNS if name in own] for own in parts]
    values = domain.encode(frame)
    rows = [Table.of(values[:, own], [2] * len(own)) for own in columns]
    trees, shared = trained_together(rows, 5, seed=4)
    leaves = [tree_leaves(part, own) for part, own in zip(trees, columns, strict=True)]
    circuits = [[Circuit(domain, leaf) for leaf in own] for own in leaves]
    expected = composed(domain, columns, shared).circuit(circuits)
    asked = answers(60, seed=1)[COLUMNS].astype(float)
    asked[np.random.default_rng(0).random(asked.shape) < 0.3] = np.nan
    np.testing.assert_allclose(
        found.log_likelihood(asked), expected.log_likelihood(asked), rtol=1e-12
    )
    assert abs(np.exp(found.log_likelihood(asked[:0].reindex([0])))[0] - 1) < 1e-9


@pytest.mark.slow
def test_federated_is_central(tables, joint):
    central = simulate("fedpc", tables, **JOINT, queries="central").model
    rows = answers(80, seed=2)
    rows.loc[rows.index % 3 == 0, "v3"] = np.nan
    for model in (joint.model, central):
        assert model.predict_proba(rows).shape == (80, 2)
    ours, theirs = joint.model.log_likelihood(rows), central.log_likelihood(rows)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    np.testing.assert_allclose(
        joint.model.predict_proba(rows), central.predict_proba(rows), atol=1e-10
    )
    pd.testing.assert_frame_equal(joint.model.mpe(rows), central.mpe(rows))


@pytest.mark.slow
def test_what_joint_em_adds_to_clusters(tables, joint):
    """Nats -4.48 / -4.72 and accuracy .899 / .879 when measured."""
    test = answers(3000, seed=3)
    aligned = simulate("fedpc", tables, **(JOINT | {"weights": "aligned"})).model
    gain = joint.model.log_likelihood(test).mean() - aligned.log_likelihood(test).mean()
    accuracy = (joint.model.predict(test) == test["target"]).mean()
    assert gain > 0.1
    assert accuracy > max(0.88, (aligned.predict(test) == test["target"]).mean())


def test_what_is_exchanged(tables):
    grid = spy(tables, {"fedpc": FedPCClient})
    method = FedPC(target="target", **JOINT, components=4, min_available_nodes=2)
    result = run(method, grid)
    phases = [record["exchange"] for record in result.history]
    assert phases == ["align", "joint start", *["joint products"] * 8, "joint trees"]
    told = [record["log_likelihood"] for record in result.history[2:]]
    assert (np.diff(told) > 0).all()
    for message, reply in zip(grid.sent, grid.replies, strict=True):
        phase = str(records.config_of(message.content).get("exchange", ""))
        if not phase.startswith("joint"):
            continue
        given, sent = records.arrays_of(message.content), records.arrays_of(reply.content)
        if phase == "joint trees":
            assert not sent
        else:
            assert list(sent) == ["densities"]
            assert sent["densities"].shape == (700, 12)  # of three mixtures
        if phase != "joint start":
            shares = given["shared"].reshape(700, 3, 4).sum(axis=2)
            assert given["shared"].dtype == np.uint16
            assert abs(shares - 4096.0).max() <= 4  # in units, each rounded


def test_a_node_that_starts_anew_loses_nothing(tables, joint, monkeypatch):
    monkeypatch.setattr(FedPCClient, "once", lambda self, name, compute: compute())
    again = simulate("fedpc", tables, **JOINT)
    test = answers(50, seed=4)
    assert np.array_equal(again.model.log_likelihood(test), joint.model.log_likelihood(test))


def test_rows_are_found_by_their_ids(tables, joint):
    shuffled = tables[1].sample(frac=1, random_state=0, ignore_index=True)
    more = pd.concat([shuffled, shuffled.iloc[:40].assign(row_id=lambda t: t["row_id"] + 5000)])
    again = simulate("fedpc", [tables[0], more.reset_index(drop=True)], **JOINT)
    test = answers(50, seed=4)
    np.testing.assert_allclose(
        again.model.log_likelihood(test), joint.model.log_likelihood(test), rtol=1e-12
    )


def test_a_party_may_hold_the_class_alone_and_numbers_may_be_cut():
    frame = answers().assign(v0=lambda t: t["v0"] + np.random.default_rng(5).normal(size=len(t)))
    frame["row_id"] = np.arange(len(frame))
    parts = [frame[["target", "row_id"]], frame[[*COLUMNS, "row_id"]]]
    result = simulate("fedpc", parts, **JOINT, bins=4)
    assert "cuts" in {record["exchange"] for record in result.history}
    # .85 when measured; two thirds are well.
    assert (result.model.predict(frame) == frame["target"]).mean() > 0.8


@pytest.mark.slow
def test_shared_columns_leave_trees_in_clusters():
    """Joint EM is for columns that one party holds: else EM weighs the clusters."""
    parts = split_columns(answers(), 2, "hybrid", target="target", seed=0)
    result = simulate("fedpc", parts, **JOINT)
    assert [record["exchange"] for record in result.history] == ["align", "local, weights by em"]
    assert result.model.log_likelihood(answers(100, seed=1)).mean() > -5.5


def test_options_that_do_not_fit(tables):
    with pytest.raises(ConfigError, match="'components' is 1, but 'target' has 2 classes"):
        simulate("fedpc", tables, **JOINT, components=1)
    with pytest.raises(CausalError, match="take fewer"):
        simulate("fedpc", tables, **JOINT, components=701)


def test_a_party_that_is_absent_ends_the_run(tables):
    app = app_of(tables, {"fedpc": FedPCClient})
    fault = raising(1, rounds=range(4, 9), attempts=2)

    def faulty(message, context):
        if message.metadata.message_type == "train":
            fault(context.node_config["partition-id"], records.config_of(message.content), context)
        return app(message, context)

    method = FedPC(**JOINT, min_available_nodes=len(tables))
    with pytest.raises(FederationError, match=r"no usable reply of party 1.*party 1: "):
        run(method, LocalGrid(faulty, len(tables)))
