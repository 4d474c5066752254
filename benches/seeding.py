"""Measures what it costs to write users and rights into Redis, read them back and remove them.
`python -m benches.seeding [CLIENTS]` starts a redis-server of its own. The baseline is the same
rows, packed beforehand, over one socket: what Redis itself takes."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benches import machine
from pubstorm.host.sockets import free_port
from pubstorm.plan import provisional_plan
from pubstorm.scenario import parse_scenario
from pubstorm.topology.identities.accounts import SCHEMES, accounts_of
from pubstorm.topology.identities.seeding import (
    Identities,
    Meter,
    RedisAddress,
    RedisStore,
    Seeding,
)
from pubstorm.topology.services import configuration

CLIENTS = 200_000
ROWS_PER_S_MIN = 100_000
CHUNK_BYTES = 1 << 18
SCENARIO = """\
target: mqtt://localhost
populations:
  device:
    clients: {clients}
    username: "device-{{n}}"
    password: "secret-{{n}}"
    subscriptions: ["down/device-{{n}}/#"]
    publications: [{{topic: "up/device-{{n}}", rate: 1/s}}]
stages: [connect]
"""


def main(arguments: list[str]) -> int:
    """Prints rows a second and CPU time; 1 where the target is missed."""
    binary = shutil.which("redis-server")
    if binary is None:
        print("seeding: redis-server is not installed")
        return 0
    clients = int(arguments[0]) if arguments else CLIENTS
    plan = provisional_plan(parse_scenario(SCENARIO.format(clients=clients), "bench.yaml"))
    identities = Identities(accounts_of(plan.populations))
    print(machine.describe())
    print(f"{clients:,} clients, {identities.rows:,} rows into Redis over loopback")
    with tempfile.TemporaryDirectory() as folder:
        port, path = free_port(), Path(folder, "redis.conf")
        path.write_text(configuration({}, {"bind": "127.0.0.1", "port": port, "dir": folder}))
        with psutil.Popen([binary, str(path)], stdout=-3) as redis:
            try:
                return _measured(identities, port, redis)
            finally:
                redis.kill()


def _measured(identities: Identities, port: int, redis: psutil.Popen) -> int:
    _wait_for(port)
    store = RedisStore(RedisAddress("127.0.0.1", port))
    seeding, zero = Seeding(store, identities), [0] * len(identities.accounts)

    def silent() -> Meter:
        return Meter(identities.rows, 0, lambda _: None)

    packed = _packed(identities)
    baseline_per_s = _timed("baseline", identities.rows, redis, lambda: _sent(packed, port))
    store.run([("FLUSHALL",)])
    written_per_s = _timed("write", identities.rows, redis, lambda: seeding.write(zero, silent()))
    _timed("verify", identities.rows, redis, lambda: seeding.verify(silent()))
    _timed("remove", identities.rows, redis, lambda: seeding.remove(silent()))
    store.close()
    print(f"writing takes {baseline_per_s / written_per_s:.1f} times the CPU time of the baseline")
    is_met = written_per_s >= ROWS_PER_S_MIN
    print(
        f"target: {ROWS_PER_S_MIN:,} rows written for a second of CPU time of both: "
        f"{'met' if is_met else 'missed'}"
    )
    return 0 if is_met else 1


def _timed(name: str, rows: int, redis: psutil.Popen, do: Callable[[], object]) -> float:
    """Rows for a second of CPU time of both sides, which take turns: what a machine without other
    work does in a second. It is printed beside what this one did."""
    began_s, own_s, its_s = time.monotonic(), time.process_time(), sum(redis.cpu_times()[:2])
    do()
    took_s = time.monotonic() - began_s
    own_s = (time.process_time() - own_s) / rows * 1e6
    its_s = (sum(redis.cpu_times()[:2]) - its_s) / rows * 1e6
    print(
        f"{name:8} {rows / took_s:9,.0f} rows/s, CPU for a million rows: "
        f"{own_s:5.2f} s of Python, {its_s:5.2f} s of Redis"
    )
    return 1e6 / (own_s + its_s)


def _packed(identities: Identities) -> bytes:
    """All rows as Redis reads them."""
    words = bytearray()
    scheme = SCHEMES["emqx"]
    for accounts in identities.accounts:
        for index in range(accounts.count):
            for key, fields in scheme.hashes(accounts.at(index)):
                command = ("HSET", key, *(part for pair in fields.items() for part in pair))
                words += f"*{len(command)}\r\n".encode()
                words += b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in command)
    return bytes(words)


def _sent(packed: bytes, port: int) -> None:
    """Sends them in turn with reading what is answered, and one more that is answered last."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        answered = b""
        for start in range(0, len(packed), CHUNK_BYTES):
            connection.sendall(packed[start : start + CHUNK_BYTES])
            answered = connection.recv(CHUNK_BYTES)[-16:]
        connection.sendall(b"*2\r\n$4\r\nECHO\r\n$4\r\nlast\r\n")
        while not answered.endswith(b"last\r\n"):
            answered = (answered + connection.recv(CHUNK_BYTES))[-16:]


def _wait_for(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
