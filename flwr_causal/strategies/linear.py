"""The base of methods on numeric columns: common options, interventions, fitted systems."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge, as_knowledge
from flwr_causal.core.linear.baselines import all_data, alone
from flwr_causal.core.linear.gaussian_scores import COLLINEAR
from flwr_causal.core.linear.levels import SeenLevels
from flwr_causal.core.linear.moments import Moments, data_scale, distinct, moments_of_variables
from flwr_causal.core.linear.regression import implied_noise
from flwr_causal.core.linear.stability import order_search
from flwr_causal.core.options import MOST, bounded, require
from flwr_causal.core.parts import Part, all_but, option, unmet
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.agreement import Agreement, pool
from flwr_causal.data.check.party_table import prepare
from flwr_causal.data.check.report import TotalReport
from flwr_causal.data.interventions import by_party
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.series.levels import OWN_LEVELS
from flwr_causal.doubts.graphs import UNEQUAL_IMPLIED, UNEQUAL_NOISE, direction_warning
from flwr_causal.doubts.levels import levels_in_words
from flwr_causal.doubts.tables import RANKS, SAME_UNITS, Expected, left_out_text, reported_relations
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.protocol.options import KnowledgePartyOptions
from flwr_causal.runtime.combining import LEAST_FOR_MEDIAN
from flwr_causal.runtime.options import CausalOptions
from flwr_causal.strategies.base import Baselines, CausalStrategy
from flwr_causal.strategies.dictionary import check_private
from flwr_causal.strategies.options import refuse_misfits, takes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.options import PartyOptions
    from flwr_causal.runtime.algorithm import Progress
    from flwr_causal.strategies.base import RunAlone


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
    """The options of :class:`LinearStrategy`.

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
    def level_sums(self) -> bool:
        """Whether sums tell levels of parties, or of series, apart; a method's options may."""
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
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also a median."""
        return (*super().parts, Median) if self.aggregation == "median" else super().parts


@dataclass(frozen=True, kw_only=True)
class InterventionOptions(Acted, LinearOptions):
    """The options of the linear methods that use known interventions.

    The method's client is an :class:`~flwr_causal.clients.interventions.InterventionClient`, and
    the contract's reports include "interventions". It leaves the rows under an intervention on a
    column out of the loss of this column. ``agreement.targets`` are the sets of columns by which
    rows are grouped; without interventions it is empty.
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


