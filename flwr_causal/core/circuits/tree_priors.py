"""What trees of a mixture start from and are drawn to: the pooled table of pairs of states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.tree_tables import Trees, chow_liu_tree, independent, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.circuits.pair_sums import Layout

FloatArray = NDArray[np.float64]

#: Share of the pooled table that is uniform over the states, so that none has probability 0.
UNIFORM = 0.1
#: Rows of all classes that are added to those of a class for its table: a class may have few.
CLASS_ROWS = 10.0
#: Rows of the pooled table, and of every state, that a product of the start is given beforehand.
PRODUCT_ROWS, STATE_ROWS = 2.0, 1e-3
#: Strength of the prior under which trees are built before it is chosen.
FIRST_STRENGTH = 10.0


def shares(layout: Layout, counts: FloatArray) -> FloatArray:
    """Divide the counts of each pair of variables by their sum, ``(total, total)``; 0 without."""
    by_variable = np.add.reduceat(counts, layout.first, axis=1)
    weight = np.add.reduceat(by_variable, layout.first, axis=0)[layout.owner][:, layout.owner]
    result: FloatArray = np.divide(counts, weight, out=np.zeros_like(counts), where=weight > 0)
    return result


def prior_cells(layout: Layout, own: FloatArray, pooled: FloatArray) -> FloatArray:
    """Return the table that trees of a class are drawn to.

    Parameters
    ----------
    layout : Layout
    own, pooled : ndarray, shape (total, total)
        Counts of pairs of states in the class, and in all classes.

    Returns
    -------
    ndarray, shape (total, total)
        Positive but for different states of one variable; every pair of variables sums to 1.
    """
    states, owner = layout.states[layout.owner], layout.owner
    uniform = 1.0 / np.outer(states, states)
    same = owner[:, None] == owner
    uniform[same] = 0.0
    np.fill_diagonal(uniform, 1.0 / states)
    mixed = shares(layout, own + CLASS_ROWS * (shares(layout, pooled) + 1e-3 * uniform))
    result: FloatArray = (1.0 - UNIFORM) * mixed + UNIFORM * uniform
    return result


def drawn_products(
    layout: Layout, cells: FloatArray, count: int, rng: np.random.Generator
) -> Trees:
    """Draw products of states to start from: rows of a normal distribution with pooled moments.

    The indicators of the states have the pooled means and covariances; a draw from the normal
    distribution of these is about what a row is, and no row is needed. Five steps of EM later the
    components are as good as those that start from rows (on plants and jester, trees from either
    are within .03 nats).

    Parameters
    ----------
    layout : Layout
    cells : ndarray, shape (total, total)
        See :func:`prior_cells`.
    count : int
        Number of products.
    rng : Generator
    """
    means = np.diagonal(cells)
    values, vectors = np.linalg.eigh(cells - np.outer(means, means))
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = means + rng.standard_normal((count, len(means))) @ factor.T
    return independent(layout, np.zeros_like(draws), np.maximum(draws, 0.01 * means))


def products(layout: Layout, counts: FloatArray, cells: FloatArray) -> Trees:
    """Return products from the counts of their states ``(K, total)``."""
    added = PRODUCT_ROWS * np.diagonal(cells) + STATE_ROWS
    return independent(layout, counts, np.broadcast_to(added, counts.shape))


def shrunk_trees(
    layout: Layout, pairs: FloatArray, cells: FloatArray, strengths: Sequence[float]
) -> Trees:
    """Return the tree of each component, drawn to the pooled table as strongly as counts ask for.

    Parameters
    ----------
    layout : Layout
    pairs : ndarray, shape (K, num_pairs)
        Counts of each component.
    cells : ndarray, shape (total, total)
        See :func:`prior_cells`.
    strengths : sequence of float
        Rows of the pooled table that may be added to each component. The one under which the counts
        are the most probable is taken; that needs no held-out rows. (What a row's density would be
        had it not been counted does not tell: the row has a part in the tree and in the
        responsibilities.)
    """
    counts = [layout.pair_counts(one) for one in pairs]
    if len(strengths) == 1:
        chosen = strengths[0]
    else:
        first = joined([chow_liu_tree(layout, one, FIRST_STRENGTH * cells) for one in counts])
        evidence = first.log_evidence(np.array(strengths) / FIRST_STRENGTH)
        chosen = strengths[int(evidence.argmax())]
    return joined([chow_liu_tree(layout, one, chosen * cells) for one in counts])
