"""trafilatura with comments and tables. Protocol: see `__init__.py`."""

# The packages are in .venv-bench-extract, which the type checker does not see.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

import json
import logging
import sys
import time

import trafilatura

# So that the first page does not pay for what is imported late.
WARM_UP = (
    '<html><body><main><p>What is loaded late is loaded by this page.</p></main></body></html>'
)


def extract(html: str) -> str:
    return trafilatura.extract(html, include_comments=True, include_tables=True) or ''


def main() -> None:
    logging.disable(logging.ERROR)
    extract(WARM_UP)
    for line in sys.stdin:
        html = json.loads(line)
        began_at = time.process_time()
        text = extract(html)
        seconds = time.process_time() - began_at
        print(json.dumps([text, seconds]), flush=True)


main()
