"""Tasks as people name them on the command line: by their name in a stream, or by the world they are played in."""

import dataclasses
from collections.abc import Sequence

from comad import envs, streams
from comad.errors import UserError, unknown
from comad.types import Metric, Stream, Task


def find_task(name: str, first: Sequence[Task] = ()) -> Task:
    """The task of that name among the first ones, or in the first stream that has it; any other name is taken for a world of one's own.

    With its stream before it, as in ``ant-reward/45`` or ``cn/CN-4``, the end of a name is enough.
    """
    stream, _, end = name.lower().rpartition("/")
    if stream in streams.STREAMS:
        for task in streams.find(stream).tasks:
            if task.name.lower() == end or task.name.lower().endswith(f"-{end}"):
                return task
        raise unknown(f"task of {stream}", end, [task.name for task in streams.find(stream).tasks])
    known = [*first, *(task for stream in streams.STREAMS.values() for task in stream.tasks)]
    return next((task for task in known if task.name.lower() == name.lower()), Task(name, name))


def choose(stream: str | None, tasks: Sequence[str] | None) -> Stream:
    """The stream that was asked for; one with tasks of one's own is called by them, so that nobody takes it for another."""
    if tasks is None:
        if stream is None:
            raise UserError("nothing to play: give a stream, such as cn, or worlds with --tasks, such as cn-3 cn-5")
        return find_stream(stream)
    first = streams.find(stream).tasks if stream else ()
    chosen = tuple(find_task(task, first) for task in tasks)
    if stream is None:
        return dataclasses.replace(_custom(chosen), name=",".join(task.env for task in chosen))
    whole = streams.find(stream)
    if chosen == whole.tasks:
        return whole
    return dataclasses.replace(whole, name=f"{stream}:{','.join(tasks)}" if tasks else stream, tasks=chosen)


def find_stream(name: str) -> Stream:
    """The stream of that name; or one's own: worlds with commas between, such as ``cn-5,cn-3``, or a stream's tasks, ``cn:CN-5,CN-3``."""
    if name in streams.STREAMS:
        return streams.find(name)
    if ":" in name:
        stream, _, some = name.partition(":")
        return choose(stream, some.split(","))
    worlds = name.split(",")
    try:
        tasks = [Task(world, envs.find(world).spec.env) for world in worlds]
    except UserError:
        if len(worlds) > 1:
            raise
        return streams.find(name)  # which refuses it, and says what there is
    return dataclasses.replace(_custom(tasks), name=name)


def _custom(tasks: Sequence[Task]) -> Stream:
    plain = streams.custom([task.env for task in tasks], metric=_metric(tasks))
    # How familiar is familiar enough depends on the world: the streams that have such tasks know.
    worlds = {task.env for task in tasks}
    known = [stream.threshold for stream in streams.STREAMS.values() if worlds & {task.env for task in stream.tasks}]
    return dataclasses.replace(plain, tasks=tuple(tasks), threshold=min(known, default=plain.threshold))


def _metric(tasks: Sequence[Task]) -> Metric:
    """What all of these worlds can be judged by: every world knows success, not every world's return has the same scale."""
    return "success" if any(envs.find(task.env).spec.metric == "success" for task in tasks) else "return"
