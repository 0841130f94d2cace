"""Text of strangers in each format that leaves the program.

One function per format, used wherever that format is written.
"""

import hashlib
import json
import re

LONGEST_LABEL = 60
"""Characters of a name in a figure; longer ones would make the picture as large as they like."""
LONGEST_FILE_NAME = 100
_BLANK = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x2800,
    0x3164,
    0xFFA0,
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
}
_BLANK |= set(range(0xE0100, 0xE01F0))
"""Characters that show nothing although they count as letters or marks."""
_BYTE = 0xDC00
"""Where Python puts the bytes of a file name that are not UTF-8."""
_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\char34{}",
        "`": r"\textasciigrave{}",
    },
    # After the end of a row, these would be an option of it.
    **{letter: f"{{{letter}}}" for letter in "[]*"},
}
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#!|~&$:^@]|(?<=www)\.", re.IGNORECASE)
_FORMULA = re.compile(r"(^|[;,|])(\s*)(?=[-=+@\uff1d\uff0b\uff0d\uff20])")

_JSON_ESCAPE = re.compile(r"\\(?:u(?:d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|[0-9a-f]{4})|.)")
"""One escape of ASCII-only JSON, the two halves of a rare character together."""


def harmless(text: str) -> str:
    """Returns text whose characters are all shown: what controls a terminal is spelled out."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(map(_spelled, text))


def latex(text: str) -> str:
    """Returns LaTeX that typesets the text and nothing else."""
    found = "".join(_LATEX.get(letter, letter) for letter in harmless(text))
    return re.sub("-(?=-)", "-{}", found)


def markdown(text: str) -> str:
    """Returns Markdown for a cell of a table that shows the text: no HTML, link or emphasis."""
    return _MARKDOWN.sub(r"\\\g<0>", harmless(text))


def csv_text(text: str) -> str:
    """Returns a cell that a spreadsheet takes for text; numbers are written without this."""
    return _FORMULA.sub(r"\1'\2", harmless(text))


def json_text(document: str) -> str:
    """Returns ASCII-only JSON whose texts are spelled as `harmless` spells them."""
    return _JSON_ESCAPE.sub(lambda found: _shown(found[0]), document)


def label(text: str) -> str:
    """Returns a name for a figure, cut where it is too long."""
    shown = harmless(text)
    cut = shown if len(shown) <= LONGEST_LABEL else f"{shown[: LONGEST_LABEL - 1]}…"
    # Matplotlib leaves a name that begins with an underscore out of its legends.
    return f" {cut}" if cut.startswith("_") else cut


def file_name(text: str) -> str:
    """Returns a name for a file: the text itself if it is one, else a part of it and its hash."""
    plain = re.sub(r"[^A-Za-z0-9._+-]", "_", text)
    if text and plain == text and len(text) <= LONGEST_FILE_NAME and not text.startswith("."):
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain[:LONGEST_FILE_NAME].lstrip('.')}-{digest}"


def _shown(escape: str) -> str:
    if escape[1] != "u":
        return escape
    letter: str = json.loads(f'"{escape}"')
    spelled = harmless(letter)
    return escape if spelled == letter else spelled.replace("\\", "\\\\")


def _spelled(letter: str) -> str:
    code = ord(letter)
    if letter.isprintable() and code not in _BLANK:
        return letter
    if _BYTE + 0x80 <= code <= _BYTE + 0xFF:
        return f"\\x{code - _BYTE:02x}"
    return letter.encode("unicode_escape").decode()
