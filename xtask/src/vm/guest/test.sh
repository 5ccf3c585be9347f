#!/bin/sh
# Runs the tests of the payload disk, writes their output and exit code to the host, and powers off.
set -u
# on a busy host udev may be later than this unit
udevadm wait --timeout=300 /dev/virtio-ports/windlass.output
exec >/dev/virtio-ports/windlass.output 2>&1
echo "windlass-vm: booted"
/bin/sh /run/windlass-vm/payload/run
echo "windlass-vm: exit code $?"
exec systemctl --force poweroff
