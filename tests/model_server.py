"""A model server on loopback that speaks both protocols, over real HTTP, and is as strict as the strictest provider.

It answers from its own threads, so a test may talk to a service that talks to it. Nothing leaves the machine.

    with ModelServer() as server:
        server.answer = "They agreed on Tuesday."
        server.script([Reply(status=429, headers={"Retry-After": "0"}), "Second time lucky."])
        ...
        assert "Tuesday" in server.requests[-1].user
"""

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

Provider: TypeAlias = Literal["openai", "anthropic"]

PATHS: Mapping[str, Provider] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}
LIMITS = {"max_tokens", "max_completion_tokens"}


@dataclass(slots=True, kw_only=True)
class Request:
    """One request as it arrived; ``began`` and ``ended`` are on the monotonic clock, ``status`` is what it got."""

    path: str
    headers: Mapping[str, str]
    json: Any
    provider: Provider | None
    system: str = ""
    user: str = ""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    status: int | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to answer. ``status`` other than 200 makes an error in the provider's shape, unless ``body`` is given."""

    text: str | None = "A summary."
    stop: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    calls_tool: bool = False
    usage: tuple[int, int] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = "something is wrong"
    body: bytes | None = None
    delay: float = 0.0
    hangs: bool = False
    hangs_up: bool = False
    cuts_body: bool = False
    trickle: float | None = None


Answer: TypeAlias = str | Reply
Answers: TypeAlias = Answer | Callable[[Request], Answer]


