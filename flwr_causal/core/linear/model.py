"""Linear systems ``x_j = intercept_j + sum_i x_i weights[i, j] + e_j`` on a DAG.

Given the graph, the maximum-likelihood fit is the least-squares regression of each variable on its
parents, which needs only the moments among the variable and its parents.

The functions for checks, density, columns and files also serve systems with lags
(:mod:`core.series.model`). They take any frozen dataclass with the fields ``names``, ``weights``
among the d variables (a DAG) and ``noise_variances``, and possibly further arrays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.graph import CausalGraph, distinct_names, pair_of
from flwr_causal.core.linear import effects, fit_check
from flwr_causal.core.linear.moments import Moments, by_variable, distinct
from flwr_causal.core.linear.parties import disagreement, left_out_log_likelihood
from flwr_causal.core.linear.regression import regress
from flwr_causal.core.saved import read_record
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.effect import Effect
    from flwr_causal.core.graphs.fit_check import FitCheck


#: Moments of the rows that inform about all variables, or of those that inform about each.
SampleMoments: TypeAlias = Moments | tuple[Moments, ...]

KIND = "linear model"
FORMAT = f"flwr-causal {KIND} 1"
FIELDS = ("weights", "intercepts", "noise_variances")


def least_squares(
    moments: Moments | Sequence[Moments], adjacency: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Regress every variable on its parents by least squares.

    Parameters
    ----------
    moments
        Moments of m variables, or one for each of the d: see
        :func:`~core.linear.moments.by_variable`. Those among a variable and its parents are read.
    adjacency
        ``(m, d)``: the parents of the first d variables.

    Returns
    -------
    weights, residual_variances
        ``(m, d)`` and ``(d,)``, see :func:`regress`.
    """
    parent_mask = np.asarray(adjacency) != 0
    weights = np.zeros(parent_mask.shape)
    variances = np.zeros(parent_mask.shape[1])
    for j, own in enumerate(by_variable(moments, len(variances))):
        parents = np.flatnonzero(parent_mask[:, j])
        weights[parents, j], variances[j] = regress(own.second, parents, j)
    return weights, variances


def refit(moments: Moments | Sequence[Moments], adjacency: ArrayLike) -> FloatArray:
    """Return the ``(d, d)`` least-squares weights of every variable on its parents.

    Only the moments among a variable and its parents are read; all others may be NaN.
    """
    return least_squares(moments, adjacency)[0]


def intercepts_of(moments: Moments | Sequence[Moments], weights: FloatArray) -> FloatArray:
    """Return the ``(d,)`` intercepts with which the noise has mean 0.

    Parameters
    ----------
    moments
        Moments of m variables, or one for each of the d.
    weights
        ``(m, d)``.
    """
    d = weights.shape[1]
    parts, own = distinct(by_variable(moments, d))
    levels = np.array([part.mean[:d] - part.mean @ weights for part in parts])
    return np.asarray(levels[own, np.arange(d)])


def fit(moments: Moments | Sequence[Moments], adjacency: ArrayLike) -> LinearModel:
    """Return the maximum-likelihood linear Gaussian system on a given DAG.

    Parameters
    ----------
    moments
        Moments of d variables, or one for each of them.
    adjacency
        ``(d, d)`` DAG: nonzero at ``[i, j]`` where i causes j.

    Raises
    ------
    DataError
        If the adjacency has a directed cycle or another shape than the moments.
    """
    mask = np.asarray(adjacency) != 0
    one = by_variable(moments, 1)[0]
    if mask.shape != one.second.shape:
        raise DataError(f"the adjacency has shape {mask.shape}, expected {one.second.shape}")
    if not is_acyclic(mask):
        raise DataError("the adjacency has a directed cycle: a linear model needs a DAG")
    weights, variances = least_squares(moments, mask)
    intercepts, rows = intercepts_of(moments, weights), sample_moments(moments)
    return LinearModel(one.names, weights, intercepts, variances, sample_moments=rows)


