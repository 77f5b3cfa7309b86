"""What a user chooses of a learner, in plain values: parties are told."""

from __future__ import annotations

import re
from typing import NamedTuple

from flwr_causal.errors import ConfigError


class Settings(NamedTuple):
    """The learners' own options; each learner takes those that are its own.

    Parameters
    ----------
    components : int, optional
        Of a mixture of trees. Default: by the number of rows.
    head : bool
        Whether a logistic head tells the class.
    threshold : bool
        Whether the probability is chosen from which on the second of two classes is predicted.
    depth, replicas, sums : int
        Size of an Einsum network; see
        `tensors.einsum_network.EinsumNetwork`, whose defaults they are.
    epochs : int
        Passes of an Einsum network over the rows.
    batches : int
        Parts of the rows that a pass of an Einsum network by sums asks for one after the other, an
        exchange each. With 50 exchanges, 50 passes of 1 part have -16.1 nats on plants (17,412
        rows) and 10 of 5 have -17.6, but -13.4 and -11.4 on 450 rows of six columns.
    image : str
        Of an Einsum network: height and width such as ``"28x28"``, where the columns but the target
        are the pixels. Empty: they are not.
    """

    components: int | None = None
    head: bool = False
    threshold: bool = False
    depth: int = 4
    replicas: int = 5
    sums: int = 10
    epochs: int = 10
    batches: int = 5
    image: str = ""


def image_shape(text: str) -> tuple[int, int] | None:
    """Return height and width from a text such as ``"28x28"``; None of an empty one.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    if not text:
        return None
    found = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text)
    if found is None:
        raise ConfigError(f"image must be height and width such as '28x28', got {text!r}")
    return int(found[1]), int(found[2])
