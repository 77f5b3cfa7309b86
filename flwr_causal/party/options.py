"""All options and their values, by which a policy's rules are checked without loading the methods.

``python -m flwr_causal.app.pages`` writes the text from the methods' options.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: The entry-point group in which other packages declare methods.
METHODS_GROUP = "flwr_causal.methods"
#: Beside choices: an option may be true or false, a number, or any text.
BOOL, NUMBER, TEXT = "BOOL", "NUMBER", "TEXT"

# <options>
_TEXT = """
2dbn:
    aggregation=mean|median center=auto|global|series|phase changed_tables=fail|restart
    columns=TEXT constant_columns=fail|drop|keep dictionary=TEXT
    duplicate_columns=fail|drop|keep early_stop=BOOL exclude=TEXT expected_parties=TEXT
    fraction_train=NUMBER gaps=fail|split groups=NUMBER|auto identifiers=auto|fail
    intervention_column=TEXT interventions=TEXT knowledge=TEXT lagged_sparsity=NUMBER
    lagged_threshold=NUMBER leave_one_out=BOOL local_graphs=BOOL max_rounds=NUMBER
    min_available_nodes=NUMBER min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT
    missing_values=fail|drop|keep|em order=NUMBER output_dir=TEXT perturbed_from=NUMBER
    perturbed_to=NUMBER phase_column=TEXT precision=float64|float32 proximity=NUMBER|auto
    quorum=NUMBER refit=BOOL replicates=NUMBER resample=auto|rows|parties resume=BOOL
    round_timeout=NUMBER row_id=TEXT search=BOOL secure_aggregation=BOOL seed=NUMBER
    select_order=BOOL series_column=TEXT server_timeout=NUMBER signing_key=TEXT
    small_counts=report|suppress|refuse sparsity=NUMBER|auto|bic|held-out standardize=BOOL
    strict=BOOL text_columns=fail|drop|keep threshold=NUMBER time_column=TEXT
    unshared_columns=fail|drop|keep variant=default|paper|personalised
describe:
    bins=NUMBER categories=TEXT changed_tables=fail|restart columns=TEXT
    constant_columns=fail|drop|keep dictionary=TEXT duplicate_columns=fail|drop|keep
    exclude=TEXT expected_parties=TEXT fraction_train=NUMBER groups=NUMBER|auto
    identifiers=auto|fail leave_one_out=BOOL max_rounds=NUMBER min_available_nodes=NUMBER
    min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT missing_values=fail|drop|keep|em
    numbers=TEXT output_dir=TEXT precision=float64|float32 quorum=NUMBER replicates=NUMBER
    resample=auto|rows|parties resume=BOOL round_timeout=NUMBER row_id=TEXT
    secure_aggregation=BOOL seed=NUMBER server_timeout=NUMBER signing_key=TEXT
    small_counts=auto|report|suppress|refuse strict=BOOL text_columns=fail|drop|keep
    unshared_columns=fail|drop|keep
fedcausal:
    acyclic_server=BOOL aggregation=mean|median arithmetic=float64|float32 candidates=NUMBER
    center=party|global changed_tables=fail|restart columns=TEXT
    constant_columns=fail|drop|keep device=TEXT dictionary=TEXT
    duplicate_columns=fail|drop|keep evidence_rows=NUMBER exclude=TEXT expected_parties=TEXT
    fraction_train=NUMBER groups=NUMBER|auto hidden=NUMBER identifiers=auto|fail
    inner_steps=NUMBER intervention_column=TEXT interventions=TEXT knowledge=TEXT
    leave_one_out=BOOL local_graphs=BOOL max_rounds=NUMBER min_available_nodes=NUMBER
    min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT missing_values=fail|drop|keep|em
    model=group|linear|mlp noise=own|equal output_dir=TEXT precision=float64|float32
    proximity=NUMBER|auto quorum=NUMBER refine=evidence|none replicates=NUMBER
    resample=auto|rows|parties resume=BOOL round_timeout=NUMBER row_id=TEXT
    secure_aggregation=BOOL seed=NUMBER server_timeout=NUMBER signing_key=TEXT
    small_counts=report|suppress|refuse sparsity=NUMBER|auto standardize=BOOL strict=BOOL
    text_columns=fail|drop|keep threshold=NUMBER unshared_columns=fail|drop|keep
    variant=default|paper
