"""Moments (Ng & Zhang 2022, section 4): the party's side."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.columns import ColumnsClient
from flwr_causal.clients.interventions import InterventionClient
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.clients.privacy import (
    about_centers,
    budget,
    drawn_octaves,
    drawn_products,
    numbers,
)
from flwr_causal.contracts.moments import (
    CONTRACT,
    EXPECTED,
    OWN,
    PARTS,
    REGRESSIONS,
    SEEN,
    SUMS,
    regressed,
)
from flwr_causal.core.blocks.design import Category
from flwr_causal.core.blocks.logistic import expected_sums_of_rows, sums_of_rows
from flwr_causal.core.blocks.missing import (
    MomentEstimate,
    SeenSums,
    expected_sums,
    own_sums,
    seen_sums,
)
from flwr_causal.core.folds import stretches
from flwr_causal.core.privacy.scales import Scaling, scales_by_column
from flwr_causal.data.check.party_table import prepare_columns
from flwr_causal.data.interventions import acted_on
from flwr_causal.data.read.pieces import pieces
from flwr_causal.data.series.levels import centered_rows
from flwr_causal.data.series.series import value_columns
from flwr_causal.errors import FederationError
from flwr_causal.protocol.release import OCTAVES, RELEASE, num_states, sharing, unscaled
from flwr_causal.protocol.second_moments import design_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from flwr_causal.contracts.moments import MomentsPartyOptions
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Design
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.series.levels import Centering
    from flwr_causal.protocol.contract import Contract


class MomentsClient(ColumnsClient, InterventionClient, SeriesClient):
    """Sends one array, the second moments of the party's centred and scaled rows.

    **What leaves the party**: :mod:`flwr_causal.contracts.moments` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT
    options: MomentsPartyOptions

    def describe(self, policy: Policy) -> TableReport:
        """Report the table, and whether it has ids."""
        return self.with_ids(super().describe(policy))

    @property
    def sharing(self) -> int:
        """Among how many parties the noise of the release is shared."""
        return sharing(self.setup)

    @answers(OCTAVES)
    def octaves(self, asked: Asked) -> Arrays:
        """Return noisy histograms of the columns whose scale is estimated."""
        columns = unscaled(self.setup)
        noise = budget(self.options, estimates=bool(columns))
        rows = about_centers(self.table(), columns, scales_by_column(self.options.scales))
        parties = self.sharing
        about = self._asked_by(columns, asked.number)
        return {"counts": drawn_octaves(self.context, rows, noise, parties, about)}

    @answers(RELEASE)
    def release(self, asked: Asked) -> Arrays:
        """Return the noisy products of the clipped rows."""
        names = self.setup.names
        noise = budget(self.options, estimates=bool(unscaled(self.setup)))
        scaling = Scaling(asked["centers"], asked["scales"], num_states(self.setup))
        rows = numbers(self.table(), names)
        parties, about = self.sharing, self._asked_by(names, asked.number)
        return {"products": drawn_products(self.context, rows, scaling, noise, parties, about)}

    def _asked_by(self, columns: tuple[str, ...], number: int) -> str:
        """Return the columns of a question; where the noise is shared also the sum that it is for.

        The difference of two sums of different parties would be a party's numbers with no more than
        its own part of the noise.
        """
        shared = f" {number} {' '.join(self.setup.keys)}" if self.sharing > 1 else ""
        return f"{columns}{shared}"

    def _product_columns(self, asked: Asked) -> tuple[Sequence[str], BoolArray]:
        design, held = design_of(self.setup), super()._product_columns(asked)[1]
        return design.columns, np.repeat(np.tile(held, 1 + self.order), design.widths)

    def _product_values(self, asked: Asked) -> FloatArray:
        if not self.setup.states:
            return super()._product_values(asked)
        held = self._product_columns(asked)[1]
        rows = np.concatenate([*self.sum_rows()])[asked["rows"]]
        return np.where(held, rows, 0.0)

    def _centered_rows(self) -> FloatArray:
        if self.order == 0:
            return super()._centered_rows()
        by = cast("Centering", self.options.center)
        mean = self._held_values(self.setup.mean)
        return np.concatenate(centered_rows(self.series(), self.order, mean, by))

    @answers(SUMS)
    def sums_of_products(self, asked: Asked) -> Arrays:
        """Return the mean products of the rows [1, z] of each set of targets, or of each fold."""
        if self.setup.targets:
            return {"moments": self.products_by_targets(self.sum_rows()) / self.num_rows}
        folds = self._folds_of_rows()
        sums = self.products_by_set(self.sum_rows(), folds, self.options.folds)
        if self.options.select_order:
            sums = np.concatenate([sums, self._of_fewer_lags(sums.shape[1])])
        return {"moments": sums / self.num_rows}

    def _folds_of_rows(self) -> IntArray | None:
        """Return each row's fold, where there are several: stretches of series, or at random."""
        count = self.options.folds
        if count == 1:
            return None
        if not self.order:
            return self.held_out_rows()
        return stretches([len(one.values) - self.order for one in self.series()], count)

    def _of_fewer_lags(self, size: int) -> FloatArray:
        """Return the products with 1, 2, ... lags, each in the upper left of an array of ``size``.

        They have further rows: steps with fewer than p steps before them.
        """
        found = np.zeros((self.order - 1, size, size))
        for lags, own in enumerate(found, 1):
            products = self.products_by_set(self.sum_rows(lags))[0]
            own[: len(products), : len(products)] = products
        return found

    @answers(PARTS)
    def products_of_party(self, asked: Asked) -> Arrays:
        """Return the mean products of the rows [1, z], in which targets are sought."""
        return {"moments": self.mean_products(self.sum_rows())}

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z in pieces: also of functions of numbers, and of categories.

        Missing cells are NaN, and so are all of a variable that the party lacks.
        """
        design, complete = design_of(self.setup), self.setup.policy.missing_values != "em"
        complete = complete and len(self.held_names) == len(self.setup.names)
        if self.order and design.single and complete:
            yield from super().sum_rows(order)
        elif self.order:
            steps = self.kept_rows(self.setup.policy)
            used, places = np.unique(steps, return_inverse=True)
            columns = self._columns_of(design, value_columns(self.frame(), self.layout).iloc[used])
            yield columns[places.reshape(steps.shape)].reshape(len(steps), -1)
        elif design.numbers and complete:
            own = self.options.center == "party"
            design = design.with_means(self.once("mean", self._mean)) if own else design
            yield from map(design.rows_of, self.row_pieces())
        else:
            for piece in pieces(self.table()):
                yield self._columns_of(design, piece)

    def _columns_of(self, design: Design, piece: pd.DataFrame) -> FloatArray:
        """Return the columns at t of the variables of a part of the table."""
        held, policy = self.held_names, self.setup.policy
        own = [one for one in design.variables if one.name in held]
        states = [one.states if isinstance(one, Category) else () for one in own]
        columns = prepare_columns(piece, [one.name for one in own], states, policy)
        known = dict(zip([one.name for one in own], columns, strict=True))
        missing = np.full(len(columns[0]), np.nan)
        return np.column_stack(
            [
                one.columns(known[one.name])
                if one.name in known
                else np.tile(missing[:, None], one.width)
                for one in design.variables
            ]
        )

    def _with_sets(self) -> Iterator[tuple[FloatArray, IntArray | None]]:
        """Yield the columns of the variables in pieces, and each row's set of targets if any."""
        sets, start = self.strata(), 0
        for rows in self.sum_rows():
            end = start + len(rows)
            yield rows, None if sets is None else sets[start:end]
            start = end

    def _by_targets(self) -> Iterator[list[FloatArray]]:
        """Yield the rows of each set of targets, in pieces; without interventions all rows."""
        for rows, sets in self._with_sets():
            several = range(len(self.setup.targets))
            yield [rows] if sets is None else [rows[sets == k] for k in several]

    def _acted_pieces(self) -> Iterator[tuple[FloatArray, BoolArray | None]]:
        """Yield the columns of the variables in pieces, and which each row's targets are if any."""
        acted = acted_on(self.setup.targets, self.setup.names)
        for rows, sets in self._with_sets():
            yield rows, None if sets is None else acted[sets]

    @answers(SEEN)
    def sums_of_seen(self, asked: Asked) -> Arrays:
        """Return sums over the rows in which two cells are seen."""
        sums = np.sum([[seen_sums(one) for one in rows] for rows in self._by_targets()], axis=0)
        return SeenSums(*np.swapaxes(sums / self.num_rows, 0, 1))._asdict()

    @answers(OWN)
    def own_moments(self, asked: Asked) -> Arrays:
        """Return the second moments by an estimate from the party's own rows.

        Raises
        ------
        FederationError
            As of :meth:`expected_moments`.
        """
        rows = np.concatenate(list(self.sum_rows()))
        return {"expected": own_sums(rows, _estimate(asked).of_set(0)) / self.num_rows}

    @answers(EXPECTED)
    def expected_moments(self, asked: Asked) -> Arrays:
        """Return the second moments with missing cells as expected by the estimate.

        Raises
        ------
        FederationError
            If the estimate is none: its second moments are not positive definite.
        """
        estimate = _estimate(asked)
        parts = (
            np.array([expected_sums(own, estimate.of_set(k)) for k, own in enumerate(rows)])
            for rows in self._by_targets()
        )
        return {"expected": reduce(np.add, parts) / self.num_rows}

    @answers(REGRESSIONS)
    def regression_sums(self, asked: Asked) -> Arrays:
        """Return the sums of a Newton step of the regressions of categories on their causes.

        Raises
        ------
        FederationError
            If the coefficients are those of others.
        """
        families, weights = regressed(asked.values, self.setup), asked["weights"]
        if len(weights) != sum(family.num_weights for family in families):
            raise FederationError("The coefficients that the server sent are of other causes.")
        incomplete = self.setup.policy.missing_values == "em"
        estimate = _estimate(asked).of_set(0) if incomplete else None
        parts = [
            sums_of_rows(families, rows, weights, acted)
            if estimate is None
            else expected_sums_of_rows(families, rows, weights, estimate)
            for rows, acted in self._acted_pieces()
        ]
        logs, gradient, information = (
            reduce(np.add, part) / self.num_rows for part in zip(*parts, strict=True)
        )
        return {"log-likelihoods": logs, "gradient": gradient, "information": information}


def _estimate(asked: Asked) -> MomentEstimate:
    """Return the estimate that the server sent."""
    estimate = MomentEstimate(asked["mean"], asked["second"])
    second = estimate.second
    if not (np.linalg.eigvalsh(second) > 0).all() or (second != second.swapaxes(1, 2)).any():
        raise FederationError("The second moments that the server sent are none of any rows.")
    return estimate
