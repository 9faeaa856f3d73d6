#!/bin/sh
# Unpack Debian's nginx into .venv/nginx, where benchmarks/crawl/site_server.py looks for it. It is
# not installed, because the package would start a server on port 80.
set -eu
cd "$(dirname "$0")/.."
place=$PWD/.venv/nginx

if command -v nginx >/dev/null || [ -x "$place/usr/sbin/nginx" ]; then
  exit 0
fi
command -v apt-get >/dev/null || exit 1
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
cd "$download"
# When run as root, apt-get downloads under another account.
chmod 777 "$download"
apt-get -qq download nginx >/dev/null
dpkg-deb --extract nginx_*.deb unpacked
mkdir -p "$place"
cp -r unpacked/. "$place"
"$place/usr/sbin/nginx" -v 2>/dev/null
