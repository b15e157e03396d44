"""Holds conversations with a running server as users of openai (streaming), llm, oterm and elia do.

    h2o-chat serve -m MODEL                                    # in another terminal
    tools/stress/serve_clients.py [--url http://127.0.0.1:8080] [--turns 30] [--conversations 5] [--pid N]
                           [--clients openai llm oterm elia]

Each client is installed into an environment in a temporary folder (`--folder` keeps it for the next time).
`llm chat` gets its lines from a pipe, oterm and elia are typed into, in tmux. They talk to the server through
a proxy here, which notes when a request was sent and when its first words came back. A single turn takes
9 ms or 14 on the same machine, so each client holds several conversations: prints the medians of turn 2 and
of the last turn, their ranges, and the last by turn 2. With --pid, the server's process, also how much
processor time that took until then (Linux): clients that draw a screen take some of the same processors.
Ends with exit code 1 if a conversation did not come to its end, or the last turn took over 1.2 times as long.
"""

import argparse
import http.client
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from in_tmux import Screen

SLOWER = 1.2
"""The last turn may take so many times turn 2's."""
PACKAGES = {"openai": "openai", "llm": "llm", "oterm": "oterm", "elia": "elia-chat"}
LINES = (
    "My name is Ada and my cat is called Tom.",
    "What is my name?",
    "I like long walks in the rain.",
    "Tell me something about dogs.",
    "Do you like music?",
    "What is my cat called?",
)
"""Over and over. Turns 2 and 30 both ask for what was told: the same work, but for what came between."""
OPENAI = """
import json, sys
from openai import OpenAI
url, key, lines = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
client, said = OpenAI(base_url=url, api_key=key), []
model = client.models.list().data[0].id
for line in lines:
    said.append({"role": "user", "content": line})
    stream = client.chat.completions.create(
        model=model, messages=said, stream=True, stream_options={"include_usage": True}
    )
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    said.append({"role": "assistant", "content": text})
"""


@dataclass
class Turn:
    """One request, as the proxy saw it."""

    messages: int
    """Of the user."""
    first_ms: float = 0.0
    """From the request to the first words."""
    first_cpu_ms: float = 0.0
    """What the server's process took of the processors until then; 0 where it is not known which it is."""
    cached_tokens: int = 0
    prompt_tokens: int = 0
    """Read for it."""
    ended: bool = False
    """The last words were said; usage and timings may follow."""
    done: bool = False


class Proxy:
    """Passes on what clients and the server say, and notes when."""

    def __init__(self, url: str, pid: int | None) -> None:
        parts, turns = urlsplit(url), list[Turn]()
        self.turns = turns

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # an answer ends with its connection

            def do_GET(self) -> None:
                self._pass_on(None)

            def do_POST(self) -> None:
                self._pass_on(self.rfile.read(int(self.headers["content-length"])))

            def _pass_on(self, body: bytes | None) -> None:
                turn, began, began_cpu_ms = None, time.perf_counter(), processor_ms(pid)
                if body and self.path.endswith("/chat/completions"):
                    said = json.loads(body)["messages"]
                    turn = Turn(sum(one["role"] == "user" for one in said))
                    turns.append(turn)
                server = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "date"):
                        self.send_header(name, value)
                self.end_headers()
                for line in answer:
                    if turn and note(turn, line, began):
                        turn.first_cpu_ms = processor_ms(pid) - began_cpu_ms
                    try:
                        self.wfile.write(line)
                    except ConnectionError:  # elia closes its connection at the chunk that says why it ended
                        if turn is None or not turn.ended:
                            raise
                if turn:
                    turn.done = answer.status == 200
                server.close()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()

    def answered(self) -> int:
        """Turns that came to their end."""
        return sum(turn.done for turn in self.turns)


