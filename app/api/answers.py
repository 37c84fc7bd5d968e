"""Answers: from the service's values to JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi import Response
from msgspec import UNSET

from app.api import schemas
from app.api.wire import instant, raw
from app.domain.attempt import Attempt
from app.domain.event import StoredEvent
from app.domain.session import Due, Session, ViewFigures
from app.domain.view import View
from app.formats.rendered import Rendered
from app.service.boundary import TokenFigures
from app.service.events import Receipt
from app.service.fleet import Report
from app.service.outcomes import Outcome

# The fields of providers' requests, and what they are called here.
_FIELDS: Final = {
    "messages": "messages",
    "input": "input",
    "instructions": "instructions",
    "system": "system",
    "systemInstruction": "system_instruction",
    "contents": "contents",
}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode an answer. The client's own JSON goes out as the bytes it came in as."""
    return Response(json_of(value), status, media_type="application/json", headers=dict(headers) if headers else None)


def json_of(value: Any) -> bytes:
    """Write a value as JSON."""
    return msgspec.json.encode(value)


def session(found: Session) -> schemas.Session:
    """Show a session."""
    return schemas.Session(
        id=found.session_id,
        created_at=instant(found.created_at),
        expires_at=instant(found.expires_at) if found.expires_at else None,
        metadata=raw(found.metadata),
        policy=raw(found.policy) if found.policy is not None else None,
        version=found.version,
        view=_figures(found.view),
        retry_at=instant(found.retry_at) if found.retry_at else UNSET,
    )


def _figures(view: ViewFigures) -> schemas.ViewFigures:
    return schemas.ViewFigures(events=view.events, turns=view.turns, tokens=view.tokens, boundary=view.boundary)


def event(session_id: str, stored: StoredEvent, *, covered: bool) -> schemas.Event:
    """Show a stored event."""
    body = raw(stored.body)
    return schemas.Event(
        id=stored.event_id,
        session_id=session_id,
        seq=stored.seq,
        type=stored.type,
        timestamp=instant(stored.timestamp) if stored.timestamp else None,
        stored_at=instant(stored.stored_at),
        message=body if stored.is_message else UNSET,
        payload=UNSET if stored.is_message else body,
        metadata=raw(stored.metadata),
        synthetic=stored.synthetic,
        token_count=stored.token_count,
        covered=covered,
    )


def events(session_id: str, view: View[StoredEvent]) -> list[schemas.Event]:
    """Show a view's events: none of them is covered."""
    return [event(session_id, stored, covered=False) for stored in view.events]


def receipt(session_id: str, made: Receipt, view: schemas.View | msgspec.UnsetType = UNSET) -> schemas.Receipt:
    """Show the answer to an append."""
    return schemas.Receipt(
        session_id=session_id,
        version=made.version,
        events=[
            schemas.AppendedEvent(id=one.event_id, seq=one.seq, token_count=one.token_count, replayed=one.replayed)
            for one in made.events
        ],
        view=view,
    )


def view(session_id: str, read: View[StoredEvent], rendered: Rendered | None) -> schemas.View:
    """Show a view: its events, or what a renderer made of them."""
    shown = schemas.View(
        session_id=session_id,
        version=read.version,
        boundary=read.boundary,
        turns=read.turns,
        token_count=read.tokens,
    )
    if rendered is None:
        shown.events = events(session_id, read)
    elif rendered.fields:
        for name, value in rendered.fields.items():
            setattr(shown, _FIELDS[name], raw(value) if isinstance(value, str) else [raw(text) for text in value])
        shown.warnings = [
            schemas.ViewWarning(code=one.code, seq=one.seq, detail=one.detail) for one in rendered.warnings
        ]
        shown.open_tool_calls = [
            schemas.OpenToolCall(id=one.call_id, seq=one.seq, name=one.name) for one in rendered.open_calls
        ]
    else:
        shown.text = rendered.text
    return shown


def compaction(outcome: Outcome) -> schemas.Compaction:
    """Show how a compaction ended."""
    return schemas.Compaction(
        status=outcome.status,
        reason=outcome.reason,
        detail=outcome.detail,
        version=outcome.version,
        boundary=outcome.boundary,
        covered=schemas.RangesOut(ranges=list(outcome.covered.pairs), events=outcome.covered_events),
        pinned=list(outcome.pinned),
        preserved=schemas.RangesOut(ranges=list(outcome.preserved.pairs), events=outcome.preserved_events),
        summary=outcome.summary,
        tokens=TokenFigures(*outcome.tokens, outcome.tokens.saved),
        over_budget=outcome.over_budget,
    )


def attempt(tried: Attempt) -> schemas.Attempt:
    """Show an attempt that called the summarizer."""
    lasted = tried.ended_at - tried.started_at if tried.ended_at else None
    return schemas.Attempt(
        id=tried.attempt_id,
        status=tried.status,
        reason=tried.reason,
        error=tried.error,
        version=tried.version,
        boundary=tried.boundary,
        model=tried.model,
        prompt=tried.prompt,
        calls=tried.calls,
        tokens=schemas.AttemptTokens(input=tried.input_tokens, output=tried.output_tokens),
        started_at=instant(tried.started_at),
        ended_at=instant(tried.ended_at) if tried.ended_at else None,
        duration_ms=round(lasted.total_seconds() * 1000) if lasted is not None else None,
    )


def fleet(report: Report, *, across: bool) -> schemas.FleetReport:
    """Show what a run over the fleet did; of one ``across`` tenants, whose each session is."""
    return schemas.FleetReport(
        due=report.due,
        applied=report.count("applied"),
        unchanged=report.count("unchanged"),
        failed=report.count("failed"),
        deferred=report.deferred,
        remaining=report.remaining,
        results=[
            schemas.FleetResult(
                tenant=one.tenant if across else UNSET,
                session_id=one.session_id,
                status=one.status,
                reason=one.reason,
                tokens=TokenFigures(*one.tokens, one.tokens.saved),
                retry_seconds=one.retry_seconds if one.retry_seconds is not None else UNSET,
            )
            for one in report.results
        ],
    )


def due(found: Due, *, across: bool) -> schemas.DueSession:
    """Show a session that is due; of a list ``across`` tenants, whose it is."""
    return schemas.DueSession(
        tenant=found.tenant if across else UNSET,
        session_id=found.session_id,
        version=found.version,
        view=_figures(found.view),
    )


def memory(stored: Sequence[StoredEvent]) -> schemas.ChatMemory:
    """Show a chat memory."""
    return schemas.ChatMemory(messages=[raw(one.body) for one in stored])
