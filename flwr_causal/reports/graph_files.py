"""Files of causal graphs: writing GraphML, DOT, CSV and JSON, and reading several formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.graph import CausalGraph, at_lag
from flwr_causal.core.graphs.pag.marks import ARROW, CIRCLE, TAIL
from flwr_causal.core.words import printable, some
from flwr_causal.data.read.bif import read_bif
from flwr_causal.data.spreadsheet import unguarded, write_csv
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import networkx as nx
    from numpy.typing import NDArray


POSITIVE, NEGATIVE, NEUTRAL = "#2b6cb0", "#c2571a", "#4a5568"
# Names of the columns for the ends of an edge.
_ENDS = (("source", "target"), ("cause", "effect"), ("from", "to"))
_MATRICES = ("weights", "adjacency", "W", "B")
_LAGGED = ("lagged", "A")


def write_all(graph: CausalGraph, directory: str | Path) -> list[Path]:
    """Write ``graph.json``, ``graph.graphml``, ``graph.dot`` and ``edges.csv``; return the paths.

    The directory is created if needed.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / name for name in ("graph.json", "graph.graphml", "graph.dot", "edges.csv")]
    graph.save(paths[0])
    write_graphml(graph, paths[1])
    write_dot(graph, paths[2])
    write_edge_csv(graph, paths[3])
    return paths


def write_graphml(graph: CausalGraph, path: str | Path) -> None:
    """Write GraphML for networkx, Gephi, Cytoscape and yEd.

    Edges have the attributes ``weight`` and ``lag`` and, if the graph has them, ``raw_weight``,
    ``confidence``, ``party_agreement`` and ``required``. An undirected edge of a CPDAG is written
    in both directions. A graph with lags is unrolled, see `CausalGraph.unrolled`.
    ``CausalGraph.from_networkx(networkx.read_graphml(path))`` restores the graph.
    """
    import networkx as nx  # which takes 0.2 s to load

    nx.write_graphml(_with_printable_names(graph).unrolled(), path, named_key_ids=True)


def _with_printable_names(graph: CausalGraph) -> CausalGraph:
    """Return a graph whose names can be in XML and in a drawing: no character controls text."""
    names = tuple(map(printable, graph.names))
    return graph if names == graph.names else replace(graph, names=names, deviations=None)


def write_dot(graph: CausalGraph, path: str | Path) -> None:
    """Write Graphviz DOT: edges labelled with their weights, coloured by sign.

    An undirected edge of a CPDAG is one edge with ``dir=none``; the edges of a CPDAG are labelled
    with their confidence, if the graph has one. A graph with lags is unrolled, with one column for
    each time slice.
    """
    graph = _with_printable_names(graph)
    unrolled = graph.unrolled()
    lines = ["digraph causal_graph {", "  node [shape=box, style=rounded];"]
    if graph.lagged is not None:
        lines.append("  rankdir=LR;")
    lines += [f"  {_quoted(node)} [label={_quoted(node)}];" for node in unrolled]
    position = {node: place for place, node in enumerate(unrolled)}
    if graph.lagged is not None:
        for lag in range(len(graph.lagged) + 1):
            nodes = [at_lag(name, lag) for name in graph.names]
            members = " ".join(f"{_quoted(node)};" for node in nodes)
            lines.append(f"  {{ rank=same; {members} }}")
    edge: dict[str, Any]
    once = set() if graph.marks is None else {(a, b) for a, _, b, _ in graph.marked_edges()}
    for start, end, edge in unrolled.edges(data=True):
        if graph.marks is not None:
            if (start, end) not in once:
                continue
            attributes = _ends(edge, unrolled.edges[end, start])
        elif graph.kind != "cpdag":
            attributes = _attributes(edge["weight"])
        elif (opposite := unrolled.get_edge_data(end, start)) is None:
            attributes = _marks(edge)
        elif position[start] < position[end]:
            attributes = _marks(edge, opposite)
        else:
            continue
        lines.append(f"  {_quoted(start)} -> {_quoted(end)}{attributes};")
    Path(path).write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


