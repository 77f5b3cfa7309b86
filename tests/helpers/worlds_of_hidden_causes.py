"""Systems with hidden common causes, shared by several test files."""

import numpy as np
import pandas as pd

from flwr_causal import CausalGraph


def two_hidden_causes(n):
    """Rows of a -> b <- h -> c <- e and f -> g <- k -> m <- p; h and k are hidden."""
    rng = np.random.default_rng(7)
    columns = {}
    for cause, one, other, last in ("abce", "fgmp"):
        hidden, columns[cause], columns[last] = rng.normal(size=(3, n))
        columns[one] = columns[cause] + hidden + rng.normal(size=n)
        columns[other] = columns[last] + hidden + rng.normal(size=n)
    return pd.DataFrame(columns)


def one_hidden_cause(names):
    """The graph a -> b <- h -> c <- e, b -> g over ``names`` and the hidden h."""
    names = [*names, "h"]
    truth = np.zeros((6, 6))
    for cause, effect in (("a", "b"), ("h", "b"), ("h", "c"), ("e", "c"), ("b", "g")):
        truth[names.index(cause), names.index(effect)] = 1
    return CausalGraph.from_array(truth, names)
