"""What is measured of FedPC on each table, the paper's figures for it, and the goals."""

from typing import NamedTuple

MANY_BINS = 64
# Learners that take numbers as they are.
ON_NUMBERS = ("spn", "decision-tree")
ONE_PASS = {"training": "one-pass"}
PAPER = {"training": "one-pass", "weights": "counts"}
HEAD = {"head": True}


class Case(NamedTuple):
    """One line of a table; ``how`` is horizontal (even), sorted, vertical or hybrid."""

    num_parties: int
    how: str
    options: dict
    paper: str = ""
    goal: tuple = ()  # log-likelihood and accuracy of the study beforehand, None: any

    @property
    def label(self):
        return ", ".join(f"{name}={value}" for name, value in self.options.items()) or "default"


def learner(name, **options):
    return ONE_PASS | {"learner": name} | options


CENTRAL = (
    Case(1, "horizontal", {}, "-38.9", (5.9, 0.967)),
    Case(1, "horizontal", HEAD, "", (5.9, 0.967)),
    Case(1, "horizontal", learner("spn")),
    Case(1, "horizontal", learner("decision-tree")),
)
HORIZONTAL = (
    *(
        Case(k, how, {}, paper if how == "horizontal" else "", (5.9, 0.967))
        for how in ("horizontal", "sorted")
        for k, paper in ((5, "-38.5; .98, .98"), (10, "; .95, .95"), (16, ""))
    ),
    Case(5, "horizontal", HEAD, "", (5.9, 0.967)),
    *(
        Case(k, "horizontal", ONE_PASS, "", goals)
        for k, goals in ((5, (0.7, 0.952)), (10, (-3.2, 0.950)), (16, (-7.9, 0.953)))
    ),
    Case(5, "sorted", ONE_PASS, "", (2.1, None)),
    *(
        Case(k, "horizontal", learner("spn"), paper)
        for k, paper in ((5, "-38.5; .98, .98"), (10, "; .95, .95"), (16, ""))
    ),
    *(
        Case(k, "horizontal", learner("decision-tree"), paper)
        for k, paper in ((5, "; .95, .93"), (10, ""), (16, ""))
    ),
)
VERTICAL = (
    Case(2, "vertical", {}, "-38.6; .96, .96", (-9.2, 0.962)),
    Case(3, "vertical", {}, "", (-14.7, 0.961)),
    Case(2, "vertical", {"weights": "em"}),
    Case(3, "vertical", {"weights": "em"}),
    Case(2, "vertical", PAPER, "-38.6; .96, .96"),
    Case(3, "vertical", PAPER),
    Case(2, "vertical", PAPER | {"learner": "spn"}, "-38.6; .96, .96"),
)
HYBRID = (
    Case(2, "hybrid", {}, "-38.7; .94, .94", (0.3, 0.961)),
    Case(2, "hybrid", ONE_PASS, "-38.7; .94, .94"),
    Case(2, "hybrid", {"weights": "aligned"}, "-38.7; .94, .94"),
    Case(2, "hybrid", PAPER, "-38.7; .94, .94"),
)
KEEP = {"missing_values": "keep"}
DROP = {"missing_values": "drop"}


def mixed_cases(num_parties, papers, keep):
    """Lines of a table with text, counts and numbers; the figures of the paper by setting."""
    told = HEAD | {"decision": "macro-f1"} | keep
    sorted_or_not = ("horizontal", "sorted")
    return (
        Case(1, "horizontal", keep),
        Case(1, "horizontal", told),
        *(Case(num_parties, how, keep, papers["horizontal"]) for how in sorted_or_not),
        *(Case(num_parties, how, told, papers["horizontal"]) for how in sorted_or_not),
        Case(num_parties, "horizontal", told | {"bins": MANY_BINS}, papers["horizontal"]),
        *(Case(num_parties, how, ONE_PASS | keep, papers["horizontal"]) for how in sorted_or_not),
        Case(num_parties, "horizontal", learner("spn", **keep), papers["horizontal"]),
        Case(
            num_parties,
            "horizontal",
            learner("decision-tree", **(DROP if keep else {})),
            papers["decision-tree"],
        ),
        Case(2, "vertical", keep, papers["vertical"]),
        Case(2, "vertical", PAPER | keep, papers["vertical"]),
        Case(2, "hybrid", keep, papers["hybrid"]),
    )


INCOME_PAPER = {
    "horizontal": "-11.4; .87, .80",
    "decision-tree": "; .89, .83",
    "vertical": "-11.9; .84, .74",
    "hybrid": "-12.0; .82, .71",
}
CREDIT_PAPER = {
    "horizontal": "-13.1; .93, .68",
    "decision-tree": "; .92, .67",
    "vertical": "-12.5; .92, .67",
    "hybrid": "-12.5; .92, .67",
}
