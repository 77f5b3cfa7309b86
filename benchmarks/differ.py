"""Worlds whose parties differ: in levels, mechanisms, labels and scales of their columns.

``kind`` says in what. `differing_parties` have numbers of a linear system with 1.7 edges for each
variable and Gaussian noise, `differing_clinics` mixed tables with a treatment that has a known
effect on an outcome. Parties are of unequal sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.world import AskedEffect, World
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.synthetic.linear import SyntheticSystem
from flwr_causal.data.synthetic.random_graphs import erdos_renyi, signed_weights
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Edges for each variable, and bounds of coefficients and of the noise's standard deviations.
EDGES, WEIGHTS, NOISE = 1.7, (0.5, 1.5), (0.5, 2.0)
#: Standard deviation of the parties' levels.
SHIFT = 1.5
#: Rows of the party "large" beside those of all others.
LARGE = 20_000
#: How many columns one party has under each other's names.
RENAMED = 4
#: Share of mistyped cells, and bounds of how far they are off, in standard deviations.
MISTYPED, FAR = 0.01, (6.0, 12.0)
#: Share of an amount's rows that are zero, and bounds of the standard deviations of logarithms.
ZERO, LOGARITHMS = 0.6, (0.6, 1.2)
#: Mean and standard deviations of the two columns of "swapped".
SWAPPED_MEAN, SWAPPED = 100.0, (27.0, 13.0)


@dataclass(frozen=True)
class _Federation:
    """A linear system, the rows of its parties, and the generator that all draws take."""

    system: SyntheticSystem
    sizes: list[int]
    rng: np.random.Generator

    @property
    def d(self) -> int:
        """The number of variables."""
        return len(self.system.weights)

    def rows(self, party: int, shift: FloatArray | float = 0.0) -> FloatArray:
        """Draw the rows of a party whose noise terms have the means ``shift``."""
        own = self.system.sample(self.sizes[party], self.rng).to_numpy(copy=True)
        own += np.linalg.solve((np.eye(self.d) - self.system.weights).T, np.full(self.d, shift))
        return own

    def all_rows(self) -> list[FloatArray]:
        """Draw the rows of parties that do not differ."""
        return [self.rows(party) for party in range(len(self.sizes))]

    def redrawn(self) -> _Federation:
        """Return the federation with other weights along the same edges."""
        weights = _weights(self.system.weights != 0, self.rng)
        return replace(self, system=SyntheticSystem(weights, self.system.noise_scale))


def _clean(of: _Federation) -> list[FloatArray]:
    return of.all_rows()


def _levels(of: _Federation) -> list[FloatArray]:
    """Measure half of the columns from another zero at each party."""
    shifted = of.rng.permutation(of.d) < of.d // 2
    return [table + of.rng.normal(0, SHIFT, of.d) * shifted for table in of.all_rows()]


def _roots(of: _Federation) -> list[FloatArray]:
    """Shift the columns without causes at each party, and what follows from them."""
    roots = ~(of.system.weights != 0).any(axis=0)
    return [of.rows(k, of.rng.normal(0, SHIFT, of.d) * roots) for k in range(len(of.sizes))]


def _renamed(of: _Federation) -> list[FloatArray]:
    """Give four columns of one party each other's names."""
    tables = of.all_rows()
    columns = of.rng.choice(of.d, RENAMED, replace=False)
    tables[-1][:, columns] = tables[-1][:, np.roll(columns, 1)]
    return tables


def _redrawn(of: _Federation) -> list[FloatArray]:
    """Redraw the weights of the last two parties, each anew."""
    tables = of.all_rows()
    for party in range(len(tables) - 2, len(tables)):
        tables[party] = of.redrawn().rows(party)
    return tables


def _large(of: _Federation) -> list[FloatArray]:
    """Add a party of many rows with weights of its own."""
    other = of.redrawn()
    return [*of.all_rows(), replace(other, sizes=[LARGE]).rows(0)]


