"""Hypothesis strategies for the messages between supervisor and runner."""

from typing import get_args

from hypothesis import strategies as st

from silkline import protocol

# Text that Postgres can store: anything else is replaced when a message is encoded.
texts = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0'), max_size=50)
keys = st.uuids()
urls = texts.filter(bool)
statuses = st.none() | st.integers(0, 32767)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=4)
found = st.builds(
    protocol.FoundUrl,
    url_key=keys,
    url=urls,
    depth=st.integers(0, 1000),
    found_on=st.none() | keys,
    skip_reason=st.sampled_from(['robots', 'too_deep', None]),
)
counts = st.integers(0, 2**31)
qualities = st.builds(
    protocol.Quality,
    kept=st.floats(0, 1),
    headings=counts,
    headings_kept=counts,
    code_blocks=counts,
    code_blocks_kept=counts,
    warnings=st.lists(st.sampled_from(get_args(protocol.PageWarning)), unique=True).map(tuple),
)
pages = st.builds(
    protocol.Page,
    url=urls,
    content_hash=urls,
    http_status=statuses,
    title=st.none() | texts,
    markdown=st.none() | texts,
    links=st.lists(texts, max_size=3),
    metadata=objects,
    quality=st.none() | qualities,
)
results = st.one_of(
    st.builds(
        protocol.Finished,
        url_key=keys,
        status=st.sampled_from(['done', 'error']),
        http_status=statuses,
        bytes=st.none() | st.integers(0, 2**53),
        error=st.none() | texts,
        not_modified=st.none() | st.booleans(),
        page=st.none() | pages,
    ),
    st.builds(protocol.Retried, url_key=keys, after_seconds=st.floats(0, 86400), error=texts),
    st.builds(protocol.Discovered, urls=st.lists(found, max_size=4)),
    st.builds(
        protocol.LinksRefused,
        counts=st.dictionaries(
            st.sampled_from(['out_of_scope', 'excluded', 'invalid_url']), st.integers(1, 1_000_000)
        ),
    ),
    st.builds(protocol.HostFact, host=urls, robots_txt=st.none() | texts, robots_status=statuses),
    st.builds(protocol.Begun, url_key=keys, url=urls),
    st.builds(protocol.RedirectedStart, url=urls),
)
from_runner = results | st.one_of(
    st.builds(protocol.Ready, pid=st.integers(1, 2**31), can_fork=st.booleans()),
    st.builds(
        protocol.WantTasks,
        count=st.integers(0, 1000),
        hosts=st.lists(urls, max_size=4),
        links=st.lists(keys, max_size=4),
    ),
    st.builds(protocol.Alive),
    st.builds(protocol.Log, level=st.sampled_from(['info', 'error']), message=texts),
    st.builds(protocol.Done, reason=st.sampled_from(['drained', 'pause', 'stop']), result=objects),
    st.builds(protocol.Failed, error_code=st.just('failed'), message=texts),
)
to_runner = st.one_of(
    st.builds(protocol.Start, job_id=keys, kind=texts, payload=objects),
    st.builds(
        protocol.NewCommand, command=st.sampled_from(['continue', 'pause', 'stop', 'cancel'])
    ),
    st.builds(
        protocol.Tasks,
        tasks=st.lists(
            st.builds(protocol.Task, url_key=keys, url=texts, depth=st.integers(0, 1000)),
            max_size=4,
        ),
        drained=st.booleans(),
        next_in_seconds=st.none() | st.floats(0, 1e6),
        links=st.lists(
            st.builds(
                protocol.StoredLinks,
                url_key=keys,
                links=st.lists(texts, max_size=3),
            ),
            max_size=2,
        ),
    ),
)
