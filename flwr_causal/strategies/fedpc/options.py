"""The options of FedPC, and the settings in which each has an effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.options import MOST, bounded
from flwr_causal.core.parts import Part, all_but, option
from flwr_causal.data.check.handling import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.runtime.options import CausalOptions, FewRows, Repeated
from flwr_causal.strategies.variant import OfPaper, VariantOptions


@dataclass(frozen=True, kw_only=True)
class OnePass(Part):
    """A circuit of each party, trained in one exchange.

    Parameters
    ----------
    queries : {"federated", "central"}, default "federated"
        One pass: whether circuits stay with the parties, to which the server sends queries, or are
        sent to the server.
    """

    text = "training='one-pass'"

    queries: Literal["federated", "central"] = "federated"


@dataclass(frozen=True, kw_only=True)
class WeightedPass(OnePass):
    """Combinations of the parties' clusters.

    Parameters
    ----------
    weights : {"auto", "counts", "classes", "em"}, default "auto"
        One pass over different columns: how combinations of the parties' clusters are weighted. By
        numbers of rows (the paper's), by the classes of the rows where all parties know these, or
        by EM on the aligned rows' densities in the clusters. docs/fedpc.md has the table of "auto".
    """

    text = (
        "training='one-pass' of parties with different columns; with the same ones it is 'counts'"
    )

    weights: Literal["auto", "counts", "classes", "em"] = option("auto", needs="replies")


@dataclass(frozen=True, kw_only=True)
class ClusteredPass(WeightedPass):
    """Clusters of the rows of parties with different columns.

    Parameters
    ----------
    clusters : int, default 8
        One pass: clusters of the rows of a party for columns that it alone holds (the paper's K).
    """

    text = "training='one-pass' of parties with different columns"

    clusters: int = bounded(8, least=1, most=MOST)


@dataclass(frozen=True, kw_only=True)
class CountedPass(ClusteredPass):
    """Combinations of clusters that are weighted by numbers of rows.

    Parameters
    ----------
    products : int, optional
        Weights "counts": combinations of clusters (the paper's P). Default: as few as hold every
        cluster, with ``variant="paper"`` all.
    """

    text = "training='one-pass' with weights='counts' of parties with different columns"

    products: int | None = bounded(None, least=1, most=MOST)


class CircuitParts(Part):
    """A circuit of which every party has a part."""

    text = "circuits"
    gives = all_but("parties")


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
        # Appendix D, table 5, of images; of tables the paper does not say. Standardised columns of
        # Income have the paper's density with normal leaves only (docs/figures/papers.md).
        "leaves": "gaussian",
    },
    choices={
        # Appendix D.3, table 4. Left out, those of breast cancer: the only row that is the same in
        # all three settings.
        "correlation": (0.4, 0.3, 0.5),
        "split_rows": (300.0, 200.0, 100.0, 50.0),
        # Not stated; 1 has the figures of table 1 on breast cancer and Credit.
        "least_deviation": (0.0, 1.0),
    },
)


@dataclass(frozen=True, kw_only=True)
class FedPCOptions(CountedPass, VariantOptions, LearnerOptions, CausalOptions):
    """The options of :class:`~flwr_causal.strategies.fedpc.fedpc.FedPC`.

    Parameters
    ----------
    variant : {"default", "paper"}, default "default"
        "paper" is Algorithm 1 for tables: one pass, weights by counts, and LearnSPN with leaves
        over one column each, without a sum over the classes at the root. The paper chooses the
        thresholds for each table and setting (appendix D.3, table 4): ``correlation`` is 0.4 (left
        out), 0.3 or 0.5, and ``split_rows`` is 300 (left out), 200, 100 or 50. Those left out are
        the ones of breast cancer, the only table with the same ones in all three settings.
        ``least_deviation`` is 0 (left out) or 1, which the paper does not state.
        ``products`` left out are all combinations of clusters ("combinatorial"); a number is as in
        Algorithm 1. The paper gives no number of clusters. Its thresholds are on RDC, here on the
        maximal correlation of intervals.
    target : str, default ""
        The class, a column of few different values. Empty: the column ``target``, if there is one.
    training : {"auto", "sums", "triples", "one-pass"}, default "auto"
        By sums over rows, by counts of pairs and triples of states, or in one pass (the paper's).
        docs/fedpc.md has the table of "auto"; ``run.stop_reason`` says what was trained, and why.
        By sums with ids, random projections of the common rows measure the dependence between
        columns of different parties; with "auto" another training takes over if most of it is not
        linear (y = x^2). With "auto" "triples" has fewer marks of pairs (0 to 768) where the masked
        tables would otherwise take more than 256 MiB at a party. "triples" is "sums" where the
        parties hold the same columns.
    learner : {"auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"}
        What is trained: class-conditional circuits with elliptical leaves (for numbers), mixtures
        of Chow-Liu trees (for categories and intervals), LearnSPN, Einsum networks, decision trees;
        the last three take numbers with two values for categories. docs/fedpc.md
        has the table of "auto", the default.
    components, depth, replicas, sums, epochs, batches, image, blocks, correlation, split_rows, \
    class_root, leaves, head, decision
        See :class:`~flwr_causal.core.circuits.learners.options.LearnerOptions`.
    bins : int, optional
        Learner "trees": number of intervals of about equally many rows into which columns of
        numbers are cut; columns with at most this number of different whole numbers are categories,
        and may be the target. Default: 16, the best number for the density; with ``head=True`` 32,
        with which the head predicts classes better.
    minimum_count : int, default 2
        The fewest rows behind a sum that leaves a party, or behind a circuit. A class of fewer rows
        is left out, whatever ``small_counts`` says, as a sum over one row is the row; a smaller
        cluster joins the largest one. With 1 the circuit equals the circuit of the pooled rows.
    trained : str, default ""
        Absolute path of the results of an earlier run, whose parties have kept their circuits
        (``model-path`` in their node config): nothing is trained, they are asked again.
    max_rounds : int, default 60
        Most exchanges after the schema exchange; a run that needs more fails. Class-conditional
        circuits take four or five, trees seven, Einsum networks 1 + epochs x batches; a head and
        its choice take five to ten more, a threshold one, cut points three to 13. Counts of triples
        take three, besides cut points. One pass takes one, one more where rows are aligned, a third
        where the dependence between parties is measured.
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

    Examples
    --------
    >>> from flwr_causal.strategies.fedpc.options import FedPCOptions
    >>> FedPCOptions(seed=3).seed
    3
    """

    max_rounds: int = 60
    target: str = ""
    training: Literal["auto", "sums", "triples", "one-pass"] = option(
        "auto", needs=dict.fromkeys(("triples", "one-pass"), ("replies",))
    )
    learner: Literal["auto", "class-conditional", "trees", "spn", "einsum", "decision-tree"] = (
        "auto"
    )
    bins: int | None = bounded(None, least=2, most=64)
    minimum_count: int = bounded(2, least=1, most=MOST)
    trained: str = option("", needs="replies")
    # Rows with missing values are counted by party.
    missing_values: AutoDropKeep = option(  # type: ignore[assignment]
        "auto", needs={"keep": ("replies",)}
    )
    constant_columns: Literal["auto", "fail", "drop", "keep"] = "auto"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
    max_states: int = 64
    text_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    unshared_columns: AutoDropKeep = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Seng et al. (2025)."""
        return OF_PAPER

    @property
    def joins_columns(self) -> bool:
        """Whether parties compute products of their columns with columns of others."""
        return self.training != "one-pass"

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose; there is no graph."""
        return (*(one for one in super().parts if one is not Repeated), FewRows, CircuitParts)

    @property
    def num_bins(self) -> int:
        """Intervals of a column of numbers."""
        if self.bins is not None:
            return self.bins
        return 32 if self.head is True else 16

    @property
    def num_products(self) -> int | None:
        """Combinations of clusters, with weights "counts"; None for as few as hold every one."""
        if self.products is None and self.papers:
            return int(OF_PAPER.constants["products"])
        return self.products
