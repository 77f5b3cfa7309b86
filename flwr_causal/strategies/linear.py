"""The methods on numeric columns: common options, interventions, fitted systems."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.blocks.design import Design
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge, as_knowledge
from flwr_causal.core.linear.baselines import all_data, alone
from flwr_causal.core.linear.gaussian_scores import COLLINEAR
from flwr_causal.core.linear.moments import (
    SampleMoments,
    data_scale,
    distinct,
    moments_of_variables,
)
from flwr_causal.core.linear.regression import implied_noise
from flwr_causal.core.linear.stability import order_search
from flwr_causal.core.options import MOST, bounded, require
from flwr_causal.core.parts import Part, all_but, option, unmet, words
from flwr_causal.core.series.design import knowledge_masks, stacked_edges
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.agreement import Agreement, pool
from flwr_causal.data.check.party_table import prepare
from flwr_causal.data.check.report import TotalReport
from flwr_causal.data.interventions import by_party
from flwr_causal.data.series.levels import OWN_LEVELS, require_varying
from flwr_causal.doubts.graphs import UNEQUAL_IMPLIED, UNEQUAL_NOISE, doubts_of
from flwr_causal.doubts.tables import RANKS, SAME_UNITS, Expected, doubts_by, reported_relations
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.runtime.options import Baselines, CausalOptions
from flwr_causal.runtime.round import LEAST_FOR_MEDIAN
from flwr_causal.strategies.levels import (
    draw_parties,
    take_levels_out,
    take_series_levels_out,
    take_total_levels_out,
)
from flwr_causal.strategies.options import refuse_misfits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport


#: Replicates are of some of the parties where there are at least so many.
FEWEST_TO_DRAW = 4


@dataclass(frozen=True, kw_only=True)
class Acted(Part):
    """Known interventions on columns, which the options or some nodes state.

    Parameters
    ----------
    interventions : dict or str, optional
        From a party's name (in a simulation also its number) to the columns that interventions set
        or changed in all its rows; or such a mapping as JSON text. The rows then say nothing about
        what causes these columns. A node may state its own columns in its node config,
        ``interventions='x,y'``.
    intervention_column : str, default ""
        The column whose values name the columns on which an intervention acted in each row,
        separated by commas; empty where there was none. It is no variable.
    """

    text = "interventions"
    gives = all_but("centring", "levels", "median", "folds", "observed")

    interventions: dict[Any, Any] | str | None = option(None, needs="sets")
    intervention_column: str = option("", needs=("sets", "reports"))


class Median(Part):
    """A geometric median of the parties' arrays in place of their mean."""

    text = "aggregation='median'"
    gives = all_but("exact")


