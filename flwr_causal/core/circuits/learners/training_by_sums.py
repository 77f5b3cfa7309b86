"""Training by sums over rows: the base of the learners whose circuit is a function of such sums.

In each exchange the server sends all parties the same arrays, every party answers with sums over
its rows, and the server adds the sums of all parties and derives the next request from the total.
The circuit is that of the pooled rows, however they are split among parties.

- A `SumsExchange` is one kind of exchange, a class without instances. It declares the arrays that
  are sent and the sums that return, and computes the sums of a party's rows.
- A `TrainingBySums` is a learner; its fields are its options. The server's side is the generator
  `TrainingBySums.training`: ``summed = yield Powers.ask(...)`` is an exchange, and what is known of
  the rows is in local variables. It returns what is `Trained`, from which the circuits are built.

A learner has an entry in ``core/circuits/learners/by_name.py``; its options are declared in
``core/circuits/learners/options.py``, which the options of FedPC inherit. The exchanges in the
contract and on the privacy page are made from these classes. EM is the loop of `core.circuits.em`,
whose expectation asks for sums.

These are pure functions. A strategy transports the arrays between server and parties; `pooled` does
so for parties in one process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import ALWAYS, Condition
from flwr_causal.core.arrays import FloatArray
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Shape, Values
    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.model import CircuitModel


Arrays = dict[str, FloatArray]


def summed_array(
    name: str,
    meaning: str,
    shape: Shape,
    values: Values = "finite",
    *,
    shares: bool = False,
) -> Disclosure:
    """Return the declaration of sums over a party's rows, which the server adds over parties.

    Parameters
    ----------
    name, meaning, shape, values
        As of :class:`~flwr_causal.contract.exchange.Disclosure`.
    shares : bool, default False
        Whether each row adds 1 at most to an entry, so that a total is at most the number of rows.
    """
    bound = _all_rows if shares else None
    return Disclosure(name, meaning, shape, values, "sum", bound=bound)


def _all_rows(setup: Any) -> float:
    return float(setup.num_rows)


@dataclass(frozen=True)
class TrainingPlan:
    """The settings of a training, known to server and parties before the first exchange.

    Parameters
    ----------
    names : tuple of str
        Names of the domain's variables.
    num_states : tuple of int
        Number of states of each variable; 0 for a number.
    target : int or None
        Column of the class. None: all rows have one class.
    columns : tuple of int
        The other columns, ascending.
    learner : TrainingBySums
        The learner with its options.
    seed : int, default 0
    min_rows : int, default 1
        A party leaves out classes (of a fold, of a component) of which it has fewer rows, since a
        sum over one row is the row itself. With 1 no row is left out, and the sums of all parties
        are those of the pooled rows.
    """

    names: tuple[str, ...]
    num_states: tuple[int, ...]
    target: int | None
    columns: tuple[int, ...]
    learner: Any
    seed: int = 0
    min_rows: int = 1

    @property
    def num_classes(self) -> int:
        """States of the target."""
        return 1 if self.target is None else self.num_states[self.target]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns that are numbers."""
        return tuple(j for j in self.columns if not self.num_states[j])

    @property
    def categories(self) -> tuple[int, ...]:
        """The columns that have states."""
        return tuple(j for j in self.columns if self.num_states[j])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of states of the categories."""
        return tuple(self.num_states[j] for j in self.categories)

    def classes_of(self, values: FloatArray) -> IntArray:
        """Return the class of each row of values, shape (n,).

        Raises
        ------
        DataError
            If the class of a row is missing.
        """
        if self.target is None:
            return np.zeros(len(values), dtype=np.int64)
        labels = values[:, self.target]
        if not np.isin(labels, np.arange(self.num_classes)).all():
            raise DataError(
                "the target is missing in some rows, or none of its states: drop those rows"
            )
        return labels.astype(np.int64)

    def indicators(self, classes: IntArray, patterns: IntArray | None = None) -> FloatArray:
        """Return 1 for the class of each row, else 0, shape (n, C).

        Rows of a class of which there are fewer than ``min_rows`` in a pattern are 0: the parties
        of the pattern all know these rows and their class, so that all leave out the same.

        Parameters
        ----------
        classes : ndarray of int64, shape (n,)
        patterns : ndarray of int64, shape (n,), optional
            The pattern of each row, rows that the same parties have. Default: all are of one.
            Without classes the plan of products has checked that there are enough rows of all.
        """
        cells = classes
        if patterns is not None and self.num_classes > 1:
            cells = patterns * self.num_classes + classes
        counted = np.bincount(cells)[cells] >= self.min_rows
        return np.asarray(np.eye(self.num_classes)[classes] * counted[:, None])


class SumsRequest(NamedTuple):
    """What a training asks of all parties.

    Parameters
    ----------
    exchange : subclass of SumsExchange
    arrays : dict of arrays
        What every party is sent.
    """

    exchange: type[SumsExchange]
    arrays: Arrays


ReturnT = TypeVar("ReturnT")
#: Yields requests, is given the parties' sums added up, and returns what it has found.
Summing: TypeAlias = Generator[SumsRequest, Mapping[str, FloatArray], ReturnT]


class SumsExchange(ABC):
    """One kind of exchange of a training. It has no instances.

    Attributes
    ----------
    name : str
        Unique among the exchanges of a learner.
    sent : tuple of Sent
        The arrays that parties are sent; none by default.
    summed : tuple of Disclosure
        The arrays that `sums` returns.
    """

    name: ClassVar[str]
    sent: ClassVar[tuple[Sent, ...]] = ()
    summed: ClassVar[tuple[Disclosure, ...]]
    #: Which runs of the learner have it, by their options.
    when: ClassVar[Condition] = ALWAYS
    #: How many different requests a party answers in a training; None: any number.
    most: ClassVar[int | None] = None

    @classmethod
    def exchange(cls) -> Exchange:
        """Return the declaration of the exchange: what it is for is the docstring's first line."""
        assert cls.__doc__ is not None
        meaning = cls.__doc__.splitlines()[0].rstrip(".")
        return Exchange(
            cls.name,
            meaning,
            cls.sent,
            cls.summed,
            most=cls.most,
            when=cls.when,
            same_parties=True,
        )

    @classmethod
    def ask(cls, **arrays: FloatArray) -> SumsRequest:
        """Return a request that sends these arrays, which `sent` declares."""
        return SumsRequest(cls, arrays)

    @classmethod
    def unfitting(cls, plan: TrainingPlan, asked: Arrays) -> str:
        """Return what in a request contradicts the options, in words; "" if nothing does."""
        return ""

    @classmethod
    @abstractmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows.

        Parameters
        ----------
        values : ndarray of float64, shape (n, number of variables)
            As ``Domain.encode`` makes them.
        plan : TrainingPlan
        asked : dict of arrays
            As they were sent.
        """

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the symbols in `summed` whose size follows from the plan and what was sent."""
        return {"classes": plan.num_classes}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how sums of one party contradict each other, or its number of rows, in words.

        Parameters
        ----------
        sums : mapping of str to ndarray
            As `sums` returns them, of the declared shapes and possible values.
        plan, asked
            As of `sums`.
        rows : int
            The number of rows that the party has reported.
        """
        yield from ()

    @classmethod
    def contradiction(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> str:
        """Return what is wrong with the sums of one party, "" if nothing is; see `doubts`."""
        sizes = cls.sizes(plan, asked)
        for one in cls.summed:
            for symbol, size in zip(one.shape, sums[one.name].shape, strict=True):
                wanted = sizes.get(str(symbol), size)
                if size != wanted:
                    return f"'{one.name}' has the size {size} for {symbol}, which is {wanted} here"
        return next(cls.doubts(sums, plan, asked, rows), "")


def miscounted(counts: FloatArray, plan: TrainingPlan, rows: int, folds: int = 1) -> Iterator[str]:
    """Yield a complaint if counts contradict the number of rows that the party has reported.

    Parameters
    ----------
    counts : ndarray of float
        Each row is counted in one entry. The rows of a class may be left out if they are fewer than
        ``plan.min_rows``, and so may the rows without a class.
    plan : TrainingPlan
    rows : int
    folds : int, default 1
        Parts of a class that are left out one by one.
    """
    counted, left_out = int(counts.sum()), (plan.min_rows - 1) * (plan.num_classes + 1) * folds
    if not rows - left_out <= counted <= rows:
        yield f"its sums count {counted} rows, but the party reported {rows}"


def impossible(counts: FloatArray, first: FloatArray, squares: FloatArray) -> Iterator[str]:
    """Yield a complaint if sums are larger than sums of squares allow (Cauchy and Schwarz).

    Parameters
    ----------
    counts : ndarray of float, shape (...)
        The rows that are summed.
    first, squares : ndarray of float, shape (..., columns)
    """
    rows = counts[..., None]
    if (first**2 > (1.0 + ROUNDING) * rows * squares).any() or ((rows == 0) & (squares > 0)).any():
        yield "the sums of a column are larger than its rows and the sums of squares allow"


class Trained(ABC):
    """The parameters of trained circuits. A subclass is a frozen dataclass."""

    @abstractmethod
    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit, and the posterior that predicts the class."""

    def warnings(self, model: CircuitModel) -> tuple[str, ...]:
        """Return warnings where the circuit of `model` misses the distribution of the rows."""
        return ()


