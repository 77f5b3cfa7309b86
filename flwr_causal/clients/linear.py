"""What the linear methods' clients share: rows as the optimiser sees them, and folds of them."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.base import CausalClient
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.folds import split_rows

FloatArray = NDArray[np.float64]


class LinearClient(CausalClient):
    """Base of the linear methods' clients."""

    @property
    def masks(self) -> EdgeMasks:
        """The background knowledge, of methods that send it (option ``knowledge``)."""
        text = str(self.setup.options["knowledge"])
        knowledge = Knowledge.from_dict(json.loads(text)) if text else Knowledge()
        return knowledge.masks(self.setup.names)

    def design(self) -> FloatArray:
        """Return the party's rows centred and scaled as agreed, shape (n_k, d)."""
        setup, rows = self.setup, self.rows()
        mean = rows.mean(axis=0) if setup.options["center"] == "party" else setup.mean
        centered = rows - mean
        return centered / np.sqrt(setup.variance) if setup.options["standardize"] else centered

    def folds(self, design: FloatArray) -> list[FloatArray]:
        """Return the rows for training and those held out, or all rows as the only fold."""
        if not self.setup.options["held-out"]:
            return [design]
        train, held_out = split_rows(len(design), int(self.setup.options["seed"]))
        return [design[train], design[held_out]]
