"""A wire on this machine that counts what goes over it, and may spoil it."""

import socket
import threading
from collections.abc import Callable

Spoil = Callable[[bytes, int], bytes]  # bytes from the client, how many came before -> what goes on


class Proxy:
    """Listens on a port of its own and hands everything on to another one."""

    def __init__(self, port: int, spoil: Spoil = lambda data, before: data):
        self.to, self.spoil, self.up, self.down = port, spoil, 0, 0
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client = self._listening.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # closed, or nobody there
                return
            for one, other, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._hand_on, args=(one, other, up), daemon=True).start()

    def _hand_on(self, source: socket.socket, to: socket.socket, up: bool) -> None:
        before = 0
        try:
            while data := source.recv(65536):
                to.sendall(self.spoil(data, before) if up else data)
                before += len(data)
                with self._lock:
                    self.up, self.down = self.up + len(data) * up, self.down + len(data) * (not up)
            to.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two has hung up
            pass
        finally:
            source.close()
