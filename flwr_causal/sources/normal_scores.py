"""Normal scores in place of the values of numbers: ``scale="normal-scores"``.

Before the sums the parties count their rows up to the points of a grid that both sides derive from
the agreed means and variances. The scores of the cells between the points then go to the parties
with each request, and a party takes them for the values of its rows. Any source follows, in units
of the scores: mean 0 and variance 1. See :mod:`core.blocks.normal_scores`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.answers import answers
from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.core.blocks.design import numbers_in_units
from flwr_causal.core.blocks.normal_scores import (
    cell_scores,
    counts_up_to,
    grid_points,
    maps_of,
)
from flwr_causal.core.systems.ancestral import AncestralModel
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.errors import FederationError
from flwr_causal.protocol.second_moments import SCORES, other_counts
from flwr_causal.runtime.algorithm import Ask, ReturnT, relayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.blocks.normal_scores import NormalScores
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.products import Products
    from flwr_causal.sources.rows import DesignRows

RANKS = Exchange(
    "ranks",
    "how the values of the parties' rows are distributed, from which their normal scores follow",
    returns=(
        Disclosure(
            "counts",
            "number of the party's rows up to each point of a grid that follows from the agreed "
            "means and variances, and with a value at all; 0 of categories",
            ("d", "cells"),
            "count",
            "sum",
            cumulative=True,
        ),
    ),
    timing="before the sums",
    most=1,
    same_parties=True,
    contradiction=other_counts,
)


def by_scores(
    agreement: Agreement,
    training: Callable[[Agreement, list[NormalScores]], Generator[Step, Any, ReturnT]],
) -> Generator[Step, Any, ReturnT]:
    """Run a training whose parties take normal scores for numbers; replicates share the scores.

    Parameters
    ----------
    agreement : Agreement
        In the units of the data.
    training : callable
        ``(agreement, scores) -> steps``, given the agreement in units of the scores and the map of
        each column; what it asks goes out with the scores.
    """
    replies = yield Ask(RANKS, shared=True)
    scores = cell_scores(np.asarray(replies["counts"], dtype=np.int64))
    steps = training(in_scores(agreement), _maps(agreement, scores))
    return (yield from relayed(steps, {SCORES.name: scores}))


def in_scores(agreement: Agreement) -> Agreement:
    """Return the agreement in units of normal scores: means 0 and variances 1."""
    d = len(agreement.names)
    return replace(agreement, mean=np.zeros(d), variance=np.ones(d))


def with_scores(pooled: Products, scores: Sequence[NormalScores]) -> Products:
    """Return products of normal scores with the map of each column, as data of their models."""

    def adapted(model: Any) -> Any:
        found = model if pooled.adapted is None else pooled.adapted(model)
        if isinstance(found, LinearModel):
            return replace(found, scores=tuple(scores))
        if isinstance(found, AncestralModel) and not found.variables:
            return replace(found, variables=numbers_in_units(found.names, scores))
        return found

    return replace(pooled, design=pooled.design.with_scores(scores), adapted=adapted)


def _maps(agreement: Agreement | Setup, scores: FloatArray) -> list[NormalScores]:
    """Return the map of each column, given its agreed mean and variance in its own units."""
    return maps_of(grid_points(agreement.mean, agreement.variance), scores)


@answers(RANKS)
def counts_of_rows(rows: DesignRows, asked: Asked) -> Arrays:
    """Return a party's counts of rows up to the points of the grid."""
    points = grid_points(rows.setup.mean, rows.setup.variance)
    counts = (counts_up_to(piece, points) for piece in rows.number_pieces())
    return {"counts": reduce(np.add, counts)}


def received_scores(asked: Asked, setup: Setup) -> list[NormalScores]:
    """Return the map of each column that the server's scores are.

    Raises
    ------
    FederationError
        If there are none, or they descend.
    """
    if SCORES.name not in asked:
        raise FederationError("The server sent no normal scores, which scale='normal-scores' needs")
    scores = np.asarray(asked[SCORES.name], dtype=np.float64)
    if (np.diff(scores, axis=1) < 0).any():
        raise FederationError("The normal scores that the server sent descend.")
    return _maps(setup, scores)
