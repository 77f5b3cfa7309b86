"""Which stated interventions leave the mechanism of their target in place.

An intervention that sets a variable replaces its mechanism: the rows say nothing of its causes
(:mod:`core.interventions.moments`). After one that shifts the variable, or changes its noise, the
causes still act. Leaving these rows out then makes a wrong graph more probable: reversed, an edge
into the target explains their dependence, which the right graph is not counted for.

Which of the two it is depends on the graph, and the graph on it. Both maximise one likelihood, that
of all rows less the BIC's cost of edges; where a mechanism is replaced it is a normal distribution
without causes. The search for the graph and the choice by target take turns, once from all
mechanisms replaced and once from all kept, and the end of the better score is taken.

References
----------
Eaton, D. & Murphy, K. (2007). Exact Bayesian structure learning from uncertain interventions.
AISTATS.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.interventions.moments import about_others
from flwr_causal.core.interventions.targets import LEAST_FREE, comparable, log_covariance
from flwr_causal.core.limits import MOST_STEPS, steps
from flwr_causal.core.linear.gaussian_scores import edge_cost
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.ties import first_largest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


class KeptMechanisms(NamedTuple):
    """Stated targets whose causes still act.

    Attributes
    ----------
    kept
        ``(groups, d)``: all of them.
    shifted
        ``(groups, d)``: those of them with a level of their own. The others' rows say nothing of
        directions that rows without interventions do not say.
    """

    kept: BoolArray
    shifted: BoolArray


class _Choice(NamedTuple):
    """Mechanisms that are kept, given a graph, and the score of both in nats."""

    found: KeptMechanisms
    score: float


def kept_mechanisms(
    products: FloatArray,
    stated: BoolArray,
    widths: Sequence[int],
    search: Callable[[BoolArray, BoolArray], BoolArray],
) -> KeptMechanisms:
    """Return the stated targets whose causes still act; none where a group has hardly any rows.

    Parameters
    ----------
    products
        ``(groups, 1 + M, 1 + M)``: sums of products of the rows [1, z] of each group of equal
        targets, where z has the M columns of m blocks.
    stated
        ``(groups, d)``: the targets of each group; each variable is none in some group.
    widths
        Number of columns of each of the m blocks: of the d variables, then of their lags.
    search
        Returns the graph, ``(m, d)``, given what is replaced and what is kept with a level of its
        own, ``(groups, d)`` each, see
        :func:`~flwr_causal.core.interventions.moments.moments_by_variable`.
    """
    groups = comparable(products)
    columns = [1 + own for own in columns_of(widths)]
    moved = [about_others(groups, np.ones_like(own), own) for own in stated.T]
    after: dict[bytes, _Choice] = {}
    ends = []
    for start in (np.zeros_like(stated), stated):
        choice = _Choice(KeptMechanisms(start, start), -np.inf)
        for _ in steps("The search for mechanisms that interventions keep", MOST_STEPS):
            if (kept := choice.found.kept).tobytes() in after:
                break
            graph = search(stated & ~kept, kept)
            choice = _choice(groups, moved, columns, graph, stated)
            after[kept.tobytes()] = choice
        ends.append(choice)
    return ends[int(first_largest([end.score for end in ends]))].found


def _choice(
    groups: FloatArray,
    moved: Sequence[FloatArray],
    columns: Sequence[IntArray],
    graph: BoolArray,
    stated: BoolArray,
) -> _Choice:
    """Return which mechanisms are kept, given the graph.

    ``moved`` are the products for each variable: those of groups in which it is a target are about
    the mean of the others.
    """
    cost = edge_cost(float(groups[:, 0, 0].sum()), len(graph), gamma=1.0)
    kept, shifted, loss = np.zeros_like(stated), np.zeros_like(stated), 0.0
    for j, own in enumerate(columns[: stated.shape[1]]):
        causes = [one for one, edge in zip(columns, graph[:, j], strict=True) if edge]
        which = np.concatenate([np.zeros(1, dtype=own.dtype), *causes, own])
        as_are, parts = (one[:, which[:, None], which] for one in (groups, moved[j]))
        base, q = parts[~stated[:, j]].sum(axis=0), len(which) - len(own)
        no_causes = [0, *range(q, len(which))]
        for k in np.flatnonzero(stated[:, j]):
            replaced = _loss(parts[k][np.ix_(no_causes, no_causes)][None], 1)
            with_level = _loss(np.stack([base, parts[k]]), q)
            enough = q > 1 and as_are[k, 0, 0] > len(which) + LEAST_FREE
            kept[k, j] = enough and with_level < _loss(base[None], q) + replaced
            gain = _loss(np.stack([base, as_are[k]]), q) - with_level
            of_level = 0.5 * len(own) * math.log(max(as_are[k, 0, 0], 1.0))
            shifted[k, j] = kept[k, j] and gain > of_level
            loss += 0.0 if kept[k, j] else replaced
        loss += _loss(np.stack([base, *parts[kept[:, j]]]), q) + cost * len(own) * (q - 1)
    return _Choice(KeptMechanisms(kept, shifted), -loss)


def _loss(groups: FloatArray, q: int) -> float:
    """Return minus the log-likelihood of the columns from q on, given those before, of some groups.

    But for constants. Coefficients are common. Noise is common too, or of each group's own where
    that is better and none has more than the first: rows with more noise say little of causes, and
    would count as much as the others.
    """
    total = groups.sum(axis=0)
    weights = np.linalg.pinv(total[:q, :q], rcond=1e-12, hermitian=True) @ total[:q, q:]
    to_noise = np.concatenate([-weights, np.eye(len(total) - q)])
    noise, rows = to_noise.T @ groups @ to_noise, groups[:, 0, 0]
    together = log_covariance(noise.sum(axis=0)[None], rows.sum()[None])
    common = 0.5 * float(rows.sum() * together[0])
    size = log_covariance(noise, np.maximum(rows, 1.0))
    if (size > size[0]).any():
        return common
    return min(common, 0.5 * float(rows @ size))
