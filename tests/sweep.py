"""Cases that `make test` leaves to `make test-all`: more policies, budgets than one case has."""

from typing import Any

import pytest


def sweep(*cases: Any) -> list[Any]:
    """For `parametrize`, behind the cases that always run: `["h2o", *sweep("caote", "window")]`.

    Of several parameters at once a case is a tuple.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.sweep)
        for case in cases
    ]
