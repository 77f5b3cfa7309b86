"""FedPC (Seng et al. 2025): federated probabilistic circuits, the strategy.

The paper's algorithm is in :mod:`flwr_causal.strategies.fedpc.paper`. There are three trainings:
sums over rows (:mod:`~flwr_causal.strategies.fedpc.sums`), counts of triples of states
(:mod:`~flwr_causal.strategies.fedpc.triples`), and circuits of each party that are composed
(:mod:`~flwr_causal.strategies.fedpc.one_pass`). :data:`flwr_causal.strategies.fedpc.plan.ROWS`
chooses among them, by the options and by who holds which columns. :meth:`FedPC.train` takes these
steps, with the exchanges (:mod:`flwr_causal.protocol.fedpc`) in this order:

1. Where trees are learned of columns of numbers: their cut points (``CUTS``; where counts take the
   place of sums, after the next step).
2. Where no party holds some columns together, and rows have ids: common rows (``ALIGN``), and, by
   sums or in one pass, how these columns depend (``DEPENDENCE``).
3. The training: ``SUMS``; or products of columns of different parties (``ALIGN``,
   ``MASKED_TABLES``, ``PRODUCTS``), for triples, and for a class that only some parties know; or
   ``LOCAL``.

With the option ``trained`` the parties are asked for the circuits of an earlier run instead
(``RECALL``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from flwr_causal.contract.answers import check_steps, step
from flwr_causal.contract.when import When
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.learners.options import LearnerOptions, taken
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.options import require
from flwr_causal.core.parts import check_parts
from flwr_causal.data.check.checks import columns_of
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.doubts.tables import doubts_by
from flwr_causal.protocol.fedpc import CONTRACT, FedPCPartyOptions
from flwr_causal.runtime.algorithm import Result, relayed
from flwr_causal.runtime.connection import Connection
from flwr_causal.runtime.options import Baselines
from flwr_causal.sources.own_circuits import ONE_PASS
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.fedpc.holdings import Holdings
from flwr_causal.strategies.fedpc.losses import (
    Remarks,
    lost_by_counts,
    lost_by_groups,
    lost_by_leaves,
)
from flwr_causal.strategies.fedpc.one_pass import in_one_pass, recalled
from flwr_causal.strategies.fedpc.options import FedPCOptions
from flwr_causal.strategies.fedpc.paper import algorithm_1, composed
from flwr_causal.strategies.fedpc.plan import labelled, parts_of_training, plan_of, target_of
from flwr_causal.strategies.fedpc.shared import COMPLETE, with_cut_points, with_variables
from flwr_causal.strategies.fedpc.sums import by_sums
from flwr_causal.strategies.fedpc.triples import by_triples

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.strategies.base import RunAlone
    from flwr_causal.strategies.fedpc.plan import CircuitPlan
    from flwr_causal.strategies.fedpc.shared import TrainedCircuit
    from flwr_causal.strategies.options import takes


class FedPC(CausalStrategy):
    """A joint distribution of all columns, a probabilistic circuit (Seng et al. 2025).

    Parties may hold the same columns of different rows (horizontal), different columns of the same
    rows (vertical), or overlap in both (hybrid): which it is follows from their tables.
    docs/fedpc.md says what each choice is good for and why the defaults are what they are;
    :class:`~flwr_causal.clients.fedpc.FedPCClient` lists what leaves a party.

    - ``training="sums"``: parties send sums over their rows, and the circuit is that of the pooled
      rows, whoever holds which. The default where it is possible. Where only some parties know the
      class, they compute sums of products of their columns together, from masked tables.
    - ``training="triples"``: parties hold different columns and ids. Trees over all columns (for
      each class, if all know it), from counts of pairs of states and of triples of which one party
      holds two. A column depends on up to two others, and several trees are averaged. The parties
      count together, from masked tables: the trees are those of the joined rows, and no party
      learns which rows are alike.
    - ``training="one-pass"``: the paper's. Parties train circuits of their own, which are composed
      by Algorithm 1.

    References
    ----------
    Seng, Busch, Prasad, Dhami, Mundt & Kersting (2025). Scaling probabilistic circuits via data
    partitioning.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> import pandas as pd
    >>> from flwr_causal.strategies import FedPC
    >>> table = pd.DataFrame({"rain": ["no", "yes"] * 40, "wet": ["no", "yes"] * 40})
    >>> run = simulate(FedPC(), [table[:40], table[40:]])
    >>> run.model.log_likelihood(table).shape
    (80,)
    """

    options_type = FedPCOptions
    options: FedPCOptions

    if TYPE_CHECKING:

        @takes(FedPCOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.TABLE

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        _ = self.options.image_shape
        self.options.check_leaves()
        require(
            self.options.small_counts != "suppress",
            "small_counts",
            self.options.small_counts,
            "'report' or 'refuse': the counts of a circuit must add up, and classes of few rows "
            "are left out in any case",
        )
        # Log densities of impossible rows do not fit into float32, and sums would not be exact.
        require(
            self.options.precision == "float64", "precision", self.options.precision, "'float64'"
        )
        whole = self.options.fraction_train == 1
        require(
            whole, "fraction_train", self.options.fraction_train, "1: every party has a part of it"
        )

    @property
    def pools_rows(self) -> bool:
        """Whether the circuit equals the one of the pooled rows: no rare group is left out."""
        return self.options.training == "sums" and self.options.minimum_count == 1

    @property
    def _parts(self) -> tuple[type[Part], ...]:
        """The parts of the options, and those of the trainings that they leave open."""
        return (*super()._parts, *parts_of_training(self.options, None))

    @property
    def handling(self) -> Handling:
        """How problems of the data are handled; one row is enough for a party."""
        bins = self.options.num_bins
        handling = replace(super().handling, min_rows=1, discretize=bins)
        return self.contract.completed(self.options, handling)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines:
        """Return the circuits of the rows that are complete in one place, and of each party."""
        same = all(set(table.columns) == set(tables[0].columns) for table in tables)
        whole = joined_tables(tables, *self.options.role_columns)
        complete = whole if same else whole.dropna()
        pooled = run_alone(complete, trained="") if len(complete) else None
        return Baselines(pooled, [run_alone(table, trained="") for table in tables])

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on columns and states, and note who holds what."""
        agreement = super().agree(reports)
        target = target_of(self.options, agreement)
        agreement = replace(agreement, noted=Holdings.of(agreement, reports))
        plan = plan_of(self.options, agreement)
        categories = {
            one.name: one.states
            for one in plan.domain.variables
            if one.states is not None and one.name != target
        }
        found = [
            *doubts_by(held=columns_of(reports), categories=categories, handling=self.handling)
        ]
        found += lost_by_leaves(plan, categories)
        warnings = (*agreement.warnings, *found)
        differ = plan.facts.countable or plan.class_of_some
        return replace(agreement, warnings=warnings, columns_differ=differ)

    def _complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Complete the agreement; columns that are left out are held by nobody."""
        agreement = super()._complete(agreement, total, groups)
        return replace(agreement, noted=agreement.noted.of_columns(agreement.names))

    def _agreed_options(self, agreement: Agreement) -> FedPCPartyOptions:
        """Return the options that the parties are sent."""
        plan = plan_of(self.options, agreement)
        return self.sent(
            FedPCPartyOptions,
            domain=plan.domain,
            target=plan.facts.target,
            within=plan.class_of_all or "",
            holders=tuple(plan.holders),
            pair_marks=plan.pair_marks,
            labelled=tuple(labelled(self.options, plan)),
            learner=plan.learner,
            learners=taken(LearnerOptions, self.options),
        )

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Train a circuit over the parties' columns.

        :func:`~flwr_causal.strategies.fedpc.plan.plan_of` chooses the training.

        Yields
        ------
        Ask
            For cut points, then what the training needs.

        Returns
        -------
        Result

        Raises
        ------
        ConfigError
            For an option that has no effect on what the parties' tables make of ``"auto"``.
        """
        plan, remarks = plan_of(self.options, agreement), Remarks()
        check_parts(self.options, (*super()._parts, *parts_of_training(self.options, plan)))
        chosen = {"training": plan.training, "weights": plan.weights}
        check_steps(type(self), {**self.run, **chosen})
        if self.options.trained:
            steps = self._recalled(plan)
        elif self.options.papers:
            steps = self._paper(plan, remarks)
        else:
            steps = self._trained(plan, remarks)
        plan, model, reason = yield from relayed(steps, so_far=lambda: _result(plan, remarks))
        return _result(plan, remarks, model, f"{reason} ({plan.summary})")

    def _recalled(self, plan: CircuitPlan) -> Generator[Step, Any, TrainedCircuit]:
        """Ask the parties for the circuits of an earlier run."""
        return plan, (yield from recalled(self.options.trained, plan.domain)), COMPLETE

    def _paper(self, plan: CircuitPlan, remarks: Remarks) -> Generator[Step, Any, TrainedCircuit]:
        """Train as the paper does."""
        remarks.warnings += lost_by_groups(plan) + lost_by_counts(plan, asked=True)
        parties, presence = plan.holdings.parties, plan.holdings.presence
        central = self.options.queries == "central"
        compose = partial(self.compose, plan.domain)
        steps = algorithm_1(parties, presence, plan.target, compose, central=central)
        return plan, (yield from steps), COMPLETE

    def _trained(self, plan: CircuitPlan, remarks: Remarks) -> Generator[Step, Any, TrainedCircuit]:
        """Train by the strategy that the plan names."""
        plan = yield from with_cut_points(self.options, plan)
        if plan.training == "sums":
            steps = by_sums(self.options, plan, remarks)
        elif plan.training == "triples":
            steps = by_triples(self.options, plan, remarks)
        else:
            steps = in_one_pass(self.options, plan, remarks, partial(self.compose, plan.domain))
        return (yield from with_variables(plan, steps))

    @step(ONE_PASS & When(weights=("auto", "counts")))
    def compose(
        self, domain: Domain, presence: BoolArray, rows: list[list[list[int]]]
    ) -> Composition:
        """Compose the parties' circuits: lines 9-12 and 15-22 of Algorithm 1.

        Parameters
        ----------
        domain : Domain
            The joint one.
        presence : ndarray of bool, shape (parties, columns)
            Who holds which columns.
        rows : list of list of list of int
            By party, group of columns and circuit: the number of rows that it was trained on.
        """
        return composed(domain, presence, rows, self.options.num_products, self.options.seed)

    def _with_parties(
        self,
        agreement: Agreement,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return the circuits; those that stay with the parties are asked over the grid."""
        if model is None:
            return None
        model = replace(model, row_id=self.options.role_columns[0])
        if not isinstance(model.density, FederatedCircuit):
            return model
        density = model.density
        if self._federation is not None and self._grid is not None:
            line = Connection(
                self._grid, self._federation, density.parties, self.options.round_timeout
            )
            fingerprint = density.fingerprint or self._federation.setup.exchange
            density = replace(density, ask=line.ask, fingerprint=fingerprint)
        return replace(model, density=density)

    def _metric_warnings(self, metrics: Mapping[str, Any]) -> list[str]:
        """Warn where always guessing the most frequent class is as accurate."""
        if self.options.decision != "most-probable":  # which gives accuracy for rare classes
            return []
        judged = {"test rows": metrics, "the rows of the query": metrics.get("query", {})}
        return [
            text
            for rows, found in judged.items()
            for text in doubts_of(metrics=found, judged=rows, head=self.options.head is not False)
        ]


def _result(
    plan: CircuitPlan,
    remarks: Remarks,
    model: CircuitModel | None = None,
    reason: str = "",
) -> Result:
    """Return the circuit with the warnings of its training."""
    alike = [
        f"columns {one!r} and {other!r} are taken for two, and no party has both: give them "
        "one name if they are the same"
        for one, other in plan.holdings.similar_names()
    ]
    if plan.holdings.repeated_columns and plan.learner != "trees":
        columns = ", ".join(map(repr, plan.holdings.repeated_columns))
        alike.append(
            f"most rows have one value of {columns}, and learner={plan.learner!r} spreads it "
            "over the numbers beside it: its samples do not hold the value, and its "
            "log-likelihood is that of a narrow density. learner='trees' gives it an interval "
            "of its own"
        )
    warnings = (*alike, *remarks.warnings)
    return Result(model=model, warnings=warnings, num_rows=remarks.num_rows, reason=reason)
