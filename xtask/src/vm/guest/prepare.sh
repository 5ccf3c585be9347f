#!/bin/sh
# Puts the agent, its files and the local images onto the system disk, once; both daemons start at each
# boot from then on.
set -eu
payload=/run/windlass-vm/payload
cp -r "$payload"/system/. /
cp "$payload"/programs/* /usr/local/bin/
systemctl daemon-reload
systemctl start containerd
for image in "$payload"/images/*.tar; do
  ctr --namespace k8s.io images import "$image" >/dev/null
done
systemctl stop containerd
systemctl enable containerd windlass windlass-power
sync
