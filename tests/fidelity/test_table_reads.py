"""Reads of tables, with the queries of a dashboard."""

from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from tests.support.project import Project, User, tomorrow
from tests.support.rest_clients import Rest, Step

# Source, priority, and the function that changed the job.
JOBS = (
    ('alpha', 0, None),
    ('beta', 1, 'pause_crawl_job'),
    ('gamma, (delta)', 2, 'cancel_crawl_job'),
    ('Epsilon', 3, None),
    ('100%_zeta', 4, 'pause_crawl_job'),
)
SOURCES = [source for source, _, _ in JOBS]
NEWEST_FIRST: Step = ('order', 'priority', {'ascending': False})


@dataclass(frozen=True, slots=True)
class Reader:
    """A user who has the five jobs above and no others."""

    user: User
    ids: dict[str, str] = field(default_factory=dict[str, str])


@pytest.fixture(scope='module')
def reader(project: Project) -> Reader:
    reader = Reader(project.sign_up())
    for source, priority, change in JOBS:
        # By the service: a user may not raise the priority of a job.
        [job] = project.call(
            'enqueue_crawl_job',
            p_payload={'url': f'https://{uuid4().hex}.example/'},
            p_source_id=source,
            p_priority=priority,
            p_user_id=str(reader.user.id),
            p_run_after=tomorrow(),
        )
        reader.ids[source] = job['id']
        if change is not None:
            project.call(change, token=reader.user.token, p_job_id=job['id'])
    return reader


@pytest.mark.parametrize(
    ('steps', 'expected'),
    [
        pytest.param([], SOURCES, id='all'),
        pytest.param([('eq', 'source_id', 'beta')], ['beta'], id='eq'),
        pytest.param([('eq', 'source_id', 'gamma, (delta)')], ['gamma, (delta)'], id='eq-reserved'),
        pytest.param([('eq', 'source_id', '100%_zeta')], ['100%_zeta'], id='eq-encoded'),
        pytest.param([('eq', 'source_id', 'nobody')], [], id='eq-none'),
        pytest.param(
            [('neq', 'status', 'pending')], [SOURCES[1], SOURCES[2], SOURCES[4]], id='neq'
        ),
        pytest.param(
            [('in', 'status', ['paused', 'cancelled'])], [*SOURCES[1:3], SOURCES[4]], id='in'
        ),
        pytest.param(
            [('in', 'source_id', ['alpha', 'gamma, (delta)'])],
            [SOURCES[0], SOURCES[2]],
            id='in-reserved',
        ),
        pytest.param([('in', 'source_id', [])], [], id='in-none'),
        pytest.param([('gt', 'priority', 2)], SOURCES[3:], id='gt'),
        pytest.param([('gte', 'priority', 2)], SOURCES[2:], id='gte'),
        pytest.param([('lt', 'priority', 2)], SOURCES[:2], id='lt'),
        pytest.param([('lte', 'priority', 2)], SOURCES[:3], id='lte'),
        pytest.param([('is', 'completed_at', None)], [*SOURCES[:2], *SOURCES[3:]], id='is-null'),
        pytest.param([('not', 'completed_at', 'is', None)], [SOURCES[2]], id='not-is-null'),
        pytest.param([('not', 'status', 'eq', 'paused')], [SOURCES[0], *SOURCES[2:4]], id='not-eq'),
        pytest.param([('like', 'source_id', '%et%')], [SOURCES[1], SOURCES[4]], id='like'),
        pytest.param([('like', 'source_id', 'eps%')], [], id='like-is-case-sensitive'),
        pytest.param([('ilike', 'source_id', 'eps*')], ['Epsilon'], id='ilike-with-a-star'),
        pytest.param([('or', 'priority.eq.0,source_id.eq.beta')], SOURCES[:2], id='or'),
        pytest.param(
            [('or', 'priority.gt.3,and(status.eq.pending,priority.lt.1)')],
            [SOURCES[0], SOURCES[4]],
            id='or-and',
        ),
        pytest.param(
            [('or', 'status.in.(cancelled,failed),source_id.ilike.EPS*')],
            SOURCES[2:4],
            id='or-in-ilike',
        ),
        pytest.param(
            [('eq', 'status', 'paused'), ('gt', 'priority', 1)], ['100%_zeta'], id='two-filters'
        ),
        pytest.param(
            [('gte', 'created_at', '2026-01-01T00:00:00+00:00'), ('lt', 'priority', 1)],
            ['alpha'],
            id='a-time-with-a-plus',
        ),
    ],
)
def test_a_filter_returns_the_matching_rows(
    rest: Rest, reader: Reader, steps: list[Step], expected: list[str]
) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'source_id'), *steps, ('order', 'priority')
    )

    assert [row['source_id'] for row in response.data] == expected


