"""The exchanges of Moments (Ng & Zhang 2022, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import DIFFERENT, POOLED, When
from flwr_causal.core.blocks.design import Category, functions_of
from flwr_causal.core.blocks.logistic import diagonals, families
from flwr_causal.core.blocks.logistic import sizes as logistic_sizes
from flwr_causal.core.blocks.normal_scores import CELLS
from flwr_causal.core.folds import NUM_FOLDS
from flwr_causal.core.options import within
from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import FederationError
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import DesignPartyOptions, derived
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.protocol.release import OCTAVES, PRIVATE, RELEASE, private_dimensions
from flwr_causal.protocol.second_moments import (
    SCORES,
    num_columns,
    num_sets,
    sends_levels,
    sent_design,
)
from flwr_causal.secure.unmasking import CONFIRMATION, UNMASKING
from flwr_causal.sources.by_party import PARTS
from flwr_causal.sources.completed import ESTIMATE, EXPECTED, OWN, SEEN
from flwr_causal.sources.normal_scores import RANKS
from flwr_causal.sources.sums import SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.blocks.logistic import Family
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup


@dataclass(frozen=True, kw_only=True)
class MomentsPartyOptions(DesignPartyOptions):
    """How the parties prepare their rows, and what they sum.

    Parameters
    ----------
    model : {"linear", "additive", "curved"}
    num_folds : int
        Number of folds of the rows; it is bounded, since sums over few rows would show rows.
    select_order : bool
    parameters : {"moments", "likelihood"}
    scale : {"data", "normal-scores"}
    level_sums : bool
        Whether the products of the means of units are sent, beside those of rows.
    """

    model: Literal["linear", "additive", "curved"]
    parameters: Literal["moments", "likelihood"]
    scale: Literal["data", "normal-scores"]
    num_folds: int = field(
        metadata={
            **derived("2 or more where something is chosen by held-out rows"),
            **within(least=1, most=NUM_FOLDS),
        }
    )
    select_order: bool
    level_sums: bool = field(
        metadata=derived("where center='auto' or 'party' can be followed by sums")
    )

    @property
    def fewer_lags(self) -> int:
        """The number of smaller orders, from 1, whose moments are sent: to choose among them."""
        return self.order - 1 if self.select_order else 0

    @property
    def levels(self) -> bool:
        """Whether the products of the means of units are sent, beside those of rows."""
        return self.level_sums

    @property
    def scores(self) -> bool:
        """Whether numbers are normal scores."""
        return self.scale == "normal-scores"

    @property
    def functions(self) -> int:
        """The number of functions of each number."""
        return functions_of(self.model)

    @property
    def folds(self) -> int:
        """The number of folds of the rows."""
        return self.num_folds


# Which runs have which sums: of the rows of each party, ...
_OF_ROWS = ~DIFFERENT & ~PRIVATE
# ... by party, ...
_COMPARES = When(unknown_targets=True) | When(local_graphs=True)
# ... and of rows with missing cells.
_INCOMPLETE = When(missing_values="em")

_RANKS = replace(RANKS, when=_OF_ROWS & When(scale="normal-scores"))
_SUMS = replace(SUMS, when=_OF_ROWS & ~_COMPARES & ~_INCOMPLETE)
_PARTS = replace(PARTS, when=_OF_ROWS & _COMPARES)
_SEEN = replace(SEEN, when=_OF_ROWS & ~_COMPARES & _INCOMPLETE)
_OWN = replace(OWN, when=_SEEN.when & When(unshared_columns="keep", order=0) & ~POOLED)
_EXPECTED = replace(EXPECTED, when=_SEEN.when)


def regressed(sent: Mapping[str, Any], setup: Setup) -> list[Family]:
    """Return the categories whose regressions are asked for, with their causes.

    Raises
    ------
    FederationError
        If there is none, one is asked for twice, is no category, has no causes, or is among them.
    """
    blocks, ends = sent_design(setup).variables, np.cumsum(sent["sizes"], dtype=np.int64)
    causes = np.split(np.asarray(sent["causes"]), ends[:-1])
    members = [
        (int(child), tuple(own.tolist()))
        for child, own in zip(sent["categories"], causes, strict=False)
    ]
    if not members or len(set(members)) < len(members):
        raise FederationError("The server asked for no regression, or for one of them twice.")
    for child, own in members:
        if not isinstance(blocks[child], Category) or not own or child in own:
            raise FederationError(
                "The server asked for a regression that there is not: of a number, of a category "
                "without causes, or on itself."
            )
    return families(blocks, members)


def _sizes_of_regressions(sent: Mapping[str, Any], setup: Setup) -> dict[str, int]:
    return logistic_sizes(regressed(sent, setup))


def _impossible_regressions(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether means of log-likelihoods or their curvatures cannot be, in words."""
    if (arrays["log-likelihoods"] > 0).any():
        return "a log-likelihood of states is above 0"
    asked = regressed(known.sent, known.setup)
    if (diagonals(asked, arrays["information"]) < 0).any():
        return "the information of a regression is negative"
    return ""


