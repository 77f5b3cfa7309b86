"""Other values than the default of the options of every method, and what it says of them."""

import itertools
import random
import types
from dataclasses import fields
from typing import Literal, Union, get_args, get_origin

from flwr_causal.app.methods import METHODS, find
from flwr_causal.core.options import option_types
from flwr_causal.core.parts import unmet
from flwr_causal.errors import ConfigError

#: Options of files and of the network, which fit everything else.
BESIDE = {
    *("seed", "max_rounds", "min_available_nodes", "expected_parties", "quorum", "strict"),
    *("round_timeout", "server_timeout", "precision", "output_dir", "resume", "signing_key"),
    *("dictionary", "trained", "identifiers", "image", "knowledge"),
}
#: By option, a value that its type does not name. A number is another one for all others.
STATED = {
    "interventions": {"party 0": ["x0"]},
    "scales": "x0=1",
    "epsilon": 1.0,
    "delta": 1e-6,
    "fusion": "c25",
    "device": "cuda",
    "order": 2,
    "minimum_count": 3,
    "min_parties": 4,
    "groups": 2,
    "fraction_train": 0.5,
    "least_effect": 0.2,
    "threshold": 0.2,
    "stability": 0.0,
    "correlation": 0.5,
    "target": "y",
    "categories": "b",
    "time_column": "b",
    "phase_column": "c",
    "weight_column": "w",
}


#: Options with which others are tried, where a method accepts them.
CONTEXTS = (
    {},
    {"secure_aggregation": True, "groups": 2},
    {"order": 2},
    {"order": 2, "solver": "dagma"},
    {"order": 2, "secure_aggregation": True},
    {"order": 2, "missing_values": "em"},
    {"order": 2, "unknown_targets": True},
    {"mode": "exact", "max_parents": 1},
    {"mode": "scores", "start": "driven"},
)


def _values(name, wanted, default):
    """Return the other values of one option."""
    found = [STATED[name]] if name in STATED else []
    for one in get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,):
        if get_origin(one) is Literal:
            found += get_args(one)
        elif one is bool:
            found += [True, False]
        elif one in (int, float) and name not in STATED:
            found.append(one(2))
        elif one is str and name not in STATED:
            found.append("a")
    # "fail" leaves open what "auto" decides.
    same = {"fail", "auto"} if default in ("fail", "auto") else {default}
    return [
        value
        for value in found
        if not (isinstance(value, str) and value in same) and value != default
    ]


def other_values(method):
    """Return the options with other values than the default, as pairs of name and value."""
    kind = find(method).strategy.options_type
    wanted = option_types(kind)
    return [
        (one.name, value)
        for one in fields(kind)
        if one.name in wanted and one.name not in BESIDE
        for value in _values(one.name, wanted[one.name], one.default)
    ]


def said(method, options):
    """Return the text by which a method refuses options, empty if it accepts them."""
    try:
        find(method).strategy(**options)
    except ConfigError as error:
        return str(error)
    return ""


def combined(values, size):
    """Return the combinations of values of different options, as options by name."""
    chosen = itertools.combinations(values, size)
    return [dict(some) for some in chosen if len({name for name, _ in some}) == size]


def sampled(values, size, number, seed=0):
    """Return that many random combinations of values of different options."""
    draw, found = random.Random(seed), []
    while len(found) < number:
        some = dict(draw.sample(values, size))
        if len(some) == size:
            found.append(some)
    return found


def refused_pairs(method):
    """Return what a method refuses: pairs of values that it accepts alone, and more in contexts.

    ``python tests/helpers/option_values.py > tests/strategies/refused_pairs.txt`` writes those of
    all methods.
    """
    values = sorted(other_values(method), key=repr)
    alone = [value for value in values if not said(method, dict([value]))]
    for place, (name, value) in enumerate(alone):
        others = [
            f"{other}={one!r}"
            for other, one in alone[place + 1 :]
            if other != name and said(method, {name: value, other: one})
        ]
        if others:
            yield f"{method} {name}={value!r}: {' '.join(others)}"
    for context in [one for one in CONTEXTS if accepted(method, one)]:
        others = [one for one in values if not accepted(method, {**context, one[0]: one[1]})]
        if others:
            yield f"{method} {shown(context.items())}: {shown(others)}"
        for setting in ("different columns", "interventions of nodes"):
            fitting = [one for one in values if one not in others and one[0] not in context]
            later = [one for one in fitting if _refused_later(method, context, *one, setting)]
            if later:
                yield f"{method} {shown(context.items())} and {setting}: {shown(later)}"


def accepted(method, options):
    """Whether a method has options of these names, and accepts their values."""
    return not said(method, options)


def shown(values):
    """Return names and values as one text."""
    return " ".join(f"{name}={value!r}" for name, value in values)


def _refused_later(method, context, name, value, setting):
    """Whether a value is refused once the reports show different columns or interventions."""
    strategy = find(method).strategy(**context, **{name: value})
    if setting == "different columns":
        found = (
            strategy._different if strategy.options.joins_columns and method != "fedpc" else None
        )
    else:
        stated = "interventions" in strategy.contract.reports
        found = strategy.options.acted if stated else None
    if found is None:
        return False
    return name in {one.name for one in unmet(strategy.options, (*strategy._parts, found))}


if __name__ == "__main__":
    for method in METHODS:
        print(*refused_pairs(method), sep="\n")
