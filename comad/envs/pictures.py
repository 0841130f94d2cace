"""Scenes as pictures a person reads at a glance, and a whole episode as a GIF."""

import dataclasses
import io
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from comad.envs.scene import INK, PAPER, Color, Mark, Scene
from comad.errors import UserError
from comad.files import write_bytes

WIDEST, NARROWEST = 480, 300
"""Bounds on the width of a picture, in pixels: large boards get smaller cells, small ones get room for the text."""
MARGIN, TEXT_BAND, TEXT_SIZE = 12, 34, 16.0
FINER = 3
"""Everything is drawn this many times larger and then shrunk, for smooth edges."""
TINT, ZONE_EDGE, GRID_SHADE = 0.12, 0.4, 0.13
"""How much color a zone, its edge and the grid lines lay over what is below them."""
SMALLEST_MARK = 19
"""Marks of small cells fill more of their cell, up to this many pixels."""
SOLID = ("disc", "diamond", "square")
"""Shapes that stand for things, which must not cover each other; bars and lines belong to one of them."""
BAR_HEIGHT, LINE_WIDTH = 0.22, 0.12
"""Of bars and lines, in cells."""
CROWDED_SHIFT = 0.26
"""Marks that share a cell are moved this many cells off its center, so that all of them show."""
PALETTE_SIZE = 256
LAST_FRAME_SECONDS = 1.6


