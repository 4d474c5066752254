"""The endpoint for Prometheus over real connections: its process, its token and its end."""

from __future__ import annotations

import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from pubstorm import cli
from pubstorm.cli.options import EXAMPLE, OF_PROMETHEUS, Exporting, Serving, serving_at
from pubstorm.contract import Sample
from pubstorm.errors import UsageError
from pubstorm.exports import Samples
from pubstorm.web.process import ScrapeEndpoint
from tests.kit import made
from tests.kit.made_run import a_run, interval
from tests.kit.ports import free_port
from tests.kit.serving import until

TOKEN = "0123456789abcdef"
Started = Callable[[Serving], ScrapeEndpoint]


@pytest.fixture
def start() -> Iterator[Started]:
    with ExitStack() as stack:

        def started(serving: Serving) -> ScrapeEndpoint:
            endpoint = ScrapeEndpoint("--prometheus", *serving.listen())
            stack.callback(endpoint.close)
            return endpoint

        yield started


def at(listen: str, *files: Path | None) -> Serving:
    return serving_at(listen, files or (None, None, None), OF_PROMETHEUS, EXAMPLE)


def page(url: str, token: str = "", tls: ssl.SSLContext | None = None) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=60, context=tls) as answer:
        return str(answer.read().decode())


def test_the_figures_are_those_that_were_handed_over_last(start: Started) -> None:
    port = free_port()
    endpoint, url = start(at(f":{port}")), f"http://127.0.0.1:{port}"
    assert page(url) == ""
    run = a_run()
    endpoint.take(run, interval(0))
    endpoint.rest()
    until(lambda: "pubstorm_sent_total{" in page(url))
    odd = Samples([Sample(made.source("broker"), "cpu", 1.0, float("inf"))])
    endpoint.take(run, odd)
    endpoint.end()
    until(lambda: re.search(r"pubstorm_monitor{.*} \+Inf", page(url)))
    assert "pubstorm_stage_active{" not in page(url)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page(f"{url}/other")
    strange = urllib.request.Request(f"{url}/metrics", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(strange, timeout=60)


def test_a_page_is_handed_over_whole_or_not_at_all(start: Started) -> None:
    """Also where it is longer than the pipe, and where the process takes nothing for a while."""
    port = free_port()
    endpoint = start(at(f":{port}"))
    process, run = psutil.Process(endpoint._process._process.pid), a_run()
    url = f"http://127.0.0.1:{port}"
    page(url)
    many = [Sample(made.source(f"broker-{n}"), "cpu", 1.0, n) for n in range(15_000)]
    endpoint.take(run, Samples(many))
    process.suspend()
    endpoint._hand_over()
    endpoint.take(run, Samples([Sample(made.source("broker"), "cpu", 1.0, 5)]))
    endpoint._hand_over()
    process.resume()

    def has_last() -> bool:
        endpoint._next_s = 0.0
        endpoint.rest()
        return 'source="broker"' in page(url)

    until(has_last)
    assert page(url).count("pubstorm_monitor{") == len(many) + 1
    assert (endpoint.dropped, endpoint.problem) == (0, "")


def test_a_process_that_ends_is_a_problem_of_the_export(start: Started) -> None:
    port = free_port()
    endpoint = start(at(f":{port}"))
    page(f"http://127.0.0.1:{port}")
    process = psutil.Process(endpoint._process._process.pid)
    process.kill()
    until(lambda: not endpoint._process.is_alive)
    for second in range(2):
        endpoint.take(a_run(), interval(second))
        endpoint._hand_over()
    assert (endpoint.dropped, endpoint.problem) == (1, "its process ended: it gave no reason")


def test_another_address_needs_the_token_and_tls(start: Started, tmp_path: Path) -> None:
    assert cli.main(("keys", "ca", str(tmp_path / "keys"), "--name", "localhost")) == 0
    token, cert, key = (tmp_path / name for name in ("token", "keys/server.crt", "keys/server.key"))
    token.write_text(TOKEN)
    for files, missing in (
        ((None, None, None), "without --prometheus-token-file and --prometheus-cert"),
        ((token, None, None), "without --prometheus-cert and --prometheus-key"),
        ((None, cert, key), "without --prometheus-token-file"),
    ):
        with pytest.raises(UsageError, match=missing):
            at("0.0.0.0:0", *files)
    port = free_port()
    start(at(f"0.0.0.0:{port}", token, cert, key))
    tls = ssl.create_default_context(cafile=str(tmp_path / "keys" / "ca.crt"))
    url = f"https://localhost:{port}"
    assert page(url, TOKEN, tls) == ""
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page(url, "x" * 16, tls)


def test_the_endpoint_listens_on_addresses_of_ipv6(start: Started) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this host has no IPv6")
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port = probe.getsockname()[1]
    start(at(f"[::1]:{port}"))
    assert page(f"http://[::1]:{port}") == ""


def test_an_address_of_another_machine_is_a_clear_message(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("token", "keys/server.crt", "keys/server.key")]
    assert cli.main(("keys", "ca", str(tmp_path / "keys"))) == 0
    files[0].write_text(TOKEN)
    exporting = Exporting("192.0.2.1:9464", None, None, None, tuple(files))
    with (
        pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:9464: Cannot") as found,
        exporting.begun(),
    ):
        pass
    assert found.value.hint == "give an address of this host"
