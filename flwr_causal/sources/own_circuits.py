"""Circuits that each party trains on its rows, in one exchange: Algorithm 1 of Seng et al. (2025).

The server names groups of columns (lines 3-7), each party trains circuits on its rows of them (line
14) and sends how many rows each has. The circuits stay with the party, or are sent to the server.
For other weights than the paper's the party sends what these follow from. The composition is
:mod:`flwr_causal.core.circuits.composed.composition`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import POOLED, When
from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed import party_answers
from flwr_causal.core.circuits.composed.composition import TrainingTask, tasks_of
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.party_clusters import train_party
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.by_name import learner_of
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.received import json_of
from flwr_causal.errors import CausalError
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.sources.row_ids import check_all

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.learners.by_name import Learner
    from flwr_causal.core.circuits.learners.options import LearnerOptions
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.runtime.algorithm import Step

# -- the exchange ----------------------------------------------------------------------------------

# Which runs train how; with "auto" the parties' tables choose.
TRAINS = When(trained="")
ONE_PASS = (TRAINS & When(training=("auto", "one-pass")) & ~POOLED).called(
    "training='one-pass' or 'auto'"
)
DOMAIN = Sent(
    "domain",
    "the variables, once cut points have changed them",
    optional=True,
    # Counts of states may take over from sums, once the dependence between parties is measured.
    most=2,
)
COMMON = Sent(
    "common",
    "the position of each common row in the party's table",
    ("common",),
    values="index",
    below="n",
)
_ROWS = "each row that all parties have"
_CIRCUITS = Disclosure(
    "circuits",
    "the party's circuits; they contain no row, but a circuit of few rows reveals much of them",
    ("*",),
    "bytes",
)


def joint_domain(setup: Setup, sent: Mapping[str, Any]) -> Domain:
    """Return the joint domain: of the message if it has one, else of the agreement."""
    agreed: Domain = setup.options.domain
    return _domain_of_text(str(sent["domain"])) if "domain" in sent else agreed


@lru_cache(maxsize=8)
def _domain_of_text(text: str) -> Domain:
    return Domain.from_plain(json_of(text))


def other_domain(sent: Mapping[str, Any], setup: Setup) -> str:
    """Return a complaint if variables are not the agreed ones, or have more cut points, else ""."""
    if "domain" not in sent:
        return ""
    joint, agreed = joint_domain(setup, sent), setup.options.domain
    if joint.names != agreed.names:
        return "has other variables than the agreed ones"
    most = setup.handling.discretize - 1
    for one in joint.variables:
        if one.edges is not None and len(one.edges) > most:
            return f"has {len(one.edges)} cut points of '{one.name}', more than {most}"
    return ""


def own_domain(joint: Domain, names: Iterable[str]) -> Domain:
    """Return the variables of the joint domain that a party with these columns holds."""
    held = set(names)
    return Domain(tuple(one for one in joint.variables if one.name in held))


def _wrong_clusters(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if the clusters of a party are not of its rows, else ""."""
    sizes, rows = (arrays[name].astype(np.int64) for name in ("sizes", "rows"))
    if (sizes < 1).any() or sizes.sum() != len(rows):
        return f"'sizes' says that there are {sizes.sum()} circuits, 'rows' is of {len(rows)}"
    first = np.cumsum(sizes) - sizes
    counted, n = np.add.reduceat(rows, first), known.sizes["n"]
    if (counted != n).any():
        wrong = counted[counted != n][0]
        return f"the clusters of a group of columns count {wrong} rows, but the party reported {n}"
    if "classes" in arrays and (arrays["classes"].sum(axis=0) != rows).any():
        return "'classes' does not count the rows of each circuit"
    if "circuits" in arrays:
        groups = np.repeat(known.sent["tasks"] > 0, sizes, axis=0)
        return _wrong_circuits(arrays, known, [np.flatnonzero(one).tolist() for one in groups])
    return ""


