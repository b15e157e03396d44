"""Errors of the hub and the network as `ModelError`s that say what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from h2o_chat.base.errors import ModelError
from h2o_chat.models.hub_cache import cache_folder, cached
from h2o_chat.models.resolve import all_aliases, nearest
from h2o_chat.models.tokenizer_calls import one_line


@contextmanager
def explained(repository: str) -> Iterator[None]:
    """Translates exceptions of huggingface_hub into `ModelError`."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        gated(repository)
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"No model {repository!r} on the hub, or it is private and no token for it was found.",
            nearest(repository, all_aliases().values()) + f"A token is looked for in {_token_places()}.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _refused(repository, error) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HTTPError) as error:
        offline(repository, f"the hub cannot be reached ({one_line(error)})")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelError(
                f"The disk of {cache_folder()} is full.",
                "What was fetched is kept. Make room, then call again: it goes on where it stopped.",
            ) from error
        raise ModelError(
            f"Fetching {repository} failed: {one_line(error)}", "Call again: it goes on where it stopped."
        ) from error


def _refused(repository: str, error: Any) -> ModelError:
    from huggingface_hub import constants

    status = error.response.status_code
    if status == 429:
        after = error.response.headers.get("Retry-After")
        wait = f"in {after} seconds" if after else "in some minutes"
        return ModelError(
            f"The hub has had too many requests from here (429) and does not answer for {repository}.",
            f"Call again {wait}; what was fetched is kept. With a token the limits are wider.",
        )
    if status in (401, 403):
        return ModelError(
            f"The hub refuses {repository} ({status}): the token is not accepted for it.",
            f"Tokens are made at {constants.ENDPOINT}/settings/tokens, and looked for in {_token_places()}.",
        )
    return ModelError(
        f"The hub answers {status} for {repository}.", "Call again later; what was fetched is kept."
    )


def gated(repository: str) -> NoReturn:
    from huggingface_hub import constants, get_token

    found = "the token that was found has no access yet" if get_token() else "no token was found"
    raise ModelError(
        f"{repository} is gated: its licence has to be accepted first, and {found}.",
        f"Accept it at {constants.ENDPOINT}/{repository}, then give a token by `hf auth login`."
        f" It is looked for in {_token_places()}.",
    )


def offline(repository: str, why: str) -> NoReturn:
    model = cached(repository)
    partly = f" It was fetched in part ({model.bytes / 1e9:.1f} GB)." if model else ""
    known = all_aliases().values()
    near = "" if repository in known else nearest(repository, known)
    raise ModelError(
        f"No model {repository!r} on this machine, and {why}.{partly}",
        f"{near}Looked for a folder of that name, and in {cache_folder()}."
        f" With a network: h2o-chat models pull {repository}",
    )


def _token_places() -> str:
    from huggingface_hub import constants

    return f"the variable HF_TOKEN and the file {constants.HF_TOKEN_PATH}"
