"""Ports that a server may leave and take again, though other tests run beside it."""

import random
import socket

# Below those that the system gives to whoever asks for any.
OWN = range(10_000, 32_000)


def own_port() -> int:
    """A loopback port that nobody has now, and that nobody is given by chance."""
    while True:
        port = random.choice(OWN)
        try:
            socket.create_server(('127.0.0.1', port)).close()
        except OSError:
            continue
        return port
