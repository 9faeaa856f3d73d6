#!/bin/sh
# Measure the crawler: run.sh [arguments of benchmarks.crawl]
# Before the first run, and when the lock file has changed, the peers are installed into their own
# environment, .venv-bench-crawl.
set -eu
cd "$(dirname "$0")/../.."
lock=benchmarks/crawl/requirements.lock
stamp=.venv-bench-crawl/.peers

install_peers() {
  [ -x .venv-bench-crawl/bin/pip ] || "${PYTHON:-python3}" -m venv .venv-bench-crawl
  .venv-bench-crawl/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    --requirement "$lock"
  touch "$stamp"
}

case " $* " in
  *' --quick '* | *' --skip-peers '* | *' --profile '*) ;;
  *)
    if [ ! -e "$stamp" ] || [ "$lock" -nt "$stamp" ]; then
      install_peers
    fi
    ;;
esac
scripts/install-nginx.sh || true
exec .venv/bin/python -m benchmarks.crawl "$@"
