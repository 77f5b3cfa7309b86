"""Rounding decides no result: not the order of sums, a unit of 1 + 1e-13, or the processor.

Each case is run on the tables as they are and on tables that differ from them by rounding: noise of
1e-13, rows and columns in another order, rows at other parties, kernels of other processors. Scores
of equivalent orders, distances from two means, evidence of equal models are then computed with
other errors, which must decide nothing.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from method_modes import LEADING, MODES, NETWORKS
from sweeps import sweep

from flwr_causal import Run, simulate

GRAPH = ("adjacency", "marks", "weights", "lagged", "confidence", "party_agreement")


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


def larger(seed, d, n=500, *, noise="normal", hidden=0, gaps=0.0, mixed=False):
    """A larger system: with hidden causes, a share of missing cells, or two categories."""
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.permutation(d + hidden)[hidden:])
    rows = linear_rows(seed, noise, d + hidden, n)[:, kept]
    rows[rng.random(rows.shape) < gaps] = np.nan
    table = pd.DataFrame(rows, columns=[f"x{j:02d}" for j in range(d)])
    if mixed:
        levels = np.digitize(table["x07"], (-1, 1)).astype(str)
        table = table.assign(x03=np.where(table["x03"] > 0, "yes", "no"), x07=levels)
    return [table.iloc[part].reset_index(drop=True) for part in np.array_split(np.arange(n), 3)]


ONE_PASS = {"training": "one-pass"}
HIDDEN, KEEP = {"hidden_causes": True}, {"text_columns": "keep"}
CUTS = {"discretize": 3}
WIDE = {
    **{f"lingam {noise} {k}": ("lingam", parties_of(k, noise), {})
       for noise in ("laplace", "normal") for k in (0, 2, 4)},
    **{f"moments {k}": ("moments", parties_of(k, "normal"), {}) for k in (0, 1)},
    "moments standardized": ("moments", parties_of(2, "normal"), {"standardize": True}),
    "moments ges": ("moments", parties_of(0, "normal"), {"solver": "ges"}),
    "moments dagma": ("moments", parties_of(1, "normal"), {"solver": "dagma"}),
    "moments held-out": ("moments", parties_of(3, "normal"), {"sparsity": "held-out"}),
    "admm standardized": ("notears-admm", parties_of(0, "normal"), {"standardize": True}),
    "fedges bdeu": ("fedges", categories_of(0), {"score": "bdeu"}),
    "fedges turn": ("fedges", categories_of(1), {"mode": "exact", "turn": True}),
    "fedpc": ("fedpc", frames_of(0), {"minimum_count": 1}),
    "fedpc trees": ("fedpc", frames_of(1), {"training": "sums", "learner": "trees"}),
    "fedpc one pass": ("fedpc", frames_of(2), ONE_PASS),
    "fedpc one pass without a target": ("fedpc", frames_of(2, target=False), ONE_PASS),
    "fedpc spn": ("fedpc", frames_of(4), {**ONE_PASS, "learner": "spn"}),
    "moments of 20": ("moments", larger(10, 20), {}),
    "moments standardized of 15": ("moments", larger(11, 15), {"standardize": True}),
    "moments class of 15": ("moments", larger(12, 15), {"solver": "class"}),
    "moments ges of 20": ("moments", larger(13, 20), {"solver": "ges"}),
    "moments hidden of 10": ("moments", larger(14, 10, hidden=2), HIDDEN),
    "moments missing of 12": ("moments", larger(15, 12, gaps=0.08), {"missing_values": "em"}),
    "moments mixed of 12": ("moments", larger(16, 12, mixed=True), KEEP),
    "moments hidden mixed of 10": ("moments", larger(17, 10, mixed=True), HIDDEN | KEEP),
    "lingam of 12": ("lingam", larger(18, 12, noise="laplace"), {}),
    "fedges cuts of 12": ("fedges", larger(19, 12), CUTS | {"mode": "exact"}),
    "fedges scores cuts of 10": ("fedges", larger(20, 10), CUTS | {"mode": "scores"}),
    "fedges hidden cuts of 10": ("fedges", larger(21, 10), CUTS | HIDDEN | {"mode": "exact"}),
    "fedcausal of 10": ("fedcausal", larger(22, 10), {}),
    "admm of 10": ("notears-admm", larger(23, 10), {}),
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
#: What they find does not depend on which party has a row.
POOLED = tuple(
    name
    for name, (method, parties, options) in CASES.items()
    if method in ("moments", "lingam", "fedges")
    and name not in (*ORDERED, "moments targets")
    and not {"local_graphs", "start"} & options.keys()
    and all(list(one) == list(parties[0]) for one in parties if isinstance(one, pd.DataFrame))
)
#: Those of circuits take columns in the order of the table.
NAMED = tuple(name for name, (method, *_) in CASES.items() if method != "fedpc")


def changed(table, how, rng):
    """Return a party's table with other rounding errors."""
    if how == "both":
        return changed(changed(table, "order", rng), "noise", rng)
    if how == "order":
        return table[rng.permutation(len(table))] if isinstance(table, np.ndarray) else (
            table.sample(frac=1, random_state=int(rng.integers(1000))).reset_index(drop=True)
        )  # fmt: skip
    if how == "columns":
        named = pd.DataFrame(table).add_prefix("x") if isinstance(table, np.ndarray) else table
        return named.iloc[:, ::-1]
    if isinstance(table, np.ndarray):
        return table * (1 + 1e-13 * (1.0 if how == "unit" else rng.uniform(-1, 1, table.shape)))
    numbers = table.select_dtypes("float").columns
    return table.assign(**{name: changed(table[name].to_numpy(), how, rng) for name in numbers})


