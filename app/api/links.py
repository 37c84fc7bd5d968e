"""How a client may go on from an answer: which operations follow it, and where in it their path's parts are found."""

from typing import Any, Final

Links = dict[str, Any]


def _to(*operation_ids: str, **parameters: str) -> Links:
    return {one: {"operationId": one, "parameters": parameters} for one in operation_ids}


_SESSION: Final = "$request.path.session_id"
_CONVERSATION: Final = "$request.path.conversation_id"

SESSION: Final = _to(
    "get_session",
    "change_session",
    "append_events",
    "list_events",
    "get_view",
    "compact_session",
    "delete_session",
    session_id="$response.body#/id",
)
APPENDED: Final = {
    **_to("append_events", "list_events", "get_view", "compact_session", "delete_session", session_id=_SESSION),
    **_to("get_event", session_id=_SESSION, event_id="$response.body#/events/0/id"),
}
COMPACTED: Final = _to("append_events", "get_view", "list_compactions", "delete_session", session_id=_SESSION)
MEMORY: Final = _to("add_messages", "get_memory", "clear_memory", conversation_id=_CONVERSATION)
