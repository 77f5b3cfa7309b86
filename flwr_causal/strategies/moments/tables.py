"""The requirements of Moments on the parties' tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import Design, functions_of
from flwr_causal.core.linear.levels import about_one_mean
from flwr_causal.core.options import require
from flwr_causal.core.series.design import knowledge_masks
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.doubts.tables import OTHER_MECHANISMS
from flwr_causal.errors import ConfigError
from flwr_causal.sources.normal_scores import in_scores
from flwr_causal.sources.products import solved_design
from flwr_causal.strategies.columns import JoiningStrategy, joined_rows
from flwr_causal.strategies.local_graphs import require_several
from flwr_causal.strategies.moments.options import JoinedRows, JoinedSteps, MomentsOptions
from flwr_causal.strategies.series import with_party_moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.base import RunAlone
    from flwr_causal.strategies.moments.solvers.solver import Solved


class MomentsTables(JoiningStrategy):
    """Base of Moments: its tables may hold other columns, rows or series, by the options."""

    options_type = MomentsOptions
    options: MomentsOptions

    def validate(self) -> None:
        """Check that the options fit each other; the method decides how many exchanges it needs.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        super().validate()
        if self.options.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.options.max_rounds!r}; the moments method "
                "decides how many exchanges it needs. Leave the option out."
            )
        if self.options.order:
            self.options.check_series()
        own = self.options.weight_column
        alone = not own or self.options.role_columns.count(own) == 1
        require(alone, "weight_column", own, "a column without another role")
        about = self.options.center != "party" or self.options.level_sums
        fits = about or not self.options.takes_scores
        needed = "'auto' or 'global' with scale='normal-scores' here"
        require(fits, "center", self.options.center, needed)

    @property
    def data(self) -> DataKind:
        """Time series, or rows without time if the order is 0."""
        return DataKind.SERIES if self.options.order else DataKind.LINEAR

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond one: none where all sums are asked for at once."""
        return super().exchanges_beyond if len(self._exchanges) > 1 else 0

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        options = self.options
        apart = options.private or options.compares_parties or options.num_folds > 1
        apart = apart or bool(options.party_column)
        by_rows = options.center in ("auto", "global") and not (options.order or options.incomplete)
        return options.aggregation == "mean" and by_rows and not apart

    @property
    def _for_odd_parties(self) -> tuple[str, ...]:  # type: ignore[override]
        """Remedies for parties that differ, in words."""
        options = self.options
        acts = "unknown_targets=True finds what it acts on"
        less = "aggregation='median' weighs it less"
        many = "the method fedcausal allows for mechanisms that differ"
        averaged = options.takes_median and options.aggregation == "mean"
        possible = averaged and not options.compares_parties
        return (*([] if options.unknown_targets else [acts]), *([less] if possible else []), many)

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns."""
        return JoinedSteps if self.options.order else JoinedRows

    @property
    def _expected(self) -> Expected:
        """The assumptions of linear methods; equivalence classes have none about units."""
        options = self.options
        if self._columns_differ and options.center == "auto":
            # Sums over joined rows do not tell levels apart.
            options = replace(options, center="global")
        expected = options.expected
        needed = "centring" if options.order else "levels"
        by_hand = not all(needed in part.gives for part in self._parts)
        by_hand = by_hand or (self._columns_differ and not options.order)
        if expected.level_remedy and by_hand:
            whose = "series'" if options.order else "parties'"
            remedy = f"subtract the {whose} own means before the run"
            expected = replace(expected, level_remedy=remedy)
        if options.takes_blocks:
            expected = replace(expected, columns=functions_of(options.model))
        if self._columns_differ:
            # How many rows there are is known once they are matched.
            expected = replace(expected, columns=0)
        if options.unknown_targets:  # levels and spreads differ where parties act
            expected = replace(expected, level_remedy="", unit_ratio=OTHER_MECHANISMS)
        if not (self._columns_differ or options.private):
            tails = "" if options.takes_scores else "normal scores (scale='normal-scores')"
            expected = replace(expected, tails=tails)
        by_units = options.solving.by_units and not options.takes_scores
        return expected if by_units else replace(expected, raw_units=False)

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; where rows have ids, on the union of the parties' columns.

        Raises
        ------
        ConfigError
            As in the base classes, if ``scales`` names a column that there is not, or if
            ``stability`` is set for more columns than moments are drawn of.
        DataError
            As in the base classes.
        """
        if self.options.compares_parties:
            option = "unknown_targets" if self.options.unknown_targets else "local_graphs"
            require_several(option, reports)
        agreement = super().agree(reports)
        listed = () if self._entries is None else tuple(one.name for one in self._entries.columns)
        self.options.check_scales((*agreement.names, *listed))
        return _with_skewed(agreement, reports.values())

    def _complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement with the numbers of all rows."""
        return super()._complete(_with_skewed(agreement, [total]), total, groups)

    def _masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the columns or, with lags, the lagged design.

        Raises
        ------
        ConfigError
            If it requires edges that the solver does not fit.
        """
        if not self.options.order:
            return self.options.masks(agreement)
        names = agreement.names
        masks = knowledge_masks(self.options.known, names, self.options.order)
        self.options.solving.possible(masks, len(names))
        return masks

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the results without a federation; where columns differ, of the joined rows.

        A party alone then has some of the columns only, and no graph of all. None where parties are
        a cause.
        """
        if self.options.party_column:
            return None
        if not self._columns_differ:
            return super().baselines(tables, names, run_alone)
        joined = joined_rows(tables, self.options.row_id)
        found = None if joined is None else super().baselines([joined], names, run_alone)
        return None if found is None else found._replace(alone=[])

    def _sends_levels(self, agreement: Agreement) -> bool:
        """Whether the sums tell levels apart, as ``protocol.second_moments.sends_levels``."""
        return self.options.level_sums and not agreement.targets

    def _with_parties(
        self,
        agreement: Agreement,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return a system that has each party's moments, in the units of the system."""
        options = self.options
        if options.takes_scores:
            agreement = in_scores(agreement)
        design = solved_design(agreement, options)
        levels = self._sends_levels(agreement)
        name, seen = ("expected", reports) if options.incomplete else ("moments", None)
        arrays = {party: sent[name] for party, sent in replies.items() if name in sent}
        if options.incomplete:
            design = replace(design, weighted=False)
            if not options.takes_blocks:  # z is then in the agreed units
                design = Design.of(
                    agreement.names, agreement.mean, agreement.variance, order=options.order
                )
            own = {
                k: one[:-1].sum(axis=0) if levels else one.sum(axis=0) for k, one in arrays.items()
            }
        elif options.compares_parties:
            own = arrays
        elif levels:
            own = {party: about_one_mean(one) for party, one in arrays.items()}
        else:
            sets = slice(None, -options.fewer_lags or None)
            own = {party: one[sets].sum(axis=0) for party, one in arrays.items()}
        if design.weighted:
            pooled = np.sum([agreement.rows[party] * one for party, one in own.items()], axis=0)
            own = {party: design.effective(one, pooled) for party, one in own.items()}
        return with_party_moments(model, agreement, own, design, seen)


def with_amounts(outcome: Solved, skewed: Sequence[str]) -> Solved:
    """Return an outcome with a warning of columns that are skewed, if the graph does not fit."""
    model, p_value = outcome.model, None
    if isinstance(model, LinearModel | BlockModel):
        p_value = model.fit_check().p_value
    said = doubts_of(p_value=p_value, skewed=skewed)
    return outcome._replace(warnings=(*outcome.warnings, *said))


def _with_skewed(agreement: Agreement, reports: Iterable[TableReport]) -> Agreement:
    """Return the agreement that notes which columns are skewed as amounts are, at any party."""
    skewed = {column.name for report in reports for column in report.columns if column.skewed}
    named = tuple(name for name in agreement.names if name in skewed)
    return replace(agreement, noted=replace(agreement.noted, skewed=named))
