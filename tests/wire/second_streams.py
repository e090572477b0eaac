"""Random streams as docs/protocol.md describes them, in integers alone: what numpy's PCG64 would give.

A second implementation of `edgefl.base.seeds`, written from the page. It imports nothing of edgefl, and numpy neither.
"""

from hashlib import sha256

POOL = 4  # words of 32 bits
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715
MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
M32, M64, M128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1


class Stream:
    """The random stream of this name under this seed."""

    def __init__(self, seed: int, *names: int | str) -> None:
        quoted = (f"'{name}'" if isinstance(name, str) else str(name) for name in names)
        path = "/".join([str(seed), *quoted])
        words = _words(_mixed(int.from_bytes(sha256(path.encode()).digest()[:16], "big")))
        self._increment = ((words[2] << 64 | words[3]) << 1 | 1) & M128
        self._state = 0
        self._step()
        self._state = (self._state + (words[0] << 64 | words[1])) & M128
        self._step()
        self._half: int | None = None  # the upper half of the last number, if only its lower half was used

    def next64(self) -> int:
        """Return 64 random bits."""
        self._step()
        folded, turn = (self._state >> 64 ^ self._state) & M64, self._state >> 122
        return (folded >> turn | folded << (64 - turn)) & M64

    def next32(self) -> int:
        """Return 32 random bits: the lower half of a number, then its upper half."""
        if self._half is not None:
            half, self._half = self._half, None
            return half
        number = self.next64()
        self._half = number >> 32
        return number & M32

    def up_to(self, largest: int) -> int:
        """Return a number from 0 to `largest`, which is below 2^32: the bits that can hold it, until they do."""
        mask = (1 << largest.bit_length()) - 1
        while largest:
            number = self.next32() & mask
            if number <= largest:
                return number
        return 0

    def permutation(self, count: int) -> list[int]:
        """Return the numbers below `count`, shuffled from the end."""
        order = list(range(count))
        for i in range(count - 1, 0, -1):
            j = self.up_to(i)
            order[i], order[j] = order[j], order[i]
        return order

    def _step(self) -> None:
        self._state = (self._state * MULTIPLIER + self._increment) & M128


def _mixed(entropy: int) -> list[int]:
    """Return the pool of numpy's SeedSequence."""
    constant = INIT_A

    def hashed(word: int) -> int:
        nonlocal constant
        word ^= constant
        constant = constant * MULT_A & M32
        word = word * constant & M32
        return word ^ word >> 16

    pool = [hashed(entropy >> 32 * i & M32) for i in range(POOL)]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                mixed = (MIX_LEFT * pool[target] - MIX_RIGHT * hashed(pool[source])) & M32
                pool[target] = mixed ^ mixed >> 16
    return pool


def _words(pool: list[int]) -> list[int]:
    """Return the four numbers of 64 bits that PCG64 begins with."""
    constant, halves = INIT_B, []
    for i in range(8):
        word = pool[i % POOL] ^ constant
        constant = constant * MULT_B & M32
        word = word * constant & M32
        halves.append(word ^ word >> 16)
    return [low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)]
