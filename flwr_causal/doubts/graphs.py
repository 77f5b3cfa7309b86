"""Doubts about a finished graph: rules on the graph, its model and its names.

What can be doubted before the training, from the parties' reports, is in
:mod:`flwr_causal.doubts.tables`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.blocks.linear_probabilities import curved_probabilities
from flwr_causal.core.graphs.equivalence import directed_part, reversible
from flwr_causal.core.linear.determined import tells_combinations
from flwr_causal.core.series.design import companion_radius, split_blocks, stacked_edges
from flwr_causal.core.words import some
from flwr_causal.data.check.checks import letters
from flwr_causal.data.check.rules import FactRule, Notice, listed, told
from flwr_causal.doubts.parties import PARTY_RULES
from flwr_causal.doubts.tables import COMBINATION, LEFT_OUT, combination, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.ges.ancestral_search import HiddenCauses
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.determined import Relations
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.data.check.rules import Fields

#: An edge explains next to nothing where a standard deviation of the cause moves the effect by less
#: than this share of its own: its weight is rounding, or the end of an iteration.
NEGLIGIBLE = 1e-6
#: Most geometric standard deviation of the noise variances that still passes for one noise variance
#: of all columns. On the linear papers' simulations, whose noise has one variance, fits by the
#: defaults have at most 2.2 (30 settings, 20 seeds; a wrong edge raises it). Where the columns are
#: multiplied by .1 to 10, 72 of 75 fits have more than 3 (median 8 to 16 by setting), by .3 to 3
#: a half of them.
UNEQUAL_NOISE = 3.0
#: The same of noise variances that follow from weights and variances alone, which weights that a
#: penalty makes smaller distort, or from evidence: on the papers' simulations, with parties of
#: different mechanisms too, at most 4.8 (60 fits); at least 8.8 where columns are multiplied by .1
#: to 10.
UNEQUAL_IMPLIED = 6.0
#: The same of the group lasso, whose effects are in units of
#: each party's noise: at most 7.4 on the papers' simulations (130 fits, d = 5 to 20), more than 10
#: in 24 of 30 fits where columns are multiplied by .1 to 10.
UNEQUAL_ADDITIVE = 10.0
#: How probable it is that Gaussian noise is taken for non-Gaussian noise, for each variable.
GAUSSIAN_CHANCE = 0.01
#: Orders by which columns can be sorted without any causal knowledge (Reisach et al. 2021, 2023).
SORTED = ("variance", "R2")
#: A graph is said not to fit where its p-value is below. Of systems of amounts whose logarithms
#: have linear effects nearly all have less, of linear systems with skewed noise few.
UNFIT = 1e-6
#: Names of what is fixed before anything else is measured, letters and digits alone.
EARLY = frozenset(
    (
        *("age", "agegroup", "ageyears", "ageinyears", "birthyear", "yearofbirth", "yob"),
        *("birthdate", "dateofbirth", "dob", "sex", "gender", "race", "ethnicity", "ethnicgroup"),
        *("placeofbirth", "countryofbirth", "nativecountry", "nativelanguage"),
    )
)


#: Spectral radius from which a fit is reported. Measured: at least 0.998 for random walks (200
#: steps), at least 0.99 for linear trends (0.92 for 50 steps), at most 0.86 for the paper's
#: stationary systems.
HARDLY_STATIONARY = 0.95
#: Fewest rows for each column of the design: of 3 rows a column, fits of the paper's stationary
#: systems have a radius of up to 1.08 (40 seeds), of 13 up to 0.82.
ROWS_TO_TELL = 4


class ResultFacts(TypedDict, total=False):
    """What may be known of a finished graph, as the rules read it.

    Parameters
    ----------
    graph : CausalGraph
        Over d variables, with lags or without.
    masks : EdgeMasks
        Background knowledge over the columns of the design: what it decides is not in doubt.
    n : int
        The rows that the graph was fitted to.
    weak : ndarray of bool
        Edges of next to no strength, stacked, which are left out of ``graph``.
    noise : ndarray of shape (d,) or None
        Fitted noise variances in the units that the solver saw, 0 for a variable that others
        determine; None where they are not known.
    standardized : bool
        Whether the columns were divided by their standard deviations.
    unequal : float
        Geometric standard deviation above which noise variances differ. Default:
        :data:`UNEQUAL_NOISE`.
    undecided : ndarray of bool, shape (d, d), or None
        Of a method that tells directions apart within the class, by nonlinear effects: the edges
        of which it cannot. Default: all edges that the class leaves open.
    search : OrderSolution or None
        The search over orders that found the graph: it does not take noise variances to be equal,
        so that units decide open directions only.
    negentropies : ndarray of shape (d,)
        Of the residuals, as :func:`flwr_causal.core.linear.negentropy.negentropies` fits them; NaN
        where not known.
    hidden : HiddenCauses
    names : sequence of str
        The variables.
    edges, unstable : ndarray of bool, shape (d, d)
        The edges of the best graph, and those of them that redrawn moments seldom give.
    p_value : float or None
        Of the graph as a whole, by the check of its fit; None where it is not known.
    skewed : sequence of str
        The columns whose values are positive, and their logarithms far less skewed.
    relations : list of (int, list of int)
        The variables that others determine, each with these.
    rows : iterable of int
        The parties' rows: a party with enough of them has reported relations of numbers itself.
    numbers : sequence of bool or None
        Which variables are numbers. Default: all.
    variables : sequence of Variable
    moments : SampleMoments or sequence of SampleMoments
    final : CausalGraph or None
        The graph of the whole run.
    metrics : mapping
        With ``accuracy`` and ``majority``, the share of the most frequent class; none otherwise.
    judged : str
        The rows of the metrics.
    head : bool
        Whether the class is predicted by a logistic head already.
    cut_after : int
        The exchanges after which a search for the causal order was cut short.
    unfinished : sequence of str
        Categories whose regressions have not converged.
    steps : int
        The exchanges that regressions may take.
    unfit : sequence of str
        Columns whose centres and scales do not fit what is released.
    """

    graph: CausalGraph
    masks: EdgeMasks
    n: int
    weak: BoolArray
    noise: FloatArray | None
    standardized: bool
    unequal: float
    undecided: BoolArray | None
    search: OrderSolution | None
    negentropies: FloatArray
    hidden: HiddenCauses
    names: Sequence[str]
    edges: BoolArray
    unstable: BoolArray
    p_value: float | None
    skewed: Sequence[str]
    relations: Relations
    rows: Iterable[int]
    numbers: Sequence[bool] | None
    variables: Sequence[Variable]
    moments: SampleMoments | Sequence[SampleMoments]
    final: CausalGraph | None
    metrics: Mapping[str, Any]
    judged: str
    head: bool
    cut_after: int
    unfinished: Sequence[str]
    steps: int
    unfit: Sequence[str]


def doubts_of(**facts: Unpack[ResultFacts]) -> list[str]:
    """Return what the rules say whose facts are given."""
    return told(RULES, facts)


def plausible(
    graph: CausalGraph, units: FloatArray | float, masks: EdgeMasks
) -> tuple[CausalGraph, list[str]]:
    """Return a graph without its edges of next to no strength, and a warning of these.

    Parameters
    ----------
    graph : CausalGraph
        Over d variables, with lags or without.
    units : ndarray, broadcast to shape (d, d), or float
        Factors that make weights free of units: for an effect of i on j the standard deviation of i
        divided by that of j; 1 where strengths have no unit.
    masks : EdgeMasks
        Over the columns of the design; required edges stay.
    """
    stacked = np.vstack([graph.weights, *(() if graph.lagged is None else graph.lagged)])
    strengths = np.abs(stacked).reshape(-1, *graph.weights.shape) * units
    weak = (stacked != 0) & (strengths.reshape(stacked.shape) < NEGLIGIBLE)
    weak &= ~masks.required[: len(weak), : weak.shape[1]]
    if not weak.any():
        return graph, []
    now, lagged = split_blocks(np.where(weak, 0.0, stacked))
    lags = None if graph.lagged is None else lagged
    left = replace(graph, weights=now, lagged=lags)
    return left, doubts_of(graph=left, weak=weak)


def gaussian_noise(negentropies: FloatArray, num_rows: int) -> BoolArray:
    """Return the variables whose noise cannot be told from Gaussian noise, (d,).

    Parameters
    ----------
    negentropies : ndarray of shape (d,)
        As of :class:`ResultFacts`.
    num_rows : int
        n, the rows that they were fitted to.
    """
    # A likelihood ratio of densities that differ by two parameters.
    return np.asarray(2 * num_rows * negentropies < -2 * np.log(GAUSSIAN_CHANCE))


# What rules find.


def _open_edges(graph: CausalGraph, masks: EdgeMasks, undecided: BoolArray | None) -> BoolArray:
    """Return the edges whose direction the class leaves open, stacked."""
    adjacency = to_square(stacked_edges(graph))
    found = reversible(adjacency, masks.first(len(adjacency)).allowed)
    return found if undecided is None else found & undecided


def _may_turn(graph: CausalGraph, open_edges: BoolArray) -> str:
    """Say which edges explain the rows as well the other way; "" of none."""
    count = int(open_edges.sum())
    if not count:
        return ""
    them = "it" if count == 1 else "them"
    leaves = "" if graph.lagged is not None else f"; run.graph.to_cpdag() leaves {them} open"
    return (
        f"{count} of {graph.num_edges} edges explain{'s' * (count == 1)} the rows as well "
        f"the other way ({_edge_list(graph, open_edges)}{leaves}). "
    )


def _by_units(
    graph: CausalGraph,
    masks: EdgeMasks,
    noise: FloatArray | None,
    standardized: bool,
    unequal: float = UNEQUAL_NOISE,
    undecided: BoolArray | None = None,
    search: OrderSolution | None = None,
) -> Fields:
    """Find directions that rest on the units of the columns.

    Linear effects with Gaussian noise determine the equivalence class only; least squares decides
    the other directions as if all noise terms had one variance in the units of the columns
    (Loh & Buhlmann 2014). Where the fitted noise variances are alike that is borne out by the data;
    where they are not, or the units were made by standardising, the directions are arbitrary.
    """
    if standardized or noise is None or not graph.num_edges:
        return ()
    size = np.sqrt(np.where(noise > 0, noise, np.nan))
    # More than by chance and by wrong edges.
    if np.isnan(size).all() or not np.exp(2 * np.nanstd(np.log(size))) > unequal:
        return ()
    open_edges = _open_edges(graph, masks, undecided)
    if (undecided is not None or search is not None) and not open_edges.any():
        return ()
    may_turn = _may_turn(graph, open_edges)
    decided, means = "edges and directions", "least squares takes all columns to have as much"
    if search is not None:
        decided, means = "directions", "the score prefers directions that leave alike amounts"
        as_good = [c.start for c in search.candidates if c.start in SORTED and search.explains(c)]
        if as_good:
            may_turn += (
                f"Sorting the columns by {' or by '.join(as_good)}, without a search, explains the "
                "rows as well. "
            )
    high, low = graph.names[int(np.nanargmax(size))], graph.names[int(np.nanargmin(size))]
    ratio = times(np.nanmax(size) / np.nanmin(size))
    fields = {"decided": decided, "means": means, "may_turn": may_turn}
    return [{**fields, "high": high, "low": low, "times": ratio}]


def _arbitrary(
    graph: CausalGraph,
    masks: EdgeMasks,
    standardized: bool,
    undecided: BoolArray | None = None,
) -> Fields:
    """Find directions that rest on units made by standardising."""
    found = _may_turn(graph, _open_edges(graph, masks, undecided)) if standardized else ""
    return [{"may_turn": found}] if found else ()


def _of_gaussian_noise(
    graph: CausalGraph, masks: EdgeMasks, negentropies: FloatArray, n: int
) -> Fields:
    """Find directions that rest on noise that cannot be told from Gaussian noise.

    Between two variables the direction follows from non-Gaussian noise of either of them.
    """
    gaussian, d = gaussian_noise(negentropies, n), len(graph.names)
    open_edges = _open_edges(graph, masks, None)[:d, :d] & gaussian[:, None] & gaussian
    if not open_edges.any():
        return ()
    named = [repr(name) for name, one in zip(graph.names, gaussian, strict=True) if one]
    count, edges = int(open_edges.sum()), _edge_list(graph, open_edges)
    return listed(named, noises=len(named), d=d, count=count, of=graph.num_edges, edges=edges)


def _too_early(final: CausalGraph | None) -> Fields:
    """Find age, sex and the like as effects of what comes later."""
    if final is None:
        return ()
    early = [name for name in final.names if letters(name) in EARLY]
    first = np.array([name in early for name in final.names])
    directed = directed_part(final.adjacency) if final.kind == "cpdag" else final.adjacency
    wrong = directed & ~first[:, None] & first
    if not wrong.any():
        return ()
    come = "comes" if len(early) == 1 else "come"
    tier = ", ".join(map(repr, early))
    return listed(map(repr, early), edges=_edge_list(final, wrong), come=come, tier=tier)


def _guessing(metrics: Mapping[str, Any], judged: str, head: bool) -> Fields:
    """Find a class that is predicted no better than by always guessing the most frequent one."""
    if not metrics.get("accuracy", 1.0) <= metrics.get("majority", 0.0):
        return ()
    options = [*(() if head else ("head=True, which is more accurate",))]
    if "auroc" in metrics:
        options.append("decision='macro-f1', which finds rare classes")
    remedy = f"Set {', or '.join(options)}." if options else "Add columns that predict the class."
    return [{**metrics, "judged": judged, "remedy": remedy}]


def _untold(
    relations: Relations,
    names: Sequence[str],
    rows: Iterable[int],
    numbers: Sequence[bool] | None = None,
) -> Fields:
    """Find relations that no party has reported."""
    of_numbers = [True] * len(names) if numbers is None else numbers
    reported = any(tells_combinations(own, sum(of_numbers)) for own in rows)
    linear = [all(of_numbers[i] for i in (j, *others)) for j, others in relations]
    return [
        combination(names[j], [names[i] for i in others], linear=one)
        for (j, others), one in zip(relations, linear, strict=True)
        if not (one and reported)
    ]


def _hardly_stationary(graph: CausalGraph, n: int) -> Fields:
    """Find a system of weights that is not, or hardly, stationary.

    Nothing is said of fits to few rows, whose radius is uncertain.
    """
    if graph.lagged is None or n < ROWS_TO_TELL * len(stacked_edges(graph)):
        return ()
    radius = companion_radius(graph.weights, graph.lagged)
    word = "not" if radius >= 1 else "hardly"
    return [{"word": word, "radius": radius}] if radius >= HARDLY_STATIONARY else ()


def _weak_edges(graph: CausalGraph, weak: BoolArray) -> Fields:
    count, named = int(weak.sum()), _edge_list(graph, weak)
    several = count > 1
    edges, are = f"{count} edge{'s' * several}", "are" if several else "is"
    return [{"edges": edges, "are": are, "listed": named}]


def _edge_list(graph: CausalGraph, edges: BoolArray) -> str:
    """Name a few edges of a stacked mask."""
    d = len(graph.names)
    found = []
    for i, j in np.argwhere(edges):
        lag, cause = divmod(int(i), d)
        at = f"[t-{lag}]" if lag else ""
        found.append(f"{graph.names[cause]}{at} -> {graph.names[j]}")
    return some(found)


# The rules.

_TIERS = (
    "State what comes first as tiers of background knowledge (option 'knowledge'). The method "
    "'moments' with solver='class' does not depend on units and leaves open what correlations "
    "leave open; where noise is not Gaussian, 'lingam' finds directions from it."
)

RULES: tuple[Notice, ...] = (
    FactRule(
        "{edges} of next to no strength {are} left out ({listed}): a standard deviation of the "
        f"cause moves the effect by less than {NEGLIGIBLE:g} of its own. Such weights are "
        "rounding, as fits to too few rows give, or columns whose units differ by many powers of "
        "ten: check the numbers of rows and the units of these columns.",
        "A standard deviation of the cause moves the effect by less than 1e-6 of its own: rounding",
        "More rows; comparable units",
        finds=_weak_edges,
    ),
    Notice(
        "The refit is left out",
        "Flower's wrappers for differential privacy: the noise that they add is more than the "
        "parties' second moments, and a variance would be negative. The weights are those of the "
        "last round",
        "`epsilon` of `moments`, whose noise is of one exchange; `refit=False`",
    ),
    FactRule(
        "The units of the columns may have decided {decided}: what the graph leaves unexplained of "
        "{high!r} is {times} that of {low!r} (standard deviations), and {means}. {may_turn}Compare "
        f"with standardize=True. {_TIERS}",
        "See below; `moments`, `notears-admm`, `2dbn` with its refit, and `fedcausal` with the "
        "linear model, the group lasso or the search on evidence",
        "Tiers of background knowledge; compare with `standardize=True`, and with "
        '`solver="class"` of `moments` or `lingam` ([which method]'
        "(moments.md#additive-effects-modeladditive))",
        finds=_by_units,
    ),
    FactRule(
        "With standardised columns the directions that the rows leave open are arbitrary. "
        f"{{may_turn}}{_TIERS}",
        "With `standardize=True`: edges that the equivalence class, and in the search of "
        "`fedcausal` the evidence, leave open",
        'Tiers of background knowledge; `solver="class"` of `moments`, which leaves them '
        "undirected; `lingam` where noise is not Gaussian",
        finds=_arbitrary,
    ),
    FactRule(
        "The search for the causal order was cut short after {cut_after} exchanges: moves that "
        "would improve the likelihood may be left. Raise max_rounds.",
        "`lingam`: more exchanges than `max_rounds` would be needed",
        "A larger `max_rounds`",
        title="The search for the causal order was cut short",
        finds=lambda cut_after: [{"cut_after": cut_after}],
    ),
    FactRule(
        "The noise of {noises} of {d} variables cannot be told from Gaussian noise ({listed}; "
        f"likelihood ratio, level {GAUSSIAN_CHANCE:g}). LiNGAM finds the direction of an edge only "
        "if the noise of its cause or of its effect is not Gaussian: the direction of {count} of "
        "{of} edges is arbitrary ({edges}). State what comes first as tiers of background "
        "knowledge (option 'knowledge'), or compare with moments and solver='class', which leaves "
        "such edges undirected.",
        "`lingam`: edges join variables whose residuals pass as Gaussian (likelihood ratio, level "
        "0.01)",
        'Tiers of background knowledge; `solver="class"` of `moments`; more rows',
        finds=_of_gaussian_noise,
    ),
    FactRule(COMBINATION, finds=_untold),
    FactRule(
        LEFT_OUT,
        finds=lambda relations, names: listed(repr(names[j]) for j, _ in relations),
    ),
    FactRule(
        "Hidden common causes are likely: a graph with them explains the rows better (its BIC by "
        "{gain:.1f} times the cost of an edge). {listed} would have a hidden common cause, and "
        "edges and directions of this graph about them may be wrong. Compare with "
        "hidden_causes=True, which takes no further exchange. Effects that are not linear can give "
        "the same signs.",
        '`moments` with `solver="auto"`, `"order"`, `"class"` or `"ges"` and linear effects, up to '
        "60 variables (from 31 on of at most 2.5 edges each): an ancestral graph has a better BIC "
        "than any graph without hidden causes, by more than an edge; also in `run.headline` "
        "([what it finds](how_to/hidden_causes.md#without-the-option))",
        "`hidden_causes=True`; measure what may act on both; where effects may be curved, "
        '`model="curved"`',
        finds=lambda hidden: (
            listed((f"{one} <-> {other}" for one, other in hidden.common), gain=hidden.gain)
            if hidden.likely
            else ()
        ),
    ),
    FactRule(
        "The graph does not fit the rows (p = {p_value:.1g}), and some columns are positive and "
        "skewed: {listed}. The effects of such amounts are often linear between their logarithms "
        "and not between their values: set scale='normal-scores', or take logarithms of these "
        "columns.",
        "`moments`: the check of the fit has p < 1e-6, and values of a column are positive while "
        "their logarithms are far less skewed: concentrations, incomes. Of systems of such "
        "logarithms nearly all are told, of linear systems with skewed noise hardly any",
        '[`scale="normal-scores"`](moments.md#normal-scores-scalenormal-scores), or logarithms',
        title="The graph does not fit the rows ..., and some columns are positive and skewed",
        finds=lambda p_value, skewed: (
            listed(map(repr, skewed), p_value=p_value)
            if p_value is not None and p_value < UNFIT
            else ()
        ),
    ),
    FactRule(
        "The rows do not settle the graph: {count} of {of} edges of the best graph are left out, "
        "since graphs of redrawn moments seldom have them ({listed}). Hidden common causes are the "
        "usual reason with many rows: no graph without them fits, and chance decides among "
        "several. Compare with hidden_causes=True, which takes no further exchange; stability=0 "
        "keeps these edges.",
        '`moments` with `solver="auto"` or `"order"`, 1,000 rows or more without time, '
        "interventions, `epsilon` and `local_graphs`: more than a tenth of the edges of the best "
        "graph are left out, as graphs of redrawn moments seldom have them (`stability`); also in "
        "`run.headline`",
        "`hidden_causes=True`; measure what may act on several variables",
        finds=lambda names, edges, unstable: listed(
            (f"{names[i]} -> {names[j]}" for i, j in np.argwhere(unstable)),
            count=int(unstable.sum()),
            of=int(edges.sum()),
        ),
    ),
    FactRule(
        "The graph has {edges}, but {listed} usually {come} before everything else that is "
        "measured, and cannot be an effect of it. If so, state it as background knowledge (option "
        "'knowledge') with the tiers [[{tier}], [all other columns]].",
        "Age, sex and the like, by their names, come out as effects of something else",
        "The tiers that the warning proposes",
        title="The graph has ..., but ... usually",
        finds=_too_early,
    ),
    FactRule(
        "Intervals of effects of numbers on categories may be wrong: {listed}. The linear fit of "
        "the probability of a state is below 0 or above 1 near the mean, so the probability itself "
        "is curved. Compare with model='curved', which fits curves (docs/effects.md).",
        '`moments` with `text_columns="keep"`: the probability of a state, as a linear function of '
        "numbers, is below 0 or above 1 within 2.5 of its standard deviations "
        "([effects](effects.md#numbers-with-categories))",
        '`model="curved"`',
        finds=lambda variables, moments, edges: listed(
            f"{variables[i].name} on {variables[j].name}"
            for j, causes in curved_probabilities(variables, moments, edges).items()
            for i in causes
        ),
    ),
    FactRule(
        "The fitted system is {word} stationary (spectral radius {radius:.3f}, stationary below "
        "1): the series may have trends or be random walks, for which regressions find spurious "
        "effects. Take differences, or use center='series' if only the series' levels differ.",
        "Series with trends, or random walks: spectral radius from 0.95 up, of at least 4 rows for "
        "each column with its lags",
        'Differences; `center="series"`',
        finds=_hardly_stationary,
    ),
    FactRule(
        "The regressions of {listed} on their causes had not converged after {steps} exchanges or "
        "more: the causes nearly tell the states apart. Few rows may have one of the states, or a "
        "cause is another name of it.",
        'With `parameters="likelihood"`: the causes nearly tell the states of a category apart',
        "Leave out a cause that is another name of it, or states of few rows; "
        '`parameters="moments"`',
        finds=lambda unfinished, steps: listed(map(repr, unfinished), most=3, steps=steps),
    ),
    FactRule(
        "Centres and scales do not fit {listed}: these columns are clipped, or lost in the noise. "
        "Give their usual values and deviations, from public knowledge, by the option 'scales' "
        "('x=10:2' for a centre of 10 and a scale of 2).",
        "With `epsilon`: the release says that columns are more than two scales from their centre, "
        "or that their deviation is above two scales or below a quarter",
        "`scales`, from public knowledge ([differential privacy](differential_privacy.md))",
        title="Centres and scales do not fit ...",
        finds=lambda unfit: listed(unfit),
    ),
    FactRule(
        "On {judged} the accuracy, {accuracy:.3f}, does not exceed the share of the most frequent "
        "class, {majority:.3f}: always guessing it is as good. {remedy}",
        "`fedpc` with a target, where there are test rows or a query",
        '`head=True`; for two classes `decision="macro-f1"`',
        title="On ... the accuracy ... does not exceed the share of the most frequent class",
        finds=_guessing,
    ),
    *PARTY_RULES,
)
