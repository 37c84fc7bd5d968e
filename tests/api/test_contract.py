"""openapi.yaml against the running service: schemathesis sends what it allows and what it does not, with every check.

Bounded and the same on every run. `make fuzz` takes longer, and other inputs each time: TURNLOG_FUZZ_EXAMPLES is how
many for each operation, TURNLOG_FUZZ_SEED is where to begin.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.generation.case import Case

from tests.api.asking import HELLO
from tests.conftest import Service, cloned, settings_for
from tests.field import modelled
from tests.model_server import ModelServer

FILE = Path(__file__).resolve().parents[2] / "openapi.yaml"
EXAMPLES = int(os.environ.get("TURNLOG_FUZZ_EXAMPLES") or 0)
SEED = int(os.environ.get("TURNLOG_FUZZ_SEED", "1"))
KEY = "contract-4711-0123456789abcdefghijklmnop"
# What every request carries; what happens without it, or with another one, is among the checks.
HEADERS = {"Authorization": f"Bearer {KEY}"}

# To JSON Schema 1.0 is an integer. Here it is not, in any body: a whole number is written without a fraction.
_WHOLE = r"/\S+ expected `int( \| null)?`, got `float`"
# A value that is no string is one in a URL. schemathesis knows that of named parameters, and not of those whose names a
# client chooses.
_WRONG_LABEL = "parameter `metadata` in query - violates `patternProperties`"
_CURSOR = "cursor is not one that was handed out here"
# How long a page may be is a setting, which the document refers to.
_PAGE = r"(limit|last_n) is at most \d+"
_POLICY = "/policy/window is so large that the trigger fires on it again at once"
# What a schema cannot say, so that a request which it allows is refused: the places and the beginnings of what is said
# of them, by operation and status. 404, 409 and 410 are about what is stored, and need no line here.
BEYOND_A_SCHEMA: dict[tuple[str, int], tuple[str, ...]] = {
    # A cursor is one that an answer had.
    ("GET /v1/sessions", 400): (_CURSOR,),
    ("GET /v1/sessions/{session_id}/events", 400): (_CURSOR,),
    ("GET /v1/sessions/{session_id}/compactions", 400): (_CURSOR,),
    # Parameters that exclude each other.
    ("GET /v1/sessions", 422): (_PAGE,),
    ("GET /v1/sessions/{session_id}/compactions", 422): (_PAGE,),
    ("GET /v1/compact/due", 422): (_PAGE,),
    ("GET /v1/sessions/{session_id}/events", 422): (
        _PAGE,
        "last_n goes with none of",
        "active is in view order",
        "roles only events of type MESSAGE",
    ),
    # A version that the log has not reached yet.
    ("GET /v1/sessions/{session_id}/view", 422): ("at_version the log is at version", _PAGE),
    # A trigger and a window that would have a session compacted over and over.
    ("POST /v1/sessions", 422): (_POLICY,),
    ("PUT /v1/sessions/{session_id}", 422): (_POLICY,),
    ("PATCH /v1/sessions/{session_id}", 422): (_POLICY,),
    # The version that was expected, and a policy that is nowhere.
    ("POST /v1/sessions/{session_id}/compact", 412): ("expected version",),
    ("POST /v1/sessions/{session_id}/compact", 422): (" no window here, no policy on the session",),
    ("POST /v1/sessions/{session_id}/events", 412): ("expected version",),
    ("POST /v1/sessions/{session_id}/events", 422): (
        # What only goes together or not at all: ids among each other and with a key, and a version that is said twice.
        r"/events/\d+/id another event of this batch has the same id",
        r"/events/\d+/id events sent with an Idempotency-Key have no id of their own",
        "/expected_version is not the version that If-Match names",
        # What a provider's message has to have is that provider's to say, and its SDK's types say it.
        r"/messages/\d+(/.*)? ",
    ),
}


@schemathesis.check
def a_valid_request_is_refused_for_known_reasons(ctx: Any, response: Response, case: Case) -> None:
    """Narrow what positive_data_acceptance is told to let pass to the very reasons that are listed above."""
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code not in {400, 412, 413, 422}:
        return
    problem = json.loads(response.content)
    known = (_WHOLE, *BEYOND_A_SCHEMA.get((case.operation.label, response.status_code), ()))
    said = [f"{one['pointer']} {one['detail']}" for one in problem.get("errors", ())] or [problem["detail"]]
    if not all(any(re.match(one, reason) or one in reason for one in known) for reason in said):
        raise Failure(
            operation=case.operation.label, title="A valid request was refused", message=json.dumps(problem, indent=1)
        )


def configured(phase: str, examples: int) -> SchemathesisConfig:
    """Return how to run a phase: with every check, the same each time unless it is to take longer."""
    refused = ["400", "401", "404", "405", "406", "409", "410", "412", "413", "415", "422"]
    checks = {
        "max_response_time": 30,
        # What of these a valid request gets is looked at by the check above.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "3xx", *sorted({*refused} - {"401", "405", "406", "415"})]
        },
        "negative_data_rejection": {"expected-statuses": refused},
    }
    phases: dict[str, dict[str, Any]] = {
        "examples": {},
        "coverage": {"generate-duplicate-query-parameters": True},
        "fuzzing": {},
        # The document's own links, of which every step is one that a client takes: not all that might be guessed.
        "stateful": {"inference": {"algorithms": ["location-headers"]}, "generation": {"mode": "positive"}},
    }
    return SchemathesisConfig.from_dict(
        {
            "seed": SEED,
            "continue-on-failure": True,
            "request-timeout": 60,
            "headers": HEADERS,
            "generation": {
                "max-examples": EXAMPLES or examples,
                "deterministic": not EXAMPLES,
                "no-shrink": not EXAMPLES,
                "database": "none",
            },
            "checks": checks,
            "phases": {name: {**how, "enabled": name == phase} for name, how in phases.items()},
        }
    )


@pytest.fixture(scope="module")
def own(postgres: str, template: str) -> Iterator[Service]:
    """A service with a model, on a database of its own in which the examples' session is."""
    with (
        ModelServer() as model,
        cloned(postgres, template) as url,
        Service(settings_for(url, summarizer=modelled.summarizer(model), bootstrap_key=KEY)) as service,
        service.client() as http,
    ):
        path = "/v1/sessions/support-42/events?create=true"
        made = http.post(path, headers=HEADERS, json={"events": [{**HELLO, "id": "evt-7"}]})
        assert made.status_code == 201, made.text
        yield service


