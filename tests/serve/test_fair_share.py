"""Keys share what there is: none fills the queue or the snapshots for the others; freed memory goes back."""

import asyncio
import platform
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from serving import begun, keys_file, submit
from typer.testing import CliRunner

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.cli.cli import app
from h2o_chat.models.load import Loaded
from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.chat_request import ChatRequest
from h2o_chat.serve.fair_share import FairShare
from h2o_chat.serve.prefixes import Memory, Prefixes, tag_of
from h2o_chat.serve.request_queue import Limits, Ticket
from h2o_chat.serve.service import Service
from h2o_chat.serve.stream import Stream

SETTINGS = Settings(budget=48, threads=1, seed=0, events_every=0)
ENDLESS = {"max_tokens": None, "ignore_eos": True}
ONE, OTHER = b"one", b"other"


@pytest.fixture
async def service(loaded: Loaded) -> AsyncIterator[Service]:
    """With one row, and room for 8 who wait, 4 of each key."""
    with begun(loaded, SETTINGS, 4, 1, Limits(8, 4, 100, 0)) as service:
        yield service


async def until_refused(service: Service, owner: bytes) -> tuple[list[Ticket], ApiError]:
    """Asks until no more of this key may wait."""
    tickets: list[Ticket] = []
    while len(tickets) < 20:
        try:
            tickets.append(submit(service, "Hello", owner, **ENDLESS))
        except ApiError as error:
            return tickets, error
    raise AssertionError("it was never refused")


async def test_a_key_that_fills_its_share_of_the_queue_leaves_room_for_others(service: Service) -> None:
    mine, error = await until_refused(service, ONE)
    assert (error.status, error.code) == (429, "queue_full")
    assert "of this key" in error.message
    assert error.headers["retry-after"]
    others, error = await until_refused(service, OTHER)
    assert len(others) >= 4, "as many as if nobody else had asked"
    for ticket in (*mine, *others):
        service.leave(ticket)


async def test_the_next_one_is_of_the_key_that_has_the_fewest_under_way(service: Service) -> None:
    """It came last, and goes before those of a key that has a row already."""
    mine = []
    for _ in range(4):  # one in the row, one that was read, and two that wait in the batch: it is full
        mine.append(submit(service, "Hello", ONE, **ENDLESS))
        await happens(lambda: mine[-1].request is not None)
    await happens(lambda: service.seated == (mine[0].request,) and service.batch.waiting == 2)
    *behind, other = [submit(service, "Hello", owner, **ENDLESS) for owner in (ONE, ONE, OTHER)]
    service.leave(mine[0])  # all go on by one place
    await happens(lambda: other.request is not None)
    assert [ticket.request for ticket in behind] == [None, None]
    for ticket in (*mine, *behind, other):
        service.leave(ticket)


@pytest.mark.parametrize(("keys", "first"), [(2, "short"), (1, "long")])
async def test_long_prompts_of_a_key_leave_a_reader_to_another(loaded: Loaded, keys: int, first: str) -> None:
    """Four of them would take all that read prompts; where all have one key they may."""
    with begun(loaded, SETTINGS, 4, 4, Limits(8, 8, 100, 0, keys)) as service:
        long = [submit(service, "a long story " * 1000, ONE, max_tokens=1) for _ in range(4)]
        most = 2 if keys == 2 else 4
        await happens(lambda: sum(ticket.request is not None for ticket in long) == most)
        short = submit(service, "Hello", OTHER, max_tokens=1)
        await happens(lambda: any(ticket.prompt_ms for ticket in (*long, short)))
        assert any(ticket.prompt_ms for ticket in long) == (first == "long"), "a short one is soon read, too"
        assert sum(ticket.request is not None for ticket in long) == most
        for ticket in (*long, short):
            service.leave(ticket)


def ticket(owner: bytes, request: Any = None) -> Ticket:
    return Ticket(ChatRequest((("user", "Hello"),), Sampling(), 0), owner, Stream(False), [], request)


@pytest.mark.parametrize(
    ("reading", "seated", "line", "goes"),
    [
        ("", "", "aab", 0),
        ("a", "", "aab", 2),  # b has fewer under way
        ("a", "", "aa", 0),
        ("aa", "", "aa", None),  # two are free, and a has two
        ("aa", "", "aab", 2),
        ("aab", "", "ab", None),
        ("aab", "", "abc", 2),
        ("aabc", "", "abcd", None),
        ("a", "aaaa", "aa", 0),  # who is answered takes no reader
        ("a", "aaaa", "ab", 1),
        ("", "aaaaaaaa", "aa", None),  # eight rows are free, and a has eight
        ("", "aaaaaaaa", "ab", 1),
        ("", "aaaaaaaabbbb", "ab", None),
        ("", "aaaaaaaabbbbccdd", "abe", 2),  # the first of a key is read while all rows are taken
    ],
)
def test_a_key_takes_a_reader_and_a_row_while_more_are_free_than_it_has(
    reading: str, seated: str, line: str, goes: int | None
) -> None:
    limits = Limits(64, 16, 100, 0, keys=4)
    begun = [ticket(key.encode(), object()) for key in reading + seated]
    answered = [one.request for one in begun[len(reading) :]]
    answered += [None] * (16 - len(answered))
    waiting = [ticket(key.encode()) for key in line]
    found = limits.next(waiting, begun, answered, readers=4)
    assert found is (None if goes is None else waiting[goes])


