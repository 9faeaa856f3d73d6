#!/bin/sh
# Install the packages of a lock file into .venv, made if need be: install-python.sh PYTHON LOCK
set -eu
cd "$(dirname "$0")/.."
python=$1
lock=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1)." >&2
  exit 1
}
if [ ! -x .venv/bin/pip ]; then
  "$python" -m venv .venv || {
    rm -rf .venv
    echo 'No virtual environment could be made. On Debian: apt-get install python3-venv' >&2
    exit 1
  }
fi
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
