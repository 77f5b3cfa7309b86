"""Each solver of moments, and lingam, with each source of its sums.

A case is rows in one place and the options of a solver. A form is another way to hold the same
rows, or another source of the sums over them. Each pair finds what the case finds from three
parties, or is refused by name.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from federations import make_federation, once
from sweeps import sweep
from worlds_of_blocks import intervened_table, mixed_series, mixed_table
from worlds_of_hidden_causes import two_hidden_causes

from flwr_causal import Run, simulate
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import CausalError
from flwr_causal.simulations.relay import KilledError, Killing

NUMBERS = pd.concat(make_federation(d=6, n=240, parties=1, seed=1).tables)
MIXED = mixed_table(7, 900, seed=3)[0]
SET, _, TARGETS = intervened_table(6, 900, seed=1)
SET = SET.assign(on=[",".join(own) for own in TARGETS])
SET_NUMBERS, _, TARGETS = intervened_table(5, 600, seed=0, kinds=(0,))
SET_NUMBERS = SET_NUMBERS.assign(on=[",".join(own) for own in TARGETS])
HIDDEN = two_hidden_causes(1500)
SERIES = [
    one for party in federated_dynamic(5, 360, 3, series_per_party=2, seed=1)[0] for one in party
]
STEPS = mixed_series(5, 900, seed=1)[0]
MIXED_SERIES = [STEPS[k : k + 150].reset_index(drop=True) for k in range(0, 900, 150)]
SKEWED = pd.DataFrame(
    np.random.default_rng(0).exponential(size=(600, 5))
    @ np.linalg.inv(np.eye(5) - np.diag([1.2, -0.8, 0.7, 0.9], 1)),
    columns=list("abcde"),
)


def gaps(rows, share=0.1, kept=()):
    """Return the rows without as many cells; columns that are kept have all."""
    if isinstance(rows, list):
        return [gaps(one, share) for one in rows]
    missing = np.random.default_rng(len(rows)).random(rows.shape) < share
    return rows.mask(missing & ~rows.columns.isin(kept))


def weighed(rows):
    """Return the rows with weights of their own."""
    if isinstance(rows, list):
        return [weighed(one) for one in rows]
    return rows.assign(w=np.random.default_rng(len(rows)).exponential(size=len(rows)) + 0.05)


BLOCKS = {"text_columns": "keep"}
ON = {"intervention_column": "on"}
EM = {"missing_values": "em"}
LAG = {"order": 1}
WEIGHTED = {"weight_column": "w"}
LIKELY = {**BLOCKS, "parameters": "likelihood"}

#: Name -> method, rows in one place, options, and how near scores and regressions come.
CASES = {
    "default": ("moments", NUMBERS, {}, 1e-6),
    "dagma": ("moments", NUMBERS, {"solver": "dagma"}, 1e-5),
    "notears": ("moments", NUMBERS, {"solver": "notears"}, 2e-3),
    "bic": ("moments", NUMBERS, {"solver": "dagma", "sparsity": "bic"}, 1e-3),
    "class": ("moments", NUMBERS, {"solver": "class"}, 1e-6),
    "ges": ("moments", NUMBERS, {"solver": "ges"}, 1e-6),
    "standardized": ("moments", NUMBERS, {"standardize": True}, 1e-6),
    "additive": ("moments", NUMBERS, {"model": "additive"}, 1e-3),
    "curved": ("moments", NUMBERS, {"model": "curved"}, 1e-7),
    "scores": ("moments", np.exp(NUMBERS / 4), {"scale": "normal-scores"}, 1e-6),
    "hidden": ("moments", HIDDEN, {"hidden_causes": True}, 1e-6),
    "blocks": ("moments", MIXED, BLOCKS, 1e-6),
    "likelihood": ("moments", MIXED, LIKELY, 1e-6),
    "hidden blocks": ("moments", MIXED, {**BLOCKS, "hidden_causes": True}, 1e-6),
    "set": ("moments", SET_NUMBERS, ON, 1e-6),
    "set, dagma": ("moments", SET_NUMBERS, {**ON, "solver": "dagma"}, 1e-5),
    "set, class": ("moments", SET_NUMBERS, {**ON, "solver": "class"}, 1e-6),
    "set, ges": ("moments", SET_NUMBERS, {**ON, "solver": "ges"}, 1e-6),
    "set, blocks": ("moments", SET, {**ON, **BLOCKS}, 1e-6),
    "set, likelihood": ("moments", SET, {**ON, **LIKELY}, 1e-6),
    "gaps": ("moments", gaps(NUMBERS), EM, 1e-7),
    "gaps, class": ("moments", gaps(NUMBERS), {**EM, "solver": "class"}, 1e-7),
    "gaps, blocks": ("moments", gaps(MIXED), {**EM, **BLOCKS}, 1e-7),
    "gaps, likelihood": ("moments", gaps(MIXED), {**EM, **LIKELY}, 5e-3),
    "gaps, set": ("moments", gaps(SET_NUMBERS, kept=("on",)), {**EM, **ON}, 1e-6),
    "gaps, series": ("moments", gaps(SERIES), {**EM, **LAG}, 1e-6),
    "series": ("moments", SERIES, LAG, 1e-6),
    "series, dagma": ("moments", SERIES, {**LAG, "solver": "dagma"}, 1e-6),
    "series, ridge": ("moments", SERIES, {**LAG, "regression": "ridge"}, 1e-6),
    "series, ranking": (
        "moments",
        SERIES,
        {**LAG, "ranking": "partial-correlation+weights"},
        1e-6,
    ),
    "series, bic": ("moments", SERIES, {**LAG, "sparsity": "bic"}, 1e-3),
    "series, class": ("moments", SERIES, {"order": 2, "solver": "class"}, 1e-6),
    "series, blocks": ("moments", MIXED_SERIES, {**LAG, **BLOCKS}, 1e-6),
    "series, curved": ("moments", MIXED_SERIES, {**LAG, **BLOCKS, "model": "curved"}, 1e-7),
    "weights": ("moments", weighed(NUMBERS), WEIGHTED, 1e-6),
    "weights, blocks": ("moments", weighed(MIXED), {**WEIGHTED, **BLOCKS}, 1e-6),
    "weights, series": ("moments", weighed(SERIES), {**WEIGHTED, **LAG}, 1e-6),
    "lingam": ("lingam", SKEWED, {}, 1e-6),
    "lingam, series": ("lingam", SERIES, LAG, 1e-6),
}
#: The cases of which `.ci/run` has all forms, and those that it interrupts.
LEADING = ("default", "blocks", "set, likelihood", "gaps", "series", "series, blocks", "lingam")
INTERRUPTED = ("default", "set", "gaps", "likelihood", "series, blocks", "lingam")
#: Cases of the night alone.
COSTLY = ("notears", "bic", "series, bic")


def divided(rows, ends):
    """Return the parties' rows: pieces of a table, or of a list of series."""
    at = (0, *ends, len(rows))
    if isinstance(rows, list):
        return [rows[i:j] for i, j in pairwise(at)]
    return [rows.iloc[i:j].reset_index(drop=True) for i, j in pairwise(at)]