def _wrong_circuits(arrays: Arrays, known: ReplyContext, columns: list[list[int]]) -> str:
    """Return a complaint if circuits cannot be read, or are not over these columns, else ""."""
    try:
        joint, circuits = joint_domain(known.setup, known.sent), unpacked(arrays["circuits"])
        found = [list(circuit.root_in(joint).scope) for circuit in circuits]
    except CausalError as error:
        return f"'circuits' cannot be read: {error}"
    if len(found) != len(columns):
        return f"'circuits' holds {len(found)} circuits, but there are {len(columns)}"
    return "" if found == columns else "'circuits' holds a circuit over other columns"


_LOCAL = Exchange(
    "local",
    "each party trains circuits of its own on groups of columns; the server composes them",
    sends=(
        Sent("tasks", "1 at the columns of each group", ("tasks", "d")),
        Sent("clustered", "1 where the rows of the group are clustered", ("tasks",)),
        DOMAIN,
    ),
    returns=(
        Disclosure("rows", "rows that each circuit was trained on", ("circuits",), "count"),
        Disclosure("sizes", "number of circuits of each group", ("tasks",), "index"),
    ),
    same_parties=True,
    contradiction=_wrong_clusters,
    unfitting=other_domain,
)
#: What a party also returns, by the weights of combinations of clusters.
_EVIDENCE = {
    "counts": None,
    "classes": Disclosure(
        "classes", "rows of each class in each circuit", ("classes", "circuits"), "count"
    ),
    "em": Disclosure(
        "densities",
        "log density of each common row in each circuit",
        ("common", "circuits"),
        "log-density",
        rows=_ROWS,
    ),
}


def _local_exchange(weights: str, *, central: bool) -> Exchange:
    """Return the exchange of a training in one pass; with the circuits if they are sent."""
    evidence = _EVIDENCE[weights]
    further = (evidence, _CIRCUITS if central else None)
    return replace(
        _LOCAL,
        name=f"local, weights by {weights}{', circuits sent' * central}",
        meaning=f"{_LOCAL.meaning}{'; the circuits are sent to the server' * central}",
        sends=(*_LOCAL.sends, *([COMMON] if weights == "em" else [])),
        returns=(*_LOCAL.returns, *(one for one in further if one)),
        most=1,
        remembered=not central,
        when=ONE_PASS
        & When(weights=("auto", weights))
        & When(queries="central" if central else "federated"),
    )


#: By weights, and by whether the circuits are sent to the server.
LOCAL = {
    (weights, central): _local_exchange(weights, central=central)
    for weights in _EVIDENCE
    for central in (False, True)
}

#: By the name of such an exchange, the weights, and whether the circuits are sent to the server.
LOCAL_OF = {one.name: key for key, one in LOCAL.items()}


# -- the server ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LocalCircuits:
    """The parties' replies on the circuits that they trained.

    Parameters
    ----------
    presence : ndarray of bool, shape (parties that answered, columns)
    replies : Replies
    central : bool
        Whether the circuits are among the replies.
    """

    presence: BoolArray
    replies: Replies
    central: bool

    @property
    def rows(self) -> list[list[list[int]]]:
        """By party, group of columns and circuit: the number of rows that it was trained on."""
        found = []
        for reply in self.replies.by_party.values():
            ends = np.cumsum(reply["sizes"])[:-1]
            found.append([part.tolist() for part in np.split(reply["rows"], ends)])
        return found

    def model(self, composition: Composition, target: str | None) -> CircuitModel:
        """Return the composed circuit, at the server or with its parts at the parties."""
        if self.central:
            circuits = [unpacked(data) for data in self.replies.list("circuits")]
            return CircuitModel(composition.circuit(circuits), target)
        density = FederatedCircuit(composition, self.presence, self.replies.parties)
        return CircuitModel(density, target)


