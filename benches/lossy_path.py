"""A lossy path between two network namespaces, in user space: `python -m benches.lossy_path SEED
LOSS DELAY_MS` carries packets until its standard input ends. Needs root and /dev/net/tun.

Each namespace has a tun device with an address. The relay takes every packet of IP from one device,
drops it by chance or writes it to the other device after the delay. TCP and UDP are those of the
kernel, and both lose whole packets. The order of packets never changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 1, 0x1000
NAMESPACES = ("pubstorm-loss-a", "pubstorm-loss-b")
ADDRESSES = ("10.213.7.1", "10.213.7.2")
PACKET_BYTES = 2048
END = 0
"""Standard input, whose end ends the relay."""
CONTROL = "cubic"
"""Congestion control of TCP, the one of quinn-proto too."""


@dataclass(frozen=True)
class LossyPath:
    """A path that is open: commands run at its two ends."""

    clients: tuple[str, ...]
    """Words before a command at the end of the clients."""
    broker: tuple[str, ...]
    """Words before a command at the end of the broker, which has the second address."""


@contextlib.contextmanager
def lossy_path(loss: float, delay_ms: float, seed: int = 1) -> Iterator[LossyPath]:
    """Opens a path; namespaces and relay are gone afterwards. `loss` is a share of the packets in
    each direction, from 0 to 1; a packet takes `delay_ms` in each direction."""
    for name in NAMESPACES:
        _ip("netns", "add", name)
    try:
        command = [sys.executable, "-m", "benches.lossy_path", str(seed), str(loss), str(delay_ms)]
        relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert relay.stdout is not None
            if relay.stdout.readline().strip() != "ready":
                raise SystemExit("the relay did not start: it needs root and /dev/net/tun")
            inside = [("ip", "netns", "exec", name) for name in NAMESPACES]
            yield LossyPath(inside[0], inside[1])
        finally:
            relay.communicate()
    finally:
        for name in NAMESPACES:
            _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _device(place: int) -> int:
    """Opens a tun device, and moves the device into its namespace."""
    name, namespace = f"pubstorm{place}", NAMESPACES[place]
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    _ip("link", "set", name, "netns", namespace)
    peer = ADDRESSES[1 - place]
    _ip("-n", namespace, "addr", "add", ADDRESSES[place], "peer", peer, "dev", name)
    for each in ("lo", name):
        _ip("-n", namespace, "link", "set", each, "up")
    route = ("route", "change", peer, "dev", name, "src", ADDRESSES[place])
    _ip("-n", namespace, *route, "congctl", CONTROL)
    return device


def relay(seed: int, loss: float, delay_ms: float) -> None:
    """Carries packets until standard input ends."""
    chance = Random(seed)
    ends = [_device(0), _device(1)]
    # The delay is the same for all packets, so the oldest is the first that is due.
    waiting: deque[tuple[float, int, bytes]] = deque()
    print("ready", flush=True)
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*ends, END], [], [], wait_s)
        if END in readable:
            return
        now_s = time.monotonic()
        for device in readable:
            with contextlib.suppress(BlockingIOError):
                while packet := os.read(device, PACKET_BYTES):
                    if chance.random() >= loss:
                        other = ends[1 - ends.index(device)]
                        waiting.append((now_s + delay_ms / 1000, other, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, device, packet = waiting.popleft()
            # A full device drops, as a queue of a router does.
            with contextlib.suppress(BlockingIOError):
                os.write(device, packet)


if __name__ == "__main__":
    relay(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
