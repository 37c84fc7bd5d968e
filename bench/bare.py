"""The limit of HTTP in Python: an ASGI application that reads a request and answers with bytes it was given before.

`PUT /name` keeps a body; every other request to `/name` is answered with it. It runs on uvicorn with turnlog's own
settings, so what is left between the two is what turnlog does.
"""

import socket
import sys
from typing import Any, Final

import uvicorn

_ANSWERS: Final[dict[str, bytes]] = {}


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer one request."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["method"] == "PUT":
        _ANSWERS[scope["path"]] = body
    answer = _ANSWERS.get(scope["path"], b"")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve on the port that the command line names."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(sys.argv[1])))
    config = uvicorn.Config(application, log_config=None, lifespan="off", server_header=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
