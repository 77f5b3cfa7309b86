"""Products of joined rows, of parties that hold different columns: ``row_id``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from flwr_causal.core.blocks.design import functions_of
from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.linear.moments import SampleMoments, pairwise
from flwr_causal.data.series.levels import OWN_LEVELS
from flwr_causal.doubts.tables import doubts_by
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.products.matrices import as_floats, fraction_bits
from flwr_causal.protocol.products.plan import ProductPlan
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.protocol.products.tables import box_bytes, box_sizes, dealt, split_boxes
from flwr_causal.runtime.algorithm import Ask, Choice
from flwr_causal.sources.products import (
    DesignOptions,
    Products,
    in_new_units,
    products_with_ones,
    solved_design,
)
from flwr_causal.sources.row_ids import check_all, hashes_of, problem_of_secret

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.products.plan import PlanColumns
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step


@dataclass(frozen=True, eq=False)
class Holders:
    """The parties and their columns.

    Parameters
    ----------
    parties : tuple of str
        In their order.
    names : tuple of str
        The d columns of products: the agreed ones, with their lags.
    presence : ndarray of bool, shape (parties, d)
        Which party holds which column.
    rows : int
        Of all parties, rows that several have counted as often.
    least : int
        Fewest rows of a pair of columns.
    replicates : int
    seed : int
        From which the rows of replicates are drawn.
    columns : PlanColumns, optional
        What the columns are, where they are not the agreed ones.
    folds : int, default 1
        More than one where something is chosen by held-out rows.
    order : int, default 0
        p, the number of lags of each column.
    variables : tuple of str, default ()
        The variable of each column of products, for warnings; of lags the variable itself. Default:
        the columns' names.
    """

    parties: tuple[str, ...]
    names: tuple[str, ...]
    presence: BoolArray
    rows: int
    least: int
    replicates: int
    seed: int
    columns: PlanColumns | None = None
    folds: int = 1
    order: int = 0
    variables: tuple[str, ...] = ()


class MatchedRows(NamedTuple):
    """The rows of the parties, matched by their ids.

    Parameters
    ----------
    plan : ProductPlan
        Which party gives which products of which rows.
    rows : dict of str to ndarray of int64
        By party, the positions of its rows in the order of the plan.
    """

    plan: ProductPlan
    rows: Mapping[str, IntArray]


class Sealed(NamedTuple):
    """The parties' masked tables, which only their receivers can open.

    Parameters
    ----------
    boxes : dict of str to ndarray of uint8
        By party, what the others have sealed for it.
    seeds : dict of int to bytes
        By place, the seed of a party's masks.
    differing : tuple of str
        Warnings of columns of which two parties have different values in the same rows.
    """

    boxes: Mapping[str, NDArray[np.uint8]]
    seeds: Mapping[int, bytes]
    differing: tuple[str, ...]


def joined_sums(holders: Holders) -> Generator[Step, Any, JoinedMoments]:
    """Match the parties' rows, and add up products of columns over them: three exchanges.

    Replicates share them.

    Raises
    ------
    DataError
        If a party has no secret for ids, or a pair of columns is known in too few rows.
    FederationError
        If a party has not replied, or masks do not cancel.
    """
    replies = yield Ask(ALIGN, shared=True)
    matched = yield Choice(partial(matched_rows, holders, replies))
    return (yield from summed_products(holders, matched))


def summed_products(
    holders: Holders, matched: MatchedRows, further: Mapping[str, Any] | None = None
) -> Generator[Step, Any, JoinedMoments]:
    """Add up products of columns over matched rows, in two exchanges that replicates share.

    Parameters
    ----------
    holders : Holders
    matched : MatchedRows
    further : mapping, optional
        What the parties are sent beside the plan.
    """
    plan = matched.plan
    values = {**plan.to_arrays(), **(further or {})}
    own = {party: {"rows": rows} for party, rows in matched.rows.items()}
    replies = yield Ask(MASKED_TABLES, values, own, shared=True)
    sealed: Sealed = yield Choice(partial(_sealed, holders, plan, replies))
    values |= {"weightings": 1 + plan.num_folds + holders.replicates, "draw": holders.seed}
    opened = {party: {**rows, "boxes": sealed.boxes[party]} for party, rows in own.items()}
    replies = yield Ask(PRODUCTS, values, opened, shared=True)
    joined: JoinedMoments = yield Choice(partial(_added_up, holders, plan, sealed, replies))
    return joined


def matched_rows(holders: Holders, replies: Replies) -> MatchedRows:
    """Match the rows by the hashes of their ids, and plan who gives which products."""
    _check_all(holders, replies)
    problem = problem_of_secret(holders.parties, replies)
    if problem:
        raise DataError(f"rows of different parties cannot be matched: {problem}")
    ids = hashes_of(replies)
    plan, rows = ProductPlan.of(holders.presence, ids, holders.columns, holders.folds)
    plan.check(holders.names, holders.least)
    return MatchedRows(plan, dict(zip(holders.parties, rows, strict=True)))


def _sealed(holders: Holders, plan: ProductPlan, replies: Replies) -> Sealed:
    """Sort the sealed tables by their receivers."""
    _check_all(holders, replies)
    received: dict[int, list[bytes]] = {place: [] for place in range(len(holders.parties))}
    seeds = {}
    for place, (party, arrays) in enumerate(replies.by_party.items()):
        shapes, boxes = box_sizes(plan, place), arrays["boxes"].astype(np.uint8)
        if len(boxes) != sum(box_bytes(*shape) for shape in shapes.values()):
            raise FederationError(f"{party} sent masked tables of another size than planned.")
        for receiver, box in split_boxes(boxes.tobytes(), shapes).items():
            received[receiver].append(box)
        seeds[place] = arrays["seed"].astype(np.uint8).tobytes()
    boxes_for = {
        party: np.frombuffer(b"".join(received[place]), dtype=np.uint8)
        for place, party in enumerate(holders.parties)
    }
    digests = [arrays["digests"] for arrays in replies.by_party.values()]
    return Sealed(boxes_for, seeds, _differing(holders, plan, digests))


def _added_up(
    holders: Holders, plan: ProductPlan, sealed: Sealed, replies: Replies
) -> JoinedMoments:
    """Add up the parts of the parties and of the masks."""
    _check_all(holders, replies)
    if replies["ones"].tolist() != [len(holders.parties)]:
        raise FederationError(
            "The masks of the parties' replies do not cancel: a reply was altered, or a party "
            "has used other keys. Start the run again."
        )
    weights = plan.weights(holders.replicates, holders.seed)
    bits = fraction_bits(holders.rows, len(holders.parties))
    products = replies["products"].astype(np.int64) + dealt(plan, weights, sealed.seeds).view(
        np.int64
    )
    return JoinedMoments(
        holders,
        plan,
        as_floats(products, 2 * bits),
        as_floats(replies["sums"].astype(np.int64), bits),
        plan.num_known(weights),
        sealed.differing,
    )


@dataclass(frozen=True, eq=False)
class JoinedMoments:
    """The sums over all rows.

    Parameters
    ----------
    holders : Holders
    plan : ProductPlan
    products, sums : ndarray of shape (1 + folds + replicates, d, d)
        Of products of centred and scaled columns i and j over the rows that know both, and of
        column i over these rows.
    counts : ndarray of int64, shape (1 + folds + replicates, d, d)
        Numbers of these rows.
    differing : tuple of str
        Warnings of columns of which two parties have different values in the same rows.
    """

    holders: Holders
    plan: ProductPlan
    products: FloatArray
    sums: FloatArray
    counts: IntArray
    differing: tuple[str, ...]

    def moments(self, replicate: int = 0) -> SampleMoments:
        """Return the moments of the scaled columns; of the rows of a replicate from 1 on.

        The number of rows is that of the pair of columns that is known in the fewest.
        """
        return self._moments(replicate and self.plan.num_folds + replicate)

    def folds(self) -> list[SampleMoments]:
        """Return the moments of each fold of the rows; without folds, the moments of all rows."""
        return [self._moments(1 + k) for k in range(self.plan.num_folds)] or [self.moments()]

    def _moments(self, number: int) -> SampleMoments:
        counts = self.counts[number]
        mean, second = pairwise(self.products[number], self.sums[number], counts)
        if not self.complete:
            least = self._eigenvalues[0] if number == 0 else np.linalg.eigvalsh(second)[0]
            second = least_eigenvalue(second, 1 / counts.min()) if least <= 0 else second
        return SampleMoments(int(counts.min()), mean, second, self.holders.names)

    @cached_property
    def _eigenvalues(self) -> FloatArray:
        """Of the second moments of all rows as they are, ascending."""
        second = pairwise(self.products[0], self.sums[0], self.counts[0])[1]
        return np.asarray(np.linalg.eigvalsh(second))

    @property
    def complete(self) -> bool:
        """Whether all columns are known in all rows."""
        return bool((self.counts[0] == self.plan.num_rows).all())

    @property
    def info(self) -> dict[str, int]:
        """How many different rows there are, and how many of them have all columns."""
        complete = self.plan.known.all(axis=(1, 2))
        return {"rows": self.plan.num_rows, "complete_rows": int(self.plan.counts[complete].sum())}

    @property
    def doubts(self) -> list[str]:
        """The warnings that values differ between parties and that rows lack columns, if so."""
        if self.complete:
            return [*self.differing]
        names, counts = self.holders.names, self.counts[0]
        one, other = (int(k) for k in np.unravel_index(counts.argmin(), counts.shape))
        return [
            *self.differing,
            f"Only {self.info['complete_rows']} of {self.info['rows']} rows have all columns. Each "
            "moment is that of the rows that have its two columns, at least "
            f"{counts.min()} ({names[one]!r} and {names[other]!r})",
        ]

    @property
    def warnings(self) -> list[str]:
        """The doubts, and that moments of different rows contradict each other, if so."""
        found, counts = self.doubts, self.counts[0]
        if self.complete:
            return found
        values = self._eigenvalues
        if values[0] <= 0:
            raised = int((values < 1 / counts.min()).sum())
            found.append(
                "The moments of different rows contradict each other: the least eigenvalue of "
                f"those of the scaled columns is {values[0]:.2g}. {raised} of {len(values)} "
                f"eigenvalues were raised to 1/{counts.min()}. Look whether the parties' rows "
                "differ by more than chance"
            )
        return found


def _differing(
    holders: Holders, plan: ProductPlan, digests: Sequence[NDArray[np.generic]]
) -> tuple[str, ...]:
    """Return a warning for each two parties that have different values in the same rows.

    Parameters
    ----------
    holders : Holders
    plan : ProductPlan
    digests : sequence of ndarray of shape (parties, d, DIGEST_BYTES)
        By party; of two parties' columns by the other one.
    """
    warnings, own_names = [], holders.variables or holders.names
    for (one, of_one), (other, of_other) in combinations(enumerate(digests), 2):
        _, shared = plan.shared(one, other)
        unlike = (of_one[other] != of_other[one]).any(axis=1)
        names = dict.fromkeys(repr(own_names[k]) for k in shared if unlike[k])
        if names:
            warnings.append(
                f"Values differ between {holders.parties[one]} and {holders.parties[other]} in "
                f"rows that both have: {', '.join(names)}. Each product takes those of one party: "
                "correct the tables, or leave the columns out of all but one"
            )
    return tuple(warnings)


def _check_all(holders: Holders, replies: Replies) -> None:
    check_all(holders.parties, replies, lacking="are no products")


class JoinedOptions(DesignOptions, Protocol):
    """The options that say what is summed of joined rows."""

    @property
    def num_folds(self) -> int:
        """The number of folds of the rows."""


def joined_products(
    agreement: Agreement,
    holders: Holders,
    options: JoinedOptions,
    *,
    replicate: int,
    expected: Expected,
) -> Generator[Step, Any, Products]:
    """Add up products of the columns of different parties, in three exchanges.

    Parameters
    ----------
    agreement : Agreement
    holders : Holders
        Which party holds which of the agreed columns.
    options : JoinedOptions
    replicate : int
    expected : Expected
        What the method takes for granted of the parties' rows.
    """
    # How many rows there are is known once they are matched.
    expected = replace(expected, columns=functions_of(options.model))
    design, lags = solved_design(agreement, options), 1 + options.order
    holders = replace(
        holders,
        names=design.columns,
        presence=np.repeat(np.tile(holders.presence, lags), design.widths, axis=1),
        folds=options.num_folds,
        order=options.order,
        variables=tuple(np.repeat(agreement.names * lags, design.widths).tolist()),
    )
    joined = yield from joined_sums(holders)
    moments = joined.moments(replicate)
    parts = [moments] if replicate or not holders.order else joined.folds()
    own = replace(agreement, total=moments.n)
    level, units = np.zeros(moments.d), np.ones(moments.d)
    if design.single:
        # Columns are centred by means of parties' rows; rows of series by their own.
        now = moments.mean[: len(agreement.names)] * (options.center not in OWN_LEVELS)
        own = _joined_agreement(agreement, moments, now)
        design = solved_design(own, options)
        level = np.tile(now, lags)
        # The parties' z is in the agreed standard deviations, and now in the solver's units.
        units = np.tile(np.sqrt(agreement.variance) / design.scale, lags)
    products = np.array([_products(part, moments.n, level, units) for part in parts])
    return Products(
        own,
        design,
        products,
        info=joined.info,
        warnings=(*doubts_by(counts=own, expected=expected), *joined.warnings),
        num_rows=joined.plan.num_rows,
        reason="the exchange of products is done",
    )


def _products(
    moments: SampleMoments, num_rows: int, level: FloatArray, units: FloatArray
) -> FloatArray:
    """Return the products of rows [1, z] over the number of all rows, from a fold's moments.

    Parameters
    ----------
    moments : SampleMoments
        Of the s columns.
    num_rows : int
        Of all folds.
    level, units : ndarray of shape (s,)
        z is the columns less the level, times the units.
    """
    products = products_with_ones(moments.mean - level, moments.second)
    return np.asarray(moments.n / num_rows * in_new_units(products, units))


def _joined_agreement(agreement: Agreement, moments: SampleMoments, level: FloatArray) -> Agreement:
    """Return the agreement with means, variances and rows of the joined rows.

    Parameters
    ----------
    agreement : Agreement
        Of the parties' own rows.
    moments : SampleMoments
        Of columns that are centred and scaled by it; lags are after them.
    level : ndarray of shape (d,)
        What is to be subtracted yet; variances are mean squares about it.
    """
    spread, d = np.sqrt(agreement.variance), len(agreement.names)
    return replace(
        agreement,
        mean=agreement.mean + spread * level,
        variance=agreement.variance * (moments.variances[:d] + (moments.mean[:d] - level) ** 2),
        total=moments.n,
    )
