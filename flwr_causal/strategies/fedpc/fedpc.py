"""FedPC (Seng et al. 2025): federated probabilistic circuits, the server's side."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.circuits.composed.dependence import ALIKE, NOTABLE_NATS, with_dependence
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import (
    ClassColumns,
    labelled_numbers,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import PatternMoments
from flwr_causal.core.circuits.learners.class_conditional.steps import (
    ClassConditionalTrained,
    coordinates_of,
)
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.core.circuits.learners.options import LearnerOptions, SpnOptions, to_plain
from flwr_causal.core.circuits.learners.training_by_sums import Trained
from flwr_causal.core.circuits.learners.trees.pair_tables import num_left_out, owners, trained
from flwr_causal.core.circuits.learners.trees.triple_tables import MOST_MARKS, Joints
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import target_in
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.fedpc import (
    CONTRACT,
    SUMS,
    columns_of,
    columns_with_classes,
    joints_of,
)
from flwr_causal.runtime.connection import Connection
from flwr_causal.strategies.base import OF_GRAPHS, Baselines, CausalStrategy
from flwr_causal.strategies.columns import Aligning, Holders, JoinedMoments, Masking
from flwr_causal.strategies.cut_points import CutStage
from flwr_causal.strategies.fedpc.holdings import (
    Holdings,
    check_target,
    domain_of,
    is_continuous,
    with_intervals,
)
from flwr_causal.strategies.fedpc.stages import (
    AlignStage,
    DependenceStage,
    JointStage,
    LocalStage,
    Matched,
    RecallStage,
    SumsStage,
    joint_components,
)
from flwr_causal.strategies.options import MOST, Mode, check_modes, only, require
from flwr_causal.strategies.plausibility import majority_warning
from flwr_causal.strategies.variant import OfPaper, PaperVariant, settle_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.composed.dependence import Copies, Dependence
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
    from flwr_causal.core.circuits.learners.training_by_sums import Plan, State
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.exchange import Contract, Exchange
    from flwr_causal.protocol.products.plan import Columns
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.method import Request
    from flwr_causal.strategies.base import RunAlone

Stage = (
    CutStage
    | SumsStage
    | AlignStage
    | Aligning
    | Masking
    | DependenceStage
    | LocalStage
    | JointStage
    | RecallStage
)


#: Learners of which parties with different columns can train components together.
TRAINED_TOGETHER = ("trees", "class-conditional")
#: The fewest values with which a column of numbers is not taken for a category, see `domain_of`.
FEWEST_NUMBERS = {"class-conditional": 0.0, "trees": np.inf}
#: Dependence that clusters lose is reported above this share of it.
LEAST_LOST_SHARE = 0.2
#: Trainings by counts of states, which also stand for the weights of a run.
COUNTS = ("pairs", "triples")
#: By default marks of pairs are as many as masked tables of so many bytes have room for.
MOST_BYTES = 2**28
#: Weights of combinations of clusters that follow from common rows.
ALIGNED_WEIGHTS = ("aligned", "em")

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


@dataclass(frozen=True, eq=False)
class FedPCRun:
    """The state of a FedPC run.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    holdings : Holdings
        Who holds which of them.
    domain : Domain
        The same as variables of a circuit; numbers that are yet to be cut are numbers.
    target : str or None
    sums : bool
        Whether the circuit is trained by sums.
    learner : str
        What is trained.
    weights : str
        Of combinations of clusters.
    counts : {"", "pairs", "triples"}
        What parties with different columns can count, if the options allow it.
    pair_marks : int
        How many pairs of states are marked for triples, at most.
    why : str
        Why ``training="auto"`` takes counts; empty if it does not.
    stage : Stage or None
        What the parties are asked next.
    model : CircuitModel or None
        Once it is complete.
    reason : str
        Why the run is over.
    warnings : tuple of str
    matched : Matched or None
        Which rows are common, once ids have been compared.
    dependence : Dependence or None
        Between columns that no party holds together, once it has been measured.
    coordinates : Coordinates or None
        Of numbers that are multiplied with classes, see `ClassColumns`.
    """

    agreement: Agreement
    holdings: Holdings
    domain: Domain
    target: str | None
    sums: bool
    learner: str
    weights: str
    counts: str
    pair_marks: int
    why: str = ""
    stage: Stage | None = None
    model: CircuitModel | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    matched: Matched | None = None
    dependence: Dependence | None = None
    coordinates: Coordinates | None = None


def _begins(holds: Callable[[FedPCRun], bool]) -> Callable[[Any], bool]:
    """Return whether a run may be so: whether it is, once the parties have agreed."""
    return lambda method: method.started is None or holds(method.started)


def _one_pass(method: Any) -> bool:
    return method.training in ("auto", "one-pass") and _begins(
        lambda run: not run.sums and run.weights not in COUNTS
    )(method)


def _differing(run: FedPCRun) -> bool:
    return not run.holdings.presence.all()


def _chooses(method: FedPC, run: FedPCRun) -> bool:
    """Whether options that sums and counts do not have make ``training="auto"`` "one-pass"."""
    return method.training == "auto" and _differing(run) and not run.sums


def _by_counts(run: FedPCRun) -> bool:
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
class FedPC(PaperVariant, LearnerOptions, CausalStrategy[FedPCRun]):
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
    clusters: int = only(OF_CLUSTERS, 8)
    products: int | None = only(OF_PRODUCTS, None)
    queries: Literal["federated", "central"] = only(OF_ONE_PASS, "federated")
    bins: int | None = None
    minimum_count: int = 2
    trained: str = ""
    missing_values: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    constant_columns: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
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
        self.check_structure()
        sizes = ("depth", "replicas", "sums", "epochs", "batches")
        for name in ("minimum_count", "clusters", *sizes):
            value = getattr(self, name)
            require(1 <= value <= MOST, name, value, f"from 1 to {MOST}")
        for name in ("products", "components"):
            value = getattr(self, name)
            require(value is None or 1 <= value <= MOST, name, value, f"from 1 to {MOST}")
        require(
            self.small_counts != "suppress",
            "small_counts",
            self.small_counts,
            "'report' or 'refuse': the counts of a circuit must add up, and classes of few rows "
            "are left out in any case",
        )
        require(2 <= self.num_bins <= 64, "bins", self.bins, "2 to 64")
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
    def started(self) -> FedPCRun | None:
        """The run before its first exchange; None before the parties have agreed."""
        found: FedPCRun | None = vars(self).get("_start")
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
        return replace(super().policy, min_rows=1, discretize=bins, number_states=bins)

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
        self._start = _started(self, agreement, self._holdings, self._target)
        self.columns_differ = bool(self._start.counts) or _lacking(self._start)
        return agreement

    def complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Complete the agreement; the run starts with the cut points that follow from it."""
        agreement = super().complete(agreement, total, groups)
        self._holdings = self._holdings.of_columns(agreement.names)
        self._start = _started(self, agreement, self._holdings, self._target)
        return agreement

    @property
    def client_options(self) -> dict[str, Scalar]:
        """What the parties need to see their rows as the circuit does."""
        return {
            "domain": json.dumps(self._start.domain.to_plain()),
            "target": self._target,
            "within": _class_of_all(self._start) or "",
            "holders": json.dumps(_holders(self._start)),
            "pair_marks": self._start.pair_marks,
            "labelled": json.dumps(_labelled(self, self._start)),
            "seed": self.seed,
            "learner": self._start.learner,
            "clusters": self.clusters,
            "settings": json.dumps(to_plain(self, LearnerOptions)),
        }

    def init(self, agreement: Agreement) -> FedPCRun:
        """Start with the first exchange that follows from the options.

        Raises
        ------
        ConfigError
            For an option that has no effect on what the parties' tables make of ``"auto"``.
        """
        check_modes(self)
        return self._start

    def finished(self, state: FedPCRun) -> str | None:
        """Return why the run is over."""
        if state.stage is not None:
            return None
        how = "by sums" if state.sums else f"in one pass, weights by {state.weights}"
        if state.weights in COUNTS:
            how = f"by counts of {state.weights}{state.why}"
        return f"{state.reason} ({state.holdings.setting}, {state.learner} circuits {how})"

    def request(self, state: FedPCRun) -> Request:
        """Return what the stage sends, and the variables where cut points have changed them."""
        assert state.stage is not None
        request = state.stage.request()
        changed: dict[str, Any] = {}
        if state.domain is not self._start.domain:
            changed["domain"] = json.dumps(state.domain.to_plain())
        if state.coordinates is not None:
            changed["coordinates"] = np.stack(state.coordinates)
        sent = {key: one for key, one in changed.items() if request.exchange.sends_name(key)}
        return replace(request, values={**request.values, **sent}) if sent else request

    def close(self, state: FedPCRun, replies: Replies) -> tuple[FedPCRun, dict[str, Any]]:
        """Go on to what follows from the replies."""
        return _after(self, state, replies)

    def num_rows(self, state: FedPCRun) -> int | None:
        """Return the number of different ids, where ids were compared."""
        return None if state.matched is None else state.matched.num_rows

    def graph(self, state: FedPCRun) -> None:
        """Return nothing: a circuit is no causal graph."""

    def model(self, state: FedPCRun) -> CircuitModel | None:
        """Return the circuits; those that stay with the parties are asked over the grid."""
        if state.model is None:
            return None
        model = replace(state.model, row_id=self.role_columns[0])
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

    def warnings(self, state: FedPCRun) -> list[str]:
        """Say what the user should know."""
        alike = [
            f"columns {one!r} and {other!r} are taken for two, and no party has both: give them "
            "one name if they are the same"
            for one, other in state.holdings.similar_names()
        ]
        spread: tuple[str, ...] = ()
        if state.holdings.sharing and state.learner != "trees":
            columns = ", ".join(map(repr, state.holdings.sharing))
            spread = (
                f"most rows have one value of {columns}, and learner={state.learner!r} spreads it "
                "over the numbers beside it: its samples do not hold the value, and its "
                "log-likelihood is that of a narrow density. learner='trees' gives it an interval "
                "of its own",
            )
        return [*alike, *spread, *state.warnings]


