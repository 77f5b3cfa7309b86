"""Example tables of scikit-learn, for runs without data; nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.data.roles import TARGET

if TYPE_CHECKING:
    import pandas as pd


def breast_cancer() -> pd.DataFrame:
    """Return the Wisconsin breast cancer table: 569 rows, 30 columns of numbers, and a class.

    The class ``target`` is "benign" or "malignant". Rows are in the order of the file.

    Examples
    --------
    >>> from flwr_causal.data.read.example_tables import breast_cancer
    >>> table = breast_cancer()
    >>> table.shape, sorted(table["target"].unique())
    ((569, 31), ['benign', 'malignant'])
    """
    from sklearn.datasets import load_breast_cancer

    loaded = load_breast_cancer(as_frame=True)
    frame: pd.DataFrame = loaded.frame
    return frame.assign(**{TARGET: np.asarray(loaded.target_names)[frame[TARGET]]})


def digits() -> pd.DataFrame:
    """Return 1,797 images of handwritten digits: 8 x 8 pixels from 0 to 16, and the digit.

    Pixels are ``pixel_row_column``, the class ``target`` is a whole number.

    Examples
    --------
    >>> from flwr_causal.data.read.example_tables import digits
    >>> digits().shape
    (1797, 65)
    """
    from sklearn.datasets import load_digits

    frame: pd.DataFrame = load_digits(as_frame=True).frame
    return frame
