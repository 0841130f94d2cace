"""The Ant in MuJoCo: its body as text, and many bodies moved at once. What this package knows of the simulator is in this file."""

import functools
import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from comad.envs.base import not_installed
from comad.envs.threads import most_threads

CORNERS = ((1, 1), (-1, 1), (-1, -1), (1, -1))
"""Where legs 1 to 4 are mounted, seen from the torso: ahead is +x, left is +y."""
NUM_LEGS = len(CORNERS)
MOTORS = (3, 0, 1, 2)
"""The standard model has the motors of its last leg first; legs count from zero here."""
FRAME_SKIP, TIMESTEP = 5, 0.01
STEP_SECONDS = FRAME_SKIP * TIMESTEP
PLACES, SPEEDS = 15, 14
"""Numbers that tell where everything is (torso 3, its rotation 4, joints 8) and how it moves (torso 6, joints 8)."""
FORCES = 13 * 6
"""Torque and force from outside on the torso and on the three parts of every leg."""
START_NOISE = 0.1
FOOT = 0.4
"""How far a foot is from its ankle, along x and along y."""


class Motion(NamedTuple):
    """Where bodies have got to, by episode."""

    bodies: np.ndarray
    """Places, speeds, and the accelerations from which the simulator's solver will start."""
    spots: np.ndarray
    """Where the torso is on the ground, as the simulator last worked it out: rewards follow it, and it trails the places by a hair."""
    forces: np.ndarray
    broken: np.ndarray
    """The simulator lost its way: numbers that are not finite or absurdly large. Such a body stays where it was."""


def body_text() -> str:
    """The standard Ant in MuJoCo's language: a sphere with four legs of three capsules, two motors each."""
    legs = "".join(_leg_text(number, *corner) for number, corner in enumerate(CORNERS, 1))
    motors = "".join(f'<motor joint="{joint}{leg + 1}" ctrlrange="-1 1" gear="150"/>' for leg in MOTORS for joint in ("hip", "ankle"))
    return f"""<mujoco>
      <option integrator="RK4" timestep="{TIMESTEP}"/>
      <compiler inertiafromgeom="true"/>
      <default>
        <joint armature="1" damping="1"/>
        <geom density="5" friction="1 .5 .5" margin=".01" conaffinity="0"/>
      </default>
      <worldbody>
        <geom type="plane" size="40 40 40" conaffinity="1"/>
        <body pos="0 0 .75">
          <joint type="free" armature="0" damping="0" margin=".01"/>
          <geom size=".25"/>
          {legs}
        </body>
      </worldbody>
      <actuator>{motors}</actuator>
    </mujoco>"""


def _leg_text(number: int, ahead: int, left: int) -> str:
    """A fixed piece, a part that turns about the vertical, and one that folds up and down, all away from the torso."""
    piece = f"{0.2 * ahead} {0.2 * left} 0"
    bends = "30 70" if ahead > 0 else "-70 -30"
    return f"""<body>
      <geom type="capsule" size=".08" fromto="0 0 0 {piece}"/>
      <body pos="{piece}">
        <joint name="hip{number}" axis="0 0 1" range="-30 30"/>
        <geom type="capsule" size=".08" fromto="0 0 0 {piece}"/>
        <body pos="{piece}">
          <joint name="ankle{number}" axis="{-ahead * left} 1 0" range="{bends}"/>
          <geom type="capsule" size=".08" fromto="0 0 0 {FOOT * ahead} {FOOT * left} 0"/>
        </body>
      </body>
    </body>"""


def load() -> Any:
    """MuJoCo, imported when the first episode begins."""
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise not_installed("Ant worlds", "mujoco", "ant") from error


@functools.cache
def simulator() -> "Simulator":
    """The one that all Ant worlds share: they differ in what they ask of the body, not in the body."""
    return Simulator()


