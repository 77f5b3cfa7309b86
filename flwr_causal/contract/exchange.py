"""What the server and the parties say to each other, written as data.

An :class:`Exchange` is one request of the server and the replies of the parties. It declares
everything that a party is sent and everything that leaves a party: name, meaning, shape, possible
values, and how the server combines the replies. A contract
(:class:`flwr_causal.protocol.contract.Contract`) holds the exchanges of one method. Both sides
import it. From the declaration alone follow what may leave a party and what the server accepts
(:mod:`flwr_causal.protocol.door`), how replies are combined (:mod:`flwr_causal.protocol.replies`)
and the tables of docs/privacy.md (:mod:`flwr_causal.protocol.tables`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flwr_causal.contract.when import ALWAYS, Condition
from flwr_causal.core.arguments import (
    COUNT,
    FLAG,
    FUNCTION,
    TEXT,
    check_fields,
    instance,
    one_of,
    or_none,
    tuple_of,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.arrays import Arrays, FloatArray

Size: TypeAlias = int | str
Shape: TypeAlias = tuple[Size, ...]
Values: TypeAlias = Literal[
    "finite",
    "non-negative",
    "probability",
    "count",
    "whole",
    "index",
    "mark",
    "dag",
    "bytes",
    "ring",
    "log-density",
    "products",
    "second-moments",
]
Combine: TypeAlias = Literal["sum", "mean", "each"]

#: Values that are whole numbers.
WHOLE: tuple[Values, ...] = ("count", "whole", "index", "mark", "dag", "bytes", "ring")
# What the constructors take.
_SHAPE = tuple_of((str, int), "names and whole numbers, such as ('d', 'd')")
_ITEM = {"name": TEXT, "meaning": TEXT, "values": one_of(Values), "optional": FLAG, "below": TEXT}
_MOST = {"most": or_none(COUNT)}
_SENT = {**_ITEM, **_MOST, "shape": or_none(_SHAPE), "exact": FLAG, "by_party": FLAG, "parts": TEXT}
_DISCLOSURE = {
    **_ITEM,
    "shape": _SHAPE,
    "combine": one_of(Combine),
    "rows": TEXT,
    "cumulative": FLAG,
    "bound": or_none(FUNCTION),
    "dtype": TEXT,
}


@dataclass(frozen=True)
class Sent:
    """One thing that the server sends to a party.

    Parameters
    ----------
    name : str
    meaning : str
        What it is, in the words of the paper.
    shape : tuple of str or int, or None, default None
        Of an array. A symbol stands for the same size in everything that one exchange sends and
        returns; ``"*"`` is any size. None: a plain number or text.
    optional : bool, default False
        Whether it may be left out.
    exact : bool, default False
        Whether floats are sent as float64 whatever the option ``precision`` says.
    by_party : bool, default False
        Whether parties may be sent different values. The masks of a secure sum are bound to
        everything else that the parties are sent, which must be the same for all of them.
    values : str, default "finite"
        Of an array, what a possible value is, as of a `Disclosure`; a party refuses a message with
        another one before it computes anything. What a party uses as an ``"index"`` into its rows
        or columns needs a bound ``below``: compiled code does not check it.
    below : str, default ""
        As of a `Disclosure`.
    most : int or None, default None
        How many different values of it a party computes with under an agreement, in all exchanges
        that send something of this name. Default: any number.
    parts : str, default ""
        Of an array that holds several lists, one after the other: the name of the array of their
        lengths. Each list is ascending, without an entry twice, or holds the edges of a ``"dag"``.

    Examples
    --------
    >>> from flwr_causal.protocol import Sent
    >>> Sent("step", "a number").shape is None, Sent("start", "the first graph", ("d", "d")).shape
    (True, ('d', 'd'))
    """

    name: str
    meaning: str
    shape: Shape | None = None
    optional: bool = False
    exact: bool = False
    by_party: bool = False
    values: Values = "finite"
    below: str = ""
    parts: str = ""
    most: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, _SENT)


@dataclass(frozen=True)
class Disclosure:
    """One array that leaves a party.

    Parameters
    ----------
    name : str
    meaning : str
        What it is, in the words of the paper; printed in the documentation.
    shape : tuple of str or int
        Symbols are ``"d"`` (the agreed columns), ``"n"`` (the party's rows), the symbols of the
        contract's ``dimensions``, the symbols in shapes of sent arrays, and the names of whole
        numbers that are sent; ``"*"`` is any size.
    values : str, default "finite"
        What is a possible value: any ``"finite"`` number, a ``"non-negative"`` one, a
        ``"probability"``; of whole numbers any ``"whole"`` one, a ``"count"`` of the party's rows
        (from 0 to n), an ``"index"`` (from 0 on), a ``"mark"`` (0 or 1), ``"bytes"``,
        a word of a ``"ring"`` (modulo 2^64, as its sum is); a ``"log-density"`` (finite or minus
        infinity); the edges of a ``"dag"``, a graph without a cycle: a square matrix with 1 where
        the row causes the column, or with ``below`` a list of pairs (cause, effect); mean
        ``"products"`` of pairs of columns (symmetric, no entry larger than its diagonal ones allow,
        by Cauchy and Schwarz), of which some may be masked with 0; ``"second-moments"``, the same
        without a mask (positive semi-definite). Square matrices of these kinds may have any leading
        dimensions: each matrix is checked.
    combine : {"sum", "mean", "each"}, default "each"
        How the server combines the replies: it adds them, it averages them with the exchange's
        weights, or it keeps them by party.
    rows : str, default ""
        Of an array with an entry for each row of the party: which rows, in words. The
        documentation names such arrays. Required where the shape contains ``"n"``.
    optional : bool, default False
        Whether a reply may lack it.
    below : str, default ""
        Of an ``"index"``, or of the pairs of a ``"dag"``: the symbol of the size that every value
        is below, such as ``"d"`` for numbers of columns. Default: no bound.
    cumulative : bool, default False
        Of a ``"count"`` of rows up to thresholds, the last axis: whether it counts rows that other
        entries count too. Small counts (option ``small_counts``) are then those of the rows between
        two thresholds.
    bound : callable, optional
        ``setup -> float or ndarray``: a bound of the absolute sum or mean over all parties, and of
        each party's part of it, from what the parties agreed on; broadcast to the shape. With it
        secure sums of K parties send a number in one word of 8 bytes, exact to 2^-61 K times the
        bound, and a party does not send more than twice the bound. Default, and where it returns
        None: no bound is known; a float then takes nine words, and its sum is exact.
    dtype : str, default ""
        The type of the array as it travels, where only one is right: "uint8" of bytes that are a
        key, "uint64" of words. Default: any type that holds such values.

    Raises
    ------
    ConfigError
        If an argument is of another type; if the shape contains the number of rows and ``rows``
        does not say so in words, or values other than an ``"index"`` and a ``"dag"`` have the bound
        ``below``.

    Examples
    --------
    >>> from flwr_causal.protocol import Disclosure
    >>> counts = Disclosure("counts", "of rows by state", ("states",), "count", "sum")
    >>> counts.values, counts.combine
    ('count', 'sum')
    """

    name: str
    meaning: str
    shape: Shape = ()
    values: Values = "finite"
    combine: Combine = "each"
    rows: str = ""
    optional: bool = False
    below: str = ""
    cumulative: bool = False
    bound: Callable[[Any], FloatArray | float | None] | None = field(default=None, compare=False)
    dtype: str = ""

    def __post_init__(self) -> None:
        check_fields(self, _DISCLOSURE)
        if self.below and self.values not in ("index", "dag"):
            raise ConfigError(
                f"The disclosure '{self.name}' is below '{self.below}', but it is declared as "
                f"{self.values}: only an index and a dag have such a bound."
            )
        if "n" in self.shape and not self.rows:
            raise ConfigError(
                f"The disclosure '{self.name}' has the number of rows in its shape {self.shape}: "
                "raw rows never leave a party. Send sums over rows instead; where an entry for "
                "each row is what the method needs, say in 'rows' of which rows."
            )


_EXCHANGE = {
    **_MOST,
    "name": TEXT,
    "meaning": TEXT,
    "sends": tuple_of(Sent, "Sent"),
    "returns": tuple_of(Disclosure, "Disclosure"),
    "weight": one_of(Literal["rows", "one"]),
    "timing": TEXT,
    "when": instance(Condition, "a condition, such as When(option=value)"),
    **dict.fromkeys(("single_means", "same_parties", "remembered", "open", "kept", "query"), FLAG),
    **dict.fromkeys(("contradiction", "unfitting", "derived"), or_none(FUNCTION)),
}


@dataclass(frozen=True)
class Exchange:
    """One kind of request, and the replies to it.

    Parameters
    ----------
    name : str
        Unique in the contract; the history names each exchange by it.
    meaning : str
        What it is for, in words.
    sends : tuple of Sent
        What a party is sent.
    returns : tuple of Disclosure
        What leaves a party. Either all of it is averaged or none.
    weight : {"rows", "one"}, default "rows"
        The weight of a party in means: its number of rows, or 1.
    timing : str, default ""
        When, and how often, it takes place, in words; printed in the documentation.
    most : int or None, default None
        How many different questions a party answers under an agreement; the same one is always
        answered again. Without arrays and values that are sent there is one question. Default:
        any number.
    when : Condition, optional
        Which runs have it, by their options. A party refuses it in any other run, which does not
        announce it either. Default: all runs of the method.
    single_means : bool, default False
        Of an exchange of means: whether the training is given each party's means too; where parties
        add up in groups, each group's. Secure sums of all parties have none.
    same_parties : bool, default False
        Whether all exchanges of a training must be answered by the same parties, because their
        results are used together. If one of these is lost, the training starts again without it.
    remembered : bool, default False
        Whether a party keeps something of it for later exchanges (``CausalClient.remember``). When
        an interrupted run is resumed, the parties are sent such requests again, see
        :mod:`flwr_causal.protocol.replay`.
    contradiction : callable, optional
        ``(arrays, known) -> str``: how a reply contradicts itself, the party's report or what the
        party was sent, in words; "" if it does not. ``known`` is a
        :class:`~flwr_causal.protocol.contract.ReplyContext`. A reply with a contradiction is
        refused. Default: nothing further is checked.
    unfitting : callable, optional
        ``(sent, setup) -> str``: how what a party is sent is not what the agreement and the run's
        options determine, in words; "" if it is. A party refuses such a request. Default: nothing
        beyond the declared shapes and values is checked.
    open : bool, default False
        Whether secure aggregation leaves the replies as they are, since they hold hashes, or what
        is encrypted for other parties.
    kept : bool, default True
        Whether the replies are written to ``output_dir``. If not, a resumed run asks for them, and
        for all that follow, again.
    query : bool, default False
        Whether it is a question after the training instead of a part of it.
    derived : callable, optional
        ``(sent, setup) -> dict``: what further symbols in the shapes of what returns stand for,
        from what a party was sent. Secure sums need all sizes. Default: there are none.

    Raises
    ------
    ConfigError
        If some of what returns is averaged and some is not, a plain number is averaged, a
        ``"dag"`` is no square matrix, or two things have one name.

    Examples
    --------
    >>> from flwr_causal.protocol import Disclosure, Exchange, Sent
    >>> squares = Exchange(
    ...     "squares",
    ...     "squared distances from a point",
    ...     sends=(Sent("point", "where from", ("d",)),),
    ...     returns=(Disclosure("sum", "of squares", ("d",), "non-negative", "sum"),),
    ... )
    >>> [item.name for item in squares.returns]
    ['sum']
    """

    name: str
    meaning: str
    sends: tuple[Sent, ...] = ()
    returns: tuple[Disclosure, ...] = ()
    weight: Literal["rows", "one"] = "rows"
    timing: str = ""
    most: int | None = None
    when: Condition = ALWAYS
    single_means: bool = False
    same_parties: bool = False
    remembered: bool = False
    contradiction: Callable[[Arrays, Any], str] | None = field(default=None, compare=False)
    unfitting: Callable[[Mapping[str, Any], Any], str] | None = field(default=None, compare=False)
    open: bool = False
    kept: bool = True
    query: bool = False
    derived: Callable[[Mapping[str, Any], Any], dict[str, int]] | None = field(
        default=None, compare=False
    )

    def __post_init__(self) -> None:
        check_fields(self, _EXCHANGE)
        averaged = {item.combine == "mean" for item in self.returns}
        if len(averaged) > 1:
            raise ConfigError(
                f"The exchange '{self.name}' averages some arrays and not others: Flower averages "
                "whole replies. Declare two exchanges, or combine all of them in one way."
            )
        for item in self.returns:
            if item.combine == "mean" and not item.shape:
                raise ConfigError(
                    f"The exchange '{self.name}' averages the plain number '{item.name}': numbers "
                    "travel beside the arrays, where Flower's privacy wrappers add no noise. "
                    "Declare it with the shape (1,)."
                )
        both: tuple[Sent | Disclosure, ...] = (*self.sends, *self.returns)
        for thing in both:
            *_, rows, columns = ("*", "*", *(thing.shape or ()))
            if thing.values == "dag" and not thing.below and (rows == "*" or rows != columns):
                raise ConfigError(
                    f"The exchange '{self.name}' declares '{thing.name}' as a dag of the shape "
                    f"{thing.shape}: a graph is a square matrix, such as ('d', 'd') or "
                    "('q', 'd', 'd'), or with 'below' a list of pairs."
                )
        for things in (self.sends, self.returns):
            names = [thing.name for thing in things]
            if len(set(names)) < len(names):
                raise ConfigError(f"The exchange '{self.name}' declares a name twice: {names}.")

    @cached_property
    def when_in_words(self) -> str:
        """When it takes place, how often, and in which runs."""
        times = {None: "", 1: "once"}.get(self.most, f"at most {self.most} times")
        return "; ".join(filter(None, (self.timing, times, str(self.when))))

    def asked(self, values: Mapping[str, Any]) -> Exchange:
        """Return the exchange as one party was asked, from the plain values of its message.

        In a bundle of trainings parties may be asked about different ones.
        """
        return self

    def sizes(self, agreed: Mapping[str, int]) -> dict[str, int]:
        """Return the size that each symbol in shapes stands for, given :meth:`Contract.sizes`."""
        return dict(agreed)

    def sent_alike(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a message that are the same for all parties of a sum."""
        own = {item.name for item in self.sends if item.by_party}
        return {name: value for name, value in values.items() if name not in own}

    def sends_name(self, name: str) -> bool:
        """Return whether ``sends`` declares a name."""
        return any(item.name == name for item in self.sends)

    @property
    def exact(self) -> frozenset[str]:
        """The names of what is sent as float64 whatever the option ``precision`` says."""
        return frozenset(item.name for item in self.sends if item.exact)

    @property
    def averaged(self) -> bool:
        """Whether the replies are averaged by Flower's own ``aggregate_train``."""
        return any(item.combine == "mean" for item in self.returns)
