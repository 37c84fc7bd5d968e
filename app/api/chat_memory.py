"""MessageWindowChatMemory over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api import answers, examples, links, schemas
from app.api.deps import ConversationId, Ctx, NewConversationId, Tenant, body_of
from app.api.documentation import Said, operation
from app.api.wire import text_of
from app.domain.chat_memory import DEFAULT_MAX_MESSAGES
from app.service import chat_memory
from app.service.chat_memory import LARGEST_MEMORY
from app.service.drafts import NewEvent

router = APIRouter(tags=["Chat memory"])


@router.post(
    "/v1/chat-memory/{conversation_id}/messages",
    openapi_extra=operation(
        needs=["write", "read"],
        body=schemas.NewMessages,
        examples=examples.MEMORY,
        answers={200: Said(schemas.ChatMemory, (), links.MEMORY)},
        refuses=[410, 503],
    ),
)
async def add_messages(
    request: Request,
    ctx: Ctx,
    tenant: Tenant,
    conversation_id: NewConversationId,
    max_messages: Annotated[int, Query(ge=1, le=LARGEST_MEMORY)] = DEFAULT_MAX_MESSAGES,
) -> Response:
    """Add messages and return the memory. The conversation is a session with that id, made on the first add."""
    body = await body_of(request, schemas.NewMessages)
    chat_memory.check_count(ctx, len(body.messages))
    places = (f"/messages/{at}" for at in range(len(body.messages)))
    messages = [
        NewEvent(message=text_of(message), place=place, message_place=place)
        for message, place in zip(body.messages, places, strict=False)
    ]
    return answers.answer(
        answers.memory(await chat_memory.add(ctx, tenant, conversation_id, messages, max_messages=max_messages))
    )


@router.get(
    "/v1/chat-memory/{conversation_id}",
    openapi_extra=operation(needs=["read"], answers={200: schemas.ChatMemory}, refuses=[404, 410, 503]),
)
async def get_memory(ctx: Ctx, tenant: Tenant, conversation_id: ConversationId) -> Response:
    """Return the memory: an empty list when the conversation is unknown."""
    return answers.answer(answers.memory(await chat_memory.get(ctx, tenant, conversation_id)))


@router.delete(
    "/v1/chat-memory/{conversation_id}",
    openapi_extra=operation(needs=["write"], answers={204: None}, refuses=[404, 410, 503]),
)
async def clear_memory(ctx: Ctx, tenant: Tenant, conversation_id: ConversationId) -> Response:
    """Empty the memory. The log keeps everything."""
    await chat_memory.clear(ctx, tenant, conversation_id)
    return Response(status_code=204)