class Simulator:
    """Moves bodies. It keeps nothing of them: all that decides what happens next comes in and goes out with every call."""

    def __init__(self) -> None:
        self.mujoco = load()
        self.model = self.mujoco.MjModel.from_xml_string(body_text())
        parts = self.mujoco.mjtState
        self.parts = int(parts.mjSTATE_QPOS | parts.mjSTATE_QVEL | parts.mjSTATE_WARMSTART)
        self.size = self.mujoco.mj_stateSize(self.model, self.parts)
        self.own = threading.local()

    @property
    def data(self) -> Any:
        """The simulator's working memory, one per thread."""
        if not hasattr(self.own, "data"):
            self.own.data = self.mujoco.MjData(self.model)
        return self.own.data

    def begin(self, seeds: np.ndarray) -> Motion:
        """Standing above the ground, every place and speed a little off, as gymnasium's Ant begins from the same seed."""
        motion, data = self.still(len(seeds)), self.data
        for row, seed in enumerate(seeds.tolist()):
            random = np.random.default_rng(seed)
            self.mujoco.mj_resetData(self.model, data)
            data.qpos += random.uniform(-START_NOISE, START_NOISE, PLACES)
            data.qvel += START_NOISE * random.standard_normal(SPEEDS)
            self.mujoco.mj_forward(self.model, data)
            self.mujoco.mj_getState(self.model, data, motion.bodies[row], self.parts)
            motion.spots[row] = data.xpos[1, :2]
        return motion

    def still(self, count: int) -> Motion:
        """Room for so many bodies."""
        return Motion(np.zeros((count, self.size)), np.zeros((count, 2)), np.zeros((count, FORCES)), np.zeros(count, bool))

    def move(self, bodies: np.ndarray, spots: np.ndarray, torques: np.ndarray, rows: np.ndarray) -> Motion:
        """One step of the given rows under torques [episode, leg, joint] in [-1, 1]; the others stay. Threads share the rows."""
        motion = self.still(len(bodies))._replace(bodies=bodies.copy(), spots=spots.copy())
        controls = torques[:, MOTORS].reshape(len(bodies), -1)
        motion.broken[rows] = ~np.isfinite(controls[rows]).all(-1)
        sound = rows[~motion.broken[rows]]
        threads = max(1, min(most_threads(), len(sound)))

        def move_some(some: np.ndarray) -> None:
            self.move_rows(motion, controls, some)

        with Quiet(self.mujoco):
            if threads == 1:
                move_some(sound)
            else:
                # Taken to the end, so that an error in a thread is raised here.
                list(pool(threads).map(move_some, np.array_split(sound, threads)))
        motion.broken[rows] |= ~(np.isfinite(motion.bodies[rows]).all(-1) & np.isfinite(motion.forces[rows]).all(-1))
        if motion.broken.any():
            lost = motion.broken
            motion.bodies[lost], motion.spots[lost], motion.forces[lost] = (
                np.nan_to_num(bodies[lost], posinf=0.0, neginf=0.0),
                spots[lost],
                0.0,
            )
        return motion

    def move_rows(self, motion: Motion, controls: np.ndarray, rows: np.ndarray) -> None:
        """Some rows one after the other, in place. MuJoCo lets other threads run while it computes."""
        mujoco, model, data, parts = self.mujoco, self.model, self.data, self.parts
        control, forces, spot = data.ctrl, data.cfrc_ext[1:].reshape(-1), data.xpos[1, :2]
        alarms = data.warning.number[int(mujoco.mjtWarning.mjWARN_BADQPOS) :]
        for row in rows.tolist():
            body = motion.bodies[row]
            mujoco.mj_setState(model, data, body, parts)
            control[:] = controls[row]
            mujoco.mj_step(model, data, FRAME_SKIP)
            if alarms.any():
                # MuJoCo has begun anew by itself, which is not what happened to this body.
                motion.broken[row] = True
                mujoco.mj_resetData(model, data)
                continue
            mujoco.mj_rnePostConstraint(model, data)
            mujoco.mj_getState(model, data, body, parts)
            motion.spots[row], motion.forces[row] = spot, forces

    def joints(self, places: np.ndarray) -> np.ndarray:
        """Where hips, ankles and feet are, seen from above: [leg, 3, 2]."""
        data = self.data
        data.qpos[:] = places
        self.mujoco.mj_kinematics(self.model, data)
        points = []
        for leg, (ahead, left) in enumerate(CORNERS):
            hip, ankle = 3 + 3 * leg, 4 + 3 * leg
            foot = data.xpos[ankle] + data.xmat[ankle].reshape(3, 3) @ (FOOT * ahead, FOOT * left, 0.0)
            points.append((data.xpos[hip][:2], data.xpos[ankle][:2], foot[:2]))
        return np.array(points)


class Quiet:
    """While this lasts MuJoCo neither prints its alarms nor writes them into a file where the user happens to be; we count them."""

    def __init__(self, mujoco: Any) -> None:
        self.mujoco = mujoco
        self.before: Callable[[str], None] | None = None

    def __enter__(self) -> None:
        self.before = self.mujoco.get_mju_user_warning()
        self.mujoco.set_mju_user_warning(_ignore)

    def __exit__(self, *exception: object) -> None:
        self.mujoco.set_mju_user_warning(self.before)


def _ignore(alarm: str) -> None:
    """Nothing."""


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ant")
