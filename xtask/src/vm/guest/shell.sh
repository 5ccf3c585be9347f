#!/bin/sh
# Imports the local images and puts the example manifests and the programs in place.
set -eu
payload=/run/windlass-vm/payload
cp "$payload"/programs/* /usr/local/bin/
for image in "$payload"/images/*.tar; do
  ctr --namespace k8s.io images import "$image" >/dev/null
done
mkdir -p /etc/kubernetes/manifests /root/examples
cp "$payload"/examples/* /root/examples/
