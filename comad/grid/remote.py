"""Make the runs of a grid on a Ray cluster: each is a task that runs the same command, in a folder that all machines share.

A run whose machine or worker dies is started again by Ray and goes on from its last checkpoint. The code, the data and the folder of
results must be at the same place on all machines.
"""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comad.errors import UserError
from comad.files import make_folder
from comad.grid.cells import Cell
from comad.grid.local import Command, Ended, Event, Started, Waited, environment, judge, last_line, open_log
from comad.ranges import Units, ranged

PATIENCE = 10.0
"""Seconds in which a cluster must answer."""
RETRIES = 3
"""How often a run is started again when its worker has died."""


@dataclass(frozen=True)
@ranged
class Needs:
    """What a run takes of a machine."""

    cpus: Units = 1.0
    gpus: Units = 0.0


def make(command: Sequence[str], log: str, cores: int) -> tuple[int, str]:
    """Make one run where Ray has put it, with what Ray has set there; its exit code and the last thing it said."""
    make_folder(Path(log).parent)
    with open_log(Path(log)) as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(cores))
        try:
            code = process.wait()
        finally:
            if process.poll() is None:  # cancelled: the run saves itself
                process.terminate()
                process.wait()
    return code, last_line(Path(log))


def run_on_ray(
    cells: Sequence[Cell], command: Command, log: Any, address: str, needs: Needs, cores: int = 1, pause: float = 1.0
) -> Iterator[Event]:
    """Make all runs, telling what happens; if it is abandoned, runs are cancelled and save themselves."""
    ray = connect(address)
    task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=RETRIES)(make)

    def submit(cell: Cell) -> Any:
        return task.remote(list(command(cell)), str(log(cell)), cores)

    attempts = dict.fromkeys(cells, 1)
    pending = {submit(cell): cell for cell in cells}
    try:
        for cell in cells:
            yield Started(cell, 1)
        while pending:
            ready, _ = ray.wait(list(pending), timeout=pause)
            for reference in ready:
                cell = pending.pop(reference)
                ended = result(ray, reference, cell, attempts[cell] < 2)
                if ended.outcome == "crashed":
                    attempts[cell] += 1
                    pending[submit(cell)] = cell
                yield ended
                if ended.outcome == "crashed":
                    yield Started(cell, attempts[cell])
            yield Waited()
    finally:
        for reference in pending:
            ray.cancel(reference)
        ray.shutdown()


def result(ray: Any, reference: Any, cell: Cell, again: bool) -> Ended:
    """How a task has ended, worker deaths beyond all retries included."""
    try:
        code, said = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Ended(cell, "crashed" if again else "failed", str(error).splitlines()[0])
    return judge(cell, code, said, again)


def connect(address: str) -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed here; pip install 'comad[ray]' brings it") from error
    try:
        knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"no Ray cluster answers at {address!r} ({str(error).splitlines()[0]}); 'ray start --head' starts one") from error
    return ray


def knock(address: str) -> None:
    """Fail at once where nobody listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), PATIENCE).close()
