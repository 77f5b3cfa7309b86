"""The options of FedPC, and the settings in which each has an effect."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.core.circuits.learners.options import LearnerOptions, SpnOptions
from flwr_causal.core.options import MOST, Mode, bounded, only
from flwr_causal.data.check.policy import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.runtime.options import OF_GRAPHS, CausalOptions
from flwr_causal.strategies.variant import VariantOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _begins(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a test of a method: whether its plan ``holds``; true while there is no plan yet."""
    return lambda method: method.started is None or holds(method.started)


def _one_pass(method: Any) -> bool:
    return method.options.training in ("auto", "one-pass") and _begins(
        lambda plan: plan.training == "one-pass"
    )(method)


def _differing(plan: Any) -> bool:
    return bool(plan.differing)


def _chooses(method: Any, run: Any) -> bool:
    """Whether ``training="auto"`` chooses between counts and one pass.

    Options that counts do not have then choose one pass.
    """
    return method.options.training == "auto" and _differing(run) and run.training != "sums"


def _by_counts(run: Any) -> bool:
    """Whether combinations of clusters are weighted by numbers of rows."""
    return bool(run.weights == "counts")


OF_ONE_PASS = Mode("training='one-pass'", _one_pass)
OF_WEIGHTS = Mode(
    "training='one-pass' of parties with different columns; with the same ones it is 'counts'",
    lambda method: (
        _one_pass(method) and (method.options.weights == "counts" or _begins(_differing)(method))
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
        and method.options.weights in ("auto", "counts")
        and _begins(lambda run: _differing(run) and _by_counts(run))(method)
    ),
)
OF_EINSUM = Mode("learner='einsum'", lambda method: method.options.learner == "einsum")
OF_SPN = Mode("learner='spn'", lambda method: method.options.learner == "spn")
OF_EINSUM_BY_SUMS = Mode(
    "learner='einsum' with training='sums'",
    lambda method: method.options.learner == "einsum" and method.options.training != "one-pass",
)
OF_COMPONENTS = Mode(
    "learner='trees', or weights='em'",
    lambda method: (
        method.options.learner in ("auto", "trees", "class-conditional")
        and _begins(
            lambda run: run.learner == "trees" or run.weights == "em" or _chooses(method, run)
        )(method)
    ),
)
OF_A_HEAD = Mode(
    "learner='class-conditional' or 'trees' with training='sums' of parties that hold the same "
    "columns and a target",
    lambda method: (
        method.options.learner in ("auto", "class-conditional", "trees")
        and method.options.training != "one-pass"
        and _begins(
            lambda run: (
                bool(run.training == "sums" and run.target and not _differing(run))
                or _chooses(method, run)
            )
        )(method)
    ),
)

OF_HEAD = Mode(
    OF_A_HEAD.text, lambda method: method.options.head is False or OF_A_HEAD.holds(method)
)


@dataclass(frozen=True, kw_only=True)
class FedPCOptions(VariantOptions, LearnerOptions, CausalOptions):
    """The options of :class:`~flwr_causal.strategies.fedpc.fedpc.FedPC`.

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
    training : {"auto", "sums", "triples", "one-pass"}, default "auto"
        By sums over rows, by counts of pairs and triples of states, or in one pass (the paper's).
        docs/fedpc.md has the rules of "auto"; ``run.stop_reason`` says what was trained, and why.
        By sums with ids, random projections of the common rows measure the dependence between
        columns of different parties; with "auto" another training takes over if most of it is not
        linear (y = x^2). With "auto" "triples" has fewer marks of pairs (0 to 768) where the masked
        tables would otherwise take more than 256 MiB at a party. "triples" is "sums" where the
        parties hold the same columns.
    learner : {"auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"}
        What is trained: class-conditional circuits with elliptical leaves (for numbers), mixtures
        of Chow-Liu trees (for categories and intervals), LearnSPN, Einsum networks (needs torch),
        decision trees; the last three take numbers with two values for categories. docs/fedpc.md
        has the rules of "auto", the default.
    weights : {"auto", "counts", "classes", "aligned", "em"}, default "auto"
        One pass over different columns: how combinations of the parties' clusters are weighted. By
        numbers of rows (the paper's), by the classes of the rows where all parties know these, by
        the clusters that aligned rows have at all parties, or by EM on the aligned rows' densities
        in the clusters. docs/fedpc.md has the rules of "auto".
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
        With 1 the circuit equals the circuit of the pooled rows.
    trained : str, default ""
        Absolute path of the results of an earlier run, whose parties have kept their circuits
        (``model-path`` in their node config): nothing is trained, they are asked again.
    max_rounds : int, default 60
        Most exchanges after the schema exchange; a run that needs more fails. Class-conditional
        circuits take four or five, trees seven, Einsum networks 1 + epochs x batches; a head and
        its choice take five to ten more, a threshold one, cut points three to 13. Counts of triples
        take three, besides cut points. One pass takes one, one more where rows are aligned, a third
        where the dependence between parties is measured, and 11 where trees are trained together.
    missing_values : {"auto", "fail", "drop", "keep"}, default "auto"
        "keep": that a value is missing is a state of a category or an interval; of a number it is
        integrated out.
    constant_columns : {"auto", "fail", "drop", "keep"}, default "auto"
        Columns with one value at all parties; trees can keep them.
    unshared_columns : {"keep", "drop", "fail", "auto"}, default "keep"
        Columns that some parties lack.
    categories : str, default ""
        Columns that are categories, separated by commas: all parties read them as text, in the
        spelling of their cells, such as the codes "250.0" and "250.00".
    numbers : str, default ""
        Columns that are numbers, separated by commas, also where they have few different values.
    max_states : int, default 64
        Largest number of states of a category.
    text_columns : {"keep", "drop", "fail", "auto"}, default "keep"
        What to do about columns that hold no numbers: "keep" takes them as categories.
    duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that equal another one in every row.
    """

    max_rounds: int = 60
    target: str = ""
    training: Literal["auto", "sums", "triples", "one-pass"] = "auto"
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
    missing_values: AutoDropKeep = "auto"  # type: ignore[assignment]
    constant_columns: Literal["auto", "fail", "drop", "keep"] = "auto"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
    max_states: int = 64
    text_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    unshared_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    narrowed: ClassVar[Mapping[str, Mode]] = {
        **dict.fromkeys(("replicates", "leave_one_out"), OF_GRAPHS),
        **dict.fromkeys(("depth", "replicas", "sums", "epochs", "image"), OF_EINSUM),
        **dict.fromkeys((one.name for one in fields(SpnOptions)), OF_SPN),
        "batches": OF_EINSUM_BY_SUMS,
        "components": OF_COMPONENTS,
        "head": OF_HEAD,
        "decision": OF_A_HEAD,
    }

    @property
    def num_bins(self) -> int:
        """Intervals of a column of numbers."""
        if self.bins is not None:
            return self.bins
        return 32 if self.head is True else 16
