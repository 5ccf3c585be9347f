#!/bin/sh
# Makes the files of the payload disk visible at their paths on the host, and enables swap.
set -eu
payload=/run/windlass-vm/payload
mkdir -p "$payload"
mount -o noatime /dev/disk/by-id/virtio-payload "$payload"
while read -r directory; do
  mkdir -p "$directory"
  mount --bind "$payload/files$directory" "$directory"
done <"$payload/directories"
if grep -qw windlass.swap /proc/cmdline; then
  swap=/dev/disk/by-id/virtio-swap
  udevadm wait --timeout=120 "$swap"
  mkswap "$swap"
  swapon "$swap"
fi
