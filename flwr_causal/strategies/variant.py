"""The option ``variant="paper"``: the algorithm of a method's paper with the paper's constants."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class OfPaper:
    """What a paper says of a method's settings.

    Parameters
    ----------
    constants : mapping of str to number
        The constants of the paper that are no options of the method.
    fixed : mapping of str to object
        Options, by field, with the value that the paper's algorithm has.
    choices : mapping of str to tuple
        Options, by field, of which the paper has several values. Left out, an option is the first.
    defaults : mapping of str to object
        Options, by field, that the paper leaves to its user, and what they are where left out.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


#: In all of the papers every party takes part in every exchange, without background knowledge.
USUAL = {"fraction_train": 1.0, "knowledge": None}
#: In the papers on arrays these are averaged, and there are no interventions.
AVERAGED = {**USUAL, "interventions": None, "intervention_column": "", "aggregation": "mean"}


@dataclass(frozen=True, kw_only=True)
class VariantOptions:
    """The options of the methods that can run as in their paper.

    Parameters
    ----------
    variant : {"default", "paper"}, default "default"
        "paper" is the algorithm of the paper with its constants. It settles the options that the
        paper fixes; another value of these beside it is an error.

    Examples
    --------
    >>> from flwr_causal.strategies.variant import VariantOptions
    >>> VariantOptions(variant="paper").variant
    'paper'
    """

    variant: Literal["default", "paper"] = "default"

    @property
    def of_paper(self) -> OfPaper:
        """The settings of the paper; a method's options declare them."""
        raise NotImplementedError

    @property
    def papers(self) -> bool:
        """Whether the algorithm is the paper's."""
        return self.variant == "paper"

    def settled(self) -> Any:
        """Return the options with the values of the paper, with another variant than ours.

        An option that is at its default, or an empty text, is taken as left out.

        Raises
        ------
        ConfigError
            If an option that the paper fixes has another value, with the option's name.
        """
        options = super().settled()  # type: ignore[misc]
        return options if self.variant == "default" else _of_paper(options, self.of_paper)


def _of_paper(options: Any, declared: OfPaper) -> Any:
    """Return the options with the values of the paper."""
    left_out = {option.name: option.default for option in fields(options)}
    allowed = {name: (value,) for name, value in declared.fixed.items()} | {**declared.choices}
    values = {name: known[0] for name, known in allowed.items()} | {**declared.defaults}
    settled = {}
    for name, value in values.items():
        given = getattr(options, name)
        if given in (left_out[name], ""):
            settled[name] = value
        elif name in allowed and given not in allowed[name]:
            shown = " or ".join(map(repr, allowed[name]))
            raise ConfigError(
                f"The option '{name}' is {given!r}, but with variant='{options.variant}' it is "
                f"{shown}, as in the paper: leave '{name}' out, or leave variant out."
            )
    return replace(options, **settled)
