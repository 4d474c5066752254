"""`pubstorm monitor` as its user starts and ends it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from pubstorm import cli

Shell = Callable[..., tuple[int, str]]


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Runs `pubstorm monitor` in a folder with keys; exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(("keys", "ca", "keys")) == 0
    Path("token").write_text("0123456789abcdef\n")
    Path("short").write_text("secret\n")
    capsys.readouterr()

    def call(*arguments: str) -> tuple[int, str]:
        code = cli.main(("monitor", *arguments))
        return code, capsys.readouterr().err

    return call


KEYS = ("--cert", "keys/server.crt", "--key", "keys/server.key")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--listen'"),
        (("--listen", "9700"), "found --listen 9700, allowed is [HOST]:PORT"),
        (("--listen", "127.0.0.1:70000"), "allowed is [HOST]:PORT"),
        (("--listen", "no.such.invalid:9700"), "found no address for no.such.invalid"),
        (("--listen", "0.0.0.0:0"), "0.0.0.0:0 without --token-file and --cert and --key, allowed"),
        (("--listen", "[::]:0", *KEYS), "without --token-file, allowed for addresses of this"),
        (("--listen", "0.0.0.0:0", "--token-file", "token"), "without --cert and --key"),
        (("--listen", "127.0.0.1:0", "--token-file", "none"), "none cannot be read: No such file"),
        (("--listen", "127.0.0.1:0", "--token-file", "short"), "found no token in short"),
        (("--listen", "127.0.0.1:0", *KEYS[:2]), "found one of --cert and --key, needed are both"),
        (
            ("--listen", "127.0.0.1:0", "--cert", "none", "--key", "keys/server.key"),
            "none cannot be read: No such file",
        ),
        (
            ("--listen", "127.0.0.1:0", "--cert", "keys/server.crt", "--key", "keys/ca.key"),
            "keys/server.crt and keys/ca.key are no certificate with its key",
        ),
        (
            ("--listen", "127.0.0.1:0", "--cert", "token", "--key", "token"),
            "token and token are no certificate with its key",
        ),
        (("--listen", "192.0.2.1:0", "--token-file", "token", *KEYS), "give an address of this"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(
    shell: Shell, arguments: tuple[str, ...], words: str
) -> None:
    code, said = shell(*arguments)
    assert code == 2
    assert words in said


def test_a_port_that_is_taken_is_reported(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code, said = shell("--listen", f"127.0.0.1:{listener.getsockname()[1]}")
    assert code == 2
    assert "Address already in use\n  hint: end the program that listens there" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_ends_it(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "pubstorm", "monitor", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("serving the monitors of this host at http://127.0.0.1:"), line
            url = line.split(" at ")[1].split(",")[0]
            port = int(url.rpartition(":")[2])
            with urllib.request.urlopen(f"{url}/process?port={port}", timeout=30) as answer:
                assert b"pubstorm_process_rss_bytes" in answer.read()
            # A connection that is open does not delay the end.
            with socket.create_connection(("127.0.0.1", port), 30):
                process.send_signal(number)
                assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
