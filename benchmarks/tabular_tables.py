"""Tables of the FedPC paper, as its parties get them: text, whole numbers and numbers as they are.

Breast cancer comes with scikit-learn; the others are read from folders:

- ``adult.csv.gz``: Income (UCI Adult), 48,842 rows. Its test part comes first, so rows are shuffled
  before they are divided. ``?`` in three columns of text is a category of its own.
  ``education-num`` says what ``education`` does, and is left out.
- ``give_me_some_credit.npz``: Credit (Kaggle 2011), one array a column; names that end in ``_e9``
  are in units of 1e-9. Monthly income and number of dependents are missing in some rows (NaN). The
  counts of late payments hold the codes 96 and 98, utilisation and debt ratio values of
  thousands: all of them stay, since intervals and trees take them as they come.
- ``NAME.npz``: binary density sets, packed bits with their own training and test rows.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.data.read.example_tables import breast_cancer


class Table(NamedTuple):
    """Rows for training and for the test; ``target`` is empty where there is no class."""

    train: pd.DataFrame
    test: pd.DataFrame
    target: str


def cancer(seed):
    return divided(breast_cancer(), "target", 450, 119, seed)


def income(folder, seed, num_train=27_000, num_test=9_000):
    frame = pd.read_csv(folder / "adult.csv.gz").drop(columns="education-num")
    return divided(frame, "income", num_train, num_test, seed)


def credit(folder, seed, num_train=60_000, num_test=30_000):
    file = np.load(folder / "give_me_some_credit.npz")
    columns = {}
    for name in file.files:
        column = file[name].astype(float)
        columns[name.removesuffix("_e9")] = column / 1e9 if name.endswith("_e9") else column
    late = np.where(columns.pop("SeriousDlqin2yrs") == 1, "yes", "no")
    return divided(pd.DataFrame(columns).assign(late=late), "late", num_train, num_test, seed)


def divided(frame, target, num_train, num_test, seed):
    order = np.random.default_rng(seed).permutation(len(frame))
    train, test = order[:num_train], order[num_train : num_train + num_test]
    train, test = (frame.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return Table(train, test, target)


def binary_set(folder, name):
    file = np.load(folder / f"{name}.npz")
    width = int(file["n_vars"])
    names = [f"v{j}" for j in range(width)]
    train, test = (
        pd.DataFrame(np.unpackbits(file[part], axis=1, count=width), columns=names)
        for part in ("train", "test")
    )
    return Table(train, test, "")