@dataclass(frozen=True, kw_only=True)
class LinearOptions(CausalOptions):
    """The options of the methods whose model is a linear system over the agreed columns.

    Parameters
    ----------
    standardize : bool, default False
        Divide every column by its standard deviation over the rows of all parties. Raw units can
        reveal the causal order (varsortability), or hide it. The graph's weights are then in
        standard deviations; ``run.model`` is in the units of the data.
    center : {"auto", "global", "party"}, default "auto"
        Subtract the mean over the rows of all parties, or each party's own mean (the papers'), as
        with an intercept for each party. "global" loses no information when parties have few rows;
        "party" is right when parties differ in level. "auto" is "party" where the means that the
        parties report differ beyond chance (``core.linear.levels``), which a warning says; with
        known interventions and time series it is "global".
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out (Zheng et al. 2018, section 5).
    knowledge : Knowledge, str or None
        Required and forbidden edges and tiers, or the path of a TOML or JSON file with them.
    aggregation : {"mean", "median"}, default "mean"
        How the parties' arrays are combined. "median" is the geometric median, which false arrays
        of a minority of the parties cannot move far; it needs three parties or more and their
        single replies (with ``secure_aggregation`` three ``groups``), and no privacy wrapper. See
        docs/how_to/false_parties.md.

    Examples
    --------
    >>> from flwr_causal.strategies import LinearOptions
    >>> LinearOptions(standardize=True).standardize
    True
    """

    standardize: bool = False
    center: Literal["auto", "global", "party"] = option("auto", needs={"party": ("centring",)})
    threshold: float = option(0.3, needs="weights", least=0)
    knowledge: Knowledge | str | None = None
    aggregation: Literal["mean", "median"] = option("mean", needs="median")
    #: The part of known interventions, which nodes may state too.
    acted: ClassVar[type[Acted]] = Acted

    def __post_init__(self) -> None:
        super().__post_init__()
        # The options are frozen once they are made.
        object.__setattr__(self, "knowledge", as_knowledge(self.knowledge))

    @property
    def private(self) -> bool:
        """Whether the run has differential privacy of rows."""
        return False

    @property
    def targets_by_party(self) -> dict[str, list[str]]:
        """By party, the columns that interventions set or changed in all its rows."""
        return {}

    @property
    def states_interventions(self) -> bool:
        """Whether the options state interventions; nodes may state them too."""
        return False

    @property
    def lags(self) -> int:
        """p, the number of lags of the design; 0 for rows without time."""
        return 0

    def design(self, agreement: Agreement) -> Design:
        """Return what a row becomes: the numbers and their lags."""
        return Design.of(
            agreement.names,
            agreement.mean,
            agreement.variance,
            standardized=self.standardize,
            order=self.lags,
            marked=self.center == "phase",  # type: ignore[comparison-overlap]
        )

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also a median."""
        return (*super().parts, Median) if self.aggregation == "median" else super().parts

    @property
    def held_out(self) -> bool:
        """Whether parties hold out some of their rows, by which something is chosen."""
        return False

    @property
    def fewest_groups(self) -> int:
        """Three for a median, and one more where one is left out."""
        if self.aggregation == "mean":
            return super().fewest_groups
        return LEAST_FOR_MEDIAN + self.leave_one_out

    @property
    def papers(self) -> bool:
        """Whether the algorithm is the paper's; a method's options may."""
        return False

    @property
    def compares_parties(self) -> bool:
        """Whether the result says how parties, or groups, differ; a method's options may."""
        return False

    @property
    def level_sums(self) -> bool:
        """Whether sums tell levels of parties, or of series, apart; a method's options may."""
        return False

    @property
    def own_levels(self) -> bool:
        """Whether rows are centred by means of parties or of series."""
        return self.center in OWN_LEVELS and not self.level_sums

    def _reports_series(self, agreement: Agreement, parts: Sequence[type[Part]]) -> bool:
        """Whether the parties' reports on series decide ``center="auto"``."""
        undecided = self.center == "auto" and not self.level_sums and self.lags > 0
        gives = all("centring" in part.gives for part in parts)
        return undecided and gives and not (self.papers or agreement.targets)

    def _draws_parties(self, agreement: Agreement, parts: Sequence[type[Part]]) -> bool:
        """Whether the reports decide ``resample="auto"``; with few parties it is "rows"."""
        undecided = self.resample == "auto" and self.replicates > 0 and self.fraction_train == 1
        apart = not (self.secure_aggregation or agreement.targets or self.compares_parties)
        gives = all(part.gives >= words("exact", "parties") for part in parts)
        return undecided and apart and gives and len(agreement.rows) >= FEWEST_TO_DRAW

    def _reports_levels(self, agreement: Agreement) -> bool:
        """Whether the parties' reports decide ``center="auto"``."""
        undecided = self.center == "auto" and not (self.level_sums or self.lags)
        gives = all("centring" in part.gives for part in self.parts)
        return undecided and gives and not agreement.targets

    @property
    def leaves_reported(self) -> bool:
        """Whether columns leave the search that others determine by the parties' reports.

        Methods that pool second moments judge by these.
        """
        return True

    @property
    def weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return True

    @property
    def expected(self) -> Expected:
        """One unit of each column, comparable columns, one level, more rows than columns.

        Interventions shift levels at some parties.
        """
        about_one = self.center in ("auto", "global") and not self.level_sums
        by_level = about_one and not self.states_interventions
        return Expected(
            unit_ratio=SAME_UNITS,
            level_remedy="set center='party'" if by_level else "",
            raw_units=not self.standardize,
            columns=1,
            tails=RANKS,
        )

    def check_parties(self, reports: Mapping[str, TableReport]) -> None:
        """Check that interventions are stated for parties, and that there are enough for a median.

        Raises
        ------
        ConfigError
            If there are too few parties for a median, or no party of a name.
        """
        for party in self.targets_by_party:
            if party not in reports:
                raise ConfigError(
                    f"The option 'interventions' names the party {party!r}; there are "
                    f"{', '.join(reports)}."
                )
        if self.aggregation == "median":
            self._check_median(len(reports))

    def _check_median(self, num_parties: int) -> None:
        """Check that enough parties reply for a median to outvote a false one."""
        asked = max(1, round(self.fraction_train * num_parties))
        if asked < LEAST_FOR_MEDIAN:
            raise ConfigError(
                f"The option 'aggregation' is 'median', which needs the replies of at least "
                f"{LEAST_FOR_MEDIAN} parties in an exchange, not {asked}: of two, none can be told "
                "to be the false one. Use 'mean', or connect more parties."
            )
        if self.leave_one_out and asked == LEAST_FOR_MEDIAN:
            raise ConfigError(
                "The option 'leave_one_out' with aggregation='median' needs the replies of at "
                f"least {asked + 1} parties in an exchange, not {asked}: {asked} without the party "
                "that is left out. Leave the option out, or connect more parties."
            )

    def agreed(
        self,
        agreement: Agreement,
        reports: Mapping[str, TableReport],
        parts: Sequence[type[Part]],
    ) -> Agreement:
        """Return an agreement with variances within units, where levels are taken out.

        Columns that others determine leave the search.

        Raises
        ------
        ConfigError
            If a node states interventions, which other options do not use.
        DataError
            If a column varies only between the units.
        """
        if self.own_levels and not self.secure_aggregation:
            variance = variance_within(reports, agreement)
            self._check_within(agreement.names, variance)
            agreement = replace(agreement, variance=variance)
        if self.leaves_reported:
            left = self._left_out(reported_relations(reports, agreement.names))
            said = doubts_by(left_out=left)
            agreement = replace(agreement, determined=left, warnings=(*agreement.warnings, *said))
        if self._reports_levels(agreement) and not self.secure_aggregation:
            take_levels_out(reports, agreement)
        if self._reports_series(agreement, parts):
            take_series_levels_out(reports)
        if self._draws_parties(agreement, parts):
            draw_parties(reports, agreement.names)
        if agreement.targets:
            refuse_misfits(
                unmet(self, (*parts, self.acted)),
                "Some nodes state interventions, which this run does not use: set {remedies}, or "
                "take 'interventions' out of their node configs.",
            )
        return agreement

    def check_total(self, agreement: Agreement, total: TableReport) -> None:
        """Check that columns vary within the units whose levels are taken out.

        Raises
        ------
        DataError
            As :meth:`agreed`.
        """
        if self.own_levels:
            self._check_within(agreement.names, pool({"": total}, agreement.names)[1])
        if self._reports_levels(agreement) and isinstance(total, TotalReport):
            take_total_levels_out(total, agreement.num_parties)

    def _check_within(self, names: Sequence[str], variance: FloatArray) -> None:
        """Check that every column varies within some unit whose level is taken out."""
        flat = [name for name, v in zip(names, variance, strict=True) if not v > 0]
        require_varying(flat, OWN_LEVELS[self.center])

    def _left_out(self, relations: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
        """Return of each relation the last column by name, if it can be without required edges."""
        given = self.known or Knowledge()
        ends = {name for edge in (*given.required, *given.required_lagged) for name in edge[:2]}
        last = (
            max((name, *others), key=lambda one: (one not in ends, one))
            for name, others in relations
        )
        return tuple(dict.fromkeys(last))

    @property
    def known(self) -> Knowledge | None:
        """The background knowledge."""
        assert not isinstance(self.knowledge, str)  # read when the options were made
        return self.knowledge

    def known_for(self, agreement: Agreement) -> Knowledge | None:
        """Return the background knowledge, without edges of columns that others determine."""
        if not agreement.determined:
            return self.known
        own = self.known or Knowledge()
        return own.without_edges_of(agreement.determined, agreement.names, lagged=self.lags > 0)

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge as masks over the columns and their lags, (m, m) each."""
        known, names = self.known_for(agreement), agreement.names
        if self.lags:
            return knowledge_masks(known, names, self.lags)
        return EdgeMasks.free(len(names)) if known is None else known.masks(names)

    def divisors(self, agreement: Agreement) -> FloatArray:
        """Return the divisors of the columns, shape (d,)."""
        return divisors(agreement.variance, self.standardize)

    def noise_scale(self, agreement: Agreement) -> float:
        """Return the variance in whose units the automatic penalties and sparsity are stated."""
        return data_scale(agreement.variance / self.divisors(agreement) ** 2)

    def spread(self, agreement: Agreement) -> FloatArray:
        """Return the standard deviations of the columns in which weights are, shape (d,)."""
        return np.asarray(np.sqrt(agreement.variance) / self.divisors(agreement))

    def units(self, agreement: Agreement) -> FloatArray:
        """Return the factors that make a weight of i on j a number without a unit, shape (d, d)."""
        spread = self.spread(agreement)
        return np.asarray(spread[:, None] / spread)

    def annotated(self, graph: CausalGraph, agreement: Agreement | None) -> CausalGraph:
        """Return the graph with the columns' standard deviations."""
        if agreement is None or not self.weighs_in_units:
            return graph
        deviations = self.spread(agreement)
        known = bool((np.isfinite(deviations) & (deviations > 0)).all())
        return replace(graph, deviations=deviations) if known else graph

    def doubtful_directions(
        self,
        agreement: Agreement,
        graph: CausalGraph,
        masks: EdgeMasks,
        model: LinearModel | None,
        search: OrderSolution | None = None,
    ) -> list[str]:
        """Warn of directions of linear effects that rest on the columns' units.

        Without a fitted model the noise variances follow from the weights, where there are no lags.
        """
        noise, unequal = None, UNEQUAL_NOISE
        if model is None and graph.lagged is None:
            variance = agreement.variance / self.divisors(agreement) ** 2
            noise, unequal = implied_noise(graph.weights, variance), UNEQUAL_IMPLIED
        if model is not None:
            noise = noise_of(model, agreement.variance, self.divisors(agreement))
        return doubts_of(
            graph=graph,
            masks=masks,
            noise=noise,
            standardized=self.standardize,
            unequal=unequal,
            search=search,
        )

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], handling: Handling
    ) -> Baselines | None:
        """Return the graphs of a search over orders, which takes less than a method may take.

        None where rows have gaps or text, which the method itself may take.
        """
        try:
            rows = [prepare(table, names, handling) for table in tables]
        except DataError:
            return None
        if self.standardize:
            scale = np.concatenate(rows).std(axis=0)
            rows = [part / scale for part in rows]
        parties = [SampleMoments.from_rows(part, names) for part in rows if len(part)]
        with single_threaded():
            pooled = all_data(parties, order_search)
            return Baselines(pooled, alone(parties, order_search), "order search")


