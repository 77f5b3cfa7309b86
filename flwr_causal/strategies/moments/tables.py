"""What Moments asks of the parties' tables, and takes for granted of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.blocks.design import functions_of
from flwr_causal.core.series.design import knowledge_masks
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.tables import OTHER_MECHANISMS
from flwr_causal.errors import ConfigError
from flwr_causal.sources.products import solved_design
from flwr_causal.strategies.columns import JoiningStrategy, joined_rows
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.local_graphs import require_several
from flwr_causal.strategies.moments.options import JoinedRows, JoinedSteps, MomentsOptions
from flwr_causal.strategies.series import expected_of_series, with_party_moments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.runtime.algorithm import Progress
    from flwr_causal.strategies.base import Baselines, RunAlone


class MomentsTables(JoiningStrategy, LinearStrategy):
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

    @property
    def data(self) -> DataKind:
        """Time series, or rows without time if the order is 0."""
        return DataKind.SERIES if self.options.order else DataKind.LINEAR

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond one: none where all sums are asked for at once."""
        return super().exchanges_beyond if len(self.exchanges) > 1 else 0

    @property
    def _leaves_reported(self) -> bool:
        """Not by reports: the pooled moments show which columns others determine."""
        return False

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        options = self.options
        apart = options.private or options.compares_parties or options.num_folds > 1
        by_rows = options.center == "global" and options.order == 0 and not options.incomplete
        return options.aggregation == "mean" and by_rows and not apart

    @property
    def _takes_median(self) -> bool:  # type: ignore[override]
        """Whether the parties' arrays may be combined by a median; blocks of columns have none."""
        return not self.options.takes_blocks

    @property
    def _weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        of_effects = not (self.options.takes_blocks or self.options.hidden_causes)
        return super()._weighs_in_units and of_effects

    @property
    def _withholds_totals(self) -> bool:  # type: ignore[override]
        """Whether the parties report names of columns only: a release has all that is known."""
        return self.options.private

    @property
    def _joins_columns(self) -> bool:  # type: ignore[override]
        """Whether rows of different parties may be matched by ids."""
        return not self.options.private

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns."""
        return JoinedSteps if self.options.order else JoinedRows

    @property
    def expected(self) -> Expected:
        """What linear methods expect; units of columns do not matter to equivalence classes."""
        options, expected = self.options, super().expected
        if options.order:
            expected = expected_of_series(expected, options.order)
        by_hand = options.takes_blocks or (self._columns_differ and not options.order)
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
        return expected if options.solving.by_units else replace(expected, raw_units=False)

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
        return agreement

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the columns or, with lags, the lagged design.

        Raises
        ------
        ConfigError
            If it requires edges that the solver does not fit.
        """
        if not self.options.order:
            return super().masks(agreement)
        names = agreement.names
        masks = knowledge_masks(self._knowledge_or_none, names, self.options.order)
        self.options.solving.possible(masks, len(names))
        return masks

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the results without a federation; where columns differ, of the joined rows.

        A party alone then has some of the columns only, and no graph of all.
        """
        if not self._columns_differ:
            return super().baselines(tables, names, run_alone)
        joined = joined_rows(tables, self.options.row_id)
        found = None if joined is None else super().baselines([joined], names, run_alone)
        return None if found is None else found._replace(alone=[])

    def _with_parties(
        self,
        state: Progress,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return a linear system with each party's moments in the units of the data."""
        if self.options.compares_parties:
            return model  # run.targets and run.heterogeneity say how parties differ
        design = solved_design(state.agreement, self.options)
        sets = slice(None, -self.options.fewer_lags or None)
        sent = {
            party: arrays["moments"][sets].sum(axis=0)
            for party, arrays in replies.items()
            if "moments" in arrays
        }
        return with_party_moments(model, state.agreement, sent, design)
