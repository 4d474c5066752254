"""Processes that a broker has started are gone when all of their threads are."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pubstorm.host.process_tree import ProcessTree

LEADING_THREAD_ENDS = """\
import ctypes, socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(listener.getsockname()[1], flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_without_its_leading_thread_is_still_ended(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LEADING_THREAD_ENDS)
    leader = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert leader.stdout is not None
    port = int(leader.stdout.readline())
    process_tree = ProcessTree(leader.pid)
    process_tree.look()
    leader.kill()
    leader.wait()
    asyncio.run(process_tree.end())
    leader.stdout.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
