"""The options that parties need, as typed objects of a message.

A contract names one class, a frozen dataclass. The server makes the object from the strategy's
fields of the same names; it travels by :func:`~flwr_causal.core.options.to_plain`, and the party
makes the same object again and refuses what is missing, unknown or of another type. What clients
and contracts read are the fields. A party's policy judges each field as the option of its name;
a field that is no option, or is compared in another way, says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: TC003 (a tuple's types)
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.options import MOST, as_text, from_plain, within
from flwr_causal.core.privacy.calibration import LEAST_DELTA, MOST_EPSILON, USUAL_DELTA, rho_of
from flwr_causal.core.privacy.scales import scales_by_column
from flwr_causal.data.series.series import SeriesLayout
from flwr_causal.errors import ConfigError, FederationError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.handling import Handling

SentT = TypeVar("SentT")

Treatment: TypeAlias = Literal["report", "suppress", "refuse"]


class FormError(FederationError):
    """Something that the server sent has not the form that servers write."""


def received(kind: type[SentT], plain: Mapping[str, Any]) -> SentT:
    """Return the object that the server has sent as plain values.

    Raises
    ------
    FormError
        Naming the first value that is unknown, missing, or of another type.
    """
    try:
        return from_plain(kind, plain)
    except ConfigError as error:
        raise FormError(
            f"What the server sent was refused: {error} Install the same version of flwr-causal on "
            "all machines."
        ) from error


class SmallCounts(NamedTuple):
    """The options ``minimum_count`` and ``small_counts``.

    Attributes
    ----------
    minimum : int
        The fewest rows behind a count, or behind a sum over some of the rows.
    treatment : {"report", "suppress", "refuse"}
        Whether counts of fewer rows leave a party as they are, leave it as 0, or the party refuses
        its reply.
    """

    minimum: int = 0
    treatment: Treatment = "report"

    @property
    def withheld(self) -> int:
        """The fewest rows of what a party withholds from a table; 0 if it withholds nothing."""
        return self.minimum if self.treatment == "suppress" else 0

    @property
    def refusal(self) -> str:
        """Why a reply was not sent, to be put after what it holds."""
        return (
            f"counts or sums of fewer than {self.minimum} rows, the option 'minimum_count', and "
            "small_counts='refuse': join rare states or groups, run with small_counts='suppress', "
            "or with secure_aggregation=True where the method has it"
        )


#: Counts leave as they are.
REPORT = SmallCounts()


# -- how a party's policy sees a value that it is sent ---------------------------------------------

#: Values of an option that leave the choice to the method.
OPEN = (None, "auto")


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same; a truth value is no number here."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def same(stated: Any, sent: Any) -> bool:
    """Return whether a value is the stated one, or the choice was left to the method."""
    return stated in OPEN or equal(stated, sent)


class Setting(NamedTuple):
    """One setting of a message.

    Parameters
    ----------
    option : str
        The option that it comes from, by the name that users give.
    value : object
        What the message asks.
    fits : callable
        ``(stated, value) -> bool``: whether it is what a run asks that states this value of the
        option.
    judged : bool, default True
        Whether ``value`` is one of the option's, to which the rules of a policy apply. If not, they
        apply to what the run states, and ``fits`` says whether this is kept to.
    always : bool, default False
        Whether the run must state the option, since it bounds how much leaves the party.
    """

    option: str
    value: Any
    fits: Callable[[Any, Any], bool] = same
    judged: bool = True
    always: bool = False


def seen_as(settings: Callable[[str, Any], Sequence[Setting]]) -> dict[str, Any]:
    """Return the metadata of a field: ``(name, value) -> settings`` that a policy sees."""
    return {"settings": settings}


def derived(reason: str) -> dict[str, Any]:
    """Return the metadata of a field that is no option of the run: what it follows from."""
    return {"derived": reason, **seen_as(lambda name, value: ())}


def chosen() -> dict[str, Any]:
    """Return the metadata of a field that says what the run's "auto" stands for.

    The conditions of exchanges see it in place of what the run states.
    """
    return {"chosen": True}


def _exactly(name: str, value: Any) -> Sequence[Setting]:
    return [Setting(name, value, equal)]


def _held_out(name: str, value: Any) -> Sequence[Setting]:
    def fits(stated: Any, sent: Any) -> bool:
        return not sent or stated in ("held-out", "auto")

    return [Setting("sparsity", value, fits, judged=False)]


def settings_of(options: PartyOptions) -> Iterator[Setting]:
    """Yield the settings that a party's options are."""
    for one in fields(options):
        settings = one.metadata.get("settings", lambda name, value: [Setting(name, value)])
        yield from settings(one.name, getattr(options, one.name))