def processor_ms(pid: int | None) -> float:
    """What all threads of a process have taken so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat") if pid else ()
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def note(turn: Turn, line: bytes, began: float) -> bool:
    """What a line of an answer tells; whether these are its first words."""
    if not line.startswith(b"data: {"):
        return False
    event = json.loads(line.removeprefix(b"data: "))
    if timings := event.get("timings"):
        turn.cached_tokens, turn.prompt_tokens = timings["cache_n"], timings["prompt_n"]
    turn.ended |= any(choice["finish_reason"] for choice in event.get("choices", []))
    if not turn.first_ms and any(choice["delta"].get("content") for choice in event.get("choices", [])):
        turn.first_ms = 1000 * (time.perf_counter() - began)
        return True
    return False


Client = Callable[[Path, Path, Proxy, str, list[str]], None]
"""(environment, home, proxy, key, what is said)"""


def by_openai(place: Path, home: Path, proxy: Proxy, key: str, lines: list[str]) -> None:
    """As its README does it."""
    command = [str(place / "bin" / "python"), "-c", OPENAI, proxy.url, key, json.dumps(lines)]
    subprocess.run(command, env=own(home), check=True)


def by_llm(place: Path, home: Path, proxy: Proxy, key: str, lines: list[str]) -> None:
    """With the server among its models."""
    model = name_of_model(proxy)
    about = f"- model_id: here\n  model_name: {model}\n  api_base: {proxy.url}\n  api_key_name: here\n"
    (home / "extra-openai-models.yaml").write_text(about)
    (home / "keys.json").write_text(json.dumps({"here": key}))
    subprocess.run(
        [place / "bin" / "llm", "chat", "-m", "here"], env=own(home), check=True, text=True,
        input="".join(f"{line}\n" for line in [*lines, "exit"]), stdout=subprocess.DEVNULL,
    )  # fmt: skip


def by_oterm(place: Path, home: Path, proxy: Proxy, key: str, lines: list[str]) -> None:
    """With the server among its providers; the keys are those of its help."""
    about = {"here": {"base_url": proxy.url, "api_key": key}}
    (home / "config.json").write_text(json.dumps({"splash-screen": False, "openaiCompatible": about}))
    screen = Screen(home)
    words = " ".join(f"{name}='{value}'" for name, value in settings_of(home).items())
    screen.start("120x40", f"env {words} {place / 'bin' / 'oterm'}")
    try:
        begin_in_oterm(screen, name_of_model(proxy))
        for number, line in enumerate(lines, 1):
            screen.write(line)
            time.sleep(0.3)
            screen.press("Enter")
            screen.until(lambda number=number: proxy.answered() >= number, f"answer {number}")  # type: ignore[misc]
            # A message that comes before it has noted the last answer down is sent without that turn.
            screen.until(partial(noted, home / "store.db", 2 * number), f"answer {number} is noted")
    finally:
        screen.end()


def noted(store: Path, messages: int) -> bool:
    """Whether so many messages stand in oterm's store."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        [(found,)] = database.execute("SELECT count(*) FROM message")
    return int(found) >= messages


def by_elia(place: Path, home: Path, proxy: Proxy, key: str, lines: list[str]) -> None:
    """With the server among its models, which litellm reaches as it does OpenAI; ctrl+j sends."""
    (home / "elia").mkdir()
    (home / "elia" / "config.toml").write_text(
        f'default_model = "here"\n[[models]]\nid = "here"\nname = "openai/{name_of_model(proxy)}"\n'
        f'api_base = "{proxy.url}"\napi_key = "{key}"\n'
    )
    screen = Screen(home)
    words = " ".join(f"{name}='{value}'" for name, value in settings_of(home).items())
    screen.start("120x40", f"env {words} LITELLM_LOCAL_MODEL_COST_MAP=True {place / 'bin' / 'elia'}")
    try:
        screen.until_shown("Send message")
        for number, line in enumerate(lines, 1):
            screen.write(line)
            screen.until(lambda line=line: line in screen.shown(), f"{line!r} is typed")  # type: ignore[misc]
            screen.until(partial(sent, screen, proxy, number), f"message {number} is sent")
            screen.until(lambda number=number: proxy.answered() >= number, f"answer {number}")  # type: ignore[misc]
    finally:
        screen.end()


