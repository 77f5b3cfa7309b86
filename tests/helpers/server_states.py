"""The states of a core's server during a run."""

from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def states_of(core):
    """Give a list of the states that ``core.server_step`` returns meanwhile."""
    states, step = [], core.server_step

    def server_step(*arguments):
        state, info = step(*arguments)
        states.append(state)
        return state, info

    with patch.object(core, "server_step", server_step):
        yield states
