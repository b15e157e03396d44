"""Many clients at a server at once: every answer is what the same conversation alone gives, token for token.

    tools/stress/serve_storm.py [--minutes 10] [--clients 32] [--model FOLDER] [--rows 16] [--tools]
    tools/stress/serve_storm.py --hostile [NAME ...] [--seconds 60]

Starts a server. Two of the clients are ill-behaved: one does not read, one goes away in the middle. The
others hold conversations, greedy and drawn, with and without schemas and forced tools; with --tools each has
tools, and calls are free, forced, and made two at once. At the end, in the
middle of answers, the server gets a SIGTERM; another one goes on from what it has saved, with the last
conversation of each client. Then all conversations are held once more, alone, and compared: in an engine of
their own, or, with schemas and tools, one after the other at a server with one row. Prints what was asked,
the longest request, the memory as computed and as it was.

Memory: what the server's process has taken since it listens (anonymous pages and swap of smaps_rollup;
weights are mapped, and not among them), once a second, beside what /metrics says: never more than 5% above
`computed_bytes`, and once all snapshots are in use never more than 5% below the sum of rows and snapshots
(`computed_bytes` without what is kept free for prompts and ranking, which comes and goes). A short storm does
not use all snapshots: give it fewer with --snapshots.

With --hostile nothing of this: beside each of the attacks of `hostile.py` in turn, or those that are named,
the longest gap and the longest wait of a good key, and the server's highest memory.

Ends with exit code 1 if a token differs or is missing, a connection ended without an answer, a turn read
again what was read before, a request took longer than the server promises, the server answered 500, its
memory was not as computed, or something was not saved or not gone on with.
"""

import argparse
import http.client
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import hostile
from served import GRACE_S, Server, events, metric, posted

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.native.native_model import open_model

TIMEOUT_S = 120
"""Longest request that the server promises."""
APART = 0.05
"""Memory may differ from what was computed by this share of it."""
NOT_READ_S = 100
"""A client does not read for so long: less than the server promises, more than it needs to cut it off."""
TURNS = 12
"""Turns of a conversation at most; then another begins."""
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": name, "parameters": WEATHER}}
        for name in ("weather", "tides")
    ]
}
FORCED: tuple[dict[str, Any], ...] = (
    TOOLS | {"tool_choice": "required"},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}},
)
CALL = (
    r'"<tool_call>\n{\"name\": \"" ("weather" | "tides") "\", \"arguments\": {\"city\": \""'
    r' [A-Z] [a-z]* "\"}}\n</tool_call>"'
)
CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "tides"}}},
    {"grammar": rf'root ::= {CALL} "\n" {CALL}', "max_tokens": 120},
)
"""Kinds of turns with --tools: free, a forced call of any tool or of one, and two calls at once."""
LINES = (
    "My name is {name} and my cat is called Tom.",
    "I like long walks in the rain, and tea.",
    "Tell me a story about a dog.",
    "What is my name?",
    "My number is {number}. Remember it.",
    "What is my number?",
    "Do you like music?",
)


@dataclass
class Said:
    """One turn."""

    text: str
    sampling: dict[str, Any]
    answer: str
    new_tokens: int
    cached_tokens: int
    calls: list[Any]
    order: int = 1  # -1: the results of its calls are sent in the reverse order

    def messages(self) -> list[dict[str, Any]]:
        """The turn in the form that the next request sends."""
        answer = {"role": "assistant", "content": self.answer, "tool_calls": self.calls}
        results = [
            {"role": "tool", "tool_call_id": one["id"], "content": f"Rain in {one['function']['arguments']}."}
            for one in self.calls
        ]
        return [{"role": "user", "content": self.text}, answer, *results[:: self.order]]

    def told(self) -> tuple[Any, ...]:
        """The parts that must be equal in the conversation alone."""
        return self.answer, self.new_tokens, [one["function"] for one in self.calls]


@dataclass
class Storm:
    """Everything that happened."""

    port: int
    over: threading.Event = field(default_factory=threading.Event)
    conversations: list[list[Said]] = field(default_factory=list)
    newest: dict[int, list[Said]] = field(default_factory=dict)  # Newest conversation of each client
    longest_s: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    ill: Counter[str] = field(default_factory=Counter)  # What the ill-behaved have done, how often
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lost(self, error: Exception, began: float) -> None:
        """A request has no answer; that is right only where the server has been told to end."""
        if not self.over.is_set() or not isinstance(error, ConnectionRefusedError):
            self.wrong.append(f"after {time.monotonic() - began:.1f} s: {type(error).__name__}: {error}")

    def note(self, status: int, began: float) -> None:
        """A request was answered to its end."""
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            if status == 500:
                self.wrong.append("the server answered 500")


