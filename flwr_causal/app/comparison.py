"""Metrics of a result, and of baselines without a federation."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from flwr.supercore import log

from flwr_causal.clients import Source, client_app
from flwr_causal.compat import own_identity, quiet
from flwr_causal.core.circuits.distribution import chosen_classes
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.read.origin import tables_in
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import CausalError, DataError
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.secure.keys import LEAST_PARTIES
from flwr_causal.strategies import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.clients import CausalClient
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.strategies import CausalStrategy

Metrics = dict[str, Any]
# The metrics of baselines: of a DAG, and of an equivalence class.
DAG_METRICS = ("shd", "tpr", "fdr")
CLASS_METRICS = ("cpdag_shd", "smhd", "adjacency_precision", "adjacency_recall")


def judged(found: Any, truth: CausalGraph | None, test: pd.DataFrame | None) -> Metrics:
    """Return the metrics of a graph against the truth, or of a circuit on test rows.

    Empty where there is no truth, or there are no test rows.
    """
    if isinstance(found, CausalGraph):
        return {} if truth is None else compare(truth, found)
    return {} if test is None or not len(test) else circuit_scores(found, test)


def baselines(
    strategy: CausalStrategy,
    client: type[CausalClient],
    tables: Sequence[pd.DataFrame],
    names: tuple[str, ...] = (),
    truth: CausalGraph | None = None,
    test: pd.DataFrame | None = None,
) -> Metrics:
    """Return the metrics of the baselines without a federation, see ``CausalStrategy.baselines``.

    Parameters
    ----------
    strategy : CausalStrategy
        The method with the options of the run.
    client : type of CausalClient
    tables : sequence of DataFrame
        The parties' tables.
    names : tuple of str, optional
        The columns of the run's graph.
    truth : CausalGraph, optional
    test : DataFrame, optional

    Returns
    -------
    dict
        ``pooled``: the metrics of the result on the pooled rows; ``alone``: the means of the
        metrics of each party's own result, with the log-likelihood only if all parties hold all
        columns; ``solver``: the solver of both, if it is not the method itself. Empty for a method
        without baselines.
    """

    def run_alone(table: pd.DataFrame, **changes: Any) -> Any:
        alone = {
            "min_available_nodes": 1,
            "replicates": 0,
            "leave_one_out": False,
            "secure_aggregation": False,
            "min_parties": LEAST_PARTIES,
            "groups": 1,
            "output_dir": None,
            "resume": False,
        }
        app = client_app(client, lambda context: Source("alone", lambda: table))
        try:
            with own_identity(), quiet(logging.ERROR):
                outcome = run(strategy.with_options(**alone, **changes), LocalGrid(app, 1))
        except CausalError as error:
            log(logging.WARNING, "No comparison with %d rows alone: %s", len(table), error)
            return None
        return outcome.model if outcome.graph is None else outcome.graph

    found = strategy.baselines(tables, names, run_alone)
    if found is None:
        return {}
    metrics: Metrics = {}
    if found.pooled is not None:
        metrics["pooled"] = _of_baseline(found.pooled, truth, test)
    alone = [_of_baseline(one, truth, test) for one in found.alone if one is not None]
    kept = dict.fromkeys(name for entry in alone for name in entry)
    if any(set(table.columns) != set(tables[0].columns) for table in tables):
        kept.pop("log_likelihood", None)  # not comparable over different columns
    metrics["alone"] = {
        name: float(np.mean([entry[name] for entry in alone if name in entry])) for name in kept
    }
    return {**metrics, "solver": found.solver} if found.solver else metrics


def _of_baseline(found: Any, truth: CausalGraph | None, test: pd.DataFrame | None) -> Metrics:
    metrics = judged(found, truth, test)
    if not isinstance(found, CausalGraph):
        metrics.pop("calibration", None)  # the parties' have no mean
        return metrics
    names = CLASS_METRICS if found.kind == "cpdag" else DAG_METRICS
    return {name: metrics[name] for name in names}


# Circuits.


def circuit_scores(model: Any, test: pd.DataFrame, known: pd.DataFrame | None = None) -> Metrics:
    """Return the metrics of a model on rows.

    Parameters
    ----------
    model : CircuitModel
    test : DataFrame
    known : DataFrame, optional
        The model's :func:`answers` on these rows, if computed before: on real nodes each takes
        seconds.

    Returns
    -------
    dict
        ``log_likelihood``: mean nats a row, the class included. If the model has a target and the
        rows have classes, also ``accuracy``, ``majority`` (the share of the most frequent class),
        ``macro_f1`` (the mean over classes, as in the paper), ``calibration`` (see
        :func:`calibration`) and, for two classes, ``auroc``.
    """
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    found = answers(model, test) if known is None else known
    scores: Metrics = {"log_likelihood": float(np.mean(found["log_likelihood"]))}
    target = model.target
    if target is None or target not in test.columns:
        return scores
    labelled = test[target].notna().to_numpy()
    if not labelled.any():
        return scores
    labels = pd.Index(model.classes())
    # A class that the model does not know is -1: no prediction is right.
    truth = labels.get_indexer(pd.Index(test[target][labelled]))
    predicted = labels.get_indexer(pd.Index(found["predicted"][labelled]))
    scores["accuracy"] = float(accuracy_score(truth, predicted))
    scores["majority"] = float(np.unique(truth, return_counts=True)[1].max() / len(truth))
    scores["macro_f1"] = float(f1_score(truth, predicted, average="macro"))
    shares = found[[_share_of(label) for label in labels]].to_numpy()[labelled]
    scores["calibration"] = calibration(shares, truth)
    if len(labels) == 2 and set(truth.tolist()) == {0, 1}:
        scores["auroc"] = float(roc_auc_score(truth, found[_share_of(labels[1])][labelled]))
    return scores


def calibration(shares: FloatArray, truth: IntArray) -> list[dict[str, float]]:
    """Return how often the most probable class is right, by its stated probability.

    Parameters
    ----------
    shares : ndarray of shape (n, classes)
        The probability of each class.
    truth : ndarray of int, shape (n,)
        The rows' classes; -1 for one that the model does not know.

    Returns
    -------
    list of dict
        For each tenth from 0 to 1 with rows: ``probability`` (their mean), ``right`` (the share
        in which the most probable class is right) and ``rows``.
    """
    highest, right = shares.max(axis=1), shares.argmax(axis=1) == truth
    tenth = np.minimum((highest * 10).astype(np.int64), 9)
    return [
        {
            "probability": float(highest[tenth == k].mean()),
            "right": float(right[tenth == k].mean()),
            "rows": int((tenth == k).sum()),
        }
        for k in np.unique(tenth)
    ]


def query_table(path: str, row_id: str = ROW_ID, reading: Reading = AS_THEY_ARE) -> pd.DataFrame:
    """Read the rows of a query: one table, or a directory of tables to be joined by their ids.

    Raises
    ------
    DataError
        If a file is no table, or tables cannot be joined.
    """
    place = Path(path)
    if place.is_dir():
        files = tables_in(place)
        if not files:
            raise DataError(
                f"The directory '{path}', which the option 'query' names, holds no table."
            )
        return joined_tables([read_table(file, reading.of_queries) for file in files], row_id)
    return read_table(place, reading.of_queries)


def answers(model: Any, rows: pd.DataFrame, row_id: str = ROW_ID) -> pd.DataFrame:
    """Return the log-likelihood and the prediction of a model for each row.

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
        shares = model.predict_proba(_possible(model, rows, found["log_likelihood"]))
        found["predicted"] = labels[chosen_classes(shares, model.threshold, model.target)]
        found |= {_share_of(label): shares[:, k] for k, label in enumerate(labels)}
    return pd.DataFrame(found, index=rows.index)


def _possible(model: Any, rows: pd.DataFrame, densities: FloatArray) -> pd.DataFrame:
    """Return rows, of which those that are impossible without the class too know nothing."""
    doubtful = np.isneginf(densities)
    if not doubtful.any():
        return rows
    known = rows.drop(columns=[model.target], errors="ignore")
    impossible = np.isneginf(model.log_likelihood(known))
    blank = np.broadcast_to(impossible[:, None], rows.shape)
    return rows.astype(object).mask(blank) if impossible.any() else rows


def _share_of(label: Any) -> str:
    """Return the column that holds the probability of a class."""
    return f"p({label})"
