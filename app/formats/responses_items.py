"""The items of a Responses input, and what the API insists on across all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Raw

from app.formats import raw_json
from app.formats.rendered import Notes

Fields = Mapping[str, Raw]

# The API gives each kind of item ids of its own kind, and takes no others back.
_PREFIX: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_TEXTS: Final = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
# Which parts a message of each role may hold, and an output.
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"input_text", "input_image", "input_file", "input_audio"}),
    "assistant": frozenset({"output_text", "refusal"}),
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "output": frozenset({"input_text", "input_image", "input_file"}),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One item as JSON text, with the seq of the event that it comes from."""

    text: str
    seq: int


def kind_of(item: Fields) -> str:
    """Return an item's type; a message may leave it out."""
    return raw_json.string(item.get("type")) or ("message" if "role" in item else "")


def is_reasoning(item: Fields) -> bool:
    """Say whether an item is what the model thought."""
    return kind_of(item) == "reasoning"


def calls_tool(item: Fields) -> bool:
    """Say whether an item is a call that the client has to answer."""
    return kind_of(item).endswith("_call") and raw_json.is_string(item.get("call_id"))


def answers_call(item: Fields) -> bool:
    """Say whether an item is the answer to such a call."""
    return kind_of(item).endswith("_call_output") and raw_json.is_string(item.get("call_id"))


def has_fit_parts(item: Fields) -> bool:
    """Say whether a message or an output has only parts that the API takes there."""
    kind = kind_of(item)
    takes = _TAKES[raw_json.string(item["role"]) if kind == "message" else "output"]
    said = raw_json.items(item.get("content" if kind == "message" else "output"))
    return all(raw_json.string(raw_json.fields(part).get("type")) in takes for part in said)


def is_models(item: Fields) -> bool:
    """Say whether an item is something the model did: it spoke, or used a tool."""
    kind = kind_of(item)
    if kind == "message":
        return raw_json.string(item.get("role")) == "assistant"
    return bool(kind) and not kind.endswith("_output")


def is_silent(item: Fields) -> bool:
    """Say whether an item is a message with nothing to read."""
    if kind_of(item) != "message":
        return False
    content = item.get("content")
    if raw_json.is_string(content):
        return not raw_json.string(content).strip()
    return all(_is_blank(raw_json.fields(part)) for part in raw_json.items(content))


def _is_blank(part: Fields) -> bool:
    field = _TEXTS.get(raw_json.string(part.get("type")))
    return field is not None and not raw_json.string(part.get(field)).strip()


def calls_last(items: Sequence[Item]) -> list[Item]:
    """Put calls after what else the model did in one go, for nothing may follow a call that is still open.

    Reasoning stays directly before what it led to.
    """
    said: list[Item] = []
    called: list[Item] = []
    led: list[Item] = []
    for item in items:
        found = raw_json.fields(item.text)
        led.append(item)
        if not is_reasoning(found):
            (called if calls_tool(found) else said).extend(led)
            led = []
    return [*said, *called, *led]


def tidy(items: Sequence[Item], notes: Notes) -> list[str]:
    """Leave out what the API refuses: reasoning without its follower, messages that say nothing, ids that repeat."""
    return _with_ids_once(_led(_speaking(items, notes), notes), notes)


def _speaking(items: Sequence[Item], notes: Notes) -> list[Item]:
    kept: list[Item] = []
    for item in items:
        found = raw_json.fields(item.text)
        if not is_silent(found):
            kept.append(_without_blanks(item, found, notes))
            continue
        notes.add("empty-part-left-out", item.seq, "left out: a message item with nothing to read")
        while kept and kept[-1].seq == item.seq and is_reasoning(raw_json.fields(kept[-1].text)):
            notes.add("reasoning-left-out", kept.pop().seq, "left out: reasoning without the item it led to")
    return kept


def _without_blanks(item: Item, found: dict[str, Raw], notes: Notes) -> Item:
    """Drop the blank parts of a message."""
    content = raw_json.items(found.get("content"))
    kept = [part for part in content if not _is_blank(raw_json.fields(part))]
    if len(kept) == len(content):
        return item
    notes.add("empty-part-left-out", item.seq, "left out: a text part with nothing to read")
    return Item(raw_json.dump({**found, "content": kept}), item.seq)


def _led(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Keep reasoning only directly before what the model did next."""
    kept: list[Item] = []
    follower_is_models = False
    for item in reversed(items):
        found = raw_json.fields(item.text)
        if is_reasoning(found):
            if not follower_is_models:
                notes.add("reasoning-left-out", item.seq, "left out: reasoning without the item it led to")
                continue
        else:
            follower_is_models = is_models(found)
        kept.append(item)
    return kept[::-1]


def _with_ids_once(items: Sequence[Item], notes: Notes) -> list[str]:
    """Take off ids that are there already or that are none of the API's; reasoning with such an id goes as a whole."""
    seen: set[str] = set()
    texts: list[str] = []
    for item in items:
        found = raw_json.fields(item.text)
        item_id = raw_json.string(found.get("id"))
        if not item_id:
            texts.append(item.text)
        elif item_id not in seen and item_id.startswith(_PREFIX.get(kind_of(found), "")):
            seen.add(item_id)
            texts.append(item.text)
        elif is_reasoning(found):
            notes.add("reasoning-left-out", item.seq, "left out: reasoning under an id that cannot be sent")
        elif not (calls_tool(found) or answers_call(found) or kind_of(found) == "message"):
            # What the API did by itself is nothing without its id, and it is there already.
            notes.add("item-left-out", item.seq, "left out: an item of the API's own tools whose id repeats")
        else:
            notes.add("item-id-left-out", item.seq, "left out: an item's id that repeats or is none of the API's")
            texts.append(raw_json.dump({key: value for key, value in found.items() if key not in {"id", "status"}}))
    return texts
