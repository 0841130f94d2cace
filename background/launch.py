"""Starts a job: in its folder, at the lowest priority, and never longer than the process that started it.

Run as a program: ``launch.py FOLDER COMMAND ...``. It becomes the job, which keeps its process number.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
LOWEST = 19


def main(folder: str, command: list[str]) -> None:
    """Replaces this process by the job."""
    parent = int(os.environ["COMAD_STARTED_BY"])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getppid() != parent:  # it ended before the signal was asked for
        sys.exit(1)
    # The job keeps this lock as long as it lives, so that one whose runner was killed has ended before it is started again.
    lock = os.open(os.path.join(folder, os.pardir, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    os.chdir(folder)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
