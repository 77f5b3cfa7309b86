"""The options of the linear methods that use known interventions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flwr_causal.data.interventions import by_party
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import LinearOptions, LinearStrategy
from flwr_causal.strategies.options import refuse_unfitting, require_fitting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.doubts.tables import Expected


@dataclass(frozen=True, kw_only=True)
class InterventionOptions(LinearOptions):
    """The options of :class:`InterventionStrategy`.

    Parameters
    ----------
    interventions : dict or str, optional
        From a party's name (in a simulation also its number) to the columns that interventions set
        or changed in all its rows; or such a mapping as JSON text. The rows then say nothing about
        what causes these columns. A node may state its own columns in its node config,
        ``interventions='x,y'``.
    intervention_column : str, default ""
        The column whose values name the columns on which an intervention acted in each row,
        separated by commas; empty where there was none. It is no variable.
    """

    interventions: dict[Any, Any] | str | None = None
    intervention_column: str = ""


class InterventionStrategy(LinearStrategy):
    """Base of the linear methods that use known interventions.

    The client is an :class:`~flwr_causal.clients.interventions.InterventionClient`, and the
    contract's reports include "interventions". A subclass states in :attr:`with_interventions` what
    its options must be, and leaves the rows under an intervention on a column out of the loss of
    this column. ``agreement.targets`` are the sets of columns by which rows are grouped; without
    interventions it is empty.
    """

    options_type = InterventionOptions
    options: InterventionOptions

    def settled(self, options: Any) -> Any:
        """Return the options with interventions as a text, which messages can hold."""
        stated = by_party(options.interventions)
        text = json.dumps(stated) if stated else None
        return super().settled(replace(options, interventions=text))

    def validate(self) -> None:
        """Check that the options fit each other, and interventions where there are any."""
        if self.states_interventions:
            require_fitting(self.options, self.with_interventions, "interventions")
        super().validate()

    @property
    def states_interventions(self) -> bool:
        """Whether the options state interventions; nodes may state them too."""
        return bool(self.options.interventions or self.options.intervention_column)

    @property
    def with_interventions(self) -> dict[str, tuple[bool, str]]:
        """Which options fit rows under interventions, by name, and what they must be."""
        return {
            "center": (self.options.center == "global", "'global'"),
            "aggregation": (self.options.aggregation == "mean", "'mean'"),
        }

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables."""
        return (*super().role_columns, *self.target_columns)

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The column that names the targets of each row, if there is one."""
        return (self.options.intervention_column,) if self.options.intervention_column else ()

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns and on the targets of interventions.

        Raises
        ------
        ConfigError
            If interventions are stated for a party that there is not, or by a node while other
            options do not use them.
        """
        for party in by_party(self.options.interventions):
            if party not in reports:
                raise ConfigError(
                    f"The option 'interventions' names the party {party!r}; there are "
                    f"{', '.join(reports)}."
                )
        agreement = super().agree(reports)
        if agreement.targets:
            refuse_unfitting(
                self.with_interventions,
                "Some nodes state interventions, which this run does not use: set {remedies}, or "
                "take 'interventions' out of their node configs.",
            )
        return agreement

    @property
    def expected(self) -> Expected:
        """What linear methods expect; interventions shift levels at some parties."""
        expected = super().expected
        return replace(expected, level_remedy="") if self.states_interventions else expected