# -- the options that contracts share --------------------------------------------------------------


class Guarantee(NamedTuple):
    """The differential privacy of a run, as the parties are asked for it.

    Parameters
    ----------
    epsilon, delta : float
    scales : str
        The option ``scales``.
    """

    epsilon: float
    delta: float
    scales: str

    @property
    def rho(self) -> float:
        """What the release loses, see :func:`~flwr_causal.core.privacy.calibration.rho_of`."""
        return rho_of(self.epsilon, self.delta)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Guarantee | None:
        """Return the guarantee of a run's options, with their defaults; None without epsilon.

        Raises
        ------
        ConfigError
            If one of its options cannot be used, or is given without ``epsilon``.
        """
        given = {name: options[name] for name in cls._fields if options.get(name) is not None}
        if not given:
            return None
        epsilon, delta = given.get("epsilon"), given.get("delta", USUAL_DELTA)
        scales = given.get("scales", "")
        if not (_is_number(epsilon) and 0 < epsilon <= MOST_EPSILON):
            raise ConfigError(f"epsilon is {epsilon!r}: give a number above 0, at most 100")
        if not (_is_number(delta) and LEAST_DELTA <= delta < 1):
            raise ConfigError(f"delta is {delta!r}: give a number from 1e-15 to below 1")
        if not isinstance(scales, str):
            raise ConfigError(f"scales is {scales!r}: give a text")
        scales_by_column(scales)
        return cls(float(epsilon), float(delta), scales)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


@dataclass(frozen=True, kw_only=True)
class PartyOptions:
    """The options that the parties of every method need; a contract's class adds to them.

    Parameters
    ----------
    row_id : str, default ""
        The column of ids; empty: the usual one, if it is there.
    seed : int, default 0
    """

    row_id: str = ""
    seed: int = 0

    @property
    def guarantee(self) -> Guarantee | None:
        """The differential privacy that the party is asked for; None without."""
        return None

    def chooses_columns(self, handling: Handling) -> bool:
        """Return whether parties leave out the columns that are not used, before all else.

        Where rows with missing values are left out, first the columns are chosen, and then the
        rows.
        """
        return handling.missing_values == "drop" or handling.chooses_columns


@dataclass(frozen=True, kw_only=True)
class KnowledgePartyOptions(PartyOptions):
    """Background knowledge, for parties that search themselves.

    Parameters
    ----------
    knowledge : Knowledge or None
    """

    # Knowledge is not among the stated options; that there is none is.
    knowledge: Knowledge | None = field(
        metadata={**as_text(Knowledge.to_dict, Knowledge.from_dict), **seen_as(_exactly)}
    )

    def masks(self, names: Sequence[str]) -> EdgeMasks:
        """Return the background knowledge as masks over the agreed columns."""
        return (self.knowledge or Knowledge()).masks(names)


