"""Expectation maximisation of a tensorised circuit by sums over rows.

The E-step counts how often each weight and unit is expected to be taken: sums over rows, so what
parties with the same columns send is added, and the circuit is the one of all their rows together.
The M-step divides. A step s < 1 is that of stepwise EM (Cappe and Moulines, JRSS B 2009): counts of
a batch enter a running mean, ``(1 - s) running + s counts / rows``. The running mean is not kept:
it is what the circuit itself expects of a row that it has not seen, since after an M-step that is
the mean of which it was made.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.core.circuits.tensors.evaluation import (
    TensorParameters,
    chunks,
    evaluated,
    flows,
)

if TYPE_CHECKING:
    from flwr_causal.core.circuits.tensors.layout import TensorLayout

Tensor = Any

#: Rows of the data that a sum (a category) is taken to have seen already, all choices alike.
SMOOTHING = 0.01
#: Bounds of a unit's variance, of standardised values. The least is that of the paper's images.
VARIANCES = (1e-3, float("inf"))
#: What a unit that no row comes to keeps of itself; and the least probability of a state.
NOTHING = 1e-9


#: What is left of the first step at the end.
LAST_STEP = 0.01


def cooled(step: float, done: float) -> float:
    """Return the step when a share of all M-steps is done: half a cosine from the first step down.

    Large steps forget the random start quickly, small ones average over many batches.
    """
    return step * (LAST_STEP + (1.0 - LAST_STEP) * 0.5 * (1.0 + math.cos(math.pi * done)))


class Counts(NamedTuple):
    """Expected counts, of some rows or of one.

    Attributes
    ----------
    statistics : (F, R, K)
        Sums of the statistics of rows that a unit is taken for.
    presence : (columns, R, K)
        Numbers of such rows.
    layers, root
        Of each weight; shapes as in `TensorParameters`.
    """

    statistics: Tensor
    presence: Tensor
    layers: tuple[Tensor, ...]
    root: Tensor

    def plus(self, other: Counts) -> Counts:
        """Return the counts of the rows of both."""
        return Counts(
            self.statistics + other.statistics,
            self.presence + other.presence,
            tuple(a + b for a, b in zip(self.layers, other.layers, strict=True)),
            self.root + other.root,
        )


def counted(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[Counts, float]:
    """E-step: the counts of rows (d, n), at least one, and the sum of their log densities."""
    parts = [
        _counted(layout, parameters, rows[:, part])
        for part in chunks(layout, parameters, rows.shape[1])
    ]
    total = reduce(Counts.plus, (counts for counts, _ in parts))
    return total, sum(float(densities) for _, densities in parts)


def _counted(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[Counts, Tensor]:
    torch = layout.torch
    evaluation = evaluated(layout, parameters, rows)
    root, layers, below = flows(parameters, evaluation)
    statistics = torch.bmm(evaluation.statistics, below.transpose(1, 2))
    if evaluation.presence is None:
        spread = below.sum(dim=2)[:, None, :]
        presence = spread.expand(-1, layout.region_presence.shape[1], -1)
    else:
        presence = torch.bmm(evaluation.presence, below.transpose(1, 2))
    counts = Counts(
        layout.by_statistic(statistics, layout.region_statistics, len(layout.statistic_columns)),
        layout.by_statistic(presence, layout.region_presence, len(layout.columns)),
        tuple(layers),
        root,
    )
    return counts, evaluation.joint.logsumexp(dim=0).sum()


def expected(layout: TensorLayout, parameters: TensorParameters) -> Counts:
    """Return the counts of one row drawn from the circuit."""
    torch = layout.torch
    layers = []
    below = parameters.root.T[None]  # (B, R, O)
    for weights in reversed(parameters.layers):
        layers.append(below[..., None, None] * weights)
        below = torch.cat([layers[-1].sum(dim=(2, 4)), layers[-1].sum(dim=(2, 3))])
    presence = below.flatten(0, 1)[layout.region_of]
    seen = [
        parameters.means,
        parameters.variances + parameters.means**2,
        parameters.probabilities[layout.later_states],
    ]
    statistics = torch.cat(seen) * presence[layout.statistic_places]
    return Counts(statistics, presence, tuple(layers[::-1]), parameters.root)


def stepped(
    layout: TensorLayout,
    parameters: TensorParameters,
    counts: Counts,
    rows: float,
    step: float,
    prior: float,
    variances: tuple[float, float] = VARIANCES,
) -> TensorParameters:
    """M-step.

    Parameters
    ----------
    layout : TensorLayout
    parameters : TensorParameters
        Those that rows were counted with.
    counts : Counts
    rows : float
        Their number.
    step : float
        Share of the counts in the running mean; 1 forgets what was before, which is EM itself.
    prior : float
        What each sum and category is given beforehand, all choices alike, as a share of all rows of
        the data: it does not grow as the batches get smaller.
    variances : tuple of float
        Bounds of the units' variances, of standardised values.
    """
    torch = layout.torch
    before = expected(layout, parameters)
    share, keep = step / rows, 1.0 - step

    def mean(old: Tensor, new: Tensor) -> Tensor:
        return old * keep + new * share

    layers = []
    for old, new in zip(before.layers, counts.layers, strict=True):
        own = mean(old, new) + prior / (new.shape[-1] * new.shape[-2])
        layers.append(own / own.sum(dim=(3, 4), keepdim=True))
    root = mean(before.root, counts.root) + prior / before.root.numel()

    kept = max(keep, NOTHING)
    presence = before.presence * kept + counts.presence * share
    statistics = before.statistics * kept + counts.statistics * share
    numbers = len(layout.numbers)
    first, second, later = statistics.tensor_split([numbers, 2 * numbers])
    own = presence[layout.number_places]
    means = first / own
    variance = second / own - means**2

    begin, place = layout.first_states
    totals = presence[layout.category_places]
    states = totals.new_empty((len(layout.states), *totals.shape[1:]))
    states[begin] = totals
    states[layout.later_states] = later
    states[begin] -= torch.zeros_like(totals).index_add_(0, place[layout.later_states], later)
    alike = layout.num_states[layout.categories][place.cpu().numpy()]
    states = states.clamp_(min=0.0) + prior / layout.tensor(alike)[:, None, None]
    states = (states / totals[place]).clamp(min=NOTHING)
    sums = torch.zeros_like(totals).index_add_(0, place, states)
    return TensorParameters(
        means, variance.clamp(*variances), states / sums[place], tuple(layers), root / root.sum()
    )
