"""Messages between a training process and one of its workers: a letter, and a value if needed.

Values are pickled: both ends are the same program of the same user, and nothing comes from a file.
The numbers of a step never come this way (`memory`).
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any, Literal, NamedTuple

# To a worker:
STEP = b"s"  # step all copies with the actions in the shared arrays
CALL = b"c"  # call a method, given with its arguments
CLOSE = b"q"  # close the environments and end
# From a worker:
DONE = b"."  # with what the method returned
FAULT = b"!"  # with a `Report`
CLOSED = b"x"  # with what closing the environments warned of

_HEAD = struct.Struct("!cI")  # the letter, and how many bytes follow

# Set in a worker, which must not start workers of its own: a script that it imports might.
inside_worker = False


class Report(NamedTuple):
    """What went wrong in a worker, in words."""

    kind: Literal["environment", "input", "interrupt", "worker"]  # whose fault it is
    text: str  # as it would be told in one process
    trace: str  # all of it
    places: list[tuple[str, int]]  # file and line of what a user's exception came through
    raised: bool  # by a user's code; otherwise it returned something that cannot be used


def head(letter: bytes, length: int = 0) -> bytes:
    """Return what a message begins with; without a value it is all of it."""
    return _HEAD.pack(letter, length)


class Channel:
    """One end of a connection; whatever the other end does not take or send is an `OSError`.

    Args:
        connection: One of a pair of connected sockets.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, letter: bytes, value: Any = None) -> None:
        """Send a message."""
        body = b"" if value is None else pickle.dumps(value)
        self.connection.sendall(head(letter, len(body)) + body)

    def receive(self) -> tuple[bytes, Any]:
        """Return the next message, waiting for it.

        Raises:
            EOFError: The other end is closed.
        """
        letter, length = _HEAD.unpack(self._exactly(_HEAD.size))
        return letter, pickle.loads(self._exactly(length)) if length else None

    def _exactly(self, count: int) -> bytes:
        read = self.connection.recv(count)
        while len(read) < count:
            more = self.connection.recv(count - len(read))
            if not more:
                raise EOFError
            read += more
        return read

    def close(self) -> None:
        """Close this end."""
        self.connection.close()
