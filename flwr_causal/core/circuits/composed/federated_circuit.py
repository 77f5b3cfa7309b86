"""A circuit whose leaves are circuits of parties, which stay with the parties.

The engine evaluates the sums and products of the composition like those of any circuit. To evaluate
the leaves, `PartyLeaves` queries the parties; each party answers for its own columns from its own
circuits (`party_answers`). The results equal those of the circuit with all parts in one place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.arrays import Arrays
from flwr_causal.core.circuits.composed.composition import (
    Output,
    from_plain,
    to_plain,
)
from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.core.circuits.layers import Layers, LeafLayer
from flwr_causal.core.files import new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.nodes import Node

#: Sends a query of a given name to all parties, each with its own arrays; returns their replies.
Ask = Callable[[str, Sequence[Mapping[str, Any]]], list[Arrays]]

FORMAT = "flwr-causal federated circuit 1"
FILE = "federated.json"


class PartyLeaves(LeafLayer):
    """Outputs of parties; every evaluation is one query to all parties, for all rows.

    Parameters
    ----------
    outputs : sequence of Output
        The leaves, in the order of their numbers.
    presence : ndarray of bool, shape (parties, columns)
        The columns that each party holds. A party is sent only these columns of a row.
    names : sequence of str
        Names of the columns.
    given : ndarray of float64, shape (columns,)
        Evidence for all rows, NaN where there is none.
    fingerprint : str
        Of the training.
    ask : callable or None
        Queries the parties; None if they cannot be reached.
    """

    chunked: ClassVar[bool] = False

    def __init__(
        self,
        outputs: Sequence[Output],
        presence: BoolArray,
        names: Sequence[str],
        given: FloatArray,
        fingerprint: str,
        ask: Ask | None,
    ) -> None:
        self.outputs = outputs
        self.presence = presence
        self.names = names
        self.given = given
        self.fingerprint = fingerprint
        self.ask = ask
        self.sizes = [0] * len(presence)
        for output in outputs:
            self.sizes[output.party] += 1

    def log_densities(self, values: FloatArray, result: FloatArray) -> None:
        """Put the log density of each output and row into ``result``, shape (L, n)."""
        result[:] = self._asked_by_leaf("densities", values)

    def state_log_densities(
        self, values: FloatArray, column: int, num_states: int
    ) -> Iterator[FloatArray]:
        """Yield log densities (L, n) with each state of a category in turn."""
        unknown = values.copy()
        unknown[:, column] = np.nan
        answers = self._query_parties("classes", {"column": self.names[column]}, unknown)
        for state in range(num_states):
            # A party that does not hold the category answers once for all states.
            yield self._by_leaf(
                [one["densities"][state if len(one["densities"]) > 1 else 0] for one in answers],
                len(values),
            )

    def peaks(self, values: FloatArray) -> FloatArray:
        """Log density of each output's best explanation of the row, shape (L, n)."""
        return self._asked_by_leaf("peaks", values)

    def moments(
        self, values: FloatArray, column: int, holders: Sequence[int], flows: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number, both of shape (n,)."""
        by_party = [np.zeros((len(values), size)) for size in self.sizes]
        for k, number in enumerate(holders):
            output = self.outputs[number]
            by_party[output.party][:, output.index] = flows[k]
        requests: list[Arrays] = [{"flows": flows_of_party} for flows_of_party in by_party]
        answers = self._query_parties("moments", {"column": self.names[column]}, values, requests)
        mean, square = sum((one["moments"] for one in answers), np.zeros((2, len(values))))
        return mean, np.maximum(square - mean**2, 0.0)

    def fill(
        self,
        values: FloatArray,
        arriving: Sequence[IntArray],
        rng: np.random.Generator | None,
    ) -> FloatArray:
        """Return the rows, missing values filled by the circuits chosen for them."""
        chosen = [np.zeros((len(values), size), dtype=np.uint8) for size in self.sizes]
        for output, rows in zip(self.outputs, arriving, strict=True):
            chosen[output.party][rows, output.index] = 1
        requests: list[Arrays] = [{"chosen": marks} for marks in chosen]
        # Seed 0 stands for the most probable values.
        config = {"seed": 0 if rng is None else int(rng.integers(1, 2**31))}
        result = np.where(np.isnan(self.given), values, self.given)
        for holds, answer in zip(
            self.presence, self._query_parties("filled", config, values, requests), strict=True
        ):
            filled = np.where(answer["known"] > 0, answer["values"], np.nan)
            result[:, holds] = np.where(np.isnan(result[:, holds]), filled, result[:, holds])
        return result

    def _asked_by_leaf(self, query: str, values: FloatArray) -> FloatArray:
        answers = self._query_parties(query, {}, values)
        return self._by_leaf([answer["densities"][0] for answer in answers], len(values))

    def _by_leaf(self, densities: Sequence[FloatArray], num_rows: int) -> FloatArray:
        """Return log densities of the leaves (L, n) from the parties' log densities."""
        shapes = [np.shape(one) for one in densities]
        expected = [(num_rows, size) for size in self.sizes]
        if shapes != expected:
            raise DataError(
                f"the parties answer with log densities of the shapes {shapes}, expected {expected}"
            )
        return np.stack([densities[one.party][:, one.index] for one in self.outputs])

    def _query_parties(
        self,
        query: str,
        config: Mapping[str, Any],
        values: FloatArray,
        more: Sequence[Arrays] | None = None,
    ) -> list[Arrays]:
        """Query every party with its own columns of the rows."""
        if self.ask is None:
            raise ConfigError(
                "the circuits are with the parties, and the run is over: query inside a run (the "
                "config key 'query' names a file of rows), keep the circuits at the server with "
                "queries='central', or use engine='local', where the parties stay in reach"
            )
        known = np.where(np.isnan(self.given), values, self.given)
        requests = []
        for party, holds in enumerate(self.presence):
            part = known[:, holds]
            present = ~np.isnan(part)
            request = {"values": np.where(present, part, 0.0), "known": present.astype(np.uint8)}
            requests.append(request | ({} if more is None else more[party]))
        head = {"fingerprint": self.fingerprint, **config}
        return self.ask(query, [{**head, **request} for request in requests])


@dataclass(frozen=True, eq=False, repr=False)
class FederatedCircuit(Distribution):
    """A joint distribution of the columns of several parties, whose circuits stay with them.

    Data are as in `Distribution`.

    Parameters
    ----------
    composition : Composition
        How the parties' circuits make one.
    presence : ndarray of bool, shape (parties, columns)
        The columns that each party holds.
    parties : tuple of str
        Names of the parties.
    fingerprint : str
        Of the training; a party whose circuits are of another training refuses to answer.
    ask : callable, optional
        Queries the parties; None if they cannot be reached.
    given : mapping of str to object
        Evidence, see :meth:`conditional`.
    scope_names : tuple of str, optional
        The variables of the distribution. Default: all variables without evidence.
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
        """The columns of the distribution."""
        return tuple(sorted(self.domain.index(name) for name in self.scope_names))

    @property
    def num_parameters(self) -> int:
        """Free parameters of the composition, without those of the parties' circuits."""
        return sum(len(node.children) - 1 for node in self.layers.sums)

    @cached_property
    def layers(self) -> Layers:
        """The composition as the engine evaluates it; `PartyLeaves` evaluates the leaves."""
        given = np.full(len(self.domain.variables), np.nan)
        if self.given:
            import pandas as pd

            row = pd.DataFrame({name: [value] for name, value in self.given.items()})
            given = self.domain.encode(row, tuple(self.given))[0]

        def source(leaves: Sequence[Node]) -> LeafLayer:
            outputs = [leaf for leaf in leaves if isinstance(leaf, Output)]
            return PartyLeaves(
                outputs, self.presence, self.domain.names, given, self.fingerprint, self.ask
            )

        return Layers.of(self.composition.root, source)

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Log density of rows (n, d) given the evidence, shape (n,)."""
        return self.layers.log_densities(values) - self._log_evidence()

    def out_of_reach(self) -> FederatedCircuit:
        """Return the circuit without access to its parties: it can be saved, but not queried."""
        return replace(self, ask=None)

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
        new_directory(place)
        write(place / FILE, json.dumps(plain))

    @classmethod
    def load(cls, directory: str | Path) -> FederatedCircuit:
        """Read what :meth:`save` wrote; a run has to connect it to its parties before queries."""
        place = Path(directory) / FILE
        try:
            plain = json.loads(place.read_text(encoding="utf-8"))
            if plain.pop("format") != FORMAT:
                raise KeyError("format")
            composition = from_plain(plain.pop("composition"))
            presence = np.array(plain.pop("presence"), dtype=np.bool_)
            parties = tuple(plain.pop("parties"))
            return cls(composition, presence, parties, **plain)
        except DAMAGE as error:
            raise DataError(f"{place} holds no federated circuit ({error!r})") from error

    def _log_evidence(self) -> float:
        if not self.given:
            return 0.0
        return float(self.layers.log_densities(np.full((1, len(self.domain.variables)), np.nan))[0])
