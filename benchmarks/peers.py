"""Programs of others on the rows of all parties together, where they are installed.

``pip install -e ".[peers]"`` adds them. Each gets its own defaults; a result holds the
version.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.baselines import SERIES_THRESHOLD, voted, with_normal_scores
from benchmarks.declared import with_declared
from benchmarks.world import LineResult, World
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.interoperability import from_causal_learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


#: Smallest absolute weight that is an edge, where a program leaves the threshold to its user.
THRESHOLD = 0.3
#: Intervals of equal shares for numbers, and the most values that are states as they are.
BINS, MOST_STATES = 4, 10

Coding = Literal["codes", "one-hot"]


class Peer(NamedTuple):
    """A program: the module that must be importable, its distribution, and a call."""

    module: str
    distribution: str
    run: Callable[..., LineResult]


def _frame(world: World) -> pd.DataFrame:
    table = world.pooled.dropna()
    return table[list(world.truth.names)] if world.truth is not None else table


def _graph(frame: pd.DataFrame, weights: Any, kind: str = "dag") -> LineResult:
    matrix = np.asarray(weights, dtype=np.float64)
    return LineResult((CausalGraph(tuple(frame.columns), matrix, kind=kind),))  # type: ignore[arg-type]


def _of_causal_learn(frame: pd.DataFrame, found: Any) -> LineResult:
    return _graph(frame, _marks(found), "cpdag")


def _marks(found: Any) -> NDArray[np.bool_]:
    # causal-learn: graph[j, i] = 1 and graph[i, j] = -1 stand for i -> j, two -1 for i - j.
    marks = np.asarray(found.graph)
    directed = (marks == -1) & (marks.T == 1)
    undirected = (marks == -1) & (marks.T == -1)
    return np.asarray(directed | undirected)


def causal_learn_pc(world: World, alpha: float = 0.05, voting: bool = False) -> LineResult:
    """PC with Fisher's z, or with G2 where columns are categories.

    ``voting``: each party's rows, and the edges of more than half of the parties.
    """
    if voting:
        return _voted(world, partial(causal_learn_pc, alpha=alpha))
    return _pc(_frame(world), alpha)


def _voted(world: World, search: Callable[[World], LineResult]) -> LineResult:
    """Search each party's rows, and keep the edges of more than half of the parties."""
    each = [search(replace(world, parties=[party])) for party in world.parties]
    return LineResult((voted([one.graphs[0] for one in each]),))


def _pc(frame: pd.DataFrame, alpha: float) -> LineResult:
    from causallearn.search.ConstraintBased.PC import pc

    categories = any(not pd.api.types.is_numeric_dtype(t) for t in frame.dtypes)
    coded = frame.apply(lambda c: pd.factorize(c)[0]) if categories else frame
    test = "gsq" if categories else "fisherz"
    found = pc(coded.to_numpy(np.float64, copy=True), alpha, test, show_progress=False)
    return _of_causal_learn(frame, found.G)


def causal_learn_fci(world: World, alpha: float = 0.01) -> LineResult:
    """FCI with Fisher's z, or with G where columns are categories: a partial ancestral graph.

    An edge with two tails, which only selection explains, is taken as undecided.
    """
    from causallearn.search.ConstraintBased.FCI import fci

    frame = _frame(world)
    categories = any(not pd.api.types.is_numeric_dtype(t) for t in frame.dtypes)
    rows = frame.apply(lambda c: pd.factorize(c)[0]) if categories else frame
    test = "gsq" if categories else "fisherz"
    found, _ = fci(
        rows.to_numpy(np.float64, copy=True), test, alpha, show_progress=False, verbose=False
    )
    ends = found.graph
    ends[(ends == -1) & (ends.T == -1)] = 2
    graph = from_causal_learn(found, kind="pag")
    return LineResult((CausalGraph.from_marks(graph.marks, list(frame.columns)),))  # type: ignore[arg-type]


def causal_learn_ges(world: World) -> LineResult:
    """GES with the Gaussian BIC, or BDeu where columns are categories."""
    from causallearn.search.ScoreBased.GES import ges

    frame = _frame(world)
    categories = any(not pd.api.types.is_numeric_dtype(t) for t in frame.dtypes)
    coded = frame.apply(lambda c: pd.factorize(c)[0]) if categories else frame
    score = "local_score_BDeu" if categories else "local_score_BIC"
    found = ges(coded.to_numpy(np.float64, copy=True), score_func=score)
    return _of_causal_learn(frame, found["G"])


