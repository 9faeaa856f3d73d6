"""What a function returns, by the type of its result."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.support.project import Project, User
from tests.support.rest_clients import Rest

Name = Callable[[str], str]


def test_a_scalar_is_a_bare_value(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('add'), {'a': 40, 'b': 2})

    assert (response.status, response.data) == (200, 42)


def test_an_array_is_a_list(rest: Rest, function: Name) -> None:
    assert rest.as_service().call(function('numbers')).data == [1, 2, 3]


def test_null_is_none(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('null'))

    assert (response.status, response.data) == (200, None)


def test_void_has_no_content(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('void'))

    assert response.status == 204
    assert not response.data


def test_json_is_returned_as_it_was_sent(rest: Rest, function: Name) -> None:
    value = {
        'text': 'Grüße, "quoted" \\ and \U0001f577',
        'deep': [{'list': [1, 2.5, None, True]}, {}],
        'empty': '',
    }

    assert rest.as_service().call(function('echo'), {'value': value}).data == value


def test_arguments_get_their_types_and_defaults(rest: Rest, function: Name) -> None:
    ids = [str(uuid4()), str(uuid4())]

    response = rest.as_service().call(
        function('types'),
        {'p_text': '7', 'p_uuids': ids, 'p_at': '2026-01-02T03:04:05+01:00'},
    )

    at = datetime.fromisoformat(response.data.pop('at'))
    assert at == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert response.data == {'text': '7', 'uuids': ids, 'flag': True}


def test_a_composite_is_an_object(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('thing'), {'p_id': 2})

    assert response.data == {'id': 2, 'label': 'two', 'made_at': None}


def test_a_null_composite_is_an_object_of_nulls(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('thing'), {'p_id': 99})

    assert response.data == {'id': None, 'label': None, 'made_at': None}


def test_a_set_is_a_list_of_objects(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'))

    first = response.data[0]
    assert datetime.fromisoformat(first['made_at']) == datetime(
        2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC
    )
    assert [row['label'] for row in response.data] == ['one', 'two', 'three']


def test_an_empty_set_is_an_empty_list(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'), {'p_least': 100})

    assert (response.status, response.data) == (200, [])


def test_a_set_of_scalars_is_a_list_of_scalars(rest: Rest, function: Name) -> None:
    assert rest.as_service().call(function('labels')).data == ['one', 'two', 'three']


def test_a_returned_table_is_a_list_of_objects(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('pairs'))

    assert response.data[2] == {'n': 3, 'word': 'three'}


def test_a_set_can_be_filtered_ordered_and_limited(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(
        function('list'),
        {},
        ('select', 'id'),
        ('gt', 'id', 1),
        ('order', 'id', {'ascending': False}),
        ('limit', 1),
    )

    assert response.data == [{'id': 3}]


def test_a_set_can_be_counted_beyond_its_page(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(
        function('list'), {}, ('limit', 1), options={'count': 'exact'}
    )

    assert (response.status, len(response.data), response.count) == (206, 1, 3)


def test_a_set_can_be_counted_without_its_rows(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(
        function('list'), {'p_least': 2}, options={'count': 'exact', 'head': True}
    )

    assert not response.data
    assert response.count == 2


def test_a_single_row_of_a_set_is_an_object(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'), {'p_least': 3}, ('single',))

    assert response.data == {'id': 3, 'label': 'three', 'made_at': None}


def test_maybe_single_of_one_row_is_an_object(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'), {'p_least': 3}, ('maybeSingle',))

    assert response.data == {'id': 3, 'label': 'three', 'made_at': None}


def test_maybe_single_of_no_row_is_none(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'), {'p_least': 100}, ('maybeSingle',))

    assert (response.data, response.error) == (None, None)


def test_a_single_row_of_several_is_refused(rest: Rest, function: Name) -> None:
    response = rest.as_service().call(function('list'), {}, ('single',))

    assert (response.status, response.code) == (406, 'PGRST116')


@pytest.mark.parametrize(
    ('name', 'params', 'data'),
    [
        ('add', {'a': 40, 'b': 2}, 42),
        ('labels', {}, ['one', 'two', 'three']),
        ('thing', {'p_id': 2}, {'id': 2, 'label': 'two', 'made_at': None}),
    ],
)
def test_a_read_only_function_can_be_called_by_get(
    rest: Rest, function: Name, name: str, params: dict[str, int], data: object
) -> None:
    response = rest.as_service().call(function(name), params, options={'get': True})

    assert (response.status, response.data) == (200, data)


def test_the_queue_returns_a_job_as_a_list_of_one(
    rest: Rest, owner: User, project: Project
) -> None:
    job = project.enqueue(owner)

    response = rest.as_user(owner).call('pause_crawl_job', {'p_job_id': job['id']})

    assert [(row['id'], row['status']) for row in response.data] == [(job['id'], 'paused')]


def test_columns_can_be_selected_from_a_job_that_the_queue_returns(
    rest: Rest, owner: User, project: Project
) -> None:
    job = project.enqueue(owner)

    response = rest.as_user(owner).call(
        'pause_crawl_job', {'p_job_id': job['id']}, ('select', 'id, status'), ('single',)
    )

    assert response.data == {'id': job['id'], 'status': 'paused'}


def test_the_queue_returns_an_empty_list_for_a_claim_without_jobs(rest: Rest) -> None:
    response = rest.as_service().call(
        'claim_crawl_jobs', {'p_worker_id': str(uuid4()), 'p_lease_tokens': []}
    )

    assert (response.status, response.data) == (200, [])


def test_the_queue_returns_progress_as_an_object(rest: Rest, owner: User, project: Project) -> None:
    job = project.enqueue(owner)

    response = rest.as_user(owner).call('crawl_progress', {'p_job_id': job['id']})

    assert (response.data['job_id'], response.data['status']) == (job['id'], 'pending')
