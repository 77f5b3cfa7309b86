"""What the options of FedPC choose: what "auto" stands for, and which values fit the tables.

Each of the options ``learner``, ``training`` and ``weights`` has a list of rules for "auto", of
which the first one that holds applies. docs/fedpc.md shows these lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.options import FedPCOptions


@dataclass(frozen=True, eq=False)
class Facts:
    """What the choices depend on.

    Parameters
    ----------
    options : FedPCOptions
    holdings : Holdings
    target : str
        Empty without one.
    numbers : bool
        Whether all columns but the target hold numbers, and no value is missing.
    learner : str, default ""
        The learner, once it is chosen.
    """

    options: FedPCOptions
    holdings: Holdings
    target: str
    numbers: bool
    learner: str = ""

    @property
    def same(self) -> bool:
        """Whether all parties hold the same columns."""
        return bool(self.holdings.presence.all())

    @property
    def class_of_all_or_none(self) -> bool:
        """Whether all parties hold the target, or there is none."""
        return not self.target or self.holdings.all_hold(self.target)

    @property
    def by_sums(self) -> bool:
        """Whether the learner trains by sums over rows."""
        return self.learner in BY_SUMS

    @property
    def by_sums_of_different_columns(self) -> bool:
        """Whether the learner trains by sums over the rows of parties with different columns."""
        return self.by_sums and bool(learner_class(self.learner).columns_may_differ)

    @property
    def matched(self) -> bool:
        """Whether rows are matched by ids, and options fit masked products of classes."""
        return self.holdings.ids and not set(unfitting(self.options)) - {"learner"}

    @property
    def countable(self) -> bool:
        """Whether parties with different columns can count states, and options allow it."""
        allowed = self.options.training in ("auto", "triples") and not unfitting(self.options)
        return allowed and self.holdings.ids and not self.same


class Rule(NamedTuple):
    """A value that "auto" stands for.

    Parameters
    ----------
    value : str
    when : str
        In words, for docs/fedpc.md.
    holds : callable
        Whether the rule applies.
    """

    value: str
    when: str
    holds: Callable[[Facts], bool]


def _otherwise(facts: Facts) -> bool:
    return True


_FITTING = "no `components` but 1, no `head=true`, and no `decision` or `trained` is set"
LEARNER = (
    Rule("trees", '`training="triples"`', lambda facts: facts.options.training == "triples"),
    Rule(
        "class-conditional",
        "all columns but the target hold numbers, none is missing, and no value is in most rows",
        lambda facts: facts.numbers and not facts.holdings.repeated_columns,
    ),
    Rule("trees", "otherwise", _otherwise),
)
TRAINING = (
    Rule("one-pass", "`weights` is set", lambda facts: facts.options.weights != "auto"),
    Rule(
        "sums",
        "all parties hold the same columns, and the learner is `class-conditional`, `trees` or "
        "`einsum`",
        lambda facts: facts.same and facts.by_sums,
    ),
    Rule(
        "sums",
        "the learner is `class-conditional`, and all parties hold the target or there is none",
        lambda facts: facts.by_sums_of_different_columns and facts.class_of_all_or_none,
    ),
    Rule(
        "sums",
        "the learner is `class-conditional`, only some parties hold the target, rows have ids, "
        f"{_FITTING}",
        lambda facts: facts.by_sums_of_different_columns and facts.matched,
    ),
    Rule(
        "triples",
        "the parties hold different columns, rows have ids, the option `learner` is `auto` or "
        f"`trees`, {_FITTING}",
        lambda facts: facts.countable,
    ),
    Rule("one-pass", "otherwise", _otherwise),
)
#: Of a training "sums" whose random projections show mostly nonlinear dependence.
TRAINING_OF_NONLINEAR = (
    Rule("triples", "`training` could be `triples`, see above", lambda facts: facts.countable),
    Rule("sums", "otherwise; a warning says what is lost", _otherwise),
)
WEIGHTS = (
    Rule("counts", "all parties hold the same columns", lambda facts: facts.same),
    Rule(
        "classes",
        "all parties hold the target",
        lambda facts: bool(facts.target) and facts.class_of_all_or_none,
    ),
    Rule("counts", "rows have no ids", lambda facts: not facts.holdings.ids),
    Rule("em", "otherwise", _otherwise),
)


#: All rules, by what they are for, in words.
RULES = {
    "`learner`": LEARNER,
    "`training`": TRAINING,
    "`training`, where it is `sums` and random projections of common rows show that most of the "
    "dependence between parties is not linear": TRAINING_OF_NONLINEAR,
    "`weights`, in one pass": WEIGHTS,
}


def first(rules: tuple[Rule, ...], facts: Facts) -> str:
    """Return the value of the first rule that holds."""
    return next(rule.value for rule in rules if rule.holds(facts))


def learner_of_tables(facts: Facts) -> str:
    """Return the learner.

    Raises
    ------
    ConfigError
        If decision trees are asked for without a target, or over different columns.
    """
    asked = facts.options.learner
    if asked == "auto":
        return first(LEARNER, facts)
    if asked == "decision-tree" and not facts.target:
        raise ConfigError(
            "learner='decision-tree' needs a target: name it, or take another learner"
        )
    if asked == "decision-tree" and not facts.same:
        raise ConfigError(
            "learner='decision-tree' is for parties that hold the same columns. The paper defines "
            "FC[DT] as the average of trees (section 3.2), and reports results for different "
            "columns (table 6) but neither who knows the class there nor what a product of trees "
            "predicts. Take the columns that all parties have (unshared_columns='drop'), or "
            "another learner"
        )
    return asked


def training_of_tables(facts: Facts) -> str:
    """Return the training, "sums", "triples" or "one-pass", of facts with a learner.

    Raises
    ------
    ConfigError
        If the option ``training`` does not fit the tables or other options.
    """
    asked = facts.options.training
    if asked == "auto":
        return first(TRAINING, facts)
    if asked == "triples":
        if facts.same:
            return "sums"
        _check_counts(facts)
    if asked == "sums":
        _check_sums(facts)
    return asked


def weights_of_tables(facts: Facts) -> str:
    """Return how combinations of clusters are weighted, in one pass.

    Raises
    ------
    ConfigError
        If the option ``weights`` does not fit the tables.
    """
    asked = facts.options.weights
    if asked == "auto" or facts.same:
        return first(WEIGHTS, facts)
    if asked == "classes" and not (facts.target and facts.class_of_all_or_none):
        raise ConfigError(
            "weights='classes' needs a target that all parties hold: take 'em' or 'counts'"
        )
    if asked == "em" and not facts.holdings.ids:
        raise ConfigError(
            "weights='em' needs rows that are aligned by ids: name the column "
            "of ids with row_id, or take weights='counts'"
        )
    return asked


def _check_sums(facts: Facts) -> None:
    """Raise a ConfigError if nothing is trained by sums of these tables."""
    if facts.same and facts.by_sums:
        return
    fits = facts.class_of_all_or_none or facts.matched
    if facts.by_sums_of_different_columns and fits:
        return
    target, learner = facts.target, facts.learner
    if facts.same:
        training_of(learner, target or None, facts.options)
    raise ConfigError(
        "training='sums' over different columns needs numbers, and the target at every party, "
        "or ids of the rows and no components, head, decision or trained: "
        f"here {learner} circuits are trained, and {target or 'no target'!r} is held by "
        f"{', '.join(facts.holdings.holders(target)) if target else 'nobody'}. Take "
        "training='one-pass'."
    )


def _check_counts(facts: Facts) -> None:
    """Raise a ConfigError if there are no ids, or options that counts do not fit."""
    if not facts.holdings.ids:
        raise ConfigError(
            "training='triples' needs rows that are matched by ids: give every party's "
            "table a column of ids of its rows, 'row_id' or the one that the option row_id names"
        )
    wrong = unfitting(facts.options)
    if wrong:
        listed = ", ".join(f"{name}={value}" for name, value in wrong.items())
        raise ConfigError(
            "training='triples' over different columns has no mixtures of clusters and no head: "
            f"set {listed}"
        )


def unfitting(options: FedPCOptions) -> dict[str, str]:
    """Return the options that do not fit counts of states, with the values that would."""
    wanted = {
        "learner": (options.learner in ("auto", "trees"), "'trees'"),
        "weights": (options.weights == "auto", "'auto'"),
        "components": (options.components in (None, 1), "1"),
        "head": (options.head is not True, "False"),
        "decision": (options.decision == "most-probable", "'most-probable'"),
        "trained": (not options.trained, "''"),
    }
    return {name: value for name, (fits, value) in wanted.items() if not fits}
