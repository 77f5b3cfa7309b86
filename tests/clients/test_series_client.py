"""The party's side of 2Dbn: its design, what it answers to a message, and what leaves it."""

import numpy as np
import pandas as pd
import pytest
from federations import app_of, ask, spy

from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.protocol import records
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import run
from flwr_causal.strategies.two_dbn import TwoDBN

D = 3
NODE = 2  # the first party's
IDS = ("ward-7731", "ward-4408")
FIRST_TIME, STEP = 918273.5, 0.25


def tables():
    """Three parties with two named series each, timed and with a phase."""
    parties, _ = federated_dynamic(D, 120, 3, series_per_party=2, seed=4)
    result = []
    for party in parties:
        frames = [
            s.assign(
                ward=f"{IDS[k]}",
                clock=FIRST_TIME + STEP * np.arange(len(s)),
                pulse=np.arange(len(s)) % 10 > 6,
            )
            for k, s in enumerate(party)
        ]
        result.append(pd.concat(frames, ignore_index=True))
    return result


TABLES = tables()
ROLES = {"series_column": "ward", "time_column": "clock", "phase_column": "pulse"}


def first_answer(order, center, penalty=0.5):
    grid = LocalGrid(app_of(TABLES), 3)
    federation, _, _ = exchange_schema(TwoDBN(order=order, center=center, **ROLES), grid)
    m = D * (1 + order)
    values = {"method": "2dbn", "exchange": "round", "round": 1, "relaxation": 1.0}
    arrays = {"weights": np.zeros((1, m, D))}
    reply = ask(grid, NODE, arrays, setup=federation.setup, penalty=penalty, **values)
    return grid, federation.setup, records.arrays_of(reply.content)["weights"], values


def own_rows(order, mean):
    """The rows of the first party, step by step."""
    rows = []
    for _, one in TABLES[0].groupby("ward", sort=False):
        values = one[["x0", "x1", "x2"]].to_numpy()
        values = values - (values.mean(axis=0) if mean is None else mean)
        rows += [
            np.concatenate([values[t - lag] for lag in range(order + 1)])
            for t in range(order, len(values))
        ]
    return np.array(rows)


def expected_answer(order, mean, penalty=0.5):
    rows = own_rows(order, mean)
    S = rows.T @ rows / (sum(map(len, TABLES)) - 6 * order)
    return np.linalg.solve(S + penalty * np.eye(len(S)), S[:, :D])


def test_the_first_answer_is_the_closed_form():
    for order in (1, 3):
        for center in ("global", "series"):
            _, setup, sent, _ = first_answer(order, center)
            used = [s.iloc[order:] for t in TABLES for _, s in t.groupby("ward", sort=False)]
            mean = pd.concat(used)[["x0", "x1", "x2"]].mean().to_numpy()
            assert setup.num_rows == 120 + 6 - 6 * order
            if center == "global":
                np.testing.assert_allclose(setup.mean, mean, atol=1e-12)
            expected = expected_answer(order, mean if center == "global" else None)
            np.testing.assert_allclose(sent[0], expected, atol=1e-10)


def test_a_repeated_message_gets_the_same_answer():
    grid, setup, sent, values = first_answer(2, "global")
    again = ask(grid, NODE, {"weights": np.ones((1, 3 * D, D))}, setup=setup, penalty=0.5, **values)
    assert np.array_equal(records.arrays_of(again.content)["weights"], sent)


def leaves(content):
    """All numbers and all texts of a message."""
    numbers, texts = [], []
    for record in content.values():
        for name, value in record.items():
            texts.append(name)
            if hasattr(value, "numpy"):
                numbers.append(np.ravel(value.numpy()).astype(float))
                continue
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, bool | int | float):
                    numbers.append(np.array([float(entry)]))
                else:
                    texts.append(
                        entry.decode(errors="ignore") if isinstance(entry, bytes) else entry
                    )
    return np.concatenate(numbers), " ".join(texts)


def watched(**options):
    grid = spy(TABLES)
    run(TwoDBN(**ROLES, **options), grid)
    return grid


@pytest.mark.slow
def test_only_declared_arrays_leave():
    for options, sets, folds in (
        ({}, 1, 1),
        ({"order": 2}, 1, 1),
        ({"sparsity": "bic", "center": "phase"}, 6, 1),
        ({"sparsity": "held-out"}, 12, 2),
    ):
        grid = watched(**options)
        m = D * (1 + options.get("order", 1))
        # Before the columns are ones, and a mark of the rows that are not perturbed.
        s = 1 + (options.get("center") == "phase") + m
        shapes = set()
        for reply in grid.replies:
            if reply.metadata.message_type == "train":
                for name, array in records.arrays_of(reply.content).items():
                    shapes.add((name, array.shape))
        assert shapes == {("weights", (sets, m, D)), ("moments", (folds, s, s))}


def test_no_id_time_or_phase_leaves():
    grid = watched(center="phase")
    times = np.unique(np.concatenate([t["clock"] for t in TABLES]))
    for message in grid.replies:
        numbers, texts = leaves(message.content)
        assert not np.isin(numbers, times).any()
        assert not np.any((numbers > FIRST_TIME - 1) & (numbers < FIRST_TIME + 1e3))
        assert not any(name in texts for name in (*IDS, "ward", "clock", "pulse", str(FIRST_TIME)))
    for message in grid.sent:
        assert not any(name in leaves(message.content)[1] for name in IDS)
    # The watching would see them: the variables' names are there.
    assert any("x1" in leaves(message.content)[1] for message in grid.replies)
