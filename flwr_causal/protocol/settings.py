"""The settings that a message asks of a party, by the options of the run that they come from.

A party's policy limits options. Settings travel in several places: as options of the question and
of the agreement, as other fields of these, as the trainings of a bundle, and as plain values of an
exchange. A party's door gets all of them from here; a test fails for a place that is not read here
and has no reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.options import to_plain
from flwr_causal.data.dictionary.entries import dictionary_digest
from flwr_causal.errors import AskedOtherwiseError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import SEED, Bundle, parts_of
from flwr_causal.protocol.columns import folds_of
from flwr_causal.protocol.options import Setting, equal, same, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flwr.app import RecordDict

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.options import PartyOptions
    from flwr_causal.protocol.setup import Setup


def _at_most(stated: Any, sent: Any) -> bool:
    return stated == "auto" or bool(sent <= (stated or 0))


def _at_least(stated: Any, sent: Any) -> bool:
    # Shares are quotients: up to their rounding.
    return isinstance(stated, int | float) and bool(sent >= stated * (1 - 1e-9))


def _kept(stated: Any, sent: Any) -> bool:
    # Where rows of different parties are matched, columns that only some have are kept.
    return sent == "keep" or same(stated, sent)


#: Fields of the handling that are no option of their name.
HANDLING: Mapping[str, str] = {
    "min_rows": "a constant of the method",
    "number_states": "follows from the options, and is checked by the contract",
    "names_states": "follows from the options, and is checked by the contract",
}
# The name under which an agreement holds its settings, once they are known.
_SETTINGS = "_settings"
#: By how many sums an exchange over common rows says how many folds and replicates they are of.
WEIGHTINGS = "weightings"
#: Options by other names that FedPC gives them.
CALLED: Mapping[str, str] = {"bins": "discretize"}


def of_question(
    contract: Contract, options: PartyOptions, handling: Handling, *, masked: bool
) -> list[Setting]:
    """Return the settings of a question for the schema.

    Parameters
    ----------
    contract : Contract
        Of the method. What it makes of the options is no setting, and is checked by it.
    options : PartyOptions
    handling : Handling
    masked : bool
        Whether sums are secure sums.
    """
    return [
        Setting("secure_aggregation", masked, equal),
        *settings_of(options),
        *_of_handling(contract, options, handling),
    ]


def of_setup(contract: Contract, setup: Setup) -> list[Setting]:
    """Return the settings of an agreement; the contract is that of the method."""
    # Each message of a run has the same agreement.
    if _SETTINGS not in vars(setup):
        vars(setup)[_SETTINGS] = _of_setup(contract, setup)
    found: list[Setting] = vars(setup)[_SETTINGS]
    return found


def _of_setup(contract: Contract, setup: Setup) -> list[Setting]:
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
        *of_question(contract, setup.options, setup.handling, masked=setup.masked),
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
            Setting("seed", values[SEED], equal, judged=False, always=True),
        ]
    return found


def check_trainings(
    contract: Contract, setup: Setup, exchange: Exchange, content: RecordDict
) -> None:
    """Check that a run has the trainings that a request of several is of.

    Parameters
    ----------
    contract : Contract
        Of the method.
    setup : Setup
    exchange : Exchange
        Of the request.
    content : RecordDict
        Of its message.

    Raises
    ------
    AskedOtherwiseError
        If the run states fewer, if the method has none beside the main one, or if what leaves in
        them would tell what the run withholds.
    """
    parts = parts_of(exchange)
    asked = {
        one.option: one
        for one in of_request(exchange, content, setup.num_rows)
        if one.always and (one.value or one.option in setup.run)
    }
    run, withheld = setup.run, setup.small.withheld > 0
    other = [
        name for name, one in asked.items() if not (name in run and one.fits(run[name], one.value))
    ]
    replicates = "replicates" in asked and asked["replicates"].value
    without = max(part.training.without for part in parts)
    # Counts of rows that are drawn again, or a sum and one without a party, tell what is withheld.
    if replicates and (withheld or not contract.trainings):
        other.append("replicates")
    alone = setup.masked and not setup.groups
    if without and (alone or without > setup.num_clients or not contract.trainings):
        other.append("leave_one_out")
    if other:
        raise AskedOtherwiseError(
            f"The server asked for a further training, by the option '{other[0]}', which this run "
            f"of '{contract.method}' does not have. Nothing was sent. Install the same version on "
            "all machines."
        )


def _of_handling(
    contract: Contract, options: PartyOptions, handling: Handling
) -> Iterator[Setting]:
    plain = to_plain(handling)
    # Where the method itself says how many intervals there are, no option does.
    other = replace(handling, discretize=0 if handling.discretize else 2)
    if contract.completed(options, other) == handling:
        del plain["discretize"]
    for name, value in plain.items():
        if name == "unshared_columns":
            yield Setting(name, value, _kept)
        elif name == "dictionary":
            yield Setting(name, dictionary_digest(value) or None, equal)
        elif name not in HANDLING:
            yield Setting(name, value)
    yield from (Setting(own, plain[name]) for own, name in CALLED.items() if name in plain)


def _of_values(sent: Mapping[str, Any], rows: int) -> Iterator[Setting]:
    """Yield the settings among the plain values of one training's request."""
    for name in ("start", "candidates", "proximity"):
        # Some exchanges send an array of this name, which is no option.
        if name in sent and not isinstance(sent[name], np.ndarray):
            yield Setting(name, sent[name])
    if "share" in sent:
        most = sent["share"] * rows
        yield Setting("evidence_rows", most, _about_at_most, judged=False)
    if WEIGHTINGS in sent:
        folds = folds_of(sent)
        num_folds = 0 if folds is None else 1 + int(folds.max(initial=-1))
        replicates = int(sent[WEIGHTINGS]) - 1 - num_folds
        yield Setting("replicates", replicates, _at_most, judged=False, always=True)
        if replicates:
            yield Setting("seed", sent["draw"], equal, judged=False, always=True)


def _about_at_most(stated: Any, sent: Any) -> bool:
    return bool(sent <= (stated or 0) * (1 + 1e-9))