def _largest_regressions(setup: Setup) -> float | None:
    """Return the bound of means of the regressions; of missing causes none is known."""
    return None if setup.handling.missing_values == "em" else 1.0


REGRESSIONS = Exchange(
    "regressions",
    "one Newton step of the logistic regressions of categories on their causes, in all graphs near "
    "the best Gaussian score, among which the likelihood chooses",
    sends=(
        Sent(
            "categories",
            "the category of each regression that has not converged",
            ("c",),
            values="index",
            below="d",
        ),
        Sent("sizes", "how many causes it has", ("c",), values="index"),
        Sent(
            "causes",
            "its causes, regression after regression",
            ("*",),
            values="index",
            below="d",
            parts="sizes",
        ),
        Sent("weights", "its coefficients, regression after regression", ("b",), exact=True),
        *(replace(one, optional=True) for one in ESTIMATE),
        SCORES,
    ),
    returns=(
        Disclosure(
            "log-likelihoods",
            "sum_i log p(y_i | x_i) / n_k of each regression; under interventions, here and below, "
            "of the rows in which the category is no target",
            ("c",),
            combine="mean",
        ),
        Disclosure(
            "gradient",
            "its derivatives by the coefficients: sum_i x_i (1{y_i = a} - p_a(x_i)) / n_k, where "
            "x_i is 1 and the columns of the causes; with missing_values='em' of rows in which the "
            "category is seen, with missing causes as weighted points",
            ("b",),
            combine="mean",
            bound=_largest_regressions,
        ),
        Disclosure(
            "information",
            "minus its second derivatives, for each regression the upper triangle: "
            "sum_i x_i x_i^T p_a(x_i) (1{a = b} - p_b(x_i)) / n_k",
            ("v",),
            combine="mean",
            bound=_largest_regressions,
        ),
    ),
    timing="2 to 8 times, with categories that may have causes",
    most=16,
    when=_OF_ROWS & ~_COMPARES & When(parameters="likelihood"),
    same_parties=True,
    contradiction=_impossible_regressions,
    derived=_sizes_of_regressions,
)


def dimensions(setup: Setup) -> dict[str, int]:
    """Return the sizes: w columns of the design, s with the ones, and sets of rows.

    Rows are divided into folds if something is chosen by held-out error, and by their targets under
    known interventions. If the order is chosen, the array of each smaller order counts as a further
    array of "folds", and so do the products of the means of units.
    """
    options: MomentsPartyOptions = setup.options
    if options.guarantee:
        return private_dimensions(setup)
    w, further = num_columns(setup), options.fewer_lags + sends_levels(setup)
    sets = num_sets(setup)
    return {"w": w, "s": 1 + w, "sets": sets, "folds": sets + further, "cells": CELLS}


def takes_blocks(options: Any, text_columns: str) -> bool:
    """Return whether a variable is a block of columns: a category, or functions of a number."""
    return text_columns == "keep" or options.model == "curved"


def _completed(options: Any, handling: Handling) -> Handling:
    """Return the handling by which parties name states of blocks, and never values of numbers."""
    blocks = takes_blocks(options, handling.text_columns)
    usual = Handling()
    return replace(
        handling,
        names_states=blocks,
        max_states=usual.max_states,
        discretize=2 if blocks else usual.discretize,
        number_states=1 if blocks else usual.number_states,
    )


CONTRACT = Contract(
    "moments",
    (
        _RANKS,
        _SUMS,
        _PARTS,
        _SEEN,
        _OWN,
        _EXPECTED,
        REGRESSIONS,
        OCTAVES,
        RELEASE,
        ALIGN,
        MASKED_TABLES,
        PRODUCTS,
    ),
    dimensions,
    ("sums", "relations", "states", "series", "interventions", "ids"),
    private=(OCTAVES, RELEASE, CONFIRMATION, UNMASKING),
    options=MomentsPartyOptions,
    completes=_completed,
)
