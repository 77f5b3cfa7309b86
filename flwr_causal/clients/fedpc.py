"""FedPC (Seng et al. 2025): the party's side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.columns import ColumnsClient
from flwr_causal.contract.answers import Asked, answers, step
from flwr_causal.core.circuits.circuit import packed, unpacked
from flwr_causal.core.circuits.composed import party_answers
from flwr_causal.core.circuits.composed.dependence import DRAWS, projected, scores_of
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.core.files import new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.row_ids import keyed_normals
from flwr_causal.errors import DataError
from flwr_causal.protocol import records
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.fedpc import (
    CLASSES,
    CONTRACT,
    DENSITIES,
    DEPENDENCE,
    FILLED,
    MOMENTS,
    PEAKS,
    RECALL,
    SUMMED_BY,
    SUMS,
    plan_columns,
    product_columns,
    training_plan,
)
from flwr_causal.secure.party import peers_of
from flwr_causal.sources.own_circuits import (
    LOCAL,
    LOCAL_OF,
    ONE_PASS,
    NamedLearner,
    joint_domain,
    own_circuits,
    own_domain,
    splits_by_class,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.by_name import Learner
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.fedpc import FedPCPartyOptions
    from flwr_causal.protocol.products.plan import ProductPlan


class FedPCClient(ColumnsClient):
    """Computes sums over the party's rows, or trains circuits and answers queries from them.

    **What leaves the party**: :mod:`flwr_causal.protocol.fedpc` declares it.

    The node config may hold ``learner`` (of the party's own circuits), ``row-secret-file`` (a file
    with the same text at all parties, unknown to the server; needed to align rows), ``row-secret``
    (the text itself) and ``model-path`` (a file in which the circuits are stored, so that a later
    run can query them without training).
    """

    contract: ClassVar[Contract] = CONTRACT
    options: FedPCPartyOptions

    def describe(self, handling: Handling) -> TableReport:
        """Report all columns but the ids, with the values of columns that have few."""
        if self._model_path:
            _check_place(Path(self._model_path))
        report = describe(self.frame(), handling, sums=True, states=True)
        return self.with_ids(report)

    def count_rows(self) -> int:
        """Count the rows that are kept."""
        return len(self.kept_rows(self.setup.handling))

    @answers(CUTS)
    def cut(self, asked: Asked) -> Arrays:
        """Count the rows up to each threshold."""
        table, thresholds = self._kept_rows(), asked["thresholds"]
        counts = np.zeros(thresholds.shape, dtype=np.int64)
        for j, name in enumerate(self.setup.continuous):
            if name in table.columns:
                column = table[name].to_numpy(dtype=np.float64, na_value=np.nan)
                known = column[~np.isnan(column)][:, None]
                counts[j] = count_up_to(known, thresholds[j : j + 1])[0]
        return {"counts": counts}

    @answers(*SUMS.values())
    def training_sums(self, asked: Asked) -> Arrays:
        """Return the sums over the party's rows that a training asks for."""
        learner, kind = SUMMED_BY[asked.exchange.name]
        sent = {one.name: asked[one.name] for one in kind.sent}
        plan = training_plan(learner, self.setup, asked.values)
        return kind.sums(self._joint_values(self._domain(asked), asked), plan, sent)

    @answers(DEPENDENCE)
    def dependence(self, asked: Asked) -> Arrays:
        """Project the scores of the party's columns of the common rows."""
        secret, common = self.secret(), asked["common"]
        assert secret is not None  # the rows have been aligned
        domain, target = self._own_domain(asked), str(asked["within"]) or None
        values = self._own_values(domain)[common]
        classes, num_classes = np.zeros(len(values), dtype=np.int64), 1
        if target is not None:
            column = domain.index(target)
            classes = values[:, column].astype(np.int64)
            num_classes = int(domain.num_states[column])
        found = projected(
            scores_of(domain, values, classes, target),
            classes,
            num_classes,
            keyed_normals(self.ids().iloc[common], secret, DRAWS),
            self._minimum_count,
        )
        return found._asdict()

    @answers(*LOCAL.values())
    def local(self, asked: Asked) -> Arrays:
        """Train circuits of the party's own."""
        options, domain = self.options, self._own_domain(asked)
        weights, central = LOCAL_OF[asked.exchange.name]
        split = self._target in domain.names and splits_by_class(options.learner, weights)
        reply, circuits = own_circuits(
            asked,
            self._domain(asked).names,
            domain,
            self._own_values(domain),
            self.cluster_learner(),
            clusters=options.clusters,
            split=domain.index(options.target) if split else None,
            target=options.target,
            minimum_count=self._minimum_count,
            seed=options.seed,
        )
        return reply | self._store(circuits, domain, central=central)

    @step(ONE_PASS)
    def cluster_learner(self) -> Learner | None:
        """Return what learns the circuit of the rows of a cluster, over a group of columns.

        Returns
        -------
        Learner or None
            An object with ``learn(domain, values, seed)``, which returns a
            :class:`~flwr_causal.core.circuits.circuit.Circuit`. By default that of the option
            ``learner``, or of the node config. None: an elliptical leaf over the numbers of each
            cluster, whose shapes all clusters share.
        """
        name = self._own_learner
        if name == "class-conditional":
            return None
        return NamedLearner(name, self._target, self.options.learners)

    @answers(RECALL)
    def recall_circuits(self, asked: Asked) -> Arrays:
        """Check that the circuits of an earlier training are stored."""
        self._kept_circuits(asked)
        return {}

    @answers(DENSITIES, PEAKS)
    def densities(self, asked: Asked) -> Arrays:
        """Return log densities of rows, or of their most probable explanations, by circuit."""
        circuits, values = self._kept_circuits(asked), _asked_rows(asked)
        by_circuit = (
            party_answers.peak_densities(circuits, values)
            if asked.exchange is PEAKS
            else party_answers.log_densities(circuits, values)
        )
        return {"densities": by_circuit[None]}

    @answers(CLASSES)
    def classes(self, asked: Asked) -> Arrays:
        """Return log densities of rows with each state of a category, by circuit."""
        circuits, values = self._kept_circuits(asked), _asked_rows(asked)
        domain, name = circuits[0].domain, str(asked["column"])
        if name not in domain.names:
            return {"densities": party_answers.log_densities(circuits, values)[None]}
        column = domain.index(name)
        return {"densities": party_answers.class_densities(circuits, values, column)}

    @answers(MOMENTS)
    def moments(self, asked: Asked) -> Arrays:
        """Return the party's part of the mean and the mean square of a number."""
        circuits, values = self._kept_circuits(asked), _asked_rows(asked)
        domain, name = circuits[0].domain, str(asked["column"])
        if name not in domain.names:
            return {"moments": np.zeros((2, len(values)))}
        column = domain.index(name)
        flows = asked["flows"]
        return {"moments": party_answers.weighted_moments(circuits, values, flows, column)}

    @answers(FILLED)
    def filled(self, asked: Asked) -> Arrays:
        """Fill missing values of rows by the circuits that were chosen for them."""
        circuits, seed = self._kept_circuits(asked), int(asked["seed"])
        # The whole name, so that no two parties draw alike.
        rng = np.random.default_rng([seed, *self.source.name.encode()]) if seed else None
        chosen = asked["chosen"] > 0
        values = party_answers.filled(circuits, _asked_rows(asked), chosen, rng)
        known = ~np.isnan(values)
        return {"values": np.where(known, values, 0.0), "known": known.astype(np.uint8)}

    def _plan(self, asked: Asked) -> ProductPlan:
        """Return the plan of marks, or of numbers and classes."""
        columns = product_columns(self.setup, asked.values)
        return replace(super()._plan(asked), columns=plan_columns(self._domain(asked), columns))

    def _product_columns(self, asked: Asked) -> tuple[list[str], BoolArray]:
        """Return the variable of each column of products, and whether the party holds it."""
        owners = product_columns(self.setup, asked.values).owners
        names, held = self._domain(asked).names, self._own_domain(asked).names
        return [names[j] for j in owners], np.array([names[j] in held for j in owners])

    def _product_values(self, asked: Asked) -> FloatArray:
        """Return the columns of products of the party's rows, in the order of the plan."""
        values = self._domain(asked).encode(self._kept_rows())[asked["rows"]]
        has_pattern = asked["patterns"][:, peers_of(self.context, self.setup).place] > 0
        sizes = asked["pattern-rows"] * has_pattern
        patterns = np.repeat(np.arange(len(sizes)), sizes)
        return product_columns(self.setup, asked.values).values(values, patterns)

    @property
    def _target(self) -> str | None:
        return self.options.target or None

    @property
    def _own_learner(self) -> str:
        """The name of the learner of the party's own circuits, which its node config may state."""
        return self.node.learner or self.options.learner

    @property
    def _minimum_count(self) -> int:
        return self.setup.small.minimum

    @property
    def _model_path(self) -> str:
        return str(self.node.model_path or "")

    def _domain(self, asked: Asked) -> Domain:
        """Return the joint domain."""
        return joint_domain(self.setup, asked.values)

    def _own_domain(self, asked: Asked) -> Domain:
        """Return the variables of the joint domain that the party holds."""
        return own_domain(self._domain(asked), self.frame().columns)

    def _kept_rows(self) -> pd.DataFrame:
        return self.frame().iloc[self.kept_rows(self.setup.handling)[:, 0]]

    def _joint_values(self, domain: Domain, asked: Asked) -> FloatArray:
        """Return the party's rows as values of a domain; columns it does not hold are missing."""
        name = "values in intervals" if "domain" in asked else "values"
        return self.once(name, lambda: domain.encode(self._kept_rows()))

    def _store(self, circuits: Sequence[Circuit], domain: Domain, *, central: bool) -> Arrays:
        """Store circuits for queries; return them where they are sent to the server."""
        data = packed(circuits, domain)
        if self._model_path:
            _write_circuits(self._model_path, self.setup.exchange, data)
        if central:
            return {"circuits": data}
        self.remember({"circuits": data}, fingerprint=self.setup.exchange)
        return {}

    def _own_values(self, own_domain: Domain) -> FloatArray:
        return self.once("own values", lambda: own_domain.encode(self._kept_rows()))

    def _kept_circuits(self, asked: Asked) -> list[Circuit]:
        """Return the party's circuits, of a training of this run or of an earlier one."""
        fingerprint = str(asked["fingerprint"])
        return self.once(f"circuits {fingerprint}", lambda: self._unpacked_circuits(fingerprint))

    def _unpacked_circuits(self, fingerprint: str) -> list[Circuit]:
        memory = self.recall()
        if memory is not None and memory.numbers.get("fingerprint") == fingerprint:
            return unpacked(memory.arrays["circuits"])
        return unpacked(_read_circuits(self._model_path, fingerprint))