def causal_learn_boss(
    world: World,
    seed: int = 0,
    coding: Coding = "codes",
    voting: bool = False,
    normal_scores: bool = False,
) -> LineResult:
    """BOSS with the Gaussian BIC, and orders drawn by ``seed``.

    ``voting`` as in PC; ``normal_scores``: of the normal scores of the numbers.
    """
    from causallearn.search.PermutationBased.BOSS import boss

    if voting:
        return _voted(world, partial(causal_learn_boss, seed=seed, coding=coding))
    if normal_scores:
        world = replace(world, parties=[with_normal_scores(world.pooled)])
    return _by_permutation(world, boss, seed, coding)


def causal_learn_grasp(world: World, seed: int = 0, coding: Coding = "codes") -> LineResult:
    """GRaSP with the Gaussian BIC, and orders drawn by ``seed``."""
    from causallearn.search.PermutationBased.GRaSP import grasp

    return _by_permutation(world, grasp, seed, coding)


def _by_permutation(
    world: World, search: Callable[..., Any], seed: int, coding: Coding
) -> LineResult:
    frame = _frame(world)
    owners, rows = _coded(frame, coding)
    # causal-learn draws from Python's own generator, which takes no seed of a call.
    state = random.getstate()
    random.seed(seed)
    try:
        found = search(rows, score_func="local_score_BIC_from_cov", verbose=False)
    finally:
        random.setstate(state)
    if coding == "codes":
        return _of_causal_learn(frame, found)
    marks = _marks(found).astype(np.float64)
    votes = np.zeros((len(frame.columns),) * 2)
    np.add.at(votes, (owners[:, None], owners[None, :]), marks - 0.5 * marks * marks.T)
    np.fill_diagonal(votes, 0.0)
    return _graph(frame, (votes > 0) & (votes >= votes.T), "cpdag")


def _coded(frame: pd.DataFrame, coding: Coding) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the columns' variables, and rows of numbers.

    A category is the number of its state, "codes", or a column of 0 and 1 for each of its states
    but the last, "one-hot"; edges between variables are then those of most of their columns.
    """
    owners, parts = [], []
    for k, name in enumerate(frame.columns):
        own = frame[[name]].to_numpy()
        if not pd.api.types.is_numeric_dtype(frame[name]):
            own = pd.factorize(frame[name], sort=True)[0][:, None]
            if coding == "one-hot":
                own = own == np.arange(own.max())
        parts.append(own.astype(np.float64))
        owners += [k] * own.shape[1]
    return np.array(owners), np.column_stack(parts)


def pgmpy_hill_climb(world: World, score: str = "bdeu") -> LineResult:
    """Hill climbing with BDeu, equivalent sample size 1, or the conditional Gaussian BIC.

    With BDeu numbers are cut into quarters.
    """
    from pgmpy.estimators import BDeu, BICCondGauss, HillClimbSearch

    if score == "bdeu":
        frame = _states(_frame(world))
        scoring = BDeu(frame, equivalent_sample_size=1)
    else:
        frame = _frame(world)
        scoring = BICCondGauss(frame)
    found = HillClimbSearch(frame).estimate(scoring_method=scoring, show_progress=False)
    return _of_edges(frame, found.edges())


def agrum_hill_climb(world: World) -> LineResult:
    """Greedy hill climbing with BDeu; numbers are cut into quarters."""
    import pyagrum

    frame = _states(_frame(world))
    learner = pyagrum.BNLearner(frame)
    learner.useScoreBDeu()
    learner.useGreedyHillClimbing()
    found = learner.learnBN()
    names = list(found.names())
    return _of_edges(
        frame,
        [(found.variable(a).name(), found.variable(b).name()) for a, b in found.arcs()]
        if names
        else [],
    )


def _states(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table as categories: numbers of many values are cut into quarters."""
    cut = {
        str(name): pd.qcut(frame[name], BINS, labels=False, duplicates="drop")
        for name in frame.columns
        if pd.api.types.is_float_dtype(frame[name]) and frame[name].nunique() > MOST_STATES
    }
    return frame.assign(**cut).astype(str)


