"""Degenerate inputs: changes of the tables of `method_modes`, and what a run must say of them.

`DEGENERATE` has functions from the parties' frames to changed ones, None where they do not apply.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from method_modes import MODES, NETWORKS

NUMBERS, ROLES = ("a", "b", "c"), ("on", "target", "row")


def frames(tables):
    """The tables of a mode as frames; arrays have the columns a, b, c."""
    return [
        one if isinstance(one, pd.DataFrame) else pd.DataFrame(one, columns=list(NUMBERS))
        for one in tables
    ]


def _numbers(table):
    return [name for name in NUMBERS if name in table and table[name].dtype.kind == "f"]


def _texts(table):
    return [name for name in table if name not in (*ROLES, *_numbers(table))]


def _with(column, fewest=1, of=_numbers):
    """A change by one or several columns, made of the first columns of a kind."""

    def changed(parts):
        chosen = of(parts[0])
        if len(chosen) < fewest or not all(set(chosen) <= set(part) for part in parts):
            return None
        return [part.assign(**column(part, chosen)) for part in parts]

    return changed


def _shares(table, chosen):
    positive = np.exp(table[chosen].fillna(0))
    shares = 100 * positive.div(positive.sum(axis=1), axis=0)
    return dict(shares.where(table[chosen].notna()))


def _one_hot(table, chosen):
    states = np.digitize(table[chosen[0]].fillna(0), (-0.5, 0.5))
    return {f"z{k}": (states == k).astype(float) for k in range(3)}


def _first_state(table, chosen):
    return table[chosen[0]].isin(["0", "high"]).to_numpy()


def _coarser(table, chosen):
    """A category of three states, and one that joins two of them."""
    odd = np.arange(len(table)) % 2 == 0
    fine = np.where(_first_state(table, chosen), "one", np.where(odd, "two", "three"))
    return {"y": fine, "z": np.where(fine == "one", "this", "others")}


def _at_first(change):
    """A change of a number at the first party."""

    def changed(parts):
        chosen = _numbers(parts[0])
        return [change(parts[0], chosen[-1]), *parts[1:]] if chosen else None

    return changed


def _constant_everywhere(parts):
    chosen = _numbers(parts[0]) or _texts(parts[0])
    value = 1.0 if _numbers(parts[0]) else "1"
    return [part.assign(**{chosen[0]: value}) for part in parts]


def _constant_unless_target(parts):
    """The column a varies only in rows in which it is a target."""
    if "on" not in parts[0]:
        return None
    return [part.assign(a=part["a"].where(part["on"] == "a", 1.0)) for part in parts]


def _of_other_units(factor):
    def changed(parts):
        name = next(iter(_numbers(parts[0])), None)
        if name is None:
            return None
        return [part.assign(**{name: factor * part[name]}) if name in part else part
                for part in parts]  # fmt: skip

    return changed


def _fewer_rows_than_columns(parts):
    """Two rows a party, and as many columns as rows of all parties or more."""
    if not _numbers(parts[0]):
        return None
    rng = np.random.default_rng(0)
    return [part.head(2).assign(**{f"u{k}": rng.normal(size=len(part.head(2))) for k in range(4)})
            for part in parts]  # fmt: skip


def _one_other_row(parts):
    places = [np.arange(len(part)) for part in parts]
    return [part.assign(z=(place == 3) * float(k == 0))
            for k, (part, place) in enumerate(zip(parts, places, strict=True))]  # fmt: skip


DEGENERATE = {
    "sum": _with(lambda table, own: {"z": table[own[0]] + table[own[1]]}, 2),
    "copy": _with(lambda table, own: {"z": 5.0 - 3.0 * table[own[0]]}),
    "shares": _with(_shares, 3),
    "one-hot": _with(_one_hot),
    "copied category": _with(
        lambda table, own: {"z": table[own[0]].map(lambda one: f"is {one}", na_action="ignore")},
        of=_texts,
    ),
    "coarser category": _with(_coarser, of=_texts),
    "category in numbers": _with(
        lambda table, own: {"z": _first_state(table, own).astype(float)}, of=_texts
    ),
    "constant at one party": _at_first(lambda part, name: part.assign(**{name: 1.0})),
    "no value at one party": _at_first(lambda part, name: part.assign(**{name: np.nan})),
    "constant everywhere": _constant_everywhere,
    "constant unless target": _constant_unless_target,
    "four rows": lambda parts: [part.head(4) for part in parts],
    "fewer rows than columns": _fewer_rows_than_columns,
    "same tables": lambda parts: [parts[0]] * len(parts),
    "one other row": _one_other_row,
    "tiny units": _of_other_units(1e-20),
    "huge units": _of_other_units(1e20),
}
#: Of which the column z, or the last of them by name, is determined by others.
DETERMINED = {
    "sum": "z",
    "copy": "z",
    "shares": "c",
    "one-hot": "z2",
    "copied category": "z",
    "coarser category": "z",
    "category in numbers": "z",
}


class Case(NamedTuple):
    """A run on degenerate tables."""

    method: str
    parties: list
    options: dict


def cases(modes=None, inputs=None):
    """All modes with all inputs that apply to them, by the names of both."""
    found = {}
    for mode, (method, tables, options) in MODES.items():
        if mode in NETWORKS or (modes is not None and mode not in modes):
            continue
        for name, change in DEGENERATE.items():
            if inputs is not None and name not in inputs:
                continue
            parties = change(frames(tables))
            if parties is not None:
                found[f"{mode}, {name}"] = Case(method, parties, options)
    return found
