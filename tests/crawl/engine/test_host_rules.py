"""Fetching robots.txt over real connections, before a host is crawled."""

import asyncio
from pathlib import Path
from typing import Any

from silkline.crawl.engine.host_rules import HostRules
from silkline.crawl.engine.hosts import Host
from silkline.crawl.options import HostPolicy
from tests.support.certificates import Certificate
from tests.support.channel import RecordingChannel
from tests.support.egress import egress, resolving
from tests.support.raw_site import answer, raw_site


def host(name: str) -> Host:
    # A second try would take longer than this test.
    return Host(name=name, max_open=8, min_delay_seconds=0.0, retry_seconds=3600.0)


async def prepared(
    one: Host, *, scheme: str = 'http', policy: HostPolicy | None = None, **options: Any
) -> RecordingChannel:
    channel = RecordingChannel()
    async with asyncio.timeout(30), egress(**options) as out:
        host_rules = HostRules(
            channel,
            out,
            policy=policy or HostPolicy(),
            agent='silkline',
            obeys=True,
            tries=3,
            timeout_seconds=20,
        )
        await host_rules.prepare(one, None, scheme=scheme)
    return channel


def test_a_host_that_the_policy_refuses_is_given_up_without_a_request() -> None:
    asked: list[str] = []

    async def resolve(name: str) -> list[str]:
        asked.append(name)
        return ['127.0.0.1']

    one = host('www.denied.example:8000')
    policy = HostPolicy(deny_hosts=['denied.example'])
    channel = asyncio.run(prepared(one, policy=policy, resolve=resolve))
    assert (one.is_ready, one.refusal_reason) == (True, 'forbidden_address')
    assert one.refusal == 'the operator of this queue denies crawls of denied.example'
    assert (asked, channel.messages) == ([], [])


def test_robots_txt_of_a_host_that_does_not_exist_is_not_retried() -> None:
    one = host('typo.example')
    asyncio.run(prepared(one, resolve=resolving({})))
    assert one.is_ready
    assert one.refusal == 'could not fetch robots.txt: the host typo.example does not exist'
    assert one.refusal_reason == 'host_unavailable'


def test_robots_txt_of_a_host_with_a_rejected_certificate_is_not_retried(tmp_path: Path) -> None:
    certificate = Certificate.make('tls.example', tmp_path)

    async def run() -> Host:
        async with raw_site({'*': answer(b'x')}, tls=certificate.server()) as site:
            one = host(f'tls.example:{site.port}')
            await prepared(one, scheme='https', resolve=resolving({'tls.example': ['127.0.0.1']}))
            return one

    one = asyncio.run(run())
    assert one.refusal is not None
    assert 'the certificate of tls.example was rejected' in one.refusal
