"""Text from outside, as one line that can be printed: it moves no cursor, paints nothing and begins no new line."""


def printable(text: str) -> str:
    """The text with everything that is not to be seen (newlines, escape codes, marks of direction) spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
