"""How a party's table holds time series: the options that say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flwr_causal.errors import ConfigError

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """How a party's table holds time series.

    Parameters
    ----------
    series_column : str, default ""
        The column that tells series apart; its values never leave the party. The rows of one series
        need not stand together. A column called ``(series)``, as a list of series gets it, tells
        them apart too. With neither the table is one series.
    time_column : str, default ""
        The column of times: numbers or dates, ascending in steps of equal length within each
        series. Default: the rows of a series follow each other, one step apart.
    gaps : {"fail", "split"}, default "fail"
        What a longer step means, or a row with a missing value: an error, or that a new series
        starts after it.
    phase_column : str, default ""
        The column that marks the rows under a known perturbation: booleans, or 0 and 1.
    perturbed : tuple of two floats, optional
        The rows from the first to the second time, both included, are under a perturbation. Instead
        of ``phase_column``; needs ``time_column`` with numbers.
    order : int, default 1
        p, the number of lags, at least 1.

    Raises
    ------
    ConfigError
        For a value out of range, or columns that contradict each other.
    """

    series_column: str = ""
    time_column: str = ""
    gaps: Literal["fail", "split"] = "fail"
    phase_column: str = ""
    perturbed: tuple[float, float] | None = None
    order: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.order, bool) or not isinstance(self.order, int) or self.order < 1:
            raise ConfigError(f"order is {self.order!r}: give the number of lags, 1 or more")
        if self.gaps not in ("fail", "split"):
            raise ConfigError(f"gaps is {self.gaps!r}: choose 'fail' or 'split'")
        used = [name for name in self.columns if name]
        twice = [name for name in used if used.count(name) > 1]
        if twice:
            raise ConfigError(
                f"column {twice[0]!r} has two roles: series-column, time-column and phase-column "
                "must be different ones"
            )
        if self.perturbed is None:
            return
        object.__setattr__(self, "perturbed", tuple(self.perturbed))
        if len(self.perturbed) != 2 or not self.perturbed[0] <= self.perturbed[1]:
            raise ConfigError(
                f"perturbed is {self.perturbed!r}: give the first and the last perturbed time"
            )
        if self.phase_column or not self.time_column:
            raise ConfigError(
                "perturbed is a range of times: it needs time-column, and no phase-column"
            )

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns that are no variables: of series, times and phases; empty if not named."""
        return self.series_column, self.time_column, self.phase_column