@dataclass(frozen=True, kw_only=True)
class InterventionOptions(Acted, LinearOptions):
    """The options of the linear methods that use known interventions.

    The method's client is an :class:`~flwr_causal.clients.interventions.InterventionClient`, and
    the contract's reports include "interventions". It leaves the rows under an intervention on a
    column out of the loss of this column. ``agreement.targets`` are the sets of columns by which
    rows are grouped; without interventions it is empty.

    Examples
    --------
    >>> from flwr_causal.strategies.linear import InterventionOptions
    >>> InterventionOptions(intervention_column="drug").intervention_column
    'drug'
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = self.targets_by_party
        # A text, which messages can hold.
        object.__setattr__(self, "interventions", json.dumps(stated) if stated else None)

    @property
    def targets_by_party(self) -> dict[str, list[str]]:
        """By party, the columns that interventions set or changed in all its rows."""
        return by_party(self.interventions)

    @property
    def states_interventions(self) -> bool:
        """Whether the options state interventions; nodes may state them too."""
        return bool(self.interventions or self.intervention_column)

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also known interventions."""
        return (*super().parts, self.acted) if self.states_interventions else super().parts

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables, also the one that names the targets of each row."""
        own = (self.intervention_column,) if self.intervention_column else ()
        return (*super().role_columns, *own)


def fitted_system(
    agreement: Agreement,
    scale: FloatArray,
    moments: SampleMoments | Sequence[SampleMoments],
    graph: CausalGraph,
) -> LinearModel:
    """Return the least-squares system of a graph, with lags or without, in the data's units.

    Parameters
    ----------
    agreement : Agreement
        Columns and means.
    scale : ndarray of shape (d,)
        Divisors of the variables.
    moments : SampleMoments or sequence of SampleMoments
        Moments of the m columns, centred and scaled, or one for each variable; only entries within
        families (a variable and its parents) are read.
    graph : CausalGraph
    """
    edges, d = stacked_edges(graph), len(agreement.names)
    level, units = (np.tile(values, len(edges) // d) for values in (agreement.mean, scale))
    return fit(in_units(moments, level, units)[:d], edges, d)


def divisors(variance: FloatArray, standardize: bool) -> FloatArray:
    """Return the divisors that standardise columns of these variances, shape (d,)."""
    return np.sqrt(variance) if standardize else np.ones(len(variance))


def in_units(
    moments: SampleMoments | Sequence[SampleMoments], level: FloatArray, scale: FloatArray
) -> list[SampleMoments]:
    """Return the moments of each variable in the units of the data.

    Parameters
    ----------
    moments : SampleMoments or sequence of SampleMoments
        Moments of rows centred by ``level`` and divided by ``scale``, or one for each variable.
    level, scale : ndarray of shape (m,)
        Of the moments' first m columns; further columns are left out.
    """
    m, units = len(level), np.outer(scale, scale)
    parts, own = distinct(moments_of_variables(moments, m))
    converted = []
    for part in parts:
        one = part.subset(range(m))
        mean = level + one.mean * scale
        converted.append(replace(one, mean=mean, second=one.second * units))
    return [converted[place] for place in own]


def noise_of(model: LinearModel, variance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return noise variances in the solver's units, (d,); 0 of columns that others determine.

    Parameters
    ----------
    model : LinearModel
        In the units of the data.
    variance, scale : ndarray of shape (d,)
        Of the columns, and by what the solver's are divided.
    """
    told = model.noise_variances > COLLINEAR * variance
    return np.where(told, model.noise_variances / scale**2, 0.0)