def dealt_anew(parties):
    """Return the rows at other parties."""
    rows = [pd.DataFrame(one) for one in parties]
    table = pd.concat(rows, ignore_index=True)
    ends = [0, len(table) // 5, 3 * len(table) // 5, len(table)]
    found = [table.iloc[i:j].reset_index(drop=True) for i, j in itertools.pairwise(ends)]
    return [one.to_numpy() for one in found] if isinstance(parties[0], np.ndarray) else found


@cache
def run_of(case, how=""):
    method, parties, options = CASES[case]
    rng = np.random.default_rng(0)
    if how == "parties":
        parties = dealt_anew(parties)
    elif how:
        parties = [changed(one, how, rng) for one in parties]
    return simulate(method, parties, **options)


@cache
def outcome(case, how=""):
    """Return what a run says, as arrays with the variables in the order of their names."""
    run = run_of(case, how)
    arrays = {name: getattr(run.graph, name, None) for name in GRAPH} | {"scores": run.scores}
    if run.graph is not None:
        order = np.argsort(run.graph.names)
        arrays = {
            name: None if value is None else np.asarray(value)[..., order, :][..., order]
            for name, value in arrays.items()
        }
    found = arrays | {"rounds": run.rounds, "stop": run.stop_reason, "warnings": run.warnings}
    method, parties, options = CASES[case]
    if method == "fedpc" and "row_id" not in options:
        found["log_likelihood"] = run.model.log_likelihood(pd.concat(parties))
    return {name: np.asarray(value) for name, value in found.items() if value is not None}


#: Scores are weights of a solver before the threshold, which follow the path of its steps: on other
#: processors they differ by up to .05. Graph and weights, by the moves that follow, do not.
ITERATED = ("moments dagma",)


EXACT = ("adjacency", "marks", "rounds", "stop", "warnings", "confidence", "party_agreement")


def assert_alike(case, found, expected, without=()):
    assert found.keys() == expected.keys()
    for name in expected.keys() - set(without):
        values, wanted = found[name], expected[name]
        if name in EXACT:
            np.testing.assert_array_equal(values, wanted, err_msg=f"{case}: {name}")
            continue
        atol = 0.1 if case in ITERATED and name == "scores" else 1e-7
        np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=atol, err_msg=f"{case}: {name}")


