"""FedPC (Seng et al. 2025): the party's side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients import party_circuits
from flwr_causal.clients.base import CausalClient
from flwr_causal.clients.fedpc_disclosures import DISCLOSURES
from flwr_causal.core.circuits.composed import party_answers
from flwr_causal.core.circuits.composed.composition import Task
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.options import LearnerOptions, from_plain
from flwr_causal.core.circuits.learners.training_by_sums import Request
from flwr_causal.core.circuits.learners.trees.vertical import PartyRows
from flwr_causal.core.circuits.packing import packed, unpacked
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.data.check.party_table import complete_rows, describe
from flwr_causal.data.check.row_ids import hashed_ids, id_column, without_ids
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.wire import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.wire import Disclosure

    FloatArray = NDArray[np.float64]

Answer = tuple[list[NDArray[Any]], int, dict[str, Any]]


class FedPCClient(CausalClient):
    """Sums over its rows, or circuits of its own, and answers from these.

    **What leaves the party** after the schema exchange (which names the values of columns that have
    few of them, but of no number that is not whole):

    - ``training="sums"``: sums over its rows, by class and fold; groups of fewer rows than the
      minimum count are left out. Class-conditional circuits: numbers of rows, sums of the numbers,
      their squares, powers and products, counts of states (``counts``, ``first``, ``second``,
      ``logs``, ``powers``, ``tables``), and how well circuits of other rows explain them
      (``likelihoods``, ``log_losses``, and for a head its loss, gradient and Hessian). Trees:
      counts of pairs of states, weighted by how well each tree explains the row (``counts``).
    - intervals: how many rows lie at or below each threshold that the server asks about.
    - ``training="one-pass"``: how many rows each of its circuits was trained on (``rows``,
      ``sizes``). With ids: their hashes under a secret that the server does not know (``hashes``);
      with ``weights="aligned"`` the cluster of each common row (``labels``), with "em" its log
      density in each cluster (``densities``). With ``queries="central"`` the circuits
      (``circuits``), which hold no row, but a circuit of few rows says much of them: see the
      minimum count.
    - the same with ``weights="em"`` and trees over columns that one party holds each: in every
      exchange the log density of its columns of each common row under each component
      (``densities``), from which the server can tell the row's class if the party holds it. The
      server returns how probable each component is for each row, and so every party learns which
      rows are alike in the columns of all parties, the class among them. Trees stay.
    - queries: log densities of the rows that are asked about under its own circuits
      (``densities``), means of a number given them (``moments``), synthetic values (``values``,
      ``known``). Who may ask many questions learns much of the circuits.

    The node config may hold ``learner`` (of this party's own circuits), ``row-secret`` (the same
    text at all parties, unknown to the server; needed where rows are aligned) and ``model-path`` (a
    file in which the circuits are kept, so that a later run can ask without training).
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = DISCLOSURES

    def describe(self, policy: Policy) -> TableReport:
        """Report the columns but that of ids, with the values of those that have few."""
        has_ids = id_column(self.table(), self._row_id) is not None
        report = describe(self._variables(), policy, sums=True, states=True)
        return replace(report, has_ids=has_ids)

    def fit(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        """Answer the message of a phase."""
        arrays = dict(zip(config["arrays"], parameters, strict=True)) if "arrays" in config else {}
        phase = str(config["phase"])
        if phase == "cuts":
            return self._cuts(parameters[0])
        if phase == "align":
            return [self._hashes()], self._num_rows, {}
        if phase == "recall":
            self._recalled(str(config["fingerprint"]))
            return [], self._num_rows, {}
        name, _, rest = phase.partition(" ")
        if name == "local":
            return self._local(rest.split(), arrays, config)
        if name == "joint":
            return self._joint(rest.split(), arrays, config)
        return self._sums(name, Request(rest, arrays), config)

    def answer(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        """Answer a query from the party's own circuits."""
        asked = dict(zip(config["arrays"], parameters, strict=True))
        circuits = self._recalled(str(config["fingerprint"]))
        domain = circuits[0].domain
        values = np.where(asked["known"] > 0, asked["values"], np.nan)
        phase = str(config["phase"])
        if phase == "filled":
            return self._filled(circuits, values, asked["chosen"] > 0, int(config["seed"]))
        held = str(config.get("column", "")) in domain.names
        if phase == "moments":
            moments = np.zeros((2, len(values)))
            if held:
                column = domain.index(str(config["column"]))
                moments = party_answers.weighted_moments(circuits, values, asked["flows"], column)
            return [moments], 1, {}
        if phase == "classes" and held:
            column = domain.index(str(config["column"]))
            densities = party_answers.class_densities(circuits, values, column)
        elif phase == "peaks":
            densities = party_answers.peak_densities(circuits, values)[None]
        else:
            densities = party_answers.log_densities(circuits, values)[None]
        return [bounded(densities)], 1, {}

    @property
    def _row_id(self) -> str:
        return str(self.options.get("row-id", ""))

    def _variables(self) -> pd.DataFrame:
        return without_ids(self.table(), self._row_id)

    @property
    def _num_rows(self) -> int:
        return int(complete_rows(self._variables(), self.setup.policy).sum())

    def _domain(self, config: dict[str, Any]) -> Domain:
        """Return the joint variables; a message says where cut points have changed them."""
        text = str(config.get("domain", self.setup.options["domain"]))
        return Domain.from_plain(json.loads(text))

    def _kept_rows(self) -> pd.DataFrame:
        table = self._variables()
        return table[complete_rows(table, self.setup.policy)]

    def _values(self, domain: Domain, config: dict[str, Any]) -> FloatArray:
        """Return the party's rows as values of a domain; columns that it lacks are missing."""
        name = "values in intervals" if "domain" in config else "values"
        return self.once(name, lambda: domain.encode(self._kept_rows()))

    def _cuts(self, asked: NDArray[Any]) -> Answer:
        table = self._kept_rows()
        counts = np.zeros(asked.shape, dtype=np.int64)
        for j, name in enumerate(self.setup.continuous):
            if name in table.columns:
                column = table[name].to_numpy(dtype=np.float64, na_value=np.nan)
                known = column[~np.isnan(column)][:, None]
                counts[j] = count_up_to(known, asked[j : j + 1])[0]
        return [counts], len(table), {}

    def _hashes(self) -> NDArray[np.uint8]:
        table = self.table()
        ids = id_column(table, self._row_id)
        if ids is None:
            raise ConfigError("rows cannot be aligned: the table has no column of ids")
        kept = complete_rows(self._variables(), self.setup.policy)
        return hashed_ids(ids[kept], self._secret())

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

    def _sums(self, name: str, asked: Request, config: dict[str, Any]) -> Answer:
        options = self.setup.options
        domain = self._domain(config)
        training = training_of(name, str(options["target"]) or None, self._options)
        plan = training.plan(
            domain, seed=int(options["seed"]), min_rows=int(options["minimum-count"])
        )
        return self.named(training.answer(self._values(domain, config), plan, asked)), 1, {}

    def _local(
        self, words: list[str], asked: dict[str, NDArray[Any]], config: dict[str, Any]
    ) -> Answer:
        """Train circuits of the party's own; `words` are the weights, and perhaps "central"."""
        domain = party_circuits.own_domain(self._domain(config), list(self._variables().columns))
        values = self._own_values(domain)
        tasks = [
            Task(tuple(domain.index(name) for name in names), bool(clustered))
            for names, clustered in zip(
                json.loads(str(config["tasks"])), config["clustered"], strict=True
            )
        ]
        recipe = self._recipe
        own = party_circuits.train(domain, values, tasks, recipe, weights=words[0])
        answer: dict[str, NDArray[Any]] = {
            "rows": np.concatenate([np.array(rows, dtype=np.int64) for rows in own.rows]),
            "sizes": np.array(own.sizes, dtype=np.int64),
        }
        if words[0] == "classes":
            column = domain.index(str(recipe.target))
            classes = values[:, column].astype(np.int64)
            answer["classes"] = own.class_rows(classes, int(domain.num_states[column]))
        elif words[0] == "aligned":
            answer["labels"] = own.labels[asked["common"]]
        elif words[0] == "em":
            densities = party_answers.log_densities(own.circuits, values[asked["common"]])
            answer["densities"] = bounded(densities)
        answer |= self._stored(own.circuits, domain, words)
        return self.named(answer), len(values), {}

    def _joint(
        self, words: list[str], asked: dict[str, NDArray[Any]], config: dict[str, Any]
    ) -> Answer:
        """Make the party's part of components that all parties train together."""
        domain = party_circuits.own_domain(self._domain(config), list(self._variables().columns))
        common = asked["common"]
        values = self._own_values(domain)
        recipe = self._recipe
        rows = self.once("joint rows", lambda: PartyRows.of(domain, values[common], recipe.target))
        part = party_circuits.joint_part(rows, words[0], asked, recipe.minimum_count)
        if words[0] != "trees":
            return [bounded(part.log_densities())], len(common), {}
        return self.named(self._stored(part.circuits(), domain, words)), len(common), {}

    def _stored(
        self, circuits: Sequence[Circuit], domain: Domain, words: list[str]
    ) -> dict[str, NDArray[Any]]:
        """Keep circuits for queries, or return what is sent in their place."""
        data = packed(circuits, domain)
        path = str(self.context.node_config.get("model-path", ""))
        if path:
            party_circuits.keep(path, self.setup.exchange, data)
        if "central" in words:
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

    def _recalled(self, fingerprint: str) -> list[Circuit]:
        """Return the party's circuits of a training: of this run, or of one that was kept."""
        return self.once(f"circuits {fingerprint}", lambda: self._unpacked(fingerprint))

    def _unpacked(self, fingerprint: str) -> list[Circuit]:
        memory = self.recall()
        if memory is not None and memory.numbers.get("fingerprint") == fingerprint:
            data = memory.arrays["circuits"]
        else:
            path = str(self.context.node_config.get("model-path", ""))
            data = party_circuits.kept(path, fingerprint)
        return unpacked(data)

    def _filled(
        self, circuits: list[Circuit], values: FloatArray, chosen: NDArray[np.bool_], seed: int
    ) -> Answer:
        """Return synthetic values; seed 0 stands for the most probable ones."""
        rng = np.random.default_rng([seed, self._own_number]) if seed else None
        filled = party_answers.filled(circuits, values, chosen, rng)
        known = ~np.isnan(filled)
        return [np.where(known, filled, 0.0), known.astype(np.uint8)], 1, {}

    @property
    def _own_number(self) -> int:
        """A number that differs between parties, so that they do not draw alike."""
        text = self.source.name.encode()
        return int.from_bytes(text, "big") % 2**31
