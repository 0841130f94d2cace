"""`comad watch`: the report of runs that go on, in the browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from comad.cli.commands import command, departures
from comad.cli.terminal import show_lines
from comad.errors import UserError
from comad.ranges import Range, ranged
from comad.reports.serve import HOST, serve


@dataclass(frozen=True)
@ranged
class Watch:
    """Serve the report of runs on this machine, kept up to date while they go on; nothing can be changed through it."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders with runs, at any depth."""
    port: Annotated[int, Range(least=0, most=65535)] = 8000
    """Where to listen; 0 takes a free one."""

    def run(self) -> None:
        """Serve until told to stop."""
        if not self.runs:
            raise UserError("nothing to watch; give the folder in which runs lie")
        with serve(self.runs, self.port, command, departures) as server:
            show_lines([f"http://{HOST}:{server.server_address[1]}/ shows {', '.join(map(str, self.runs))}; Ctrl-C ends it"])
            server.serve_forever()