fedges:
    categories=TEXT changed_tables=fail|restart columns=TEXT constant_columns=fail|drop|keep
    dictionary=TEXT discretize=NUMBER duplicate_columns=fail|drop|keep
    equivalent_sample_size=NUMBER exclude=TEXT expected_parties=TEXT fraction_train=NUMBER
    fusion=TEXT|NUMBER groups=NUMBER|auto hidden_causes=BOOL identifiers=auto|fail
    keep=best|last knowledge=TEXT leave_one_out=BOOL max_edges=NUMBER max_fused_edges=NUMBER
    max_parents=NUMBER max_rounds=NUMBER max_states=NUMBER min_available_nodes=NUMBER
    min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT missing_values=fail|drop|keep|em
    mode=auto|scores|exact|fusion numbers=TEXT output_dir=TEXT parameters=BOOL
    party_column=TEXT patience=NUMBER precision=float64|float32 quorum=NUMBER replicates=NUMBER
    resample=auto|rows|parties resume=BOOL round_timeout=NUMBER row_id=TEXT
    score=auto|bdeu|bic|qnml secure_aggregation=BOOL seed=NUMBER server_timeout=NUMBER
    signing_key=TEXT small_counts=report|suppress|refuse start=driven|fuse|overwrite
    strict=BOOL text_columns=fail|drop|keep turn=BOOL unshared_columns=fail|drop|keep
    variant=default|paper
fedpc:
    batches=NUMBER bins=NUMBER blocks=BOOL categories=TEXT changed_tables=fail|restart
    class_root=BOOL clusters=NUMBER columns=TEXT components=NUMBER
    constant_columns=fail|drop|keep correlation=NUMBER decision=most-probable|macro-f1
    depth=NUMBER dictionary=TEXT duplicate_columns=fail|drop|keep epochs=NUMBER exclude=TEXT
    expected_parties=TEXT fraction_train=NUMBER groups=NUMBER|auto head=BOOL|auto
    identifiers=auto|fail image=TEXT
    learner=auto|class-conditional|trees|spn|einsum|decision-tree least_deviation=NUMBER
    leave_one_out=BOOL leaves=auto|gaussian|histogram max_rounds=NUMBER max_states=NUMBER
    min_available_nodes=NUMBER min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT
    missing_values=fail|drop|keep|em numbers=TEXT output_dir=TEXT precision=float64|float32
    products=NUMBER queries=federated|central quorum=NUMBER replicas=NUMBER replicates=NUMBER
    resample=auto|rows|parties resume=BOOL round_timeout=NUMBER row_id=TEXT
    secure_aggregation=BOOL seed=NUMBER server_timeout=NUMBER signing_key=TEXT
    small_counts=report|suppress|refuse split_rows=NUMBER strict=BOOL sums=NUMBER target=TEXT
    text_columns=fail|drop|keep trained=TEXT training=auto|sums|triples|one-pass
    unshared_columns=fail|drop|keep variant=default|paper weights=auto|counts|classes|em
lingam:
    aggregation=mean|median center=auto|global|party|series|phase changed_tables=fail|restart
    columns=TEXT constant_columns=fail|drop|keep dictionary=TEXT
    duplicate_columns=fail|drop|keep exclude=TEXT expected_parties=TEXT fraction_train=NUMBER
    gaps=fail|split groups=NUMBER|auto identifiers=auto|fail knowledge=TEXT
    lagged_sparsity=NUMBER lagged_threshold=NUMBER leave_one_out=BOOL max_rounds=NUMBER
    min_available_nodes=NUMBER min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT
    missing_values=fail|drop|keep|em order=NUMBER output_dir=TEXT perturbed_from=NUMBER
    perturbed_to=NUMBER phase_column=TEXT precision=float64|float32 quorum=NUMBER
    replicates=NUMBER resample=auto|rows|parties resume=BOOL round_timeout=NUMBER row_id=TEXT
    secure_aggregation=BOOL seed=NUMBER series_column=TEXT server_timeout=NUMBER
    signing_key=TEXT small_counts=report|suppress|refuse standardize=BOOL strict=BOOL
    text_columns=fail|drop|keep threshold=NUMBER time_column=TEXT
    unshared_columns=fail|drop|keep
