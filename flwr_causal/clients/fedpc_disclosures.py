"""Everything that leaves a party of FedPC after the schema exchange, by phase."""

from __future__ import annotations

from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class
from flwr_causal.data.check.row_ids import HASH_BYTES
from flwr_causal.protocol.wire import Disclosure

__all__ = ["DISCLOSURES"]


def _declared(phase: str, **arrays: tuple[str, int]) -> tuple[Disclosure, ...]:
    """Return what leaves in a phase: name to meaning and number of axes."""
    return tuple(
        Disclosure(name, meaning, ("*",) * axes, phase=phase)
        for name, (meaning, axes) in arrays.items()
    )


LOCAL = {
    "rows": ("rows that each circuit was trained on", 1),
    "sizes": ("circuits of each group of columns", 1),
}
EVIDENCE: dict[str, dict[str, tuple[str, int]]] = {
    "counts": {},
    "classes": {"classes": ("rows of each class in each cluster", 2)},
    "aligned": {"labels": ("cluster of each common row", 2)},
    "em": {"densities": ("log density of each common row in each cluster", 2)},
}
JOINT = ("log density of each common row under each component", 2)
CIRCUITS = {"circuits": ("structure and parameters of the circuits", 1)}


DISCLOSURES: tuple[Disclosure, ...] = (
    *_declared("cuts", counts=("rows up to each threshold", 2)),
    Disclosure("hashes", "keyed hashes of the ids", ("*", HASH_BYTES), phase="align"),
    *(
        item
        for end, more in (("", {}), (" central", CIRCUITS))
        for weights, evidence in EVIDENCE.items()
        for item in _declared(f"local {weights}{end}", **LOCAL, **evidence, **more)
    ),
    *_declared("joint start", densities=JOINT),
    *_declared("joint products", densities=JOINT),
    *_declared("joint trees central", **CIRCUITS),
    *(
        Disclosure(one.name, one.meaning, ("*",) * len(one.shape), phase=f"{name} {step}")
        for name in BY_SUMS
        for step, exchange in learner_class(name).steps.items()
        for one in exchange.summed
    ),
    *(
        item
        for phase in ("densities", "classes", "peaks")
        for item in _declared(phase, densities=("log densities, by class, row and circuit", 3))
    ),
    *_declared("moments", moments=("part of the mean and mean square of a number", 2)),
    *_declared(
        "filled",
        values=("synthetic values for what is missing", 2),
        known=("where there are any", 2),
    ),
)