def test_a_key_whose_prompts_are_prepared_takes_readers_with_them() -> None:
    limits = Limits(64, 16, 100, 0, keys=4)
    prepared, waiting = [ticket(b"a"), ticket(b"a")], [ticket(b"a"), ticket(b"b")]
    assert limits.next(waiting[:1], prepared, (None,) * 16, readers=4) is None
    assert limits.next(waiting, prepared, (None,) * 16, readers=4) is waiting[1]


async def test_what_is_tokenised_for_one_key_holds_up_no_other(loaded: Loaded) -> None:
    """Nor does it go on once nobody wants it."""
    with begun(loaded, SETTINGS, 4, 4, Limits(8, 8, 100, 0, 2)) as service:
        long, short = submit(service, "\U0001f600" * 240_000, ONE), submit(service, "Hello", OTHER, **ENDLESS)
        await happens(lambda: short.request is not None)
        assert long.request is None
        service.leave(long)
        service.leave(short)
        await happens(lambda: not service.busy)
        assert long.request is None


def test_a_key_takes_more_only_while_more_is_free_than_it_has() -> None:
    share = FairShare(8, keys=3)
    for owner, most in ((ONE, 4), (OTHER, 2), (b"third", 1)):
        while share.has_room(owner):
            share.held[owner] += 1
        assert share.held[owner] == most
    share.give_back(ONE, 4)
    assert share.has_room(OTHER)
    alone = FairShare(8, keys=1)
    alone.held[ONE] = 7
    assert alone.has_room(ONE)
    assert not alone.has_room(ONE, 2)


async def happens(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not condition():
            await asyncio.sleep(0.005)


def kept(owner: bytes, name: str) -> Memory:
    return Memory(name.encode() * 32, False, 1, None, tag=tag_of(owner))


def names(prefixes: Prefixes) -> str:
    return "".join(chr(one.chain[0]) for one in prefixes.all())


def test_a_key_that_keeps_many_snapshots_loses_its_own() -> None:
    prefixes = Prefixes(4)
    for owner, name in ((OTHER, "a"), (ONE, "b"), (ONE, "c"), (ONE, "d"), (ONE, "e"), (ONE, "f")):
        prefixes.add(kept(owner, name))
    assert names(prefixes) == "adef", "the oldest of all is the only one of its key"
    prefixes.add(kept(OTHER, "g"))
    assert names(prefixes) == "aefg", "who has fewer takes a place of who has most"
    prefixes.add(kept(OTHER, "h"))
    assert names(prefixes) == "efgh", "and no more than a share"
    prefixes.add(kept(b"third", "i"))
    assert names(prefixes) == "fghi", "of those who have as many the oldest goes"


@pytest.mark.loopback
@pytest.mark.parametrize(("keys", "share"), [(0, 8), (1, 8), (2, 4), (3, 2), (20, 1)])
def test_a_key_has_its_part_of_the_queue(
    keys: int, share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = keys_file(tmp_path, *(f"the-key-of-client-{number}" for number in range(keys)))
    given = ["--keys", str(file)] if keys else []
    found: list[Limits] = []

    def noted(*arguments: Any) -> Any:
        found.append(arguments[3])
        raise KeyboardInterrupt

    monkeypatch.setattr("h2o_chat.serve.service.Service", noted)
    CliRunner().invoke(app, ["serve", "--address", "127.0.0.1:0", "--queue", "8", "--no-store", *given])
    assert [(limits.waiting, limits.waiting_of_key, limits.keys) for limits in found] == [
        (8, share, max(1, keys))
    ]


RESIDENT = """
import sys
if sys.argv[1] == "yes":
    from h2o_chat.serve.server import give_back, trim
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
"""

LARGE = """
if sys.argv[1] == "yes":
    give_back()
before = resident()
bytearray(1 << 20)  # so large a block was freed: by itself glibc maps none of this size any more
blocks = [(bytearray(900_000), bytes(5_000)) for _ in range(100)]
between = [small for _, small in blocks]
del blocks
print(resident() - before)
"""

SMALL = """
blocks = [(bytearray(100_000), bytes(5_000)) for _ in range(500)]  # too small to be mapped one by one
between = [small for _, small in blocks]
full = resident()
del blocks
if sys.argv[1] == "yes":
    trim()
print(resident() - full + 50_000_000)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.parametrize(
    ("blocks", "most", "least"),
    [(LARGE, 5e6, 50e6), (SMALL, 10e6, 49e6)],
    ids=["large blocks", "holes in the heap"],
)
def test_memory_that_is_freed_goes_back_to_the_system(blocks: str, most: float, least: float) -> None:
    """The memory that 90 MB of large and 50 MB of small blocks have left."""
    left = {
        asked: int(subprocess.check_output([sys.executable, "-c", RESIDENT + blocks, asked]))
        for asked in ("yes", "no")
    }
    assert left["yes"] < most
    assert left["no"] > least, "else nothing would have to be done"