def dealt(rows):
    """Return the rows of three parties."""
    if isinstance(rows, list):
        return divided(rows, (1, 4))
    return [rows.iloc[k::3].reset_index(drop=True) for k in range(3)]


def changed(rows, change):
    """Return the rows of three parties whose table, or each of whose series, is changed."""
    return dealt([change(one) for one in rows] if isinstance(rows, list) else change(rows))


def turned(rows):
    """Return other parties than three, of other sizes and order, with their columns turned."""
    lists = isinstance(rows, list)
    parties = divided(rows, (2, 5) if lists else (37, 61, 150, 190))[::-1]
    return [
        [one[one.columns[::-1]] for one in own] if lists else own[own.columns[::-1]]
        for own in parties
    ]


def weighing(rows, weight):
    return changed(rows, lambda one: one.assign(w=weight))


def by_state(rows):
    """Return a party for each state of the last category."""
    *_, last = (name for name in rows if rows[name].dtype.kind not in "iuf" and name != "on")
    return [own.reset_index(drop=True) for _, own in rows.groupby(last)]


def by_targets(rows):
    """Return a party for each set of targets, which its rows do not say, and what they are."""
    own = dict(list(rows.groupby("on")))
    targets = {k: name.split(",") for k, name in enumerate(own) if name}
    parties = [part.drop(columns="on").reset_index(drop=True) for part in own.values()]
    return parties, {"intervention_column": "", "interventions": targets}


