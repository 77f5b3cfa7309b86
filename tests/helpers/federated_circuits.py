"""Federated circuits whose parties are in this process."""

import numpy as np

from flwr_causal.core.circuits.composed import party_answers
from flwr_causal.core.circuits.composed.composition import Output
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit, PartyLeaves
from flwr_causal.core.circuits.layers import Layers


def federated(composition, presence, circuits):
    """Return the composition of parties' circuits, over the joint domain, that answer at once."""
    presence = np.asarray(presence, dtype=bool)
    return FederatedCircuit(composition, presence, ask=asking(composition, presence, circuits))


def asking(composition, presence, circuits):
    """Return a callable that asks parties as the clients of a run are asked."""
    names = composition.domain.names

    def ask(query, requests):
        return [
            _answer(query, request, own, holds, names)
            for request, own, holds in zip(requests, circuits, presence, strict=True)
        ]

    return ask


def _answer(query, request, circuits, holds, names):
    rows = np.where(request["known"] > 0, request["values"], np.nan)
    values = np.full((len(rows), len(names)), np.nan)
    values[:, holds] = rows
    column = names.index(request["column"]) if "column" in request else None
    held = column is not None and holds[column]
    if query == "filled":
        rng = np.random.default_rng(request["seed"]) if request["seed"] else None
        filled = party_answers.filled(circuits, values, request["chosen"] > 0, rng)[:, holds]
        known = ~np.isnan(filled)
        return {"values": np.where(known, filled, 0.0), "known": known}
    if query == "moments":
        if not held:
            return {"moments": np.zeros((2, len(values)))}
        flows = request["flows"]
        return {"moments": party_answers.weighted_moments(circuits, values, flows, column)}
    if query == "classes" and held:
        return {"densities": party_answers.class_densities(circuits, values, column)}
    if query == "peaks":
        return {"densities": party_answers.peak_densities(circuits, values)[None]}
    return {"densities": party_answers.log_densities(circuits, values)[None]}


def composed_densities(composition, outputs):
    """Return the log density of rows from the log densities of each party's circuits."""
    return composed_layers(composition, outputs).log_densities(np.zeros((len(outputs[0]), 1)))


def composed_layers(composition, outputs):
    """Return the layers of a composition whose parties answer with given log densities."""

    def ask(query, requests):
        return [{"densities": np.asarray(one)[None]} for one in outputs]

    def source(leaves):
        assert all(isinstance(leaf, Output) for leaf in leaves)
        presence = np.ones((len(outputs), 1), dtype=bool)
        return PartyLeaves(leaves, presence, ("x",), np.full(1, np.nan), "", ask)

    return Layers.of(composition.root, source)
