"""How torch's threads wait beside those of the library. No torch: it is said before torch is imported."""

import os

from h2o_chat.base.config import Settings
from h2o_chat.native import library


def let_torch_sleep(settings: Settings) -> None:
    """Has torch's threads sleep as soon as they have nothing to do, where the native step may compute.

    In a prompt they take turns with the library's. As they are they go on spinning for milliseconds, on the
    processors that the library needs: a prompt of 640 tokens took .63 s instead of .47 (two cores, 135M).
    Whoever has set GOMP_SPINCOUNT or OMP_WAIT_POLICY is obeyed.
    """
    if settings.engine != "transformers" and not library.why_not() and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
