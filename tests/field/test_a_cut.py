"""Field cases A: where a compaction cuts, and tool calls and their results."""

import itertools

import httpx
import pytest

from tests.field.conftest import Copies
from tests.field.modelled import LLM, Modelled, attempts, condense, state, told
from tests.field.refusals import places, refused
from tests.formats import spoken
from tests.talk import Message, Talk, assistant, custom, developer, rounds, seqs_in, system, tool, turns, user
from tests.validity import assert_valid, problems

ROUNDS = 30


def ranges_of(outcome: dict[str, object]) -> list[int]:
    """Return the seqs that a compaction newly covered, or would."""
    return seqs_in(outcome["covered"]["ranges"])  # type: ignore[index]


def covered(talk: Talk) -> set[int]:
    """Return the seqs that the view leaves out although they are messages."""
    return {event["seq"] for event in talk.log() if event["covered"]}


def text_of(words: int) -> str:
    """Return English prose of at least as many tokens as words."""
    return " ".join(("the", "quick", "brown", "fox", "jumps")[at % 5] for at in range(words))


def wordy(said: list[Message]) -> list[Message]:
    """Return the messages with enough text that a summary of them is smaller than they are."""
    return [{**message, "content": f"{message['content']}: {text_of(40)}"} for message in said]


# C02: 120 posts, and after each of them twelve windows; a few posts in each test, so that they can run side by side.


@pytest.mark.parametrize("first", range(1, 4 * ROUNDS + 1, 12))
def test_c02_a_sliding_window_leaves_a_valid_view_after_every_single_append(copy_of: Copies, first: int) -> None:
    said = rounds(ROUNDS)
    for posted in range(first, first + 12):
        for size in range(1, 13):
            copy = copy_of(said[:posted])
            copy.compact(last_events=size)
            where = f"after {posted} events, window of {size}"
            view = copy.view()["events"]
            assert view[0]["message"]["role"] == "user", where
            assert view[-1]["message"] == said[posted - 1], where
            assert not problems(copy), where
            assert copy.http.get(copy.path + "/view", params={"format": "text"}).status_code == 200


def test_c02_one_session_that_is_compacted_after_every_append_only_ever_covers_more(talk: Talk) -> None:
    before: set[int] = set()
    for posted, message in enumerate(rounds(ROUNDS), start=1):
        talk.append(message)
        talk.compact(last_events=posted % 12 + 1)
        now = covered(talk)
        assert before <= now
        assert_valid(talk)
        before = now
    assert len(before) >= 4 * (ROUNDS - 4)


@pytest.mark.parametrize("prompt", [system("Answer in Danish."), developer("Answer in Danish.")], ids=["S", "D"])
@pytest.mark.parametrize("window", [{"last_turns": 1}, {"last_events": 1}], ids=["turns", "events"])
def test_c03_truncation_keeps_the_system_prompt(copy_of: Copies, prompt: Message, window: dict[str, int]) -> None:
    talk = copy_of([prompt, *turns(6)])
    outcome = talk.compact(**window)
    assert outcome["status"] == "applied"
    assert ranges_of(outcome) == [*range(2, 12)]
    assert outcome["pinned"] == [1]
    assert talk.seqs() == [1, 12, 13]
    assert covered(talk) == {*range(2, 12)}
    assert talk.view("openai")["messages"][0] == prompt
    assert_valid(talk)


STEERED = [
    user("Count the rows"),
    assistant(None, q="sql"),
    user("also the archive table"),
    tool("q", "812"),
    assistant("812 and 90."),
    user("thanks"),
    assistant("ok"),
]


def test_c04_a_steering_message_does_not_part_a_call_from_its_result(copy_of: Copies) -> None:
    talk = copy_of(STEERED)
    outcome = talk.compact(last_turns=2)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "no-safe-cut")
    assert talk.seqs() == [1, 2, 3, 4, 5, 6, 7]
    assert covered(talk) == set()
    outcome = talk.compact(last_turns=1)
    assert (outcome["status"], ranges_of(outcome)) == ("applied", [1, 2, 3, 4, 5])
    assert talk.seqs() == [6, 7]
    assert_valid(talk)


def test_c04_the_view_with_a_steering_message_is_valid_before_and_after(copy_of: Copies) -> None:
    talk = copy_of(STEERED)
    assert_valid(talk)
    talk.compact(last_turns=2)
    assert_valid(talk)
    talk.compact(last_turns=1)
    assert_valid(talk)


