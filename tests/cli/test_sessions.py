"""`h2o-chat sessions`: what stands on stdout, what is refused, and what is asked."""

import json
import os
from pathlib import Path

import pytest
from here import h2o_here
from program import Ended, h2o, without_torch
from storing import created
from terminals import Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.store import Store


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two conversations: one with an interrupted answer and a branch, one of hostile text."""
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path / "data"))
    store = Store(tmp_path / "data")
    with store.claim(created(store, "pocket", {"budget": 64})) as writer:
        asked = writer.said("user", "What is my name?", [1, 2, 3])
        writer.place(asked, 0, 2)
        writer.said("assistant", "Another branch")
        writer.move(asked)
        writer.answering()
        writer.token(4, "Your name is")
    with store.claim(created(store, "evil\x1b[2J", {})) as writer:
        writer.said("user", "\x1b]0;title\x07 ../../etc\n\u202e hostile <script>")
    store.close()
    return tmp_path / "data"


@pytest.fixture
def ids(data: Path) -> list[str]:
    """Ids of the talk, and of the hostile one."""
    store = Store(data)
    found = [one.id for one in store.list()]
    store.close()
    return found[::-1]


def sessions(*arguments: object, ends: int = ExitCode.OK) -> Ended:
    return h2o_here("sessions", *arguments, ends=ends)


def on_a_terminal(*arguments: object, answer: str = "") -> tuple[int, str]:
    """Exit code and all that a terminal gets to see."""
    with Terminal("sessions", *arguments, COLUMNS="100") as terminal:
        terminal.types(answer)
        return terminal.ended(), terminal.text


def test_list(ids: list[str]) -> None:
    done = sessions("list")
    assert done.err == ""
    header, first, second = done.out.splitlines()
    assert header.split() == ["id", "updated", "messages", "tokens", "model", "title"]
    assert first.startswith(ids[1])
    assert "evil␛[2J" in first
    assert first.rstrip().endswith("␛]0;title␇ ../../etc � hostile <script>")
    assert second.split()[0] == ids[0]
    assert "What is my name?" in second
    found = json.loads(sessions("list", "--json", "-n", 1).out)
    assert [one["id"] for one in found] == [ids[1]]
    assert found[0]["title"].startswith("\x1b]0;title\x07")


def test_an_empty_folder(data: Path, tmp_path: Path) -> None:
    done = sessions("list", "--data", tmp_path / "other")
    assert done.out == ""
    assert f"No conversation in {tmp_path / 'other'} yet." in done.err
    assert json.loads(sessions("list", "--json", "--data", tmp_path / "other").out) == []
    sessions("show", "last", "--data", tmp_path / "other", ends=ExitCode.USAGE)


def test_show_marks_what_is_partial(ids: list[str]) -> None:
    done = sessions("show", ids[0][:7])
    title, about, _, *rest = done.out.splitlines()
    assert title == "What is my name?"
    assert about.startswith(f"{ids[0]}, pocket, 2")
    assert about.endswith("1 messages of other branches: sessions export --format json")
    assert rest == [
        *("user:", "What is my name?", "", "assistant:", "Your name is"),
        "[interrupted: the program ended before the answer did]",
    ]


def test_a_terminal_is_not_obeyed(data: Path, ids: list[str]) -> None:
    for arguments in (["show", ids[1]], ["list"], ["search", "hostile"], ["export", ids[1]]):
        code, seen = on_a_terminal(*arguments)
        assert code == ExitCode.OK
        assert "hostile" in seen
        for control in ("\x1b]", "\x1b[2J", "\x07", "\u202e"):
            assert control not in seen, arguments


def test_a_long_model_name_leaves_room_for_titles_and_what_is_found(data: Path) -> None:
    store = Store(data)
    with store.claim(created(store, "A-very-long-name-of-a-model-" * 3 + "Q4_K_M.gguf", {})) as writer:
        writer.said("user", f"How deep is the lake near Tarsenburg, {'long ' * 9}?")
        writer.said("assistant", "The lake is 80 metres deep.")
    store.close()
    assert "A-very-long…  How deep is the lake" in on_a_terminal("list")[1]
    assert "80 «metres» deep" in on_a_terminal("search", "metres")[1]


def test_unknown_ids_are_usage_errors(ids: list[str]) -> None:
    wrong = ids[0][:7] + "8"
    done = sessions("show", wrong, ends=ExitCode.USAGE)
    assert done.out == ""
    assert f"There is no conversation '{wrong}'. Near it: {ids[0]}" in done.err


def test_search(ids: list[str]) -> None:
    done = sessions("search", "what", "NAM")
    assert ids[0] in done.out
    assert "«What» is my «name»?" in done.out
    done = sessions("search", "name", "--json")
    assert [one["snippet"] for one in json.loads(done.out)] == ["Your «name» is", "What is my «name»?"]
    done = sessions("search", "--", '"AND(*')
    assert (done.out, done.err) == ("", "Nothing was found.\n")
    done = sessions("search", " ", "", ends=ExitCode.USAGE)
    assert done.out == ""
    assert "nothing to look for" in done.err


def test_rename(ids: list[str]) -> None:
    sessions("rename", ids[0], "Ada's name")
    assert "Ada's name" in sessions("list").out
    done = sessions("rename", ids[0], " ", ends=ExitCode.USAGE)
    assert "The title is empty" in done.err
    assert "Ada's name" in sessions("list").out


def test_export_to_stdout_is_markdown(ids: list[str]) -> None:
    done = sessions("export", ids[0])
    assert done.err == ""
    assert done.out.startswith("# What is my name?\n")
    assert "\x1b" in sessions("export", ids[1]).out, "a pipe gets what was said"


def test_exported_files(ids: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    done = sessions("export", ids[1], "-o", folder)
    assert done.out == ""
    (written,) = folder.iterdir()
    assert written.name == f"0-title-etc-hostile-script-{ids[1]}.md"
    assert f"Wrote {written}." in done.err
    assert written.stat().st_mode & 0o777 == 0o600
    again = sessions("export", ids[1], "-o", folder, ends=ExitCode.USAGE)
    assert "is there already" in again.err
    page = folder / "page.json"
    page.symlink_to(tmp_path / "elsewhere")
    sessions("export", ids[0], "-o", page, ends=ExitCode.USAGE)  # a link is something that is there
    sessions("export", ids[0], "-o", page, "--force")
    assert json.loads(page.read_text())["id"] == ids[0], "the name asks for JSON"
    assert not page.is_symlink()
    assert page.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "elsewhere").exists()
    sessions("export", ids[0], "-o", page, "--force", "--format", "md")
    assert page.read_text().startswith("# ")
    assert len(list(folder.iterdir())) == 2, "nothing is left over"
    done = sessions("export", ids[0], "-o", tmp_path / "no" / "where.md", ends=ExitCode.USAGE)
    assert f"{tmp_path / 'no'} is no folder" in done.err


def test_out_and_in_again(ids: list[str], tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    sessions("export", ids[0], "-o", file)
    other = tmp_path / "other"
    done = sessions("import", file, "--data", other)
    assert done.err == ""
    new = done.out.strip()
    assert sessions("show", new, "--data", other).out == sessions("show", ids[0]).out.replace(ids[0], new)


def test_nothing_is_half_imported(ids: list[str], tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    good = json.dumps({"messages": [{"role": "user", "content": "imported"}]})
    file.write_text(f"{good}\n{good}\n" + good.replace("user", "root"))
    done = sessions("import", file, ends=ExitCode.USAGE)
    assert done.out == ""
    assert f"{file} line 3: messages[0].role is 'root'" in done.err
    assert sessions("search", "imported").out == ""
    file.write_text(f"{good}\n{good}\n")
    done = sessions("import", file)
    assert len(done.out.splitlines()) == 2


def test_what_tools_did_is_left_out_and_said(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"},
        {"role": "assistant", "content": "Noon.", "tool_calls": None},
    ]
    file.write_text(json.dumps({"messages": said}))
    done = sessions("import", file)
    assert done.err == "Messages left out, of tools or without a text: 2.\n"
    assert sessions("show", done.out.strip()).out.endswith("What time is it?\n\nassistant:\nNoon.\n")


def test_no_word_of_what_was_removed_is_left(data: Path) -> None:
    """Not in free pages of the database, not in its index of words, not in its log."""
    store = Store(data)
    gone = created(store, "pocket", {})
    with store.claim(gone) as writer:
        for number in range(200):
            writer.said("user", f"Zanzibarium {number} " + "and so on " * 40)
            writer.answering()
            writer.token(1, "Quetzalcoatlus")
            writer.finished("Quetzalcoatlus", "stop", 0, 0)
    words = (b"anzibarium", b"uetzalcoatlus")
    assert all(word in (data / "conversations.db-wal").read_bytes() for word in words)
    sessions("rm", gone, "--yes")  # while another process has the database open
    written = b"".join(file.read_bytes() for file in data.rglob("*") if file.is_file()).lower()
    assert not any(word in written for word in words)
    assert b"name" in written
    store.close()


def test_removing_is_confirmed(ids: list[str], data: Path) -> None:
    done = sessions("rm", ids[0], ends=ExitCode.USAGE)
    assert "Say --yes" in done.err
    code, seen = on_a_terminal("rm", ids[0], answer="n\n")
    assert code == ExitCode.OK
    assert f"Remove {ids[0]} (What is my name?), 3 messages? [y/N]" in seen
    assert "Nothing was removed." in seen
    assert ids[0] in sessions("list").out
    code, seen = on_a_terminal("rm", ids[0], answer="y\n")
    assert "Removed" in seen
    assert ids[0] not in sessions("list").out
    sessions("rm", ids[1], "--yes")
    assert sessions("list").out == ""


def test_what_is_open_is_not_removed(ids: list[str], data: Path) -> None:
    store = Store(data)
    with store.claim(ids[0]):
        done = sessions("rm", ids[0], "--yes", ends=ExitCode.FAILED)
    store.close()
    assert f"is open in process {os.getpid()}" in done.err


def test_a_damaged_database_is_said(data: Path) -> None:
    (data / "conversations.db").write_bytes(b"junk" * 1000)
    for name in ("-wal", "-shm"):
        (data / f"conversations.db{name}").unlink(missing_ok=True)
    for arguments in (["list"], ["show", "last"], ["search", "x"]):
        done = sessions(*arguments, ends=ExitCode.FAILED)
        assert done.out == ""
        assert f"{data / 'conversations.db'}: this is not a database of h2o-chat" in done.err
        assert "Traceback" not in done.err


def test_the_shell_completes_ids(ids: list[str], data: Path, tmp_path: Path) -> None:
    def offered(line: str, folder: Path) -> str:
        asked = {"_H2O_CHAT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
        return h2o(env=os.environ | asked | {"H2O_CHAT_DATA": str(folder)}).out

    everything = offered("h2o-chat sessions show ", data)
    assert all(one in everything for one in [*ids, "last"])
    one = offered(f"h2o-chat sessions export --data {data} {ids[0][:7]}", tmp_path / "other")
    assert ids[0] in one
    assert ids[1] not in one
    assert not (tmp_path / "other").exists()


def test_the_shell_completes_behind_what_is_no_command() -> None:
    asked = {"_H2O_CHAT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "h2o-chat foo "}
    assert "Traceback" not in h2o(env=os.environ | asked).err


def test_no_torch(data: Path, ids: list[str]) -> None:
    commands = (["list"], ["show", ids[0]], ["export", ids[0]], ["search", "name"])
    assert without_torch(*(["sessions", *command] for command in commands))[0] == [ExitCode.OK] * 4


def test_a_resumed_conversation_says_the_seed_that_it_was_begun_with(chatty: Path, tmp_path: Path) -> None:
    def seed(*arguments: object) -> str:
        done = h2o_here("run", "hi", *arguments, "--data", tmp_path, "--max-tokens", "3")
        return done.err.split("seed ")[1].split()[0]

    begun = seed("--save", "-m", chatty)
    assert seed("--resume", "last") == begun
    assert seed("--resume", "last") == begun
    assert seed("--resume", "last", "--seed", "5") == "5"


def test_imported_conversations_do_not_have_no_tokens(tmp_path: Path) -> None:
    file = tmp_path / "said.json"
    said = [{"role": "user", "content": "I am Flora."}, {"role": "assistant", "content": "Hello, Flora."}]
    file.write_text(json.dumps({"messages": said}))
    data = ("--data", tmp_path / "data")
    imported = h2o_here("sessions", "import", file, *data).out.strip()
    h2o_here("run", "hi", "--save", "--max-tokens", "3", *data)
    listed = json.loads(h2o_here("sessions", "list", "--json", *data).out)
    tokens = {one["id"] == imported: one["tokens"] for one in listed}
    assert tokens[True] is None
    assert tokens[False] > 3
    rows = h2o_here("sessions", "list", *data).out.splitlines()
    (row,) = [row for row in rows if imported in row]
    assert row.split()[4] == "-"
