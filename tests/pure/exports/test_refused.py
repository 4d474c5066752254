"""Exports that cannot begin: the command line is refused before anything is played."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pubstorm import cli
from pubstorm.errors import UsageError
from pubstorm.exports.otlp import Collector
from tests.kit.made_run import SCENARIO


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prometheus", "127.0.0.1:{taken}"), "cannot listen: Address already in use"),
        (("--prometheus", "9464"), "allowed is [HOST]:PORT"),
        (("--otlp", "localhost:4317"), "allowed is http[s]://HOST:PORT"),
        (("--influx", "missing/points"), "cannot open it: No such file"),
        (("--influx", "."), "File '.' is a directory"),
        (("--json-lines", "/dev/full/x"), "cannot open it: Not a directory"),
    ],
)
def test_an_export_that_cannot_begin_ends_before_the_run(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        asked = [word.format(taken=taken) for word in words]
        assert cli.main(["run", "s.yaml", "--out", "out", *asked]) == 2
    said = capsys.readouterr().err
    assert message in said and "hint:" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:4317",
        "mqtt://localhost",
        "grpc://",
        "http:///x",
        "http://localhost:port",
        "grpc://localhost:99999",
        "http://[localhost",
    ],
)
def test_a_wrong_url_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"allowed is http\[s\]://HOST:PORT"):
        Collector(url)
