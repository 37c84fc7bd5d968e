"""Anthropic takes at most four cache marks in a request, and a log collects one with every request that was sent."""

from typing import Final

from msgspec import Raw

from app.formats import raw_json
from app.formats.rendered import Notes

_MOST: Final = 4
MARK: Final = "cache_control"


def without(block: dict[str, Raw], seq: int, notes: Notes) -> dict[str, Raw]:
    """Return a block that may have no mark: thinking, or one inside a tool result."""
    if MARK not in block:
        return block
    if not raw_json.is_nothing(block[MARK]):
        notes.add("cache-mark-left-out", seq, "left out: a cache mark where the API takes none")
    return {name: value for name, value in block.items() if name != MARK}


def limit(
    system: list[str], messages: list[list[str]], notes: Notes, version: int
) -> tuple[list[str], list[list[str]]]:
    """Keep the first four marks, so that what was rendered once stays as it was when the log grows."""
    if not any(f'"{MARK}"' in block for blocks in (system, *messages) for block in blocks):
        return system, messages
    left = _MOST
    limited: list[list[str]] = []
    for blocks in (system, *messages):
        kept: list[str] = []
        for block in blocks:
            found = raw_json.fields(block)
            is_marked = not raw_json.is_nothing(found.get(MARK))
            if is_marked and left == 0:
                notes.add("cache-mark-left-out", version, "the API takes four cache marks; later ones are left out")
                del found[MARK]
                kept.append(raw_json.dump(found))
                continue
            left -= is_marked
            kept.append(block)
        limited.append(kept)
    return limited[0], limited[1:]
