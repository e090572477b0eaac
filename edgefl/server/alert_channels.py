"""Where alerts go: webhooks, as CloudEvents 1.0, and e-mail. Both are called in the background.

A message has the same id however often it is sent: the `id` of a CloudEvent, the Message-ID of a mail. After a kill
between a delivery and its record it is sent again; receivers drop an id that they have. Neither address nor password
stands in an error: many an address is a password itself.
"""

import hashlib
import json
import logging
import smtplib
import ssl
import time
from collections.abc import Callable
from datetime import datetime, timezone
from email.message import EmailMessage
from email.utils import format_datetime
from http.client import HTTPException
from urllib.error import HTTPError

from edgefl.base.errors import RemoteError
from edgefl.base.printable import printable
from edgefl.server.alert_settings import AlertMail, AlertSettings, AlertWebhook
from edgefl.server.decide import alert_texts
from edgefl.server.decide.alerts import Alert, AlertNotice
from edgefl.server.shell.alerts import AlertChannel
from edgefl.watch.exporters.webhooks import post

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TITLE = 200  # characters of the subject of a mail
UNDELIVERED = "alert.undelivered"


class WebhookChannel:
    """One address."""

    def __init__(self, settings: AlertWebhook, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.clock = settings, clock
        self.url, self.secret = settings.address(), settings.key()
        self.name = f"webhook-{hashlib.sha256(settings.url.encode()).hexdigest()[:8]}"

    def send(self, notice: AlertNotice) -> None:
        """POST the notice; raise a RemoteError if it was not taken."""
        body = json.dumps(cloud_event(notice)).encode()
        headers = {"Content-Type": CONTENT_TYPE, "X-Edgefl-Id": notice.id}
        try:
            post(self.url, body, headers, secret=self.secret, at=self.clock(), timeout=self.settings.timeout)
        except HTTPError as error:
            with error:
                raise RemoteError(UNDELIVERED, f"it answered {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:  # URLError, timeouts and TLS's are OSErrors
            raise RemoteError(UNDELIVERED, f"{type(error).__name__}: {getattr(error, 'reason', None) or ''}") from None


class MailChannel:
    """One mail server."""

    name = "mail"

    def __init__(self, settings: AlertMail) -> None:
        self.settings, self.password = settings, settings.word()

    def send(self, notice: AlertNotice) -> None:
        """Hand the notice to the mail server; raise a RemoteError if it was not taken."""
        try:
            with self._connected() as server:
                if self.settings.user:
                    server.login(self.settings.user, self.password)
                refused = server.send_message(self.message(notice))
        except smtplib.SMTPResponseException as error:
            raise RemoteError(UNDELIVERED, f"the mail server answered {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:  # timeouts and TLS's are OSErrors
            why = getattr(error, "strerror", None) or ""
            raise RemoteError(UNDELIVERED, f"{type(error).__name__}: {why}") from None
        if refused:  # the others have it: to send it again would tell them twice
            log.warning("the mail server refused receivers count=%d of=%d", len(refused), len(self.settings.to))

    def message(self, notice: AlertNotice) -> EmailMessage:
        """The mail."""
        mail = EmailMessage()
        mail["From"] = self.settings.from_
        mail["To"] = ", ".join(self.settings.to)
        mail["Subject"] = printable(f"edgefl: {alert_texts.title(notice)}")[:TITLE]
        mail["Date"] = format_datetime(datetime.fromtimestamp(notice.at, timezone.utc))
        mail["Message-ID"] = f"<{notice.id}@edgefl.{self.settings.from_.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"  # a holiday notice must not answer it
        mail.set_content(alert_texts.body(notice))
        return mail

    def _connected(self) -> smtplib.SMTP:
        host, port, timeout = self.settings.host, self.settings.port, self.settings.timeout
        if self.settings.tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=timeout, context=ssl.create_default_context())
        server = smtplib.SMTP(host, port, timeout=timeout)
        try:
            if self.settings.tls == "starttls":
                server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
        return server


def channels(settings: AlertSettings) -> dict[str, AlertChannel]:
    """All that the server's file names, by name; raise a ConfigError where a secret is missing."""
    listed: list[AlertChannel] = [WebhookChannel(one) for one in settings.webhook]
    if settings.mail is not None:
        listed.append(MailChannel(settings.mail))
    return {channel.name: channel for channel in listed}


def cloud_event(notice: AlertNotice) -> dict[str, object]:
    """A notice as a CloudEvent, in structured mode."""
    first = notice.alerts[0]
    return {
        "specversion": "1.0",
        "id": notice.id,
        "source": f"/edgefl/fleets/{first.fleet}" if first.fleet else "/edgefl/server",
        "type": f"edgefl.alert.{notice.what}",
        "subject": first.kind,
        "time": _moment(notice.at),
        "datacontenttype": "application/json",
        "data": {
            "text": alert_texts.title(notice),
            "remedy": alert_texts.remedy(first) if notice.what == "opened" else "",
            "kind": first.kind,
            "fleet": first.fleet,
            "alerts": [_cause(alert, notice.at) for alert in notice.alerts],
        },
    }


def _cause(alert: Alert, at: float) -> dict[str, object]:
    return {
        "id": alert.id,
        "subject": alert.subject,
        "since": _moment(alert.since),
        "text": alert_texts.text(alert, at),
    }


def _moment(wall: float) -> str:
    return datetime.fromtimestamp(wall, timezone.utc).isoformat()