def test_only_the_selected_columns_are_returned(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'id, status'), ('eq', 'source_id', 'beta')
    )

    assert response.data == [{'id': reader.ids['beta'], 'status': 'paused'}]


def test_json_columns_are_returned_as_json(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read('crawl_jobs', ('select', '*'), ('limit', 1))

    assert response.data[0]['payload']['url'].startswith('https://')


def test_a_row_has_neither_the_lease_nor_the_place_of_its_job(rest: Rest, reader: Reader) -> None:
    client = rest.as_user(reader.user)
    job = client.read('crawl_jobs', ('select', '*'), ('limit', 1), ('single',))
    state = client.read('crawl_states', ('select', '*'), ('limit', 1), ('single',))

    assert {'lease_token', 'place', 'host_slot', 'lease_check_at'}.isdisjoint(job.data)
    assert {'batch_token', 'batch_seq'}.isdisjoint(state.data)


def test_rows_are_ordered_by_a_column(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read('crawl_jobs', ('select', 'source_id'), NEWEST_FIRST)

    assert [row['source_id'] for row in response.data] == SOURCES[::-1]


def test_rows_are_ordered_by_two_columns(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs',
        ('select', 'source_id'),
        ('order', 'completed_at', {'ascending': False, 'nullsFirst': False}),
        NEWEST_FIRST,
    )

    assert [row['source_id'] for row in response.data][:2] == ['gamma, (delta)', '100%_zeta']


def test_a_page_says_how_many_rows_there_are(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs',
        ('select', 'source_id', {'count': 'exact'}),
        ('order', 'priority'),
        ('range', 1, 2),
    )

    assert [row['source_id'] for row in response.data] == SOURCES[1:3]
    assert (response.status, response.count) == (206, 5)


def test_a_whole_table_with_its_count_is_not_partial(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read('crawl_jobs', ('select', 'id', {'count': 'exact'}))

    assert (response.status, response.count, len(response.data)) == (200, 5, 5)


def test_rows_can_be_counted_without_being_returned(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs',
        ('select', '*', {'count': 'exact', 'head': True}),
        ('eq', 'status', 'paused'),
    )

    assert not response.data
    assert (response.status, response.count) == (200, 2)


def test_a_page_past_the_end_is_empty(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read('crawl_jobs', ('select', 'id'), ('range', 100, 109))

    assert (response.status, response.data) == (200, [])


def test_a_counted_page_past_the_end_is_refused(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'id', {'count': 'exact'}), ('range', 100, 109)
    )

    assert (response.status, response.code) == (416, 'PGRST103')


def test_a_single_row_is_an_object(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'id'), ('eq', 'source_id', 'alpha'), ('single',)
    )

    assert response.data == {'id': reader.ids['alpha']}


def test_maybe_single_is_an_object_or_none(rest: Rest, reader: Reader) -> None:
    def find(source: str) -> object:
        return (
            rest.as_user(reader.user)
            .read('crawl_jobs', ('select', 'id'), ('eq', 'source_id', source), ('maybeSingle',))
            .data
        )

    assert (find('alpha'), find('nobody')) == ({'id': reader.ids['alpha']}, None)


def test_a_single_row_of_none_is_refused(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'id'), ('eq', 'source_id', 'nobody'), ('single',)
    )

    assert response.error is not None
    assert (response.status, response.code) == (406, 'PGRST116')
    assert '0 rows' in response.error['details']


def test_the_error_names_an_unknown_table(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read('crawl_nothing', ('select', '*'))

    assert response.error is not None
    assert (response.status, response.code) == (404, 'PGRST205')
    assert 'crawl_nothing' in response.error['message']


@pytest.mark.parametrize(
    'steps',
    [
        pytest.param([('select', 'nonsense')], id='select'),
        pytest.param([('select', 'id'), ('eq', 'nonsense', 1)], id='filter'),
        pytest.param([('select', 'id'), ('order', 'nonsense')], id='order'),
    ],
)
def test_the_error_names_an_unknown_column(rest: Rest, reader: Reader, steps: list[Step]) -> None:
    response = rest.as_user(reader.user).read('crawl_jobs', *steps)

    assert response.error is not None
    assert (response.status, response.code) == (400, '42703')
    assert 'nonsense' in response.error['message']


def test_a_value_of_the_wrong_type_is_refused(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_jobs', ('select', 'id'), ('eq', 'id', 'not-a-uuid')
    )

    assert (response.status, response.code) == (400, '22P02')


def test_the_history_of_a_job_can_be_read_in_order(rest: Rest, reader: Reader) -> None:
    response = rest.as_user(reader.user).read(
        'crawl_events',
        ('select', 'seq, to_status'),
        ('eq', 'job_id', reader.ids['beta']),
        ('order', 'seq'),
    )

    assert response.data == [
        {'seq': 1, 'to_status': 'pending'},
        {'seq': 2, 'to_status': 'paused'},
    ]
