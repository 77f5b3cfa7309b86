"""Graphs and Bayesian networks in the forms of other libraries, and back.

Each ``to_...`` has a ``from_...`` as its inverse, for graphs that the other form can hold:

- :func:`to_dagitty`: text for dagitty and ggdag; DAGs with weights, CPDAGs, summary graphs, MAGs.
- :func:`to_bnlearn`: a model string for bnlearn; DAGs, without weights.
- :func:`to_gml`: GML for DoWhy, igraph and Gephi; all that ``CausalGraph.to_networkx`` holds.
- :func:`to_causal_learn`: causal-learn's ``GeneralGraph``; DAGs, CPDAGs, PAGs, without weights.
- :func:`to_tigramite`: tigramite's arrays; with lags and weights.
- :func:`to_pgmpy`: pgmpy's networks of categories or of numbers, of a fitted model.
- :func:`to_spflow`: a module of SPFlow, of a ``Circuit``, without an inverse.

``CausalGraph.to_networkx`` and ``CausalGraph.from_networkx`` serve networkx,
:mod:`flwr_causal.reports.graph_files` GraphML, DOT and CSV, and
:func:`flwr_causal.data.read.bif.write_bif` BIF. The package of a library is needed only where its
objects are made, by :func:`to_causal_learn`, :func:`to_pgmpy` and :func:`to_spflow`.

Examples
--------
>>> from flwr_causal import CausalGraph
>>> from flwr_causal.interoperability import to_bnlearn
>>> to_bnlearn(CausalGraph.from_array([[0, 2.0], [0, 0]], ["dose", "effect"]))
'[dose][effect|dose]'
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import ascending, joined, mixed, with_leaves
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.discrete import label_names, plain_label
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.marks import ARROW, CIRCLE, NONE, TAIL
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.nodes import Leaf, Node
    from flwr_causal.core.graphs.graph import Kind
    from flwr_causal.core.systems.blocks import BlockModel
    from flwr_causal.core.systems.linear import LinearModel

__all__ = [
    "from_bnlearn",
    "from_causal_learn",
    "from_dagitty",
    "from_gml",
    "from_pgmpy",
    "from_tigramite",
    "to_bnlearn",
    "to_causal_learn",
    "to_dagitty",
    "to_gml",
    "to_pgmpy",
    "to_spflow",
    "to_tigramite",
]

HIDDEN = "only a PAG allows for hidden variables, by edges with circles or two heads"


# dagitty.

_DAGITTY_KINDS = {"dag": "dag", "cpdag": "pdag", "summary": "digraph", "pag": "pag"}
# The marks at the start and at the end of dagitty's edges of a PAG.
_DAGITTY_MARKS = {
    "->": (TAIL, ARROW),
    "<-": (ARROW, TAIL),
    "<->": (ARROW, ARROW),
    "@->": (CIRCLE, ARROW),
    "<-@": (ARROW, CIRCLE),
    "@-@": (CIRCLE, CIRCLE),
}
# A name in quotes, an edge, a bracket or separator, or a name without quotes.
_DAGITTY = re.compile(r'"[^"]*"|@?-[->@]|<-[->@]?|[{}\[\];,=]|[^\s{}\[\];,="<>@-]+|\S')


def to_dagitty(graph: CausalGraph) -> str:
    """Return the text of a graph for dagitty; weights are the attribute ``beta``.

    A DAG is a ``dag``, a CPDAG a ``pdag`` and a PAG a ``pag`` without weights, a summary graph a
    ``digraph``. A circle is ``@``.

    Parameters
    ----------
    graph : CausalGraph
        Without lags.

    Raises
    ------
    DataError
        If the graph has lags, or a name has a quotation mark.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import from_dagitty, to_dagitty
    >>> graph = CausalGraph(("dose", "effect"), [[0, 1.0], [0, 0]])
    >>> from_dagitty(to_dagitty(graph)).edges()
    [('dose', 'effect', 1.0)]
    """
    _without_lags(graph, "dagitty")
    _refuse_names(graph.names, '"', "dagitty")
    weighted = graph.kind not in ("cpdag", "pag")
    edges = [
        f'"{cause}" {mark.replace("o", "@")} "{effect}"'
        + (f' [beta="{weight!r}"]' if weighted else "")
        for cause, mark, effect, weight in graph.marked_edges()
    ]
    nodes = [f'"{name}"' for name in graph.names]
    return "\n".join([f"{_DAGITTY_KINDS[graph.kind]} {{", *nodes, *edges, "}"]) + "\n"


def from_dagitty(text: str) -> CausalGraph:
    """Return the graph of a dagitty text.

    Parameters
    ----------
    text : str
        A ``dag``, ``pdag``, ``digraph``, ``mag`` or ``pag``. Edges ``->``, ``<-``, ``--``, of a
        ``mag`` or ``pag`` also ``<->``, ``@->``, ``<-@`` and ``@-@`` but not ``--``, in chains and
        with groups such as ``x -> {y z}``; the attribute ``beta`` is the weight, 1 if it is
        missing. Other attributes are ignored.

    Raises
    ------
    DataError
        If the text is of another kind or form, has hidden variables, or an edge of a kind that the
        graph cannot have.

    Examples
    --------
    >>> from flwr_causal.interoperability import from_dagitty
    >>> from_dagitty("dag { age -> dose -> risk }").edges()
    [('age', 'dose', 1.0), ('dose', 'risk', 1.0)]
    """
    form = r'\s*(dag|pdag|digraph|mag|pag)\s*(?:"[^"]*"|\w+)?\s*\{(.*)\}\s*$'
    opened = re.match(form, text, re.DOTALL)
    if opened is None:
        raise DataError(
            "the text is no dagitty graph: expected 'dag { ... }', 'pdag', 'digraph', 'mag' or "
            "'pag'"
        )
    kinds: dict[str, Kind] = {"dag": "dag", "pdag": "cpdag", "digraph": "summary"}
    kinds |= {"mag": "pag", "pag": "pag"}
    found: nx.DiGraph[str] = nx.DiGraph(kind=kinds[opened[1]])
    tokens = _Tokens(_DAGITTY.findall(opened[2]))
    while tokens.next is not None:
        if tokens.next in (";", ","):
            tokens.take()
            continue
        chain, marks = [_operand(tokens)], []
        if tokens.next == "=":  # a property of the whole graph, such as bb="0,0,1,1"
            tokens.take()
            tokens.take()
            continue
        while tokens.next in ("->", "<-", "--", "<->", "@->", "@-@", "<-@", "@--"):
            marks.append(tokens.take())
            chain.append(_operand(tokens))
        attributes = _attributes(tokens)
        if "latent" in attributes:
            raise DataError(f"{', '.join(chain[0])} is latent: {HIDDEN}")
        found.add_nodes_from(name for names in chain for name in names)
        for (left, right), mark in zip(pairwise(chain), marks, strict=True):
            _add(found, left, mark, right, float(attributes.get("beta", 1.0)))
    return CausalGraph.from_networkx(found)


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._rest: Iterator[str] = iter(tokens)
        self.next: str | None = next(self._rest, None)

    def take(self) -> str:
        """Return the next token, and go on to the one after it."""
        if self.next is None:
            raise DataError("the dagitty text ends too early")
        taken, self.next = self.next, next(self._rest, None)
        return taken


def _operand(tokens: _Tokens) -> list[str]:
    """Return the names of a node, or of a group of nodes in braces."""
    token = tokens.take()
    if token != "{":
        if not re.fullmatch(r'"[^"]*"|[^{}\[\];,="<>@-]+', token):
            raise DataError(f"the dagitty text has {token!r} where the name of a variable belongs")
        return [token.strip('"')]
    names: list[str] = []
    while tokens.next != "}":
        if tokens.next in (";", ","):
            tokens.take()
        else:
            names += _operand(tokens)
    tokens.take()
    return names


def _attributes(tokens: _Tokens) -> dict[str, str]:
    """Return the attributes in square brackets, if there are some: ``key=value`` or ``key``."""
    found: dict[str, str] = {}
    if tokens.next != "[":
        return found
    tokens.take()
    inside: list[str] = []
    while tokens.next != "]":
        inside.append(tokens.take())
    tokens.take()
    for part in re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", "".join(inside)):
        key, _, value = part.partition("=")
        found[key.strip('"')] = value.strip('"')
    return found


def _add(
    graph: nx.DiGraph[str], left: Sequence[str], mark: str, right: Sequence[str], weight: float
) -> None:
    """Add the edges between two groups of nodes."""
    for one in left:
        for other in right:
            possible = _DAGITTY_MARKS if graph.graph["kind"] == "pag" else ("->", "<-", "--")
            if mark not in possible:
                raise DataError(f"the edge {one} {mark} {other} cannot be kept: {HIDDEN}")
            if graph.graph["kind"] == "pag":
                at_start, at_end = _DAGITTY_MARKS[mark]
                graph.add_edge(one, other, weight=weight, mark=at_end)
                graph.add_edge(other, one, weight=weight, mark=at_start)
                continue
            if mark in ("->", "--"):
                graph.add_edge(one, other, weight=weight)
            if mark in ("<-", "--"):
                graph.add_edge(other, one, weight=weight)


# bnlearn.


def to_bnlearn(graph: CausalGraph) -> str:
    """Return a DAG as bnlearn's model string, such as ``[a][b][c|a:b]``.

    Raises
    ------
    DataError
        If the graph has lags or undirected edges or is a summary graph, or a name has one of the
        characters ``[ ] | :``.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import to_bnlearn
    >>> to_bnlearn(CausalGraph(("dose", "effect"), [[0, 2.0], [0, 0]]))
    '[dose][effect|dose]'
    """
    _without_lags(graph, "a model string")
    if graph.kind != "dag":
        remedy = " (to_dag() returns one of a CPDAG)" if graph.kind == "cpdag" else ""
        raise DataError(f"a model string holds a DAG, this graph is a {graph.kind}{remedy}")
    _refuse_names(graph.names, "[]|:", "a model string")
    parts = []
    for j, name in enumerate(graph.names):
        parents = [graph.names[i] for i in np.flatnonzero(graph.adjacency[:, j])]
        parts.append(f"[{name}{'|' if parents else ''}{':'.join(parents)}]")
    return "".join(parts)


def from_bnlearn(text: str) -> CausalGraph:
    """Return the DAG of bnlearn's model string, each edge of weight 1.

    Raises
    ------
    DataError
        If the text has another form, or names a parent that is no variable.

    Examples
    --------
    >>> from flwr_causal.interoperability import from_bnlearn
    >>> from_bnlearn("[dose][effect|dose]").edges()
    [('dose', 'effect', 1.0)]
    """
    if not re.fullmatch(r"\s*(?:\[[^\[\]|]+(?:\|[^\[\]|]+)?\]\s*)+", text):
        raise DataError(f"{text!r} is no model string: expected the form [a][b][c|a:b]")
    listed = [part.partition("|") for part in re.findall(r"\[([^\]]*)\]", text)]
    names = [name for name, _, _ in listed]
    weights = np.zeros((len(names), len(names)))
    for j, (name, _, parents) in enumerate(listed):
        for parent in filter(None, parents.split(":")):
            if parent not in names:
                raise DataError(f"{name!r} has the parent {parent!r}, which is no variable")
            weights[names.index(parent), j] = 1.0
    return CausalGraph(tuple(names), weights)


# GML.


def to_gml(graph: CausalGraph) -> str:
    """Return a graph as GML text, which DoWhy's ``CausalModel(graph=...)`` takes.

    Nodes have the attribute ``label``, edges those of ``CausalGraph.to_networkx``.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import from_gml, to_gml
    >>> graph = CausalGraph(("dose", "effect"), [[0, 1.0], [0, 0]])
    >>> from_gml(to_gml(graph)).edges()
    [('dose', 'effect', 1.0)]
    """
    return "\n".join(nx.generate_gml(graph.to_networkx())) + "\n"


def from_gml(text: str) -> CausalGraph:
    """Return the graph of a GML text; see ``CausalGraph.from_networkx``.

    Raises
    ------
    DataError
        If the text is not GML, or ``CausalGraph.from_networkx`` refuses the graph.

    Examples
    --------
    >>> from flwr_causal.interoperability import from_gml
    >>> nodes = 'node [ id 0 label "dose" ] node [ id 1 label "effect" ]'
    >>> from_gml(f"graph [ directed 1 {nodes} edge [ source 0 target 1 ] ]").edges()
    [('dose', 'effect', 1.0)]
    """
    try:
        graph = nx.parse_gml(text)
    except nx.NetworkXError as error:
        raise DataError(f"the text is not GML: {error}") from None
    return CausalGraph.from_networkx(graph)


# causal-learn.


def to_causal_learn(graph: CausalGraph) -> Any:
    """Return causal-learn's ``GeneralGraph`` of a DAG, CPDAG or PAG; it has no weights.

    Raises
    ------
    DataError
        If the graph has lags or is a summary graph.
    ImportError
        If causal-learn is not installed.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import to_causal_learn
    >>> graph = CausalGraph(("dose", "effect"), [[0, 1.0], [0, 0]])
    >>> to_causal_learn(graph).get_node_names()
    ['dose', 'effect']
    """
    from causallearn.graph.Edge import Edge
    from causallearn.graph.Endpoint import Endpoint
    from causallearn.graph.GeneralGraph import GeneralGraph
    from causallearn.graph.GraphNode import GraphNode

    _without_lags(graph, "causal-learn's graph")
    if graph.kind == "summary":
        raise DataError("causal-learn's graph holds a DAG or a CPDAG, this graph is a summary")
    nodes = {name: GraphNode(name) for name in graph.names}
    found = GeneralGraph(list(nodes.values()))
    for cause, mark, effect, _ in graph.marked_edges():
        ends = {"-": Endpoint.TAIL, "o": Endpoint.CIRCLE}
        start, end = (ends.get(one, Endpoint.ARROW) for one in (mark[0], mark[-1]))
        found.add_edge(Edge(nodes[cause], nodes[effect], start, end))
    found.set_pag(graph.kind == "pag")
    found.set_pattern(graph.kind == "cpdag")
    return found


def from_causal_learn(graph: Any, kind: Kind | None = None) -> CausalGraph:
    """Return the graph of a causal-learn graph, such as ``pc(...).G``; each edge of weight 1.

    Parameters
    ----------
    graph : causallearn.graph.GeneralGraph.GeneralGraph
        With edges ``-->`` and ``---`` only, or a PAG without selection, such as ``fci(...)[0]``.
    kind : {"dag", "cpdag", "pag"}, optional
        Default: "pag" if the graph says so (``is_pag``), or there is a circle or an edge ``<->``;
        "cpdag" if it says so (``is_pattern``; ``pc`` does not) or some edge is undirected; else
        "dag".

    Raises
    ------
    DataError
        If an edge has another mark.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import from_causal_learn, to_causal_learn
    >>> graph = CausalGraph(("dose", "effect"), [[0, 1.0], [0, 0]])
    >>> from_causal_learn(to_causal_learn(graph)).edges()
    [('dose', 'effect', 1.0)]
    """
    names = tuple(str(name) for name in graph.get_node_names())
    # Its matrix has at [i, j] the mark at i's end of the edge: -1 a tail, 1 an arrow head.
    ends = np.asarray(graph.graph)
    hidden = graph.is_pag() or ((ends == 2) | ((ends == 1) & (ends.T == 1))).any()
    if kind == "pag" or (kind is None and hidden):
        marks = np.select([ends == -1, ends == 1, ends == 2], [TAIL, ARROW, CIRCLE], NONE).T
        return CausalGraph.from_marks(marks, names)
    for i, j in np.argwhere(ends != 0):
        if ends[i, j] not in (-1, 1) or (ends[i, j] == 1 and ends[j, i] != -1):
            raise DataError(f"the edge between {names[i]} and {names[j]} cannot be kept: {HIDDEN}")
    weights = ((ends == -1) & (ends.T != 0)).astype(np.float64)
    if kind is None:
        undirected = graph.is_pattern() or undirected_part(weights != 0).any()
        kind = "cpdag" if undirected else "dag"
    return CausalGraph(names, weights, kind=kind)


# tigramite.


def to_tigramite(graph: CausalGraph) -> dict[str, NDArray[Any]]:
    """Return a graph as tigramite's arrays, as its methods and plots take them.

    Returns
    -------
    dict
        ``graph``, shape (d, d, 1 + lags), of ``"-->"``, ``"<--"``, ``"o-o"`` and ``""``, and
        ``val_matrix`` of the same shape, the weights: ``[i, j, tau]`` is the effect of i on j, tau
        steps later. Edges without a lag stand at ``[i, j, 0]`` and ``[j, i, 0]``. They do not say
        of which kind the graph is: give it to :func:`from_tigramite`.

    Raises
    ------
    DataError
        If the graph is a PAG or a summary of lags.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.interoperability import to_tigramite
    >>> to_tigramite(CausalGraph(("dose", "effect"), [[0, 1.0], [0, 0]]))["graph"][:, :, 0].tolist()
    [['', '-->'], ['<--', '']]
    """
    d = len(graph.names)
    if graph.marks is not None:
        raise DataError("tigramite's arrays of a PAG are not supported: use to_gml")
    if graph.kind == "summary":
        raise DataError("tigramite's arrays hold no summary of lags: give the graph it is of")
    lagged = np.zeros((0, d, d)) if graph.lagged is None else graph.lagged
    marks = np.full((d, d, 1 + len(lagged)), "", dtype="<U3")
    values = np.zeros(marks.shape)
    marks[:, :, 1:][lagged.transpose(1, 2, 0) != 0] = "-->"
    values[:, :, 1:] = lagged.transpose(1, 2, 0)
    both = undirected_part(graph.adjacency)
    for i, j in np.argwhere(graph.adjacency):
        marks[i, j, 0] = "o-o" if both[i, j] else "-->"
        values[i, j, 0] = graph.weights[i, j]
        if not both[i, j]:
            marks[j, i, 0], values[j, i, 0] = "<--", graph.weights[i, j]
    return {"graph": marks, "val_matrix": values}


def from_tigramite(
    results: Mapping[str, Any], names: Sequence[str], kind: Kind | None = None
) -> CausalGraph:
    """Return the graph of tigramite's results, such as those of ``run_pcmciplus``.

    Parameters
    ----------
    results : mapping
        ``graph`` and, for weights, ``val_matrix``; see :func:`to_tigramite`. Without
        ``val_matrix`` each edge has weight 1.
    names : sequence of str
        The d variables.
    kind : {"dag", "cpdag"}, optional
        Default: "cpdag" if an edge without a lag is undirected, else "dag"; the arrays do not say
        whether a graph of arrows is a class.

    Returns
    -------
    CausalGraph

    Raises
    ------
    DataError
        If an edge has another mark, such as ``"x-x"`` or ``"<->"``.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.interoperability import from_tigramite
    >>> marks = np.array([["", "-->"], ["<--", ""]])[:, :, None]
    >>> from_tigramite({"graph": marks}, ("dose", "effect")).edges()
    [('dose', 'effect', 1.0)]
    """
    marks = np.asarray(results["graph"])
    values = np.asarray(results.get("val_matrix", np.ones(marks.shape)), dtype=np.float64)
    now = marks[:, :, 0]
    for i, j, lag in np.argwhere(~np.isin(marks, ("", "-->", "<--", "o-o"))):
        raise DataError(
            f"the edge '{marks[i, j, lag]}' between {names[i]} and {names[j]} at lag {lag} cannot "
            f"be kept: {HIDDEN}"
        )
    weights = np.where(np.isin(now, ("-->", "o-o")), values[:, :, 0], 0.0)
    lagged = np.where(marks[:, :, 1:] == "-->", values[:, :, 1:], 0.0).transpose(2, 0, 1)
    kind = kind or ("cpdag" if (now == "o-o").any() else "dag")
    return CausalGraph(tuple(names), weights, kind=kind, lagged=lagged)


# pgmpy.


def to_pgmpy(network: BayesianNetwork | LinearModel | BlockModel) -> Any:
    """Return pgmpy's network of a fitted model, such as ``run.model``.

    Parameters
    ----------
    network : BayesianNetwork, LinearModel or BlockModel
        A Bayesian network, and a ``BlockModel`` of categories, become a
        ``DiscreteBayesianNetwork``; a linear model, and a ``BlockModel`` of numbers with linear
        effects, a ``LinearGaussianBayesianNetwork``. Of an equivalence class it is one member.

    Raises
    ------
    DataError
        If the model has both numbers and categories, curved effects, lags or hidden causes, which
        pgmpy has not; or if it is of rows with given values.
    ImportError
        If pgmpy is not installed.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.discrete import random_network
    >>> from flwr_causal.interoperability import to_pgmpy
    >>> to_pgmpy(random_network(3, seed=0)).check_model()
    True
    """
    found = network.as_one_kind() if hasattr(network, "as_one_kind") else network
    if found.can("covariance"):
        return _gaussian(found)
    if not found.can("predict_proba"):
        raise DataError(
            f"pgmpy has no such networks: {found.why_not('covariance')}; "
            f"{found.why_not('predict_proba')}"
        )
    return _discrete(found)


def _discrete(network: Any) -> Any:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork

    found = DiscreteBayesianNetwork()
    found.add_nodes_from(network.names)
    for j, (name, own) in enumerate(zip(network.names, network.parents, strict=True)):
        parents, table = [network.names[k] for k in own], network.tables[j]
        found.add_edges_from((parent, name) for parent in parents)
        found.add_cpds(
            TabularCPD(
                name,
                table.shape[-1],
                # Ours has the states last, its have a row each.
                np.moveaxis(table, -1, 0).reshape(table.shape[-1], -1),
                evidence=parents,
                evidence_card=list(table.shape[:-1]),
                state_names={network.names[k]: list(network.states[k]) for k in (j, *own)},
            )
        )
    return found


def _gaussian(system: Any) -> Any:
    from pgmpy.factors.continuous import LinearGaussianCPD
    from pgmpy.models import LinearGaussianBayesianNetwork

    found = LinearGaussianBayesianNetwork()
    found.add_nodes_from(system.names)
    for j, name in enumerate(system.names):
        own = np.flatnonzero(system.weights[:, j])
        parents = [system.names[k] for k in own]
        found.add_edges_from((parent, name) for parent in parents)
        weights = [float(system.intercepts[j]), *system.weights[own, j].tolist()]
        deviation = float(np.sqrt(system.noise_variances[j]))
        found.add_cpds(LinearGaussianCPD(name, weights, deviation, parents))
    return found


def from_pgmpy(network: Any) -> BayesianNetwork:
    """Return the network of a pgmpy ``DiscreteBayesianNetwork`` whose tables are all there.

    Raises
    ------
    DataError
        If a variable has no table, or the tables do not fit together.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.discrete import random_network
    >>> from flwr_causal.interoperability import from_pgmpy, to_pgmpy
    >>> network = random_network(3, seed=0)
    >>> from_pgmpy(to_pgmpy(network)).names == network.names
    True
    """
    names = [str(node) for node in network.nodes()]
    tables = {str(cpd.variable): cpd for cpd in network.get_cpds()}
    missing = [name for name in names if name not in tables]
    if missing:
        raise DataError(f"the network has no table of {', '.join(missing)}: fit it first")
    states = [tuple(map(plain_label, tables[name].state_names[name])) for name in names]
    parents, arrays = [], []
    for name in names:
        cpd = tables[name]
        own = [names.index(str(variable)) for variable in cpd.variables[1:]]
        values = np.asarray(cpd.values, dtype=np.float64)
        for axis, k in enumerate(own, 1):  # each table has its own order of a parent's states
            there = label_names(map(plain_label, cpd.state_names[cpd.variables[axis]]))
            known = label_names(states[k])
            if sorted(there) != sorted(known):
                raise DataError(f"the table of {name!r} has other states of {names[k]!r}")
            values = values.take([there.index(state) for state in known], axis=axis)
        order = np.argsort(own, kind="stable")
        parents.append([own[place] for place in order])
        arrays.append(values.transpose(*(1 + order), 0))
    return BayesianNetwork(
        tuple(names),
        tuple(states),
        tuple(map(tuple, parents)),
        tuple(array / array.sum(axis=-1, keepdims=True) for array in arrays),
    )


def _without_lags(graph: CausalGraph, what: str) -> None:
    if graph.lagged is not None:
        raise DataError(f"{what} has no lags: give graph.summary(), or use to_tigramite or to_gml")


def _refuse_names(names: Sequence[str], characters: str, what: str) -> None:
    for name in names:
        if any(character in name for character in characters):
            raise DataError(
                f"the variable {name!r} has one of the characters {' '.join(characters)}, which "
                f"{what} cannot hold: rename it"
            )


# SPFlow.


def to_spflow(circuit: Circuit) -> Any:
    """Return a module of SPFlow (1.1 and later) with the distribution of a circuit, in float64.

    Trees of categories become sums and products. Rows for SPFlow are ``circuit.domain.encode``'s:
    a column for each variable of the domain, the number of the state for a category, NaN where a
    value is missing. Of ``run.model`` the circuit is ``run.model.density``, unless it is composed
    of the circuits of several parties.

    Parameters
    ----------
    circuit : Circuit
        With leaves that SPFlow has: normal distributions, categories, trees of categories.

    Raises
    ------
    DataError
        If the circuit has other leaves.
    ImportError
        If SPFlow is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.interoperability import to_spflow
    >>> from flwr_causal.solvers import learn_spn
    >>> module = to_spflow(learn_spn(pd.DataFrame({"rain": ["no", "yes"] * 20})))
    """
    import torch
    from spflow.modules import leaves, products, sums

    root = with_leaves(circuit.root, _without_trees)
    assert root is not None  # no leaf is left out
    made: dict[int, Any] = {}
    for node in ascending(root):
        if isinstance(node, Gaussian):
            mean, sd = (torch.tensor([[[x]]], dtype=torch.float64) for x in (node.mean, node.sd))
            module = leaves.Normal(node.column, loc=mean, scale=sd)
        elif isinstance(node, Categorical):
            shares = torch.tensor(node.probabilities[None, None, None])
            module = leaves.Categorical(node.column, probs=shares)
        elif not node.children:
            raise DataError(
                f"the circuit has a leaf of kind {getattr(node, 'kind', '?')!r}, which SPFlow has "
                "not: learn_spn(..., leaves='gaussian') and fedpc's learner 'trees' make others"
            )
        else:
            # SPFlow compares scopes as sequences.
            weights = getattr(node, "weights", None)
            if weights is None:
                children = sorted(node.children, key=lambda child: child.scope)
                module = products.Product([made[id(child)] for child in children])
            else:
                children = [child for child, w in zip(node.children, weights, strict=True) if w > 0]
                shares = torch.tensor(weights[weights > 0][None, :, None, None])
                module = sums.Sum([made[id(child)] for child in children], weights=shares)
        made[id(node)] = module
    return made[id(root)]


def _without_trees(leaf: Leaf) -> Node:
    """Return a tree of categories as sums over the states of each variable; other leaves as is."""
    if not isinstance(leaf, ChowLiuTree):
        return leaf
    below: dict[int, list[int]] = {}
    for j, parent in enumerate(leaf.parents):
        below.setdefault(parent, []).append(j)
    # By variable, its part of the tree for each state of its parent; None without a column.
    parts: dict[int, list[Node | None]] = {}
    for j in reversed(leaf.flat.order.tolist()):
        table, column = leaf.tables[j], leaf.scope[j] if j < len(leaf.scope) else None
        if j not in below:
            known = [None if column is None else Categorical(column, row) for row in table]
            parts[j] = [*known]
            continue
        branches: list[Node | None] = []
        for state, one in enumerate(np.eye(table.shape[1])):
            own: list[Node | None] = [None if column is None else Categorical(column, one)]
            own += [parts[child][state] for child in below[j]]
            kept = [part for part in own if part is not None]
            branches.append(joined(kept) if kept else None)
        parts[j] = [_sum(branches, row) for row in table]
    roots = [parts[j][0] for j in below[-1]]
    return joined([part for part in roots if part is not None])


def _sum(branches: Sequence[Node | None], weights: NDArray[np.float64]) -> Node | None:
    """Return the sum of the branches of positive weight; None where they have no column."""
    kept = [
        (branch, weight)
        for branch, weight in zip(branches, weights, strict=True)
        if branch is not None and weight > 0
    ]
    return mixed([one for one, _ in kept], [weight for _, weight in kept]) if kept else None
