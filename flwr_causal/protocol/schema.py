"""What leaves a party in the schema exchange, before training: the report on its table, as data.

:data:`FACTS` declares every key of a report (:class:`flwr_causal.data.check.report.TableReport`)
and of the reply around it. The door refuses every other key, and docs/privacy.md prints the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from flwr.app import Context
    from numpy.typing import NDArray

#: The parts of a report that only some methods need; a contract names the parts that its method
#: needs.
Part: TypeAlias = Literal["sums", "relations", "states", "series", "ids", "interventions"]
#: When each part leaves, in words.
PARTS: dict[Part, str] = {
    "sums": "where columns are centred, scaled or cut into intervals",
    "relations": "where effects are found from numbers",
    "states": "where columns are categories; in moments with text_columns='keep' or model='curved'",
    "series": "where rows are steps of time series",
    "ids": "where rows may be matched by ids",
    "interventions": "where rows may be under known interventions",
}


FactKind: TypeAlias = Literal["count", "position", "flag", "number", "square", "text"]
#: No party has more rows than this, and no report more columns.
MOST_ROWS, MOST_COLUMNS = 10**12, 20_000


@dataclass(frozen=True)
class Fact:
    """One entry of a report.

    Parameters
    ----------
    key : str
        In the reply's ``ConfigRecord``.
    meaning : str
        Printed in the documentation.
    kind : {"count", "position", "flag", "number", "square", "text"}
        Possible values: a whole number from 0 on, or from -1 on; 0 or 1; a finite number; a number
        from 0 on, which may be infinite; a text.
    each : {"", "column", "state", "note"}, default ""
        A list with one value for each column, for each named state, or for each remark; "": one
        value for the table.
    part : str or None, default None
        The part that it belongs to; None: every method's report has it.
    """

    key: str
    meaning: str
    kind: FactKind
    each: Literal["", "column", "state", "note"] = ""
    part: Part | None = None


FACTS = (
    Fact("party", "the party's name, its own choice", "text"),
    Fact("version", "the version of flwr-causal on the node", "text"),
    Fact("partition-id", "the number of the simulated party; -1 on real nodes", "position"),
    Fact(
        "error",
        "instead of all that follows: why the table cannot be used, with names of columns, and the "
        "path of a file that cannot be read",
        "text",
    ),
    Fact("public-key", "the party's public key, with secure aggregation only", "text"),
    Fact(
        "signature",
        "the party's signature of this key, its name and the run, where its node config has a "
        "sums-key",
        "text",
    ),
    Fact(
        "withheld",
        "with secure aggregation, and of `moments` with epsilon, 1: numbers of rows and values "
        "below are then 0, the sums and all that follows from them are left out; `distinct` then "
        "counts the states below, and one more where there are more values",
        "flag",
    ),
    Fact("rows", "rows that are kept for training", "count"),
    Fact("dropped-rows", "rows left out because of missing or infinite values", "count"),
    Fact("has-sums", "whether the sums below are part of the report", "flag"),
    Fact("names", "name", "text", "column"),
    Fact("kinds", "numeric, boolean, category or other", "text", "column"),
    Fact("missing", "number of missing values", "count", "column"),
    Fact("infinite", "number of infinite values", "count", "column"),
    Fact(
        "stray",
        "of a column of text most of whose values are numbers, how many are none; neither which "
        "nor where",
        "count",
        "column",
    ),
    Fact("distinct-one", "whether the kept rows hold one value only", "flag", "column"),
    Fact(
        "far",
        "number of the kept rows whose value is far outside all others, as codes of missing values "
        "are; not which value",
        "count",
        "column",
    ),
    Fact(
        "copy-of", "the first column with the same values in every kept row", "position", "column"
    ),
    Fact(
        "means",
        "mean of the kept rows; 0 of a column that is no number",
        "number",
        "column",
        "sums",
    ),
    Fact(
        "remainders",
        "sum of the deviations from that mean, a rounding error",
        "number",
        "column",
        "sums",
    ),
    Fact("squares", "sum of the squared deviations from that mean", "square", "column", "sums"),
    Fact(
        "combination-of",
        "which columns it is a linear combination of in every kept row, where there are more rows "
        "than columns; not by which factors",
        "text",
        "column",
        "relations",
    ),
    Fact(
        "dominated",
        "whether one row holds more than half of that sum, but not which row",
        "flag",
        "column",
        "relations",
    ),
    Fact("distinct", "number of different values in the kept rows", "count", "column", "states"),
    Fact("whole", "whether all values are whole numbers", "flag", "column", "states"),
    Fact(
        "values",
        "what its values are in the table: bool, int, float or str; empty where they are of "
        "several types",
        "text",
        "column",
        "states",
    ),
    Fact(
        "repeated",
        "whether it is a number whose values are not named, of which one is in more than half of "
        "the kept rows; not which value",
        "flag",
        "column",
        "states",
    ),
    Fact("num-states", "how many of the states below are its own", "count", "column", "states"),
    Fact(
        "states",
        "the different values, of columns that have at most `max-states` of them (of numbers that "
        "are not whole at most 10, and none where these are cut into intervals); neither how often "
        "nor in which rows they occur",
        "text",
        "state",
        "states",
    ),
    Fact(
        "level-rows",
        "rows behind the means, where these are of the rows that are not perturbed "
        "(`center='phase'`)",
        "count",
        part="series",
    ),
    Fact("step", "length of a time step, where a column has the times", "text", part="series"),
    Fact("notes", "how many series are too short for the order", "text", "note", "series"),
    Fact(
        "targets",
        "the different sets of columns on which known interventions act, as JSON lists, if there "
        "are any; not in how many or which rows",
        "text",
        "note",
        "interventions",
    ),
    Fact("has-ids", "whether there is a column of ids", "flag", part="ids"),
    Fact(
        "ids-problem",
        "how many ids are missing, repeat or have lost digits, if any",
        "text",
        part="ids",
    ),
    Fact(
        "ids-kind",
        "whether the ids are numbers, text, or text of digits that no number is written as, such "
        "as 007",
        "text",
        part="ids",
    ),
)
#: The name of the array in the question and the reply that shows whether a mod of the party clips.
PROBE = "probe"
#: The norm that the question states where the run has none of its own.
PROBE_NORM = 1.0
MOST_NORM = 1e100
#: What every report has.
REQUIRED = tuple(fact.key for fact in FACTS[7:] if fact.part is None)


def party_name(context: Context) -> str:
    """Return a node's name in messages and errors: "party 0" and so on in a simulation.

    On a real node it is the ``name`` of the node config; without one only Flower's id remains.
    """
    name = context.node_config.get("name")
    if "partition-id" in context.node_config:
        return f"party {context.node_config['partition-id']}"
    own = name.strip() if isinstance(name, str) else ""
    return own or f"node {context.node_id}"


def partition_of(context: Context) -> int:
    """Return the number of a simulated party; -1 on real nodes, and where it is no number."""
    number = context.node_config.get("partition-id")
    return number if isinstance(number, int) else -1


@cache
def own_version() -> str:
    """Return the version of flwr-causal that is installed, "unknown" where none is."""
    try:
        return version("flwr-causal")
    except PackageNotFoundError:
        return "unknown"


def probe() -> NDArray[np.float64]:
    """Return the probe that the question for the schema has."""
    return np.zeros(2)


def probe_returned(sent: NDArray[Any], norm: object) -> NDArray[np.float64] | None:
    """Return the probe that a party returns, moved by twice the norm; None of another form."""
    if sent.shape != probe().shape or sent.dtype != np.float64:
        return None
    if not isinstance(norm, float) or not 0 < norm < MOST_NORM:
        return None
    moved: NDArray[np.float64] = sent + 2.0 * norm / np.sqrt(sent.size)
    return moved


def is_clipped(returned: NDArray[Any] | None, norm: float) -> bool:
    """Return whether a mod of the party has clipped the probe to the norm."""
    if returned is None or returned.shape != probe().shape:
        return False
    return bool(np.linalg.norm(returned - probe()) <= norm * (1 + 1e-6))
