"""Who may see the page off loopback: a user with the random word that stands in one private file.

A browser shows it once, in a form, and then has a cookie that is made from it; a program says it in a header. Neither
is ever part of an address, so no log and no history of a browser has it.
"""

import hmac
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from edgefl.base.errors import ConfigError
from edgefl.fleet.folder import state_folder
from edgefl.system.store import create_atomically

COOKIE = "edgefl_page"
AGE = 30 * 86400  # seconds that a browser keeps the cookie
SHORTEST, LONGEST = 16, 4096  # letters of a token that an operator chose


class PageToken:
    """The word, and the proof of knowing it."""

    def __init__(self, word: str) -> None:
        self.word = word
        self._word = word.encode()
        self.cookie = hmac.new(self._word, b"edgefl page", "sha256").hexdigest()

    def is_word(self, word: str) -> bool:
        """Return whether this is the word, in constant time."""
        return hmac.compare_digest(self._word, word.strip().encode())

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows that its sender knows the word."""
        scheme, _, word = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_word(word):
            return True
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(self.cookie.encode(), morsel.value.encode())


def default_file() -> Path:
    """One for all pages of this operator."""
    return state_folder() / "page.token"


def opened(path: Path) -> PageToken:
    """The token of a file; where there is none, a new one is made, for its owner alone."""
    try:
        create_atomically(path, f"{secrets.token_urlsafe(32)}\n".encode())
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: others can read this token: chmod 600 {path}")
        word = path.read_bytes()[: LONGEST + 1].decode().strip()
    except OSError as error:
        raise ConfigError(f"{path}: the page's token can be neither read nor made ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a token, which is one line of text; delete it, and a new one is made") from None
    if not SHORTEST <= len(word) <= LONGEST or not word.isascii() or not word.isprintable():
        raise ConfigError(f"{path}: a token has at least {SHORTEST} ASCII letters; delete it, and a new one is made")
    return PageToken(word)
