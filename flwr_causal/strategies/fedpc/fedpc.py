"""FedPC (Seng et al. 2025): federated probabilistic circuits, the server's side."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.joined_tables import joined_tables
from flwr_causal.core.circuits.learners.options import LearnerOptions, to_plain
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import ROW_ID, target_in
from flwr_causal.errors import FederationError
from flwr_causal.runtime.connection import Connection
from flwr_causal.strategies.baselines import Baselines
from flwr_causal.strategies.exchange import ExchangeStrategy, Reply, Request
from flwr_causal.strategies.fedpc.circuit_schema import Holdings, check_target
from flwr_causal.strategies.fedpc.fedpc_plan import FedPCRun, after, started
from flwr_causal.strategies.options import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.wire import Scalar, Value
    from flwr_causal.runtime.federation import Party
    from flwr_causal.strategies.baselines import RunAlone


@dataclass(kw_only=True, eq=False)
class FedPC(LearnerOptions, ExchangeStrategy[FedPCRun]):
    """A joint distribution of all columns, a probabilistic circuit (Seng et al. 2025).

    Parties may hold the same columns of different rows (horizontal), different columns of the same
    rows (vertical), or overlap in both (hybrid): which it is follows from their tables.
    docs/fedpc.md says what each choice is good for and why the defaults are what they are;
    :class:`~flwr_causal.clients.fedpc.FedPCClient` lists what leaves a party.

    - ``training="sums"``: parties send sums over their rows, and the circuit is that of the pooled
      rows, whoever holds which. The default where it is possible.
    - ``training="one-pass"``: the paper's. Parties train circuits of their own, which are composed
      by Algorithm 1.

    Parameters
    ----------
    target : str, default ""
        The class, a column of few different values. Empty: the column ``target``, if there is one.
    row_id : str, default ""
        The column that tells which rows of different parties are about the same thing; it is no
        variable. Empty: the column ``row_id``, if there is one.
    training : {"auto", "sums", "one-pass"}, default "auto"
        "auto" is "sums" where the parties hold the same columns, or numbers and all the target.
    learner : {"auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"}
        What is trained: class-conditional circuits with elliptical leaves (for numbers), mixtures
        of Chow-Liu trees (for categories and intervals), LearnSPN, Einsum networks (needs torch),
        decision trees. "auto", the default, is class-conditional where all columns but the target
        are numbers, else trees.
    weights : {"auto", "counts", "classes", "aligned", "em"}, default "auto"
        One pass over different columns: how combinations of the parties' clusters are weighted. By
        numbers of rows (the paper's), by the classes of the rows where all parties know these, by
        the clusters that aligned rows have at all parties, or by EM on their densities in the
        clusters. "auto" is "classes" where all hold the target, else "aligned" where there are
        ids, else "counts".
    clusters : int, default 8
        One pass: clusters of the rows of a party for columns that it alone holds (the paper's K).
    products : int, optional
        Weights "counts": combinations of clusters (the paper's P). Default: as few as hold every
        cluster.
    queries : {"federated", "central"}, default "federated"
        One pass: whether circuits stay with the parties, which are asked, or are sent to the
        server.
    components, depth, replicas, sums, epochs, batches, image, head, decision
        See :class:`~flwr_causal.core.circuits.learners.options.LearnerOptions`.
    bins : int, optional
        Learner "trees": into how many intervals of about equally many rows columns of numbers are
        cut; columns of no more different whole numbers are categories, and may be the target.
        Default: 16, which is best for the density, and 32 with a head, whose class it tells better.
    minimum_count : int, default 2
        No sum over fewer rows than this leaves a party, nor a circuit of fewer: a sum over one row
        is the row. With 1 the circuit is exactly that of the pooled rows.
    trained : str, default ""
        Absolute path of the results of an earlier run, whose parties have kept their circuits
        (``model-path`` in their node config): nothing is trained, they are asked again.
    max_rounds : int, default 60
        Most exchanges after the schema exchange; a run that needs more fails. Class-conditional
        circuits take four or five, trees seven, a head about eight more and the choice of a
        threshold one, cut points three to 13, Einsum networks 1 + epochs x batches; one pass takes
        one, one more where rows are aligned, and 11 where trees are trained together.
    missing_values : {"fail", "drop", "keep"}, default "fail"
        "keep": that a value is missing is a state of a category or an interval; of a number it is
        integrated out.
    constant_columns : {"fail", "drop", "keep"}, default "fail"
        Columns with one value at all parties; trees can keep them.
    unshared_columns : {"keep", "drop", "fail"}, default "keep"
        Columns that some parties lack.
    text_columns, duplicate_columns : {"keep", "drop", "fail"}, default "keep"
    """

    method: ClassVar[str] = "fedpc"
    data = DataKind.TABLE

    max_rounds: int = 60
    target: str = ""
    row_id: str = ""
    training: Literal["auto", "sums", "one-pass"] = "auto"
    learner: Literal["auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"] = (
        "auto"
    )
    weights: Literal["auto", "counts", "classes", "aligned", "em"] = "auto"
    clusters: int = 8
    products: int | None = None
    queries: Literal["federated", "central"] = "federated"
    bins: int | None = None
    minimum_count: int = 2
    trained: str = ""
    missing_values: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    constant_columns: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    text_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    unshared_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        _ = self.image_shape
        sizes = ("depth", "replicas", "sums", "epochs", "batches")
        for name in ("minimum_count", "clusters", *sizes):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("products", "components"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "1 or more")
        require(2 <= self.num_bins <= 64, "bins", self.bins, "2 to 64")
        # Log densities of impossible rows do not fit into float32, and sums would not be exact.
        require(self.precision == "float64", "precision", self.precision, "'float64'")
        whole = self.fraction_train == 1
        require(whole, "fraction_train", self.fraction_train, "1: every party has a part of it")

    @property
    def num_bins(self) -> int:
        """Intervals of a column of numbers."""
        return (32 if self.head else 16) if self.bins is None else self.bins

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        bins = self.num_bins
        return replace(super().policy, min_rows=1, discretize=bins, number_states=bins)

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The column of ids."""
        return (self.row_id or ROW_ID,)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines:
        """Return the circuits of the rows that are complete in one place, and of each party."""
        same = all(set(table.columns) == set(tables[0].columns) for table in tables)
        whole = joined_tables(tables, self.row_id or ROW_ID)
        complete = whole if same else whole.dropna()
        pooled = run_alone(complete, trained="") if len(complete) else None
        return Baselines(pooled, [run_alone(table, trained="") for table in tables])

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """Which column holds ids; empty: the usual one, if it is there."""
        return {"row-id": self.row_id}

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on columns and states, and note who holds what."""
        agreement = super().agree(reports)
        self._target = target_in(agreement.names, self.target)
        if not self.target and self._target in agreement.continuous:
            self._target = ""
        check_target(agreement, self._target)
        self._holdings = Holdings.of(agreement, reports)
        self._start = started(self, agreement, self._holdings, self._target)
        return agreement

    @property
    def client_options(self) -> dict[str, Scalar]:
        """What the parties need to see their rows as the circuit does."""
        return {
            "domain": json.dumps(self._start.domain.to_plain()),
            "target": self._target,
            "seed": self.seed,
            "minimum-count": self.minimum_count,
            "learner": self._start.learner,
            "clusters": self.clusters,
            "settings": json.dumps(to_plain(self, LearnerOptions)),
        }

    def init(self, agreement: Agreement) -> FedPCRun:
        """Start with the first exchange that the options come to."""
        return self._start

    def finished(self, state: FedPCRun) -> str | None:
        """Return why the run is over."""
        if state.stage is not None:
            return None
        how = "by sums" if state.sums else f"in one pass, weights by {state.weights}"
        return f"{state.reason} ({state.holdings.setting}, {state.learner} circuits {how})"

    def instructions(self, state: FedPCRun) -> dict[str, Value]:
        """Say which phase it is, and the variables where cut points have changed them."""
        assert state.stage is not None
        changed = state.domain is not self._start.domain
        domain: dict[str, Value] = (
            {"domain": json.dumps(state.domain.to_plain())} if changed else {}
        )
        return {"phase": state.stage.phase, **domain}

    def requests(self, state: FedPCRun, parties: Sequence[Party]) -> list[Request]:
        """Return what the stage sends to each party."""
        assert state.stage is not None
        return [state.stage.request(party) for party in parties]

    def fold(self, state: FedPCRun, reply: Reply) -> FedPCRun:
        """Let the stage take a reply."""
        assert state.stage is not None
        return replace(state, stage=state.stage.fold(reply))

    def close_round(self, state: FedPCRun) -> tuple[FedPCRun, dict[str, Any]]:
        """Go on to what follows from the replies."""
        state, info = after(self, replace(state, exchanges=state.exchanges + 1))
        if state.stage is not None and state.exchanges >= self.max_rounds:
            raise FederationError(
                f"All of the {self.max_rounds} exchanges were used before the circuit was "
                "complete: raise max_rounds."
            )
        return state, info

    def graph(self, state: FedPCRun) -> None:
        """Return nothing: a circuit is no causal graph."""

    def model(self, state: FedPCRun) -> CircuitModel | None:
        """Return the circuits once they are complete; those of the parties with a line to them."""
        if state.model is None:
            return None
        model = replace(state.model, row_id=self.role_columns[0])
        if not isinstance(model.density, FederatedCircuit):
            return model
        density = model.density
        if self.federation is not None and self.grid is not None:
            line = Connection(
                self.grid, self.federation, density.parties, self.method, self.round_timeout
            )
            fingerprint = density.fingerprint or self.federation.setup.exchange
            density = replace(density, ask=line.ask, fingerprint=fingerprint)
        return replace(model, density=density)

    def warnings(self, state: FedPCRun) -> list[str]:
        """Say what the user should know."""
        alike = [
            f"columns {one!r} and {other!r} are taken for two, and no party has both: give them "
            "one name if they are the same"
            for one, other in state.holdings.similar_names()
        ]
        return [*alike, *state.warnings]
