"""Decode bytes to text as browsers do.

The charset comes from the first of these that names one: byte order mark, Content-Type, <meta> in
the first bytes of HTML, XML declaration. Otherwise it is UTF-8 if the bytes are valid UTF-8, else
windows-1252. Labels and names are those of the WHATWG Encoding Standard. Bytes that are invalid in
a charset become U+FFFD, and so does NUL, which Postgres cannot store.
"""

import re
from functools import lru_cache

PRESCAN_BYTES = 4096

# Name in the standard, codec in Python, labels. Where Python has a wider codec for the same
# bytes, such as gb18030 for gbk, that one is used. The standard's own `replacement` labels
# (hz-gb-2312, iso-2022-kr and so on) and utf-7 are left out on purpose: unknown labels are ignored.
_CHARSETS = """
utf-8 utf_8: utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8
utf-16be utf_16_be: utf-16be unicodefffe
utf-16le utf_16_le: utf-16le utf-16 csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff
windows-1252 cp1252: windows-1252 latin1 latin-1 iso-8859-1 iso8859-1 iso88591 iso_8859-1 l1 ascii
 us-ascii ansi_x3.4-1968 cp1252 cp819 csisolatin1 ibm819 iso-ir-100 iso_8859-1:1987 x-cp1252
iso-8859-2 iso8859_2: iso-8859-2 iso8859-2 iso88592 iso_8859-2 latin2 l2 csisolatin2 iso-ir-101
 iso_8859-2:1987
iso-8859-3 iso8859_3: iso-8859-3 iso8859-3 iso88593 iso_8859-3 latin3 l3 csisolatin3 iso-ir-109
 iso_8859-3:1988
iso-8859-4 iso8859_4: iso-8859-4 iso8859-4 iso88594 iso_8859-4 latin4 l4 csisolatin4 iso-ir-110
 iso_8859-4:1988
iso-8859-5 iso8859_5: iso-8859-5 iso8859-5 iso88595 iso_8859-5 cyrillic csisolatincyrillic
 iso-ir-144 iso_8859-5:1988
iso-8859-6 iso8859_6: iso-8859-6 iso8859-6 iso88596 iso_8859-6 arabic asmo-708 ecma-114
 csisolatinarabic csiso88596e csiso88596i iso-8859-6-e iso-8859-6-i iso-ir-127 iso_8859-6:1987
iso-8859-7 iso8859_7: iso-8859-7 iso8859-7 iso88597 iso_8859-7 greek greek8 sun_eu_greek ecma-118
 elot_928 csisolatingreek iso-ir-126 iso_8859-7:1987
iso-8859-8 iso8859_8: iso-8859-8 iso8859-8 iso88598 iso_8859-8 hebrew visual csisolatinhebrew
 csiso88598e iso-8859-8-e iso-ir-138 iso_8859-8:1988
iso-8859-8-i iso8859_8: iso-8859-8-i logical csiso88598i
iso-8859-10 iso8859_10: iso-8859-10 iso8859-10 iso885910 latin6 l6 csisolatin6 iso-ir-157
iso-8859-13 iso8859_13: iso-8859-13 iso8859-13 iso885913
iso-8859-14 iso8859_14: iso-8859-14 iso8859-14 iso885914
iso-8859-15 iso8859_15: iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9 csisolatin9
iso-8859-16 iso8859_16: iso-8859-16
ibm866 cp866: ibm866 866 cp866 csibm866
koi8-r koi8_r: koi8-r koi koi8 koi8_r cskoi8r
koi8-u koi8_u: koi8-u koi8-ru
macintosh mac_roman: macintosh mac x-mac-roman csmacintosh
x-mac-cyrillic mac_cyrillic: x-mac-cyrillic x-mac-ukrainian
windows-874 cp874: windows-874 dos-874 tis-620 iso-8859-11 iso8859-11 iso885911
windows-1250 cp1250: windows-1250 cp1250 x-cp1250
windows-1251 cp1251: windows-1251 cp1251 x-cp1251
windows-1253 cp1253: windows-1253 cp1253 x-cp1253
windows-1254 cp1254: windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 latin5
 l5 csisolatin5 iso-ir-148 iso_8859-9:1989
windows-1255 cp1255: windows-1255 cp1255 x-cp1255
windows-1256 cp1256: windows-1256 cp1256 x-cp1256
windows-1257 cp1257: windows-1257 cp1257 x-cp1257
windows-1258 cp1258: windows-1258 cp1258 x-cp1258
gbk gb18030: gbk gb2312 gb_2312 gb_2312-80 x-gbk chinese csgb2312 csiso58gb231280 iso-ir-58
gb18030 gb18030: gb18030
big5 big5hkscs: big5 big5-hkscs cn-big5 csbig5 x-x-big5
euc-jp euc_jp: euc-jp x-euc-jp cseucpkdfmtjapanese
iso-2022-jp iso2022_jp: iso-2022-jp csiso2022jp
shift_jis cp932: shift_jis shift-jis sjis x-sjis ms_kanji ms932 windows-31j csshiftjis
euc-kr cp949: euc-kr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949 cseuckr
 csksc56011987 iso-ir-149
"""


