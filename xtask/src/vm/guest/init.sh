#!/bin/busybox sh
# The initial RAM file system: loads the drivers of the disk and starts the system on it.
/bin/busybox mount -t devtmpfs devtmpfs /dev
while read -r module; do
  /bin/busybox insmod "$module"
done </modules/order
tries=0
while [ ! -b /dev/vda ] && [ "$tries" -lt 600 ]; do
  /bin/busybox usleep 50000
  tries=$((tries + 1))
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root
exec /bin/busybox switch_root /root /sbin/init
