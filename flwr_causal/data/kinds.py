"""The kinds of tables that methods are for."""

from __future__ import annotations

from enum import Enum


class DataKind(Enum):
    """What a method's tables hold; a simulation without data makes or takes such tables.

    The options that matter where a simulation deals a table out are read from the strategy:
    ``series_column`` for ``SERIES``, ``target`` and ``row_id`` for ``TABLE``.
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