def _of_edges(frame: pd.DataFrame, edges: Any) -> LineResult:
    columns = list(frame.columns)
    marks = np.zeros((len(columns),) * 2)
    for cause, effect in edges:
        marks[columns.index(cause), columns.index(effect)] = 1.0
    return _graph(frame, marks)


def dagma_linear(world: World) -> LineResult:
    """Run the authors' DAGMA for linear models."""
    from dagma.linear import DagmaLinear

    frame = _frame(world)
    return _graph(frame, DagmaLinear("l2").fit(frame.to_numpy(np.float64, copy=True), lambda1=0.03))


def gcastle_notears(world: World) -> LineResult:
    """NOTEARS of gCastle."""
    from castle.algorithms import Notears

    frame = _frame(world)
    model = Notears()
    model.learn(frame.to_numpy(np.float64, copy=True))
    return _graph(frame, model.causal_matrix)


def direct_lingam(world: World) -> LineResult:
    """DirectLiNGAM; lingam's matrix has effects in rows."""
    import lingam

    frame = _frame(world)
    model = lingam.DirectLiNGAM()
    model.fit(frame)
    weights = model.adjacency_matrix_.T
    return _graph(frame, np.where(np.abs(weights) > THRESHOLD, weights, 0.0))


def var_lingam(world: World) -> LineResult:
    """VAR-LiNGAM on the series of all parties one after the other: it takes one series."""
    import lingam

    order = int(world.options.get("order", 1))
    frame = _frame(world)
    model = lingam.VARLiNGAM(lags=order, criterion=None)
    model.fit(frame.to_numpy(np.float64, copy=True))
    matrices = np.transpose(np.asarray(model.adjacency_matrices_), (0, 2, 1))
    kept = np.where(np.abs(matrices) > SERIES_THRESHOLD, matrices, 0.0)
    lagged = np.zeros((order, *kept.shape[1:]))
    lagged[: len(kept) - 1] = kept[1 : 1 + order]
    return LineResult((CausalGraph(tuple(frame.columns), kept[0], lagged=lagged),))


def tigramite_pcmci(world: World, alpha: float = 0.01) -> LineResult:
    """PCMCI+ with partial correlations; series of different parties are different data sets."""
    from tigramite.data_processing import DataFrame
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    order = int(world.options.get("order", 1))
    series = [t for party in world.parties for t in (party if isinstance(party, list) else [party])]
    frame = _frame(world)
    data = {
        k: one[list(frame.columns)].to_numpy(np.float64, copy=True) for k, one in enumerate(series)
    }
    pcmci = PCMCI(DataFrame(data, analysis_mode="multiple"), ParCorr(), verbosity=0)
    found = pcmci.run_pcmciplus(tau_min=0, tau_max=order, pc_alpha=alpha)
    arrows = found["graph"]  # [i, j, lag]: the mark of i at t - lag towards j at t
    now = (arrows[:, :, 0] == "-->") | (arrows[:, :, 0] == "o-o") | (arrows[:, :, 0] == "x-x")
    past = np.moveaxis(arrows[:, :, 1:] == "-->", 2, 0)
    strength = np.abs(found["val_matrix"]).sum(axis=2)
    graph = CausalGraph(tuple(frame.columns), now * 1.0, kind="summary", lagged=past * 1.0)
    return LineResult((graph,), scores=strength)


def spflow_mspn(world: World) -> LineResult:
    """LearnSPN of SPFlow 0.0 over numbers, with its piecewise leaves; the mean log-likelihood."""
    from spn.algorithms.Inference import log_likelihood
    from spn.algorithms.LearningWrappers import learn_mspn
    from spn.structure.Base import Context
    from spn.structure.StatisticalTypes import MetaType

    if world.test is None:
        return LineResult()
    train, test = world.pooled.to_numpy(np.float64, copy=True), world.test.to_numpy(np.float64)
    context = Context(meta_types=[MetaType.REAL] * train.shape[1]).add_domains(train)
    circuit = learn_mspn(train, context, min_instances_slice=200)
    return LineResult(counts={"log_likelihood": float(np.mean(log_likelihood(circuit, test)))})


