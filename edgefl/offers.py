"""Whether a thing has what a protocol asks for, known once for all things of its class."""

_known: dict[tuple[type, type], bool] = {}  # a class and a protocol


def offers(thing: object, protocol: type) -> bool:
    """As isinstance has it, which looks at every member of a protocol anew, and is asked in every round."""
    question = type(thing), protocol
    if question not in _known:
        _known[question] = isinstance(thing, protocol)
    return _known[question]
