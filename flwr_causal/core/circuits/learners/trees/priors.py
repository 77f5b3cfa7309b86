"""Priors of trees: the pooled table of pairs of states, towards which they are shrunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from flwr_causal.core.circuits.learners.trees.tables import (
    Trees,
    chow_liu_tree,
    independent,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.learners.trees.pair_sums import Layout


#: Share of the pooled table that is uniform over the states, and what may be chosen in its place:
#: what is rare in the whole may be common in a component, but not where a column determines the
#: class.
UNIFORM, UNIFORMS = 0.05, (0.0, 0.05, 0.2)
#: Rows of the product of the states that are added to other classes' counts of pairs.
PRODUCT_OF_STATES = 10.0
#: Strengths of which one is chosen for each column and each pair of columns of a class's table.
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
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
    """Return the table towards which trees of a class are shrunk.

    A pair of columns is shrunk towards its table in the other classes and towards the product of
    its columns, a column towards its table in the other classes: each as strongly as makes the
    counts of the class the most probable. A column that predicts the class is thus hardly shrunk
    towards the other classes.

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
    others = pooled - own
    states = layout.states[layout.owner]
    columns = _drawn_columns(layout, np.diagonal(others), 1.0 / states)
    columns = _drawn_columns(layout, np.diagonal(own), columns)
    apart = _product(layout, columns)
    strengths = _pair_strengths(layout, own, apart)
    cells = own + strengths * apart
    if others.any():
        elsewhere = shares(layout, others + PRODUCT_OF_STATES * apart)
        cells += _pair_strengths(layout, own, elsewhere) * elsewhere
    return shares(layout, cells)


def softened(layout: Layout, cells: FloatArray, share: float = UNIFORM) -> FloatArray:
    """Return a table of pairs of which a share is uniform over the states."""
    uniform = _product(layout, 1.0 / layout.states[layout.owner])
    result: FloatArray = (1.0 - share) * cells + share * uniform
    return result


def _product(layout: Layout, columns: FloatArray) -> FloatArray:
    """Return the table of pairs of independent columns with given shares ``(total,)``."""
    cells = np.outer(columns, columns)
    cells[layout.owner[:, None] == layout.owner] = 0.0
    np.fill_diagonal(cells, columns)
    return cells


def _drawn_columns(layout: Layout, counts: FloatArray, prior: FloatArray) -> FloatArray:
    """Return the shares of each column's states, shrunk to a prior ``(total,)`` that sums to 1."""
    first, owner = layout.first, layout.owner
    rows = np.add.reduceat(counts, first)
    evidence = [
        np.add.reduceat(gammaln(counts + a * prior) - gammaln(a * prior), first)
        - (gammaln(rows + a) - gammaln(a))
        for a in STRENGTHS
    ]
    chosen = np.array(STRENGTHS)[np.argmax(evidence, axis=0)]
    shares_of: FloatArray = (counts + chosen[owner] * prior) / (rows + chosen)[owner]
    return shares_of


def _pair_strengths(layout: Layout, counts: FloatArray, prior: FloatArray) -> FloatArray:
    """Return by cell the best strength of a prior, which sums to 1, for its pair of columns."""
    d = len(layout.first)
    left, right = np.nonzero(counts)  # what was not counted says nothing
    seen, given = counts[left, right], prior[left, right]
    pair = layout.owner[left] * d + layout.owner[right]
    rows = np.bincount(pair, seen, d * d)
    evidence = [
        np.bincount(pair, gammaln(seen + a * given) - gammaln(a * given), d * d)
        - (gammaln(rows + a) - gammaln(a))
        for a in STRENGTHS
    ]
    chosen = np.array(STRENGTHS)[np.argmax(evidence, axis=0)].reshape(d, d)
    strengths: FloatArray = chosen[layout.owner][:, layout.owner]
    return strengths


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
    cells = softened(layout, cells)
    means = np.diagonal(cells)
    values, vectors = np.linalg.eigh(cells - np.outer(means, means))
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = means + rng.standard_normal((count, len(means))) @ factor.T
    return independent(layout, np.zeros_like(draws), np.maximum(draws, 0.01 * means))


def products(layout: Layout, counts: FloatArray, cells: FloatArray) -> Trees:
    """Return products from the counts of their states ``(K, total)``."""
    added = PRODUCT_ROWS * np.diagonal(softened(layout, cells)) + STATE_ROWS
    return independent(layout, counts, np.broadcast_to(added, counts.shape))


def shrunk_trees(
    layout: Layout, pairs: FloatArray, cells: FloatArray, strengths: Sequence[float]
) -> Trees:
    """Return the tree of each component, shrunk to the pooled table as strongly as counts suggest.

    Each variable's tables have a strength of their own, the same in all components: one that tells
    others exactly would have to share the noise of those that tell little. So they have a share of
    the pooled table that is uniform instead.

    Parameters
    ----------
    layout : Layout
    pairs : ndarray, shape (K, num_pairs)
        Counts of each component.
    cells : ndarray, shape (total, total)
        See :func:`prior_cells`.
    strengths : sequence of float
        Rows of the pooled table that may be added to each component. Those under which the counts
        are the most probable are taken; that needs no held-out rows. (What a row's density would be
        had it not been counted does not tell: the row has a part in the tree and in the
        responsibilities.)
    """
    counts = [layout.pair_counts(one) for one in pairs]
    given, soft = np.array(strengths), softened(layout, cells)
    first = joined([chow_liu_tree(layout, one, FIRST_STRENGTH * soft) for one in counts])
    evidence = first.log_evidence(given / FIRST_STRENGTH)
    common = given[evidence.sum(axis=1).argmax()]
    trees = joined([chow_liu_tree(layout, one, common * soft) for one in counts])
    drawn = [trees.drawn(layout, softened(layout, cells, share)) for share in UNIFORMS]
    evidence = np.stack([one.log_evidence(given) for one in drawn])  # (shares, strengths, d)
    d = len(layout.states)
    share, strength = np.divmod(evidence.reshape(-1, d).argmax(axis=0), len(given))
    factors = given[strength] * (share == np.arange(len(UNIFORMS))[:, None])  # (shares, d)
    return trees.with_added(
        np.sum([one.added_times(own) for one, own in zip(drawn, factors, strict=True)], axis=0)
    )
