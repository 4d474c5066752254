"""A search of real runs on a real broker, which all trials share: it is killed and resumed, and its
answer is known. What a search means is in `tests/pure/experiment/test_played_search.py`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kit import program
from tests.kit.runs import RunMaker
from tests.kit.serving import until

SCENARIO = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 2
    publications: [{topic: "a/{n}", rate: 10/s, qos: 1}]
  backend: {clients: 1, subscriptions: ["a/#"]}
stages: [connect, {publish: 200ms}]
thresholds: [device.connected <= 11, lost == 0]
fleet: {agents: 1}
search:
  {vary: populations.device.clients, from: 4, to: 20, precision: 20%, repeat: 1, broker: same}
"""


def stored(directory: Path) -> dict[str, Any]:
    search: dict[str, Any] = json.loads((directory / "search.json").read_text())
    return search


def pids(directory: Path) -> list[int]:
    """The brokers of the trials that have a result, in order."""
    files = sorted(directory.glob("trials/*/result.json"))
    return [json.loads(file.read_text())["brokers"][0]["pid"] for file in files]


def test_a_search_that_was_killed_continues_with_the_trials_it_has(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    run = start(SCENARIO)
    until(lambda: [*run.directory.glob("trials/003-*")])
    children = run.children()
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    gone(children)
    killed = stored(run.directory)
    kept = len(killed["trials"])
    assert [trial["written"] for trial in killed["trials"]][:2] == ["4", "8"]
    assert not killed["complete"]

    words = ("run", "--quiet", "--resume", str(run.directory))
    resumed = program.run(words, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    search = stored(run.directory)
    assert search["trials"][:kept] == killed["trials"]
    assert search["answer"]["best"]["value"] == 11
    for trial in search["trials"]:
        assert trial["status"] == ("pass" if trial["value"] <= 11 else "fail")
    brokers = pids(run.directory)
    assert len({*brokers[:2]}) == len({*brokers[-2:]}) == 1, "all trials share one"
    assert brokers[0] != brokers[-1]
    gone(brokers)
