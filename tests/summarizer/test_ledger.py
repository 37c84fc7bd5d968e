"""What a paraphrase must not lose is found by rule, and the newest of it is kept."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.summarizer import ledger
from app.tokens import TokenCounter
from tests.conftest import shared

FOUND: list[tuple[str, list[str]]] = [
    # URLs, without what closes the sentence or the bracket around them.
    ("See https://x.org/a_(b)?q=1234#top.", ["https://x.org/a_(b)?q=1234#top"]),
    ("(at http://y.io/p), or [so](ftp://z.net/f.txt)", ["http://y.io/p", "ftp://z.net/f.txt"]),
    ("在https://x.cn/1234，好", ["https://x.cn/1234"]),
    # Addresses.
    ("Write to ann.b+c@ex-ample.co.uk.", ["ann.b+c@ex-ample.co.uk"]),
    # Paths, with their line.
    ("Open /etc/hosts, ~/notes and ./run.sh", ["/etc/hosts", "~/notes", "./run.sh"]),
    ("in src/app/fields.py:1474: wrong", ["src/app/fields.py:1474"]),
    ("edit reproduce.py and setup.cfg.", ["reproduce.py", "setup.cfg"]),
    (r"C:\Users\Ann\plan.docx or C:\\temp\\x", [r"C:\Users\Ann\plan.docx", r"C:\\temp\\x"]),
    # Dates.
    ("2024-05-15T10:00:00Z, 2024-05-15 15:00:00 EST", ["2024-05-15T10:00:00Z", "2024-05-15 15:00:00 EST"]),
    ("12.03.2026, 3/12/26, 2026/03/12", ["12.03.2026", "3/12/26", "2026/03/12"]),
    ("12 March 2026, the 3rd of May", ["12 March 2026", "3rd of May"]),
    ("March 12, 2026; may 27", ["March 12, 2026", "may 27"]),
    ("am 3. Oktober 2025", ["3. Oktober 2025"]),
    # Times.
    ("14:30, 9:15 am, 9 am, 5 p.m. and 06:00 PM EST", ["14:30", "9:15 am", "9 am", "5 p.m.", "06:00 PM EST"]),
    # Money.
    ("€12.50, $1,200 and 1.200,50 €", ["€12.50", "$1,200", "1.200,50 €"]),
    ("USD 40, 30 dollars, $2 million", ["USD 40", "30 dollars", "$2 million"]),
    ("it is 523.45 in all", ["523.45"]),
    # Numbers with units.
    ("30 %, 20%, 12 GB, 3.5 km, 250 ms", ["30 %", "20%", "12 GB", "3.5 km", "250 ms"]),
    ("10-15 minutes, 2 kg, 24-hour, 37 °C", ["10-15 minutes", "2 kg", "24-hour", "37 °C"]),
    # Ids.
    ("550e8400-e29b-41d4-a716-446655440000", ["550e8400-e29b-41d4-a716-446655440000"]),
    ("commit 9b5ad71b, ABC-123, #4711", ["9b5ad71b", "ABC-123", "#4711"]),
    ("code 4417; ZFA04Y on HAT136", ["4417", "ZFA04Y", "HAT136"]),
    ("user_7 is mia_li_3668", ["user_7", "mia_li_3668"]),
    ("v1.2.3, 3.11.4 at 192.168.1.10", ["v1.2.3", "3.11.4", "192.168.1.10"]),
    ("gate B7, seat 12A", ["B7", "12A"]),
    ("call +1 555-123-4567 or 555-123-4567", ["+1 555-123-4567", "555-123-4567"]),
    # Ids between characters that know no blanks.
    ("订单ZFA04Y已取消，编号12345。", ["ZFA04Y", "12345"]),
    # Ids of letters alone, when something says that they are ids.
    ("reservation ID is AQLBTL", ["AQLBTL"]),
    ('{"reservation_id": "QLBTLX"}', ["QLBTLX"]),
    # A fact inside a longer one is no fact of its own, and a repeated one is listed once.
    ("https://x.org/4711/2024-05-15 and 4711 and 4711", ["https://x.org/4711/2024-05-15", "4711"]),
]


@pytest.mark.parametrize(("text", "facts"), FOUND)
def test_facts_are_found_as_they_are_written(text: str, facts: list[str]) -> None:
    assert ledger.find(text) == facts


@pytest.mark.parametrize(
    "text",
    [
        # Words with a slash, and abbreviations.
        "and/or, n/a, w/o, e.g. this, i.e. that",
        # Small numbers, ordinals, and numbers of lines.
        "2 of 3, the 2nd and the 30th",
        "\n1458:    def __init__(self):\n1459:        pass",
        # Tags, operators, and code that is no path.
        "</div> a / b // c self.fields.append(x)",
        # Nothing but punctuation.
        "... --- *** /// @@@ ://",
        "",
    ],
)
def test_what_is_no_fact_is_not_found(text: str) -> None:
    assert ledger.find(text) == []


def test_a_long_url_is_left_out_with_everything_in_it() -> None:
    signed = "https://x.org/f?signature=" + "4711-abc1/" * 30
    assert ledger.find(f"at {signed} or 4417") == ["4417"]


RUNS = (
    ["a", "é", "a.a.", "a/", "a1-", "1 ", "1,1,1", "1.1.", "0:00:", "+1 ", "$1", "a@a@a", "http://http://", "http://)"],
    ["/", "-", ".", '"', "(", "./", "C:\\", "May ", "id ", '"id":"'],
)


@pytest.mark.parametrize("run", [one for runs in RUNS for one in runs])
def test_no_run_takes_for_ever(run: str) -> None:
    assert len(ledger.find(run * (200_000 // len(run)))) <= 2


@given(st.text(st.sampled_from("a1/.:@-_ #$,\\Z\n(\"')"), max_size=60))
def test_facts_are_verbatim_and_not_too_long(text: str) -> None:
    found = ledger.find(text)
    assert all(fact in text and len(fact) <= ledger.LONGEST_FACT for fact in found)
    assert len(set(found)) == len(found)


def test_what_is_mentioned_again_is_new_again() -> None:
    assert ledger.carried(["a1", "b2", "c3"], ["d4", "a1", "d4"]) == ("b2", "c3", "a1", "d4")
    assert ledger.carried([], []) == ()


@given(st.lists(st.text(st.sampled_from("abc123 ·é汉"), min_size=1, max_size=30)), st.integers(0, 60))
def test_the_newest_facts_that_fit_survive(facts: list[str], cap: int) -> None:
    kept = ledger.within(facts, count=len, cap=cap)
    assert list(kept) == facts[len(facts) - len(kept) :]
    assert len(ledger.rendered(kept)) <= cap


def test_a_full_ledger_is_used_to_its_cap() -> None:
    count = TokenCounter().text
    facts = [f"HAT{number:03d}" for number in range(1000)]
    kept = ledger.within(facts, count=count, cap=ledger.CAP_TOKENS)
    assert ledger.CAP_TOKENS * 0.9 < count(ledger.rendered(kept)) <= ledger.CAP_TOKENS
    assert kept[-1] == "HAT999"


def test_no_facts_render_as_nothing() -> None:
    assert ledger.rendered([]) == ""
    assert ledger.within(["a1"], count=len, cap=0) == ()


def texts(name: str, number: int) -> str:
    conversation: dict[str, Any] = json.loads(shared(f"data/{name}.jsonl").read_text().splitlines()[number])
    said = [message.get("content") or "" for message in conversation["messages"][1:]]
    called = [
        call["function"]["arguments"]
        for message in conversation["messages"]
        for call in message.get("tool_calls") or []
    ]
    return "\n".join([*said, *called])


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        # A desk's conversation: people, flights, reservations, payments, amounts, dates.
        ("tau-bench-airline", 0, ["mia_li_3668", "HAT136", "$152", "certificate_7504069", "May 20th", "2024-05-20"]),
        # A reservation whose id is all letters, and an address.
        ("tau-bench-airline", 3, ["AQLBTL", "OI5L9G", "sofia_kim_7287", "sofia.kim1937@example.com"]),
        # A coding agent's run: files, and an URL with a line.
        (
            "swe-agent",
            1,
            [
                "/testbed/src/marshmallow/fields.py",
                "reproduce.py",
                "https://github.com/marshmallow-code/marshmallow/blob/dev/src/marshmallow/fields.py#L1474",
            ],
        ),
    ],
)
def test_the_facts_of_real_conversations_are_found(name: str, number: int, expected: list[str]) -> None:
    assert set(expected) <= set(ledger.find(texts(name, number)))
