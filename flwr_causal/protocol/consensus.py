"""Exchanges of NOTEARS-ADMM, NOTEARS-MLP-ADMM (Ng & Zhang 2022) and 2Dbn (Chen et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import When
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import (
    InterventionPartyOptions,
    PerceptronPartyOptions,
    PrivatePartyOptions,
    SeriesPartyOptions,
)
from flwr_causal.protocol.replay import REPLAY
from flwr_causal.protocol.second_moments import largest_weights, num_columns, num_sets
from flwr_causal.secure.totals import TOTALS
from flwr_causal.secure.unmasking import CONFIRMATION, UNMASKING
from flwr_causal.sources.by_party import PARTS as COMPARED
from flwr_causal.sources.sums import SUMS

if TYPE_CHECKING:
    from flwr_causal.protocol.setup import Setup

_OF_PERCEPTRONS, _PERSONALISED = When(model="mlp"), When(variant="personalised")
_LINEAR = (~_OF_PERCEPTRONS & ~_PERSONALISED).called("the linear model with common weights")
_REFITS = ~When(refit=False)

ROUND = Exchange(
    "round",
    "one round of consensus ADMM on weights",
    sends=(
        Sent(
            "weights",
            "W of each setting that is fitted in the same rounds; under known interventions its "
            "last row are intercepts",
            ("settings", "m", "d"),
        ),
        Sent("penalty", "rho_2 of this round"),
        Sent("relaxation", "factor of over-relaxation of B_k; 1 is the paper's"),
    ),
    returns=(
        Disclosure(
            "weights",
            "Z_k = B_k + beta_k / rho_2 (eqs. 7 and 10). The first one determines the party's "
            "second moments; under known interventions those of the rows [x, 1] in which each "
            "column is no target",
            ("settings", "m", "d"),
            combine="mean",
            bound=largest_weights,
        ),
    ),
    weight="one",
    timing="in every round",
    when=_LINEAR,
    remembered=True,
)

REFIT = replace(
    SUMS,
    name="refit",
    meaning="the sums from which the weights of the final graph are fitted by least squares",
    sends=(
        Sent(
            "needed",
            "1 among 1, each variable and its parents (with search: its possible parents and "
            "children), else 0; of the shape of the replies, from which wrappers take it",
            ("folds", "s", "s"),
        ),
    ),
    returns=(
        replace(
            SUMS.returns[0],
            meaning="X_k^T X_k / n_k of the rows [1, z] of each fold, under known interventions of "
            "each set of targets, among each variable and its parents in the final graph, with "
            "search among each variable and its possible parents and children; 0 elsewhere. z has "
            "a column for each number and its lags, as in the exchange 'sums' of moments",
            # Some are 0.
            values="products",
        ),
    ),
    timing="in the last exchange",
    when=_LINEAR & (_REFITS | When(sparsity=("bic", "held-out")) | When(select_order=True)),
    same_parties=False,
)

PARTS = replace(
    COMPARED,
    meaning="the second moments of each party's rows: the server looks for how they differ",
    sends=(),
    returns=(
        replace(
            COMPARED.returns[0],
            meaning="X_k^T X_k / n_k of the rows [1, z], the centred and scaled rows with their "
            "lags; of groups that add up securely the group's",
        ),
    ),
    timing="in the last exchange",
    most=1,
    when=_LINEAR & When(local_graphs=True),
    same_parties=False,
)

_NEAR = (
    Sent("weights", "V, the common weights: W on A_1, ..., A_p", ("m", "d")),
    Sent("sparsity", "lambda of the edges from each column of the design", ("m",)),
    Sent("proximity", "mu, the weight of the distance to V"),
    Sent("penalty", "rho of the augmented Lagrangian"),
)
PERSONALISED = Exchange(
    "personalised",
    "one round on weights of each party's own, near to the common ones",
    sends=_NEAR,
    returns=(
        Disclosure(
            "weights",
            "V_k = [W_k; A_k], the party's own weights before the threshold",
            ("m", "d"),
            combine="mean",
            bound=largest_weights,
        ),
    ),
    weight="one",
    timing="in every round",
    when=_PERSONALISED,
    remembered=True,
)
OWN_NETWORKS = Exchange(
    "own networks",
    "the network of each party beside the common one; the replies are kept by party",
    sends=(
        *_NEAR,
        Sent("graph", "the weights of the common graph, 0 where there is no edge", ("m", "d")),
        Sent("thresholds", "on the weights from each column of the design", ("m",)),
    ),
    returns=(
        Disclosure(
            "own-weights",
            "V_k above the threshold, W_k without the weakest edges of cycles",
            ("m", "d"),
        ),
        Disclosure(
            "support",
            "how much the party's rows support each edge of its own and the common graph, in nats",
            ("m", "d"),
        ),
        Disclosure(
            "own-shares",
            "squared partial correlation of each cause and the effect given the other causes in "
            "the party's own graph",
            ("m", "d"),
        ),
    ),
    timing="in the last exchange",
    most=1,
    when=_PERSONALISED,
)

PERCEPTRONS = Exchange(
    "perceptrons",
    "one round of consensus ADMM on the parameters of the perceptrons",
    sends=(
        Sent("parameters", "theta, of all d perceptrons", ("parameters",)),
        Sent("penalty", "rho_2 of this round"),
    ),
    returns=(
        Disclosure("parameters", "theta_k + beta_k / rho_2", ("parameters",), combine="mean"),
    ),
    weight="one",
    timing="in every round",
    when=_OF_PERCEPTRONS,
    remembered=True,
)

SLOPES = Exchange(
    "slopes",
    "the strengths of the edges, in units of the data",
    sends=(Sent("parameters", "theta, of all d perceptrons", ("parameters",)),),
    returns=(
        Disclosure(
            "slopes",
            "mean squares over the party's rows of df_j/dx_i",
            ("d", "d"),
            "non-negative",
            "mean",
        ),
    ),
    timing="in the last exchange",
    most=1,
    when=_OF_PERCEPTRONS & _REFITS,
)


@dataclass(frozen=True, kw_only=True)
class NotearsPartyOptions(PerceptronPartyOptions, PrivatePartyOptions, InterventionPartyOptions):
    """How the parties prepare and fit their rows."""


@dataclass(frozen=True, kw_only=True)
class TwoDBNPartyOptions(InterventionPartyOptions, SeriesPartyOptions):
    """How the parties prepare their rows, and which rows divide their loss."""

    variant: Literal["default", "paper", "personalised"]


def dimensions(setup: Setup) -> dict[str, int]:
    """Return m, the number of causes (d without lags), s of the rows [1, z], and that of sets.

    Under known interventions a constant is among the causes.
    """
    options: InterventionPartyOptions = setup.options
    m = len(setup.names) * (1 + options.lags) + bool(setup.targets)
    return {"m": m, "s": 1 + num_columns(setup), "folds": num_sets(setup)}


NOTEARS_ADMM = Contract(
    "notears-admm",
    (ROUND, REFIT, PERCEPTRONS, SLOPES, PARTS),
    dimensions,
    ("sums", "relations", "interventions"),
    private=(TOTALS, ROUND, REFIT, CONFIRMATION, UNMASKING, REPLAY),
    options=NotearsPartyOptions,
)
TWO_DBN = Contract(
    "2dbn",
    (ROUND, REFIT, PARTS, PERSONALISED, OWN_NETWORKS),
    dimensions,
    ("sums", "relations", "series", "interventions"),
    options=TwoDBNPartyOptions,
)
