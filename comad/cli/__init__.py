"""The command line: one verb per file, each a frozen dataclass whose fields are its options. The only place that prints."""

import sys
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import tyro

from comad import __version__
from comad.cache import enable_compile_cache
from comad.cli import standard_streams
from comad.cli.bench import Bench
from comad.cli.collect import Collect
from comad.cli.commands import SPELLING
from comad.cli.data import Data
from comad.cli.demo import Demo
from comad.cli.doctor import Doctor
from comad.cli.evaluate import Evaluate
from comad.cli.experts import Experts
from comad.cli.growth import ShowHeads
from comad.cli.listing import List
from comad.cli.options import OPTIONS, as_option
from comad.cli.play import Play
from comad.cli.portrait import Portrait
from comad.cli.report import Report
from comad.cli.train import Train
from comad.cli.verify import Verify
from comad.cli.watch import Watch
from comad.errors import OutOfRangeError, UserError
from comad.escaping import harmless
from comad.memory import keep_memory


@runtime_checkable
class Verb(Protocol):
    """Something the command line can do."""

    def run(self) -> None:
        """Do it, and print what a person wants to know."""
        ...


VERBS: dict[str, Callable[..., Verb]] = {
    "demo": Demo,
    "list": List,
    "collect": Collect,
    "data": Data,
    "experts": Experts,
    "train": Train,
    "heads": ShowHeads,
    "play": Play,
    "evaluate": Evaluate,
    "portrait": Portrait,
    "bench": Bench,
    "report": Report,
    "verify": Verify,
    "watch": Watch,
    "doctor": Doctor,
}
DESCRIPTION = """Teams that learn one task after another from recorded data.

'comad VERB --help' explains a verb, 'comad --version' tells the version."""
WRONG_INPUT, INTERRUPTED = 2, 130


def main(argv: list[str] | None = None) -> int:
    """Run ``comad`` with these arguments, by default those of the process, and return its exit code."""
    standard_streams.prepare()
    return standard_streams.finish(_run(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    try:
        if arguments == ["--version"]:
            print(f"comad {__version__}")
            return 0
        verb = parse(arguments)
        enable_compile_cache()
        keep_memory()
        verb.run()
        sys.stdout.flush()
    except UserError as error:
        standard_streams.complain(str(error))
        return WRONG_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return standard_streams.UNHEARD
    except OSError as error:  # a full disk, a folder without rights: the same again would end the same
        if standard_streams.finish(0) == 0:
            standard_streams.complain(f"{error.filename or 'a file'} cannot be read or written ({error.strerror or error})")
        return WRONG_INPUT
    except SystemExit as stop:  # from tyro: 0 after showing help, 2 after saying what it could not parse
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def parse(arguments: list[str]) -> Verb:
    """Returns the verb with its options; exits with an explanation if there is no such verb or option."""
    strange = [word for word in arguments if harmless(word) != word]
    try:
        return tyro.extras.subcommand_cli_from_dict(
            VERBS,
            prog="comad",
            description=DESCRIPTION,
            args=arguments,
            config=SPELLING,
            registry=OPTIONS,
            console_outputs=not strange,  # tyro repeats what it does not understand, such as a file's name, as it is
        )
    except OutOfRangeError as error:
        raise as_option(error) from error
    except SystemExit as stop:
        if strange and stop.code:
            raise UserError(
                f"there is no such verb, option or choice, or one word too many: {' '.join(strange)}; see 'comad --help'"
            ) from stop
        raise