def test_c05_a_call_without_a_result_holds_no_later_compaction_back(talk: Talk) -> None:
    talk.append(user("start the export"), assistant(None, z="export"))
    before: set[int] = set()
    for done in (10, 20, 30, 40):
        talk.append(*turns(10, first=done - 9))
        outcome = talk.compact(last_turns=5)
        assert outcome["status"] == "applied"
        assert ranges_of(outcome)
        now = covered(talk)
        assert before < now
        before = now
    assert talk.view()["turns"] == 5
    assert talk.texts() == [message["content"] for message in turns(5, first=36)]
    assert 2 in before
    assert_valid(talk)


WINDOWS = ["last_turns", "last_events", "token_budget"]


@pytest.mark.parametrize("rule", WINDOWS)
@pytest.mark.parametrize("size", [0, -1, 1.5, "two", None, True, [], {}], ids=repr)
def test_c06_a_size_that_is_no_size_is_refused(copy_of: Copies, rule: str, size: object) -> None:
    talk = copy_of(turns(5))
    body = {"window": {"rule": rule, "size": size}}
    problem = refused(talk.http.post(talk.path + "/compact", json=body), 422, code="invalid-request")
    assert places(problem) == ["/window/size"]
    assert talk.seqs() == [*range(1, 11)]
    assert talk.session()["version"] == 10


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", ""),
        (b"{}", ""),
        (b'{"window": null}', ""),
        (b'{"window": {}}', "/window/rule"),
        (b'{"window": {"rule": "last_turns"}}', "/window/size"),
        (b'{"window": {"rule": "last_messages", "size": 2}}', "/window/rule"),
        (b'{"window": {"rule": "last_turns", "size": 2, "unit": "turns"}}', "/window/unit"),
        (b'{"last_turns": 2}', "/last_turns"),
    ],
)
def test_c06_a_compaction_without_a_whole_window_is_refused(copy_of: Copies, body: bytes, place: str) -> None:
    talk = copy_of(turns(5))
    response = talk.http.post(talk.path + "/compact", content=body, headers={"content-type": "application/json"})
    assert places(refused(response, 422, code="invalid-request")) == [place]
    assert talk.session()["version"] == 10


def test_c07_asking_again_when_nothing_is_left_changes_nothing(talk: Talk) -> None:
    talk.append(*wordy(turns(4)))
    first = talk.compact(summary="So far: two things.", last_turns=2)
    assert (first["status"], ranges_of(first)) == ("applied", [1, 2, 3, 4])
    log, view = talk.log(), talk.http.get(talk.path + "/view").content
    for size in [2] * 100 + [10]:
        outcome = talk.compact(summary="So far: two things.", last_turns=size)
        assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
        assert outcome["boundary"] is None
        assert outcome["covered"] == {"ranges": [], "events": 0}
        assert outcome["summary"] is None
    assert talk.http.get(talk.path + "/view").content == view
    assert talk.log() == log
    assert len(talk.get("/compactions")["data"]) == 1


def test_c07_asking_again_when_nothing_is_left_calls_no_model(model: Modelled) -> None:
    talk = model.talk()
    talk.append(*wordy(turns(4)))
    first = condense(talk, last_turns=2)
    assert (first["status"], ranges_of(first)) == ("applied", [1, 2, 3, 4])
    before = state(talk)
    for size in [2] * 100 + [10]:
        outcome = condense(talk, last_turns=size)
        assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
        assert outcome["boundary"] is outcome["summary"] is None
    assert state(talk) == before
    assert len(model.server.requests) == len(attempts(talk)) == 1
    assert len(talk.get("/compactions")["data"]) == 1


GIANT = [
    message
    for number in range(200)
    for message in (assistant(None, **{f"c{number}": "edit"}), tool(f"c{number}", text_of(300)))
]


