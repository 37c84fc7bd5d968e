"""What every refusal of turnlog looks like: RFC 9457, with a code, a request id, and nothing of what was sent."""

from typing import Any

import httpx


def refused(response: httpx.Response, *statuses: int, code: str | None = None, unsaid: str | None = None) -> Any:
    """Check that a response is a well-formed refusal with one of the statuses, and return its problem document.

    ``unsaid`` is a part of the payload, which must not come back.
    """
    assert response.status_code in statuses, f"{response.status_code}: {response.text[:2000]}"
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response.headers["x-request-id"]
    assert all(isinstance(problem[field], str) and problem[field] for field in ("type", "title", "detail", "code"))
    assert code in {None, problem["code"]}
    if response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
        assert problem["errors"], "a 422 names the places that are wrong"
    assert "Traceback" not in response.text
    assert 'File "' not in response.text
    assert unsaid is None or unsaid not in response.text
    return problem


def places(problem: Any) -> list[str]:
    """Return the JSON pointers that a refusal names."""
    return [error["pointer"] for error in problem["errors"]]
