"""Who may use a server: roles by tokens, by a browser's cookie, by the header of a trusted proxy."""

from datetime import datetime, timezone

import pytest

from edgefl.base.errors import ConfigError
from edgefl.server.people import COOKIE, People, Principal, Proxy

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def people(tmp_path):
    return People(tmp_path)


def bearer(word):
    return {"authorization": f"Bearer {word}"}


def test_a_token_says_who_it_is_and_what_they_may(people):
    word = people.add("ann", "operator", NOW, ("north",))
    ann = people.of_request(bearer(word), "10.0.0.7")
    assert ann == Principal("ann", "operator", ("north",))
    assert (ann.may("viewer"), ann.may("operator"), ann.may("admin")) == (True, True, False)
    assert (ann.sees("north"), ann.sees("south")) == (True, False)


def test_no_token_or_a_wrong_one_is_nobody(people):
    people.add("ann", "admin", NOW)
    assert people.of_request({}, "127.0.0.1") is None
    assert people.of_request(bearer("x" * 43), "127.0.0.1") is None
    assert people.of_request(bearer(""), "127.0.0.1") is None


def test_the_file_has_no_token_in_it(people, tmp_path):
    word = people.add("ann", "viewer", NOW)
    assert word not in (tmp_path / "people.json").read_text()
    assert (tmp_path / "people.json").stat().st_mode & 0o077 == 0


def test_a_token_that_was_taken_back_is_refused_at_once_by_a_server_that_runs(people, tmp_path):
    word = people.add("ann", "viewer", NOW)
    serving = People(tmp_path)
    assert serving.by_word(word)
    people.remove("ann")
    assert serving.by_word(word) is None


def test_a_browser_has_a_cookie_that_is_no_token(people):
    word = people.add("ann", "viewer", NOW)
    cookie = people.cookie(word)
    assert people.of_request({"cookie": f"{COOKIE}={cookie}"}, None) == Principal("ann", "viewer")
    assert people.by_word(cookie) is None


def test_the_owner_s_own_token_is_an_admin_s(people, tmp_path):
    word = (tmp_path / "admin.token").read_text().strip()
    owner = people.by_word(word)
    assert owner.role == "admin"
    assert people.of_request({"cookie": f"{COOKIE}={people.cookie(word)}"}, None) == owner


def test_a_header_counts_from_the_proxy_alone_and_only_for_people_with_a_role(tmp_path):
    people = People(tmp_path, Proxy(("10.0.0.0/24",), "X-Forwarded-User", {"ann": "operator"}))
    ann = {"x-forwarded-user": "ann"}
    assert people.of_request(ann, "10.0.0.5") == Principal("ann", "operator")
    assert people.of_request(ann, "10.0.1.5") is None
    assert people.of_request({"x-forwarded-user": "eve"}, "10.0.0.5") is None
    assert people.of_request(ann, None) is None


def test_names_are_given_once(people):
    people.add("ann", "viewer", NOW)
    with pytest.raises(ConfigError, match="is there already"):
        people.add("ann", "admin", NOW)
    with pytest.raises(ConfigError, match="no 'bob'"):
        people.remove("bob")
