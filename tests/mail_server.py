"""A mail server on loopback, as much of RFC 5321 as smtplib speaks: with STARTTLS or TLS, and AUTH PLAIN."""

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread


class MailServer:
    """What it was sent, and what it answers."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.receivers: list[list[str]] = []
        self.logins: list[str] = []
        self.encrypted: list[bool] = []
        self.unknown: set[str] = set()  # receivers that are refused
        self.busy = 0  # of the next mails, those that are refused for now
        self.port = 0


@contextmanager
def mail_server(  # noqa: C901 - a table of commands
    context: ssl.SSLContext | None = None, *, at_once: bool = False
) -> Iterator[MailServer]:
    """Serve; with a context TLS is offered, or spoken from the first byte on."""
    server = MailServer()

    class Handler(StreamRequestHandler):
        def setup(self) -> None:
            if context is not None and at_once:
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            if isinstance(self.request, ssl.SSLSocket):
                self.request.close()

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            receivers: list[str] = []
            self.say("220 test")
            while line := self.rfile.readline().decode().strip():
                word = line.partition(" ")[0].upper()
                if word == "EHLO":
                    self.say("250-test")
                    if context is not None and not at_once:
                        self.say("250-STARTTLS")
                    self.say("250 AUTH PLAIN")
                elif word == "STARTTLS" and context is not None:
                    self.say("220 go on")
                    self.request = context.wrap_socket(self.request, server_side=True)
                    super().setup()
                elif word == "AUTH":
                    server.logins.append(base64.b64decode(line.split()[-1]).decode())
                    self.say("235 welcome")
                elif word == "RCPT":
                    receiver = line.partition("<")[2].partition(">")[0]
                    if receiver in server.unknown:
                        self.say("550 unknown")
                    else:
                        receivers.append(receiver)
                        self.say("250 ok")
                elif word == "DATA":
                    self.say("354 go on")
                    self.take(receivers)
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

        def take(self, receivers: list[str]) -> None:
            lines = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line)
            if server.busy:
                server.busy -= 1
                self.say("451 later")
                return
            message = message_from_bytes(b"".join(lines), policy=policy.default)
            assert isinstance(message, EmailMessage)
            server.mails.append(message)
            server.receivers.append(list(receivers))
            server.encrypted.append(isinstance(self.request, ssl.SSLSocket))
            self.say("250 taken")

    class Listener(ThreadingTCPServer):
        daemon_threads = True
        address_family = socket.AF_INET

        def handle_error(self, *_: object) -> None:
            """A client that goes away in the middle, or does not trust us, is part of a test."""

    listener = Listener(("127.0.0.1", 0), Handler)
    server.port = listener.server_address[1]
    thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