def sample_moments(moments: Moments | Sequence[Moments]) -> SampleMoments:
    """Return the moments of the rows that inform about all variables, or those of each variable."""
    own = by_variable(moments, 1)
    return own[0] if len(distinct(own)[0]) == 1 else tuple(own)


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel:
    """A linear system with Gaussian noise on a DAG; ``weights[i, j]`` is the effect of i on j.

    The arrays are stored as read-only float64 copies.

    Attributes
    ----------
    names
        Names of the d variables.
    weights
        ``(d, d)``, zero where there is no edge; the nonzeros form a DAG.
    intercepts
        ``(d,)``, in the units of each variable.
    noise_variances
        ``(d,)`` variances of the noise terms. Fitted variances have the divisor n.
    sample_moments
        Moments of the rows to which the system was fitted, which standard errors need; unknown
        second moments are NaN. Under interventions a tuple of moments, for each variable those of
        the rows in which it is no target. None if the parameters were given.
    marks
        ``(d, d)`` equivalence class of which the DAG is a member (see
        :mod:`core.graphs.equivalence`) where only the class is known; None for a DAG.
    party_moments
        By party, the moments of its rows; None where they are unknown: under secure aggregation,
        known interventions or a privacy wrapper, after a run was resumed, and in a model that was
        loaded: files do not hold them.
    held_out_log_likelihood
        Mean log density of each party's rows under the system that is fitted to all others', in
        nats a row. Default: :meth:`fit_check` computes it from ``party_moments``; files hold it.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, the weights have a directed cycle, or moments are of other variables.
    """

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray
    sample_moments: SampleMoments | None = None
    marks: BoolArray | None = None
    party_moments: Mapping[str, Moments] | None = None
    held_out_log_likelihood: float | None = None

    def __post_init__(self) -> None:
        d = len(self.names)
        shapes = {"weights": (d, d), "intercepts": (d,), "noise_variances": (d,)}
        freeze_parameters(self, KIND, shapes)
        check_origin(self, self.names)

    @property
    def graph(self) -> CausalGraph:
        """The DAG of the weights."""
        return CausalGraph(self.names, self.weights)

    def __repr__(self) -> str:
        return f"<LinearModel: {len(self.names)} variables, {self.graph.num_edges} edges>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the strongest edges, and the drawing."""
        return notebook.section(repr(self), self.graph._repr_html_())

    def mean(self) -> FloatArray:
        """Return the ``(d,)`` means of the variables."""
        return np.asarray(self._propagate(self.intercepts[None, :])[0], dtype=np.float64)

    def covariance(self) -> FloatArray:
        """Return the ``(d, d)`` covariance ``(I - W)^{-T} diag(noise) (I - W)^{-1}``."""
        root = self._propagate(np.diag(np.sqrt(self.noise_variances)))
        return np.asarray(root.T @ root, dtype=np.float64)

    def sample(self, n: int, seed: int | None = None) -> FloatArray:
        """Draw ``(n, d)`` independent rows; the same seed gives the same rows."""
        noise = np.random.default_rng(seed).standard_normal((n, len(self.names)))
        return self._propagate(self.intercepts + noise * np.sqrt(self.noise_variances))

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Return the natural logarithm of the density of each row, ``(n,)``.

        Parameters
        ----------
        frame
            A data frame with the model's variables, in any order and possibly with other columns,
            or an ``(n, d)`` array in the model's order.

        Raises
        ------
        DataError
            If variables are missing, or the noise variance of one is 0.
        """
        X = named_columns(frame, self.names, self.names)
        residuals = X - self.intercepts - X @ self.weights
        return log_density(residuals, self.noise_variances, self.names)

    def predict(self, frame: Any, target: str) -> FloatArray:
        """Return the conditional mean of ``target`` given its parents, ``(n,)``.

        Parameters
        ----------
        frame
            A data frame with the target's parents, or an ``(n, d)`` array of all variables in the
            model's order.
        target
            Name of the variable.

        Raises
        ------
        DataError
            If the target is unknown or a parent is missing.
        """
        if target not in self.names:
            raise DataError(f"unknown variable {target!r}; known are {', '.join(self.names)}")
        j = self.names.index(target)
        parents = np.flatnonzero(self.weights[:, j])
        X = named_columns(frame, [self.names[i] for i in parents], self.names)
        return np.asarray(X @ self.weights[parents, j] + self.intercepts[j], dtype=np.float64)

    def total_effect(
        self, cause: str, effect: str, *, level: float = 0.95, by_party: bool = False
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average for each unit by which the cause is raised.

        The estimate is the coefficient of the cause in the regression of the effect on the cause
        and the optimal adjustment set (:meth:`CausalGraph.adjustment_set`), with its classical
        standard error. If the moments of that regression are unknown (``notears-admm`` asks for few
        moments), or the rows differ between variables (interventions), it is the sum over directed
        paths of the products of their weights. Without a directed path it is exactly 0.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        level : float, default 0.95
            Of the confidence interval.
        by_party : bool, default False
            Whether the standard error allows for differences between parties in effects and noise
            (clustered by party; of few parties it is itself uncertain, and intervals are wide).

        Returns
        -------
        Effect or list of Effect
            In units of the effect per unit of the cause. If the model stands for an equivalence
            class (`marks`), the list of :meth:`possible_effects`.

        Raises
        ------
        DataError
            If a variable is unknown, rows are too few, or the cause is a linear function of the
            adjustment set.
        ConfigError
            If the model has no moments of rows, or with `by_party` none of two parties or more, or
            the level is not between 0 and 1.
        """
        rows, edges = required_moments(self), self.weights != 0
        if self.marks is not None and (isinstance(rows, Moments) or (self.marks != edges).any()):
            return self.possible_effects(cause, effect, level=level, by_party=by_party)
        i, j = pair_of(self.names, cause, effect)
        parties = parties_of(self, by_party)
        found = effects.total_effect(rows, edges, i, j, level, parties)
        if found is None:
            total = self._propagate(np.eye(len(self.names)))
            gradient = np.outer(total[i], total[:, j])
            found = effects.along_paths(rows, float(total[i, j]), gradient, edges, level, parties)
        return found if self.marks is None else [found]

    def possible_effects(
        self, cause: str, effect: str, *, level: float = 0.95, by_party: bool = False
    ) -> list[Effect]:
        """Return the total effects in the DAGs of the model's equivalence class (local IDA).

        There is an effect for each set of parents that the cause has in a DAG of the class, which
        are adjusted for (Maathuis, Kalisch & Bühlmann, 2009). Different sets may give the same
        effect. A model of a DAG has one set.

        Parameters and errors are those of :meth:`total_effect`; a DataError also if a moment is
        unknown.
        """
        i, j = pair_of(self.names, cause, effect)
        marks = self.weights != 0 if self.marks is None else self.marks
        return effects.possible_effects(
            common_moments(self), marks, i, j, level, parties_of(self, by_party)
        )

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, on second moments.

        Parameters
        ----------
        rows : DataFrame, or array of shape (n, d); optional
            Rows to test on, with the model's variables. Default: the moments of the rows to which
            the system was fitted. After a search only rows that it has not seen give p-values that
            can be taken at their word: a search removes what the same rows speak against.

        Returns
        -------
        FitCheck
            With `rows` also their mean log density; without, that of each party's rows under the
            system that is fitted to all others', where each party's moments are known.

        Raises
        ------
        DataError
            If variables are missing, or a value is no number.
        ConfigError
            If there are neither rows nor moments of rows.
        """
        if rows is None:
            edges = self.weights != 0
            return fit_check.check(required_moments(self), edges, held_out_of(self, edges))
        held_out = Moments.from_rows(named_columns(rows, self.names, self.names), self.names)
        return fit_check.on_rows(held_out, self.weights != 0, self.log_likelihood(rows))

    def disagreement(self) -> pd.DataFrame:
        """Compare each party with all others: effects along edges, means, standard deviations.

        Returns
        -------
        DataFrame
            See :func:`flwr_causal.core.linear.parties.disagreement`.

        Raises
        ------
        ConfigError
            If the moments of two parties or more are not known.
        """
        parties_of(self, by_party=True)
        assert self.party_moments is not None
        return disagreement(self.party_moments, self.weights != 0)

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty without moments of rows."""
        if self.sample_moments is None:
            return []
        return fit_check.edge_tests(self.sample_moments, self.weights != 0)

    def do(self, values: Mapping[str, float]) -> LinearModel:
        """Return the system under an intervention that sets variables to values.

        Parameters
        ----------
        values : mapping of str to float
            The variables that are set, in their units.

        Returns
        -------
        LinearModel
            The variables that are set have no parents and no noise. `mean`, `covariance`, `sample`
            and `predict` answer what happens; there is no density, and no standard error.

        Raises
        ------
        DataError
            If a variable is unknown, or a value is not a finite number.
        """
        weights, intercepts, noise = intervened(self, values, self.weights)
        return LinearModel(self.names, weights, intercepts, noise)

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        save_parameters(path, FORMAT, self, FIELDS, held_out_of(self, self.weights != 0))

    @classmethod
    def load(cls, path: str | Path) -> LinearModel:
        """Return the model of a file that :meth:`save` wrote; a DataError if it holds none."""
        return cls(**load_parameters(path, FORMAT, KIND, FIELDS))

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Solve ``x = rows + x W`` for every row."""
        system = np.eye(len(self.names)) - self.weights
        return np.asarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)


def freeze_parameters(system: Any, kind: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check a system's parameters and replace its arrays by read-only float64 copies.

    Parameters
    ----------
    system : dataclass
        A system with the fields ``names``, ``weights`` and ``noise_variances``.
    kind : str
        Name of the kind of system in messages, such as ``"linear model"``.
    shapes : mapping of str to tuple of int
        The shape of every array.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, or the weights have a directed cycle.
    """
    object.__setattr__(system, "names", distinct_names(system.names))
    for field, shape in shapes.items():
        given = getattr(system, field)
        expected = (
            f"{field} of a {kind} of {len(system.names)} variables must be finite numbers of shape "
            f"{shape}"
        )
        try:
            array = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{expected} ({error})") from error
        if array.shape != shape:
            raise DataError(f"{expected}, got shape {array.shape}")
        if not np.isfinite(array).all():
            place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"{expected}, got {array[place]} at {place}")
        array.flags.writeable = False
        object.__setattr__(system, field, array)
    if (system.noise_variances < 0).any():
        raise DataError("noise variances must not be negative")
    if not is_acyclic(system.weights):
        raise DataError(f"the weights have a directed cycle: a {kind} needs a DAG")


