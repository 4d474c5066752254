"""The tables of many brokers and of their bridges: a row for each name."""

from __future__ import annotations

import pytest

from pubstorm.quantities import THIN_SPACE
from pubstorm.report.tables import facts
from pubstorm.report.watched import BRIDGES, BROKERS, addresses_text
from pubstorm.result import RunResult


def test_a_thousand_brokers_are_one_row(plain_run: RunResult) -> None:
    thousand = f"1{THIN_SPACE}000"
    assert BROKERS.table(plain_run).texts == (
        ("broker", "mosquitto 2.0.11", "127.0.0.1:18830", "0", "0"),
        ("boxes", f"{thousand} × mosquitto 2.0.11", "127.0.0.1:20000-20999", "0", "0"),
    )
    assert BRIDGES.table(plain_run).texts == (
        ("uplink", "boxes → broker", thousand, thousand, "31.4 s"),
    )


def test_what_the_brokers_of_a_name_came_to_is_added_up(plain_run: RunResult) -> None:
    first, *rest = plain_run.brokers[1:]
    flapped = first.model_copy(update={"died": True, "restarts": 3})
    changed = plain_run.model_copy(update={"brokers": (flapped, *rest)})
    assert BROKERS.table(changed).texts[0][-2:] == ("3", "1")


def test_one_broker_needs_no_table_until_something_happens_to_it(plain_run: RunResult) -> None:
    one = plain_run.brokers[0]
    assert BROKERS.table(plain_run.model_copy(update={"brokers": (one,)})).texts == ()
    died = one.model_copy(update={"died": True})
    assert len(BROKERS.table(plain_run.model_copy(update={"brokers": (died,)})).texts) == 1


def test_bridges_that_report_nothing_are_not_said_to_be_up(plain_run: RunResult) -> None:
    silent = plain_run.bridges[0].model_copy(update={"up": None, "up_after_s": None})
    (row,) = BRIDGES.table(plain_run.model_copy(update={"bridges": (silent,)})).texts
    assert row[-2:] == ("–", "–")


@pytest.mark.parametrize(
    ("addresses", "text"),
    [
        ([("a", 1)], "a:1"),
        ([("a", 3), ("a", 2), ("a", 1)], "a:1-3"),
        ([("a", 1), ("b", 5), ("a", 9)], "a:1, a:9, b:5"),
        ([("a", 2 * n) for n in range(5)], "a, 5 ports from 0 to 8"),
    ],
)
def test_ports_in_a_row_are_a_range(addresses: list[tuple[str, int]], text: str) -> None:
    assert addresses_text(addresses) == text


def test_many_targets_are_not_listed_one_by_one(plain_run: RunResult) -> None:
    targets = tuple(f"127.0.0.1:{port}" for port in range(1, 1002))
    (found, *_) = facts(plain_run.model_copy(update={"targets": targets}))
    assert found.value == ("127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3 and 998 more (mosquitto 2.0.11)")
