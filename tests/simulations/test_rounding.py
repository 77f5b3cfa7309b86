"""Rounding decides no result: not the order of sums, a unit of 1 + 1e-13, or the processor.

Each case is run on the tables as they are and on tables that differ from them by rounding. Scores
of equivalent orders, distances from two means, evidence of equal models are then computed with
other errors, which must decide nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from method_modes import LEADING, MODES, NETWORKS
from sweeps import sweep

from flwr_causal import simulate

GRAPH = ("adjacency", "weights", "lagged", "confidence", "party_agreement")


def linear_rows(seed, noise, d=9, n=240):
    """Sparse systems, in which the rows leave much of the order of the variables open."""
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.uniform(0.5, 1.5, (d, d)) * rng.choice([-1, 1], (d, d)), 1)
    weights *= rng.random((d, d)) < 0.18
    errors = getattr(rng, noise)(size=(n, d))
    return (errors @ np.linalg.inv(np.eye(d) - weights))[:, rng.permutation(d)]


def parties_of(seed, noise):
    return np.array_split(linear_rows(seed, noise), 3)


def frames_of(seed, *, target=True):
    rows = linear_rows(seed, "normal", d=5, n=300)
    frames = [pd.DataFrame(part, columns=list("abcde")) for part in np.array_split(rows, 3)]
    if not target:
        return frames
    return [one.assign(target=np.where(one["a"] + one["c"] > 0, "yes", "no")) for one in frames]


def categories_of(seed):
    return [
        pd.DataFrame(np.digitize(part, (-0.5, 0.5)).astype(str)).add_prefix("v")
        for part in parties_of(seed, "normal")
    ]


ONE_PASS = {"training": "one-pass"}
WIDE = {
    **{f"lingam {noise} {k}": ("lingam", parties_of(k, noise), {})
       for noise in ("laplace", "normal") for k in (0, 2, 4)},
    **{f"moments {k}": ("moments", parties_of(k, "normal"), {}) for k in (0, 1)},
    "moments standardized": ("moments", parties_of(2, "normal"), {"standardize": True}),
    "moments ges": ("moments", parties_of(0, "normal"), {"solver": "ges"}),
    "moments polish": ("moments", parties_of(1, "normal"), {"solver": "dagma", "polish": True}),
    "moments held-out": ("moments", parties_of(3, "normal"), {"sparsity": "held-out"}),
    "admm standardized": ("notears-admm", parties_of(0, "normal"), {"standardize": True}),
    "fedges bdeu": ("fedges", categories_of(0), {"score": "bdeu"}),
    "fedges turn": ("fedges", categories_of(1), {"mode": "exact", "turn": True}),
    "fedpc": ("fedpc", frames_of(0), {"minimum_count": 1}),
    "fedpc trees": ("fedpc", frames_of(1), {"training": "sums", "learner": "trees"}),
    "fedpc one pass": ("fedpc", frames_of(2), ONE_PASS),
    "fedpc one pass without a target": ("fedpc", frames_of(2, target=False), ONE_PASS),
    "fedpc spn": ("fedpc", frames_of(4), {**ONE_PASS, "learner": "spn"}),
}  # fmt: skip
CASES = {name: case for name, case in (MODES | WIDE).items() if name not in NETWORKS}
#: The rows of series have an order; rows are divided into folds by their places.
ORDERED = (
    "2dbn",
    "2dbn local",
    "2dbn personalised",
    "moments order",
    "moments local order",
    "moments mixed order",
    "moments missing order",
    "lingam order",
    "moments held-out",
)


def changed(table, how, rng):
    """Return a party's table with other rounding errors."""
    if how == "both":
        return changed(changed(table, "order", rng), "noise", rng)
    if how == "order":
        return table[rng.permutation(len(table))] if isinstance(table, np.ndarray) else (
            table.sample(frac=1, random_state=int(rng.integers(1000))).reset_index(drop=True)
        )  # fmt: skip
    if isinstance(table, np.ndarray):
        return table * (1 + 1e-13 * (1.0 if how == "unit" else rng.uniform(-1, 1, table.shape)))
    numbers = table.select_dtypes("float").columns
    return table.assign(**{name: changed(table[name].to_numpy(), how, rng) for name in numbers})


def outcome(case, how="", seed=0):
    """Return what a run says, as arrays."""
    method, parties, options = CASES[case]
    rng = np.random.default_rng(seed)
    run = simulate(method, [changed(one, how, rng) if how else one for one in parties], **options)
    found = {name: getattr(run.graph, name, None) for name in GRAPH}
    found |= {"scores": run.scores, "rounds": run.rounds}
    if method == "fedpc" and "row_id" not in options:
        found["log_likelihood"] = run.model.log_likelihood(pd.concat(parties))
    return {name: np.asarray(value) for name, value in found.items() if value is not None}


#: Scores are weights of a solver before the threshold, which follow the path of its steps: on other
#: processors they differ by up to .05. Graph and weights, by the moves that follow, do not.
ITERATED = ("moments polish",)


def assert_alike(case, found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        exact = name in ("adjacency", "rounds", "confidence", "party_agreement")
        atol = 0.1 if case in ITERATED and name == "scores" else 1e-7
        np.testing.assert_allclose(
            found[name],
            value,
            rtol=0 if exact else 1e-6,
            atol=0 if exact else atol,
            err_msg=f"{case}: {name}",
        )


def by_place(case):
    return case in ORDERED or "row_id" in CASES[case][2]


@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(CASES, LEADING))
def test_rounding_decides_nothing(case):
    assert_alike(case, outcome(case, "noise" if by_place(case) else "both"), outcome(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(CASES, LEADING))
def test_no_unit_and_no_order_of_rows_decides(case):
    expected = outcome(case)
    for how in ("unit",) if by_place(case) else ("unit", "order"):
        assert_alike(case, outcome(case, how), expected)


#: Environments in which sums, products and logarithms round otherwise.
PROCESSORS = {
    "as it is": {},
    "without wide registers": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_ICL AVX2 FMA3",
    },
    "of another kind": {"OPENBLAS_CORETYPE": "Haswell"},
}


@pytest.mark.slow
def test_all_processors_find_the_same():
    found = {}
    for processor, settings in PROCESSORS.items():
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", __file__],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        found[processor] = json.loads(ran.stdout.splitlines()[-1])
    first = found.pop("as it is")
    for other in found.values():
        assert other.keys() == first.keys()
        for case, expected in first.items():
            assert_alike(
                case,
                {name: np.array(value, dtype=float) for name, value in other[case].items()},
                {name: np.array(value, dtype=float) for name, value in expected.items()},
            )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
    print(json.dumps({c: {n: v.tolist() for n, v in outcome(c).items()} for c in WIDE}))