def _attributes(weight: float) -> str:
    """Return the DOT attributes of an edge with a weight."""
    colour = POSITIVE if weight > 0 else NEGATIVE if weight < 0 else NEUTRAL
    return f' [label="{weight:.3g}", color="{colour}"]'


def _marks(edge: dict[str, Any], opposite: dict[str, Any] | None = None) -> str:
    """Return the DOT attributes of a CPDAG's edge, undirected if the opposite edge is given."""
    parts = [] if opposite is None else ["dir=none"]
    if "confidence" in edge:
        both = (edge, {} if opposite is None else opposite)
        parts.append(f'label="{max(one.get("confidence", 0.0) for one in both):.3g}"')
    return f" [{', '.join(parts)}]" if parts else ""


#: The shapes of the marks of a PAG at the ends of an edge.
_SHAPES = {TAIL: "none", ARROW: "normal", CIRCLE: "odot"}


def _ends(edge: dict[str, Any], opposite: dict[str, Any]) -> str:
    """Return the DOT attributes of a PAG's edge."""
    tail, head = _SHAPES[opposite["mark"]], _SHAPES[edge["mark"]]
    return f" [dir=both, arrowtail={tail}, arrowhead={head}]"


def _quoted(name: str) -> str:
    """Return a quoted DOT identifier; quotes are escaped, and backslashes are doubled.

    DOT needs no doubled backslashes, except at the end, where one would escape the closing quote.
    """
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_edge_csv(graph: CausalGraph, path: str | Path) -> None:
    """Write one row per edge: source, target, lag, weight, raw_weight, confidence, required.

    ``lag`` is 0 for instantaneous edges; unknown values are empty. A graph with an agreement of its
    parties has a further column ``party_agreement``, a CPDAG a column ``undirected``, and its
    undirected edges are written in both directions; a summary of lags has a column ``summary``.
    `read_edges` reads the file.
    """
    lagged_rows = [
        {
            "source": graph.names[i],
            "target": graph.names[j],
            "lag": int(lag) + 1,
            "weight": graph.lagged[lag, i, j],
            "raw_weight": None if graph.raw_lagged is None else graph.raw_lagged[lag, i, j],
            "confidence": (
                None if graph.lagged_confidence is None else graph.lagged_confidence[lag, i, j]
            ),
        }
        for lag, i, j in (() if graph.lagged is None else np.argwhere(graph.lagged != 0))
        if graph.lagged is not None
    ]
    rows = [
        {
            "source": graph.names[i],
            "target": graph.names[j],
            "lag": 0,
            "weight": graph.weights[i, j],
            "raw_weight": None if graph.raw_weights is None else graph.raw_weights[i, j],
            "confidence": None if graph.confidence is None else graph.confidence[i, j],
            "party_agreement": (
                None if graph.party_agreement is None else graph.party_agreement[i, j]
            ),
            "required": graph.required is not None and bool(graph.required[i, j]),
            "undirected": bool(graph.adjacency[j, i]),
            "mark": None if graph.marks is None else int(graph.marks[i, j]),
            "summary": True,
        }
        for i, j in np.argwhere(graph.adjacency)
    ]
    columns = ["source", "target", "lag", "weight", "raw_weight", "confidence", "required"]
    if graph.party_agreement is not None:
        columns.append("party_agreement")
    if graph.kind == "cpdag":
        columns.append("undirected")
    if graph.marks is not None:
        columns.append("mark")
    if graph.kind == "summary":
        columns.append("summary")
    table = pd.DataFrame(rows + lagged_rows, columns=columns)
    table["required"] = table["required"].eq(True)
    write_csv(table, Path(path))


