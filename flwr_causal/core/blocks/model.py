"""Numbers and categories: effects, samples and predictions from the moments of their blocks.

An effect is a contrast of coefficients, see :mod:`core.blocks.contrasts`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.blocks import fit_check, logistic, network
from flwr_causal.core.blocks.conditionals import conditional
from flwr_causal.core.blocks.contrasts import (
    code_of,
    contrast,
    contrast_table,
    finite_values,
)
from flwr_causal.core.blocks.design import (
    Category,
    Number,
    blocks_of_columns,
    column_names,
    variables_from_plain,
)
from flwr_causal.core.blocks.interventions import implied_moments
from flwr_causal.core.discrete.discrete import labelled, plain_label
from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.graphs.graph import frozen_booleans, pair_of, place_of
from flwr_causal.core.linear.effects import by_optimal_set, possible_effects
from flwr_causal.core.linear.model import LinearModel
from flwr_causal.core.linear.moments import (
    Moments,
    fewest_together,
    from_plain_by_variable,
    plain_by_variable,
    with_rows,
)
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.ties import first_largest
from flwr_causal.core.words import by_name
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.conditionals import BlockConditional
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.effect import Effect
    from flwr_causal.core.graphs.fit_check import FitCheck


@dataclass(frozen=True, eq=False, repr=False)
class BlockModel(SingleThreaded):
    """The second moments of numbers and categories, with the equivalence class of their graph.

    Attributes
    ----------
    variables : tuple of Number or Category
    moments : Moments
        Of the rows of all parties; the columns of a variable lie side by side.
    marks : ndarray of bool, shape (d, d)
        The class, see :mod:`core.graphs.equivalence`.
    fixed : mapping of str to object
        Variables that an intervention has set, and to what: see :meth:`do`.
    seen : mapping of str to object
        What all rows have: see :meth:`conditional`.
    parameters : mapping of str to ndarray
        By categories with causes in :attr:`member`, the coefficients of their logistic regressions
        (:mod:`core.blocks.logistic`), shape (1 + columns of the causes, states - 1). Default:
        linear discriminant analysis of the moments (:mod:`core.blocks.conditionals`).
    own_moments : tuple of Moments, default ()
        Under interventions: for each variable those of the rows in which it is no target, by which
        its edges are tested. ``moments`` are then those that they imply, see
        :func:`core.blocks.interventions.implied_moments`.

    Raises
    ------
    DataError
        If the moments are those of other columns, or the marks have another shape.
    """

    KIND: ClassVar[str] = "model of numbers and categories"
    FORM: ClassVar[str] = "flwr-causal blocks 1"

    variables: tuple[Variable, ...]
    moments: Moments
    marks: BoolArray
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    own_moments: tuple[Moments, ...] = ()

    def __post_init__(self) -> None:
        if self.moments.names != column_names(self.variables):
            raise DataError(f"the moments are not those of the columns of {', '.join(self.names)}")
        d = len(self.variables)
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, (d, d)))
        own = {name: frozen_floats(given) for name, given in self.parameters.items()}
        object.__setattr__(self, "parameters", own)
        if self.parameters:
            asked = logistic.families(
                self.variables, logistic.regressed(self.variables, self.member)
            )
            expected = {self.names[one.child]: one.shape for one in asked}
            if {name: own.shape for name, own in self.parameters.items()} != expected:
                raise DataError("the parameters are not those of the categories with causes")

    @classmethod
    def of(
        cls,
        variables: tuple[Variable, ...],
        moments: Moments | Sequence[Moments],
        marks: BoolArray,
    ) -> Self:
        """Return the model of moments of all rows or, under interventions, of each variable's."""
        if isinstance(moments, Moments):
            return cls(variables, moments, marks)
        member = member_of([one.name for one in variables], marks)
        implied = implied_moments(moments, [one.width for one in variables], member)
        return cls(variables, implied, marks, own_moments=tuple(moments))

    def __repr__(self) -> str:
        categories = sum(isinstance(one, Category) for one in self.variables)
        numbers = len(self.variables) - categories
        return f"<BlockModel: {numbers} numbers, {categories} categories>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d variables."""
        return tuple(one.name for one in self.variables)

    @cached_property
    def member(self) -> BoolArray:
        """A DAG of the class, shape (d, d), whose conditional distributions are fitted."""
        return member_of(self.names, self.marks)

    @property
    def edges(self) -> BoolArray:
        """The causes of each variable in :attr:`member`, shape (d, d)."""
        return self.member

    @cached_property
    def dag(self) -> BoolArray:
        """The same without causes of what an intervention has set."""
        is_set = [name in self.fixed for name in self.names]
        return np.asarray(self.member & ~np.array(is_set))

    @cached_property
    def _conditionals(self) -> list[BlockConditional]:
        """The distribution of each variable given its causes."""
        return [
            logistic.fitted(self.parameters[name])
            if name in self.parameters and name not in self.fixed
            else conditional(self.variables, self.moments, np.flatnonzero(self.dag[:, j]), j)
            for j, name in enumerate(self.names)
        ]

    def sample(self, n: int, seed: int | None = None) -> pd.DataFrame:
        """Draw n independent rows; the same seed gives the same rows.

        Given its causes a number is normally distributed about a linear function of their columns,
        and a category has the probabilities of a logistic regression (:attr:`parameters`), or of
        linear discriminant analysis. Values are of the tables' types.

        Raises
        ------
        DataError
            After :meth:`conditional`, if what is seen is too improbable.
        """
        if n < 0:
            raise ConfigError(f"the number of rows is {n}: it must not be negative")
        rng = np.random.default_rng(seed)
        fixed, seen = self._codes(self.fixed), self._codes(self.seen)
        return network.sampled(self.variables, self._conditionals, self.dag, fixed, seen, n, rng)

    def log_likelihood(self, frame: pd.DataFrame) -> FloatArray:
        """Return the natural logarithm of the density of each row, shape (n,).

        Of categories it is that of their probabilities.

        Raises
        ------
        DataError
            If a column or a value is missing, or a value is none of its variable's states.
        ConfigError
            After an intervention, which leaves no density.
        """
        self._require_rows("a density")
        return network.log_densities(self.variables, self._conditionals, self.dag, frame)

    def predict_proba(self, frame: pd.DataFrame, target: str) -> FloatArray:
        """Return the probability of each state of a category given the rest of each row.

        Parameters
        ----------
        frame : DataFrame
            Columns are found by name. Missing columns and missing values are left out; a column of
            the target is not read.
        target : str

        Returns
        -------
        ndarray of shape (n, states of the target)

        Raises
        ------
        DataError
            If the target is unknown or a number, or a value is none of its variable's states.
        ConfigError
            After an intervention.
        """
        j = place_of(self.names, target)
        if not isinstance(self.variables[j], Category):
            raise DataError(f"{target!r} is a number: predict returns its mean")
        return np.asarray(np.exp(self._predicted(frame, j)))

    def predict(self, frame: pd.DataFrame, target: str) -> NDArray[Any]:
        """Return the most probable state, or the mean of a number, given the rest of each row.

        Parameters and errors are those of :meth:`predict_proba`; the target may be a number.
        """
        j = place_of(self.names, target)
        variable = self.variables[j]
        found = self._predicted(frame, j)
        if isinstance(variable, Category):
            return labelled(variable.labels, first_largest(found, axis=1))
        return np.asarray(found[:, 0])

    def _predicted(self, frame: pd.DataFrame, target: int) -> FloatArray:
        self._require_rows("a prediction")
        known = self._conditionals if self.parameters else ()
        return network.predicted(self.variables, self.moments, self.dag, frame, target, known)

    def do(self, values: Mapping[str, Any]) -> BlockModel:
        """Return the model under an intervention that sets variables to values or states.

        Returns
        -------
        BlockModel
            :meth:`sample` draws what happens: what is set has no causes. There are no effects,
            densities, predictions and tests, which are of the rows.

        Raises
        ------
        DataError
            If a variable is unknown.
        ConfigError
            If a value is not possible, or the class leaves open whether a variable that is set
            causes another one: see :meth:`possible_effects`.
        """
        if self.seen:
            raise ConfigError(
                "these rows were chosen by what is seen (conditional), among whose causes an "
                "intervention is another question: use do first, and conditional after it"
            )
        after = replace(self, fixed={**self.fixed, **values})
        targets = list(after._codes(after.fixed))
        adjustment.after_intervention(self.marks, targets, self.names)
        return after

    def conditional(self, evidence: Mapping[str, Any]) -> BlockModel:
        """Return the model of the rows in which variables are seen to have values or states.

        This is what is seen in such rows; see :meth:`do` for what happens if they are set. After an
        intervention it describes what is seen then.

        Returns
        -------
        BlockModel
            :meth:`sample` draws such rows: draws of the others are kept as probably as the evidence
            is, given them. :meth:`predict_proba` has the probabilities of one variable.

        Raises
        ------
        DataError
            If a variable is unknown, or all are given.
        ConfigError
            If a value is not possible, or the variable is set by an intervention.
        """
        after = replace(self, seen={**self.seen, **evidence})
        after._codes(after.seen)
        for name in after.seen:
            if name in self.fixed:
                raise ConfigError(f"{name!r} is set by an intervention: it has this value anyway")
        if len(after.seen) + len(self.fixed) == len(self.names):
            raise DataError("the evidence gives all variables: nothing is left to describe")
        return after

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, by likelihood ratios of the blocks.

        Parameters
        ----------
        rows : DataFrame, optional
            Rows to which the model was not fitted: their mean log density is added. The tests are
            on the moments of the rows that it was fitted to.

        Raises
        ------
        DataError
            As :meth:`log_likelihood`.
        ConfigError
            After an intervention.
        """
        self._require_rows("a fit check")
        found = fit_check.check(self.names, self._widths, self._tested, self.dag)
        return found if rows is None else found.with_rows(float(self.log_likelihood(rows).mean()))

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty of chosen or set rows."""
        if self.fixed or self.seen:
            return []
        return fit_check.edge_tests(self.names, self._widths, self._tested, self.dag)

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average if the cause is set to another state.

        Where the class decides it, the optimal adjustment set is adjusted for
        (:func:`core.graphs.adjustment.optimal_set`).

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        state, reference : object, optional
            To which state the cause is set, in place of which other one. Of a number two values;
            default, where its effects are linear: a unit more.
        outcome : object, optional
            A state of the effect, whose probability changes. Of a number its mean changes.
        level : float, default 0.95
            Of the confidence interval, which is that of least squares.

        Returns
        -------
        Effect or list of Effect
            In the units of the effect, or as a difference of probabilities. The list of
            :meth:`possible_effects` where the class leaves it open.

        Raises
        ------
        ConfigError
            If a state or the outcome is missing or not possible, or the level is not between 0 and
            1.
        DataError
            If a variable is unknown, rows are too few, or the adjustment set determines the cause.
        """
        self._require_rows("an effect")
        i, j = pair_of(self.names, cause, effect)
        asked = contrast(self.variables[i], self.variables[j], state, reference, outcome)
        blocks = blocks_of_columns(self.variables, self.moments)
        found = by_optimal_set(blocks, self.marks, (i, j), asked, level)
        return (
            possible_effects(blocks, self.marks, (i, j), asked, level) if found is None else found
        )

    def possible_effects(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> list[Effect]:
        """Return an effect for each set of parents that the cause has in a DAG of the class.

        These are adjusted for (local IDA; Maathuis, Kalisch & Bühlmann, 2009). The fewest parents
        come first, of as many the smaller effect. Parameters and errors are those of
        :meth:`total_effect`.
        """
        self._require_rows("an effect")
        i, j = pair_of(self.names, cause, effect)
        asked = contrast(self.variables[i], self.variables[j], state, reference, outcome)
        blocks = blocks_of_columns(self.variables, self.moments)
        return possible_effects(blocks, self.marks, (i, j), asked, level)

    def contrasts(self, cause: str, effect: str, *, level: float = 0.95) -> pd.DataFrame:
        """Return the effects of each state of the cause in place of the first one.

        Of a number as cause it is that of a unit more, or where its effects may be curved of a
        standard deviation above the mean in place of one below.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        level : float, default 0.95
            Of the confidence intervals, each on its own.

        Returns
        -------
        DataFrame
            A row for each state and each outcome of the effect (None of a number), with the columns
            ``state``, ``reference``, ``outcome``, ``value``, ``standard_error``, ``lower``,
            ``upper`` and ``adjustment_set``; several rows where the class leaves the effect open.

        Raises
        ------
        ConfigError, DataError
            As :meth:`total_effect`.
        """
        self._require_rows("an effect")
        i, j = pair_of(self.names, cause, effect)
        found = partial(self.total_effect, cause, effect, level=level)
        return contrast_table(self.variables[i], self.variables[j], found)

    def coefficients(self, name: str) -> pd.DataFrame:
        """Return the distribution of a variable given its causes, in :attr:`dag`.

        Of a number it is the mean, in its units; of a category the log-odds of each state against
        the last one. Causes that are numbers are in their units, or with ``model="curved"``
        functions of the standardised number; causes that are categories are compared with their
        last state.

        Parameters
        ----------
        name : str

        Returns
        -------
        DataFrame
            A row for the constant and each column of the causes, a column for the number, or for
            each state but the last one. ``attrs["deviation"]`` is the standard deviation of a
            number given its causes.

        Raises
        ------
        DataError
            If the variable is unknown.
        """
        import pandas as pd

        j = place_of(self.names, name)
        own, variable = self._conditionals[j], self.variables[j]
        causes = [self.variables[k] for k in np.flatnonzero(self.dag[:, j])]
        units = [one.units for one in causes]
        means, scales = np.concatenate([np.empty((2, 0)), *units], axis=1)
        weights = own.weights / scales[:, None]
        table = np.vstack([own.offset - means @ weights, weights])
        terms = pd.Index(["constant", *[term for one in causes for term in one.terms]])
        if isinstance(variable, Category):
            states = variable.states[:-1]
            return pd.DataFrame(table[:, :-1] - table[:, -1:], terms, list(states))
        table = variable.scale * table
        table[0] += variable.mean
        found = pd.DataFrame(table, terms, [name])
        found.attrs["deviation"] = own.deviation * variable.scale
        return found

    def as_one_kind(self) -> BayesianNetwork | LinearModel:
        """Return the model as a Bayesian network of categories, or a linear system of numbers.

        They are of :attr:`dag`. The tables of a category have the probabilities of its regression
        in each configuration of its causes.

        Raises
        ------
        DataError
            If there are both numbers and categories, effects are curved, or rows are of given
            values.
        """
        if self.seen:
            raise DataError("the model is of rows with given values: take it without 'conditional'")
        kinds = {isinstance(one, Category) for one in self.variables}
        curved = [one for one in self.variables if isinstance(one, Number) and one.functions > 1]
        if len(kinds) > 1 or curved:
            raise DataError(
                "the model has numbers beside categories, or curved effects, and such a form has "
                "either categories alone, or numbers with linear effects: of this model take "
                "samples (sample), the graph (run.graph), or coefficients of each variable "
                "(coefficients)"
            )
        codes = self._codes(self.fixed)
        if kinds == {True}:
            return network.tables(self.variables, self._conditionals, self.dag, codes)
        weights, intercepts = np.zeros(self.dag.shape), np.zeros(len(self.names))
        noise = np.zeros(len(self.names))
        for j, name in enumerate(self.names):
            table = self.coefficients(name)
            constant, *slopes = table[name].tolist()
            weights[self.dag[:, j], j] = slopes
            intercepts[j] = codes.get(j, constant)
            noise[j] = 0.0 if j in codes else table.attrs["deviation"] ** 2
        return LinearModel(self.names, weights, intercepts, noise)

    def with_rows_together(self, together: Sequence[FloatArray]) -> Self:
        """Return the model of rows with missing cells, see :func:`~core.linear.moments.with_rows`.

        Of the moments that those of the variables imply the rows are the fewest of any variable.
        """
        least = fewest_together(together)
        own = with_rows(self.own_moments, together) if self.own_moments else ()
        return replace(self, moments=replace(self.moments, together=least), own_moments=own)

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self.FORM,
            "variables": [asdict(one) for one in self.variables],
            "moments": self.moments.to_plain(),
            "marks": self.marks.tolist(),
            "fixed": {name: plain_label(value) for name, value in self.fixed.items()},
            "seen": {name: plain_label(value) for name, value in self.seen.items()},
            "parameters": {name: own.tolist() for name, own in self.parameters.items()},
        }
        if self.own_moments:
            content["own_moments"] = plain_by_variable(self.own_moments)
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, lacks a field, or holds damaged numbers.
        """
        content = read_record(path, cls.KIND, cls.FORM)
        with undamaged(path, f"a damaged {cls.KIND}"):
            variables = variables_from_plain(content["variables"])
            moments = Moments.from_plain(**content["moments"])
            marks = np.array(content["marks"], dtype=np.bool_)
            parameters = content.get("parameters", {})
            own = content.get("own_moments", {"parts": [], "places": []})
            given = content.get("fixed", {}), content.get("seen", {})
            return cls(variables, moments, marks, *given, parameters, from_plain_by_variable(own))

    @property
    def _widths(self) -> list[int]:
        """How many columns each variable has."""
        return [one.width for one in self.variables]

    @property
    def _tested(self) -> Moments | tuple[Moments, ...]:
        """Of the rows by which edges are tested."""
        return self.own_moments or self.moments

    def _codes(self, values: Mapping[str, Any]) -> dict[int, Any]:
        """Return numbers, or the numbers of states, by variable; a ConfigError if impossible."""
        found: dict[int, Any] = {}
        for name, value in values.items():
            j = place_of(self.names, name)
            variable = self.variables[j]
            if isinstance(variable, Category):
                found[j] = code_of(variable, value)
            else:
                found[j] = finite_values(variable, [value])[0]
        return found

    def _require_rows(self, what: str) -> None:
        if self.fixed:
            raise ConfigError(
                f"after an intervention there is not {what}: sample draws what happens"
            )
        if self.seen:
            raise ConfigError(
                f"of rows with given values there is not {what}: sample draws such rows, and the "
                "model without 'conditional' has it"
            )


def member_of(names: Sequence[str], marks: BoolArray) -> BoolArray:
    """Return a DAG of a class, the same for any order of the columns."""
    order = by_name(names)
    found = consistent_extension(marks[np.ix_(order, order)])
    assert found is not None
    back = np.argsort(order)
    return np.asarray(found[np.ix_(back, back)])
