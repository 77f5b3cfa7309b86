"""The base of methods on numeric columns: common options, background knowledge, fitted systems."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.baselines import all_data, alone
from flwr_causal.core.linear.gaussian_scores import COLLINEAR
from flwr_causal.core.linear.model import LinearModel, fit, implied_noise
from flwr_causal.core.linear.moments import Moments, by_variable, data_scale, distinct
from flwr_causal.core.linear.order_search import order_search
from flwr_causal.core.series.design import (
    companion_radius,
    knowledge_masks,
    lagged_names,
    stacked_edges,
)
from flwr_causal.core.series.model import LaggedModel, fit_lagged
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.agreement import Agreement, pool
from flwr_causal.data.check.party_table import prepare
from flwr_causal.data.check.plausibility import SAME_UNITS, Expected
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import SERIES
from flwr_causal.data.series.series import Layout
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.runtime.combining import LEAST_FOR_MEDIAN
from flwr_causal.runtime.method import StateT
from flwr_causal.strategies.base import Baselines, CausalStrategy
from flwr_causal.strategies.options import MOST, refuse_ignored, require
from flwr_causal.strategies.plausibility import (
    UNEQUAL_IMPLIED,
    UNEQUAL_NOISE,
    direction_warning,
    negligible,
    negligible_warning,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.strategies.base import RunAlone


# Values of ``center`` without lags, and with them.
WITHOUT_TIME, OF_SERIES = ("global", "party"), ("global", "series", "phase")
# Values of ``center`` that subtract the means of units of their own, with the name of such a unit.
OWN_LEVELS = {"party": "party", "series": "series"}


@dataclass(kw_only=True, eq=False)
class LinearStrategy(CausalStrategy[StateT]):
    """Base of the methods whose model is a linear system over the agreed columns.

    Parameters
    ----------
    standardize : bool, default False
        Divide every column by its standard deviation over the rows of all parties. Raw units can
        reveal the causal order (varsortability), or hide it. The graph's weights are then in
        standard deviations; ``run.model`` is in the units of the data.
    center : {"global", "party"}, default "global"
        Subtract the mean over the rows of all parties, or each party's own mean (the papers').
        "global" needs no further exchange and loses no information when parties have few rows;
        "party" is right when parties differ in level.
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out (Zheng et al. 2018, section 5).
    knowledge : Knowledge, str or None
        Required and forbidden edges and tiers, or the path of a TOML or JSON file with them.
    aggregation : {"mean", "median"}, default "mean"
        How the parties' arrays are combined. "median" is the geometric median, which false arrays
        of a minority of the parties cannot move far; it needs three parties or more and their
        single replies (with ``secure_aggregation`` three ``groups``), and no privacy wrapper. See
        docs/how_to/false_parties.md.
    """

    standardize: bool = False
    center: Literal["global", "party"] = "global"
    threshold: float = 0.3
    knowledge: Knowledge | str | None = None
    aggregation: Literal["mean", "median"] = "mean"

    def validate(self) -> None:
        """Check the options' values, and read the file of background knowledge."""
        super().validate()
        limit: float | None = self.threshold
        require(limit is None or limit >= 0, "threshold", limit, "0 or more")
        if isinstance(self.knowledge, str):
            self.knowledge = Knowledge.load(self.knowledge) if self.knowledge else None

    @property
    def client_options(self) -> dict[str, Scalar]:
        """Options by which the parties center and scale their rows."""
        return {"center": self.center, "standardize": self.standardize}

    @property
    def with_secure_aggregation(self) -> dict[str, tuple[bool, str]]:
        """Which options fit secure sums; rows without a perturbation are counted by party."""
        return {
            **super().with_secure_aggregation,
            "center": (self.center in ("global", *OWN_LEVELS), "'global' or 'series'"),
            "aggregation": (
                self.aggregation == "mean" or self.groups != 1,
                "'mean', or groups given,",
            ),
        }

    @property
    def fewest_groups(self) -> int:
        """Three for a median, and one more where one is left out."""
        if self.aggregation == "mean":
            return super().fewest_groups
        return LEAST_FOR_MEDIAN + self.leave_one_out

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; for units centred by their own means, with variances within units.

        Raises
        ------
        ConfigError
            If there are too few parties for a median.
        DataError
            As in the base class, or if a column varies only between the units.
        """
        asked = max(1, round(self.fraction_train * len(reports)))
        if self.aggregation == "median" and asked < LEAST_FOR_MEDIAN:
            raise ConfigError(
                f"The option 'aggregation' is 'median', which needs the replies of at least "
                f"{LEAST_FOR_MEDIAN} parties in an exchange, not {asked}: of two, none can be told "
                "to be the false one. Use 'mean', or connect more parties."
            )
        if self.aggregation == "median" and self.leave_one_out and asked == LEAST_FOR_MEDIAN:
            raise ConfigError(
                "The option 'leave_one_out' with aggregation='median' needs the replies of at "
                f"least {asked + 1} parties in an exchange, not {asked}: {asked} without the party "
                "that is left out. Leave the option out, or connect more parties."
            )
        agreement = super().agree(reports)
        if not self.within_parties or self.secure_aggregation:
            return agreement
        variance = variance_within(reports, agreement)
        self._check_within(agreement.names, variance)
        return replace(agreement, variance=variance)

    def complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement with the numbers of all rows.

        Raises
        ------
        DataError
            As :meth:`agree`.
        """
        if self.within_parties:
            self._check_within(agreement.names, pool({"": total}, agreement.names)[1])
        return super().complete(agreement, total, groups)

    @property
    def within_parties(self) -> bool:
        """Whether columns are centred by means of parties or of series."""
        return self.center in OWN_LEVELS

    def _check_within(self, names: Sequence[str], variance: FloatArray) -> None:
        """Check that every column varies within some unit that has a level of its own."""
        flat = [name for name, v in zip(names, variance, strict=True) if not v > 0]
        if flat:
            raise DataError(
                f"column {flat[0]!r} does not vary within any {OWN_LEVELS[self.center]}, only "
                "between them: leave it out, or use center='global'"
            )

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge as masks over the agreed columns."""
        return (self.knowledge_or_none or Knowledge()).masks(agreement.names)

    @property
    def knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge, read from its file if a path was given."""
        return None if isinstance(self.knowledge, str) else self.knowledge

    @property
    def knowledge_text(self) -> str:
        """The background knowledge as JSON for the parties; empty without any."""
        knowledge = self.knowledge_or_none
        return json.dumps(knowledge.to_dict()) if knowledge else ""

    def scale(self, agreement: Agreement) -> FloatArray:
        """Return the divisors of the columns, shape (d,)."""
        ones = np.ones(len(agreement.names))
        return np.sqrt(agreement.variance) if self.standardize else ones

    def noise_scale(self, agreement: Agreement) -> float:
        """Return the variance in whose units the automatic penalties and sparsity are stated."""
        return data_scale(agreement.variance / self.scale(agreement) ** 2)

    def fitted_system(
        self,
        agreement: Agreement,
        moments: Moments | Sequence[Moments],
        adjacency: NDArray[np.bool_],
    ) -> LinearModel:
        """Return the least-squares system of a graph in the units of the data.

        Parameters
        ----------
        agreement : Agreement
        moments : Moments or sequence of Moments
            Moments of the centred and scaled rows, or one for each variable; only entries within
            families (a variable and its parents) are read.
        adjacency : ndarray of bool, shape (d, d)
        """
        return fit(in_units(moments, agreement.mean, self.scale(agreement)), adjacency)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs of a search over orders, which takes less than this method may take.

        None for time series, whose baselines are in ``simulations/scenarios/baselines.py``.
        """
        if self.data is DataKind.SERIES:
            return None
        rows = [prepare(table, names, self.policy) for table in tables]
        if self.standardize:
            scale = np.concatenate(rows).std(axis=0)
            rows = [part / scale for part in rows]
        parties = [Moments.from_rows(part, names) for part in rows if len(part)]
        with single_threaded():
            pooled = all_data(parties, order_search)
            return Baselines(pooled, alone(parties, order_search), "order search")

    @property
    def expected(self) -> Expected:
        """One unit of each column, comparable columns, one level, more rows than columns."""
        return Expected(
            unit_ratio=SAME_UNITS,
            level_remedy="set center='party'" if self.center == "global" else "",
            raw_units=not self.standardize,
            columns=1,
        )

    def units(self, agreement: Agreement) -> FloatArray:
        """Return what makes a weight of i on j a number without a unit, shape (d, d)."""
        spread = np.sqrt(agreement.variance) / self.scale(agreement)
        return spread[:, None] / spread

    def plausible(
        self, graph: CausalGraph, units: FloatArray | float, masks: EdgeMasks
    ) -> tuple[CausalGraph, list[str]]:
        """Return a graph without its edges of next to no strength, and a warning of these.

        Parameters
        ----------
        graph : CausalGraph
        units : ndarray of shape (d, d), or float
            Usually :meth:`units`; 1 where strengths have no unit.
        masks : EdgeMasks
            Over the columns of the design; required edges stay.
        """
        weak = negligible(graph, units, masks.required)
        return without(graph, weak), negligible_warning(graph, weak)

    def doubtful_directions(
        self,
        agreement: Agreement,
        graph: CausalGraph,
        masks: EdgeMasks,
        model: LinearModel | LaggedModel | None,
        search: OrderSolution | None = None,
    ) -> list[str]:
        """Warn of directions of linear effects that rest on the columns' units.

        Without a fitted model the noise variances follow from the weights, where there are no lags.
        """
        noise, unequal = None, UNEQUAL_NOISE
        if model is None and graph.lagged is None:
            variance = agreement.variance / self.scale(agreement) ** 2
            noise, unequal = implied_noise(graph.weights, variance), UNEQUAL_IMPLIED
        if model is not None:
            noise = model.noise_variances / self.scale(agreement) ** 2
            noise = np.where(model.noise_variances > COLLINEAR * agreement.variance, noise, 0.0)
        return direction_warning(
            graph,
            masks,
            noise,
            standardized=self.standardize,
            unequal=unequal,
            search=search,
        )


def in_units(
    moments: Moments | Sequence[Moments], level: FloatArray, scale: FloatArray
) -> list[Moments]:
    """Return the moments of each variable in the units of the data.

    Parameters
    ----------
    moments : Moments or sequence of Moments
        Moments of rows centred by ``level`` and divided by ``scale``, or one for each variable.
    level, scale : ndarray of shape (m,)
        Of the moments' first m columns; further columns are left out.
    """
    m = len(level)
    parts, own = distinct(by_variable(moments, m))
    units = np.outer(scale, scale)
    converted = [
        Moments(part.n, level + part.mean[:m] * scale, part.second[:m, :m] * units, part.names[:m])
        for part in parts
    ]
    return [converted[place] for place in own]


def variance_within(reports: Mapping[str, TableReport], agreement: Agreement) -> FloatArray:
    """Return each column's variance within parties, weighted by their rows, shape (d,)."""
    shares = np.array(list(agreement.rows.values())) / agreement.n
    within = [pool({name: report}, agreement.names)[1] for name, report in reports.items()]
    return np.asarray(shares @ np.array(within))


