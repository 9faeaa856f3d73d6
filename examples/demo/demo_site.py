"""A small site on loopback, for `make demo` and the tutorial: the files of `examples/demo/site`.

It also has what real sites have: a redirect, a dead link, a slow page, ETags, and a page that
changes (`edit`). `python examples/demo/demo_site.py [PORT]` serves it until Ctrl-C.
"""

import hashlib
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

FILES = Path(__file__).parent / 'site'
REDIRECTS = {'/guide/old-sensors/': '/guide/sensors/'}
SLOW_SECONDS = {'/reports/2026/': 2.0}
POSTER = '/files/poster.pdf'
CHANGING = '/changelog/'
TYPES = {
    '.css': 'text/css; charset=utf-8',
    '.html': 'text/html; charset=utf-8',
    '.pdf': 'application/pdf',
    '.txt': 'text/plain; charset=utf-8',
    '.xml': 'application/xml',
}
NEWS = '<h2>4.3</h2>\n<ul>\n<li>Wind in knots, for those who sail.</li>\n</ul>\n'


@dataclass(frozen=True, slots=True)
class Answer:
    status: HTTPStatus
    body: bytes = b''
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class DemoSite:
    """Serves while it is entered, on a free port by default; `requests` are the requested paths."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[str] = []
        self._is_edited = False
        self._server = ThreadingHTTPServer(('127.0.0.1', port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name='demo site')

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self._server.server_port}'

    def edit(self) -> None:
        """Change one page: a release is added to the changelog."""
        self._is_edited = True

    def answer(self, path: str, known_tag: str | None) -> Answer:
        self.requests.append(path)
        time.sleep(SLOW_SECONDS.get(path, 0))
        if path in REDIRECTS:
            return Answer(HTTPStatus.MOVED_PERMANENTLY, headers={'Location': REDIRECTS[path]})
        found = self._read(path)
        if found is None:
            body = b'<!doctype html><title>Not found</title><h1>Not found</h1>'
            return Answer(HTTPStatus.NOT_FOUND, body, {'Content-Type': TYPES['.html']})
        body, ending = found
        tag = f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'
        if tag == known_tag:
            return Answer(HTTPStatus.NOT_MODIFIED, headers={'ETag': tag})
        return Answer(HTTPStatus.OK, body, {'Content-Type': TYPES[ending], 'ETag': tag})

    def _read(self, path: str) -> tuple[bytes, str] | None:
        if path == POSTER:
            return b'%PDF-1.4\n%%EOF\n', '.pdf'
        file = (FILES / path.lstrip('/')).resolve()
        if path.endswith('/'):
            file /= 'index.html'
        if not file.is_file() or not file.is_relative_to(FILES.resolve()):
            return None
        body = file.read_text()
        if file.suffix in ('.txt', '.xml'):
            # These contain absolute URLs, and the port differs each time.
            body = body.replace('{origin}', self.url)
        if path == CHANGING and self._is_edited:
            body = body.replace('<h2>4.2</h2>', f'{NEWS}<h2>4.2</h2>')
        return body.encode(), file.suffix

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                answer = site.answer(path, self.headers.get('If-None-Match'))
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status is not HTTPStatus.NOT_MODIFIED:
                    self.send_header('Content-Length', str(len(answer.body)))
                self.end_headers()
                if self.command != 'HEAD':
                    self.wfile.write(answer.body)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def main() -> None:
    with DemoSite(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as site:
        print(f'Serving {site.url}/ until Ctrl-C. In another terminal:')
        print(f'  silkline crawl {site.url}/ --allow-network 127.0.0.0/8', flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == '__main__':
    main()
