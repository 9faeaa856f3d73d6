#!/bin/sh
# Measure the extractor: run.sh [arguments of benchmarks.extract]
# Before the first run, and when the lock file has changed, trafilatura is installed into its own
# environment, .venv-bench-extract.
set -eu
cd "$(dirname "$0")/../.."
lock=benchmarks/extract/requirements.lock
stamp=.venv-bench-extract/.peers

install_peers() {
  [ -x .venv-bench-extract/bin/pip ] || "${PYTHON:-python3}" -m venv .venv-bench-extract
  .venv-bench-extract/bin/pip install --quiet --disable-pip-version-check --require-hashes \
    --no-deps --requirement "$lock"
  touch "$stamp"
}

case " $* " in
  *' --quick '*) ;;
  *)
    if [ ! -e "$stamp" ] || [ "$lock" -nt "$stamp" ]; then
      install_peers
    fi
    ;;
esac
exec .venv/bin/python -m benchmarks.extract "$@"
