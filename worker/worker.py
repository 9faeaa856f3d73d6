"""`python worker/worker.py` runs `silkline worker`, from a checkout that is not installed, too."""

import sys

from silkline.cli.main import main

if __name__ == '__main__':
    sys.argv.insert(1, 'worker')
    main()