def spflow_einet(
    world: World, epochs: int = 5, depth: int = 4, replicas: int = 5, sums: int = 10, seed: int = 0
) -> LineResult:
    """Fit an Einet of SPFlow 1 to columns of 0 and 1; the mean log-likelihood.

    SPFlow took it over from simple-einet, which is on no package index. Adam with batches of 100
    rows; the rate 0.02 was the best of those tried.
    """
    import torch
    from spflow.modules.leaves import Bernoulli
    from spflow.zoo.einet import Einet

    if world.test is None:
        return LineResult()
    # Other peers change torch's default type when they are imported.
    kind = torch.get_default_dtype()
    train, test = (torch.tensor(t.to_numpy(), dtype=kind) for t in (world.pooled, world.test))
    torch.manual_seed(seed)
    scope = list(range(train.shape[1]))
    start = torch.rand(len(scope), sums, replicas) * 0.8 + 0.1
    leaf = Bernoulli(scope, out_channels=sums, num_repetitions=replicas, probs=start)
    circuit = Einet(
        [leaf],
        num_sums=sums,
        num_leaves=sums,
        depth=min(depth, int(np.log2(len(scope)))),
        num_repetitions=replicas,
        layer_type="einsum",
    )
    optimiser = torch.optim.Adam(circuit.parameters(), lr=0.02)
    for _ in range(epochs):
        shuffled = train[torch.randperm(len(train))]
        for first in range(0, len(train), 100):
            optimiser.zero_grad()
            loss = -circuit.log_likelihood(shuffled[first : first + 100]).mean()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        parts = (test[first : first + 1000] for first in range(0, len(test), 1000))
        found = torch.cat([circuit.log_likelihood(part).flatten() for part in parts])
    return LineResult(counts={"log_likelihood": float(found.mean())})


def sklearn_classifier(world: World, kind: str = "boosting") -> LineResult:
    """Fit a classifier on the rows of all parties: "boosting", "naive-bayes" or "logistic"."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    target = str(world.options.get("target", ""))
    if world.test is None or not target:
        return LineResult()
    models = {
        "boosting": HistGradientBoostingClassifier(random_state=0),
        "naive-bayes": GaussianNB(),
        "logistic": LogisticRegression(max_iter=1000),
    }
    seen = make_column_transformer(
        (
            make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
            make_column_selector(dtype_include="number"),
        ),
        (
            OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    train = world.pooled
    model = make_pipeline(seen, models[kind])
    model.fit(train.drop(columns=target), train[target])
    rows, truth = world.test.drop(columns=target), world.test[target]
    predicted = model.predict(rows)
    found = {
        "accuracy": accuracy_score(truth, predicted),
        "macro_f1": f1_score(truth, predicted, average="macro"),
    }
    if len(model.classes_) == 2:
        share = model.predict_proba(rows)[:, 1]
        found["class_auroc"] = roc_auc_score(truth == model.classes_[1], share)
    return LineResult(counts={name: float(value) for name, value in found.items()})


_OWN = {
    "causal-learn-pc": Peer("causallearn", "causal-learn", causal_learn_pc),
    "causal-learn-fci": Peer("causallearn", "causal-learn", causal_learn_fci),
    "causal-learn-ges": Peer("causallearn", "causal-learn", causal_learn_ges),
    "causal-learn-boss": Peer("causallearn", "causal-learn", causal_learn_boss),
    "causal-learn-grasp": Peer("causallearn", "causal-learn", causal_learn_grasp),
    "pgmpy-hc": Peer("pgmpy", "pgmpy", pgmpy_hill_climb),
    "pyagrum-hc": Peer("pyagrum", "pyagrum", agrum_hill_climb),
    "dagma": Peer("dagma", "dagma", dagma_linear),
    "gcastle-notears": Peer("castle", "gcastle", gcastle_notears),
    "direct-lingam": Peer("lingam", "lingam", direct_lingam),
    "var-lingam": Peer("lingam", "lingam", var_lingam),
    "pcmci-plus": Peer("tigramite", "tigramite", tigramite_pcmci),
    "spflow": Peer("spn", "spflow", spflow_mspn),
    "spflow-einet": Peer("spflow", "spflow", spflow_einet),
    "sklearn": Peer("sklearn", "scikit-learn", sklearn_classifier),
}
#: The programs by name, also those that other packages declare.
PEERS: Mapping[str, Peer] = with_declared(
    _OWN,
    "peer",
    lambda point, run: Peer(point.module, point.dist.name if point.dist else point.module, run),
)