#: More than the relative rounding error of a sum over rows.
ROUNDING = 1e-6
#: Sums of squares about an origin this many standard deviations from the mean lose four digits.
FAR = 100.0

#: Sent where sums over numbers are taken about a point: 0, or the mean if that `is_far`.
ORIGIN = Sent("origin", "point about which sums are taken", ("columns",))


def is_far(mean: FloatArray, variance: FloatArray) -> bool:
    """Return whether the mean of a column is so far from 0 that its squares lose digits."""
    return bool((np.abs(mean) > FAR * np.sqrt(np.maximum(variance, 0.0))).any())


class TrainingBySums(ABC):
    """A learner whose circuit is a function of sums over rows. A subclass is a dataclass.

    Attributes
    ----------
    exchanges : tuple of subclasses of SumsExchange
        All that may occur, in the order in which they do.
    columns_may_differ : bool
        Whether parties may hold different columns.
    target : str or None
        The class, a category; None: there is none.
    """

    exchanges: ClassVar[tuple[type[SumsExchange], ...]]
    columns_may_differ: ClassVar[bool] = False

    target: str | None

    def plan(self, domain: Domain, *, seed: int = 0, min_rows: int = 1) -> TrainingPlan:
        """Return the settings of a training.

        Parameters
        ----------
        domain : Domain
            Of all parties' columns.
        seed : int, default 0
        min_rows : int, default 1
            See `TrainingPlan`.

        Raises
        ------
        ConfigError
            If the domain or an option does not fit.
        """
        if min_rows < 1:
            raise ConfigError(f"at least 1 row is needed, got min_rows = {min_rows}")
        states = tuple(domain.num_states.tolist())
        target = None if self.target is None else domain.index(self.target)
        if target is not None and not states[target]:
            raise ConfigError(f"the target {self.target!r} holds numbers: make it a category")
        columns = tuple(j for j in range(len(states)) if j != target)
        if not columns:
            raise ConfigError("there is no column beside the target: nothing to learn")
        return TrainingPlan(domain.names, states, target, columns, self, seed, min_rows)

    @abstractmethod
    def training(self, plan: TrainingPlan, presence: BoolArray | None = None) -> Summing[Trained]:
        """Train: ask for sums over the parties' rows, and return the parameters of the circuits.

        Parameters
        ----------
        plan : TrainingPlan
        presence : ndarray of bool, shape (parties, variables), optional
            Which columns each party holds. Default: every party holds all of them.

        Raises
        ------
        ConfigError
            If options do not fit the plan.
        DataError
            If nothing can be learned from the rows.
        """

    def train(
        self, parties: Sequence[FloatArray], plan: TrainingPlan, presence: BoolArray | None = None
    ) -> Trained:
        """Return what the training finds with parties in one process.

        Parameters
        ----------
        parties : sequence of ndarray, each of shape (rows, number of variables)
        plan, presence
            As in `training`.
        """
        return pooled(self.training(plan, presence), plan, parties)

    def learn_model(self, domain: Domain, values: FloatArray, seed: int = 0) -> CircuitModel:
        """Return the circuits of one table: the training with a single party.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, number of variables)
            As ``Domain.encode`` makes them.
        seed : int, default 0

        Raises
        ------
        ConfigError
            If the domain or an option does not fit.
        DataError
            If nothing can be learned from the rows.
        """
        return self.train([values], self.plan(domain, seed=seed)).model(domain)

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the density alone; see `learn_model`."""
        density = self.learn_model(domain, values, seed).density
        assert isinstance(density, Circuit)
        return density


def pooled(
    training: Summing[ReturnT], plan: TrainingPlan, parties: Sequence[FloatArray]
) -> ReturnT:
    """Return what a training, or a part of it, finds with parties in one process.

    Parameters
    ----------
    training : generator
    plan : TrainingPlan
    parties : sequence of ndarray, each of shape (rows, number of variables)
    """
    try:
        asked = next(training)
        while True:
            sums = (asked.exchange.sums(values, plan, asked.arrays) for values in parties)
            asked = training.send(add(sums))
    except StopIteration as end:
        found: ReturnT = end.value
        return found


def add(replies: Iterable[Mapping[str, FloatArray]]) -> Arrays:
    """Return the sums of the replies' arrays."""
    total: Arrays = {}
    for reply in replies:
        for name, array in reply.items():
            total[name] = total[name] + array if name in total else array
    return total


# Constants of the SplitMix64 generator (Steele, Lea & Flood 2014).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
# Hashes keep 20 of the 52 bits behind the point. Between the kept values numbers are rounded at the
# golden section, where no number of few digits lies.
_CUT = np.uint64(32)
_SHIFT = np.uint64(0.381966 * 2**32)


def row_folds(values: FloatArray, num_folds: int, seed: int) -> IntArray:
    """Return the fold of each row, a hash of its values.

    Numbers are hashed to about seven digits: values that differ by rounding are in one fold.

    Parameters
    ----------
    values : ndarray of float, shape (n, m)
        All parties have the columns in the same order.
    num_folds : int
    seed : int

    Returns
    -------
    ndarray of int, shape (n,)
        Equal rows have equal folds; the folds of different rows are pseudo-random.
    """
    # -0.0 and 0.0 are equal, their bits are not
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
    bits = (bits + _SHIFT) >> _CUT
    state = np.full(len(values), np.uint64(seed % 2**64), dtype=np.uint64)
    for column in bits.T:
        state = _mixed(state ^ column)
    return (state % np.uint64(num_folds)).astype(np.int64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of SplitMix64; arrays of uint64 wrap around without a warning."""
    state = state + _STEP
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
