"""The options that follow from the dictionary of a run: columns of roles, and tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.graphs.knowledge import Knowledge, as_knowledge
from flwr_causal.core.options import modes_of
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.dictionary.entries import ROLE_OPTIONS
from flwr_causal.data.interventions import split_names
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.data.dictionary.entries import Dictionary


def with_dictionary(strategy: Any, dictionary: Dictionary) -> Any:
    """Return a strategy's options with what the dictionary says of them.

    Parameters
    ----------
    strategy : CausalStrategy
        With the options that were given. Those that it does not have, or has in other settings
        only, stay as they are.
    dictionary : Dictionary

    Returns
    -------
    CausalOptions

    Raises
    ------
    ConfigError
        If an option and the dictionary say different things.
    """
    options = strategy.options
    modes = modes_of(type(options))

    def has(option: str) -> bool:
        holds = (mode.holds(strategy) for mode in modes.get(option, ()))
        return hasattr(options, option) and all(holds)

    if not has("dictionary"):
        return options  # which the check of modes refuses
    excluded = split_names(options.exclude)
    changes: dict[str, Any] = {}
    for role, option in ROLE_OPTIONS.items():
        name = dictionary.of_role(role)
        if not name or name in excluded or not has(option):
            continue
        given = getattr(options, option)
        if given and given != name:
            raise ConfigError(
                f"The option '{option}' is {given!r}, and the dictionary gives the role '{role}' "
                f"to the column {name!r}: leave the option out, or change the dictionary."
            )
        changes[option] = name
    chosen = Policy(columns=options.columns, exclude=options.exclude)
    names = [one.name for one in dictionary.used if chosen.chooses(one.name)]
    tiers = dictionary.tiers(names)
    if len(tiers) > 1 and hasattr(options, "knowledge"):
        known = as_knowledge(options.knowledge) or Knowledge()
        if known.tiers and known.tiers != tiers:
            raise ConfigError(
                "The option 'knowledge' and the dictionary both have tiers, and they differ: leave "
                "the tiers out of one of them."
            )
        changes["knowledge"] = replace(known, tiers=tiers, other_names=True)
    return replace(options, **changes)
