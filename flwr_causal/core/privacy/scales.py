"""The public centres and scales of columns: the option ``scales``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray

#: By column, centre and scale.
Scales = dict[str, tuple[float, float]]

FORM = (
    "a mapping from columns to scales above 0, or to pairs (centre, scale), such as "
    "{'x': 2.0, 'y': (10, 3)}; or a text such as 'x=2.0, y=10:3', or JSON"
)


class Scaling(NamedTuple):
    """Centres and scales of all columns, shape (d,) each."""

    centers: FloatArray
    scales: FloatArray

    @classmethod
    def of(
        cls, names: Sequence[str], stated: Scales, estimated: FloatArray | None
    ) -> Scaling | None:
        """Return centres and scales of columns; None if some have to be estimated first.

        Parameters
        ----------
        names : sequence of str
        stated : dict
            Centre and scale of columns.
        estimated : ndarray or None
            The scales of the others, in their order.
        """
        lacking = [name for name in names if name not in stated]
        if lacking and estimated is None:
            return None
        own = dict(zip(lacking, () if estimated is None else estimated.tolist(), strict=True))
        pairs = [stated[name] if name in stated else (0.0, own[name]) for name in names]
        return cls(*np.array(pairs, dtype=np.float64).T)


def scales_by_column(stated: Mapping[Any, Any] | str | None) -> Scales:
    """Return centre and scale by column, as the option ``scales`` states them.

    Parameters
    ----------
    stated : mapping, str or None
        From a column to its scale, or to (centre, scale). A text is such a mapping as JSON, or
        pairs ``column=scale`` or ``column=centre:scale``, separated by commas.

    Raises
    ------
    ConfigError
        If it is nothing of the kind.
    """
    entries = _pairs_of(stated) if isinstance(stated, str) else stated or {}
    if not isinstance(entries, Mapping):
        raise ConfigError(f"The option 'scales' is {stated!r}; it must be {FORM}.")
    found: Scales = {}
    for name, value in entries.items():
        both: Sequence[Any] = value if isinstance(value, list | tuple) else (0.0, value)
        try:
            center, scale = map(float, both)
        except (TypeError, ValueError, OverflowError):
            center = scale = 0.0
        if not (isinstance(name, str) and isfinite(center) and isfinite(scale) and scale > 0):
            raise ConfigError(f"The option 'scales' has {name!r}: {value!r}; it must be {FORM}.")
        found[name] = center, scale
    return found


def _pairs_of(text: str) -> Any:
    if not text.strip().startswith("{"):
        pairs = [part.rpartition("=") for part in text.split(",") if part.strip()]
        return {name.strip(): _numbers(value) for name, _, value in pairs}
    try:
        return json.loads(text)
    except ValueError:
        return None


def _numbers(text: str) -> Any:
    return text.split(":") if ":" in text else text