@dataclass(frozen=True)
class _Layout:
    """Where the board and the text go, in final pixels."""

    cell: int
    left: int
    top: int
    width: int
    height: int

    def box(self, row: float, column: float, size: float) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of a mark on the finer canvas."""
        corners = (column + (1 - size) / 2, row + (1 - size) / 2, column + (1 + size) / 2, row + (1 + size) / 2)
        left, top, right, bottom = (corner * self.cell for corner in corners)
        return (left + self.left) * FINER, (top + self.top) * FINER, (right + self.left) * FINER, (bottom + self.top) * FINER


def paint(scene: Scene, cell: int = 48, footer: str = "") -> np.ndarray:
    """The scene as an image, uint8 [height, width, 3]; its size depends on the board, ``cell`` and whether there is a footer."""
    layout = _lay_out(scene, cell, bool(footer))
    image = Image.new("RGB", (layout.width * FINER, layout.height * FINER), PAPER)
    for mark in scene.marks:
        if mark.shape == "zone":
            _draw_zone(image, mark, scene, layout)
    _draw_grid(image, scene, layout)
    pen = ImageDraw.Draw(image)
    for mark in _side_by_side([_enlarge(mark, layout.cell) for mark in scene.marks if mark.shape != "zone"]):
        _draw_mark(pen, mark, layout)
    _write_line(pen, scene.title, MARGIN + TEXT_SIZE / 2, layout)
    _write_line(pen, footer, layout.height - MARGIN - TEXT_SIZE / 2, layout)
    return np.asarray(image.reduce(FINER))


def save_gif(frames: Sequence[np.ndarray], path: Path | str, seconds_per_frame: float = 0.35) -> None:
    """Write frames of one size as a GIF that plays for ever and rests on its last frame; the file appears whole or not at all."""
    path = Path(path)
    if len({frame.shape for frame in frames}) != 1:
        raise ValueError("a GIF needs at least one frame, and all of one size")
    check_gif_path(path)
    images = _with_one_palette(frames)
    durations = [round(seconds_per_frame * 1000)] * (len(images) - 1) + [round(LAST_FRAME_SECONDS * 1000)]
    try:
        write_bytes(path, _encode(images, durations))
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"cannot write {path}: {path.parent} is not a folder") from error
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def check_gif_path(path: Path) -> None:
    """Refuse a place where no GIF can be, before anybody spends time on painting one."""
    if os.path.isdir(path):  # unlike Path.is_dir, quiet where one may not look
        raise UserError(f"cannot write {path}: it is a folder")
    if path.suffix.lower() != ".gif":
        raise UserError(f"cannot write {path}: an episode is recorded as a GIF, so the name must end in .gif")


def _lay_out(scene: Scene, cell: int, has_footer: bool) -> _Layout:
    cell = max(1, min(cell, (WIDEST - 2 * MARGIN) // max(scene.rows, scene.columns)))
    width = max(NARROWEST, scene.columns * cell + 2 * MARGIN)
    top = TEXT_BAND + MARGIN // 2
    height = top + scene.rows * cell + (TEXT_BAND + MARGIN // 2 if has_footer else MARGIN)
    return _Layout(cell, (width - scene.columns * cell) // 2, top, width, height)


def _draw_zone(image: Image.Image, mark: Mark, scene: Scene, layout: _Layout) -> None:
    """A translucent square over the cells that count, with a thin edge, cut off where the board ends."""
    left, top, right, bottom = layout.box(mark.row, mark.column, mark.size)
    board_left, board_top, board_right, board_bottom = _board_box(scene, layout)
    left, top, right, bottom = max(left, board_left), max(top, board_top), min(right, board_right), min(bottom, board_bottom)
    _lay_over(image, (left, top, right, bottom), mark.color, TINT)
    for edge in (
        (left, top, right, top + FINER),
        (left, bottom - FINER, right, bottom),
        (left, top + FINER, left + FINER, bottom - FINER),
        (right - FINER, top + FINER, right, bottom - FINER),
    ):
        _lay_over(image, edge, mark.color, ZONE_EDGE)


def _draw_grid(image: Image.Image, scene: Scene, layout: _Layout) -> None:
    left, top, right, bottom = _board_box(scene, layout)
    half, pitch = FINER // 2, layout.cell * FINER
    for column in range(1, scene.columns):
        middle = left + column * pitch
        _lay_over(image, (middle - half, top, middle + half + 1, bottom), INK, GRID_SHADE)
    for row in range(1, scene.rows):
        middle = top + row * pitch
        _lay_over(image, (left, middle - half, right, middle + half + 1), INK, GRID_SHADE)
    frame = (left - FINER, top - FINER, right + FINER, bottom + FINER)
    ImageDraw.Draw(image).rectangle(frame, outline=_mix(INK, PAPER, 0.45), width=2 * FINER)


def _board_box(scene: Scene, layout: _Layout) -> tuple[float, float, float, float]:
    left, top, _, _ = layout.box(0.0, 0.0, 1.0)
    _, _, right, bottom = layout.box(scene.rows - 1.0, scene.columns - 1.0, 1.0)
    return left, top, right, bottom


def _lay_over(image: Image.Image, box: tuple[float, float, float, float], color: Color, share: float) -> None:
    """Color a rectangle as if through thin paint: what is below stays visible."""
    left, top, right, bottom = (round(side) for side in box)
    if right > left and bottom > top:
        below = image.crop((left, top, right, bottom))
        image.paste(Image.blend(below, Image.new("RGB", below.size, color), share), (left, top))


def _enlarge(mark: Mark, cell: int) -> Mark:
    return dataclasses.replace(mark, size=max(mark.size, min(1.0, SMALLEST_MARK / cell))) if mark.shape in SOLID else mark


def _side_by_side(marks: Sequence[Mark]) -> list[Mark]:
    """The same marks, those that share a cell made smaller and moved apart on a circle around its center."""
    cells: defaultdict[tuple[float, float], list[int]] = defaultdict(list)
    for index, mark in enumerate(marks):
        if mark.shape in SOLID:
            cells[mark.row, mark.column].append(index)
    apart = list(marks)
    for together in cells.values():
        if len(together) == 1:
            continue
        shrink = 0.68 if len(together) == 2 else 0.58
        for place, index in enumerate(together):
            angle = np.pi * (0.75 + 2 * place / len(together))
            apart[index] = dataclasses.replace(
                marks[index],
                row=marks[index].row - CROWDED_SHIFT * float(np.sin(angle)),
                column=marks[index].column + CROWDED_SHIFT * float(np.cos(angle)),
                size=marks[index].size * shrink,
            )
    return apart


def _draw_mark(pen: ImageDraw.ImageDraw, mark: Mark, layout: _Layout) -> None:
    left, top, right, bottom = box = layout.box(mark.row, mark.column, mark.size)
    middle = ((left + right) / 2, (top + bottom) / 2)
    if mark.shape == "bar":
        half = BAR_HEIGHT * layout.cell * FINER / 2
        pen.rectangle((left, middle[1] - half, right, middle[1] + half), fill=mark.color)
        return
    if mark.shape == "line":
        end = layout.box(*(mark.end or (mark.row, mark.column)), 0.0)[:2]
        pen.line((middle, end), fill=mark.color, width=max(FINER, round(LINE_WIDTH * layout.cell * FINER)))
        return
    rim = _mix(mark.color, INK, 0.35)
    width = max(FINER, round(layout.cell * FINER / 28))
    if mark.shape == "disc":
        pen.ellipse(box, fill=mark.color, outline=rim, width=width)
    elif mark.shape == "diamond":
        pen.polygon(((middle[0], top), (right, middle[1]), (middle[0], bottom), (left, middle[1])), mark.color, rim, width)
    else:
        pen.rounded_rectangle(box, radius=(right - left) / 6, fill=mark.color, outline=rim, width=width)
    if mark.label:
        _write_label(pen, mark.label, middle, room=0.74 * (right - left))


def _write_label(pen: ImageDraw.ImageDraw, text: str, middle: tuple[float, float], room: float) -> None:
    font = _fitting_font(text, 0.9 * room, room)
    # Anchored by the height of a capital, so that digits sit in the middle whatever their shape.
    capital = font.getbbox("0", anchor="ls")
    pen.text((middle[0], middle[1] - (capital[1] + capital[3]) / 2), text, PAPER, font, anchor="ms")


def _write_line(pen: ImageDraw.ImageDraw, text: str, middle: float, layout: _Layout) -> None:
    """A line of text that starts at the left edge of the board, smaller if it would not fit."""
    room = float(layout.width - layout.left - MARGIN)
    font = _fitting_font(text, TEXT_SIZE * FINER, room * FINER)
    pen.text((layout.left * FINER, middle * FINER), text, INK, font, anchor="lm")


def _fitting_font(text: str, size: float, room: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    font = ImageFont.load_default(size)
    length = font.getlength(text)
    return font if length <= room else ImageFont.load_default(size * room / length)


def _mix(color: Color, other: Color, share: float) -> Color:
    red, green, blue = (round((1 - share) * mine + share * theirs) for mine, theirs in zip(color, other, strict=True))
    return red, green, blue


def _with_one_palette(frames: Sequence[np.ndarray]) -> list[Image.Image]:
    """Frames in the colors most used over the whole episode, so that no surface changes its shade from frame to frame."""
    # Some frames at a time: a thousand at once would take gigabytes on the way.
    packed = np.stack([frame.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32) for frame in frames])
    counts = sum(np.bincount(some.ravel(), minlength=1 << 24) for some in np.array_split(packed, -(-len(packed) // 64)))
    assert isinstance(counts, np.ndarray)
    colors = np.flatnonzero(counts)
    channels = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1)
    palette = channels[np.argsort(-counts[colors], kind="stable")[:PALETTE_SIZE]]
    nearest = np.zeros(len(counts), np.uint8)
    nearest[colors] = [((palette - color) ** 2).sum(-1).argmin() for color in channels]
    images = [Image.fromarray(nearest[frame]) for frame in packed]
    for image in images:
        image.putpalette(palette.astype(np.uint8).tobytes())
    return images


def _encode(images: Sequence[Image.Image], durations: list[int]) -> bytes:
    """The bytes of a GIF."""
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False, disposal=1)
    return buffer.getvalue()