def ask(storm: Storm, said: list[Said], text: str, sampling: dict[str, Any]) -> Said | None:
    """The next turn of a conversation; None where the server has none for it just now."""
    messages = [message for turn in said for message in turn.messages()] + [{"role": "user", "content": text}]
    body, began = {"messages": messages, "stream": True, **sampling}, time.monotonic()
    answer, calls, timings = "", list[Any](), dict[str, int]()
    try:
        with posted(storm.port, body, TIMEOUT_S + 60) as reply:
            for event in events(reply):
                timings = event.get("timings", timings)
                for one in event.get("choices", []):
                    answer += one["delta"].get("content", "")
                    calls += one["delta"].get("tool_calls", [])
    except (OSError, http.client.HTTPException) as error:
        storm.lost(error, began)
        return None
    except ValueError as error:
        storm.note(reply.status, began)
        if reply.status == 200:
            storm.wrong.append(f"a stream has ended with {error}: {len(said)} turns, {sampling}")
        return None
    storm.note(reply.status, began)
    return Said(text, sampling, answer, timings["predicted_n"], timings["cache_n"], calls)


def talk(storm: Storm, tools: bool, seed: int) -> None:
    """One conversation after the other; `tools`: each has them."""
    rng = random.Random(seed)
    while not storm.over.is_set():
        said: list[Said] = []
        with storm.lock:
            storm.conversations.append(said)
            storm.newest[seed] = said
        drawn, forced = rng.random() < 0.5, TOOLS if tools else rng.choice([{}, {}, *FORCED])
        for number in range(rng.randint(1, TURNS)):
            line = LINES[(number + seed) % len(LINES)].format(name=f"Ada{seed}", number=rng.randrange(10**6))
            sampling: dict[str, Any] = {"max_tokens": rng.randint(1, 90), "seed": rng.randrange(2**32)}
            sampling |= forced | (rng.choice(CHOICES) if tools else {})
            sampling |= {"temperature": 0.8, "top_p": 0.95, "min_p": 0.05} if drawn else {}
            turn = ask(storm, said, line, sampling)
            if turn is None:
                break
            turn.order = rng.choice([1, -1])
            said.append(turn)
            if storm.over.is_set():
                return
            time.sleep(rng.random() / 10)


def endless(storm: Storm) -> socket.socket:
    """A request that never ends by itself."""
    body = hostile.said("Hello", stream=True, ignore_eos=True, max_tokens=10**9)
    one = socket.create_connection(("127.0.0.1", storm.port), timeout=TIMEOUT_S + 60)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.sendall(hostile.head(len(body)) + body)
    return one


def over_and_over(storm: Storm, what: str, leave: Callable[[socket.socket], object]) -> None:
    """Requests that never end by themselves, each left in this way."""
    while not storm.over.is_set():
        try:
            with endless(storm) as one:
                storm.ill[what] += 1
                leave(one)
        except OSError:
            time.sleep(0.1)


def not_read(storm: Storm) -> None:
    """The server ends it."""
    over_and_over(storm, "streams were not read", lambda _: storm.over.wait(NOT_READ_S))


def go_away(storm: Storm) -> None:
    """In the middle, before the first word, and before the body is whole."""
    rng = random.Random(1)

    def leave(one: socket.socket) -> None:
        one.settimeout(10)
        if rng.random() < 0.7:
            one.recv(rng.randrange(1, 20_000))
        time.sleep(rng.random() / 10)

    over_and_over(storm, "clients went away", leave)


def compare(storm: Storm, settings: Settings, alone: Storm) -> int:
    """Holds all conversations once more, alone; how many tokens they have."""
    engine, tokens = Engine(open_model(settings, lambda *_: None), settings), 0
    with progress_bar() as progress:
        for number, said in enumerate(storm.conversations):
            progress("compared", number / len(storm.conversations))
            chat = Chat(engine, settings)
            chat.clear()
            for place, turn in enumerate(said):
                if place and not turn.cached_tokens:
                    storm.wrong.append(f"conversation {number}, turn {place + 1}: all of it was read again")
                if turn.sampling.keys() & {"tools", "response_format"}:
                    again = ask(alone, said[:place], turn.text, turn.sampling)
                    expected = again.told() if again else ()
                else:
                    chat.reseed(turn.sampling["seed"])
                    how = {key: value for key, value in turn.sampling.items() if key != "seed"}
                    (end,) = (e for e in chat.send(turn.text, Sampling(**how)) if isinstance(e, Turn))
                    expected = end.text, end.new_tokens, []
                tokens += turn.new_tokens
                if turn.told() != expected:
                    where = f"conversation {number}, turn {place + 1}"
                    storm.wrong.append(f"{where}: {turn.told()!r} instead of {expected!r}")
                    break
    return tokens


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--snapshots", type=int, help="8 for each client, if not given.")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--tools", action="store_true", help="All conversations have tools.")
    parser.add_argument("--hostile", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60, help="Of each attack.")
    asked = parser.parse_args()
    flags = ["-b", str(asked.budget), "--threads", str(asked.threads), "--rows", str(asked.rows)]
    flags += ["--snapshots", str(asked.snapshots or 8 * asked.clients)]
    flags += ["--timeout", str(TIMEOUT_S), "--grace", str(GRACE_S), "-m", asked.model]
    if asked.hostile is not None:
        wrong = hostile.raged(asked.seconds, flags, asked.hostile)
        print(*(f"wrong: {what}" for what in wrong), sep="\n")
        return 1 if wrong else 0
    with tempfile.TemporaryDirectory() as folder:
        storm = raged(Server(flags, Path(folder) / "data"), asked.minutes, asked.clients, asked.tools)
        goes_on(storm, Server(flags, Path(folder) / "data"))
        alone = Server([*flags, "--rows", "1", "--no-store"], Path(folder) / "alone")
        settings = Settings(asked.model, budget=asked.budget, threads=asked.threads, seed=0, events_every=0)
        tokens = compare(storm, settings, Storm(alone.port))
        storm.wrong += alone.end()
    turns = [turn for said in storm.conversations for turn in said]
    forced = sum(any(key in turn.sampling for key in ("tools", "response_format")) for turn in turns)
    print(f"{len(storm.conversations):,} conversations, {len(turns):,} turns, {tokens:,} tokens compared")
    called, several = (sum(len(turn.calls) > most for turn in turns) for most in (0, 1))
    print(f"{forced:,} turns had tools or a schema; {called:,} are calls, {several:,} several at once")
    print(f"answered, by status: {storm.statuses}; the longest took {storm.longest_s:.1f} s of {TIMEOUT_S} s")
    if storm.longest_s > TIMEOUT_S + 5:
        storm.wrong.append("a request took longer than promised")
    for what in storm.wrong[:20]:
        print(f"wrong: {what}")
    return 1 if storm.wrong else 0


