"""How far all jobs are, as a table."""

from background.jobs import Job, Plan
from background.runner import is_running, read_wish
from background.state import State, fraction, hours_left, spent, standing
from comad.cli.terminal import show_lines, show_table
from comad.files import read_json
from comad.machine import available_cores


def show_status(state: State, plan: Plan) -> None:
    """Prints a row for each group, the jobs that run or failed, and the hours that are left."""
    found = {job: standing(state, job) for job in plan.jobs}
    groups = dict.fromkeys(job.group for job in plan.jobs)
    rows = []
    for group in groups:
        jobs = [job for job in plan.jobs if job.group == group]
        counts = [sum(found[job] == kind for job in jobs) for kind in ("done", "begun", "failed", "waiting")]
        rows.append((group, *counts, f"{hours_left(state, jobs):.1f}"))
    show_table("Jobs", ("group", "done", "begun", "failed", "waiting", "core-hours left"), rows)
    begun = [job for job in plan.jobs if found[job] == "begun"]
    show_lines([describe(state, job) for job in begun])
    show_lines([f"{job.name} failed: {read_json(state.folder(job) / 'failed.json')['why']}" for job in plan.jobs if found[job] == "failed"])
    left, cores = hours_left(state, plan.jobs), len(available_cores())
    now = {"run": "running", "pause": "halted"}.get(read_wish(state), "running") if is_running(state) else "not running"
    done = sum(kind == "done" for kind in found.values())
    show_lines([f"{now}: {done} of {len(plan.jobs)} done, {left:.1f} core-hours left, {left / cores:.1f} hours on {cores} idle cores"])


def describe(state: State, job: Job) -> str:
    """Returns a line on a job that has begun."""
    share = fraction(state, job)
    far = f"{share:.0%}" if share is not None else "begun"
    return f"{job.name}: {far} after {spent(state, job)['cpu_seconds'] / 60:.1f} core-minutes"
