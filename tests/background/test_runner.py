"""The runner does every job once and to the same bytes, however often it is killed, and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from background import state as states
from background.__main__ import main
from background.jobs import Job, Plan, read_plan
from background.runner import is_running
from background.state import State, fraction, hours_left, outputs, spent, standing
from comad.errors import UserError

PROJECT = Path(__file__).parents[2]
COUNTING = Path(__file__).with_name("counting_job.py")
GROUP = 'commit = "main"\nsetup = []\n[[groups]]\nabout = "a"\nname = "a"\ncommand = []\nminutes = 1\noutputs = []\njobs = [{}]'
PATIENCE = 300.0
"""Seconds after which an event that does not come fails a test."""


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    """A repository with one commit, of which the job's program is a part."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "count.py").write_text(COUNTING.read_text())
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "Count")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return folder, found.stdout.strip()


class Desk:
    """A plan, its folder, and the program that works it off."""

    def __init__(self, folder: Path, repository: tuple[Path, str]) -> None:
        self.repository, self.commit = repository
        self.file, self.state = folder / "jobs.toml", State(folder / "state")
        self.processes: list[subprocess.Popen[bytes]] = []

    def plan(self, *names: str, steps: int = 20, seconds: float = 0.01, setup: str = "true", commit: str = "") -> Plan:
        """Writes a file of jobs."""
        rows = ", ".join(f'{{ name = "{name}" }}' for name in names)
        self.file.write_text(
            f'commit = "{commit or self.commit}"\nsetup = ["{setup}"]\n[[groups]]\nabout = "counting"\nname = "{{name}}"\n'
            f'command = ["{sys.executable}", "-S", "{{code}}/count.py", "{{name}}", "{steps}", "{seconds}"]\n'
            f'outputs = ["result"]\nprogress = {{ file = "progress.jsonl", field = "step", total = {steps} }}\n'
            f"minutes = 1\njobs = [{rows}]\n"
        )
        return read_plan(self.file)

    def words(self, verb: str) -> list[str]:
        """Returns the options of a verb."""
        return [verb, "--jobs", str(self.file), "--state", str(self.state.root), "--repository", str(self.repository)]

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the runner in a process of its own."""
        words = [sys.executable, "-m", "background", *self.words("run")]
        there = {**os.environ, "PYTHONPATH": str(PROJECT)}
        process = subprocess.Popen(words, cwd=PROJECT, env=there, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self.processes.append(process)
        return process

    def finish(self) -> str:
        """Runs it to its end; returns what it complained of."""
        process = self.start()
        _, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == (2 if complaint else 0)
        return complaint.decode()

    def launched(self, job: Job) -> list[int]:
        """Returns the process number of every launch of a job."""
        file = self.state.work(job) / "launches"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def desk(tmp_path: Path, repository: tuple[Path, str]) -> Iterator[Desk]:
    desk = Desk(tmp_path, repository)
    yield desk
    for process in desk.processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def until(event: Callable[[], Any]) -> None:
    """Waits for an event."""
    deadline = time.monotonic() + PATIENCE
    while not event():
        if time.monotonic() > deadline:
            pytest.fail("the event did not come")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Returns whether a process exists and is more than its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def results(desk: Desk, plan: Plan) -> dict[str, str]:
    """Returns what each job has written, checked."""
    return {job.name: outputs(desk.state, job)["result"].read_text() for job in plan.jobs}


def kill_after_a_launch(desk: Desk, plan: Plan) -> int:
    """Starts the runner, kills it when it has launched a job, waits for its jobs to end; returns the launches so far."""
    before = {job: desk.launched(job) for job in plan.jobs}
    done = [job for job in plan.jobs if standing(desk.state, job) == "done"]
    process = desk.start()
    until(lambda: any(desk.launched(job) != before[job] for job in plan.jobs) or process.poll() is not None)
    process.kill()
    process.wait()
    launched = [pid for job in plan.jobs for pid in desk.launched(job)]
    until(lambda: not any(map(is_alive, launched)))
    assert all(desk.launched(job) == before[job] for job in done), "a finished job was launched again"
    return len(launched)


def test_killed_and_started_ten_times_it_ends_in_the_same_bytes_and_does_nothing_twice(
    tmp_path: Path, repository: tuple[Path, str]
) -> None:
    whole, killed = (Desk(tmp_path / name, repository) for name in ("whole", "killed"))
    for each in (whole, killed):
        each.file.parent.mkdir()
    names = [f"job-{number}" for number in range(5)]
    plan = whole.plan(*names, steps=60)
    assert whole.finish() == ""
    wanted = results(whole, plan)
    assert len(set(wanted.values())) == len(names)
    plan = killed.plan(*names, steps=60)
    rounds = [kill_after_a_launch(killed, plan) for _ in range(10)]
    assert rounds[-1] >= 10
    assert killed.finish() == ""
    assert results(killed, plan) == wanted and not (killed.state.root / "aside").exists()
    steps = [json.loads(line)["step"] for line in (killed.state.work(plan.jobs[0]) / "progress.jsonl").read_text().splitlines()]
    assert steps[-1] == 60 and sorted(set(steps)) == list(range(1, 61))
    for process in (*whole.processes, *killed.processes):
        assert process.stderr is not None
        process.stderr.close()


def test_no_job_outlives_its_runner(desk: Desk) -> None:
    (job,) = desk.plan("endless", steps=10**6).jobs
    process = desk.start()
    until(lambda: desk.launched(job))
    process.kill()
    until(lambda: not is_alive(desk.launched(job)[0]))


def test_a_job_runs_at_the_lowest_priority_on_a_core_of_its_own(desk: Desk) -> None:
    jobs = desk.plan("one", "two", steps=10**6).jobs[: len(os.sched_getaffinity(0))]
    desk.start()
    until(lambda: all(desk.launched(job) for job in jobs))
    pids = [desk.launched(job)[0] for job in jobs]
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [19] * len(jobs)
    assert [os.sched_getscheduler(pid) for pid in pids] == [os.SCHED_IDLE] * len(jobs)
    cores = [os.sched_getaffinity(pid) for pid in pids]
    assert all(len(core) == 1 for core in cores) and len(set.union(*cores)) == len(jobs)


def test_halted_it_does_nothing_until_it_may_go_on_and_stopped_it_ends(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = desk.plan("long", steps=10**6).jobs
    process = desk.start()
    until(lambda: desk.launched(job))
    assert main(desk.words("pause")) == 0
    pid = desk.launched(job)[0]
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert main(desk.words("status")) == 0 and "halted: 0 of 1 done" in capsys.readouterr().out
    far = fraction(desk.state, job)
    assert fraction(desk.state, job) == far
    assert main(desk.words("continue")) == 0
    until(lambda: (fraction(desk.state, job) or 0.0) > (far or 0.0))
    assert main(desk.words("pause")) == 0 and main(desk.words("stop")) == 0
    process.wait(PATIENCE)
    assert not is_alive(pid) and not is_running(desk.state) and standing(desk.state, job) == "begun"
    assert main(desk.words("stop")) == 2 and "no runner works in" in capsys.readouterr().err


def test_a_second_runner_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.plan("long", steps=10**6)
    desk.start()
    until(lambda: is_running(desk.state))
    assert main(desk.words("start")) == 2
    assert "a runner works in" in capsys.readouterr().err


def test_what_fails_is_named_and_the_others_go_on(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    plan = desk.plan("missing", "idle", "good", steps=3)
    assert desk.finish() == ""
    assert [standing(desk.state, job) for job in plan.jobs] == ["failed", "failed", "done"]
    assert main(desk.words("status")) == 0
    said = capsys.readouterr().out
    assert "missing failed: comad: there is no task named 'missing'; did you mean 'cn-2'?" in said
    assert "idle failed: it ended well but did not write result" in said
    assert "not running: 1 of 3 done" in said


def test_a_folder_of_another_job_is_refused_and_left_alone(desk: Desk) -> None:
    (job,) = desk.plan("one", steps=3).jobs
    assert desk.finish() == ""
    (desk.state.folder(job) / "done.json").unlink()
    before = {path: path.read_bytes() for path in desk.state.work(job).iterdir()}
    (other,) = desk.plan("one", steps=4).jobs
    assert desk.finish() == "" and standing(desk.state, other) == "failed"
    why = json.loads((desk.state.folder(other) / "failed.json").read_text())["why"]
    assert "holds another job (its command is" in why and "give this one another name" in why
    assert {path: path.read_bytes() for path in desk.state.work(job).iterdir()} == before


def test_on_another_machine_a_job_starts_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = desk.plan("one", steps=3).jobs
    states.begin(desk.state, job)
    (desk.state.work(job) / "state.json").write_text('[2, "of another processor"]')
    monkeypatch.setattr(states, "processor", lambda: "another")
    states.note(desk.state, job, machine=states.machine())
    assert desk.finish() == ""
    (aside,) = (desk.state.root / "aside").iterdir()
    assert (aside / "work" / "state.json").read_text() == '[2, "of another processor"]'
    assert len((desk.state.work(job) / "progress.jsonl").read_text().splitlines()) == 3


def test_a_changed_output_is_refused(desk: Desk) -> None:
    (job,) = desk.plan("one", steps=3).jobs
    assert desk.finish() == ""
    (desk.state.work(job) / "result").write_text("0")
    with pytest.raises(UserError, match=r"result is not as the job wrote it \(SHA-256 differs\)"):
        outputs(desk.state, job)


@pytest.mark.parametrize(
    ("commit", "setup", "message"),
    [("0" * 40, "true", "has no commit 000000"), ("", "false", "could not be prepared in")],
)
def test_code_that_cannot_be_had_is_one_sentence(desk: Desk, commit: str, setup: str, message: str) -> None:
    desk.plan("one", commit=commit, setup=setup)
    complaint = desk.finish()
    assert message in complaint and complaint.startswith("background: ") and complaint.count("\n") == 1


def test_code_is_that_of_the_commit_whatever_the_checkout_says_later(desk: Desk) -> None:
    (job,) = desk.plan("one", steps=3).jobs
    (desk.repository / "count.py").write_text("raise SystemExit(2)")
    assert desk.finish() == "" and standing(desk.state, job) == "done"


def test_a_full_disk_is_one_sentence(desk: Desk) -> None:
    (job,) = desk.plan("one", steps=3).jobs
    words = [sys.executable, "-m", "background", *desk.words("run")]
    limited = ["bash", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "bash", *words]
    done = subprocess.run(limited, cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cannot be read or written (" in done.stderr
    assert desk.finish() == "" and standing(desk.state, job) == "done"


def test_hours_left_follow_from_what_was_measured(desk: Desk) -> None:
    jobs = desk.plan("one", "two", "three").jobs
    assert hours_left(desk.state, jobs) == pytest.approx(3 / 60)  # estimates: a minute each
    for job, seconds in zip(jobs[:2], (240.0, 30.0), strict=True):
        states.begin(desk.state, job)
        states.note(desk.state, job, cpu_seconds=seconds)
    (desk.state.work(jobs[0]) / "result").write_text("1")
    assert states.conclude(desk.state, jobs[0]) == ""
    (desk.state.work(jobs[1]) / "progress.jsonl").write_text('{"step": 5}\n')
    # 270 seconds for 1.25 estimated minutes: three quarters of the second and all of the third are left.
    assert hours_left(desk.state, jobs) == pytest.approx(270 / 1.25 * 1.75 / 3600)
    assert spent(desk.state, jobs[1])["launches"] == 1


def test_the_shipped_plan_holds_every_task_of_every_stream_once_for_each_seed() -> None:
    from comad import streams

    plan = read_plan(PROJECT / "background" / "jobs.toml")
    words = [dict(zip(job.command[3::2], job.command[4::2], strict=False)) for job in plan.jobs]
    tasks = [(found["--tasks"], job.name.removeprefix(f"team-{found['--tasks']}")) for found, job in zip(words, plan.jobs, strict=True)]
    every = {task.env for stream in streams.STREAMS.values() for task in stream.tasks}
    assert len(set(tasks)) == len(tasks) and {task for task, _ in tasks} == every
    assert {task for task, label in tasks if label == "-b"} == {task for task in every if task.startswith(("cn-", "lbf-"))}
    seeds = [found["--seed"] for found in words]
    assert len(set(seeds)) == len(seeds), "two policies share the seed of their first weights"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "does not describe jobs"),
        ("setup = []", "KeyError"),
        ('setup = []\n[[groups]]\nname = "a"', "a group has no 'about'"),
        (GROUP, "names no commit by its 40 digits but 'main'"),
    ],
)
def test_a_file_that_lists_no_jobs_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "jobs.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_plan(tmp_path / "jobs.toml")


def test_a_signal_to_a_job_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    process.wait()
    from background.runner import send
    from comad.grid.local import Worker

    send(Worker(None, 1, frozenset(), process, Path()), signal.SIGCONT)
