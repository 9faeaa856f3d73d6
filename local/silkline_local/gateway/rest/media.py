"""Media types: what the body of a request may be, and which form the response takes."""

import functools
from dataclasses import dataclass

from silkline_local.gateway.rest.errors import failure

JSON = 'application/json'
OBJECT = 'application/vnd.pgrst.object'
ARRAY = 'application/vnd.pgrst.array'


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """How a response is written: as one object or as an array, with nulls or without."""

    content_type: str
    is_object: bool = False
    strips_nulls: bool = False


PLAIN = ResponseForm(f'{JSON}; charset=utf-8')
FORMS = {
    '*/*': PLAIN,
    JSON: PLAIN,
    ARRAY: PLAIN,
    f'{ARRAY}+json': PLAIN,
    OBJECT: ResponseForm(f'{OBJECT}+json; charset=utf-8', is_object=True),
    f'{OBJECT}+json': ResponseForm(f'{OBJECT}+json; charset=utf-8', is_object=True),
}
STRIPPED_ARRAY = ResponseForm(f'{ARRAY}+json;nulls=stripped; charset=utf-8', strips_nulls=True)
STRIPPED_OBJECT = ResponseForm(
    f'{OBJECT}+json;nulls=stripped; charset=utf-8', is_object=True, strips_nulls=True
)


@functools.lru_cache(maxsize=256)
def response_form(accept: str) -> ResponseForm:
    """The form that an `Accept` header prefers, of those that are supported."""
    ranges = [part.strip() for part in accept.split(',') if part.strip()]
    # Sorting is stable: the first of equal weight wins.
    for media_range in sorted(ranges, key=weight, reverse=True):
        name, *parameters = (part.strip().lower() for part in media_range.split(';'))
        form = FORMS.get(name)
        if form is None or weight(media_range) == 0:
            continue
        if 'nulls=stripped' in parameters and name not in ('*/*', JSON):
            return STRIPPED_OBJECT if form.is_object else STRIPPED_ARRAY
        return form
    raise failure(
        406,
        'PGRST107',
        f'None of these media types are available: {", ".join(ranges)}',
        hint=f'The local stack returns {JSON}, {OBJECT}+json and {ARRAY}+json.',
    )


def weight(media_range: str) -> float:
    for parameter in media_range.split(';')[1:]:
        name, _, value = parameter.strip().partition('=')
        if name == 'q':
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


@functools.lru_cache(maxsize=256)
def refuse_other_than_json(content_type: str) -> None:
    name = content_type.partition(';')[0].strip().lower()
    if name != JSON:
        raise failure(
            415,
            'PGRST107',
            f'Content-Type not acceptable: {name}',
            hint=f'The local stack accepts {JSON} only.',
        )
