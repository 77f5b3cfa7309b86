"""The settings that a message asks of a party, by the options of the run that they come from.

A party's policy limits options. Settings travel in several places: as options of the question and
of the agreement, as other fields of these, as the trainings of a bundle, and as plain values of an
exchange. A party's door gets all of them from here; a test fails for a place that is not read here
and has no reason.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.received import json_of
from flwr_causal.data.check.policy import Policy
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import SEED, Bundle, parts_of
from flwr_causal.protocol.columns import folds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from flwr.app import RecordDict

    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.setup import Setup

#: The options by which parties find their rows or series.
SERIES_OPTIONS = (
    "row-id",
    "order",
    "series-column",
    "time-column",
    "gaps",
    "phase-column",
    "perturbed-from",
    "perturbed-to",
    "center",
)

#: Values of an option that leave the choice to the method.
OPEN = (None, "auto")


def _same(stated: Any, sent: Any) -> bool:
    return stated in OPEN or _equal(stated, sent)


def _exactly(stated: Any, sent: Any) -> bool:
    return _equal(stated, sent)


def _or_empty(stated: Any, sent: Any) -> bool:
    return _equal(stated or "", sent)


def _at_most(stated: Any, sent: Any) -> bool:
    return stated == "auto" or bool(sent <= (stated or 0))


def _at_least(stated: Any, sent: Any) -> bool:
    # Shares are quotients: up to their rounding.
    return isinstance(stated, int | float) and bool(sent >= stated * (1 - 1e-9))


def _held_out(stated: Any, sent: Any) -> bool:
    return not sent or stated in ("held-out", "auto")


def _kept(stated: Any, sent: Any) -> bool:
    # Where rows of different parties are matched, columns that only some have are kept.
    return sent == "keep" or _same(stated, sent)


def _equal(one: Any, other: Any) -> bool:
    # A truth value is no number here.
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class Setting(NamedTuple):
    """One setting of a message.

    Parameters
    ----------
    option : str
        The option that it comes from, by the name that users give.
    value : object
        What the message asks.
    fits : callable
        ``(stated, value) -> bool``: whether it is what a run asks that states this value of the
        option.
    judged : bool, default True
        Whether ``value`` is one of the option's, to which the rules of a policy apply. If not, they
        apply to what the run states, and ``fits`` says whether this is kept to.
    always : bool, default False
        Whether what the run states is compared also where no rule limits the option, since it
        bounds how much leaves the party.
    """

    option: str
    value: Any
    fits: Callable[[Any, Any], bool] = _same
    judged: bool = True
    always: bool = False


#: Fields of the data policy that are no option of their name.
POLICY: Mapping[str, str] = {
    "min_rows": "a constant of the method",
    "number_states": "follows from discretize or bins",
}
#: Options by other names that FedPC and FedGES give them.
CALLED: Mapping[str, str] = {"bins": "discretize", "constant": "constant_columns"}
#: Options that travel and are none of the run's: what they follow from.
DERIVED: Mapping[str, str] = {
    "held-out": "the option sparsity",
    "folds": "2 or more where something is chosen by held-out rows; the contract bounds them",
    "relative": "the options model and sparsity",
    "release": "a random name",
    "domain": "follows from the parties' reports",
    "within": "the option target",
    "holders": "follows from the parties' columns",
    "pair_marks": "follows from the parties' columns",
    "labelled": "follows from the parties' columns",
    "settings": "the options of learners, each by its name",
}


def of_question(config: Mapping[str, Any]) -> list[Setting]:
    """Return the settings of a question for the schema."""
    return [
        *_of_options(records.behind("option-", config)),
        *_of_policy(records.behind("policy-", config)),
    ]


def of_setup(setup: Setup) -> list[Setting]:
    """Return the settings of an agreement."""
    present = setup.present
    shares = (
        [least / present[group] for group, (_, least) in setup.circles.items() if present[group]]
        if setup.masked
        else []
    )
    return [
        *(Setting("quorum", share, _at_least, judged=False) for share in shares),
        Setting("precision", setup.precision),
        Setting("minimum_count", setup.small.minimum),
        Setting("small_counts", setup.small.treatment),
        Setting("groups", len(set(setup.groups)) or 1, _at_most, judged=False),
        *_of_policy(setup.policy.to_dict()),
        *_of_options(setup.options),
    ]


def of_request(exchange: Exchange, content: RecordDict, rows: int) -> list[Setting]:
    """Return the settings of a request.

    Parameters
    ----------
    exchange : Exchange
        Of the request.
    content : RecordDict
        Of its message.
    rows : int
        The number of rows of all parties, of the agreement.
    """
    values: dict[str, Any] = {**records.arrays_of(content), **records.config_of(content)}
    parts = parts_of(exchange)
    found = [setting for part in parts for setting in _of_values(part.sent(values), rows)]
    if isinstance(exchange, Bundle):
        replicates = max(part.training.replicate for part in parts)
        without = any(part.training.without for part in parts)
        found += [
            Setting("replicates", replicates, _at_most, judged=False, always=True),
            Setting("leave_one_out", without, _at_most, judged=False, always=True),
            Setting("seed", values[SEED], _exactly, judged=False, always=True),
        ]
    return found


def names_of(keys: Iterable[str]) -> list[str]:
    """Return the options that a message holds: of these keys, and for problems of tables."""
    of_tables = [one.name for one in fields(Policy) if one.name not in POLICY]
    own = [key.replace("-", "_") for key in keys if key not in DERIVED]
    return [*own, *of_tables, *CALLED]


def _of_options(options: Mapping[str, Any]) -> Iterator[Setting]:
    for key, value in options.items():
        name = key.replace("-", "_")
        if key == "held-out":
            yield Setting("sparsity", value, _held_out, judged=False)
        elif key == "settings":
            own = json_of(value)
            yield from (Setting(one, each) for one, each in own.items())
        elif key in ("perturbed-from", "perturbed-to"):
            yield Setting(name, float(value) if value else None, _exactly)
        elif key in ("knowledge", "interventions"):
            yield Setting(name, value, _or_empty)
        elif key not in DERIVED:
            yield Setting(name, value)


def _of_policy(policy: Mapping[str, Any]) -> Iterator[Setting]:
    for name, value in policy.items():
        if name == "unshared_columns":
            yield Setting(name, value, _kept)
        elif name not in POLICY:
            yield Setting(name, value)
    yield from (Setting(own, policy[name]) for own, name in CALLED.items() if name in policy)


def _of_values(sent: Mapping[str, Any], rows: int) -> Iterator[Setting]:
    """Yield the settings among the plain values of one training's request."""
    for name in ("start", "candidates"):
        # Some exchanges send an array of this name, which is no option.
        if name in sent and not isinstance(sent[name], np.ndarray):
            yield Setting(name, sent[name])
    if "share" in sent:
        most = sent["share"] * rows
        yield Setting("evidence_rows", most, _about_at_most, judged=False)
    if "weightings" in sent:
        folds = folds_of(sent)
        num_folds = 0 if folds is None else 1 + int(folds.max(initial=-1))
        replicates = int(sent["weightings"]) - 1 - num_folds
        yield Setting("replicates", replicates, _at_most, judged=False, always=True)
        if replicates:
            yield Setting("seed", sent["draw"], _exactly, judged=False, always=True)


def _about_at_most(stated: Any, sent: Any) -> bool:
    return bool(sent <= (stated or 0) * (1 + 1e-9))
