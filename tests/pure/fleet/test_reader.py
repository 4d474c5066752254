"""The order of an agent's lines."""

from __future__ import annotations

import pytest

from pubstorm.contract import Value
from pubstorm.contract.commands import BeatAnswer, Bye, Failure, Hello
from pubstorm.fleet.incarnation import ContractError, Reader
from tests.kit import made

HELLO = Hello(agent=1, agents=2, version="fake", pid=1, descriptors=9, clients=(1,), clock_ns=0)
BEAT = BeatAnswer()
BYE = Bye(snapshots=0)
FAILURE = Failure(message="no such seed", hint="choose another")


def read(*lines: Value) -> Reader:
    reader = Reader(1, 2)
    for line in lines:
        reader.read(line.model_dump_json().encode())
    return reader


def test_beats_are_answered_anywhere_even_before_hello_and_after_the_last_line() -> None:
    assert read(BEAT, HELLO, BEAT, BYE, BEAT).bye
    assert read(HELLO, FAILURE, BEAT).failure == FAILURE


def test_only_a_hello_and_a_snapshot_are_more_than_a_manner_of_the_end() -> None:
    reader = Reader(1, 2)
    assert reader.read(HELLO.model_dump_json().encode()) == HELLO
    assert reader.read(BEAT.model_dump_json().encode()) is None
    assert reader.read(BYE.model_dump_json().encode()) is None


@pytest.mark.parametrize(
    ("lines", "breach"),
    [
        ([BYE], "bye where hello is due"),
        ([HELLO, HELLO], "hello where no hello is due"),
        ([HELLO, BYE, HELLO], "a hello after the last line"),
        ([FAILURE, HELLO], "a hello after the last line"),
        ([HELLO, Bye(snapshots=2)], "bye number 2 after 0 snapshots"),
        (
            [HELLO, made.snapshot(from_ns=0, agent=1, sequence=1)],
            "snapshot number 1 after 0 snapshots",
        ),
        ([HELLO.model_copy(update={"agent": 0})], "it says that it is agent 0 of 2"),
    ],
)
def test_what_comes_where_it_is_not_due_breaks_the_contract(
    lines: list[Value], breach: str
) -> None:
    with pytest.raises(ContractError, match=breach):
        read(*lines)
