"""Pictures show what the scene says, where it says it; a GIF keeps every frame's colors and never leaves half a file."""

from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from comad import envs
from comad.envs.base import Env
from comad.envs.pictures import paint, save_gif
from comad.envs.scene import AGENT, DONE, FOOD, GOAL, INK, PAPER, Color, Mark, Scene, Shape
from comad.errors import UserError

CELL = 48


def board(*marks: Mark, size: int = 6, title: str = "A BOARD   step 3 of 50") -> Scene:
    return Scene(size, size, marks, title)


def mark(shape: Shape, row: int, column: int, color: Color, label: str = "", size: float = 0.72) -> Mark:
    return Mark(shape, float(row), float(column), color, label, size)


def pixel(image: np.ndarray, row: float, column: float) -> Color:
    """The color in the middle of a cell of a board of six."""
    red, green, blue = image[int(40 + (row + 0.5) * CELL), int(12 + (column + 0.5) * CELL)].tolist()
    return red, green, blue


def amount(image: np.ndarray, color: Color) -> int:
    return int((image == np.array(color)).all(-1).sum())


def test_marks_are_where_the_scene_puts_them() -> None:
    image = paint(board(mark("disc", 1, 4, AGENT), mark("diamond", 5, 0, GOAL), mark("square", 3, 3, FOOD)))
    assert image.dtype == np.uint8
    assert [pixel(image, 1, 4), pixel(image, 5, 0), pixel(image, 3, 3), pixel(image, 4, 1)] == [AGENT, GOAL, FOOD, PAPER]


def test_shapes_differ() -> None:
    shapes: tuple[Shape, ...] = ("diamond", "disc", "square")
    areas = [amount(paint(board(mark(shape, 2, 2, AGENT))), AGENT) for shape in shapes]
    assert areas == sorted(areas)
    assert areas[0] < 0.8 * areas[1]


def test_a_zone_is_a_light_tint_that_ends_at_its_edge_and_at_the_edge_of_the_board() -> None:
    image = paint(board(mark("zone", 0, 0, DONE, size=5.0)))
    inside, outside = pixel(image, 2, 2), pixel(image, 3, 3)
    assert outside == PAPER != inside
    assert all(200 < channel < 250 for channel in inside)
    assert (image[:, :10] == np.array(PAPER)).all()


def test_zones_lie_under_marks() -> None:
    disc, zone = mark("disc", 2, 2, AGENT), mark("zone", 2, 2, DONE, size=5.0)
    assert pixel(paint(board(disc, zone)), 2, 2) == AGENT


def test_labels_are_readable() -> None:
    plain, one, two = (paint(board(mark("disc", 2, 2, AGENT, label=label))) for label in ("", "1", "2"))
    assert amount(one, PAPER) - amount(plain, PAPER) > 10
    assert not np.array_equal(one, two)


def test_marks_that_share_a_cell_all_show() -> None:
    disc, diamond = mark("disc", 2, 2, AGENT), mark("diamond", 2, 2, GOAL)
    image = paint(board(diamond, disc))
    for one in (disc, diamond):
        assert amount(image, one.color) > 0.3 * amount(paint(board(one)), one.color)


def test_a_bar_is_as_wide_as_it_says_and_flat() -> None:
    whole, half = (paint(board(mark("bar", 2, 2, DONE, size=size))) for size in (1.0, 0.5))
    assert pixel(whole, 2, 2) == pixel(half, 2, 2) == DONE
    assert pixel(whole, 2, 2.35) == DONE and pixel(half, 2, 2.35) == PAPER
    assert pixel(whole, 2.3, 2) == pixel(whole, 1.7, 2) == PAPER


def test_a_line_goes_from_its_place_to_its_end() -> None:
    image = paint(board(Mark("line", 1.0, 1.0, FOOD, end=(3.0, 5.0))))
    assert [pixel(image, 1 + share * 2, 1 + share * 4) for share in (0.1, 0.4, 0.6, 0.9)] == [FOOD] * 4
    assert [pixel(image, 1, 3), pixel(image, 3, 1), pixel(image, 0, 0)] == [PAPER] * 3


def test_bars_and_lines_do_not_crowd_a_cell() -> None:
    disc = mark("disc", 2, 2, AGENT)
    image = paint(board(Mark("line", 2.0, 2.0, FOOD, end=(2.0, 5.0)), disc, mark("bar", 2, 2, DONE, size=0.1)))
    assert amount(image, AGENT) > 0.8 * amount(paint(board(disc)), AGENT)
    assert pixel(image, 2, 4) == FOOD


