"""Fixes as shell lines, and all fixes together as a script for the user to read and source. Applies
no fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.host.preflight.need import Fix, Need


def script(name: str, needs: Sequence[Need]) -> str:
    """A shell script that repairs what is short for the scenario `name`."""
    short = [need for need in needs if not need.is_met]
    return "\n".join((*_head(name, bool(short)), *_commands(short), *_words(short))) + "\n"


def _head(name: str, short: bool) -> Iterator[str]:
    yield "#!/bin/bash"
    yield f"# What this host is short of for the scenario {name}, as `pubstorm check` found it."
    if not short:
        yield "# Nothing is short."
        return
    yield "# Pubstorm runs none of it. Read it, then source it in the shell that is to start the"
    yield "# run (`. FILE`), or run single lines. It may be sourced again."


def _commands(short: Sequence[Need]) -> Iterator[str]:
    """Each setting once, with the largest value; the kernel's before the shell's."""
    for kind, note in _NOTES.items():
        settings: dict[tuple[str, str], Fix] = {}
        for command in (need.command for need in short):
            if command is None or command.kind != kind:
                continue
            key = command.name, str(command.value) if isinstance(command.value, str) else ""
            known = settings.get(key)
            if known is None or _size(command) > _size(known):
                settings[key] = command
        for setting in settings.values():
            yield ""
            for need in short:
                if need.command and (need.command.kind, need.command.name) == (kind, setting.name):
                    yield f"# {need.what}: {need.needed} needed, {need.available} there"
            yield f"# {note}"
            yield setting.line


def _words(short: Sequence[Need]) -> Iterator[str]:
    """Remedies that are not commands."""
    others = [need for need in short if need.otherwise]
    if others:
        yield ""
        yield "# Not for the shell:"
    for need in others:
        yield f"# - {need.what}: {need.otherwise}"


def _size(command: Fix) -> int:
    return command.value if isinstance(command.value, int) else 0


_NOTES = {
    "sysctl": "Needs root. Holds until the next boot; a line in /etc/sysctl.d/ keeps it.",
    "address": "Needs root. Holds until the next boot or until the interface goes down.",
    "ulimit": "Holds for this shell and what it starts. Above the hard limit it needs root.",
}