def check_origin(system: Any, columns: Sequence[str]) -> None:
    """Check what a system keeps of the rows that it was fitted to; freeze the marks.

    Parameters
    ----------
    system : dataclass
        A system with the fields ``sample_moments`` and ``marks``.
    columns : sequence of str
        The variables of the moments.

    Raises
    ------
    DataError
        If the moments are of other variables, or the marks have another shape than the weights.
    """
    rows = () if system.sample_moments is None else system.sample_moments
    for part in distinct(by_variable(rows, 1))[0]:
        if part.names != tuple(columns):
            raise DataError(f"the moments are those of {part.names}, expected {tuple(columns)}")
    if not isinstance(rows, Moments) and rows and len(rows) != len(system.names):
        raise DataError(f"{len(rows)} moments for {len(system.names)} variables: give one each")
    if system.marks is not None:
        marks = np.array(system.marks, dtype=bool)
        if marks.shape != system.weights.shape:
            raise DataError(
                f"the marks have shape {marks.shape}, expected {system.weights.shape}: give the "
                "class of the instantaneous edges"
            )
        marks.flags.writeable = False
        object.__setattr__(system, "marks", marks)


def required_moments(system: Any) -> SampleMoments:
    """Return the moments of the rows that a system was fitted to; a ConfigError if it has none."""
    rows: SampleMoments | None = system.sample_moments
    if rows is None:
        raise ConfigError(
            "this model has no moments of the rows it was fitted to, which standard errors and "
            "tests need: run moments, or notears-admm or 2dbn with search=True. The effect alone "
            "follows from model.do() without them"
        )
    return rows