moments:
    aggregation=mean|median categories=TEXT center=auto|global|party|series|phase
    changed_tables=fail|restart columns=TEXT constant_columns=fail|drop|keep delta=NUMBER
    dictionary=TEXT duplicate_columns=fail|drop|keep epsilon=NUMBER exclude=TEXT
    expected_parties=TEXT fraction_train=NUMBER gaps=fail|split groups=NUMBER|auto
    hidden_causes=BOOL identifiers=auto|fail instantaneous=BOOL|auto intervention_column=TEXT
    interventions=TEXT knowledge=TEXT lagged_sparsity=NUMBER lagged_threshold=NUMBER
    least_effect=NUMBER leave_one_out=BOOL local_graphs=BOOL max_parents=NUMBER
    max_rounds=NUMBER min_available_nodes=NUMBER min_parties=NUMBER minimum_count=NUMBER
    missing_texts=TEXT missing_values=fail|drop|keep|em model=linear|additive|curved
    numbers=TEXT order=NUMBER output_dir=TEXT parameters=moments|likelihood party_column=TEXT
    perturbed_from=NUMBER perturbed_to=NUMBER phase_column=TEXT precision=float64|float32
    quorum=NUMBER ranking=weights|partial-correlation+weights refit=BOOL
    regression=lasso|ridge|held-out replicates=NUMBER resample=auto|rows|parties resume=BOOL
    ridge=NUMBER|held-out round_timeout=NUMBER row_id=TEXT scale=data|normal-scores scales=TEXT
    secure_aggregation=BOOL seed=NUMBER select_order=BOOL series_column=TEXT
    server_timeout=NUMBER signing_key=TEXT small_counts=report|suppress|refuse
    solver=auto|order|class|dagma|notears|ges sparsity=NUMBER|auto|bic|held-out
    stability=NUMBER standardize=BOOL strict=BOOL text_columns=fail|drop|keep threshold=NUMBER
    time_column=TEXT unknown_targets=BOOL unshared_columns=fail|drop|keep weight_column=TEXT
notears-admm:
    aggregation=mean|median arithmetic=float64|float32 center=auto|global|party
    changed_tables=fail|restart columns=TEXT constant_columns=fail|drop|keep delta=NUMBER
    device=TEXT dictionary=TEXT duplicate_columns=fail|drop|keep early_stop=BOOL epsilon=NUMBER
    exclude=TEXT expected_parties=TEXT fraction_train=NUMBER groups=NUMBER|auto hidden=NUMBER
    identifiers=auto|fail inner_steps=NUMBER intervention_column=TEXT interventions=TEXT
    knowledge=TEXT leave_one_out=BOOL local_graphs=BOOL max_rounds=NUMBER
    min_available_nodes=NUMBER min_parties=NUMBER minimum_count=NUMBER missing_texts=TEXT
    missing_values=fail|drop|keep|em model=linear|mlp output_dir=TEXT precision=float64|float32
    quorum=NUMBER refit=BOOL replicates=NUMBER resample=auto|rows|parties resume=BOOL
    round_timeout=NUMBER row_id=TEXT scales=TEXT search=BOOL secure_aggregation=BOOL
    seed=NUMBER server_timeout=NUMBER signing_key=TEXT small_counts=report|suppress|refuse
    sparsity=NUMBER|auto|bic|held-out standardize=BOOL strict=BOOL text_columns=fail|drop|keep
    threshold=NUMBER unshared_columns=fail|drop|keep variant=default|paper
"""
# </options>


@cache
def options_by_method() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the options of this package's methods with their values, by the methods' ids.

    Values are the declared choices, and :data:`BOOL`, :data:`NUMBER` and :data:`TEXT`.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for word in _TEXT.split():
        if word.endswith(":"):
            options = found[word[:-1]] = {}
        else:
            name, _, values = word.partition("=")
            options[name] = tuple(values.split("|"))
    return found


def is_possible(value: Any, values: Collection[str]) -> bool:
    """Return whether an option with these values may be a value."""
    if isinstance(value, bool):
        return BOOL in values
    if not isinstance(value, str):
        return NUMBER in values
    return TEXT in values or (value in values and value not in (BOOL, NUMBER))


def in_words(values: Collection[str]) -> str:
    """Return the values of an option as a message lists them."""
    words = {BOOL: "true, false", NUMBER: "a number", TEXT: "a text"}
    return ", ".join(words.get(one, f"'{one}'") for one in values)
