"""Ray: started on this machine for as long as it is needed, or joined where it runs already, and looked after."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lesion.atomic import alive
from lesion.engines.config import EngineChoice
from lesion.engines.ray.placement import Node, cores_here, refuse_crowd
from lesion.errors import LesionError, UsageError

# Of Ray's own folder: what a socket's whole path may be (107 bytes), less what Ray puts behind the folder.
LONGEST_FOLDER = 40
_PREFIX = "lesion-ray-"
# For edits on their way to the workers; the machine's main memory holds it while Ray runs.
OBJECT_STORE_BYTES = 512 << 20
# The folder for Ray within ours, which alone keeps others out: Ray opens its own to everybody.
_INNER = "r"
# Seconds until an address that does not answer is given up.
PATIENCE = 8.0
_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
_ADVICE = (
    "Check that the cluster is up (`ray status` on its head node), that the address is that of its head node"
    " (HOST:6379, or ray://HOST:10001 from outside), that no firewall stands between and that you have its token"
    " (~/.ray/auth_token) where it asks for one."
)


def ray_module() -> Any:
    """Ray, which is imported when it is needed first."""
    import ray

    return ray


def _prepared(address: str | None) -> Any:
    """Ray with its settings in the environment, which it reads when it is imported.

    A token says who may use a cluster: one of our own for a Ray that is started here, else the person's own.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    stated = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if address is None:  # nobody reads its metrics, and what fails there would be printed on the terminal
        os.environ.setdefault("RAY_enable_metrics_collection", "0")
        # Ray's own 15 gives workers a tenth of a processor that others want, too.
        os.environ.setdefault("RAY_worker_niceness", "0")
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        if address is None and not stated:
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        if address is None or stated or (Path.home() / ".ray" / "auth_token").is_file():
            os.environ["RAY_AUTH_MODE"] = "token"
    return ray_module()


def look_ahead(choice: EngineChoice) -> None:
    """Find out what is wrong with a choice of workers before anything is started or imported."""
    if choice.ray is None:
        refuse_crowd(choice, cores_here(), "this machine")
    elif choice.ray != "auto":
        _probe(choice.ray)


@contextmanager
def connected(address: str | None) -> Iterator[list[Node]]:
    """Ray on this machine (None) or at an address, until the `with` ends; the machines it has.

    Where this process has connected to Ray already, that is used, and left as it is.
    """
    ray = _prepared(address)
    if ray.is_initialized():
        yield nodes()
    elif address is None:
        with _started(ray):
            yield nodes()
    else:
        _join(ray, address)
        try:
            yield nodes()
        finally:
            ray.shutdown()


def nodes() -> list[Node]:
    """The machines of the cluster that are up."""
    machines = []
    for node in ray_module().nodes():
        if node["Alive"]:
            has = node["Resources"]
            machines.append(Node(node["NodeManagerHostname"], int(has.get("CPU", 0)), int(has.get("GPU", 0))))
    return machines


@contextmanager
def _started(ray: Any) -> Iterator[None]:
    folder = _folder()
    reaper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py")), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        try:
            with _signals_kept(), _on_loopback():
                ray.init(
                    address="local",
                    num_cpus=cores_here(),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(folder / _INNER),
                    **_QUIET,
                )
            for place in (folder, *filter(Path.is_dir, folder.rglob("*"))):
                place.chmod(0o700)
        except Exception as error:  # whatever Ray raises here
            raise LesionError(
                f"Ray cannot start on this machine ({_first_line(error)}). Try again; without --workers it is not"
                f" needed."
            ) from error
        _hush()
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        reaper.communicate()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """A Ray that starts within listens on the loopback alone; its own way of that, on by default on macOS and Windows.

    An address of the loopback given to `ray.init` would become that of the network.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _join(ray: Any, address: str) -> None:
    if address != "auto":
        _probe(address)
    try:
        with _signals_kept():
            ray.init(address=address, **_QUIET)
    except Exception as error:  # whatever Ray raises here
        if address == "auto":
            raise LesionError(
                "No Ray cluster runs on this machine: start one with `ray start --head`, or give the address of one,"
                " --ray HOST:6379."
            ) from error
        raise LesionError(f"Ray at {address} could not be joined ({_first_line(error)}). {_ADVICE}") from error
    _hush()


def _probe(address: str) -> None:
    """Find out quickly whether anything that could be Ray answers: Ray itself waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{address}' is not an address of Ray: give auto, HOST:PORT or ray://HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        reason = error.strerror or _first_line(error)
        raise LesionError(f"Nothing answers at {address} ({reason}). {_ADVICE}") from error
    if not _speaks(host, port):
        raise LesionError(f"What answers at {address} is not Ray. {_ADVICE}")


def _speaks(host: str, port: str) -> bool:
    """Whether a port speaks the protocol on which Ray's lies (gRPC); taken for granted where this cannot be tried."""
    try:
        import grpc
    except ImportError:  # comes with ray[client]
        return True
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True
    with contextlib.suppress(ValueError):
        host = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    channel = grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)])
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True


@contextmanager
def _signals_kept() -> Iterator[None]:
    """The handler of SIGTERM stays the same: Ray puts a handler there that aborts with a dump of the stack."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _hush() -> None:
    """Keep Ray from printing the death of a worker: one line says so where it is dealt with."""
    with contextlib.suppress(ImportError, AttributeError):
        from ray._private import worker

        if hasattr(worker, "print_to_stdstream"):
            worker.print_to_stdstream = lambda *_, **__: None


def _folder() -> Path:
    """A folder for Ray's sockets and logs; those that killed processes have left are removed."""
    place = Path(tempfile.gettempdir())
    name = f"{_PREFIX}{os.getpid()}-"
    if len(str(place / name)) + 8 + len(f"/{_INNER}") > LONGEST_FOLDER and Path("/tmp").is_dir():
        place = Path("/tmp")
    for left in place.glob(f"{_PREFIX}*-*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not alive(owner):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=name, dir=place))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


# Seconds between two looks at it, and until a look is given up.
LOOK_EVERY = 2.0
LOOK_PATIENCE = 1.0


@dataclass
class Raylet:
    """Its address, and when it was looked for last, by the monotonic clock."""

    host: str
    port: int
    looked: float = 0.0

    @classmethod
    def here(cls) -> Raylet | None:
        """The one that this process is connected to; None where that is out of reach."""
        ray = ray_module()
        mine = ray.get_runtime_context().get_node_id()
        for node in ray.nodes():
            if node["NodeID"] == mine:
                raylet = cls(node["NodeManagerAddress"], node["NodeManagerPort"])
                return raylet if raylet.listens() is True else None
        return None

    def look(self, address: str | None) -> None:
        """Look after it, now and then, where the person gave this address of Ray."""
        if self.ended():
            first = "Start Ray there again and run" if address else "Run"
            raise LesionError(
                f"Ray's own process on this machine (the raylet) was killed or has crashed; the system may have ended"
                f" it for want of memory. Every answer so far is kept. {first} the same command again: the study goes"
                f" on."
            )

    def ended(self) -> bool:
        """Whether nothing listens there any more, looked up now and then."""
        if time.monotonic() - self.looked < LOOK_EVERY:
            return False
        self.looked = time.monotonic()
        return self.listens() is False

    def listens(self) -> bool | None:
        """Whether anything listens there; None where that is unknown, as of one that is slow to answer."""
        try:
            socket.create_connection((self.host, self.port), timeout=LOOK_PATIENCE).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            return None
        return True