def trained_locally(
    parties: Sequence[str],
    presence: BoolArray,
    weights: str = "counts",
    common: Mapping[str, IntArray] | None = None,
    *,
    central: bool,
) -> Generator[Step, Any, LocalCircuits]:
    """Let the parties train circuits of their own on their groups of columns.

    Parameters
    ----------
    parties : sequence of str
    presence : ndarray of bool, shape (parties, columns)
        Who holds which columns.
    weights : {"counts", "classes", "em"}, default "counts"
        With others than the paper's, "counts", groups that several parties hold are clustered too,
        and the parties return what these weights follow from.
    common : mapping of str to ndarray of int64, optional
        Where each party has the common rows.
    central : bool
        Whether the circuits are sent to the server.

    Raises
    ------
    FederationError
        If a party did not answer and parties hold different columns: the others have trained
        for the groups of columns that there are with it.
    """
    requests: dict[str, Arrays] = {}
    for party, tasks in zip(parties, tasks_of(presence, tied=weights != "counts"), strict=True):
        columns = np.zeros((len(tasks), presence.shape[1]), dtype=np.uint8)
        for mask, task in zip(columns, tasks, strict=True):
            mask[list(task.columns)] = 1
        clustered = np.array([task.clustered for task in tasks], dtype=np.uint8)
        requests[party] = {"tasks": columns, "clustered": clustered}
        if common is not None:
            requests[party]["common"] = common[party]
    replies = yield Ask(LOCAL[weights, central], own=requests)
    yield Note({"circuits": sum(len(rows) for rows in replies.list("rows"))})
    held = presence[[name in replies.parties for name in parties]]
    if not held.all():
        check_all(parties, replies, lacking="is no circuit")
    return LocalCircuits(held, replies, central)


# -- the party -------------------------------------------------------------------------------------


def own_circuits(
    asked: Asked,
    names: Sequence[str],
    domain: Domain,
    values: FloatArray,
    learner: Learner | None,
    *,
    clusters: int,
    split: int | None,
    target: str,
    minimum_count: int,
    seed: int,
) -> tuple[Arrays, Sequence[Circuit]]:
    """Train circuits of the party's own; return the reply, without the circuits, and these.

    Parameters
    ----------
    asked : Asked
        The request.
    names : sequence of str
        Of all parties' columns, of which groups are sent.
    domain : Domain
        Of the party's columns.
    values : ndarray of float64, shape (n, number of variables)
        The party's rows.
    learner : Learner or None
        Of the circuit of a cluster's rows; None: an elliptical leaf over the numbers.
    clusters : int
        Clusters of rows, at most.
    split : int or None
        The column by which clusters are split; None: they are not, as in the paper.
    target : str
        The class; empty without one.
    minimum_count : int
        The fewest rows of a circuit.
    seed : int
    """
    tasks = [
        TrainingTask(
            tuple(domain.index(names[j]) for j in np.flatnonzero(mask).tolist()), bool(clustered)
        )
        for mask, clustered in zip(asked["tasks"], asked["clustered"], strict=True)
    ]
    trained = train_party(
        domain,
        values,
        tasks,
        num_clusters=min(clusters, max(1, len(values) // minimum_count)),
        learner=learner,
        target=split,
        minimum_count=minimum_count,
        seed=seed,
    )
    reply: Arrays = {
        "rows": np.concatenate([np.array(rows, dtype=np.int64) for rows in trained.rows]),
        "sizes": np.array(trained.sizes, dtype=np.int64),
    }
    weights, _ = LOCAL_OF[asked.exchange.name]
    if weights == "classes":
        column = domain.index(target)
        classes = values[:, column].astype(np.int64)
        reply["classes"] = trained.class_rows(classes, int(domain.num_states[column]))
    elif weights == "em":
        reply["densities"] = party_answers.log_densities(trained.circuits, values[asked["common"]])
    return reply, trained.circuits


def splits_by_class(learner: str, weights: str) -> bool:
    """Return whether the parties of a run split clusters by the class; not in the paper.

    The paper is LearnSPN with weights by counts. The learner is the run's, also where the config of
    a node names another one for its circuits: all parties split their clusters, or none.
    """
    return (learner, weights) != ("spn", "counts")


class NamedLearner(NamedTuple):
    """The learner of a name, for any group of the party's columns.

    The learner is given the target if it is one of several columns and the rows have several
    classes.
    The rows of a cluster have one class where the party splits its clusters by the class.
    """

    name: str
    target: str | None
    options: LearnerOptions

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows."""
        given = self.target in domain.names and len(domain.names) > 1
        if given and self.name != "decision-tree":  # it needs the class, even a single one
            given = len(np.unique(values[:, domain.index(str(self.target))])) > 1
        learner = learner_of(self.name, self.target if given else None, self.options)
        return learner.learn(domain, values, seed)
