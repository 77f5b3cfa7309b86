"""Doubts about a finished graph, in words: pure functions of the graph, its model and its names.

What can be doubted before the training, from the parties' reports, is in
:mod:`flwr_causal.doubts.tables`. docs/warnings.md lists all warnings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.blocks.linear_probabilities import curved_probabilities
from flwr_causal.core.graphs.equivalence import directed_part, reversible
from flwr_causal.core.linear.determined import tells_combinations
from flwr_causal.core.series.design import split_blocks, stacked_edges
from flwr_causal.core.words import some
from flwr_causal.data.check.checks import letters
from flwr_causal.doubts.tables import combination_text, left_out_text, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.ges.hidden_check import HiddenCauses
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.determined import Relations
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.core.linear.order_search import OrderSolution

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


def amounts_warning(p_value: float | None, skewed: Sequence[str]) -> list[str]:
    """Warn of linear effects that do not fit where columns are skewed as amounts are.

    Parameters
    ----------
    p_value : float or None
        Of the graph as a whole, by the check of its fit; None where it is not known.
    skewed : sequence of str
        The columns whose values are positive, and their logarithms far less skewed.
    """
    if p_value is None or p_value >= UNFIT:
        return []
    return [
        f"The graph does not fit the rows (p = {p_value:.1g}), and some columns are positive and "
        f"skewed: {some(map(repr, skewed))}. The effects of such amounts are often linear between "
        "their logarithms and not between their values: set scale='normal-scores', or take "
        "logarithms of these columns."
    ]


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
    stacked = _stacked(graph)
    strengths = np.abs(stacked).reshape(-1, *graph.weights.shape) * units
    weak = (stacked != 0) & (strengths.reshape(stacked.shape) < NEGLIGIBLE)
    weak &= ~masks.required[: len(weak), : weak.shape[1]]
    if not weak.any():
        return graph, []
    count = int(weak.sum())
    warning = (
        f"{count} edge{'s' * (count > 1)} of next to no strength {'are' if count > 1 else 'is'} "
        f"left out ({_edge_list(graph, weak)}): a standard deviation of the cause moves the "
        f"effect by less than {NEGLIGIBLE:g} of its own. Such weights are rounding, as fits to too "
        "few rows give, or columns whose units differ by many powers of ten: check the numbers of "
        "rows and the units of these columns."
    )
    now, lagged = split_blocks(np.where(weak, 0.0, stacked))
    lags = None if graph.lagged is None else lagged
    return replace(graph, weights=now, lagged=lags), [warning]


def direction_warning(
    graph: CausalGraph,
    masks: EdgeMasks,
    noise: FloatArray | None,
    *,
    standardized: bool,
    unequal: float = UNEQUAL_NOISE,
    undecided: BoolArray | None = None,
    search: OrderSolution | None = None,
) -> list[str]:
    """Say which directions of a graph rest on the units of the columns.

    Linear effects with Gaussian noise determine the equivalence class only; least squares decides
    the other directions as if all noise terms had one variance in the units of the columns
    (Loh & Buhlmann 2014). Where the fitted noise variances are alike that is borne out by the data;
    where they are not, or the units were made by standardising, the directions are arbitrary.

    Parameters
    ----------
    graph : CausalGraph
        A DAG over d variables, with lags or without.
    masks : EdgeMasks
        Background knowledge over the columns of the design: what it decides is not in doubt.
    noise : ndarray of shape (d,) or None
        Fitted noise variances in the units that the solver saw, 0 for a variable that others
        determine; None where they are not known.
    standardized : bool
        Whether the columns were divided by their standard deviations.
    unequal : float
        Geometric standard deviation above which noise variances differ.
    undecided : ndarray of bool, shape (d, d), optional
        Of a method that tells directions apart within the class, by nonlinear effects: the edges
        of which it cannot. Default: all edges that the class leaves open.
    search : OrderSolution, optional
        The search over orders that found the graph: it does not take noise variances to be equal,
        so that units decide open directions only.
    """
    size = np.zeros(0) if noise is None else np.sqrt(np.where(noise > 0, noise, np.nan))
    unknown = not graph.num_edges or bool(np.isnan(size).all())
    if not standardized and (unknown or not _unequal(size, unequal)):
        return []
    adjacency = to_square(stacked_edges(graph))
    open_edges = reversible(adjacency, masks.first(len(adjacency)).allowed)
    if undecided is not None:
        open_edges &= undecided
        if not open_edges.any():
            return []
    count = int(open_edges.sum())
    may_turn = ""
    remedy = (
        "State what comes first as tiers of background knowledge (option 'knowledge'). The method "
        "'moments' with solver='class' does not depend on units and leaves open what correlations "
        "leave open; where noise is not Gaussian, 'lingam' finds directions from it."
    )
    if count:
        them = "it" if count == 1 else "them"
        leaves = "" if graph.lagged is not None else f"; run.graph.to_cpdag() leaves {them} open"
        may_turn = (
            f"{count} of {graph.num_edges} edges explain{'s' * (count == 1)} the rows as well "
            f"the other way ({_edge_list(graph, open_edges)}{leaves}). "
        )
    if standardized:
        if not count:
            return []
        return [
            "With standardised columns the directions that the rows leave open are arbitrary. "
            f"{may_turn}{remedy}"
        ]
    low, high = graph.names[int(np.nanargmin(size))], graph.names[int(np.nanargmax(size))]
    decided, means = "edges and directions", "least squares takes all columns to have as much"
    if search is not None:
        if not count:
            return []
        decided, means = "directions", "the score prefers directions that leave alike amounts"
        as_good = [c.start for c in search.candidates if c.start in SORTED and search.explains(c)]
        if as_good:
            may_turn += (
                f"Sorting the columns by {' or by '.join(as_good)}, without a search, explains the "
                "rows as well. "
            )
    return [
        f"The units of the columns may have decided {decided}: what the graph leaves unexplained "
        f"of {high!r} is {times(np.nanmax(size) / np.nanmin(size))} that of {low!r} (standard "
        f"deviations), and {means}. {may_turn}Compare with standardize=True. {remedy}"
    ]


def gaussian_noise(negentropies: FloatArray, num_rows: int) -> BoolArray:
    """Return the variables whose noise cannot be told from Gaussian noise, (d,).

    Parameters are those of :func:`gaussian_noise_warning`.
    """
    # A likelihood ratio of densities that differ by two parameters.
    return np.asarray(2 * num_rows * negentropies < -2 * np.log(GAUSSIAN_CHANCE))


def gaussian_noise_warning(
    graph: CausalGraph, masks: EdgeMasks, negentropies: FloatArray, num_rows: int
) -> list[str]:
    """Say which directions rest on noise that cannot be told from Gaussian noise.

    Between two variables the direction follows from non-Gaussian noise of either of them.

    Parameters
    ----------
    graph : CausalGraph
        A DAG over d variables, with lags or without.
    masks : EdgeMasks
        Background knowledge over the columns of the design: what it decides is not in doubt.
    negentropies : ndarray of shape (d,)
        Of the residuals, as :func:`flwr_causal.core.linear.negentropy.negentropies` fits them; NaN
        where not known.
    num_rows : int
        n, the rows that they were fitted to.
    """
    gaussian = gaussian_noise(negentropies, num_rows)
    adjacency = to_square(stacked_edges(graph))
    d = len(graph.names)
    open_edges = reversible(adjacency, masks.first(len(adjacency)).allowed)[:d, :d]
    open_edges &= gaussian[:, None] & gaussian
    if not open_edges.any():
        return []
    count = int(open_edges.sum())
    named = [repr(name) for name, one in zip(graph.names, gaussian, strict=True) if one]
    return [
        f"The noise of {len(named)} of {d} variables cannot be told from Gaussian noise "
        f"({some(named)}; likelihood ratio, level {GAUSSIAN_CHANCE:g}). LiNGAM finds the direction "
        "of an edge only if the noise of its cause or of its effect is not Gaussian: the direction "
        f"of {count} of {graph.num_edges} edges is arbitrary ({_edge_list(graph, open_edges)}). "
        "State what comes first as tiers of background knowledge (option 'knowledge'), or compare "
        "with moments and solver='class', which leaves such edges undirected."
    ]


def _unequal(size: FloatArray, most: float) -> bool:
    """Whether standard deviations of noise terms differ by more than chance and wrong edges do."""
    return float(np.exp(2 * np.nanstd(np.log(size)))) > most


def hidden_warning(found: HiddenCauses) -> list[str]:
    """Say where hidden common causes explain the rows better than the graph without them."""
    if not found.likely:
        return []
    pairs = [f"{one} <-> {other}" for one, other in found.common]
    return [
        "Hidden common causes are likely: a graph with them explains the rows better (its BIC by "
        f"{found.gain:.1f} times the cost of an edge). {some(pairs)} would have a hidden common "
        "cause, and edges and directions of this graph about them may be wrong. Compare with "
        "hidden_causes=True, which takes no further exchange. Effects that are not linear can give "
        "the same signs."
    ]


def unstable_warning(names: Sequence[str], edges: BoolArray, unstable: BoolArray) -> list[str]:
    """Say which edges were left out, as other rows of the same kind would not give them again.

    Parameters
    ----------
    names : sequence of str
        The d variables.
    edges, unstable : ndarray of bool, shape (d, d)
        Those of the best graph, and those of them that were left out.
    """
    left_out = [f"{names[i]} -> {names[j]}" for i, j in np.argwhere(unstable)]
    return [
        f"The rows do not settle the graph: {len(left_out)} of {int(edges.sum())} edges of the "
        "best graph are left out, since graphs of redrawn moments seldom have them "
        f"({some(left_out)}). "
        "Hidden common causes are the usual reason with many rows: no graph without them fits, and "
        "chance decides among several. Compare with hidden_causes=True, which takes no further "
        "exchange; stability=0 keeps these edges."
    ]


def tier_warning(graph: CausalGraph | None) -> list[str]:
    """Warn where age, sex and the like are effects of later variables."""
    if graph is None:
        return []
    early = [name for name in graph.names if letters(name) in EARLY]
    first = np.array([name in early for name in graph.names])
    marks = graph.adjacency
    directed = directed_part(marks) if graph.kind == "cpdag" else marks
    wrong = directed & ~first[:, None] & first
    if not wrong.any():
        return []
    return [
        f"The graph has {_edge_list(graph, wrong)}, but {some(map(repr, early))} usually "
        f"{'comes' if len(early) == 1 else 'come'} before everything else that is measured, and "
        "cannot be an effect of it. If so, state it as background knowledge (option 'knowledge') "
        f"with the tiers [[{', '.join(map(repr, early))}], [all other columns]]."
    ]


def majority_warning(metrics: Mapping[str, Any], rows: str, head: bool) -> list[str]:
    """Say where a circuit's class is no better than always guessing the most frequent one.

    Parameters
    ----------
    metrics : mapping
        With ``accuracy`` and ``majority``, the share of that class; none otherwise.
    rows : str
        What it was measured on.
    head : bool
        Whether the class is predicted by a logistic head already.
    """
    if not metrics.get("accuracy", 1.0) <= metrics.get("majority", 0.0):
        return []
    options = [*(() if head else ("head=True, which is more accurate",))]
    if "auroc" in metrics:
        options.append("decision='macro-f1', which finds rare classes")
    remedy = f"Set {', or '.join(options)}." if options else "Add columns that predict the class."
    return [
        f"On {rows} the accuracy, {metrics['accuracy']:.3f}, does not exceed the share of the most "
        f"frequent class, {metrics['majority']:.3f}: always guessing it is as good. {remedy}"
    ]


def determined_warning(
    found: Relations,
    names: Sequence[str],
    rows: Iterable[int],
    numbers: Sequence[bool] | None = None,
) -> list[str]:
    """Name the variables that others determine, which have left the search.

    Parameters
    ----------
    found : list of (int, list of int)
        These variables, each with those that determine it.
    names : sequence of str
        Of all variables.
    rows : iterable of int
        The parties' rows: a party with enough of them has reported relations of numbers itself.
    numbers : sequence of bool, optional
        Which variables are numbers. Default: all.
    """
    if not found:
        return []
    of_numbers = [True] * len(names) if numbers is None else numbers
    reported = any(tells_combinations(own, sum(of_numbers)) for own in rows)
    said = []
    for j, others in found:
        linear = all(of_numbers[i] for i in (j, *others))
        if not (linear and reported):
            said.append(combination_text(names[j], [names[i] for i in others], linear=linear))
    return [*said, left_out_text(names[j] for j, _ in found)]


def curved_warning(
    variables: Sequence[Variable], moments: Moments | Sequence[Moments], edges: BoolArray
) -> list[str]:
    """Name effects of numbers on categories whose intervals may be wrong.

    Parameters are those of
    :func:`~flwr_causal.core.blocks.linear_probabilities.curved_probabilities`.
    """
    curved = curved_probabilities(variables, moments, edges)
    if not curved:
        return []
    listed = [
        f"{variables[i].name} on {variables[j].name}"
        for j, causes in curved.items()
        for i in causes
    ]
    return [
        f"Intervals of effects of numbers on categories may be wrong: {some(listed)}. The linear "
        "fit of the probability of a state is below 0 or above 1 near the mean, so the probability "
        "itself is curved. Compare with model='curved', which fits curves (docs/effects.md)."
    ]


def _stacked(graph: CausalGraph) -> FloatArray:
    """Return the weights without a lag, and below them the weights of each lag, (d (1 + p), d)."""
    lagged = () if graph.lagged is None else graph.lagged
    return np.vstack([graph.weights, *lagged])


def _edge_list(graph: CausalGraph, edges: BoolArray) -> str:
    """Name a few edges of a stacked mask."""
    d = len(graph.names)
    listed = []
    for i, j in np.argwhere(edges):
        lag, cause = divmod(int(i), d)
        at = f"[t-{lag}]" if lag else ""
        listed.append(f"{graph.names[cause]}{at} -> {graph.names[j]}")
    return some(listed)
