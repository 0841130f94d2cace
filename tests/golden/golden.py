"""A tiny run of every method, as one hash each: run as a program, it prints them, and ``--record`` keeps them for this type of machine.

What may change the last bits is named in the type: system, processor, its vector units, how many cores the program may use, and versions.
"""

import hashlib
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("hashes.json")
UNITS = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # half the time to compile; what is computed is fixed all the same
LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def machine_type() -> str:
    """What results may depend on, besides settings and code."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    units = [unit for unit in UNITS if unit in flags]
    return ", ".join([platform.system(), platform.machine(), *units, f"{cores} cores", *(f"{name} {version(name)}" for name in LIBRARIES)])


def hashes(names: list[str]) -> dict[str, str]:
    """One hash per method: of its journals and of every array of its last checkpoint."""
    from recorded import record

    from comad import envs, streams
    from comad.datasets import library
    from comad.files import sha256
    from comad.methods import METHODS
    from comad.runs import checkpoints
    from comad.runs.run import open_run
    from comad.training.lessons import prepare
    from comad.training.loop import Budget, train
    from comad.training.provenance import identify

    stream, budget = streams.custom(["cn-2-6x6-9t-2r", "cn-3-6x6-9t-2r"]), Budget(updates=4, evaluations=2, episodes=2, batch=4)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for task in stream.tasks:
            env: Any = envs.make(task.env)
            record(library.place(env.spec.env, "random", folder / "data"), env)
        lessons = prepare(stream, "random", budget.batch, folder / "data")
        for name in names:
            method = METHODS[name]
            with open_run(folder / name, identify(name, method, stream, "random", lessons, 1, budget)) as run:
                for _ in train(method, stream, lessons, 1, budget, run):
                    pass
            last, _ = checkpoints.newest(folder / name)
            assert last is not None
            files = [last.path, *(folder / name / f"{journal}.jsonl" for journal in ("scores", "logs", "heads"))]
            found[name] = hashlib.sha256("".join(sha256(file) for file in files).encode()).hexdigest()
    return found


def main() -> None:
    from comad.methods import METHODS

    names = [word for word in sys.argv[1:] if not word.startswith("--")] or list(METHODS)
    found = hashes(names)
    sys.stdout.write(json.dumps(found) + "\n")
    if "--record" in sys.argv:
        known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        known[machine_type()] = {**known.get(machine_type(), {}), **found}
        RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