class _Refused(Exception):
    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ModelServer:
    """The server; use it as a context manager, which ends every hanging answer when it closes.

    ``api_key`` None takes any key. ``refuse_over`` tokens of input, counted by ``count``, a request is refused as too
    long. ``wants_max_completion_tokens`` refuses ``max_tokens`` as OpenAI's newer models do.
    """

    def __init__(self, *, api_key: str | None = None, count: Callable[[str], int] | None = None) -> None:
        self.answer: Answers = "A summary."
        self.api_key = api_key
        self.count = count or (lambda text: len(text) // 4)
        self.refuse_over: int | None = None
        self.wants_max_completion_tokens = False
        self.requests: list[Request] = []
        self.failures: list[BaseException] = []
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._scripted: deque[Answers] = deque()
        self._http = _Server(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.drop_connections()
        self._http.server_close()
        self._thread.join()
        if error is None and self.failures:
            raise self.failures[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def base_url(self, provider: Provider) -> str:
        return f"{self.url}/v1" if provider == "openai" else self.url

    def script(self, answers: Iterable[Answers]) -> None:
        """Queue answers for the next requests, one each; ``answer`` follows when they are used up."""
        with self._changed:
            self._scripted.extend(answers)

    def wait_for(self, number: int, *, ended: bool = False, timeout: float = 10.0) -> list[Request]:
        """Wait until so many requests have arrived (or ended), and return them."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: len([one for one in self.requests if one.ended or not ended]) >= number, timeout
            )
            if not arrived:
                raise AssertionError(f"only {len(self.requests)} of {number} requests came in {timeout} s")
            return list(self.requests)

    def took(self, request: Request) -> Answers:
        """Record a request and choose its answer."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            # What is refused uses up no scripted answer.
            return self._scripted.popleft() if self._scripted and not request.refused else self.answer

    def done(self, request: Request) -> None:
        with self._changed:
            request.ended = time.monotonic()
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    # They are joined when the server closes, so no thread outlives its test.
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, owner: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self._sockets: set[Any] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._sockets.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        with self._lock:
            for one in self._sockets:
                try:
                    one.shutdown(2)
                except OSError:
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # A client that has gone away is what many of the tests are about.
        if error is not None and not isinstance(error, OSError):
            self.owner.failures.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(405, {}, b"{}")

    def do_POST(self) -> None:
        owner = self.server.owner
        request, refused = self._read()
        answers = owner.took(request)
        try:
            if refused is not None:
                reply = Reply(status=refused.status, error=str(refused), text=None, stop=refused.code)
            else:
                chosen = answers(request) if callable(answers) else answers
                reply = Reply(text=chosen) if isinstance(chosen, str) else chosen
            request.status = reply.status
            self._give(reply, request)
        finally:
            owner.done(request)

    def _read(self) -> tuple[Request, _Refused | None]:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            parsed = json.loads(raw)
        except ValueError:
            parsed = None
        path = self.path.partition("?")[0]
        request = Request(
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            json=parsed,
            provider=PATHS.get(path),
        )
        try:
            _check(request, self.server.owner)
        except _Refused as refused:
            request.refused = str(refused)
            return request, refused
        return request, None

    def _give(self, reply: Reply, request: Request) -> None:
        closing = self.server.owner.closing
        if closing.wait(None if reply.hangs else reply.delay) or reply.hangs_up:
            self.close_connection = True
            return
        body = reply.body if reply.body is not None else json.dumps(_body(reply, request)).encode()
        self._send(reply.status, reply.headers, body, reply=reply)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, *, reply: Reply | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | dict(headers)).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if reply is not None and reply.cuts_body:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif reply is not None and reply.trickle is not None:
            self._trickle(body, reply.trickle)
        else:
            self.wfile.write(body)

    def _trickle(self, body: bytes, seconds: float) -> None:
        for index in range(len(body)):
            self.wfile.write(body[index : index + 1])
            if self.server.owner.closing.wait(seconds):
                self.close_connection = True
                return


def _check(request: Request, owner: ModelServer) -> None:
    """Refuse whatever some real endpoint would refuse."""
    if request.provider is None:
        raise _Refused(404, f"there is nothing at {request.path}", "not_found_error")
    if request.headers.get("content-type", "").partition(";")[0] != "application/json" or request.json is None:
        raise _Refused(400, "the body is not JSON")
    if not isinstance(request.json, dict):
        raise _Refused(400, "the body is not an object")
    check = _check_openai if request.provider == "openai" else _check_anthropic
    check(request, owner)
    for role, text in (("system", request.system), ("user", request.user)):
        if not isinstance(text, str) or not text.strip():
            raise _Refused(400, f"the content of the {role} message is not a text")
    limits = [request.json[name] for name in LIMITS if name in request.json]
    if len(limits) != 1 or type(limits[0]) is not int or limits[0] < 1:
        raise _Refused(400, "exactly one limit of output tokens is needed, a positive integer")
    if not isinstance(request.json["model"], str) or not request.json["model"]:
        raise _Refused(400, "model is not a name")
    _check_length(request, owner)


def _check_openai(request: Request, owner: ModelServer) -> None:
    key = request.headers.get("authorization")
    if owner.api_key is not None and key != f"Bearer {owner.api_key}":
        raise _Refused(401, f"Incorrect API key provided: {key}", "invalid_api_key")
    if owner.wants_max_completion_tokens and "max_tokens" in request.json:
        told = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        raise _Refused(400, f"Unsupported parameter: {told}", "unsupported_parameter")
    _check_fields(set(request.json) - LIMITS, {"model", "messages"})
    messages = request.json["messages"]
    _check_roles(messages, ["system", "user"])
    request.system, request.user = messages[0]["content"], messages[1]["content"]


def _check_anthropic(request: Request, owner: ModelServer) -> None:
    key = request.headers.get("x-api-key")
    if key is None or (owner.api_key is not None and key != owner.api_key):
        raise _Refused(401, "invalid x-api-key", "authentication_error")
    if request.headers.get("anthropic-version") != "2023-06-01":
        raise _Refused(400, "anthropic-version: header is required")
    _check_fields(set(request.json), {"model", "max_tokens", "system", "messages"})
    messages = request.json["messages"]
    _check_roles(messages, ["user"])
    request.system, request.user = request.json["system"], messages[0]["content"]


def _check_fields(given: set[str], expected: set[str]) -> None:
    if given != expected:
        raise _Refused(400, f"unknown or missing fields: {', '.join(sorted(given ^ expected))}")


def _check_roles(messages: Any, roles: list[str]) -> None:
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise _Refused(400, "messages is not a list of messages")
    if [one.get("role") for one in messages] != roles:
        raise _Refused(400, f"the roles are not {roles}")
    for one in messages:
        _check_fields(set(one), {"role", "content"})


def _check_length(request: Request, owner: ModelServer) -> None:
    if owner.refuse_over is None:
        return
    tokens = owner.count(request.system) + owner.count(request.user)
    if tokens <= owner.refuse_over:
        return
    if request.provider == "anthropic":
        raise _Refused(400, f"prompt is too long: {tokens} tokens > {owner.refuse_over} maximum")
    told = f"This model's maximum context length is {owner.refuse_over} tokens. However, your messages resulted in"
    raise _Refused(400, f"{told} {tokens} tokens. Please reduce the length of the messages.", "context_length_exceeded")


def _body(reply: Reply, request: Request) -> dict[str, Any]:
    is_openai = request.provider != "anthropic"
    if reply.status != 200:
        # A refusal made here says its code where an answer says why it stopped.
        code = reply.stop or "api_error"
        error = {"message": reply.error, "type": "invalid_request_error", "param": None, "code": code}
        return {"error": error} if is_openai else {"type": "error", "error": {"type": code, "message": reply.error}}
    used = reply.usage or (len(request.system + request.user) // 4, len(reply.text or "") // 4)
    model = request.json["model"]
    return _openai(reply, model, used) if is_openai else _anthropic(reply, model, used)


def _openai(reply: Reply, model: str, used: tuple[int, int]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.calls_tool:
        function = {"name": "look_up", "arguments": "{}"}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    stop = reply.stop or ("tool_calls" if reply.calls_tool else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": stop}],
        "usage": {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)},
    }


def _anthropic(reply: Reply, model: str, used: tuple[int, int]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmF0dXJl"})
    if reply.text is not None:
        content.append({"type": "text", "text": reply.text, "citations": None})
    if reply.calls_tool:
        content.append({"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}})
    refused = "refusal" if reply.refusal is not None else None
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reply.stop or refused or ("tool_use" if reply.calls_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": used[0], "output_tokens": used[1]},
    }
