"""How far something is, where stderr is no terminal."""

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
