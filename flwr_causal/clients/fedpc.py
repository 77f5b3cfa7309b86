"""FedPC (Seng et al. 2025): the party's side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients import party_circuits
from flwr_causal.clients.base import Asked, CausalClient, answers
from flwr_causal.core.circuits.circuit import packed, unpacked
from flwr_causal.core.circuits.composed import party_answers
from flwr_causal.core.circuits.composed.composition import Task
from flwr_causal.core.circuits.composed.joint_trees import Part, PartyRows
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.options import LearnerOptions, from_plain
from flwr_causal.core.circuits.learners.trees.pair_sums import UNIT
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.data.check.party_table import complete_rows, describe
from flwr_causal.data.check.row_ids import hashed_ids, id_column, without_ids
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.fedpc import (
    ALIGN,
    CLASSES,
    CONTRACT,
    DENSITIES,
    FILLED,
    JOINT_PRODUCTS,
    JOINT_START,
    JOINT_TREES,
    LOCAL,
    MOMENTS,
    PEAKS,
    RECALL,
    SUMS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.exchange import Contract


class FedPCClient(CausalClient):
    """Sums over its rows, or circuits of its own, and answers from these.

    **What leaves the party**: :mod:`flwr_causal.protocol.fedpc` declares it.

    The node config may hold ``learner`` (of this party's own circuits), ``row-secret`` (the same
    text at all parties, unknown to the server; needed where rows are aligned) and ``model-path`` (a
    file in which the circuits are kept, so that a later run can ask without training).
    """

    contract: ClassVar[Contract] = CONTRACT

    def describe(self, policy: Policy) -> TableReport:
        """Report the columns but that of ids, with the values of those that have few."""
        has_ids = id_column(self.table(), self._row_id) is not None
        report = describe(self._variables(), policy, sums=True, states=True)
        return replace(report, has_ids=has_ids)

    def count_rows(self) -> int:
        """Count the rows that are kept."""
        return int(complete_rows(self._variables(), self.setup.policy).sum())

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
        """Return the sums over the party's rows of one step of a training."""
        options, domain = self.setup.options, self._domain(asked)
        learner, step = next(key for key, one in SUMS.items() if one is asked.exchange)
        training = training_of(learner, str(options["target"]) or None, self._options)
        plan = training.plan(
            domain, seed=int(options["seed"]), min_rows=int(options["minimum-count"])
        )
        exchange = training.steps[step]
        sent = {one.name: asked[one.name] for one in exchange.sent}
        return exchange.sums(self._values(domain, asked), plan, sent)

    @answers(ALIGN)
    def align(self, asked: Asked) -> Arrays:
        """Return keyed hashes of the ids."""
        ids = id_column(self.table(), self._row_id)
        if ids is None:
            raise ConfigError("rows cannot be aligned: the table has no column of ids")
        kept = complete_rows(self._variables(), self.setup.policy)
        return {"hashes": hashed_ids(ids[kept], self._secret())}

    @answers(*LOCAL.values())
    def local(self, asked: Asked) -> Arrays:
        """Train circuits of the party's own."""
        weights, central = next(key for key, one in LOCAL.items() if one is asked.exchange)
        joint, recipe = self._domain(asked), self._recipe
        domain = party_circuits.own_domain(joint, list(self._variables().columns))
        values = self._own_values(domain)
        tasks = [
            Task(tuple(domain.index(joint.names[j]) for j in np.flatnonzero(mask)), bool(clustered))
            for mask, clustered in zip(asked["tasks"], asked["clustered"], strict=True)
        ]
        own = party_circuits.train(domain, values, tasks, recipe, weights=weights)
        reply: Arrays = {
            "rows": np.concatenate([np.array(rows, dtype=np.int64) for rows in own.rows]),
            "sizes": np.array(own.sizes, dtype=np.int64),
        }
        if weights == "classes":
            column = domain.index(str(recipe.target))
            classes = values[:, column].astype(np.int64)
            reply["classes"] = own.class_rows(classes, int(domain.num_states[column]))
        elif weights == "aligned":
            reply["labels"] = own.labels[asked["common"]]
        elif weights == "em":
            reply["densities"] = party_answers.log_densities(own.circuits, values[asked["common"]])
        return reply | self._stored(own.circuits, domain, central=central)

    @answers(JOINT_START)
    def joint_start(self, asked: Asked) -> Arrays:
        """Begin the components that all parties train together with single rows."""
        return {
            "densities": Part.started(self._joint_rows(asked), asked["anchors"]).log_densities()
        }

    @answers(JOINT_PRODUCTS)
    def joint_products(self, asked: Asked) -> Arrays:
        """Fit the party's part of each component."""
        return {"densities": self._joint_part(asked, trees=False).log_densities()}

    @answers(*JOINT_TREES.values())
    def joint_trees(self, asked: Asked) -> Arrays:
        """Complete the trees of the party's columns."""
        rows = self._joint_rows(asked)
        circuits = self._joint_part(asked, trees=True).circuits()
        return self._stored(circuits, rows.domain, central=asked.exchange is JOINT_TREES[True])

    @answers(RECALL)
    def recall_circuits(self, asked: Asked) -> Arrays:
        """Find the circuits of an earlier training."""
        self._recalled(asked)
        return {}

    @answers(DENSITIES, PEAKS)
    def densities(self, asked: Asked) -> Arrays:
        """Return log densities of rows, or of their most probable completions, by circuit."""
        circuits, values = self._recalled(asked), _asked_rows(asked)
        by_circuit = (
            party_answers.peak_densities(circuits, values)
            if asked.exchange is PEAKS
            else party_answers.log_densities(circuits, values)
        )
        return {"densities": by_circuit[None]}

    @answers(CLASSES)
    def classes(self, asked: Asked) -> Arrays:
        """Return log densities of rows with each state of a category, by circuit."""
        circuits, values = self._recalled(asked), _asked_rows(asked)
        domain, name = circuits[0].domain, str(asked["column"])
        if name not in domain.names:
            return {"densities": party_answers.log_densities(circuits, values)[None]}
        column = domain.index(name)
        return {"densities": party_answers.class_densities(circuits, values, column)}

    @answers(MOMENTS)
    def moments(self, asked: Asked) -> Arrays:
        """Return the party's part of the mean and the mean square of a number."""
        circuits, values = self._recalled(asked), _asked_rows(asked)
        domain, name = circuits[0].domain, str(asked["column"])
        if name not in domain.names:
            return {"moments": np.zeros((2, len(values)))}
        column = domain.index(name)
        flows = asked["flows"]
        return {"moments": party_answers.weighted_moments(circuits, values, flows, column)}

    @answers(FILLED)
    def filled(self, asked: Asked) -> Arrays:
        """Fill rows in by the circuits that were chosen for them."""
        circuits, seed = self._recalled(asked), int(asked["seed"])
        # The whole name, so that no two parties draw alike.
        rng = np.random.default_rng([seed, *self.source.name.encode()]) if seed else None
        chosen = asked["chosen"] > 0
        values = party_answers.filled(circuits, _asked_rows(asked), chosen, rng)
        known = ~np.isnan(values)
        return {"values": np.where(known, values, 0.0), "known": known.astype(np.uint8)}

    @property
    def _row_id(self) -> str:
        return str(self.options.get("row-id", ""))

    def _variables(self) -> pd.DataFrame:
        return without_ids(self.table(), self._row_id)

    def _domain(self, asked: Asked) -> Domain:
        """Return the joint variables; a message says where cut points have changed them."""
        text = str(asked["domain"] if "domain" in asked else self.setup.options["domain"])
        return Domain.from_plain(json.loads(text))

    def _kept_rows(self) -> pd.DataFrame:
        table = self._variables()
        return table[complete_rows(table, self.setup.policy)]

    def _values(self, domain: Domain, asked: Asked) -> FloatArray:
        """Return the party's rows as values of a domain; columns that it lacks are missing."""
        name = "values in intervals" if "domain" in asked else "values"
        return self.once(name, lambda: domain.encode(self._kept_rows()))

    def _secret(self) -> bytes:
        node = self.context.node_config
        if "row-secret" in node:
            return str(node["row-secret"]).encode()
        if "partition-id" in node:
            # A simulation has one owner: there is nobody to keep a secret from.
            return self.setup.exchange.encode()
        raise ConfigError(
            "aligning rows needs a secret that all parties share and the server does not know: "
            "start the SuperNode with --node-config \"row-secret='...'\""
        )

    def _joint_rows(self, asked: Asked) -> PartyRows:
        """Return the common rows, prepared once a process."""
        domain = party_circuits.own_domain(self._domain(asked), list(self._variables().columns))
        values, target = self._own_values(domain), self._recipe.target
        return self.once(
            "joint rows", lambda: PartyRows.of(domain, values[asked["common"]], target)
        )

    def _joint_part(self, asked: Asked, *, trees: bool) -> Part:
        """Return the party's part of components, from how probable they are for each row."""
        return Part.made(
            self._joint_rows(asked),
            asked["shared"] * UNIT,
            trees=trees,
            minimum_count=self._recipe.minimum_count,
        )

    def _stored(self, circuits: Sequence[Circuit], domain: Domain, *, central: bool) -> Arrays:
        """Keep circuits for queries; return them where they are sent to the server."""
        data = packed(circuits, domain)
        path = str(self.context.node_config.get("model-path", ""))
        if path:
            party_circuits.keep(path, self.setup.exchange, data)
        if central:
            return {"circuits": data}
        self.remember({"circuits": data}, fingerprint=self.setup.exchange)
        return {}

    @property
    def _options(self) -> LearnerOptions:
        return from_plain(LearnerOptions, json.loads(str(self.setup.options["settings"])))

    @property
    def _recipe(self) -> party_circuits.Recipe:
        options = self.setup.options
        return party_circuits.Recipe(
            # In one pass a party may use a learner of its own.
            str(self.context.node_config.get("learner", options["learner"])),
            str(options["target"]) or None,
            int(options["clusters"]),
            int(options["minimum-count"]),
            int(options["seed"]),
            self._options,
        )

    def _own_values(self, own_domain: Domain) -> FloatArray:
        return self.once("own values", lambda: own_domain.encode(self._kept_rows()))

    def _recalled(self, asked: Asked) -> list[Circuit]:
        """Return the party's circuits of a training: of this run, or of one that was kept."""
        fingerprint = str(asked["fingerprint"])
        return self.once(f"circuits {fingerprint}", lambda: self._unpacked(fingerprint))

    def _unpacked(self, fingerprint: str) -> list[Circuit]:
        memory = self.recall()
        if memory is not None and memory.numbers.get("fingerprint") == fingerprint:
            data = memory.arrays["circuits"]
        else:
            path = str(self.context.node_config.get("model-path", ""))
            data = party_circuits.kept(path, fingerprint)
        return unpacked(data)


def _asked_rows(asked: Asked) -> FloatArray:
    """Return the party's columns of the rows that are asked about; NaN where nothing is known."""
    return np.where(asked["known"] > 0, asked["values"], np.nan)