@pytest.mark.parametrize(("phase", "examples"), [("examples", 1), ("coverage", 1), ("fuzzing", 30), ("stateful", 40)])
def test_the_service_keeps_to_the_document_and_the_document_to_the_service(
    own: Service, phase: str, examples: int
) -> None:
    schema = schemathesis.openapi.from_dict(yaml.safe_load(FILE.read_text()), config=configured(phase, examples))
    schema.config.update(base_url=own.url)
    answers: Counter[int] = Counter()
    found: dict[str, str] = {}
    for event in from_schema(schema).execute():
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            found[f"{event.label}: {event.info.title}"] = event.info.format()
        if isinstance(event, events.ScenarioFinished):
            answers.update(one.response.status_code for one in event.recorder.interactions.values() if one.response)
            found |= dict(failures(event.recorder))
    assert not found, "\n\n".join(f"{what}\n{how}" for what, how in found.items())
    # Something was accepted, and something was not.
    assert answers[200] > 0
    assert answers[201] > 0
    assert phase == "examples" or answers[404] > 0


def failures(recorder: ScenarioRecorder) -> Iterator[tuple[str, str]]:
    """Yield what failed in a scenario, and the request to try again with."""
    for case_id, checks in recorder.checks.items():
        for one in checks:
            if one.failure_info is not None:
                failure = one.failure_info.failure
                label = recorder.cases[case_id].value.operation.label
                if label == "GET /v1/sessions" and _WRONG_LABEL in failure.message:
                    continue
                yield f"{label}: {failure.title}", f"{failure.message}\n{one.failure_info.code_sample}"


def test_every_status_that_can_be_provoked_by_a_request_is_described() -> None:
    """The check of statuses is worth something only while no operation says that any status may come."""
    for path in yaml.safe_load(FILE.read_text())["paths"].values():
        for operation in path.values():
            assert not {"default", "4XX", "5XX", "500"} & set(operation["responses"])
