"""The reference clock of a run, for agents on other hosts: a small process beside the controller
that answers their exchanges, on one address and with a key that only this run knows. It reads no
clock itself and knows no site."""

from __future__ import annotations

import asyncio
import secrets
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from pubstorm.contract.commands import Failure, ReferenceHello
from pubstorm.errors import FleetError
from pubstorm.host.children import CANNOT_START, end_by_stdin, start_failure
from pubstorm.host.machine import last_lines, start_piped

KEY_VARIABLE = "PUBSTORM_CLOCK_KEY"
"""Variable with the key of the exchanges, in hexadecimal digits."""
KEY_BYTES = 32
START_TIMEOUT_S = 10.0
"""Longest time to its first line."""
END_TIMEOUT_S = 2.0
"""Longest time to its end once its stdin is closed."""


_LINE: TypeAdapter[ReferenceHello | Failure] = TypeAdapter(
    Annotated[ReferenceHello | Failure, Field(discriminator="kind")]
)


class ReferenceClock:
    """The process that answers exchanges. It ends when its stdin closes, and so with Pubstorm."""

    def __init__(self, engine: Path, log: Path) -> None:
        self._engine = engine
        self._log = log
        self._key = secrets.token_hex(KEY_BYTES)
        self._process: Process | None = None
        self._address = ""

    async def start(self, host: str) -> None:
        """Listens on an address of this host, at a free UDP port; or raises FleetError."""
        words = (str(self._engine), "--clock", "--listen", f"{_bracketed(host)}:0")
        try:
            self._process = await start_piped(words, self._log, self.environment)
        except CANNOT_START as error:
            raise FleetError(*start_failure(words[0], error)) from error
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                port = await self._port(self._process)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                text = f"the reference clock said nothing for {START_TIMEOUT_S:g} s"
                raise FleetError(text, last_lines(self._log) or None) from error
            raise
        self._address = f"{_bracketed(host)}:{port}"

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments of an agent that is to keep to this clock."""
        assert self._address, "start comes first"
        return ("--reference", self._address)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of such an agent. They hold the key: not to be logged, stored or shown."""
        return {KEY_VARIABLE: self._key}

    async def close(self) -> None:
        """Ends it. It can be called twice, and before the start."""
        if self._process is not None:
            await end_by_stdin(self._process, END_TIMEOUT_S)

    async def _port(self, process: Process) -> int:
        """Returns the port from its first line."""
        assert process.stdout is not None, "it is started with a pipe as stdout"
        line = await process.stdout.readline()
        if not line:
            await process.wait()
            words = last_lines(self._log) or None
            raise FleetError("the reference clock ended before it was ready", words)
        try:
            said = _LINE.validate_json(line)
        except ValidationError as error:
            start = line[:200].decode(errors="replace").rstrip()
            text = f"the reference clock broke the contract: {start!r}"
            raise FleetError(text, "use the engine of this version of Pubstorm") from error
        if isinstance(said, Failure):
            raise FleetError(f"the reference clock gave up: {said.message}", said.hint or None)
        return said.port


def _bracketed(host: str) -> str:
    """An address as it stands before a port."""
    return f"[{host}]" if ":" in host else host
