"""Where alerts go: a real web server and a real mail server on loopback."""

import json
import ssl
from datetime import datetime

import pytest
from certificates import Authority
from mail_server import mail_server
from receiver import receiving

from edgefl.base.errors import ConfigError, RemoteError
from edgefl.job.config.reader import parse
from edgefl.server.alert_channels import MailChannel, WebhookChannel, channels
from edgefl.server.alert_settings import AlertMail, AlertWebhook
from edgefl.server.decide.alerts import Alert, AlertNotice
from edgefl.server.server_file import ServerFile
from edgefl.watch.exporters.webhooks import signature

NOTICE = AlertNotice(
    "opened",
    1_800_003_600.0,
    (
        Alert("away", "north", "d1", 1_800_000_000.0, reason="its connection\nbroke"),
        Alert("away", "north", "d2", 1_800_000_000.0),
    ),
)
PEOPLE = {"from": "edgefl@example.org", "to": ("ann@example.org", "bob@example.org")}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "a long word")
    monkeypatch.setenv("MAIL_PASSWORD", "open sesame")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority.new(tmp_path_factory.mktemp("mail"))


@pytest.fixture
def context(authority):
    shown = authority.issue("mail")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    return context


def mail(port, **more):
    return MailChannel(AlertMail(host="127.0.0.1", port=port, **PEOPLE, **more))


def test_a_webhook_gets_a_signed_cloud_event():
    with receiving() as receiver:
        WebhookChannel(AlertWebhook(url=receiver.url, secret="env:HOOK_SECRET"), lambda: 5.0).send(NOTICE)
        ((_, headers, body),) = receiver.calls
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["X-Edgefl-Signature"] == signature(b"a long word", "5", body)
    event = json.loads(body)
    assert (event["specversion"], event["type"], event["source"]) == (
        "1.0",
        "edgefl.alert.opened",
        "/edgefl/fleets/north",
    )
    assert (event["id"], event["subject"], event["datacontenttype"]) == (NOTICE.id, "away", "application/json")
    assert datetime.fromisoformat(event["time"]).timestamp() == NOTICE.at
    assert [one["subject"] for one in event["data"]["alerts"]] == ["d1", "d2"]
    assert "power" in event["data"]["remedy"]


@pytest.mark.parametrize("status", [302, 400, 500])
def test_a_webhook_that_does_not_take_a_message_is_called_again_with_the_same_id(status):
    with receiving() as receiver:
        receiver.answers = [status]
        receiver.location = receiver.url
        channel = WebhookChannel(AlertWebhook(url=receiver.url))
        with pytest.raises(RemoteError, match=str(status)):
            channel.send(NOTICE)
        channel.send(NOTICE)
        assert [one["id"] for one in receiver.messages()] == [NOTICE.id] * 2


def test_an_address_never_stands_in_an_error():
    channel = WebhookChannel(AlertWebhook(url="http://127.0.0.1:1/very-secret"))
    with pytest.raises(RemoteError) as raised:
        channel.send(NOTICE)
    assert "very" not in str(raised.value)
    assert "very" not in repr(channel.settings) + channel.settings.model_dump_json()


def test_a_mail_says_what_is_wrong_and_what_to_do():
    with mail_server() as server:
        mail(server.port, tls="none").send(NOTICE)
    (message,) = server.mails
    assert message["Subject"] == "edgefl: fleet 'north': devices are away: 2 (d1, d2)"
    assert (message["From"], message["To"]) == ("edgefl@example.org", "ann@example.org, bob@example.org")
    assert message["Message-ID"] == f"<{NOTICE.id}@edgefl.example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    text = message.get_content()
    assert "d1 has been away for 1 hour" in text
    assert "edgefl fleet revoke d1" in text
    assert server.receivers == [["ann@example.org", "bob@example.org"]]


