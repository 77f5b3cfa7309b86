"""The names of all options, by which a policy's rules are checked without loading the methods.

``python -m flwr_causal.app.pages`` writes the text from the methods' options.
"""

from __future__ import annotations

from functools import cache

#: The entry-point group in which other packages declare methods.
METHODS_GROUP = "flwr_causal.methods"

# <options>
_TEXT = """
2dbn:
    aggregation center changed_tables constant_columns duplicate_columns early_stop
    expected_parties fraction_train gaps groups intervention_column interventions knowledge
    lagged_sparsity lagged_threshold leave_one_out max_rounds min_available_nodes min_parties
    minimum_count missing_texts missing_values order output_dir perturbed_from perturbed_to
    phase_column precision quorum refit replicates resume round_timeout row_id search
    secure_aggregation seed select_order series_column server_timeout signing_key small_counts
    sparsity standardize text_columns threshold time_column unshared_columns variant
fedcausal:
    acyclic_server aggregation arithmetic candidates center changed_tables constant_columns
    device duplicate_columns evidence_rows expected_parties fraction_train groups hidden
    inner_steps intervention_column interventions knowledge leave_one_out local_graphs
    max_rounds min_available_nodes min_parties minimum_count missing_texts missing_values model
    noise output_dir precision proximity quorum refine replicates resume round_timeout row_id
    secure_aggregation seed server_timeout signing_key small_counts sparsity standardize
    text_columns threshold unshared_columns variant
fedges:
    categories changed_tables constant discretize duplicate_columns equivalent_sample_size
    expected_parties fraction_train fusion groups keep knowledge leave_one_out look_ahead
    max_edges max_fused_edges max_parents max_rounds max_states min_available_nodes min_parties
    minimum_count missing_texts missing_values mode numbers output_dir parameters patience
    precision quorum replicates resume round_timeout row_id score secure_aggregation seed
    server_timeout signing_key small_counts start text_columns turn unshared_columns variant
fedpc:
    batches bins blocks categories changed_tables class_root clusters components
    constant_columns correlation decision depth duplicate_columns epochs expected_parties
    fraction_train groups head image learner leave_one_out max_rounds max_states
    min_available_nodes min_parties minimum_count missing_texts missing_values numbers
    output_dir precision products queries quorum replicas replicates resume round_timeout
    row_id secure_aggregation seed server_timeout signing_key small_counts split_rows sums
    target text_columns trained training unshared_columns variant weights
lingam:
    aggregation center changed_tables constant_columns duplicate_columns expected_parties
    fraction_train gaps groups knowledge lagged_sparsity lagged_threshold leave_one_out
    max_rounds min_available_nodes min_parties minimum_count missing_texts missing_values order
    output_dir perturbed_from perturbed_to phase_column precision quorum replicates resume
    round_timeout row_id secure_aggregation seed series_column server_timeout signing_key
    small_counts standardize text_columns threshold time_column unshared_columns
moments:
    aggregation categories center changed_tables constant_columns delta duplicate_columns
    epsilon expected_parties fraction_train gaps groups instantaneous intervention_column
    interventions knowledge lagged_sparsity lagged_threshold least_effect leave_one_out
    max_parents max_rounds min_available_nodes min_parties minimum_count missing_texts
    missing_values model numbers order output_dir perturbed_from perturbed_to phase_column
    polish precision quorum ranking refit regression replicates resume ridge round_timeout
    row_id scales score secure_aggregation seed select_order series_column server_timeout
    signing_key small_counts solver sparsity standardize text_columns threshold time_column
    unshared_columns
notears-admm:
    aggregation arithmetic center changed_tables constant_columns delta device
    duplicate_columns early_stop epsilon expected_parties fraction_train groups hidden
    inner_steps intervention_column interventions knowledge leave_one_out max_rounds
    min_available_nodes min_parties minimum_count missing_texts missing_values model output_dir
    precision quorum refit replicates resume round_timeout row_id scales search
    secure_aggregation seed server_timeout signing_key small_counts sparsity standardize
    text_columns threshold unshared_columns variant
"""
# </options>


@cache
def options_by_method() -> dict[str, frozenset[str]]:
    """Return the options of this package's methods, by the methods' ids."""
    found: dict[str, list[str]] = {}
    for word in _TEXT.split():
        if word.endswith(":"):
            names = found[word[:-1]] = []
        else:
            names.append(word)
    return {method: frozenset(names) for method, names in found.items()}
