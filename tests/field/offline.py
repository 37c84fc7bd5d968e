"""Run the service twice with an empty home and temporary folder and no network, and print what it counted. For C36.

Run as ``python offline.py HOME TMPDIR``; where that is possible in a network namespace of its own, in which there is no
way out. Whoever looks for one all the same is stopped, and reported, by an audit hook in the service's process.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 60
SERVE = """
import sys

LOCAL = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", b"127.0.0.1"}

def watch(event, arguments):
    if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
        outside = arguments[1][0]
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        outside = arguments[0]
    else:
        return
    if outside not in LOCAL:
        print("LEFT THE MACHINE", event, outside, file=sys.stderr, flush=True)
        raise OSError("there is no network in this test")

sys.addaudithook(watch)
from app.cli import main

sys.argv = ["turnlog", "serve", "--port", "0"]
main()
"""
SAID = [
    {"role": "user", "content": "Explain <|endoftext|> please"},
    {"role": "assistant", "content": "It ends a text. " * 200},
    {"role": "user", "content": "的 naïve 😀 question"},
    {"role": "assistant", "content": "42"},
]


def bring_loopback_up() -> None:
    """A new namespace has a loopback device that is down."""
    with socket.socket() as any_socket, suppress(PermissionError):
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


@contextmanager
def service(home: str, temporary: str) -> Iterator[str]:
    """Start the whole service and yield its address."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "LC_ALL"}}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env={**kept, "HOME": home, "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            try:
                yield _address(process)
            finally:
                process.send_signal(signal.SIGTERM)
                _, rest = process.communicate(timeout=PATIENCE)
                assert "LEFT THE MACHINE" not in rest, rest
    finally:
        process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    found, said = None, []
    for line in process.stderr:
        said.append(line)
        assert "LEFT THE MACHINE" not in line, line
        found = found or re.search(r"http://127\.0\.0\.1:\d+", line)
        if found and "startup complete" in line:
            return found[0]
    raise AssertionError("the service did not start: " + "".join(said))


def counted(url: str, session: str) -> Any:
    """Append, compact and return every figure that depends on the vocabulary."""
    with httpx.Client(base_url=f"{url}/v1/sessions/{session}", timeout=PATIENCE, trust_env=False) as http:
        body = {"events": [{"message": message} for message in SAID]}
        appended = http.post("/events?create=true", json=body).raise_for_status().json()
        window = {"window": {"rule": "token_budget", "size": 500}}
        compacted = http.post("/compact", json=window).raise_for_status().json()
        return [[event["token_count"] for event in appended["events"]], compacted["status"], compacted["tokens"]]


def main(home: str, temporary: str) -> None:
    """Print what each of two runs counted, with the temporary folder emptied in between."""
    bring_loopback_up()
    found = []
    for run in range(2):
        with service(home, temporary) as url:
            found.append(counted(url, f"run-{run}"))
        for left in Path(temporary).iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    print(json.dumps(found))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
