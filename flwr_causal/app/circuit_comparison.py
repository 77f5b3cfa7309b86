"""How well a circuit does on rows set aside for a test, and its answers for a file of rows."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.app import methods
from flwr_causal.clients import Source, client_app
from flwr_causal.compat import own_identity, quiet
from flwr_causal.core.circuits.decision_threshold import chosen_classes
from flwr_causal.core.circuits.joined_tables import joined_tables
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import DataError
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.strategies import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Metrics = dict[str, Any]


def circuit_scores(model: Any, test: pd.DataFrame, told: pd.DataFrame | None = None) -> Metrics:
    """Judge a model on rows.

    Parameters
    ----------
    model : CircuitModel
    test : DataFrame
    told : DataFrame, optional
        Its :func:`answers`, where they are known: on real nodes each question takes seconds.

    Returns
    -------
    dict
        ``log_likelihood``: mean nats a row, the class included. Of rows whose class is known, where
        the model has a target, ``accuracy``, ``macro_f1`` (the mean over classes, as in the paper)
        and, for two classes, ``auroc``.
    """
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    told = answers(model, test) if told is None else told
    scores: Metrics = {"log_likelihood": float(np.mean(told["log_likelihood"]))}
    target = model.target
    if target is None or target not in test.columns:
        return scores
    known = test[target].notna().to_numpy()
    if not known.any():
        return scores
    labels = pd.Index(model.classes())
    # A class that the model does not know is -1: no prediction is right.
    truth = labels.get_indexer(pd.Index(test[target][known]))
    predicted = labels.get_indexer(pd.Index(told["predicted"][known]))
    scores["accuracy"] = float(accuracy_score(truth, predicted))
    scores["macro_f1"] = float(f1_score(truth, predicted, average="macro"))
    if len(labels) == 2 and set(truth.tolist()) == {0, 1}:
        scores["auroc"] = float(roc_auc_score(truth, told[_share_of(labels[1])][known]))
    return scores


def query_table(path: str, row_id: str = ROW_ID) -> pd.DataFrame:
    """Read the rows of a query: one table, or a directory of tables to be joined by their ids.

    Raises
    ------
    DataError
        If a file is no table, or tables cannot be joined.
    """
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.is_file())
        if not files:
            raise DataError(f"The directory '{path}', which the option 'query' names, is empty.")
        return joined_tables([read_table(file) for file in files], row_id)
    return read_table(place)


def answers(model: Any, rows: pd.DataFrame, row_id: str = ROW_ID) -> pd.DataFrame:
    """Return what a model says of each row.

    Returns
    -------
    DataFrame
        ``log_likelihood`` and, where the model has a target, ``predicted`` and the probability of
        each class, ``p(label)``; with the ids of the rows, where they have any.
    """
    found: dict[str, Any] = {row_id: rows[row_id]} if row_id in rows.columns else {}
    found["log_likelihood"] = model.log_likelihood(rows)
    if model.target is not None:
        labels = np.asarray(model.classes())
        shares = model.predict_proba(rows)
        found["predicted"] = labels[chosen_classes(shares, model.threshold, model.target)]
        found |= {_share_of(label): shares[:, k] for k, label in enumerate(labels)}
    return pd.DataFrame(found, index=rows.index)


def _share_of(label: Any) -> str:
    """Return the column that holds the probability of a class."""
    return f"p({label})"


def circuit_baselines(
    frames: Sequence[pd.DataFrame], test: pd.DataFrame, config: Mapping[str, Any]
) -> Metrics:
    """Return the scores of the circuit of all rows in one place, and of each party alone.

    Parameters
    ----------
    frames : sequence of DataFrame
        The parties' tables.
    test : DataFrame
    config : mapping
        The run's options.

    Returns
    -------
    dict
        ``pooled``, and ``alone``: the mean over parties; of the log-likelihood only where all of
        them hold all columns, of the rest over those that hold the target.
    """
    row_id = config.get("row_id") or ROW_ID
    method = methods.find(config["method"])
    known = {field.name for field in fields(method.strategy) if field.init}
    options = {name: value for name, value in config.items() if name in known}
    options |= {"min_available_nodes": 1, "trained": ""}
    same = all(set(frame.columns) == set(frames[0].columns) for frame in frames)
    whole = joined_tables(frames, row_id)
    # Of parties with different columns only the rows that are complete can be in one place.
    complete = whole if same else whole.dropna()
    found: Metrics = {}
    if len(complete):
        found["pooled"] = circuit_scores(_alone(method, complete, options), test)
    own = [circuit_scores(_alone(method, frame, options), test) for frame in frames]
    means = {}
    for name in dict.fromkeys(name for scores in own for name in scores):
        values = [scores[name] for scores in own if name in scores]
        if same or name != "log_likelihood":
            means[name] = float(np.mean(values))
    return found | {"alone": means}


def _alone(method: methods.Method, frame: pd.DataFrame, options: Mapping[str, Any]) -> Any:
    """Return the circuit of one table: that of a federation of one."""
    app = client_app(method.client, lambda context: Source("alone", lambda: frame))
    with own_identity(), quiet(logging.ERROR):
        return run(method.strategy(**options), LocalGrid(app, 1)).model