def test_a_text_of_a_device_adds_no_line_to_the_head_of_a_mail():
    one = AlertNotice("opened", 1.0, (Alert("away", "north", "d1", 0.0, reason="x\r\nBcc: eve@example.org"),))
    with mail_server() as server:
        mail(server.port, tls="none").send(one)
    assert "Bcc" not in server.mails[0]
    assert server.receivers == [["ann@example.org", "bob@example.org"]]


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_a_password_goes_through_tls_only(tls, context, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    with mail_server(context, at_once=tls == "tls") as server:
        mail(server.port, tls=tls, user="ann", password="env:MAIL_PASSWORD").send(NOTICE)
    assert server.logins == ["\0ann\0open sesame"]
    assert server.encrypted == [True]


def test_a_mail_server_that_cannot_prove_who_it_is_gets_no_password(context):
    with mail_server(context) as server, pytest.raises(RemoteError, match="SSLCertVerificationError"):
        mail(server.port, user="ann", password="env:MAIL_PASSWORD").send(NOTICE)
    assert (server.logins, server.mails) == ([], [])


def test_a_mail_server_without_starttls_gets_no_password():
    with mail_server() as server, pytest.raises(RemoteError):
        mail(server.port, user="ann", password="env:MAIL_PASSWORD").send(NOTICE)
    assert server.logins == []


def test_a_mail_that_is_refused_for_now_is_sent_again_with_the_same_id():
    with mail_server() as server:
        server.busy = 1
        channel = mail(server.port, tls="none")
        with pytest.raises(RemoteError, match="451"):
            channel.send(NOTICE)
        channel.send(NOTICE)
    assert len(server.mails) == 1


def test_a_receiver_that_is_unknown_does_not_have_the_others_told_twice(caplog):
    with mail_server() as server:
        server.unknown = {"bob@example.org"}
        mail(server.port, tls="none").send(NOTICE)
    assert server.receivers == [["ann@example.org"]]
    assert "refused receivers count=1 of=2" in caplog.text


def test_a_mail_server_that_is_away_is_an_error_of_the_peer():
    with pytest.raises(RemoteError, match="ConnectionRefusedError"):
        mail(1, tls="none").send(NOTICE)


def read(alerts):
    return parse(ServerFile, {"alerts": alerts}, "server.toml", environment={}).alerts


def test_lengths_of_time_are_written_as_people_say_them():
    rules = read({"away": "90s", "stale": "2w", "stalled": 60, "quiet": {"temperature": "1h"}}).as_rules(())
    assert (rules.away, rules.stale, rules.stalled) == (90.0, 14 * 86_400.0, 60.0)
    assert (rules.wait("temperature"), rules.wait("away"), rules.wait("certificate")) == (3600.0, 90.0, 86_400.0)


@pytest.mark.parametrize(
    ("alerts", "why"),
    [
        ({"away": "soon"}, "no length of time"),
        ({"off": ["awy"]}, "off"),
        ({"webhook": [{"url": "http://example.org/x"}]}, "https"),
        ({"webhook": [{"url": "https://example.org", "secret": "word"}]}, "no secret in a file"),
        ({"mail": {"host": "mail", "from": "a@b", "to": ["c"]}}, "no mail address"),
        ({"mail": {"host": "mail", "from": "a@b", "to": []}}, "to"),
        ({"mail": {"host": "mail", "from": "a@b", "to": ["c@d"], "user": "a"}}, "belong together"),
        ({"mail": {"host": "m", "from": "a@b", "to": ["c@d"], "user": "a", "password": "x"}}, "no secret in a file"),
        (
            {"mail": {"host": "m", "from": "a@b", "to": ["c@d"], "tls": "none", "user": "a", "password": "env:X"}},
            "without TLS",
        ),
    ],
)
def test_what_cannot_be_is_said_when_the_file_is_read(alerts, why):
    with pytest.raises(ConfigError, match=why):
        read(alerts)


def test_a_secret_that_is_missing_is_said_at_the_start():
    with pytest.raises(ConfigError, match="environment has no variable NOT_THERE"):
        channels(read({"webhook": [{"url": "env:NOT_THERE"}]}))


def test_a_channel_has_the_same_name_after_a_restart_and_in_another_order():
    one, two = {"url": "https://example.org/1"}, {"url": "https://example.org/2"}
    assert set(channels(read({"webhook": [one, two]}))) == set(channels(read({"webhook": [two, one]})))
    assert "example" not in str(set(channels(read({"webhook": [one]}))))
