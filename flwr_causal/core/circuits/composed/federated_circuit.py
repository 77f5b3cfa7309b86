"""A circuit whose parts stay with the parties: what is asked of it is asked of them.

Each party answers for its own columns from its own circuits (`party_answers`), and the server's
composition makes one distribution of the answers: exactly that of the circuit in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.composed.storage import from_plain, num_weights, to_plain
from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.domain import Domain

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]

#: Asks all parties: phase, plain values for all, arrays for each; returns the arrays of each.
Ask = Callable[[str, Mapping[str, Any], Sequence[Arrays]], list[Arrays]]

FORMAT = "flwr-causal federated circuit 1"
FILE = "federated.json"


@dataclass(frozen=True, eq=False, repr=False)
class FederatedCircuit(Distribution):
    """A joint distribution of the columns of several parties, whose circuits stay with them.

    Data are as in `Distribution`.

    Parameters
    ----------
    composition : Composition
        How the parties' circuits make one.
    presence : ndarray of bool, shape (parties, columns)
        Who holds what.
    parties : tuple of str
        Their names.
    fingerprint : str
        Of the training: parties whose circuits are of another one refuse to answer.
    ask : callable, optional
        Asks the parties; None once they are out of reach.
    given : mapping
        Evidence, see :meth:`conditional`.
    scope_names : tuple of str, optional
        The variables that it speaks of. Default: all that are not given.
    """

    composition: Composition
    presence: BoolArray
    parties: tuple[str, ...] = ()
    fingerprint: str = ""
    ask: Ask | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    scope_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.scope_names:
            rest = tuple(name for name in self.domain.names if name not in self.given)
            object.__setattr__(self, "scope_names", rest)

    def __repr__(self) -> str:
        return (
            f"<FederatedCircuit over {len(self.names)} variables of {len(self.presence)} parties>"
        )

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """The variables of all parties."""
        return self.composition.domain

    @property
    def scope(self) -> tuple[int, ...]:
        """The columns that it speaks of."""
        return tuple(sorted(self.domain.index(name) for name in self.scope_names))

    @property
    def num_parameters(self) -> int:
        """Free parameters of the composition; those of the circuits are known to the parties."""
        return num_weights(self.composition)

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Log density of rows (n, d) given the evidence, shape (n,)."""
        result = self.composition.log_likelihood(self._outputs("densities", self._known(values)))
        return result - self._log_evidence()

    def state_probabilities(self, values: FloatArray, column: int) -> FloatArray:
        """Probability of each state of a category given the rest of each row, (n, states)."""
        known = self._known(values).copy()
        known[:, column] = np.nan
        answers = self._asked("classes", {"column": self.domain.names[column]}, known)
        return self.composition.posterior([answer["densities"] for answer in answers])

    def column_moments(self, values: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number given each row, both of shape (n,)."""
        known = self._known(values)
        flows = self.composition.flows(self._outputs("densities", known))
        name = {"column": self.domain.names[column]}
        answers = self._asked("moments", name, known, [{"flows": one} for one in flows])
        mean, square = sum((one["moments"] for one in answers), np.zeros((2, len(known))))
        given = ~np.isnan(known[:, column])
        variance = np.where(given, 0.0, np.maximum(square - mean**2, 0.0))
        return np.where(given, known[:, column], mean), variance

    def completed(self, values: FloatArray) -> FloatArray:
        """Fill what is missing by max-product."""
        known = self._known(values)
        return self._filled(known, self.composition.most_probable(self._outputs("peaks", known)))

    def drawn(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill what is missing by draws given the rest."""
        known = self._known(values)
        chosen = self.composition.drawn(self._outputs("densities", known), rng)
        return self._filled(known, chosen, int(rng.integers(1, 2**31)))

    def marginal(self, names: Iterable[str]) -> FederatedCircuit:
        """Return the distribution of some of the variables."""
        kept = tuple(names)
        for name in kept:
            self._column(name)
        if not kept:
            raise ConfigError("a marginal keeps at least one variable")
        return replace(self, scope_names=kept)

    def conditional(self, evidence: Mapping[str, Any]) -> FederatedCircuit:
        """Return the distribution of the other variables given the value of some."""
        for name in evidence:
            self._column(name)
        rest = tuple(name for name in self.scope_names if name not in evidence)
        if not rest:
            raise ConfigError("the evidence names every variable: leave one for the answer")
        result = replace(self, given={**self.given, **evidence}, scope_names=rest)
        if np.isneginf(result._log_evidence()):
            raise DataError(f"the evidence {dict(evidence)} is impossible under the circuit")
        return result

    def save(self, directory: str | Path) -> None:
        """Write the composition as JSON; the parties' circuits stay with them."""
        plain = {
            "format": FORMAT,
            "composition": to_plain(self.composition),
            "presence": self.presence.astype(int).tolist(),
            "parties": list(self.parties),
            "fingerprint": self.fingerprint,
        }
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        (place / FILE).write_text(json.dumps(plain), encoding="utf-8")

    @classmethod
    def load(cls, directory: str | Path) -> FederatedCircuit:
        """Read what :meth:`save` wrote; the parties are out of reach until a run finds them."""
        place = Path(directory) / FILE
        try:
            plain = json.loads(place.read_text(encoding="utf-8"))
            if plain.pop("format") != FORMAT:
                raise KeyError("format")
            composition = from_plain(plain.pop("composition"))
            presence = np.array(plain.pop("presence"), dtype=np.bool_)
            parties = tuple(plain.pop("parties"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{place} holds no federated circuit ({error!r})") from error
        return cls(composition, presence, parties, **plain)

    def _known(self, values: FloatArray) -> FloatArray:
        """Return what is known of each row: its own values, and what is given."""
        if not self.given:
            return values
        import pandas as pd

        row = pd.DataFrame({name: [value] for name, value in self.given.items()})
        given = self.domain.encode(row, tuple(self.given))[0]
        return np.where(np.isnan(given), values, given)

    def _log_evidence(self) -> float:
        if not self.given:
            return 0.0
        known = self._known(np.full((1, len(self.domain.variables)), np.nan))
        return float(self.composition.log_likelihood(self._outputs("densities", known))[0])

    def _outputs(self, phase: str, known: FloatArray) -> list[FloatArray]:
        """Return log densities of each party's circuits, (n, circuits) each."""
        return [answer["densities"][0] for answer in self._asked(phase, {}, known)]

    def _filled(self, known: FloatArray, chosen: Sequence[BoolArray], seed: int = 0) -> FloatArray:
        """Let the chosen circuits fill what is missing; seed 0: by the most probable values."""
        requests = [{"chosen": one.astype(np.uint8)} for one in chosen]
        result = known.copy()
        for holds, answer in zip(
            self.presence, self._asked("filled", {"seed": seed}, known, requests), strict=True
        ):
            own = np.where(answer["known"] > 0, answer["values"], np.nan)
            result[:, holds] = np.where(np.isnan(result[:, holds]), own, result[:, holds])
        return result

    def _asked(
        self,
        phase: str,
        config: Mapping[str, Any],
        known: FloatArray,
        more: Sequence[Arrays] | None = None,
    ) -> list[Arrays]:
        """Ask every party about its own columns of the rows."""
        if self.ask is None:
            raise ConfigError(
                "the circuits are with the parties, and the run is over: ask inside a run (the "
                "config key 'query' names a file of rows), keep the circuits at the server with "
                "queries='central', or use engine='local', where the parties stay in reach"
            )
        requests = []
        for party, holds in enumerate(self.presence):
            part = known[:, holds]
            present = ~np.isnan(part)
            request = {"values": np.where(present, part, 0.0), "known": present.astype(np.uint8)}
            requests.append(request | ({} if more is None else dict(more[party])))
        return self.ask(phase, {"fingerprint": self.fingerprint, **config}, requests)
