"""Einsum networks: circuits over random region graphs, trained by EM on arrays (Peharz et al.).

A region has K sums. Sum o of region b mixes the K x K products of the sums of its two children,
``S_o = sum_ij weights[b, o, i, j] left_i right_j``; a level of regions is one batched matrix
product. Region graphs are random: a *replica* splits the set of all columns into two parts, each
part into two again, and so on, until there are ``2**depth`` leaf regions. Region b of a level with
B regions has the children b and b + B in the next level. A *unit* is a distribution of one column,
a normal distribution or probabilities of states; each column has K units in each replica. Units are
exponential families: the log density of sum k of a leaf region is linear in the *statistics* of the
row: 1, x and x^2 of each number, and the indicators of the states of each category. The statistics
of a missing value are 0, which integrates it out. A trained network becomes a circuit of sums,
products and leaves.

Parties that hold the same columns train one circuit, that of the pooled rows. `EinsumScale` sums
moments for standardising. Each `EStep` is an E-step: the server sends the parameters, a party
returns expected counts, and the server normalises their sum, the M-step. With more than one batch
an exchange uses a part of the rows, chosen by a hash of their values and therefore the same however
rows are divided. An M-step with a step s < 1 is that of stepwise EM (Cappe & Moulines 2009): the
counts enter a running mean, ``(1 - s) running + s counts / rows``. The running mean is not stored:
it equals the expected counts of a new row under the circuit, as these made the parameters.

References
----------
Cappe & Moulines: On-line expectation-maximization algorithm for latent data models, JRSS B 2009.
Peharz et al.: Random sum-product networks, UAI 2019; Einsum networks, ICML 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import logsumexp

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.circuits import em
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.options import EinsumOptions
from flwr_causal.core.circuits.learners.training_by_sums import (
    ORIGIN,
    SumsExchange,
    Trained,
    TrainingBySums,
    add,
    impossible,
    is_far,
    miscounted,
    pooled,
    row_folds,
    summed_array,
)
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.nodes import Node, Product, Sum, joined
from flwr_causal.core.devices import PRECISIONS
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.core.options import bounded, check_bounds
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Summing, TrainingPlan

#: Pseudo rows of each sum and each category, spread evenly over its choices.
SMOOTHING = 0.01
#: Bounds of a unit's variance, of standardised values. The lower one is the paper's for images.
VARIANCES = (1e-3, float("inf"))
#: Least share of its statistics that a unit without rows keeps; least probability of a state.
NOTHING = 1e-9
#: The last step, as a share of the first.
LAST_STEP = 0.01
#: The most that a probability of a state may differ from its share of the rows without a warning.
MOST_MISSED = 0.05
#: Concentration of a unit's first probabilities about the states' shares in all rows.
CONCENTRATION = 4.0
#: Least number of batches of a pass over few rows, and of rows of such a batch: after few M-steps
#: the circuit is still near its random start.
LEAST_BATCHES, LEAST_ROWS = 10, 20
#: Products of pairs of sums, of all levels, for the rows that are counted at a time: 8 MB.
PRODUCTS = 2**21


# -- region graphs ---------------------------------------------------------------------------------


def random_regions(
    columns: Sequence[int],
    depth: int,
    replicas: int,
    rng: np.random.Generator,
    image: tuple[int, int] | None = None,
) -> IntArray:
    """Draw the leaf regions of some replicas.

    Parameters
    ----------
    columns : sequence of int
        The columns to be split, at least one.
    depth : int
        Splits from the root to a leaf region; fewer if there are few columns, but at least one. The
        other part of a single column is empty.
    replicas : int
    rng : Generator
    image : tuple of int, optional
        Height and width of an image whose pixels, row after row, are the columns. A region is then
        a rectangle, cut near its middle across a random side. Default: parts are random halves.

    Returns
    -------
    ndarray of int64, shape (2**depth, replicas, widest)
        Columns of each leaf region; -1 where it has fewer than the widest.

    Raises
    ------
    ConfigError
        If a number is below 1, or the image has another number of pixels.
    """
    if min(depth, replicas, len(columns)) < 1:
        raise ConfigError(
            f"regions need a depth, replicas and columns of at least 1, got {depth}, {replicas} "
            f"and {len(columns)}"
        )
    pixels = np.asarray(columns, dtype=np.int64)
    if image is not None:
        if image[0] * image[1] != len(pixels):
            raise ConfigError(f"an image {image[0]} x {image[1]} has not {len(pixels)} pixels")
        pixels = pixels.reshape(image)
    depth = max(1, min(depth, len(columns).bit_length() - 1))
    drawn = []
    for _ in range(replicas):
        parts = [pixels if pixels.ndim == 2 else rng.permutation(pixels)]
        for _ in range(depth):
            halves = [_halves(part, rng) for part in parts]
            parts = [half[side] for side in (0, 1) for half in halves]
        drawn.append(parts)
    widest = max(part.size for parts in drawn for part in parts)
    regions = np.full((2**depth, replicas, widest), -1, dtype=np.int64)
    for r, parts in enumerate(drawn):
        for g, part in enumerate(parts):
            regions[g, r, : part.size] = np.sort(part, axis=None)
    return regions


def _halves(part: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    if part.ndim == 1:
        # The odd column goes to a random side; else one side would have all odd columns.
        middle = (len(part) + int(rng.integers(2))) // 2
        return part[:middle], part[middle:]
    height, width = part.shape
    # A longer side is more likely to be cut; a side of one pixel is not, unless both are.
    across = height == 1 or (width > 1 and rng.random() * (height + width) >= height)
    rows = part.T if across else part
    middle = max(1, round(len(rows) * rng.uniform(0.4, 0.6)))
    halves = rows[:middle], rows[middle:]
    return (halves[0].T, halves[1].T) if across else halves


# -- the network -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RegionNetwork:
    """The shape of an Einsum network with G leaf regions, R replicas, K units and F statistics.

    Its parameters are arrays: ``means`` and ``variances`` (numbers, R, K) of standardised values,
    ``probabilities`` (states, R, K), ``layers``, the weights (B, R, O, K, K) of all levels, that
    above the leaf regions first, one after the other, and ``root`` (C, R), the joint probabilities
    of class and replica.

    Parameters
    ----------
    num_states : tuple of int
        States of each column, 0 for a number.
    regions : ndarray of int64, shape (G, R, V)
        See `random_regions`.
    shift, scale : ndarray of float64, shape (d,)
        Numbers are standardised as ``(x - shift) / scale``.
    target : int or None
        The column that has a root for each of its states.
    precision : {"float32", "float64"}
        Of the E-step.
    """

    num_states: tuple[int, ...]
    regions: IntArray
    shift: FloatArray
    scale: FloatArray
    target: int | None
    precision: str

    @cached_property
    def numbers(self) -> IntArray:
        """The numbers in the regions."""
        return np.array([j for j in self._columns if not self.num_states[j]], dtype=np.int64)

    @cached_property
    def states(self) -> IntArray:
        """Column and index of each state of the categories in the regions, shape (2, states)."""
        pairs = [(j, s) for j in self._columns for s in range(self.num_states[j])]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T

    @property
    def _columns(self) -> list[int]:
        return [int(j) for j in np.unique(self.regions) if j >= 0]

    @cached_property
    def first(self) -> IntArray:
        """The place of the first state of each category, by which sums over states are taken."""
        return np.flatnonzero(self.states[1] == 0)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """Leaf region, of G R, of each statistic, and its number in there, both (F, R)."""
        replicas = self.regions.shape[1]
        column = np.concatenate([*[self.numbers] * 3, self.states[0]])
        g, r, v = np.nonzero(self.regions >= 0)
        found = np.zeros((len(self.num_states), replicas), dtype=np.int64)
        found[self.regions[g, r, v], r] = g * replicas + r
        region = found[column]
        number = np.empty_like(region)
        for regions, counted in zip(region.T, number.T, strict=True):
            order, sizes = np.argsort(regions, kind="stable"), np.bincount(regions)
            counted[order] = np.arange(len(regions)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return region, number

    def by_region(self, values: FloatArray) -> FloatArray:
        """Return values (F, R or 1, ...) of statistics by leaf region, (G R, most, ...)."""
        most = int(self.places[1].max(initial=0)) + 1
        shape = (self.regions[..., 0].size, most, *values.shape[2:])
        result = np.zeros(shape, dtype=values.dtype)
        result[self.places] = values
        return result

    def shapes(self, k: int) -> list[tuple[int, int, int, int, int]]:
        """Return the shapes (B, R, O, K, K) of all levels' weights."""
        levels, replicas = len(self.regions).bit_length() - 1, self.regions.shape[1]
        classes = 1 if self.target is None else self.num_states[self.target]
        counts = [2**level for level in reversed(range(levels))]
        return [(b, replicas, classes if b == 1 else k, k, k) for b in counts]

    def layers(self, weights: FloatArray, k: int) -> list[FloatArray]:
        """Divide the weights of all levels into those of each."""
        shapes = self.shapes(k)
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if weights.shape != (ends[-1],):
            raise DataError(f"an Einsum network of these regions has {ends[-1]} weights of sums")
        parts = np.split(weights, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def statistics(self, values: FloatArray) -> FloatArray:
        """Return the statistics of rows (n, d), shape (F, n)."""
        numbers = ((values - self.shift) / self.scale).T[self.numbers]
        column, state = self.states
        present, x = ~np.isnan(numbers), np.nan_to_num(numbers)
        parts = [present, x, x * x, values.T[column] == state[:, None]]
        return np.concatenate([part.astype(self.precision) for part in parts])

    def counts(self, parameters: Arrays, values: FloatArray) -> Arrays:
        """E-step: return the expected counts of rows (n, d).

        Returns
        -------
        dict of arrays
            ``statistics`` (F, R, K), sums of statistics weighted by the probability that the row
            uses the unit; ``layers`` and ``root``, expected numbers of rows that use each weight;
            ``rows`` (1,), their number; ``log_densities`` (1,), the sum over the rows.

        Raises
        ------
        DataError
            If a row is impossible under the network.
        """
        k = parameters["means" if len(self.numbers) else "probabilities"].shape[2]
        size = max(1, PRODUCTS // (self.regions[..., 0].size * k * k))
        parts = [values[at : at + size] for at in range(0, max(len(values), 1), size)]
        return add(self._counts_of_part(parameters, part) for part in parts)

    def _counts_of_part(self, parameters: Arrays, values: FloatArray) -> Arrays:
        rounded = {name: array.astype(self.precision) for name, array in parameters.items()}
        k, n = rounded["means" if len(self.numbers) else "probabilities"].shape[2], len(values)
        layers = [w.reshape(-1, w.shape[2], k * k) for w in self.layers(rounded["layers"], k)]
        statistics = self.by_region(self.statistics(values)[:, None])
        below = self._factors(rounded).transpose(0, 2, 1) @ statistics  # (G R, K, n): log densities
        seen = []
        for weights in layers:
            half, peaks = len(weights), below.max(axis=1, keepdims=True)
            sums = np.exp(below - peaks)
            left, right = sums[:half], sums[half:]
            products = (left[:, :, None] * right[:, None]).reshape(half, k * k, n)
            # Sums that underflow to 0 would not be finite in the layers above.
            sums = np.maximum(weights @ products, np.finfo(products.dtype).tiny)
            below = np.log(sums) + peaks[:half] + peaks[half:]
            seen.append((weights, products, sums))
        with np.errstate(divide="ignore"):
            joint = below.swapaxes(0, 1) + np.log(rounded["root"])[:, :, None]  # (C, R, n)
        if self.target is not None:
            given = values[:, self.target]
            classes = np.arange(len(joint))[:, None]
            joint = np.where(((given == classes) | np.isnan(given))[:, None], joint, -np.inf)
        densities = logsumexp(joint, axis=(0, 1)) if n else np.zeros(0)
        if not np.isfinite(densities).all():
            raise DataError(
                "a row is impossible under the circuit of the others: it cannot be counted"
            )
        # A flow is the probability that a row reaches a sum on its path from the root.
        chosen = np.exp(joint - densities)
        flows, used = chosen.swapaxes(0, 1).astype(self.precision), []
        for weights, products, sums in reversed(seen):
            taken = flows / sums
            used.append((taken @ products.swapaxes(1, 2) * weights).ravel())
            taken = weights.swapaxes(1, 2) @ taken
            taken *= products
            pairs = taken.reshape(len(weights), k, k, n)
            flows = np.concatenate([pairs.sum(axis=2), pairs.sum(axis=1)])
        found = {
            "statistics": (statistics @ flows.swapaxes(1, 2))[self.places],
            "layers": np.concatenate(used[::-1]),
            "root": chosen.sum(axis=2),
            "rows": np.array([float(n)]),
            "log_densities": densities.sum(keepdims=True),
        }
        return {name: array.astype(np.float64) for name, array in found.items()}

    def _factors(self, given: Mapping[str, FloatArray]) -> FloatArray:
        """Return the factors of the statistics by leaf region, (G R, most, K)."""
        means, variances = given["means"], given["variances"]
        constants = -0.5 * (means * means / variances + np.log(variances * (2.0 * np.pi)))
        constants = constants - np.log(self.scale[self.numbers])[:, None, None].astype(means.dtype)
        factors = [constants, means / variances, -0.5 / variances, np.log(given["probabilities"])]
        return self.by_region(np.concatenate(factors))

    def expected(self, parameters: Arrays) -> Arrays:
        """Return the expected `counts` of one row drawn from the network."""
        means, variances = parameters["means"], parameters["variances"]
        seen = [np.ones_like(means), means, variances + means**2, parameters["probabilities"]]
        units = np.concatenate(seen)
        flows, used = parameters["root"].T[None], []  # (B, R, O)
        for weights in reversed(self.layers(parameters["layers"], units.shape[2])):
            taken = flows[..., None, None] * weights
            used.append(taken.ravel())
            flows = np.concatenate([taken.sum(axis=(2, 4)), taken.sum(axis=(2, 3))])
        presence = flows.reshape(-1, units.shape[2])[self.places[0]]
        layers = np.concatenate(used[::-1])
        return {"statistics": units * presence, "layers": layers, "root": parameters["root"]}

    def stepped(
        self,
        parameters: Arrays,
        counts: Mapping[str, FloatArray],
        rows: float,
        step: float,
        prior: float,
        variances: tuple[float, float] = VARIANCES,
    ) -> Arrays:
        """M-step: return the parameters after the counts of some rows.

        Parameters
        ----------
        parameters : dict of arrays
            Those of the E-step.
        counts : mapping of str to ndarray
        rows : float
            Number of rows of the E-step.
        step : float
            Share of the counts in the running mean; 1 is EM itself.
        prior : float
            Pseudo rows of each sum and category, divided by the number of all rows.
        variances : tuple of float
            Bounds of the units' variances, of standardised values.
        """
        before, share, keep = self.expected(parameters), step / rows, 1.0 - step
        k = before["statistics"].shape[2]
        layers = before["layers"] * keep + counts["layers"] * share + prior / k**2
        layers = layers.reshape(-1, k * k)
        root = before["root"] * keep + counts["root"] * share + prior / before["root"].size
        kept = max(keep, NOTHING)
        statistics = before["statistics"] * kept + counts["statistics"] * share
        cuts = np.arange(1, 4) * len(self.numbers)
        present, first, second, states = np.split(statistics, cuts)
        means = first / present
        category = np.cumsum(self.states[1] == 0) - 1
        sizes = np.bincount(category)[category][:, None, None] if len(category) else 1
        totals = _by_category(states, self.first)
        states = np.maximum((states + prior / sizes) / totals[category], NOTHING)
        return {
            "means": means,
            "variances": np.clip(second / present - means**2, *variances),
            "probabilities": states / _by_category(states, self.first)[category],
            "layers": (layers / layers.sum(axis=1, keepdims=True)).ravel(),
            "root": root / root.sum(),
        }

    def root(self, parameters: Arrays) -> Node:
        """Return the network as sums and products of normal distributions and categories."""
        means, variances, probabilities, weights, root = (
            parameters[name].astype(self.precision).astype(float) for name in PARAMETERS
        )
        k = (means if len(self.numbers) else probabilities).shape[2]

        def unit(columns: list[int], r: int, u: int) -> Node | None:
            factors: list[Node] = []
            for j in columns:
                if self.num_states[j]:
                    shares = probabilities[self.states[0] == j, r, u]
                    factors.append(Categorical(j, _summing_to_one(shares)))
                else:
                    place = np.searchsorted(self.numbers, j), r, u
                    mean = means[place] * self.scale[j] + self.shift[j]
                    factors.append(Gaussian(j, mean, math.sqrt(variances[place]) * self.scale[j]))
            return joined(factors) if factors else None

        def region_sums(weights: FloatArray, left: Nodes, right: Nodes) -> Nodes:
            pairs = [[one for one in (a, b) if one is not None] for a in left for b in right]
            if not pairs[0]:
                return [None] * len(weights)
            children = [joined(pair) for pair in pairs]
            return [Sum(children, _summing_to_one(row.ravel())) for row in weights]

        tops = []
        for r in range(self.regions.shape[1]):
            columns = [[j for j in region if j >= 0] for region in self.regions[:, r].tolist()]
            level: list[Nodes] = [[unit(region, r, u) for u in range(k)] for region in columns]
            for layer in self.layers(weights, k):
                half = len(layer)
                level = [region_sums(layer[b, r], level[b], level[b + half]) for b in range(half)]
            tops.append([one for one in level[0] if one is not None])
        children: list[Node] = [top[c] for c in range(len(root)) for top in tops]
        if self.target is not None:
            classes = np.repeat(np.eye(len(root)), len(tops), axis=0)
            children = [
                Product([Categorical(self.target, indicator), child])
                for indicator, child in zip(classes, children, strict=True)
            ]
        return Sum(children, _summing_to_one(root.ravel()))


#: The sums, or units, of a region; None where it has no column.
Nodes = list[Node | None]


def _by_category(states: FloatArray, first: IntArray) -> FloatArray:
    """Return the sums over each category's states, (categories, R, K)."""
    return np.add.reduceat(states, first, axis=0) if len(first) else states


def _summing_to_one(given: FloatArray) -> FloatArray:
    """Return probabilities that sum to 1, by a change of the largest one.

    The others keep few digits, in single precision, and are therefore packed in few bytes.
    """
    weights = given.copy()
    weights[weights.argmax()] += 1.0 - weights.sum()
    return weights


# -- the exchanges ---------------------------------------------------------------------------------


class EinsumScale(SumsExchange):
    """Moments of each column, for standardising, and rows of each state."""

    name = "scale"
    sent: ClassVar[tuple[Sent, ...]] = (ORIGIN,)
    summed = (
        summed_array("rows", "rows", (1,), "count"),
        summed_array("counts", "values of each column", ("columns",), "count"),
        summed_array("first", "sums of each column", ("columns",)),
        summed_array("second", "sums of squares of each column", ("columns",), "non-negative"),
        summed_array("states", "rows of each state", ("states",), "count"),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum a party's rows, which may have missing values."""
        values = _rows_of_large_classes(values, plan)
        apart = np.nan_to_num(values - asked["origin"])
        columns = np.repeat(np.arange(len(plan.num_states)), plan.num_states)
        states = [s for number in plan.num_states for s in range(number)]
        return {
            "rows": np.array([float(len(values))]),
            "counts": (~np.isnan(values)).sum(axis=0).astype(np.float64),
            "first": apart.sum(axis=0),
            "second": (apart * apart).sum(axis=0),
            "states": (values[:, columns] == np.array(states)).sum(axis=0).astype(np.float64),
        }

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        return {"columns": len(plan.num_states), "states": sum(plan.num_states)}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows."""
        counts, numbers = sums["counts"], np.array(plan.num_states)
        yield from miscounted(sums["rows"], plan, rows)
        if (counts > sums["rows"]).any():
            yield "a column has more values than there are rows"
        yield from impossible(counts, sums["first"][:, None], sums["second"][:, None])
        by_column = np.bincount(
            np.repeat(np.arange(len(numbers)), numbers), sums["states"], len(numbers)
        )
        if (by_column != counts)[numbers > 0].any():
            yield "the states of a category do not count its values"


class EStep(SumsExchange):
    """An E-step: expected counts of each weight and unit."""

    name = "counts"
    sent = (
        Sent("fold", "part of the rows that is summed", (1,)),
        Sent(
            "regions", "columns of each leaf region, -1 for none", ("regions", "replicas", "widest")
        ),
        Sent("shift", "means", ("columns",)),
        Sent("scale", "standard deviations", ("columns",)),
        Sent("means", "of each unit of a number", ("numbers", "replicas", "units")),
        Sent("variances", "of each unit of a number", ("numbers", "replicas", "units")),
        Sent("probabilities", "of states in each unit", ("states", "replicas", "units")),
        Sent("layers", "weights of all sums, level by level", ("weights",)),
        Sent("root", "weights of each class and replica", ("classes", "replicas")),
    )
    summed = (
        summed_array(
            "statistics",
            "weighted values, sums, squares and states of each unit",
            ("statistics", "replicas", "units"),
        ),
        summed_array(
            "layers", "weighted rows of each weight of a sum", ("weights",), "non-negative"
        ),
        summed_array(
            "root",
            "weighted rows of each class and replica",
            ("classes", "replicas"),
            "non-negative",
        ),
        summed_array("rows", "rows", (1,), "count"),
        summed_array("log_densities", "log-likelihood of the rows", (1,)),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the counts of a party's rows, which may have missing values."""
        if plan.learner.batches > 1:
            hashed = np.where(np.isnan(values), np.inf, values)
            chosen = row_folds(hashed, plan.learner.batches, plan.seed) == int(asked["fold"][0])
            values = values[chosen]
        values = _rows_of_large_classes(values, plan)
        network = _network(plan, asked["regions"].astype(np.int64), asked["shift"], asked["scale"])
        return network.counts({name: asked[name] for name in PARAMETERS}, values)

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        statistics = 3 * len(asked["means"]) + len(asked["probabilities"])
        return {**super().sizes(plan, asked), "statistics": statistics}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield a complaint if more rows are counted than there are."""
        if sums["rows"][0] > rows:
            yield f"its sums count {sums['rows'][0]:g} rows, but the party reported {rows}"


PARAMETERS = ("means", "variances", "probabilities", "layers", "root")


def _rows_of_large_classes(values: FloatArray, plan: TrainingPlan) -> FloatArray:
    """Return the rows of the classes with at least ``min_rows`` rows."""
    if plan.min_rows == 1:
        return values
    labels = np.zeros(len(values)) if plan.target is None else values[:, plan.target]
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return values[sizes[places] >= plan.min_rows]


def _network(
    plan: TrainingPlan, regions: IntArray, shift: FloatArray, scale: FloatArray
) -> RegionNetwork:
    return RegionNetwork(
        plan.num_states, regions, shift, scale, plan.target, plan.learner.precision
    )


# -- the learner -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EinsumTrained(Trained):
    """A network with its parameters.

    Parameters
    ----------
    plan : TrainingPlan
    network : RegionNetwork
    states : ndarray of float, shape (states,)
        Rows of each state of each category, one category after the other.
    rows : float
        Number of rows of all parties.
    parameters : dict of arrays
        See `RegionNetwork`.
    log_likelihoods : tuple of float, default ()
        Mean log-likelihood of a row under the parameters of each E-step, in nats.
    """

    plan: TrainingPlan
    network: RegionNetwork
    states: FloatArray
    rows: float
    parameters: Arrays
    log_likelihoods: tuple[float, ...] = ()

    @property
    def shares(self) -> dict[int, FloatArray]:
        """The share of the rows in each state of each category that rows have, by column."""
        by_column = np.split(self.states, np.cumsum(self.plan.num_states)[:-1])
        return {j: rows / rows.sum() for j, rows in enumerate(by_column) if rows.any()}

    def stepped(self, counts: Mapping[str, FloatArray], step: float) -> EinsumTrained:
        """Return the network after an M-step with a step, see `RegionNetwork.stepped`."""
        rows = float(counts["rows"][0])
        if rows == 0.0:  # the part may have no row
            return self
        options: EinsumNetwork = self.plan.learner
        prior = options.smoothing / self.rows
        made = self.network.stepped(self.parameters, counts, rows, step, prior, options.variances)
        likelihood = float(counts["log_densities"][0]) / rows
        return replace(self, parameters=made, log_likelihoods=(*self.log_likelihoods, likelihood))

    def with_class_shares(self) -> EinsumTrained:
        """Return the circuit with the classes' shares of all rows, which batches approach."""
        if self.plan.target not in self.shares:
            return self
        root, smoothing = self.parameters["root"], self.plan.learner.smoothing / self.rows
        shares = self.shares[self.plan.target] + smoothing / len(root)
        made = root / root.sum(axis=1, keepdims=True) * shares[:, None]
        return replace(self, parameters=self.parameters | {"root": made / made.sum()})

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit, which also predicts the class."""
        circuit = Circuit(domain, self.network.root(self.parameters))
        return CircuitModel(circuit, self.plan.learner.target)

    def warnings(self, model: CircuitModel) -> tuple[str, ...]:
        """Return which categories have other shares in the circuit than in the rows."""
        nothing = np.full((1, len(self.plan.names)), np.nan)
        missed = [
            f"{self.plan.names[j]!r} (by up to {far:.2f})"
            for j, shares in self.shares.items()
            if (far := np.abs(model.density.state_probabilities(nothing, j) - shares).max())
            > MOST_MISSED
        ]
        if not missed:
            return ()
        return (
            "states have other probabilities in the circuit than shares of the rows, in columns "
            f"{', '.join(missed)}: the circuit is not trained to the end. Raise epochs, lower "
            "batches, or take learner='trees'",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EinsumNetwork(EinsumOptions, TrainingBySums):
    """Learner of Einsum networks.

    Parameters
    ----------
    target : str, optional
        A category that has a root for each of its states. None: one root.
    depth, replicas, sums, epochs, batches, image
        See `EinsumOptions`. ``batches`` has an effect by sums only.
    batch_size : int or None, default 100
        From one table, rows of a batch; fewer for small tables, see `LEAST_BATCHES`. None: all
        rows, with steps of 1, which is EM itself.
    step : float, default 0.5
        Share of the first batch in the running mean of stepwise EM. It falls to a hundredth of
        that.
    smoothing : float, default 0.01
        Pseudo rows of each sum and category, spread evenly over its choices.
    variances : tuple of float
        Bounds of the units' variances, relative to the variance of the column. The default of the
        lower one is the paper's for images.
    precision : {"float32", "float64"}, default "float32"

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    target: str | None = None
    batch_size: int | None = bounded(100, least=1)
    step: float = bounded(0.5, above=0, most=1)
    smoothing: float = bounded(SMOOTHING, above=0)
    variances: tuple[float, float] = VARIANCES
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_bounds(self)
        if not 0.0 < self.variances[0] <= self.variances[1]:
            raise ConfigError(f"variances must be above 0 and ascend, got {self.variances}")
        _ = self.image_shape
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {PRECISIONS}, got {self.precision!r}")

    exchanges: ClassVar = (EinsumScale, EStep)

    def training(
        self, plan: TrainingPlan, presence: BoolArray | None = None
    ) -> Summing[EinsumTrained]:
        """Train by EM: draw a network, then a step for each batch of each epoch."""
        start, steps = (yield from self.start(plan)), self.epochs * self.batches
        network = start.network

        def expectation(trained: EinsumTrained, done: int) -> Summing[Mapping[str, FloatArray]]:
            return (
                yield EStep.ask(
                    fold=np.array([float(done % self.batches)]),
                    regions=network.regions.astype(np.float64),
                    shift=network.shift,
                    scale=network.scale,
                    **trained.parameters,
                )
            )

        def maximisation(
            trained: EinsumTrained, counts: Mapping[str, FloatArray], done: int
        ) -> EinsumTrained:
            rows, step = float(counts["rows"][0]), self.cooled(done / steps)
            # Equal rows are in one batch, and batches may therefore differ in size. A batch has the
            # share of as many steps as it has rows in mean batches: every row counts equally.
            step = 1.0 - (1.0 - step) ** (rows * self.batches / trained.rows)
            return trained.stepped(counts, 1.0 if self.batches == 1 else step)

        trained, _ = yield from em.expectation_maximisation(
            start, expectation, maximisation, steps=steps
        )
        return trained.with_class_shares()

    def cooled(self, done: float) -> float:
        """Return the step after a share ``done`` of all M-steps, which falls as half a cosine.

        Large steps leave the random start quickly; small ones average over many batches.
        """
        return self.step * (LAST_STEP + (1.0 - LAST_STEP) * 0.5 * (1.0 + math.cos(math.pi * done)))

    def start(self, plan: TrainingPlan) -> Summing[EinsumTrained]:
        """Draw the network from which EM starts, about the distributions of the columns.

        Raises
        ------
        DataError
            If a number is missing in all rows.
        """
        origin = np.zeros(len(plan.names))
        summed = yield EinsumScale.ask(origin=origin)
        mean, variance = _mean_and_variance(plan, summed)
        if is_far(mean, variance):
            origin = mean
            summed = yield EinsumScale.ask(origin=origin)
            mean, variance = _mean_and_variance(plan, summed)
        numbers = np.array(plan.num_states) == 0
        shift = np.where(numbers, origin + mean, 0.0)
        constant = variance <= (CONSTANT_TOLERANCE * np.abs(shift)) ** 2
        scale = np.where(numbers & ~constant, np.sqrt(variance), 1.0)
        if self.image and numbers.any():
            # Pixels have one unit; a pixel that never changes has no scale of its own.
            common = np.sqrt(variance[numbers].mean())
            shift[numbers] = shift[numbers].mean()
            scale[numbers] = common if common > 0 else 1.0
        rng = np.random.default_rng([plan.seed, 0])
        regions = random_regions(plan.columns, self.depth, self.replicas, rng, self.image_shape)
        network = _network(plan, regions, shift, scale)
        states, rows = summed["states"], float(summed["rows"][0])
        return EinsumTrained(plan, network, states, rows, self._draw(plan, network, states))

    def _draw(self, plan: TrainingPlan, network: RegionNetwork, states: FloatArray) -> Arrays:
        """Draw the first parameters, about the distributions of the columns."""
        rng = np.random.default_rng([plan.seed, 1])
        k, replicas = self.sums, network.regions.shape[1]
        means = rng.normal(size=(len(network.numbers), replicas, k))
        by_column = np.split(states, np.cumsum(plan.num_states)[:-1])  # nothing of a number
        drawn = [np.zeros((0, replicas, k))]
        for column in plan.categories:
            shares = ((by_column[column] + 1.0) / (by_column[column] + 1.0).sum())[:, None, None]
            weights = rng.gamma(CONCENTRATION * shares, size=(len(shares), replicas, k))
            weights += 1e-2 * shares
            drawn.append(weights / weights.sum(axis=0))
        weights = 0.01 + rng.random((sum(math.prod(w[:3]) for w in network.shapes(k)), k * k))
        classes = np.ones(1) if plan.target is None else by_column[plan.target] + self.smoothing
        root = np.repeat(classes[:, None], replicas, axis=1)
        return {
            "means": means,
            "variances": np.clip(np.ones_like(means), *self.variances),
            "probabilities": np.concatenate(drawn),
            "layers": (weights / weights.sum(axis=1, keepdims=True)).ravel(),
            "root": root / root.sum(),
        }

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows, trained by batches of shuffled rows.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is integrated out.
        seed : int, default 0
            Seed of the regions, the first parameters and the order of rows.

        Raises
        ------
        DataError
            If there is no row, or a number is missing in all of them.
        ConfigError
            If the options do not fit the domain.
        """
        if self.batch_size is None:
            return TrainingBySums.learn(replace(self, batches=1), domain, values, seed)
        plan = self.plan(domain, seed=seed)
        start = pooled(self.start(plan), plan, [values])
        rng = np.random.default_rng(seed)
        few = min(LEAST_BATCHES, len(values) // LEAST_ROWS)
        batches = max(1, few, round(len(values) / self.batch_size))
        parts = (
            part
            for _ in range(self.epochs)
            for part in np.array_split(values[rng.permutation(len(values))], batches)
        )
        trained, _ = em.local(
            start,
            lambda trained, _: trained.network.counts(trained.parameters, next(parts)),
            lambda trained, counts, done: trained.stepped(
                counts, self.cooled((done // batches + done % batches / batches) / self.epochs)
            ),
            steps=self.epochs * batches,
        )
        return Circuit(domain, trained.network.root(trained.parameters))


def _mean_and_variance(
    plan: TrainingPlan, summed: Mapping[str, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return mean minus origin and variance of each column, shape (d,); of categories 0."""
    counts, numbers = summed["counts"], np.array(plan.num_states) == 0
    unseen = np.flatnonzero(numbers & (counts == 0))
    if len(unseen) or not counts.any():
        listed = ", ".join(plan.names[j] for j in unseen) or "all columns"
        raise DataError(f"no row holds a value of {listed}: leave them out")
    n = np.maximum(counts, 1.0)
    mean = summed["first"] / n
    variance = np.maximum(summed["second"] / n - mean**2, 0.0)
    return np.where(numbers, mean, 0.0), np.where(numbers, variance, 0.0)
