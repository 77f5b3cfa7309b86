"""Doubts about a run itself: who replied, which rows count, what others could learn.

The words are those of the code that sees the cause.
"""

from __future__ import annotations

from flwr_causal.data.check.rules import Notice

BEFORE: tuple[Notice, ...] = (
    Notice(
        "Whether a cell is missing depends on seen columns",
        'With `missing_values="em"`: the mean of a column differs between rows that have '
        "another one and rows that lack it",
        "Nothing: the estimate allows for it; where it depends on the missing value itself, "
        "no option helps",
    ),
    Notice(
        "Too few rows ... have both columns of ... pairs",
        'With `missing_values="em"`: fewer than 30, or than half of the mean over all pairs',
        "No edge between the two is looked for; `knowledge` may require one",
    ),
    Notice(
        "The moments of the rows with missing cells changed by ...",
        'With `missing_values="em"`: too little is seen of some columns together',
        "Leave out columns that few rows have",
    ),
    Notice(
        "The run was resumed after exchange ... without ...",
        "With `resume`: no connected node has the party's name",
        "Start its node: it takes part from the next exchange on. See "
        "[deployment](problems.md#resuming-a-run)",
    ),
    Notice(
        "The run began without ..., which gave no reply in the exchange of totals",
        "With `secure_aggregation`: the party gave no reply in the exchange of totals "
        "([dropouts](security.md#dropouts))",
        "Start the run again once it can answer",
    ),
    Notice(
        "... is connected, but was not in the run that is resumed",
        "With `resume`: a new name; it takes no part",
        "Give the node its former name; or start anew",
    ),
    Notice(
        "column ... is not used",
        'Dropped by an option such as `text_columns="drop"`',
    ),
)

AFTER: tuple[Notice, ...] = (
    Notice(
        "Mechanisms of two parties were compared",
        "`moments` with `unknown_targets=True` and two parties or groups: where they differ it is "
        "not known which of the two acts",
        "A third party",
    ),
    Notice(
        "The causes of ... still act under stated interventions on them",
        "`moments` with known interventions: as after a shift, not as if a value was set. These "
        "rows count where the causes are fitted",
    ),
    Notice(
        "Single parties decide much of the graph",
        "Their second moments differ from the others' by more than chance, and edges change "
        "without them; `moments`, see [influence](how_to/false_parties.md)",
        'Check their tables and units; leave them out; `aggregation="median"`',
    ),
    Notice(
        "... was ended after ... steps, its limit",
        "A search or a fit still changed something at a number of steps that it reaches "
        "only where rounding decides what is better, or where columns nearly determine each "
        "other; which one is named. What it had reached is the result; a party's own is in "
        "the log of its node",
        "Leave out columns that nearly follow from others",
    ),
    Notice(
        "... parties sent counts of fewer than ...",
        "Counts of few rows disclose values of single rows ([FedGES](fedges.md))",
        'Join rare states; `small_counts="suppress"`; `mode="scores"`, `parameters=False`',
    ),
    Notice(
        "... parties withheld counts of fewer than ...",
        '`small_counts="suppress"`: tables count fewer rows than there are '
        "([privacy](privacy/schema.md#small-counts))",
        'Join rare states; `mode="scores"`; `secure_aggregation=True` where the method has it',
    ),
    Notice(
        "The server has learned ... counts of fewer joined rows than minimum_count",
        "`fedges` over different columns: tables of pairs or triples of columns have cells "
        "of few rows",
        "Join rare states, or `max_parents=1`",
    ),
    Notice(
        "... parties have few rows for ... replicates",
        "`replicates` is more than a tenth of a party's rows: so many sums over the same "
        "rows disclose more of single rows than one ([privacy](privacy.md#replicates))",
        "Fewer replicates",
    ),
    Notice(
        "... replicates could not be fitted",
        "A resample that the method cannot use, such as one in which a column is constant; "
        "they do not count in the [confidence](confidence.md)",
        "More rows; join rare states",
    ),
    Notice(
        "Only ... of ... rows have all columns",
        '`moments` and `fedges` with `row_id`, `fedpc` with `training="triples"`: parties '
        "that hold different columns have different rows, too",
        "None, where rows lack by chance; else compare the parties' rows",
    ),
    Notice(
        "Values differ between ... and ... in rows that both have",
        "Two parties hold a column with different values for the same id: typing errors, "
        "other units, another date, fewer decimals. A product takes the values of one of "
        "them ([different columns](how_to/different_columns.md))",
        "Correct the tables, or leave the column out of all but one",
    ),
    Notice(
        "The moments of different rows contradict each other",
        "The same, and the matrix of moments was no possible one: its eigenvalues were raised",
        "Rows that all parties have (`missing_values` aside); fewer columns",
    ),
    Notice(
        "Some secure sums lack ...",
        "A party was missing from some sums of a run with `secure_aggregation`, and the "
        "difference of sums discloses something of it ([dropouts](security.md#dropouts))",
        "`quorum=1`, where this must not happen",
    ),
    Notice(
        "Group ... is missing from ... exchanges",
        "`secure_aggregation` with `groups`: too few parties of the group replied, or its "
        "sum was refused ([groups](security.md#groups))",
        "Larger groups; start the run again once all parties can answer",
    ),
    Notice(
        "The run began without ..., of which there are no totals",
        "`secure_aggregation` with `groups`, in the exchange of totals",
        "As above",
    ),
    Notice(
        "The federation has two parties",
        "Each party can subtract its own share from a sum and learns the other's",
        "More parties",
    ),
    Notice(
        "There is one party, and no training without it",
        "`leave_one_out=True` with one party, also where the others were lost",
        "More parties",
    ),
    Notice(
        "There is no Bayesian network",
        "`fedges`: a table would be too large, or the exchanges were used up",
        "`max_parents`, `max_rounds`",
    ),
    Notice(
        "... rows are not counted: fewer than ... (minimum_count)",
        '`fedpc` with `training="triples"`: of a class, few rows are among those that the '
        "same parties have",
        "Join rare classes to others, or lower `minimum_count`",
    ),
    Notice(
        "learner='class-conditional' takes columns of categories to be independent of all others",
        "`fedpc` with this learner, of tables with categories beside the target",
        '`learner="trees"`, or `"auto"`',
    ),
    Notice(
        "columns ... are taken for two",
        "`fedpc`: like names, and no party has both",
        "One name",
    ),
    Notice(
        "the mutual information of columns of different parties is ... nats a row",
        '`fedpc` over different columns: `weights="classes"` loses it',
        '`training="triples"`, which is the default with ids',
    ),
    Notice(
        "column ... has other values at ... than at ... in rows with the same id",
        "`fedpc` over different columns, where projections of the common rows are compared: "
        "ids that start at 0 at one party and at 1 at another",
        "Ids of one origin",
    ),
    Notice(
        "no party holds columns of different parties together",
        "`fedpc`: the rows cannot be aligned, or too few of them are common; the warning "
        "says which",
        "`row_id`, `row-secret`",
    ),
    Notice(
        "the dependence between ... is nonlinear",
        "`fedpc` over different columns: what the training counts is linear",
        '`training="triples"`, which is the default with ids',
    ),
)