def _table() -> tuple[dict[str, str], dict[str, str]]:
    names: dict[str, str] = {}
    codecs: dict[str, str] = {}
    for entry in _CHARSETS.replace('\n ', ' ').strip().splitlines():
        head, _, labels = entry.partition(': ')
        name, _, codec = head.partition(' ')
        codecs[name] = codec
        names.update(dict.fromkeys(labels.split(), name))
    return names, codecs


NAMES, CODECS = _table()
_HEADER = re.compile(r'charset\s*=\s*["\']?\s*([^\s"\';,]+)', re.IGNORECASE)
_TAG = re.compile(rb'<!--.*?(?:-->|\Z)|<meta[\s/]([^>]*)', re.IGNORECASE | re.DOTALL)
_ATTRIBUTE = re.compile(
    rb'(?<![^\s"\'/])([^\s=/>"\']++)\s*+=\s*+(?:"([^"]*)"|\'([^\']*)\'|([^\s>"\']+))'
)
_XML = re.compile(rb'<\?xml\s[^>]{0,200}?encoding\s*=\s*["\']\s*([A-Za-z0-9._:-]+)')
_BOMS = ((b'\xef\xbb\xbf', 'utf-8'), (b'\xff\xfe', 'utf-16le'), (b'\xfe\xff', 'utf-16be'))


def decode(body: bytes, content_type: str | None, *, is_html: bool) -> tuple[str, str]:
    """The text of a body, and the name of the charset it was decoded with. Never raises."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return _text(body[len(mark) :], name), name
    name = charset_of(content_type) if content_type else None
    if name is None:
        name = _declared(body, is_html=is_html)
    if name is None:
        try:
            return _without_nul(body.decode('utf-8')), 'utf-8'
        except UnicodeDecodeError:
            name = 'windows-1252'
    return _text(body, name), name


@lru_cache(maxsize=256)
def charset_of(content_type: str) -> str | None:
    """The charset that a Content-Type names, if browsers know it."""
    found = _HEADER.search(content_type[:500])
    return name_of(found[1]) if found else None


def name_of(label: str) -> str | None:
    """The standard's name for a label, such as windows-1252 for latin1."""
    return NAMES.get(label.strip().lower())


def _declared(body: bytes, *, is_html: bool) -> str | None:
    head = body[:PRESCAN_BYTES]
    if head.startswith(b'<\x00?\x00'):
        return 'utf-16le'
    if head.startswith(b'\x00<\x00?'):
        return 'utf-16be'
    name = _from_meta(head) if is_html else None
    if name is None and (found := _XML.match(head.lstrip())):
        name = name_of(found[1].decode('ascii'))
    # The declaration was readable as ASCII, so it cannot be UTF-16.
    return 'utf-8' if name in ('utf-16le', 'utf-16be') else name


def _from_meta(head: bytes) -> str | None:
    for tag in _TAG.finditer(head):
        if tag[1] is None:
            continue
        attributes: dict[bytes, str] = {}
        for found in _ATTRIBUTE.finditer(tag[1]):
            value = found[2] or found[3] or found[4] or b''
            attributes.setdefault(found[1].lower(), value.decode('latin-1'))
        label = attributes.get(b'charset')
        if label is None and attributes.get(b'http-equiv', '').strip().lower() == 'content-type':
            content = _HEADER.search(attributes.get(b'content', ''))
            label = content[1] if content else None
        if label is not None and (name := name_of(label)):
            return name
    return None


def _text(body: bytes, name: str) -> str:
    return _without_nul(body.decode(CODECS[name], 'replace'))


def _without_nul(text: str) -> str:
    return text.replace('\x00', '\ufffd') if '\x00' in text else text