def variance_within(reports: Mapping[str, TableReport], agreement: Agreement) -> FloatArray:
    """Return each column's variance within parties that hold it, weighted by rows, shape (d,)."""
    rows = np.array(list(agreement.rows.values()))[:, None]
    within = np.array([pool({name: own}, agreement.names)[1] for name, own in reports.items()])
    held = ~np.isnan(within)
    return np.asarray((rows * np.where(held, within, 0.0)).sum(axis=0) / (rows * held).sum(axis=0))


@dataclass(frozen=True, kw_only=True)
class PerceptronOptions(Part):
    """The options of ``model="mlp"``, which needs torch.

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

    Examples
    --------
    >>> from flwr_causal.strategies.linear import PerceptronOptions
    >>> PerceptronOptions(hidden=5).hidden
    5
    """

    text = "model='mlp'"
    gives = all_but("solvers", "candidates")

    hidden: int = bounded(10, least=1, most=MOST)
    inner_steps: int = bounded(100, least=1, most=MOST)
    device: str = "cpu"
    arithmetic: Literal["float64", "float32"] = "float64"

    def validate_perceptrons(self) -> None:
        """Check the options' values.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        known = re.fullmatch(r"cpu|cuda(:\d{1,3})?", self.device) is not None
        require(known, "device", self.device, "'cpu', 'cuda' or 'cuda:<index>'")
