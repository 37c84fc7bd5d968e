"""The page to read and try the contract on: everything it needs comes from here, and it may ask nobody else."""

import re
from email.message import Message
from html.parser import HTMLParser

import httpx
import pytest
from fastapi import APIRouter, Request

from app.api import access
from app.api.explorer import FILES
from tests.api.asking import problem
from tests.conftest import Service

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}


class Page(HTMLParser):
    """What a page refers to, and whether a script or a style stands within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.references += [value for name in ("src", "href", "action") if (value := named.get(name)) is not None]
        self.inline += [name for name in named if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in named):
            self.inline.append(tag)


@pytest.mark.parametrize("path", FILES)
def test_every_file_of_the_page_is_here_and_says_what_may_be_done_with_it(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.content
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    # A browser that is told not to guess runs no script that is said to be something else.
    said = Message()
    said["Content-Type"] = answer.headers["content-type"]
    endings = {".js": "text/javascript", ".css": "text/css", ".png": "image/png"}
    assert said.get_content_type() == endings.get("." + path.rpartition(".")[2], "text/html")


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_a_browser_has_already_is_not_sent_again(http: httpx.Client, path: str) -> None:
    first = http.get(path)
    again = http.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == first.headers["content-security-policy"]


def test_the_page_refers_to_nothing_that_is_not_here_and_holds_no_script(http: httpx.Client) -> None:
    page = Page(http.get("/docs").text)
    assert page.inline == []
    assert set(page.references) == {"/openapi.json", *FILES} - {"/docs"}
    start = http.get("/docs/start.js").text
    assert '"/openapi.json"' in start
    assert "://" not in start
    assert "validatorUrl: null" in start
    # Images of the styles stand within them; anything else would be loaded from elsewhere.
    styles = http.get("/docs/swagger-ui.css").text
    assert "@import" not in styles
    loaded = re.findall(r"url\(\s*[\"']?([^)\"']{0,9})", styles)
    assert loaded
    assert all(one.startswith("data:") for one in loaded), loaded


@pytest.mark.parametrize(
    "path",
    [
        "/docs/",
        "/docs/page.html",
        "/docs/__init__.py",
        "/docs/..%2Fexplorer.py",
        "/docs/%2e%2e/openapi.json",
        "/docs/swagger-ui.css/",
        "/docs/swagger-ui.css%00",
    ],
)
def test_nothing_else_of_the_folders_is_there(service: Service, path: str) -> None:
    with service.client() as http:
        problem(http.get(httpx.URL(service.url).copy_with(raw_path=path.encode())), 404, "not-found")


def test_a_file_that_no_setting_hides_cannot_be_added() -> None:
    router = APIRouter()

    @router.get("/docs/more.js")
    async def more(request: Request) -> None: ...

    with pytest.raises(TypeError, match=r"/docs/more\.js"):
        access.check(router.routes)
