import msgspec
import pytest

from app.domain import session


@pytest.mark.parametrize(
    "session_id",
    [
        "a",  # the shortest
        "A" * 255,  # the longest
        "support-42",  # a speaking one
        "a.b_c~d:e@f+g=h,i-j",  # every sign that is allowed
        "...",  # only one or two dots name a folder
        "events",  # a word of the API is an id like any other
        ".hidden",  # a dot first
    ],
)
def test_a_session_can_have_an_id_that_needs_no_escaping(session_id: str) -> None:
    assert session.is_id(session_id)


@pytest.mark.parametrize(
    "session_id",
    [
        "",  # nothing
        "A" * 256,  # one too many
        ".",  # this folder
        "..",  # the one above
        "a/b",  # a slash, which parts paths
        "a b",  # a space
        "a%2Fb",  # an escape
        "a\n",  # a line end behind a good id
        "ü",  # a letter beyond ASCII
        "a?b",  # where a query begins
        "a#b",  # where a fragment begins
        "a\0",  # NUL
    ],
)
def test_a_session_cannot_have_any_other_id(session_id: str) -> None:
    assert not session.is_id(session_id)


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ("{}", {}),  # nothing there
        ('{"a":"x","b":""}', {"a": "x", "b": ""}),  # strings as they are
        ('{"n":7,"big":90071992547409931}', {"n": "7", "big": "90071992547409931"}),  # integers of any size
        ('{"f":1.50}', {"f": "1.50"}),  # the number's own text
        ('{"f":0.0000001}', {"f": "0.0000001"}),  # however small
        ('{"f":1e5,"g":1E5,"n":-0}', {"f": "1e5", "g": "1E5", "n": "-0"}),  # however written
        ('{"yes":true,"no":false}', {"yes": "true", "no": "false"}),  # as JSON writes them
        ('{"gone":null,"list":[1],"object":{"a":1}}', {}),  # no scalars
        ('{"a":"x\\u0000y","\\u0000":"z","b":"c"}', {"b": "c"}),  # NUL is in no index
    ],
)
def test_labels_are_the_top_level_scalars_as_their_json_text(metadata: str, labels: dict[str, str]) -> None:
    texts = {
        key: bytes(raw).decode() for key, raw in msgspec.json.decode(metadata, type=dict[str, msgspec.Raw]).items()
    }
    assert session.labels(texts) == labels
