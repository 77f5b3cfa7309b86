"""Exchanges of FedCausal: the algorithms of Yang et al. (AAAI 2024), group lasso, and search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import When
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import (
    InterventionPartyOptions,
    PerceptronPartyOptions,
    derived,
)
from flwr_causal.protocol.second_moments import largest_columns

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.protocol.setup import Setup

# How much larger than a variable's variance, in units of the noise, an effect's variance may be.
_NORMS_ROOM = 2.0**16
# How much larger than 1 a weight between standardised columns may be.
_EFFECTS_ROOM = 2.0**10
# More than any change of a party's evidence, for each of its rows.
_LARGEST_EVIDENCE = 2.0**20


def _largest_norms(setup: Setup) -> FloatArray:
    """Return bounds of the effects' variances in units of the parties' noise, shape (1, d)."""
    variance = largest_columns(setup)[1:] ** 2
    # The parties take this quantile of their own variances for the noise.
    return _NORMS_ROOM * (variance / np.quantile(variance, 0.1))[None]


def _largest_effects(setup: Setup) -> FloatArray:
    """Return bounds of the weights, (d, d); weights of standardised columns hardly exceed 1."""
    own = largest_columns(setup)[1:]
    return _EFFECTS_ROOM * np.outer(1 / own, own)


_MULTIPLIER = Sent("multiplier", "alpha of the augmented Lagrangian")
_PENALTY = Sent("penalty", "rho of the augmented Lagrangian")
_SHARE = Sent("share", "share of a party's rows whose evidence is computed")
_ITERATION = Sent("iteration", "number of iterations done before")

GROUP = Exchange(
    "group",
    "one iteration of the joint group lasso, in which an edge is the group of all parties' "
    "coefficients",
    sends=(
        Sent("factors", "factor of each block of coefficients", ("d", "d")),
        Sent("penalty", "rho of this iteration"),
        _ITERATION,
    ),
    returns=(
        Disclosure(
            "squared-norms",
            "||Y_k[i, :, j]||^2, the squared norms of the party's blocks of coefficients; the "
            "first ones are of a ridge regression on functions of each variable",
            ("d", "d"),
            "non-negative",
            "mean",
            bound=_largest_norms,
        ),
    ),
    timing="in each iteration",
    when=When(model="group"),
    remembered=True,
)

LINEAR = Exchange(
    "linear",
    "one iteration of Algorithm 1 with the linear model, eqs. (4) and (5)",
    sends=(Sent("weights", "the server's W", ("d", "d")), _MULTIPLIER, _PENALTY),
    returns=(
        Disclosure("weights", "W_k of eq. (5)", ("d", "d"), combine="mean", bound=_largest_effects),
    ),
    timing="in each iteration",
    when=When(model="linear"),
)

NORMS = Exchange(
    "norms",
    "one iteration of Algorithm 1 with perceptrons, the norms of the first layers being averaged",
    sends=(
        Sent("shared", "factor of each block of the first layers", ("d", "d")),
        Sent("norms", "||A_j[:, i]|| of the server's solution", ("d", "d")),
        _MULTIPLIER,
        _PENALTY,
        _ITERATION,
    ),
    returns=(
        Disclosure(
            "shared",
            "||A_j[:, i]||^2 of the party's first layers A",
            ("d", "d"),
            "non-negative",
            "mean",
        ),
        Disclosure(
            "slopes",
            "mean squares over the party's rows of df_j/dx_i",
            ("d", "d"),
            "non-negative",
            "mean",
        ),
    ),
    timing="in each iteration",
    when=When(model="mlp", variant="default"),
    remembered=True,
)

LAYERS = Exchange(
    "layers",
    "one iteration of Algorithm 1 with perceptrons, the first layers being averaged (the paper's)",
    sends=(
        Sent("shared", "the server's first layers A", ("d", "hidden", "d")),
        NORMS.sends[1],
        _MULTIPLIER,
        _PENALTY,
        _ITERATION,
    ),
    returns=(
        Disclosure("shared", "the party's first layers A", ("d", "hidden", "d"), combine="mean"),
    ),
    timing="in each iteration",
    when=When(model="mlp", variant="paper"),
    remembered=True,
)

EVIDENCE = Exchange(
    "evidence",
    "one step of the searches for the graph of highest evidence",
    sends=(
        Sent("graphs", "1 at the edges of each search's graph", ("searches", "d", "d")),
        Sent(
            "wanted", "1 at the edges whose change of evidence is requested", ("searches", "d", "d")
        ),
        Sent("start", "1 at the edges of the graph that the first search began with", ("d", "d")),
        _SHARE,
    ),
    returns=(
        Disclosure(
            "changes",
            "change of the party's evidence by each requested edge, divided by n_k",
            ("searches", "d", "d"),
            combine="mean",
            bound=lambda setup: _LARGEST_EVIDENCE,
        ),
        Disclosure(
            "evidence",
            "the party's evidence of each variable given its parents, divided by n_k",
            ("searches", "d"),
            combine="mean",
            bound=lambda setup: _LARGEST_EVIDENCE,
        ),
        Disclosure(
            "shares",
            "share of an effect's variance that each cause explains beyond the other "
            "parents in the search's graph",
            ("searches", "d", "d"),
            combine="mean",
            bound=lambda setup: 4.0,
        ),
    ),
    timing="in each step",
    when=When(refine="evidence"),
)

LOCAL = Exchange(
    "local graphs",
    "the graph of highest evidence on each party's own rows; the replies are kept by party",
    sends=(
        Sent("graph", "1 at the edges of the common graph", ("d", "d")),
        Sent("start", "1 at the edges of the graph that the search began with", ("d", "d")),
        Sent("candidates", "number of additions into each variable that are tried in a step"),
        _SHARE,
    ),
    returns=(
        Disclosure("own-graph", "the party's own graph", ("d", "d"), "dag"),
        Disclosure(
            "support",
            "how much the party's rows support each edge of its own and the common graph, in nats",
            ("d", "d"),
        ),
        Disclosure(
            "own-shares",
            "share of an effect's variance that each cause explains beyond the other "
            "parents in the party's own graph",
            ("d", "d"),
        ),
    ),
    timing="in the last exchange",
    most=1,
    when=When(local_graphs=True),
)


@dataclass(frozen=True, kw_only=True)
class FedCausalPartyOptions(PerceptronPartyOptions, InterventionPartyOptions):
    """How the parties fit their rows.

    Parameters
    ----------
    noise : {"own", "equal"}
    sparsity, proximity : float
        lambda_1 and lambda_2.
    relative : bool
        Whether lambda_1 is in units of the columns' variance.
    variant : {"default", "paper"}
    """

    noise: Literal["own", "equal"]
    sparsity: float
    relative: bool = field(metadata=derived("the options model and sparsity"))
    proximity: float
    variant: Literal["default", "paper"]


CONTRACT = Contract(
    "fedcausal",
    (GROUP, LINEAR, NORMS, LAYERS, EVIDENCE, LOCAL),
    reports=("sums", "relations", "interventions"),
    options=FedCausalPartyOptions,
)
