"""The result of a run; saving it in a directory and loading it again."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from textwrap import shorten
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import numpy as np
import pandas as pd

from flwr_causal.core.arguments import check_argument, instance
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.files import new_directory, protect, write
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.saved import DAMAGE, UnwritableError, misplaced
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.words import printable, some
from flwr_causal.data.read.bif import write_bif
from flwr_causal.data.spreadsheet import read_csv, write_csv
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.party.options import METHODS_GROUP
from flwr_causal.reports.asked import answer, asked_of
from flwr_causal.reports.edges import describe_graph
from flwr_causal.reports.graph_files import write_all
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.page.template import write_page
from flwr_causal.reports.result import RunResult, privacy_line, status_in_words
from flwr_causal.reports.trust import (
    Trust,
    describe_differences,
    doubts_of,
    fit_check,
    fitted_model,
    trust_of,
)
from flwr_causal.runtime.checkpoint import (
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
    read_history,
    remove,
)
from flwr_causal.runtime.influence import known_influence
from flwr_causal.runtime.stored import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.doubt import DoubtfulEdge
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.runtime.outcome import Outcome

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
_FURTHER = ("about", "columns", "targets", "versions", "tables")


@dataclass(repr=False)
class Run(SingleThreaded, RunResult):
    """The result of a run, which can be printed, saved, loaded and shown as a page.

    Its fields are those of :class:`flwr_causal.reports.result.RunResult`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from flwr_causal import Run, simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> run = simulate("moments", federated_linear(3, 200, 2)[0])
    >>> with TemporaryDirectory() as folder:
    ...     print(Run.load(run.save(folder)).graph.equals(run.graph))
    True
    """

    #: Of a simulation, what runs it again with other options.
    _again: ClassVar[Any] = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the tables that a repetition would read."""
        return {name: value for name, value in vars(self).items() if name != "_again"}

    @property
    def trust(self) -> Trust:
        """How far to trust the result: the facts, and the verdict that follows from them."""
        return trust_of(self)

    @property
    def headline(self) -> str:
        """Whether to rely on the result, and why not, in one sentence."""
        return self.trust.sentence

    def without(self, *parties: str) -> Run:
        """Repeat a simulation without some parties.

        All else stays: options, seed, and the names of the other parties.

        Parameters
        ----------
        *parties : str
            Names as in :attr:`parties`, of their files, or of groups.

        Returns
        -------
        Run
            ``output_dir`` is not written.

        Raises
        ------
        ConfigError
            If there is no such party, none is left, or the run is no simulation of this process: on
            real nodes, and of loaded runs, the option ``expected_parties`` names those that take
            part.
        """
        by_file = {file: party for party, file in self.sources.items()}
        named = [by_file.get(name, name) for name in parties]
        left_out = {party for name in named for party in self.groups.get(name, [name])}
        if unknown := sorted(left_out - set(self.parties)):
            raise ConfigError(f"no party is called {some(unknown)}: there are {some(self.parties)}")
        left = ",".join(name for name in self.parties if name not in left_out)
        if not left or self._again is None:
            reason = "without them no party is left" if not left else "this is no simulation"
            raise ConfigError(
                f"{reason}: name the parties of the next run by the option expected_parties"
                + (f"={left!r}" if left else "")
            )
        found: Run = self._again(left)
        return found

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
        """Return the total effect of one variable on another, by the run's model.

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
        trust = self.trust
        lines = [
            trust.sentence,
            f"{self.config.get('method', 'run')}, {status_in_words(self)}: "
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
        if self.targets is not None:
            count, parties = len(self.targets), {one["party"] for one in self.targets}
            lines.append(f"Targets: {count}, of {len(parties)} parties, in run.targets")
        if self.privacy:
            lines.append(privacy_line(self.privacy))
        if self.model is not None:
            lines.append(f"Model: {type(self.model).__name__}")
        if (asked := asked_of(self)) is not None:
            lines += answer(self, *asked)[:MOST_PRINTED]
        if trust.fit is not None:
            lines.append(f"Fit: {trust.fit.summary()}")
        lines += describe_differences(self)
        numbers = {k: v for k, v in self.metrics.items() if isinstance(v, int | float)}
        if numbers:
            lines.append("Metrics: " + ", ".join(f"{k} {v:.4g}" for k, v in numbers.items()))
        if self.failures:
            lines.append(f"Replies missing: {len(self.failures)}, listed in run.failures")
        if self.warnings:
            first = shorten(self.warnings[0], LONGEST_WARNING, placeholder=" ...")
            lines.append(f"Warnings: {len(self.warnings)}, in run.warnings; the first: {first}")
        # A directory that was loaded may be somebody else's.
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the lines of ``print(run)``, the edges, the drawing."""
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

    @classmethod
    def of(cls, outcome: Outcome, **further: Any) -> Run:
        """Return the run that an outcome of the training loop describes.

        Parameters
        ----------
        outcome : Outcome
        **further
            Fields of the run that the outcome does not have, such as ``about``.
        """
        found, parties = outcome.heterogeneity, outcome.parties
        simulated = all(party.partition_id >= 0 for party in parties)
        return cls(
            **outcome.summary(),
            graph=outcome.graph,
            history=outcome.history,
            scores=outcome.scores,
            config={**outcome.config, "simulated": simulated},
            model=outcome.model,
            local_graphs=found.graphs if found else {},
            heterogeneity=found.edges if found else None,
            targets=list(found.targets) if found and found.targets is not None else None,
            disagreement=outcome.disagreement,
            columns={} if outcome.agreement is None else outcome.agreement.summary(),
            influence=vars(outcome)["_influence"],  # not computed yet, if nothing has read it
            **further,
        )

    def save(
        self, directory: str | Path, *, influence: bool = True, resumable: bool = False
    ) -> Path:
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
        resumable : bool, default False
            Whether a completed run leaves what it can be resumed from: the parties' reports and
            the combined replies.

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
        if self.status == "completed" and not resumable:
            # Needed to resume a run, not to load one.
            remove(target, [EXCHANGES])
        return target

    def _replace(self, target: Path, part: Path) -> None:
        """Replace the files of an earlier run."""
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
        lines = [json.dumps(entry) + "\n" for entry in self.history]
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

    def report(
        self, path: str | Path, *, treatment: str | None = None, outcome: str | None = None
    ) -> Path:
        """Write one HTML page of the run, which needs no network and no other file.

        The page has the effect that is asked for, with its interval, what was adjusted for and what
        would make it wrong; the graph, the warnings, the edges, the parties, the exchanges and the
        configuration. Nothing is computed for it but densities of a circuit and effects of a linear
        model. The influence of the parties is shown if it is known already.

        Parameters
        ----------
        path : str or Path
            The file to write, such as ``"report.html"``; directories are created if needed.
        treatment, outcome : str, optional
            Two variables, whose effect comes first on the page. Default: the columns with these
            roles in the run's dictionary.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ConfigError
            If the file cannot be written, is there and no such page, or the package lacks the
            page's files: an app bundle of Flower does not contain them; if treatment or outcome is
            no variable of the run, or is given alone.
        """
        return write_page(payload_of(self, asked_of(self, treatment, outcome)), path)

    def page(
        self, path: str | Path = PAGE, *, treatment: str | None = None, outcome: str | None = None
    ) -> Path:
        """Write the page of :meth:`report`, by default to ``report.html`` in this directory."""
        return self.report(path, treatment=treatment, outcome=outcome)

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
        check_argument("Run.load", "directory", directory, instance((str, Path), "a path"))
        source = Path(directory)
        if not (source / RUN_FILE).is_file():
            raise DataError(f"{source} holds no run: there is no file run.json in it.")
        with _reading(source / RUN_FILE):
            content = json.loads((source / RUN_FILE).read_text(encoding="utf-8"))
            kind = content.pop("model", None)
            # What an earlier version did not save is unknown.
            content.setdefault("versions", {})
            content.pop("files", None)
            _check_forms(content, *_SUMMARY, *_FURTHER, "influence")
            of_model = _model_class(kind, models) if kind else None
        with _reading(source / HISTORY_FILE):
            history = read_history(source)
            _check_forms({"history": history}, "history")
        with _reading(source / RUN_FILE):
            run = cls(graph=None, history=history, **content)
        run._read(source, of_model)
        return run

    def _read(self, source: Path, of_model: Any) -> None:
        """Read the files of a run's directory beside ``run.json`` and ``history.jsonl``."""

        def read(name: str, reader: Callable[[Path], Any]) -> Any:
            if not (source / name).is_file():
                return None
            with _reading(source / name):
                return reader(source / name)

        if of_model is not None:
            with _reading(source / "model.json"):
                self.model = of_model.load(source / "model.json")
        self.graph = read("graph.json", CausalGraph.load)
        self.truth = read(TRUTH_FILE, CausalGraph.load)
        self.scores = read("scores.csv", _read_scores)
        self.local_graphs = read(GRAPHS_FILE, _read_graphs) or {}
        self.heterogeneity = read(TABLE_FILE, _read_heterogeneity)
        self.disagreement = read(DISAGREEMENT_FILE, _read_disagreement)
        self.answers = read("answers.csv", read_csv)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Name the file of a run in the error if it is damaged."""
    try:
        yield
    except DAMAGE as error:
        raise DataError(
            f"{file} is damaged ({error}): restore it, or run again and save the run"
        ) from error


def _write_local(
    graphs: dict[str, CausalGraph], table: pd.DataFrame | None, directory: Path
) -> None:
    """Write ``local_graphs.json`` and ``heterogeneity.csv``, if the run has them."""
    if graphs:
        plain = {party: graph.to_dict() for party, graph in graphs.items()}
        (directory / GRAPHS_FILE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    if table is not None:
        write_csv(table, directory / TABLE_FILE)


def _read_graphs(path: Path) -> dict[str, CausalGraph]:
    plain = json.loads(path.read_text(encoding="utf-8"))
    return {party: CausalGraph.from_dict(one, f"{path}, {party}") for party, one in plain.items()}


def _read_heterogeneity(path: Path) -> pd.DataFrame:
    from flwr_causal.core.nonlinear.heterogeneity import COLUMNS

    table = _read_text(path)
    parsers: dict[type, Callable[[str], Any]] = {bool: "True".__eq__, float: float, str: str}
    for name, kind in COLUMNS.items():
        table[name] = table[name].map(parsers[kind]).astype(kind)
    return table


def _read_scores(path: Path) -> FloatArray:
    return np.asarray(_read_text(path, index_col=0).to_numpy(dtype=np.float64))


def _read_disagreement(path: Path) -> pd.DataFrame:
    table = _read_text(path)
    if "size" not in table:  # of 0.1.0: all that is certain was told
        table.insert([*table].index("corrected"), "size", "inf")
    numbers = ["value", "others", "z", "size", "corrected"]
    table[numbers] = table[numbers].map(float)
    return table


def _read_text(path: Path, index_col: int | None = None) -> pd.DataFrame:
    """Read a table of texts; Python converts them to numbers exactly, pandas may round."""
    return read_csv(path, index_col=index_col, dtype=str, keep_default_na=False)


def _check_forms(content: dict[str, Any], *names: str) -> None:
    """Raise an error for a field of another form, which would only fail where it is shown."""
    noted = {name: RunResult.__annotations__[name] for name in names if name not in FORMS}
    forms = get_type_hints(SimpleNamespace(__annotations__=noted), {"Any": Any}) | FORMS
    for name in names:
        if name in content and (wrong := misplaced(content[name], forms[name], name)):
            raise TypeError(wrong)


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
            f"run.json names the model '{name}', which is of no package with a method of "
            "flwr-causal: if you trust the directory, install the package of the method that "
            "fitted it, or give the class, as Run.load(directory, models=[...])"
        )
    try:
        found = attrgetter(qualified)(import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise DataError(
            f"run.json names the model '{name}', which cannot be imported ({error}): install the "
            "package of the method that fitted it"
        ) from error
    # What a module has imported from elsewhere goes by another name.
    if not (isinstance(found, type) and _class_name(found) == name and hasattr(found, "load")):
        raise DataError(f"run.json names the model '{name}', which is no class with 'load'")
    return found


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _package(module: str) -> str:
    return module.partition(".")[0]
