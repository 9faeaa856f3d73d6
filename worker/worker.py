"""`python worker/worker.py` runs `silkline worker`, even if the package is not installed."""

import sys

from silkline.cli.main import main

if __name__ == '__main__':
    sys.argv.insert(1, 'worker')
    main()
