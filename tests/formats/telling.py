"""Logs at random: whatever a client may send, told step by step. Every text is a word of its own, to be found again."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from app.domain.errors import InvalidRequest
from app.domain.window import Rule, Window
from tests.formats import natives
from tests.formats.logs import Body, Log
from tests.talk import Message

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MOST_STEPS = 18
LONGEST = 86

# Few ids, so that they repeat in later turns and inside one message, and odd ones that two providers refuse.
CALL_IDS = ["a", "b", "call_0", "functions.f:0", "call|fc_1", "x" * LONGEST, "x" * LONGEST + "y", "é", ""]
TOOL_NAMES = ["f", "look_up", "a.b", "1st", "Zoë tool", "n" * 70, ""]
NAMES = ["Ann", "Ann Lee", "Zoë/1", "", "x" * 200]
BLANKS = ["", " ", "\n\t"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens to a log: what, and how; ``choices`` are what it may decide with."""

    what: str
    choices: tuple[int, ...]


_SHARES = {
    "user": 5, "assistant": 3, "calls": 5, "result": 6, "native": 9, "compact": 3, "system": 1, "custom": 1,
}  # fmt: skip
step = st.builds(
    Step,
    st.sampled_from([what for what, share in _SHARES.items() for _ in range(share)]),
    st.tuples(*[st.integers(0, 59)] * 6),
)
# A list of any length is mostly a short one; here every length is as likely as every other.
steps = st.integers(1, MOST_STEPS).flatmap(lambda count: st.lists(step, min_size=count, max_size=count))


class Teller:
    """Tells a log from steps. The same steps tell the same log."""

    def __init__(self) -> None:
        self.log = Log()

    def tell(self, told: Iterable[Step]) -> Log:
        for step in told:
            getattr(self, f"_{step.what}")(*step.choices)
        return self.log

    def _word(self, kind: str, place: int = 0) -> str:
        return f"{kind}{self.log.version + 1}x{place}z"

    def _user(self, how: int, which: int, *_: int) -> None:
        message: Message = {"role": "user", "content": self._content(how, "said")}
        if which % 4 == 0:
            message["name"] = NAMES[which % len(NAMES)]
        self.log.append(message)

    def _content(self, how: int, kind: str) -> Any:
        word = self._word(kind)
        many = [
            word,
            word,
            f"{word}  \n",
            BLANKS[how % 3],
            [{"type": "text", "text": word}, {"type": "text", "text": self._word(kind, 1)}],
            [{"type": "text", "text": ""}, {"type": "text", "text": word}],
            [],
            [{"type": "text", "text": word}, *self._media(how)],
            self._media(how),
            [{"type": "acme_part", "acme": word}, {"type": "text", "text": self._word(kind, 1)}],
        ]
        return many[how % len(many)]

    def _media(self, how: int) -> list[Body]:
        number = self.log.version + 1
        many: list[Body] = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": f"https://example.com/media{number}.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"type": "file", "file": {"file_id": f"file-media{number}"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ]
        return [many[how % len(many)], many[(how // 5) % len(many)]]

    def _assistant(self, how: int, which: int, *_: int) -> None:
        word = self._word("told")
        many: list[Message] = [
            {"content": word},
            {"content": f"{word} \n"},
            {"content": BLANKS[which % 3]},
            {"content": None},
            {"content": None, "refusal": word},
            {"content": word, "refusal": self._word("told", 1)},
            {"content": [{"type": "text", "text": word}, {"type": "refusal", "refusal": self._word("told", 1)}]},
            {"content": [{"type": "text", "text": " "}, {"type": "text", "text": word}]},
            {"content": word, "tool_calls": []},
            {"content": word, "reasoning_content": "inner", "annotations": []},
        ]
        self.log.append({"role": "assistant", **many[how % len(many)]})

    def _calls(self, how: int, count: int, *which: int) -> None:
        word = self._word("told")
        contents: list[Any] = [None, None, "", word, f"{word}\n", [{"type": "text", "text": word}]]
        made = [
            {
                "id": CALL_IDS[number % len(CALL_IDS)],
                "type": "function",
                "function": {
                    "name": TOOL_NAMES[number // 9 % len(TOOL_NAMES)],
                    "arguments": self._arguments(number, at),
                },
            }
            for at, number in enumerate(which[: count % 3 + 1])
        ]
        self.log.append({"role": "assistant", "content": contents[how % len(contents)], "tool_calls": made})

    def _arguments(self, how: int, place: int) -> Any:
        word = self._word("argued", place)
        many: list[Any] = [
            json.dumps({"k": word}),
            json.dumps({"k": word}),
            {"k": word, "deep": {"list": [1, 2.50]}},
            json.dumps({"z": 1, "a": word, "big": 12345678901234567890123}),
            f'{{"k": "{word}',
            json.dumps([word]),
            json.dumps(word),
            "null",
            "",
        ]
        return many[how % len(many)]

    def _result(self, how: int, which: int, *_: int) -> None:
        word = self._word("result")
        contents: list[Any] = [
            word,
            word,
            f"{word}\n",
            BLANKS[which % 3],
            None,
            [],
            [{"type": "text", "text": word}, {"type": "text", "text": self._word("result", 1)}],
            [{"type": "text", "text": word}, *self._media(how)],
            [{"type": "acme_part", "acme": word}],
        ]
        # Mostly the call that waits longest, else any id of the pool: late, twice, or of a call that never was.
        waiting = self._waiting()
        call = waiting[0] if waiting and which % 3 else CALL_IDS[which % len(CALL_IDS)]
        self.log.append({"role": "tool", "tool_call_id": call, "content": contents[how % len(contents)]})

    def _waiting(self) -> list[str]:
        waiting: list[str] = []
        for event in self.log.events:
            waiting += event.calls
            if event.answers in waiting:
                waiting.remove(event.answers)
        return waiting

    def _system(self, how: int, *_: int) -> None:
        contents: list[Any] = [self._word("ruled"), [{"type": "text", "text": self._word("ruled")}], " "]
        role = "developer" if how % 2 else "system"
        self.log.append({"role": role, "content": contents[how % len(contents)]})

    def _native(self, source: int, how: int, *which: int) -> None:
        """Tell something in a provider's own form, unless the door refuses it."""
        name, made = natives.SOURCES[source % len(natives.SOURCES)]
        with suppress(InvalidRequest):
            self.log.tell(name, made(self._word, how, *which[:3]))

    def _custom(self, *_: int) -> None:
        self.log.append({"type": "ACME.CLICK", "payload": {"hidden": self._word("custom")}})

    def _compact(self, how: int, size: int, *_: int) -> None:
        rule = list(Rule)[how % 3]
        summary = f"summary{self.log.version + 1}z" if how % 2 else None
        self.log.compact(Window(rule, size % 3 + 1 if rule is not Rule.TOKEN_BUDGET else 20 + size), summary)
