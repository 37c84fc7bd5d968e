"""The page to read and try the HTTP contract on: Swagger UI, from a package, so that a browser asks nobody but us."""

from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

# The file of each path, and what it is: said here, for what a machine takes a file's ending for is its own affair.
FILES: Final = {
    "/docs": ("page.html", "text/html; charset=utf-8"),
    "/docs/start.js": ("start.js", "text/javascript; charset=utf-8"),
    "/docs/swagger-ui-bundle.js": ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    "/docs/swagger-ui.css": ("swagger-ui.css", "text/css; charset=utf-8"),
    "/docs/favicon-32x32.png": ("favicon-32x32.png", "image/png"),
}
# The page loads and asks nothing but what is here, sends nothing elsewhere, and is no part of another page. Its styles
# hold their images, as `data:`.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

router = APIRouter(include_in_schema=False)
_files: Final = StaticFiles(packages=[("app.api", "explorer_files"), ("fastapi_swagger", "resources")])


async def _answer(request: Request) -> Response:
    name, media_type = FILES[request.scope["path"]]
    response = await _files.get_response(name, request.scope)
    response.headers.update(HEADERS)
    response.headers["Content-Type"] = media_type
    return response


for _path in FILES:
    router.add_api_route(_path, _answer, response_class=Response)
