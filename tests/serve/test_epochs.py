"""Epochs and the shared memories of one server, without a model."""

import asyncio
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving import by_turns

from h2o_chat.base.errors import UsageError
from h2o_chat.serve import shared_memories
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.epochs import Epoch, Epochs
from h2o_chat.serve.prefixes import Memory, Prefixes, after, chain
from h2o_chat.serve.request_queue import Ticket
from h2o_chat.serve.shared_memories import Shared
from h2o_chat.serve.shared_storage import Storage
from h2o_chat.serve.stream import Stream


def epoch(number: int, chain: str, base: int = 0) -> Epoch:
    return Epoch("f", number, base, chain * 32, "00" * 32, (("user", "hi"),), f"{number:08d}-m", False)


def test_one_writer_wins(tmp_path: Path) -> None:
    """Many at once, each with an epoch of its own: one record, and only its memory stays."""
    epochs = Epochs(Storage(str(tmp_path)), b"c")

    def write(at: int) -> None:
        one = replace(epoch(1, f"{at:02x}"), memory=f"00000001-{at}")
        epochs.write(one, lambda file: _fill(file, at))

    with ThreadPoolExecutor(16) as pool:
        errors = [one.exception() for one in [pool.submit(write, at) for at in range(1, 17)]]
    assert [type(error) for error in errors if error] == [ApiError] * 15
    found = epochs.newest("f")
    assert found is not None
    assert sorted(os.listdir(tmp_path / "f")) == sorted(["00000001.json", found.memory])


def _fill(file: Path, at: int) -> None:
    file.write_bytes(bytes([at]) * 1000)


def test_what_is_removed_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """One reads the newest epoch again and again while another writes and removes."""
    epochs, found, writing = Epochs(Storage(str(tmp_path)), b"c"), list[int](), True
    epochs.write(epoch(1, "01"), None)

    def read() -> None:
        while writing:
            newest = epochs.newest("f")
            assert newest is not None
            found.append(newest.number)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for number in range(2, 60):
            epochs.write(epoch(number, f"{number:02x}", number - 1), None)
            epochs.remove_old("f")
        writing = False
        reading.result()
    assert found == sorted(found)
    assert epochs.base("f", [bytes.fromhex("00" * 32)], None)[0] == 59


def test_a_twin_is_no_conflict(tmp_path: Path) -> None:
    epochs = Epochs(Storage(str(tmp_path)), b"c")
    epochs.write(epoch(1, "aa"), None)
    epochs.write(epoch(1, "aa"), None)
    with pytest.raises(ApiError) as found:
        epochs.write(epoch(1, "bb"), None)
    assert found.value.status == 409


DAMAGES: list[dict[str, Any]] = [
    {"number": 7}, {"memory": "../x"}, {"messages": 3}, {"more": 1}, {"base": None}, {"base": "x"},
    {"base": 1}, {"base": -1}, {"number": True}, {"chain": "x"}, {"asked": 1}, {"marked": 1},
    {"messages": [[1, 2]]}, {},
]  # fmt: skip
"""Changes of a record; an empty one replaces it by one that is nested too deeply."""


@pytest.mark.parametrize("change", DAMAGES)
def test_a_damaged_record_is_told(tmp_path: Path, change: dict[str, Any]) -> None:
    epochs = Epochs(Storage(str(tmp_path)), b"c")
    epochs.write(epoch(1, "aa"), None)
    file = tmp_path / "f" / "00000001.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change) if change else "[" * 200_000)
    for read in (epochs.newest, epochs.remove_old):
        with pytest.raises(ApiError, match="damaged"):
            read("f")


def test_a_name_that_cannot_be_read_ends(tmp_path: Path) -> None:
    epochs = Epochs(Storage(str(tmp_path)), b"c")
    epochs.write(epoch(1, "aa"), None)
    (tmp_path / "f" / "0000000\u0665.json").touch()
    found = epochs.newest("f")
    assert found is not None
    assert found.number == 1
    (tmp_path / "f" / "00000002.json").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        epochs.newest("f")


def test_a_number_that_is_free_again_is_refused(tmp_path: Path) -> None:
    """One wrote 2, 3, 4 and removed 1 and 2; a late writer of 2 is refused, and nothing of it stays."""
    epochs = Epochs(Storage(str(tmp_path)), b"c")
    for number in (2, 3, 4):
        epochs.write(epoch(number, f"{number:02x}", number - 1), lambda file: _fill(file, 1))
    epochs.remove_old("f")
    before = sorted(os.listdir(tmp_path / "f"))
    with pytest.raises(ApiError) as found:
        epochs.write(epoch(2, "aa", 1), lambda file: _fill(file, 2))
    assert found.value.status == 409
    assert sorted(os.listdir(tmp_path / "f")) == before


class Failing(Storage):
    """A storage whose uses raise `error`, or wait until `hangs` is set."""

    error: Exception | None = None
    hangs: threading.Event | None = None

    def _do(self, work: str, name: str, *more: Any, **options: Any) -> Any:
        self._check()
        return super()._do(work, name, *more, **options)

    def create(self, name: str, content: bytes) -> None:
        self._check()
        super().create(name, content)

    def _check(self) -> None:
        if self.hangs:
            self.hangs.wait()
        if self.error:
            raise self.error


class Serving:
    """Answers with shared conversations, without a model. Made in an event loop."""

    def __init__(self, place: Path) -> None:
        self.storage = Failing(str(place))
        self.epochs = Epochs(self.storage, b"c")
        self.shared = Shared(self.epochs, lambda _, file: _fill(file, 1), lambda _: _state(), Prefixes(9))
        self.folder, self.tasks = self.epochs.folder(b"k", "s"), list[asyncio.Task[None]]()

    async def begin(self, *texts: str) -> Ticket:
        said = tuple(by_turns(texts))
        asked: Any = SimpleNamespace(messages=said)
        ticket = Ticket(asked, b"k", Stream(False), chain(b"0" * 32, said))
        await self.shared.begin(ticket, "s")
        return ticket

    async def answer(self, ticket: Ticket, text: str) -> "asyncio.Future[ApiError | None]":
        """Returns what the client is told, once the writing of the answer is begun."""
        told: asyncio.Future[ApiError | None] = asyncio.Future()
        memory = Memory(after(ticket.chain[-1], ("assistant", text)), False, 1, _state())
        task = asyncio.create_task(self.shared.keep(ticket, memory, text, told.set_result))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return told

    async def say(self, *texts: str) -> ApiError | None:
        return await (await self.answer(await self.begin(*texts[:-1]), texts[-1]))

    async def written(self) -> None:
        async with asyncio.timeout(10):
            while self.shared.pending:
                await asyncio.sleep(0.01)


def _state() -> Any:
    return SimpleNamespace(cache=SimpleNamespace(fed=1))


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memories, "RETRY_S", (0.05, 0.05))
    monkeypatch.setattr(shared_memories, "WAIT_S", 0.5)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("late", [False, True])
