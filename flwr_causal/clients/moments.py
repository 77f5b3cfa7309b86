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
from flwr_causal.core.blocks.design import Category, column_names, with_lags
from flwr_causal.core.blocks.logistic import expected_sums_of_rows, sums_of_rows
from flwr_causal.core.blocks.missing import (
    MomentEstimate,
    SeenSums,
    expected_sums,
    own_sums,
    seen_sums,
)
from flwr_causal.core.folds import stretches
from flwr_causal.core.nonlinear.basis import basis_rows
from flwr_causal.core.privacy.scales import Scaling, scales_by_column
from flwr_causal.core.series.design import lagged_names
from flwr_causal.data.check.party_table import prepare_columns
from flwr_causal.data.interventions import acted_on
from flwr_causal.data.read.pieces import pieces
from flwr_causal.data.series.levels import centered_rows
from flwr_causal.data.series.series import value_columns
from flwr_causal.errors import FederationError
from flwr_causal.protocol.moments import (
    CONTRACT,
    EXPECTED,
    OWN,
    PARTS,
    REGRESSIONS,
    SEEN,
    SUMS,
    regressed,
)
from flwr_causal.protocol.release import OCTAVES, RELEASE, num_states, sharing, unscaled
from flwr_causal.protocol.second_moments import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.series.levels import Centering
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.moments import MomentsPartyOptions


class MomentsClient(ColumnsClient, InterventionClient, SeriesClient):
    """Sends one array, the second moments of the party's centred and scaled rows.

    **What leaves the party**: :mod:`flwr_causal.protocol.moments` declares it.
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
        names, held = super()._product_columns(asked)
        held = np.tile(held, 1 + self.order)
        if self.setup.states:
            design = with_lags(blocks_of(self.setup), self.order)
            return column_names(design), np.repeat(held, [block.width for block in design])
        return lagged_names(names, self.order), held

    def _product_values(self, asked: Asked) -> FloatArray:
        if not self.setup.states:
            return super()._product_values(asked)
        held = self._product_columns(asked)[1]
        rows = np.concatenate([*self._block_pieces()])[asked["rows"]]
        return np.where(held, rows, 0.0)

    def _centered_rows(self) -> FloatArray:
        if self.order == 0:
            return super()._centered_rows()
        by = cast("Centering", self.options.center)
        mean = self._held_values(self.setup.mean)
        return np.concatenate(centered_rows(self.series(), self.order, mean, by))

    @answers(SUMS)
    def second_moments(self, asked: Asked) -> Arrays:
        """Return the second moments of each fold."""
        if self.setup.targets:
            designs = self._block_pieces() if self.setup.states else self.design_pieces()
            return {"moments": self.products_by_targets(designs) / self.num_rows}
        if self.setup.states:
            return {"moments": self._of_blocks()}
        if self.order:
            return {"moments": self._of_series()}
        if self.options.additive:
            return {"moments": self._of_functions()}
        return {"moments": self.products() / self.num_rows}

    @answers(PARTS)
    def moments_of_party(self, asked: Asked) -> Arrays:
        """Return the second moments of the rows [1, x], or [1, z], in which targets are sought."""
        designs = self._block_pieces() if self.setup.states else self.design_pieces()
        return {"moments": self.mean_products(designs)}

    def _of_functions(self) -> FloatArray:
        """Return the mean products of the rows [1, functions of the variables]."""
        setup = self.setup
        scale = np.ones(len(setup.names)) if self.options.standardize else setup.variance

        level, units = np.zeros(len(scale)), np.sqrt(scale)
        functions = (basis_rows(rows, level, units) for rows in self.design_pieces())
        return self.mean_products(functions)[None]

    def _of_blocks(self) -> FloatArray:
        """Return the mean products of the rows [1, columns of the variables]."""
        return self.mean_products(self._block_pieces())[None]

    def _block_pieces(self) -> Iterator[FloatArray]:
        """Yield the columns of the variables, with their lags, shape (n_k, s), in pieces.

        Missing cells are NaN, and so are all of a variable that the party lacks.
        """
        if self.order:
            steps = self.kept_rows(self.setup.policy)
            used, places = np.unique(steps, return_inverse=True)
            columns = self._block_columns(value_columns(self.frame(), self.layout).iloc[used])
            yield columns[places.reshape(steps.shape)].reshape(len(steps), -1)
            return
        for piece in pieces(self.table()):
            yield self._block_columns(piece)

    def _block_columns(self, piece: pd.DataFrame) -> FloatArray:
        """Return the columns of the variables of a part of the table."""
        setup, blocks, held = self.setup, blocks_of(self.setup), self.held_names
        states = [block.states if isinstance(block, Category) else () for block in blocks]
        own = [one for name, one in zip(setup.names, states, strict=True) if name in held]
        columns = prepare_columns(piece, held, own, setup.policy)
        known = dict(zip(held, columns, strict=True))
        missing = np.full(len(columns[0]), np.nan)
        return np.column_stack(
            [
                block.columns(known[block.name])
                if block.name in known
                else np.tile(missing[:, None], block.width)
                for block in blocks
            ]
        )

    def _with_sets(self) -> Iterator[tuple[FloatArray, IntArray | None]]:
        """Yield the columns of the variables in pieces, and each row's set of targets if any."""
        sets, start = self.strata(), 0
        for rows in self._block_pieces():
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
        rows = np.concatenate(list(self._block_pieces()))
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

    def _of_series(self) -> FloatArray:
        """Return the products of the rows of each fold, then those with fewer lags."""
        series, options = self.series(), self.options
        rows = self.leveled_rows(series, self.order)
        count = options.num_folds
        fold = stretches([len(one.values) - self.order for one in series], count)
        parts = [rows[fold == k] for k in range(count)]
        if options.select_order:
            # A smaller order has further rows: steps with fewer than p steps before them.
            parts += [self.leveled_rows(series, order) for order in range(1, self.order)]
        sums = np.zeros((len(parts), rows.shape[1], rows.shape[1]))
        for part, products in zip(parts, sums, strict=True):
            size = part.shape[1]
            products[:size, :size] = part.T @ part / len(rows)
        return sums


def _estimate(asked: Asked) -> MomentEstimate:
    """Return the estimate that the server sent."""
    estimate = MomentEstimate(asked["mean"], asked["second"])
    second = estimate.second
    if not (np.linalg.eigvalsh(second) > 0).all() or (second != second.swapaxes(1, 2)).any():
        raise FederationError("The second moments that the server sent are none of any rows.")
    return estimate
