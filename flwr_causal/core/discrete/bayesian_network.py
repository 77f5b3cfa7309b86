"""Bayesian networks: a DAG and, for each variable, a table of probabilities given its parents.

``tables[j]`` has one axis for each parent of j, in the order of ``parents[j]``, and a last axis for
the states of j, over which it sums to 1. Given the DAG, fitting needs only the counts of each
variable with its parents, which are summed over parties.

References
----------
Heckerman, Geiger & Chickering (1995). Learning Bayesian networks: the combination of knowledge and
statistical data. Machine Learning 20. (The BDeu prior and the posterior mean.)
Pearl (2009). Causality. Section 3.2. (Interventions as a truncated product.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.answers import NO_EFFECT, Answers, estimated
from flwr_causal.core.discrete import inference
from flwr_causal.core.discrete.discrete import (
    MAX_STATES,
    DiscreteTable,
    code_of,
    codes_of,
    known_codes,
    label_names,
    labelled,
    plain_label,
    seen_patterns,
    state_name,
)
from flwr_causal.core.discrete.independence import CountTests
from flwr_causal.core.discrete.probabilities import (
    check_parents,
    checked_sizes,
    checked_table,
    family_counts,
    held_out_log_likelihood,
    parent_matrix,
    posterior_mean,
    table_shape,
)
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.adjustment import (
    after_intervention,
    is_amenable,
    is_possible_cause,
    possible_parents,
)
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.graphs.fit_check import check, edge_tests
from flwr_causal.core.graphs.graph import (
    CausalGraph,
    distinct_names,
    frozen_booleans,
    pair_of,
    place_of,
)
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.ties import first_largest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.answers import Effect
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.fit_check import FitCheck

FORMAT = "flwr-causal bayesian network 1"
#: What edges that are not causal do not answer.
CAUSAL = ("do", "total_effect", "possible_effects", "contrast")


@dataclass(frozen=True, eq=False, repr=False)
class BayesianNetwork(Answers):
    """A joint distribution of d categories.

    The tables are stored as read-only float64 copies.

    Parameters
    ----------
    names : tuple of str
        The d variables.
    states : tuple of tuple of (str, int, float or bool)
        The labels of each variable's states, in the order of its axes: the values of the table.
        Rows and evidence may have these or their names (``"1"`` for 1); answers have the labels.
    parents : tuple of tuple of int
        The indices of each variable's parents, ascending; acyclic.
    tables : tuple of ndarray of float64
        ``tables[j][states of the parents..., state]`` is the probability of the state given the
        parents' states: non-negative, the last axis sums to 1.
    sample_sizes : tuple of ndarray of float64, optional
        ``sample_sizes[j][states of the parents...]`` is the number of rows with these states, with
        the weight of the prior; standard errors need them. Default: unknown.
    equivalent_sample_size : float, optional
        Weight of the BDeu prior in each of these, in rows; counts follow from both. Default:
        unknown.
    further_counts : mapping of tuple of int to ndarray of int64
        By the ascending indices of other sets of variables, how many rows have which of their
        states, an axis for each; :meth:`fit_check` tests more pairs by them.
    marks : ndarray of bool, shape (d, d), optional
        Equivalence class of which the DAG is a member (see :mod:`core.graphs.equivalence`) where
        only the class is known. Default: the DAG is what is known.
    cuts : mapping of str to ndarray, optional
        Ascending cut points of the variables whose states are intervals of numbers. Numbers of rows
        and evidence are put into their intervals, those out of range into the outer ones.
    conditioned : bool, default False
        Whether this is the distribution of rows with states that other variables cause, see
        :meth:`conditional`: its edges are then not causal, and effects are refused.

    Raises
    ------
    DataError
        If names repeat, shapes do not fit, states repeat, parents form a cycle, or a table does not
        hold probabilities; the message names the variable.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.0, 1.0]])
    >>> states = (("no", "yes"), ("no", "yes"))
    >>> network = BayesianNetwork(("rain", "wet"), states, ((), (0,)), (rain, wet))
    >>> network.predict(pd.DataFrame({"wet": ["no", "yes"]}), "rain").tolist()
    ['no', 'yes']
    """

    KIND: ClassVar[str] = "Bayesian network"

    names: tuple[str, ...]
    states: tuple[tuple[Any, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[FloatArray, ...]
    sample_sizes: tuple[FloatArray, ...] | None = None
    equivalent_sample_size: float | None = None
    further_counts: Mapping[tuple[int, ...], IntArray] = field(default_factory=dict)
    marks: BoolArray | None = None
    cuts: Mapping[str, FloatArray] = field(default_factory=dict)
    conditioned: bool = False

    def __post_init__(self) -> None:
        names = distinct_names(self.names)
        parts = {"states": self.states, "parents": self.parents, "tables": self.tables}
        for part, values in parts.items():
            if len(values) != len(names):
                raise DataError(f"{len(values)} {part} for {len(names)} variables: give one each")
        states = tuple(tuple(map(plain_label, own)) for own in self.states)
        parents = tuple(tuple(int(parent) for parent in own) for own in self.parents)
        for name, own in zip(names, states, strict=True):
            if not 1 <= len(own) <= MAX_STATES or len(set(label_names(own))) < len(own):
                raise DataError(
                    f"variable {name!r} has {len(own)} states: expected 1 to {MAX_STATES}, all "
                    "different"
                )
        check_parents(names, parents)
        sizes = dict(zip(names, map(len, states), strict=True))
        tables = tuple(
            checked_table(name, table, table_shape(name, [len(states[k]) for k in (*own, j)]))
            for j, (name, own, table) in enumerate(zip(names, parents, self.tables, strict=True))
        )
        for name, value in (
            ("names", names),
            ("states", states),
            ("parents", parents),
            ("tables", tables),
            ("sample_sizes", checked_sizes(names, self.sample_sizes, tables)),
            ("marks", frozen_booleans("marks", self.marks, (len(names), len(names)))),
            ("cuts", {name: _checked_cuts(name, own, sizes) for name, own in self.cuts.items()}),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        num_edges = sum(len(own) for own in self.parents)
        return (
            f"<BayesianNetwork: {len(self.names)} variables, {num_edges} edges, "
            f"{self.num_parameters} parameters>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the variables and their states, and the drawing."""
        listed = list(zip(self.names, map(", ".join, self.state_names), strict=True))
        states = notebook.table(("variable", "states"), listed, "variables")
        return notebook.section(repr(self), states + self.graph._repr_html_())

    @property
    def graph(self) -> CausalGraph:
        """The DAG, each edge of weight 1; with `marks` it is one member of the class."""
        return CausalGraph(self.names, self._edges.astype(np.float64))

    @cached_property
    def state_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of each variable's states, as parties and files have them."""
        return tuple(map(label_names, self.states))

    @property
    def num_parameters(self) -> int:
        """Number of free probabilities in tables: r - 1 for each row of a table over r states."""
        return sum(table.size - table[..., 0].size for table in self.tables)

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Return the natural logarithm of the probability of each row.

        A number that was cut counts by its interval, whatever its width: this is no density, and a
        number far outside is as probable as others of the outer interval.

        Parameters
        ----------
        frame : DataFrame, array of shape (n, d), or DiscreteTable
            Columns are matched by name and may be in any order; other columns are ignored. The
            columns of an array are in the network's order. The weights of a `DiscreteTable` are
            ignored.

        Returns
        -------
        ndarray of float64, shape (n,)
            Minus infinity for a row of probability 0.

        Raises
        ------
        DataError
            If a variable is missing, or a value is not one of its states.
        """
        codes = codes_of(frame, self.names, self.state_names, self.cuts)
        total = np.zeros(codes.shape[1])
        for j, table in enumerate(self.tables):
            with np.errstate(divide="ignore"):
                logs = np.log(table)
            total += logs[tuple(codes[[*self.parents[j], j]])]
        return total

    def predict_proba(self, frame: Any, target: str) -> FloatArray:
        """Return the probability of each state of a variable given the rest of each row.

        Parameters
        ----------
        frame : DataFrame, or array of shape (n, d)
            Columns are found by name. Missing columns and missing values are summed out; a column
            of the target is not read.
        target : str
            The variable.

        Returns
        -------
        ndarray of float64, shape (n, states of the target)

        Raises
        ------
        DataError
            If the target is unknown, a value is not one of its variable's states, what is known of
            a row has probability 0, or a sum needs a table of more than 2^28 cells.
        """
        self._require("predict_proba")
        y = self._index(target)
        codes, seen = known_codes(frame, self.names, self.state_names, self.cuts, but=y)
        result = np.empty((codes.shape[1], len(self.states[y])))
        for pattern, rows in seen_patterns(seen):
            for part in np.split(rows, range(ROWS_AT_ONCE, len(rows), ROWS_AT_ONCE)):
                evidence = {int(v): codes[v, part] for v in np.flatnonzero(pattern)}
                result[part] = self._posterior(y, evidence, len(part))
        impossible = np.flatnonzero(np.isnan(result[:, 0]))
        if len(impossible):
            raise DataError(
                f"row {impossible[0]}: its values are impossible under the network, nothing "
                "follows from them; leave out the row, or one of the values"
            )
        return result

    def predict(self, frame: Any, target: str) -> NDArray[Any]:
        """Return the most probable state of a variable given the rest of each row, shape (n,).

        Parameters and errors are those of `predict_proba`.
        """
        self._require("predict")
        states = self.states[self._index(target)]
        return labelled(states, first_largest(self.predict_proba(frame, target), axis=1))

    def conditional(self, evidence: Mapping[str, Any]) -> BayesianNetwork:
        """Return the distribution of the other variables given the states of some.

        This is what is seen in rows with these states; see `do` for what happens if the states are
        set. Variables that are no ancestors of the evidence keep their parents. Ancestors get as
        parents those on which they depend given the evidence: their edges are not causal, and a
        network with ancestors refuses `do`, `total_effect`, `possible_effects` and `contrast`.

        Parameters
        ----------
        evidence : mapping of str to object
            States by variable.

        Raises
        ------
        DataError
            If a variable or a state is unknown, all variables are given, the evidence has
            probability 0, or a table would have more than 2^28 cells.
        """
        self._require("conditional")
        codes = self._codes(evidence)
        rest = [j for j in range(len(self.names)) if j not in codes]
        if not rest:
            raise DataError("the evidence gives all variables: nothing is left to describe")
        sizes = self._sizes()
        left = [inference.given(factor, codes) for factor in self._factors()]
        found = {}
        for v in reversed(topological_order(self._edges)):
            if v in codes:
                continue
            bucket = [factor for factor in left if v in factor.variables]
            left = [factor for factor in left if v not in factor.variables]
            scope = tuple(sorted({k for factor in bucket for k in factor.variables} - {v}))
            joint = inference.product(bucket, (*scope, v), sizes)
            total = joint.sum(axis=-1, keepdims=True)
            uniform = np.full(joint.shape, 1.0 / sizes[v])
            found[v] = scope, np.divide(joint, total, out=uniform, where=total > 0)
            # A variable's own table, which sums to 1, says nothing about its parents.
            if len(bucket) > 1:
                left.append(inference.Factor(scope, total[..., 0]))
        if any(factor.values == 0 for factor in left):
            raise DataError(f"the evidence has probability 0: {dict(evidence)}")
        new = {v: k for k, v in enumerate(rest)}
        return BayesianNetwork(
            tuple(self.names[v] for v in rest),
            tuple(self.states[v] for v in rest),
            tuple(tuple(new[k] for k in found[v][0]) for v in rest),
            tuple(found[v][1] for v in rest),
            cuts={name: own for name, own in self.cuts.items() if name not in evidence},
            conditioned=self.conditioned or any(set(self.parents[j]) - codes.keys() for j in codes),
        )

    def _lacks(self, question: str) -> str:
        if self.conditioned and question in CAUSAL:
            return (
                "this network describes rows with given states (conditional), and among the causes "
                "of these states its edges are not causal: ask the network that was conditioned, "
                "or condition it after do"
            )
        if question == "contrast" and self.sample_sizes is None:
            return (
                "this network has no numbers of rows, and standard errors need them: fit it to "
                "counts, or use total_effect, which has no standard errors"
            )
        return ""

    def do(self, states: Mapping[str, Any]) -> BayesianNetwork:
        """Return the network under an intervention that sets variables to states.

        Parameters
        ----------
        states : mapping of str to object
            States by variable.

        Returns
        -------
        BayesianNetwork
            The variables that are set have no parents and their state with probability 1.

        Raises
        ------
        DataError
            If a variable or a state is unknown.
        ConfigError
            If the network stands for an equivalence class (`marks`) that leaves open whether a
            variable that is set causes another one: see :meth:`possible_effects`; or if the
            network is `conditioned`.
        """
        self._require("do")
        codes = self._codes(states)
        return self._set(codes, after_intervention(self.marks, list(codes), self.names))

    def _set(self, codes: Mapping[int, int], marks: BoolArray | None = None) -> BayesianNetwork:
        """Return the network of the DAG in which variables are set to states, by their indices."""
        parents, tables = list(self.parents), list(self.tables)
        for j, code in codes.items():
            parents[j], tables[j] = (), np.eye(len(self.states[j]))[code]
        return BayesianNetwork(
            self.names, self.states, tuple(parents), tuple(tables), marks=marks, cuts=self.cuts
        )

    def total_effect(self, cause: str, effect: str) -> pd.DataFrame | list[pd.DataFrame]:
        """Return the distribution of a variable under each state to which another one is set.

        It follows from all tables of the network (Pearl's truncated product), which equals
        adjustment in the network's distribution for any adjustment set.

        Parameters
        ----------
        cause, effect : str
            Two different variables.

        Returns
        -------
        DataFrame or list of DataFrame
            A row for each state of the cause, a column for each state of the effect: the
            probability of the latter under ``do(cause=state)``. The rows are equal where the graph
            has no directed path. If the network stands for an equivalence class (`marks`) that
            leaves the effect open, the list of :meth:`possible_effects`.

        Raises
        ------
        DataError
            If a variable is unknown, or a sum needs a table of more than 2^28 cells.
        ConfigError
            If the two variables are the same, or the network is `conditioned`.
        """
        self._require("total_effect")
        i, j = pair_of(self.names, cause, effect)
        if self._is_open(i, j):
            return self.possible_effects(cause, effect)
        rows = [self._set({i: state})._joint([j]) for state in range(len(self.states[i]))]
        if not self._is_cause(i, j):
            rows = [self._joint([j])] * len(rows)
        return self._table(i, j, rows)

    def possible_effects(self, cause: str, effect: str) -> list[pd.DataFrame]:
        """Return the total effects in all DAGs that are equivalent to the network's (local IDA).

        The data alone cannot tell equivalent DAGs apart. Background knowledge of the run, which
        directs edges of the class (`marks`), leaves fewer of them.

        Parameters
        ----------
        cause, effect : str
            Two different variables.

        Returns
        -------
        list of DataFrame
            As `total_effect`, one for each set of parents that the cause has in an equivalent DAG:
            the network's distribution, adjusted for these (Maathuis, Kalisch & Bühlmann, 2009).
            The order does not depend on that of the columns, nor on their names.

        Raises
        ------
        DataError
            If a variable is unknown, or a sum needs a table of more than 2^28 cells.
        ConfigError
            If the two variables are the same, or the network is `conditioned`.
        """
        self._require("possible_effects")
        i, j = pair_of(self.names, cause, effect)
        return [table for _, table in self._possible(i, j)]

    def _possible(self, i: int, j: int) -> list[tuple[list[int] | None, pd.DataFrame]]:
        """Return for each adjustment set its variables (None without an effect) and the effect.

        The fewest parents come first. Of as many the order follows from the probabilities (rounding
        is no difference), and not from the order of the columns.
        """
        found = []
        marks = cpdag(self._edges) if self.marks is None else self.marks
        for parents, members in possible_parents(marks, i):
            adjusted: list[int] | None = None
            rows = [self._joint([j])] * len(self.states[i])
            if j not in parents and is_possible_cause(members, i, j):
                adjusted = parents
                joint = self._joint([*parents, i, j])
                share = joint.sum(axis=-1, keepdims=True)
                given = np.divide(joint, share, out=np.zeros_like(joint), where=share > 0)
                weights = joint.sum(axis=(-2, -1), keepdims=True)
                rows = list((given * weights).sum(axis=tuple(range(len(parents)))))
            place = (len(parents), np.round(rows, 9).ravel().tolist())
            found.append((place, adjusted, self._table(i, j, rows)))
        found.sort(key=lambda each: each[0])
        return [(adjusted, table) for _, adjusted, table in found]

    def contrast(
        self,
        cause: str,
        effect: str,
        outcome: Any,
        *,
        state: Any,
        reference: Any,
        level: float = 0.95,
    ) -> Effect | list[Effect]:
        """Return by how much setting the cause changes the probability of an outcome.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        outcome
            State of the effect.
        state, reference
            States of the cause.
        level : float, default 0.95
            Of the confidence interval.

        Returns
        -------
        Effect or list of Effect
            ``P(outcome | do(state)) - P(outcome | do(reference))``, from -1 to 1, with a standard
            error by the delta method from the posterior variances of the tables. Exactly 0 where
            the graph has no directed path. If the network stands for an equivalence class (`marks`)
            that leaves the effect open, one for each set of parents that the cause has in a DAG of
            the class, as :meth:`possible_effects`.

        Raises
        ------
        DataError
            If a variable or a state is unknown, or a sum needs a table of more than 2^28 cells.
        ConfigError
            If the two variables are the same, the level is not between 0 and 1, the network was
            not fitted to counts (`total_effect` needs none), or is `conditioned`.
        """
        self._require("contrast")
        i, j = pair_of(self.names, cause, effect)
        code = self._codes({effect: outcome})[j]
        set_to, instead = (self._codes({cause: value})[i] for value in (state, reference))
        assert self.sample_sizes is not None
        if self._is_open(i, j):
            return [
                NO_EFFECT
                if adjusted is None
                else self._adjusted(i, j, adjusted, (set_to, instead), code, level)
                for adjusted, _ in self._possible(i, j)
            ]
        if not self._is_cause(i, j):
            return NO_EFFECT
        worlds = [self._set({i: value}) for value in (set_to, instead)]
        value = float(np.subtract(*(world._joint([j])[code] for world in worlds)))
        variance = 0.0
        for k in np.flatnonzero(_with_ancestors(worlds[0].parents, [j])):
            if k != i:
                scope = list(dict.fromkeys((*self.parents[k], int(k), j)))
                # The derivative by an entry of the table, times the entry.
                change = np.subtract(*(world._joint(scope) for world in worlds))
                if k == j or j in self.parents[k]:
                    kept = np.arange(len(self.states[j])) == code
                    change = change * kept.reshape([-1 if v == j else 1 for v in scope])
                else:
                    change = change[..., code]
                variance += _spread(change, self.tables[k], self.sample_sizes[k])
        return estimated(value, float(np.sqrt(variance)), level)

    def _adjusted(
        self,
        cause: int,
        effect: int,
        adjusted: list[int],
        states: tuple[int, int],
        outcome: int,
        level: float,
    ) -> Effect:
        """Return the contrast of two states of a cause by adjustment for some variables."""
        assert self.sample_sizes is not None
        names = tuple(self.names[k] for k in adjusted)
        among = [*adjusted, cause, effect]
        joint = self._joint(among)
        both, weights = joint.sum(axis=-1), joint.sum(axis=(-2, -1))
        value, gradient = 0.0, np.zeros(joint.shape)
        for sign, state in zip((1.0, -1.0), states, strict=True):
            share = both[..., state]
            rates = np.stack([joint[..., state, outcome], weights])
            risk, ratio = np.divide(rates, share, out=np.zeros_like(rates), where=share > 0)
            value += sign * float((weights * risk).sum())
            gradient += sign * risk[..., None, None]
            gradient[..., state, outcome] += sign * ratio
            gradient[..., state, :] -= sign * (ratio * risk)[..., None]
        variance = 0.0
        for k in np.flatnonzero(_with_ancestors(self.parents, among)).tolist():
            family = [*self.parents[k], k]
            scope = list(dict.fromkeys((*family, *among)))
            axes = gradient.transpose(np.argsort([scope.index(v) for v in among]))
            shape = [len(self.states[v]) if v in among else 1 for v in scope]
            # The derivative by an entry of the table, times the entry.
            terms = self._joint(scope) * axes.reshape(shape)
            change = terms.sum(axis=tuple(range(len(family), len(scope))))
            variance += _spread(change, self.tables[k], self.sample_sizes[k])
        return estimated(value, float(np.sqrt(variance)), level, adjustment_set=names)

    @property
    def counts(self) -> tuple[FloatArray, ...] | None:
        """The counts to which the tables were fitted, in their shapes; None if unknown."""
        if self.sample_sizes is None or self.equivalent_sample_size is None:
            return None
        return tuple(
            np.maximum(
                np.rint(table * sizes[..., None] - self.equivalent_sample_size / table.size), 0
            )
            for table, sizes in zip(self.tables, self.sample_sizes, strict=True)
        )

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, by G tests on counts.

        Parameters
        ----------
        rows : DataFrame, array of shape (n, d), or DiscreteTable; optional
            Rows to test on. Default: the counts to which the network was fitted. They hold the
            tables of variables with their parents only, so that most pairs remain untested, but
            for those of ``further_counts``. After a search only rows that it has not seen give
            p-values that can be taken at their word.

        Returns
        -------
        FitCheck
            The held-out log-likelihood is that of the rows that are given; without any, of each row
            that the network was fitted to under the tables of all others, which counts suffice for.

        Raises
        ------
        DataError
            If a variable is missing, or a value is not one of its states.
        ConfigError
            If there are neither rows nor counts.
        """
        self._require("fit_check")
        if rows is not None:
            codes = codes_of(rows, self.names, self.state_names, self.cuts)
            weights = rows.weights if isinstance(rows, DiscreteTable) else None
            given = DiscreteTable(self.names, self.state_names, codes, weights)
            found = check(CountTests(self.names, partial(_tabulated, given)), self._edges)
            densities = self.log_likelihood(given)
            return found.with_rows(float(np.average(densities, weights=weights)))
        counts = self.counts
        if counts is None:
            raise ConfigError(
                "this network has no counts, which tests need: give rows, or fit it to counts"
            )
        assert self.equivalent_sample_size is not None
        held_out = sum(held_out_log_likelihood(own, self.equivalent_sample_size) for own in counts)
        mean = held_out / max(float(counts[0].sum()), 1.0) if counts else 0.0
        tests = CountTests(self.names, self._known_counts)
        return check(tests, self._edges, mean, "each row in turn")

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty without counts."""
        self._require("edge_tests")
        counts = self.counts
        if counts is None:
            return []

        def of_family(members: list[int]) -> FloatArray:
            axes = [*self.parents[members[-1]], members[-1]]
            return np.transpose(counts[members[-1]], [axes.index(k) for k in members])

        return edge_tests(CountTests(self.names, of_family, rows_a_cell=0), self._edges)

    def _known_counts(self, variables: list[int]) -> FloatArray | None:
        """Return the counts of variables that one of the tables holds together, else None."""
        families = [(*own, j) for j, own in enumerate(self.parents)]
        known: list[tuple[tuple[int, ...], NDArray[Any]]]
        known = list(zip(families, self.counts or (), strict=True))
        further = self._further_sets.get(frozenset(variables))
        if further is not None:
            known = [(further, self.further_counts[further])]
        for family, table in known:
            if set(variables) <= set(family):
                left = [k for k in family if k in variables]
                summed = table.sum(axis=tuple(a for a, k in enumerate(family) if k not in left))
                return np.asarray(summed.transpose([left.index(k) for k in variables]))
        return None

    @cached_property
    def _further_sets(self) -> dict[frozenset[int], tuple[int, ...]]:
        """By each subset of a set of `further_counts`, the set."""
        return {
            frozenset(one): own
            for own in self.further_counts
            for size in range(1, 1 + len(own))
            for one in combinations(own, size)
        }

    def _table(self, cause: int, effect: int, rows: Sequence[FloatArray]) -> pd.DataFrame:
        """Return probabilities of the effect's states as a frame, by the states of the cause."""
        import pandas as pd

        return pd.DataFrame(
            rows,
            index=pd.Index(list(self.states[cause]), name=self.names[cause]),
            columns=pd.Index(list(self.states[effect]), name=self.names[effect]),
        )

    @property
    def _edges(self) -> BoolArray:
        return parent_matrix(self.parents)

    def _index(self, name: str) -> int:
        return place_of(self.names, name)

    def _codes(self, values: Mapping[str, Any]) -> dict[int, int]:
        """Return the indices of states by the indices of their variables."""
        result = {}
        for name, value in values.items():
            j = self._index(name)
            known = self.state_names[j]
            code = code_of(value, known, self.cuts.get(name))
            if code is None:
                raise DataError(
                    f"{state_name(value)!r} is no state of {name!r}: {', '.join(known)}"
                )
            result[j] = code
        return result

    def _is_open(self, cause: int, effect: int) -> bool:
        """Whether the class leaves open how the cause acts on the effect."""
        marks = self.marks
        if marks is None or not is_possible_cause(marks, cause, effect):
            return False
        return not is_amenable(marks, cause, effect)

    def _is_cause(self, cause: int, effect: int) -> bool:
        return bool(_with_ancestors(self.parents, [effect])[cause])

    def _sizes(self) -> dict[int, int]:
        return {j: len(own) for j, own in enumerate(self.states)}

    def _factors(self) -> list[inference.Factor]:
        return [
            inference.Factor((*parents, j), table)
            for j, (parents, table) in enumerate(zip(self.parents, self.tables, strict=True))
        ]

    def _joint(self, variables: Sequence[int]) -> FloatArray:
        """Return the joint distribution of some variables, with an axis for each."""
        relevant = _with_ancestors(self.parents, variables)
        sizes, factors = self._sizes(), self._factors()
        left = [factors[k] for k in np.flatnonzero(relevant)]
        hidden = [int(k) for k in np.flatnonzero(relevant) if k not in variables]
        joint = inference.product(inference.eliminate(left, hidden, sizes), variables, sizes)
        return np.asarray(joint / joint.sum())

    def _posterior(
        self, target: int, evidence: Mapping[int, IntArray], num_rows: int
    ) -> FloatArray:
        """Return the probabilities of a variable's states given each row, NaN where impossible."""
        relevant = _with_ancestors(self.parents, [target, *evidence])
        sizes, factors, axis = self._sizes(), self._factors(), (inference.ROWS,)
        sizes[inference.ROWS] = num_rows
        left = [inference.given(factors[k], evidence, axis) for k in np.flatnonzero(relevant)]
        hidden = [int(k) for k in np.flatnonzero(relevant) if k != target and k not in evidence]
        left = inference.eliminate(left, hidden, sizes)
        values = inference.product(left, (*axis, target), sizes)
        total = values.sum(axis=1, keepdims=True)
        return np.asarray(values / np.where(total > 0, total, np.nan))

    def sample_table(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> DiscreteTable:
        """Sample independent rows as a `DiscreteTable` with the network's states.

        Parameters and errors are those of `sample`.
        """
        _check_rows(num_rows)
        rng = np.random.default_rng(seed)
        codes = np.zeros((len(self.names), num_rows), dtype=np.uint8)
        for j in topological_order(self._edges):
            cumulative = np.cumsum(self.tables[j], axis=-1)
            # After the division the cumulative probabilities end in exactly 1, and the random
            # numbers are below 1: no state of probability 0 is sampled.
            cumulative /= cumulative[..., -1:]
            bounds = cumulative[tuple(codes[list(self.parents[j])])]
            codes[j] = (rng.random((num_rows, 1)) >= bounds).sum(axis=-1)
        return DiscreteTable(self.names, self.state_names, codes)

    def sample(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> pd.DataFrame:
        """Sample independent rows; the same seed gives the same rows.

        Parameters
        ----------
        num_rows : int
            n, at least 0.
        seed : int, sequence of int, or numpy.random.Generator, optional
            Default: different rows with every call.

        Returns
        -------
        pandas.DataFrame
            n rows; the values are the labels of states, the columns in the network's order.

        Raises
        ------
        ConfigError
            If ``num_rows`` is negative.
        """
        import pandas as pd

        codes = self.sample_table(num_rows, seed).codes
        columns = {
            name: labelled(own, codes[j])
            for j, (name, own) in enumerate(zip(self.names, self.states, strict=True))
        }
        return pd.DataFrame(columns, columns=pd.Index(self.names))

    @classmethod
    def from_counts(
        cls,
        names: Sequence[str],
        states: Sequence[Sequence[Any]],
        parents: Sequence[Sequence[int]],
        counts: Sequence[ArrayLike],
        *,
        equivalent_sample_size: float,
        marks: BoolArray | None = None,
        cuts: Mapping[str, FloatArray] | None = None,
    ) -> BayesianNetwork:
        """Fit the probabilities of a given DAG to counts.

        Parameters
        ----------
        names, states, parents, marks, cuts
            See the parameters of the class.
        counts : sequence of array_like
            ``counts[j]`` has the shape of ``tables[j]``: the number of rows with each state of j
            and each configuration of its parents. These are results of `family_counts`, summed over
            parties.
        equivalent_sample_size : float
            Weight of the BDeu prior in rows, see `posterior_mean`.

        Raises
        ------
        DataError
            If counts are negative, not finite, or of another shape.
        ConfigError
            If the equivalent sample size is negative or not finite.
        """
        if len(counts) != len(names):
            raise DataError(f"{len(counts)} counts for {len(names)} variables: give one each")
        tables = [
            posterior_mean(name, given, equivalent_sample_size)
            for name, given in zip(names, counts, strict=True)
        ]
        rows = [np.asarray(given, dtype=np.float64).sum(axis=-1) for given in counts]
        return cls(
            tuple(names),
            tuple(tuple(own) for own in states),
            tuple(tuple(own) for own in parents),
            tuple(tables),
            tuple(own + equivalent_sample_size / own.size for own in rows),
            float(equivalent_sample_size),
            marks=marks,
            cuts=cuts or {},
        )

    def save(self, path: str | Path) -> None:
        """Write the network to a JSON file, without loss."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "names": list(self.names),
            "states": [list(own) for own in self.states],
            "parents": [list(own) for own in self.parents],
            "tables": [table.ravel().tolist() for table in self.tables],
        }
        if self.sample_sizes is not None:
            content["sample_sizes"] = [sizes.ravel().tolist() for sizes in self.sample_sizes]
        if self.equivalent_sample_size is not None:
            content["equivalent_sample_size"] = self.equivalent_sample_size
        if self.further_counts:
            content["further_counts"] = [
                [list(members), table.ravel().tolist()]
                for members, table in self.further_counts.items()
            ]
        if self.marks is not None:
            content["marks"] = self.marks.tolist()
        if self.conditioned:
            content["conditioned"] = True
        if self.cuts:
            content["cuts"] = {name: own.tolist() for name, own in self.cuts.items()}
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> BayesianNetwork:
        """Return the network of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, or holds no valid network.
        """
        content = read_record(path, "Bayesian network", FORMAT)
        with undamaged(path, "a damaged network"):
            names, states, parents = (content[key] for key in ("names", "states", "parents"))
            tables = [
                np.array(flat, dtype=np.float64).reshape([len(states[k]) for k in (*parents[j], j)])
                for j, flat in enumerate(content["tables"])
            ]
            rows, prior = map(content.get, ("sample_sizes", "equivalent_sample_size"))
            if rows is not None:
                rows = tuple(
                    np.reshape(np.array(flat, dtype=np.float64), table.shape[:-1])
                    for flat, table in zip(rows, tables, strict=True)
                )
            further = {
                tuple(members): np.array(flat, dtype=np.int64).reshape(
                    [len(states[k]) for k in members]
                )
                for members, flat in content.get("further_counts", ())
            }
        return cls(
            tuple(names),
            tuple(states),
            tuple(parents),
            tuple(tables),
            rows,
            prior,
            further,
            content.get("marks"),
            content.get("cuts", {}),
            content.get("conditioned", False) is True,
        )


def fit(
    table: DiscreteTable, adjacency: ArrayLike, *, equivalent_sample_size: float = 1.0
) -> BayesianNetwork:
    """Fit the probabilities of a given DAG to rows.

    Parameters
    ----------
    table : DiscreteTable
        The data.
    adjacency : array_like, shape (d, d)
        The DAG: non-zero at ``[i, j]`` where i causes j, in the order of the table's variables.
    equivalent_sample_size : float, default 1.0
        Weight of the BDeu prior in rows, see `posterior_mean`. The default is that of
        `scores.TableGains`.

    Raises
    ------
    DataError
        If the adjacency has a directed cycle or another shape than the table.
    ConfigError
        If the equivalent sample size is negative or not finite.
    """
    mask = np.asarray(adjacency) != 0
    d = len(table.names)
    if mask.shape != (d, d):
        raise DataError(f"the adjacency has shape {mask.shape}, expected {(d, d)}")
    parents = [np.flatnonzero(mask[:, j]).tolist() for j in range(d)]
    check_parents(table.names, parents)
    counts = [family_counts(table, j, parents[j]) for j in range(d)]
    return BayesianNetwork.from_counts(
        table.names, table.states, parents, counts, equivalent_sample_size=equivalent_sample_size
    )


def _checked_cuts(name: str, cuts: ArrayLike, sizes: Mapping[str, int]) -> FloatArray:
    """Return cut points as a read-only copy; a DataError if they do not fit the variable."""
    found = np.array(cuts, dtype=np.float64)
    fits = found.shape == (sizes.get(name, 0) - 1,) and np.isfinite(found).all()
    if not fits or (np.diff(found) <= 0).any():
        raise DataError(
            f"the cut points of {name!r} must be finite and ascending, one fewer than the states "
            "of a variable of this name"
        )
    found.setflags(write=False)
    return found


def _check_rows(num_rows: int) -> None:
    if num_rows < 0:
        raise ConfigError(f"the number of rows is {num_rows}: it must not be negative")


#: So many rows are predicted at a time, which bounds the memory.
ROWS_AT_ONCE = 4096


def _tabulated(table: DiscreteTable, variables: list[int]) -> FloatArray | None:
    """Return the counts of some variables, None where the table has more cells than rows."""
    cells = math.prod(len(table.states[k]) for k in variables)
    num_rows = table.codes.shape[1] if table.weights is None else int(table.weights.sum())
    if cells > min(num_rows, inference.MAX_CELLS):
        return None
    return family_counts(table, variables[-1], variables[:-1]).astype(np.float64)


def _with_ancestors(parents: Sequence[Sequence[int]], variables: Iterable[int]) -> BoolArray:
    """Return the mask of some variables and their ancestors, shape (d,)."""
    result = np.zeros(len(parents), dtype=bool)
    pending = list(variables)
    while pending:
        k = pending.pop()
        if not result[k]:
            result[k] = True
            pending += parents[k]
    return result


def _spread(change: FloatArray, table: FloatArray, sizes: FloatArray) -> float:
    """Return the variance of a function of a table, whose rows have Dirichlet distributions.

    Parameters
    ----------
    change : ndarray of shape (states of the parents..., r)
        The function's derivative by each entry, times the entry.
    table : ndarray of the same shape
        The means of the entries.
    sizes : ndarray of shape (states of the parents...)
        The weights of the rows of the table. They take the place of the Dirichlet's, which are
        larger by 1: the variance is then the same for all DAGs of a class.
    """
    squares = np.divide(change**2, table, out=np.zeros_like(change), where=table > 0)
    return float(((squares.sum(axis=-1) - change.sum(axis=-1) ** 2) / np.maximum(sizes, 1.0)).sum())
