"""Goes on with stored conversations, in a new process.

The plan is a list of {"conversation", "turns"}; the answers are lists of token ids, one a turn.
"""

import json
import sys
from pathlib import Path

from h2o_chat.base.config import EngineName, Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.native.native_model import open_model
from h2o_chat.store import Store


def main(model: str, engine: EngineName, folder: str) -> None:
    store = Store(Path(folder))
    loaded = open_model(Settings(model=model, engine=engine, threads=1), lambda *_: None)
    answers = []
    for plan in json.load(sys.stdin):
        settings = Settings(**store.settings(plan["conversation"]))
        talking = Engine(loaded, settings)
        keeper = Keeper(store, plan["conversation"], talking.session, {})
        chat = Chat(talking, settings, keeper)
        assert chat.resume(lambda _: None)
        assert [note.code for note in keeper.notes] == plan["notes"], keeper.notes
        for text in plan["turns"]:
            events = list(chat.send(text, Sampling(max_tokens=plan["tokens"])))
            answers.append([event.id for event in events if isinstance(event, Token)])
        keeper.close()
    json.dump(answers, sys.stdout)