def common_moments(system: Any) -> Moments:
    """Return the moments of rows that inform about all variables; a ConfigError if they differ."""
    rows = required_moments(system)
    if not isinstance(rows, Moments):
        raise ConfigError(
            "possible effects need rows that are the same for all variables, and under known "
            "interventions they differ: direct the edges by background knowledge"
        )
    return rows


def parties_of(system: Any, by_party: bool) -> list[Moments]:
    """Return the moments of each party's rows if they are wanted; a ConfigError if unknown."""
    if not by_party:
        return []
    parties: Mapping[str, Moments] | None = system.party_moments
    if parties is None or len(parties) < 2:
        raise ConfigError(
            "standard errors by party need the moments of each of two parties or more, which this "
            "model does not have: moments and lingam keep them in the process that ran them, "
            "without secure aggregation, known interventions or a privacy wrapper"
        )
    return list(parties.values())


def held_out_of(system: Any, edges: BoolArray) -> float | None:
    """Return a system's ``held_out_log_likelihood``, from its parties' moments if not given."""
    if system.held_out_log_likelihood is not None:
        return float(system.held_out_log_likelihood)
    return left_out_log_likelihood(list((system.party_moments or {}).values()), edges)


def intervened(
    system: Any, values: Mapping[str, float], *weights: FloatArray
) -> tuple[FloatArray, ...]:
    """Return a system's parameters under an intervention that sets variables to values.

    Parameters
    ----------
    system : dataclass
        A system with the fields ``names``, ``intercepts`` and ``noise_variances``.
    values : mapping of str to float
        The variables that are set.
    *weights : ndarray of shape (..., d, d)
        Effects on the variables.

    Returns
    -------
    tuple of ndarray
        The weights, the intercepts and the noise variances.

    Raises
    ------
    DataError
        If a variable is unknown, or a value is not a finite number.
    """
    unknown = [name for name in values if name not in system.names]
    if unknown:
        raise DataError(f"unknown variable {unknown[0]!r}; known are {', '.join(system.names)}")
    for name, value in values.items():
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise DataError(f"{name} is set to {value!r}: expected a finite number")
    targets = [system.names.index(name) for name in values]
    copies = [np.array(own) for own in (*weights, system.intercepts, system.noise_variances)]
    for own in copies:
        own[..., targets] = 0.0
    copies[-2][targets] = list(values.values())
    return tuple(copies)