def _started(method: FedPC, agreement: Agreement, holdings: Holdings, target: str) -> FedPCRun:
    """Return the run before its first exchange.

    Raises
    ------
    ConfigError
        If options do not fit together, or not these tables.
    DataError
        If a party has too few rows for one pass.
    """
    learner = _learner(method, agreement, holdings, target)
    sums = _by_sums(method, holdings, learner, target)
    counts = _counts(method, holdings)
    marks = _pair_marks(method, agreement, holdings, target) if counts == "triples" else 0
    weights, why = _weights(method, holdings, sums, target), ""
    if counts and not sums:
        learner, weights = "trees", counts
        why = _why(method, _reason_of_trees(agreement, holdings, target))
    fewest = FEWEST_NUMBERS.get(learner, 3)
    domain = domain_of(agreement, target, holdings.missing, fewest=fewest)
    state = FedPCRun(
        agreement, holdings, domain, target or None, sums, learner, weights, counts, marks, why
    )
    if method.secure_aggregation and not (sums and holdings.presence.all()):
        raise ConfigError(
            "The option 'secure_aggregation' is for parties that hold the same columns, and for "
            f"learners that are trained by sums, {', '.join(sorted(BY_SUMS))}: here "
            f"{learner} circuits would be trained. Take another learner, use the columns that all "
            "parties have (unshared_columns='drop'), or run without secure_aggregation."
        )
    if method.secure_aggregation and agreement.total is None:
        return state  # the first exchange follows once the totals are known
    if not sums and weights not in COUNTS:
        _check_rows(agreement, method.minimum_count)
    if method.trained:
        return replace(state, stage=RecallStage.of(method.trained, domain))
    return _first(method, state)


