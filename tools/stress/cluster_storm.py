"""Conversations over replicas that are killed, moved and cut off; each answer is that of one process alone.

    tools/stress/cluster_storm.py [-m MODEL] [--only PHASE] [--conversations 64] [--turns 20]

Phases: calm; kill (kill -9 of replicas, ten times); node (a node removed, twice); head (killed, and
`cluster up` again); fork (two replicas hold one conversation); scale (2, 3 and 2 replicas by load); storage
(slow, then failing for 20 s); overhead (beside `serve`); batch (`run --batch`, a node removed half-way).
Prints a line of JSON for each; exit code 1 where an answer differs. Needs Ray (`pip install '.[cluster]'`);
starts clusters of its own, and ends them.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from served import Server, events, metric, page, posted, started

LINES = Path(__file__).with_name("conversation_300.txt").read_text("utf-8").splitlines()
SAID = [line for line in LINES if 20 < len(line) < 120 and line[0] not in "#-"]
PORT = 8199
SITE = """
import os, time, fsspec
from fsspec.implementations.local import LocalFileSystem
def weather():
    mode = open(os.environ["STORM"]).read()
    if mode == "slow": time.sleep(0.2)
    if mode == "fail": raise OSError(5, "the storm")
class Storm(LocalFileSystem):
    protocol = ("storm",)
    def __init__(self, **more): super().__init__(auto_mkdir=True, **more)
    @classmethod
    def _strip_protocol(cls, path): return super()._strip_protocol(str(path).removeprefix("storm://"))
    def pipe_file(self, path, value, mode="overwrite", **_):
        weather()
        with self.open(path, "xb" if mode == "create" else "wb") as file: file.write(value)
def slow(work): return lambda *given, **more: (weather(), work(*given, **more))[1]
for name in ("put_file", "cat_file", "get_file", "ls", "rm_file"):
    setattr(Storm, name, slow(getattr(LocalFileSystem, name)))
