"""`tools/stress`: what its tools share."""

import importlib
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "stress"))
import served


@pytest.mark.loopback
def test_a_metric_that_is_refused_is_not_0(tmp_path: Path) -> None:
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)
    ) as pages:
        threading.Thread(target=pages.serve_forever).start()
        try:
            with pytest.raises(ValueError, match="/metrics: 404"):
                served.metric(pages.server_port, "rows")
            (tmp_path / "metrics").write_text("h2o_chat_rows 3\n")
            assert served.metric(pages.server_port, "rows") == 3
            assert served.metric(pages.server_port, "snapshots") == 0
        finally:
            pages.shutdown()


def test_the_screen_is_measured_without_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has none of these modules: there `--rounds 0` measures all but the share."""
    for name in ("fcntl", "pty", "termios"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("screen_share", "measure_screen"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module("measure_screen")
