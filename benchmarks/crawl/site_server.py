"""nginx as the site to crawl, with its own configuration in a temporary directory.

Serves the files of the sites, and `/tree/`, whose 101,111 small pages are generated per request.
Each site has many loopback addresses, because each crawl gets its own host: what one crawl has
learned about a host must not help the next. Every request is a line of the log.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crawl.site import PLACEHOLDER
from benchmarks.shared.server import ROOT

SITES = 2
HOSTS = 30
START_SECONDS = 10.0
# Ten children for each of 1, 10, 100 and 1,000 pages, and nine for each of 10,000.
TREE_PAGES = 101_111
MISSING = 2


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    process: int
    directory: Path
    log: Path

    def root(self, site: int) -> Path:
        """Where the files of a site belong; `site` is from 0 to `SITES` - 1."""
        return self.directory / f'site-{site}'

    def url(self, site: int, host: int, path: str = '/') -> str:
        """A URL of a site; `host` is from 1 to `HOSTS`."""
        assert 1 <= host <= HOSTS
        return f'http://{address(site, host)}:{self.port}{path}'

    def requests(self, site: int, host: int) -> Counter[str]:
        """How often each path was requested from that host."""
        name = address(site, host)
        lines = (line.split() for line in self.log.read_text().splitlines())
        return Counter(path for server, _, path in lines if server == name)


def address(site: int, host: int) -> str:
    return f'127.0.{site}.{host}'


def find_nginx() -> str:
    """The path of nginx. Without one nothing can be measured, and the process exits."""
    unpacked = ROOT / '.venv/nginx/usr/sbin'
    found = shutil.which('nginx', path=f'{os.environ.get("PATH", "")}:/usr/sbin:{unpacked}')
    if found is None:
        print('nginx is missing; on Debian scripts/install-nginx.sh unpacks it', file=sys.stderr)
        sys.exit(MISSING)
    return found


def nginx_version() -> str:
    shown = subprocess.run([find_nginx(), '-v'], capture_output=True, text=True, check=True)
    return shown.stderr.strip().rpartition('/')[2]


@contextmanager
def run_server(directory: Path) -> Generator[Server]:
    """Serve the sites below `directory`, whose files are added later."""
    nginx = find_nginx()
    directory.mkdir(parents=True)
    port = free_port()
    configuration = directory / 'nginx.conf'
    configuration.write_text(configure(directory, port))
    errors = directory / 'error.log'
    process = subprocess.Popen(
        [nginx, '-p', directory, '-c', configuration, '-e', errors],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_up(process, port, errors)
        yield Server(port, process.pid, directory, directory / 'access.log')
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait_until_up(process: 'subprocess.Popen[bytes]', port: int, errors: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(('127.0.0.1', port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit('nginx did not start:\n' + errors.read_text())
            time.sleep(0.01)
        else:
            return


def free_port() -> int:
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return int(listener.getsockname()[1])


def configure(directory: Path, port: int) -> str:
    """The configuration: one process in the foreground, under the current account."""
    temporary = '\n'.join(
        f'  {kind}_temp_path {directory}/{kind};'
        for kind in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')
    )
    servers = '\n'.join(serve_site(directory, site, port) for site in range(SITES))
    return f"""daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
{temporary}
  types {{ text/html html; text/xml xml; }}
  default_type text/html;
  charset utf-8;
  server_tokens off;
  sendfile on;
  keepalive_requests 1000000;
  keepalive_timeout 75;
  log_format short '$server_addr $status $request_uri';
  access_log {directory}/access.log short;
{servers}
}}
"""


def serve_site(directory: Path, site: int, port: int) -> str:
    listen = '\n'.join(f'    listen {address(site, host)}:{port};' for host in range(1, HOSTS + 1))
    return f"""  server {{
{listen}
    root {directory}/site-{site};
    gzip_static always;
    gunzip on;
    rewrite ^/$ /index.html last;
    location / {{ }}
    location = /robots.txt {{
      default_type text/plain;
      return 200 "User-agent: *\\nDisallow: /private/\\n\\nSitemap: http://$http_host/sitemap.xml\\n";
    }}
    location = /sitemap.xml {{
      gzip_static off;
      sub_filter_types text/xml;
      sub_filter_once off;
      sub_filter '{PLACEHOLDER}' 'http://$http_host';
    }}
    location ~ ^/moved(?<place>/.+)$ {{ return 301 $place; }}
{tree()}
  }}"""


def tree() -> str:
    """Page /tree/12 links to /tree/120 to /tree/129, and up."""
    children_by_length = {0: 10, 1: 10, 2: 10, 3: 10, 4: 9, 5: 0}
    return '\n'.join(
        f"""    location ~ "^/tree/(?<n>\\d{{{length}}})$" {{
      return 200 '{tree_page(children)}';
    }}"""
        for length, children in children_by_length.items()
    )


def tree_page(children: int) -> str:
    below = ''.join(
        f'<li><a href="/tree/${{n}}{digit}">Leaf {digit}</a>' for digit in range(children)
    )
    above = ''.join(f'<li><a href="/tree/{digit}">Branch {digit}</a>' for digit in range(10))
    text = 'The page of this number says what every other one says, and a number. ' * 4
    return (
        '<!doctype html><html lang="en"><title>Page ${n} of the tree</title>'
        f'<nav><ul><li><a href="/tree/">Root</a>{above}</ul></nav>'
        f'<main><h1>Page ${{n}} of the tree</h1><p>Number ${{n}}. {text}</p><ul>{below}</ul></main>'
    )