def by_place(case):
    return case in ORDERED or "row_id" in CASES[case][2]


def by_folds(case):
    """What the text of why a run ended says of held-out rows, which are found by their places."""
    return ("stop",) if CASES[case][0] == "fedpc" and not by_place(case) else ()


@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(CASES, LEADING))
def test_rounding_decides_nothing(case):
    found = outcome(case, "noise" if by_place(case) else "both")
    assert_alike(case, found, outcome(case), by_folds(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(CASES, LEADING))
def test_no_unit_and_no_order_of_rows_decides(case):
    assert_alike(case, outcome(case, "unit"), outcome(case))
    if not by_place(case):
        assert_alike(case, outcome(case, "order"), outcome(case), by_folds(case))


@pytest.mark.few(16)
@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(NAMED, (*LEADING, *WIDE)))
def test_no_order_of_columns_decides(case):
    found = outcome(case, "columns")
    # Warnings name columns in the order of the table.
    assert_alike(case, found, outcome(case), ("warnings",))


@pytest.mark.few(20)
@pytest.mark.slow
@pytest.mark.parametrize("case", POOLED)
def test_it_does_not_matter_which_party_has_a_row(case):
    found = outcome(case, "parties")
    assert_alike(case, found, outcome(case), ("party_agreement", "warnings"))


def arrays_in(value, path, seen):
    """Yield the arrays with which a graph or a model computes, and where they are."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from arrays_in(one, f"{path}[{key!r}]", seen)
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from arrays_in(one, f"{path}[{place}]", seen)
    elif type(value).__module__.startswith("flwr_causal") and hasattr(value, "__dict__"):
        for name, one in vars(value).items():
            # What single parties sent is not kept.
            if name != "party_moments":
                yield from arrays_in(one, f"{path}.{name}", seen)


@pytest.mark.slow
@pytest.mark.parametrize("case", sweep(CASES, LEADING))
def test_what_is_loaded_computes_the_same_to_the_last_bit(case, tmp_path):
    run = run_of(case)
    run.save(tmp_path, influence=False)
    loaded, compared = Run.load(tmp_path), 0
    for what in ("graph", "model"):
        found = dict(arrays_in(getattr(loaded, what), what, set()))
        for path, array in arrays_in(getattr(run, what), what, set()):
            if path in found:  # the others are computed when they are first asked for
                np.testing.assert_array_equal(found[path], array, err_msg=path)
                # Sums round otherwise in another order in memory.
                assert found[path].squeeze().strides == array.squeeze().strides, path
                compared += 1
    assert compared


WIDE_REGISTERS = "AVX512F AVX512CD AVX512_SKX AVX512_ICL AVX2 FMA3"
#: Kernels of OpenBLAS: the instructions that they need, and further settings.
KERNELS = {
    "Prescott": ("", {"NPY_DISABLE_CPU_FEATURES": WIDE_REGISTERS}),
    "Haswell": ("avx2", {}),
    "SkylakeX": ("avx512bw", {}),
}
#: Compiled code without the instructions of this processor.
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}


def assert_found_under(**settings):
    """Run all cases in a process with these settings."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.keys() == CASES.keys()
    for case, values in found.items():
        assert_alike(case, {name: np.asarray(one) for name, one in values.items()}, outcome(case))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sweep(KERNELS, ("Prescott",)))
def test_all_processors_find_the_same(kernel):
    needed, settings = KERNELS[kernel]
    machine = Path("/proc/cpuinfo")
    if needed and not (machine.exists() and needed in machine.read_text().split()):
        pytest.skip(f"this processor has no {needed}")
    assert_found_under(OPENBLAS_CORETYPE=kernel, **settings)


@pytest.mark.nightly
def test_generic_instructions_find_the_same(tmp_path):
    assert_found_under(OPENBLAS_CORETYPE="Prescott", NUMBA_CACHE_DIR=str(tmp_path), **GENERIC)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
    print(json.dumps({c: {n: v.tolist() for n, v in outcome(c).items()} for c in CASES}))
