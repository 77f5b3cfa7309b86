"""The contract of a method: its exchanges, its parties' options, the parts of their reports."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flwr_causal.contract.exchange import Exchange
from flwr_causal.contract.report import PARTS
from flwr_causal.contract.when import Called
from flwr_causal.core.arguments import FUNCTION, TEXT, Form, check_fields, or_none, tuple_of
from flwr_causal.errors import AskedOtherwiseError, ConfigError
from flwr_causal.protocol.options import FormError, PartyOptions, PrivatePartyOptions
from flwr_causal.protocol.records import NUMBER, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.contract.report import Part
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.setup import Setup


@dataclass(frozen=True, eq=False)
class ReplyContext:
    """What the server knows when the reply of a party arrives.

    Parameters
    ----------
    sizes : mapping of str to int
        What the symbols in shapes stand for.
    sent : mapping of str to ndarray, number or text
        What the party was sent.
    setup : Setup
        What the parties agreed on.
    report : TableReport
        The party's report in the schema exchange.
    resampled : bool, default False
        Whether the reply is of a replicate, on rows that were resampled: their number is that of
        the report, their means and variances are not.

    Examples
    --------
    >>> from flwr_causal.protocol.contract import ReplyContext
    >>> known = ReplyContext(sizes={"d": 3}, sent={}, setup=None, report=None)  # in a test
    >>> known.sizes["d"], known.resampled
    (3, False)
    """

    sizes: Mapping[str, int]
    sent: Mapping[str, Any]
    setup: Setup
    report: TableReport
    resampled: bool = False


#: The names of what every reply holds beside the arrays.
RESERVED = (WEIGHT, NUMBER)


def no_dimensions(setup: Setup) -> dict[str, int]:
    """Return no symbols beside "d" and "n"."""
    return {}


def no_further_rules(options: Any, handling: Handling) -> Handling:
    """Return a handling as it is."""
    return handling


_OPTIONS = Form(
    "a subclass of PartyOptions",
    lambda value: isinstance(value, type) and issubclass(value, PartyOptions),
)
_CONTRACT = {
    "method": TEXT,
    **dict.fromkeys(("exchanges", "private"), tuple_of(Exchange, "Exchange")),
    **dict.fromkeys(("dimensions", "completes"), FUNCTION),
    "reports": Form(
        f"a tuple of {', '.join(PARTS)}",
        lambda value: isinstance(value, tuple) and set(value) <= set(PARTS),
    ),
    "options": _OPTIONS,
    "question": or_none(_OPTIONS),
}


@dataclass(frozen=True)
class Contract:
    """Everything that the server and the parties of one method say to each other.

    Parameters
    ----------
    method : str
        The method's id.
    exchanges : tuple of Exchange
    dimensions : callable, optional
        ``setup -> dict``: what further symbols in shapes stand for, from what the parties agreed
        on. Default: there are none beside "d" and "n".
    reports : tuple of str, default ("sums",)
        The parts of the report of the schema exchange that may leave a party beside what every
        method needs, see :data:`flwr_causal.contract.report.PARTS`.
    private : tuple of Exchange, default ()
        The exchanges whose replies, in a run with ``epsilon``, follow from the party's private
        release alone; such a run has no others. Beside the method's own there may be those of all
        methods (totals, unmasking, replay). Default: the method has no differential privacy, and
        its parties refuse a run with ``epsilon``.
    options : type, default PartyOptions
        The options that the parties are sent with the question for the schema and with the
        agreement: a subclass of :class:`~flwr_causal.protocol.options.PartyOptions`.
    question : type, optional
        Those of the question, where ``options`` follow from the parties' reports. Default: the
        same.
    trainings : bool, default True
        Whether a run may have further trainings: replicates, and trainings without single parties.
    completes : callable, optional
        ``options, handling -> handling``: how problems of tables are handled, with those fields
        that are no options of the method, as they follow from the options of the question and the
        other fields. The strategy sends it, and the parties refuse any other one. Default: as it
        is; states are named where ``reports`` has them.

    Examples
    --------
    >>> from flwr_causal.protocol import Contract, Disclosure, Exchange
    >>> array = Disclosure("mean", "of each column", ("d",), combine="mean")
    >>> mean = Exchange("mean", "means", returns=(array,))
    >>> contract = Contract("average", (mean,))
    >>> contract.method, [exchange.name for exchange in contract.exchanges]
    ('average', ['mean'])
    """

    method: str
    exchanges: tuple[Exchange, ...]
    dimensions: Callable[[Setup], dict[str, int]] = field(default=no_dimensions)
    reports: tuple[Part, ...] = ("sums",)
    private: tuple[Exchange, ...] = ()
    options: type[PartyOptions] = PartyOptions
    question: type[PartyOptions] | None = None
    completes: Callable[[Any, Handling], Handling] = no_further_rules
    trainings: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _CONTRACT)
        names = [exchange.name for exchange in self.exchanges]
        if len(set(names)) < len(names):
            raise ConfigError(f"The contract of '{self.method}' has a name twice: {sorted(names)}.")
        for name in (item.name for exchange in self.exchanges for item in exchange.returns):
            if name in RESERVED:
                raise ConfigError(f"'{name}' is the name of a part of every reply: choose another.")
        if bool(self.private) != issubclass(self.options, PrivatePartyOptions):
            raise ConfigError(
                f"The contract of '{self.method}' has exchanges of a private release, or options "
                "of one, and not both: Contract(private=..., options=...) with a subclass of "
                "PrivatePartyOptions."
            )

    @cached_property
    def digest(self) -> str:
        """A digest of what is declared, 32 hexadecimal digits; of functions that there are some.

        Words for readers do not count.
        """
        options = [(one.name, str(one.type)) for one in fields(self.options)]
        question = () if self.question is None else fields(self.question)
        declared = [
            self.method,
            [_declared(one) for one in (*self.exchanges, *self.private)],
            sorted(self.reports),
            [options, [(one.name, str(one.type)) for one in question]],
            self.trainings,
        ]
        return hashlib.blake2b(repr(declared).encode(), digest_size=16).hexdigest()

    def completed(self, options: Any, handling: Handling) -> Handling:
        """Return the handling of a run, with the fields that are no options of the method."""
        return self.completes(options, replace(handling, names_states="states" in self.reports))

    def check_handling(self, options: Any, handling: Handling, *, states: bool = False) -> None:
        """Check that a party is sent the handling that follows from the options it is sent.

        Parameters
        ----------
        options : PartyOptions
        handling : Handling
        states : bool, default False
            Whether the parties are sent states of columns.

        Raises
        ------
        FormError
            If it is another one, by which a party would name values that the options keep from the
            server, or if there are states where none are named.
        """
        if handling != self.completed(options, handling) or (states and not handling.names_states):
            raise FormError(
                "What the server sent was refused: by the run's options parties name other values "
                "of their columns, or none. Install the same version of flwr-causal on all "
                "machines."
            )

    def check_names(self, setup: Setup) -> None:
        """Check that the agreed columns are among those that the options choose by name.

        Raises
        ------
        AskedOtherwiseError
            If one is not.
        """
        if setup.handling.chooses_columns and (others := setup.handling.unchosen(setup.names)):
            raise AskedOtherwiseError(
                f"The agreement has the column '{others[0]}', which the run's options 'columns' or "
                "'exclude' leave out. Nothing was sent. Install the same version on all machines."
            )

    def check_taking_place(self, exchange: Exchange, setup: Setup) -> None:
        """Check that a run has an exchange.

        Raises
        ------
        AskedOtherwiseError
            If it belongs to other runs, by what this one states.
        """
        if not exchange.when.holds(setup.run):
            raise AskedOtherwiseError(
                f"The server asked for '{exchange.name}', which is for other runs of "
                f"'{self.method}': {exchange.when}. Nothing was sent. Install the same version on "
                "all machines."
            )

    def parts(self, handling: Handling) -> tuple[Part, ...]:
        """Return the parts of ``reports`` under a handling: states only where it has them."""
        return tuple(part for part in self.reports if part != "states" or handling.names_states)

    def find(self, name: Any) -> Exchange:
        """Return the exchange of a name.

        Raises
        ------
        ConfigError
            If there is none: the two sides run different versions of the method.
        """
        for exchange in self.exchanges:
            if exchange.name == name:
                return exchange
        raise ConfigError(
            f"The method '{self.method}' has no exchange '{name}'; it has "
            f"{', '.join(exchange.name for exchange in self.exchanges)}. Install the same version "
            "of flwr-causal on both sides."
        )

    def sizes(self, setup: Setup, rows: int) -> dict[str, int]:
        """Return the sizes that symbols in shapes stand for at a party with so many rows."""
        return {"d": len(setup.names), "n": rows, **self.dimensions(setup)}


#: What of a declaration is for readers.
_FOR_READERS = ("meaning", "timing", "rows")


def _declared(thing: Any) -> Any:
    """Return a declaration as plain values; of functions that there are some."""
    if isinstance(thing, tuple):
        return [_declared(one) for one in thing]
    if isinstance(thing, Called):
        return _declared(thing.part)
    if not is_dataclass(thing):
        return True if callable(thing) else thing
    named = ((one.name, getattr(thing, one.name)) for one in fields(thing))
    own = [(name, _declared(value)) for name, value in named if name not in _FOR_READERS]
    return [type(thing).__name__, own]
