"""The guard of the page: names, origins, token and TLS, on a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubstorm.cli.options import OF_RUN, OF_STARTS, OF_VIEW, _serving
from pubstorm.host.listening import Options
from pubstorm.result import RunResult
from tests.kit import program
from tests.kit.ports import free_port
from tests.kit.serving import Served, serving
from tests.pure.web.test_view import failure

TOKEN = "0123456789abcdef"
WORDS = {"words": "stop"}


@pytest.fixture(scope="module")
def stored(plain_run: RunResult) -> Path:
    return Path(plain_run.run_directory)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    words = ("keys", "ca", str(folder), "--name", "localhost")
    program.run(words, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def plain(stored: Path) -> Iterator[Served]:
    with serving("view", str(stored), f"--listen=127.0.0.1:{free_port()}") as served:
        yield served


@pytest.fixture(scope="module")
def guarded(stored: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    tls = ["--cert", str(keys / "server.crt"), "--key", str(keys / "server.key")]
    listen = f"--listen=0.0.0.0:{free_port()}"
    with serving("view", str(stored), listen, "--token-file", str(file), *tls) as served:
        yield Served(served.url.replace("0.0.0.0", "127.0.0.1"), served.process)


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_strange_name_is_refused(name: str, plain: Served) -> None:
    for path in ("", "events", "live.js"):
        answer = plain.ask(path, headers={"Host": name})
        assert answer.status == 421
        assert "allowed are 127.0.0.1, localhost\n" in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1"])
def test_the_names_of_loopback_are_answered(name: str, plain: Served) -> None:
    port = plain.host.rpartition(":")[2]
    assert plain.ask(headers={"Host": f"{name}:{port}"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://HOST"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
def test_a_request_of_another_site_is_refused(headers: dict[str, str], plain: Served) -> None:
    sent = {name: value.replace("HOST", plain.host) for name, value in headers.items()}
    answer = plain.ask("control", WORDS, sent)
    assert (answer.status, answer.text) == (403, "allowed are requests of this page only\n")


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://HOST"}, {"Sec-Fetch-Site": "same-origin"}]
)
def test_a_request_of_the_page_is_answered(headers: dict[str, str], plain: Served) -> None:
    sent = {name: value.replace("HOST", plain.host) for name, value in headers.items()}
    assert plain.ask("control", WORDS, sent).status == 200


@pytest.mark.parametrize("path", ["events", "control", "report.html", "live.js", "chart.js", "x"])
def test_nothing_opens_without_the_token(path: str, guarded: Served) -> None:
    body = WORDS if path == "control" else None
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"pubstorm-{guarded.host.rpartition(':')[2]}={TOKEN}"},
        {"Cookie": "\x7f=;"},
    ):
        answer = guarded.ask(path, body, headers)
        assert (answer.status, answer.text) == (401, "the page needs its token\n")


def test_a_person_gives_the_token_once(guarded: Served) -> None:
    asked = guarded.ask()
    assert (asked.status, "Token of the page" in asked.text) == (401, True)
    assert guarded.ask("login.js").status == 200
    wrong = guarded.ask("login", {"token": "wrong"})
    assert (wrong.status, wrong.text) == (403, "this is not the token of the page\n")
    answer = guarded.ask("login", {"token": TOKEN})
    assert answer.status == 200
    cookie, *rules = answer.headers["set-cookie"].split("; ")
    assert {rule.lower() for rule in rules} == {"httponly", "path=/", "samesite=strict", "secure"}
    assert TOKEN not in cookie
    assert guarded.ask(headers={"Cookie": cookie}).status == 200
    assert guarded.ask("control", WORDS, {"Cookie": cookie}).status == 200
    foreign = {"Cookie": cookie, "Origin": "https://evil.example"}
    assert guarded.ask("control", WORDS, foreign).status == 403


def test_a_program_sends_the_token_with_each_request(guarded: Served) -> None:
    answer = guarded.ask(headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status == 200


@pytest.mark.parametrize("body", [None, [], {"token": 5}, {"token": "é"}, {"token": "x" * 10_000}])
def test_no_broken_login_opens(body: object, guarded: Served) -> None:
    headers = {"Content-Type": "application/json"}
    assert guarded.ask("login", {} if body is None else body, headers).status == 403


def test_an_open_address_without_a_token_gets_one(stored: Path, keys: Path) -> None:
    tls = ["--cert", str(keys / "server.crt"), "--key", str(keys / "server.key")]
    with serving("view", str(stored), f"--listen=0.0.0.0:{free_port()}", *tls) as served:
        found = re.fullmatch(r"https://0\.0\.0\.0:\d+/#token=([\w-]{20,})", served.url)
        assert found is not None
        local = Served(served.url.partition("#")[0].replace("0.0.0.0", "127.0.0.1"), served.process)
        assert local.ask().status == 401
        assert local.ask(headers={"Authorization": f"Bearer {found[1]}"}).status == 200


@pytest.mark.parametrize(
    ("listen", "options", "is_made"),
    [
        # The page of a run has controls, which no other user of the machine is to use.
        ("127.0.0.1:8780", OF_RUN, True),
        (":8780", OF_RUN, True),
        ("[::1]:8780", OF_RUN, True),
        ("127.0.0.1:8780", OF_VIEW, False),
        # A page that starts processes, too.
        ("127.0.0.1:8780", OF_STARTS, True),
    ],
)
def test_a_page_with_controls_has_a_token(listen: str, options: Options, is_made: bool) -> None:
    found = _serving(listen, [None, None, None], options)
    assert (found.is_generated, found.token is not None) == (is_made, is_made)
    other = _serving(listen, [None, None, None], options)
    assert (found.token == other.token) != is_made


def test_a_token_of_the_user_opens_a_page_with_controls(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    found = _serving("127.0.0.1:8780", [file, None, None], OF_RUN)
    assert (found.token, found.is_generated) == (TOKEN, False)


def test_the_token_may_be_a_variable(stored: Path) -> None:
    listen = f"--listen=127.0.0.1:{free_port()}"
    with serving("view", str(stored), listen, PUBSTORM_WEB_TOKEN=TOKEN) as served:
        assert TOKEN not in served.url
        assert served.ask().status == 401
        assert served.ask(headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


@pytest.mark.parametrize(
    ("words", "found", "hint"),
    [
        ("view STORED --listen here", "--listen here", "127.0.0.1:8780"),
        ("view STORED --listen 127.0.0.1:99999", "--listen 127.0.0.1:99999", "127.0.0.1:8780"),
        ("view STORED --listen 0.0.0.0:8780", "without --cert and --key", "pubstorm keys ca"),
        ("view STORED --token-file none", "none cannot be read", ""),
        ("view STORED --cert none", "one of --cert and --key", ""),
        ("run quickstart --web=0.0.0.0:8780", "without --web-cert and --web-key", ""),
        # The word behind it is no address.
        ("run --web quickstart", "--web quickstart", "--web=127.0.0.1:8780"),
    ],
)
def test_wrong_options_are_errors(words: str, found: str, hint: str, stored: Path) -> None:
    code, text = failure(*(str(stored) if each == "STORED" else each for each in words.split()))
    first, _, rest = text.partition("\n")
    assert (code, first[:7], found in first, hint in rest) == (2, "error: ", True, True), text


def test_a_taken_port_is_an_error_before_anything_starts(plain: Served, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, text = failure("run", "quickstart", f"--web={plain.host}", "--out", str(out))
    assert (code, f"cannot listen on {plain.host}" in text) == (2, True)
    assert not out.exists()
