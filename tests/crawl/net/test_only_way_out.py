"""Only `worker/silkline/crawl/net/egress.py` reaches the network."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EGRESS = 'worker/silkline/crawl/net/egress.py'

# What can open a connection, resolve a name, or start a program that can.
NETWORK = """
aiodns aiohappyeyeballs aiohttp anyio asyncpg boto3 botocore curl_cffi dns ftplib gevent grpc h11 h2
http.client http.server httpcore httptools httpx httpx2 hyper imaplib impit mechanize
multiprocessing nntplib niquests paramiko playwright poplib postgrest primp psycopg pycurl pyppeteer
pyreqwest realtime redis requests rnet scrapy selenium smtplib socket socketserver ssl subprocess
supabase telnetlib tornado trio twisted urllib.request urllib3 uvloop webbrowser websocket
websockets wreq xmlrpc silkline.queue.rpc silkline.queue.realtime
""".split()
# The exceptions, and why.
MAY_IMPORT = {
    EGRESS: {'aiohappyeyeballs', 'aiohttp', 'socket', 'ssl'},
    # The parts of the egress; what may import them is below.
    'worker/silkline/crawl/net/session.py': {'aiohttp', 'socket', 'ssl'},
    'worker/silkline/crawl/net/lenient_http.py': {'aiohttp'},
    'worker/silkline/crawl/net/resolver.py': {'socket'},
    # Looks up routes, to recognise the machine's own addresses.
    'worker/silkline/crawl/net/addresses.py': {'socket'},
    # Trusted certificates; it opens no connection.
    'worker/silkline/crawl/net/tls.py': {'ssl'},
    # A browser, whose only way out is the proxy.
    'worker/silkline/crawl/fetchers/browser.py': {'playwright'},
    'worker/silkline/crawl/fetchers/rendering.py': {'playwright'},
    'worker/silkline/crawl/fetchers/chromium.py': {'playwright'},
    # The event loop.
    'worker/silkline/runner/main.py': {'uvloop'},
}
PARTS = {
    'silkline.crawl.net.session': {EGRESS},
    'silkline.crawl.net.lenient_http': {'worker/silkline/crawl/net/session.py'},
    'silkline.crawl.net.resolver': {EGRESS},
}
CALLS = {
    'open_connection': {EGRESS},
    'open_unix_connection': set[str](),
    'create_connection': set[str](),
    'create_unix_connection': set[str](),
    'create_datagram_endpoint': set[str](),
    'sock_connect': set[str](),
    'getaddrinfo': {'worker/silkline/crawl/net/resolver.py'},
    'gethostbyname': set[str](),
    'getnameinfo': set[str](),
    # The browser connects to a proxy on loopback.
    'start_server': {'worker/silkline/crawl/fetchers/proxy.py'},
    'create_server': set[str](),
    'create_subprocess_exec': set[str](),
    'create_subprocess_shell': set[str](),
    '__import__': set[str](),
}


def modules() -> list[Path]:
    folders = [ROOT / 'worker/silkline/crawl', ROOT / 'worker/silkline/audit']
    found = [path for folder in folders for path in folder.rglob('*.py')]
    return sorted([*found, ROOT / 'worker/silkline/runner/main.py'])


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f'{module}.{name.name}' for name in names)
            case _:
                pass


def calls_of(tree: ast.AST) -> Iterator[str]:
    """Every use of such a name, called or passed on."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name
            case _:
                pass


def is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(package + '.')


@pytest.mark.parametrize('path', modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_egress_reaches_the_network(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text())
    imports = set(imports_of(tree))
    reach = {package for package in NETWORK if any(is_of(found, package) for found in imports)}
    assert reach <= MAY_IMPORT.get(name, set[str]())
    for part, users in PARTS.items():
        assert name in users or not any(is_of(found, part) for found in imports)
    for call, users in CALLS.items():
        assert name in users or call not in calls_of(tree), call


def test_the_proxy_of_the_browser_listens_on_loopback_only() -> None:
    tree = ast.parse((ROOT / 'worker/silkline/crawl/fetchers/proxy.py').read_text())
    served = [
        ast.unparse(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == 'asyncio.start_server'
    ]
    assert served == ["'127.0.0.1'"]


def test_the_modules_of_the_crawl_are_checked() -> None:
    names = {str(path.relative_to(ROOT)) for path in modules()}
    assert set(MAY_IMPORT) <= names


@pytest.mark.parametrize(
    'code',
    [
        'import socket',
        'import urllib.request',
        'from urllib import request',
        'def f():\n    import requests',
        'from aiohttp.client import ClientSession',
        'import httpx as h',
    ],
)
def test_every_form_of_an_import_is_found(code: str) -> None:
    found = set(imports_of(ast.parse(code)))
    assert any(is_of(name, package) for name in found for package in NETWORK)
