"""Goes on with stored conversations in a process of its own: `resuming.py MODEL FOLDER < PLAN > ANSWERS`.

The plan is a list of {"conversation", "turns"}; the answers are lists of token ids, one a turn.
"""

import json
import sys
from pathlib import Path

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.keeping import Keeper
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import load
from h2o_chat.store import Store


def main(model: str, folder: str) -> None:
    store = Store(Path(folder))
    loaded = load(Settings(model=model, threads=1), lambda *_: None)
    answers = []
    for plan in json.load(sys.stdin):
        settings = Settings(**store.settings(plan["conversation"]))
        engine = Engine(loaded, settings)
        keeper = Keeper(store, plan["conversation"], engine.session, {})
        chat = Chat(engine, settings, keeper)
        assert chat.resume(lambda _: None)
        assert [note.code for note in keeper.notes] == plan["notes"], keeper.notes
        for text in plan["turns"]:
            events = list(chat.send(text, Sampling(max_tokens=plan["tokens"])))
            answers.append([event.id for event in events if isinstance(event, Token)])
        keeper.close()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