def implied_noise(weights: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the noise variances with which a system has given variances.

    They need no covariances: with ``T = (I - W)^{-1}`` the variance of variable j is
    ``sum_i T[i, j]^2 noise_i``.

    Parameters
    ----------
    weights
        ``(d, d)`` W, of a DAG.
    variances
        ``(d,)`` of the variables.

    Returns
    -------
    ndarray of shape (d,)
        Not positive where the weights explain more than a variable's variance.
    """
    total = np.linalg.inv(np.eye(len(weights)) - weights)
    return np.asarray(np.linalg.solve((total**2).T, variances))


def log_density(residuals: FloatArray, variances: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return the Gaussian log density of each row, ``(n,)``, from the noise terms ``(n, d)``.

    The noise terms are independent, and ``det(I - W) = 1`` for an acyclic W. The density of a row
    is therefore the product of the densities of its noise terms.

    Raises
    ------
    DataError
        If the noise variance of a variable is 0.
    """
    silent = [name for name, variance in zip(names, variances, strict=True) if variance == 0]
    if silent:
        raise DataError(f"no density: the variables {silent} have zero noise variance")
    terms = -0.5 * (np.log(2 * np.pi * variances) + residuals**2 / variances)
    return np.asarray(terms.sum(axis=1), dtype=np.float64)


def named_columns(data: Any, wanted: Sequence[str], names: Sequence[str]) -> FloatArray:
    """Return columns of a table as an array.

    Parameters
    ----------
    data : DataFrame, or array of shape (n, len(names))
        The table. The columns of a frame are matched by name.
    wanted : sequence of str
        Names of the columns to return.
    names : sequence of str
        Names of the columns of an array.

    Raises
    ------
    DataError
        If columns are missing or do not hold numbers.
    """
    if hasattr(data, "columns"):
        present = [str(column) for column in data.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        return _numbers(data.iloc[:, [present.index(name) for name in wanted]])
    X = _numbers(data)
    if X.ndim != 2 or X.shape[1] != len(names):
        raise DataError(f"expected an array of {len(names)} columns, got shape {X.shape}")
    return X[:, [names.index(name) for name in wanted]]


def save_parameters(
    path: str | Path, form: str, system: Any, fields: Sequence[str], held_out: float | None
) -> None:
    """Write a system to a JSON file, without loss: names, the arrays ``fields``, and its origin."""
    content: dict[str, Any] = {"format": form, "names": list(system.names)}
    content |= {field: getattr(system, field).tolist() for field in fields}
    rows: SampleMoments | None = system.sample_moments
    if isinstance(rows, Moments):
        content["sample_moments"] = _plain(rows)
    elif rows is not None:
        parts, places = distinct(rows)
        by_variable = {"parts": [_plain(part) for part in parts], "places": places.tolist()}
        content["sample_moments_by_variable"] = by_variable
    if system.marks is not None:
        content["marks"] = system.marks.tolist()
    if held_out is not None:
        content["held_out_log_likelihood"] = held_out
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def load_parameters(
    path: str | Path, form: str, kind: str, fields: Sequence[str]
) -> dict[str, Any]:
    """Return what a file of :func:`save_parameters` holds, by field; arrays are not checked yet.

    Raises
    ------
    DataError
        If the file is not JSON, has another format, lacks a field, or holds damaged moments.
    """
    content = read_record(path, kind, form)
    wanted = ("names", *fields)
    missing = [field for field in wanted if field not in content]
    if missing:
        raise DataError(f"{path} holds a {kind} without {', '.join(missing)}: save it again")
    found = {field: content[field] for field in wanted}
    found |= {name: content.get(name) for name in ("marks", "held_out_log_likelihood")}
    rows, by_variable = map(content.get, ("sample_moments", "sample_moments_by_variable"))
    try:
        found["sample_moments"] = None if rows is None else _moments_of(**rows)
        if by_variable is not None:
            parts = [_moments_of(**part) for part in by_variable["parts"]]
            found["sample_moments"] = tuple(parts[place] for place in by_variable["places"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} holds damaged moments ({error}): save it again") from error
    return found


def _plain(rows: Moments) -> dict[str, Any]:
    """Return moments with the upper triangle of the second ones, row by row; JSON has no NaN."""
    upper = rows.second[np.triu_indices(rows.d)]
    return {
        "n": rows.n,
        "names": list(rows.names),
        "mean": rows.mean.tolist(),
        "second": [None if np.isnan(entry) else entry for entry in upper.tolist()],
    }


def _moments_of(n: int, names: list[str], mean: list[float], second: list[float | None]) -> Moments:
    """Return moments from the upper triangle of the second ones, None where unknown."""
    above = np.zeros((len(names), len(names)))
    above[np.triu_indices(len(names))] = np.array(second, dtype=np.float64)
    return Moments(n, np.array(mean), np.triu(above) + np.triu(above, 1).T, tuple(names))


def _numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the data are not all numbers ({error})") from error
