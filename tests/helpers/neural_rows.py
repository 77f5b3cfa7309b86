"""Rows of four variables with mechanisms that have no linear part, for the tests of perceptrons."""

import numpy as np

# x0 -> x1 -> x2 <- x3
NONLINEAR_TRUTH = np.zeros((4, 4), dtype=bool)
NONLINEAR_TRUTH[[0, 1, 3], [1, 2, 2]] = True


def nonlinear_rows(n, seed, signs=(1.0, 1.0, 1.0)):
    """Centred rows; the signs are those of the three effects."""
    noise = np.random.default_rng(seed).standard_normal((n, 4))
    x0, x3 = noise[:, 0], noise[:, 3]
    x1 = signs[0] * 3 * np.cos(1.5 * x0) + 0.6 * noise[:, 1]
    x2 = signs[1] * 2 * np.tanh(x1) + signs[2] * 2 * np.abs(x3) + 0.5 * noise[:, 2]
    rows = np.column_stack([x0, x1, x2, x3])
    return rows - rows.mean(axis=0)
