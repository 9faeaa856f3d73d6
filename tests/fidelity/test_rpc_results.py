"""What a function answers, by the shape of its result."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.support.project import Project, User
from tests.support.rest_clients import Rest

Name = Callable[[str], str]


def test_a_scalar_comes_bare(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('add'), {'a': 40, 'b': 2})

    assert (answer.status, answer.data) == (200, 42)


def test_an_array_comes_as_a_list(rest: Rest, function: Name) -> None:
    assert rest.as_service().call(function('numbers')).data == [1, 2, 3]


def test_null_comes_as_nothing(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('null'))

    assert (answer.status, answer.data) == (200, None)


def test_void_has_no_content(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('void'))

    assert answer.status == 204
    assert not answer.data


def test_json_comes_as_it_was_sent(rest: Rest, function: Name) -> None:
    value = {
        'text': 'Grüße, "quoted" \\ and \U0001f577',
        'deep': [{'list': [1, 2.5, None, True]}, {}],
        'empty': '',
    }

    assert rest.as_service().call(function('echo'), {'value': value}).data == value


def test_arguments_find_their_types_and_defaults(rest: Rest, function: Name) -> None:
    ids = [str(uuid4()), str(uuid4())]

    answer = rest.as_service().call(
        function('types'),
        {'p_text': '7', 'p_uuids': ids, 'p_at': '2026-01-02T03:04:05+01:00'},
    )

    at = datetime.fromisoformat(answer.data.pop('at'))
    assert at == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert answer.data == {'text': '7', 'uuids': ids, 'flag': True}


def test_a_composite_comes_as_an_object(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('thing'), {'p_id': 2})

    assert answer.data == {'id': 2, 'label': 'two', 'made_at': None}


def test_a_composite_of_nothing_comes_as_an_object_of_nulls(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('thing'), {'p_id': 99})

    assert answer.data == {'id': None, 'label': None, 'made_at': None}


def test_a_set_comes_as_a_list_of_objects(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'))

    first = answer.data[0]
    assert datetime.fromisoformat(first['made_at']) == datetime(
        2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC
    )
    assert [row['label'] for row in answer.data] == ['one', 'two', 'three']


def test_an_empty_set_comes_as_an_empty_list(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {'p_least': 100})

    assert (answer.status, answer.data) == (200, [])


def test_a_set_of_scalars_comes_as_a_list_of_scalars(rest: Rest, function: Name) -> None:
    assert rest.as_service().call(function('labels')).data == ['one', 'two', 'three']


def test_a_table_comes_as_a_list_of_objects(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('pairs'))

    assert answer.data[2] == {'n': 3, 'word': 'three'}


def test_a_set_can_be_filtered_ordered_and_cut(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(
        function('list'),
        {},
        ('select', 'id'),
        ('gt', 'id', 1),
        ('order', 'id', {'ascending': False}),
        ('limit', 1),
    )

    assert answer.data == [{'id': 3}]


def test_a_set_can_be_counted_beyond_its_page(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {}, ('limit', 1), options={'count': 'exact'})

    assert (answer.status, len(answer.data), answer.count) == (206, 1, 3)


def test_a_set_can_be_counted_without_being_sent(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(
        function('list'), {'p_least': 2}, options={'count': 'exact', 'head': True}
    )

    assert not answer.data
    assert answer.count == 2


def test_one_row_of_a_set_comes_as_an_object(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {'p_least': 3}, ('single',))

    assert answer.data == {'id': 3, 'label': 'three', 'made_at': None}


def test_perhaps_one_row_of_a_set_comes_as_an_object(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {'p_least': 3}, ('maybeSingle',))

    assert answer.data == {'id': 3, 'label': 'three', 'made_at': None}


def test_perhaps_one_row_of_nothing_comes_as_nothing(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {'p_least': 100}, ('maybeSingle',))

    assert (answer.data, answer.error) == (None, None)


def test_one_row_of_many_is_refused(rest: Rest, function: Name) -> None:
    answer = rest.as_service().call(function('list'), {}, ('single',))

    assert (answer.status, answer.code) == (406, 'PGRST116')


@pytest.mark.parametrize(
    ('name', 'params', 'data'),
    [
        ('add', {'a': 40, 'b': 2}, 42),
        ('labels', {}, ['one', 'two', 'three']),
        ('thing', {'p_id': 2}, {'id': 2, 'label': 'two', 'made_at': None}),
    ],
)
def test_a_function_that_only_reads_can_be_got(
    rest: Rest, function: Name, name: str, params: dict[str, int], data: object
) -> None:
    answer = rest.as_service().call(function(name), params, options={'get': True})

    assert (answer.status, answer.data) == (200, data)


def test_the_queue_answers_a_job_as_a_list_of_one(
    rest: Rest, owner: User, project: Project
) -> None:
    job = project.enqueue(owner)

    answer = rest.as_user(owner).call('pause_crawl_job', {'p_job_id': job['id']})

    assert [(row['id'], row['status']) for row in answer.data] == [(job['id'], 'paused')]


def test_the_queue_answers_a_claim_of_nothing_with_an_empty_list(rest: Rest) -> None:
    answer = rest.as_service().call(
        'claim_crawl_jobs', {'p_worker_id': str(uuid4()), 'p_lease_tokens': []}
    )

    assert (answer.status, answer.data) == (200, [])


def test_the_queue_answers_progress_as_an_object(rest: Rest, owner: User, project: Project) -> None:
    job = project.enqueue(owner)

    answer = rest.as_user(owner).call('crawl_progress', {'p_job_id': job['id']})

    assert (answer.data['job_id'], answer.data['status']) == (job['id'], 'pending')
