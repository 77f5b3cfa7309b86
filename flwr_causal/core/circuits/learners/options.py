"""The options of the learners that users of FedPC can set, with their defaults.

Each class is a base of its learner and, through `LearnerOptions`, of the options of FedPC. A new
option is one field here and its use in the learner. Parameters that are not options of FedPC
(grids, strengths) are fields of the learner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar

from flwr_causal.core.options import MOST, bounded
from flwr_causal.core.parts import Part
from flwr_causal.errors import ConfigError

OptionsT = TypeVar("OptionsT")

#: Leaves of numbers, see :class:`SpnOptions`.
NumericLeaf: TypeAlias = Literal["auto", "gaussian", "histogram"]


@dataclass(frozen=True, kw_only=True)
class HeadSwitch(Part):
    """Whether a head predicts the class.

    Parameters
    ----------
    head : bool or "auto", default "auto"
        Whether a logistic head on log densities predicts the class, in place of the circuit; the
        density is the same. "auto" trains both, and held-out rows choose, which takes five to ten
        exchanges more (with trees one more). Without a target, in one pass, and where parties hold
        different columns there is no head.
    """

    text = (
        "learner='class-conditional' or 'trees' with training='sums' of parties that hold the same "
        "columns and a target"
    )

    head: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class HeadOptions(HeadSwitch):
    """How class-conditional circuits and trees predict the class.

    Parameters
    ----------
    decision : {"most-probable", "macro-f1"}, default "most-probable"
        Of two classes, whether the second is predicted where it is the more probable one, or from
        the probability on that has the best macro F1 on training rows (for rare classes), which
        takes one exchange more.
    """

    text = HeadSwitch.text

    decision: Literal["most-probable", "macro-f1"] = "most-probable"


@dataclass(frozen=True, kw_only=True)
class TreesOptions(Part):
    """Size of a mixture of Chow-Liu trees.

    Parameters
    ----------
    components : int, optional
        Learner "trees": trees of a mixture, for each class. Default: by the number of rows.
    """

    text = "learner='trees'"

    components: int | None = bounded(None, least=1, most=MOST)


@dataclass(frozen=True, kw_only=True)
class EinsumSize(Part):
    """Size and training of an Einsum network.

    Parameters
    ----------
    depth : int, default 4
        Learner "einsum": splits from the root to the leaf regions; fewer where columns are few.
    replicas : int, default 5
        Learner "einsum": random region graphs.
    sums : int, default 10
        Learner "einsum": sums of each region, and units of each column; in the paper 10 to 40.
    epochs : int, default 10
        Learner "einsum": passes over the rows.
    image : str, default ""
        Learner "einsum": height and width such as "28x28", where the columns but the target are
        the pixels, row after row: regions are then rectangles, and all pixels are divided by the
        same number. Empty: the columns are not pixels.
    """

    text = "learner='einsum'"

    depth: int = bounded(4, least=1, most=MOST)
    replicas: int = bounded(5, least=1, most=MOST)
    sums: int = bounded(10, least=1, most=MOST)
    epochs: int = bounded(10, least=1, most=MOST)
    image: str = ""

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width; None where columns are not pixels.

        Raises
        ------
        ConfigError
            If ``image`` has another form.
        """
        if not self.image:
            return None
        found = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", self.image)
        if found is None:
            raise ConfigError(f"image must be height and width such as '28x28', got {self.image!r}")
        return int(found[1]), int(found[2])


@dataclass(frozen=True, kw_only=True)
class EinsumOptions(EinsumSize):
    """Size and training of an Einsum network by sums.

    Parameters
    ----------
    batches : int, default 5
        Learner "einsum" by sums: parts into which a pass over the rows is divided, one exchange
        each. With 50 exchanges, 50 passes of 1 part have -16.1 nats on plants (17,412
        rows) and 10 of 5 have -17.6, but -13.4 and -11.4 on 450 rows of six columns.
    """

    text = "learner='einsum' with training='sums'"

    batches: int = bounded(5, least=1, most=MOST)


@dataclass(frozen=True, kw_only=True)
class SpnOptions(Part):
    """How LearnSPN finds the structure of a circuit.

    Parameters
    ----------
    blocks : bool, default True
        Learner "spn": whether to try leaves over several correlated numbers. The paper's leaves are
        over one column each.
    correlation : float, optional
        Learner "spn": threshold on the maximal correlation, above which columns are dependent. In
        the paper 0.3 to 0.5, of randomized dependence coefficients (RDC). Default: a test of
        independence.
    split_rows : float, default 60
        Learner "spn": nodes with fewer rows become leaves. In the paper 50 to 300.
    class_root : bool, default True
        Learner "spn": whether the root is a sum over the classes, which separates these better. In
        the paper the class is a column like the others.
    leaves : {"auto", "gaussian", "histogram"}, default "auto"
        Learner "spn": leaves of numbers; "auto" chooses by the leave-one-out log-likelihood. With
        ``variant="paper"`` "gaussian".
    least_deviation : float, default 0
        Learner "spn": least standard deviation of a normal leaf, in units of its column. With 1 and
        standardised columns the paper's circuits have the densities of its table 1 on breast cancer
        and Credit (docs/figures/papers.md); the paper states no such bound.
    """

    text = "learner='spn'"

    blocks: bool = True
    correlation: float | None = bounded(None, least=0, below=1)
    split_rows: float = bounded(60.0, above=0)
    class_root: bool = True
    leaves: NumericLeaf = "auto"
    least_deviation: float = bounded(0.0, least=0)

    def check_leaves(self) -> None:
        """Check that a least standard deviation has normal leaves that it bounds.

        Raises
        ------
        ConfigError
            If there are none.
        """
        if self.least_deviation and self.leaves == "histogram":
            raise ConfigError(
                f"least_deviation={self.least_deviation:g} bounds normal leaves, and with "
                "leaves='histogram' there are none: leave one of the two options out"
            )


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(SpnOptions, EinsumOptions, TreesOptions, HeadOptions):
    """The options of all learners, of which each learner takes its own.

    Examples
    --------
    >>> from flwr_causal.core.circuits.learners.options import LearnerOptions
    >>> LearnerOptions(depth=3).depth
    3
    """


def taken(kind: type[OptionsT], options: LearnerOptions, **further: Any) -> OptionsT:
    """Return a dataclass, such as a learner, with its part of the learners' options.

    Parameters
    ----------
    kind : type
        A dataclass; other fields keep their defaults.
    options : LearnerOptions
    **further
        Values of other fields.
    """
    known = {one.name for one in fields(LearnerOptions)}
    values = {one.name: getattr(options, one.name) for one in fields(kind) if one.name in known}  # type: ignore[arg-type]
    return kind(**values, **further)
