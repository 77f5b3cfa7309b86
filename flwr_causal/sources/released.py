"""Products with the noise of differential privacy: ``epsilon``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flwr_causal.contract.answers import answers
from flwr_causal.core.privacy.release import read, scales_of, steps_of_noise, variance_of_counts
from flwr_causal.core.privacy.scales import (
    Scaling,
    lacking_scales,
    number_columns,
    scales_by_column,
)
from flwr_causal.core.ties import whole
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.party.noise import (
    about_centers,
    budget,
    drawn_octaves,
    drawn_products,
    numbers,
)
from flwr_causal.protocol.release import OCTAVES, RELEASE, num_states, unscaled
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.secure.masks import least_parties
from flwr_causal.sources.products import (
    DesignOptions,
    Products,
    in_new_units,
    products_with_ones,
    solved_design,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, BoolArray
    from flwr_causal.core.privacy.calibration import Budget
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.core.privacy.scales import Scales
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.rows import DesignRows

#: A column fits where its mean is at most so many scales from the centre, and its standard
#: deviation is between these many scales.
FAR, LEAST_SPREAD = 2.0, 0.25


class ReleasedOptions(DesignOptions, Protocol):
    """The options of a release."""

    @property
    def stated_scales(self) -> Scales:
        """The scales that are known beforehand, by column."""

    @property
    def secure_aggregation(self) -> bool:
        """Whether the noise is shared among the parties of a secure sum."""

    @property
    def quorum(self) -> float:
        """The least share of the parties in a sum."""

    def budget(self, names: Sequence[str], states: Sequence[int] = ()) -> Budget:
        """Return the noise that epsilon and delta need with these columns."""

    def guarantee(
        self, names: Sequence[str], sharing: int, states: Sequence[int] = (), **further: Any
    ) -> dict[str, Any]:
        """Return the guarantee in plain values, for the results."""


def released_products(
    agreement: Agreement, options: ReleasedOptions
) -> Generator[Step, Any, Products]:
    """Ask for a release of second moments with noise; before it for scales that are not stated.

    Parameters
    ----------
    agreement : Agreement
        Of the columns names are known, and the states that the dictionary lists.
    options : ReleasedOptions
        The budget, the stated scales and the guarantee.
    """
    names, states = agreement.names, tuple(map(len, agreement.states))
    needed = options.budget(names, states)
    stated, parties = options.stated_scales, len(agreement.rows)
    # Among how many parties the noise is shared: the fewest of a secure sum.
    shared = least_parties(parties, options.quorum) if options.secure_aggregation else 1
    scaling = Scaling.of(names, stated, None, states)
    if scaling is None:
        replies = yield Ask(OCTAVES)
        assert needed.scales is not None
        lacking = lacking_scales(names, stated, states)
        noise = variance_of_counts(len(lacking), needed.scales, shared)
        scales = scales_of(replies["counts"], len(replies.parties) * noise, lacking)
        scaling = Scaling.of(names, stated, scales, states)
        assert scaling is not None
    replies = yield Ask(RELEASE, {"centers": scaling.centers, "scales": scaling.scales})
    w = len(scaling.centers)
    noise = len(replies.parties) * steps_of_noise(w, needed.release, shared)
    released = read(replies["products"], noise, *scaling, names=names)
    of_numbers = number_columns(states, w)
    own = _with_moments(agreement, released, of_numbers)
    design = solved_design(own, options)
    # Numbers are about their means.
    mean = np.where(of_numbers, 0.0, released.mean)
    products = products_with_ones(mean, released.second)[None]
    rows = whole(released.rows)
    shown = [name for k, name in enumerate(names) if not (states and states[k])]
    centers, scales = (one[of_numbers].tolist() for one in scaling[:2])
    return Products(
        own,
        design,
        in_new_units(products, 1 / np.repeat(design.scale, design.widths)),
        info={"rows": rows, "effective_rows": own.n},
        warnings=tuple(doubts_of(unfit=unfit(shown, scaling, released, of_numbers))),
        num_rows=rows,
        privacy=options.guarantee(
            names,
            sharing=shared,
            states=states,
            scales={name: [*own] for name, *own in zip(shown, centers, scales, strict=True)},
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


def unfit(
    names: Sequence[str], scaling: Scaling, released: Released, numbers: BoolArray
) -> list[str]:
    """Return the numbers that are far from their centre, or whose scale does not fit them.

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
    return [
        name
        for name, own, far in zip(names, spread[numbers], shift[numbers], strict=True)
        if far > FAR or not LEAST_SPREAD <= own <= FAR
    ]


@answers(OCTAVES)
def octaves(rows: DesignRows, asked: Asked) -> Arrays:
    """Return noisy histograms of a party's columns whose scale is estimated."""
    columns = unscaled(rows.setup)
    noise = budget(rows.options, estimates=bool(columns))
    values = about_centers(rows.table(), columns, scales_by_column(rows.options.scales))
    about = _asked_by(rows, columns, asked.number)
    return {"counts": drawn_octaves(rows.context, values, noise, rows.sharing, about)}


@answers(RELEASE)
def release(rows: DesignRows, asked: Asked) -> Arrays:
    """Return the noisy products of a party's clipped rows."""
    names = rows.setup.names
    noise = budget(rows.options, estimates=bool(unscaled(rows.setup)))
    scaling = Scaling(asked["centers"], asked["scales"], num_states(rows.setup))
    values = numbers(rows.table(), names)
    about = _asked_by(rows, names, asked.number)
    return {"products": drawn_products(rows.context, values, scaling, noise, rows.sharing, about)}


def _asked_by(rows: DesignRows, columns: tuple[str, ...], number: int) -> str:
    """Return the columns of a question; where the noise is shared also the sum that it is for.

    The difference of two sums of different parties would be a party's numbers with no more than
    its own part of the noise.
    """
    shared = f" {number} {' '.join(rows.setup.keys)}" if rows.sharing > 1 else ""
    return f"{columns}{shared}"
