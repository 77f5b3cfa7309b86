"""What parties have agreed on, as the checks of their replies read it."""

from types import SimpleNamespace

from flwr_causal.data.check.handling import Handling


def agreed(names, states, mean, variance, *, missing_values="fail", **options):
    """An agreement on these columns, with options of a linear method without lags."""
    usual = {
        "center": "global",
        "standardize": False,
        "functions": 1,
        "folds": 1,
        "lags": 0,
        "levels": False,
        "weighted": False,
        "scores": False,
    }
    return SimpleNamespace(
        names=names,
        states=states,
        mean=mean,
        variance=variance,
        targets=(),
        handling=Handling(missing_values=missing_values),
        options=SimpleNamespace(**usual | options),
    )