def test_c08_a_giant_newest_turn_costs_one_call_of_the_model_and_no_scheduler_picks_it_again(model: Modelled) -> None:
    talk = model.talk()
    policy = {
        "window": {"rule": "token_budget", "size": 8000},
        "trigger": {"type": "token_count", "threshold": 10_000},
        "summarizer": LLM,
    }
    assert talk.http.put(talk.path, json={"policy": policy, "metadata": {"case": talk.id}}).status_code == 201
    talk.append(user("hi " + text_of(100)), assistant("ok"), user("refactor everything"), *GIANT)
    first = condense(talk, token_budget=8000)
    assert (first["status"], ranges_of(first), first["over_budget"]) == ("applied", [1, 2], True)
    assert first["tokens"]["after"] == talk.view()["token_count"] > 60_000
    before = state(talk)
    for _ in range(4):
        outcome = condense(talk, token_budget=8000)
        assert (outcome["status"], outcome["reason"], outcome["over_budget"]) == ("unchanged", "newest-turn-only", True)
    # The scheduler may look at it once, at no cost, and then leaves it alone until there is a new turn.
    run = {"metadata": {"case": talk.id}}
    assert [one["status"] for one in model.http.post("/v1/compact", json=run).json()["results"]] == ["unchanged"]
    talk.append(assistant(None, more="edit"), tool("more", text_of(300)))
    for _ in range(3):
        answer = model.http.post("/v1/compact", json=run).json()
        assert (answer["due"], answer["results"]) == (0, [])
    assert talk.id not in [one["session_id"] for one in model.http.get("/v1/compact/due").json()["data"]]
    assert len(model.server.requests) == 1
    assert state(talk)[1][: len(before[1])] == before[1]
    talk.append(assistant("done"), user("and now?"))
    [result] = model.http.post("/v1/compact", json=run).json()["results"]
    assert (result["session_id"], result["status"]) == (talk.id, "applied")
    assert talk.view()["token_count"] < 8000
    assert len(model.server.requests) == 2
    assert_valid(talk)


def test_c08_a_summary_that_could_never_be_smaller_than_hi_and_ok_is_not_paid_for_again_and_again(
    model: Modelled,
) -> None:
    talk = model.talk()
    talk.append(user("hi"), assistant("ok"), user("refactor everything"), *GIANT)
    before = state(talk)
    for _ in range(5):
        outcome = condense(talk, token_budget=8000)
        assert (outcome["status"], outcome["reason"], outcome["over_budget"]) == ("unchanged", "does-not-shrink", True)
    assert state(talk) == before
    assert len(model.server.requests) <= 1


def test_c08_a_giant_newest_turn_stays_and_is_reported_once_and_for_all(talk: Talk) -> None:
    talk.append(user("hi"), assistant("ok"), user("refactor everything"), *GIANT)
    budget = {"window": {"rule": "token_budget", "size": 8000}, "summarizer": {"type": "text", "text": "Hi."}}
    assert talk.session()["view"]["tokens"] > 60_000
    # With a summary the pass could only make this view larger, and then nothing is written: so first without.
    first = talk.compact(token_budget=8000)
    assert (first["status"], ranges_of(first)) == ("applied", [1, 2])
    assert first["over_budget"] is True
    assert first["tokens"]["after"] == talk.view()["token_count"] > 60_000
    assert talk.seqs() == [*range(3, 404)]
    for _ in range(4):
        outcome = talk.post("/compact", budget)
        assert (outcome["status"], outcome["reason"]) == ("unchanged", "newest-turn-only")
        assert outcome["over_budget"] is True
        assert outcome["tokens"]["before"] == talk.view()["token_count"]
    talk.append(assistant("done"), user("and now?"))
    outcome = talk.post("/compact", budget)
    assert (outcome["status"], outcome["over_budget"]) == ("applied", False)
    assert talk.view()["token_count"] < 8000
    assert_valid(talk)


def test_c08_with_a_summary_that_fits_the_first_call_covers_what_is_before_the_giant_turn(talk: Talk) -> None:
    talk.append(user("hi " + text_of(100)), assistant("ok"), user("refactor everything"), *GIANT)
    first = talk.compact(summary="They said hi.", token_budget=8000)
    assert (first["status"], ranges_of(first), first["over_budget"]) == ("applied", [1, 2], True)
    log = talk.log()
    for _ in range(4):
        outcome = talk.compact(summary="They said hi.", token_budget=8000)
        assert (outcome["status"], outcome["reason"]) == ("unchanged", "newest-turn-only")
        assert outcome["over_budget"] is True
    assert talk.log() == log


