"""Stands in for a broker or a controller: serves 200 over HTTP and notes when it starts and stops.

python fake_process.py NAME PORT NOTES [--fail | --ignore-term | --late | --stuck-after-usr1
    | --never-ready]
"""

import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

name, port, notes, *flags = sys.argv[1:]


def note(text: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{text} {name}\n")


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(1.5 if "--late" in flags else 0)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Silent: the test reads this process's output."""


def stop(*_: object) -> None:
    note("stop")
    sys.exit(0)


note("start")
print(f"2026-01-01 00:00:00,000 INFO fake: {name} says hello", flush=True)
if "--fail" in flags:
    print("something is wrong with my disk", flush=True)
    sys.exit(3)
if "--never-ready" in flags:
    signal.signal(signal.SIGTERM, stop)
    time.sleep(3600)
if "--stuck-after-usr1" in flags:
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
if "--ignore-term" in flags:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
HTTPServer(("127.0.0.1", int(port)), Ready).serve_forever()