def matched(rows, overlap=False):
    """Return parties that hold different columns of all rows, each in an order of its own."""
    whole = rows if isinstance(rows, list) else [rows]
    whole = [one.assign(key=[f"{k}/{t}" for t in range(len(one))]) for k, one in enumerate(whole)]
    roles = [name for name in ("key", "on", "w") if name in whole[0]]
    names = [name for name in whole[0] if name not in roles]
    shares = (names[: 2 + overlap], names[2:4], names[4 - overlap :])
    parties = [[one[[*roles, *own]] for one in whole] for own in shares]
    if isinstance(rows, list):
        return [own[:: (-1) ** k] for k, own in enumerate(parties)]
    return [one.sample(frac=1, random_state=k) for k, (one,) in enumerate(parties)]


SECURE = {"secure_aggregation": True}
MATCHED = {"row_id": "key"}
#: Name -> the parties of rows in one place, and further options.
FORMS = {
    "one party": lambda rows: ([rows], {}),
    "held otherwise": lambda rows: (turned(rows), {}),
    "by state": lambda rows: (by_state(rows), {}),
    "by targets": by_targets,
    "secure sums": lambda rows: (dealt(rows), SECURE),
    "completed": lambda rows: (dealt(rows), EM),
    "equal weights": lambda rows: (weighing(rows, 2.5), WEIGHTED),
    "secure weights": lambda rows: (weighing(rows, 1e-6), WEIGHTED | SECURE),
    "different columns": lambda rows: (matched(rows), MATCHED),
    "overlapping columns": lambda rows: (matched(rows, overlap=True)[::-1], MATCHED),
    "secure columns": lambda rows: (matched(rows), MATCHED | SECURE),
}
#: The cases that have a category in all rows, and those with targets of interventions.
STATES = ("blocks", "likelihood", "hidden blocks", "set, blocks", "set, likelihood")
SET_ROWS = [case for case in CASES if "set" in case]
#: Whose rows may have gaps, or weights, or be matched by ids, and what an error names where not.
REFUSED = {
    "completed": {
        "additive": "'model' is 'additive'",
        "set, likelihood": "'parameters' is 'likelihood'",
        "series, ridge": "'regression' is 'ridge'",
        "series, ranking": "'ranking' is",
        "lingam": "'missing_values' is 'em'",
        "lingam, series": "'missing_values' is 'em'",
    },
    "weights": {
        **dict.fromkeys(
            ("likelihood", "set, likelihood", "gaps, likelihood"), "'weight_column' is"
        ),
        "scores": "must be left out with scale='normal-scores'",
        **dict.fromkeys(("lingam", "lingam, series"), "no option 'weight_column'"),
    },
    "columns": {
        "additive": "set model='linear' or 'curved'",
        "scores": "set scale='data'",
        "likelihood": "set parameters='moments'",
        **dict.fromkeys(SET_ROWS, "different columns.*intervention_column"),
        **{case: "different columns.*missing_values=" for case in CASES if "gaps" in case},
        **{case: "different columns.*weight_column" for case in CASES if "weights" in case},
        **dict.fromkeys(("lingam", "lingam, series"), "not in the table of|missing, but there at"),
    },
}


def refusal(case, form):
    """Return what the error of a pair names; None where the run is that of the case."""
    return REFUSED.get(form.split()[-1], {}).get(case)


