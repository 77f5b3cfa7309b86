"""The options that follow from the dictionary of a run: columns of roles, tiers, and scales."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.graphs.knowledge import Knowledge, as_knowledge
from flwr_causal.core.options import option_types
from flwr_causal.core.parts import unowned
from flwr_causal.core.privacy.scales import ESTIMATED, as_text, of_places
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.dictionary.entries import ROLE_OPTIONS, STATED
from flwr_causal.data.interventions import split_names
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.privacy.scales import Scales
    from flwr_causal.data.dictionary.entries import Dictionary


def with_dictionary(strategy: Any, dictionary: Dictionary) -> Any:
    """Return a strategy's options, completed by the dictionary.

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
    excluded = split_names(options.exclude)
    changes: dict[str, Any] = {}
    # Private parties report names of columns, and no targets of rows.
    private = any("reports" not in part.gives for part in options.parts)
    for role, option in ROLE_OPTIONS.items():
        name = dictionary.of_role(role)
        if not name or name in excluded or not _takes(options, option, name):
            continue
        if private and option == "intervention_column":
            continue
        given = getattr(options, option)
        if given and given != name:
            raise ConfigError(
                f"The option '{option}' is {given!r}, and the dictionary gives the role '{role}' "
                f"to the column {name!r}: leave the option out, or change the dictionary."
            )
        changes[option] = name
    chosen = Handling(columns=options.columns, exclude=options.exclude)
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
    if getattr(options, "epsilon", None) is not None:
        as_places = options.text_columns != "keep"
        public = public_scales(dictionary, as_places=as_places)
        changes["scales"] = as_text(public | options.stated_scales)
    return replace(options, **changes)


def _takes(options: Any, name: str, value: str) -> bool:
    """Return whether there is an option of a name, and its part is chosen with this value."""
    if name not in option_types(type(options)):
        return False
    other = replace(options, **{name: value})
    return all(one.name != name for one in unowned(other, other.parts))


def public_scales(dictionary: Dictionary, *, as_places: bool) -> Scales:
    """Return the centres and scales that follow from a dictionary's ranges and states.

    Parameters
    ----------
    dictionary : Dictionary
    as_places : bool
        Whether states that have an order, or are two, are taken for the numbers 0, 1, ...
    """
    found: Scales = {}
    for one in dictionary.used:
        if not one.is_variable:
            continue
        if one.least is not None and one.most is not None:
            # Ranges are wider than most values: the scale is estimated.
            found[one.name] = (one.least + one.most) / 2, ESTIMATED
        elif as_places and one.is_scale:
            found[one.name] = of_places(len(one.states))
    return found


def check_private(dictionary: Dictionary, text_columns: str) -> None:
    """Check that a run with epsilon can take the states of a dictionary's variables from it.

    Raises
    ------
    ConfigError
        Naming the column and the remedy.
    """
    for one in dictionary.used:
        if not one.is_variable or one.kind not in STATED:
            continue
        if len(one.states) < 2:
            raise ConfigError(
                f"The dictionary lists fewer than two states of the column {one.name!r}. With "
                "epsilon parties name no values: list all states, or set use = false."
            )
        if text_columns in ("auto", "fail") and not one.is_scale:
            raise ConfigError(
                f"The column {one.name!r} is a category of {len(one.states)} states, which have no "
                "order: set use = false for it in the dictionary, or with 'moments' "
                "text_columns='keep'."
            )
