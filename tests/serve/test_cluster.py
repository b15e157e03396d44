"""`h2o-chat cluster up`: replicas whose conversations move. Needs Ray; storage: `test_shared.py`."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cluster_up import replicas, up
from serving import Answer, Client, Server, talk

HAS_RAY = importlib.util.find_spec("ray") is not None
with_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install '.[cluster]'")
MODEL = ("-b", 48, "--max-tokens", 24, "--temperature", 0, "--threads", 1)
TEXTS = ("My name is Ada.", "My cat is Tom. I like tea.", "What is my name?", "What is my cat?", "Thank you.")


def surely(client: Client, session: str, messages: list[dict[str, str]]) -> Answer:
    """Sends again, like a client, a request that a replica took with it."""
    for _ in range(30):
        try:
            answer = client.complete(messages, session)
        except OSError:
            pass
        else:
            if answer.status == 200:
                return answer
        time.sleep(0.5)
    raise AssertionError(answer)


@pytest.fixture(scope="module")
def alone() -> list[dict[str, str]]:
    with Server(*MODEL, "--no-store") as server:
        return talk(TEXTS, [server.client()])


@with_ray
@pytest.mark.cluster
@pytest.mark.loopback
@pytest.mark.timeout(600)
def test_replicas_that_die_and_that_go(tmp_path: Path, alone: list[dict[str, str]]) -> None:
    """One cluster for all: it takes 15 s to start."""
    flags = (*MODEL, "--replicas", 2, "--cpus", 0.5, "--grace", 3, "--state", tmp_path / "state")
    with up(tmp_path / "log", *flags) as (process, client):
        for session in ("a", "b", "c"):
            assert surely(client, session, alone[:1]).text == alone[1]["content"]
        for replica in replicas(process):
            replica.kill()
        for at in range(2, len(alone), 2):
            for session in ("a", "b", "c"):
                assert surely(client, session, alone[: at + 1]).text == alone[at + 1]["content"]
        assert surely(client, "d", alone[:-1]).text == alone[-1]["content"], "words that it never heard"
        assert client.get("/v1/conversations/a").body["messages"] == alone
        assert client.complete(alone[:1], "a").status == 409
        cut = list[bytes]()
        stream = client.stream("Tell me a story.", max_tokens=100_000, ignore_eos=True)
        reading = threading.Thread(target=lambda: cut.extend(stream.response))
        reading.start()
        time.sleep(1)
        process.terminate()
        reading.join(60)
        told = [json.loads(line[6:]) for line in cut if line.startswith(b"data: ")]
        assert told[-1]["error"]["code"] == "ending"
        assert len(told) > 10, "what was said so far came before"
        assert process.wait(60) == 0, (tmp_path / "log").read_text()


def test_without_ray_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['ray'] = None; from h2o_chat.cli.cli import app; app(['cluster', 'up'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'h2o-chat[cluster]'" in done.stderr


@with_ray
@pytest.mark.cluster
@pytest.mark.loopback
@pytest.mark.parametrize("flags", [("--replicas", "3:2"), ("--replicas", "x"), ("--state", "/dev/null/x")])
def test_wrong_values_are_told_at_once(flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "h2o_chat", "cluster", "up", "-m", "pocket", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert flags[0] in done.stderr


@with_ray
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.loopback
def test_a_batch_is_answered_as_alone(tmp_path: Path) -> None:
    lines = [json.dumps({"id": at, "prompt": f"{TEXTS[at % 5]} Number {at}."}) for at in range(70)]
    (tmp_path / "in").write_text("\n".join(lines))
    base = [sys.executable, "-m", "h2o_chat", "run", "--batch", "in", "-m", "pocket", "--seed", "3"]
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*flags: str) -> dict[int, str]:
        command = [*base, "--max-tokens", "12", "-b", "48", "--threads", "1", "-o", *flags]
        subprocess.run(command, cwd=tmp_path, env=own, check=True, timeout=200)
        answers = [json.loads(line) for line in (tmp_path / flags[0]).read_text().splitlines()]
        assert len({one["id"] for one in answers}) == len(answers) == 70
        return {one["id"]: one["text"] for one in answers}

    alone = run("alone")
    half = (tmp_path / "alone").read_text().splitlines(keepends=True)[:30]
    (tmp_path / "ray").write_text("".join(half))
    assert run("ray", "--ray", "local") == alone