def pairs():
    """Return the pairs of cases and forms; of some in the night alone."""
    for case in CASES:
        for form in FORMS:
            if (
                (form == "by state" and case not in STATES)
                or (form == "by targets" and case not in SET_ROWS)
                or (form.endswith("weights") and case.startswith("weights"))
            ):
                continue
            often = case in LEADING or (form == "held otherwise" and case not in COSTLY)
            marks = [] if often or refusal(case, form) else [pytest.mark.nightly]
            yield pytest.param(case, form, marks=marks, id=f"{case}, {form}")


@once
def found(case):
    """Return the run of three parties."""
    method, rows, options, _ = CASES[case]
    return simulate(method, dealt(rows), **options)


def facts(run):
    """Return what must not hang on who holds what, by kind; columns by name."""
    graph, model = run.graph, run.model
    order = np.argsort(graph.names)
    at = np.ix_(order, order)
    exact = {"names": np.array(graph.names)[order], "marks": graph.adjacency[at]}
    near = {"weights": graph.weights[at]}
    searched = {"scores": run.scores[at]}
    if graph.kind == "pag":
        exact["marks"] = graph.marks[at]
    if graph.lagged is not None:
        near["lagged"] = graph.lagged[:, order][:, :, order]
        exact["lagged marks"] = near["lagged"] != 0
    if graph.kind == "dag" and hasattr(model, "noise_variances"):
        # Of a class they are those of a member, which the order of the columns decides.
        near |= {name: getattr(model, name)[order] for name in ("noise_variances", "intercepts")}
    if hasattr(model, "edge_tests") and (graph.kind == "dag" or hasattr(model, "member")):
        near["tests"] = np.sort([test.statistic for test in model.edge_tests()])
    if hasattr(model, "member") and graph.lagged is None:
        exact["member"] = model.member[at]
    for name, own in getattr(model, "parameters", {}).items():
        searched[f"regression of {name}"] = np.sort(np.abs(own).ravel())
    return exact, near, searched


def same(run, other, searched=1e-6, near=2e-7):
    assert run.graph.kind == other.graph.kind
    for close, one, two in zip((0, near, searched), facts(run), facts(other), strict=True):
        assert one.keys() == two.keys()
        for name, values in one.items():
            if close:
                np.testing.assert_allclose(values, two[name], rtol=close, atol=close, err_msg=name)
            else:
                np.testing.assert_array_equal(values, two[name], err_msg=name)


@pytest.mark.parametrize(("case", "form"), pairs())
def test_a_solver_finds_the_same_from_every_source(case, form):
    method, rows, options, searched = CASES[case]
    parties, further = FORMS[form](rows)
    options = {**options, **further}
    named = refusal(case, form)
    if named:
        with pytest.raises(CausalError, match=named):
            simulate(method, parties, **options)
        return
    run = simulate(method, parties, **options)
    same(run, found(case), searched)
    if method == "moments" and not {"gaps", "likelihood", "completed"} & {*case.split(", "), form}:
        assert run.rounds == (3 if "columns" in form else found(case).rounds)


@pytest.mark.parametrize("case", sweep(CASES, kept=INTERRUPTED))
def test_a_run_with_further_trainings_is_resumed_and_saved(case, tmp_path):
    method, rows, options, _ = CASES[case]
    parties, whole = dealt(rows), found(case)
    options = {**options, "replicates": 2, "leave_one_out": True, "output_dir": tmp_path}
    if "set" in case:
        options.pop("leave_one_out")
    with pytest.raises(KilledError):
        simulate(method, parties, wrap_grid=lambda grid: Killing(grid, whole.rounds), **options)
    run = simulate(method, parties, resume=True, **options)
    same(run, whole)
    assert run.influence or "set" in case
    confidence = (
        run.graph.confidence if run.graph.kind != "cpdag" else run.graph.adjacency_confidence
    )
    assert set(np.unique(confidence)) <= {0.0, 0.5, 1.0}
    again = Run.load(tmp_path)
    same(again, run, 0, 0)
    if hasattr(run.model, "log_likelihood") and not isinstance(rows, list):
        some = rows.dropna()[:20]
        np.testing.assert_array_equal(
            again.model.log_likelihood(some), run.model.log_likelihood(some)
        )
