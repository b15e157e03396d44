"""The screen in a browser: the real server, the real program behind it, and a client with a websocket."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from program import PROGRAM, Program

aiohttp = pytest.importorskip("aiohttp", reason="the extra web is not installed")
pytest.importorskip("textual_serve", reason="the extra web is not installed")

pytestmark = pytest.mark.loopback


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where it is served, with the key."""
    flags = ["--web", "--web-address", "127.0.0.1:0", "--no-store", "--budget", "64", "--temperature", "0"]
    program = subprocess.Popen(
        [*PROGRAM, *flags, "--max-tokens", "12"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with program:
        assert program.stderr is not None
        assert "no model was named: pocket" in program.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", program.stderr.readline())
        assert found is not None
        yield found[0]
        program.terminate()
        out, _ = program.communicate(timeout=30)
        assert out == ""


async def test_a_question_is_answered_in_the_browser(address: str) -> None:
    base = address.partition("/?key=")[0]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(address) as page:
            assert page.status == 200
            assert "data-session-websocket-url" in await page.text()
            assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
        url = f"{base.replace('http', 'ws')}/ws?width=110&height=30"
        async with browser.ws_connect(url, origin=base) as socket:
            await shows(socket, "pocket is ready")
            await socket.send_json(["stdin", "What can you do?"])
            await socket.send_json(["stdin", "\r"])
            await shows(socket, "12 of 12 heads")  # the gauge of an answer that has ended


async def test_strangers_are_refused(address: str) -> None:
    base, _, key = address.partition("/?key=")
    socket = f"{base}/ws"
    mine = {"Origin": base, "Cookie": f"h2o-chat-{base.rpartition(':')[2]}={key}"}
    asked = {
        "no key": (base, {}),
        "another key": (f"{base}/?key=x", {}),
        "another site": (f"{socket}?key={key}", mine | {"Origin": "http://evil.example"}),
        "another name": (address, mine | {"Host": "evil.example"}),
        "a socket without the key": (socket, {"Origin": base}),
        "files": (f"{base}/static/js/textual.js", {}),
    }
    async with aiohttp.ClientSession() as session:
        for what, (url, headers) in asked.items():
            async with session.get(url, headers=headers) as answer:
                assert answer.status == 403, what


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--web-address", "0.0.0.0:8000"], "--web-others"),
        (["--web-address", "nowhere"], "HOST:PORT"),
        (["--web-address", "127.0.0.1:99999"], "HOST:PORT"),
        (["--record", "r.jsonl"], "every tab"),
    ],
)
def test_what_cannot_be_served_is_said(h2o: Program, flags: list[str], said: str) -> None:
    ended = h2o("--web", *flags)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""


def test_a_taken_port_is_said(h2o: Program, address: str) -> None:
    taken = address.removeprefix("http://").partition("/")[0]
    ended = h2o("--web", "--web-address", taken)
    assert ended.code == 2
    assert "127.0.0.1:0" in ended.err


@pytest.mark.usefixtures("forked")
def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['textual_serve'] = None; sys.argv = ['h2o-chat', '--web'];"
        "from h2o_chat.cli.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "pip install 'h2o-chat[web]'" in ended.stderr


async def shows(socket: Any, text: str) -> None:
    """Reads until this was drawn."""
    drawn = ""
    async with asyncio.timeout(60):
        while text not in drawn:
            message = await socket.receive()
            assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
            if message.type == aiohttp.WSMsgType.BINARY:
                drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", message.data.decode("utf-8", "replace"))