def test_c09_last_turns_counts_user_messages_and_not_assistant_messages(talk: Talk) -> None:
    talk.append(
        system("Be brief."), user("u1"), assistant("a1"),
        user("u2"), assistant(None, t="f"), tool("t", "1"), assistant("a2"),
    )  # fmt: skip
    outcome = talk.compact(last_turns=2)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
    outcome = talk.compact(last_turns=1)
    assert (outcome["status"], ranges_of(outcome)) == ("applied", [2, 3])
    assert talk.seqs() == [1, 4, 5, 6, 7]
    assert_valid(talk)


def test_c10_after_a_compaction_the_view_only_grows_at_its_end(talk: Talk) -> None:
    talk.append(*turns(6))
    talk.compact(summary="Four questions were answered.", last_turns=2)
    kept = [message["content"] for message in turns(8)][8:]
    read: dict[str, list[bytes]] = {"openai": [], "text": []}
    for shown in (2, 3, 4):
        texts = talk.texts()
        assert texts[1:] == ["Four questions were answered.", *kept[: 2 * shown]]
        assert not {message["content"] for message in turns(4)} & {*texts}
        assert_valid(talk)
        for output, seen in read.items():
            content = talk.http.get(talk.path + "/view", params={"format": output}).content
            seen.append(content.partition(b'"messages":[')[2].partition(b'],"warnings"')[0] or content)
        if shown < 4:
            talk.append(*turns(1, first=shown + 5))
    for seen in read.values():
        assert len({*seen}) == 3
        assert all(later.startswith(earlier.rstrip(b"\n")) for earlier, later in itertools.pairwise(seen))


def test_c10_after_a_compaction_by_the_model_the_view_only_grows_at_its_end(model: Modelled) -> None:
    talk = model.talk()
    said = wordy(turns(8))
    talk.append(*said[:12])
    assert ranges_of(condense(talk, last_turns=2)) == [*range(1, 9)]
    seen: list[bytes] = []
    for shown in (2, 3, 4):
        assert told(talk) == ["A summary."]
        assert talk.texts()[2:] == [message["content"] for message in said[8 : 8 + 2 * shown]]
        assert_valid(talk)
        seen.append(talk.http.get(talk.path + "/view", params={"format": "text"}).content.rstrip(b"\n"))
        talk.append(*said[8 + 2 * shown : 10 + 2 * shown] or wordy(turns(1, first=9)))
    assert len({*seen}) == 3
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen))
    assert len(model.server.requests) == 1


QUESTION = "which file has the bug?"


def test_c11_the_model_is_not_shown_the_unanswered_question(model: Modelled) -> None:
    talk = model.talk()
    first = "walk me through the repo: " + text_of(60)
    talk.append(user(first), assistant("It has three parts."), user("add tests"), assistant("done"), user(QUESTION))
    assert ranges_of(condense(talk, last_turns=1)) == [1, 2, 3, 4]
    view = talk.view()["events"]
    assert [(event["synthetic"], event["message"]["role"]) for event in view] == [
        (True, "user"), (True, "assistant"), (False, "user"),
    ]  # fmt: skip
    assert (view[2]["seq"], view[2]["message"]) == (5, user(QUESTION))
    assert told(talk) == ["A summary."]
    assert first not in talk.texts()
    [request] = model.server.requests
    assert first in request.user
    assert QUESTION not in request.user
    for output in spoken.FORMATS:
        last = [thing for thing in spoken.said(output, talk.view(output)) if thing.kind == "text"][-1]
        assert (last.by, last.text[-len(QUESTION) :]) == ("user", QUESTION)
    assert_valid(talk)


def test_c11_the_unanswered_question_stays_last_and_verbatim(talk: Talk) -> None:
    question = QUESTION
    first = "walk me through the repo: " + text_of(60)
    talk.append(user(first), assistant("It has three parts."), user("add tests"), assistant("done"), user(question))
    outcome = talk.compact(summary="The repo was shown, tests were added.", last_turns=1)
    assert ranges_of(outcome) == [1, 2, 3, 4]
    view = talk.view()["events"]
    assert [event["synthetic"] for event in view] == [True, True, False]
    assert [event["message"]["role"] for event in view] == ["user", "assistant", "user"]
    assert view[1]["message"]["content"] == "The repo was shown, tests were added."
    assert view[2]["seq"] == 5
    messages = talk.view("openai")["messages"]
    assert messages[-1] == user(question)
    assert user(first) not in messages
    text = talk.http.get(talk.path + "/view", params={"format": "text"}).text
    assert text.rstrip().endswith(question)
    assert_valid(talk)


