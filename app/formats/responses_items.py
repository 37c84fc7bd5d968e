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
    """Take off ids that are there already or that are none of the API's.

    Reasoning and what it led to know each other by their ids: they all keep theirs, or the reasoning goes as a whole.
    """
    seen: set[str] = set()
    texts: list[str] = []
    for unit in _units(items):
        found = [raw_json.fields(item.text) for item in unit]
        if not is_reasoning(found[0]):
            texts += _with_id_once(unit[0], found[0], seen, notes)
        elif _may_all_stay(found, seen):
            texts += [item.text for item in unit]
            seen.update(map(_id, found))
        else:
            notes.add("reasoning-left-out", unit[0].seq, "left out: reasoning of whose ids one cannot be sent")
            texts += [text for one in found if not is_reasoning(one) for text in _without_id(one)]
    return texts


def _units(items: Sequence[Item]) -> list[list[Item]]:
    """Put reasoning together with all that the model did after it; anything else is by itself."""
    units: list[list[Item]] = []
    is_led = False
    for item in items:
        found = raw_json.fields(item.text)
        if is_led and is_models(found):
            units[-1].append(item)
        else:
            is_led = is_reasoning(found)
            units.append([item])
    return units


def _id(found: Fields) -> str:
    return raw_json.string(found.get("id"))


def _has_own_prefix(found: Fields) -> bool:
    return _id(found).startswith(_PREFIX.get(kind_of(found), ""))


def _may_all_stay(unit: Sequence[Fields], seen: set[str]) -> bool:
    ids = [_id(found) for found in unit if _id(found)]
    return len(set(ids)) == len(ids) and seen.isdisjoint(ids) and all(_has_own_prefix(one) for one in unit if _id(one))


def _with_id_once(item: Item, found: Fields, seen: set[str], notes: Notes) -> list[str]:
    if not _id(found) or (_id(found) not in seen and _has_own_prefix(found)):
        seen.add(_id(found))
        return [item.text]
    kept = _without_id(found)
    if kept:
        notes.add("item-id-left-out", item.seq, "left out: an item's id that repeats or is none of the API's")
    else:
        notes.add("item-left-out", item.seq, "left out: an item of the API's own tools whose id repeats")
    return kept


def _without_id(found: Fields) -> list[str]:
    """Write an item without its id. What the API did by itself is nothing without one."""
    if not _id(found):
        return [raw_json.dump(found)]
    if not (calls_tool(found) or answers_call(found) or kind_of(found) == "message"):
        return []
    return [raw_json.dump({key: value for key, value in found.items() if key not in {"id", "status"}})]
