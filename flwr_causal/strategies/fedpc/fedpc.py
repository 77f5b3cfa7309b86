"""FedPC (Seng et al. 2025): federated probabilistic circuits, the server's side."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.core.circuits.composed.dependence import ALIKE, with_dependence
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.learners.by_name import training_of
from flwr_causal.core.circuits.learners.class_conditional.pattern import PatternMoments
from flwr_causal.core.circuits.learners.class_conditional.steps import (
    ClassConditionalTrained,
    coordinates_of,
)
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.core.circuits.learners.options import LearnerOptions, SpnOptions, taken
from flwr_causal.core.circuits.learners.training_by_sums import Trained
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.options import MOST, bounded, require
from flwr_causal.data.check.plausibility import nominal_numbers
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import target_in
from flwr_causal.errors import DataError
from flwr_causal.protocol.cuts import CUTS
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
from flwr_causal.strategies.base import OF_GRAPHS, Baselines, CausalStrategy
from flwr_causal.strategies.cut_points import agreed_cuts
from flwr_causal.strategies.fedpc.choices import (
    ALIGNED_WEIGHTS,
    FEWEST_NUMBERS,
    CircuitOptions,
    CircuitPlan,
    labelled,
    plan_of,
    why_counts,
)
from flwr_causal.strategies.fedpc.counts import counted_classes, counted_states
from flwr_causal.strategies.fedpc.holdings import (
    Holdings,
    check_target,
    domain_of,
    with_intervals,
)
from flwr_causal.strategies.fedpc.joint import joint_components, joint_trees
from flwr_causal.strategies.fedpc.losses import (
    Remarks,
    lost,
    lost_by_clusters,
    lost_by_counts,
    lost_by_leaves,
    lost_by_training,
    not_alike,
)
from flwr_causal.strategies.fedpc.one_pass import (
    aligned_rows,
    local_circuits,
    measured_dependence,
    recalled,
)
from flwr_causal.strategies.options import Mode, check_modes, only
from flwr_causal.strategies.plausibility import majority_warning
from flwr_causal.strategies.variant import OfPaper, PaperVariant, settle_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    import pandas as pd

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.learners.training_by_sums import State
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Training
    from flwr_causal.strategies.base import RunAlone

    #: What was trained in the end, the circuit, and why the training is over.
    Circuit = tuple[CircuitPlan, CircuitModel, str]

COMPLETE = "the circuit is complete"
NO_IDS = (
    "give every party's table a column of ids of its rows, 'row_id' or the one that the option "
    "row_id names"
)
#: Learners of which parties with different columns can train components together.
TRAINED_TOGETHER = ("trees", "class-conditional")

#: The settings of Seng et al. (2025) for tables.
OF_PAPER = OfPaper(
    # Appendix D.3, table 4: glueing is "combinatorial", all combinations of clusters.
    constants={"products": MOST},
    fixed={
        # Section 3.3, Algorithm 1: one pass, and weights from numbers of rows.
        "training": "one-pass",
        "weights": "counts",
        # Section 4, Q1: MSPNs, which LearnSPN learns; their leaves are over one column each, and
        # the class is one of the columns.
        "learner": "spn",
        "blocks": False,
        "class_root": False,
    },
    choices={
        # Appendix D.3, table 4. Left out, those of breast cancer: the only row that is the same in
        # all three settings.
        "correlation": (0.4, 0.3, 0.5),
        "split_rows": (300.0, 200.0, 100.0, 50.0),
    },
)


def _begins(holds: Callable[[CircuitPlan], bool]) -> Callable[[Any], bool]:
    """Return whether a run may be so: whether it is, once the parties have agreed."""
    return lambda method: method.started is None or holds(method.started)


def _one_pass(method: Any) -> bool:
    return method.training in ("auto", "one-pass") and _begins(
        lambda plan: not plan.sums and not plan.counted
    )(method)


def _differing(plan: CircuitPlan) -> bool:
    return plan.differing


def _chooses(method: FedPC, run: CircuitPlan) -> bool:
    """Whether options that sums and counts do not have make ``training="auto"`` "one-pass"."""
    return method.training == "auto" and _differing(run) and not run.sums


def _by_counts(run: CircuitPlan) -> bool:
    return run.weights == "counts"


OF_ONE_PASS = Mode("training='one-pass'", _one_pass)
OF_WEIGHTS = Mode(
    "training='one-pass' of parties with different columns; with the same ones it is 'counts'",
    lambda method: (
        _one_pass(method) and (method.weights == "counts" or _begins(_differing)(method))
    ),
)
OF_CLUSTERS = Mode(
    "training='one-pass' of parties with different columns",
    lambda method: _one_pass(method) and _begins(_differing)(method),
)
OF_PRODUCTS = Mode(
    "training='one-pass' with weights='counts' of parties with different columns",
    lambda method: (
        _one_pass(method)
        and method.weights in ("auto", "counts")
        and _begins(lambda run: _differing(run) and _by_counts(run))(method)
    ),
)
OF_EINSUM = Mode("learner='einsum'", lambda method: method.learner == "einsum")
OF_SPN = Mode("learner='spn'", lambda method: method.learner == "spn")
OF_EINSUM_BY_SUMS = Mode(
    "learner='einsum' with training='sums'",
    lambda method: method.learner == "einsum" and method.training != "one-pass",
)
OF_COMPONENTS = Mode(
    "learner='trees', or weights='em'",
    lambda method: (
        method.learner in ("auto", "trees", "class-conditional")
        and _begins(
            lambda run: run.learner == "trees" or run.weights == "em" or _chooses(method, run)
        )(method)
    ),
)
OF_A_HEAD = Mode(
    "learner='class-conditional' or 'trees' with training='sums' of parties that hold the same "
    "columns and a target",
    lambda method: (
        method.learner in ("auto", "class-conditional", "trees")
        and method.training != "one-pass"
        and _begins(
            lambda run: (
                bool(run.sums and run.target and not _differing(run)) or _chooses(method, run)
            )
        )(method)
    ),
)

OF_HEAD = Mode(OF_A_HEAD.text, lambda method: method.head is False or OF_A_HEAD.holds(method))


@dataclass(kw_only=True, eq=False)
class FedPC(PaperVariant, CircuitOptions, CausalStrategy):
    """A joint distribution of all columns, a probabilistic circuit (Seng et al. 2025).

    Parties may hold the same columns of different rows (horizontal), different columns of the same
    rows (vertical), or overlap in both (hybrid): which it is follows from their tables.
    docs/fedpc.md says what each choice is good for and why the defaults are what they are;
    :class:`~flwr_causal.clients.fedpc.FedPCClient` lists what leaves a party.

    - ``training="sums"``: parties send sums over their rows, and the circuit is that of the pooled
      rows, whoever holds which. The default where it is possible. Where only some parties know the
      class, they compute sums of products of their columns together, from masked tables.
    - ``training="pairs"``: parties hold different columns and ids. One tree over all columns (one
      for each class, if all know it) from counts of pairs of states, which parties compute together
      from masked tables: that of the joined rows, and no party learns which rows are alike.
    - ``training="triples"``: the same, with counts of triples of states of which one party holds
      two. A variable then depends on up to two others, and several such trees are averaged.
    - ``training="one-pass"``: the paper's. Parties train circuits of their own, which are composed
      by Algorithm 1.

    Parameters
    ----------
    variant : {"default", "paper"}, default "default"
        "paper" is Algorithm 1 for tables: one pass, weights by counts, and LearnSPN with leaves
        over one column each, without a sum over the classes at the root. The paper chooses the
        thresholds for each table and setting (appendix D.3, table 4): ``correlation`` is 0.4 (left
        out), 0.3 or 0.5, and ``split_rows`` is 300 (left out), 200, 100 or 50. Those left out are
        the ones of breast cancer, the only table with the same ones in all three settings.
        ``products`` left out are all combinations of clusters ("combinatorial"); a number is as in
        Algorithm 1. The paper gives no number of clusters. Its thresholds are on RDC, here on the
        maximal correlation of intervals.
    target : str, default ""
        The class, a column of few different values. Empty: the column ``target``, if there is one.
    training : {"auto", "sums", "pairs", "triples", "one-pass"}, default "auto"
        "auto" is "sums" where the parties hold the same columns, and where they hold different
        columns of numbers and all or none of them the target, or have ids. With other columns and
        ids it is "triples", with fewer marks of pairs (0 to 768) where the masked tables would
        otherwise take more than 256 MiB at a party; ``run.stop_reason`` says why. Without ids, and
        with options that counts do not have (weights, another learner than trees, components, a
        head), it is "one-pass". By sums with ids, random projections of the common rows measure the
        dependence between columns of different parties. If most of it is not linear (y = x^2), the
        run continues by triples where there is a target, and in one pass with weights "em" where
        there is none. "pairs" and "triples" are "sums" where the parties hold the same columns.
    learner : {"auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"}
        What is trained: class-conditional circuits with elliptical leaves (for numbers), mixtures
        of Chow-Liu trees (for categories and intervals), LearnSPN, Einsum networks (needs torch),
        decision trees; the last three take numbers with two values for categories. "auto", the
        default, is class-conditional where all columns but the target are numbers and no value of
        one is in most rows, else trees.
    weights : {"auto", "counts", "classes", "aligned", "em"}, default "auto"
        One pass over different columns: how combinations of the parties' clusters are weighted. By
        numbers of rows (the paper's), by the classes of the rows where all parties know these, by
        the clusters that aligned rows have at all parties, or by EM on the aligned rows' densities
        in the clusters. "auto" is "classes" where all parties hold the target, else "aligned" with
        ids and a target, "em" with ids and no target, else "counts".
    clusters : int, default 8
        One pass: clusters of the rows of a party for columns that it alone holds (the paper's K).
    products : int, optional
        Weights "counts": combinations of clusters (the paper's P). Default: as few as hold every
        cluster, with ``variant="paper"`` all.
    queries : {"federated", "central"}, default "federated"
        One pass: whether circuits stay with the parties, to which the server sends queries, or are
        sent to the server.
    components, depth, replicas, sums, epochs, batches, image, blocks, correlation, split_rows, \
    class_root, head, decision
        See :class:`~flwr_causal.core.circuits.learners.options.LearnerOptions`.
    bins : int, optional
        Learner "trees": number of intervals of about equally many rows into which columns of
        numbers are cut; columns with at most this number of different whole numbers are categories,
        and may be the target. Default: 16, the best number for the density; with ``head=True`` 32,
        with which the head predicts classes better.
    minimum_count : int, default 2
        The fewest rows behind a sum that leaves a party, or behind a circuit. Classes and clusters
        of fewer rows are left out, whatever ``small_counts`` says: a sum over one row is the row.
        With 1 the circuit is exactly that of the pooled rows.
    trained : str, default ""
        Absolute path of the results of an earlier run, whose parties have kept their circuits
        (``model-path`` in their node config): nothing is trained, they are asked again.
    max_rounds : int, default 60
        Most exchanges after the schema exchange; a run that needs more fails. Class-conditional
        circuits take four or five, trees seven, a head and the choice of it five to ten more and
        that of a threshold one, cut points three to 13, Einsum networks 1 + epochs x batches;
        counts of pairs and triples take three and those for cut points; one pass takes one, one
        more where rows are aligned, a third where the dependence between parties is measured, and
        11 where trees are trained together.
    missing_values : {"fail", "drop", "keep"}, default "fail"
        "keep": that a value is missing is a state of a category or an interval; of a number it is
        integrated out.
    constant_columns : {"fail", "drop", "keep"}, default "fail"
        Columns with one value at all parties; trees can keep them.
    unshared_columns : {"keep", "drop", "fail"}, default "keep"
        Columns that some parties lack.
    categories : str, default ""
        Columns that are categories, separated by commas: all parties read them as text, in the
        spelling of their cells, such as the codes "250.0" and "250.00".
    numbers : str, default ""
        Columns that are numbers, separated by commas, also where they have few different values.
    max_states : int, default 64
        Largest number of states of a category.
    text_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that hold no numbers: "keep" takes them as categories.
    duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that equal another one in every row.

    References
    ----------
    Seng, Busch, Prasad, Dhami, Mundt & Kersting (2025). Scaling probabilistic circuits via data
    partitioning.
    """

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.TABLE

    max_rounds: int = 60
    target: str = ""
    training: Literal["auto", "sums", "pairs", "triples", "one-pass"] = "auto"
    learner: Literal["auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"] = (
        "auto"
    )
    weights: Literal["auto", "counts", "classes", "aligned", "em"] = only(OF_WEIGHTS, "auto")
    clusters: int = only(OF_CLUSTERS, 8, least=1, most=MOST)
    products: int | None = only(OF_PRODUCTS, None, least=1, most=MOST)
    queries: Literal["federated", "central"] = only(OF_ONE_PASS, "federated")
    bins: int | None = bounded(None, least=2, most=64)
    minimum_count: int = bounded(2, least=1, most=MOST)
    trained: str = ""
    missing_values: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    constant_columns: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
    max_states: int = 64
    text_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    unshared_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    columns_differ: bool = field(default=False, init=False, repr=False)

    narrowed: ClassVar[Mapping[str, Mode]] = {
        **dict.fromkeys(("replicates", "leave_one_out"), OF_GRAPHS),
        **dict.fromkeys(("depth", "replicas", "sums", "epochs", "image"), OF_EINSUM),
        **dict.fromkeys((one.name for one in fields(SpnOptions)), OF_SPN),
        "batches": OF_EINSUM_BY_SUMS,
        "components": OF_COMPONENTS,
        "head": OF_HEAD,
        "decision": OF_A_HEAD,
    }

    def validate(self) -> None:
        """Check the options' values."""
        settle_variant(self)
        super().validate()
        _ = self.image_shape
        require(
            self.small_counts != "suppress",
            "small_counts",
            self.small_counts,
            "'report' or 'refuse': the counts of a circuit must add up, and classes of few rows "
            "are left out in any case",
        )
        # Log densities of impossible rows do not fit into float32, and sums would not be exact.
        require(self.precision == "float64", "precision", self.precision, "'float64'")
        whole = self.fraction_train == 1
        require(whole, "fraction_train", self.fraction_train, "1: every party has a part of it")

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Seng et al. (2025)."""
        return OF_PAPER

    @property
    def num_products(self) -> int | None:
        """Combinations of clusters, with weights "counts"; None for as few as hold every one."""
        if self.products is None and self.papers:
            return int(self.of_paper.constants["products"])
        return self.products

    @property
    def started(self) -> CircuitPlan | None:
        """What is trained; None before the parties have agreed."""
        found: CircuitPlan | None = vars(self).get("_start")
        return found

    @property
    def pools_rows(self) -> bool:
        """Whether the circuit is that of the pooled rows, no group of few rows being left out."""
        return self.training == "sums" and self.minimum_count == 1

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of a training by sums, where these are secure; else all."""
        if self.secure_aggregation:
            return (CUTS, *SUMS.values())
        return super().exchanges

    @property
    def with_secure_aggregation(self) -> dict[str, tuple[bool, str]]:
        """Which options fit secure sums; rows with missing values are counted by party."""
        return {
            **super().with_secure_aggregation,
            "training": (self.training in ("auto", "sums"), "'sums'"),
            "weights": (self.weights == "auto", "'auto'"),
            "trained": (not self.trained, "left out"),
            "groups": (self.groups == 1, "1"),
            "missing_values": (self.missing_values != "keep", "'fail' or 'drop'"),
        }

    @property
    def joins_columns(self) -> bool:  # type: ignore[override]
        """Whether parties compute products of their columns with those of others."""
        return self.training != "one-pass"

    @property
    def num_bins(self) -> int:
        """Intervals of a column of numbers."""
        return (32 if self.head is True else 16) if self.bins is None else self.bins

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        bins = self.num_bins
        policy = replace(super().policy, min_rows=1, discretize=bins)
        return self.contract.completed(self, policy)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines:
        """Return the circuits of the rows that are complete in one place, and of each party."""
        same = all(set(table.columns) == set(tables[0].columns) for table in tables)
        whole = joined_tables(tables, *self.role_columns)
        complete = whole if same else whole.dropna()
        pooled = run_alone(complete, trained="") if len(complete) else None
        return Baselines(pooled, [run_alone(table, trained="") for table in tables])

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on columns and states, and note who holds what."""
        agreement = super().agree(reports)
        self._target = target_in(agreement.names, self.target)
        if not self.target and self._target in agreement.continuous:
            self._target = ""
        check_target(agreement, self._target)
        self._holdings = Holdings.of(agreement, reports)
        self._start = plan_of(self, agreement, self._holdings, self._target)
        self.columns_differ = bool(self._start.counts) or self._start.lacking
        categories = {
            one.name: one.states
            for one in self._start.domain.variables
            if one.states is not None and one.name != self._target
        }
        found = nominal_numbers(reports, categories, self.policy)
        found += lost_by_leaves(self._start, categories)
        return replace(agreement, warnings=(*agreement.warnings, *found))

    def complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Complete the agreement; the run starts with the cut points that follow from it."""
        agreement = super().complete(agreement, total, groups)
        self._holdings = self._holdings.of_columns(agreement.names)
        self._start = plan_of(self, agreement, self._holdings, self._target)
        return agreement

    @property
    def client_options(self) -> FedPCPartyOptions:
        """What the parties need to see their rows as the circuit does."""
        plan = self._start
        return self.sent(
            FedPCPartyOptions,
            domain=plan.domain,
            target=self._target,
            within=plan.class_of_all or "",
            holders=tuple(plan.holders),
            pair_marks=plan.pair_marks,
            labelled=tuple(labelled(self, plan)),
            learner=plan.learner,
            learners=taken(LearnerOptions, self),
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
        check_modes(self)
        plan, known = self._start, Remarks()
        steps = self._recalled(plan) if self.trained else self._trained(plan, known)
        plan, model, reason = yield from relayed(steps, so_far=lambda: self._result(plan, known))
        return self._result(plan, known, model, f"{reason} ({plan.summary})")

    def _recalled(self, plan: CircuitPlan) -> Generator[Step, Any, Circuit]:
        """Ask the parties for the circuits of an earlier run."""
        model = yield from recalled(self.trained, plan.domain)
        return plan, model, COMPLETE

    def _trained(self, plan: CircuitPlan, known: Remarks) -> Generator[Step, Any, Circuit]:
        """Train by sums, by counts or in one pass."""
        plan = yield from self._with_cut_points(plan)
        if plan.counted:
            return (yield from self._counted(plan, known))
        holdings = plan.holdings
        asked = self.weights != "auto" and not plan.sums
        aligned = plan.weights in ALIGNED_WEIGHTS
        if not aligned and (asked or not holdings.apart.any()):
            return (yield from self._circuit(plan, known))
        if not holdings.ids:
            known.warnings.append(lost(plan, NO_IDS))
            return (yield from self._circuit(plan, known))
        return (yield from self._aligned(plan, known))

    def _aligned(self, plan: CircuitPlan, known: Remarks) -> Generator[Step, Any, Circuit]:
        """Match rows by ids; measure how columns depend that no party holds together; train."""
        holdings, aligned = plan.holdings, plan.weights in ALIGNED_WEIGHTS
        matched = yield from aligned_rows(holdings)
        problem = matched if isinstance(matched, str) else matched.problem
        common: dict[str, IntArray] = {}
        if not isinstance(matched, str):
            common, known.num_rows = matched.common, matched.num_rows
        if problem and (aligned or plan.lacking):
            raise DataError(f'{problem}, or take weights="counts", which needs no ids')
        if problem:
            known.warnings.append(lost(plan, problem))
            return (yield from self._circuit(plan, known))
        if plan.weights == "em" or (plan.weights == "aligned" and self.weights != "auto"):
            return (yield from self._circuit(plan, known, common))
        return (yield from self._measured(plan, known, common))

    def _measured(
        self, plan: CircuitPlan, known: Remarks, common: dict[str, IntArray]
    ) -> Generator[Step, Any, Circuit]:
        """Measure dependence between columns apart; train by what can express it."""
        found = yield from self._sending(plan, measured_dependence(plan, common))
        if found.least_alike.correlation < ALIKE:
            known.warnings.append(not_alike(plan.holdings, found.least_alike))
        # How much of it the parties' clusters keep is known once they are there.
        if plan.weights == "aligned":
            return (yield from self._circuit(plan, known, common, found))
        if not found.enough and not plan.lacking:
            problem = "the parties have too few rows in common to measure how their columns depend"
            known.warnings.append(lost(plan, problem))
            return (yield from self._circuit(plan, known, common, found))
        if found.mostly_nonlinear and plan.sums and self.training == "auto":
            if not plan.target:
                em = replace(plan, sums=False, weights="em")
                return (yield from self._circuit(em, known, common, found))
            if plan.counts:
                plan = yield from self._with_cut_points(self._by_counts(plan))
                return (yield from self._counted(plan, known))
        known.warnings += lost_by_training(plan, found)
        return (yield from self._circuit(plan, known, common, found))

    def _with_cut_points(self, plan: CircuitPlan) -> Generator[Step, Any, CircuitPlan]:
        """Agree on the cut points of numbers, where trees are learned."""
        if plan.learner != "trees" or not plan.agreement.continuous:
            return plan
        present = None if self.secure_aggregation else plan.present
        agreed = yield from agreed_cuts(plan.agreement, self.num_bins, present, spreading=True)
        numbers = plan.agreement.continuous
        points = dict(zip(numbers, agreed.cuts, strict=True))
        inside = dict(zip(numbers, agreed.inside, strict=True))
        whole, lacking = plan.agreement.whole, plan.holdings.lacking
        return replace(plan, domain=with_intervals(plan.domain, points, inside, whole, lacking))

    def _by_counts(self, plan: CircuitPlan) -> CircuitPlan:
        """Return the plan by counts, where sums would lose what is not linear within classes."""
        target, missing = plan.target or "", plan.holdings.missing
        return replace(
            plan,
            domain=domain_of(plan.agreement, target, missing, fewest=FEWEST_NUMBERS["trees"]),
            sums=False,
            learner="trees",
            weights=plan.counts,
            why=why_counts(self, "the dependence between parties is mostly not linear"),
        )

    def _counted(self, plan: CircuitPlan, known: Remarks) -> Generator[Step, Any, Circuit]:
        """Count pairs or triples of states."""
        model = yield from self._sending(plan, counted_states(self, plan, known))
        return plan, model, COMPLETE

    def _circuit(
        self,
        plan: CircuitPlan,
        known: Remarks,
        common: dict[str, IntArray] | None = None,
        found: Dependence | None = None,
    ) -> Generator[Step, Any, Circuit]:
        """Train by sums or in one pass, with what is known of rows in common."""
        if plan.sums:
            return (yield from self._sending(plan, self._summed(plan, known, found)))
        if plan.weights == "counts":
            known.warnings += lost_by_counts(plan, asked=self.weights == "counts")
        central, aligned = self.queries == "central", plan.weights in ALIGNED_WEIGHTS
        together = plan.weights == "em" and plan.learner in TRAINED_TOGETHER
        if together and plan.holdings.setting == "vertical":
            assert common is not None
            components = joint_components(
                plan.domain,
                plan.holdings.presence,
                len(next(iter(common.values()))),
                plan.target,
                self.components,
                self.clusters,
            )
            training = joint_trees(
                plan, common, components=components, central=central, seed=self.seed
            )
            return plan, (yield from self._sending(plan, training)), COMPLETE
        local = yield from self._sending(
            plan,
            local_circuits(
                plan,
                common if aligned else None,
                num_products=self.num_products,
                central=central,
                seed=self.seed,
            ),
        )
        if plan.weights == "aligned":
            known.warnings += lost_by_clusters(plan, found, local.replies)
        return plan, local.model, COMPLETE

    def _summed(
        self, plan: CircuitPlan, known: Remarks, found: Dependence | None
    ) -> Generator[Step, Any, Circuit]:
        """Train by sums over the parties' rows."""
        training = training_of(plan.learner, plan.class_of_all, self)
        sums = training.plan(plan.domain, seed=self.seed, min_rows=self.minimum_count)
        step: State = training.start(sums, plan.holdings.presence)
        while not isinstance(step, Trained):
            if isinstance(step, PatternMoments) and plan.lacking:
                coordinates = coordinates_of(step.arrays())
                model = yield from counted_classes(self, plan, known, coordinates)
                return plan, model, COMPLETE
            replies = yield Ask(SUMS[plan.learner, step.name], dict(step.arrays()))
            yield Note({"numbers": sum(array.size for array in replies.combined.values())})
            step = step.after(replies.combined)
        if found is not None:
            assert isinstance(step, ClassConditionalTrained)
            step = with_dependence(step, found)
        model = step.model(plan.domain)
        known.warnings += step.warnings(model)
        reason = COMPLETE
        if isinstance(step, TrainedWithHead) and step.choice_of_head is not None:
            chosen = step.choice_of_head
            yield Note(asdict(chosen) | {"pays": int(chosen.pays)})
            reason = f"{reason}; {chosen}"
        return plan, model, reason

    def _sending(
        self, plan: CircuitPlan, steps: Generator[Step, Any, ReturnT]
    ) -> Generator[Step, Any, ReturnT]:
        """Say the variables in all requests, where cut points have changed them."""
        changed = plan.domain is not self._start.domain
        values = {"domain": json.dumps(plan.domain.to_plain())} if changed else {}
        return (yield from relayed(steps, values))

    def _result(
        self,
        plan: CircuitPlan,
        known: Remarks,
        model: CircuitModel | None = None,
        reason: str = "",
    ) -> Result:
        """Return the circuit, and what the user should know."""
        alike = [
            f"columns {one!r} and {other!r} are taken for two, and no party has both: give them "
            "one name if they are the same"
            for one, other in plan.holdings.similar_names()
        ]
        if plan.holdings.sharing and plan.learner != "trees":
            columns = ", ".join(map(repr, plan.holdings.sharing))
            alike.append(
                f"most rows have one value of {columns}, and learner={plan.learner!r} spreads it "
                "over the numbers beside it: its samples do not hold the value, and its "
                "log-likelihood is that of a narrow density. learner='trees' gives it an interval "
                "of its own"
            )
        warnings = (*alike, *known.warnings)
        return Result(model=model, warnings=warnings, num_rows=known.num_rows, reason=reason)

    def fitted(self, state: Progress) -> CircuitModel | None:
        """Return the circuits; those that stay with the parties are asked over the grid."""
        found: CircuitModel | None = super().fitted(state)
        if found is None:
            return None
        model = replace(found, row_id=self.role_columns[0])
        if not isinstance(model.density, FederatedCircuit):
            return model
        density = model.density
        if self.federation is not None and self.grid is not None:
            line = Connection(self.grid, self.federation, density.parties, self.round_timeout)
            fingerprint = density.fingerprint or self.federation.setup.exchange
            density = replace(density, ask=line.ask, fingerprint=fingerprint)
        return replace(model, density=density)

    def metric_warnings(self, metrics: Mapping[str, Any]) -> list[str]:
        """Warn where always guessing the most frequent class is as accurate."""
        if self.decision != "most-probable":  # which gives accuracy for rare classes
            return []
        judged = {"test rows": metrics, "the rows of the query": metrics.get("query", {})}
        return [
            text
            for rows, own in judged.items()
            for text in majority_warning(own, rows, self.head is not False)
        ]
