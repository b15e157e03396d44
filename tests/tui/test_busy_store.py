"""The screen while another process writes to the store."""

import sqlite3
from pathlib import Path

import pytest
from conftest import WIDE, stored
from textual.pilot import Pilot  # noqa: F401

from h2o_chat.store import DATABASE, Store
