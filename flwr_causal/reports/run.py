"""The result of a run; saving it in a directory and loading it again."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.files import new_directory, protect, write
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.saved import DAMAGE, UnwritableError, has_form
from flwr_causal.data.read.bif import write_bif
from flwr_causal.data.spreadsheet import read_csv, write_csv
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.party.options import METHODS_GROUP
from flwr_causal.reports.doubts import describe_doubts, doubts_of, fit_check, fitted_model
from flwr_causal.reports.edges import describe_graph
from flwr_causal.reports.graph_files import write_all
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.page.template import write_page
from flwr_causal.reports.record import RunRecord, privacy_line
from flwr_causal.runtime.checkpoint import read_history
from flwr_causal.runtime.influence import known_influence
from flwr_causal.runtime.run_directory import (
    EXCHANGES,
    HISTORY_FILE,
    PAGE,
    RESULTS,
    RUN_FILE,
    SAVING,
    about_run,
    check_own,
    is_page,
    own_files,
    remove,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from flwr_causal.core.graphs.doubt import DoubtfulEdge
    from flwr_causal.core.graphs.fit_check import FitCheck

# print(run) lists so many edges without a lag, and as many with one.
MOST_PRINTED = 5
LONGEST_WARNING = 200

GRAPHS_FILE = "local_graphs.json"
TABLE_FILE = "heterogeneity.csv"
DISAGREEMENT_FILE = "disagreement.csv"
TRUTH_FILE = "truth.json"

# The fields of `Run.summary`, beside the influence, and the further ones of ``run.json``.
_SUMMARY = (
    *("status", "rounds", "bytes_sent", "bytes_received", "schema_bytes", "seconds"),
    *("stop_reason", "metrics", "config", "parties", "sources", "num_rows", "groups"),
    *("answered", "lost", "failures", "privacy", "warnings", "error"),
)
_FURTHER = ("about", "columns", "versions")


@dataclass(repr=False)
class Run(RunRecord):
    """The result of a run, which can be printed, saved, loaded and shown as a page.

    Its fields are those of :class:`flwr_causal.reports.record.RunRecord`.
    """

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies.

        Parameters
        ----------
        rows : DataFrame, optional
            Rows that the search has not seen. Default: the sums of all parties' rows, which need no
            further exchange.

        Returns
        -------
        FitCheck
            ``print`` shows it in words.

        Raises
        ------
        ConfigError
            If the run's model has no such check, or needs rows for it.
        """
        return fit_check(self, rows)

    def total_effect(self, cause: str, effect: str, **options: Any) -> Any:
        """Return the total effect of one variable on another: that of the run's model.

        Parameters
        ----------
        cause, effect : str
        **options
            Of the model's ``total_effect``, such as ``lag`` and ``by_party``.

        Returns
        -------
        Effect, DataFrame, or list of these
            One effect, of categories a table by state of the cause; where an equivalence class
            leaves it open, those that the class allows.

        Raises
        ------
        ConfigError
            If the run has no model with effects; it says which options give one.
        """
        return fitted_model(self, "total_effect").total_effect(cause, effect, **options)

    def doubtful_edges(self, count: int = 3) -> list[DoubtfulEdge]:
        """Return the most doubtful edges, and what would decide them.

        Parameters
        ----------
        count : int, default 3
            How many edges.

        Returns
        -------
        list of DoubtfulEdge
            The most doubtful one first: by the graph's confidence, by the model's test of each
            edge, and by whether the independencies in the rows decide its direction. Empty without
            a graph.
        """
        return doubts_of(self, count)

    def __repr__(self) -> str:
        method, found = self.config.get("method", "run"), self.graph or type(self.model).__name__
        return f"<Run {method}: {self.status}, {found}>"

    def __str__(self) -> str:
        """Return what ``print(run)`` shows: about ten lines."""
        lines = [
            f"{self.config.get('method', 'run')}, {self.headline}: "
            f"{self.error or self.stop_reason}",
            f"Exchanges {self.rounds}, {self.seconds:.1f} s, {len(self.parties)} parties, "
            f"{self.total_rows} rows, {self.bytes_sent:,} bytes sent, {self.bytes_received:,} "
            "received",
        ]
        if self.graph is not None:
            lines += describe_graph(
                self.graph,
                MOST_PRINTED,
                "run.graph.marked_edges() lists all",
                signed=not self.unsigned,
            )
        if self.privacy:
            lines.append(privacy_line(self.privacy))
        if self.model is not None:
            lines.append(f"Model: {type(self.model).__name__}")
        lines += describe_doubts(self)
        numbers = {k: v for k, v in self.metrics.items() if isinstance(v, int | float)}
        if numbers:
            lines.append("Metrics: " + ", ".join(f"{k} {v:.4g}" for k, v in numbers.items()))
        if self.failures:
            lines.append(f"Replies missing: {len(self.failures)}, listed in run.failures")
        if self.warnings:
            first = shorten(self.warnings[0], LONGEST_WARNING, placeholder=" ...")
            lines.append(f"Warnings: {len(self.warnings)}, in run.warnings; the first: {first}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the lines of ``print(run)``, the edges, the drawing."""
        graph = "" if self.graph is None else self.graph._repr_html_()
        return notebook.preformatted(str(self)) + graph

    def summary(self, *, influence: bool = True) -> dict[str, Any]:
        """Return everything but graphs, tables, model, scores and history as plain values.

        Parameters
        ----------
        influence : bool, default True
            Whether to compute the influence of the parties if it has not been computed yet.
        """
        values = {name: getattr(self, name) for name in _SUMMARY}
        return {**values, "influence": self.influence if influence else known_influence(self)}

    def save(self, directory: str | Path, *, influence: bool = True) -> Path:
        """Write the run into a directory, which is created if needed; an earlier run is replaced.

        Only their owner can read them. The files are ``run.json`` (status, metrics, configuration,
        versions, the model's class) and ``history.jsonl`` (one line for each exchange), and, as far
        as the run has them,
        ``graph.json`` (which ``CausalGraph.load`` reads), ``graph.graphml``, ``graph.dot``,
        ``edges.csv``, ``scores.csv``, ``model.json`` (with ``model.bif`` for a Bayesian network,
        the directory ``model`` for a circuit), ``truth.json``, ``local_graphs.json`` (by party),
        ``heterogeneity.csv``, ``disagreement.csv`` and ``answers.csv``. All files are written
        before the first file of an earlier run is replaced.

        Parameters
        ----------
        directory : str or Path
        influence : bool, default True
            Whether to compute the influence of the parties if it has not been computed yet, which
            takes about as long as the run for each of them.

        Returns
        -------
        Path
            The directory.

        Raises
        ------
        ConfigError
            If the directory cannot be written, or holds a file of one of these names that is not of
            an earlier run.
        """
        target = Path(directory)
        part = target / SAVING
        check_own(target)
        try:
            remove(target, [SAVING])
            new_directory(part)
            self._write(part, influence=influence)
            protect(part)
            self._replace(target, part)
        except (OSError, UnwritableError) as error:
            reason = error.reason if isinstance(error, UnwritableError) else error.strerror or error
            raise ConfigError(
                f"The results cannot be written to '{target}' ({reason}): free the disk, or give "
                "another directory."
            ) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        if self.status == "completed":
            # Needed to resume a run, not to load one.
            remove(target, [EXCHANGES])
        return target

    def _replace(self, target: Path, part: Path) -> None:
        """Put the files of a run in the place of those of an earlier one."""
        names = sorted(file.name for file in part.iterdir())
        if (about := about_run(target)) is not None:
            # Should this end halfway, the next run knows which files are there.
            listed = [*own_files(target).union(names)]
            write(target / RUN_FILE, json.dumps({**about, "files": listed}, indent=2))
        # Files of an earlier run must not be taken for files of this one.
        remove(target, RESULTS)
        if is_page(target / PAGE):
            (target / PAGE).unlink()
        # run.json is the last file: if it exists, the others do.
        for name in sorted(names, key=RUN_FILE.__eq__):
            (part / name).replace(target / name)

    def _write(self, target: Path, *, influence: bool) -> None:
        """Write all files into an empty directory."""
        further = {name: getattr(self, name) for name in _FURTHER}
        content = self.summary(influence=influence) | further
        kind = type(self.model)
        if hasattr(kind, "save") and hasattr(kind, "load"):
            content["model"] = _class_name(kind)
            self.model.save(target / "model.json")
        if isinstance(self.model, BayesianNetwork):
            write_bif(self.model, target / "model.bif")
        lines = [json.dumps(record) + "\n" for record in self.history]
        (target / HISTORY_FILE).write_text("".join(lines), encoding="utf-8")
        if self.graph is not None:
            write_all(self.graph, target)
            if self.scores is not None:
                names = list(self.graph.names)
                write_csv(
                    pd.DataFrame(self.scores, names, names), target / "scores.csv", index=True
                )
        if self.truth is not None:
            self.truth.save(target / TRUTH_FILE)
        _write_local(self.local_graphs, self.heterogeneity, target)
        if self.disagreement is not None:
            write_csv(self.disagreement, target / DISAGREEMENT_FILE)
        if self.answers is not None:
            write_csv(self.answers, target / "answers.csv")
        content["files"] = sorted(file.name for file in target.iterdir())
        (target / RUN_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")

    def report(self, path: str | Path) -> Path:
        """Write one HTML page of the run, which needs no network and no other file.

        The page has the graph, the warnings, the edges, the parties, the exchanges and the
        configuration. Nothing is computed for it but densities of a circuit and effects of a linear
        model. The influence of the parties is shown if it is known already.

        Parameters
        ----------
        path : str or Path
            The file to write, such as ``"report.html"``; directories are created if needed.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ConfigError
            If the file cannot be written, is there and no such page, or the package lacks the
            page's files: an app bundle of Flower does not contain them.
        """
        return write_page(payload_of(self), path)

    @classmethod
    def load(cls, directory: str | Path, models: Collection[type | str] = ()) -> Run:
        """Read a run from its directory, also one that was stopped or is still running.

        ``run.json`` names the class of the model, which reads its file. Only classes of this
        package, of packages that declare a method, and those of ``models`` are used, so that the
        directory of somebody else runs no other code.

        Parameters
        ----------
        directory : str or Path
        models : collection of type or str, default ()
            Further classes with ``load(path)``, of models of your own, or names of packages whose
            classes are used, too.

        Raises
        ------
        DataError
            If the directory holds no run, or a damaged one, or its model is of another class.
        """
        source = Path(directory)
        if not (source / RUN_FILE).is_file():
            raise DataError(f"{source} holds no run: there is no file run.json in it.")
        try:
            return cls._read(source, models)
        except DAMAGE as error:
            raise DataError(f"{source} holds a damaged run ({error}): save it again") from error

    @classmethod
    def _read(cls, source: Path, models: Collection[type | str]) -> Run:
        """Read a directory that holds a run."""
        content = json.loads((source / RUN_FILE).read_text(encoding="utf-8"))
        kind = content.pop("model", None)
        model = _model_class(kind, models).load(source / "model.json") if kind else None
        # What an earlier version did not save is unknown.
        content.setdefault("versions", {})
        content.pop("files", None)
        history = read_history(source)
        _check_forms({**content, "history": history})
        graph, truth = (
            CausalGraph.load(file) if file.is_file() else None
            for file in (source / "graph.json", source / TRUTH_FILE)
        )
        scores_file = source / "scores.csv"
        scores = None
        if scores_file.is_file():
            scores = _read_text(scores_file, index_col=0).to_numpy(dtype=np.float64)
        local_graphs, differences = _read_local(source)
        answers_file, apart = source / "answers.csv", source / DISAGREEMENT_FILE
        return cls(
            graph=graph,
            truth=truth,
            history=history,
            model=model,
            scores=scores,
            local_graphs=local_graphs,
            heterogeneity=differences,
            disagreement=_read_disagreement(apart) if apart.is_file() else None,
            answers=read_csv(answers_file) if answers_file.is_file() else None,
            **content,
        )


def _write_local(
    graphs: dict[str, CausalGraph], table: pd.DataFrame | None, directory: Path
) -> None:
    """Write ``local_graphs.json`` and ``heterogeneity.csv``, if the run has them."""
    if graphs:
        plain = {party: graph.to_dict() for party, graph in graphs.items()}
        (directory / GRAPHS_FILE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    if table is not None:
        write_csv(table, directory / TABLE_FILE)


def _read_local(directory: Path) -> tuple[dict[str, CausalGraph], pd.DataFrame | None]:
    """Read what `_write_local` wrote; no graphs and None where the files are missing."""
    graphs: dict[str, CausalGraph] = {}
    table: pd.DataFrame | None = None
    if (directory / GRAPHS_FILE).is_file():
        plain = json.loads((directory / GRAPHS_FILE).read_text(encoding="utf-8"))
        graphs = {party: CausalGraph.from_dict(one) for party, one in plain.items()}
    if (directory / TABLE_FILE).is_file():
        from flwr_causal.core.fedcausal.heterogeneity import COLUMNS

        table = _read_text(directory / TABLE_FILE)
        parsers: dict[type, Callable[[str], Any]] = {bool: "True".__eq__, float: float, str: str}
        for name, kind in COLUMNS.items():
            table[name] = table[name].map(parsers[kind]).astype(kind)
    return graphs, table


def _read_disagreement(path: Path) -> pd.DataFrame:
    table = _read_text(path)
    numbers = ["value", "others", "z", "corrected"]
    table[numbers] = table[numbers].map(float)
    return table


def _read_text(path: Path, index_col: int | None = None) -> pd.DataFrame:
    """Read a table of texts; Python converts them to numbers exactly, pandas may round."""
    return read_csv(path, index_col=index_col, dtype=str, keep_default_na=False)


def _check_forms(content: dict[str, Any]) -> None:
    """Raise a DataError for a field of another type, which would only fail where it is shown."""
    noted = {name: RunRecord.__annotations__[name] for name in (*_SUMMARY, *_FURTHER, "history")}
    forms = get_type_hints(SimpleNamespace(__annotations__=noted), {"Any": Any})
    forms["influence"] = dict[str, dict[str, Any]]
    for name, form in forms.items():
        if name in content and not has_form(content[name], form):
            raise TypeError(f"{name} is of another form")


def _model_class(name: str, models: Collection[type | str]) -> Any:
    """Return the class that ``run.json`` names as ``module:class``."""
    own = {_class_name(one): one for one in models if isinstance(one, type)}
    if name in own:
        return own[name]
    module, _, qualified = name.partition(":")
    declared = [one.module for one in entry_points(group=METHODS_GROUP)]
    declared += [one for one in models if isinstance(one, str)]
    if _package(module) not in {"flwr_causal", *map(_package, declared)}:
        raise DataError(
            f"the run's model is a '{name}', which is of no package with a method of flwr-causal: "
            "if you trust the directory, install the package of the method that fitted it, or "
            "give the class, as Run.load(directory, models=[...])"
        )
    try:
        found = attrgetter(qualified)(import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"the run's model is a '{name}', which cannot be imported ({error}): install the "
            "package of the method that fitted it"
        ) from error
    # What a module has imported from elsewhere goes by another name.
    if not (isinstance(found, type) and _class_name(found) == name and hasattr(found, "load")):
        raise DataError(f"the run's model is a '{name}', which is no class with 'load'")
    return found


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _package(module: str) -> str:
    return module.partition(".")[0]