def raged(server: Server, minutes: float, clients: int, tools: bool) -> Storm:
    """All clients at once, and then a SIGTERM."""
    storm, memory = Storm(server.port), Memory(server)
    work: list[Callable[[], None]] = [partial(one, storm) for one in (not_read, go_away)]
    work += [partial(talk, storm, tools, seed) for seed in range(clients - len(work))]
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        time.sleep(1)
        memory.look()
    storm.wrong += memory.told()
    storm.ill["streams were cut, for they were not read"] = metric(server.port, "slow_streams_total")
    storm.ill["answers were stopped, for their clients had gone"] = metric(
        server.port, 'answers_total{finish="stopped"}'
    )
    storm.over.set()
    storm.wrong += server.end()
    for thread in threads:
        thread.join()
    print("; ".join(f"{count:,} {what}" for what, count in storm.ill.items()))
    return storm


class Memory:
    """Memory of a server that nobody has asked anything yet, as it is and as it was computed."""

    def __init__(self, server: Server) -> None:
        self._server, self._before = server, server.anonymous_bytes()
        self._most = metric(server.port, "snapshots_limit")
        self._held = metric(server.port, "rows") * metric(server.port, "row_bytes")
        self._held += self._most * metric(server.port, "snapshot_bytes")  # Bytes of all rows and snapshots
        self._looks: list[tuple[int, int, int]] = []  # bytes computed, bytes taken, snapshots in use

    def look(self) -> None:
        """Now."""
        computed, snapshots = (metric(self._server.port, name) for name in ("computed_bytes", "snapshots"))
        self._looks.append((computed, self._server.anonymous_bytes() - self._before, snapshots))

    def told(self) -> list[str]:
        """Prints what was seen; returns what is wrong."""
        computed, taken, _ = self._looks[-1]
        most = max(taken / computed for computed, taken, _ in self._looks)
        print(
            f"memory at the end: taken {taken / 1e6:,.1f} MB, computed {computed / 1e6:,.1f} MB; at most"
            f" {most:.1%} of what was computed, in {len(self._looks):,} looks"
        )
        full = [taken / self._held for _, taken, snapshots in self._looks if snapshots == self._most]
        if not full:
            return [f"not all {self._most:,} snapshots were in use: let it last longer, or have fewer"]
        print(
            f"with all {self._most:,} snapshots in use at least {min(full):.1%} of the rows and"
            f" snapshots, {self._held / 1e6:,.1f} MB, in {len(full):,} looks"
        )
        return ["the memory is not as computed"] if most > 1 + APART or min(full) < 1 - APART else []


def goes_on(storm: Storm, server: Server) -> None:
    """One turn more of what was talked about at the end, at another server."""
    storm.port, went = server.port, 0
    held = [said for said in storm.newest.values() if said]
    for said in held:
        turn = ask(storm, said, "What is my name?", said[-1].sampling | {"max_tokens": 20, "seed": 3})
        if turn is None or not turn.cached_tokens:
            storm.wrong.append("after the restart a conversation was not gone on with")
            continue
        said.append(turn)
        went += 1
    print(f"after the restart {went} of {len(held)} conversations went on")
    if not held:
        storm.wrong.append("no conversation was held")
    storm.wrong += server.end()


if __name__ == "__main__":
    sys.exit(main())