# Measured on the paper's 28 settings: summed SHD of W + A by 2Dbn in 25 rounds 104.8 (seeds 0-4)
# and 109.6 (seeds 3000-3004); with the factor 1 it is 116.6 and 117.6, and 2 is no better than 1.6.
# The moments method gains as much.
LAGGED_FACTOR = 1.6
# Spectral radius from which a fit is reported. Measured: at least 0.998 for random walks (200
# steps), at least 0.99 for linear trends (0.92 for 50 steps), at most 0.86 for the paper's
# stationary systems.
HARDLY_STATIONARY = 0.95
# Fewest rows for each column of the design: of 3 rows a column, fits of the paper's stationary
# systems have a radius of up to 1.08 (40 seeds), of 13 up to 0.82.
ROWS_TO_TELL = 4


@dataclass(kw_only=True, eq=False)
class SeriesOptions:
    """Options of the strategies on time series.

    A row of the lagged design is [x_t, x_{t-1}, ..., x_{t-p}], with m = d (1 + p) columns.

    Parameters
    ----------
    order : int, default 1
        p, the number of lags.
    lagged_threshold : float, optional
        Lagged edges of absolute weight up to this are left out. Default: ``threshold``.
    lagged_sparsity : float, optional
        Sparsity of the lagged weights in units of that of the instantaneous weights. Default: 1, as
        in the paper, if the sparsity is a number or the paper's; 1.6, measured, if it is computed
        from the data.
    series_column : str, default ""
        The column whose values identify a party's series; they never leave the party. Default: a
        table is one series, and a list of tables is several.
    time_column : str, default ""
        The column of times, ascending in equal steps within a series. Default: the rows of a series
        are successive steps.
    gaps : {"fail", "split"}, default "fail"
        At a longer step or a missing value: raise an error, or begin a new series.
    phase_column : str, default ""
        The column that marks rows under a known perturbation, for ``center="phase"``.
    perturbed_from, perturbed_to : float, optional
        Instead of ``phase_column``: the times between which all series are perturbed, both
        included.
    """

    order: int = 1
    lagged_threshold: float | None = None
    lagged_sparsity: float | None = None
    series_column: str = ""
    time_column: str = ""
    gaps: Literal["fail", "split"] = "fail"
    phase_column: str = ""
    perturbed_from: float | None = None
    perturbed_to: float | None = None

    def validate_series(self, center: str) -> None:
        """Check the options' values, and that they fit the option ``center``.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        limit = self.lagged_threshold
        require(limit is None or limit >= 0, "lagged_threshold", limit, "0 or more")
        factor = self.lagged_sparsity
        require(factor is None or factor >= 0, "lagged_sparsity", factor, "0 or more")
        both = (self.perturbed_from is None) == (self.perturbed_to is None)
        require(both, "perturbed_to", self.perturbed_to, "given with perturbed_from")
        marked = bool(self.phase_column) or self.perturbed_from is not None
        require(center != "phase" or marked, "center", center, "given with phase_column")
        _ = self.layout

    @property
    def data(self) -> DataKind:
        """Time series, or rows without time if the order is 0."""
        return DataKind.SERIES if self.order else DataKind.LINEAR

    @property
    def layout(self) -> Layout:
        """The options as the layout of the parties' tables, checked."""
        times = self.perturbed_from, self.perturbed_to
        return Layout(
            series_column=self.series_column,
            time_column=self.time_column,
            gaps=self.gaps,
            phase_column=self.phase_column,
            perturbed=None if times[0] is None or times[1] is None else (times[0], times[1]),
            order=self.order,
        )

    @property
    def layout_options(self) -> dict[str, Scalar]:
        """The options as plain values for the parties."""
        start, end = self.perturbed_from, self.perturbed_to
        return {
            "order": self.order,
            "series-column": self.series_column,
            "time-column": self.time_column,
            "gaps": self.gaps,
            "phase-column": self.phase_column,
            "perturbed-from": "" if start is None else repr(start),
            "perturbed-to": "" if end is None else repr(end),
        }

    @property
    def series_columns(self) -> tuple[str, ...]:
        """The columns of series, times and phases, which are not variables."""
        return (SERIES, *(name for name in self.layout.columns if name))

    def lagged_factor(self, *, automatic: bool) -> float:
        """Return the factor on the sparsity of lagged weights."""
        default = LAGGED_FACTOR if automatic else 1.0
        return default if self.lagged_sparsity is None else self.lagged_sparsity

    def limits(self, threshold: float) -> tuple[float, float]:
        """Return the thresholds of instantaneous and of lagged edges."""
        lagged = self.lagged_threshold
        return threshold, threshold if lagged is None else lagged


