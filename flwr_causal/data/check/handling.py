"""What a method does about imperfect tables: fail, drop, or keep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from flwr_causal.core.discrete.discrete import MAX_STATES
from flwr_causal.core.options import bounded, check_bounds, check_types
from flwr_causal.data.dictionary.entries import STATED, Dictionary
from flwr_causal.data.dictionary.party_dictionary import PartyDictionary
from flwr_causal.data.interventions import split_names
from flwr_causal.data.read.reading import Reading
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Numbers that are not whole are taken for categories up to so many different ones.
MOST_FRACTIONS = 10

FailDrop = Literal["fail", "drop"]
FailDropKeep = Literal[FailDrop, "keep"]
#: Of options: "auto" is decided by the parties' reports.
AutoDrop = Literal["auto", FailDrop]
AutoDropKeep = Literal["auto", FailDropKeep]
Missing = Literal[FailDropKeep, "em"]


@dataclass(frozen=True)
class Handling:
    """How each kind of imperfection is treated. The default is the linear methods': all fail.

    Parameters
    ----------
    missing_values : "fail", "drop", "keep" or "em"
        Missing or infinite values. "drop" leaves out, at every party, the rows that have one in
        any column (text columns count only if they are not dropped). "keep" and "em" leave missing
        values as they are, for methods that know what to do with them; infinite ones still fail.
    constant_columns : "fail", "drop" or "keep"
        Columns with one value in the tables of all parties together.
    text_columns : "fail", "drop" or "keep"
        Columns that are neither numbers nor booleans: text, categories, dates.
    unshared_columns : "fail", "drop" or "keep"
        Columns that some parties lack. "drop" uses those that all parties share.
    duplicate_columns : "fail", "drop" or "keep"
        Columns that repeat an earlier one value by value at every party. "drop" keeps the first.
        (Two columns of one *name* are always an error: names are how parties find each other.)
    min_rows : int
        Fewest rows a party may have. Default 2: one centred row is zero.
    max_states : int
        For methods on categories: most states of a column, 2 to 256; a party names its states only
        if they are no more. Default 64: the common benchmark networks have up to 63. Of numbers
        that are not whole at most 10 different ones pass for states.
    discretize : int
        For methods on categories: 0, or into how many intervals of about equally many rows to cut
        the columns of numbers that are no categories: those with more different values than
        ``max_states``, or with more than this and not whole. At most ``max_states``. Default 0:
        a column with more than ``max_states`` values is a problem.
    number_states : int
        For methods that take numbers as such: 0, or the most different whole numbers that pass for
        states. Columns of more of them, and of numbers that are not whole, are then discretised
        however few values they have; their values are never named. Default 0: as above.
    names_states : bool
        Whether parties name the states of the columns that are no numbers, as methods on categories
        need. Default False.
    missing_texts, categories, numbers : str, default ""
        Separated by commas: texts that are missing values, beside empty fields; columns that are
        text in the spelling of their cells; columns that are numbers, however few values they
        have. See :class:`~flwr_causal.data.read.reading.Reading`.
    exclude : str, default ""
        Separated by commas: columns that are left out.
    columns : str, default ""
        Separated by commas: the only columns that are used; default: all.
    party_column : str, default ""
        The name of a category that no table has: its state in each row is the party's name. Every
        party adds it to its table.
    dictionary : str, default ""
        The text of the dictionary that says what all columns are, see
        :class:`~flwr_causal.data.dictionary.entries.Dictionary`.

    Raises
    ------
    ConfigError
        For an unknown value, a declaration beside a dictionary, or a column of the parties that is
        also declared as another one.
    """

    missing_values: Missing = "fail"
    constant_columns: FailDropKeep = "fail"
    text_columns: FailDropKeep = "fail"
    unshared_columns: FailDropKeep = "fail"
    duplicate_columns: FailDropKeep = "fail"
    min_rows: int = bounded(2, least=0)
    max_states: int = bounded(64, least=0)
    discretize: int = bounded(0, least=0)
    number_states: int = bounded(0, least=0)
    names_states: bool = False
    missing_texts: str = ""
    categories: str = ""
    numbers: str = ""
    exclude: str = ""
    columns: str = ""
    party_column: str = ""
    dictionary: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        check_bounds(self)
        both = sorted(set(split_names(self.categories)) & set(split_names(self.numbers)))
        if both:
            raise ConfigError(f"column {both[0]!r} is in categories and in numbers: choose one")
        for option in ("exclude", "numbers"):
            if self.party_column in split_names(getattr(self, option)):
                raise ConfigError(
                    f"column {self.party_column!r} is in party_column and in {option}: choose one"
                )
        for name in ("missing_texts", "categories", "numbers"):
            if self.dictionary and getattr(self, name):
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} and a dictionary both say what columns hold: "
                    f"leave {name} out, and write it in the dictionary"
                )
        _ = self.entries  # an error of the text is one of the options
        if not 2 <= self.max_states <= MAX_STATES:
            raise ConfigError(
                f"max_states is {self.max_states}: give 2 to {MAX_STATES} (a column "
                "with more different values is no category; numbers can be discretised)"
            )
        if self.discretize == 1 or self.discretize > self.max_states:
            raise ConfigError(
                f"discretize is {self.discretize}: give 2 to {self.max_states} intervals "
                "(max_states), or 0 to leave columns as they are"
            )

    @cached_property
    def entries(self) -> Dictionary | None:
        """The dictionary; None where there is none."""
        return Dictionary.from_text(self.dictionary) if self.dictionary else None

    @cached_property
    def number_names(self) -> frozenset[str]:
        """The columns that are declared to be numbers."""
        entries = () if self.entries is None else self.entries.used
        return frozenset(split_names(self.numbers)) | {
            one.name for one in entries if one.kind == "number"
        }

    @cached_property
    def category_names(self) -> frozenset[str]:
        """The columns that are declared to be categories."""
        entries = () if self.entries is None else self.entries.used
        return frozenset((*split_names(self.categories), *self.added)) | {
            one.name for one in entries if one.kind in STATED
        }

    @property
    def named(self) -> frozenset[str]:
        """The columns that an option or the dictionary declares to be variables."""
        return self.number_names | self.category_names | frozenset(split_names(self.columns))

    @cached_property
    def certain_names(self) -> frozenset[str]:
        """The columns of which a dictionary lists all states, or says the range.

        And the column of the parties, whose states are their names.
        """
        entries = () if self.entries is None else self.entries.used
        return frozenset(self.added) | {
            one.name
            for one in entries
            if one.states or (one.least is not None and one.most is not None)
        }

    def in_order(self, name: str, states: tuple[str, ...]) -> tuple[str, ...]:
        """Return a column's states in the order of the dictionary, if it lists them."""
        entry = None if self.entries is None else self.entries.find(name)
        place = {} if entry is None else {own: k for k, own in enumerate(entry.state_names)}
        return tuple(sorted(states, key=lambda state: place.get(state, len(place))))

    @property
    def added(self) -> tuple[str, ...]:
        """Variables that no table has: the column of the parties' names, if the run has one."""
        return (self.party_column,) if self.party_column else ()

    @property
    def chooses_columns(self) -> bool:
        """Whether columns are chosen by name."""
        return bool(self.exclude or self.columns)

    def chooses(self, name: str) -> bool:
        """Return whether a column is among those that are chosen by name."""
        return not self.unchosen([name])

    def unchosen(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are not among those that are chosen by name."""
        only, excluded = set(split_names(self.columns)), set(split_names(self.exclude))
        others = [name for name in names if (only and name not in only) or name in excluded]
        return [name for name in others if name not in self.added]

    @property
    def keeps_missing(self) -> bool:
        """Whether missing values stay as they are."""
        return self.missing_values in ("keep", "em")

    @property
    def has_blocks(self) -> bool:
        """Whether a category is as many columns of numbers as it has states, less one.

        Then numbers are never states, constants cannot be kept, and ``max_states`` is no option.
        """
        return self.number_states == 1

    @property
    def reading(self) -> Reading:
        """How tables are read.

        Where fractions are no states they are measured numbers, unless there are few of them. A
        dictionary is that of a party without a map of its own.
        """
        if self.entries is not None:
            as_numbers = not self.names_states and self.text_columns != "keep"
            return Reading(dictionary=PartyDictionary(self.entries, as_numbers=as_numbers))
        measured = self.discretize or self.number_states
        return Reading(
            tuple(split_names(self.categories)),
            tuple(split_names(self.numbers)),
            tuple(split_names(self.missing_texts)),
            (MOST_FRACTIONS if measured else self.max_states) * self.names_states,
        )