def _skewed(of: _Federation) -> list[FloatArray]:
    """Make every column the exponential of what the system says, as laboratory values are."""
    tables = of.all_rows()
    scale = of.rng.uniform(*LOGARITHMS, of.d) / np.concatenate(tables).std(axis=0)
    return [np.exp(table * scale) for table in tables]


def _mistyped(of: _Federation) -> list[FloatArray]:
    """Add 6 to 12 standard deviations to one of a hundred cells, or subtract them."""
    tables = of.all_rows()
    spread = np.concatenate(tables).std(axis=0)
    for table in tables:
        off = signed_weights(of.rng, *FAR, table.shape) * spread
        table += np.where(of.rng.random(table.shape) < MISTYPED, off, 0.0)
    return tables


def _zeros(of: _Federation) -> list[FloatArray]:
    """Make half of the columns amounts, of which the lower 60 % are zero."""
    tables = of.all_rows()
    amounts = of.rng.permutation(of.d) < of.d // 2
    limit = np.quantile(np.concatenate(tables), ZERO, axis=0)
    return [np.where(amounts, np.maximum(table - limit, 0.0), table) for table in tables]


def _swapped(of: _Federation) -> list[FloatArray]:
    """Exchange two columns without an edge, of one mean and unlike spreads, at one party."""
    tables = of.all_rows()
    joined = (of.system.weights != 0) | (of.system.weights != 0).T | np.eye(of.d, dtype=bool)
    pair = of.rng.choice(np.argwhere(~joined))
    spread = np.concatenate(tables).std(axis=0)[pair]
    for table in tables:
        table[:, pair] = SWAPPED_MEAN + table[:, pair] * np.array(SWAPPED) / spread
    tables[-1][:, pair] = tables[-1][:, pair[::-1]]
    return tables


#: By kind, what makes the parties' rows.
PARTIES: dict[str, Callable[[_Federation], list[FloatArray]]] = {
    "clean": _clean,
    "levels": _levels,
    "roots": _roots,
    "renamed": _renamed,
    "redrawn": _redrawn,
    "large": _large,
    "skewed": _skewed,
    "mistyped": _mistyped,
    "zeros": _zeros,
    "swapped": _swapped,
}