def expected_of_series(expected: Expected, order: int) -> Expected:
    """Return what is taken for granted of series with lags, given that of rows without time."""
    remedy = expected.level_remedy and "set center='series'"
    return replace(expected, columns=1 + order, level_remedy=remedy) if order else expected


@dataclass(kw_only=True, eq=False)
class RowsOrSeries(SeriesOptions, LinearStrategy[StateT]):
    """Base of the methods on rows without time or, with an ``order``, on time series.

    Parameters
    ----------
    order : int, default 0
        p, the number of lags; 0 is for rows without time. The options of
        :class:`~flwr_causal.strategies.linear.SeriesOptions` have an effect with an order only.
    center : {"global", "party", "series", "phase"}, default "global"
        "party" is for rows without time; "series" and "phase" are for series, see
        :class:`~flwr_causal.strategies.two_dbn.TwoDBN`.
    """

    order: int = 0
    center: Literal["global", "party", "series", "phase"] = "global"  # type: ignore[assignment]

    def validate_center(self, *lagged: str) -> None:
        """Check that centring and options for series fit the order.

        Parameters
        ----------
        *lagged : str
            Names of the method's own options that have an effect with an order only.
        """
        known = OF_SERIES if self.order else WITHOUT_TIME
        condition = f"{' or '.join(map(repr, known))} with order {self.order}"
        require(self.center in known, "center", self.center, condition)
        if self.order:
            self.validate_series(self.center)
        else:
            of_series = (*lagged, *(option.name for option in fields(SeriesOptions)))
            refuse_ignored(self, dict.fromkeys(of_series, "time series (order=1 or more)"))

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns of series, times and phases, which are not variables; none without lags."""
        return (*super().role_columns, *(self.series_columns if self.order else ()))

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """How the parties find and centre their rows or series."""
        return {**super().schema_options, **self.layout_options, "center": self.center}

    @property
    def expected(self) -> Expected:
        """One unit and level of each column, more steps than columns with their lags."""
        return expected_of_series(super().expected, self.order)

    def with_parties(
        self,
        state: StateT,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return a linear system with each party's moments in the units of the data.

        Not where the number of lags was chosen, whose moments are of other rows.
        """
        agreement: Agreement = state.agreement  # type: ignore[attr-defined]
        if model is None or not replies or not isinstance(model.sample_moments, Moments):
            return model
        columns = lagged_names(agreement.names, self.order)
        if model.sample_moments.names != columns:
            return model
        scale = self.scale(agreement)
        found = {}
        for party, arrays in replies.items():
            products = self.folds_of(arrays["moments"]).sum(axis=0)
            if self.order:
                if not (products[0, 0] > 0 and products[1, 1] > 0):
                    continue  # a reply that is false: the products of no rows
                (own,) = series_moments(products[None], agreement.rows[party], columns)
            else:
                own = self._own_moments(agreement, products, reports[party])
            level, units = (np.tile(v, 1 + self.order) for v in (agreement.mean, scale))
            found[party] = in_units(own, level, units)[0]
        return replace(model, party_moments=found)

    def folds_of(self, products: FloatArray) -> FloatArray:
        """Return those of a party's arrays that are folds of its rows."""
        return products

    def _own_moments(
        self, agreement: Agreement, second: FloatArray, report: TableReport
    ) -> Moments:
        """Return a party's moments, centred and scaled as its rows are, from those about the mean.

        With ``center="party"`` the rows of all parties have the same mean, 0.
        """
        shift = np.zeros(len(agreement.names))
        if self.center == "global":
            mean = {column.name: column.mean for column in report.columns}
            own = np.array([mean[name] for name in agreement.names])
            shift = (own - agreement.mean) / self.scale(agreement)
        return Moments(report.rows, shift, second - np.outer(shift, shift), agreement.names)

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the columns or, with lags, the lagged design."""
        if self.order == 0:
            return super().masks(agreement)
        return knowledge_masks(self.knowledge_or_none, agreement.names, self.order)


def series_moments(products: FloatArray, num_rows: int, columns: tuple[str, ...]) -> list[Moments]:
    """Return the moments of each fold's rows from its products of [1, g, z].

    All folds are centred by the same means of z, the means over all rows with g = 1, so that
    held-out rows are compared with the intercept of all rows, not of the other folds.

    Parameters
    ----------
    products : ndarray of shape (folds, 2 + m, 2 + m)
        Products of the rows [1, g, z] with z centred and scaled, and g = 1 for rows that are
        centred by the agreed mean, summed over each fold and divided by n.
    num_rows : int
        n, the divisor of the products.
    columns : tuple of str
        Names of the m columns.
    """
    level = products[:, 1, 2:].sum(axis=0) / products[:, 1, 1].sum()
    folds = []
    for fold in products:
        share, sharing, own = fold[0, 0], fold[1, 1], fold[1, 2:]
        if share == 0:
            continue
        about = np.outer(level, own)
        second = fold[2:, 2:] - about - about.T + sharing * np.outer(level, level)
        folds.append(Moments(round(num_rows * float(share)), level, second / share, columns))
    return folds


def by_block(now: float, lagged: float, num_variables: int, order: int) -> FloatArray:
    """Return ``now`` for the columns at t and ``lagged`` for those of the lags, shape (m, 1)."""
    return np.repeat([now, lagged], [num_variables, num_variables * order])[:, None]


def stationarity_warning(graph: CausalGraph, num_rows: int) -> list[str]:
    """Warn if the system of a graph's weights is not, or hardly, stationary.

    Nothing is said of fits to few rows, whose radius is uncertain.
    """
    if graph.lagged is None or num_rows < ROWS_TO_TELL * len(stacked_edges(graph)):
        return []
    radius = companion_radius(graph.weights, graph.lagged)
    if radius < HARDLY_STATIONARY:
        return []
    word = "not" if radius >= 1 else "hardly"
    return [
        f"The fitted system is {word} stationary (spectral radius {radius:.3f}, stationary below "
        "1): the series may have trends or be random walks, for which regressions find spurious "
        "effects. Take differences, or use center='series' if only the series' levels differ."
    ]


def system_of_series(
    agreement: Agreement,
    scale: FloatArray,
    moments: Moments | Sequence[Moments],
    graph: CausalGraph,
) -> LaggedModel:
    """Return the least-squares system of a graph with lags, in the data's units.

    Parameters
    ----------
    agreement : Agreement
        Columns and means.
    scale : ndarray of shape (d,)
        Divisors of the variables.
    moments : Moments or sequence of Moments
        Moments of the m columns, centred and scaled, or one for each variable; only entries within
        families are read.
    graph : CausalGraph
    """
    edges, d = stacked_edges(graph), len(agreement.names)
    level, units = (np.tile(values, len(edges) // d) for values in (agreement.mean, scale))
    return fit_lagged(in_units(moments, level, units)[:d], edges, d)


@dataclass(kw_only=True, eq=False)
class PerceptronOptions:
    """Options of ``model="mlp"``, which needs torch.

    Parameters
    ----------
    hidden : int, default 10
        Hidden units of a perceptron (Zheng et al. 2020).
    inner_steps : int, default 100
        Largest number of L-BFGS steps of a party in a round.
    device : str, default "cpu"
        Torch device: "cpu", "cuda", "cuda:1", ...
    arithmetic : {"float64", "float32"}, default "float64"
        Floating-point type of torch's computations.
    """

    hidden: int = 10
    inner_steps: int = 100
    device: str = "cpu"
    arithmetic: Literal["float64", "float32"] = "float64"

    def validate_perceptrons(self) -> None:
        """Check the options' values.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        for name in ("hidden", "inner_steps"):
            value = getattr(self, name)
            require(1 <= value <= MOST, name, value, f"from 1 to {MOST}")
        known = re.fullmatch(r"cpu|cuda(:\d{1,3})?", self.device) is not None
        require(known, "device", self.device, "'cpu', 'cuda' or 'cuda:<index>'")

    @property
    def perceptron_options(self) -> dict[str, Scalar]:
        """The options as plain values for the parties."""
        return {
            "hidden": self.hidden,
            "inner-steps": self.inner_steps,
            "device": self.device,
            "arithmetic": self.arithmetic,
        }


#: The names of the options in :class:`PerceptronOptions`.
PERCEPTRONS = tuple(field.name for field in fields(PerceptronOptions))
