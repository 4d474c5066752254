"""Calibrations as stored values, and what a run makes of them."""

from pathlib import Path

import pytest

from pubstorm.contract.plan import Plan
from pubstorm.errors import StoredRunError
from pubstorm.experiment.calibrate import in_use
from pubstorm.host.calibration import (
    Calibration,
    CalibrationFigure,
    Fingerprint,
    calibration_path,
    find,
    store,
)
from pubstorm.measure.summary import shares_of_ceilings
from pubstorm.plan import provisional_plan
from pubstorm.result.timeline.rows import Row
from pubstorm.scenario import parse_scenario
from tests.kit import made

HERE = Fingerprint(cpu_model="Some CPU", cores=2, kernel="Linux 6.1", engine="0.1.0")


def figure(value: float) -> CalibrationFigure:
    return CalibrationFigure(median=value, low=value / 2, high=value * 2)


def calibration(fingerprint: Fingerprint = HERE, when: str = "2026-11-21T12:00:00") -> Calibration:
    return Calibration(
        fingerprint=fingerprint,
        calibrated=when,
        rounds=3,
        payload_bytes=100,
        sent_qos0=figure(200_000),
        sent_qos1=figure(100_000),
        received=figure(400_000),
        connected=figure(30_000),
        clients=20_000,
        bytes_per_client=figure(300),
    )


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def changed(**update: object) -> Fingerprint:
    return HERE.model_copy(update=update)


def test_a_host_that_was_never_calibrated_has_no_ceiling_and_no_word() -> None:
    assert find(HERE) == (None, "")


def test_a_later_calibration_takes_the_place_of_that_of_the_same_host() -> None:
    store(calibration(when="then"))
    store(calibration(changed(engine="0.0.9"), when="before"))
    store(calibration(when="now"))
    found, word = find(HERE)
    assert found is not None
    assert (found.calibrated, word) == ("now", "")
    assert found.fingerprint == HERE


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (changed(engine="0.0.9"), "is of engine 0.0.9 and is not used: run `pubstorm calibrate`"),
        (changed(kernel="Linux 5.4"), "is of another host or kernel and is not used"),
        (changed(cpu_model="Other"), "is of another host or kernel and is not used"),
    ],
)
def test_a_calibration_of_another_host_or_engine_is_not_used(
    other: Fingerprint, words: str
) -> None:
    store(calibration(other))
    found, word = find(HERE)
    assert found is None
    assert words in word


def test_a_broken_file_counts_as_none_and_is_replaced() -> None:
    calibration_path().parent.mkdir(parents=True)
    calibration_path().write_text('{"format": 7')
    assert find(HERE) == (None, "")
    store(calibration())
    assert find(HERE)[0] == calibration()


def test_a_folder_that_cannot_be_written_is_an_error_with_a_hint(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(state / "file"))
    with pytest.raises(StoredRunError, match="cannot write") as caught:
        store(calibration())
    assert caught.value.hint is not None


def plan_of(qos: int) -> Plan:
    text = f"""\
target: mqtt://127.0.0.1
populations:
  c: {{clients: 2, publications: [{{topic: t, rate: 1/s, qos: {qos}}}]}}
  s: {{clients: 2, subscriptions: [t]}}
"""
    return provisional_plan(parse_scenario(text, "s.yaml"))


def interval(sent: int, received: int, span_s: float = 1.0, agent: int = 0) -> Row:
    return made.row(agent, 0, round(span_s * 1e9), {"sent": sent}, {"received": received})


@pytest.mark.parametrize(
    ("qos", "intervals", "connected", "rate", "clients"),
    [
        (0, [interval(20_000, 20_000)], [5000], 0.15, 0.25),
        (1, [interval(20_000, 20_000)], [5000], 0.25, 0.25),
        (2, [interval(20_000, 20_000)], [5000], 0.45, 0.25),
        # The busiest second of the busiest agent counts.
        (0, [interval(1000, 0), interval(50_000, 0, agent=1)], [10, 4000], 0.25, 0.2),
        # A moment is too short for a rate.
        (0, [interval(1000, 0, span_s=0.001), interval(20_000, 0)], [1000], 0.1, 0.05),
        (0, [], [], 0, 0),
    ],
)
def test_the_share_of_the_ceiling_adds_up_what_is_sent_and_received(
    qos: int, intervals: list[Row], connected: list[int], rate: float, clients: float
) -> None:
    found = shares_of_ceilings(plan_of(qos), intervals, connected, calibration())
    assert found.rate == pytest.approx(rate) and found.clients == clients


SLABINFO = """\
slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables
TCP                   100    110   2368   13    8 : tunables    0    0    0 : slabdata
sock_inode_cache      110    120    832   19    4 : tunables    0    0    0 : slabdata
proc_inode_cache   300000 300000    680   12    2 : tunables    0    0    0 : slabdata
dentry             621653 621663    192   21    1 : tunables    0    0    0 : slabdata
"""


def test_what_a_connection_takes_leaves_out_what_was_looked_at() -> None:
    assert in_use(SLABINFO) == 100 * 2368 + 110 * (832 + 192)
