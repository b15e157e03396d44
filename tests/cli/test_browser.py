"""The screen between two pipes, as textual-serve starts it for a tab of a browser."""

import os
import subprocess
import time

from program import POCKET, PROGRAM

WEB = {"TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver", "COLUMNS": "100", "ROWS": "30"}


def test_it_opens_and_ends_when_the_browser_is_gone() -> None:
    with subprocess.Popen(
        [*PROGRAM, "-m", POCKET, "--no-store"], env={**os.environ, **WEB}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdin is not None
        os.set_blocking(program.stdout.fileno(), False)
        drawn, end = b"", time.monotonic() + 90
        while b"is ready" not in drawn and time.monotonic() < end:
            time.sleep(0.1)
            drawn += program.stdout.read() or b""
        assert b"is ready" in drawn
        program.stdin.close()
        program.stdout.close()
        assert program.wait(30) == 129
