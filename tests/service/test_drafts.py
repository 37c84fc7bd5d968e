"""From what a client sent to drafts: the ids that must never change."""

from app.service.drafts import id_from_key


def test_the_ids_of_a_key_never_change() -> None:
    """A request is repeatable for ever, also across releases: these ids are in databases."""
    assert id_from_key("k", 0) == "363383ba-2ab2-5922-9922-10f7ee6baa12"
    assert id_from_key("k", 1) == "d7d32aeb-18cc-5dad-adc9-e4ddfa1b2167"


def test_the_ids_of_different_keys_and_places_differ() -> None:
    ids = [id_from_key(key, position) for key in ("", "k", "1:k", ":k", "K", "é", "11") for position in range(12)]
    assert len(set(ids)) == len(ids)
