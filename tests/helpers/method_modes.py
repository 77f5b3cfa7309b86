"""Each method in each of its modes, on three small parties: what the checks and faults run on."""

from itertools import pairwise

import numpy as np
import pandas as pd


def _numbers(rows, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    b = 1.4 * a + rng.normal(size=rows)
    c = b + np.sin(2 * b) + rng.normal(size=rows)
    return pd.DataFrame({"a": a, "b": b, "c": c})


def _parts(table, sizes=(40, 30, 35)):
    edges = np.cumsum((0, *sizes))
    return [table.iloc[i:j].reset_index(drop=True) for i, j in pairwise(edges)]


ROWS = _numbers(105)
NUMBERS = _parts(ROWS)
#: Every seventh cell is missing, and the third party lacks the column c.
GAPS = _parts(ROWS.mask((np.arange(105)[:, None] + np.arange(3)) % 7 == 0))
GAPS[2] = GAPS[2].drop(columns="c")
CATEGORIES = _parts(
    ROWS.assign(d=np.random.default_rng(1).integers(0, 3, 105)).apply(
        lambda column: np.digitize(column, (-0.3, 0.6)).astype(str)
    )
)
CATEGORY_GAPS = [
    table.mask((np.arange(len(table))[:, None] + np.arange(4)) % 7 == 0) for table in CATEGORIES
]
MIXED = _parts(ROWS.assign(d=np.where(ROWS["b"] > 0.2, "high", "low")))
_NOISE = np.random.default_rng(3).normal(size=105)
#: A category with two causes.
REGRESSED = _parts(
    ROWS[["a", "b"]].assign(c=_NOISE, d=np.where(ROWS["b"] + 2 * _NOISE > 0.1, "high", "low"))
)
#: Every thirteenth cell is missing.
REGRESSED_GAPS = [
    table.mask((np.arange(len(table))[:, None] + 3 * np.arange(4)) % 13 == 0) for table in REGRESSED
]
CLASSES = _parts(ROWS.assign(target=np.where(ROWS["a"] + 0.3 * ROWS["c"] > 0, "yes", "no")))
TARGETED = _parts(ROWS.assign(on=np.array(["", "a", "", "b; c"])[np.arange(105) % 4]))
MIXED_TARGETS = [
    mixed.assign(on=targeted["on"]) for mixed, targeted in zip(MIXED, TARGETED, strict=True)
]
#: Every eleventh cell of the variables is missing.
MIXED_TARGET_GAPS = [
    mixed.mask((np.arange(len(mixed))[:, None] + 3 * np.arange(4)) % 11 == 0).assign(on=own["on"])
    for mixed, own in zip(MIXED, TARGETED, strict=True)
]
STEPS = _numbers(150, 2)
SERIES = [table.to_numpy() for table in _parts(STEPS, (50, 50, 50))]
MIXED_SERIES = _parts(STEPS.assign(d=np.where(STEPS["b"] > 0.2, "high", "low")), (50, 50, 50))
#: Every eleventh cell is missing.
SERIES_GAPS = _parts(
    STEPS.mask((np.arange(150)[:, None] + 3 * np.arange(3)) % 11 == 0), (50, 50, 50)
)
IDS = ROWS.iloc[:40].assign(
    row=[f"p{i}" for i in range(40)], target=np.where(ROWS["a"].iloc[:40] > 0, "yes", "no")
)
COLUMNS = [IDS[["row", "a", "target"]], IDS[["row", "b", "target"]], IDS[["row", "c", "target"]]]
NO_TARGET = [IDS[["row", one]] for one in "abc"]
WITH_TARGET = [*NO_TARGET[:2], IDS[["row", "c", "target"]]]

#: Name -> method, parties and options.
MODES = {
    "admm": ("notears-admm", NUMBERS, {"max_rounds": 6}),
    "admm mlp": (
        "notears-admm",
        NUMBERS,
        {"max_rounds": 6, "model": "mlp", "hidden": 2, "inner_steps": 5},
    ),
    "admm interventions": (
        "notears-admm",
        TARGETED,
        {"max_rounds": 6, "intervention_column": "on"},
    ),
    "admm local": ("notears-admm", NUMBERS, {"max_rounds": 7, "local_graphs": True}),
    "2dbn": ("2dbn", SERIES, {"max_rounds": 6, "order": 1}),
    "2dbn local": ("2dbn", SERIES, {"max_rounds": 7, "order": 1, "local_graphs": True}),
    "2dbn personalised": (
        "2dbn",
        SERIES,
        {"max_rounds": 7, "order": 1, "variant": "personalised"},
    ),
    "moments": ("moments", NUMBERS, {}),
    "moments order": ("moments", SERIES, {"order": 1}),
    "moments ges": ("moments", NUMBERS, {"solver": "ges"}),
    "moments hidden": ("moments", NUMBERS, {"hidden_causes": True}),
    "moments targets": ("moments", NUMBERS, {"unknown_targets": True}),
    "moments local": ("moments", NUMBERS, {"local_graphs": True}),
    "moments local class": ("moments", NUMBERS, {"local_graphs": True, "solver": "class"}),
    "moments local mixed": ("moments", MIXED, {"local_graphs": True, "text_columns": "keep"}),
    "moments local order": ("moments", SERIES, {"local_graphs": True, "order": 1}),
    "moments hidden mixed": ("moments", MIXED, {"hidden_causes": True, "text_columns": "keep"}),
    "moments additive": ("moments", NUMBERS, {"model": "additive"}),
    "moments mixed": ("moments", MIXED, {"text_columns": "keep"}),
    "moments regressions": (
        "moments",
        REGRESSED,
        {"text_columns": "keep", "parameters": "likelihood"},
    ),
    "moments missing": ("moments", GAPS, {"missing_values": "em", "unshared_columns": "keep"}),
    "moments missing regressions": (
        "moments",
        REGRESSED_GAPS,
        {"text_columns": "keep", "parameters": "likelihood", "missing_values": "em"},
    ),
    "moments curved": ("moments", NUMBERS, {"model": "curved"}),
    "moments mixed interventions": (
        "moments",
        MIXED_TARGETS,
        {"text_columns": "keep", "intervention_column": "on"},
    ),
    "moments missing interventions": (
        "moments",
        MIXED_TARGET_GAPS,
        {"text_columns": "keep", "intervention_column": "on", "missing_values": "em"},
    ),
    "moments mixed order": ("moments", MIXED_SERIES, {"text_columns": "keep", "order": 1}),
    "moments missing order": ("moments", SERIES_GAPS, {"missing_values": "em", "order": 1}),
    "fedges scores": ("fedges", CATEGORIES, {"mode": "scores"}),
    "fedges scores driven": (
        "fedges",
        CATEGORIES,
        {"mode": "scores", "start": "driven", "patience": 1},
    ),
    "fedges exact": ("fedges", CATEGORIES, {"mode": "exact"}),
    "fedges missing": ("fedges", CATEGORY_GAPS, {"mode": "exact", "missing_values": "em"}),
    "fedges hidden": ("fedges", CATEGORIES, {"mode": "exact", "hidden_causes": True}),
    "fedges fusion": ("fedges", CATEGORIES, {"mode": "fusion", "start": "driven"}),
    "fedges loop": ("fedges", CATEGORIES, {"mode": "fusion", "start": "fuse", "keep": "best"}),
    "fedges cuts": ("fedges", NUMBERS, {"mode": "exact", "discretize": 3}),
    "fedcausal": ("fedcausal", NUMBERS, {"max_rounds": 5}),
    "fedcausal linear": ("fedcausal", NUMBERS, {"max_rounds": 3, "model": "linear"}),
    "fedcausal mlp": (
        "fedcausal",
        NUMBERS,
        {"max_rounds": 3, "model": "mlp", "hidden": 2, "inner_steps": 5},
    ),
    "fedcausal interventions": (
        "fedcausal",
        TARGETED,
        {"max_rounds": 5, "intervention_column": "on"},
    ),
    "fedcausal local": ("fedcausal", NUMBERS, {"max_rounds": 5, "local_graphs": True}),
    "fedpc sums": ("fedpc", CLASSES, {"training": "sums", "minimum_count": 1}),
    "fedpc trees": ("fedpc", CLASSES, {"training": "sums", "learner": "trees"}),
    "fedpc one pass": ("fedpc", CLASSES, {"training": "one-pass"}),
    "fedpc central": ("fedpc", CLASSES, {"training": "one-pass", "queries": "central"}),
    "fedpc columns": (
        "fedpc",
        WITH_TARGET,
        {"row_id": "row", "minimum_count": 1, "training": "one-pass"},
    ),
    "fedpc pattern": ("fedpc", NO_TARGET, {"row_id": "row", "minimum_count": 1}),
    "fedpc em": (
        "fedpc",
        NO_TARGET,
        {"row_id": "row", "minimum_count": 1, "training": "one-pass", "weights": "em"},
    ),
    "fedpc classes": ("fedpc", WITH_TARGET, {"row_id": "row", "minimum_count": 1}),
    "fedpc targets": ("fedpc", COLUMNS, {"row_id": "row", "minimum_count": 1}),
    "lingam": ("lingam", NUMBERS, {}),
    "lingam order": ("lingam", SERIES, {"order": 1}),
}
#: One mode of each method and each kind of exchange. Sweeps over modes have these in `.ci/run`.
LEADING = (
    "admm",
    "2dbn",
    "moments",
    "fedges scores",
    "fedges exact",
    "fedcausal",
    "fedpc sums",
    "fedpc columns",
    "lingam",
)
#: Those that need torch.
NETWORKS = ("admm mlp", "fedcausal mlp")

#: Faults of a reply that is refused whatever it holds: it is lost, which a method may take in its
#: own way, but takes for each of them in the same way.
REFUSED = {
    *("error without a reason", "no reply", "late", "delivered twice", "stale"),
    *("dtype text", "dtype object", "dtype complex", "20 MB", "no axis", "one axis more"),
    *("key renamed", "key more", "record more", "empty reply"),
    *("a thing as plain numbers", "plain numbers besides", "clipping that nobody asked for"),
    *(
        "bytes of an unknown form",
        "garbage bytes",
        "bytes cut",
        "no bytes",
        "number wrong",
        "number missing",
    ),
    *("weight 0", "weight < 0", "weight NaN", "weight 1e18", "weight missing"),
}
