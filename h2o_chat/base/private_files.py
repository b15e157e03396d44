"""Folders and files that only their owner may write, opened without following links.

Their names are well known: a link put there by somebody else would choose what we overwrite.
"""

import errno
import os
import stat
from pathlib import Path

from h2o_chat.base.errors import StoreError
from h2o_chat.base.system import HAS_OWNERS, SAFELY

_ELSEWHERE = "Choose another folder with --data or H2O_CHAT_DATA."
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def own_folder(folder: Path) -> bool:
    """Makes a folder for its owner alone, or takes the right to write in it away from everybody else.

    Returns:
        Whether others could write there until now.

    Raises:
        StoreError: a file is there; or others may write there, or in the folder around it, and we may not
            change that.
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
        if there.is_file():
            raise StoreError(f"{there} is a file, not a folder.", _ELSEWHERE)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not HAS_OWNERS:
        return False
    around = folder.resolve().parent
    about = around.stat()
    if about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX:
        raise StoreError(
            f"{around}: everybody may write there, and could put another folder in place of {folder.name}.",
            f"Take that right away (chmod o-w {around}). Else: {_ELSEWHERE.lower()}",
        )
    about = folder.stat()
    if not about.st_mode & _OTHERS_WRITE:
        return False
    if about.st_uid != os.geteuid() or about.st_mode & stat.S_ISVTX:
        raise StoreError(
            f"{folder}: others may write there: what is said here would not be safe from them.", _ELSEWHERE
        )
    folder.chmod(stat.S_IMODE(about.st_mode) & ~_OTHERS_WRITE)
    return True


def no_link(path: Path) -> None:
    """Raises StoreError if it is a symbolic link."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a symbolic link: nothing is read or written through it.",
            "Look who put it there, and remove it.",
        )


def stands_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at a path; raises OSError if that cannot be looked up."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_own(path: Path, flags: int) -> int:
    """Opens a file without following links; a new one can be read by its owner alone.

    Raises:
        StoreError: it is a symbolic link.
        OSError: it cannot be opened.
    """
    if not hasattr(os, "O_NOFOLLOW"):
        no_link(path)
    try:
        return os.open(path, flags | SAFELY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            no_link(path)
        raise
