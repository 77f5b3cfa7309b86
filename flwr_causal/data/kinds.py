"""The kinds of tables that methods learn from."""

from __future__ import annotations

from enum import Enum


class DataKind(Enum):
    """The kind of tables that a method learns from.

    A simulation without data generates or loads a table of the method's kind. When a simulation
    splits a table among parties, it uses the strategy's option ``series_column`` for ``SERIES``,
    and ``target`` and ``row_id`` for ``TABLE``.
    """

    #: Numbers with linear effects, the same at all parties.
    LINEAR = "linear"
    #: The same, with noise that is not Gaussian.
    NON_GAUSSIAN = "non-gaussian"
    #: Categories.
    CATEGORIES = "categories"
    #: Numbers at the steps of time series.
    SERIES = "series"
    #: Numbers with effects of any form, which may differ between the parties.
    NONLINEAR = "nonlinear"
    #: Columns of all kinds, which may be at different parties; evaluated on held-out rows.
    TABLE = "table"
    #: Columns of all kinds, of which nothing is learned; a simulation makes linear ones.
    ANY = "any"