@dataclass(frozen=True, kw_only=True)
class LinearPartyOptions(PartyOptions):
    """How the parties of linear methods centre, scale and divide their rows.

    Parameters
    ----------
    center : {"auto", "global", "party", "series", "phase"}
    standardize : bool
    held_out : bool
        Whether some of the rows are held out.
    """

    center: Literal["auto", "global", "party", "series", "phase"]
    standardize: bool
    held_out: bool = field(metadata=seen_as(_held_out))

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return False

    @property
    def lags(self) -> int:
        """The number of lags; 0 for rows without time."""
        return 0

    @property
    def functions(self) -> int:
        """The number of functions of each number that are columns of the design."""
        return 1

    @property
    def folds(self) -> int:
        """The number of folds of the rows: two where some are held out."""
        return 2 if self.held_out else 1

    @property
    def fewer_lags(self) -> int:
        """The number of smaller orders, from 1, whose sums are sent: to choose among them."""
        return 0

    @property
    def levels(self) -> bool:
        """Whether the products of the means of units are sent, beside those of rows."""
        return False

    @property
    def scores(self) -> bool:
        """Whether numbers are normal scores."""
        return False


@dataclass(frozen=True, kw_only=True)
class SeriesPartyOptions(LinearPartyOptions):
    """How the parties find their series, see the strategy's options of the same names."""

    order: int
    series_column: str
    time_column: str
    gaps: Literal["fail", "split"]
    phase_column: str
    perturbed_from: float | None = field(metadata=seen_as(_exactly))
    perturbed_to: float | None = field(metadata=seen_as(_exactly))

    @property
    def lags(self) -> int:
        """The number of lags; 0 for rows without time."""
        return self.order

    def chooses_columns(self, handling: Handling) -> bool:
        """Return whether rows with missing values are left out."""
        return super().chooses_columns(handling) or self.gaps == "split"

    @property
    def layout(self) -> SeriesLayout:
        """The layout of the series in a party's table, checked."""
        return layout_of(self)


def layout_of(options: Any) -> SeriesLayout:
    """Return the layout of series by a strategy's options, or by those that a party was sent."""
    times = options.perturbed_from, options.perturbed_to
    return SeriesLayout(
        series_column=options.series_column,
        time_column=options.time_column,
        gaps=options.gaps,
        phase_column=options.phase_column,
        perturbed=None if None in times else times,
        order=options.order,
    )


@dataclass(frozen=True, kw_only=True)
class InterventionPartyOptions(LinearPartyOptions):
    """How the parties find the targets of interventions on their rows.

    Parameters
    ----------
    interventions : str or None
        The option as text.
    intervention_column : str
    """

    interventions: str | None = field(metadata=seen_as(_exactly))
    intervention_column: str


@dataclass(frozen=True, kw_only=True)
class PrivatePartyOptions(PartyOptions):
    """What the parties need for the noise of differential privacy; None without epsilon.

    A contract with exchanges of a private release (``private``) has a subclass of this one.

    Parameters
    ----------
    epsilon, delta : float or None
    scales : str or None
        The option as text.
    release : str or None
        The random name of the run, by which a party keeps what it has drawn.
    """

    epsilon: float | None = None
    delta: float | None = None
    scales: str | None = None
    release: str | None = field(default=None, metadata=derived("a random name"))

    @property
    def guarantee(self) -> Guarantee | None:
        """The differential privacy that the party is asked for; None without."""
        return Guarantee.of({name: getattr(self, name) for name in Guarantee._fields})


@dataclass(frozen=True, kw_only=True)
class PerceptronPartyOptions(KnowledgePartyOptions):
    """How the parties fit perceptrons, see the strategy's options of the same names."""

    hidden: int = field(metadata=within(least=1, most=MOST))
    inner_steps: int = field(metadata=within(least=1, most=MOST))
    device: str
    arithmetic: Literal["float64", "float32"]


@dataclass(frozen=True, kw_only=True)
class DesignPartyOptions(PrivatePartyOptions, InterventionPartyOptions, SeriesPartyOptions):
    """How the parties make the rows of a design, see :mod:`core.blocks.design`.

    Parameters
    ----------
    weight_column : str, default ""
        The column of the rows' weights; empty: each row counts once.
    """

    weight_column: str = ""

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return bool(self.weight_column)
