"""Every option of every method, in every mode: a value changes the run, or is refused by name."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from method_modes import MODES, NETWORKS
from sweeps import sweep

from flwr_causal import ConfigError
from flwr_causal.app.methods import METHODS, find
from flwr_causal.core.options import option_types
from flwr_causal.core.parts import _about
from flwr_causal.errors import CausalError
from flwr_causal.protocol import records
from flwr_causal.testing.subject import Subject

#: By option, values of which one at least is not the default. What is not in this table is below.
VALUES = {
    "acyclic_server": [False],
    "aggregation": ["median"],
    "batches": [3],
    "bins": [5],
    "blocks": [False],
    "candidates": [1],
    "center": ["party", "global", "series"],
    "class_root": [False],
    "leaves": ["histogram"],
    "least_deviation": [5.0],
    "clusters": [2],
    "components": [2],
    "correlation": [0.9],
    "decision": ["macro-f1"],
    "depth": [1],
    "discretize": [4],
    "early_stop": [False],
    "epochs": [2],
    "epsilon": [1.0],
    "equivalent_sample_size": [50.0],
    "evidence_rows": [20],
    "fraction_train": [0.7],
    "fusion": ["union", 1.0, "min-cut"],
    "groups": ["auto"],
    "head": [False, True],
    "hidden": [3],
    "hidden_causes": [True],
    "inner_steps": [1],
    "instantaneous": [False],
    "keep": ["last"],
    "model": ["additive", "linear", "mlp"],
    "knowledge": ["forbidden"],
    "lagged_sparsity": [30.0],
    "lagged_threshold": [0.0, 2.0],
    "learner": ["trees", "spn"],
    "least_effect": [0.9],
    "leave_one_out": [True],
    "local_graphs": [True],
    "max_edges": [1],
    "max_fused_edges": [1],
    "max_parents": [1],
    "max_rounds": [7, 4, 2, 1],
    "minimum_count": [7],
    "mode": ["exact", "scores", "fusion"],
    "noise": ["equal"],
    "order": [2, 1, 0],
    "parameters": [False, True],
    "party_column": ["clinic"],
    "patience": [4],
    "precision": ["float32"],
    "products": [2],
    "proximity": [5.0],
    "queries": ["central", "federated"],
    "ranking": ["partial-correlation+weights"],
    "refine": ["none", "evidence"],
    "refit": [False, True],
    "regression": ["ridge"],
    "replicas": [2],
    "replicates": [2],
    "resample": ["parties"],
    "ridge": [3.0],
    "row_id": ["a"],
    "score": ["bdeu", "bic", "qnml"],
    "search": [False, True],
    "secure_aggregation": [True],
    "seed": [5],
    "select_order": [True],
    "small_counts": ["suppress", "refuse"],
    "solver": ["dagma", "ges", "order"],
    "sparsity": [0.9],
    "split_rows": [9.0],
    "stability": [1.0],
    "scale": ["normal-scores"],
    "standardize": [True],
    "start": ["overwrite", "driven", "fuse"],
    "sums": [3],
    "target": ["target"],
    "threshold": [1.2],
    "training": ["one-pass", "sums"],
    "turn": [True],
    "unknown_targets": [True],
    "variant": ["paper"],
    "weights": ["counts", "em", "classes"],
}
#: By option, why a value of it need not change a run on these tables.
REASONS = {
    **dict.fromkeys(
        ("round_timeout", "server_timeout", "quorum", "min_available_nodes", "expected_parties"),
        "of parties and servers that are late or missing, which these runs have none of",
    ),
    **dict.fromkeys(("output_dir", "resume"), "files, tested where they are written"),
    **dict.fromkeys(("trained", "signing_key"), "needs files, tested with them"),
    **dict.fromkeys(
        ("delta", "scales", "min_parties"), "belongs to another option, tested with it"
    ),
    **dict.fromkeys(("device", "arithmetic", "image"), "of hardware, or of tables of pixels"),
    "changed_tables": "of tables that change during a run",
    **dict.fromkeys(
        ("categories", "numbers"), "of columns that are neither by themselves, tested with them"
    ),
    **dict.fromkeys(
        (
            *(
                "missing_values",
                "missing_texts",
                "constant_columns",
                "text_columns",
                "unshared_columns",
            ),
            *("duplicate_columns", "max_states", "strict", "identifiers"),
        ),
        "of problems that these tables do not have",
    ),
    **dict.fromkeys(
        (
            *("series_column", "time_column", "gaps", "phase_column", "perturbed_from"),
            *("perturbed_to", "interventions", "intervention_column", "exclude"),
            *("columns", "dictionary", "weight_column"),
        ),
        "of columns that these tables do not have",
    ),
}
#: By option, why an accepted value may change nothing in any mode.
EVERYWHERE = {
    "center": "of levels that differ, which these tables do not have",
    "seed": "of random choices, which most modes do not make",
    "minimum_count": "of few rows, which methods that join columns may have",
    "small_counts": "of few rows, which methods that know interventions may have",
    "precision": "of numbers that are not whole",
    "turn": "the search seldom needs it",
    "target": "the column of this name is the target in any case",
}
CATEGORIES = {"discretize": "the columns are categories"}
EARLY = "the run ends before"
ONE_PASS = {
    "bins": "no column has few whole numbers, and none is cut",
    "max_rounds": "the run ends before",
    "head": "False says that there is none, as is so in any case",
}
NUMBERS = {"bins": "no column has few whole numbers, and none is cut"}
#: By mode and option, why an accepted value changes nothing there.
UNCHANGED = {
    "admm": {"early_stop": "six rounds are too few to stop early"},
    "admm interventions": {"early_stop": "six rounds are too few to stop early"},
    "admm local": {"early_stop": "six rounds are too few to stop early"},
    **{
        name: {
            "early_stop": "six rounds are too few to stop early",
            "lagged_threshold": "the rows have no lagged effects",
        }
        for name in ("2dbn", "2dbn local")
    },
    "2dbn personalised": {"search": "there is none in any case"},
    **{
        name: {"stability": "all draws of the moments have the same edges"}
        for name in ("moments", "moments targets")
    },
    "moments local order": {"lagged_threshold": "the rows have no lagged effects"},
    "moments local class": {"max_parents": "no variable has more than one"},
    "moments order": {"lagged_threshold": "the rows have no lagged effects"},
    "moments hidden mixed": {"knowledge": "effects through the fourth column remain possible"},
    "fedpc sums": NUMBERS,
    "fedpc central": ONE_PASS | {"weights": "they are 'counts' where columns are the same"},
    "fedpc one pass": ONE_PASS | {"weights": "they are 'counts' where columns are the same"},
    "fedpc columns": ONE_PASS,
    "fedpc em": ONE_PASS,
    "fedpc pattern": ONE_PASS,
    "fedpc classes": ONE_PASS,
    "fedpc targets": ONE_PASS,
    "lingam": {"max_rounds": EARLY},
    "lingam order": {
        "max_rounds": EARLY,
        "lagged_threshold": "the rows have no lagged effects",
    },
    "fedges missing": {"parameters": "they are needed in any case"},
    "moments missing order": {"lagged_threshold": "the rows have no lagged effects"},
    "moments ges": {"max_parents": "no variable has more than one"},
    "moments curved": {"max_parents": "no variable has more than one"},
    "fedges scores": CATEGORIES,
    "fedges scores driven": CATEGORIES
    | {
        "parameters": "they are needed in any case",
        **dict.fromkeys(("fusion", "max_edges"), "all parties have one graph, of few edges"),
    },
    "fedges exact": CATEGORIES | {"score": "all scores find one graph"},
    "fedges hidden": CATEGORIES
    | {
        "score": "all scores find one graph",
        "knowledge": "effects through the fourth column remain possible",
    },
    "fedges fusion": CATEGORIES,
    "fedges loop": CATEGORIES,
    "fedcausal": {"evidence_rows": "a party uses 200 rows in any case", "max_rounds": EARLY},
    "fedcausal interventions": {"evidence_rows": "a party uses 200 rows in any case"},
    "fedcausal local": {
        "evidence_rows": "a party uses 200 rows in any case",
        "max_rounds": EARLY,
    },
}


#: A further mode: an option that decides about others.
FURTHER = {"moments dagma": ("moments", MODES["moments"][1], {"solver": "dagma"})}


def options_of(method):
    """The options of a method, by name."""
    return set(option_types(find(method).strategy.options_type))


def test_every_option_is_walked_or_has_a_reason():
    for method in METHODS:
        unknown = options_of(method) - VALUES.keys() - REASONS.keys()
        assert not unknown, f"{method}: give {unknown} a value in VALUES, or a reason in REASONS"
    known = set.union(*map(options_of, METHODS))
    assert VALUES.keys() | REASONS.keys() == known


def test_an_option_belongs_to_one_part_at_most():
    for method in METHODS:
        owners = _about(find(method).strategy.options_type).owners
        assert {name: len(parts) for name, parts in owners.items()} == dict.fromkeys(owners, 1)


def plain(value):
    """Return a part of a result as something that can be compared."""
    if isinstance(value, np.ndarray):
        # Another rounding is no effect.
        texts = [
            f"{one:.9g}" if isinstance(one, float) else str(one) for one in value.ravel().tolist()
        ]
        return value.shape, texts
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if is_dataclass(value):
        # Every training of circuits that stay with the parties has a random one.
        own = [one.name for one in fields(value) if one.name != "fingerprint"]
        return [plain(getattr(value, name)) for name in own]
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, str | int | None):
        return value
    return type(value).__name__


def traces(strategy, parties):
    """What a run sends, gets and finds; options that are only handed over do not count."""
    subject = Subject(strategy, parties)
    run, spy = subject.run()
    sent = [
        (records.config_of(asked).get("exchange"), plain(records.arrays_of(asked)))
        for asked, _ in spy.pairs
    ]
    returned = [plain(records.arrays_of(reply.content)) for _, reply in spy.pairs]
    graph = run.graph
    found = () if graph is None else (graph.weights, graph.raw_weights, graph.confidence)
    return {
        "sent": sent,
        "returned": returned,
        "found": [plain(one) for one in found],
        "local": {party: plain(own.weights) for party, own in run.local_graphs.items()},
        "targets": plain(run.targets),
        "result": plain(subject.result(run)),
        "scores": plain(run.scores),
        "model": plain(run.model),
        "reason": run.stop_reason,
        "warnings": list(run.warnings),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    sweep(
        [mode for mode in {**MODES, **FURTHER} if mode not in NETWORKS],
        ("moments", "fedges exact", "fedcausal"),
    ),
)
def test_a_value_changes_the_run_or_is_refused(mode):
    method, parties, options = {**MODES, **FURTHER}[mode]
    kind = find(method).strategy
    first = kind(**options)
    before = traces(first, parties)
    silent, unnamed = {}, {}
    for name in sorted(options_of(method) & VALUES.keys()):
        if name in EVERYWHERE or name in UNCHANGED.get(mode, {}):
            continue
        # Of several values one changes the run; others may say what is so in any case.
        for value in VALUES[name]:
            if value == getattr(first.options, name):
                continue
            given = {**options}
            given.pop(name, None)
            try:
                after = traces(kind(**{**given, name: knowledge_of(value, parties)}), parties)
            except ConfigError as error:
                if name not in str(error):
                    unnamed[name] = str(error)
                continue
            except CausalError:  # of these tables
                continue
            silent[name] = value
            if after != before:
                del silent[name]
                break
    assert not silent, f"accepted without an effect: {silent}"
    assert not unnamed, f"refused by an error that does not name the option: {unnamed}"


def knowledge_of(value, parties):
    """Return background knowledge that forbids effects on and of the first column."""
    if value != "forbidden":
        return value
    from flwr_causal import Knowledge

    arrays = isinstance(parties[0], np.ndarray)
    first, *others = ("x0", "x1", "x2") if arrays else ("a", "b", "c")
    return Knowledge(forbidden=[pair for one in others for pair in ((first, one), (one, first))])