class LinearStrategy(CausalStrategy):
    """Base of the methods whose model is a linear system over the agreed columns."""

    options_type = LinearOptions
    options: LinearOptions

    if TYPE_CHECKING:

        @takes(LinearOptions)
        def __init__(self, **options: Any) -> None: ...

    def validate(self) -> None:
        """Check that the options fit each other, and the dictionary differential privacy."""
        super().validate()
        if self.options.private and self._entries is not None:
            check_private(self._entries, self.options.text_columns)

    @property
    def _private(self) -> bool:  # type: ignore[override]
        """Whether the run has differential privacy."""
        return self.options.private

    @property
    def aggregation(self) -> Literal["mean", "median"]:  # type: ignore[override]
        """How the parties' arrays are combined."""
        return self.options.aggregation

    @property
    def held_out(self) -> bool:
        """Whether parties hold out some of their rows, by which something is chosen."""
        return False

    @property
    def _fewest_groups(self) -> int:
        """Three for a median, and one more where one is left out."""
        if self.options.aggregation == "mean":
            return super()._fewest_groups
        return LEAST_FOR_MEDIAN + self.options.leave_one_out

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; for units centred by their own means, with variances within units.

        Raises
        ------
        ConfigError
            If there are too few parties for a median; if interventions are stated for a party that
            there is not, or by a node while other options do not use them.
        DataError
            As in the base class, or if a column varies only between the units.
        """
        for party in self.options.targets_by_party:
            if party not in reports:
                raise ConfigError(
                    f"The option 'interventions' names the party {party!r}; there are "
                    f"{', '.join(reports)}."
                )
        if self.options.aggregation == "median":
            self._check_median(len(reports))
        agreement = super().agree(reports)
        if self._within_parties and not self.options.secure_aggregation:
            variance = variance_within(reports, agreement)
            self._check_within(agreement.names, variance)
            agreement = replace(agreement, variance=variance)
        if self._leaves_reported:
            left = self._left_out(reported_relations(reports, agreement.names))
            said = [left_out_text(left)] if left else []
            agreement = replace(agreement, determined=left, warnings=(*agreement.warnings, *said))
        if self._reports_levels(agreement) and not self.options.secure_aggregation:
            take_levels_out(reports, agreement)
        if agreement.targets:
            refuse_misfits(
                unmet(self.options, (*self._parts, self.options.acted)),
                "Some nodes state interventions, which this run does not use: set {remedies}, or "
                "take 'interventions' out of their node configs.",
            )
        return agreement

    def _reports_levels(self, agreement: Agreement) -> bool:
        """Whether the reports decide what ``center="auto"`` is."""
        open_ = self.options.center == "auto" and not self._tells_levels
        rows = self.data is not DataKind.SERIES and not agreement.targets
        gives = all("centring" in part.gives for part in self._parts)
        return open_ and rows and gives

    def _check_median(self, num_parties: int) -> None:
        """Check that enough parties reply in an exchange to tell which of them is false."""
        asked = max(1, round(self.options.fraction_train * num_parties))
        if asked < LEAST_FOR_MEDIAN:
            raise ConfigError(
                f"The option 'aggregation' is 'median', which needs the replies of at least "
                f"{LEAST_FOR_MEDIAN} parties in an exchange, not {asked}: of two, none can be told "
                "to be the false one. Use 'mean', or connect more parties."
            )
        if self.options.leave_one_out and asked == LEAST_FOR_MEDIAN:
            raise ConfigError(
                "The option 'leave_one_out' with aggregation='median' needs the replies of at "
                f"least {asked + 1} parties in an exchange, not {asked}: {asked} without the party "
                "that is left out. Leave the option out, or connect more parties."
            )

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
        if self._within_parties:
            self._check_within(agreement.names, pool({"": total}, agreement.names)[1])
        if self._reports_levels(agreement) and isinstance(total, TotalReport):
            between = np.array(total.between)
            counts = np.array([total.rows_with(one) for one in total.columns], dtype=np.float64)
            within = np.array([one.squares for one in total.columns]) - between
            units = np.full(len(counts), float(agreement.num_parties))
            _assume_levels([*total.names], counts, within, units, between)
        return super().complete(agreement, total, groups)

    @property
    def _within_parties(self) -> bool:
        """Whether rows are centred by means of parties or of series."""
        return self.options.center in OWN_LEVELS and not self.options.level_sums

    def _check_within(self, names: Sequence[str], variance: FloatArray) -> None:
        """Check that every column varies within some unit that has a level of its own."""
        flat = [name for name, v in zip(names, variance, strict=True) if not v > 0]
        if flat:
            raise DataError(
                f"column {flat[0]!r} does not vary within any {OWN_LEVELS[self.options.center]}, "
                "only between them: leave it out, or use center='global'"
            )

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge as masks over the agreed columns."""
        known, names = self.known(agreement), agreement.names
        return EdgeMasks.free(len(names)) if known is None else known.masks(names)

    @property
    def _leaves_reported(self) -> bool:
        """Whether columns leave the search that others determine by the parties' reports.

        Methods that pool second moments judge by these.
        """
        return True

    def _left_out(self, relations: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
        """Return of each relation the last column by name, if it can be without required edges."""
        given = self._knowledge_or_none or Knowledge()
        ends = {name for edge in (*given.required, *given.required_lagged) for name in edge[:2]}
        last = (
            max((name, *others), key=lambda one: (one not in ends, one))
            for name, others in relations
        )
        return tuple(dict.fromkeys(last))

    def known(self, agreement: Agreement) -> Knowledge | None:
        """Return the background knowledge, without edges of columns that others determine."""
        given = self._knowledge_or_none
        if not agreement.determined:
            return given
        lagged = self.data is DataKind.SERIES
        own = given or Knowledge()
        return own.without_edges_of(agreement.determined, agreement.names, lagged=lagged)

    def _agreed_options(self, agreement: Agreement) -> PartyOptions:
        """Return the options of the clients, with the knowledge of :meth:`known`."""
        options = super()._agreed_options(agreement)
        if not (agreement.determined and isinstance(options, KnowledgePartyOptions)):
            return options
        return replace(options, knowledge=self.known(agreement))

    @property
    def _knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge."""
        assert not isinstance(self.options.knowledge, str)  # read when the options were made
        return self.options.knowledge

    def scale(self, agreement: Agreement) -> FloatArray:
        """Return the divisors of the columns, shape (d,)."""
        return divisors(agreement.variance, self.options.standardize)

    def noise_scale(self, agreement: Agreement) -> float:
        """Return the variance in whose units the automatic penalties and sparsity are stated."""
        return data_scale(agreement.variance / self.scale(agreement) ** 2)

    def fitted_system(
        self,
        agreement: Agreement,
        moments: Moments | Sequence[Moments],
        graph: CausalGraph,
    ) -> LinearModel:
        """Return the least-squares system of a graph in the units of the data.

        Parameters
        ----------
        agreement : Agreement
        moments : Moments or sequence of Moments
            Moments of the centred and scaled rows, or one for each variable; only entries within
            families (a variable and its parents) are read.
        graph : CausalGraph
            Without lags.
        """
        return fit(in_units(moments, agreement.mean, self.scale(agreement)), graph.adjacency)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs of a search over orders, which takes less than this method may take.

        Where rows have gaps or text, the method's own graphs.

        None for time series, whose baselines are in ``simulations/scenarios/baselines.py``, and
        with differential privacy, which such a search ignores.
        """
        if self._private or self.data is DataKind.SERIES:
            return None
        try:
            rows = [prepare(table, names, self.policy) for table in tables]
        except DataError:  # the method itself is what takes rows with gaps, and text
            return super().baselines(tables, names, run_alone)
        if self.options.standardize:
            scale = np.concatenate(rows).std(axis=0)
            rows = [part / scale for part in rows]
        parties = [Moments.from_rows(part, names) for part in rows if len(part)]
        with single_threaded():
            pooled = all_data(parties, order_search)
            return Baselines(pooled, alone(parties, order_search), "order search")

    @property
    def _tells_levels(self) -> bool:
        """Whether sums tell levels of parties, or of series, apart."""
        return self.options.level_sums

    @property
    def expected(self) -> Expected:
        """One unit of each column, comparable columns, one level, more rows than columns.

        Interventions shift levels at some parties.
        """
        about_one = self.options.center in ("auto", "global") and not self._tells_levels
        by_level = about_one and not self.options.states_interventions
        return Expected(
            unit_ratio=SAME_UNITS,
            level_remedy="set center='party'" if by_level else "",
            raw_units=not self.options.standardize,
            columns=1,
            tails=RANKS,
        )

    def units(self, agreement: Agreement) -> FloatArray:
        """Return the factors that make a weight of i on j a number without a unit, shape (d, d)."""
        spread = np.sqrt(agreement.variance) / self.scale(agreement)
        return spread[:, None] / spread

    @property
    def _weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return getattr(self.options, "model", "linear") == "linear"

    def _annotated(self, state: Progress, graph: CausalGraph) -> CausalGraph:
        """Return the graph with background knowledge, and the columns' standard deviations."""
        graph = super()._annotated(state, graph)
        agreement: Agreement | None = getattr(state, "agreement", None)
        if agreement is None or not self._weighs_in_units:
            return graph
        deviations = np.sqrt(agreement.variance) / self.scale(agreement)
        known = bool((np.isfinite(deviations) & (deviations > 0)).all())
        return replace(graph, deviations=deviations) if known else graph

    def _doubtful_directions(
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
            variance = agreement.variance / self.scale(agreement) ** 2
            noise, unequal = implied_noise(graph.weights, variance), UNEQUAL_IMPLIED
        if model is not None:
            noise = model.noise_variances / self.scale(agreement) ** 2
            noise = np.where(model.noise_variances > COLLINEAR * agreement.variance, noise, 0.0)
        return direction_warning(
            graph,
            masks,
            noise,
            standardized=self.options.standardize,
            unequal=unequal,
            search=search,
        )


def divisors(variance: FloatArray, standardize: bool) -> FloatArray:
    """Return what columns of these variances are divided by, shape (d,)."""
    return np.sqrt(variance) if standardize else np.ones(len(variance))


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
    m, units = len(level), np.outer(scale, scale)
    parts, own = distinct(moments_of_variables(moments, m))
    converted = []
    for part in parts:
        one = part.subset(range(m))
        mean = level + one.mean * scale
        converted.append(replace(one, mean=mean, second=one.second * units))
    return [converted[place] for place in own]


def take_levels_out(reports: Mapping[str, TableReport], agreement: Agreement) -> None:
    """Raise the error that sets ``center="party"`` where the parties' levels differ by the reports.

    Not where columns vary between parties only.
    """
    names, held = agreement.names, [{c.name: c for c in one.columns} for one in reports.values()]
    shape = (len(held), len(names))
    counts, means, squares = (np.zeros(shape) for _ in range(3))
    for k, (report, columns) in enumerate(zip(reports.values(), held, strict=True)):
        for j, name in enumerate(names):
            if name in columns and report.has_sums:
                own = columns[name]
                counts[k, j] = n = report.rows_with(own)
                means[k, j] = own.mean + own.remainder / max(n, 1)
                squares[k, j] = own.squares
    between = (counts * (means - agreement.mean) ** 2).sum(axis=0)
    units = (counts > 0).sum(axis=0).astype(np.float64)
    _assume_levels(names, counts.sum(axis=0), squares.sum(axis=0), units, between)


def _assume_levels(
    names: Sequence[str],
    counts: FloatArray,
    within: FloatArray,
    units: FloatArray,
    between: FloatArray,
) -> None:
    """Raise the error that sets ``center="party"`` where levels differ, by sums of squares."""
    counts = np.maximum(counts, 1.0)
    found = SeenLevels.of(counts, np.zeros(len(counts)), within + between, units, between)
    if found.differ.any() and not found.flat.any():
        listed = levels_in_words(names, found.shares, found.differ)
        error = DataError(f"The levels of the parties differ ({listed}).")
        error.settings = {"center": "party"}
        error.assumed = (
            f"Assumed center='party': the levels of the parties differ (in standard deviations: "
            f"{listed}). center='global' takes differences between them for effects too.",
        )
        raise error


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
