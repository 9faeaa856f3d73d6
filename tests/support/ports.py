"""Ports that a server can give up and take again while other tests run."""

import random
import socket

# Below the ephemeral ports, which the system assigns to anyone who asks for port 0.
PORTS = range(10_000, 32_000)


def unused_port() -> int:
    """A loopback port that is free now, and that the system does not assign by itself."""
    while True:
        port = random.choice(PORTS)
        try:
            socket.create_server(('127.0.0.1', port)).close()
        except OSError:
            continue
        return port