fsspec.register_implementation("storm", Storm, clobber=True)
"""
"""A file system that is slow or fails as a file says, in every process that finds this on its path."""


Reach = Callable[[float], None]
"""Waits until this share of all answers has been delivered."""


@dataclass
class Told:
    text: str
    first_s: float
    whole_s: float
    request: str
    gap_s: float = 0.0  # from the first error to the end
    errors: list[str] = field(default_factory=list)


@dataclass
class Storm:
    conversations: int
    turns: int
    folder: Path
    flags: list[str]
    alone: list[list[str]] = field(default_factory=list)

    def learn(self) -> None:
        server = Server([*self.flags, "--no-store", "--rows", "8"], self.folder / "alone")
        self.alone = [[one.text for one in told] for told in self.talks(server.port, "alone", self.turns, {})]
        server.end()

    def talks(
        self, port: int, name: str, turns: int, held: dict[str, list[Any]], at_once: int = 8
    ) -> list[list[Told]]:
        """Turns of all conversations, some at once; `held` keeps their messages, to go on later."""

        def one(number: int) -> list[Told]:
            messages, told = held.setdefault(f"{name}-{number}", []), list[Told]()
            for turn in range(len(messages) // 2, len(messages) // 2 + turns):
                messages.append({"role": "user", "content": SAID[(number * 37 + turn * 11) % len(SAID)]})
                told.append(surely(port, messages, f"{name}-{number}", number * 1000 + turn))
                messages.append({"role": "assistant", "content": told[-1].text})
            return told

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(one, range(self.conversations)))

    def different(self, held: dict[str, list[Any]]) -> int:
        """Answers that are not those of one process alone."""
        return sum(
            one["content"] != self.alone[int(name.rpartition("-")[2])][turn]
            for name, messages in held.items()
            for turn, one in enumerate(messages[1::2])
        )


def ask(port: int, messages: list[Any], session: str, seed: int) -> Told:
    """One streamed answer; raises OSError, HTTPException or ValueError where there is none."""
    body = {"messages": messages, "stream": True, "seed": seed, "temperature": 0.8}
    began, first, text = time.monotonic(), 0.0, ""
    with posted(port, body, 60, **{"x-session-id": session}) as reply:
        for event in events(reply):
            new = "".join(one["delta"].get("content") or "" for one in event["choices"])
            first = first or (time.monotonic() - began if new else 0.0)
            text += new
        whole_s = time.monotonic() - began
        return Told(text, first or whole_s, whole_s, reply.getheader("x-request-id") or "")


def surely(port: int, messages: list[Any], session: str, seed: int) -> Told:
    """Sends the same request again, like a client, until it is answered."""
    failed, errors = 0.0, list[str]()
    while True:
        try:
            told = ask(port, messages, session, seed)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failed = failed or time.monotonic()
            errors.append(f"{type(error).__name__}: {error}"[:60])
            time.sleep(0.2)
        else:
            told.errors, told.gap_s = errors, time.monotonic() - failed if failed else 0.0
            return told


class Up:
    def __init__(self, storm: Storm, name: str, replicas: object, *flags: str, **env: str) -> None:
        self.log = storm.folder / f"up-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "h2o_chat", "cluster", "up", *storm.flags, *flags, "--grace", "10"]
        state = name if "://" in name else str(storm.folder / name)
        command += ["--address", f"127.0.0.1:{PORT}", "--state", state, "--replicas", str(replicas)]
        self.process, _ = started(command, self.log, "serving http", **env)

    def __enter__(self) -> "Up":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def running() -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["name"]) if one.info["name"].startswith("ray::ServeRepl")]


def held_by(session: str) -> list[Any]:
    """The messages of a conversation that the cluster holds."""
    return list(json.loads(page(PORT, f"/v1/conversations/{session}"))["messages"])


def during(storm: Storm, name: str, weather: Callable[[Reach], Any]) -> dict[str, Any]:
    """All conversations while something happens to their cluster."""
    held = dict[str, list[Any]]()

    def reach(share: float) -> None:
        while sum(len(one) // 2 for one in list(held.values())) < share * storm.conversations * storm.turns:
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        talks = pool.submit(storm.talks, PORT, name, storm.turns, held)
        weather(reach)  # a node can be added by the main thread alone
        told = [one for answers in talks.result() for one in answers]
    found = {"phase": name, "answers": len(told), "different": storm.different(held)}
    found["first_token_ms"] = spread([1000 * one.first_s for one in told])
    if failed := [one.gap_s for one in told if one.errors]:
        found |= {"hit": len(failed), "gap_s": [round(statistics.median(failed), 1), round(max(failed), 1)]}
        found["errors"] = sorted({error for one in told for error in one.errors})[:6]
    return found


def spread(values: Sequence[float]) -> list[float]:
    return [round(sorted(values)[int(share * len(values))], 1) for share in (0.5, 0.99)]


def calm(storm: Storm) -> dict[str, Any]:
    with Up(storm, "calm", 2):
        return during(storm, "calm", lambda _: None)


def kill(storm: Storm) -> dict[str, Any]:
    def weather(reach: Reach) -> None:
        for kills in range(1, 11):
            reach(kills / 12)
            while not (there := running()):
                time.sleep(0.5)
            random.choice(there).kill()

    with Up(storm, "kill", 2):
        return during(storm, "kill", weather)


def node(storm: Storm) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]

    def weather(reach: Reach) -> None:
        for share in (0.3, 0.6):
            reach(share)
            nodes.remove_node(workers.pop(0), allow_graceful=False)
            time.sleep(4)
            workers.append(nodes.add_node(num_cpus=1))

    with Up(storm, "node", 2, "--ray", nodes.address):
        found = during(storm, "node", weather)
    nodes.shutdown()
    return found


def head(storm: Storm) -> dict[str, Any]:
    ups = [Up(storm, "head", 2)]

    def weather(reach: Reach) -> None:
        reach(0.4)
        for one in (psutil.Process(ups[0].process.pid), *psutil.Process(ups[0].process.pid).children(True)):
            one.kill()
        time.sleep(3)
        ups.append(Up(storm, "head", 2))

    found = during(storm, "head", weather)
    with ups[-1]:
        return found


def fork(storm: Storm) -> dict[str, Any]:
    """Two writers for each conversation, whose requests the router sends to any replica."""
    said, refused = {f"fork-{at}": list[tuple[str, str]]() for at in range(4)}, list[str]()

    def write(session: str, writer: str) -> None:
        messages, done = list[Any](), 0
        while done < 6:
            asked = {"role": "user", "content": f"{writer} says number {done}."}
            try:
                text = ask(PORT, [*messages, asked], session, done).text
            except ValueError as error:
                refused.append(str(error))
                messages = held_by(session)
                time.sleep(random.random() / 5)
            else:
                said[session].append((asked["content"], text))
                messages += [asked, {"role": "assistant", "content": text}]
                done += 1

    with Up(storm, "fork", 2, RAY_SERVE_SESSION_ID_HEADER_KEY="x-nothing"):
        pairs = [(session, writer) for session in said for writer in ("Ada", "Tom")]
        with ThreadPoolExecutor(len(pairs)) as pool:
            list(pool.map(lambda pair: write(*pair), pairs))
        wrong = 0
        for session, delivered in said.items():
            history = [one["content"] for one in held_by(session)]
            wrong += sorted(zip(history[::2], history[1::2], strict=True)) != sorted(delivered)
    return {"phase": "fork", "answers": 6 * len(pairs), "refused": len(refused), "different": wrong}


def scale(storm: Storm) -> dict[str, Any]:
    held, steps, logs = dict[str, list[Any]](), list[list[list[Told]]](), Path("/tmp/ray/session_latest/logs")
    with Up(storm, "scale", "2:3", "--rows", "2", "--cpus", "0.5"):
        for count, at_once in ((2, 2), (3, 8), (2, 2)):
            while len(running()) != count:
                storm.talks(PORT, f"load-{time.monotonic()}", 1, {}, at_once)
            steps.append(storm.talks(PORT, "scale", 3, held, at_once))
    where, moved, medians = dict[str, str](), list[int](), list[dict[str, list[float]]]()
    for log in logs.glob("serve/replica_*.log"):
        where |= dict.fromkeys(re.findall(r"([0-9a-f]{8}-[0-9a-f-]{27}) -- POST", log.read_text()), log.name)
    for before, after in pairwise(steps):
        has = [
            where.get(a[-1].request) != where.get(b[0].request) for a, b in zip(before, after, strict=True)
        ]
        moved.append(sum(has))
        first: dict[str, list[float]] = {"moved": [], "stayed": []}  # compared where the load is the same
        for one, told in zip(has, after, strict=True):
            first["moved" if one else "stayed"].append(1000 * told[0].first_s)
        medians.append({name: spread(values) for name, values in first.items() if values})
    failed = sum(bool(one.errors) for step in steps for told in step for one in told)
    shown = {"phase": "scale", "moved": moved, "failed": failed, "first_token_ms": medians}
    return shown | {"different": storm.different(held)}


def storage(storm: Storm) -> dict[str, Any]:
    mode, site = storm.folder / "weather", storm.folder / "site"
    mode.write_text("good")
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    held, found = dict[str, list[Any]](), dict[str, Any]({"phase": "storage"})
    state, env = f"storm://{storm.folder / 'storage'}", {"PYTHONPATH": str(site), "STORM": str(mode)}
    os.environ |= env  # the command itself looks whether the storage works
    with Up(storm, state, 1, **env) as one:
        for name in ("good", "slow", "fail"):
            mode.write_text(name)
            began = time.monotonic()
            told = [answer for answers in storm.talks(PORT, "storage", 2, held) for answer in answers]
            found[f"{name}_answer_ms"] = spread([1000 * answer.whole_s for answer in told])
        time.sleep(max(0.0, began + 20 - time.monotonic()))
        found["waiting"], found["failing"] = metric(PORT, "shared_waiting"), metric(PORT, "shared_failing")
        mode.write_text("good")
        began = time.monotonic()
        while metric(PORT, "shared_waiting"):
            time.sleep(0.2)
        found["written_after_s"] = round(time.monotonic() - began, 1)
        log = one.log.read_text()
        found["said"] = "the shared storage fails" in log and "works again" in log
        return found | {"different": storm.different(held)}


def overhead(storm: Storm) -> dict[str, Any]:
    found: dict[str, list[Told]] = {"serve": [], "cluster": []}
    server = Server([*storm.flags, "--no-store"], storm.folder / "beside")
    with Up(storm, "overhead", 1):
        for at in range(102):
            for side, port in (("serve", server.port), ("cluster", PORT)):
                found[side].append(ask(port, [{"role": "user", "content": SAID[at]}], f"overhead-{at}", 1))
    server.end()
    shown: dict[str, Any] = {"phase": "overhead", "different": 0}
    for side, told in found.items():
        times = [[1000 * one.first_s for one in told[2:]], [1000 * one.whole_s for one in told[2:]]]
        shown[f"{side}_first_and_whole_ms"] = [*map(spread, times)]
    return shown


def batch(storm: Storm) -> dict[str, Any]:
    """2,000 lines over two nodes, one of which is removed half-way, beside one process alone."""
    from ray.cluster_utils import Cluster

    lines, command = storm.folder / "lines.jsonl", [sys.executable, "-m", "h2o_chat", "run", "--batch"]
    asked = [{"id": at, "prompt": SAID[at % len(SAID)], "temperature": 0.8} for at in range(2000)]
    lines.write_text("".join(json.dumps(one) + "\n" for one in asked))

    def there(name: str) -> list[Any]:
        return [
            json.loads(line)
            for line in (storm.folder / name).read_text().splitlines(True)
            if line[-1] == "\n"
        ]

    subprocess.run([*command, str(lines), "-o", str(storm.folder / "one"), *storm.flags], check=True)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
    (storm.folder / "many").touch()
    more = ["-o", str(storm.folder / "many"), "--ray", nodes.address]
    over = subprocess.Popen([*command, str(lines), *more, *storm.flags])
    while (before := len(there("many"))) < len(asked) / 2 and over.poll() is None:
        time.sleep(0.02)
    nodes.remove_node(workers[0], allow_graceful=False)
    code = over.wait()
    nodes.shutdown()
    alone, found = ({one["id"]: one["text"] for one in there(name)} for name in ("one", "many"))
    shown = {"phase": "batch", "answers": len(there("many")), "once": len(found), "exit": code}
    wrong = sum(found.get(name) != text for name, text in alone.items())
    return shown | {"removed_after": before, "different": wrong + len(there("many")) - len(found)}


PHASES = {one.__name__: one for one in (calm, kill, node, head, fork, scale, storage, overhead, batch)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="pocket")
    parser.add_argument("--only", choices=PHASES)
    parser.add_argument("--conversations", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", asked.model, "-b", "64", "--threads", "1", "--max-tokens", "24"]
        storm = Storm(asked.conversations, asked.turns, Path(folder), flags)
        storm.learn()
        for name, phase in PHASES.items():
            if asked.only in (None, name):
                found = phase(storm)
                print(json.dumps(found), flush=True)
                wrong += found["different"]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
