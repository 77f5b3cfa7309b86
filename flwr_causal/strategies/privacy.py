"""The options of the linear methods with differential privacy of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, all_but
from flwr_causal.core.privacy.calibration import (
    LEAST_DELTA,
    MOST_EPSILON,
    SCALES_SHARE,
    USUAL_DELTA,
    Budget,
    budget_of,
)
from flwr_causal.core.privacy.release import clipping_norm, sensitivity
from flwr_causal.core.privacy.scales import as_text, lacking_scales, scales_by_column
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import LinearOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.privacy.scales import Scales


@dataclass(frozen=True, kw_only=True)
class PrivateRelease(Part):
    """One release of the sums of a party's clipped rows, with noise; nothing else leaves it.

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
        scale). As text "x=2.0, y=10:3", or JSON. The scale of a column without one, or of the pair
        (centre, "auto"), is estimated, which takes a tenth of the privacy loss and, in ``moments``,
        one exchange more; without a centre it is about 0. The midpoint of a range in the
        ``dictionary`` is the centre of its column, and ordered or two states that are taken for
        numbers have centre and scale of their places.
    """

    text = "epsilon"
    gives = all_but(
        *("draws", "parties", "restart", "iterations", "reports", "states", "time"),
        *("centring", "levels", "median", "exact", "sets", "folds", "functions", "scores"),
    )

    epsilon: float | None = bounded(None, above=0, most=MOST_EPSILON)
    delta: float | None = bounded(None, least=LEAST_DELTA, below=1)
    scales: dict[Any, Any] | str | None = None


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(PrivateRelease, LinearOptions):
    """The options of the linear methods with differential privacy of rows.

    Examples
    --------
    >>> from flwr_causal.strategies.privacy import PrivateOptions
    >>> PrivateOptions(epsilon=2.0, scales="x=3").epsilon
    2.0
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # A text, which messages can hold.
        object.__setattr__(self, "scales", as_text(self.stated_scales) if self.scales else None)

    @property
    def private(self) -> bool:
        """Whether the run has differential privacy of rows."""
        return self.epsilon is not None

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also a release."""
        return (*super().parts, self._release) if self.private else super().parts

    @property
    def _release(self) -> type[PrivateRelease]:
        """The part of a release."""
        return PrivateRelease

    @property
    def used_delta(self) -> float:
        """The option ``delta`` or its default."""
        return USUAL_DELTA if self.delta is None else self.delta

    @property
    def stated_scales(self) -> Scales:
        """The option ``scales``, by column."""
        return scales_by_column(self.scales) if self.scales else {}

    def check_scales(self, names: Sequence[str]) -> None:
        """Check that ``scales`` names agreed columns.

        Raises
        ------
        ConfigError
            If there is no column of a name.
        """
        for name in self.stated_scales:
            if name not in names:
                raise ConfigError(
                    f"The option 'scales' names the column {name!r}; there are {', '.join(names)}."
                )

    def budget(self, names: Sequence[str], states: Sequence[int] = ()) -> Budget:
        """Return the noise that epsilon and delta need with these columns.

        Parameters are those of :meth:`guarantee`.
        """
        assert self.epsilon is not None
        estimates = bool(lacking_scales(names, self.stated_scales, states))
        return budget_of(self.epsilon, self.used_delta, estimates=estimates)

    def guarantee(
        self, names: Sequence[str], sharing: int, states: Sequence[int] = (), **further: Any
    ) -> dict[str, Any]:
        """Return the guarantee in plain values, for the results.

        Parameters
        ----------
        names : sequence of str
            The agreed columns.
        sharing : int
            Among how many parties the noise is shared; 1 if each adds all of it.
        states : sequence of int, default ()
            The number of states of each column, 0 of a number; default: all are numbers.
        **further
            What else is known, such as all scales.
        """
        assert self.epsilon is not None
        d, stated = len(names), self.stated_scales
        estimated = lacking_scales(names, stated, states)
        own = f"each party adds 1/{sharing} of the noise's variance"
        return {
            "epsilon": self.epsilon,
            "delta": self.used_delta,
            "unit": "one row of one party, added or removed",
            "against": f"all who see the sum or the result, while {own}"
            if sharing > 1
            else "all others, the server too: each party adds all of the noise",
            "mechanism": "discrete Gaussian noise on the second moments of clipped rows",
            "noise_multiplier": self.budget(names, states).release,
            "sensitivity": sensitivity(d),
            "clipping_norm": clipping_norm(d),
            "estimated_scales": estimated,
            **({"share_of_scales": SCALES_SHARE} if estimated else {}),
            "scales": {
                name: list(stated[name])
                for name in names
                if name in stated and name not in estimated
            },
            **further,
        }
