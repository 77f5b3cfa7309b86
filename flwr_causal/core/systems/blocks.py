"""Numbers and categories: effects, samples and predictions from the moments of their blocks.

An effect is a contrast of coefficients, see :mod:`core.blocks.contrasts`. Of series each column is
a linear function of those of its variable's parents at t and before, a category a linear
probability model: the columns are a linear system over time, from which effects after some steps
and predictions follow.

**Interventions.** Rows under an intervention on a variable inform about all mechanisms but its own
(:mod:`core.interventions.moments`). The regressions of each block on the blocks of its parents,
over the rows in which the variable was no target, imply moments of all columns: those of rows in
which nothing is a target, so far as the graph and the linear functions of the columns hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.blocks import logistic, network
from flwr_causal.core.blocks.conditionals import conditional
from flwr_causal.core.blocks.contrasts import code_of, contrast_table, finite_values
from flwr_causal.core.blocks.design import (
    Category,
    Number,
    blocks_of_columns,
    column_names,
    variables_from_plain,
)
from flwr_causal.core.discrete.discrete import labelled, plain_label
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.adjustment import after_intervention
from flwr_causal.core.graphs.equivalence import member_of
from flwr_causal.core.graphs.fit_check import check, edge_tests
from flwr_causal.core.graphs.graph import frozen_booleans, pair_of, place_of
from flwr_causal.core.linear.independence import BlockTests
from flwr_causal.core.linear.moments import (
    SampleMoments,
    columns_of,
    fewest_together,
    from_plain_by_variable,
    plain_by_variable,
    with_rows,
)
from flwr_causal.core.linear.parties import lacking_parties
from flwr_causal.core.linear.regression import solved
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.series.design import lagged_names, lagged_rows
from flwr_causal.core.systems.effects import SystemWithEffects
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.core.ties import first_largest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.conditionals import BlockConditional
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.fit_check import FitCheck


def implied_moments(
    moments: Sequence[SampleMoments], widths: Sequence[int], dag: BoolArray
) -> SampleMoments:
    """Return the moments that the regressions of a DAG imply.

    Parameters
    ----------
    moments : sequence of SampleMoments
        Of all columns, for each of the d variables those of the rows in which it is no target.
    widths : sequence of int
        Number of columns of each variable.
    dag : ndarray of bool, shape (d, d)

    Returns
    -------
    SampleMoments
        ``n`` is the smallest of the numbers of rows, so that standard errors are not too small.
    """
    columns, one = columns_of(widths), moments[0]
    mean, second = np.zeros(one.d), np.zeros((one.d, one.d))
    for j in topological_order(dag):
        part, own = moments[j], columns[j]
        parents = np.concatenate([own[:0], *[columns[i] for i in np.flatnonzero(dag[:, j])]])
        shared = part.second[np.ix_(parents, own)]
        weights = solved(part.second[np.ix_(parents, parents)], shared)
        left = part.second[np.ix_(own, own)] - weights.T @ shared
        mean[own] = part.mean[own] + (mean[parents] - part.mean[parents]) @ weights
        # Columns that are still to come have no covariance with anything yet.
        second[own] = weights.T @ second[parents]
        second[:, own] = second[own].T
        among = weights.T @ second[np.ix_(parents, parents)] @ weights
        second[np.ix_(own, own)] = among + (left + left.T) / 2
    return SampleMoments(min(part.n for part in moments), mean, second, one.names)


#: What is of all rows, and neither of those under an intervention nor of chosen ones.
OF_ALL_ROWS = {
    **dict.fromkeys(("total_effect", "possible_effects", "contrasts"), "an effect"),
    **dict.fromkeys(("predict", "predict_proba"), "a prediction"),
    "log_likelihood": "a density",
    "fit_check": "a fit check",
    "disagreement": "a comparison of parties",
}
NO_LAGS = np.zeros((0, 0, 0), dtype=np.bool_)
#: What is not of series.
OF_ROWS = ("sample", "do", "conditional", "log_likelihood", "coefficients")


@dataclass(frozen=True, eq=False, repr=False)
class BlockModel(SystemWithEffects):
    """The second moments of numbers and categories, with the equivalence class of their graph.

    Attributes
    ----------
    variables : tuple of Number or Category
        The d variables; of series those at t, t - 1, ..., t - p, see
        :func:`~core.blocks.design.with_lags`.
    moments : SampleMoments
        Of the rows of all parties; the columns of a variable lie side by side.
    marks : ndarray of bool, shape (d, d)
        The class, of series that of the edges within a step, see :mod:`core.graphs.equivalence`.
    fixed : mapping of str to object
        Variables that an intervention has set, and to what: see :meth:`do`.
    seen : mapping of str to object
        What all rows have: see :meth:`conditional`.
    parameters : mapping of str to ndarray
        By categories with causes in :attr:`member`, the coefficients of their logistic regressions
        (:mod:`core.blocks.logistic`), shape (1 + columns of the causes, states - 1). Default:
        linear discriminant analysis of the moments (:mod:`core.blocks.conditionals`).
    own_moments : tuple of SampleMoments, default ()
        Under interventions: for each variable those of the rows in which it is no target, by which
        its edges are tested. ``moments`` are then those that they imply, see
        :func:`core.systems.blocks.implied_moments`.
    lagged : ndarray of bool, shape (p, d, d)
        ``lagged[l, i, j]``: i at t - l - 1 causes j at t. Default: the rows are no series.
    party_moments
        By party, the moments of its rows, as of
        :class:`~flwr_causal.core.systems.linear.LinearModel`.

    Raises
    ------
    DataError
        If the moments are those of other columns, or marks or edges have another shape.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal import simulate
    >>> table = pd.DataFrame({"drug": ["a", "b"] * 40, "dose": [1.0, 2.0, 1.2, 2.1] * 20})
    >>> model = simulate("moments", [table[:40], table[40:]]).model
    >>> model.sample(5, seed=0).shape
    (5, 2)
    """

    KIND: ClassVar[str] = "model of numbers and categories"
    FORM: ClassVar[str] = "flwr-causal blocks 1"

    variables: tuple[Variable, ...]
    moments: SampleMoments
    marks: BoolArray
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    own_moments: tuple[SampleMoments, ...] = ()
    lagged: BoolArray = field(default_factory=lambda: NO_LAGS)
    party_moments: Mapping[str, SampleMoments] | None = None

    def __post_init__(self) -> None:
        if self.moments.names != column_names(self.variables):
            raise DataError(f"the moments are not those of the columns of {', '.join(self.names)}")
        d, p = len(self.marks), len(self.lagged)
        if len(self.variables) != d * (1 + p):
            raise DataError(f"{len(self.variables)} variables are not {d} and their {p} lags")
        if not p:
            object.__setattr__(self, "lagged", np.zeros((0, d, d), dtype=np.bool_))
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, (d, d)))
        object.__setattr__(self, "lagged", frozen_booleans("lagged", self.lagged, (p, d, d)))
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
        moments: SampleMoments | Sequence[SampleMoments],
        marks: BoolArray,
        lagged: BoolArray = NO_LAGS,
    ) -> Self:
        """Return the model of moments of all rows or, under interventions, of each variable's."""
        if isinstance(moments, SampleMoments):
            return cls(variables, moments, marks, lagged=lagged)
        member = member_of([one.name for one in variables], marks)
        implied = implied_moments(moments, [one.width for one in variables], member)
        return cls(variables, implied, marks, own_moments=tuple(moments))

    def __repr__(self) -> str:
        categories = sum(isinstance(one, Category) for one in self._present)
        numbers = len(self.names) - categories
        lags = f", {self.order} lags" if self.order else ""
        return f"<BlockModel: {numbers} numbers, {categories} categories{lags}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d variables."""
        return tuple(one.name for one in self._present)

    @cached_property
    def member(self) -> BoolArray:
        """A DAG of the class, shape (d, d), whose conditional distributions are fitted."""
        return member_of(self.names, self.marks)

    @property
    def edges(self) -> BoolArray:
        """The causes of each variable in :attr:`member` and in the past, shape (d (1 + p), d)."""
        return self._edges

    @cached_property
    def dag(self) -> BoolArray:
        """:attr:`member` without causes of what an intervention has set, shape (d, d)."""
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
        ConfigError
            If n is negative, or the model is of series.
        """
        self._require("sample")
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
            After an intervention, which leaves no density, and of series.
        """
        self._require("log_likelihood")
        return network.log_densities(self.variables, self._conditionals, self.dag, frame)

    def predict_proba(self, rows: pd.DataFrame, target: str) -> FloatArray:
        """Return the probability of each state of a category given the rest of each row.

        Of series it is given the p steps before each step, by a linear probability model of which
        values below 0 are 0.

        Parameters
        ----------
        rows : DataFrame
            Columns are found by name. Missing columns and missing values are left out; a column of
            the target is not read. Of series the steps in the order of time, without gaps.
        target : str

        Returns
        -------
        ndarray of shape (n, states of the target), of series (T - p, states)

        Raises
        ------
        DataError
            If the target is unknown or a number, or a value is none of its variable's states; of
            series also if a column or a value is missing, or there are too few steps.
        ConfigError
            After an intervention.
        """
        j = place_of(self.names, target)
        if not isinstance(self.variables[j], Category):
            raise DataError(f"{target!r} is a number: predict returns its mean")
        if self.order:
            return _probabilities(self._expected(rows)[:, self._columns[j]])
        return np.asarray(np.exp(self._predicted(rows, j)))

    def predict(self, rows: pd.DataFrame, target: str | None = None) -> Any:
        """Return the most probable state, or the mean of a number, given the rest of each row.

        Of series it is given the p steps before each step.

        Parameters
        ----------
        rows, target
            As of :meth:`predict_proba`, also errors; the target may be a number. Of series the
            default is a frame of all variables.

        Returns
        -------
        ndarray of shape (n,), of series (T - p,), or DataFrame
        """
        if self.order:
            found = self._steps(rows)
            return (
                found if target is None else found.iloc[:, place_of(self.names, target)].to_numpy()
            )
        if target is None:
            raise ConfigError(f"name the variable to predict: one of {', '.join(self.names)}")
        j = place_of(self.names, target)
        variable, own = self.variables[j], self._predicted(rows, j)
        if isinstance(variable, Category):
            return labelled(variable.labels, first_largest(own, axis=1))
        return np.asarray(own[:, 0])

    def _predicted(self, frame: pd.DataFrame, target: int) -> FloatArray:
        self._require("predict")
        known = self._conditionals if self.parameters else ()
        return network.predicted(self.variables, self.moments, self.dag, frame, target, known)

    def _steps(self, series: pd.DataFrame) -> pd.DataFrame:
        """Return each step as expected by those before it."""
        import pandas as pd

        expected, found = self._expected(series), {}
        for variable, block in zip(self._present, self._columns[: len(self.names)], strict=True):
            columns = expected[:, block]
            if isinstance(variable, Category):
                likely = first_largest(_probabilities(columns), axis=1)
                found[variable.name] = labelled(variable.labels, likely)
            else:  # the first column is the number
                found[variable.name] = variable.values(columns[:, 0])
        return pd.DataFrame(found)

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
            causes another one: see :meth:`possible_effects`; after :meth:`conditional`; of series.
        """
        self._require("do")
        after = replace(self, fixed={**self.fixed, **values})
        targets = list(after._codes(after.fixed))
        after_intervention(self.marks, targets, self.names)
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
            If a value is not possible, or the variable is set by an intervention; of series.
        """
        self._require("conditional")
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
            on the moments of the rows that it was fitted to. Of series the tests are on these
            steps.

        Returns
        -------
        FitCheck
            Of series of each variable at t with what comes before it, at t and in the past.

        Raises
        ------
        DataError
            As :meth:`log_likelihood`, of series as :meth:`predict`.
        ConfigError
            After an intervention.
        """
        self._require("fit_check")
        tested = self._tested
        if self.order and rows is not None:
            steps = lagged_rows([self._columns_of_steps(rows)], self.order)
            tested = SampleMoments.from_rows(steps, self.moments.names)
        found = check(BlockTests(blocks_of_columns(self.variables, tested)), self.edges)
        if self.order or rows is None:
            return found
        return found.with_rows(float(self.log_likelihood(rows).mean()))

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty of chosen or set rows."""
        if self.fixed or self.seen:
            return []
        return edge_tests(BlockTests(blocks_of_columns(self.variables, self._tested)), self.edges)

    def contrasts(
        self, cause: str, effect: str, *, lag: int = 0, level: float = 0.95
    ) -> pd.DataFrame:
        """Return the effects of each state of the cause in place of the first one.

        Of a number as cause it is that of a unit more, or where its effects may be curved of a
        standard deviation above the mean in place of one below.

        Parameters
        ----------
        cause, effect, lag
            As of :meth:`total_effect`.
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
        self._require("contrasts")
        i, j = pair_of(self.names, cause, effect, same=lag > 0)
        found = partial(self.total_effect, cause, effect, lag=lag, level=level)
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
        ConfigError
            Of series.
        """
        import pandas as pd

        self._require("coefficients")

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
            values or series.
        """
        if self.order:
            raise DataError("the model is of series: take its graph (run.graph)")
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
            "lagged": self.lagged.tolist(),
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
            moments = SampleMoments.from_plain(**content["moments"])
            found: dict[str, Any]
            found = {name: np.array(content[name], dtype=np.bool_) for name in ("marks", "lagged")}
            found |= {name: content[name] for name in ("fixed", "seen", "parameters")}
            own = content.get("own_moments", {"parts": [], "places": []})
            rows = from_plain_by_variable(own)
            return cls(variables, moments, **found, own_moments=rows)

    @property
    def _present(self) -> tuple[Variable, ...]:
        """The d variables, of series at t."""
        return self.variables[: len(self.marks)]

    @property
    def _widths(self) -> list[int]:
        """How many columns each variable has, of series each of their lags too."""
        return [one.width for one in self.variables]

    @property
    def _columns(self) -> list[Any]:
        """The columns of each variable."""
        return columns_of(self._widths)

    @property
    def _variables(self) -> Sequence[Variable]:
        return self.variables

    @property
    def _class(self) -> BoolArray:
        return self.marks

    @property
    def _edges(self) -> BoolArray:
        return np.concatenate([self.member, *self.lagged])

    @property
    def _lists_effects(self) -> bool:
        return False

    @property
    def _rows(self) -> SampleMoments:
        return self.moments

    def _response(
        self, change: FloatArray, reading: FloatArray, lag: int
    ) -> tuple[float, FloatArray]:
        return self._system._response(change, reading, lag)

    @cached_property
    def _system(self) -> LinearModel:
        """The linear system of the columns of series."""
        widths, d = self._widths, len(self.marks)
        mask = np.repeat(np.repeat(self.edges, widths, axis=0), widths[:d], axis=1)
        own = self.moments.names[: mask.shape[1]]
        moments = replace(self.moments, names=lagged_names(own, self.order))
        return fit(moments, mask, len(own))

    @property
    def _tested(self) -> SampleMoments | tuple[SampleMoments, ...]:
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

    def _lacks(self, question: str) -> str:
        what = OF_ALL_ROWS.get(question)
        if self.order and question in OF_ROWS:
            return (
                f"the model is of series: it has effects, predictions and tests, and no {question}"
            )
        if what and self.fixed:
            return f"after an intervention there is not {what}: sample draws what happens"
        if what and self.seen:
            return (
                f"of rows with given values there is not {what}: sample draws such rows, and the "
                "model without 'conditional' has it"
            )
        if question == "disagreement":
            return lacking_parties(self.party_moments)
        if question == "do" and self.seen:
            return (
                "these rows were chosen by what is seen (conditional), among whose causes an "
                "intervention is another question: use do first, and conditional after it"
            )
        return ""

    def _expected(self, series: pd.DataFrame) -> FloatArray:
        """Return the means of the columns of each step given those before it."""
        return self._system.predict(self._columns_of_steps(series))

    def _columns_of_steps(self, series: pd.DataFrame) -> FloatArray:
        """Return the columns of the steps of a series, checked, (T, columns at t)."""
        values, seen = network.rows_of(self._present, series)
        if seen.shape[1] <= self.order:
            raise DataError(
                f"the series has {seen.shape[1]} rows, but a model with {self.order} lags needs at "
                f"least {self.order + 1}"
            )
        for name, known in zip(self.names, seen, strict=True):
            if not known.all():
                raise DataError(f"column {name!r} is absent, or has missing values")
        return np.column_stack(
            [one.columns(own) for one, own in zip(self._present, values, strict=True)]
        )


def _probabilities(columns: FloatArray) -> FloatArray:
    """Return probabilities of all states from the means of their columns, (n, states)."""
    found = np.column_stack([columns, 1.0 - columns.sum(axis=1)])
    found = np.maximum(found, 0.0)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
