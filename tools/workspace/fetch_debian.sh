#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: fetch_debian.sh source PACKAGE TARBALL SHA256 CACHE_DIR
#        fetch_debian.sh binary PACKAGE VERSION SHA256 CACHE_DIR
#
# Downloads the upstream tarball of a Debian source package, or a binary package,
# once, as any user and without touching the machine's own package lists.
# Prints the path of the file.
set -eu

readonly kind=$1 package=$2 what=$3 sha256=$4 cache=$5/debian
case $kind in
  source) readonly file=$what ;;
  binary) readonly file=${package}_${what//:/%3a}.deb ;;
esac

is_whole() { sha256sum --check --status 2> /dev/null <<< "$sha256  $1"; }

# apt with package lists of our own in $tmp, of the archives this machine uses.
own_apt() {
  apt-get -q -o Dir::Etc::SourceList="$tmp/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$tmp/lists" -o Dir::Cache="$tmp" -o APT::Sandbox::User= "$@" >&2
}

refresh_lists() {
  local type=$1
  apt-get indextargets --format \
    "$type [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" \
    'Created-By: Packages' | grep -E 'debian' | sort -u > "$tmp/sources.list"
  own_apt update
}

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
if ! is_whole "$cache/$file"; then
  if ! command -v apt-get > /dev/null; then
    echo "$package is fetched by apt-get, and this machine has none" >&2
    exit 1
  fi
  tmp=$(mktemp -d "$cache/tmp-XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
  cd "$tmp"
  case $kind in
    source)
      refresh_lists deb-src
      own_apt source --download-only "$package"
      ;;
    binary)
      if ! apt-get -q -o APT::Sandbox::User= download "$package=$what" >&2; then
        refresh_lists deb
        own_apt download "$package=$what"
      fi
      mv "$package"_*.deb "$file.new"
      mv "$file.new" "$file"
      ;;
  esac
  if ! is_whole "$tmp/$file"; then
    echo "$file was downloaded, but is not the file pinned by its SHA-256 ($sha256)" >&2
    exit 1
  fi
  mv "$tmp/$file" "$cache/$file"
fi
echo "$cache/$file"
