"""`pubstorm bench`: each option as the value that it stands for, whole runs of each kind, and the
scenario that a line prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm.cli.bench import KINDS, options_of
from pubstorm.errors import UsageError
from tests.kit import program
from tests.kit.starved import passes

# Runs so short say nothing of speed: whatever a busy machine does to them is valid.
ANY_SPEED = ("--set", "validity.lateness_p99=1min", "--set", "validity.busy=100%")
QUICK = ("-c", "20", "--for", "1s", *ANY_SPEED)


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return program.run(("bench", *words), capture_output=True, text=True, timeout=120)


def printed(*words: str) -> dict[str, Any]:
    found = bench(*words, "--print")
    assert found.returncode == 0, found.stderr
    values: dict[str, Any] = yaml.safe_load(found.stdout)
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_runs_on_the_embedded_broker(kind: str, tmp_path: Path) -> None:
    found = bench(kind, *QUICK, "--out", str(tmp_path / "run"))
    status = assert_passes(found, tmp_path / "run")["verdict"]["status"]
    assert status.upper() in found.stdout


def test_options_are_values_of_the_printed_scenario() -> None:
    values = printed(
        "pairs",
        "mqtts://broker.example",
        *("-c", "50", "--rate", "20/s", "--size", "1kB", "--qos", "1", "--topic", "a/{n}/b"),
        *("--for", "10s", "--ramp", "100/s", "--v5", "--username", "user-{n}"),
        *("--password", "${env:PATH}", "--tls-ca", "ca.crt", "--tls-insecure"),
        *("--tls-cert", "c-{n}.crt", "--tls-key", "c-{n}.key"),
    )
    assert values["target"] == "mqtts://broker.example"
    assert "topology" not in values
    publisher, subscriber = (values["populations"][name] for name in ("publisher", "subscriber"))
    for each in (publisher, subscriber):
        assert (each["clients"], each["version"], each["username"]) == (50, 5, "user-{n}")
        assert each["password"] == "${env:PATH}"
        files = {"ca": "ca.crt", "certificate": "c-{n}.crt", "key": "c-{n}.key"}
        absolute = {key: str(Path(file).absolute()) for key, file in files.items()}
        assert each["tls"] == {**absolute, "verify": False}
    (publication,) = publisher["publications"]
    assert publication == {"topic": "a/{n}/b", "rate": "20/s", "size": "1kB", "qos": 1}
    assert subscriber["subscriptions"] == [{"topic": "a/{n}/b", "qos": 1}]
    assert values["stages"][:2] == [{"connect": {"rate": "100/s"}}, {"publish": "10s"}]


def test_a_printed_scenario_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(bench("fan-in", *QUICK, "--print").stdout)
    words = ("run", str(path), "--out", str(tmp_path / "run"))
    found = program.run(words, capture_output=True, text=True, timeout=120)
    assert_passes(found, tmp_path / "run")


def assert_passes(found: subprocess.CompletedProcess[str], folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert passes(found.returncode, result), found.stdout + found.stderr
    return result


def test_a_total_rate_takes_the_place_of_the_rate() -> None:
    values = printed("pairs", "-c", "50", "--total-rate", "100/s")
    (publication,) = values["populations"]["publisher"]["publications"]
    assert publication["total_rate"] == "100/s"
    assert "rate" not in publication


@pytest.mark.parametrize(
    ("kind", "topic", "written"),
    [("fan-in", "a/x{n}/b", "a/+/b"), ("fan-out", "a/b", "a/b"), ("sub", "a/{n}", "a/{n}")],
)
def test_subscribers_have_a_filter_for_the_topic(kind: str, topic: str, written: str) -> None:
    subscriber = printed(kind, "--topic", topic)["populations"]["subscriber"]
    assert subscriber["subscriptions"][0]["topic"] == written


def test_until_is_a_search_whose_threshold_is_the_opposite() -> None:
    values = printed("pairs", "--rate", "5/s", "--until", "p99 > 100ms")
    assert values["thresholds"] == ["subscriber.latency.p99 <= 100ms"]
    rate = "populations.publisher.publications.0.rate"
    assert values["search"] == {"vary": rate, "from": "5/s", "to": "1M/s"}
    values = printed("pairs", "--total-rate", "1k/s", "--until", "p99 > 100ms")
    total_rate = "populations.publisher.publications.0.total_rate"
    assert values["search"] == {"vary": total_rate, "from": "1k/s", "to": "10M/s"}
    values = printed("pub", "--qos", "1", "--until", "publisher.skipped >= 1")
    assert values["thresholds"] == ["publisher.skipped < 1"]


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("conn", {"rate": "1/s"}, "--rate with conn, which publishes nothing"),
        ("sub", {"size": "1kB"}, "--size with sub, which publishes nothing"),
        ("conn", {"qos": "1"}, "--qos with conn, which only connects"),
        ("pub", {"rate": "1/s", "as_fast": True}, "found --rate and --max"),
        ("pub", {"tls_cert": "a.crt"}, "found --tls-cert without --tls-key"),
        ("pub", {"until": "p99 > 100ms"}, "QoS 0, which has no acknowledgements"),
        ("pairs", {"until": "it breaks"}, "allowed is METRIC > VALUE"),
        ("pairs", {"until": "p99 > 1s", "as_fast": True}, "found --until and --max"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    kind: str, given: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        options_of(kind, given)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pairs", "-c", "0"), "error: --clients: found 0, allowed is 1 to 4_294_967_295"),
        (("pub", "--size", "much"), "error: --size: found 'much', allowed is a size"),
        (("pub", "--total-rate", "much"), "error: --total-rate: found 'much', allowed is a rate"),
        (("pub", "--for", "0s"), "error: --for: found '0s', allowed is more than 0s"),
        (("pairs", "--until", "foo > 1"), "error: --until: found 'foo', allowed are the metrics"),
        (("pub", "localhost"), "error: TARGET: found 'localhost', allowed is mqtt[s]://HOST"),
        (("pub", "--password", "a"), "error: --password: found password without username"),
        (("pub", "--tls-ca", "a"), "error: found --tls-ca without TARGET"),
        (("pub", "mqtt://a", "--tls-insecure"), "error: found --tls-insecure with mqtt://a, "),
    ],
)
def test_a_wrong_value_is_named_by_its_option(words: tuple[str, ...], error: str) -> None:
    found = bench(*words)
    assert found.returncode == 2
    first, hint = found.stderr.splitlines()
    assert first.startswith(error)
    assert hint.startswith("  hint: ")


def test_a_wrong_value_of_set_is_named_by_its_path() -> None:
    found = bench("pub", "--set", "drain=soon")
    assert found.returncode == 2
    assert "error: --set drain=soon: drain: found 'soon'" in found.stderr
