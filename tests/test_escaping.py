"""Text of strangers in every format: whatever it is, it is shown and does nothing."""

import csv
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reliability import tried

from comad import escaping
from comad.escaping import (
    LONGEST_FILE_NAME,
    LONGEST_LABEL,
    csv_text,
    file_name,
    harmless,
    json_text,
    latex,
    markdown,
)

ACTIVE = (
    "\\&%$#_{}~^<>|\"'`-=+@*[]()!:;,.\t\r\n\x00\x1b\x7f\x9b\u061c\u200b\u200f\u202a\u202e\u2066\u2069\u2028\ufeff\ud800\udcff\U000e0041"
)
TEXTS = st.text(st.sampled_from(ACTIVE) | st.characters() | st.sampled_from("aZ09 "), max_size=40)
EVIL = (
    r"\input /etc/passwd",
    "^^5cinput /etc/passwd",
    "[1cm]",
    "*",
    "--",
    '=HYPERLINK("http://x","y")',
    "a;=1+1",
    "a|@SUM(1)",
    "  +1",
    "\uff1d1",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:x)",
    "![a](http://x)",
    "`a`",
    "a | b",
    "https://x.y www.x.y WWW.x",
    "&lt;",
    "line\nbreak",
    "\x1b]0;title\x07",
    "\u202egnp.exe",
    "\udcff",
)
COMMANDS = {
    "textbackslash": "\\",
    "textasciitilde": "~",
    "textasciicircum": "^",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textasciigrave": "`",
    "char34": '"',
}


def typeset(source: str) -> str:
    """What LaTeX shows of text that holds nothing but the commands above; anything else that LaTeX acts on is an error."""
    pieces = re.compile(r"\\([&%$#_{}])|\\([a-z]+(?:34)?)\{\}|\{([\[\]*])\}|(-)\{\}|([^\\&%$#_{}~^<>|\"`\[\]*\n])")
    shown, place = "", 0
    while place < len(source):
        piece = pieces.match(source, place)
        assert piece, f"LaTeX would act on {source[place:]!r}"
        letter, command, grouped, dash, plain = piece.groups()
        shown += letter or (COMMANDS[command] if command else grouped or dash or plain)
        place = piece.end()
    assert "--" not in source
    return shown


def rendered(source: str) -> str:
    """What Markdown shows of a cell that holds nothing but text; anything else that Markdown acts on is an error."""
    shown, place = "", 0
    while place < len(source):
        if source[place] == "\\":
            assert source[place + 1] in "\\`*_{}[]<>#!|~&$:^@.", source
            place += 1
        else:
            assert source[place] not in "`*_{}[]<>#!|~&$:^@\n\r", source
        shown += source[place]
        place += 1
    assert not re.search(r"www\.", source, re.IGNORECASE)
    return shown


@pytest.mark.promise("hostile-files")
@given(TEXTS)
def test_text_does_nothing_in_any_format(text: str) -> None:
    check(text)
    tried(5)


@pytest.mark.promise("hostile-files")
@pytest.mark.parametrize("text", EVIL)
def test_what_has_been_used_against_others_does_nothing(text: str) -> None:
    check(text)


def check(text: str) -> None:
    """That every format shows the text and nothing else."""
    shown = harmless(text)
    assert all(letter == " " or unicodedata.category(letter)[0] not in "CZ" for letter in shown)
    assert shown.encode().decode() == shown
    assert harmless(shown) == shown
    assert typeset(latex(text)) == shown
    assert rendered(markdown(text)) == shown
    document = json_text(json.dumps({text: [text, 1.5]}))
    assert document.isascii() and json.loads(document) == {told(text): [told(text), 1.5]}
    for separator in ",;|\t":
        (row,) = csv.reader(io.StringIO(written(csv_text(text))), delimiter=",")
        assert row[0].replace("'", "") == shown.replace("'", "") and row[1:] == ["1.5"]
        for cell in row[0].split(separator):
            assert not re.match(r"\s*[-=+@\uff1d\uff0b\uff0d\uff20\t\r]", cell) or separator in ",\t"
    assert not re.match(r"\s*[-=+@\uff1d\uff0b\uff0d\uff20\t\r]", csv_text(text))


def told(text: str) -> str:
    """The text as a page has it: line breaks, tabs and the like are white space there, which does nothing."""
    short = "\b\f\n\r\t"
    return "".join(letter if letter in short else harmless(letter) for letter in paired(text))


def paired(text: str) -> str:
    """Two halves of a rare character that stand side by side are one for JSON."""
    joined: str = json.loads(json.dumps(text))
    return joined


def written(cell: str) -> str:
    out = io.StringIO()
    csv.writer(out).writerow([cell, "1.5"])
    return out.getvalue()


@given(TEXTS, TEXTS)
def test_a_file_name_stays_in_its_folder_and_names_one_text(one: str, other: str) -> None:
    found = file_name(one)
    assert re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]*", found) and len(found) < LONGEST_FILE_NAME + 10
    assert (found == file_name(other)) == (one == other)


def test_names_that_are_plain_stay_what_they_are() -> None:
    plain = (
        "comad-plus",
        "comad --skill none",
        "lbf-8x8-3p-2f, expert",
        "P 98.8 (ft)",
        "café",
        "任务",
    )
    for text in plain:
        assert harmless(text) == csv_text(text) == text and escaping.label(text) == text
    assert markdown("comad-plus 0.5") == latex("comad-plus 0.5") == "comad-plus 0.5"
    assert file_name("scores-lbf-expert-10") == "scores-lbf-expert-10"
    assert latex("comad --skill none") == "comad -{}-skill none"
    assert markdown("5m_vs_6m") == latex("5m_vs_6m") == r"5m\_vs\_6m"


def test_what_is_not_shown_is_spelled_as_python_spells_it() -> None:
    spelled = {
        "\x1b": r"\x1b",
        "\t": r"\t",
        "\n": r"\n",
        "\u202e": r"\u202e",
        "\u2066": r"\u2066",
        "\U000e0041": r"\U000e0041",
    }
    for letter, expected in {
        **spelled,
        "\udcff": r"\xff",
        chr(0xD800): r"\ud800",
        "\u3164": r"\u3164",
        "\u00ad": r"\xad",
    }.items():
        assert harmless(f"a{letter}b") == f"a{expected}b"


def test_labels_are_short_and_begin_with_no_underscore() -> None:
    assert escaping.label("x" * 100_000) == "x" * (LONGEST_LABEL - 1) + "…"
    assert escaping.label("_hidden") == " _hidden"