def _asked_rows(asked: Asked) -> FloatArray:
    """Return the party's columns of the rows of a query, NaN where a value is not known."""
    return np.where(asked["known"] > 0, asked["values"], np.nan)


def _write_circuits(path: str, fingerprint: str, data: NDArray[np.uint8]) -> None:
    """Write the circuits of a training to a file, which its owner alone can read."""
    place = Path(path)
    _check_place(place)
    new_directory(place.parent)
    write(place, records.npz({"fingerprint": np.array(fingerprint), "data": data}))


def _check_place(place: Path) -> None:
    """Raise a DataError if circuits would replace a file that holds something else."""
    if not place.exists():
        return
    try:
        with np.load(place, allow_pickle=False) as file:
            of_circuits = set(file.files) == {"fingerprint", "data"}
    except DAMAGE:
        of_circuits = False
    if not of_circuits:
        raise DataError(
            f"model-path in the node config is '{place}', which holds no circuits: name another "
            "file, since it would be replaced"
        )


def _read_circuits(path: str, fingerprint: str) -> NDArray[np.uint8]:
    """Return the circuits of a training that `_write_circuits` wrote.

    Raises
    ------
    DataError
        If there are none, or they are of another training.
    """
    place = Path(path)
    if not path or not place.is_file():
        raise DataError(
            f"this party keeps no circuits at {path!r}: name a file with model-path in the node "
            "config before training, or train again"
        )
    try:
        with np.load(place, allow_pickle=False) as file:
            found, data = str(file["fingerprint"]), file["data"]
    except DAMAGE as error:
        raise DataError(
            f"the circuits at {path!r} cannot be read ({type(error).__name__}): train again"
        ) from error
    if found != fingerprint:
        raise DataError(
            f"the circuits at {path!r} are of another training than the one that is asked about: "
            "name the file of that training with model-path, or train again"
        )
    return np.asarray(data, dtype=np.uint8)
