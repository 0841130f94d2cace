"""``python -m background``: starts the runner, stops it, halts it for a while, and shows how far all jobs are."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from background.jobs import Plan, read_plan
from background.runner import Runner, Wish, is_running, wish_for
from background.state import State, find_state
from comad.errors import UserError
from comad.files import make_folder, read_json
from comad.grid.local import last_line

PLAN = Path(__file__).with_name("jobs.toml")
REPOSITORY = Path(__file__).parents[1]
PATIENCE = 120.0
"""Seconds in which the runner does what is wanted."""


@dataclass(frozen=True)
class Background:
    """Work off long jobs at the lowest priority: one for each core, killed and started again at any time."""

    verb: Annotated[Literal["start", "run", "status", "stop", "pause", "continue", "land"], tyro.conf.Positional]
    """start: begin or go on, and return at once; run: the same, and stay; status: a table of all jobs;
    land: take finished policies into the package."""
    jobs: Path = PLAN
    """The file of jobs."""
    state: Path | None = None
    """Where jobs keep what they have; by default $COMAD_BACKGROUND, or a folder in the home folder."""
    repository: Path = REPOSITORY
    """The repository that holds the commits whose code the jobs run."""

    def run(self) -> None:
        """Does it."""
        state, plan = find_state(self.state), read_plan(self.jobs)
        if self.verb == "run":
            Runner(state, plan, self.repository).run()
        elif self.verb == "start":
            self.start(state, plan)
        elif self.verb == "status":
            from background.status import show_status  # tables take a second to import, which no runner needs

            show_status(state, plan)
        elif self.verb == "land":
            from background.land import land  # imports the learners of policies
            from comad.experts.library import SHIPPED

            for line in land(state, plan, SHIPPED):
                print(line)
        else:
            wishes: dict[str, Wish] = {"stop": "stop", "pause": "pause", "continue": "run"}
            tell(state, wishes[self.verb])

    def start(self, state: State, plan: Plan) -> None:
        """Starts the runner as a process of its own, which outlives this one."""
        if is_running(state):
            raise UserError(f"a runner works in {state.root} already; 'make background-status' shows its jobs")
        make_folder(state.root)
        wish_for(state, "run")
        words = [
            sys.executable,
            "-m",
            "background",
            "run",
            "--jobs",
            str(self.jobs.resolve()),
            "--state",
            str(state.root),
            "--repository",
            str(self.repository.resolve()),
        ]
        with state.log.open("ab") as log:
            process = subprocess.Popen(words, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait(lambda: process.poll() is not None or is_running(state), "start")
        if process.poll():
            raise UserError(f"the runner did not start: {last_line(state.log)}")
        print(f"works on {len(plan.jobs)} jobs in {state.root}; 'make background-status' shows them")


def tell(state: State, wish: Wish) -> None:
    """Tells the runner what is wanted, and waits until that is done."""
    if not is_running(state):
        raise UserError(f"no runner works in {state.root}; 'make background' starts one")
    wish_for(state, wish)
    wait(lambda: not is_running(state) or (wish != "stop" and doing(state) == wish), wish)
    print({"stop": "stopped", "pause": "halted; 'make background-continue' goes on", "run": "goes on"}[wish])


def doing(state: State) -> str:
    """Returns what the runner does."""
    try:
        return str(read_json(state.runner)["doing"])
    except (UserError, KeyError, TypeError):
        return ""


def wait(until: Callable[[], bool], what: str) -> None:
    """Waits until something is so, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > deadline:
            raise UserError(f"the runner did not {what} within {PATIENCE:.0f} seconds; its log says why")
        time.sleep(0.1)


def main(arguments: list[str] | None = None) -> int:
    """Runs a verb; returns the exit code."""
    try:
        tyro.cli(Background, args=arguments, prog="python -m background").run()
    except UserError as error:
        print(f"background: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"background: {error.filename or 'a file'} cannot be read or written ({error.strerror or error})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
