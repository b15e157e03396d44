"""Whether torch's threads sleep as soon as they have nothing to do."""

import os
from dataclasses import replace

import pytest

from h2o_chat.base.config import Settings
from h2o_chat.native.threads import let_torch_sleep


@pytest.mark.parametrize(
    ("changes", "sleep"),
    [
        ({}, True),
        ({"quantize": "int4"}, True),
        ({"quantize": "nf4"}, False),
        ({"quantize": "none"}, False),
        ({"dtype": "bfloat16"}, False),
        ({"engine": "transformers"}, False),
    ],
)
def test_they_stay_awake_where_the_transformers_step_was_asked_for(
    changes: dict[str, str], sleep: bool, compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take twice as long: each product wakes them."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    let_torch_sleep(replace(Settings(), **changes))  # type: ignore[arg-type]
    assert os.environ.get("GOMP_SPINCOUNT") == ("0" if sleep else None)
