"""Tables of numbers and categories with a known graph."""

import numpy as np
import pandas as pd

from flwr_causal.simulations.scenarios.real_tables import mixed_table as mixed_table_of


def mixed_table(d, n, *, seed, edges_per_node=1.5, kinds=(0, 0, 2, 3, 4)):
    """Numbers (kind 0) are linear in their causes, categories of k states softmax of them."""
    rng = np.random.default_rng(seed)
    dag = np.triu(rng.random((d, d)) < 2 * edges_per_node / (d - 1), 1)
    table = mixed_table_of(dag, n, rng, kinds, None)
    order = rng.permutation(d)
    return table.iloc[:, order], dag[np.ix_(order, order)].astype(float)


def curved_table(seed, n=2000):
    """x and z cause y by even functions, which have no correlation with it; y causes w."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    y = 2 * np.exp(-0.5 * x**2) + np.cos(2 * z) + 0.5 * rng.normal(size=n)
    w = np.where(y > y.mean(), "high", "low")
    w = np.where(rng.random(n) < 0.1, "low", w)
    dag = np.zeros((4, 4))
    dag[0, 2] = dag[1, 2] = dag[2, 3] = 1
    return pd.DataFrame({"x": x, "z": z, "y": y, "w": w}), dag