def sent(screen: Screen, proxy: Proxy, number: int) -> bool:
    """Presses ctrl+j; whether so many requests came. While elia notes an answer down it sends nothing."""
    screen.press("C-j")
    time.sleep(0.5)
    return len(proxy.turns) >= number


def begin_in_oterm(screen: Screen, model: str) -> None:
    """A new chat with the model: the second provider of its list, the model by its name, then Save."""
    screen.until_shown("Welcome to oterm!")
    screen.press("C-n")
    screen.until_shown("Type model name")
    press(screen, "Enter", "Down", "Enter", "Tab")
    screen.write(model)
    press(screen, "BTab", "BTab", "BTab", "Enter")
    screen.until_shown(f"model: {model}")


def press(screen: Screen, *keys: str) -> None:
    """One after the other, as fast as a person does."""
    for key in keys:
        time.sleep(0.5)
        screen.press(key)
    time.sleep(0.5)


def name_of_model(proxy: Proxy) -> str:
    """The one that is served."""
    parts = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("GET", "/v1/models")
    return str(json.loads(connection.getresponse().read())["data"][0]["id"])


def settings_of(home: Path) -> dict[str, str]:
    """Where a client keeps its own: nothing of the user's is touched."""
    names = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "LLM_USER_PATH", "OTERM_DATA_DIR")
    return dict.fromkeys(names, str(home))


def own(home: Path) -> dict[str, str]:
    return os.environ | settings_of(home)


CLIENTS: dict[str, Client] = {"openai": by_openai, "llm": by_llm, "oterm": by_oterm, "elia": by_elia}


def environment(name: str, folder: Path) -> Path:
    """Where the client is installed; made if it is not there."""
    place = folder / name
    if not (place / "installed").exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", PACKAGES[name]], check=True)
        (place / "installed").touch()
    return place


def held(name: str, folder: Path, asked: argparse.Namespace) -> bool:
    """Whether conversations were held as they should be; says so."""
    place, talks = environment(name, folder), list[list[Turn]]()
    lines = [LINES[number % len(LINES)] for number in range(asked.turns)]
    for _ in range(asked.conversations):
        proxy = Proxy(asked.url, asked.pid)
        with tempfile.TemporaryDirectory() as home:
            CLIENTS[name](place, Path(home), proxy, asked.key, lines)
        proxy.close()
        found = [turn for turn in proxy.turns if turn.done]
        if [turn.messages for turn in found] != list(range(1, asked.turns + 1)):
            messages = [turn.messages for turn in found]
            print(f"{name}: {len(found)} of {asked.turns} turns, with {messages} messages")
            return False
        talks.append(found)
    second, last = [talk[1] for talk in talks], [talk[-1] for talk in talks]
    times, says = compared([turn.first_ms for turn in second], [turn.first_ms for turn in last])
    read = f"{last[0].prompt_tokens} tokens read in the last, {last[0].cached_tokens} before"
    print(
        f"{name}: {len(talks)} x {asked.turns} turns. First words, turn 2 and {asked.turns}: {says}; {read}"
    )
    if asked.pid:
        spent = compared([turn.first_cpu_ms for turn in second], [turn.first_cpu_ms for turn in last])[1]
        print(f"  processor time of the server until then: {spent}", flush=True)
    return times <= SLOWER and all(turn.cached_tokens for talk in talks for turn in talk[1:])


def compared(before_ms: list[float], after_ms: list[float]) -> tuple[float, str]:
    """How many times the one median is the other, and that in words, with the ranges."""
    times = median(after_ms) / median(before_ms)
    first, last = (f"{median(ms):.1f} ms [{min(ms):.1f} to {max(ms):.1f}]" for ms in (before_ms, after_ms))
    return times, f"{first} and {last}, {times:.2f} times"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default="none")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--conversations", type=int, default=5, help="By each client.")
    parser.add_argument("--pid", type=int, help="The server's process, to say what it takes.")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--folder", type=Path, help="Of the environments; temporary, if none is named.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        fine = [held(name, folder, asked) for name in asked.clients]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
