"""What a party's door does with counts of few rows, by what the run has agreed on."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Treatment: TypeAlias = Literal["report", "suppress", "refuse"]


class SmallCounts(NamedTuple):
    """The options ``minimum_count`` and ``small_counts``.

    Attributes
    ----------
    minimum : int
        The fewest rows behind a count, or behind a sum over some of the rows.
    treatment : {"report", "suppress", "refuse"}
        Whether counts of fewer rows leave a party as they are, leave it as 0, or the party refuses
        its reply.
    """

    minimum: int = 0
    treatment: Treatment = "report"

    @property
    def withheld(self) -> int:
        """The fewest rows of what a party withholds from a table; 0 if it withholds nothing."""
        return self.minimum if self.treatment == "suppress" else 0

    @property
    def refusal(self) -> str:
        """Why a reply was not sent, to be put after what it holds."""
        return (
            f"counts or sums of fewer than {self.minimum} rows, the option 'minimum_count', and "
            "small_counts='refuse': join rare states or groups, run with small_counts='suppress', "
            "or with secure_aggregation=True where the method has it"
        )


#: Counts leave as they are.
REPORT = SmallCounts()
