"""The centralised solvers, for data that may be pooled and for comparisons.

>>> from flwr_causal.solvers import notears
>>> graph = notears(frame)  # doctest: +SKIP

Each takes an array of shape ``(n, d)`` or anything with ``.columns``, such as a DataFrame:

- `order_search`, `notears`, `dagma`: a linear DAG; they also take ``SampleMoments``.
- `pag_search`: a linear system with hidden common causes, as a partial ancestral graph; likewise.
- `lingam`: a linear DAG whose noise is not Gaussian, with all directions.
- `notears_mlp`: a nonlinear DAG by perceptrons; needs the extra ``torch``.
- `ges`: the equivalence class of a Bayesian network, or of a linear Gaussian model, or of both.
- `block_search`: the equivalence class of numbers and categories, also with curved effects.
- `fuse`: the union of several DAGs along a common order.
- `learn_spn`: a probabilistic circuit; its ``log_likelihood(frame)`` has the shape ``(n,)``.

A solver is imported when it is first used, and runs with one BLAS thread.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from flwr_causal.core.threads import single_threaded
from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.core.blocks.pag import pag_search
    from flwr_causal.core.blocks.search import block_search
    from flwr_causal.core.circuits.learners.spn.learn_spn import learn_spn
    from flwr_causal.core.ges.fusion import fuse
    from flwr_causal.core.ges.ges import ges
    from flwr_causal.core.linear.dagma import dagma
    from flwr_causal.core.linear.lingam import lingam
    from flwr_causal.core.linear.notears import notears
    from flwr_causal.core.linear.stability import order_search
    from flwr_causal.core.nonlinear.notears_mlp import notears_mlp

__all__ = [
    "block_search",
    "dagma",
    "fuse",
    "ges",
    "learn_spn",
    "lingam",
    "notears",
    "notears_mlp",
    "order_search",
    "pag_search",
]

_HOMES = {
    "block_search": "flwr_causal.core.blocks.search",
    "dagma": "flwr_causal.core.linear.dagma",
    "fuse": "flwr_causal.core.ges.fusion",
    "ges": "flwr_causal.core.ges.ges",
    "learn_spn": "flwr_causal.core.circuits.learners.spn.learn_spn",
    "lingam": "flwr_causal.core.linear.lingam",
    "notears": "flwr_causal.core.linear.notears",
    "notears_mlp": "flwr_causal.core.nonlinear.notears_mlp",
    "order_search": "flwr_causal.core.linear.stability",
    "pag_search": "flwr_causal.core.blocks.pag",
}

_find, __dir__ = lazily(__name__, _HOMES)


@cache
def __getattr__(name: str) -> Any:
    solver = single_threaded()(_find(name))
    solver.__module__ = __name__  # where pickle finds it
    return solver