def _first(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run before cut points, if there are any, or the first exchange after them."""
    if state.learner == "trees" and state.agreement.continuous:
        present = None if method.secure_aggregation else _present(state)
        stage = CutStage.of(state.agreement, method.num_bins, present, spreading=True)
        return replace(state, stage=stage)
    return _begun(method, state)


def _check_rows(agreement: Agreement, minimum_count: int) -> None:
    """Raise a DataError if a party has too few rows for a circuit of its own."""
    few = {party: rows for party, rows in agreement.rows.items() if rows < minimum_count}
    if few:
        listed = ", ".join(f"{party!r} has {rows}" for party, rows in few.items())
        raise DataError(
            f"In one pass every party trains a circuit of {minimum_count} rows or more "
            f"(minimum_count): {listed}. Add rows, or leave these parties out."
        )


def _after(method: FedPC, state: FedPCRun, replies: Replies) -> tuple[FedPCRun, dict[str, Any]]:
    """Return the run after an exchange, and diagnostics of it."""
    stage = state.stage
    if isinstance(stage, CutStage):
        step = stage.close(replies)
        if step.stage is not None:
            return replace(state, stage=step.stage), step.info
        numbers = state.agreement.continuous
        cuts = dict(zip(numbers, step.cuts, strict=True))
        inside = dict(zip(numbers, step.inside, strict=True))
        whole, lacking = state.agreement.whole, state.holdings.lacking
        domain = with_intervals(state.domain, cuts, inside, whole, lacking)
        return _begun(method, replace(state, domain=domain)), step.info
    if isinstance(stage, SumsStage):
        return _after_sums(method, state, *stage.close(replies))
    if isinstance(stage, AlignStage):
        return _aligned(method, state, stage.matched(replies))
    if isinstance(stage, Aligning | Masking):
        known = _next_of_products(method, stage, replies)
        if not isinstance(known, JoinedMoments):
            return replace(state, stage=known), {}
        return _by_products(method, state, known), known.info
    if isinstance(stage, DependenceStage):
        state = replace(state, dependence=stage.dependence(replies))
        return _measured(method, state)
    assert stage is not None
    info = stage.info(replies)
    if isinstance(stage, LocalStage) and state.weights == "aligned":
        state = replace(
            state, warnings=(*state.warnings, *_lost_by_clusters(state, stage, replies))
        )
    if isinstance(stage, JointStage) and not stage.last:
        return replace(state, stage=stage.after(replies)), info
    return _complete(state, stage.model(replies, state.target)), info


def _after_sums(
    method: FedPC, state: FedPCRun, following: State, info: dict[str, Any]
) -> tuple[FedPCRun, dict[str, Any]]:
    """Return the run after an exchange of a training by sums, and diagnostics of it."""
    if isinstance(following, PatternMoments) and _lacking(state):
        coordinates = coordinates_of(following.arrays())
        return _multiplying(method, replace(state, coordinates=coordinates)), info
    if isinstance(following, Trained):
        if state.dependence is not None:
            assert isinstance(following, ClassConditionalTrained)
            following = with_dependence(following, state.dependence)
        model = following.model(state.domain)
        warnings = (*state.warnings, *following.warnings(model))
        complete = _complete(replace(state, warnings=warnings), model)
        if isinstance(following, TrainedWithHead) and following.choice_of_head is not None:
            chosen = following.choice_of_head
            info = info | asdict(chosen) | {"pays": int(chosen.pays)}
            complete = replace(complete, reason=f"{complete.reason}; {chosen}")
        return complete, info
    return replace(state, stage=SumsStage(state.learner, following)), info


def _complete(state: FedPCRun, model: CircuitModel) -> FedPCRun:
    return replace(state, stage=None, model=model, reason="the circuit is complete")


def _begun(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run at the first exchange after the variables are known."""
    if state.weights in COUNTS:
        return replace(state, stage=_counting(method, state))
    asked = method.weights != "auto" and not state.sums
    if state.weights not in ALIGNED_WEIGHTS and (asked or not state.holdings.apart.any()):
        return _training(method, state)
    if not state.holdings.ids:
        return _training(method, _without_ids(state))
    return replace(state, stage=AlignStage(state.holdings))


def _training(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run at the first exchange of the training."""
    if not state.sums:
        if state.weights == "counts":
            state = replace(state, warnings=(*state.warnings, *_lost_by_counts(method, state)))
        common = None
        if state.weights in ALIGNED_WEIGHTS:
            assert state.matched is not None
            common = state.matched.common
            together = state.weights == "em" and state.learner in TRAINED_TOGETHER
            if together and state.holdings.setting == "vertical":
                return replace(state, stage=_joint(method, state, common))
        return replace(state, stage=_local(method, state, common))
    training = training_of(state.learner, _class_of_all(state), method)
    plan = training.plan(state.domain, seed=method.seed, min_rows=method.minimum_count)
    first = training.start(plan, state.holdings.presence)
    return replace(state, stage=SumsStage(state.learner, first))


def _aligned(
    method: FedPC, state: FedPCRun, matched: Matched | str
) -> tuple[FedPCRun, dict[str, Any]]:
    """Return the run after ids have been compared, and how many there are.

    Raises
    ------
    DataError
        If there are no common rows, and the weights need them.
    """
    problem = matched if isinstance(matched, str) else matched.problem
    info: dict[str, Any] = {}
    if not isinstance(matched, str):
        common = len(next(iter(matched.common.values())))
        info = {"ids": matched.num_rows, "common": common}
        state = replace(state, matched=matched)
    if problem:
        if state.weights in ALIGNED_WEIGHTS or _lacking(state):
            raise DataError(f'{problem}, or take weights="counts", which needs no ids')
        return _training(method, replace(state, warnings=(_lost(state, problem),))), info
    if state.weights == "em" or (state.weights == "aligned" and method.weights != "auto"):
        return _training(method, state), info
    assert isinstance(matched, Matched)
    stage = DependenceStage(state.domain, state.holdings, matched.common, _class_of_all(state))
    return replace(state, stage=stage), info


def _class_of_all(state: FedPCRun) -> str | None:
    """Return the target if all parties hold it."""
    return state.target if state.target and state.holdings.all_hold(state.target) else None


def _holders(state: FedPCRun) -> list[int]:
    """Return by column a number for its set of holders, if states are counted in triples."""
    return state.holdings.alike if state.counts == "triples" else []


def _marked(method: FedPC, state: FedPCRun) -> tuple[Plan, Joints | None]:
    """Return which marks are counted; the parties' are those of the setup."""
    plan = _plan_of_trees(method, state.domain, _class_of_all(state))
    return plan, joints_of(state.domain, plan, _holders(state), state.pair_marks)


def _plan_of_trees(method: FedPC, domain: Domain, within: str | None) -> Plan:
    training = training_of("trees", within, method)
    return training.plan(domain, seed=method.seed, min_rows=method.minimum_count)


def _counting(method: FedPC, state: FedPCRun) -> Aligning:
    """Return the first exchange of counts of pairs and triples of states."""
    marked = _marked(method, state)
    return _products(method, state, owners(*marked), columns_of(state.domain, *marked))


def _multiplying(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run at the first exchange of products of numbers and classes."""
    assert state.coordinates is not None
    columns = _class_columns(method, state, state.coordinates)
    meaning = columns_with_classes(state.domain, columns)
    return replace(state, stage=_products(method, state, columns.owners, meaning))


def _products(method: FedPC, state: FedPCRun, variables: IntArray, columns: Columns) -> Aligning:
    """Return the first exchange of products; variables are those of each column."""
    holdings = state.holdings
    holders = Holders(
        holdings.parties,
        tuple(holdings.names[j] for j in variables),
        holdings.presence[:, variables],
        state.agreement.n,
        method.minimum_count,
        replicates=0,
        seed=method.seed,
        columns=columns,
    )
    return Aligning(holders)


def _class_columns(method: FedPC, state: FedPCRun, coordinates: Coordinates) -> ClassColumns:
    """Return what is multiplied where only some parties know the class."""
    plan = _plan_of_classes(method, state)
    return ClassColumns(plan, coordinates, labelled_numbers(plan, state.holdings.presence))


def _plan_of_classes(method: FedPC, state: FedPCRun) -> Plan:
    training = training_of("class-conditional", state.target, method)
    return training.plan(state.domain, seed=method.seed, min_rows=method.minimum_count)


def _labelled(method: FedPC, state: FedPCRun) -> list[int]:
    """Return the labelled numbers, if products of numbers and classes are asked for."""
    if not _lacking(state):
        return []
    return labelled_numbers(_plan_of_classes(method, state), state.holdings.presence)


def _lacking(state: FedPCRun) -> bool:
    """Whether the training is by sums, and only some parties know the class."""
    return bool(state.sums and state.target and not state.holdings.all_hold(state.target))


def _next_of_products(
    method: FedPC, stage: Aligning | Masking, replies: Replies
) -> Masking | JoinedMoments:
    """Return what follows an exchange of products.

    Raises
    ------
    DataError
        If rows cannot be matched; where this was not asked for, with the training without it.
    """
    try:
        return stage.close(replies)
    except DataError as error:
        if method.training != "auto":
            raise
        raise DataError(
            f"{error}; or set training='one-pass', which may lose how columns of different parties "
            "depend"
        ) from error


def _by_products(method: FedPC, state: FedPCRun, joined: JoinedMoments) -> FedPCRun:
    """Return the run after the products of all columns: of marks, or of numbers and classes."""
    products, counts = joined.products[0], joined.counts[0]
    if state.coordinates is None:
        marked = _marked(method, state)
        model = _model_of_marks(state, *marked, products)
        left_out = num_left_out(*marked, products, np.diagonal(counts))
    else:
        columns = _class_columns(method, state, state.coordinates)
        trained_rows = columns.trained(products, joined.sums[0], counts)
        model = trained_rows.model(state.domain)
        left_out = int(counts[len(counts) - 1, len(counts) - 1] - trained_rows.counts.sum())
    warnings = (*state.warnings, *joined.doubts)
    if left_out > 0:
        warnings += (_few_of_a_class(method, state, left_out),)
    matched = Matched({}, joined.plan.num_rows, "")
    return _complete(replace(state, matched=matched, warnings=warnings), model)


def _model_of_marks(
    state: FedPCRun, plan: Plan, joints: Joints | None, products: FloatArray
) -> CircuitModel:
    """Return the circuit of counts of pairs and triples of states, and the one of classes."""
    # Products of whole numbers are exact; those of rounded ones are none.
    density, posterior = trained(state.domain, plan, joints, products), None
    if state.target and plan.target is None and state.weights == "triples":
        column = state.domain.index(state.target)
        posterior = trained(state.domain, plan, joints, products, column)
    return CircuitModel(density, state.target, posterior)


def _few_of_a_class(method: FedPC, state: FedPCRun, rows: int) -> str:
    """Return the warning that rows of small classes are not counted."""
    return (
        f"{rows} rows are not counted: fewer than {method.minimum_count} (minimum_count) of "
        f"those that the same parties have are of their class, a value of {state.target!r}. Join "
        "rare classes to others in all tables, or lower minimum_count"
    )


def _measured(method: FedPC, state: FedPCRun) -> tuple[FedPCRun, dict[str, Any]]:
    """Return the run after dependence has been measured: which training can express it."""
    found, holdings = state.dependence, state.holdings
    assert found is not None
    info = {"nats": found.nats, "nonlinear_nats": found.nonlinear_nats}
    if found.least_alike.correlation < ALIKE:
        state = replace(state, warnings=(*state.warnings, _not_alike(holdings, found.least_alike)))
    if state.weights == "aligned":
        # How much of it the parties' clusters keep is known once they are there.
        return _training(method, state), info
    if not found.enough and not _lacking(state):
        problem = "the parties have too few rows in common to measure how their columns depend"
        lost = (*state.warnings, _lost(state, problem))
        return _training(method, replace(state, warnings=lost)), info
    if found.mostly_nonlinear and state.sums and method.training == "auto":
        if not state.target:
            return _training(method, replace(state, sums=False, weights="em")), info
        if state.counts:
            return _changed_to_counts(method, state), info
    given = f"given {state.target!r} " if state.target else ""
    warnings = []
    if found.notable and not state.sums:
        one, other, correlation = found.strongest
        warnings.append(
            f"{given}the mutual information of columns of different parties is {found.nats:.2f} "
            f"nats a row, most of all between {holdings.where(one)} and {holdings.where(other)} "
            f"with a correlation of {correlation:.2f}, and weights='{state.weights}' loses that: "
            "training='triples' counts it, weights='em' keeps a part of it"
        )
    if found.nonlinear:
        one, other, correlation = found.strongest_nonlinear
        loses = "training='sums'" if state.sums else f"weights='{state.weights}'"
        warnings.append(
            f"{given}the dependence between {holdings.where(one)} and {holdings.where(other)} is "
            f"nonlinear (a correlation of {abs(correlation):.2f} between polynomials of "
            f"their ranks), and {loses} loses that: training='triples' counts it, "
            "training='one-pass' with weights='em' keeps a part of it"
        )
    return _training(method, replace(state, warnings=(*state.warnings, *warnings))), info


def _changed_to_counts(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run by counts, of which sums would lose what is not linear within classes."""
    fewest = FEWEST_NUMBERS["trees"]
    domain = domain_of(state.agreement, state.target or "", state.holdings.missing, fewest=fewest)
    why = _why(method, "the dependence between parties is mostly not linear")
    changed = replace(
        state, domain=domain, sums=False, learner="trees", weights=state.counts, why=why
    )
    return _first(method, changed)


def _not_alike(holdings: Holdings, copies: Copies) -> str:
    """Return the warning that rows with the same id differ."""
    one, other = holdings.parties[copies.first], holdings.parties[copies.second]
    return (
        f"column {holdings.names[copies.column]!r} has other values at {other} than at {one} in "
        f"rows with the same id (a correlation of {copies.correlation:.2f}): the ids may not mean "
        "the same rows, or the columns not the same quantity. Check both at these parties"
    )


def _lost_by_clusters(state: FedPCRun, stage: LocalStage, replies: Replies) -> list[str]:
    """Return the warning that the parties' clusters keep only a part of the dependence."""
    found, holdings = state.dependence, state.holdings
    if found is None or not found.enough:
        return []
    there, kept = found.nats + found.nonlinear_nats, stage.information(replies)
    if there - kept < LEAST_LOST_SHARE * there or there - kept < NOTABLE_NATS:
        return []
    one, other, correlation = found.strongest
    return [
        f"the mutual information of columns of different parties is {there:.2f} nats a row, most "
        f"of all between {holdings.where(one)} and {holdings.where(other)} with a correlation of "
        f"{correlation:.2f}, and weights='aligned' keeps at most {kept:.2f} of it: weights='em' "
        "keeps more, but all parties learn which rows are similar; training='triples' counts the "
        "states of columns of different parties together, and does not show that"
    ]


def _lost_by_counts(method: FedPC, state: FedPCRun) -> list[str]:
    """Return warnings of what combinations by numbers of rows alone cannot express."""
    holdings, found = state.holdings, []
    if method.weights == "counts" and holdings.apart.any():
        found.append(
            "weights='counts' combines clusters of different parties at random: the dependence "
            f"between their columns is lost ({holdings.columns_apart()}). training='sums' or "
            "'triples', or another value of weights, keeps it or more of it"
        )
    if state.target and len(holdings.holders(state.target)) > 1 and not holdings.presence.all():
        held = holdings.presence.T
        own = held[holdings.names.index(state.target)]
        beside = [
            repr(name)
            for name, other in zip(holdings.names, held, strict=True)
            if (other == own).all() and name != state.target
        ]
        seen = f"from {', '.join(beside)} alone" if beside else "as the most frequent one, always"
        found.append(
            f"weights='counts' makes {state.target!r}, which several parties hold, independent of "
            f"columns that other parties hold: the class is predicted {seen}. Take "
            "training='sums', weights='classes' where all parties hold the class, or "
            "weights='aligned' with ids"
        )
    return found


def _lost(state: FedPCRun, problem: str) -> str:
    """Return the warning that nothing is known of the dependence between some columns."""
    given = []
    if state.target is not None and state.holdings.all_hold(state.target):
        given.append(repr(state.target))
    shared = state.holdings.presence.sum(axis=0) > 1
    if any(shared[j] for j, name in enumerate(state.holdings.names) if name != state.target):
        given.append("the columns that parties share")
    condition = f" given {' and '.join(given)}" if given else ""
    return (
        f"no party holds columns of different parties together: {state.holdings.columns_apart()}. "
        f"The dependence between them{condition} is lost, they are taken to be independent: "
        f"{problem}"
    )


def _without_ids(state: FedPCRun) -> FedPCRun:
    """Return the run with the warning that rows cannot be aligned."""
    problem = (
        "give every party's table a column of ids of its rows, 'row_id' or the one that the "
        "option row_id names"
    )
    return replace(state, warnings=(_lost(state, problem),))


def _joint(method: FedPC, state: FedPCRun, common: dict[str, IntArray]) -> JointStage:
    """Return the first exchange of trees that the parties train together."""
    rows = len(next(iter(common.values())))
    return JointStage(
        state.domain,
        state.holdings,
        common,
        components=joint_components(
            state.domain,
            state.holdings.presence,
            rows,
            state.target,
            method.components,
            method.clusters,
        ),
        central=method.queries == "central",
        seed=method.seed,
    )


def _local(method: FedPC, state: FedPCRun, common: dict[str, IntArray] | None) -> LocalStage:
    """Return the exchange in which the parties train circuits of their own."""
    return LocalStage(
        state.domain,
        state.holdings,
        weights=state.weights,
        common=common,
        num_products=method.num_products,
        central=method.queries == "central",
        seed=method.seed,
    )


def _present(state: FedPCRun) -> dict[str, Any]:
    """Return by party how many of its rows have a value of each column that is to be cut."""
    columns = [state.agreement.names.index(name) for name in state.agreement.continuous]
    counts = state.holdings.present[:, columns]
    return dict(zip(state.holdings.parties, np.asarray(counts), strict=True))


def _learner(method: FedPC, agreement: Agreement, holdings: Holdings, target: str) -> str:
    if method.learner == "decision-tree" and not target:
        raise ConfigError(
            "learner='decision-tree' needs a target: name it, or take another learner"
        )
    if method.learner == "decision-tree" and not holdings.presence.all():
        raise ConfigError(
            "learner='decision-tree' is for parties that hold the same columns. The paper defines "
            "FC[DT] as the average of trees (section 3.2), and reports results for different "
            "columns (table 6) but neither who knows the class there nor what a product of trees "
            "predicts. Take the columns that all parties have (unshared_columns='drop'), or "
            "another learner"
        )
    if method.learner != "auto":
        return method.learner
    if method.training in COUNTS:
        return "trees"
    numbers = is_continuous(agreement, target) and not holdings.missing.any()
    return "class-conditional" if numbers and not holdings.sharing else "trees"


def _by_sums(method: FedPC, holdings: Holdings, learner: str, target: str) -> bool:
    """Whether the circuit is trained by sums over rows."""
    if method.training in COUNTS:
        return bool(holdings.presence.all())
    if method.training == "one-pass":
        return False
    if method.training == "auto" and method.weights != "auto":
        return False
    same = bool(holdings.presence.all())
    labelled = not target or holdings.all_hold(target)
    # Where only some parties know the class, rows are matched by ids. What is multiplied is a class
    # and numbers: as with counts there are no components, and no head.
    unfitting = [one for one in _unfitting(method) if not one.startswith("learner=")]
    matched = holdings.ids and not unfitting
    differing = learner in BY_SUMS and learner_class(learner).columns_may_differ
    possible = learner in BY_SUMS and (same or (differing and (labelled or matched)))
    if method.training == "sums" and not possible:
        if same:
            training_of(learner, target or None, method)
        raise ConfigError(
            "training='sums' over different columns needs numbers, and the target at every party, "
            "or ids of the rows and no components, head, decision or trained: "
            f"here {learner} circuits are trained, and {target or 'no target'!r} is held by "
            f"{', '.join(holdings.holders(target)) if target else 'nobody'}. Take "
            "training='one-pass'."
        )
    return possible


def _counts(method: FedPC, holdings: Holdings) -> str:
    """Return what parties with different columns can count; "" where they cannot or must not."""
    if holdings.presence.all():
        return ""
    if method.training in COUNTS:
        _check_counts(method, holdings)
        return method.training
    possible = method.training == "auto" and holdings.ids and not _unfitting(method)
    return "triples" if possible else ""


def _pair_marks(method: FedPC, agreement: Agreement, holdings: Holdings, target: str) -> int:
    """Return how many pairs of states are marked at most: by default, what `MOST_BYTES` hold."""
    if method.training == "triples":
        return MOST_MARKS
    domain = domain_of(agreement, target, holdings.missing, fewest=FEWEST_NUMBERS["trees"])
    # Numbers are cut later, into as many intervals or fewer.
    numbers = {one.name for one in domain.variables if not one.num_states}
    cuts = dict.fromkeys(numbers, np.arange(1.0, method.num_bins))
    domain = with_intervals(domain, cuts, dict.fromkeys(numbers), (), holdings.lacking)
    within = target if target and holdings.all_hold(target) else None
    single = len(owners(_plan_of_trees(method, domain, within), None))
    rows = max(*agreement.rows.values(), 1)
    room = MOST_BYTES // (8 * rows * (len(holdings.parties) - 1))
    return min(max(room - single, 0), MOST_MARKS)


def _reason_of_trees(agreement: Agreement, holdings: Holdings, target: str) -> str:
    """Return why trees are learned."""
    if not is_continuous(agreement, target) or holdings.missing.any():
        return "not all columns are numbers"
    if holdings.sharing:
        return f"most rows have one value of {', '.join(map(repr, holdings.sharing))}"
    return "of learner='trees'"


def _why(method: FedPC, reason: str) -> str:
    """Return why ``training="auto"`` takes counts; "" if it was not asked."""
    return f", chosen because {reason}" if method.training == "auto" else ""


def _check_counts(method: FedPC, holdings: Holdings) -> None:
    """Raise a ConfigError if there are no ids, or options that counts do not fit."""
    if not holdings.ids:
        raise ConfigError(
            f"training={method.training!r} needs rows that are matched by ids: give every party's "
            "table a column of ids of its rows, 'row_id' or the one that the option row_id names"
        )
    wrong = _unfitting(method)
    if wrong:
        raise ConfigError(
            f"training={method.training!r} over different columns has no mixtures of clusters and "
            f"no head: set {', '.join(wrong)}"
        )


def _unfitting(method: FedPC) -> list[str]:
    """Return what options would have to be for counts of states, of those that are otherwise."""
    wanted = {
        "learner": (method.learner in ("auto", "trees"), "'trees'"),
        "weights": (method.weights == "auto", "'auto'"),
        "components": (method.components in (None, 1), "1"),
        "head": (method.head is not True, "False"),
        "decision": (method.decision == "most-probable", "'most-probable'"),
        "trained": (not method.trained, "''"),
    }
    return [f"{name}={value}" for name, (fits, value) in wanted.items() if not fits]


def _weights(method: FedPC, holdings: Holdings, sums: bool, target: str) -> str:
    """Return how combinations of clusters are weighted."""
    if sums or holdings.presence.all():
        return "counts"
    labelled = bool(target) and holdings.all_hold(target)
    if method.weights != "auto":
        if method.weights == "classes" and not labelled:
            raise ConfigError(
                "weights='classes' needs a target that all parties hold: take 'aligned' or 'counts'"
            )
        if method.weights in ALIGNED_WEIGHTS and not holdings.ids:
            raise ConfigError(
                f"weights='{method.weights}' needs rows that are aligned by ids: name the column "
                "of ids with row_id, or take weights='counts'"
            )
        return method.weights
    if labelled:
        return "classes"
    if not holdings.ids:
        return "counts"
    return "aligned" if target else "em"
