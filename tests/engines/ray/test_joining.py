"""Ray on this machine: reached from this machine alone, private, and gone with its driver, however that ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raying import alive, descendants, linux, needs_ray, wait_until

DRIVER = """
import sys, time
from pathlib import Path
from lesion.engines.ray.joining import connected, ray_module

with connected(None):
    ray = ray_module()
    ray.get(ray.remote(lambda: 1).remote())
    print(ray._private.worker._global_node.get_temp_dir_path(), flush=True)
    sys.stdin.read()
"""


@needs_ray
@linux
@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_ray_listens_on_the_loopback_in_private_folders_and_ends_with_its_driver(end):
    psutil = pytest.importorskip("psutil")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", DRIVER], text=True, **pipes) as driver:
        try:
            folder = Path(driver.stdout.readline().strip()).parent
            time.sleep(3)  # agents open their ports a little later
            processes = descendants(driver.pid)
            titles = " ".join(processes.values())
            for part in ("raylet", "gcs_server", "DashboardAgent", "RuntimeEnvAgent", "reaper.py"):
                assert part in titles, driver.stderr.read() if driver.poll() else titles
            listening = [
                connection.laddr.ip
                for process in (driver.pid, *processes)
                for connection in psutil.Process(process).net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            ]
            assert len(listening) > 4
            assert {address.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}
            assert {place.stat().st_mode & 0o077 for place in (folder, *filter(Path.is_dir, folder.rglob("*")))} == {0}
            workers = [pid for pid, title in processes.items() if title.startswith("ray::") and "Agent" not in title]
            assert workers
            # On a busy machine a nicer process would hardly be run.
            assert {psutil.Process(pid).nice() for pid in workers} == {psutil.Process(driver.pid).nice()}
            if end is None:
                driver.stdin.close()
            else:
                driver.send_signal(end)
            driver.wait(60)
            wait_until(lambda: not any(map(alive, processes)) and not folder.exists(), "everything has ended", 20)
            assert driver.stderr.read() == ""
        finally:
            driver.kill()
