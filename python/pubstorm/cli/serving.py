"""The options on the address of the live page."""

from __future__ import annotations

import functools
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from pubstorm.errors import UsageError
from pubstorm.host.listening import (
    TOKEN,
    TOKEN_HINT,
    Address,
    Options,
    address_of,
    check_open,
    listener_at,
    tls_of,
    token_in,
)
from pubstorm.output import warn
from pubstorm.play.display import Live
from pubstorm.web.process import PageSettings, page_of

PORT = 8780
DEFAULT = f"127.0.0.1:{PORT}"
TOKEN_VARIABLE = "PUBSTORM_WEB_TOKEN"
OF_RUN = Options("--web", "--web-token-file", "--web-cert", "--web-key")
OF_VIEW = Options("--listen", "--token-file", "--cert", "--key")
FILE = click.Path(path_type=Path)


@dataclass(frozen=True)
class Serving:
    """Address of the page, and what opens it."""

    address: Address
    token: str | None
    """The token that a browser must give; None: none is needed."""
    is_generated: bool
    """True if the token was made for this page."""
    cert: Path | None
    key: Path | None

    def listen(self) -> tuple[socket.socket, PageSettings]:
        """Takes the address, and prints the page's URL. Raises UsageError if it cannot be had."""
        listener = listener_at(self.address)
        port = listener.getsockname()[1]
        scheme = "http" if self.cert is None else "https"
        token = f"#token={self.token}" if self.is_generated else ""
        warn(f"live page: {scheme}://{self.address.shown(port)}/{token}")
        return listener, PageSettings(
            descriptor=listener.fileno(),
            hosts=self._hosts(port),
            token=self.token,
            cert=None if self.cert is None else str(self.cert.absolute()),
            key=None if self.key is None else str(self.key.absolute()),
        )

    def _hosts(self, port: int) -> tuple[str, ...]:
        """Names under which browsers ask for the page. Elsewhere than on loopback any will do:
        only browsers that were given the token have its cookie."""
        if not self.address.is_loopback:
            return ()
        names = {self.address.shown(port), f"localhost:{port}", f"{self.address.host}:{port}"}
        return tuple(sorted(name.lower() for name in names))


@contextmanager
def shown_by(serving: Serving | None, live: Live) -> Iterator[Live]:
    """Serves the page of what is played while it is open. Yields the display of its runs."""
    if serving is None:
        yield live
        return
    with page_of(*serving.listen(), live) as shown:
        yield shown


def web_options(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the options on the live page as one value: None without a page."""

    @click.option(
        "--web",
        is_flag=False,
        flag_value=DEFAULT,
        metavar="[HOST:PORT]",
        help=f"Serve a live page of the run. Default address: {DEFAULT}.",
    )
    @click.option("--web-token-file", type=FILE, metavar="FILE", help="Token that opens the page.")
    @click.option("--web-cert", type=FILE, metavar="FILE", help="Certificate of the page (PEM).")
    @click.option("--web-key", type=FILE, metavar="FILE", help="Private key of the page (PEM).")
    @functools.wraps(command)
    def with_serving(web: str | None, **others: object) -> int:
        files = _files(others, "web_token_file", "web_cert", "web_key")
        if web is None and any(files):
            raise UsageError(
                "found --web-token-file, --web-cert or --web-key without --web", "add --web"
            )
        serving = None if web is None else _serving(web, files, OF_RUN)
        return command(serving=serving, **others)

    return with_serving


def listen_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that only serves the page the same value."""

    @click.option(
        "--listen",
        default=DEFAULT,
        metavar="HOST:PORT",
        help=f"Address to listen on. Default: {DEFAULT}.",
    )
    @click.option("--token-file", type=FILE, metavar="FILE", help="Token that opens the page.")
    @click.option("--cert", type=FILE, metavar="FILE", help="Certificate of the page (PEM).")
    @click.option("--key", type=FILE, metavar="FILE", help="Private key of the page (PEM).")
    @functools.wraps(command)
    def with_serving(listen: str, **others: object) -> None:
        files = _files(others, "token_file", "cert", "key")
        command(serving=_serving(listen, files, OF_VIEW), **others)

    return with_serving


def _files(others: dict[str, object], *names: str) -> list[Path | None]:
    found = [others.pop(name) for name in names]
    return [file for file in found if file is None or isinstance(file, Path)]


def _serving(listen: str, files: list[Path | None], options: Options) -> Serving:
    """Returns where the page is served. Raises UsageError. A page with controls, and one on an
    address other than loopback, has a token: the one that is given, or a new one. The latter has
    TLS, too."""
    token_file, cert, key = files
    text = f"127.0.0.1{listen}" if listen.startswith(":") else listen
    hint = f"for example {options.listen}={DEFAULT}"
    if options is OF_RUN:
        hint += f"; {options.listen} behind SCENARIO stands for this address"
    address = address_of(text, options.listen, hint)
    context, token = tls_of(cert, key, options), _token(token_file)
    check_open(address, options, has_token=True, has_tls=context is not None)
    is_generated = token is None and (options is OF_RUN or not address.is_loopback)
    if is_generated:
        token = secrets.token_urlsafe(24)
    return Serving(address, token, is_generated, cert, key)


def _token(file: Path | None) -> str | None:
    if file is not None:
        return token_in(file)
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None and not TOKEN.fullmatch(given):
        raise UsageError(f"found no token in the variable {TOKEN_VARIABLE}", TOKEN_HINT)
    return given
