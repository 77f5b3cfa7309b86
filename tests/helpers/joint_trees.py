"""Joint EM of trees over parties with different columns, all parties in one process."""

from flwr_causal.core.circuits.composed.joint_trees import (
    PRODUCT_STEPS,
    anchor_rows,
    equal_weights,
    responsibilities,
)


def trained_together(tables, components, seed=0):
    """Each party's trees, and what they were made of (`Shared`).

    Parameters
    ----------
    tables : sequence of Table
        Of each party, rows in the same order.
    components : int
        Of each mixture.
    seed : int
        Of the rows that components start from.
    """
    anchors = anchor_rows(tables[0].codes.shape[1], components, seed)
    parts = [table.start(anchors) for table in tables]
    log_weights = equal_weights(components)
    for step in range(PRODUCT_STEPS + 1):
        given = [part.log_densities(own.codes) for part, own in zip(parts, tables, strict=True)]
        shared = responsibilities(given, log_weights)
        log_weights = shared.log_weights
        last = step == PRODUCT_STEPS
        parts = [
            own.trees(shared.responsibilities) if last else own.products(shared.responsibilities)
            for own in tables
        ]
    return parts, shared
