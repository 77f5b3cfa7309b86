"""The options that all methods share, as data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from flwr_causal.core.options import MOST, bounded, check_bounds, check_types
from flwr_causal.core.parts import Part, all_but, option, words
from flwr_causal.data.check.handling import AutoDrop, FailDrop  # noqa: TC001 (checked by type)
from flwr_causal.data.roles import ROW_ID
from flwr_causal.doubts.tables import Expected
from flwr_causal.protocol.bundle import MOST_REPLICATES
from flwr_causal.secure.keys import LEAST_PARTIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport


def sends_counts(method: Any) -> bool:
    """Whether counts of rows leave a party, of which it can withhold small ones."""
    return "interventions" in method.contract.reports or any(
        item.values == "count" for exchange in method._exchanges for item in exchange.returns
    )


#: Of these options "auto" is decided by the parties' reports; they are asked as by "fail" before.
OPEN = ("text_columns", "missing_values", "unshared_columns", "constant_columns")


class Baselines(NamedTuple):
    """The graphs or models that are found without a federation.

    Parameters
    ----------
    pooled : CausalGraph or model, or None
        The result on the pooled rows; None if rows cannot be pooled.
    alone : list of CausalGraph or model
        The result on each party's own rows.
    solver : str, default ""
        The name of the solver; empty: the method itself.
    """

    pooled: Any
    alone: list[Any]
    solver: str = ""


@dataclass(frozen=True, kw_only=True)
class Secure(Part):
    """Sums over all parties that hide what each of them has.

    Parameters
    ----------
    min_parties : int, default 3
        Fewest parties with which such a run starts, at least 3, and fewest of a group.
    groups : int or "auto", default 1
        With ``secure_aggregation``: add up in so many groups of parties instead of all together;
        "auto" makes as many groups as ``min_parties`` allows. The server learns each group's sums.
        Medians, influence and ``leave_one_out`` are then by group. The groups follow from ``seed``
        and the parties' names and stay the same; see docs/security.md.
    """

    text = "secure_aggregation=True"
    gives = all_but("sample", "restart", "parties", "replies", "median", "small counts")
    remedies: ClassVar[tuple[tuple[str, str], ...]] = (
        ("parties", "groups given"),
        ("median", "groups given"),
    )

    min_parties: int = option(LEAST_PARTIES, least=LEAST_PARTIES)
    groups: int | Literal["auto"] = option(1, needs="parties", least=1, most=MOST)


class Grouped(Secure):
    """Sums over groups of parties."""

    text = "secure_aggregation=True and groups"
    gives = Secure.gives | words("parties", "median")


@dataclass(frozen=True, kw_only=True)
class FewRows(Part):
    """Limits on how few rows there are behind what leaves a party.

    Parameters
    ----------
    minimum_count : int, default 5
        The fewest rows behind a count of rows, or behind a sum over some of the rows, that leaves a
        party; ``small_counts`` says what is done with smaller ones.
    """

    text = "methods and options that send counts of rows, or join different columns by ids"

    minimum_count: int = option(5, least=0, most=MOST)


@dataclass(frozen=True, kw_only=True)
class CountedRows(FewRows):
    """Counts of rows.

    Parameters
    ----------
    small_counts : {"report", "suppress", "refuse"}, default "report"
        What parties do with counts of fewer rows: send them; send 0 instead, so that tables count
        fewer rows than there are; or refuse to reply. For methods that send counts, without
        ``secure_aggregation``, which hides them. docs/privacy/schema.md says what still follows
        from sums.
    """

    text = "methods and options that send counts of rows"

    small_counts: Literal["report", "suppress", "refuse"] = option(
        "report", needs=dict.fromkeys(("suppress", "refuse"), ("small counts",))
    )


class Suppressed(Part):
    """Small counts that parties send as 0."""

    text = "small_counts='suppress', as counts of rows that are drawn again disclose them"
    gives = all_but("draws")


@dataclass(frozen=True, kw_only=True)
class Repeated(Part):
    """Trainings beside the main one, in the same exchanges.

    Parameters
    ----------
    replicates : int, default 0
        Number of bootstrap replicates: trainings on rows that each party draws from its own with
        replacement, in the same exchanges as the main training. ``graph.confidence`` is then the
        share of the replicates that have the edge; see docs/confidence.md. Each party sends
        everything ``replicates + 1`` times.
    resample : {"auto", "rows", "parties"}, default "auto"
        What replicates draw. "parties": each is of some parties alone, drawn at random without
        replacement (of K about the square root of K), and of rows that each of these draws from its
        own; with ``secure_aggregation`` of some ``groups``. For parties that differ: what all
        replicates have is then what the parties have in common. "auto" is "parties" for methods on
        numbers where the spreads of columns differ between four parties or more by their reports
        (``core.linear.levels.unlike_spreads``), which a warning says. See docs/confidence.md.
    leave_one_out : bool, default False
        Train without each of the parties as well (with ``groups``, without each of these), in the
        same exchanges: ``run.influence`` is then the change of the graph without each. Each party
        sends everything as many times as there are parties. It shows the server what each party
        adds; see docs/privacy.md.
    """

    text = "methods that return a graph"

    replicates: int = option(0, needs="draws", least=0, most=MOST_REPLICATES)
    resample: Literal["auto", "rows", "parties"] = option(
        "auto", needs={"parties": ("exact", "parties")}
    )
    leave_one_out: bool = option(False, needs="parties")


@dataclass(frozen=True, kw_only=True)
class CausalOptions(Secure, CountedRows, Repeated):
    """The options that all methods share.

    A method's own are fields of a subclass. Types and bounds are checked when they are made.

    Parameters
    ----------
    seed : int, default 0
        Determines the sampling of parties and every random choice of the method.
    max_rounds : int
        The number of exchanges after the schema exchange that the method may use. Methods choose a
        schedule made for this number; they do not cut a longer one short. A training that has not
        finished then, and after what the method declares as ``exchanges_beyond``, ends with an
        error.
    fraction_train : float, default 1.0
        The share of the parties that is sampled for each exchange.
    min_available_nodes : int, default 2
        How many nodes must be connected before the schema exchange begins.
    expected_parties : str, default ""
        The names of the parties that must take part, such as "north,south,west". The run waits for
        them by name, for ``round_timeout`` seconds, and says who is missing; other nodes take no
        part, and two nodes of one name are refused. Default: all nodes that are connected once
        there are ``min_available_nodes``.
    quorum : float, default 0.5
        The share of the parties (or of the sampled parties) that must reply in an exchange. If
        fewer reply, the run ends with an error, and the results so far are kept. With
        ``secure_aggregation`` more than half must reply in any case; with 1 a sum takes one
        exchange instead of two.
    round_timeout : float, default 3600.0
        Seconds to wait for the replies of an exchange.
    server_timeout : float, default 3600.0
        Limit, in seconds, of the server's own computations before an exchange, after it, and for
        the final graph. Solvers check the time once an iteration. After this time the run ends with
        an error, and the results so far are kept.
    changed_tables : {"fail", "restart"}, default "fail"
        What follows where a party's table changes during the run: the party fails until the table
        is restored, or the training starts again with a new schema exchange, at most three times.
    precision : {"float64", "float32"}, default "float64"
        The type in which arrays are sent. float32 halves the traffic and costs about 1e-7 of
        accuracy an exchange.
    secure_aggregation : bool, default False
        Let the server learn sums over all parties only: parties add masks that cancel in the sum.
        Numbers of rows, means and influence by party are then unknown. docs/security.md lists the
        methods and options that have it, what it protects against, and what follows where a party
        does not reply.
    signing_key : str or None, default None
        Path, on the server's machine, of an Ed25519 private key (``ssh-keygen -t ed25519 -N ""``)
        that signs what the run asks. Parties whose policy lists its public key refuse other runs.
    output_dir : str or None, default None
        Directory for the results (under ``flwr run`` its absolute path). It is made at the start
        and updated during the run: status, history, failures, and what is needed to resume the run.
        None writes nothing.
    resume : bool, default False
        Continue the interrupted run that ``output_dir`` holds, after its last exchange. If the
        directory holds no run, a new one starts; a completed run is returned. Method, options
        and tables must be the same; a party that is missing is left out of the exchanges until it
        is back. Without ``resume`` an earlier run in the directory is replaced, and other files of
        the results' names are an error.
    row_id : str, default ""
        Column of ids: rows of different parties with the same id describe the same subject. It is
        no variable. Empty: the column ``row_id``, if there is one. Parties with ids may hold
        different columns with "moments", "fedpc" and "fedges" in mode "exact"; with others that
        is an error.
    strict : bool, default False
        Whether nothing is assumed about tables: "auto" of ``missing_values``, ``text_columns``,
        ``unshared_columns`` and ``identifiers`` is then "fail".
    missing_values : {"auto", "fail", "drop"}, default "auto"
        What to do about missing or infinite values: fail with an error, or leave their rows out.
        "auto" is the best that the method has with the other options: expectation-maximisation
        ("em"), else rows with gaps as they are ("keep"), else "drop". A warning of the run says
        what was assumed. Infinite values are an error.
    missing_texts : str, default ""
        Texts that are missing values, separated by commas, such as "NA,?,-999": in every column,
        beside empty fields. In columns of numbers NA, NaN, null, None and the like always are; in
        columns of text they are states unless they are named here.
    exclude : str, default ""
        Columns that are left out, separated by commas: dates, names and numbers of patients.
        Parties say that they have them, and nothing else of them leaves a party.
    columns : str, default ""
        The only columns that are used, separated by commas; all others are left out as by
        ``exclude``. Default: all.
    dictionary : str or None, default None
        Path, on the server's machine, of the dictionary that all parties share: a TOML file that
        says of each column what it is, its states, unit, range and codes for missing, roles and
        tiers. Each party holds its table against it before anything leaves, and reads it so; see
        docs/how_to/dictionary.md. Columns that it does not list are not read.
    constant_columns : {"auto", "fail", "drop"}, default "auto"
        What to do about columns with one value in the rows of all parties. "auto" leaves them out
        with a warning.
    text_columns : {"auto", "fail", "drop"}, default "auto"
        What to do about columns that hold no numbers. "auto" takes text as categories ("keep")
        where the method has them, else leaves it out; a warning says which.
    unshared_columns : {"auto", "fail", "drop"}, default "auto"
        What to do about columns that only some parties have. "auto" keeps them where the method can
        ("keep"), else leaves them out; a warning says which. If more than half of the columns are
        such ones, or ``row_id`` is given, "auto" is "fail".
    identifiers : {"auto", "fail"}, default "auto"
        What to do about columns of dates, of more different texts than there may be states, and
        those that number or name the rows. "auto" leaves them out, as ``exclude`` does, with a
        warning; "fail" refuses text and dates, and warns of numbers.
    duplicate_columns : {"fail", "drop"}, default "fail"
        What to do about columns that equal another one in every row.

    Raises
    ------
    ConfigError
        If an option has the wrong type, or is out of its bounds.

    Examples
    --------
    >>> from flwr_causal.strategies import CausalOptions
    >>> CausalOptions(quorum=0.8).quorum
    0.8
    """

    seed: int = bounded(0, least=0)
    max_rounds: int = bounded(1, least=1, most=MOST)
    fraction_train: float = option(1.0, needs="sample", above=0, most=1)
    min_available_nodes: int = bounded(2, least=1)
    expected_parties: str = ""
    quorum: float = bounded(0.5, above=0, most=1)
    round_timeout: float = bounded(3600.0, above=0)
    server_timeout: float = bounded(3600.0, above=0)
    changed_tables: Literal["fail", "restart"] = option("fail", needs="restart")
    precision: Literal["float64", "float32"] = "float64"
    secure_aggregation: bool = False
    signing_key: str | None = None
    output_dir: str | None = None
    resume: bool = False
    row_id: str = ""
    strict: bool = False
    missing_values: AutoDrop = "auto"
    missing_texts: str = option("", needs="reports")
    exclude: str = option("", needs="reports")
    columns: str = option("", needs="reports")
    dictionary: str | None = None
    constant_columns: AutoDrop = option("auto", needs="reports")
    text_columns: AutoDrop = option("auto", needs="states")
    unshared_columns: AutoDrop = "auto"
    identifiers: Literal["auto", "fail"] = "auto"
    duplicate_columns: FailDrop = option("fail", needs="reports")

    def __post_init__(self) -> None:
        check_types(self)
        check_bounds(self)

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose; subclasses add theirs."""
        found: list[type[Part]] = [Repeated]
        if self.secure_aggregation:
            found.append(Secure if self.groups == 1 else Grouped)
        if self.small_counts == "suppress":
            found.append(Suppressed)
        return tuple(found)

    # What a strategy asks of its options; subclasses say what differs.

    def settled(self) -> Any:
        """Return the options with what they leave to the method filled in."""
        return self

    @property
    def private(self) -> bool:
        """Whether all that depends on the parties' rows has the noise of differential privacy."""
        return False

    @property
    def withholds_totals(self) -> bool:
        """Whether the parties report names of columns only, and no totals follow."""
        return False

    @property
    def joins_columns(self) -> bool:
        """Whether parties that have ids of their rows may hold different columns."""
        return False

    @property
    def aggregation(self) -> str:
        """How replies that an exchange declares as averaged are combined: "mean" or "median"."""
        return "mean"

    @property
    def takes_median(self) -> bool:
        """Whether a median is possible with the other options."""
        return True

    @property
    def fewest_groups(self) -> int:
        """The fewest groups, where parties add up in groups."""
        return 2

    @property
    def own_levels(self) -> bool:
        """Whether variances are those within parties or series, whose levels are their own."""
        return False

    @property
    def known(self) -> Knowledge | None:
        """The background knowledge, None without any."""
        return None

    def known_for(self, agreement: Agreement) -> Knowledge | None:
        """Return the background knowledge about the agreed columns."""
        return self.known

    @property
    def expected(self) -> Expected:
        """What is taken for granted of the parties' tables; else the run warns."""
        return Expected()

    def check_parties(self, reports: Mapping[str, TableReport]) -> None:
        """Check that the options fit the parties, by their names."""

    def agreed(
        self,
        agreement: Agreement,
        reports: Mapping[str, TableReport],
        parts: Sequence[type[Part]],
    ) -> Agreement:
        """Return an agreement with what these options need beside columns and means.

        Parameters
        ----------
        agreement : Agreement
        reports : mapping of str to TableReport
            By party.
        parts : sequence of type of Part
            Those that the options and what leaves a party choose.
        """
        return agreement

    def check_total(self, agreement: Agreement, total: TableReport) -> None:
        """Check the report on the rows of all parties together."""

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], handling: Handling
    ) -> Baselines | None:
        """Return the graphs of a solver that takes less than the method; None without one."""
        return None

    def annotated(self, graph: CausalGraph, agreement: Agreement | None) -> CausalGraph:
        """Return a graph with what these options know of its columns."""
        return graph

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables: the column of ids; subclasses add others."""
        return (self.row_id or ROW_ID,)

    def by_name(self) -> dict[str, Any]:
        """Return the options by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def asked(self) -> dict[str, Any]:
        """Return the options by name as the parties are asked by them: what is open is "fail"."""
        return self.by_name() | {name: "fail" for name in OPEN if getattr(self, name) == "auto"}

    @property
    def left_open(self) -> frozenset[str]:
        """The options that are decided by the parties' reports.

        With a column of ids, columns that parties lack are to be joined.
        """
        if self.strict:
            return frozenset()
        found = {name for name in OPEN if getattr(self, name) == "auto"}
        found |= {"exclude"} if self.identifiers == "auto" else set()
        return frozenset(found - ({"unshared_columns"} if self.row_id else set()))
