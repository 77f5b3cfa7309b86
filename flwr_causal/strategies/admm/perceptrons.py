"""The options of methods with perceptrons."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.errors import ConfigError
from flwr_causal.strategies.options import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.protocol.records import Scalar


@dataclass(kw_only=True, eq=False)
class PerceptronOptions:
    """Options of ``model="mlp"``, which needs torch.

    Parameters
    ----------
    hidden : int, default 10
        Hidden units of a perceptron (Zheng et al. 2020).
    inner_steps : int, default 100
        Most L-BFGS steps of a party in a round.
    device : str, default "cpu"
        Where torch computes: "cpu", "cuda", "cuda:1", ...
    arithmetic : {"float64", "float32"}, default "float64"
        In what torch computes.
    """

    hidden: int = 10
    inner_steps: int = 100
    device: str = "cpu"
    arithmetic: Literal["float64", "float32"] = "float64"

    def validate_perceptrons(self) -> None:
        """Check the options' values.

        Raises
        ------
        ConfigError
            With the option's name and what is allowed.
        """
        require(self.hidden >= 1, "hidden", self.hidden, "at least 1")
        require(self.inner_steps >= 1, "inner_steps", self.inner_steps, "at least 1")

    @property
    def perceptron_options(self) -> dict[str, Scalar]:
        """The same as plain values for the parties."""
        return {
            "hidden": self.hidden,
            "inner-steps": self.inner_steps,
            "device": self.device,
            "arithmetic": self.arithmetic,
        }


#: The names of these options.
PERCEPTRONS = tuple(field.name for field in fields(PerceptronOptions))


def refuse_ignored(method: Any, needs: Mapping[str, str]) -> None:
    """Raise for an option that was set but would have no effect.

    Parameters
    ----------
    method : CausalStrategy
    needs : mapping of str to str
        For each option without an effect, what it is for.

    Raises
    ------
    ConfigError
        Naming the option, its value and what it is for.
    """
    for option in fields(method):
        value = getattr(method, option.name)
        if option.name in needs and value != option.default:
            raise ConfigError(
                f"The option '{option.name}' is {value!r}, which is for {needs[option.name]}: "
                "leave it out."
            )