def read_edges(path: str | Path, names: Sequence[str]) -> CausalGraph:
    """Read a graph over the variables ``names``.

    Parameters
    ----------
    path : str or Path
        One of:

        - a CSV with one row for each edge and the columns ``source``, ``target`` (or ``cause``,
          ``effect``; ``from``, ``to``) and optionally ``weight`` (default 1) and ``lag`` (default
          0). A table with a column ``undirected`` is a CPDAG; an undirected edge is one row, or
          two rows in opposite directions. One with a column ``mark``, the mark at the target, is
          a PAG; each edge is two rows. One with a column ``summary`` is a summary of lags;
        - a CSV with a ``(d, d)`` matrix, row causes column, with or without a header and row
          labels;
        - an NPZ archive with such a matrix as ``weights`` or ``adjacency``, or as the only square
          matrix, and optionally ``names`` and ``lagged``, matrices ``(p, d, d)`` from lag 1;
        - a JSON file of ``CausalGraph.save``;
        - a Bayesian network in BIF.

        CSV and BIF files may be compressed (``.csv.gz``).
    names : sequence of str
        The variables, in the order of the result. A matrix without names must be in this order.

    Returns
    -------
    CausalGraph
        A graph over ``names``, of kind ``"dag"`` unless the file states another kind.

    Raises
    ------
    DataError
        If the file is missing or has another form, or names a variable that is not in ``names``.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no graph at {path}: check the path, or give an absolute one")
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "json":
        return _over(CausalGraph.load(path), names, path)
    if kind == "bif":
        return _over(read_bif(path).graph, names, path)
    if kind == "npz":
        return _from_npz(path, names)
    if kind in ("csv", "txt", "tsv"):
        return _from_text(path, names, "\t" if kind == "tsv" else ",")
    raise DataError(f"{path} has an unknown suffix: give .csv, .csv.gz, .tsv, .json, .npz or .bif")


def _over(graph: CausalGraph, names: Sequence[str], path: Path) -> CausalGraph:
    """Return a named graph in the order of ``names``; the error names the file."""
    try:
        return graph.reordered(names)
    except DataError:
        _check_known(graph.names, names, path)
        missing = [name for name in names if name not in graph.names]
        raise DataError(
            f"{path} lacks the variable {missing[0]!r}: add it, or give a table of edges, which "
            "need not mention every variable"
        ) from None


def _check_known(used: Sequence[str], names: Sequence[str], path: Path) -> None:
    """Raise a DataError if a variable of the file is not among ``names``."""
    for name in used:
        if name not in names:
            raise DataError(
                f"{path} names the variable {name!r}, which is not among {some(names)}: "
                "rename it there or in the data"
            )


def _from_npz(path: Path, names: Sequence[str]) -> CausalGraph:
    """Read a matrix from an NPZ archive."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not an NPZ archive of plain arrays ({error})") from None
    square = [k for k, a in arrays.items() if a.ndim == 2 and a.shape[0] == a.shape[1]]
    chosen = [key for key in _MATRICES if key in square] or (square if len(square) == 1 else [])
    if not chosen:
        raise DataError(
            f"{path} holds {', '.join(arrays) or 'nothing'}: store the matrix as 'adjacency' or "
            "'weights', shape (d, d)"
        )
    own = [str(name) for name in arrays["names"]] if "names" in arrays else None
    lagged = next((arrays[key] for key in _LAGGED if key in arrays and key != chosen[0]), None)
    if lagged is not None and lagged.ndim == 2:
        lagged = lagged[None]
    return _from_matrix(arrays[chosen[0]], own, names, path, lagged)


def _from_matrix(
    matrix: NDArray[Any],
    own: Sequence[str] | None,
    names: Sequence[str],
    path: Path,
    lagged: NDArray[Any] | None = None,
) -> CausalGraph:
    """Return the graph of a matrix with its names ``own``, or else ``names``."""
    if own is None and len(matrix) != len(names):
        raise DataError(
            f"{path} holds a matrix of shape {matrix.shape} for {len(names)} variables: add their "
            "names as a header, or leave no variable out"
        )
    try:
        graph = CausalGraph.from_array(matrix, names if own is None else own, lagged=lagged)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return _over(graph, names, path)