def test_large_boards_stay_small_pictures_with_large_marks() -> None:
    image = paint(board(mark("disc", 2, 2, AGENT), size=20))
    assert 400 < image.shape[1] <= 480
    assert amount(image, AGENT) > 150


def test_text_fits_however_long_it_is() -> None:
    short, long = paint(board(title="short")), paint(board(title="a long title " * 12))
    for image in (short, long):
        assert (image[:30] != np.array(PAPER)).any()
        assert (image[:30, -10:] == np.array(PAPER)).all()
    assert short.shape == long.shape


def test_a_footer_is_written_below_the_board() -> None:
    plain, footed = paint(board()), paint(board(), footer="return 1.00")
    assert footed.shape[0] > plain.shape[0]
    assert (np.abs(footed[-30:].astype(int) - np.array(INK)).sum(-1) < 30).any()


@pytest.mark.parametrize("name", ["cn-2", "cn-15", "lbf-bottom", "lbf-8x8-3p-3f"])
def test_worlds_show_every_agent_and_every_target(name: str) -> None:
    env = envs.make(name)
    assert isinstance(env, Env)
    scene = env.scene(jax.jit(env.reset)(jax.random.key(0))[0])
    image = paint(scene)
    assert sum(shown.color == AGENT for shown in scene.marks) == env.spec.num_agents
    assert len([shown for shown in scene.marks if shown.shape in ("diamond", "square")]) == env.spec.num_targets
    for shown in scene.marks:
        assert shown.shape == "zone" or amount(image, shown.color) > 50


def test_a_gif_keeps_size_colors_and_time(tmp_path: Path) -> None:
    frames = [paint(board(mark("zone", 2, 2, DONE, size=3.0), mark("disc", 5, column, AGENT, label=str(column)))) for column in range(4)]
    save_gif(frames, tmp_path / "new" / "folder" / "episode.gif", seconds_per_frame=0.2)
    with Image.open(tmp_path / "new" / "folder" / "episode.gif") as gif:
        assert isinstance(gif, GifImageFile)
        assert (gif.n_frames, gif.size, gif.info["loop"]) == (4, frames[0].shape[1::-1], 0)
        durations = []
        for index, frame in enumerate(frames):
            gif.seek(index)
            shown = np.asarray(gif.convert("RGB"))
            durations.append(gif.info["duration"])
            assert [pixel(shown, 2, 2), pixel(shown, 0, 0)] == [pixel(frame, 2, 2), PAPER]
            assert amount(shown, AGENT) >= amount(frame, AGENT)
            assert np.abs(shown.astype(int) - frame).max() < 24
    assert durations[:3] == [200] * 3
    assert durations[3] > 1000


def test_all_frames_share_one_palette(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 40, 40, 3), np.uint8)
    save_gif(list(noise), tmp_path / "noise.gif")
    colors = set()
    with Image.open(tmp_path / "noise.gif") as gif:
        for index in range(3):
            gif.seek(index)
            colors |= {tuple(color) for color in np.asarray(gif.convert("RGB")).reshape(-1, 3).tolist()}
    assert 200 < len(colors) <= 256


def test_a_gif_needs_frames_of_one_size(tmp_path: Path) -> None:
    for frames in ([], [paint(board()), paint(board(size=7))]):
        with pytest.raises(ValueError, match="one size"):
            save_gif(frames, tmp_path / "episode.gif")


def test_a_place_where_no_gif_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.gif").mkdir()
    (tmp_path / "file").touch()
    for path, words in {
        "episode.png": r"must end in \.gif",
        "episode": r"must end in \.gif",
        "folder.gif": "it is a folder",
        "file/episode.gif": "is not a folder",
        "file/deeper/episode.gif": "is not a folder",
    }.items():
        with pytest.raises(UserError, match=words):
            save_gif([paint(board())], tmp_path / path)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "episode.gif"
    path.write_text("an older file")
    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(UserError, match=r"cannot write .*episode\.gif: Permission denied"):
        save_gif([paint(board())], path)
    assert [found.name for found in tmp_path.iterdir()] == ["episode.gif"]
    assert path.read_text() == "an older file"
