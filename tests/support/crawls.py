"""Crawls of loopback sites by a real worker, and how their URLs and pages ended."""

from typing import Any
from uuid import uuid4

from tests.support.site import Answer, Site
from tests.support.worker import Queue

# What the worker of these tests may reach; 127.0.0.2 is forbidden.
LOOPBACK = ('--allow-network', '127.0.0.1/32', '--allow-network', '127.0.0.3/32')


def crawl(queue: Queue, site: Site, path: str = '/', **options: Any) -> str:
    """Crawl a site to its end and return the job. Failed pages are retried soon."""
    job = enqueue(queue, site, path, **options)
    try:
        queue.wait_for('completed', job, seconds=60)
    except AssertionError:
        print(queue.job(job), queue.progress(job), ends(queue, job, site), site.log, sep='\n')
        print(queue.stack.rpc('explain_crawl_job', p_job_id=job))
        raise
    return job


def enqueue(queue: Queue, site: Site, path: str = '/', **options: Any) -> str:
    source = options.pop('source_id', uuid4().hex)
    payload = {'url': site.url + path, 'retry_seconds': 0.05, **options}
    if 'urls' in options:
        del payload['url']
    return queue.stack.rpc('enqueue_crawl_job', p_payload=payload, p_source_id=source)[0]['id']


def ends(queue: Queue, job: str, site: Site) -> dict[str, str]:
    """How each URL ended: done, or why not. URLs of the site are shortened to their paths."""
    rows = queue.rows(
        'select url, status, skip_reason, last_error from crawl_tasks where job_id = %s', [job]
    )
    return {
        row['url'].removeprefix(site.url): row['skip_reason'] or row['last_error'] or row['status']
        for row in rows
    }


def pages(queue: Queue, job: str, site: Site) -> dict[str, dict[str, Any]]:
    rows = queue.rows(
        'select page.* from crawl_tasks as task join crawl_pages as page on page.id = task.page_id'
        ' where task.job_id = %s',
        [job],
    )
    return {row['url'].removeprefix(site.url): row for row in rows}


def robots(*lines: str) -> Answer:
    return Answer('\n'.join(['User-agent: *', *lines]), type='text/plain')
