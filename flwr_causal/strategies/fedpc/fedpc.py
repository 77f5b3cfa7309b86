"""FedPC (Seng et al. 2025): federated probabilistic circuits, the strategy.

The paper's algorithm is in `paper`, everything else is ours. What is trained follows from options
and tables: `choices` has the rules, `plan` applies them. `FedPC.train` takes these steps, with the
exchanges (:mod:`flwr_causal.protocol.fedpc`) in this order:

- ``variant="paper"``: Algorithm 1, one exchange (``LOCAL``; `paper.algorithm_1`).
- Else:

  1. Where trees are learned of columns of numbers: their cut points (``CUTS``).
  2. Where no party holds some columns together, and rows have ids: common rows (``ALIGN``), and how
     these columns depend (``DEPENDENCE``; `dependence`).
  3. The training:

     - "sums", the default where parties hold the same columns (``SUMS``): the generator
       ``training`` of the learner, in ``class_conditional/learner.py``, ``trees/learner.py`` or
       ``einsum.py`` of ``core/circuits/learners``. A party answers with ``sums`` of the class that
       declares the exchange, in the same place. Where only some parties know the class, masked
       products (``ALIGN``, ``MASKED_TABLES``, ``PRODUCTS``; `counts.counted_classes`) take the
       place of all but the first sums;
     - "triples": masked products of marks of states (``ALIGN``, ``MASKED_TABLES``, ``PRODUCTS``;
       `counts.counted_states`);
     - "one-pass": Algorithm 1 too, with weights by counts or our own (``LOCAL``; `dependence`), or
       components that the parties train together (``JOINT_START``, ``JOINT_PRODUCTS``,
       ``JOINT_TREES``; `dependence.joint_trees`).

With the option ``trained`` the parties are asked for the circuits of an earlier run instead
(``RECALL``; `kept_circuits`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from flwr_causal.core.circuits.composed.dependence import ALIKE, with_dependence
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.class_conditional.learner import (
    ClassConditionalTrained,
    chosen_coordinates,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import ColumnPatterns
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.core.circuits.learners.options import LearnerOptions, taken
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.options import require
from flwr_causal.core.parts import check_parts
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import target_in
from flwr_causal.doubts.graphs import majority_warning
from flwr_causal.doubts.tables import nominal_numbers
from flwr_causal.errors import DataError
from flwr_causal.protocol.fedpc import CONTRACT, SUMS, FedPCPartyOptions
from flwr_causal.runtime.algorithm import (
    Ask,
    Note,
    Progress,
    Result,
    ReturnT,
    relayed,
)
from flwr_causal.runtime.connection import Connection
from flwr_causal.runtime.options import Baselines
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.cut_points import agreed_cuts
from flwr_causal.strategies.fedpc.choices import (
    ALIGNED_WEIGHTS,
    TRAINING_OF_NONLINEAR,
    first,
)
from flwr_causal.strategies.fedpc.counts import counted_classes, counted_states
from flwr_causal.strategies.fedpc.dependence import (
    aligned_rows,
    joint_components,
    joint_trees,
    measured_dependence,
    weighted_clusters,
)
from flwr_causal.strategies.fedpc.holdings import Holdings
from flwr_causal.strategies.fedpc.kept_circuits import recalled
from flwr_causal.strategies.fedpc.losses import (
    Remarks,
    lost,
    lost_by_clusters,
    lost_by_counts,
    lost_by_leaves,
    lost_by_training,
    not_alike,
)
from flwr_causal.strategies.fedpc.options import FedPCOptions
from flwr_causal.strategies.fedpc.paper import algorithm_1
from flwr_causal.strategies.fedpc.parts import parts_of_training
from flwr_causal.strategies.fedpc.plan import (
    FEWEST_NUMBERS,
    CircuitPlan,
    check_target,
    domain_of,
    labelled,
    plan_of,
    why_counts,
    with_intervals,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.learners.training_by_sums import Summing
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Training
    from flwr_causal.strategies.base import RunAlone
    from flwr_causal.strategies.options import takes

    #: What was trained in the end, the circuit, and why the training is over.
    Circuit = tuple[CircuitPlan, CircuitModel, str]

COMPLETE = "the circuit is complete"
NO_IDS = (
    "give every party's table a column of ids of its rows, 'row_id' or the one that the option "
    "row_id names"
)
#: Learners of which parties with different columns can train components together.
TRAINED_TOGETHER = ("trees", "class-conditional")


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
    def num_products(self) -> int | None:
        """Combinations of clusters, with weights "counts"; None for as few as hold every one."""
        if self.options.products is None and self.options.papers:
            return int(self.options.of_paper.constants["products"])
        return self.options.products

    @property
    def started(self) -> CircuitPlan | None:
        """What is trained; None before the parties have agreed."""
        found: CircuitPlan | None = vars(self).get("_plan")
        return found

    @property
    def pools_rows(self) -> bool:
        """Whether the circuit equals the one of the pooled rows: no rare group is left out."""
        return self.options.training == "sums" and self.options.minimum_count == 1

    @property
    def _parts(self) -> tuple[type[Part], ...]:
        """The parts of the options, and those of what is trained."""
        return (*super()._parts, *parts_of_training(self.options, self.started))

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        bins = self.options.num_bins
        policy = replace(super().policy, min_rows=1, discretize=bins)
        return self.contract.completed(self.options, policy)

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
        self._target = target_in(agreement.names, self.options.target)
        if not self.options.target and self._target in agreement.continuous:
            self._target = ""
        check_target(agreement, self._target)
        self._holdings = Holdings.of(agreement, reports)
        self._plan = plan_of(self.options, agreement, self._holdings, self._target)
        self._columns_differ = self._plan.countable or self._plan.class_of_some
        categories = {
            one.name: one.states
            for one in self._plan.domain.variables
            if one.states is not None and one.name != self._target
        }
        found = nominal_numbers(reports, categories, self.policy)
        found += lost_by_leaves(self._plan, categories)
        return replace(agreement, warnings=(*agreement.warnings, *found))

    def _complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Complete the agreement; the run starts with the cut points that follow from it."""
        agreement = super()._complete(agreement, total, groups)
        self._holdings = self._holdings.of_columns(agreement.names)
        self._plan = plan_of(self.options, agreement, self._holdings, self._target)
        return agreement

    @property
    def client_options(self) -> FedPCPartyOptions:
        """The options that the parties are sent."""
        plan = self._plan
        return self.sent(
            FedPCPartyOptions,
            domain=plan.domain,
            target=self._target,
            within=plan.class_of_all or "",
            holders=tuple(plan.holders),
            pair_marks=plan.pair_marks,
            labelled=tuple(labelled(self.options, plan)),
            learner=plan.learner,
            learners=taken(LearnerOptions, self.options),
        )

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Train a circuit over the parties' columns, by what these make of the options.

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
        check_parts(self.options, self._parts)
        plan, remarks = self._plan, Remarks()
        if self.options.trained:
            steps = self._recalled(plan)
        elif self.options.papers:
            steps = self._in_one_pass(plan, remarks)
        else:
            steps = self._trained(plan, remarks)
        plan, model, reason = yield from relayed(steps, so_far=lambda: self._result(plan, remarks))
        return self._result(plan, remarks, model, f"{reason} ({plan.summary})")

    def _recalled(self, plan: CircuitPlan) -> Generator[Step, Any, Circuit]:
        """Ask the parties for the circuits of an earlier run."""
        model = yield from recalled(self.options.trained, plan.domain)
        return plan, model, COMPLETE

    def _trained(self, plan: CircuitPlan, remarks: Remarks) -> Generator[Step, Any, Circuit]:
        """Train by the plan, which what common rows show may change."""
        plan = yield from self._with_cut_points(plan)
        common: dict[str, IntArray] | None = None
        dependence: Dependence | None = None
        if self._matches_rows(plan):
            common = yield from self._common_rows(plan, remarks)
        if common is not None and self._measures(plan):
            dependence = yield from self._with_variables(plan, measured_dependence(plan, common))
            plan = self._replanned(plan, remarks, dependence)
            if plan.training == "triples":
                plan = yield from self._with_cut_points(plan)
        if plan.training == "triples":
            model = yield from self._with_variables(
                plan, counted_states(self.options, plan, remarks)
            )
            return plan, model, COMPLETE
        if plan.training == "sums":
            return (yield from self._with_variables(plan, self._summed(plan, remarks, dependence)))
        return (yield from self._in_one_pass(plan, remarks, common, dependence))

    def _matches_rows(self, plan: CircuitPlan) -> bool:
        """Whether common rows are needed for the weights, or to measure a dependence."""
        if plan.training == "triples":
            return False
        asked = self.options.weights != "auto" and plan.training == "one-pass"
        return plan.weights in ALIGNED_WEIGHTS or bool(not asked and plan.holdings.apart.any())

    def _measures(self, plan: CircuitPlan) -> bool:
        """Whether the dependence between columns apart is measured.

        Not with the weights "em", which keep it, and not where the options ask for "aligned".
        """
        asked = self.options.weights != "auto"
        return plan.weights != "em" and not (plan.weights == "aligned" and asked)

    def _common_rows(
        self, plan: CircuitPlan, remarks: Remarks
    ) -> Generator[Step, Any, dict[str, IntArray] | None]:
        """Match rows by ids; None with a warning where that is not possible, and not needed."""
        if not plan.holdings.ids:
            remarks.warnings.append(lost(plan, NO_IDS))
            return None
        common, remarks.num_rows, problem = yield from aligned_rows(plan.holdings)
        if not problem:
            return common
        if plan.weights in ALIGNED_WEIGHTS or plan.class_of_some:
            raise DataError(f'{problem}, or take weights="counts", which needs no ids')
        remarks.warnings.append(lost(plan, problem))
        return None

    def _replanned(
        self, plan: CircuitPlan, remarks: Remarks, dependence: Dependence
    ) -> CircuitPlan:
        """Return the plan of a training that can express the dependence between columns apart."""
        if dependence.least_alike.correlation < ALIKE:
            remarks.warnings.append(not_alike(plan.holdings, dependence.least_alike))
        # How much of it the parties' clusters keep is known once they are there.
        if plan.weights == "aligned":
            return plan
        if not dependence.enough and not plan.class_of_some:
            problem = "the parties have too few rows in common to measure how their columns depend"
            remarks.warnings.append(lost(plan, problem))
            return plan
        by_default = plan.training == "sums" and self.options.training == "auto"
        if dependence.mostly_nonlinear and by_default:
            training = first(TRAINING_OF_NONLINEAR, plan.facts)
            if training == "one-pass":
                return replace(plan, training=training, weights="em")
            if training == "triples":
                return self._by_triples(plan)
        remarks.warnings += lost_by_training(plan, dependence)
        return plan

    def _with_cut_points(self, plan: CircuitPlan) -> Generator[Step, Any, CircuitPlan]:
        """Agree on the cut points of numbers, where trees are learned."""
        if plan.learner != "trees" or not plan.agreement.continuous:
            return plan
        present = None if self.options.secure_aggregation else plan.present
        agreed = yield from agreed_cuts(
            plan.agreement, self.options.num_bins, present, spreading=True
        )
        numbers = plan.agreement.continuous
        points = dict(zip(numbers, agreed.cuts, strict=True))
        inside = dict(zip(numbers, agreed.inside, strict=True))
        whole, lacking = plan.agreement.whole, plan.holdings.incomplete
        return replace(plan, domain=with_intervals(plan.domain, points, inside, whole, lacking))

    def _by_triples(self, plan: CircuitPlan) -> CircuitPlan:
        """Return the plan by triples, where sums would lose what is not linear within classes."""
        target, missing = plan.target or "", plan.holdings.missing
        return replace(
            plan,
            domain=domain_of(plan.agreement, target, missing, fewest=FEWEST_NUMBERS["trees"]),
            training="triples",
            learner="trees",
            weights="",
            why=why_counts(self.options, "the dependence between parties is mostly not linear"),
        )

    def _summed(
        self, plan: CircuitPlan, remarks: Remarks, dependence: Dependence | None
    ) -> Generator[Step, Any, Circuit]:
        """Train by sums over the parties' rows."""
        training = training_of(plan.learner, plan.class_of_all, self.options)
        settings = training.plan(
            plan.domain, seed=self.options.seed, min_rows=self.options.minimum_count
        )
        if plan.class_of_some:
            patterns = ColumnPatterns.of(settings, plan.holdings.presence)
            scaled = yield from asking_for_sums(
                plan.learner, chosen_coordinates(settings, patterns)
            )
            counting = counted_classes(self.options, plan, remarks, scaled.coordinates)
            return plan, (yield from counting), COMPLETE
        trained = yield from asking_for_sums(
            plan.learner, training.training(settings, plan.holdings.presence)
        )
        if dependence is not None:
            assert isinstance(trained, ClassConditionalTrained)
            trained = with_dependence(trained, dependence)
        model = trained.model(plan.domain)
        remarks.warnings += trained.warnings(model)
        reason = COMPLETE
        if isinstance(trained, TrainedWithHead) and trained.choice_of_head is not None:
            chosen = trained.choice_of_head
            yield Note(asdict(chosen) | {"pays": int(chosen.pays)})
            reason = f"{reason}; {chosen}"
        return plan, model, reason

    def _in_one_pass(
        self,
        plan: CircuitPlan,
        remarks: Remarks,
        common: dict[str, IntArray] | None = None,
        dependence: Dependence | None = None,
    ) -> Generator[Step, Any, Circuit]:
        """Train by Algorithm 1, with the paper's weights or ours, or components together."""
        central, seed = self.options.queries == "central", self.options.seed
        together = plan.weights == "em" and plan.learner in TRAINED_TOGETHER
        if plan.weights == "counts":
            remarks.warnings += lost_by_counts(plan, asked=self.options.weights == "counts")
            steps = algorithm_1(plan, num_products=self.num_products, central=central, seed=seed)
        elif together and plan.holdings.setting == "vertical":
            assert common is not None
            components = joint_components(
                plan.domain,
                plan.holdings.presence,
                len(next(iter(common.values()))),
                plan.target,
                self.options.components,
                self.options.clusters,
            )
            steps = joint_trees(plan, common, components=components, central=central, seed=seed)
        else:
            rows = common if plan.weights in ALIGNED_WEIGHTS else None
            weighted = weighted_clusters(plan, rows, central=central, seed=seed)
            model, replies = yield from self._with_variables(plan, weighted)
            if plan.weights == "aligned":
                remarks.warnings += lost_by_clusters(plan, dependence, replies)
            return plan, model, COMPLETE
        return plan, (yield from self._with_variables(plan, steps)), COMPLETE

    def _with_variables(
        self, plan: CircuitPlan, steps: Generator[Step, Any, ReturnT]
    ) -> Generator[Step, Any, ReturnT]:
        """Send the variables with all requests, where cut points have changed them."""
        changed = plan.domain is not self._plan.domain
        values = {"domain": json.dumps(plan.domain.to_plain())} if changed else {}
        return (yield from relayed(steps, values))

    def _result(
        self,
        plan: CircuitPlan,
        remarks: Remarks,
        model: CircuitModel | None = None,
        reason: str = "",
    ) -> Result:
        """Return the circuit, and what the user should know."""
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

    def _fitted(self, state: Progress) -> CircuitModel | None:
        """Return the circuits; those that stay with the parties are asked over the grid."""
        found: CircuitModel | None = super()._fitted(state)
        if found is None:
            return None
        model = replace(found, row_id=self.options.role_columns[0])
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
            for rows, own in judged.items()
            for text in majority_warning(own, rows, self.options.head is not False)
        ]


def asking_for_sums(learner: str, training: Summing[ReturnT]) -> Generator[Step, Any, ReturnT]:
    """Ask the parties for the sums of a training of this learner."""
    try:
        asked = next(training)
        while True:
            replies = yield Ask(SUMS[learner, asked.exchange.name], asked.arrays)
            yield Note({"numbers": sum(array.size for array in replies.combined.values())})
            asked = training.send(replies.combined)
    except StopIteration as end:
        found: ReturnT = end.value
        return found
