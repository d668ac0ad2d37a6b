"""Ray's own process on this machine, the raylet: soon after its end Ray ends the driver, and does not say why."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from lesion.engines.ray.joining import ray_module
from lesion.errors import LesionError

# Seconds between two looks at it, and until a look is given up.
EVERY = 2.0
PATIENCE = 1.0


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
        if time.monotonic() - self.looked < EVERY:
            return False
        self.looked = time.monotonic()
        return self.listens() is False

    def listens(self) -> bool | None:
        """Whether anything listens there; None where that is unknown, as of one that is slow to answer."""
        try:
            socket.create_connection((self.host, self.port), timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            return None
        return True