async def test_what_goes_on_from_a_refused_answer_is_refused(tmp_path: Path, late: bool) -> None:
    """The answer that the other server delivered meanwhile is not lost."""
    one, other = Serving(tmp_path), Serving(tmp_path)
    assert await one.say("hi", "A") is None
    await one.written()
    one.storage.error = OSError("down")
    await one.say("hi", "A", "more", "A2")
    ticket = await one.begin("hi", "A", "more", "A2", "still", "A3")
    if not late:
        await one.answer(ticket, "A4")
    assert await other.say("hi", "A", "else", "B2") is None
    one.storage.error = None
    await one.written()
    if late:
        error = await (await one.answer(ticket, "A4"))
        assert error is not None
        assert error.status == 409
        await one.written()
    newest = other.epochs.newest(other.folder)
    assert newest is not None
    assert newest.messages[-1] == ("assistant", "B2")
    assert await one.say("hi", "A", "else", "B2", "on", "C") is None


@pytest.mark.usefixtures("_quick")
async def test_storage_that_hangs_holds_no_request_up(tmp_path: Path) -> None:
    one = Serving(tmp_path)
    one.storage.hangs = threading.Event()
    try:
        async with asyncio.timeout(5):
            ticket = await one.begin("hi")
        assert ticket.epoch == -1
        assert one.shared.fails.is_set()
    finally:
        one.storage.hangs.set()


@pytest.mark.usefixtures("_quick")
async def test_a_bug_while_writing_is_told_and_ends(tmp_path: Path) -> None:
    one = Serving(tmp_path)
    ticket = await one.begin("hi")
    one.storage.error = ZeroDivisionError()
    async with asyncio.timeout(5):
        error = await (await one.answer(ticket, "A"))
    assert error is not None
    assert error.code == "bug"
    await one.written()
    one.storage.error = None
    assert await one.say("hi", "B") is None


async def test_each_other_answer_goes_on_from_the_same_epoch(tmp_path: Path) -> None:
    one, other = Serving(tmp_path), Serving(tmp_path)
    assert await one.say("hi", "A") is None
    for at in range(4):
        serving = (one, other)[at % 2]
        ticket = await serving.begin("hi", "A", "more")
        assert ticket.base == 1
        assert await (await serving.answer(ticket, f"A{at}")) is None
        await serving.written()
    assert other.shared.counts["read"] > 0
    assert await one.say("hi", "A", "more", "A3", "end", "B") is None
    await one.written()
    left = sorted(path.name[:8] for path in (tmp_path / one.folder).iterdir())
    assert left == ["00000005"] * 2 + ["00000006"] * 2, "each with its memory"


def test_ids_are_no_paths_and_of_one_key() -> None:
    epochs = Epochs(Storage("memory://ids"), b"c" * 32)
    assert epochs.folder(b"one", "../../x") != epochs.folder(b"two", "../../x")
    assert re.fullmatch(r"[0-9a-f]{16}/[0-9a-f]{32}", epochs.folder(b"one", "../../x"))
    for session in ("", "x" * 200, "a\nb"):
        with pytest.raises(ApiError):
            epochs.folder(b"one", session)


def test_storage_that_lets_two_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def pipe_file(self: MemoryFileSystem, path: str, value: bytes, **_: object) -> None:
        with self.open(path, "wb") as file:
            file.write(value)

    Storage("memory://works")
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    with pytest.raises(UsageError, match="two writers"):
        Storage("memory://fails")


@pytest.mark.parametrize("url", ["nothing://x", "/dev/null/x"])
def test_a_wrong_place_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        Storage(url)
