"""The socket of a run: asked by its user, answered in words, gone with the run."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm.errors import UsageError
from pubstorm.play.control_socket import LINE_BYTES_MAX, ask, listening
from pubstorm.play.directory import CONTROL_FILE


async def change(words: str) -> str:
    """A run that takes whatever does not begin with no."""
    if words.startswith("no"):
        raise UsageError(f"found '{words}'", "say yes")
    return f"did {words}"


def with_a_run(directory: Path, act: Callable[[], None]) -> list[str]:
    """Does something in a thread while a run listens; what the run noted."""
    notes: list[str] = []

    async def run() -> None:
        async with listening(directory, change, notes.append):
            await asyncio.to_thread(act)

    asyncio.run(run())
    return notes


def answered(directory: Path, words: str) -> list[str]:
    """Asks a run; the answer and what the run noted."""
    answers: list[str] = []
    notes = with_a_run(directory, lambda: answers.append(ask(directory, words)))
    return answers + notes


def test_an_answer_comes_back(tmp_path: Path) -> None:
    assert answered(tmp_path, "add 500 late") == ["did add 500 late"]


def test_a_refusal_comes_back_with_its_hint(tmp_path: Path) -> None:
    def act() -> None:
        with pytest.raises(UsageError, match="found 'nothing'") as caught:
            ask(tmp_path, "nothing")
        assert caught.value.hint == "say yes"

    with_a_run(tmp_path, act)


def test_only_the_owner_can_open_it_and_it_is_gone_afterwards(tmp_path: Path) -> None:
    modes: list[int] = []
    with_a_run(tmp_path, lambda: modes.append((tmp_path / CONTROL_FILE).stat().st_mode))
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_long_path_has_one_too(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 30) / ("longer" * 20)
    deep.mkdir(parents=True)
    assert answered(deep, "yes") == ["did yes"]


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    with_a_run(tmp_path, lambda: None)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with_a_run(tmp_path, lambda: None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\n", b"x" * 10 * LINE_BYTES_MAX, b"no\nno\n"])
def test_what_is_no_line_of_words_does_no_harm(tmp_path: Path, garbage: bytes) -> None:
    answers: list[str] = []

    def act() -> None:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(tmp_path / CONTROL_FILE))
            stream.sendall(garbage)
        answers.append(ask(tmp_path, "yes"))

    assert with_a_run(tmp_path, act) == []
    assert answers == ["did yes"]


def test_a_run_that_cannot_listen_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / CONTROL_FILE).write_text("in the way")
    done: list[bool] = []
    notes = with_a_run(tmp_path, lambda: done.append(True))
    assert done == [True]
    assert notes == ["no change by control is possible: Address already in use"]
    assert (tmp_path / CONTROL_FILE).read_text() == "in the way"


@pytest.mark.parametrize("folder", ["", "none", "file"])
def test_where_no_run_goes_on_is_said(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no run is active in") as caught:
        ask(tmp_path / folder, "rate 2 device")
    assert caught.value.hint is not None


def test_a_socket_left_by_a_killed_run_is_no_run(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / CONTROL_FILE))
    with pytest.raises(UsageError, match="no run is active in"):
        ask(tmp_path, "rate 2 device")
