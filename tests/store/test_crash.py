"""The real program killed while it streams; `tools/stress/crash_test.py --kills 200` does it often."""

import sys
from pathlib import Path

import pytest
from storing import created, start
from sweep import sweep

from h2o_chat.store import Store

ROOT = Path(__file__).parents[2]

SAY = """
import sys, time
from pathlib import Path
from h2o_chat.store import Store
Store(Path(sys.argv[1])).close()
with Store(Path(sys.argv[1])).claim(sys.argv[2]) as writer:
    for number in range(50):
        writer.said("user", str(number))
    print("said", flush=True)
    time.sleep(60)
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("kills", [2, *sweep(6)])
def test_what_was_delivered_is_stored(
    shared_models: Path, kills: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program is forked from a process that has imported torch."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "stress"))
    import crash_test

    monkeypatch.setattr(
        sys, "argv", ["", "--model", str(shared_models / "pilot-chat"), "--kills", str(kills)]
    )
    crash_test.main()  # raises where something is lost
    assert "none lost" in capsys.readouterr().out


def test_opening_a_store_twice_in_a_process_loses_nothing(tmp_path: Path) -> None:
    """To open the database's file apart from SQLite drops the locks of the process, and others' commits."""
    open_all_the_time = Store(tmp_path)
    conversation = created(open_all_the_time, "m", {})
    for _ in range(3):
        Store(tmp_path).close()
        other = start(SAY, tmp_path, conversation)
        assert other.stdout is not None
        assert other.stdout.readline()
        other.kill()
        other.communicate()
        open_all_the_time.rename(conversation, "anew")
    assert len(open_all_the_time.path(conversation)) == 150
    open_all_the_time.close()
    assert len(Store(tmp_path).path(conversation)) == 150
