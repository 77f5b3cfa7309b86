"""What the two exchanges of the additive method leave: merged moments of its basis."""

import numpy as np

from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.nonlinear.basis import basis_rows


def summed(parties, names, size=5):
    """Return the moments of the basis functions, those of the pooled rows."""
    parties = [np.asarray(rows, dtype=float) for rows in parties]
    pooled = merge(SampleMoments.from_rows(rows) for rows in parties)
    scale = np.sqrt(pooled.variances)
    scale[pooled.constant_columns()] = 0.0
    functions = [basis_rows(rows, pooled.mean, scale, size) for rows in parties]
    columns = [f"{name}[{k}]" for name in names for k in range(size)]
    return merge(SampleMoments.from_rows(rows, columns) for rows in functions)
