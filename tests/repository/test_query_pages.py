"""The SQL of docs/how-to/query-pages.md runs, and uses the index that it creates."""

import re
from uuid import UUID

from silkline_local.postgres.migrations import split_statements
from tests.support.database import Database
from tests.support.queue import checkpoint, claim_one, enqueue, fetched, found
from tests.support.servers import ROOT

PAGES = (ROOT / 'docs/how-to/query-pages.md').read_text()


def test_every_query_about_pages_runs_for_a_user_and_finds_something(database: Database) -> None:
    user = database.user()
    crawl_docs(database, user, {1: 'Retry', 2: 'Same', 3: 'Same', 4: 'Gone soon'})
    # The next crawl: one page has changed, one is new, one is gone, one is disallowed.
    text = 'Retry when you meet a rate limit.'
    job_id = crawl_docs(database, user, {1: text, 2: 'Same', 3: 'Same', 5: 'New'}, fails=6)
    queries = re.findall(r'```sql\n(.*?)```', PAGES, re.DOTALL)
    owner, reader = database.connect(), database.connect('authenticated', user)

    assert len(queries) >= 10
    for query in queries:
        for statement in split_statements(query.replace('<job id>', str(job_id))):
            if statement.startswith('select'):
                assert reader.execute(statement.encode()).fetchall(), statement
            else:
                owner.execute(statement.encode())


def test_the_search_over_pages_uses_its_index(database: Database) -> None:
    statements = split_statements('\n'.join(re.findall(r'```sql\n(.*?)```', PAGES, re.DOTALL)))
    [index] = [text for text in statements if text.startswith('create index')]
    [function] = [text for text in statements if text.startswith('create function')]
    body = function.split('$$')[1].replace('p_query', "'words'").replace('p_limit', '10')
    search, *_ = [text for text in statements if 'ts_headline' in text]
    user = database.user()
    database.query(
        """
        insert into public.crawl_pages (
          user_id, source_id, url_key, url, version, job_id, content_hash, markdown
        )
        select
          %s, 'docs.example', gen_random_uuid(), 'https://docs.example/' || n, 1,
          gen_random_uuid(), n, 'Word' || n || case when n %% 1000 = 0 then ' words' else '' end
        from generate_series(1, 5000) as n
        """,
        [user],
    )
    database.query(index)
    database.query('analyze public.crawl_pages')
    reader = database.connect('authenticated', user)

    for query in (search, body):
        assert 'crawl_pages_text' in str(database.query(f'explain {query}'))
    # As the page says: row level security keeps a user's own search from the index.
    assert 'crawl_pages_text' not in str(reader.execute(f'explain {search}'.encode()).fetchall())


def crawl_docs(
    database: Database, user: UUID, texts: dict[int, str], *, fails: int | None = None
) -> UUID:
    """Crawl pages of docs.example with these texts to the end; one more URL may fail."""
    job_id = enqueue(database, 'docs.example', user=user)
    token = claim_one(database).token
    numbers = [*texts, *([] if fails is None else [fails])]
    private = found(7, url='https://docs.example/private', skip_reason='robots')
    checkpoint(
        database,
        token,
        1,
        want=10,
        discovered=[
            private,
            *(found(number, found_on=str(UUID(int=1))) for number in numbers),
        ],
    )
    pages = [
        fetched(
            number,
            page={
                'url': f'https://docs.example/{number}',
                'content_hash': text,
                'title': f'Page {number}',
                'markdown': text,
                'quality': {'kept': 0.5, 'warnings': ['little_kept']},
            },
        )
        for number, text in texts.items()
    ]
    broken = [
        {
            'url_key': str(UUID(int=number)),
            'status': 'error',
            'error': 'http 404',
            'http_status': 404,
        }
        for number in numbers[len(texts) :]
    ]
    assert checkpoint(database, token, 2, finished=[*pages, *broken])['drained']
    database.call('complete_crawl_job', p_lease_token=token)
    return job_id
