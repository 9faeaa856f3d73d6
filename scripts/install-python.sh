#!/bin/sh
# Install the packages of a lock file into .venv, which is created if needed:
# install-python.sh PYTHON LOCK
set -eu
cd "$(dirname "$0")/.."
python=$1
lock=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Silkline needs Python 3.11 or newer; $python is $("$python" --version 2>&1)." >&2
  echo "Name another one: make install PYTHON=python3.12" >&2
  exit 1
}
if [ ! -x .venv/bin/pip ]; then
  "$python" -m venv .venv || {
    rm -rf .venv
    echo 'Could not create a virtual environment. On Debian: apt-get install python3-venv' >&2
    exit 1
  }
fi
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
