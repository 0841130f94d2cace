"""The one error that is the user's to mend: a sentence that names the value and the way out."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Wrong input. The command line prints the message as one line and exits with code 2."""


class OutOfRangeError(UserError):
    """A setting outside its range; a reader can tell the reason under the name that the user knows."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name, self.why = name, why


MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, OutOfRangeError)
"""What a file makes its reader raise when it is of another form than the reader believes; readers of strangers' files catch these."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """An error for a name that nobody registered, with the nearest names that somebody did."""
    known = sorted(known)
    nearest = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"known: {', '.join(known)}"
    return UserError(f"there is no {kind} named {name!r}; {hint}")
