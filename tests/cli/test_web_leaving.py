"""A browser, or its server, that goes away in the middle of an answer: nothing is left running or locked."""

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from program import PROGRAM
from sweep import sweep
from test_hangup import POCKET, alive

from h2o_chat.base.errors import UsageError
from h2o_chat.store import Store

aiohttp = pytest.importorskip("aiohttp", reason="the extra web is not installed")
pytest.importorskip("textual_serve", reason="the extra web is not installed")

pytestmark = pytest.mark.loopback

GONE_S = 20.0
"""The deadline is 3 s; the machine may be loaded."""


class Tab:
    """A page with its websocket; what was drawn in it."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.drawn = socket, ""

    async def until(self, met: Callable[[], bool], what: str) -> None:
        """Reads until a condition holds."""
        end = time.monotonic() + 90
        while not met():
            assert time.monotonic() < end, what
            try:
                message = await self.socket.receive(timeout=0.2)
            except TimeoutError:
                continue
            if message.type == aiohttp.WSMsgType.BINARY:
                self.drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", message.data.decode("utf-8", "replace"))


@pytest.mark.parametrize("what", ["tab closed", "server killed", "ctrl+c", *sweep("terminated")])
async def test_nothing_is_left_of_a_browser_that_is_gone(what: str, tmp_path: Path) -> None:
    flags = ["--web", "--web-address", "127.0.0.1:0", "--data", tmp_path, "-m", POCKET, "--ignore-eos"]
    server = subprocess.Popen(
        [*PROGRAM, *map(str, flags), "--threads", "1", "--seed", "1"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    started: list[int] = []
    try:
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", server.stderr.readline())
        assert found is not None
        base = found[0].partition("/?key=")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            async with browser.get(found[0]) as page:
                assert page.status == 200
            url = f"{base.replace('http', 'ws')}/ws?width=110&height=30"
            socket = await browser.ws_connect(url, origin=base)
            tab = Tab(socket)
            await tab.until(lambda: "pocket is ready" in tab.drawn, "the model is open")
            await socket.send_json(["stdin", "Once upon a time"])
            await socket.send_json(["stdin", "\r"])
            await tab.until(lambda: delivered(tmp_path) > 40, "it answers")
            started = [one.pid for one in psutil.Process(server.pid).children(recursive=True)]
            assert len(started) >= 2, "a screen and its engine"
            before = delivered(tmp_path)
            match what:
                case "tab closed":
                    await socket.close()
                case "server killed":
                    server.kill()
                case "ctrl+c":
                    os.killpg(server.pid, signal.SIGINT)
                case _:
                    server.terminate()
            await gone(started)
            if what != "tab closed":
                code = await asyncio.to_thread(server.wait, GONE_S)
                assert code == (-signal.SIGKILL if what == "server killed" else 0)
        store = Store(tmp_path)
        conversation = store.find("last")
        store.claim(conversation).close()
        said, answer = store.path(conversation)
        store.close()
        assert (said.text, answer.finish) == ("Once upon a time", "stopped")
        assert len(answer.text) >= before, "what was delivered is stored"
    finally:
        server.kill()
        server.wait()
        for process in started:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def delivered(folder: Path) -> int:
    """Characters of the answer that are on disk."""
    store = Store(folder)
    try:
        path = store.path(store.find("last"))
    except UsageError:  # nothing was said yet
        return 0
    else:  # the conversation is stored a moment before its first message
        return len(path[-1].text) if path else 0
    finally:
        store.close()


async def gone(processes: list[int]) -> None:
    end = time.monotonic() + GONE_S
    while left := [one for one in processes if alive(one)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.05)
