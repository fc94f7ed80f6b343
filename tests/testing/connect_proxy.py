"""A small HTTP proxy that knows CONNECT only, and counts its tunnels."""

from __future__ import annotations

import contextlib
import socket
import threading


class ConnectProxy:
    """Listens on loopback until it is closed."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                self._open.append(caller)
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            more = caller.recv(1)
            if not more:
                return
            head += more
        method, target, _ = head.split(b"\r\n")[0].decode().split()
        if method != "CONNECT":
            caller.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            caller.shutdown(socket.SHUT_RDWR)
            return
        host, _, port = target.rpartition(":")
        self.tunnels.append(target)
        far = socket.create_connection((host, int(port)))
        self._open.append(far)
        caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=_pour, args=(caller, far), daemon=True).start()
        _pour(far, caller)


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
