#!/bin/sh
# Installs what drawing without a screen needs, the browser in which pages are tested and the shells in which completion
# is (Debian, Ubuntu), where they are missing and this user may install.
# Never fails: without them everything but pictures and videos works, and their tests are skipped with a reason.

missing() {  # a shared library that the system does not know
  ! ldconfig -p 2>/dev/null | grep -q "$1"
}

packages=""
missing libEGL.so.1 && packages="$packages libegl1 libgl1-mesa-dri"
missing libOSMesa.so && packages="$packages libosmesa6"
command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
  command -v google-chrome >/dev/null 2>&1 || packages="$packages chromium"
for shell in zsh fish; do
  command -v "$shell" >/dev/null 2>&1 || packages="$packages $shell"
done
[ -n "$packages" ] || exit 0
command -v apt-get >/dev/null 2>&1 || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  exit 0
fi

# One by one: some releases lack one of them. A stale package list is the usual reason to fail.
updated=""
for package in $packages; do
  for attempt in 1 2; do
    $as_root timeout 600 env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" \
      >/dev/null 2>&1 && break
    [ -z "$updated" ] || break
    $as_root timeout 300 apt-get update -q >/dev/null 2>&1
    updated=yes
  done
done
exit 0
