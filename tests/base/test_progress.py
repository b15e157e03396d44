"""How far something is, where stderr is no terminal."""

import time

import pytest

from h2o_chat.base import progress


def test_a_stage_that_has_only_begun_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the one before it took."""
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0)
    with progress.progress_bar() as report:
        report("resolve", None)
        report("load", 0.0)
        report("load", 0.5)
        report("fetch: 1 of 2 MB", 0.5)
        report("fetch: 2 of 2 MB", 1.0)
    assert capsys.readouterr().err == "load: 50%\nfetch: 2 of 2 MB: 100%\n"


def test_what_tells_no_share_is_told_at_once_and_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPEATED_S", 0.05)
    with progress.progress_bar() as report:
        report("open x: it takes long", None)
        assert capsys.readouterr().err == "h2o-chat: open x: it takes long\n"
        report("resolve", None)
        end, said = time.monotonic() + 10, ""
        while said.count("resolve: ") < 2 and time.monotonic() < end:
            said += capsys.readouterr().err
    assert said.startswith("resolve: 0 s\nresolve: ")
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == "", "nobody speaks any more"
