"""The kinds of tables that methods are for."""

from __future__ import annotations

from enum import Enum


class DataKind(Enum):
    """The kind of a method's tables; a simulation without data makes or takes such tables.

    Where a simulation deals a table out, the strategy's option ``series_column`` counts for
    ``SERIES``, and ``target`` and ``row_id`` count for ``TABLE``.
    """

    #: Numbers with linear effects, the same at all parties.
    LINEAR = "linear"
    #: Categories.
    CATEGORIES = "categories"
    #: Numbers at the steps of time series.
    SERIES = "series"
    #: Numbers with effects of any form, which may differ between the parties.
    NONLINEAR = "nonlinear"
    #: Columns of all kinds, which may lie with different parties; judged on rows set aside.
    TABLE = "table"