def test_c12_a_token_budget_is_measured_in_tokens(talk: Talk) -> None:
    giant = talk.append(
        user("one " + text_of(12)), assistant("done"),
        user("read it all"), assistant(None, r="read"), tool("r", text_of(50_000)), assistant("read"),
        user("three " + text_of(20)), assistant("ok " + text_of(10)),
        user("four " + text_of(20)), assistant("ok " + text_of(10)),
    )["events"][4]  # fmt: skip
    assert giant["token_count"] >= 50_000
    outcome = talk.compact(token_budget=4000)
    assert (outcome["status"], ranges_of(outcome)) == ("applied", [1, 2, 3, 4, 5, 6])
    assert talk.seqs() == [7, 8, 9, 10]
    outcome = talk.compact(token_budget=4000)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
    assert_valid(talk)


def test_c12_with_a_summary_a_token_budget_is_measured_in_tokens_and_not_paid_for_twice(model: Modelled) -> None:
    talk = model.talk()
    talk.append(
        user("one " + text_of(12)), assistant("done"),
        user("read it all"), assistant(None, r="read"), tool("r", text_of(50_000)), assistant("read"),
        user("three " + text_of(20)), assistant("ok " + text_of(10)),
        user("four " + text_of(20)), assistant("ok " + text_of(10)),
    )  # fmt: skip
    outcome = condense(talk, token_budget=4000)
    assert (outcome["status"], ranges_of(outcome)) == ("applied", [1, 2, 3, 4, 5, 6])
    assert talk.seqs()[2:] == [7, 8, 9, 10]
    outcome = condense(talk, token_budget=4000)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "fits-window")
    assert len(model.server.requests) == 1
    assert_valid(talk)


@pytest.mark.parametrize("window", [{"last_turns": 1}, {"token_budget": 10}], ids=["turns", "tokens"])
def test_c13_a_session_without_a_user_message_is_all_preamble(talk: Talk, window: dict[str, int]) -> None:
    said = [system("Nightly job"), assistant(None, r="report"), tool("r", "ok"), assistant("Report sent.")]
    talk.append(*said)
    outcome = talk.compact(summary="A report was sent.", **window)
    assert (outcome["status"], outcome["reason"]) == ("unchanged", "no-turn")
    assert covered(talk) == set()
    assert talk.seqs() == [1, 2, 3, 4]
    assert talk.view("openai")["messages"] == said
    assert_valid(talk)


CLICKED = [user("a"), custom(), custom(), assistant("b"), user("c"), custom(), assistant("d")]


@pytest.mark.parametrize(
    "window",
    [{"last_turns": 1}, {"last_events": 2}, {"last_events": 3}],  # custom events use no slot: 3 reaches into turn 1
    ids=["turns-1", "events-2", "events-3"],
)
def test_c14_custom_events_do_not_shift_the_cut(copy_of: Copies, window: dict[str, int]) -> None:
    talk = copy_of(CLICKED)
    outcome = talk.compact(**window)
    assert (outcome["status"], ranges_of(outcome)) == ("applied", [1, 2, 3, 4])
    assert outcome["covered"]["events"] == 2
    assert talk.seqs() == [5, 7]
    assert_valid(talk)


def test_c14_boundaries_never_count_and_custom_events_stay_readable(copy_of: Copies) -> None:
    talk = copy_of(CLICKED)
    talk.compact(last_turns=1)
    for window in ({"last_events": 2}, {"last_events": 1}, {"last_turns": 1}):
        assert talk.compact(**window)["reason"] in {"fits-window", "newest-turn-only"}
    assert [event["seq"] for event in talk.log(types="ACME.CLICK")] == [2, 3, 6]
    assert not any(event["covered"] for event in talk.log(types="ACME.CLICK"))


def test_c14_a_log_of_custom_events_alone_has_an_empty_view(talk: Talk, http: httpx.Client) -> None:
    talk.append(custom(), custom(n=2))
    assert talk.seqs() == []
    assert talk.compact(last_turns=1)["reason"] == "no-turn"
    assert http.get(talk.path + "/view", params={"format": "text"}).text == ""
