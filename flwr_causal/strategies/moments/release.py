"""Second moments with the noise of differential privacy: Moments with ``epsilon``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.privacy.release import read, scales_of, steps_of_noise, variance_of_counts
from flwr_causal.core.privacy.scales import Scaling, lacking_scales, number_columns
from flwr_causal.core.ties import whole
from flwr_causal.core.words import some
from flwr_causal.protocol.release import OCTAVES, RELEASE
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.secure.neighbours import least_parties
from flwr_causal.strategies.moments.outcome import (
    PooledMoments,
    design_of,
    in_new_units,
    products_with_ones,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.moments.options import MomentsOptions

#: A column fits where its mean is at most so many scales from the centre, and its standard
#: deviation is between these many scales.
FAR, LEAST_SPREAD = 2.0, 0.25


def released_moments(
    agreement: Agreement, masks: EdgeMasks, options: MomentsOptions
) -> Generator[Step, Any, PooledMoments]:
    """Ask for a release of second moments with noise; before it for scales that are not stated.

    Parameters
    ----------
    agreement : Agreement
        Of the columns names are known, and the states that the dictionary lists.
    masks : EdgeMasks
    options : MomentsOptions
        The budget, the stated scales and the guarantee.
    """
    names, states = agreement.names, tuple(map(len, agreement.states))
    budget = options.budget(names, states)
    stated, parties = options.stated_scales, len(agreement.rows)
    # Among how many parties the noise is shared: the fewest of a secure sum.
    sharing = least_parties(parties, options.quorum) if options.secure_aggregation else 1
    scaling = Scaling.of(names, stated, None, states)
    if scaling is None:
        replies = yield Ask(OCTAVES)
        assert budget.scales is not None
        lacking = lacking_scales(names, stated, states)
        noise = variance_of_counts(len(lacking), budget.scales, sharing)
        scales = scales_of(replies["counts"], len(replies.parties) * noise, lacking)
        scaling = Scaling.of(names, stated, scales, states)
        assert scaling is not None
    replies = yield Ask(RELEASE, {"centers": scaling.centers, "scales": scaling.scales})
    w = len(scaling.centers)
    noise = len(replies.parties) * steps_of_noise(w, budget.release, sharing)
    released = read(replies["products"], noise, *scaling, names=names)
    numbers = number_columns(states, w)
    own = _with_moments(agreement, released, numbers)
    design = design_of(own, options)
    # Numbers are about their means.
    mean = np.where(numbers, 0.0, released.mean)
    products = products_with_ones(mean, released.second)[None]
    rows = whole(released.rows)
    shown = [name for k, name in enumerate(names) if not (states and states[k])]
    used = zip(
        shown, scaling.centers[numbers].tolist(), scaling.scales[numbers].tolist(), strict=True
    )
    return PooledMoments(
        own,
        masks,
        design,
        in_new_units(products, 1 / np.repeat(design.scale, design.widths)),
        info={"rows": rows, "effective_rows": own.n},
        warnings=tuple(scale_warning(shown, scaling, released, numbers)),
        num_rows=rows,
        privacy=options.guarantee(
            names,
            sharing=sharing,
            states=states,
            scales={name: [center, size] for name, center, size in used},
            effective_rows=own.n,
        ),
        # Standard errors and tests by rows know nothing of the noise.
        adapted=lambda model: replace(model, sample_moments=None),
    )


def _with_moments(agreement: Agreement, released: Released, numbers: BoolArray) -> Agreement:
    """Return the agreement with rows, means and variances of the release; NaN of categories."""
    mean, variance = np.full((2, len(agreement.names)), np.nan)
    is_number = np.array([not own for own in agreement.states] or numbers)
    mean[is_number] = released.mean[numbers]
    variance[is_number] = np.diagonal(released.second)[numbers]
    return replace(agreement, mean=mean, variance=variance, total=whole(released.effective_rows))


def scale_warning(
    names: Sequence[str], scaling: Scaling, released: Released, numbers: BoolArray
) -> list[str]:
    """Warn of numbers that are far from their centre, or whose scale does not fit them.

    Parameters
    ----------
    names : sequence of str
        Of the numbers.
    scaling : Scaling
    released : Released
    numbers : ndarray of bool, shape (w,)
        Which columns hold them.
    """
    spread = np.sqrt(np.diagonal(released.second)) / scaling.scales
    shift = np.abs(released.mean - scaling.centers) / scaling.scales
    wrong = [
        name
        for name, own, far in zip(names, spread[numbers], shift[numbers], strict=True)
        if far > FAR or not LEAST_SPREAD <= own <= FAR
    ]
    if not wrong:
        return []
    return [
        f"Centres and scales do not fit {some(wrong)}: these columns are clipped, or lost in the "
        "noise. Give their usual values and deviations, from public knowledge, by the option "
        "'scales' ('x=10:2' for a centre of 10 and a scale of 2)."
    ]
