"""The public centres and scales of columns: the option ``scales``, and those of a dictionary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from math import isfinite, nan, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: By column, centre and scale; :data:`ESTIMATED` for a scale that is estimated about the centre.
Scales = dict[str, tuple[float, float]]
ESTIMATED, AUTO = 0.0, "auto"

FORM = (
    "a mapping from columns to scales above 0, or to pairs (centre, scale), such as "
    "{'x': 2.0, 'y': (10, 3), 'z': (5, 'auto')}; or a text such as 'x=2.0, y=10:3, z=5:auto', or "
    "JSON"
)


#: The largest squared norm of the scaled columns of a category. Of a number the usual one is 1, and
#: the clipping norm has 2.25 for each variable: at 1.5 the numbers of a table with categories are
#: shortened about as often as those of a table of as many numbers alone.
CATEGORY = 1.5


class Scaling(NamedTuple):
    """Centres and scales of the w columns that are released.

    Attributes
    ----------
    centers, scales
        ``(w,)``.
    states
        Of each of the d variables the number of its states, which have a column each but the last
        one; 0 of a number. Empty where all are numbers.
    """

    centers: FloatArray
    scales: FloatArray
    states: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        stated: Scales,
        estimated: FloatArray | None,
        states: Sequence[int] = (),
    ) -> Scaling | None:
        """Return centres and scales of columns; None if some have to be estimated first.

        Parameters
        ----------
        names : sequence of str
        stated : dict
            Centre and scale of numbers; the centre of others is 0.
        estimated : ndarray or None
            The scales that are not stated, in their order.
        states : sequence of int, default ()
            By variable, see above.
        """
        counts = states or (0,) * len(names)
        lacking = lacking_scales(names, stated, counts)
        if lacking and estimated is None:
            return None
        own = dict(zip(lacking, () if estimated is None else estimated.tolist(), strict=True))
        pairs: list[tuple[float, float]] = []
        for name, count in zip(names, counts, strict=True):
            if count:
                pairs += [of_indicators(count)] * (count - 1)
            else:
                center, scale = stated.get(name, (0.0, ESTIMATED))
                pairs.append((center, own.get(name, scale)))
        centers, scales = np.array(pairs, dtype=np.float64).T
        return cls(centers, scales, tuple(states))


def lacking_scales(names: Sequence[str], stated: Scales, states: Sequence[int] = ()) -> list[str]:
    """Return the numbers whose scale is not stated; parameters are those of :meth:`Scaling.of`."""
    counts = states or (0,) * len(names)
    unstated = (0.0, ESTIMATED)
    return [
        name
        for name, count in zip(names, counts, strict=True)
        if not count and stated.get(name, unstated)[1] == ESTIMATED
    ]


def stated_centers(names: Sequence[str], stated: Scales) -> FloatArray:
    """Return the centres of columns whose scale is estimated, shape (len(names),)."""
    return np.array([stated.get(name, (0.0, ESTIMATED))[0] for name in names])


def widths_of_release(states: Sequence[int]) -> list[int]:
    """Return the number of columns of each variable, see :class:`Scaling`."""
    return [count - 1 if count else 1 for count in states]


def number_columns(states: Sequence[int], w: int) -> BoolArray:
    """Return which of the w columns hold numbers, shape (w,)."""
    if not states:
        return np.ones(w, dtype=np.bool_)
    return np.repeat(np.array(states) == 0, widths_of_release(states))


def of_indicators(count: int) -> tuple[float, float]:
    """Return centre and scale of the columns of a category with so many states.

    The centre c is the one with the smallest largest norm: a state with a column has the squared
    norm ``(1 - c)^2 + (k - 2) c^2``, the last one ``(k - 1) c^2``. Of two states it is 1/2, of more
    1/(k - 1), and the largest squared norm 1/4, and (k - 2)/(k - 1). The scale makes it
    :data:`CATEGORY`.
    """
    center = 0.5 if count == 2 else 1 / (count - 1)
    largest = 0.25 if count == 2 else (count - 2) / (count - 1)
    return center, sqrt(largest / CATEGORY)


def of_places(count: int) -> tuple[float, float]:
    """Return centre and scale of equally frequent numbers 0, 1, ..., count - 1."""
    return (count - 1) / 2, sqrt((count**2 - 1) / 12)


def scales_by_column(stated: Mapping[Any, Any] | str | None) -> Scales:
    """Return centre and scale by column, as the option ``scales`` states them.

    Parameters
    ----------
    stated : mapping, str or None
        From a column to its scale, or to (centre, scale), where "auto" stands for a scale that is
        estimated. A text is such a mapping as JSON, or pairs ``column=scale`` or
        ``column=centre:scale``, separated by commas.

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
        center = scale = nan
        with suppress(TypeError, ValueError, OverflowError):
            first, second = both
            center, scale = float(first), _scale(second)
        if not (isinstance(name, str) and isfinite(center) and isfinite(scale)):
            raise ConfigError(f"The option 'scales' has {name!r}: {value!r}; it must be {FORM}.")
        found[name] = center, scale
    return found


def as_text(scales: Scales) -> str | None:
    """Return centres and scales as JSON, from which :func:`scales_by_column` reads them."""
    shown = {name: [center, scale or AUTO] for name, (center, scale) in scales.items()}
    return json.dumps(shown) if shown else None


def _scale(given: Any) -> float:
    """Return a stated scale, NaN if it is not above 0."""
    if isinstance(given, str) and given.strip() == AUTO:
        return ESTIMATED
    scale = float(given)
    return scale if scale > 0 else nan


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
