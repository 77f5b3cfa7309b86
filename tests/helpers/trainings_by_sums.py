"""Trainings by sums, exchange by exchange, with parties in one process."""

from flwr_causal.core.circuits.learners.training_by_sums import add


def walked(training, plan, parties):
    """Return what a training finds, and its requests with the replies of the parties."""
    seen, summed = [], None
    while True:
        try:
            asked = training.send(summed)
        except StopIteration as end:
            return end.value, seen
        replies = [asked.exchange.sums(values, plan, asked.arrays) for values in parties]
        seen.append((asked, replies))
        summed = add(replies)


def reached(training, plan, parties, kind):
    """Return the first request of a kind of exchange."""
    asked = next(training)
    while not issubclass(asked.exchange, kind):
        sums = add(asked.exchange.sums(values, plan, asked.arrays) for values in parties)
        asked = training.send(sums)
    return asked


def names_of(seen):
    """Return the names of the exchanges that `walked` returns."""
    return [asked.exchange.name for asked, _ in seen]


def check_arrays(seen):
    """Arrays that were sent both ways are finite, and of float64."""
    for asked, replies in seen:
        for arrays in (asked.arrays, *replies):
            for array in arrays.values():
                assert array.dtype == "float64"
                assert abs(array).max(initial=0.0) < float("inf")
