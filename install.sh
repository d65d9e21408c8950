#!/bin/sh
# Installs the `levity` command on Linux and macOS:
#   curl -fsSL https://github.com/levity-rs/levity/releases/latest/download/install.sh | sh
#
# The script downloads a binary of a release, compares its SHA-256 with the release's list, and
# moves it into a folder. It needs curl or wget, tar, and no rights of an administrator.
#
#   LEVITY_INSTALL   folder for the binary; ~/.local/bin by default
#   LEVITY_VERSION   version such as 0.1.0; the latest release by default
#   LEVITY_TARGET    target such as x86_64-unknown-linux-musl; that of this machine by default
#   LEVITY_DOWNLOAD  address of the release's files, such as that of a mirror
set -eu

repository=https://github.com/levity-rs/levity

say() {
  printf 'levity: %s\n' "$*" >&2
}

fail() {
  say "$*"
  exit 1
}

has() {
  command -v "$1" >/dev/null 2>&1
}

# Prints the target of this machine.
target() {
  system=$(uname -s)
  machine=$(uname -m)
  case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no binary for the processor $machine; $from_source" ;;
  esac
  case $system in
    Linux) echo "$machine-unknown-linux-musl" ;;
    Darwin)
      # A process that Rosetta translates reports another processor.
      if [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" = 1 ]; then
        machine=aarch64
      fi
      echo "$machine-apple-darwin"
      ;;
    *) fail "there is no binary for the system $system; use install.ps1 on Windows or $from_source" ;;
  esac
}

# Downloads a file: download URL FILE
download() {
  if has curl; then
    # Only tests and mirrors of your own use plain HTTP.
    curl --fail --silent --show-error --location --retry 3 --output "$2" "$1"
  elif has wget; then
    wget --quiet --output-document="$2" "$1"
  else
    fail "neither curl nor wget was found; install one of them"
  fi || fail "cannot download $1; check the version, the network and the proxy"
}

# Prints the SHA-256 of a file.
digest() {
  if has sha256sum; then
    sha256sum "$1"
  elif has shasum; then
    shasum -a 256 "$1"
  elif has openssl; then
    openssl dgst -sha256 -r "$1"
  else
    fail "none of sha256sum, shasum and openssl was found; install one of them"
  fi | cut -d ' ' -f 1
}

main() {
  from_source="build it with \`cargo install levity-cli --locked --features full\`"
  has tar || fail "tar was not found; install it"
  target=${LEVITY_TARGET:-$(target)}
  folder=${LEVITY_INSTALL:-${HOME:?set HOME or LEVITY_INSTALL}/.local/bin}
  version=${LEVITY_VERSION:-}
  case $version in
    '') default=$repository/releases/latest/download ;;
    *) default=$repository/releases/download/v${version#v} ;;
  esac
  from=${LEVITY_DOWNLOAD:-$default}
  asset=levity-$target.tar.gz

  work=$(mktemp -d)
  fresh=
  trap 'rm -rf "$work"; [ -z "$fresh" ] || rm -f "$fresh"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP

  say "downloading $asset"
  download "$from/SHA256SUMS" "$work/SHA256SUMS"
  # Lines have the form of sha256sum: the digest, two characters, the name.
  expected=$(awk -v name="$asset" '$2 == name || $2 == "*" name { print $1 }' "$work/SHA256SUMS")
  [ -n "$expected" ] || fail "the release has no binary for $target; $from_source"
  download "$from/$asset" "$work/$asset"
  actual=$(digest "$work/$asset")
  [ "$actual" = "$expected" ] ||
    fail "$asset has the wrong SHA-256 ($actual, not $expected); nothing was installed, try again"

  # Nothing is unpacked before it was verified, and nothing else than the binary.
  tar -xzf "$work/$asset" -C "$work" levity || fail "$asset contains no file levity"
  chmod 755 "$work/levity"
  found=$("$work/levity" --version </dev/null) || fail "the binary for $target does not run here"

  mkdir -p "$folder" || fail "cannot create $folder; set LEVITY_INSTALL to another folder"
  # A rename replaces an older binary at once, even while it runs.
  fresh=$folder/.levity-$$
  { cp "$work/levity" "$fresh" && mv -f "$fresh" "$folder/levity"; } ||
    fail "cannot write to $folder; set LEVITY_INSTALL to another folder"
  say "installed $found in $folder"
  case :${PATH:-}: in
    *":$folder:"*) ;;
    *) say "add $folder to PATH, for example in ~/.profile: export PATH=\"$folder:\$PATH\"" ;;
  esac
}

# The call is the last line, so a script whose download was cut off does nothing.
main