def differing_parties(
    seed: int, kind: str, num_variables: int, num_rows: int, num_parties: int
) -> World:
    """Return the tables of parties that differ as a kind of `PARTIES` says, and the true graph.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    _check("differing-parties", kind, PARTIES)
    rng = np.random.default_rng([seed, list(PARTIES).index(kind)])
    edges = erdos_renyi(num_variables, round(EDGES * num_variables), rng)
    system = SyntheticSystem(_weights(edges, rng), rng.uniform(*NOISE, num_variables))
    tables = PARTIES[kind](_Federation(system, _sizes(num_rows, num_parties, rng), rng))
    names = [f"x{j}" for j in range(num_variables)]
    parties = [pd.DataFrame(table, columns=pd.Index(names)) for table in tables]
    return World(parties, CausalGraph.from_array(system.weights, names))


def _weights(edges: BoolArray, rng: np.random.Generator) -> FloatArray:
    return np.where(edges, signed_weights(rng, *WEIGHTS, edges.shape), 0.0)


def _sizes(num_rows: int, num_parties: int, rng: np.random.Generator) -> list[int]:
    """Return unequal numbers of rows, the largest about four times the smallest."""
    shares = rng.permutation(np.linspace(0.4, 1.6, num_parties))
    return [int(n) for n in np.rint(num_rows * shares / shares.sum())]


def _check(
    data: str, kind: str, known: dict[str, Callable[..., list[FloatArray]]] | tuple[str, ...]
) -> None:
    if kind not in known:
        raise ConfigError(f"the data '{data}' have no kind '{kind}': choose of {', '.join(known)}")


#: "alike": clinics that do not differ. "reversed": one writes the outcome the other way round.
#: "flipped": one has the codes of the treatment exchanged. "confounded": clinics that give the
#: treatment more often have lower outcomes for other reasons.
CLINICS = ("alike", "reversed", "flipped", "confounded")
#: The effect of the treatment on the outcome, and where clinics confound it.
EFFECT, WITHIN = 6.0, 3.0
#: Share of treated rows, and level of the outcome, at the first and at the last clinic.
TREATED, LEVEL = (0.2, 0.8), (70.0, 58.0)
#: The columns of clinics in the order of time, as methods are told it.
TIERS = (("age", "sex"), ("severity",), ("drug",), ("pain", "sleep", "life", "mobility"))
CAUSES = {
    "severity": ("age",),
    "drug": ("severity",),
    "pain": ("severity", "sex"),
    "sleep": ("pain",),
    "life": ("drug", "pain", "age"),
    "mobility": ("life", "age"),
}


def differing_clinics(seed: int, kind: str, num_rows: int, num_parties: int) -> World:
    """Return mixed tables of clinics that differ as a kind of `CLINICS` says.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    _check("differing-clinics", kind, CLINICS)
    rng = np.random.default_rng([seed, CLINICS.index(kind)])
    confounded = kind == "confounded"
    share = np.linspace(*TREATED, num_parties) if confounded else np.full(num_parties, 0.5)
    level = np.linspace(*LEVEL, num_parties) if confounded else np.full(num_parties, LEVEL[0])
    effect = WITHIN if confounded else EFFECT
    tables = [
        _clinic(rng, n, share[k], level[k], effect, by_severity=not confounded)
        for k, n in enumerate(_sizes(num_rows, num_parties, rng))
    ]
    other = max(tables, key=len)
    if kind == "reversed":
        other["life"] = 2 * LEVEL[0] - other["life"]
    if kind == "flipped":
        other["drug"] = other["drug"].map({"new": "old", "old": "new"})
    causes = {name: own for name, own in CAUSES.items() if not (confounded and name == "drug")}
    names = list(tables[0].columns)
    edges = np.zeros((len(names),) * 2)
    for name, own in causes.items():
        edges[[names.index(cause) for cause in own], names.index(name)] = 1.0
    return World(
        tables,
        CausalGraph(tuple(names), edges),
        options={"text_columns": "keep", "knowledge": Knowledge(tiers=TIERS)},
        asked=AskedEffect("drug", "life", effect, {"state": "new", "reference": "old"}),
    )


def _clinic(
    rng: np.random.Generator,
    n: int,
    share: float,
    level: float,
    effect: float,
    *,
    by_severity: bool,
) -> pd.DataFrame:
    """Draw the rows of one clinic; the treatment is given by severity, or by chance alone."""
    age, male = rng.normal(60, 10, n), rng.random(n) < 0.5
    severity = 0.08 * (age - 60) + rng.normal(size=n)
    odds = np.log(share / (1 - share)) + by_severity * severity
    treated = rng.random(n) < 1 / (1 + np.exp(-odds))
    pain = 4 + 0.8 * severity + 1.2 * male + rng.normal(0, 1.2, n)
    sleep = 8 - 0.6 * pain + rng.normal(size=n)
    life = level + effect * treated - 2.0 * (pain - 4) - 0.2 * (age - 60) + rng.normal(0, 5, n)
    mobility = 0.5 * life - 0.3 * (age - 60) + rng.normal(0, 4, n)
    columns = {
        "age": age,
        "sex": np.where(male, "m", "f"),
        "severity": severity,
        "drug": np.where(treated, "new", "old"),
        "pain": pain,
        "sleep": sleep,
        "life": life,
        "mobility": mobility,
    }
    return pd.DataFrame(columns)


DIFFER: dict[str, Callable[..., World]] = {
    "differing-parties": differing_parties,
    "differing-clinics": differing_clinics,
}
