#!/bin/sh
# Takes Windlass off every node of the cluster that kubectl talks to: moves its pods away, ends
# what is left of them, removes what it made on the machines, and last itself. Can be repeated.
# LEAVE is the file of `cargo xtask manifests`, for images from a registry of your own.
set -eu
here=$(dirname "$0")
patience=${1:-10m}
leave=${LEAVE:+--filename=$LEAVE}
leave=${leave:---kustomize=$here/overlays/leave}

nodes=$(kubectl get nodes --selector=windlass.dev/side-by-side=true --output=name)
if [ -n "$nodes" ]; then
  # shellcheck disable=SC2086
  kubectl drain $nodes --ignore-daemonsets --delete-emptydir-data --force --timeout="$patience"
fi
kubectl apply "$leave"
kubectl --namespace=windlass rollout status daemonset/windlass --timeout="$patience"
if [ -n "$nodes" ]; then
  # shellcheck disable=SC2086
  kubectl delete $nodes
fi
kubectl delete "$leave"