def _from_text(path: Path, names: Sequence[str], separator: str) -> CausalGraph:
    """Read a table of edges or a matrix."""
    try:
        cells = pd.read_csv(
            path,
            sep=separator,
            header=None,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
    except (ValueError, OSError, EOFError) as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{path} cannot be read as a table ({error})") from None
    header = [cell.strip() for cell in cells.iloc[0]]
    for source, target in _ENDS:
        if source in header and target in header:
            table = cells.iloc[1:].set_axis(header, axis=1)
            table = table.rename(columns={source: "source", target: "target"})
            return _from_table(table, names, path)
    return _from_cells(cells.to_numpy(dtype=str), names, path)


def _from_cells(cells: NDArray[np.str_], names: Sequence[str], path: Path) -> CausalGraph:
    """Read a matrix with an optional header and optional row labels."""
    own: list[str] | None = None
    labels: list[str] | None = None
    if not _is_number(cells[0, -1]):
        own, cells = [_name(str(cell), names) for cell in cells[0]], cells[1:]
        if cells.shape[1] == len(cells) + 1:
            labels = [_name(str(cell), names) for cell in cells[:, 0]]
            own, cells = own[1:], cells[:, 1:]
    no_number = [str(cell) for cell in cells.ravel() if not _is_number(cell)]
    if no_number or cells.shape[0] != cells.shape[1]:
        found = repr(no_number[0]) if no_number else f"{cells.shape[0]} by {cells.shape[1]} numbers"
        raise DataError(
            f"{path} is neither a table of edges, with the columns source and target, nor a square "
            f"matrix of numbers: found {found}"
        )
    if labels is not None and labels != own and not all(_is_number(label) for label in labels):
        raise DataError(f"{path}: the row labels differ from the header: use one order")
    return _from_matrix(cells.astype(np.float64), own, names, path)


def _name(cell: str, names: Sequence[str]) -> str:
    """Return the name in a cell: one of ``names``, as it is or as `write_edge_csv` writes it."""
    text = unguarded(cell.strip())
    return next((one for one in (unguarded(cell), cell.strip(), text) if one in names), text)


def _is_number(cell: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_table(table: pd.DataFrame, names: Sequence[str], path: Path) -> CausalGraph:
    """Return the graph of a table with one row for each edge."""
    import networkx as nx  # which takes 0.2 s to load

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    graph.add_nodes_from(names)
    kinds = {"undirected": "cpdag", "mark": "pag", "summary": "summary"}
    graph.graph.update([("kind", kinds[name]) for name in table.columns if name in kinds])
    undirected: list[tuple[str, str, dict[str, Any]]] = []
    for line, row in enumerate(table.to_dict("records"), start=2):
        source, target = (_name(str(row[end]), names) for end in ("source", "target"))
        where = f"{path}, line {line}"
        _check_known((source, target), names, Path(where))
        lag = _number(row.get("lag", ""), "lag", 0.0, where)
        if source == target and lag == 0:
            raise DataError(f"{where}: {source!r} causes itself without a lag: remove the row")
        edge: dict[str, Any] = {
            "lag": lag,
            "weight": _number(row.get("weight", ""), "weight", 1.0, where),
            "mark": _number(row.get("mark", ""), "mark", 0.0, where),
        }
        if str(row.get("required", "")).strip().lower() == "true":
            edge["required"] = True
        for share in ("confidence", "party_agreement"):
            if str(row.get(share, "")).strip():
                edge[share] = _number(row[share], share, 0.0, where)
        graph.add_edge(source, target, **edge)
        if lag == 0 and str(row.get("undirected", "")).strip().lower() == "true":
            undirected.append((source, target, edge))
    for source, target, edge in undirected:
        if not graph.has_edge(target, source):
            graph.add_edge(target, source, **edge)
    try:
        return CausalGraph.from_networkx(graph)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _number(cell: object, column: str, default: float, where: str) -> float:
    """Return a cell's number, or the default for an empty cell."""
    text = str(cell).strip()
    if not text:
        return default
    if not _is_number(text):
        raise DataError(f"{where}: {column} is {text!r}, expected a number")
    return float(text)
