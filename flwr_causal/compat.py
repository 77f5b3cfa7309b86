"""Every private or version-dependent import from flwr, in one place.

A new Flower release that moves one of these names breaks this module and nothing else.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE, ErrorCode
from flwr.supercore.exit import add_exit_handler
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.run import Run as FlowerRun
from flwr.supercore.task_identity import TaskIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr.app import Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

__all__ = [
    "CLIENT_RAISED",
    "CLOCK_AHEAD",
    "CLOCK_BEHIND",
    "FLOWER_LOGGER",
    "NODE_UNAVAILABLE",
    "FlowerRun",
    "before_exit",
    "empty_run",
    "node_config_of",
    "own_identity",
    "own_run",
    "quiet",
    "raised_text",
    "registration_of",
    "run_on_ray",
    "set_message_id",
    "set_task_identity",
]

# A key and its value, as Flower finds them in the text of a node's configuration.
_PAIR = re.compile(r"""\S+?=(?:'[^']*'|"[^"]*"|\S+)""")
# What Flower makes of an exception of a ClientApp.
_RAISED = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*)'>", re.DOTALL)
CLIENT_RAISED: int = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
NODE_UNAVAILABLE: int = ErrorCode.NODE_UNAVAILABLE
#: A node whose clock is further ahead or behind, in seconds, is refused.
CLOCK_AHEAD: int = SYSTEM_TIME_TOLERANCE
CLOCK_BEHIND: int = SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE
SERVER_NODE_ID = 1

# core/ does not import Flower: its messages are logged by Flower's logger through the parent.
logging.getLogger("flwr_causal").parent = FLOWER_LOGGER


# Flower has one run in a process; several threads may each have a simulated one.
_run: ContextVar[int] = ContextVar("_run", default=0)


def set_task_identity(run_id: int) -> None:
    """Set the run of this thread; ``flwr.app.Message`` cannot be built without one."""
    _run.set(run_id)
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER_NODE_ID


def own_run() -> int:
    """Return Flower's number of the run of this thread or process; 0 outside of a run."""
    return _run.get() or TaskIdentity._run_id or 0


@contextmanager
def own_identity() -> Iterator[None]:
    """Give a run inside another one its own identity; the outer one is restored at the end."""
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    run = _run.get()
    try:
        yield
    finally:
        _run.set(run)
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


class _Levels:
    """The levels that blocks ask for, of all threads; the first is that outside of all blocks."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.asked: list[int] = []
        self.before = logging.NOTSET

    def set(self, asked: list[int]) -> None:
        if not self.asked:
            self.before = FLOWER_LOGGER.level
        self.asked = asked
        FLOWER_LOGGER.setLevel(max(asked, default=self.before))


_levels = _Levels()


@contextmanager
def quiet(level: int) -> Iterator[None]:
    """Silence the messages of Flower's logger below a level, as long as any thread asks for it."""
    with _levels.lock:
        _levels.set([*_levels.asked, level])
    try:
        yield
    finally:
        with _levels.lock:
            rest = list(_levels.asked)
            rest.remove(level)
            _levels.set(rest)


def before_exit(call: Callable[[], None]) -> None:
    """Let Flower call something before it ends this process, be it in the middle of a run.

    ``flwr stop`` ends a ServerApp by a signal; five seconds later the process is killed.
    """
    add_exit_handler(call, run_before_force_exit=True)


def set_message_id(message: Message, message_id: str, run_id: int) -> None:
    """Give a message the id that Flower's own engines would give it on its way, and its run."""
    message.metadata.__dict__["_message_id"] = message_id
    message.metadata.__dict__["_run_id"] = run_id


def empty_run(run_id: int) -> FlowerRun:
    """Return the run information that a ``Grid`` holds."""
    return FlowerRun.create_empty(run_id)


def run_on_ray(
    server_app: ServerApp,
    client_app: ClientApp,
    num_supernodes: int,
    backend_config: dict[str, Any] | None = None,
) -> None:
    """Run the two apps on Flower's Ray simulation engine in this process.

    The public ``flwr.simulation.run_simulation`` does the same but announces its removal on every
    call; ``flwr run`` needs an app directory, which objects in memory do not have.
    """
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    # Ray starts a worker for each core in advance, which Flower's actors, with an environment of
    # their own, do not use.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    _run_simulation(
        num_supernodes=num_supernodes,
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        client_app=client_app,
        server_app=server_app,
        backend_config=dict(backend_config or {}),
    )


def node_config_of(text: str) -> dict[str, Any]:
    """Return a node's configuration as ``flower-supernode --node-config`` reads it.

    Raises
    ------
    ValueError
        If it cannot be read, or holds a part that Flower leaves out without a word.
    """
    from click import ClickException
    from flwr.common.config import parse_config_args

    rest = "" if text.endswith(".toml") else _PAIR.sub(" ", text).strip()
    if rest:
        raise ValueError(f"'{rest.split()[0]}' is no key='value' without blanks around the '='")
    try:
        return dict(parse_config_args([text]))
    except (ClickException, OSError) as error:
        raise ValueError(str(getattr(error, "message", error))) from error


def registration_of(
    address: str, certificates: bytes | None, private_key: Any, *, insecure: bool
) -> str:
    """Return whether a SuperLink knows a node's key, without connecting the node.

    The request has an interval of heartbeats that is not possible: the SuperLink looks for the key
    first.

    Returns
    -------
    str
        "registered", "unknown", or why the SuperLink gives neither answer.
    """
    import httpx
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.error.base import ApiErrorCode, FlowerError
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    public = private_key.public_key()
    own = [NodeAuthHttpInterceptor(private_key, public)]
    request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=-1.0)
    try:
        with FleetHttpClient.from_server_address(address, insecure, certificates, own) as client:
            client.ActivateNode(request)
    except httpx.HTTPStatusError as error:
        answer = FlowerError.from_json(error.response.text)
        code = None if answer is None else answer.code
        known = {
            ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL: "registered",
            ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED: "unknown",
        }
        return next(
            (known[one] for one in known if one == code),
            f"status {error.response.status_code}",
        )
    except httpx.HTTPError as error:
        return str(error)
    return "registered"


def raised_text(reason: str | None) -> str:
    """Return the class and the words of what a ClientApp has raised, as Flower tells it."""
    text = reason or "unknown reason"
    told = _RAISED.search(text)
    return f"{told[1]}: {told[2]}" if told else text
