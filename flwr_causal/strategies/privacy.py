"""The options of the linear methods with differential privacy of rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.options import Mode, bounded, only
from flwr_causal.core.privacy.budget import SCALES_SHARE, Budget, budget_of
from flwr_causal.core.privacy.calibration import LEAST_DELTA, MOST_EPSILON, USUAL_DELTA
from flwr_causal.core.privacy.release import clipping_norm, sensitivity
from flwr_causal.core.privacy.scales import scales_by_column
from flwr_causal.core.words import some
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import LinearOptions, LinearStrategy
from flwr_causal.strategies.options import require_fitting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.privacy.release import Released
    from flwr_causal.core.privacy.scales import Scales, Scaling
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.strategies.base import Baselines, RunAlone

#: Options about reports on some columns or on their values; a private report has names alone.
OF_REPORTS = (
    *("text_columns", "constant_columns", "duplicate_columns", "missing_texts"),
    *("exclude", "columns", "dictionary"),
)
PRIVATE = Mode("differential privacy (epsilon)", lambda method: method.options.epsilon is not None)
NOT_PRIVATE = Mode("runs without epsilon", lambda method: method.options.epsilon is None)
#: A column fits where its mean is at most so many scales from the centre, and its standard
#: deviation is between these many scales.
FAR, LEAST_SPREAD = 2.0, 0.25


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(LinearOptions):
    """The options of :class:`PrivateStrategy`.

    Parameters
    ----------
    epsilon : float, optional
        Differential privacy of rows: what leaves a party's table is one release of its clipped
        second moments with Gaussian noise, and nothing else of it. Adding or removing a row changes
        the probability of any result by a factor of at most exp(epsilon), but for a probability
        delta. Default: none. docs/differential_privacy.md says against whom, and how much it costs.
    delta : float, optional
        In (0, 1), far below 1 over the number of rows. Default: 1e-5, with epsilon.
    scales : dict or str, optional
        With epsilon: by column a number that its absolute values seldom exceed by much, such as its
        standard deviation, from public knowledge, never from the tables; or the pair (centre,
        scale). As text "x=2.0, y=10:3", or JSON. The scale of a column without one is estimated,
        which takes a tenth of the privacy loss and, in ``moments``, one exchange more; its centre
        is 0.
    """

    epsilon: float | None = bounded(None, above=0, most=MOST_EPSILON)
    delta: float | None = only(PRIVATE, None, least=LEAST_DELTA, below=1)
    scales: dict[Any, Any] | str | None = None
    narrowed: ClassVar[Mapping[str, Mode]] = {
        "scales": PRIVATE,
        **dict.fromkeys(OF_REPORTS, NOT_PRIVATE),
    }


class PrivateStrategy(LinearStrategy):
    """Base of the linear methods with differential privacy of rows; docs/differential_privacy.md.

    A subclass states in :attr:`with_privacy` what its options must be.
    """

    options_type = PrivateOptions
    options: PrivateOptions

    def settled(self, options: Any) -> Any:
        """Return the options with scales as a text, which messages can hold."""
        stated = scales_by_column(options.scales)
        text = json.dumps(stated) if stated else None
        return super().settled(replace(options, scales=text))

    def validate(self) -> None:
        """Check that the options fit each other, and epsilon where it is given."""
        if self.options.epsilon is not None:
            require_fitting(self.options, self.with_privacy, "epsilon")
        super().validate()

    @property
    def with_privacy(self) -> dict[str, tuple[bool, str]]:
        """Which options fit differential privacy, by name, and what they must be."""
        return {
            "replicates": (self.options.replicates == 0, "0"),
            "leave_one_out": (not self.options.leave_one_out, "False"),
            "changed_tables": (self.options.changed_tables == "fail", "'fail'"),
            "center": (self.options.center == "global", "'global'"),
            "aggregation": (self.options.aggregation == "mean", "'mean'"),
            "groups": (self.options.groups == 1, "1"),
        }

    @property
    def private(self) -> bool:  # type: ignore[override]
        """Whether the run has differential privacy."""
        return self.options.epsilon is not None

    @property
    def used_delta(self) -> float:
        """The option ``delta`` or its default."""
        return USUAL_DELTA if self.options.delta is None else self.options.delta

    @property
    def stated_scales(self) -> Scales:
        """The option ``scales``, by column."""
        return scales_by_column(self.options.scales)

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns.

        Raises
        ------
        ConfigError
            If ``scales`` names a column that there is not.
        """
        agreement = super().agree(reports)
        for name in self.stated_scales:
            if name not in agreement.names:
                raise ConfigError(
                    f"The option 'scales' names the column {name!r}; there are "
                    f"{', '.join(agreement.names)}."
                )
        return agreement

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs without a federation; None with epsilon, which rows alone ignore."""
        return None if self.private else super().baselines(tables, names, run_alone)

    def budget(self, names: Sequence[str]) -> Budget:
        """Return the noise that epsilon and delta need with these columns."""
        assert self.options.epsilon is not None
        stated = self.stated_scales
        estimates = any(name not in stated for name in names)
        return budget_of(self.options.epsilon, self.used_delta, estimates=estimates)

    def guarantee(self, names: Sequence[str], sharing: int, **further: Any) -> dict[str, Any]:
        """Return the guarantee in plain values, for the results.

        Parameters
        ----------
        names : sequence of str
            The agreed columns.
        sharing : int
            Among how many parties the noise is shared; 1 if each adds all of it.
        **further
            What else is known, such as all scales.
        """
        assert self.options.epsilon is not None
        d, stated = len(names), self.stated_scales
        estimated = [name for name in names if name not in stated]
        own = f"each party adds 1/{sharing} of the noise's variance"
        return {
            "epsilon": self.options.epsilon,
            "delta": self.used_delta,
            "unit": "one row of one party, added or removed",
            "against": f"all who see the sum or the result, while {own}"
            if sharing > 1
            else "all others, the server too: each party adds all of the noise",
            "mechanism": "discrete Gaussian noise on the second moments of clipped rows",
            "noise_multiplier": self.budget(names).release,
            "sensitivity": sensitivity(d),
            "clipping_norm": clipping_norm(d),
            "estimated_scales": estimated,
            **({"share_of_scales": SCALES_SHARE} if estimated else {}),
            "scales": {name: list(stated[name]) for name in names if name in stated},
            **further,
        }


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
