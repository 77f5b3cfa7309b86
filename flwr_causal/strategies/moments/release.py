"""Second moments with the noise of differential privacy: Moments with ``epsilon``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.privacy.release import read, scales_of, steps_of_noise, variance_of_counts
from flwr_causal.core.privacy.scales import Scaling
from flwr_causal.core.words import some
from flwr_causal.protocol.release import OCTAVES, RELEASE
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.secure.neighbours import least_parties
from flwr_causal.strategies.linear import divisors
from flwr_causal.strategies.moments.outcome import PooledMoments

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.privacy import PrivateOptions

#: A column fits where its mean is at most so many scales from the centre, and its standard
#: deviation is between these many scales.
FAR, LEAST_SPREAD = 2.0, 0.25


def released_moments(
    agreement: Agreement, masks: EdgeMasks, options: PrivateOptions
) -> Generator[Step, Any, PooledMoments]:
    """Ask for a release of second moments with noise; before it for scales that are not stated.

    Parameters
    ----------
    agreement : Agreement
        Names alone are known of the columns.
    masks : EdgeMasks
    options : PrivateOptions
        The budget, the stated scales and the guarantee.
    """
    names, budget = agreement.names, options.budget(agreement.names)
    stated, parties = options.stated_scales, len(agreement.rows)
    # Among how many parties the noise is shared: the fewest of a secure sum.
    sharing = least_parties(parties, options.quorum) if options.secure_aggregation else 1
    scaling = Scaling.of(names, stated, None)
    if scaling is None:
        replies = yield Ask(OCTAVES)
        assert budget.scales is not None
        lacking = [name for name in names if name not in stated]
        noise = variance_of_counts(len(lacking), budget.scales, sharing)
        scales = scales_of(replies["counts"], len(replies.parties) * noise, lacking)
        scaling = Scaling.of(names, stated, scales)
        assert scaling is not None
    replies = yield Ask(RELEASE, {"centers": scaling.centers, "scales": scaling.scales})
    noise = len(replies.parties) * steps_of_noise(len(names), budget.release, sharing)
    released = read(replies["products"], noise, scaling.centers, scaling.scales)
    own = replace(
        agreement,
        mean=released.mean,
        variance=np.diagonal(released.second).copy(),
        total=round(released.effective_rows),
    )
    scale = divisors(own.variance, options.standardize)
    rows = round(released.rows)
    used = zip(names, scaling.centers.tolist(), scaling.scales.tolist(), strict=True)
    return PooledMoments(
        own,
        masks,
        (released.second / np.outer(scale, scale))[None],
        info={"rows": rows, "effective_rows": own.n},
        warnings=tuple(scale_warning(names, scaling, released)),
        num_rows=rows,
        privacy=options.guarantee(
            names,
            sharing=sharing,
            scales={name: [center, size] for name, center, size in used},
            effective_rows=own.n,
        ),
        # Standard errors and tests by rows know nothing of the noise.
        adapted=lambda model: replace(model, sample_moments=None),
    )


def scale_warning(names: Sequence[str], scaling: Scaling, released: Released) -> list[str]:
    """Warn of columns that are far from their centre, or whose scale does not fit them."""
    spread = np.sqrt(np.diagonal(released.second)) / scaling.scales
    shift = np.abs(released.mean - scaling.centers) / scaling.scales
    wrong = [
        name
        for name, own, far in zip(names, spread, shift, strict=True)
        if far > FAR or not LEAST_SPREAD <= own <= FAR
    ]
    if not wrong:
        return []
    return [
        f"Centres and scales do not fit {some(wrong)}: these columns are clipped, or lost in the "
        "noise. Give their usual values and deviations, from public knowledge, by the option "
        "'scales' ('x=10:2' for a centre of 10 and a scale of 2)."
    ]
