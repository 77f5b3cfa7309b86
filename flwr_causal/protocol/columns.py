"""The exchanges of parties that hold different columns of the same rows.

docs/security_protocol.md#different-columns says what they protect, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import DIFFERENT
from flwr_causal.protocol.products.plan import ProductPlan
from flwr_causal.protocol.products.tables import DIGEST_BYTES
from flwr_causal.secure.keys import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.protocol.setup import Setup

_PLAN = (
    Sent(
        "presence",
        "1 where a party holds a column; of a category a state, in fedpc and fedges also two",
        ("parties", "columns"),
        values="mark",
    ),
    Sent(
        "patterns",
        "1 where a party has the rows of a pattern",
        ("patterns", "parties"),
        values="mark",
    ),
    Sent("pattern-rows", "how many rows have each pattern", ("patterns",), values="index"),
    Sent(
        "rows",
        "the positions of the party's rows in its table, in the order of patterns and hashes",
        ("own",),
        by_party=True,
        values="index",
        below="n",
    ),
    Sent(
        "folds",
        "the fold of each row of the plan, to choose by held-out rows",
        ("*",),
        optional=True,
        values="index",
    ),
    Sent("domain", "of fedpc: the variables, once cut points have changed them", optional=True),
    Sent("coordinates", "of fedpc: transforms of numbers", (6, "*"), optional=True, exact=True),
    Sent("cuts", "of fedges: agreed cut points", ("*",), optional=True, exact=True),
    Sent(
        "num-cuts",
        "of fedges: number of cut points of columns",
        ("*",),
        optional=True,
        values="index",
        below="intervals",
    ),
    Sent(
        "sizes",
        "of fedges: the number of variables of each part",
        ("parts",),
        optional=True,
        values="index",
        below="set sizes",
    ),
    Sent(
        "members",
        "of fedges: the variables of each part",
        ("*",),
        optional=True,
        values="index",
        below="d",
        parts="sizes",
    ),
    Sent(
        "pairs",
        "of fedges: the parts that are multiplied",
        ("sets", 2),
        optional=True,
        values="index",
        below="parts",
    ),
)


def _sizes(sent: Mapping[str, Any], setup: Setup) -> dict[str, int]:
    parties, columns = np.asarray(sent["presence"]).shape
    return {"parties": parties, "columns": columns}


MASKED_TABLES = Exchange(
    "masked tables",
    "what pairs of parties need of each other to compute products of their columns",
    sends=_PLAN,
    returns=(
        Disclosure(
            "boxes",
            "for each other party the party's columns with a mask added, X + R modulo 2^64, of the "
            "rows that only the two together complete; encrypted for that party",
            ("*",),
            "bytes",
            rows="each such row, encrypted for the other party and masked for it",
            dtype="uint8",
        ),
        Disclosure("seed", "the seed of the masks R", (KEY_BYTES,), "bytes", dtype="uint8"),
        Disclosure(
            "digests",
            "for each other party digests of the columns that both hold, over the rows that both "
            "have, under a key that these two know: whether the two have the same values",
            ("parties", "columns", DIGEST_BYTES),
            "bytes",
            dtype="uint8",
        ),
    ),
    weight="one",
    timing="once",
    when=DIFFERENT,
    same_parties=True,
    open=True,
    kept=False,
    derived=_sizes,
)

PRODUCTS = Exchange(
    "products",
    "the second moments of all rows, or how many rows have each pair of states; the server learns "
    "the sum over all parties alone",
    sends=(
        *_PLAN,
        Sent("boxes", "what the other parties have encrypted for this one", ("*",), by_party=True),
        Sent("weightings", "1 and the numbers of folds and of replicates"),
        Sent("draw", "the seed of the rows that replicates draw"),
    ),
    returns=(
        Disclosure(
            "products",
            "the party's parts of the sums of products of columns over the rows that know both, "
            "and over those of each fold and replicate; behind masks that cancel in the sum. "
            "Columns are centred and scaled; in moments with text_columns='keep' or model='curved' "
            "they are those of its sums, which mark states of categories; in fedpc and fedges they "
            "mark states of one or two variables; in fedpc with training='sums' they are "
            "transformed numbers, classes, and numbers within classes",
            ("weightings", "columns", "columns"),
            "ring",
            "sum",
            dtype="uint64",
        ),
        Disclosure(
            "sums",
            "the same of the sums of column i over the rows that know i and j",
            ("weightings", "columns", "columns"),
            "ring",
            "sum",
            dtype="uint64",
        ),
        Disclosure(
            "ones",
            "a 1 behind such a mask, by which it is checked",
            (1,),
            "ring",
            "sum",
            dtype="uint64",
        ),
    ),
    weight="one",
    timing="once",
    when=DIFFERENT,
    same_parties=True,
    kept=False,
    derived=_sizes,
)


def plan_of(sent: Mapping[str, Any]) -> ProductPlan:
    """Return the plan that a party was sent."""
    presence, patterns = (np.asarray(sent[name]) > 0 for name in ("presence", "patterns"))
    counts = np.asarray(sent["pattern-rows"], dtype=np.int64)
    return ProductPlan(presence, patterns, counts, folds=folds_of(sent))


def folds_of(sent: Mapping[str, Any]) -> IntArray | None:
    """Return the fold of each row of the plan that a party was sent; None where there are none."""
    folds = sent.get("folds")
    return None if folds is None else np.asarray(folds, dtype=np.int64)
