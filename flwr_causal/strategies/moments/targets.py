"""Interventions whose targets nobody has told: ``unknown_targets=True`` of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.interventions.targets import find_targets
from flwr_causal.errors import FederationError
from flwr_causal.protocol.moments import PARTS
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.strategies.moments.outcome import PooledMoments

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.interventions import Targets
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step

#: Fewest parties, or groups, between which mechanisms can differ.
LEAST_PARTS = 2
TWO_PARTS = (
    "Mechanisms of two parties were compared: where they differ it is not known which of the two "
    "acts, and run.targets names one. A third party would tell."
)


def moments_with_targets(
    agreement: Agreement,
    masks: EdgeMasks,
    columns: tuple[str, ...],
    widths: Sequence[int],
    *,
    without: Callable[[FloatArray], FloatArray],
    search: Callable[[Sequence[Moments]], BoolArray],
) -> Generator[Step, Any, PooledMoments]:
    """Ask for each party's moments, and find which party acts on which variable.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge over the variables and their lags.
    columns : tuple of str
        The names of all columns of the rows z.
    widths : sequence of int
        Number of columns of each of the d variables, and then of their lags.
    without : callable
        Given the mean products of the rows [1, z] of all parties, returns what a run without
        interventions has: nothing of its result differs then where no targets are found.
    search : callable
        Returns the graph, (m, d), given each variable's moments.

    Raises
    ------
    FederationError
        If there are the moments of one party, or group of parties, only.
    """
    replies = yield Ask(PARTS)
    parts = replies.of("moments")
    if len(parts) < LEAST_PARTS:
        raise FederationError(
            "unknown_targets=True compares parties, and there are the moments of "
            f"{', '.join(parts)} only: start the run again once others can answer, or leave the "
            "option out."
        )
    rows = np.array([_rows_of(replies, agreement, name) for name in parts], dtype=np.float64)
    products = np.stack([*parts.values()]) * rows[:, None, None]
    names, n = agreement.names, int(rows.sum())

    def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
        return search(moments_by_variable(products / n, replaced, n, columns, names, shifted))

    found = find_targets(products, widths, len(names), graph_of)
    agreement = agreement.with_rows(replies.rows)
    warnings = (TWO_PARTS,) if len(parts) == LEAST_PARTS and found.acted.any() else ()
    heterogeneity = Heterogeneity({}, targets=found.records(list(parts), names))
    info = {"targets": int(found.acted.sum())}
    if not found.acted.any():
        pooled = without(products.sum(axis=0) / n)
        return PooledMoments(agreement, masks, pooled, info, heterogeneity=heterogeneity)
    known = replace(
        agreement,
        targets=_named(found.replaced, names),
        shifted=_named(found.shifted, names),
    )
    return PooledMoments(
        known, masks, products / n, info, warnings=warnings, heterogeneity=heterogeneity
    )


def _rows_of(replies: Replies, agreement: Agreement, name: str) -> int:
    """Return the rows of a party, or of those of a group that are in its sum."""
    return replies.sums[name].rows if name in replies.sums else agreement.rows[name]


def _named(acted: BoolArray, names: tuple[str, ...]) -> tuple[Targets, ...]:
    """Return the names of each party's targets; several parties may have the same."""
    return tuple(tuple(name for name, one in zip(names, own, strict=True) if one) for own in acted)
