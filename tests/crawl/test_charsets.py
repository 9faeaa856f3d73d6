"""Which charset bytes are decoded with, what labels stand for, and that nothing raises."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline.crawl.charsets import CODECS, NAMES, decode, name_of

TEXT = 'Grüße, 世界'
HTML = 'text/html'


def test_utf_8_is_decoded_by_header() -> None:
    assert decode(TEXT.encode(), 'text/html; charset=utf-8', is_html=True) == (TEXT, 'utf-8')


BOMS = [('utf-8-sig', 'utf-8'), ('utf-16', 'utf-16le')]


@pytest.mark.parametrize(('codec', 'name'), BOMS)
def test_a_byte_order_mark_outranks_everything(codec: str, name: str) -> None:
    body = ('<meta charset=koi8-r>' + TEXT).encode(codec)
    text, charset = decode(body, 'text/html; charset=windows-1251', is_html=True)
    assert (text, charset) == ('<meta charset=koi8-r>' + TEXT, name)


def test_a_big_endian_byte_order_mark_is_recognised() -> None:
    assert decode(b'\xfe\xff' + TEXT.encode('utf-16-be'), None, is_html=False) == (TEXT, 'utf-16be')


HEADERS = [
    ('text/html; charset=windows-1251', 'windows-1251'),
    ('text/html;charset="windows-1251"', 'windows-1251'),
    ("text/html; charset='windows-1251'", 'windows-1251'),
    ('text/html; Charset = WINDOWS-1251 ; x=y', 'windows-1251'),
    ('text/html; charset=cp1251', 'windows-1251'),
    ('text/html; charset=', 'koi8-r'),
    ('text/html; charset=nonsense', 'koi8-r'),
    ('text/html; charset=utf-7', 'koi8-r'),
    ('text/html', 'koi8-r'),
    ('', 'koi8-r'),
    (None, 'koi8-r'),
    ('text/html; charset=' + 'x' * 100_000, 'koi8-r'),
]


@pytest.mark.parametrize(('header', 'name'), HEADERS)
def test_a_charset_in_the_header_outranks_the_page(header: str | None, name: str) -> None:
    body = '<meta charset="koi8-r">Привет'.encode('koi8-r' if name == 'koi8-r' else 'cp1251')
    text, charset = decode(body, header, is_html=True)
    assert charset == name
    assert text.endswith('Привет')


METAS = [
    ('<meta charset=shift_jis>', 'shift_jis'),
    ('<META CHARSET="Shift_JIS">', 'shift_jis'),
    ("<meta charset = 'sjis' />", 'shift_jis'),
    ('<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">', 'shift_jis'),
    ("<meta content='text/html;charset=shift_jis' http-equiv=content-type>", 'shift_jis'),
    ('<meta name=a content="charset=koi8-r"><meta charset=shift_jis>', 'shift_jis'),
    ('<!-- <meta charset=koi8-r> --><meta charset=shift_jis>', 'shift_jis'),
    ('<meta charset=nonsense><meta charset=shift_jis>', 'shift_jis'),
    ('<?xml version="1.0" encoding="koi8-r"?><meta charset=shift_jis>', 'shift_jis'),
    ('<?xml version="1.0" encoding="shift_jis"?><html>', 'shift_jis'),
    (' ' * 1000 + '<meta charset=shift_jis>', 'shift_jis'),
    ('<meta charset=utf-16>', 'utf-8'),
    ('<meta charset=utf-16be>', 'utf-8'),
    ('<?xml version="1.0" encoding="utf-16"?>', 'utf-8'),
    ('<meta charset=utf-7>', 'windows-1252'),
    ('<metal charset=shift_jis>', 'windows-1252'),
    (' ' * 10_000 + '<meta charset=shift_jis>', 'windows-1252'),
    ('<!-- <meta charset=shift_jis>', 'windows-1252'),
]


@pytest.mark.parametrize(('head', 'name'), METAS)
def test_a_page_declares_its_charset_at_its_beginning(head: str, name: str) -> None:
    body = head.encode() + '日本'.encode('cp932')
    text, charset = decode(body, HTML, is_html=True)
    assert charset == name
    assert text.endswith('日本') is (name == 'shift_jis')


def test_meta_counts_in_html_only() -> None:
    body = b'<meta charset=koi8-r> \xd0\xd2'
    assert decode(body, 'text/plain', is_html=False)[1] == 'windows-1252'
    xml = b'<?xml version="1.0" encoding="koi8-r"?>' + 'да'.encode('koi8-r')
    assert decode(xml, 'application/xml', is_html=False)[0].endswith('да')


def test_xml_in_utf_16_without_a_byte_order_mark_is_recognised() -> None:
    text = '<?xml version="1.0"?><a>ü</a>'
    assert decode(text.encode('utf-16-le'), None, is_html=False) == (text, 'utf-16le')
    assert decode(text.encode('utf-16-be'), None, is_html=False) == (text, 'utf-16be')


def test_without_a_declaration_valid_utf_8_is_utf_8() -> None:
    assert decode(TEXT.encode(), None, is_html=True) == (TEXT, 'utf-8')
    assert decode(b'plain', HTML, is_html=True) == ('plain', 'utf-8')
    assert decode(b'', None, is_html=True) == ('', 'utf-8')
    assert decode('Grüße „ja“ €'.encode('cp1252'), HTML, is_html=True) == (
        'Grüße „ja“ €',
        'windows-1252',
    )


LABELS = [
    ('latin1', 'windows-1252', b'\x80\x93', '€“'),
    ('ISO-8859-1', 'windows-1252', b'\x80', '€'),
    ('us-ascii', 'windows-1252', b'\xe9', 'é'),
    ('gb2312', 'gbk', b'\xd6\xd0\x81\x40', '中丂'),
    ('gbk', 'gbk', b'\x81\x30\x81\x30', '\x80'),
    ('big5', 'big5', b'\xa4\xa4', '中'),
    ('x-sjis', 'shift_jis', b'\x87\x40', '①'),
    ('euc-jp', 'euc-jp', b'\xc6\xfc', '日'),
    ('iso-2022-jp', 'iso-2022-jp', b'\x1b$BF|\x1b(B', '日'),
    ('ks_c_5601-1987', 'euc-kr', b'\x81\x41', '갂'),
    ('tis-620', 'windows-874', b'\xa1', 'ก'),
    ('iso-8859-9', 'windows-1254', b'\xdd', 'İ'),
    ('iso-8859-15', 'iso-8859-15', b'\xa4', '€'),
    ('koi8-u', 'koi8-u', b'\xa4', 'є'),
    ('logical', 'iso-8859-8-i', b'\xe0', 'א'),
    ('macintosh', 'macintosh', b'\x80', 'Ä'),
    ('utf-16', 'utf-16le', b'a\x00', 'a'),
]


@pytest.mark.parametrize(('label', 'name', 'body', 'text'), LABELS)
def test_labels_mean_what_they_mean_to_browsers(
    label: str, name: str, body: bytes, text: str
) -> None:
    assert decode(body, f'text/html; charset={label}', is_html=True) == (text, name)


def test_every_label_has_a_python_codec() -> None:
    assert set(NAMES.values()) == set(CODECS)
    for name, codec in CODECS.items():
        assert name_of(name) == name
        assert b'a\x00'.decode(codec, 'replace')


@pytest.mark.parametrize(
    'label',
    ['utf-7', 'hz-gb-2312', 'idna', 'rot13', 'base64', 'zlib', 'unicode_escape', 'mbcs', ''],
)
def test_other_python_codecs_are_not_charsets(label: str) -> None:
    assert name_of(label) is None
    assert decode(b'+ADw-', f'text/html; charset={label}', is_html=True) == ('+ADw-', 'utf-8')


def test_nul_does_not_reach_the_text() -> None:
    assert decode(b'a\x00b', None, is_html=True)[0] == 'a\ufffdb'
    assert decode(b'a\x00b', 'text/html; charset=koi8-r', is_html=True)[0] == 'a\ufffdb'


@given(st.binary(max_size=200), st.sampled_from([None, '', *sorted(NAMES)]), st.booleans())
def test_no_input_raises_and_every_text_can_be_stored(
    body: bytes, label: str | None, is_html: bool
) -> None:
    header = None if label is None else f'text/html; charset={label}'
    for variant in (body, b'<meta charset=' + body, b'<?xml encoding="' + body):
        text, _ = decode(variant, header, is_html=is_html)
        assert '\x00' not in text
        text.encode()


@pytest.mark.parametrize(
    'unit', [b'<meta ', b'<!--', b'<meta a=', b"<meta a='", b'<?xml ', b'a', b'a ', b'\xff']
)
def test_malicious_bytes_take_linear_time(unit: bytes) -> None:
    started = time.process_time()
    decode(unit * (5_000_000 // len(unit)), HTML, is_html=True)
    decode(b'<meta ' + unit * 5_000, HTML, is_html=True)
    assert time.process_time() - started < 5
